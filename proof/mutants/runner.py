"""Planting bugs one after the other, each in a process of its own.

The parent imports what takes long and has no bug in it (pytest, hypothesis, YAML), never ``tenure``, and forks: a child
then costs the import of ``tenure`` and its killers. It hands back what its killers saw through a pipe. A child that
could not plant its bug or run its killers, or that died before it had said anything, is broken: that is a failure of
this tool, and says nothing about who would see the bug.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from selectors import EVENT_READ, DefaultSelector
from typing import NamedTuple

import msgspec
from msgspec import Struct

from proof.mutants.detectors import Sight
from proof.mutants.hook import plant
from proof.mutants.killers import files_of, look, prepare, scenarios
from proof.mutants.mutant import ROOT, Mutant
from proof.mutants.seeds import NAMES

MEMORY_MAX = 4 << 30
OUTSIDE = ("custodian/", "embedded/", "kube/", "ledger/", "notify/")
HOW = {
    "all": "every scenario, every world, every test of its area",
    "first": "up to the first killer that sees it",
}
WARM = ("yaml", "msgspec", "click", "hypothesis", "pytest", "_pytest.pytester", "aiohttp", "sqlite3", "asyncio")
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Job(NamedTuple):
    """A bug (None: none at all) and the killers to try on it, and how: see ``HOW``."""

    mutant: Mutant | None
    killers: list[str]
    how: str = "all"

    @property
    def name(self) -> str:
        return "(no bug)" if self.mutant is None else self.mutant.name


class Verdict(Struct, frozen=True, kw_only=True):
    """What the killers of a job saw, or why they could not be asked."""

    sights: list[Sight] = []
    broken: str = ""


_verdict = msgspec.json.Decoder(Verdict)


def everything(mutant: Mutant, *, how: str) -> Job:
    """Every scenario, every world, and the tests of the bug's area. The simulator has no part of what is outside the
    engine and the shell: a bug there is tried on its tests alone."""
    tests = [f"test {name}" for name in files_of(mutant)]
    killers = tests if mutant.file.startswith(OUTSIDE) else [*_mixed(), *tests]
    return Job(mutant, killers, how)


def _mixed() -> list[str]:
    """Three scenarios, one world, and so on: who stops early has heard of both."""
    names, worlds = [f"scenario {name}" for name in scenarios()], [f"world {name}" for name in NAMES]
    mixed = [[*names[3 * place : 3 * place + 3], world] for place, world in enumerate(worlds)]
    return [*(name for some in mixed for name in some), *names[3 * len(worlds) :]]


def control(jobs: Iterable[Job]) -> Job:
    """The killers of all jobs on the source as it is: they must see nothing."""
    return Job(None, list(dict.fromkeys(killer for job in jobs for killer in job.killers)))


def run(jobs: Iterable[Job], *, hands: int = 1) -> Generator[tuple[Job, Verdict], None, None]:
    """Try jobs, so many at a time; each with what came of it, in the order in which they end. Whoever goes away before
    the last one takes all processes with him."""
    _warm_up()
    waiting, busy = list(reversed(list(jobs))), DefaultSelector()
    with closing(busy):
        try:
            while waiting or busy.get_map():
                while waiting and len(busy.get_map()) < hands:
                    with _undisturbed():
                        job = waiting.pop()
                        pid, pipe = _fork(job)
                        busy.register(pipe, EVENT_READ, (job, pid, bytearray()))
                for key, _ in busy.select():
                    job, pid, heard = key.data
                    if piece := os.read(key.fd, 1 << 16):
                        heard += piece
                        continue
                    busy.unregister(key.fd)
                    os.close(key.fd)
                    status = _ended(pid)
                    yield job, _understood(bytes(heard), status)
        finally:
            for key in list(busy.get_map().values()):
                _ended(key.data[1])


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Whoever interrupts has to wait until a child is known that was started: it is to be ended as well."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)


def _ended(pid: int) -> int:
    """End a child, with all that it started, and collect it; how it ended."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _warm_up() -> None:
    sys.path[:0] = [str(ROOT)] if str(ROOT) not in sys.path else []
    for name in WARM:
        importlib.import_module(name)


def _fork(job: Job) -> tuple[int, int]:
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(theirs)
        with suppress(OSError):  # it may have done so itself, and be gone
            os.setpgid(pid, pid)
        return pid, ours
    os.close(ours)
    _child(job, theirs)
    raise AssertionError("a child never comes back")


def _child(job: Job, pipe: int) -> None:
    """Do the work, hand over what comes of it, and end, whatever happens."""
    try:
        _alone()
        said = msgspec.json.encode(_judged(job))
        while said:
            said = said[os.write(pipe, said) :]
        os.close(pipe)
        signal.pause()  # whoever has heard it ends this process, and all that it started
    finally:
        os._exit(1)


def _alone() -> None:
    """In a group of its own (what a person interrupts is the parent), quiet, bounded, and gone when the parent is."""
    with suppress(OSError):
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    for number in _INTERRUPTS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os.environ["PYTHONHASHSEED"] = "0"
    os.chdir(ROOT)
    gc.set_threshold(100_000)  # short lives leave little behind
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))


def _judged(job: Job) -> Verdict:
    try:
        plant(job.mutant)
        prepare(job.mutant, job.killers)
        return Verdict(sights=list(islice(look(job.killers, how=job.how), 1 if job.how == "first" else None)))
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.removeprefix(f'{ROOT}/')}:{last.lineno}"
        return Verdict(broken=f"{type(error).__name__}: {error} ({where})")


def _understood(heard: bytes, status: int) -> Verdict:
    try:
        return _verdict.decode(heard)
    except msgspec.DecodeError:
        how = (
            f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.waitstatus_to_exitcode(status)}"
        )
        return Verdict(broken=f"its process ended with {how} before it had said what was seen")
