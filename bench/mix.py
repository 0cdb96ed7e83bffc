"""Promise: on 30 days of two real traces the mean wait is at most 0.45 times that of FIFO and 1.25 times that of EASY,
no promised start is missed, nothing is violated, and the replay takes at most 60 seconds of the engine's time.

The Philly virtual clusters and the Kalos language models (their 90 days squeezed into 30) run on 28 domains of 8 nodes
of 8 GPUs. Each owner has a budget of its own that could pay for the whole fleet, jobs declare their true duration, and
patience outlasts the trace, so that nobody is cut. FIFO and EASY know one number of GPUs and every run time exactly.
What was promised, and what came of it, is read off the ledger; the auditor reads all of it too.

Beside the promise: the same with durations declared twice too long, and with budgets that are tight (each owner's share
of the fleet is its share of the work, or its widest job if that is more).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from time import perf_counter

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench.result import Row, Scale
from tenure.api.budget import Budget
from tenure.api.policy import Policy
from tenure.simulate.replay import Replay, Replayed, Setting
from tenure.simulate.replay_world import Machines, ample_budgets, uniform_nodes
from tenure.simulate.report_data import refer
from tenure.simulate.stats import Summary
from tenure.simulate.trace import merge, read_trace
from tenure.units import DAY

NAME = "mix"
TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
"""The public traces lie beside the checkout."""
_FILES = {"philly-vc.csv": Fraction(1), "kalos-llm.csv": Fraction(3)}
_FLEET = "28x8x8"
_PATIENT = Policy(patience="2400h")
_DAYS = {"full": 31, "quick": 31, "tiny": 1}
AGAINST = {"fifo": 0.45, "easy": 1.25}
SECONDS = 60.0


class World(Struct, frozen=True):
    setting: Setting
    machines: Machines


def run(scale: Scale, folder: Path) -> list[Row]:
    if not present():
        return [Row(bench=NAME, what="not measured: the traces do not lie beside this checkout", measured=0, unit="")]
    world = read(days=_DAYS[scale.name])
    references = {name: refer(name, world.setting, world.machines) for name in AGAINST}
    rows = list(_promised(world, references))
    if scale.name != "tiny":
        twice = msgspec.structs.replace(world.setting, declare="x2")
        rows += _told("declared twice too long", twice, references)
        tight = msgspec.structs.replace(world.setting, objects=_tight(world))
        rows += _told("tight budgets", tight, references)
    return rows


def present() -> bool:
    return all((TRACES / name).is_file() for name in _FILES)


def read(*, days: int) -> World:
    """The mix, as long as it takes to submit so many days of it."""
    traces = []
    for name, scale in _FILES.items():
        with (TRACES / name).open(encoding="utf-8", newline="") as file:
            traces.append(read_trace(file, source=name, scale=scale))
    nodes = uniform_nodes(_FLEET)
    assert nodes is not None
    machines = Machines(nodes, _PATIENT)
    jobs, left_out = machines.sort(job for job in merge(traces) if job.submit <= days * DAY)
    assert not left_out, "every job fits the fleet"
    budgets = ample_budgets({job.owner for some in jobs.values() for job in some}, machines)
    setting = Setting(jobs=jobs, nodes=nodes, objects=budgets, policy=_PATIENT, gpus=machines.total)
    return World(setting, machines)


def _tight(world: World) -> tuple[Budget, ...]:
    """Each owner may use its share of the work of the fleet at once, or its widest job."""
    work: dict[str, int] = {}
    widest: dict[str, int] = {}
    for job, _ in world.setting.all_jobs():
        work[job.owner] = work.get(job.owner, 0) + job.gpus * job.duration
        widest[job.owner] = max(widest.get(job.owner, 0), job.gpus)
    total = sum(work.values())
    out = []
    for budget in ample_budgets(set(work), world.machines):
        owner = budget.spec.owner
        share = max(widest[owner], world.machines.total * work[owner] // total)
        envelopes = tuple(replace(one, concurrency=share, sharing="None") for one in budget.spec.envelopes)
        out.append(replace(budget, spec=replace(budget.spec, envelopes=envelopes)))
    return tuple(out)


# --- rows -----------------------------------------------------------------------------------------------------------


def _promised(world: World, references: dict[str, Summary]) -> Iterator[Row]:
    wall = perf_counter()
    found = Replay(world.setting).play()
    wall = perf_counter() - wall
    for name, goal in AGAINST.items():
        yield _against(found, references[name], goal=goal)
    kept, audit = found.promises, found.audit
    yield _share("reservations that started as promised or earlier", kept.missed, kept.made, goal=100)
    yield _share("reservations that were never moved later", kept.moved_later, kept.made, goal=100)
    yield _share("audited entries without a violation, envelopes included", audit.violations, audit.entries, goal=100)
    yield Row(bench=NAME, what="engine, to replay it", measured=found.work.engine_seconds, unit="s", goal=SECONDS,
              detail={"s_with_audit_by_the_wall_clock": round(wall, 1), "jobs": found.summary.completed,
                      "facts": found.work.facts})  # fmt: skip


def _told(what: str, setting: Setting, references: dict[str, Summary]) -> Iterator[Row]:
    found = Replay(setting).play()
    for name in AGAINST:
        yield _against(found, references[name], note=f"{what}: ")
    kept, audit = found.promises, found.audit
    yield _share(f"{what}: reservations that started as promised or earlier", kept.missed, kept.made)
    yield _share(f"{what}: reservations that were never moved later", kept.moved_later, kept.made)
    yield _share(f"{what}: audited entries without a violation", audit.violations, audit.entries, goal=100)
    error = kept.error_hours.get("all")
    if error is not None:
        yield Row(bench=NAME, what=f"{what}: promised starts against real ones, absolute", unit="h",
                  measured=error.mean_absolute, detail={"h_early_half": -error.p50, "h_latest": error.max})  # fmt: skip
    yield Row(bench=NAME, what=f"{what}: engine", measured=found.work.engine_seconds, unit="s")


def _against(found: Replayed, other: Summary, *, goal: float | None = None, note: str = "") -> Row:
    mine, theirs = found.summary.wait_hours.mean, other.wait_hours.mean
    name = other.policy.upper()
    return Row(bench=NAME, what=f"{note}mean wait against {name}", measured=mine / theirs if theirs else 1.0, goal=goal,
               detail={"h_tenure": round(mine, 2), f"h_{other.policy}": round(theirs, 2)})  # fmt: skip


def _share(what: str, bad: int, of: int, *, goal: float | None = None) -> Row:
    return Row(bench=NAME, what=f"{what}, of {of:,}", measured=100 * (of - bad) / of if of else 100.0, unit="%",
               goal=goal, sense="at least")  # fmt: skip
