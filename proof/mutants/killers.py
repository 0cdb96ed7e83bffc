"""What a planted bug has to get past, and what it says when it is caught.

Three sorts, each run whole or one at a time, all in the process that imported the bug:

    scenario NAME     tests/scenarios/NAME.yaml on the simulator, the auditor after every step, and the page that says
                      what must come out
    world KIND-SEED   a random history of 50 steps (``worlds.py``)
    test NODE         a test of the bug's own area, by its pytest id

What is said then, and by whom, is for ``detectors.py``; a killer that could not be run at all has said nothing.
"""

from __future__ import annotations

import contextlib
import io
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings

from proof.mutants.detectors import ENDLESS, Sight, raised_at, sight
from proof.mutants.mutant import ROOT, Mutant

SECONDS_MAX = {"scenario": 3, "world": 3, "test": 8}
TESTS_SECONDS_MAX = 60
"""Of processor time for one of each sort, and for all tests of a bug: it may well make something go on for ever. (Wall
time is nobody's fault; without a bug none takes a second.)"""
ENDLESS_MAX = 4
"""So many killers of a sort have to see that something does not end; then no others of that sort are asked."""

AREAS: dict[str, tuple[str, ...]] = {
    "engine/books.py": ("engine/test_accounting.py", "engine/test_cover.py"),
    "engine/meters.py": ("engine/test_accounting.py", "engine/test_commitments.py"),
    "engine/cover.py": ("engine/test_cover.py", "engine/test_lenders.py"),
    "engine/family.py": ("engine/test_cover.py",),
    "engine/money.py": ("engine/test_accounting.py", "engine/test_shortage.py"),
    "engine/shortage.py": ("engine/test_shortage.py",),
    "engine/topology.py": ("engine/test_topology.py", "engine/test_pack.py", "engine/test_fill.py"),
    "engine/pack.py": ("engine/test_pack.py",),
    "engine/demand.py": ("engine/test_admit.py", "engine/test_pack.py"),
    "engine/bind.py": ("engine/test_bind.py", "engine/test_elastic.py"),
    "engine/spares.py": ("engine/test_spares.py", "engine/test_fill.py"),
    "engine/groups.py": ("engine/test_elastic.py", "engine/test_spares.py"),
    "engine/elastic.py": ("engine/test_elastic.py",),
    "engine/life.py": ("engine/test_life.py", "engine/test_spares.py"),
    "engine/state.py": ("engine/test_life.py", "engine/test_rebuilt.py", "engine/test_accounting.py"),
    "engine/indexes.py": ("engine/test_life.py", "engine/test_rebuilt.py", "engine/test_accounting.py"),
    "engine/step.py": ("engine/test_life.py", "engine/test_spares.py"),
    "engine/intake.py": ("engine/test_intake.py",),
    "engine/settle.py": ("engine/test_rebuilt.py",),
    "engine/agenda.py": ("engine/test_rebuilt.py", "engine/test_life.py"),
    "engine/image.py": ("engine/test_rebuilt.py",),
    "engine/cuts.py": ("engine/test_cuts.py", "engine/test_shortage.py"),
    "engine/resolver.py": ("engine/test_cuts.py",),
    "engine/activation.py": ("engine/test_reservations.py", "engine/test_cuts.py"),
    "engine/starts.py": ("engine/test_reservations.py", "engine/test_promised_money.py"),
    "engine/promise.py": ("engine/test_reservations.py",),
    "engine/admit.py": ("engine/test_queue_place.py", "engine/test_planted_queue.py"),
    "engine/queue/promises.py": ("engine/test_reservations.py", "engine/test_planted_queue.py"),
    "engine/queue/tenable.py": ("engine/test_reservations.py", "engine/test_due.py", "engine/test_promised_money.py"),
    "engine/queue/backfill.py": ("engine/test_queue_place.py", "engine/test_planted_queue.py"),
    "engine/queue/holes.py": ("engine/test_queue_place.py", "engine/test_planted_queue.py"),
    "engine/queue/starting.py": ("engine/test_reservations.py",),
    "engine/queue/lines.py": ("engine/test_planted_queue.py",),
    "engine/estimate/ratios.py": ("engine/test_estimate.py",),
    "engine/estimate/replay.py": ("engine/test_estimate.py",),
    "engine/estimate/coverage.py": ("engine/test_estimate.py",),
    "engine/draws.py": ("engine/test_cuts.py", "engine/test_lottery.py"),
    "engine/lottery.py": ("engine/test_lottery.py",),
    "api/owners.py": ("api/test_owners.py",),
    "shell/home.py": ("contract/test_store.py", "embedded/test_fleet.py"),
    "ledger/store.py": ("ledger/test_anchor.py", "ledger/test_entries.py"),
    "ledger/anchor.py": ("ledger/test_anchor.py",),
    "ledger/chain.py": ("ledger/test_entries.py", "ledger/test_verify.py"),
    "ledger/transaction.py": ("ledger/test_entries.py", "ledger/test_snapshots.py"),
    "ledger/derive.py": ("ledger/test_queries.py", "ledger/test_entries.py"),
    "ledger/queries.py": ("ledger/test_queries.py", "ledger/test_charges.py"),
    "notify/progress.py": ("notify/test_courier.py",),
    "notify/outbox.py": ("notify/test_outbox.py", "notify/test_courier.py"),
    "custodian/keeper.py": ("custodian/test_keeper.py",),
    "kube/seen.py": ("kube/test_seen.py",),
    "kube/intake.py": ("kube/test_intake.py",),
    "kube/translate.py": ("kube/test_translate.py",),
    "kube/wishes.py": ("kube/test_wishes.py",),
    "kube/desk.py": ("kube/test_desk.py",),
    "kube/errors.py": ("proof/test_sim_storms.py",),
    "kube/heads.py": ("proof/test_sim_storms.py",),
    "kube/store.py": ("proof/test_sim_storms.py",),
    "kube/informer.py": ("proof/test_sim_storms.py",),
    "kube/elect.py": ("proof/test_sim_storms.py",),
    "kube/pods.py": ("kube/test_pods.py", "proof/test_sim_storms.py"),
    "kube/materialise.py": ("proof/test_sim_storms.py",),
    "kube/retention.py": ("proof/test_sim_storms.py",),
    "embedded/process.py": ("embedded/test_process.py",),
}
"""Test files (below ``tests``) of the area of each file: quick ones, that need no cluster and no child process that
would import ``tenure`` without the bug."""


def files_of(mutant: Mutant) -> tuple[str, ...]:
    """The tests of a bug's area, those of its own first."""
    return tuple(f"tests/{name}" for name in (*mutant.tests, *AREAS.get(mutant.file, ())))


def scenarios() -> list[str]:
    folder = ROOT / "tests" / "scenarios"
    return sorted(path.stem for path in folder.glob("*.yaml") if ".expect" not in path.name)


def prepare(mutant: Mutant | None, killers: list[str]) -> None:
    """Import the bug, and what the killers are made of: what fails here says nothing about the tests."""
    sorts = {killer.partition(" ")[0] for killer in killers}
    if mutant is not None:
        import_module(mutant.module)
    if "scenario" in sorts:
        import_module("tests.scenarios.test_scenarios")
    if "world" in sorts:
        import_module("proof.mutants.worlds")


def look(killers: list[str], *, how: str) -> Iterator[Sight]:
    """Run killers one after the other; what each of them saw, if anything. Tests may be whole files."""
    endless = Counter[str]()
    for sort, some in groupby(killers, key=lambda killer: killer.partition(" ")[0]):
        names = [killer.partition(" ")[2] for killer in some]
        one_by_one = [_tried(sort, name) for name in names]
        for act in [_tested(names, *(("-x",) if how == "first" else ()))] if sort == "test" else one_by_one:
            if endless[sort] == ENDLESS_MAX:
                break
            for one in act:
                yield one
                endless[sort] += "time" in one.detectors


# --- scenarios and worlds -------------------------------------------------------------------------------------------


def _play(name: str) -> None:
    import yaml

    from tenure.shell.store import MemoryStore
    from tenure.testing.scenarios import brief, play
    from tests.scenarios.test_scenarios import FLEET, HERE, scenario

    wanted = scenario(name)
    told = brief(play(wanted, MemoryStore(FLEET)), start=wanted.start)
    expected = yaml.safe_load((HERE / f"{name}.expect.yaml").read_text())
    for part, said in expected.items():
        assert told[part] == said, f"{part}: it comes out otherwise: {_difference(told[part], said)}"


def _difference(found: Any, said: Any) -> str:
    """The first line that is another, both ways."""
    if isinstance(found, dict):
        key = next(key for key in {**said, **found} if found.get(key) != said.get(key))
        return f"{key}: {found.get(key)}, not {said.get(key)}"
    new, missing = [one for one in found if one not in said], [one for one in said if one not in found]
    return f"{new[0] if new else 'nothing'}, not {missing[0] if missing else 'nothing'}"


def _live(name: str) -> None:
    from proof.mutants.worlds import live

    live(name)


def _tried(sort: str, name: str) -> Iterator[Sight]:
    act, began = {"scenario": _play, "world": _live}[sort], time.process_time()
    try:
        with _limited(SECONDS_MAX[sort]):
            act(name)
    except (Exception, _EndlessError) as error:
        words = str(error) or type(error).__name__
        if not isinstance(error, AssertionError):
            words = f"{type(error).__name__}: {words}"
        file, function = raised_at(error.__traceback__)
        yield sight(f"{sort} {name}", words, time.process_time() - began, file=file, function=function)


class _EndlessError(BaseException):
    """It goes on for ever, as far as anybody cares. Nothing in between may catch it."""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def over(number: int, frame: FrameType | None) -> None:
        raise _EndlessError(ENDLESS)

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# --- tests ----------------------------------------------------------------------------------------------------------


class CannotRunError(Exception):
    """The tests could not be run: that is no verdict on any bug."""


class _Notes:
    """A pytest plugin: which tests failed, and how they said so."""

    def __init__(self) -> None:
        self.failed: dict[str, Sight] = {}
        self.ran = 0
        self.wrong = ""
        self.began = time.process_time()

    def pytest_sessionstart(self, session: Any) -> None:
        self.session = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Examples are the same every time, and nobody needs the smallest that fails."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), phases=phases, derandomize=True, database=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with _limited(SECONDS_MAX["test"]):
            return (yield)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.wrong = self.wrong or str(report.longrepr)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"
        if report.failed and report.nodeid not in self.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            words, file = (str(report.longrepr), "") if crash is None else (crash.message, crash.path)
            self.failed[report.nodeid] = sight(f"test {report.nodeid}", words, report.duration, file=file)
        endless = sum("time" in one.detectors for one in self.failed.values())
        if endless == ENDLESS_MAX or time.process_time() - self.began > TESTS_SECONDS_MAX:
            self.session.shouldfail = "that is enough"


def _tested(nodes: list[str], *more: str) -> Iterator[Sight]:
    notes = _Notes()
    # A bug may leave a pod behind that still writes into the folder while that is being removed.
    place = tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True)
    with place as folder, contextlib.redirect_stdout(io.StringIO()):
        base = str(Path(folder) / "t")
        options = (
            "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={base}",
            "-W", "ignore::pytest.PytestAssertRewriteWarning",  # it comes to a process in which much is imported
        )  # fmt: skip
        code = int(pytest.main([*options, *more, "--rootdir", str(ROOT), *nodes], plugins=[notes]))
    if code not in (0, 1) or not notes.ran:
        last = " ".join(notes.wrong.split())[-240:]
        raise CannotRunError(f"pytest could not run {' '.join(nodes)} (it said {code}): {last}")
    yield from notes.failed.values()
