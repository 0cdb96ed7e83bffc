"""What is damaged: small stores in the states in which a disk may find them, held in memory as files' bytes.

    running    half of the entries are in the database, half still in its WAL: the process is alive or was killed
    rebooted   the same without the -shm, as after a power cut
    open       such files of another fleet, damaged under the hands of a process that has them open and goes on
               appending
    finished   closed: everything is in the database
    unsaid     killed between COMMIT and the anchor: the last entry was committed and never acknowledged
    fleet      the ledger of a fleet that runs: its state is built again, from an image and what came after it
    journal    a cluster operator's own copy of the ledger, its anchor on another disk
    archive    the segments in which a cluster's old entries are kept
    custodian  a custodian's chain and the journal of what it has revealed

Each knows what was acknowledged. ``past`` are copies of the same files taken earlier, the oldest first; ``foreign`` are
the files of another fleet's store, which are just as good in themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from tenure.custodian import Custodian, init, open_custodian
from tenure.engine import Apply, dump
from tenure.kube.archive import Archive
from tenure.kube.entries import Line
from tenure.ledger import Ledger
from tenure.ledger.chain import Link
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.testing.builders import START, budget, envelope, namespace, nodes, run
from tenure.units import MINUTE
from tests.ledger.support import append, copy

Files = dict[str, bytes]
"""What a folder holds: bytes by name. A damaged store is another such dictionary."""
LEDGER = "fleet.db"
EARLIER, LATER = 6, 6
"""Entries in the database file, and entries in the WAL."""
REVEALED = 24
IMAGE = b"state " * 300
"""What stands for an image of the state in the smaller ledgers."""
SEGMENTS = (5, 9, 12)
"""Where the archive was cut."""


class Original(Struct, frozen=True):
    """A store that is whole, and what must be found in it or be missed aloud."""

    name: str
    files: Files
    acknowledged: tuple[str, ...]
    """Hashes of entries; of a custodian, the values that it revealed."""
    unsaid: tuple[str, ...] = ()
    """What was committed after that and never acknowledged: it may be there or not."""
    past: tuple[Files, ...] = ()
    foreign: Files = {}
    lines: tuple[Line, ...] = ()
    """What the API server still has, for a journal."""
    state: bytes = b""
    """What the engine knows, for a fleet."""


class Died(Exception):
    """Stands for the end of a process."""


def originals(folder: Path) -> dict[str, Original]:
    """All of them, made anew, with their own work in ``folder``."""
    mine, other, alive = (_Story(folder / each, fleet) for each, fleet in
                          (("mine", "lab"), ("other", "other"), ("alive", "alive")))  # fmt: skip
    journal, foreign_journal = mine.journal(), other.journal()
    found = [
        Original("running", mine.running, mine.said, past=mine.past, foreign=other.running),
        Original("rebooted", _without_shm(mine.running), mine.said, past=mine.past,
                 foreign=_without_shm(other.running)),
        Original("open", alive.running, alive.said, past=alive.past, foreign=other.running),
        Original("finished", mine.finished, mine.said, past=mine.past, foreign=other.finished),
        Original("unsaid", mine.unsaid, mine.said, unsaid=mine.unsaid_tail, past=mine.past, foreign=other.unsaid),
        _fleet(folder / "fleets"),
        Original("journal", journal[0], mine.said, past=journal[1], foreign=foreign_journal[0], lines=mine.lines),
        _archive(folder / "archives", mine.lines, other.lines),
        _custodian(folder / "custodians"),
    ]  # fmt: skip
    return {each.name: each for each in found}


def written(files: Files, folder: Path) -> None:
    """Put files on disk, as they are."""
    folder.mkdir(parents=True)
    for name, raw in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(raw)
        (folder / name).chmod(0o600)


def kept(folder: Path) -> Files:
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


class _Story:
    """A ledger's life, with copies taken on the way."""

    def __init__(self, folder: Path, fleet: str) -> None:
        folder.mkdir(parents=True)
        self._folder, self._copies = folder, 0
        path = folder / "live" / LEDGER
        path.parent.mkdir()
        said: list[str] = []
        past: list[Files] = []
        with Ledger.create(path, fleet=fleet) as ledger:
            for _ in range(EARLIER):
                said += append(ledger)
                past.append(self._copied(path))
        past.append(self._copied(path))
        with Ledger.open(path) as ledger:
            for _ in range(LATER):
                past.append(self._copied(path))
                said += append(ledger)
            with ledger.write() as tx:
                tx.save_snapshot(IMAGE)
            self.running = self._copied(path)
            self.lines = tuple(_line(link) for link in ledger.links())
        self.finished = self._copied(path)
        self.said, self.past = tuple(said), tuple(past)
        self.unsaid = self._unsaid(path)
        self.unsaid_tail = self._tail(self.unsaid)

    def journal(self) -> tuple[Files, tuple[Files, ...]]:
        """The same ledger as a cluster's operator keeps it: the anchor in a folder of its own."""
        return _apart(self.running), tuple(_apart(each) for each in self.past)

    def _copied(self, path: Path) -> Files:
        self._copies += 1
        return kept(copy(path, self._folder / f"copy{self._copies}").parent)

    def _unsaid(self, path: Path) -> Files:
        def die(point: str) -> None:
            if point == "before-anchor":
                self._taken = self._copied(path)
                raise Died

        try:
            with Ledger.open(path, hook=die) as ledger:
                append(ledger)
        except Died:
            pass
        return self._taken

    def _tail(self, files: Files) -> tuple[str, ...]:
        folder = self._folder / "unsaid"
        written(files, folder)
        with Ledger.open(folder / LEDGER) as ledger:
            return tuple(link.hash for link in ledger.links(len(self.said)))


def _line(link: Link) -> Line:
    return Line(link.entry, link.body, link.hash)


def _without_shm(files: Files) -> Files:
    return {name: raw for name, raw in files.items() if not name.endswith("-shm")}


def _apart(files: Files) -> Files:
    """The anchor on another disk."""
    return {f"disk2/{name}" if name.endswith(".anchor") else name: raw for name, raw in files.items()}


def _fleet(folder: Path) -> Original:
    """Runs that start, wait and end on simulated pods; two images on the way, as after many entries."""
    path = folder / "mine" / LEDGER
    path.parent.mkdir(parents=True)
    with Ledger.create(path, fleet="lab") as ledger:
        home = Home(LedgerStore(ledger), SimulatedExecutor())
        home.handle(Apply((*nodes("n", 2), budget("west", envelope("all", 16)), namespace("lab"))), now=START)
        past = []
        for number in range(6):
            home.handle(Apply((run(f"r{number}", 8, owner="org:west", lasts="30m"),)), now=START + number * 10 * MINUTE)
            home.drive(now=START + number * 10 * MINUTE)
            past.append(kept(copy(path, folder / f"copy{number}").parent))
            if number in (2, 4):
                with ledger.write() as tx:
                    tx.save_snapshot(dump(home.state))
        said = tuple(link.hash for link in ledger.links())
        files = kept(copy(path, folder / "last").parent)
        return Original("fleet", files, said, past=tuple(past), state=dump(home.state))


def _archive(folder: Path, lines: tuple[Line, ...], others: tuple[Line, ...]) -> Original:
    def cut(where: Path, these: tuple[Line, ...]) -> Files:
        archive, after, prev = Archive(where), 0, these[0].entry.prev
        for end in SEGMENTS:
            archive.write(these[after:end], after=after, prev=prev)
            after, prev = end, these[end - 1].hash
        return kept(where)

    mine, foreign = cut(folder / "mine", lines), cut(folder / "other", others)
    past = tuple(dict(list(mine.items())[:count]) for count in range(len(SEGMENTS)))
    return Original("archive", mine, tuple(each.hash for each in lines), past=past, foreign=foreign)


def _custodian(folder: Path) -> Original:
    mine = _revealing(folder / "mine", seed=b"mine")
    foreign = _revealing(folder / "other", seed=b"other")
    return Original("custodian", mine[-1][0], mine[-1][1], past=tuple(each for each, _ in mine[:-1]),
                    foreign=foreign[-1][0])  # fmt: skip


def _revealing(folder: Path, *, seed: bytes) -> list[tuple[Files, tuple[str, ...]]]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    entropy: Callable[[int], bytes] = lambda count: hashlib.sha256(seed).digest()[:count]  # noqa: E731
    init(folder, beacon="operator", length=100, entropy=entropy)
    custodian = open_custodian(folder)
    assert isinstance(custodian, Custodian)
    values: list[str] = []
    found = [(kept(folder), ())]
    for index in range(1, REVEALED + 1):
        answer = custodian.reveal(index, commit=commit_of(index))
        values.append(answer.value)  # type: ignore[union-attr]
        found.append((kept(folder), tuple(values)))
    return found  # type: ignore[return-value]


def commit_of(index: int) -> str:
    """What the custodian's value was revealed for."""
    return hashlib.sha256(f"commit {index}".encode()).hexdigest()
