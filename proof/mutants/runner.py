"""Planting bugs one after the other, each in a process of its own.

The parent imports what takes long and has no bug in it (pytest, hypothesis, YAML), never ``tenure``, and forks: a child
then costs the import of ``tenure`` and its killers. It hands back what its killers saw through a pipe; a child that
dies without a word was caught too, by the kernel.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from selectors import EVENT_READ, DefaultSelector
from typing import NamedTuple

import msgspec

from proof.mutants.hook import plant
from proof.mutants.killers import Sight, files_of, look, scenarios
from proof.mutants.mutant import ROOT, Mutant
from proof.mutants.seeds import NAMES

MEMORY_MAX = 4 << 30
OUTSIDE = ("custodian/", "embedded/", "kube/", "ledger/", "notify/")
SOME = 6
HOW = {
    "first": "up to the first killer that sees it",
    "some": f"up to the first {SOME} that see it",
    "usual": "all scenarios and worlds, and tests only if none of them sees it",
    "thorough": "everything",
}
WARM = ("yaml", "msgspec", "click", "hypothesis", "pytest", "_pytest.pytester", "aiohttp", "sqlite3", "asyncio")

_sights = msgspec.json.Decoder(list[Sight])


class Job(NamedTuple):
    """A bug (None: none at all) and the killers to try on it, and how: see ``HOW``."""

    mutant: Mutant | None
    killers: list[str]
    how: str = "thorough"

    @property
    def name(self) -> str:
        return "(no bug)" if self.mutant is None else self.mutant.name


def everything(mutant: Mutant, *, how: str) -> Job:
    """Every scenario, every world, and the tests of the bug's area. The simulator has no part of what is outside the
    engine and the shell: a bug there is tried on its tests alone."""
    tests = [f"test {name}" for name in files_of(mutant)]
    own, others = tests[: len(mutant.tests)], tests[len(mutant.tests) :]
    killers = tests if mutant.file.startswith(OUTSIDE) else [*own, *_mixed(), *others]
    return Job(mutant, killers, how)


def _mixed() -> list[str]:
    """Three scenarios, one world, and so on: who stops early has heard of both."""
    names, worlds = [f"scenario {name}" for name in scenarios()], [f"world {name}" for name in NAMES]
    mixed = [[*names[3 * place : 3 * place + 3], world] for place, world in enumerate(worlds)]
    return [*(name for some in mixed for name in some), *names[3 * len(worlds) :]]


def control(jobs: Iterable[Job]) -> Job:
    """The killers of all jobs on the source as it is: they must see nothing."""
    return Job(None, list(dict.fromkeys(killer for job in jobs for killer in job.killers)))


def run(jobs: Iterable[Job], *, hands: int = 1) -> Iterator[tuple[Job, list[Sight]]]:
    """Try jobs, so many at a time; each with what was seen, in the order in which they end."""
    _warm_up()
    waiting, busy = list(reversed(list(jobs))), DefaultSelector()
    while waiting or busy.get_map():
        while waiting and len(busy.get_map()) < hands:
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
            _, status = os.waitpid(pid, 0)
            yield job, _understood(bytes(heard), status)


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
        return pid, ours
    os.close(ours)
    _child(lambda: msgspec.json.encode(_looked(job)), theirs)
    raise AssertionError("a child never comes back")


def _looked(job: Job) -> list[Sight]:
    plant(job.mutant)
    most = {"first": 1, "some": SOME}.get(job.how)
    return list(islice(look(job.killers, how=job.how), most))


def _child(work: Callable[[], bytes], pipe: int) -> None:
    """Do the work, hand over what comes of it, and end, whatever happens."""
    quiet = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os.environ["PYTHONHASHSEED"] = "0"
    os.chdir(ROOT)
    gc.set_threshold(100_000)  # short lives leave little behind
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    try:
        said = work()
    except BaseException:
        words = traceback.format_exc(limit=-3)
        said = msgspec.json.encode([Sight(killer="import", invariants=(), words=words[-240:], seconds=0.0)])
    while said:
        said = said[os.write(pipe, said) :]
    os._exit(0)


def _understood(heard: bytes, status: int) -> list[Sight]:
    try:
        return _sights.decode(heard)
    except msgspec.DecodeError:
        words = f"the process ended with status {status} and said nothing"
        return [Sight(killer="import", invariants=(), words=words, seconds=0.0)]
