"""Pods as local processes: the executor that really runs work, and survives its own end.

Each pod has a supervisor of its own (``shim.py``) that outlives the daemon; this class launches it, tells it
to stop, and reads what it wrote. It keeps nothing that matters: everything it answers is read from the pod's
folder (``folder.py``), so the answers of a new executor are those of the old one. What may happen to the
daemon between two steps, and why that is safe:

    make the folder, write spec.json    killed here: not started, so it is launched later
    launch the supervisor               killed here: the next daemon may launch a second one; the lock and the
                                        ``started`` marker let exactly one of them run the pod
    report Bound, Succeeded, Failed     killed here: the same files give the same report again
    write ``stopped``, signal           killed here: the supervisor looks for itself every few seconds, and
                                        counts the grace period by itself

A pod whose supervisor was killed is lost: what is left of it is killed first (``survivors.py``), then it is
reported Failed. A pod that the engine does not keep any more and that is alive is ended (``forgotten.py``).
Otherwise only pods in ``work`` are looked at, never the history in the folders.

Who is told only what changed (``revise``) has it look only at pods that may have changed: those that start or stop, and
those whose supervisor the kernel says has ended (``supervisors.py``). Every few seconds it looks at all of them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import assert_never

from tenure.embedded import shim
from tenure.embedded.folder import Alive, Ended, Lost, Opening, PodFolder, Waiting
from tenure.embedded.forgotten import Forgotten
from tenure.embedded.launch import INHERITED, Launch, Refused, read_launch
from tenure.embedded.supervisors import Supervisors
from tenure.embedded.survivors import kill_survivors, signal_supervisor
from tenure.facts import PodPhase
from tenure.shell.executor import PodReport, PodWork
from tenure.units import Instant, Micros

SUPERVISOR = (sys.executable, "-I", "-S", shim.__file__)
"""Isolated and without site packages: nothing in the environment changes what a supervisor is."""
POLL_SETTLING: Micros = 20_000
POLL_STEADY: Micros = 200_000
POLL_PER_POD: Micros = 1_000
"""A look at a pod costs some 20 microseconds: with these intervals, looking takes a fiftieth of a core."""
POLL_ALL: Micros = 5_000_000
"""Between two looks at pods whose supervisors are known to live: should a folder be taken away, or damaged."""
LAUNCHES = 3
"""How many supervisors of one pod may fail before the pod does."""
STOPPED = "asked to stop"
FORGOTTEN = "the fleet does not know it any more: its node was fenced, or the ledger is an older copy"

_DEFAULTED = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGQUIT, signal.SIGTERM)


def _nothing(point: str) -> None:
    """The hook when nobody wants one."""


class ProcessExecutor:
    """Runs pods as processes of this machine.

    Two on the same root with the same work are a waste, but start nothing twice. With different work, each would end
    what it takes for forgotten: a fleet has one driver (``driver.py``).
    """

    def __init__(
        self,
        root: Path,
        *,
        environ: Mapping[str, str] | None = None,
        supervisor: Sequence[str] = SUPERVISOR,
        hook: Callable[[str], None] = _nothing,
    ) -> None:
        self._root = root.absolute()
        given = os.environ if environ is None else environ
        self._environ = {name: given[name] for name in INHERITED if name in given}
        self._supervisor = tuple(supervisor)
        self._hook = hook
        self._launched: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._forgotten = Forgotten(self._root)
        self._settling = False
        self._wake: Instant | None = None
        self._work: dict[str, PodWork] = {}
        self._open: set[str] = set()
        """Pods to look at next time, of those in ``_work``."""
        self._steady: set[str] = set()
        """Pods that the present pass found alive, as the engine knows."""
        self._supervisors: Supervisors | None = None
        self._all_due: Instant = 0
        """When to look at all pods again."""
        self.unknown: dict[str, str] = {}
        """Pods of which the last pass could learn nothing, and why: something for an operator to mend."""

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        """End what is not in ``work`` any more; then start, stop and look, pod by pod, in its order."""
        self._work = {item.pod.key: item for item in work}
        return self._look(work, gone=None, now=now)

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        """The same, of the pods that changed, that are about to change, and whose supervisors ended: by their keys."""
        supervisors = self._watching()
        gone = [key for key in dropped if self._work.pop(key, None) is not None]
        for key in gone:
            supervisors.drop(key)
        for item in changed:
            self._work[item.pod.key] = item
        if now >= self._all_due:
            self._all_due, self._open = now + POLL_ALL, set(self._work)
        self._open.update(item.pod.key for item in changed)
        self._open.update(supervisors.ended())
        work = [self._work[key] for key in sorted(self._open) if key in self._work]
        reports = self._look(work, gone=gone, now=now)
        for key in self._steady:
            with contextlib.suppress(OSError):  # then it is looked at again, as one that may change
                if supervisors.watch(key, self._folder(self._work[key]).state()):
                    self._open.discard(key)
        self._wake = self._next(len(self._open), now)
        return reports

    def descriptor(self) -> int:
        """Can be read when a supervisor has ended that ``revise`` left alone: then it should be called."""
        return self._watching().fileno()

    def close(self) -> None:
        """Give the descriptors back. Pods go on, and the next call looks at all of them."""
        if self._supervisors is not None:
            self._supervisors.close()
        self._supervisors, self._all_due = None, 0

    def _watching(self) -> Supervisors:
        if self._supervisors is None:
            self._supervisors = Supervisors()
        return self._supervisors

    def _look(self, work: Sequence[PodWork], *, gone: Sequence[str] | None, now: Instant) -> list[PodReport]:
        """One pass over some pods; ``gone`` are those dropped since the last one, None if ``work`` is all there are."""
        self._reap()
        self._settling = False
        self._steady = set()
        self.unknown = {}
        self._end_forgotten(gone, now)
        live = [item for item in work if item.stop or item.known in ("Placed", "Bound")]
        self._open = {item.pod.key for item in live}
        self._failures = {key: count for key, count in self._failures.items() if key in self._work}
        reports = [report for item in live for report in self._attend(item, now)]
        self._wake = self._next(len(live), now)
        return reports

    def _next(self, looked: int, now: Instant) -> Instant | None:
        """When to look again, if so many pods are to be looked at."""
        if self._settling:
            return now + POLL_SETTLING
        if looked:
            return now + max(POLL_STEADY, POLL_PER_POD * looked)
        return max(now, self._all_due) if any(item.known == "Bound" for item in self._work.values()) else None

    def next_wake(self) -> Instant | None:
        return self._wake

    def _attend(self, item: PodWork, now: Instant) -> list[PodReport]:
        """What one pod needs. The kernel's or the disk's refusal to tell is no fact: then we ask again."""
        try:
            folder = self._folder(item)
            if item.stop:
                return self._stop(item, folder, now)
            return self._start(item, folder, now) if item.known == "Placed" else self._watch(item, folder, now)
        except ValueError as fault:
            return [_report(item, "Gone" if item.stop else "Failed", at=now, message=f"cannot run: {fault}")]
        except OSError as fault:
            self.unknown[item.pod.key] = str(fault)
            return []

    def _folder(self, item: PodWork) -> PodFolder:
        return PodFolder(self._root, namespace=item.pod.namespace, pod=item.pod.name)

    # --- starting ---------------------------------------------------------------------------------

    def _start(self, item: PodWork, folder: PodFolder, now: Instant) -> list[PodReport]:
        if (fault := _mistaken(item, folder)) is not None:
            return self._refuse(item, folder, fault, now)
        reality = folder.look()
        if not isinstance(reality, Waiting):
            return self._observe(item, folder, reality, now)
        try:
            fault = self._launch(item, folder)
        except OSError as error:
            fault = f"cannot start: {error}"
        return [] if fault is None else self._give_up(item, folder, fault, now)

    def _launch(self, item: PodWork, folder: PodFolder) -> str | None:
        """Bring a supervisor on its way unless one is; returns why that cannot be done."""
        self._settling = True
        key = item.pod.key
        if (why := folder.forbidden()) is not None:
            return why
        if self._failures.get(key, 0) >= LAUNCHES:
            return f"cannot start: its supervisor fails; see {folder.path / shim.ERRORS}"
        if key in self._launched or self._forgotten.are_on_gpus_of(item.pod):
            return None
        if folder.spec() is None:
            token, scratch = secrets.token_hex(16), str(folder.scratch)
            launch = read_launch(item.manifest, pod=key, token=token, scratch=scratch, environ=self._environ)
            if isinstance(launch, Refused):
                return launch.message
            self._hook("planned")
            folder.create()
            self._hook("created")
            folder.describe(launch)
        self._hook("described")
        self._launched[key] = self._spawn(folder)
        self._hook("launched")
        return None

    def _spawn(self, folder: PodFolder) -> int:
        """Start a supervisor in a session of its own, so that no terminal and no group of ours can end it."""
        argv = (*self._supervisor, str(folder.path))
        errors = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.posix_spawn(
            argv[0],
            argv,
            self._environ,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(folder.path / shim.ERRORS), errors, 0o600),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULTED,
        )

    def _give_up(self, item: PodWork, folder: PodFolder, why: str, now: Instant) -> list[PodReport]:
        """Report a pod that cannot start, once it is certain that no supervisor under way will start it."""
        if os.path.exists(folder.path):
            folder.forbid(why)
            if not isinstance(folder.look(), Waiting):
                return []
        return [_report(item, "Failed", at=now, message=why)]

    def _refuse(self, item: PodWork, folder: PodFolder, why: str, now: Instant) -> list[PodReport]:
        """Report a pod whose name is another's; that one ends first if it lives, since nobody else would end it."""
        return [] if self._end(folder, why, now) is None else [_report(item, "Failed", at=now, message=why)]

    def _reap(self) -> None:
        """Take note of supervisors that we launched and that ended; those that failed are counted."""
        for key, pid in list(self._launched.items()):
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                done, status = pid, 0
            if done:
                del self._launched[key]
            if done and status:
                self._failures[key] = self._failures.get(key, 0) + 1

    # --- watching ---------------------------------------------------------------------------------

    def _watch(self, item: PodWork, folder: PodFolder, now: Instant) -> list[PodReport]:
        reality = folder.look()
        if isinstance(reality, Waiting):
            folder.create()
            return self._give_up(item, folder, f"lost: nothing is known of it in {folder.path}", now)
        return self._observe(item, folder, reality, now)

    def _observe(
        self, item: PodWork, folder: PodFolder, reality: Opening | Alive | Ended | Lost, now: Instant
    ) -> list[PodReport]:
        """Report a pod that a supervisor has, or had."""
        match reality:
            case Opening():
                self._settling = True
                return []
            case Alive(since):
                if item.known == "Bound":
                    self._steady.add(item.pod.key)
                return _bound(item, since, now)
            case Ended():
                return [*_bound(item, reality.started_at, now), _ended(item, reality, now)]
            case Lost(since):
                ended = self._settle_lost(folder, since, now)
                return [] if ended is None else [*_bound(item, since, now), _ended(item, ended, now)]
            case other:
                assert_never(other)

    def _settle_lost(self, folder: PodFolder, since: Instant, now: Instant) -> Ended | None:
        """Kill what is left of a pod whose supervisor is dead; its last word, once there is nothing left."""
        spec = folder.spec()
        if kill_survivors(folder.state(), token="" if spec is None else spec.token):
            self._settling = True
            return None
        message = f"lost: its supervisor ended without a record; see {folder.path / shim.ERRORS}"
        ended = Ended(code=None, message=message, started_at=since, ended_at=now)
        with contextlib.suppress(OSError):  # on a full disk it is as true, and is found out again if need be
            folder.bury(ended)
        return ended

    # --- stopping ---------------------------------------------------------------------------------

    def _stop(self, item: PodWork, folder: PodFolder, now: Instant) -> list[PodReport]:
        match self._end(folder, STOPPED, now):
            case None:
                return []
            case Waiting():
                return [_report(item, "Gone", at=now, message="stopped before it started")]
            case Ended() as ended:
                return [_gone(item, ended, now)]
            case other:
                assert_never(other)

    def _end(self, folder: PodFolder, why: str, now: Instant) -> Waiting | Ended | None:
        """Forbid a pod to start, and end it if it has; None as long as something of it may be alive."""
        reality = folder.look()
        if isinstance(reality, Waiting | Opening | Alive):
            self._forbid(folder, why)
            # Whoever takes the lock from here on sees the marker; whoever has it by now is signalled.
            reality = folder.look()
        match reality:
            case Waiting() | Ended():
                return reality
            case Opening() | Alive():
                self._settling = True
                signal_supervisor(folder.state())
                return None
            case Lost(since):
                return self._settle_lost(folder, since, now)
            case other:
                assert_never(other)

    def _forbid(self, folder: PodFolder, why: str) -> None:
        try:
            folder.forbid(why)
        except OSError:
            signal_supervisor(folder.state())  # a full disk must not keep a pod alive
            raise
        self._hook("forbidden")

    def _end_forgotten(self, gone: Sequence[str] | None, now: Instant) -> None:
        """End, as if asked to stop, what lives though the engine does not keep it any more; nobody is told."""
        try:
            self._forgotten.notice(self._work.keys(), gone=gone)
        except OSError as fault:  # the folders cannot be listed: asked again
            self.unknown[str(self._root)] = str(fault)
        for key, folder in self._forgotten:
            try:
                over = self._end(folder, FORGOTTEN, now)
            except OSError as fault:
                self.unknown[key], self._settling = str(fault), True
            else:
                if over is not None:
                    self._forgotten.drop(key)


def _mistaken(item: PodWork, folder: PodFolder) -> str | None:
    """Why a folder is not this pod's: an earlier fleet in the same place may have left one of that name, and a ledger
    that was put back to an older copy gives the same name and uid again, but perhaps not the same GPUs."""
    spec = folder.spec()
    if spec is None:
        return None
    metadata = item.manifest.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, dict) else None
    if uid and spec.uid not in ("", uid):
        return f"cannot start: {folder.path} belongs to another pod of that name ({spec.uid}); move it away"
    asked = read_launch(item.manifest, pod=item.pod.key, token="", scratch="", environ={})
    if isinstance(asked, Launch) and asked.devices != spec.devices:
        return (
            f"cannot start: {folder.path} belongs to an earlier pod of that name, on GPUs {spec.devices or 'unknown'}"
        )
    if folder.forbidden() == FORGOTTEN:
        return f"cannot start: {folder.path} belongs to a pod that was stopped ({FORGOTTEN})"
    return None


def _report(item: PodWork, phase: PodPhase, *, at: Instant, code: int | None = None, message: str = "") -> PodReport:
    return PodReport(key=item.pod.key, phase=phase, code=code, message=message, at=at)


def _bound(item: PodWork, since: Instant, now: Instant) -> list[PodReport]:
    return [_report(item, "Bound", at=min(since, now))] if item.known == "Placed" else []


def _ended(item: PodWork, ended: Ended, now: Instant) -> PodReport:
    phase: PodPhase = "Succeeded" if ended.code == 0 else "Failed"
    return _report(item, phase, at=min(ended.ended_at, now), code=ended.code, message=ended.message)


def _gone(item: PodWork, ended: Ended, now: Instant) -> PodReport:
    return _report(item, "Gone", at=min(ended.ended_at, now), code=ended.code, message=ended.message)
