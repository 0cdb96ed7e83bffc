"""Folders for a while, in memory where there is room for that; those of processes that were killed are cleared.

The name says whose it is (``tenure-sim-PID-...``), so that who comes later can tell what nobody needs any more. A
process that ends by itself, or is stopped, leaves none.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 1 << 30
"""Bytes that must be free there: a container may have 64 MiB of it, and others are at work."""
_NAME = re.compile(r"tenure-(?:sim|crashes|damage)-(\d+)-")


def place() -> Path:
    """Memory, if we can: a killed process takes no page from the kernel, so there is nothing to learn from a disk."""
    fits = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM
    return MEMORY if fits else Path(tempfile.gettempdir())


def found(pattern: str) -> list[Path]:
    """Folders of that name, wherever there was room when they were made."""
    return [one for where in (MEMORY, Path(tempfile.gettempdir())) for one in where.glob(pattern)]


def make(kind: str) -> Path:
    """A new folder of this process; ``kind`` is ``sim``, ``crashes`` or ``damage``."""
    return Path(tempfile.mkdtemp(prefix=f"tenure-{kind}-{os.getpid()}-", dir=place()))


@contextmanager
def workplace(kind: str) -> Iterator[Path]:
    """Such a folder while it is needed."""
    folder = make(kind)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@atexit.register
def clear() -> None:
    """Remove what this process has made and could not remove: it was stopped in the middle of something."""
    for folder in found(f"tenure-*-{os.getpid()}-*"):
        if _NAME.match(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def sweep() -> int:
    """Remove the folders of processes that are no more; how many there were."""
    count = 0
    for folder in found("tenure-*"):
        name = _NAME.match(folder.name)
        if name is not None and not _lives(int(name[1])):
            shutil.rmtree(folder, ignore_errors=True)
            count += not folder.exists()
    return count


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
