"""The disk of one operator: its journal, and what befalls that.

The truth is in the API server, so a journal may be lost, old or torn and nothing is; but an operator has to notice. A
kill is faithful: the files are copied as they lie at that instant, and the successor finds the copy, not what a dying
process would have tidied.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from proof.sim.disk import FailsToCommit
from proof.sim.loop import Killed
from tenure.ledger import Code, Ledger, LedgerRefused

NAME = "journal.db"
BEFORE, AFTER, ANCHOR = "before", "after", "anchor"
FAILURES = (BEFORE, AFTER, ANCHOR)
DEATHS = ("after-append", "before-commit", "after-commit", "before-anchor", "anchor-written")
TORN = ("after-commit", "before-anchor")
"""Deaths after which the end of the log may be torn: what is in it then, the anchor has not seen."""
_NO_LIMIT = 1_000_000_000


class Journal:
    """A folder with a journal and its anchor, for one operator after another."""

    def __init__(self, folder: Path, tally: Counter[str]) -> None:
        self.folder, self.tally = folder, tally
        self._ledger: Ledger | None = None
        self._dies: Callable[[], None] = lambda: None
        self._full = 0
        self._failing = ""
        self._growing = False
        """A write has begun while the disk is full, and is not through."""
        self._kill_at: tuple[str, int | None] | None = None
        self._left: Path | None = None
        """The files as they lay when their process was killed."""

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def opened(self, ledger: Ledger, dies: Callable[[], None]) -> None:
        """An operator has its journal open; ``dies`` is how it is killed."""
        self._ledger, self._dies = ledger, dies
        ledger._hook = self._reached
        self._limit()

    def closed(self) -> None:
        """Its operator is gone: the next finds what is left."""
        self._was_full()
        self._ledger = None
        if self._left is not None:
            shutil.rmtree(self.folder)
            self._left.rename(self.folder)
            self._left = None

    def lose(self, *, anchor: bool = True) -> None:
        """Everything on the disk is gone, or (``anchor`` False) somebody has deleted all but the anchor."""
        for file in list(self.folder.glob("*")):
            if anchor or not file.name.endswith(".anchor"):
                file.unlink()

    # --- faults ---------------------------------------------------------------------------------------------------

    def fill(self, by: int) -> None:
        """The disk is full (1), or that is over (-1)."""
        self._full += by
        self._limit()

    def fail_sync(self, how: str) -> None:
        """The next commit fails in its sync: before it counts, after it, or at the anchor."""
        self._failing = how
        if how == BEFORE and self._ledger is not None:
            self._ledger._db = FailsToCommit(self._ledger, self._fails)  # type: ignore[assignment]  # a stand-in

    def kill_at(self, point: str, tear: int | None) -> None:
        """The next write of an entry dies at a point of it; with ``tear`` what was not synced is garbled there."""
        self._kill_at = (point, tear)

    def kept(self) -> Path:
        """A copy of everything, as a backup of the volume has it."""
        return self._copied("backup")

    def restore(self, backup: Path, *, anchor: bool) -> None:
        """Put an old copy in the place of what is there, of which nobody has anything open; with its anchor or not."""
        if not self.folder.exists() or not (backup / NAME).exists():
            return
        self.tally["fault/backup-restored"] += self._differs(backup)
        for file in list(self.folder.iterdir()):
            if anchor or not file.name.endswith(".anchor"):
                file.unlink()
        for file in backup.iterdir():
            if anchor or not file.name.endswith(".anchor"):
                shutil.copyfile(file, self.folder / file.name)

    def _differs(self, backup: Path) -> bool:
        """Whether an old copy holds anything else than what is there."""
        names = (NAME, f"{NAME}-wal")
        old, new = ([path.read_bytes() if (path := folder / name).exists() else b"" for name in names]
                    for folder in (backup, self.folder))  # fmt: skip
        return old != new

    # --- how they strike ------------------------------------------------------------------------------------------

    def _limit(self) -> None:
        if self._ledger is not None:
            pages = self._ledger._db.execute("PRAGMA page_count").fetchone()[0] if self._full else _NO_LIMIT
            self._ledger._db.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    def _reached(self, point: str) -> None:
        self._follow(point)
        if (self._failing, point) == (AFTER, "after-commit"):
            self._fails()
            raise LedgerRefused(Code.WriteFailed, "the sync of the file failed.", "Open it again.")
        if (self._failing, point) == (ANCHOR, "anchor-written"):
            self._fails()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._kill_at is not None and point == self._kill_at[0]:
            tear, self._kill_at = self._kill_at[1], None
            self._left = self._copied("left")
            torn = tear is not None and point in TORN and _tear(self._left / f"{NAME}-wal", tear)
            self.tally["fault/torn-write" if torn else "fault/dies in its journal"] += 1
            self._growing = False
            self._dies()
            raise Killed

    def _follow(self, point: str) -> None:
        """A write that was to grow the file, and of which nothing more was heard, has met the full disk."""
        if point == "begin":
            self._was_full()
        elif point == "before-append":
            self._growing = bool(self._full)
        elif point == "after-commit":
            self._growing = False

    def _was_full(self) -> None:
        self.tally["fault/disk-full"] += self._growing
        self._growing = False

    def _fails(self) -> bool:
        """A sync fails now."""
        self._failing, self._growing = "", False
        self.tally["fault/sync-fails"] += 1
        return True

    def _copied(self, name: str) -> Path:
        """The files as they lie. Nobody has them open but this very process, so no lock is lost that matters."""
        place = self.folder.with_name(f"{self.folder.name}-{name}")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for file in self.folder.glob(f"{NAME}*"):
            if not file.name.endswith("-shm"):
                shutil.copyfile(file, place / file.name)
        return place


def _tear(wal: Path, where: int) -> bool:
    """Garble a byte, or lose the rest, near the end of a log: in the last thing that was written to it, if anything."""
    raw = bytearray(wal.read_bytes()) if wal.exists() else bytearray()
    if raw:
        at = len(raw) - 1 - where % min(len(raw), 4096)
        if where % 2:
            del raw[at:]
        else:
            raw[at] ^= 0xFF
        wal.write_bytes(raw)
        return True
    return False
