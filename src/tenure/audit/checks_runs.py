"""I3, I4 and I7 for one run: it is whole, its groups lie together, and what is over holds nothing.

A run that starts or runs holds its width exactly (fixed), or ``min + k * step`` up to ``max`` (malleable),
in full groups. It waits or has ended with nothing. While it stops, pods leave one by one and nothing is
asked but that nothing new opens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tenure.api.policy import Policy
from tenure.api.run import Run, RunSpec
from tenure.audit.accounts import EnvelopeKey
from tenure.audit.books import AT_WORK, TERMINAL, Books, PodBook, RunBook
from tenure.audit.invariants import DOMAIN, GANG, PODS, Invariant
from tenure.audit.report import Value, Violation, listed, moment
from tenure.facts import Lease, Phase
from tenure.units import Instant, parse_duration

Faults = Iterator[tuple[Invariant, str, Value, Value]]
_T = TypeVar("_T")


@dataclass(slots=True)
class Turn:
    """What one entry did to one run."""

    phase_before: Phase
    grown_before: Instant | None = None
    opened: list[Lease] = field(default_factory=list)
    placed: set[str] = field(default_factory=set)
    """Of those, the ones that are on GPUs which the run did not hold just before."""
    reused: set[int] = field(default_factory=set)
    """Groups that it opens as if they were new, and that its attempt had before."""
    _claims: dict[str, Counter[tuple[EnvelopeKey, bool]]] = field(default_factory=dict)

    def see(self, lease: Lease, book: RunBook) -> None:
        """A lease that is about to open."""
        mine = {one.group for one in self.opened}
        if lease.reason == "Grow" and lease.group in book.groups.get(lease.attempt, set()) - mine:
            self.reused.add(lease.group)

    def claim(self, lease: Lease) -> Counter[tuple[EnvelopeKey, bool]]:
        """GPUs without a declared end that one decision has opened so far, by envelope and whether they were lent."""
        is_one = self.phase_before not in AT_WORK or lease.reason == "Grow"
        counter = self._claims.setdefault(lease.reason if is_one else lease.key, Counter())
        if lease.until is None:
            counter[(lease.budget, lease.envelope), lease.funding == "borrowed"] += len(lease.gpus)
        return counter

    def decided(self) -> list[Lease]:
        """Leases that a recorded decision explains: a start, or a step; not what takes over or tops up."""
        wanted = "Grow" if self.phase_before in AT_WORK else "Start"
        return [lease for lease in self.opened if lease.reason == wanted]


def run_after(key: str, book: RunBook, turn: Turn, *, policy: Policy, at: Instant) -> Iterator[Violation]:
    """After an entry that touched the run."""
    yield from _violations(key, _transition(book, turn), at=at)
    yield from _violations(key, _growth(book, turn, policy=policy, at=at), at=at)
    yield from _violations(key, _together(book, turn), at=at)
    yield from run_standing(key, book, at=at)


def run_standing(key: str, book: RunBook, *, at: Instant) -> Iterator[Violation]:
    """At any instant."""
    yield from _violations(key, _standing(book), at=at)


def all_standing(books: Books, *, at: Instant, rested: Instant, settled: bool) -> Iterator[Violation]:
    """All that are under way; of those that ``rested`` since then also that nothing of them is left over."""
    for key in sorted(books.engaged):
        book = books.runs[key]
        yield from run_standing(key, book, at=at)
        if book.touched <= rested:
            yield from _violations(key, _left_over(book), at=at)
        if settled:
            yield from _violations(key, _settled(book), at=at)


def _violations(key: str, faults: Faults, *, at: Instant) -> Iterator[Violation]:
    for rule, message, expected, found in faults:
        yield Violation(
            invariant=rule.name, at=at, object=f"Run/{key}", message=message, expected=expected, found=found
        )


# --- from one phase to another ------------------------------------------------------------------------------


def _transition(book: RunBook, turn: Turn) -> Faults:
    before, phase = turn.phase_before, book.life.phase
    if before in TERMINAL and phase != before:
        yield GANG, "left a phase that is for ever", before, phase
    # In a batch the same entry may open a lease and decide its end.
    kept = [lease for lease in turn.opened if lease.key in book.leases and not book.leases[lease.key].ending]
    if kept and phase not in AT_WORK:
        yield GANG, "opens leases although it does not start or run", "Starting or Running", phase
    if phase in AT_WORK and before not in AT_WORK and book.run:
        yield from _spares(book, turn, book.run.spec)
    if phase == "Running" and before != "Running":
        yield from _bound(book)


def _growth(book: RunBook, turn: Turn, *, policy: Policy, at: Instant) -> Faults:
    """An elastic run grows by one step, not above what is desired, and not twice within an interval."""
    malleable = book.run.spec.malleable if book.run else None
    step = sum(len(one.gpus) for one in turn.opened if one.reason == "Grow" and one.role != "Spare")
    for group in sorted(turn.reused):
        yield GANG, f"uses the index of group {group} a second time", "a new index", group
    if malleable is None or not step:
        return
    if step != malleable.step_gpus:
        yield GANG, "grows by something else than a step", malleable.step_gpus, step
    desired = malleable.desired_total_gpus or malleable.max_total_gpus
    width = sum(_gpus_by_group(book, ("Active", "Borrowed")).values())
    if width > desired:
        yield GANG, "grows above what is desired", desired, width
    before = turn.grown_before
    if before is not None and at - before < parse_duration(policy.grow_interval):
        earliest = moment(before + parse_duration(policy.grow_interval))
        yield GANG, f"grows twice within {policy.grow_interval}", f"not before {earliest}", moment(at)


def _spares(book: RunBook, turn: Turn, spec: RunSpec) -> Faults:
    """A group starts with its spares. Afterwards a failure may consume some, and the resolver may drop them."""
    spares: Counter[int] = Counter()
    for lease in turn.opened:
        if lease.role == "Spare":
            spares[lease.group] += len(lease.gpus)
    for group in sorted(_gpus_by_group(book, ("Active", "Borrowed")) | spares):
        if spares[group] != spec.spares_per_group:
            yield GANG, f"starts group {group} without its spares", spec.spares_per_group, spares[group]


def _bound(book: RunBook) -> Faults:
    pods = [pod for pod in _pods_of_attempt(book) if not pod.stop]
    waiting = sorted(pod.pod.name for pod in pods if pod.phase == "Placed")
    if waiting:
        yield GANG, "runs before every pod is bound", "no pod only placed", listed(waiting)
    gpus = sum(len(pod.pod.gpus) for pod in pods)
    held = sum(_gpus_by_group(book, ("Active", "Borrowed")).values())
    if gpus != held:
        yield PODS, "runs with pods for another number of GPUs than it holds", held, gpus


# --- in a phase ---------------------------------------------------------------------------------------------


def _standing(book: RunBook) -> Faults:
    phase = book.life.phase
    if book.run is None:
        yield from _holds_nothing(book, "was deleted", rule=PODS)
    elif phase in TERMINAL:
        yield from _holds_nothing(book, f"is {phase}", rule=PODS)
    elif phase == "Pending":
        yield from _holds_nothing(book, "is Pending", rule=GANG)
    elif phase in AT_WORK:
        yield from _whole(book, book.run.spec)
        yield from _ranks(book, book.run)


def _holds_nothing(book: RunBook, state: str, *, rule: Invariant) -> Faults:
    if book.leases:
        yield rule, f"{state} and holds leases", "none", listed(sorted(book.leases))
    live = sorted(name for name, pod in book.pods.items() if pod.is_live)
    if live:
        yield PODS, f"{state} and has pods", "none", listed(live)


def _left_over(book: RunBook) -> Faults:
    if (book.run is None or book.life.phase in TERMINAL) and book.pods:
        yield PODS, "is over and keeps pods", "none", listed(sorted(book.pods))


def _settled(book: RunBook) -> Faults:
    if book.life.phase == "Stopping" and not book.leases and not any(pod.gave_way for pod in book.pods.values()):
        yield PODS, "goes on stopping although it holds nothing", "Completed, Failed or Pending", "Stopping"


# --- I4: the width ------------------------------------------------------------------------------------------


def _gpus_by_group(book: RunBook, roles: Sequence[str]) -> Counter[int]:
    """What the run holds, less the groups that it gives up."""
    gpus: Counter[int] = Counter()
    for holding in book.leases.values():
        if holding.lease.role in roles and not (holding.ending and book.life.phase in AT_WORK):
            gpus[holding.lease.group] += len(holding.lease.gpus)
    return gpus


def _whole(book: RunBook, spec: RunSpec) -> Faults:
    groups = _gpus_by_group(book, ("Active", "Borrowed"))
    width = sum(groups.values())
    if spec.malleable is None:
        if width != spec.resources.total_gpus:
            yield GANG, "does not hold its width", spec.resources.total_gpus, width
    else:
        low, high, step = (
            spec.malleable.min_total_gpus,
            spec.malleable.max_total_gpus,
            spec.malleable.step_gpus,
        )
        if not low <= width <= high or (width - low) % step:
            yield GANG, "holds no legal width", f"{low} to {high} in steps of {step}", width
    yield from _groups(groups, spec)
    for group, spares in sorted(_gpus_by_group(book, ("Spare",)).items()):
        if spares > spec.spares_per_group:
            yield GANG, f"holds too many spares in group {group}", spec.spares_per_group, spares
    attempts = sorted({holding.lease.attempt for holding in book.leases.values()})
    if len(attempts) > 1:
        yield GANG, "holds leases of several attempts", 1, len(attempts)


def _groups(groups: Counter[int], spec: RunSpec) -> Faults:
    """Each group in full; of a fixed run the last may be smaller, and none is missing."""
    size = spec.locality.group_gpus or (spec.malleable.step_gpus if spec.malleable else None)
    if size is None:
        return
    if spec.malleable is None:
        total = spec.resources.total_gpus
        expected = {index: min(size, total - index * size) for index in range(-(-total // size))}
    else:
        expected = dict.fromkeys(groups, size)
    for group in sorted(groups.keys() | expected.keys()):
        if groups[group] != expected.get(group, 0):
            yield GANG, f"does not hold group {group} in full", expected.get(group, 0), groups[group]


# --- I7: places and ranks -----------------------------------------------------------------------------------


def _together(book: RunBook, turn: Turn) -> Faults:
    """What a run takes lies where its group is, as nodes are labelled now; a new group lies in one domain. A node that
    is relabelled takes its leases with it, and that is nobody's fault."""
    come = [one for key, one in book.leases.items() if key in turn.placed]
    here = [one for key, one in book.leases.items() if key not in turn.placed]
    if not come or book.run is None:
        return
    for group in sorted({one.lease.group for one in come}):
        there = {one.place for one in here if one.lease.group == group}
        taken = {one.place for one in come if one.lease.group == group}
        if _apart(taken, there):
            yield DOMAIN, f"spreads group {group} over domains", "one domain", listed(sorted(taken | there))
    clusters, old = ({one.place.cluster for one in some} for some in (come, here))
    if _apart(clusters, old):
        yield DOMAIN, "spans several clusters", "one cluster", listed(sorted(clusters | old))
    domains, held = ({one.place for one in some} for some in (come, here))
    if not book.run.spec.locality.allow_cross_group_spread and _apart(domains, held):
        found = listed(sorted(domains | held))
        yield DOMAIN, "spreads over domains without allowCrossGroupSpread", "one domain", found


def _apart(taken: set[_T], there: set[_T]) -> bool:
    """Whether what is taken is somewhere else than what is there, or, with nothing there, in several places."""
    return not taken <= there if there else len(taken) > 1


def _ranks(book: RunBook, run: Run) -> Faults:
    ranks = sorted(pod.pod.rank for pod in _pods_of_attempt(book))
    if len(set(ranks)) != len(ranks):
        twice = sorted(rank for rank, count in Counter(ranks).items() if count > 1)
        yield DOMAIN, "gives one rank to several pods", "each rank once", f"twice: {listed(twice)}"
    elif run.spec.malleable is None and book.life.phase == "Running" and ranks != list(range(len(ranks))):
        yield DOMAIN, "has ranks that are not dense", f"0 to {len(ranks) - 1}", listed(ranks)


def _pods_of_attempt(book: RunBook) -> list[PodBook]:
    """The pods of the last attempt: those of an earlier one may still wait to be cleared."""
    last = max((pod.pod.attempt for pod in book.pods.values()), default=0)
    return [pod for pod in book.pods.values() if pod.pod.attempt == last]
