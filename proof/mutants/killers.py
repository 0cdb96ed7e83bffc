"""What a planted bug has to get past, and what it says when it is caught.

Three sorts, each run whole or one at a time, all in the process that imported the bug:

    scenario NAME     tests/scenarios/NAME.yaml on the simulator, the auditor after every step, and the page that says
                      what must come out
    world KIND-SEED   a random history of 50 steps (``worlds.py``)
    test NODE         a test of the bug's own area, by its pytest id

A killer that catches something says which invariants were named (by the auditor; I11 and the first half of I12, which
are no properties of a ledger, by the harness that asks for one more pass), and in its own words what it saw.
"""

from __future__ import annotations

import contextlib
import io
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, groupby
from pathlib import Path
from types import FrameType
from typing import Any

from msgspec import Struct

from proof.mutants.mutant import ROOT, Mutant

SECONDS_MAX = 15
TESTS_SECONDS_MAX = 120
"""Of processor time for one scenario or world, and for all tests of a bug: it may well make something go on for ever.
(Wall time is nobody's fault.)"""
ENDLESS = "it does not end"

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
    "engine/step.py": ("engine/test_life.py", "engine/test_spares.py"),
    "engine/intake.py": ("engine/test_intake.py",),
    "engine/settle.py": ("engine/test_rebuilt.py",),
    "engine/agenda.py": ("engine/test_rebuilt.py", "engine/test_life.py"),
    "engine/image.py": ("engine/test_rebuilt.py",),
    "engine/cuts.py": ("engine/test_cuts.py", "engine/test_shortage.py"),
    "engine/resolver.py": ("engine/test_cuts.py",),
    "engine/activation.py": ("engine/test_reservations.py", "engine/test_cuts.py"),
    "engine/forecast.py": ("engine/test_reservations.py",),
    "engine/promise.py": ("engine/test_reservations.py",),
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
    "embedded/process.py": ("embedded/test_process.py",),
}
"""Test files (below ``tests``) of the area of each file: quick ones, that need no cluster and no child process that
would import ``tenure`` without the bug."""


class Sight(Struct, frozen=True, kw_only=True):
    """What one killer saw."""

    killer: str
    invariants: tuple[str, ...]
    words: str
    seconds: float


def files_of(mutant: Mutant) -> tuple[str, ...]:
    """The tests of a bug's area, those of its own first."""
    return tuple(f"tests/{name}" for name in (*mutant.tests, *AREAS.get(mutant.file, ())))


def scenarios() -> list[str]:
    folder = ROOT / "tests" / "scenarios"
    return sorted(path.stem for path in folder.glob("*.yaml") if ".expect" not in path.name)


def look(killers: list[str], *, how: str) -> Iterator[Sight]:
    """Run killers one after the other; what each of them saw, if anything. Tests may be whole files; unless the look is
    thorough, they are asked only when nobody else saw anything before, and, if one sight will do, up to the first."""
    seen = False
    for sort, some in groupby(killers, key=lambda killer: killer.partition(" ")[0]):
        names = [killer.partition(" ")[2] for killer in some]
        if sort == "test" and seen and how != "thorough":
            continue
        acts = (
            [_tested(names, *(("-x",) if how == "first" else ()))]
            if sort == "test"
            else [_tried(sort, name) for name in names]
        )
        for sight in chain.from_iterable(acts):
            yield sight
            seen = True
            if sight.words.endswith(ENDLESS):
                return  # nobody has to see that more than once


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
        with _limited(SECONDS_MAX):
            act(name)
    except (Exception, _EndlessError) as error:
        words = str(error) or type(error).__name__
        if not isinstance(error, AssertionError):
            words = f"{type(error).__name__}: {words}"
        yield _sight(f"{sort} {name}", words, time.process_time() - began)


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


class _Notes:
    """A pytest plugin: which tests failed, and how they said so."""

    def __init__(self) -> None:
        self.failed: dict[str, Sight] = {}
        self.ran = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"
        if report.failed and report.nodeid not in self.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            words = str(report.longrepr) if crash is None else crash.message
            self.failed[report.nodeid] = _sight(f"test {report.nodeid}", words, report.duration)


def _tested(nodes: list[str], *more: str) -> Iterator[Sight]:
    import pytest

    notes = _Notes()
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder, contextlib.redirect_stdout(io.StringIO()):
        base = str(Path(folder) / "t")
        options = (
            "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={base}",
            "-W", "ignore::pytest.PytestAssertRewriteWarning",  # it comes to a process in which much is imported
        )  # fmt: skip
        try:
            with _limited(TESTS_SECONDS_MAX):
                code = int(pytest.main([*options, *more, "--rootdir", str(ROOT), *nodes], plugins=[notes]))
        except _EndlessError as error:
            yield _sight(f"test {nodes[0]}", str(error), time.process_time() - began)
            return
    yield from notes.failed.values()
    if not notes.failed and (code not in (0, 1) or not notes.ran):
        yield _sight(f"test {nodes[0]}", f"the tests could not be run at all (pytest said {code})", 0.0)


# --- what was said --------------------------------------------------------------------------------------------------

_NAMED = re.compile(r"\bI\d{1,2}-[a-z]+(?:-[a-z]+)*")
_HARNESS = {
    "the world does not settle": "I11-settled",
    "rebuilt, the world": "I11-settled",
    "there was something to decide on": "I11-settled",
    "looked at anew, something could have started": "I12-liveness",
}
"""How the harnesses of the tests say what the auditor, who reads a ledger, cannot."""


def _sight(killer: str, words: str, seconds: float) -> Sight:
    """What was said, without the name of the bug's own process, and which invariants are named in it."""
    found = set(_NAMED.findall(words)) & set(_invariants())
    found |= {name for said, name in _HARNESS.items() if said in words}
    if "looked at anew, the world writes" in words and "Opened(" in words:
        found.add("I12-liveness")
    first = " ".join(words.split())
    return Sight(killer=killer, invariants=tuple(sorted(found)), words=first[:240], seconds=round(seconds, 2))


def _invariants() -> list[str]:
    from tenure.audit.invariants import INVARIANTS

    return [one.name for one in INVARIANTS]
