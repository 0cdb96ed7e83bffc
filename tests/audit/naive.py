"""I8 a second time, as it is written: the world is folded whole before and after each entry, and all is looked at.

The checker of ``tenure.audit`` looks only where an entry touched something, and reads sums that are kept up to date.
This one shares no code with it but the facts: what a promise takes is counted from the leases, each time anew.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from tenure.api.budget import Budget
from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.facts import (
    Closed,
    Ending,
    Entry,
    Fact,
    Forecast,
    Lease,
    Life,
    Moved,
    Opened,
    PutBudget,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Reservation,
    Reserved,
)
from tenure.units import FOREVER, HOUR, SECOND, Instant, parse_duration, parse_time

Found = tuple[int, str, str]
"""(number of the entry, run, what happened to its promise)"""
Name = tuple[str, ...]


@dataclass
class World:
    policy: Policy = field(default_factory=Policy)
    nodes: dict[str, Node] = field(default_factory=dict)
    budgets: dict[str, Budget] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    lives: dict[str, Life] = field(default_factory=dict)
    running: dict[str, Instant] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    retried: set[str] = field(default_factory=set)
    leases: dict[str, Lease] = field(default_factory=dict)
    ending: set[str] = field(default_factory=set)
    closed: list[tuple[Lease, Instant]] = field(default_factory=list)
    promises: dict[str, Reservation] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    facts: int = 0
    now: Instant = 0

    def copy(self) -> World:
        return replace(self, **{name: copy.copy(getattr(self, name)) for name in self.__dataclass_fields__})


def check(entries: Sequence[Entry]) -> Iterator[Found]:
    world, change = World(), list[Fact]()
    for entry in entries:
        world = replace(world, now=entry.at)
        before, world = world, world.copy()
        for fact in entry.facts:
            change += [fact] if is_news(before, fact) else []
            fold(world, fact)
        opened = {fact.lease.key: fact.lease for fact in entry.facts
                  if isinstance(fact, Opened) and fact.lease.reason in ("Start", "Grow")}  # fmt: skip
        stay = [lease for key, lease in opened.items() if key in world.leases and key not in world.ending]
        for run, old in sorted(before.promises.items()):
            if not tenable(before, old):
                continue
            new = world.promises.get(run)
            after = reservations(entry, run)
            late = is_later(old, after[-1], world.now) if after else False
            touched = {pot for lease in stay for pot in pots_of(world, lease)}
            laid = [one for other, one in world.promises.items() if one != before.promises.get(other) and other != run]
            touched |= {pot for one in laid for pot in pots(world, one)}
            broken = new is not None and not late and touched & pots(world, new) and not tenable(world, new)
            if (late or broken) and not is_caused(before, world, old, change, opened, entry):
                yield entry.seq, run, "delayed" if late else "untenable"
        change = [] if entry.decided else change


def is_caused(
    before: World, world: World, old: Reservation, change: list[Fact], opened: Iterable[str], entry: Entry
) -> bool:  # fmt: skip
    if any(concerns(fact, old) for fact in change):
        return True
    kept = dict(before.promises)
    for run, one in before.promises.items():
        after = reservations(entry, run)
        over = bool(after) and after[-1].state in ("Released", "Canceled")
        started = any(lease.run_key == run for lease in world.leases.values())
        if run != old.run_key and after and (is_later(one, after[-1], world.now) or (over and not started)):
            del kept[run]
        elif after:
            still = names(world.promises[run]) if run in world.promises else set()
            kept[run] = structs.replace(one, forecast=Forecast(odds=dict.fromkeys(sorted(names(one) & still), "1")))
    leases = {key: lease for key, lease in world.leases.items() if key not in opened}
    as_it_was = replace(world, promises=kept, leases=leases, named=world.named | before.named)
    return not tenable(as_it_was, old) or any(
        one.turn < old.turn
        and due(old, world.now) < seen_at(one, world.now) < due(old, world.now) + lasts(old)
        and lacking(as_it_was, one) & pots(as_it_was, old)
        for run, one in kept.items()
        if run not in {lease.run_key for lease in leases.values()}
    )


# --- is it tenable? -------------------------------------------------------------------------------------------


def tenable(world: World, one: Reservation) -> bool:
    at = seen_at(one, world.now)
    is_paid = all(is_open(world, segment.budget, segment.envelope, one, at) for segment in one.plan.segments)
    return is_paid and not lacking(world, one)


def lacking(world: World, one: Reservation) -> set[Name]:
    now, at = world.now, seen_at(one, world.now)
    holds = {lease.run_key for lease in world.leases.values()}
    others = [q for run, q in world.promises.items() if run != one.run_key and run not in holds]
    on = [one, *(q for q in others if due(q, now) < at < due(q, now) + lasts(q))]
    ahead = [one, *(q for q in others if due(q, now) < at)]
    gone = {run for q in ahead for run in named(world, q, at)}
    there = [lease for lease in world.leases.values() if ends(world, lease, one) > at]
    lacks = set[Name]()
    for pot in pots(world, one):
        if pot[-1] == "hours":
            use = used(world, pot) + sum(hours(world, q, pot) for q in (one, *others))
        else:
            cut = gone if pot[0] == "node" else ()  # cuts free machines, never money
            use = sum(len(each.gpus) for each in there if each.run_key not in cut and pot in pots_of(world, each))
            use += sum(share(world, q, pot) for q in on)
        if use > room(world, pot):
            lacks.add(pot)
    return lacks


def due(one: Reservation, now: Instant) -> Instant:
    return max(one.plan.start or 0 if one.by is None else one.by, now)


def seen_at(one: Reservation, now: Instant) -> Instant:
    return due(one, now) + min(30 * SECOND, lasts(one) - 1)


def lasts(one: Reservation) -> int:
    return FOREVER if one.plan.until is None else one.plan.until - (one.plan.start or 0)


def named(world: World, one: Reservation, at: Instant) -> set[str]:
    lead, since = parse_duration(world.policy.activation_lead), world.named[one.run_key]
    return {
        run for run in names(one) if world.left.get(run, 0) < since and world.running.get(run, world.now) + lead <= at
    }


def names(one: Reservation) -> set[str]:
    is_cutting = one.confidence == "conservative" and one.state != "Active"  # no draw is drawn here
    return {*one.forecast.odds, *(cut.run for cut in one.forecast.remedies)} if is_cutting else set()


def ends(world: World, lease: Lease, one: Reservation) -> Instant:
    now, life, run = world.now, world.lives.get(lease.run_key, Life()), world.runs.get(lease.run_key)
    if lease.key in world.ending:
        return now
    end = life.bound if lease.until is None else lease.until
    duration = run.spec.runtime.expected_duration if run else None
    if lease.until is not None and duration is not None and not life.backfilled:
        running = world.running.get(lease.run_key)
        end = lease.until if running is None else max(lease.until, running + parse_duration(duration))
    if end is not None and end < now and (life.backfilled or life.bound is not None):
        return FOREVER if world.lives.get(one.run_key, Life()).cut else now
    waited = (one.plan.start or 0 if one.by is None else one.by) + 30 * SECOND <= now
    is_backfill = life.backfilled or life.bound is not None
    ahead = FOREVER if end is None or end + 30 * SECOND <= now else end
    if end is not None and end <= now and not is_backfill:
        if waited:
            return FOREVER
        ahead = ahead if ahead == FOREVER else end + 30 * SECOND
    hours = [runs_out(world, pot) for pot in pots_of(world, lease) if pot[-1] == "hours"]
    window = closing(world, lease.budget, lease.envelope)
    return min(ahead, *hours, FOREVER if window is None or window < now else window)


def runs_out(world: World, pot: Name) -> Instant:
    paid = [lease for lease in world.leases.values() if pot in pots_of(world, lease)]
    rate = sum(len(lease.gpus) for lease in paid)
    at, left = world.now, room(world, pot) - used(world, pot, committed=False)
    ends = [(lease.until, len(lease.gpus)) for lease in paid if lease.until and lease.key not in world.ending]
    for end, gpus in sorted(one for one in ends if one[0] > world.now):
        if left < 0 or rate * (end - at) >= left:
            break
        left -= rate * (end - at)
        rate, at = rate - gpus, end
    return at + left // rate if rate and left >= 0 else FOREVER


# --- pots -----------------------------------------------------------------------------------------------------


def limits(world: World, budget: str, envelope: str, *, lent: bool) -> Iterator[tuple[Name, int, tuple[str, ...]]]:
    """(name, what it holds, whose sum)"""
    spec = world.budgets[budget].spec if budget in world.budgets else None
    for one in spec.envelopes if spec else ():
        if one.name == envelope:
            yield (budget, "envelope", envelope, "gpus"), one.concurrency, (envelope,)
            if one.max_gpu_hours is not None:
                yield (budget, "envelope", envelope, "hours"), one.max_gpu_hours * HOUR, (envelope,)
            if one.lending and lent and one.lending.max_concurrency is not None:
                yield (budget, "lending", envelope, "gpus"), one.lending.max_concurrency, (envelope,)
            if one.lending and lent and one.lending.max_gpu_hours is not None:
                yield (budget, "lending", envelope, "hours"), one.lending.max_gpu_hours * HOUR, (envelope,)
    for cap in spec.aggregate_caps if spec else ():
        if envelope in cap.envelopes and cap.max_concurrency is not None:
            yield (budget, "cap", cap.name, "gpus"), cap.max_concurrency, cap.envelopes
        if envelope in cap.envelopes and cap.max_gpu_hours is not None:
            yield (budget, "cap", cap.name, "hours"), cap.max_gpu_hours * HOUR, cap.envelopes


def pots_of(world: World, lease: Lease) -> set[Name]:
    money = {name for name, _, _ in limits(world, lease.budget, lease.envelope, lent=lease.funding == "borrowed")}
    return money | (set() if lease.role == "Borrowed" else {("node", lease.node)})


def pots(world: World, one: Reservation) -> set[Name]:
    money = {name for part in one.plan.segments
             for name, _, _ in limits(world, part.budget, part.envelope, lent=part.funding == "borrowed")}  # fmt: skip
    return money | {("node", part.node) for part in one.plan.shares}


def room(world: World, pot: Name) -> int:
    if pot[0] == "node":
        node = world.nodes.get(pot[1])
        return 0 if node is None or node.spec.unschedulable else int(node.status.allocatable["nvidia.com/gpu"])
    names = [one.name for one in world.budgets[pot[0]].spec.envelopes]
    return next(holds for name in names for which, holds, _ in limits(world, pot[0], name, lent=True) if which == pot)


def share(world: World, one: Reservation, pot: Name) -> int:
    if pot[0] == "node":
        return sum(part.gpus for part in one.plan.shares if part.node == pot[1])
    return sum(part.gpus for part in one.plan.segments
               if pot in {name for name, _, _ in limits(world, part.budget, part.envelope,
                                                        lent=part.funding == "borrowed")})  # fmt: skip


def hours(world: World, one: Reservation, pot: Name) -> int:
    length = parse_duration(world.policy.lookahead) if one.plan.until is None else lasts(one)
    return share(world, one, pot) * length


def used(world: World, pot: Name, *, committed: bool = True) -> int:
    """GPU-microseconds so far, and what open leases declared that were not asked to end."""
    over = ((lease, min(end, world.now)) for lease, end in world.closed)
    spent = [(lease, end) for lease, end in over if pot in pots_of(world, lease)]
    for key, lease in world.leases.items():
        if pot in pots_of(world, lease):
            declares = committed and lease.until is not None and key not in world.ending
            spent.append((lease, max(world.now, lease.until or 0) if declares else world.now))
    return sum(len(lease.gpus) * (end - lease.start) for lease, end in spent)


def is_open(world: World, budget: str, envelope: str, one: Reservation, at: Instant) -> bool:
    end, payer = closing(world, budget, envelope), world.budgets[budget].spec.owner
    spec = world.runs[one.run_key].spec
    if payer != spec.owner and not (spec.funding.allow_borrow and payer in spec.funding.sponsors):
        return False
    over = at if one.plan.until is None else max(one.plan.start or 0, world.now) + lasts(one)
    return end is None or over <= end


def closing(world: World, budget: str, envelope: str) -> Instant | None:
    """When the window of an envelope ends."""
    found = next(each for each in world.budgets[budget].spec.envelopes if each.name == envelope)
    return None if found.end is None else parse_time(found.end)


# --- what an entry says ---------------------------------------------------------------------------------------


def reservations(entry: Entry, run: str) -> list[Reservation]:
    return [fact.reservation for fact in entry.facts if isinstance(fact, Reserved) and fact.reservation.run_key == run]


def claims(one: Reservation) -> bool:
    return one.state in ("Pending", "Active") and one.plan.start is not None


def is_later(old: Reservation, new: Reservation, now: Instant) -> bool:
    if new.state in ("Released", "Canceled"):
        return False
    return not claims(new) or max(due(new, 0), new.plan.start or 0) > due(old, now) + SECOND


def is_news(world: World, fact: Fact) -> bool:
    match fact:
        case PutNode():
            return world.nodes.get(fact.object.metadata.name) != fact.object
        case PutBudget():
            return world.budgets.get(fact.object.metadata.name) != fact.object
        case PutPolicy():
            return world.policy != fact.policy
        case PutRun():
            return world.runs.get(f"{fact.object.metadata.namespace}/{fact.object.metadata.name}") != fact.object
        case Moved():
            old = world.lives.get(f"{fact.namespace}/{fact.run}", Life())
            names = ("phase", "attempt", "not_before", "deadline", "cut", "deleting")
            return any(getattr(old, name) != getattr(fact.life, name) for name in names)
    return isinstance(fact, Removed)


def concerns(fact: Fact, one: Reservation) -> bool:
    match fact:
        case PutNode():
            return fact.object.metadata.name in {part.node for part in one.plan.shares}
        case PutRun():
            return f"{fact.object.metadata.namespace}/{fact.object.metadata.name}" == one.run_key
        case Moved():
            return f"{fact.namespace}/{fact.run}" == one.run_key
        case Removed(kind="Node"):
            return fact.name in {part.node for part in one.plan.shares}
    return True


def fold(world: World, fact: Fact) -> None:
    world.facts += 1
    match fact:
        case PutPolicy():
            world.policy = fact.policy
        case PutNode():
            world.nodes[fact.object.metadata.name] = fact.object
        case PutBudget():
            world.budgets[fact.object.metadata.name] = fact.object
        case PutRun():
            world.runs[f"{fact.object.metadata.namespace}/{fact.object.metadata.name}"] = fact.object
        case Removed(kind="Node"):
            world.nodes.pop(fact.name, None)
        case Opened():
            world.leases[fact.lease.key] = fact.lease
        case Ending():
            world.ending |= {f"{fact.namespace}/{name}" for name in fact.leases}
        case Closed():
            for key in (f"{fact.namespace}/{name}" for name in fact.leases):
                world.closed = [*world.closed, (world.leases.pop(key), fact.end)]
        case Moved():
            live(world, f"{fact.namespace}/{fact.run}", fact.life)
        case Reserved():
            promise(world, fact.reservation)


def live(world: World, run: str, life: Life) -> None:
    old = world.lives.get(run, Life())
    if life.phase != "Running":
        world.running.pop(run, None)
    elif old.phase != "Running":
        world.running[run] = world.now
    works, worked = (one.phase in ("Starting", "Running") for one in (life, old))
    if works and not worked and run not in world.retried:
        world.left[run] = world.facts
    if life.phase != old.phase:
        world.retried.discard(run)
        world.retried |= {run} if life.phase == "Pending" and old.after == "Retry" else set()
    world.lives[run] = life


def promise(world: World, one: Reservation) -> None:
    run = one.run_key
    if not claims(one):
        world.promises.pop(run, None)
        world.named.pop(run, None)
        return
    world.promises[run], world.named[run] = one, world.facts
