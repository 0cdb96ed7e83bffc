"""A pod's folder as the daemon sees it: what is really so, read from files that a supervisor wrote.

``<root>/<namespace>/<pod>/`` holds the files that ``shim.py`` describes, one ``<container>.log`` for each
container and ``work``, the scratch folder where its processes start. Nothing here is remembered between two
looks, so a daemon that was started a moment ago sees what its predecessor saw.

The order of a look matters. A shim takes the lock, then makes ``started``, then runs, then writes
``exit.json``, then lets the lock go. So ``started`` is read first and the lock second: a pod that had been
started and has no lock holder *afterwards* is over, whatever happens meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from tenure.api.formats import DNS_LABEL, FORMATS
from tenure.embedded import shim
from tenure.embedded.launch import Launch
from tenure.units import Instant

_ABSENT = (FileNotFoundError, NotADirectoryError)


class Waiting(Struct, frozen=True):
    """Not started; no supervisor is at it. Unless it was forbidden, one may be launched."""


class Opening(Struct, frozen=True):
    """A supervisor has the pod and has not started it yet."""


class Alive(Struct, frozen=True):
    """Started, with its supervisor watching."""

    since: Instant


class Ended(Struct, frozen=True, rename="camel"):
    """Over: nothing of it is alive. The contents of ``exit.json``."""

    code: int | None
    message: str
    started_at: Instant
    ended_at: Instant


class Lost(Struct, frozen=True):
    """Started, and its supervisor died without a last word. Some of its processes may still be alive."""

    since: Instant


Reality: TypeAlias = Waiting | Opening | Alive | Ended | Lost


class Identity(Struct, frozen=True):
    """A process: its pid and when it started, in ticks since boot. A pid alone may be anyone's."""

    pid: int
    start: int


class State(Struct, frozen=True):
    """Who is who, as the supervisor wrote it down."""

    boot: str = ""
    shim: Identity | None = None
    containers: tuple[Identity, ...] = ()


class PodFolder:
    """The folder of one pod. Making this object touches no disk."""

    def __init__(self, root: Path, *, namespace: str, pod: str) -> None:
        # Both were validated when they came in; a path is where a mistake about that would hurt.
        for name in (namespace, pod):
            if not FORMATS["name"].accepts(name):
                raise ValueError(f"not a DNS name: {name[:64]!r}")
        self.path = root.absolute() / namespace / pod

    def look(self) -> Reality:
        """What is so now."""
        started = self.started_at()
        if self.has_supervisor():
            return Opening() if started is None else Alive(started)
        if started is None:
            return Waiting()
        return self.last_word(started) or Lost(started)

    def is_open(self) -> bool:
        """Whether something of it may be alive, or may start: it has come here, and its end is not recorded."""
        return os.path.exists(self.path) and not _exists(self.path, shim.EXIT)

    def started_at(self) -> Instant | None:
        with contextlib.suppress(*_ABSENT):
            return (self.path / shim.STARTED).stat().st_mtime_ns // 1000
        return None

    def has_supervisor(self) -> bool:
        """Is the lock held? Asked with a shared lock: two who ask do not take each other for a shim."""
        try:
            lock = os.open(self.path / shim.LOCK, os.O_RDONLY)
        except _ABSENT:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def last_word(self, started: Instant) -> Ended | None:
        try:
            return msgspec.json.decode((self.path / shim.EXIT).read_bytes(), type=Ended)
        except _ABSENT:
            return None
        except msgspec.MsgspecError as fault:
            message = f"lost: its record {self.path / shim.EXIT} cannot be read: {fault}"
            return Ended(code=None, message=message, started_at=started, ended_at=started)

    def state(self) -> State:
        try:
            return msgspec.json.decode((self.path / shim.STATE).read_bytes(), type=State)
        except (*_ABSENT, msgspec.MsgspecError):
            return State()

    def spec(self) -> Launch | None:
        try:
            return msgspec.json.decode((self.path / shim.SPEC).read_bytes(), type=Launch)
        except (*_ABSENT, msgspec.MsgspecError):
            return None

    def forbidden(self) -> str | None:
        """Why it may not start, if so."""
        with contextlib.suppress(*_ABSENT):
            return (self.path / shim.STOPPED).read_text(encoding="utf-8")
        return None

    @property
    def scratch(self) -> Path:
        return self.path / shim.SCRATCH

    def create(self) -> None:
        """Make the folder and its parents, so that they outlast a power cut."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)  # env may hold secrets
        self.scratch.mkdir(exist_ok=True)
        for parent in (self.path, self.path.parent, self.path.parent.parent):
            shim.sync_folder(str(parent))

    def describe(self, launch: Launch) -> None:
        """Write what to run, once: a description that is there already stays."""
        self._put(shim.SPEC, msgspec.json.encode(launch))

    def forbid(self, why: str) -> None:
        """From now on the pod never starts; if it has started, its supervisor stops it when told to look."""
        if self.forbidden() is None:
            self.create()
            self._put(shim.STOPPED, why.encode())

    def bury(self, ended: Ended) -> None:
        """Write the last word for a supervisor that could not."""
        self._put(shim.EXIT, msgspec.json.encode(ended))

    def _put(self, name: str, body: bytes) -> None:
        """Put a whole file in place unless there is one; durable when this returns."""
        draft = self.path / f"{name}.{os.urandom(6).hex()}.tmp"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, self.path / name)
        draft.unlink()
        shim.sync_folder(str(self.path))


def find_open(root: Path) -> Iterator[str]:
    """The keys of all pods that started and whose end is not recorded. Folders of pods that ended stay for ever: of
    such a one this asks only whether the record is there."""
    for space in _entries(root):
        for pod in _entries(space.path):
            if not _exists(pod.path, shim.EXIT) and _exists(pod.path, shim.STARTED):
                yield f"{space.name}/{pod.name}"


def _entries(path: Path | str) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(*_ABSENT), os.scandir(path) as entries:
        yield from entries


def _exists(folder: Path | str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def log_path(root: Path, *, namespace: str, pod: str, container: str) -> Path:
    """Where a container's output is: stdout and stderr together, in the order written."""
    if not DNS_LABEL.fullmatch(container):
        raise ValueError(f"not the name of a container: {container[:64]!r}")
    return PodFolder(root, namespace=namespace, pod=pod).path / f"{container}.log"


def containers(root: Path, *, namespace: str, pod: str) -> list[str]:
    """The names of a pod's containers, init containers first; none if the pod never came to this machine."""
    spec = PodFolder(root, namespace=namespace, pod=pod).spec()
    return [] if spec is None else [container.name for container in (*spec.init, *spec.containers)]
