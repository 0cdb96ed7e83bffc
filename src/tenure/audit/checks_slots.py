"""I1 and I3, GPU by GPU: who holds it, who sits on it, and which pod uses it.

For one ordinal of one node:

    at most one Active or Spare lease
    at most one Borrowed lease, and only on a Spare
    at most one live pod, and only with an Active or Borrowed lease of the same run, attempt and group
    of a run at rest: an Active or Borrowed lease has a pod there
    on a settled world: no lease stays on a failed node

A pod on a failed node is excused: its leases close when the node is fenced, which may be before anybody saw
the pod go. So is one that gave way to the owner of the spare it sat on: it was asked to leave, its lease is closed,
and until it is gone nobody else may be bound there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenure.audit.books import Books, Slot, SlotKey
from tenure.audit.invariants import CAPACITY, PODS, Invariant
from tenure.audit.report import Violation, listed
from tenure.facts import Lease, Pod
from tenure.units import Instant


def slots(books: Books, keys: Iterable[SlotKey], *, at: Instant) -> Iterator[Violation]:
    """What is wrong with these GPUs now. Free ones are fine."""
    for key in sorted(keys):
        slot = books.slots.get(key)
        if slot is None:
            continue
        yield from _shared(books, key, slot, at=at)
        yield from _pods(books, key, slot, at=at)


def all_slots(books: Books, *, at: Instant, rested: Instant, settled: bool) -> Iterator[Violation]:
    """What is wrong with all of them; also that nobody works there, under leases of runs ``rested`` since then."""
    yield from slots(books, books.slots, at=at)
    for key, slot in sorted(books.slots.items()):
        if settled and (slot.holders or slot.borrowers) and books.node_failed(key[0], now=at):
            held = listed([*slot.holders, *slot.borrowers])
            yield _violation(CAPACITY, key, "is held on a failed node", at=at, expected="no lease", found=held)
        yield from _unused(books, key, slot, at=at, rested=rested)


def _shared(books: Books, key: SlotKey, slot: Slot, *, at: Instant) -> Iterator[Violation]:
    for seats in (slot.holders, slot.borrowers):
        if len(seats) > 1:
            yield _violation(CAPACITY, key, f"is held twice, by {listed(seats)}", at=at, expected=1, found=len(seats))
    if slot.borrowers and not any(books.leases[holder].lease.role == "Spare" for holder in slot.holders):
        message = f"is used by {listed(slot.borrowers)} as if it were a spare"
        yield _violation(CAPACITY, key, message, at=at, expected="a Spare lease", found=listed(slot.holders))


def _pods(books: Books, key: SlotKey, slot: Slot, *, at: Instant) -> Iterator[Violation]:
    live = [pod for pod in slot.pods if books.pods[pod].is_live and not books.pods[pod].gave_way]
    yield from _giving_way(books, key, slot, live, at=at)
    if len(live) > 1:
        yield _violation(PODS, key, f"is used by several pods, {listed(live)}", at=at, expected=1, found=len(live))
    working = _working(books, slot)
    for name in live:
        pod = books.pods[name].pod
        if not any(_belong(lease, pod) for lease in working) and not books.node_failed(pod.node, now=at):
            found = listed(lease.key for lease in working)
            message = f"is used by pod {name} without a lease of its own"
            yield _violation(PODS, key, message, at=at, expected=f"an open lease of {pod.run_key}", found=found)


def _giving_way(books: Books, key: SlotKey, slot: Slot, live: list[str], *, at: Instant) -> Iterator[Violation]:
    leaving = [pod for pod in slot.pods if books.pods[pod].is_live and books.pods[pod].gave_way]
    if not leaving:
        return
    staying = [pod for pod in leaving if not books.pods[pod].stop]
    if staying:
        message = f"was needed, and pod {listed(staying)} was not asked to leave"
        yield _violation(PODS, key, message, at=at, expected="asked to leave", found="not asked")
    bound = [pod for pod in live if books.pods[pod].phase == "Bound"]
    if bound:
        message = f"is used by {listed(bound)} before {listed(leaving)} has left"
        yield _violation(PODS, key, message, at=at, expected="a pod that waits", found="Bound")


def _unused(books: Books, key: SlotKey, slot: Slot, *, at: Instant, rested: Instant) -> Iterator[Violation]:
    for lease in _working(books, slot):
        if books.run(lease.run_key).touched > rested:
            continue
        if not any(_belong(lease, books.pods[pod].pod) for pod in slot.pods) and not _is_leaving(books, lease):
            message = f"is held by {lease.key}, and no pod of its run is there"
            yield _violation(PODS, key, message, at=at, expected=f"a pod of {lease.run_key}", found=listed(slot.pods))


def _is_leaving(books: Books, lease: Lease) -> bool:
    """Whether a lease was asked to end, and some of its pods are there: it closes when the last has left."""
    slots = (books.slots.get((lease.node, ordinal)) for ordinal in lease.gpus)
    pods = (books.pods[pod].pod for slot in slots if slot for pod in slot.pods)
    return bool(books.leases[lease.key].ending) and any(_belong(lease, pod) for pod in pods)


def _working(books: Books, slot: Slot) -> list[Lease]:
    """Leases under which something runs on the GPU: not spares."""
    held = [books.leases[key].lease for key in (*slot.holders, *slot.borrowers)]
    return [lease for lease in held if lease.role != "Spare"]


def _belong(lease: Lease, pod: Pod) -> bool:
    return (lease.run_key, lease.attempt, lease.group) == (pod.run_key, pod.attempt, pod.group)


def _violation(
    rule: Invariant, key: SlotKey, message: str, *, at: Instant, expected: int | str, found: int | str
) -> Violation:
    node, ordinal = key
    thing = f"Node/{node}"
    return Violation(
        invariant=rule.name,
        at=at,
        object=thing,
        message=f"GPU {ordinal} {message}",
        expected=expected,
        found=found,
    )
