"""What must hold of a single fact: a closing, an edit of a run, a pod, a stated number (I3, I5, I10, I12).

Asked of the books just before the fact is folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator

import msgspec

from tenure.api.run import Run, RunSpec
from tenure.audit.books import Books, Holding
from tenure.audit.invariants import DOMAIN, IMMUTABLE, LIVENESS, PODS, SUMS, Invariant
from tenure.audit.promises import LENIENCY
from tenure.audit.report import Value, Violation, listed, moment
from tenure.facts import (
    Closed,
    Decided,
    Ending,
    Fact,
    Lease,
    Placed,
    PutBudget,
    PutPolicy,
    PutRun,
    Seen,
    Warned,
)
from tenure.units import Instant, parse_duration, parse_time

CLOSURES = frozenset({
    "Canceled", "Completed", "DropSpare", "Fail", "NodeFailure", "Overstay", "ReclaimedBySpare", "Refund",
    "Shrink", "Swap",
})  # fmt: skip
"""Every reason a lease may close with; ``RandomPreempt(<seed>)`` comes besides."""


# --- closings -----------------------------------------------------------------------------------------------


def ending(books: Books, fact: Ending, *, inherited: Container[str], at: Instant) -> Iterator[Violation]:
    """A stop is decided. ``inherited``: leases that go on in the place of some that were to end for this reason."""
    for name in fact.leases:
        key = f"{fact.namespace}/{name}"
        holding = books.leases.get(key)
        if holding is None:
            yield _lease(
                key,
                "is told to end and is not open",
                at=at,
                expected="an open lease",
                found=_state(books, key),
            )
            continue
        if holding.ending:
            message = "is told to end a second time"
            yield _lease(key, message, at=at, expected=f"once, for {holding.ending}", found=fact.reason)
        if key not in inherited:
            yield from _cut(books, holding, fact.reason, at=at)


def closing(books: Books, fact: Closed, *, at: Instant) -> Iterator[Violation]:
    if not is_closure(fact.reason):
        thing = f"{fact.namespace}/{listed(fact.leases)}"
        yield _lease(
            thing,
            "closes without a known reason",
            at=at,
            expected="a closure reason",
            found=repr(fact.reason),
        )
    for name, times in sorted(Counter(fact.leases).items()):
        key = f"{fact.namespace}/{name}"
        holding = books.leases.get(key)
        if holding is None or times > 1:
            found = _state(books, key) if holding is None else f"named {times} times"
            yield _lease(key, "closes and is not open", at=at, expected="an open lease", found=found)
        if holding is not None:
            yield from _closing_one(books, holding, fact, at=at)


def _closing_one(books: Books, holding: Holding, fact: Closed, *, at: Instant) -> Iterator[Violation]:
    key = holding.lease.key
    if fact.end < holding.since:
        yield _lease(
            key,
            "closes before it started",
            at=at,
            expected=moment(holding.since),
            found=moment(fact.end),
        )
    if fact.end > at:
        yield _lease(key, "closes in the future", at=at, expected=moment(at), found=moment(fact.end))
    if not holding.ending:
        yield from _cut(books, holding, fact.reason, at=at)
    elif fact.reason not in (holding.ending, "NodeFailure", *_whatever_was_decided(holding.lease)):
        yield _lease(
            key,
            "closes with another reason than was decided",
            at=at,
            expected=holding.ending,
            found=fact.reason,
        )


def _whatever_was_decided(lease: Lease) -> tuple[str, ...]:
    """What sits on a spare goes when the spare is needed, and changes hands when the spare ends."""
    return ("ReclaimedBySpare", "Refund") if lease.role == "Borrowed" else ()


def _cut(books: Books, holding: Holding, reason: str, *, at: Instant) -> Iterator[Violation]:
    """No run is cut before it has run for ``activationLead``, but for the moment that its pods may take to be bound."""
    since = books.run(holding.lease.run_key).running_since
    lead = parse_duration(books.policy.activation_lead)
    if reason.startswith("RandomPreempt") and (since is None or at - since < lead - LENIENCY):
        found = "not running" if since is None else f"running since {moment(since)}"
        message = f"is cut before its run has run for {books.policy.activation_lead}"
        earliest = "a running run" if since is None else f"a cut at {moment(since + lead)} or later"
        yield _lease(holding.lease.key, message, at=at, expected=earliest, found=found, rule=LIVENESS)


def is_closure(reason: str) -> bool:
    """Whether a lease may close with this reason.

    >>> [is_closure(reason) for reason in ("Completed", "RandomPreempt(9f)", "RandomPreempt()", "")]
    [True, True, False, False]
    """
    seed = reason.removeprefix("RandomPreempt(").removesuffix(")")
    return reason in CLOSURES or (bool(seed) and reason == f"RandomPreempt({seed})")


def _state(books: Books, key: str) -> str:
    return "closed already" if key in books.closed else "never opened"


# --- objects ------------------------------------------------------------------------------------------------


DATED = (PutBudget, PutRun, PutPolicy)
"""Facts with times, or lengths of time, that somebody wrote."""


def unreadable(fact: Fact, *, at: Instant) -> Iterator[Violation]:
    """A fact with a time or a length of time that is none cannot be folded."""
    for text, parse in _times(fact):
        try:
            parse(text)
        except ValueError as error:
            yield _violation(IMMUTABLE, "Ledger", "a fact cannot be read", at=at, expected="a time", found=str(error))


def _times(fact: Fact) -> Iterator[tuple[str, Callable[[str], int]]]:
    """The times and lengths of time that the books read."""
    match fact:
        case PutBudget(object=budget):
            for envelope in budget.spec.envelopes:
                yield from ((time, parse_time) for time in (envelope.start, envelope.end) if time is not None)
        case PutRun(object=run) if run.spec.runtime.expected_duration is not None:
            yield run.spec.runtime.expected_duration, parse_duration
        case PutPolicy(policy=policy):
            yield from (
                (length, parse_duration)
                for length in (policy.activation_lead, policy.budget_grace, policy.lookahead, policy.unready_debounce)
            )
        case _:
            pass


# --- runs and pods ------------------------------------------------------------------------------------------


def run_edit(books: Books, run: Run, *, at: Instant) -> Iterator[Violation]:
    """After the first admission only ``desiredTotalGPUs``, ``sponsors`` and ``maxBorrowGPUs`` may change."""
    key = f"{run.metadata.namespace}/{run.metadata.name}"
    book = books.runs.get(key)
    if book is None or book.run is None or book.run.metadata.uid != run.metadata.uid or not book.life.admitted:
        return
    before, after = _frozen_part(book.run.spec), _frozen_part(run.spec)
    changed = [name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    if changed:
        yield _violation(
            IMMUTABLE,
            f"Run/{key}",
            "changes its spec after admission",
            at=at,
            expected="none",
            found=listed(changed),
        )


def _frozen_part(spec: RunSpec) -> RunSpec:
    funding = msgspec.structs.replace(spec.funding, sponsors=(), max_borrow_gpus=None)
    malleable = spec.malleable and msgspec.structs.replace(spec.malleable, desired_total_gpus=None)
    return msgspec.structs.replace(spec, funding=funding, malleable=malleable)


def placing(books: Books, fact: Placed, *, at: Instant) -> Iterator[Violation]:
    pod, thing = fact.pod, f"Pod/{fact.pod.key}"
    run = books.run(pod.run_key).run
    width = run.spec.resources.gpus_per_pod if run else None
    if run is None:
        yield _violation(PODS, thing, "is placed for no run", at=at, expected=f"Run/{pod.run_key}", found="none")
    if pod.key in books.pods:
        yield _violation(PODS, thing, "is placed a second time", at=at, expected="one placing", found="placed already")
    group = books.run(pod.run_key).ranks.get((pod.attempt, pod.rank), pod.group)
    if group != pod.group:
        message = f"takes rank {pod.rank}, which another group had"
        yield _violation(DOMAIN, thing, message, at=at, expected=group, found=pod.group)
    if not pod.gpus:
        yield _violation(PODS, thing, "has no GPUs", at=at, expected="one or more", found="none")
    if width is not None and len(pod.gpus) != width:
        yield _violation(PODS, thing, "is not as wide as gpusPerPod", at=at, expected=width, found=len(pod.gpus))


def seeing(books: Books, fact: Seen, *, at: Instant) -> Iterator[Violation]:
    key = f"{fact.namespace}/{fact.pod}"
    if key not in books.pods:
        yield _violation(
            PODS, f"Pod/{key}", f"is seen {fact.phase}", at=at, expected="a pod that was placed", found="none"
        )


# --- I10: numbers that facts state --------------------------------------------------------------------------


def notice(books: Books, fact: Warned, *, at: Instant) -> Iterator[Violation]:
    """A notice that states the use of an envelope states it exactly."""
    book = books.envelopes.get((fact.budget, fact.envelope))
    if book is None or not fact.used:
        return
    used = book.account.used.read(at)
    if used != fact.used:
        message = f"a notice ({fact.mark}) misstates the use of {fact.envelope}, in GPU-microseconds"
        yield _violation(SUMS, f"Budget/{fact.budget}", message, at=at, expected=used, found=fact.used)


def decision(fact: Decided, opened: Iterable[Lease], *, at: Instant) -> Iterator[Violation]:
    """The payers that a decision to start names are those of the leases that its entry opens."""
    named: Counter[tuple[str, str, str, str]] = Counter()
    for segment in fact.verdict.segments:
        named[segment.budget, segment.envelope, segment.payer, segment.funding] += segment.gpus
    paid: Counter[tuple[str, str, str, str]] = Counter()
    for lease in opened:
        paid[lease.budget, lease.envelope, lease.payer, lease.funding] += len(lease.gpus)
    for key in sorted(named.keys() | paid.keys()):
        if named[key] != paid[key]:
            message = f"the decision and its leases differ on {'/'.join(key)}, in GPUs"
            yield _violation(
                SUMS, f"Run/{fact.namespace}/{fact.run}", message, at=at, expected=named[key], found=paid[key]
            )


def _lease(
    key: str, message: str, *, at: Instant, expected: Value, found: Value, rule: Invariant = IMMUTABLE
) -> Violation:
    return _violation(rule, f"Lease/{key}", message, at=at, expected=expected, found=found)


def _violation(rule: Invariant, thing: str, message: str, *, at: Instant, expected: Value, found: Value) -> Violation:
    return Violation(invariant=rule.name, at=at, object=thing, message=message, expected=expected, found=found)
