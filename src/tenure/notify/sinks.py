"""Where events go: an HTTP receiver, a file, standard output. The only part of the notifier that touches the world.

``send`` takes up to ``width`` events, answers for all of them together, and raises nothing: whatever goes wrong is an
``Answer`` (``progress.py``). What it says for people names no header's value and no part of a URL but its host.

A file gets whole lines, synced before they count as delivered, under a lock. A line that a crash cut short is cut off
before the next one is written; its event was not acknowledged, so it comes again. A last line that is not ours is
left alone, and ours begin on a line of their own. The file is opened for each batch, so it may be rotated at any time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tenure.notify.config import File, Http, Receiver, Stdout
from tenure.notify.event import OPENING
from tenure.notify.progress import Answer, Away, Delivered

BATCH = 256
"""Events that are written and synced together."""
TAIL_MAX = 4 * 1024 * 1024
"""How far back the end of the last whole line is looked for."""


class Sink(Protocol):
    """A way out."""

    width: int

    def send(self, bodies: Sequence[bytes]) -> Answer: ...

    def rest(self) -> None:
        """A round is over: let go of what need not be held until the next."""
        ...


def sink_for(receiver: Receiver, *, environ: Mapping[str, str]) -> Sink:
    """The way to a receiver."""
    match receiver.to:
        case Http() as to:
            from tenure.notify.http import HttpSink  # only where there is one: it brings TLS with it

            return HttpSink(to, environ=environ)
        case File(path=path):
            return FileSink(path)
        case Stdout():
            return StdoutSink()


def reason(error: OSError) -> str:
    """What the operating system says, without the names of files or hosts."""
    return (error.strerror or type(error).__name__).lower()


class StdoutSink:
    """A line for each event, past Python's own buffer: one write, so that no other line gets in between."""

    width = BATCH

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd

    def send(self, bodies: Sequence[bytes]) -> Answer:
        try:
            write_all(self._fd, lines(bodies))
        except OSError as error:
            return Away(why=f"standard output: {reason(error)}")
        return Delivered()

    def rest(self) -> None:
        pass


class FileSink:
    """A line for each event, at the end of a file."""

    width = BATCH

    def __init__(self, path: Path) -> None:
        self.path = path

    def send(self, bodies: Sequence[bytes]) -> Answer:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o640)
        except OSError as error:
            return Away(why=f"the file cannot be opened: {reason(error)}")
        try:
            return self._append(fd, bodies)
        except BlockingIOError:
            return Away(why="the file is locked by another process")
        except OSError as error:
            return Away(why=f"the file cannot be written: {reason(error)}")
        finally:
            os.close(fd)

    def rest(self) -> None:
        pass

    def _append(self, fd: int, bodies: Sequence[bytes]) -> Answer:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a pipe or a device takes no sync, and may block for ever
            return Away(why="the file is not a regular file")
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fresh = os.fstat(fd).st_size == 0
        before = repair(fd)
        try:
            write_all(fd, lines(bodies))
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, before)  # no half line for others to read; if this fails too, the next repair does it
            raise
        if fresh:
            _sync_folder(self.path.parent)
        return Delivered()


def repair(fd: int) -> int:
    """Make the file end with a whole line: cut off a torn one of ours, close one of somebody else's. Its new size."""
    size = os.fstat(fd).st_size
    end, tail = last_line(fd, size)
    if not tail:
        return size
    if tail.startswith(OPENING) or OPENING.startswith(tail):
        os.ftruncate(fd, end)
        return end
    write_all(fd, b"\n")
    return size + 1


def last_line(fd: int, size: int) -> tuple[int, bytes]:
    """Where the last line begins that has no end, and how it begins; nothing if every line has its end."""
    start = size
    while start > 0 and size - start < TAIL_MAX:
        begin = max(0, start - 65536)
        block = os.pread(fd, start - begin, begin)
        found = block.rfind(b"\n")
        if found >= 0:
            start = begin + found + 1
            break
        start = begin
    return start, os.pread(fd, len(OPENING), start) if start < size else b""


def lines(bodies: Sequence[bytes]) -> bytes:
    return b"".join(body + b"\n" for body in bodies)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if written == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = view[written:]


def _sync_folder(folder: Path) -> None:
    """A file that was just created is there after a crash only if its folder was synced."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
