"""What goes wrong: two lines on standard error, an exit code that means something, and never a traceback."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tenure.cli import terminal
from tenure.testing.kube import until
from tests.cli.support import BIN, SECONDS, Done, call, copy, finish, run_yaml, spawn, submit

EVIL = "x\x1b[31m\x07\x9b\u202ey"


def assert_told(done: Done, code: int, *words: str) -> None:
    """The error, the next step, nothing on standard output, nothing a terminal would obey."""
    assert (done.code, done.out) == (code, ""), done
    lines = done.err.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[-1].startswith("next: ")
    assert "Traceback" not in done.err
    assert all(line.startswith(("error: ", "next: ")) for line in lines)
    assert all(character.isprintable() for line in lines for character in line)
    for word in words:
        assert word in done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["runs", "list"], 2, "--local"),
        (["runs", "--local", "nowhere.db", "list"], 5, "There is no ledger at nowhere.db"),
        (["runs", "--local", os.devnull, "list"], 6, "not a Tenure ledger"),
        (["runs", "lst"], 2, "did you mean list?"),
        (["runs", "list", "--nope"], 2, "--nope"),
        (["runs", "list", "-o", "xml"], 2, "xml"),
        (["runs", "leases", "--at", "yesterday-ish"], 2, "is no time"),
        (["runs", "chargeback", "--since", "0001-01-01T00:00:00+05:00"], 2, "is no time"),
        (["runs", "describe"], 2, "RUN"),
        (["tenure", "up", "nowhere.db"], 5, "there is no fleet at nowhere.db"),
        (["tenure", "init", "new.db", "--fleet", "nowhere.yaml"], 2, "nowhere.yaml cannot be read"),
        (["tenure", "scenario", "nowhere.yaml"], 2, "nowhere.yaml cannot be read"),
        (["tenure", "ledger", "verify", "nowhere.db"], 5, "There is no ledger"),
        (["tenure", "policy", "show"], 2, "--local"),
        (["tenure", "explain-code", "NoCapacty"], 5, "did you mean NoCapacity?"),
        (["tenure", "ledger", "nope"], 2, "nope"),
    ],
)
def test_mistakes_are_told_with_the_next_step(words: list[str], code: int, said: str) -> None:
    assert_told(call(*words), code, said)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["describe", "nope"], 5, "Run/default/nope does not exist"),
        (["describe", "a-train"], 5, "did you mean rai/a-train?"),
        (["describe", "rai/a-trian"], 5, "did you mean rai/a-train?"),
        (["explain", "rai/nope"], 5, "does not exist"),
        (["who-pays", "rai/nope"], 5, "does not exist"),
        (["logs", "rai/nope"], 5, "does not exist"),
        (["logs", "rai/e-giant"], 5, "there are no logs of Run/rai/e-giant"),
        (["logs", "rai/a-train", "--pod", "9"], 5, "a-train-a1-0, a-train-a1-1"),
        (["cancel", "rai/nope"], 5, "does not exist"),
        (["pods", "rai/nope"], 5, "does not exist"),
        (["watch", "rai/nope"], 5, "does not exist"),
        (["budgets", "usage", "nope"], 5, "Budget/nope does not exist"),
        (["describe", "a/b/c"], 2, "NAMESPACE/NAME"),
        (["describe", "rai/a-train", "-n", "other"], 2, "-n says other"),
        (["submit", "-f", "nowhere.yaml"], 2, "nowhere.yaml cannot be read: no such file or directory"),
        (["plan", "-f", "."], 2, "cannot be read: is a directory"),
        (["budgets", "usage", "--since", "1h"], 2, "--by"),
        (["budgets", "usage", "--by", "owner", "--at", "1h"], 2, "exclude each other"),
    ],
)
def test_what_is_not_there_is_said_not_to_be(past: Path, words: list[str], code: int, said: str) -> None:
    assert_told(call("runs", *words, fleet=past), code, said)


@pytest.mark.parametrize(
    "text",
    ["{", "a: [1", "\t- x", "kind: Run\nkind: Run\n", "&a [*a]", "", "\x00", "[" * 5000, "kind: Run\nspec: 12\n",
     "a" * 2_000_000],
    ids=["brace", "open list", "tab", "twice", "alias", "empty", "nul", "deep", "types", "long"],
)  # fmt: skip
def test_bad_input_is_told_and_nothing_is_stored(used: Path, text: str) -> None:
    before = call("tenure", "ledger", "export", str(used)).out
    for words in (["runs", "submit", "-f", "-"], ["runs", "plan", "-f", "-"], ["tenure", "scenario", "-"]):
        assert_told(call(*words, fleet=used, stdin=text), 2)
    assert call("tenure", "ledger", "export", str(used)).out == before


def test_bytes_that_are_no_text_are_told(used: Path) -> None:
    assert_told(call("runs", "submit", "-f", "-", fleet=used, stdin=b"kind: \xff\xfe"), 2, "not UTF-8")


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "describe", EVIL],
        ["runs", "explain", f"{EVIL}/{EVIL}"],
        ["runs", "submit", "-f", EVIL],
        ["runs", "--local", EVIL, "list"],
        ["runs", EVIL],
        ["runs", "list", f"--{EVIL}"],
        ["runs", "leases", "--at", EVIL],
        ["runs", "budgets", "usage", EVIL],
        ["tenure", "explain-code", EVIL],
        ["tenure", "up", EVIL],
    ],
)
def test_hostile_names_reach_no_terminal_unescaped(past: Path, words: list[str]) -> None:
    done = call(*words, fleet=past)
    assert done.code in (2, 5)
    assert_told(done, done.code, "\\x1b[31m")


def test_hostile_text_in_objects_is_refused_or_escaped(used: Path) -> None:
    assert_told(submit(used, run_yaml("x", 8, EVIL)), 2)
    noted = run_yaml("y", 8, "true").replace('"namespace": "rai"', '"namespace": "rai", "annotations": {"a": "[red]b"}')
    assert submit(used, noted).code == 0
    assert "[red]b" in call("runs", "describe", "rai/y", "-o", "json", fleet=used).out


def test_a_bug_is_one_line_unless_somebody_wants_more(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenure.cli.local import LocalFleet

    monkeypatch.setattr(LocalFleet, "view", lambda self: 1 / 0)
    done = call("runs", "list", fleet=past)
    assert_told(done, 1, "unexpected ZeroDivisionError", "TENURE_DEBUG=1")
    loud = call("runs", "list", fleet=past, TENURE_DEBUG="1")
    assert (loud.code, "Traceback" in loud.err) == (1, True)


def test_a_reader_that_leaves_is_no_error(past: Path) -> None:
    export = f"{BIN}/tenure ledger export {past}"
    script = (
        f"set -o pipefail; for i in 1 2 3 4 5 6 7 8; do {export} | head -c 1 >/dev/null || exit $?; done; {export} >&-"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "Traceback" not in done.stderr, done
    reader, writer = os.pipe()
    os.close(reader)  # before there is anything to read: what fits into a pipe is written without anybody's noticing
    listed = spawn("runs", "list", "-A", fleet=past, stdout=writer)
    os.close(writer)
    assert listed.stderr is not None
    assert (listed.wait(timeout=SECONDS), listed.stderr.read()) == (141, "")
    listed.stderr.close()


def test_a_program_without_standard_output_still_ends_well(past: Path) -> None:
    for command in (f"kubectl-runs --local {past} list -A", f"tenure ledger verify {past}"):
        done = subprocess.run(["bash", "-c", f"{BIN}/{command} >&-"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_program_without_standard_input_reads_nothing(past: Path) -> None:
    script = f"{BIN}/kubectl-runs --local {past} submit -f - <&-"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert_told(Done(done.returncode, done.stdout, done.stderr), 2, "standard input: empty: there is no object in it")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_an_output_that_does_not_fit_on_its_disk_is_told(past: Path) -> None:
    for command in (f"kubectl-runs --local {past} list -A", f"tenure ledger export {past}"):
        script = f"{BIN}/{command} >/dev/full"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        told = "error: this machine is in trouble: no space left on device\n"
        assert_told(Done(done.returncode, done.stdout, done.stderr), 1, told)
        assert "a bug" not in done.stderr


@pytest.mark.parametrize("columns", ["²", "0", "-1", "many"])
def test_an_odd_width_of_the_terminal_is_no_trouble(past: Path, columns: str) -> None:
    assert call("runs", "list", "-A", fleet=past, COLUMNS=columns).code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", columns)
        assert terminal.width() > 0


def test_a_kubeconfig_that_is_no_text_is_told(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_bytes(b"\x00\x01\xff\xfe")
    assert_told(call("runs", "list", "--kubeconfig", str(config)), 5, f"{config} cannot be read: it is not text")


def test_ctrl_c_says_so_and_ends(fresh: Path) -> None:
    process = spawn("runs", "submit", "-f", "-", fleet=fresh, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("kind: Run\n")
    process.stdin.flush()
    until(lambda: process.poll() is not None or _reads(process.pid))
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert (done.code, done.out, done.err) == (130, "", "\nstopped\n")


def _reads(pid: int) -> bool:
    """Whether a process waits for its standard input: it has read what there was."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    syscall = Path(f"/proc/{pid}/syscall")
    return fields[0] == "S" and syscall.exists() and syscall.read_text().startswith("0 0x0")


# --- a ledger that says no ------------------------------------------------------------------------------------------


@pytest.fixture
def truncated(past: Path, tmp_path: Path) -> Path:
    """A fleet restored from an old backup: its anchor has seen more."""
    fleet = copy(past, tmp_path)
    old = tmp_path / "old"
    old.mkdir()
    backup = copy(fleet, old)
    assert call("runs", "cancel", "rai/e-giant", fleet=fleet).code == 0
    for path in tmp_path.glob("fleet.db*"):
        if path.name in ("fleet.db", "fleet.db-wal", "fleet.db-shm"):
            path.unlink()
    fleet.write_bytes(backup.read_bytes())
    return fleet


def test_a_ledger_behind_its_anchor_is_refused_by_every_verb(truncated: Path) -> None:
    for words in (["list"], ["leases"], ["submit", "-f", "-"], ["budgets", "usage"]):
        assert_told(call("runs", *words, fleet=truncated, stdin=run_yaml("x", 8, "true")), 6, "BehindAnchor")
    assert finish(spawn("tenure", "up", str(truncated))).code == 6


def test_verify_says_what_is_wrong_with_it(truncated: Path) -> None:
    done = call("tenure", "ledger", "verify", str(truncated))
    assert done.code == 6
    assert "anchor" in done.out
    assert done.err.startswith("error: ")
    findings = call("tenure", "ledger", "verify", str(truncated), "-o", "json").json["findings"]
    assert [finding["where"] for finding in findings] == ["BehindAnchor"]


def test_accepting_asks_first_and_is_recorded(truncated: Path) -> None:
    refused = call("tenure", "ledger", "accept", str(truncated), stdin="n\n")
    assert refused.code == 6
    assert call("runs", "list", fleet=truncated).code == 6
    accepted = call("tenure", "ledger", "accept", str(truncated), "--yes", "--who", "night operator")
    assert accepted.code == 0
    assert call("runs", "list", fleet=truncated).code == 0
    entry = call("tenure", "ledger", "show", str(truncated), "--limit", "1", "-o", "json").json["entries"][0]
    assert "night operator accepted the ledger" in entry["facts"][0]["message"]
    assert call("tenure", "ledger", "verify", str(truncated)).code == 0


@pytest.mark.parametrize("writer", ["up", "submit"])
def test_a_fleet_of_an_earlier_release_says_how_it_is_upgraded_and_then_is(
    writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenure.ledger import Ledger, schema

    fleet = tmp_path / "fleet.db"
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "STEPS", schema.STEPS[:1])
        Ledger.create(fleet, fleet="old").close()
    if len(schema.STEPS) > 1:
        assert_told(call("runs", "list", fleet=fleet), 6, "OlderSchema", "`tenure up FILE`")
    if writer == "up":
        done = finish(spawn("tenure", "up", str(fleet), "--until-idle"))
    else:
        done = submit(fleet, "kind: Namespace\nmetadata: {name: rai}\n")
    assert done.code == 0, done.err
    assert call("runs", "list", fleet=fleet).code == 0


def test_a_good_ledger_needs_no_acceptance(used: Path) -> None:
    before = call("tenure", "ledger", "export", str(used)).out
    done = call("tenure", "ledger", "accept", str(used), "--yes")
    assert (done.code, "nothing to accept" in done.err) == (0, True)
    assert call("tenure", "ledger", "export", str(used)).out == before


def test_a_fleet_is_never_overwritten(past: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("kind: Fleet\n")
    assert_told(call("tenure", "init", str(past), "--fleet", str(tmp_path / "fleet.yaml")), 6, "exists already")
