"""Facts about promises in few words, for the tests of everything that keeps and shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.draw import Intent, ReservationRef, Result
from tenure.facts import Cut, Forecast, Froze, Reservation, Reserved, Resolved, Segment, Share, Slice
from tenure.units import MINUTE, Instant
from tests.engine.lottery_records import drawn, intent, pool

RUN, NAME = "train", "train-r1"


def slice_at(start: Instant | None, *nodes: str, gpus: int = 8, until: Instant | None = None, **other: Any) -> Slice:
    """So many GPUs on each node, paid by rai/west."""
    paid = Segment(budget="rai", envelope="west", payer="org:ai:rai", funding="owned", gpus=gpus * len(nodes))
    usual: dict[str, Any] = {
        "start": start, "until": until, "width": gpus * len(nodes), "domain": {"region": "west", "cluster": "lab"},
        "domains": ("west/lab/A",), "shares": tuple(Share(node=node, gpus=gpus) for node in nodes), "segments": (paid,),
    }  # fmt: skip
    return Slice(**(usual | other))


def reservation(made: Instant = 0, start: Instant | None = 10 * MINUTE, **other: Any) -> Reservation:
    """The promise to rai/train of 16 GPUs on a-0 and a-1."""
    first = slice_at(start, "a-0", "a-1") if start is not None else Slice()
    usual: dict[str, Any] = {
        "namespace": "rai", "name": NAME, "uid": f"uid-of-{other.get('name', NAME)}", "run": RUN, "run_uid": "u-1",
        "made": made, "promise": first, "plan": first, "confidence": "projected" if start is not None else "",
        "reason": "NoCapacity", "message": "There is no room.",
    }  # fmt: skip
    return Reservation(**(usual | other))


def moved(one: Reservation, start: Instant | None, **other: Any) -> Reservation:
    """The same, planned for another start."""
    plan = msgspec.structs.replace(one.plan, start=start) if start is not None else Slice()
    changed: Reservation = msgspec.structs.replace(one, **({"plan": plan} | other))
    return changed


def released(one: Reservation, at: Instant) -> Reservation:
    return msgspec.structs.replace(
        one, state="Released", reason="Released", message="It was kept.", activated=at, released=at
    )


def put(one: Reservation) -> Reserved:
    return Reserved(reservation=one)


def threatening(one: Reservation, **odds: str) -> Reservation:
    """The same, with a forecast in which runs of rai may be cut: ``threatening(one, eval="0.25")``."""
    cuts = (
        Cut(kind="DropSpare", run="rai/big", owner="org:ai:rai", gpus=4),
        Cut(kind="Shrink", run="rai/wide", owner="org:ai:rai", gpus=16),
        Cut(kind="Lottery", run="rai/eval", owner="org:ai:rai", gpus=12),
    )
    said = Forecast(deficit=32, remedies=cuts, pool=40, odds={f"rai/{run}": text for run, text in odds.items()})
    return msgspec.structs.replace(one, confidence="conservative", forecast=said)


def draw_for(one: Reservation, *, activation: int = 1, index: int = 7) -> tuple[Intent, Result]:
    """A lottery among four runs for a reservation."""
    frozen = msgspec.structs.replace(
        intent(pool(a="one two", b="three four"), index=index),
        reservation=ReservationRef(namespace=one.namespace, name=one.name, uid=one.uid),
        activation=activation,
    )
    return frozen, drawn(frozen)


def froze(frozen: Intent) -> Froze:
    return Froze(trigger="Activation", intent=frozen)


def resolved(frozen: Intent, result: Result, *, count: int = 1, **other: Any) -> Resolved:
    """The first of the order give way, all of them."""
    owners = {token.id: token for token in frozen.tokens}
    cuts = tuple(
        Cut(kind="Lottery", run=run, owner=owners[run].owner, gpus=8, leases=(f"{run.split('/')[1]}-l0",))
        for run in result.order[:count]
    )
    usual: dict[str, Any] = {
        "trigger": "Activation", "subject": froze(frozen).subject, "activation": frozen.activation, "cuts": cuts,
        "deficit": 8, "intent": frozen, "result": result,
    }  # fmt: skip
    return Resolved(**(usual | other))
