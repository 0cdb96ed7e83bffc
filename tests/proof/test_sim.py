"""The simulation of whole systems: its CI share of seeds, the bugs it found, and the simulator itself."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from random import Random
from subprocess import PIPE, Popen
from typing import Any

import msgspec
import pytest

from proof import scratch
from proof.commit import ROOT, describe
from proof.sim import failure, faults_store
from proof.sim.clock import Clock
from proof.sim.command import main, play_all
from proof.sim.disk import Disk
from proof.sim.embedded import EmbeddedWorld
from proof.sim.events import FAULTS, Event, Plan
from proof.sim.generate import HOME_FAULTS, generate, kinds
from proof.sim.limit import Unending, limited
from proof.sim.loop import VirtualIO, VirtualLoop
from proof.sim.play import AT_THE_END, Played, play, shrink
from proof.sim.report import table
from proof.sim.wider import TOP
from tenure.facts import Entry
from tenure.ledger import Code, Ledger, LedgerRefused
from tenure.units import HOUR, MINUTE

REGRESSIONS = sorted((Path(__file__).parent / "sim").glob("*.json"))
CI_SEEDS = 1_000
SEEN = (
    "seen/lease opened: Start", "seen/lease opened: Swap", "seen/lease opened: Grow", "seen/lease opened: Refund",
    "seen/lease closed: NodeFailure", "seen/lease closed: RandomPreempt", "seen/lease closed: Canceled",
    "seen/lease on borrowed money", "seen/lease Spare", "seen/lease Borrowed", "seen/promise", "seen/draw frozen",
    "seen/cut: Lottery", "seen/cut: DropSpare", "seen/cut: Shrink", "seen/recorded only", "seen/refused: DiskFull",
    "seen/refused: WriteFailed", "seen/refused: BehindAnchor", "seen/refused: Replaced", "seen/run Completed",
    "seen/lease closed: Swap", "seen/lease closed: Overstay", "seen/lease closed: ReclaimedBySpare",
)  # fmt: skip
"""What the seeds of CI must have brought about, or they prove nothing."""


# -- the seeds --


def test_the_seeds_of_ci_hold_and_every_fault_has_struck() -> None:
    """Two processes of its own, some 150 s each; a failure prints commit, seed, step, the events that are enough and
    how to see it again."""
    total: Counter[str] = Counter()
    failed: list[Played] = []
    for played in play_all(range(CI_SEEDS), home="embedded", mode="both", hours=48, jobs=2):
        total.update(played.tally)
        if played.failed:
            failed.append(played)
    assert not failed, failure.all_told(failed)
    kinds = {*FAULTS, *import_module(HOME_FAULTS["embedded"]).KINDS}
    assert {kind: total[f"fault/{kind}"] for kind in kinds if not total[f"fault/{kind}"]} == {}, "never struck"
    assert [name for name in SEEN if not total[name]] == [], "never seen"


def test_some_plans_are_wider() -> None:
    """Three generations, two regions of one cluster, caps on hours, windows that promise nothing, other sponsors."""
    plans = [generate(seed, home="embedded") for seed in range(80)]
    wide = [plan for plan in plans if any(one["spec"]["owner"] == TOP for one in plan.budgets)]
    assert 10 < len(wide) < 40
    envelopes = [one for plan in wide for budget in plan.budgets for one in budget["spec"]["envelopes"]]
    caps = [one for plan in wide for budget in plan.budgets for one in budget["spec"].get("aggregateCaps", ())]
    places = [{tuple(one["metadata"]["labels"][key] for key in ("cluster", "region")) for one in plan.nodes}
              for plan in wide]  # fmt: skip
    assert all({b["spec"]["owner"]: b["spec"].get("parents") for b in plan.budgets}["org:up"] == [TOP] for plan in wide)
    assert any(
        {(cluster, "us-west"), (cluster, "us-east")} <= some for some in places for cluster in ("gpu-a", "gpu-b")
    )
    assert any(one.get("maxGPUHours") for one in caps)
    assert any(one.get("preActivation", {}).get("allowReservations") is False for one in envelopes)
    assert any(event.kind == "sponsors" for plan in wide for event in plan.events)


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_a_bug_that_the_simulation_found_stays_fixed(file: Path) -> None:
    plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    assert {event.kind for event in plan.events} <= kinds(plan.home), "a kind that nobody knows does nothing"
    played = play(plan)
    assert played.found == ()
    assert not played.tally["seen/activation that cut others in vain"]
    assert played.tally["seen/entry"] > 3


# -- the simulator --


def test_a_seed_is_one_history() -> None:
    assert generate(7, home="embedded") == generate(7, home="embedded")
    assert generate(7, home="embedded") != generate(8, home="embedded")

    def story() -> list[Entry]:
        told: list[Entry] = []
        play(generate(3, home="embedded"), watch=lambda what: told.append(what) if isinstance(what, Entry) else None)
        return told

    assert story() == story()


def test_a_plan_survives_its_file() -> None:
    plan = generate(5, home="embedded", mode="liveness")
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert plan.events == tuple(sorted(plan.events, key=lambda event: event.at))


class Brittle:
    """A world that breaks when both a and b have happened, whatever else does."""

    def __init__(self, plan: Plan) -> None:
        self.tally: Counter[str] = Counter()
        self.trace = None
        self._seen: set[str] = set()

    def advance(self, until: int) -> None: ...

    def do(self, event: Event) -> None:
        self._seen.add(event.kind)

    def violations(self) -> list[str]:
        return ["I1-capacity at now, Node/n0: too many: expected 1, found 2."] if {"a", "b"} <= self._seen else []

    def finish(self) -> list[str]:
        return []

    def close(self) -> None: ...


@pytest.fixture
def brittle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proof.sim.play.maker", lambda home: Brittle)
    monkeypatch.setattr("proof.sim.command.kinds", lambda home: set("abxyz"))


def _plan(kinds: str) -> Plan:
    return Plan(seed=0, home="embedded", events=tuple(Event(at=at, kind=kind) for at, kind in enumerate(kinds)))


@pytest.mark.usefixtures("brittle")
def test_a_failure_is_shrunk_to_what_it_needs() -> None:
    failed = play(_plan("xyzxyazzzyyyxbxyz"))
    assert (failed.step, failed.failed) == (13, True)
    assert [event.kind for event in shrink(failed).plan.events] == ["a", "b"]
    assert [event.kind for event in shrink(failed, seconds=-1.0).plan.events] == list("xyzxyazzzyyyxb")


def test_what_is_raised_is_a_failure_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Raising(Brittle):
        def finish(self) -> list[str]:
            raise KeyError("lost")

    monkeypatch.setattr("proof.sim.play.maker", lambda home: Raising)
    played = play(Plan(seed=0, home="embedded"))
    assert (played.step, played.signature) == (AT_THE_END, "KeyError: 'lost'")
    assert "in finish" in played.found[0]


@pytest.mark.usefixtures("brittle")
def test_a_failure_is_told_with_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proof.sim.command.generate", lambda seed, **_: _plan("xaxb"))
    assert main(["--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    file = tmp_path / "sim-embedded-safety-0.json"
    assert f"commit {describe()}  seed 0  embedded  safety  step 4 of 4" in said
    assert f" -m proof sim --events {file}\n" in said
    assert main(["--events", str(file)]) == 1
    assert "step 2 of 2" in capsys.readouterr().out
    assert main(["--replay", "0", "--only", "2,4"]) == 1
    assert "step 2 of 2" in capsys.readouterr().out


@pytest.mark.parametrize("kinds", ["xxex", "exx", "e"])
def test_what_never_ends_is_a_failure_and_is_not_shrunk(kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Brittle):
        def do(self, event: Event) -> None:
            while event.kind == "e":
                pass

    monkeypatch.setattr("proof.sim.play.maker", lambda home: Endless)
    played = play(_plan(kinds), seconds=0.02)
    assert (played.endless, played.step) == (True, kinds.index("e"))
    assert played.found[0].startswith("did not end within 0.02 s of processor time")
    assert "in do" in played.found[0]
    assert shrink(played) is played
    assert f"  not shrunk: it does not end ({len(kinds)} events):" in failure.told(played)
    assert not play(_plan("x"), seconds=0.02).failed, "the limit is of one world"


def test_what_never_ends_in_a_loop_of_events_does_not_either() -> None:
    """Such a loop keeps what is raised in a task for whoever asks, and nobody would."""

    async def spin() -> None:
        while True:
            pass

    io = VirtualIO(VirtualLoop())
    with pytest.raises(Unending), limited(0.02):
        io.run(spin())
    io.loop.close()


class Wearing(Brittle):
    """A world that breaks by itself ten instants after a has happened, whatever comes then."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._breaks: int | None = None
        self._at = 0

    def advance(self, until: int) -> None:
        self._at = until

    def do(self, event: Event) -> None:
        if event.kind == "a":
            self._breaks = self._at + 10

    def violations(self) -> list[str]:
        return ["worn out", "worn out"] if self._breaks is not None and self._at >= self._breaks else []


def test_what_breaks_while_time_passes_is_not_blamed_on_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proof.sim.play.maker", lambda home: Wearing)
    failed = play(_plan("xxa" + "x" * 9 + "by"))
    assert failure.where(failed) == "after step 12 of 14"
    short = shrink(failed)
    assert ([event.kind for event in short.plan.events], failure.where(short)) == (["a"], "after step 1 of 1")
    assert failure.steps(short, failed.plan) == [3]
    assert failure.head(failed).count("worn out") == 1, "what is the same is said once"


def test_what_breaks_before_anything_has_happened_is_nobodys_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Plan) -> Brittle:
        raise OSError("no room")

    monkeypatch.setattr("proof.sim.play.maker", lambda home: broken)
    assert failure.where(play(_plan("xx"))) == "before step 1 of 2"
    assert shrink(play(_plan("xx"))).plan.events == ()


@pytest.mark.usefixtures("brittle")
def test_every_seed_that_fails_is_told_with_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In full while there are few; and below the table each in a line."""
    plan = lambda seed, **_: msgspec.structs.replace(_plan("xaxb"), seed=seed)  # noqa: E731
    monkeypatch.setattr("proof.sim.command.generate", plan)
    assert main(["--seeds", "7", "--jobs", "1", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    full, _, brief = said.partition("7 seeds x 48 virtual hours")
    assert (full.count("FAILED"), full.count("2 of 4 events are enough"), len(list(tmp_path.iterdir()))) == (5, 5, 5)
    for seed in range(7):
        assert f"\nseed {seed}  embedded  safety  step 4 of 4: I1-capacity" in brief
        assert f" -m proof sim --replay {seed} --home embedded --mode safety --hours 48\n" in brief
    assert f"commit {describe()}" in said


@pytest.mark.usefixtures("brittle")
def test_a_list_that_nobody_had_the_patience_to_shrink_is_not_said_to_be_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def plan(seed: int, **_: Any) -> Plan:
        if seed == 5:
            raise KeyboardInterrupt
        return _plan("xaxb")

    monkeypatch.setattr("proof.sim.command.generate", plan)
    with pytest.raises(KeyboardInterrupt):
        main(["--seeds", "2", "--from", "4", "--jobs", "1", "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert f"  not shrunk: stopped (4 events), in {tmp_path}" in said
    assert "events are enough" not in said
    assert said.endswith("Stopped after 1 of 2 seeds, of which 1 failed. Still in play: 5.\n")


def test_a_file_with_events_that_nobody_knows_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They did nothing, and the file was said to hold."""
    file = tmp_path / "renamed.json"
    failure.write(Plan(seed=0, home="embedded", events=(Event(at=0, kind="node-fial"),)), file)
    with pytest.raises(SystemExit) as ended:
        main(["--events", str(file)])
    assert ended.value.code == 2
    assert "has events that no embedded home knows: node-fial" in capsys.readouterr().err


@pytest.mark.usefixtures("brittle")
def test_a_test_that_fails_tells_all_there_is_to_know() -> None:
    said = failure.all_told([play(_plan("xaxb")), play(_plan("abxx"))])
    assert f"commit {describe()}  seed 0  embedded  safety  step 4 of 4\n  I1-capacity" in said
    assert '2 of 4 events are enough:\n    {"at":1,"kind":"a"}\n    {"at":3,"kind":"b"}\n' in said
    assert " -m proof sim --replay 0 --home embedded --mode safety --hours 48 --only 2,4\n" in said
    assert said.splitlines()[-2].startswith("and seed 0  embedded  safety  step 2 of 4: I1-capacity")


@pytest.mark.usefixtures("brittle")
def test_what_was_shrunk_is_told_where_it_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proof.sim.command.generate", lambda seed, **_: _plan("xaxb"))
    (tmp_path / "sim-embedded-safety-0.json").mkdir()
    assert main(["--seeds", "1", "--jobs", "1", "--out", str(tmp_path)]) == 1
    kept = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
    assert [event.kind for event in msgspec.json.decode(kept, type=Plan).events] == ["a", "b"]


@pytest.mark.usefixtures("brittle")
def test_who_loses_patience_keeps_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while a list is shrunk: as far as that was, it is in the file."""
    monkeypatch.setattr("proof.sim.command.generate", lambda seed, **_: _plan("xxxxaxxb"))
    do, count = Brittle.do, iter(range(30))

    def impatient(self: Brittle, event: Event) -> None:
        if next(count) == 22:
            raise KeyboardInterrupt
        do(self, event)

    monkeypatch.setattr(Brittle, "do", impatient)
    with pytest.raises(KeyboardInterrupt):
        main(["--seeds", "1", "--jobs", "1", "--out", str(tmp_path)])
    assert "1 seed x 48 virtual hours" in capsys.readouterr().out
    plan = msgspec.json.decode((tmp_path / "sim-embedded-safety-0.json").read_bytes(), type=Plan)
    assert "".join(event.kind for event in plan.events).replace("x", "") == "ab"
    assert len(plan.events) < 8


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            _, above, *_ = (folder / "stat").read_text().rpartition(") ")[2].split()
            found += [int(folder.name)] if int(above) == parent else []
    return found


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_who_is_stopped_ends_with_the_table_of_what_was_played(stop: signal.Signals) -> None:
    """At once, with nothing left: neither processes nor folders. Ctrl-C reaches all processes, SIGTERM one."""
    told = "from proof.sim import command; command.TOLD_EVERY = 1"
    script = f"import sys; {told}; from proof.__main__ import run; sys.exit(run(sys.argv[1:]))"
    words = [sys.executable, "-c", script, "sim", "--seeds", "5000", "--home", "embedded", "--jobs", "2"]
    with Popen(words, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "1 of 5000 seeds, 0 failed\n"
        worlds = set[str]()
        while len(worlds) < 8:
            assert process.poll() is None
            pids = _children(process.pid)
            worlds |= {one.name for pid in pids for one in scratch.found(f"tenure-sim-{pid}-*")}
            time.sleep(0.02)
        if stop is signal.SIGINT:
            os.killpg(process.pid, stop)
        else:
            process.send_signal(stop)
        out, err = process.communicate()
    assert process.returncode == 128 + stop
    assert "faults that took effect" in out
    told = re.search(
        r"\nStopped after ([1-9]\d*) of 5000 seeds, of which 0 failed\. Still in play: (\d+), \d+\.\n$", out
    )
    assert told is not None, out[-200:]
    assert int(told[2]) >= int(told[1])
    assert re.fullmatch(rf"(\d+ of 5000 seeds, 0 failed\n)*\nstopped \({stop.name}\)\n", err), err
    assert not [one for pid in pids for one in scratch.found(f"tenure-sim-{pid}-*")]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_every_row_of_the_table_is_explained() -> None:
    """Names that are written in the source, up to where a word is put in; and the kinds of all faults and events."""
    page = (ROOT / "docs" / "develop" / "proof-sim.md").read_text()
    sources = "".join(file.read_text() for file in (ROOT / "proof" / "sim").glob("*.py"))
    names = set(re.findall(r'"(?:seen|fault)/([a-zA-Z][^"{]*)', sources)) - {"KIND", "WHAT", "crash", "entry"}
    faults = {kind for home in HOME_FAULTS.values() for kind in import_module(home).KINDS}
    assert "refused by intake" in names
    assert [name for name in sorted(names) if f"`{name}" not in page] == []
    rows = re.findall(r"`([a-z-]+?)(-?\.\.\.)?`", page)
    known = {name for name, more in rows if not more} | {f"watch{name}" for name, _ in rows if name.startswith("-")}
    groups = tuple(f"{name}-" for name, more in rows if more.startswith("-"))
    assert [kind for kind in sorted(faults | FAULTS.keys()) if kind not in known and not kind.startswith(groups)] == []


def test_a_long_name_does_not_break_the_column() -> None:
    lines = table(Counter({f"seen/{'x' * 60}": 3, "seen/y": 4}), seeds=1, hours=1).splitlines()[-2:]
    assert [len(line) for line in lines] == [72, 72]


# -- its faults are what they are called --


@pytest.fixture
def disk() -> Disk:
    return Disk(Counter())


def _append(disk: Disk, ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.append(at=tx.head.seq + 1, cause="test", facts=())
    disk.known = (tx.head.seq, tx.head.hash)


def _append_many(disk: Disk, ledger: Ledger) -> None:
    for _ in range(2000):
        _append(disk, ledger)


@pytest.mark.parametrize("where", ["file", "anchor"])
def test_a_full_disk_refuses_and_takes_again(disk: Disk, where: str) -> None:
    ledger = disk.open()
    _append(disk, ledger)
    disk.fill(where)
    with pytest.raises(LedgerRefused) as refused:
        _append_many(disk, ledger)
    assert refused.value.code is Code.DiskFull
    disk.fill("")
    _append(disk, disk.open())
    assert not disk.faults
    disk.close()


@pytest.mark.parametrize("number", range(12))
def test_a_torn_write_costs_nothing_that_was_acknowledged(disk: Disk, number: int) -> None:
    ledger = disk.open()
    for _ in range(3):
        _append(disk, ledger)
    disk.kill_at("after-commit" if number % 3 else "anchor-written", tear=977 * number)
    with pytest.raises(BaseException, match=r"after-commit|anchor-written"):
        _append(disk, ledger)
    disk.bury()
    again = disk.open()
    assert again.head.seq in (3, 4)
    assert disk.tally["fault/torn-write"] == 1
    assert not disk.faults
    disk.close()


def test_an_old_copy_is_refused_and_would_be_noticed(disk: Disk) -> None:
    ledger = disk.open()
    _append(disk, ledger)
    disk.keep_backup()
    disk.close_all()
    ledger = disk.open()
    for _ in range(3):
        _append(disk, ledger)
    aside = disk.restore_backup(only_the_file=False)
    with pytest.raises(LedgerRefused) as refused:
        _append(disk, ledger)
    assert refused.value.code is Code.Replaced
    with pytest.raises(LedgerRefused) as behind:
        disk.open()
    assert behind.value.code is Code.BehindAnchor
    disk.path.with_name(disk.path.name + ".anchor").write_bytes(
        disk.backup[1].with_name("fleet.db.anchor").read_bytes()  # type: ignore[index]  # there is one
    )
    disk.open()
    assert disk.faults == ["the ledger opened without entry 4, which had been acknowledged"]
    disk.put_right(aside)
    assert disk.open().head.seq == 4
    disk.close()


def test_a_clock_may_stand_and_jump() -> None:
    true = [1000]
    clock = Clock(lambda: true[0])
    clock.freeze()
    true[0] = 1500
    assert (clock.now(), clock.when(1200), clock.when(900)) == (1000, None, 1500)
    clock.thaw()
    clock.step(-200)
    assert (clock.now(), clock.when(1400)) == (1300, 1600)


def _calm() -> EmbeddedWorld:
    return EmbeddedWorld(msgspec.structs.replace(generate(0, home="embedded"), events=()))


def test_a_fault_that_nobody_sees_is_not_counted() -> None:
    """A clock that is read, a machine whose object says something else, a driver that lived."""
    with closing(_calm()) as world:
        node = next(iter(world.reality.machines))

        def struck(**event: Any) -> int:
            before = world.tally[f"fault/{event['kind']}"]
            world.do(Event(at=world.at, **event))
            return world.tally[f"fault/{event['kind']}"] - before

        assert struck(kind="node-cordon", target=node, lasts=HOUR) == 1
        assert struck(kind="node-cordon", target=node, lasts=HOUR) == 0, "it was"
        assert struck(kind="clock-freeze", lasts=MINUTE) == 0, "no time has passed yet"
        world.advance(2 * MINUTE)
        assert world.tally["fault/clock-freeze"] == 0, "nobody looked meanwhile"
        assert struck(kind="clock-step", number=HOUR) == 1
        assert struck(kind="crash", lasts=HOUR) == 1
        assert struck(kind="crash", lasts=HOUR) == 0, "nobody was there"
        assert struck(kind="clock-step", number=HOUR) == 0, "nobody was there"
        assert struck(kind="two-leaders", lasts=HOUR) == 0


def test_a_world_that_loses_an_acknowledged_entry_fails() -> None:
    """The judge is awake: an entry that was told and is gone, and an entry that breaks a rule, are both seen."""
    world = EmbeddedWorld(generate(0, home="embedded"))
    try:
        assert world.violations() == []
        world.disk.known = (2, "0" * 64)
        world._nobody()
        world._wake_driver()
        assert world.violations() == ["the ledger opened without entry 2, which had been acknowledged"]
    finally:
        world.close()


def test_faults_of_the_store_are_all_generated() -> None:
    luck = Random(1)
    plan = generate(0, home="embedded")
    drawn = {
        event.kind
        for _ in range(40)
        for event in faults_store.faults(luck, hours=48, mode="safety", plan=plan, moment=lambda: 0)
    }
    assert drawn == set(faults_store.KINDS)
