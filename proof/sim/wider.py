"""What one plan in four has beyond the others: a family of three generations, a second region, caps on hours, windows
that promise nothing before they open, owners who change their sponsors, and machines that burn under work with spares.

It is laid over a plan that was drawn as ever, by luck of its own.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from proof.sim import fleets
from proof.sim.events import Event, Plan, manifest
from tenure.units import HOUR, MINUTE, Micros

TOP = "org:top"
HEADS = ("org:up", "org:aunt")
EAST = {"region": "us-east"}
_Manifest = dict[str, Any]


def widened(plan: Plan) -> Plan:
    """The plan, or what it becomes with all that; always the same."""
    luck = Random(f"wider {plan.home} {plan.mode} {plan.hours} {plan.seed}")
    if luck.random() >= 0.25:
        return plan
    budgets = {one["spec"]["owner"]: one for one in plan.budgets}
    for owner in (*HEADS, TOP):
        budgets.setdefault(owner, manifest(fleets.budget_of(luck, owner)))
    events = [_event(luck, one) for one in plan.events]
    submitted = [one for one in events if one.kind == "submit"]
    events += [_sponsors(luck, one) for one in submitted if luck.random() < 0.3]
    names = [one["metadata"]["name"] for one in plan.nodes]
    events += [_fails(luck, one, names) for one in submitted if one.object["spec"].get("sparesPerGroup")]
    return msgspec.structs.replace(
        plan,
        nodes=tuple(_node(luck, one) for one in plan.nodes),
        budgets=tuple(_budget(luck, budgets[owner]) for owner in sorted(budgets)),
        events=tuple(sorted(events, key=lambda event: event.at)),
    )


def _node(luck: Random, node: _Manifest) -> _Manifest:
    if luck.random() < 0.6:
        return node
    meta = node["metadata"]
    return node | {"metadata": meta | {"labels": meta["labels"] | EAST}}


def _budget(luck: Random, budget: _Manifest) -> _Manifest:
    spec = dict(budget["spec"])
    if spec["owner"] in HEADS:
        spec["parents"] = [TOP]
    spec["envelopes"] = [_envelope(luck, one) for one in spec["envelopes"]]
    spec["aggregateCaps"] = [
        cap | {"maxGPUHours": luck.choice((40, 160, 640))} for cap in spec.get("aggregateCaps", ())
    ]
    return budget | {"spec": spec}


def _envelope(luck: Random, envelope: _Manifest) -> _Manifest:
    if luck.random() < 0.3:
        envelope = envelope | {"selector": EAST}
    if "start" in envelope and luck.random() < 0.5:
        envelope = envelope | {"preActivation": {"allowReservations": False}}
    return envelope


def _event(luck: Random, event: Event) -> Event:
    if event.kind == "budget":
        return msgspec.structs.replace(event, object=_budget(luck, event.object))
    if event.kind != "submit":
        return event
    spec = dict(event.object["spec"])
    if spec.get("funding", {}).get("sponsors"):  # others are above those, and cousins, who are asked after them
        spec["funding"] = spec["funding"] | {"sponsors": [luck.choice((*HEADS, TOP, "org:nobody"))]}
    if spec.get("locality", {}).get("groupGPUs") and not spec.get("malleable") and luck.random() < 0.7:
        spec["sparesPerGroup"] = luck.choice((1, 2))
    return msgspec.structs.replace(event, object=event.object | {"spec": spec})


def _fails(luck: Random, event: Event, nodes: list[str]) -> Event:
    later, lasts = luck.choice((5 * MINUTE, 20 * MINUTE, HOUR)), luck.choice((5 * MINUTE, 5 * HOUR))
    return Event(at=event.at + later, kind="node-fail", target=luck.choice(nodes), lasts=lasts)


def _sponsors(luck: Random, event: Event) -> Event:
    later: Micros = luck.choice((0, MINUTE, HOUR))
    sponsors = luck.sample((*fleets.OWNERS, TOP), luck.randint(0, 2))
    funding = {"allowBorrow": bool(sponsors), "sponsors": sponsors}
    name = event.object["metadata"]["name"]
    return Event(at=event.at + later, kind="sponsors", target=name, object=funding)
