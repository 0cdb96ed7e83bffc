"""What must hold at the moment a lease opens: its form (I5), its node (I1, I7) and its payer (I6).

Asked of the books as they stand just before the lease is folded, with the Budgets, Nodes and Runs that were
recorded before it. A check that cannot be made because its object is missing says so once, and the rest are
still made.

A lease may go on in the place of others that the same entry closes: a spare that takes over (``Swap``), work that
changes hands (``Refund``). With the same payer nothing new is spent, and the payer is not asked again. A spare that
takes over must keep its payer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tenure.api.budget import Budget, Envelope
from tenure.api.core import Node
from tenure.api.meta import Labels
from tenure.api.run import Run
from tenure.audit.accounts import window_of
from tenure.audit.books import Books
from tenure.audit.invariants import CAPACITY, DOMAIN, IMMUTABLE, PAYER, Invariant
from tenure.audit.kinship import any_matches
from tenure.audit.places import capacity_of, label_of, place_of, refusal, selected
from tenure.audit.report import Value, Violation, listed, moment
from tenure.facts import Closed, Fact, FundingClass, Lease
from tenure.units import Instant, parse_duration

Faults = Iterator[tuple[Invariant, str, Value, Value]]
"""(rule, message, expected, found)"""


Handed = dict[tuple[str, str, int], Lease]
"""(run, node, ordinal) -> the lease that the entry closes to let another go on there"""


@dataclass(frozen=True, slots=True)
class Opening:
    """A lease that opens, the leases in whose place it goes on, and the moment."""

    books: Books
    lease: Lease
    before: list[Lease]
    at: Instant


def handed(books: Books, facts: Iterable[Fact]) -> Handed:
    """The GPUs of leases that these facts close ``Swap`` (a spare) or ``Refund``."""
    closed = [
        books.leases[key].lease
        for fact in facts
        if isinstance(fact, Closed) and fact.reason in ("Swap", "Refund")
        for key in (f"{fact.namespace}/{name}" for name in fact.leases)
        if key in books.leases
    ]
    return {(lease.run_key, lease.node, ordinal): lease for lease in closed for ordinal in lease.gpus}


def predecessors(lease: Lease, handed: Handed) -> list[Lease]:
    """The leases in whose place this one goes on; none unless they had all of its GPUs."""
    if lease.reason not in ("Swap", "Refund"):
        return []
    found = [handed.get((lease.run_key, lease.node, ordinal)) for ordinal in lease.gpus]
    return [one for one in found if one is not None] if all(found) else []


def continues(lease: Lease, before: list[Lease]) -> bool:
    """Whether a lease goes on with the payer of those before it: nothing new is spent."""
    return bool(before) and all(_payment(one) == _payment(lease) for one in before)


def _payment(lease: Lease) -> tuple[str, str, str, str]:
    return lease.budget, lease.envelope, lease.payer, lease.funding


def opening(books: Books, lease: Lease, *, before: list[Lease], at: Instant) -> list[Violation]:
    """Everything that is wrong with opening this lease now."""
    thing = f"Lease/{lease.key}"
    return [
        Violation(invariant=rule.name, at=at, object=thing, message=message, expected=expected, found=found)
        for rule, message, expected, found in _faults(Opening(books, lease, before, at))
    ]


def _faults(new: Opening) -> Faults:
    books, lease = new.books, new.lease
    yield from _form(new)
    run, node = books.run(lease.run_key).run, books.node(lease.node)
    budget = books.budgets.get(lease.budget)
    envelope = _envelope(budget, lease.envelope)
    if run is None:
        yield IMMUTABLE, "opens for a run that is not there", f"Run/{lease.run_key}", "none"
    else:
        yield from _identity(new, run)
        yield from _declared(new, run)
    if node is None:
        yield CAPACITY, "opens on a node that is not there", f"Node/{lease.node}", "none"
    else:
        if not (lease.reason == "Refund" and new.before):  # what changes hands stays where it is
            yield from _node(new, node)
        if not new.before:
            yield from _wanted_here(new, node, run)
    if continues(lease, new.before):
        return
    if lease.reason == "Swap" and new.before:
        found, expected = ("/".join(_payment(one)) for one in (lease, new.before[0]))
        yield PAYER, "takes over from a spare, and its payer does not stay", expected, found
    elif budget is None or envelope is None:
        yield PAYER, "is paid by an envelope that is not there", f"{lease.budget}/{lease.envelope}", "none"
    else:
        yield from _payer(new, budget, envelope, node, run)


def _envelope(budget: Budget | None, name: str) -> Envelope | None:
    return next((item for item in budget.spec.envelopes if item.name == name), None) if budget else None


# --- I5: the lease itself -----------------------------------------------------------------------------------


def _form(new: Opening) -> Faults:
    lease, holding = new.lease, new.books.leases.get(new.lease.key)
    if holding:
        fields = lease.__struct_fields__
        changed = [name for name in fields if getattr(lease, name) != getattr(holding.lease, name)]
        message = "opens a second time, with another spec" if changed else "opens a second time"
        yield IMMUTABLE, message, "one opening", f"open already; differs in: {listed(changed)}"
    if lease.key in new.books.closed:
        yield IMMUTABLE, "opens again under the name of a closed lease", "a name of its own", "closed already"
    if lease.start != new.at:
        yield IMMUTABLE, "does not start when its entry is committed", moment(new.at), moment(lease.start)
    if not lease.gpus or min(lease.gpus) < 0:
        yield CAPACITY, "names no usable GPUs", "ordinals from 0 on", listed(lease.gpus)


def _identity(new: Opening, run: Run) -> Faults:
    if new.lease.uid != run.metadata.uid:
        yield IMMUTABLE, "names another incarnation of its run", run.metadata.uid, new.lease.uid
    owner = new.books.owner_of(run)
    if new.lease.owner != owner:
        yield PAYER, "does not name the run's owner", owner, new.lease.owner


def _declared(new: Opening, run: Run) -> Faults:
    """The lease says when the run declared to end, or that it did not: commitments are reckoned from it."""
    duration, until = run.spec.runtime.expected_duration, new.lease.until
    if duration is None or until is None:
        if duration is not None or until is not None:
            message = "and its run disagree on whether an end was declared"
            yield PAYER, message, duration or "none", "none" if until is None else moment(until)
        return
    latest = new.at + parse_duration(duration)
    if until > latest:
        yield PAYER, "lasts longer than its run declared", moment(latest), moment(until)


# --- I1, I7: the node ---------------------------------------------------------------------------------------


def _node(new: Opening, node: Node) -> Faults:
    lease, policy = new.lease, new.books.policy
    capacity, place, against = capacity_of(node, policy), place_of(node, policy), refusal(node)
    if lease.gpus and max(lease.gpus) >= capacity:
        yield CAPACITY, f"names GPUs that {lease.node} does not have", f"below {capacity}", max(lease.gpus)
    if against:
        yield DOMAIN, f"opens on {lease.node}, which takes nothing new", "a node that takes work", against
    if not place.is_known:
        yield DOMAIN, f"opens on {lease.node}, which lacks labels", "region, cluster and domain", str(place)
    elif lease.domain.rsplit("/", 1)[-1] != place.domain:
        yield DOMAIN, f"does not name the domain of {lease.node}", place.domain, lease.domain


def _wanted_here(new: Opening, node: Node, run: Run | None) -> Faults:
    wanted = run.spec.locality.selector if run else {}
    if not selected(wanted, node, new.books.policy):
        yield (
            DOMAIN,
            "opens outside the run's locality.selector",
            _spelled(wanted),
            f"node {node.metadata.name}",
        )


# --- I6: the payer ------------------------------------------------------------------------------------------


def _payer(new: Opening, budget: Budget, envelope: Envelope, node: Node | None, run: Run | None) -> Faults:
    owner, payer = budget.spec.owner, new.lease.payer
    if payer != owner:
        yield PAYER, f"does not name the owner of Budget {new.lease.budget} as payer", owner, payer
    yield from _window(new, envelope)
    if node:
        yield from _granted_here(new, envelope, node)
    if run:
        asked = run.spec.resources.gpu_type
        if asked != envelope.flavor:
            yield PAYER, "is paid by money for another flavor than the run's", asked, envelope.flavor
        yield from relation(new.books, envelope, run, payer=owner, funding=new.lease.funding)


def _granted_here(new: Opening, envelope: Envelope, node: Node) -> Faults:
    flavor = label_of(node, "flavor", new.books.policy)
    if flavor != envelope.flavor:
        yield PAYER, "is paid by money for another flavor than the node's", envelope.flavor, flavor or "none"
    if not selected(envelope.selector, node, new.books.policy):
        message = "is paid by money that may not be spent on this node"
        yield PAYER, message, _spelled(envelope.selector), f"node {node.metadata.name}"


def _window(new: Opening, envelope: Envelope) -> Faults:
    at, until, (start, end) = new.at, new.lease.until, window_of(envelope)
    if start is not None and at < start and not envelope.pre_activation.allow_admission:
        yield PAYER, "is paid before the window opens", moment(start), moment(at)
    if end is not None and at >= end:
        yield PAYER, "is paid after the window has closed", f"before {moment(end)}", moment(at)
    elif end is not None and until is not None and until > end:
        yield PAYER, "is declared to outlast the window", moment(end), moment(until)


def relation(books: Books, envelope: Envelope, run: Run, *, payer: str, funding: FundingClass) -> Faults:
    """What keeps a run from spending this money, as owned, shared or borrowed, by who is related to whom now."""
    owner = books.owner_of(run)
    match funding:
        case "owned":
            if payer != owner:
                yield PAYER, "is called owned and paid by somebody else", owner, payer
        case "shared":
            if not books.family.shares_with(owner, payer):
                yield PAYER, "is called shared and paid by no sibling or parent", f"family of {owner}", payer
            if envelope.sharing != "Family":
                yield PAYER, "is shared by an envelope that does not share", "Family", envelope.sharing
        case "borrowed":
            yield from _borrower(books, run, owner=owner, payer=payer)
            yield from _lender(envelope, owner=owner)


def _borrower(books: Books, run: Run, *, owner: str, payer: str) -> Faults:
    funding, family = run.spec.funding, books.family
    if not funding.allow_borrow:
        yield PAYER, "borrows for a run that may not", "allowBorrow", "no allowBorrow"
    if not funding.sponsors:
        yield PAYER, "borrows for a run that lists no sponsor", "sponsors", "none"
    is_kin = family.is_ancestor(payer, of=owner) or family.are_cousins(owner, payer)
    if payer == owner or not (payer in funding.sponsors or is_kin):
        yield PAYER, "borrows from nobody who lends to this run", "a sponsor, ancestor or cousin", payer


def _lender(envelope: Envelope, *, owner: str) -> Faults:
    lending = envelope.lending
    if lending is None or not lending.allow:
        yield PAYER, "borrows from an envelope that does not lend", "lending.allow", "no lending"
    elif not any_matches(lending.to, owner):
        yield PAYER, "borrows from an envelope that does not lend to this owner", listed(lending.to), owner


def _spelled(selector: Labels) -> str:
    return listed(f"{key}={value}" for key, value in sorted(selector.items()))
