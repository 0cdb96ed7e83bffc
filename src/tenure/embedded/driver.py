"""One driver per fleet: the process that drives time and runs work holds a lock; everybody can see whether it lives.

The lock is the kernel's, so it is gone the moment its holder is, however it died. It is a lock of the open file, which
can be asked about without being taken: looking whether a driver lives never gets in the way of one that starts.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType

from tenure.embedded.paths import driver_path

_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""The kernel's ``struct flock``: an exclusive lock from the first byte to the last."""


class DriverBusy(Exception):
    """Another process drives this fleet."""

    def __init__(self, path: Path, pid: str) -> None:
        super().__init__(f"{path} is driven by process {pid or '?'} already")
        self.pid = pid


class DriverLock:
    """Held while driving."""

    def __init__(self, path: Path) -> None:
        self._path = driver_path(path)
        self._fd = -1

    def __enter__(self) -> DriverLock:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except OSError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise DriverBusy(self._path, pid) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def is_driven(path: Path) -> bool:
    """Whether some process drives the fleet right now."""
    try:
        fd = os.open(driver_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(fd)
    (kind,) = struct.unpack_from("h", answer)
    return bool(kind != fcntl.F_UNLCK)
