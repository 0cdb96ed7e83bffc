"""Damaged files: every acknowledged entry, or a refusal that says why; never a shorter ledger in silence.

The ledger under test has its first half in the database file and its second half still in the WAL, as a
running system has, and a twin that was closed, so that all of it is in the database file.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.ledger import Code, Ledger, LedgerRefused
from tests.ledger.support import append, companion, copy, outcome

FRAME = 24 + 4096
"""Of the WAL, after its header of 32 bytes."""
HALF = 12


class Original:
    """A ledger's files, what they acknowledge, and copies to harm."""

    def __init__(self, path: Path, said: list[str], scratch: Path) -> None:
        self.path, self.said, self.scratch = path, said, scratch
        self._copies = 0

    def fresh(self) -> Path:
        """A copy of its own for one case."""
        self._copies += 1
        folder = self.scratch / str(self._copies)
        shutil.copytree(self.path.parent, folder)
        return folder / self.path.name

    def harmed(self, suffix: str, offset: int, *, flip: int = 0) -> Path:
        """A copy whose file was cut at an offset, or had a bit there flipped."""
        path = self.fresh()
        raw = bytearray(companion(path, suffix).read_bytes())
        if flip:
            raw[offset] ^= flip
        else:
            del raw[offset:]
        companion(path, suffix).write_bytes(raw)
        return path

    def size(self, suffix: str) -> int:
        return companion(self.path, suffix).stat().st_size


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Original:
    base = tmp_path_factory.mktemp("running")
    path = base / "fleet.db"
    with Ledger.create(path, fleet="lab") as ledger:
        said = append(ledger, HALF)
    with Ledger.open(path) as ledger:
        said += append(ledger, HALF)
        with ledger.write() as tx:
            tx.save_snapshot(b"state " * 1000)
        still = copy(path, base / "still")
    companion(still, "-shm").unlink()  # the system has crashed, too
    return Original(still, said, tmp_path_factory.mktemp("copies"))


@pytest.fixture(scope="module")
def finished(running: Original, tmp_path_factory: pytest.TempPathFactory) -> Original:
    path = tmp_path_factory.mktemp("finished") / "twin" / running.path.name
    shutil.copytree(running.path.parent, path.parent)
    Ledger.open(path).close()
    assert not companion(path, "-wal").exists()
    return Original(path, running.said, tmp_path_factory.mktemp("copies"))


@pytest.fixture(autouse=True)
def cleared(running: Original, finished: Original) -> Iterator[None]:
    yield
    for original in (running, finished):
        shutil.rmtree(original.scratch)
        original.scratch.mkdir()


def test_the_originals_are_whole(running: Original, finished: Original) -> None:
    assert outcome(running.fresh()) == running.said
    assert outcome(finished.fresh()) == finished.said
    assert len(running.said) == 2 * HALF


def test_a_wal_cut_anywhere_is_never_a_shorter_ledger(running: Original) -> None:
    """SQLite drops the damaged tail of a WAL and says nothing; the anchor must."""
    size = running.size("-wal")
    boundaries = range(32, size, FRAME)
    near = [edge + nudge for edge in boundaries for nudge in (-1, 0, 1)]
    luck = random.Random("cut")
    for offset in {0, 1, 31, *near, *(luck.randrange(size) for _ in range(60)), size - 1}:
        assert outcome(running.harmed("-wal", offset)) in (Code.BehindAnchor, running.said), f"cut at {offset}"
    # The last commit was of a snapshot: losing that alone loses no entry. Anything before it is an entry.
    assert outcome(running.harmed("-wal", size // 2)) is Code.BehindAnchor
    assert outcome(running.harmed("-wal", 0)) is Code.BehindAnchor


def test_a_lost_wal_is_noticed(running: Original) -> None:
    path = running.fresh()
    companion(path, "-wal").unlink()
    with pytest.raises(LedgerRefused) as caught:
        Ledger.open(path)
    assert caught.value.code is Code.BehindAnchor
    assert f"ends at entry {HALF}" in caught.value.sentence
    assert f"has seen entry {2 * HALF}" in caught.value.sentence


def test_a_flipped_bit_in_the_wal_is_never_a_shorter_or_other_ledger(running: Original) -> None:
    luck = random.Random("flip wal")
    codes = set()
    for _ in range(150):
        offset = luck.randrange(running.size("-wal"))
        came = outcome(running.harmed("-wal", offset, flip=1 << luck.randrange(8)))
        assert came == running.said or isinstance(came, Code), f"bit at {offset}"
        codes.add(str(came) if isinstance(came, Code) else "whole")
    assert "BehindAnchor" in codes


@pytest.mark.parametrize("which", ["running", "finished"])
def test_a_database_cut_anywhere_is_never_a_shorter_ledger(which: str, request: pytest.FixtureRequest) -> None:
    original: Original = request.getfixturevalue(which)
    size = original.size("")
    luck = random.Random("cut db")
    for offset in {
        0,
        1,
        16,
        99,
        100,
        *range(0, size, 4096),
        *(luck.randrange(size) for _ in range(40)),
        size - 1,
    }:
        came = outcome(original.harmed("", offset))
        assert came == original.said or isinstance(came, Code), f"cut at {offset}"
    assert isinstance(outcome(original.harmed("", 0)), Code)
    assert which == "running" or isinstance(outcome(original.harmed("", size // 2)), Code)


@pytest.mark.parametrize("which", ["running", "finished"])
def test_a_flipped_bit_in_the_database_is_never_another_ledger(which: str, request: pytest.FixtureRequest) -> None:
    original: Original = request.getfixturevalue(which)
    luck = random.Random(f"flip {which}")
    whole = refusals = 0
    for _ in range(250):
        offset = luck.randrange(original.size(""))
        came = outcome(original.harmed("", offset, flip=1 << luck.randrange(8)))
        assert came == original.said or isinstance(came, Code), f"bit at {offset}"
        whole, refusals = whole + (came == original.said), refusals + isinstance(came, Code)
    assert whole
    assert refusals


def test_pages_that_were_swapped_or_zeroed_are_found(finished: Original) -> None:
    """Trees that lead back to themselves included: every case ends, and with a finding."""
    luck = random.Random("pages")
    pages = finished.size("") // 4096
    for _ in range(60):
        first, second = luck.sample(range(1, pages), 2)
        path = finished.fresh()
        raw = path.read_bytes()
        parts = [raw[page * 4096 : (page + 1) * 4096] for page in range(pages)]
        zeroed = luck.random() < 0.3
        parts[first], parts[second] = (bytes(4096), parts[second]) if zeroed else (parts[second], parts[first])
        if b"".join(parts) == raw:
            continue  # two empty pages look alike, and changing places they are no damage
        path.write_bytes(b"".join(parts))
        try:
            with Ledger.examine(path) as ledger:
                assert not ledger.verify().ok, f"pages {first} and {second}"
        except LedgerRefused:
            pass  # a page of the schema itself: too damaged to be examined at all
        came = outcome(path)
        assert came == finished.said or isinstance(came, Code)


def answers(ledger: Ledger) -> tuple[object, ...]:
    return (
        ledger.leases(), ledger.leases(open_only=True), ledger.leases(at=9_000_000), ledger.leases(node="n1"),
        ledger.leases(run="train"), ledger.usage(by="node", since=0, until=10**9),
        ledger.usage(by="owner", since=7, until=10**7, owner="org:ai:rai"), ledger.notes(),
        ledger.notes("Run/rai/train"), ledger.decisions("rai", "train"), ledger.attempts("rai", "train"),
        ledger.snapshot(),
    )  # fmt: skip


def test_when_the_check_finds_nothing_every_answer_is_right(finished: Original) -> None:
    """The tables have no chain of their own: `verify` is what vouches for them."""
    with Ledger.open(finished.fresh()) as ledger:
        right = answers(ledger)
    luck = random.Random("flip tables")
    found = 0
    for _ in range(120):
        offset = luck.randrange(4096, finished.size(""))
        path = finished.harmed("", offset, flip=1 << luck.randrange(8))
        try:
            with Ledger.examine(path) as ledger:
                report = ledger.verify()
                found += not report.ok
                assert not report.ok or answers(ledger) == right, f"bit at {offset}"
        except LedgerRefused:
            found += 1  # too damaged to be examined at all
    assert found


@pytest.mark.parametrize("content", [b"", b"not a database", b"x" * 8192, b"SQLite format 3\0" + b"\0" * 4080])
def test_what_is_no_ledger_is_called_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing"
    path.write_bytes(content)
    with pytest.raises(LedgerRefused) as caught:
        Ledger.open(path)
    assert caught.value.code in (Code.NotALedger, Code.Damaged)
    assert path.read_bytes() == content
