"""A bell for who waits on a fleet file: it rings when somebody committed, and when something else has to be looked at.

Every commit moves the anchor once it counts, so the kernel's notice that the anchor was written (inotify) is the news
that there are entries to read. A notice may be missing: the one who committed died before it moved the anchor, or the
kernel has no watch left to give. So whoever waits looks by itself from time to time as well: seldom where the bell
hears the file (``LISTENING``), often where it is deaf (``POLL``).
"""

from __future__ import annotations

import ctypes
import os
import select
from pathlib import Path
from types import TracebackType

POLL = 0.1
"""Seconds between two looks at a file that nobody tells of."""
LISTENING = 1.0
"""Seconds between two looks at a file that the kernel tells of."""

_CLOSE_WRITE, _NONBLOCK, _CLOEXEC = 0x8, 0o4000, 0o2000000
"""Flags of the kernel's ``inotify``: who advances an anchor opens it for writing, syncs it and closes it."""
_libc = ctypes.CDLL(None, use_errno=True)


class Bell:
    """Rings when a file was written and closed, when somebody rings it, or when a descriptor has something to say."""

    def __init__(self, file: Path) -> None:
        self._file = os.fsencode(file)
        self._rung = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._notices = _libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._rung, select.POLLIN)
        if self._notices >= 0:
            self._poll.register(self._notices, select.POLLIN)
        self._also: int | None = None
        self.hears = self._listen()
        """The kernel tells of the file."""

    def __enter__(self) -> Bell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for fd in (self._rung, self._notices):
            if fd >= 0:
                os.close(fd)
        self._rung = self._notices = -1

    def ring(self) -> None:
        """Let who waits go on, or whoever waits next. A signal handler may call it."""
        if self._rung >= 0:
            os.eventfd_write(self._rung, 1)

    def heed(self, fd: int | None) -> None:
        """Ring also when this descriptor can be read, and no more for the one that was given before."""
        if fd == self._also:
            return
        if self._also is not None:
            self._poll.unregister(self._also)
        if fd is not None:
            self._poll.register(fd, select.POLLIN)
        self._also = fd

    def wait(self, seconds: float) -> bool:
        """Wait for the bell, at most so long; True if it rang. Who made a descriptor readable is not asked here."""
        rang = [fd for fd, _ in self._poll.poll(max(0.0, seconds) * 1000)]
        if self._rung in rang:
            os.eventfd_read(self._rung)
        if self._notices in rang:
            os.read(self._notices, 4096)
        if not rang:
            self.hears = self._listen()  # another file may be in the old one's place
        return bool(rang)

    def longest(self) -> float:
        """Seconds after which to look though the bell did not ring."""
        return LISTENING if self.hears else POLL

    def _listen(self) -> bool:
        """Ask the kernel to tell of the file; to ask again changes nothing."""
        return self._notices >= 0 and bool(_libc.inotify_add_watch(self._notices, self._file, _CLOSE_WRITE) >= 0)
