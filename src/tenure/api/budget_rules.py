"""What a Budget must be beyond its shape (SPEC 2). Each function is one rule, named after it.

Values outside their limits have been reported by the shape already; the rules here pass over them.
"""

from __future__ import annotations

from tenure.api.budget import AggregateCap, Budget, BudgetSpec, Envelope
from tenure.api.errors import Faults, Path, show
from tenure.api.formats import instant_of
from tenure.units import HOUR, Micros


def check_budget(budget: Budget, faults: Faults) -> None:
    spec = budget.spec
    parents_are_others(spec, faults)
    names_are_unique([each.name for each in spec.envelopes], ("spec", "envelopes"), faults)
    names_are_unique([each.name for each in spec.aggregate_caps], ("spec", "aggregateCaps"), faults)
    for index, envelope in enumerate(spec.envelopes):
        check_envelope(envelope, ("spec", "envelopes", index), faults)
    for index, cap in enumerate(spec.aggregate_caps):
        check_cap(cap, spec, ("spec", "aggregateCaps", index), faults)


def parents_are_others(spec: BudgetSpec, faults: Faults) -> None:
    for index, parent in enumerate(spec.parents):
        at: Path = ("spec", "parents", index)
        if parent == spec.owner:
            faults.add(at, "the owner is its own parent", "name another owner, or leave it out", value=show(parent))
        if parent in spec.parents[:index]:
            faults.add(at, "listed twice", "leave one out", value=show(parent))


def names_are_unique(names: list[str], at: Path, faults: Faults) -> None:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if first.setdefault(name, index) != index:
            problem = f"the same name as {at[-1]}[{first[name]}]"
            faults.add((*at, index, "name"), problem, "give each its own name", value=show(name))


def check_envelope(envelope: Envelope, at: Path, faults: Faults) -> None:
    window = _closed_window(envelope)
    if window is not None and window <= 0:
        fix = f"write a time after {envelope.start}"
        faults.add((*at, "end"), "not after start", fix, value=show(envelope.end))
    elif window is not None:
        hours_fit_the_window(envelope, window, at, faults)
    if envelope.lending is not None:
        lending_is_within(envelope, at, faults)


def hours_fit_the_window(envelope: Envelope, window: Micros, at: Path, faults: Faults) -> None:
    hours = envelope.max_gpu_hours
    if hours is not None and envelope.concurrency > 0 and hours * HOUR > envelope.concurrency * window:
        most = envelope.concurrency * window // HOUR
        problem = f"more than {envelope.concurrency} GPUs can use between start and end"
        faults.add((*at, "maxGPUHours"), problem, f"write at most {most}", value=show(hours))


def lending_is_within(envelope: Envelope, at: Path, faults: Faults) -> None:
    lending = envelope.lending
    assert lending is not None
    at = (*at, "lending")
    if lending.max_concurrency is not None and lending.max_concurrency > envelope.concurrency:
        problem = f"above the envelope's own concurrency of {show(envelope.concurrency)}"
        fix = f"write at most {show(envelope.concurrency)}"
        faults.add((*at, "maxConcurrency"), problem, fix, value=show(lending.max_concurrency))
    own = envelope.max_gpu_hours
    if lending.max_gpu_hours is not None and own is not None and lending.max_gpu_hours > own:
        problem = f"above the envelope's own maxGPUHours of {show(own)}"
        fix = f"write at most {show(own)}"
        faults.add((*at, "maxGPUHours"), problem, fix, value=show(lending.max_gpu_hours))


def check_cap(cap: AggregateCap, spec: BudgetSpec, at: Path, faults: Faults) -> None:
    if cap.max_concurrency is None and cap.max_gpu_hours is None:
        faults.add(at, "a cap that bounds nothing", "give it maxConcurrency or maxGPUHours")
    flavors = {each.name: each.flavor for each in spec.envelopes}
    for index, name in enumerate(cap.envelopes):
        here = (*at, "envelopes", index)
        if name not in flavors:
            fix = f"name one of {', '.join(show(each) for each in sorted(flavors)[:8])}"
            faults.add(here, "no such envelope in this Budget", fix, value=show(name))
        elif flavors[name] != cap.flavor:
            problem = f"an envelope of flavor {show(flavors[name])} under a cap of flavor {show(cap.flavor)}"
            faults.add(here, problem, "a cap bounds envelopes of its own flavor only", value=show(name))
        if name in cap.envelopes[:index]:
            faults.add(here, "listed twice", "leave one out", value=show(name))


def _closed_window(envelope: Envelope) -> Micros | None:
    if envelope.start is None or envelope.end is None:
        return None
    start, end = instant_of(envelope.start), instant_of(envelope.end)
    return None if start is None or end is None else end - start
