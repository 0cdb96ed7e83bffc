"""Everything at one instant, as whole API objects (the STATE of SPEC 15): what every home can show."""

from __future__ import annotations

from typing import Any

from tenure.api.meta import to_wire
from tenure.engine import State, render
from tenure.engine.shown import Risks
from tenure.engine.words import Words
from tenure.shell.home import Home
from tenure.units import Instant, format_time


def snapshot(home: Home, *, now: Instant) -> dict[str, Any]:
    """The whole world, sorted by namespace and name."""
    history = sorted(home.store.lease_history(), key=lambda row: (row[0].namespace, row[0].name))
    promises = sorted(home.store.reservation_history(), key=lambda row: (row[0].namespace, row[0].name, row[0].made))
    return {
        **objects(home.state, now=now),
        "reservations": [
            to_wire(render.reservation(home.state, one, now=now, resolution=resolution)) for one, resolution in promises
        ],
        "leases": [to_wire(render.lease(lease, end=end, closure=closure)) for lease, end, closure in history],
    }


def objects(state: State, *, now: Instant) -> dict[str, Any]:
    """All but what is over: closed leases, and reservations that were Released or Canceled."""
    words, risks = Words(state, now=now), Risks(state, now=now)
    return {
        "now": format_time(now),
        "budgets": [to_wire(render.budget(state, state.budgets[name], now=now)) for name in sorted(state.budgets)],
        "runs": [
            to_wire(render.run(state, state.runs[key], now=now, words=words, risks=risks))
            for key in _sorted(state.runs)
        ],
        "reservations": [
            to_wire(render.reservation(state, one, now=now))
            for one in sorted(state.reservations.values(), key=lambda one: (one.namespace, one.name))
        ],
        "leases": [to_wire(render.lease(state.leases[key])) for key in _sorted(state.leases)],
        "pods": [
            to_wire(render.pod(state.runs[state.pods[key].pod.run_key], state.pods[key], state.policy.gpu_resource))
            for key in _sorted(state.pods)
        ],
        "nodes": [to_wire(node) for node in render.nodes(state)],
    }


def _sorted(keys: Any) -> list[str]:
    return sorted(keys, key=lambda key: tuple(key.split("/", 1)))
