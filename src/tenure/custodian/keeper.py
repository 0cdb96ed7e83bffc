"""The custodian on disk: a folder with its secret chain and the journal of what was revealed.

    FOLDER/        0700
      chain        0600   written once, by init
      journal      0600   one line for each reveal

    reveal(index, commit):  index = position + 1                    -> write the line, sync it, then answer
                            index <= position, the same commit      -> the same answer (a crash repeats)
                            index <= position, another commit       -> refused: never draw twice
                            anything else                           -> refused: nothing out of turn

So for every index there is one commit, and it was on disk before anybody could know the value. A process that
dies between the two reveals nothing; when it is asked again the answer is the same. Two processes on one
folder take turns by a lock. ``answer`` is the careful way to ask: it takes the whole intent, finds its own
beacon in it and checks the value before, so that the commit it writes down is one it computed itself.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from tenure.api.errors import escape, show
from tenure.custodian.chain import Chain, decode, encode, make_chain
from tenure.custodian.journal import Answered, Journal, JournalDamaged
from tenure.custodian.refusals import Code, CustodianRefused, refused
from tenure.draw import CHAIN_LENGTH_MAX, VERSION, Intent, commit, link

LENGTH = 100_000
"""A draw every six minutes for a year."""
CHAIN, JOURNAL = "chain", "journal"
_BEACON = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
Answer = TypeVar("Answer")
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Revealed(Struct, frozen=True, kw_only=True):
    """The answer: c[index] as hex, for this commit and no other."""

    beacon: str
    index: int
    value: str
    commit: str


class Status(Struct, frozen=True, kw_only=True):
    """Where a custodian stands. Nothing in it is secret."""

    beacon: str
    published: str
    """c[0]: what everybody should know from the beginning."""
    length: int
    position: int
    """The index that was revealed last; 0 if none was."""
    latest: str
    """c[position]: the ``previous`` of the next draw."""
    commit: str | None
    """What it was revealed for."""

    @property
    def remaining(self) -> int:
        return self.length - self.position


def init(
    folder: Path, *, beacon: str, length: int = LENGTH, entropy: Callable[[int], bytes] = os.urandom
) -> Status | CustodianRefused:
    """Make a new chain in a new folder; what must be published is ``Status.published``."""
    if not _BEACON.fullmatch(beacon):
        why = f"a beacon is named with up to 63 of a-z, 0-9, - and ., not {show(beacon)}"
        return refused(Code.BadRequest, why=why)
    if not 1 <= length <= CHAIN_LENGTH_MAX:
        return refused(Code.BadRequest, why=f"a chain is 1 to {CHAIN_LENGTH_MAX} long, not {length}")
    if os.path.lexists(folder):
        return refused(Code.Exists, path=folder)
    try:
        _build(folder, encode(make_chain(beacon, length, last=entropy(32))))
    except OSError as error:
        return _unavailable(folder, error)
    opened = open_custodian(folder)
    return opened if isinstance(opened, CustodianRefused) else opened.status()


def open_custodian(folder: Path) -> Custodian | CustodianRefused:
    """The custodian that lives in this folder, if all of it is there, whole, and nobody else's to read."""
    path = folder / CHAIN
    try:
        mode, raw = path.stat().st_mode & 0o777, path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return refused(Code.NotFound, path=folder)
    except OSError as error:
        return _unavailable(path, error)
    if mode & 0o077:
        return refused(Code.Exposed, path=path, mode=f"{mode:o}")
    chain = decode(raw)
    if chain is None:
        return refused(Code.Damaged, path=path, why="it is no chain, or fails its checksum")
    return Custodian(folder, chain)


class Custodian:
    """One chain and its journal. Nothing is held between calls: others may be asked in turn."""

    def __init__(self, folder: Path, chain: Chain) -> None:
        self._folder = folder
        self._chain = chain

    def answer(self, intent: Intent) -> Revealed | CustodianRefused:
        """Reveal what a frozen intent asks of this custodian, after checking that it is meant."""
        asked = self._asked(intent)
        return asked if isinstance(asked, CustodianRefused) else self.reveal(asked, commit=commit(intent).hex())

    def refusal(self, intent: Intent) -> CustodianRefused | None:
        """Why ``answer`` would say no now; None if it would not. Nothing is revealed, and nothing is written down."""
        asked = self._asked(intent)
        if isinstance(asked, CustodianRefused):
            return asked
        return self._ask(lambda journal: self._fault(journal, asked, commit(intent).hex()))

    def _asked(self, intent: Intent) -> int | CustodianRefused:
        """The index that an intent asks of this custodian, if it is meant."""
        asked = [beacon for beacon in intent.beacons if beacon.id == self._chain.beacon]
        if not asked:
            return refused(Code.NotAsked, beacon=self._chain.beacon)
        if intent.version != VERSION or len(asked) > 1 or asked[0].index < 1:
            return refused(Code.BadRequest, why=f"it is no intent of {VERSION}")
        status = self.status()
        if isinstance(status, CustodianRefused):
            return status
        # In turn first: whether a guess at a value that is still secret was right is nobody's to know.
        known = asked[0].index <= status.position + 1
        if known and asked[0].previous != self._chain.value(asked[0].index - 1).hex():
            found = escape(asked[0].previous)
            return refused(Code.OtherChain, index=asked[0].index - 1, found=found)
        return asked[0].index

    def reveal(self, index: int, *, commit: str) -> Revealed | CustodianRefused:
        """c[index], for this commit: the next value, or one that was revealed for the same commit before."""
        if not _HEX.fullmatch(commit):
            return refused(Code.BadRequest, why=f"a commit is 64 digits of lower-case hex, not {show(commit)}")
        return self._ask(lambda journal: self._reveal(journal, index, commit))

    def status(self) -> Status | CustodianRefused:
        return self._ask(self._status)

    def history(self, *, first: int = 1, count: int = 100) -> list[Answered] | CustodianRefused:
        """What was revealed for which commit: this custodian's own testimony, to hold beside the ledger."""

        def lines(journal: Journal) -> list[Answered]:
            last = min(journal.position(), first + count - 1)
            return [journal.line(index) for index in range(max(1, first), last + 1)]

        return self._ask(lines)

    def _ask(self, question: Callable[[Journal], Answer]) -> Answer | CustodianRefused:
        path = self._folder / JOURNAL
        try:
            with self._journal() as journal:
                return question(journal)
        except FileNotFoundError:
            return refused(Code.Damaged, path=path, why="it is gone, and with it what was revealed")
        except JournalDamaged as fault:
            return refused(Code.Damaged, path=path, why=fault)
        except OSError as error:
            return _unavailable(path, error)

    def _reveal(self, journal: Journal, index: int, commit: str) -> Revealed | CustodianRefused:
        fault = self._fault(journal, index, commit)
        if fault is not None:
            return fault
        # Written again even if it is there: the process that wrote it may have died before its sync.
        journal.write(index, commit)
        return Revealed(beacon=self._chain.beacon, index=index, value=self._chain.value(index).hex(), commit=commit)

    def _fault(self, journal: Journal, index: int, commit: str) -> CustodianRefused | None:
        """Why c[index] is not revealed for this commit."""
        if index > self._chain.length:
            return refused(Code.Exhausted, length=self._chain.length, index=index)
        position = journal.position()
        if not 1 <= index <= position + 1:
            return refused(Code.OutOfTurn, index=index, due=position + 1)
        if index <= position and (first := journal.line(index).commit) != commit:
            return refused(Code.OtherCommit, index=index, first=first, commit=commit)
        if link(self._chain.value(index)) != self._chain.value(index - 1):
            return refused(Code.Damaged, path=self._folder / CHAIN, why=f"it is broken at c[{index}]")
        return None

    def _status(self, journal: Journal) -> Status:
        position = journal.position()
        return Status(
            beacon=self._chain.beacon,
            published=self._chain.published,
            length=self._chain.length,
            position=position,
            latest=self._chain.value(position).hex(),
            commit=journal.line(position).commit if position else None,
        )

    @contextmanager
    def _journal(self) -> Iterator[Journal]:
        # Never O_CREAT: a journal that has vanished must not be taken for one that is empty.
        fd = os.open(self._folder / JOURNAL, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield Journal(fd, self._chain.published)
        finally:
            os.close(fd)


def _build(folder: Path, chain: bytes) -> None:
    """Make the folder whole under another name, then give it its own: it is there entirely or not at all."""
    draft = folder.with_name(f".{folder.name}.{os.urandom(6).hex()}.tmp")
    os.mkdir(draft, 0o700)
    try:
        _write(draft / CHAIN, chain)
        _write(draft / JOURNAL, b"")
        _sync_folder(draft)
        os.rename(draft, folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    _sync_folder(folder.parent)


def _write(path: Path, body: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(path: Path, error: OSError) -> CustodianRefused:
    return refused(Code.Unavailable, path=path, why=error.strerror or error)
