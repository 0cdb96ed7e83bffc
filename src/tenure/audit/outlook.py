"""The world at one instant, as the promises stand in it: is one of them tenable? (SPEC 13.8)

A *pot* holds so many GPUs at once: a node, an envelope, an aggregate cap, what an envelope may lend. At one instant,
half a minute after the promise is due (and no later than it lasts),

    GPUs of open leases that are still there then + GPUs promised to those who are on then  <=  what the pot holds

for each pot that it takes from; and in each account of hours that it is to be paid from

    used + what declared leases are still to use + what all promises will use  <=  the limit

To look at each promise when it begins is enough: leases only end, and claims only begin when promises do.

A lease is there until the end it declared (counted from when the pods were bound), until the bound of a run that
declares none and was let past distant promises, or until what pays runs out, whichever comes first. Who was asked to
leave is gone, and so is backfill that overstays: it is the first to go when somebody is due (but for a run that was
itself cut, and cuts nobody). Who is past its end otherwise has half a minute more, unless the promise has waited for so
long already; then it stays for ever, as does who has no end. Not in the way on its nodes
are the runs that a ``conservative`` promise may cut, for itself and for those behind it: whom it names, unless that one
has left the queue since it did, or will not have run for ``activationLead``. Cuts free machines, never money.

A node that takes nothing new holds nothing, nor does money before its window opens, or that may not be spent on the run
(any more); and money that would run out while the run is at work does not pay for it.

Not seen from here: GPUs of pods that are not ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from tenure.audit.accounts import EnvelopeKey, window_of
from tenure.audit.books import Books, Holding
from tenure.audit.checks_limits import LimitWatch
from tenure.audit.checks_opening import relation
from tenure.audit.limits import Limit, LimitKey
from tenure.audit.places import capacity_of, refusal
from tenure.audit.promises import LENIENCY, Promise
from tenure.facts import FundingClass, Lease
from tenure.units import FOREVER, Instant, Micros, parse_duration

Pot = tuple[str, ...]
"""("node", name), or the key of a limit"""


class Lack(NamedTuple):
    """What a promise will not have."""

    pot: Pot
    holds: int
    needed: int

    def __str__(self) -> str:
        kind, name = (self.pot[0], self.pot[1]) if self.pot[0] == "node" else (self.pot[1], "/".join(self.pot[::2][:2]))
        return f"{kind} {name}" + (" (GPU-microseconds)" if self.pot[-1] == "hours" else "")


class Outlook:
    """The promises of one instant, beside the leases that are open then; ``without`` some of these."""

    def __init__(
        self, books: Books, limits: LimitWatch, promises: Mapping[str, Promise], *,
        now: Instant, without: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._books, self._limits, self._now, self._without = books, limits, now, without
        self._promises = [one for one in promises.values() if not self._is_served(one)]
        self._exhaustion = cache(self._runs_out)
        self._ends: dict[str, Instant] = {}

    def _is_served(self, one: Promise) -> bool:
        """Its run has started: what it was promised it holds."""
        book = self._books.runs.get(one.run)
        return book is not None and any(key not in self._without for key in book.leases)

    # --- a promise --------------------------------------------------------------------------------------------

    def lack(self, one: Promise) -> Lack | None:
        """What it would want for when it is due; None if it is tenable."""
        return next(self._lacks(one), None)

    def _lacks(self, one: Promise) -> Iterator[Lack]:
        at = one.seen_at(self._now)
        on = [one, *(each for each in self._others(one) if each.is_on(at, now=self._now))]
        there = _There(self, one, at)
        for node in one.nodes:
            room, promised = self._room(node), sum(each.nodes.get(node, 0) for each in on)
            needed = promised + there.gpus(self._books.on_node.get(node, ()), spare=room - promised)
            if needed > room:
                yield Lack(("node", node), room, needed)
        for limit in self._limits_of(one):
            if limit.key.measure == "hours":
                promised = sum(_share(limit, each) * self._length(each) for each in (one, *self._others(one)))
                needed = promised + self._spoken_for(limit)
            else:
                promised = sum(_share(limit, each) for each in on)
                needed = promised + self._limits.held(limit)
                if needed > limit.bound:
                    staying = self.staying(self._limits.staying(limit), one, at=at)
                    needed = promised + sum(len(each.lease.gpus) for each in staying)
            if needed > limit.bound:
                yield Lack(limit.key, limit.bound, needed)
        for (envelope, funding), gpus in sorted(one.money.items()):
            if not self._pays(envelope, funding, one, at=at):
                yield Lack(LimitKey(envelope[0], "envelope", envelope[1], "window"), 0, gpus)

    def stands(self, one: Promise) -> bool:
        """Whether it is tenable, and leaves every promise before it tenable that comes to be due while it is on:
        promises are looked at by their numbers, and who comes later is planned anew."""
        if self.lack(one) is not None:
            return False
        earlier = (each for each in self._others(one)
                   if each.turn < one.turn and one.is_on(each.seen_at(self._now), now=self._now))  # fmt: skip
        return self.pots(one).isdisjoint(lack.pot for each in earlier for lack in self._lacks(each))

    def pots(self, one: Promise) -> set[Pot]:
        return {("node", node) for node in one.nodes} | {limit.key for limit in self._limits_of(one)}

    def pots_of(self, lease: Lease) -> Iterator[Pot]:
        """What sits on a spare takes from no node."""
        if lease.role != "Borrowed":
            yield "node", lease.node
        for limit in self._limits.on((lease.budget, lease.envelope), lent=lease.funding == "borrowed"):
            yield limit.key

    def _others(self, one: Promise) -> Iterator[Promise]:
        return (each for each in self._promises if each.run != one.run)

    def giving_way(self, one: Promise, *, at: Instant) -> set[str]:
        """Runs that it may cut by then, or that who comes before it may."""
        draws = {(subject, froze.intent.activation) for subject, froze in self._books.draws.items()}
        ahead = (one, *(each for each in self._others(one) if each.due(self._now) < at))
        cutting = (each for each in ahead if each.draw is None or each.draw in draws)
        return {run for each in cutting for run in each.names if self._may_be_cut(run, each, at=at)}

    def _may_be_cut(self, run: str, one: Promise, *, at: Instant) -> bool:
        book = self._books.runs.get(run)
        if book is None or book.left >= one.fact:
            return False
        since = self._now if book.running_since is None else book.running_since
        return since + parse_duration(self._books.policy.activation_lead) <= at

    # --- pots -------------------------------------------------------------------------------------------------

    def _room(self, name: str) -> int:
        node = self._books.node(name)
        return 0 if node is None or refusal(node) else capacity_of(node, self._books.policy)

    def _limits_of(self, one: Promise) -> list[Limit]:
        found = {limit.key: limit for envelope, funding in one.money
                 for limit in self._limits.on(envelope, lent=funding == "borrowed")}  # fmt: skip
        return [limit for key, limit in sorted(found.items()) if key.measure != "window"]

    def _spoken_for(self, limit: Limit) -> int:
        left_out = (self._books.leases[key].lease for key in self._limits.staying(limit) if key in self._without)
        total = self._limits.spoken_for(limit, at=self._now)
        return total - sum(len(each.gpus) * (each.until - self._now) for each in left_out if each.until is not None)

    def _length(self, one: Promise) -> Micros:
        return parse_duration(self._books.policy.lookahead) if one.lasts == FOREVER else one.lasts

    def _pays(self, envelope: EnvelopeKey, funding: FundingClass, one: Promise, *, at: Instant) -> bool:
        """Whether an envelope is there, may pay for the run, and is open from when a promise is due until its run would
        be over."""
        budget = self._books.budgets.get(envelope[0])
        found = next((each for each in budget.spec.envelopes if each.name == envelope[1]), None) if budget else None
        run = self._books.run(one.run).run
        if budget is None or found is None or run is None:
            return False
        if any(relation(self._books, found, run, payer=budget.spec.owner, funding=funding)):
            return False
        start, end = window_of(found)
        is_early = start is not None and start > at and not found.pre_activation.allow_admission
        over = at if one.lasts == FOREVER else max(one.start, self._now) + one.lasts
        return not is_early and (end is None or over <= end)

    # --- leases -----------------------------------------------------------------------------------------------

    def staying(self, keys: Iterable[str], one: Promise, *, at: Instant) -> list[Holding]:
        """Of these leases, those that are still there at an instant, for all that this promise can do."""
        book = self._books.runs.get(one.run)
        cuts_nobody = book is not None and book.life.cut
        held = (self._books.leases[key] for key in keys if key not in self._without)
        waited = one.by + LENIENCY <= self._now
        return [
            each
            for each in held
            if not each.ending
            and (self._end_of(each) > at or (cuts_nobody and self._overstays(each)) or (waited and self._is_late(each)))
        ]

    def _end_of(self, held: Holding) -> Instant:
        if held.lease.key not in self._ends:
            self._ends[held.lease.key] = self._end(held)
        return self._ends[held.lease.key]

    def _end(self, held: Holding) -> Instant:
        declared, lease = self._declared(held), held.lease
        if self._overstays(held):
            return self._now
        ahead = FOREVER if declared is None or declared + LENIENCY <= self._now else declared
        if self._is_late(held) and ahead != FOREVER:
            ahead += LENIENCY
        return min(ahead, self._exhaustion((lease.budget, lease.envelope), lease.funding == "borrowed"))

    def _overstays(self, held: Holding) -> bool:
        """Backfill that was to be gone by now."""
        declared = self._declared(held)
        return self._is_backfill(held) and declared is not None and declared < self._now

    def _is_late(self, held: Holding) -> bool:
        """Any other work that was to be gone by now."""
        declared = self._declared(held)
        return declared is not None and declared <= self._now and not self._is_backfill(held)

    def _is_backfill(self, held: Holding) -> bool:
        life = self._books.run(held.lease.run_key).life
        return life.backfilled or life.bound is not None

    def _declared(self, held: Holding) -> Instant | None:
        """The end that a lease declared. A duration is one of work, and counts from when the pods are bound; but who
        was let past others was let past them for so long and no longer."""
        book, until = self._books.run(held.lease.run_key), held.lease.until
        if until is None:
            return book.life.bound
        lasts = book.run.spec.runtime.expected_duration if book.run else None
        if lasts is None or book.life.backfilled:
            return until
        return until if book.running_since is None else max(until, book.running_since + parse_duration(lasts))

    def _runs_out(self, envelope: EnvelopeKey, lent: bool) -> Instant:
        return self._limits.runs_out(envelope, lent=lent, now=self._now, without=self._without)


class _There:
    """The leases that are in the way of one promise; who may be cut is looked up only where it matters."""

    def __init__(self, view: Outlook, one: Promise, at: Instant) -> None:
        self._view, self._one, self._at = view, one, at
        self._gone: set[str] | None = None

    def gpus(self, keys: Iterable[str], *, spare: int) -> int:
        staying = self._view.staying(keys, self._one, at=self._at)
        total = sum(len(each.lease.gpus) for each in staying)
        if total <= spare:
            return total
        if self._gone is None:
            self._gone = self._view.giving_way(self._one, at=self._at)
        return sum(len(each.lease.gpus) for each in staying if each.lease.run_key not in self._gone)


def _share(limit: Limit, one: Promise) -> int:
    """GPUs that a promise takes from a limit."""
    return sum(
        gpus
        for (envelope, funding), gpus in one.money.items()
        if envelope in limit.members and (funding == "borrowed" or not limit.counts_lent)
    )
