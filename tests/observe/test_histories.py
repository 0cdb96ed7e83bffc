"""After any history, the numbers are those of a count from scratch, and looking has changed nothing."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tenure.engine import dump
from tenure.facts import Closed, Decided, Opened, Reserved, Resolved
from tests.engine.machine import KINDS, World
from tests.observe.support import nonzero, scrape, value, values


@pytest.mark.parametrize("seed", range(6))
def test_counts_and_gauges_agree_with_the_facts(seed: int) -> None:
    world, luck = World(seed), Random(seed)
    for _ in range(60):
        world.act(luck.choice(KINDS), luck)
    fleet = world.fleet
    before = dump(fleet.state)
    seen = scrape(fleet)
    assert dump(fleet.state) == before
    opened = [fact.lease for fact in fleet.facts if isinstance(fact, Opened)]
    closed = [(name, fact.reason) for fact in fleet.facts if isinstance(fact, Closed) for name in fact.leases]
    assert nonzero(seen, "leases_opened_total") == Counter((lease.reason,) for lease in opened)
    assert nonzero(seen, "leases_closed_total") == Counter((reason.partition("(")[0],) for _, reason in closed)
    assert nonzero(seen, "leases_open") == Counter((lease.role,) for lease in fleet.leases())
    cuts = [cut for fact in fleet.facts if isinstance(fact, Resolved) for cut in fact.cuts]
    assert nonzero(seen, "resolver_cuts_total") == Counter((cut.kind,) for cut in cuts)
    starts = [fact for fact in fleet.facts if isinstance(fact, Decided) and fact.verdict.outcome == "start"]
    grown = value(seen, "elastic_grows_total")
    assert value(seen, "run_admissions_total", result="success") == len(starts) - grown
    states = {one.state for one in fleet.state.reservations.values()}
    assert {labels[0] for labels in nonzero(seen, "reservation_backlog")} == states
    kept = [fact.reservation for fact in fleet.facts if isinstance(fact, Reserved)]
    kept = [one for one in kept if one.state == "Released" and one.promise.start is not None]
    errors = [abs((one.released or 0) - (one.promise.start or 0)) / 10**6 for one in kept]
    assert sum(values(seen, "forecast_error_seconds_count", against="promise").values()) == len(errors)
    assert sum(values(seen, "forecast_error_seconds_sum", against="promise").values()) == pytest.approx(sum(errors))
    held = Counter[tuple[str, str]]()
    for lease in fleet.leases():
        held[lease.budget, lease.envelope] += len(lease.gpus)
    used = {labels[:2]: number for labels, number in nonzero(seen, "budget_gpus_used").items()}
    assert used == held
