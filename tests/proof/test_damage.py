"""5,000 damaged images, all of them each time; and what makes sure that silence would be heard."""

from __future__ import annotations

import hashlib
import re
import shlex
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof import damage
from proof.commit import describe
from proof.damage.cases import FRAME, KINDS, PAGE, SECTOR, WAL_HEADER, Case, Unchanged, damaged, different, plan
from proof.damage.judges import judge
from proof.damage.originals import LEDGER, Files, Original, originals, written
from tenure.custodian import open_custodian
from tenure.ledger import Code, Ledger, LedgerRefused
from tests.ledger.support import append

NAMES = ("running", "rebooted", "open", "finished", "unsaid", "fleet", "journal", "archive", "custodian")


def _bytes(files: Files) -> str:
    """What stands for the bytes of a whole folder: counted here in another way than the plan does."""
    return hashlib.blake2b(
        repr([(name, hashlib.md5(files[name]).digest()) for name in sorted(files)]).encode()
    ).hexdigest()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with damage.workplace() as folder:
        yield folder


@pytest.fixture(scope="module")
def wholes(folder: Path) -> dict[str, Original]:
    return originals(folder / "originals")


@pytest.fixture(scope="module")
def cases(wholes: dict[str, Original]) -> list[Case]:
    return plan(wholes, damage.IMAGES)


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_never_silent(name: str, wholes: dict[str, Original], cases: list[Case], folder: Path) -> None:
    judged = damage.run([case for case in cases if case.original == name], wholes, folder)
    assert [(case.id, outcome.why) for case, outcome in judged if outcome.verdict == "lost"] == []
    verdicts = Counter(outcome.verdict for _, outcome in judged)
    assert verdicts["whole"], "some damage hits what nobody needs"
    assert verdicts["refused"], "and some must be refused"


def test_there_are_5000_images_of_every_kind_and_no_two_have_the_same_bytes(
    wholes: dict[str, Original], cases: list[Case]
) -> None:
    """Of 5,000 names, 661 once changed nothing and many more were another's bytes."""
    images = Counter(_bytes(damaged(case, wholes[case.original])) for case in cases)
    assert len(images) >= 5000
    assert not images.keys() & {_bytes(whole.files) for whole in wholes.values() if whole.name != "rebooted"}
    twice = {image for image, times in images.items() if times > 1}
    readers = [(_bytes(damaged(case, wholes[case.original])), case.original) for case in cases]
    assert len(cases) - len(images) < 20
    assert len({each for each in readers if each[0] in twice}) == sum(images[image] for image in twice)
    assert different(cases, wholes) == len(images)
    assert len({case.id for case in cases}) == len(cases)
    assert {case.kind for case in cases} == set(KINDS)
    assert {case.original for case in cases} == set(wholes) == set(NAMES)


@pytest.mark.parametrize("count", [1, 60, 4000, 5500])
def test_there_are_as_many_images_as_are_asked_for(count: int, wholes: dict[str, Original]) -> None:
    assert different(plan(wholes, count), wholes) == count


def test_bits_are_flipped_in_every_file_page_and_frame(wholes: dict[str, Original], cases: list[Case]) -> None:
    flips = [case for case in cases if case.kind == "flip"]
    assert len(flips) > 1400
    hit = {(case.original, case.where, int(case.what.split(".")[0])) for case in flips}
    for whole in wholes.values():
        for file, raw in whole.files.items():
            if "-shm" in file and whole.name == "open":
                continue  # the memory of a process that is alive, not a disk
            places = {offset for original, where, offset in hit if (original, where) == (whole.name, file)}
            first, unit = (WAL_HEADER, FRAME) if file.endswith("-wal") else (0, PAGE)
            units = set(range((len(raw) - first + unit - 1) // unit))
            assert {(place - first) // unit for place in places if place >= first} == units, (whole.name, file)


@pytest.mark.parametrize("name", ["rebooted", "finished"])
def test_database_and_wal_are_cut_at_every_sector(name: str, wholes: dict[str, Original], cases: list[Case]) -> None:
    cuts = {(case.where, int(case.what)) for case in cases if (case.original, case.kind) == (name, "cut")}
    for file, raw in wholes[name].files.items():
        assert {(file, offset) for offset in range(0, len(raw), SECTOR)} <= cuts


@pytest.mark.parametrize("name", NAMES)
def test_without_damage_everything_is_there(name: str, wholes: dict[str, Original], folder: Path) -> None:
    whole = wholes[name]
    outcome = judge(whole.files, whole, floor=len(whole.acknowledged), folder=folder / "whole")
    assert outcome.verdict == ("tail" if name == "unsaid" else "whole")


def test_a_name_is_enough_to_make_an_image_again(wholes: dict[str, Original], cases: list[Case]) -> None:
    for case in cases[::250]:
        assert damaged(Case.named(case.id), wholes[case.original]) == damaged(case, wholes[case.original])


def test_a_ledger_that_ignored_its_anchor_would_be_caught(
    monkeypatch: pytest.MonkeyPatch, wholes: dict[str, Original], cases: list[Case], folder: Path
) -> None:
    """The judges themselves: silence is planted, and they hear it."""
    from tenure.ledger import anchor, chain, store

    def trusting(self: Ledger, db: object) -> anchor.Mark:
        return anchor.Mark(fleet=self.fleet, seq=chain.head(db).seq, hash=chain.head(db).hash)  # type: ignore[arg-type]

    monkeypatch.setattr(store.Ledger, "_compared", trusting)
    some = [case for case in cases if case.original == "rebooted" and case.kind in ("cut", "old")][::20]
    lost = [outcome.why for _, outcome in damage.run(some, wholes, folder) if outcome.verdict == "lost"]
    assert any("entries and looks fine" in why for why in lost)


def test_a_wrong_answer_to_a_reader_is_told_and_a_driver_on_it_would_be_caught(
    monkeypatch: pytest.MonkeyPatch, wholes: dict[str, Original], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page over that of the open leases: every entry is there, and one lease less is shown."""
    case = Case.named("finished:pages:fleet.db:over-6-23")
    judged = damage.run([case], wholes, folder)
    assert [(outcome.verdict, outcome.why) for _, outcome in judged] == [("drivers only", "sqlite")]
    assert damage._ending(judged, 1) == 0
    assert "On 1 of them only a driver is refused" in capsys.readouterr().out
    monkeypatch.setattr(Ledger, "attest", lambda *_, **__: None)
    ((_, outcome),) = damage.run([case], wholes, folder)
    assert (outcome.verdict, outcome.why) == (
        "lost",
        "the full check finds sqlite, and a driver starts on wrong answers",
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--images", "0"], "a whole number from 1 on"),
        (["--images", "-5"], "a whole number from 1 on"),
        (["--images", "many"], "a whole number from 1 on"),
        (["--only", "nothing"], "nothing is no kind"),
        (["--only", "fleet", "--images", "1"], "of 1 images none is fleet"),
        (["--replay", "nothing"], "an image is named ORIGINAL:KIND:WHERE:WHAT"),
        (["--replay", "nobody:cut:fleet.db:512"], "nobody is no original"),
        (["--replay", "finished:cut:fleet.db:999999999"], "there is no such place"),
        (["--replay", "finished:cut:fleet.db:-1"], "there is no such place"),
        (["--replay", "finished:cut:nothing:1"], "there is no such place"),
        (["--replay", "finished:flip:fleet.db:999999999.1"], "there is no such place"),
        (["--replay", "finished:flip:fleet.db:1.8"], "there is no such place"),
        (["--replay", "finished:zero:fleet.db:999999999"], "there is no such place"),
        (["--replay", "finished:stray:fleet.db:512<999999999"], "there is no such place"),
        (["--replay", "finished:stray:fleet.db:512<512"], "changes nothing"),
        (["--replay", "finished:pages:fleet.db:swap-1-999"], "there is no such place"),
        (["--replay", "rebooted:frames:fleet.db-wal:eat-1-2"], "there is no such place"),
        (["--replay", "finished:grown:fleet.db:zeros-0"], "changes nothing"),
        (["--replay", "finished:grown:fleet.db:zeros-99999999999999"], "there is no such place"),
        (["--replay", "finished:missing:nothing:gone"], "changes nothing"),
        (["--replay", "finished:old:fleet.db:99"], "there is no such place"),
        (["--keep", "somewhere"], "name it with --replay"),
    ],
)
def test_what_is_no_damage_is_refused_in_words(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An offset behind the end of a file left it whole, and the command said so: nothing had been tried."""
    with pytest.raises(SystemExit) as ended:
        damage.main(words)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_files_are_never_kept_over_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--replay", "finished:cut:fleet.db:512", "--keep", str(tmp_path / "kept")]
    (tmp_path / "kept").mkdir()
    assert damage.main(words) == 0, "an empty folder will do"
    with pytest.raises(SystemExit) as ended:
        damage.main(words)
    assert ended.value.code == 2
    assert "is there already" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        damage.main([*words[:3], str(tmp_path / "kept" / LEDGER / "below")])
    assert "cannot be left in" in capsys.readouterr().err


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = "finished:cut:fleet.db:512"
    assert damage.main(["--replay", name, "--keep", str(tmp_path / "kept")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"commit {describe()}\n{name}: refused Damaged\n  ")
    assert len([line for line in said.splitlines() if line.startswith("  ")]) >= 2, "why, and what to do next"
    assert f"\nIts files are in {tmp_path / 'kept'}.\n" in said
    assert (tmp_path / "kept" / LEDGER).stat().st_size == 512
    monkeypatch.setattr(damage, "judge", lambda *_, **__: damage.Outcome("lost", "planted"))
    assert damage.main(["--only", "stray", "--images", "200"]) == 1
    out = capsys.readouterr().out
    assert f"at commit {describe()}, again: " in out
    again = next(line for line in out.splitlines() if "again: " in line).partition("again: ")[2]
    assert shlex.split(again)[1:5] == ["-m", "proof", "damage", "--replay"]
    assert len(shlex.split(again)) == 6
    assert "'" in again, "a stray sector's name has a sign in it that a shell would act on"


def test_a_success_names_its_commit_and_how_many_of_the_images_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(damage, "judge", lambda *_, **__: damage.Outcome("whole"))
    assert damage.main(["--only", "stray", "--images", "200"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"commit {describe()}\n")
    found = re.search(r"\nOf 200 images (\d+) are stray: --images counts all kinds and stores\.\n\n(\d+) damaged", said)
    assert found is not None, said
    assert 0 < int(found[1]) == int(found[2]) < 200


# --- bugs that were found this way ----------------------------------------------------------------------------------


def test_tables_that_contradict_an_entry_are_damage_and_no_bug_of_the_caller(
    wholes: dict[str, Original], folder: Path
) -> None:
    """finished:zero:fleet.db:19968: a sector of the leases was gone, and the next close raised a ValueError."""
    path = folder / "contradicted" / LEDGER
    whole = wholes["finished"]
    refusals = []
    for offset in range(0, len(whole.files[LEDGER]), SECTOR):
        try:
            written(damaged(Case("finished", "zero", LEDGER, str(offset)), whole), path.parent / str(offset))
        except Unchanged:
            continue  # it was zeros before
        try:
            with Ledger.open(path.parent / str(offset) / LEDGER) as ledger:
                before = ledger.head
                try:
                    append(ledger)
                except LedgerRefused as refusal:
                    refusals.append(refusal)
                    assert ledger.head == before
        except LedgerRefused:
            continue  # did not open at all
    contradicted = [refusal for refusal in refusals if isinstance(refusal.__cause__, ValueError)]
    assert contradicted
    assert {(refusal.code, refusal.unknown) for refusal in contradicted} == {(Code.Damaged, False)}


def test_an_image_that_is_listed_and_not_found_only_costs_time() -> None:
    """A bit in the head of a page: an image was listed and its row not found, and the fleet did not start, though every
    entry was there."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, body BLOB)")
    assert Ledger._snapshot_body(db, 7) is None
    db.execute("INSERT INTO snapshots VALUES (7, x'2a')")
    assert Ledger._snapshot_body(db, 7) == b"*"


def test_a_bug_of_the_caller_stays_one(tmp_path: Path) -> None:
    from tests.ledger.support import closed

    with Ledger.create(tmp_path / LEDGER, fleet="lab") as ledger:
        append(ledger)
        with pytest.raises(ValueError, match="which is not open"), ledger.write() as tx:
            tx.append(at=10**9, cause="a bug", facts=[closed("nobody", end=10**9)])
        assert append(ledger), "and the ledger goes on"


def test_a_custodian_whose_journal_was_cut_says_so(wholes: dict[str, Original], folder: Path) -> None:
    """custodian:cut:journal:93: the refusal told people to freeze an intent with an index that was long drawn."""
    written(damaged(Case("custodian", "cut", "journal", "93"), wholes["custodian"]), folder / "cut")
    keeper = open_custodian(folder / "cut")
    refusal = keeper.reveal(25, commit="0" * 64)  # type: ignore[union-attr]
    assert str(refusal.code) == "OutOfTurn"  # type: ignore[union-attr]
    assert "If the ledger has c[2] already, the journal of this custodian was cut short" in refusal.next_step  # type: ignore[union-attr]
