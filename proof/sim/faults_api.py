"""What goes wrong between an operator and its API server, and with the operator's process; drawn from a seed.

A fault is on for a while and strikes some of the requests that it can strike: ``number`` in a hundred. It is counted
when it has struck. ``target`` names a process by its place (``0``, ``1``), or nobody in particular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import msgspec

from proof.sim.events import FOR_GOOD, Event, Mode, Plan
from tenure.units import HOUR, MINUTE, SECOND, Micros

WRITES, READS, WATCHES, LISTS, PROCESS = "writes", "reads", "watches", "lists", "process"

STRIKES = {
    "api-conflict": WRITES,
    "api-throttle": READS + WRITES,
    "api-error": READS + WRITES + WATCHES,
    "api-error-after": WRITES,
    "api-reset-before": READS + WRITES + WATCHES,
    "api-reset-after": READS + WRITES,
    "api-slow": READS + WRITES,
    "api-truncated": READS + WRITES,
    "api-forbidden": WRITES,
    "api-unauthorized": READS + WRITES + WATCHES,
    "api-admission": WRITES,
    "list-stale": LISTS,
    "watch-closed": WATCHES,
    "watch-silent": WATCHES,
    "watch-expired": WATCHES,
    "watch-duplicated": WATCHES,
    "watch-delayed": WATCHES,
    "watch-reordered": WATCHES,
    "watch-lost-delete": WATCHES,
}
"""Which requests a fault can strike."""

KINDS: dict[str, str] = {
    "api-conflict": "a write is refused: the object has changed (409)",
    "api-throttle": "a request is refused for now: come back later (429 with Retry-After)",
    "api-error": "the server fails before it has done anything (500, 502, 503)",
    "api-error-after": "the server fails after it has applied a write (504)",
    "api-reset-before": "the connection is refused, nothing is sent",
    "api-reset-after": "the connection breaks after a request was carried out",
    "api-slow": "an answer takes longer than anybody waits; the request was carried out",
    "api-truncated": "an answer ends in its middle; the request was carried out",
    "api-forbidden": "a write is refused for good, or so it says (403)",
    "api-unauthorized": "the server does not know who asks: a token that is not taken, for a while (401)",
    "api-admission": "a webhook does not answer in time, and the write is refused (500)",
    "list-stale": "a list shows an older world",
    "watch-closed": "a watch is hung up on",
    "watch-silent": "a watch tells nothing more, and stays open",
    "watch-expired": "a watch cannot be resumed (410)",
    "watch-duplicated": "a watch tells things twice",
    "watch-delayed": "watches tell things late",
    "watch-reordered": "watches of different kinds tell things in another order than they happened in",
    "watch-lost-delete": "a deletion is never told; some time later the watch expires",
    "etcd-compacts": "what happened before can no longer be asked for",
    "leader-paused": "whoever decides stands still for lasts, in the middle of it, and goes on as if nothing had been",
    "dies-writing": "whoever decides dies at its number-th write from now on, before or after it was applied",
    "restart": "whoever decides is restarted in good order",
    "disk-full": "for lasts the journal of whoever decides may not grow",
    "sync-fails": "the next commit of its journal fails: before it counts, after it, or at the anchor (number)",
    "torn-write": "whoever decides dies in the next write of its journal (at a point of it: number), its tail torn",
    "backup-restored": "its journal is put back to how it is now, lasts later (number even: but not the anchor)",
}
DISK = ("disk-full", "sync-fails", "torn-write", "backup-restored")
BESIDE = (*DISK, "api-unauthorized")
"""What three plans in ten have of each, beside what is drawn for all."""
_LONG = ("watch-delayed", "watch-reordered", "watch-duplicated", "watch-lost-delete")


def faults(luck: Random, *, hours: int, mode: Mode, plan: Plan, moment: Callable[[], Micros]) -> list[Event]:
    """Some of everything; in liveness mode one thing stays a little broken for good."""
    kinds = sorted(KINDS.keys() - BESIDE)
    out = [_fault(luck, kind, moment()) for kind in luck.sample(kinds, luck.randint(4, 10))]
    if mode == "liveness":
        kind = luck.choice(("api-conflict", "api-throttle", "api-error", "api-reset-after", "watch-closed", "api-slow"))
        at = luck.randrange(hours * HOUR // 2)
        out.append(Event(at=at, kind=kind, number=luck.choice((2, 10)), lasts=FOR_GOOD))
    out += [_fault(luck, kind, moment()) for kind in BESIDE if luck.random() < 0.3]
    return list(_aimed(out, plan))


def _aimed(faults: list[Event], plan: Plan) -> Iterator[Event]:
    """A fleet is quiet for hours, and a fault of a minute strikes nobody: two in three that concern writes begin when
    a run is submitted."""
    luck = Random(f"aim {plan.home} {plan.mode} {plan.hours} {plan.seed}")
    busy = [one.at for one in plan.events if one.kind == "submit"]
    for one in faults:
        aims = WRITES in STRIKES.get(one.kind, "") and one.lasts != FOR_GOOD and luck.random() < 0.67
        yield msgspec.structs.replace(one, at=luck.choice(busy)) if aims and busy else one


def _fault(luck: Random, kind: str, at: Micros) -> Event:
    lasts: Micros = luck.choice((10 * SECOND, MINUTE, 5 * MINUTE))
    number, target = 100 if lasts <= MINUTE else luck.choice((5, 20, 50)), luck.choice(("", "", "0", "1"))
    if kind in _LONG:
        lasts, number = luck.choice((HOUR, 4 * HOUR)), luck.choice((20, 100))
    elif kind == "leader-paused":
        lasts = luck.choice((MINUTE, 30 * MINUTE, 2 * HOUR))
    elif kind == "dies-writing":
        number, lasts = luck.randint(1, 12), luck.choice((0, MINUTE, HOUR))
    elif kind == "restart":
        lasts = luck.choice((0, MINUTE))
    elif kind == "list-stale":
        lasts = HOUR
    elif kind in DISK:
        number, lasts = luck.randrange(1000), luck.choice((0, MINUTE, HOUR) if kind != "disk-full" else (MINUTE, HOUR))
    return Event(at=at, kind=kind, number=number, target=target, lasts=lasts)
