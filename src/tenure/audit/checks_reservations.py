"""I8: a reservation's start is never delayed by work admitted after it (SPEC 7).

A reservation that is Pending or Active claims GPUs of nodes and GPUs of envelopes, from its planned start until its
planned end. A node and an envelope are both a *pot*: it holds so many GPUs at once, leases take from it, and claims
will. Nothing here asks the engine; the plan is what the record says, and what is left of a pot at an instant is
counted from leases.

Three things are looked at.

**What opens** (reason ``Start`` or ``Grow``), after its entry. It stands behind what others were promised before its
own run was, or before it started without a promise; a step of a run at work, or a spare that is topped up, stands
behind all claims; and behind an Active one stands everybody, on its nodes, unless its draw still waits for a reveal
(that "delays, and cannot steer", SPEC 8: nothing was freed for it yet; a draw that was left over from an earlier
activation is another matter). At the start of each claim that it stands behind, unless it has ended by then,

    GPUs held then + GPUs claimed then <= what the pot holds

where a lease ends when it was asked to, at the end it declared, or when its payer's hours or window run out; if that is
not past already: who overstays frees nothing, nor does who is still there though nobody may pay for him any more. A
reservation with a ``conservative`` start counts on cuts: against its claim on a node only leases count that opened
after it was made. A claim that the entry made after it opened something is not taken from by that; one that it made
larger then, or moved, is judged by the GPUs and the start that were promised until then: what is planned later is found
with all that was opened before, and may count on cuts promised to others. Whether a move to later was right is asked
below.

**What is moved**: a start that moves later, or a reservation that is Blocked, has a reason in its record; and where,
but for leases admitted after the claim by those who stand behind it, the old plan would still fit on every node and in
every envelope, for as long as it was to last, those that are in the way at its start are the cause. Backfill that
overstays is such a lease: it is to be cut at the activation, not to be waited for. Only where its pods do not stop is
there nothing more to do: once the start has come, pods that an earlier entry asked to leave count as being there. An
earlier promise that is late lasts that much longer, as soon as it is due and its record says what it waits for, and
what is held for a run that is being started (Active, since before, its draw over) is held against everybody; a plan
that counts on cuts counts on none of those who came by an earlier promise since, nor who have not run for long enough
to be drawn, as who was there when it was made, and was bound late since. An edit of the run, or another width, is a
cause of its own; so is an earlier promise that begins in the midst of the old plan, and money that hours or caps
withhold, whose window would close before the run is over (however late it is, unless it waits a moment for who ends
late), or that may not be spent there any more, unless the new plan is paid by other money, which would have paid for
the old one as well; and a run that was itself cut cuts nobody, and waits. A start that was due, and is being made now
elsewhere, is not delayed by who is let in where it would have had to wait for somebody to leave; nor, wherever it is
made, by who was there before. Who was let in while somebody else was still to be gone by then is not to blame if that
one, who was there first, overstays, or was bound late; nor is who was let in when the start was planned no earlier than
it is now, and has only come nearer in between; nor who was let in before an earlier promise was planned anew, onto what
the later one counted on, so far as that takes more than it did; nor who was let in while the pot held more, by so much;
nor, where those who are not to blame are in the way of the old plan by themselves, who was let in before they were, or
by the same entry after the move; nor who is let in after a move that earlier promises called for, whatever the same
entry makes of these then. Who was let in before the claim itself came to take more of a pot is in the way only of what
it took until then.

**What stands**, on a settled world: no Pending reservation has a start that is past.

Not seen from here: hours that the reservation will need (only concurrency is counted), GPUs of pods that are not
ours, and whether an earlier start could have been promised at all; whether money that nobody names would have paid
(that takes cover); a start that is put off because one who was promised his later, and is to be over before, had to
wait for a reveal (docs/decisions/0014 lets those behind him move with him); and a plan that leaves a pot and comes back
within one entry, which counts as new there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tenure.audit.accounts import window_of
from tenure.audit.books import Books, Holding
from tenure.audit.checks_limits import LATE, LimitWatch
from tenure.audit.checks_opening import relation
from tenure.audit.claims import (
    CLAIMING,
    Claim,
    Crowd,
    Given,
    Pot,
    Rank,
    crowded,
    given_up,
    gpus_of,
    lost_by,
    named,
    payer_of,
    pots_of,
    takes,
)
from tenure.audit.places import capacity_of, place_of, refusal, selected
from tenure.audit.records import is_delayed, record, violation
from tenure.audit.report import Violation, listed, moment
from tenure.facts import Lease, Reservation, Segment
from tenure.units import FOREVER, Instant, parse_duration

HINDERED = ("NoCustodian", "DrawWaits", "EndsLate")
"""Reasons in the record of a start that is due and not made yet."""


class Delay(NamedTuple):
    """A reservation that was moved later, or blocked, with the claims that it had."""

    before: Reservation
    after: Reservation
    claims: dict[Pot, Claim]
    fact: int
    """The number of the fact that did."""


class ReservationWatch:
    """Follows the reservations that are neither Released nor Canceled, and what they claim."""

    def __init__(self, books: Books, limits: LimitWatch) -> None:
        self._books = books
        self._limits = limits
        self._claims: dict[Pot, dict[str, Claim]] = {}
        self._ranks: dict[str, Rank] = {}
        """Of runs that have a promise, or had one when they started, or started without."""
        self._turn = 0
        """The last promise that was made."""
        self._over: dict[str, int] = {}
        """Reservations (by uid) that were Released or Canceled."""
        self._served: dict[str, dict[Pot, Claim]] = {}
        """By run, what was held for those whom the last entry that did so started from Active."""
        self._served_by = 0
        self._withdrawn: dict[Pot, list[tuple[int, Claim]]] = {}
        """Claims that the last entry that did so withdrew, or wrote anew, each with the fact that did."""
        self._withdrawn_by = 0
        self._activated: dict[str, int] = {}
        """By run, the fact from which on its start was held for it; until it waits again."""

    # --- a record ---------------------------------------------------------------------------------------------

    def reserve(self, new: Reservation, delays: list[Delay], *, at: Instant) -> list[Violation]:
        """Take a record that was made or changed; a start that it moves later is looked at after the entry."""
        key, old = new.run_key, self._books.reservations.get(new.run_key)
        if new.state == "Active":
            self._activated.setdefault(key, self._books.fact)
        elif new.state != "Released":
            self._activated.pop(key, None)
        claims = self._withdraw(old) if old else {}
        found = list(record(old, new, at=at)) if old else []
        if self._over.get(new.uid, -1) >= self._books.run(key).came:  # a run of that name may come anew
            found.append(violation(new, "goes on after it was over", at=at, expected="another one", found=new.state))
        if old is not None and old.uid == new.uid and is_delayed(old, new):
            delays.append(Delay(old, new, claims, self._books.fact))
        if new.state in CLAIMING and new.plan.start is not None:
            self._turn = max(self._turn, new.turn)
            self._ranks[key] = (2 * new.turn, self._books.order_of(key))
        elif new.state != "Released":
            self._ranks.pop(key, None)
        if new.state in ("Released", "Canceled"):
            self._over[new.uid] = self._books.entry
            self._serve(old, claims, at=at)
            self._books.reservations.pop(key, None)
            self._books.reservations_by_name.pop(new.key, None)
        else:
            self._books.reservations[key] = new
            self._books.reservations_by_name[new.key] = key
            self._claim(new, claims)
        return found

    def _withdraw(self, one: Reservation) -> dict[Pot, Claim]:
        claims = {pot: self._claims[pot].pop(one.run_key) for pot in takes(one)}
        if self._withdrawn_by != self._books.entry:
            self._withdrawn, self._withdrawn_by = {}, self._books.entry
        for pot, claim in claims.items():
            self._withdrawn.setdefault(pot, []).append((self._books.fact, claim))
            if not self._claims[pot]:
                del self._claims[pot]
        return claims

    def _serve(self, old: Reservation | None, claims: dict[Pot, Claim], *, at: Instant) -> None:
        if self._served_by != self._books.entry:
            self._served, self._served_by = {}, self._books.entry
        if old is not None and self._holds(old, at=at) and f"Reservation/{old.key}" not in self._drawn_now():
            self._served[old.run_key] = claims

    def _drawn_now(self) -> set[str]:
        """Those whose draws the present entry ended: until then nobody gave way for them."""
        return self._books.drawn if self._books.drawn_by == self._books.entry else set()

    def _claim(self, one: Reservation, before: dict[Pot, Claim]) -> None:
        order, plan = (2 * one.turn, self._books.order_of(one.run_key)), one.plan
        for pot, gpus in takes(one).items():
            old, fact = before.get(pot), self._books.fact
            starts, sizes = (old.starts, old.sizes) if old else ((), ())
            if not old or old.start != plan.start:
                starts = (*starts, (fact, plan.start or 0))
            if not old or old.gpus != gpus:
                sizes = (*sizes, (fact, gpus))
            self._claims.setdefault(pot, {})[one.run_key] = Claim(
                one.run_key, order, gpus,
                start=plan.start or 0,
                until=FOREVER if plan.until is None else plan.until,
                written=fact,
                fact=old.fact if old and gpus <= old.gpus else fact,
                firm=one.confidence != "conservative" or pot[0] == "envelope",
                active=one.state == "Active",
                waits=one.state == "Active" or one.reason in HINDERED,
                starts=starts,
                sizes=sizes,
            )  # fmt: skip

    def older_on(self, node: str, run: str, *, until: Instant | None, fact: int) -> bool:
        """Whether somebody who was promised a start before this run, or for whom it is held by now, claimed GPUs of a
        node when a fact of the present entry came, and from before that run is over; whatever has become of that
        since."""
        rank, end = self._rank(run), FOREVER if until is None else until
        return any(
            one.start < end and (one.order < rank or (one.run != run and self._was_held_for(one)))
            for one in self._claims_at(("node", node), fact)
        )

    def _was_held_for(self, claim: Claim) -> bool:
        """Whether a claim was that of somebody who was being started, and no draw of his waited."""
        one = self._books.reservations.get(claim.run)
        return claim.active and (one is None or not self._is_drawn_for(one))

    def _claims_at(self, pot: Pot, fact: int) -> list[Claim]:
        """The claims on a pot as they were when a fact of the present entry came."""
        gone = self._withdrawn.get(pot, ()) if self._withdrawn_by == self._books.entry else ()
        claims = (*self._claims.get(pot, {}).values(), *(claim for when, claim in gone if when > fact))
        return [one for one in claims if one.written < fact]

    def starts(self, run: str) -> None:
        """An attempt of a run begins: by its promise, or behind all that were made."""
        one = self._books.reservations.get(run)
        if one is None or one.state not in CLAIMING or one.plan.start is None:
            self._ranks[run] = (2 * self._turn + 1, self._books.order_of(run))

    def _rank(self, run: str) -> Rank:
        return self._ranks.get(run, (FOREVER, self._books.order_of(run)))

    # --- after an entry, and on a settled world -----------------------------------------------------------------

    def after(
        self, opened: Iterable[Lease], delays: Iterable[Delay], cut: Iterable[Given], *, at: Instant
    ) -> Iterator[Violation]:
        """What the entry opened, against the claims as they stand now, and what it moved later, with those whom it cut,
        and for whom."""
        groups: dict[tuple[Pot, str], list[Holding]] = {}
        for lease in opened if self._claims else ():
            holding = self._books.leases.get(lease.key)
            if holding is None or holding.ending or lease.reason not in ("Start", "Grow"):
                continue
            for pot in pots_of(lease):
                if self._claims.get(pot):
                    groups.setdefault((pot, lease.run_key), []).append(holding)
        for (pot, run), new in sorted(groups.items(), key=lambda item: item[0]):
            yield from self._opening(pot, run, new, list(self._claims[pot].values()), at=at)
        for delay in delays:
            others = [(fact, lease) for fact, lease in cut if fact.subject != f"Reservation/{delay.after.key}"]
            yield from self._delayed(delay, others, at=at)

    def standing(self, *, now: Instant) -> Iterator[Violation]:
        for one in self._books.reservations.values():
            start = one.plan.start
            if one.state == "Pending" and start is not None and start + LATE < now and not self._is_hindered(one):
                message = "was to start, and was neither activated nor moved"
                yield violation(one, message, at=now, expected=moment(start), found="Pending")

    def _is_hindered(self, one: Reservation) -> bool:
        """Whether a draw is waited for: its own, or somebody else's, and then its record says so."""
        draws = self._books.draws
        return bool(draws) and (one.reason in HINDERED or f"Reservation/{one.key}" in draws)

    # --- what opens -------------------------------------------------------------------------------------------

    def _opening(
        self, pot: Pot, run: str, new: list[Holding], claims: list[Claim], *, at: Instant
    ) -> Iterator[Violation]:
        claims = [stage for claim in claims if (stage := claim.stage_at(new[0].fact))]
        ahead = [claim for claim in claims if self._is_behind(pot, claim, new[0]) and not self._is_served(claim)]
        held = [one for one in self._held(pot) if one.lease.run_key == run or not self._came_after(one, run)]
        room = self._capacity(pot)
        if not ahead or sum(claim.gpus for claim in ahead) + sum(gpus_of(one) for one in held) <= room:
            return
        ends = self._ends(held, now=at)
        firm = [claim.as_promised(new[0].fact) for claim in ahead if claim.firm]
        clashes = [*crowded(firm, held, ends, at=at), *self._crowded_by_late(ahead, held, ends, at=at)]
        for claim, found, staying in clashes:
            then = max(claim.start, at)
            blamed = [one for one in new if one.lease.key in staying and ends[one.lease.key] > then]
            reservation = self._books.reservations[claim.run]
            if blamed and found > room and (reservation.plan.start or 0) <= claim.start:
                names = listed(sorted(one.lease.name for one in blamed))
                message = f"has what it will need of {named(pot)} at {moment(then)} taken by {names} of {run}"
                yield violation(reservation, message, at=at, expected=room, found=found)
                return

    def _crowded_by_late(
        self, ahead: list[Claim], held: list[Holding], ends: Mapping[str, Instant], *, at: Instant
    ) -> Iterator[Crowd]:
        """The same for claims that count on cuts: with those that were admitted after each.

        One that was planned by the entry itself counted on cutting what the entry opened before it.
        """
        for claim in (one for one in ahead if not one.firm and one.planned < self._books.entry):
            then = max(claim.start, at)
            late = {
                one.lease.key: gpus_of(one)
                for one in held
                if ends[one.lease.key] > then and self._is_late(one, claim, since=claim.fact)
            }
            others = {one for one in ahead if one.is_on(then, now=at) and one.order <= claim.order}
            yield claim, sum(late.values()) + sum(one.gpus for one in others | {claim}), late

    def _is_behind(self, pot: Pot, claim: Claim, new: Holding) -> bool:
        run = new.lease.run_key
        if claim.run == run:
            return False
        if claim.active and pot[0] == "node" and not self._is_drawn_for(self._books.reservations[claim.run]):
            return True
        return new.extra or claim.order < self._rank(run)

    def _is_served(self, claim: Claim) -> bool:
        """Its run has started: what it claimed it holds."""
        return bool(self._books.run(claim.run).leases)

    def _came_after(self, one: Holding, run: str) -> bool:
        """Opened by the same entry for a younger run: that one is asked on its own."""
        return one.fact >= self._books.entry and self._rank(one.lease.run_key) > self._rank(run)

    # --- what is moved ----------------------------------------------------------------------------------------

    def _delayed(self, delay: Delay, cut: list[Given], *, at: Instant) -> Iterator[Violation]:
        before, after = delay.before, delay.after
        life = self._books.run(before.run_key).life
        if life.cut or after.plan.width not in (before.plan.width, 0) or self._is_relabelled(before):
            return
        claims = delay.claims
        begun = after.state == "Active" and after.plan.start == at
        made = begun and self._are_leaving(claims, at=at)
        overdue = begun and (before.plan.start or 0) <= at  # nobody drove: it is made as soon as somebody does
        if self._lacks_money(before, before.plan.segments, claims, at=at):
            if not takes(after) or self._lacks_money(before, after.plan.segments, claims, at=at):
                return
            claims = self._paid_by(after, claims)
        late_ones, lost = list[Holding](), FOREVER
        moved = FOREVER if after.plan.start is None else after.plan.start
        since = self._books.entry if made else delay.fact if self._is_overtaken(delay, at=at) else FOREVER
        for pot, claim in claims.items():
            then = max(claim.start, at)
            room, held = self._capacity(pot, then), self._held(pot)
            ends = self._ends(held, now=at)
            late = [
                one
                for one in held
                if self._is_late(one, claim, since=claim.since)
                and not self._was_held(pot, one.lease.run_key, held)
                and claim.start_at(self._held_since(one)) < moved
                and one.fact <= since
                and (one.fact > self._books.entry or not overdue)
                and not (not claim.firm and self._entered(one) < claim.planned and self._is_young(one, then, at=at))
            ]
            there = [one for one in held if one not in late]
            needs = self._needs(pot, claim, there, ends, then=then, at=at)
            late = [one for one in late if ends[one.lease.key] > then]
            given = given_up(pot, claim, cut, self._books.leaving, then=then, at=at)
            if max(needs.values()) > room or needs[then] + self._stuck(pot, claim, late, at=at) + given > room:
                return
            for stage in claim.stages():  # who came before it took more is in the way of what it had, or is not
                mine = [one for one in late if claim.stage_at(self._entered(one)) == stage]
                needs = self._needs(pot, stage, there, ends, then=then, at=at)
                needed = needs[then] + sum(gpus_of(one) for one in mine)
                stay = [one for one in there if self._stays_on(one, by=then, at=at)]
                excused = {one.lease.key: self._counted_on(stay, one) + max(0, one.rooms[pot[0] != "node"] - room)
                           + self._handed_over(there, one) + self._moved_here(pot, claim, one, then=then, at=at)
                           for one in mine}  # fmt: skip
                blamed = [one for one in mine if needed - excused[one.lease.key] > room]
                if max(needs.values()) <= room:
                    late_ones += blamed
                    lost = min(lost, lost_by(needs[then], (one for one in mine if one not in blamed), room))
                there += mine
        culprits = {one.lease.key for one in late_ones if lost == FOREVER or lost < one.fact < delay.fact}
        if culprits:
            message = "is delayed by work admitted after it"
            expected = f"a start at {moment(before.plan.start or 0)}"
            yield violation(before, message, at=at, expected=expected, found=listed(sorted(culprits)))

    def _is_overtaken(self, delay: Delay, *, at: Instant) -> bool:
        """Whether the old plan had no room beside earlier promises alone, as they were when it was moved."""
        for pot, claim in delay.claims.items():
            then = max(claim.start, at)
            others = [one for one in self._claims_at(pot, delay.fact) if one.run != claim.run]
            ahead = [one for one in others if one.order < claim.order and one.is_on(then, now=at)]
            if claim.gpus + sum(one.gpus for one in ahead) > self._capacity(pot, then):
                return True
        return False

    def _needs(
        self, pot: Pot, claim: Claim, before: list[Holding], ends: Mapping[str, Instant], *, then: Instant, at: Instant
    ) -> dict[Instant, int]:
        """What an old claim would need of a pot, with those who came before it: where it was to start, and wherever an
        earlier promise begins while it was to last, counted from now if its start is past. One that counts on cuts
        counts on none of those who came by an earlier promise since; and what is held for somebody who is being started
        is held against everybody."""
        claims = [one for one in self._claims.get(pot, {}).values() if one.run != claim.run]
        others = [one for one in claims if one.order < claim.order or self._is_held(one, at=at)]
        there = [
            one for one in before if claim.firm or self._came_since(one, claim) or self._is_young(one, then, at=at)
        ]
        needs, until = {}, claim.until if claim.until == FOREVER else claim.until + then - claim.start
        for instant in {then, *(one.start for one in others if then < one.start < until)}:
            needs[instant] = claim.gpus + sum(one.gpus for one in others if one.is_on(instant, now=at))
            needs[instant] += sum(gpus_of(one) for one in there if ends[one.lease.key] > instant)
        return needs

    def _stuck(self, pot: Pot, claim: Claim, late: list[Holding], *, at: Instant) -> int:
        """GPUs of those who, though the start has come, are still there, and pay, though an earlier entry asked them to
        leave: there is no more to be done about them. With those who were let in since and may stay, if these are in
        the way, or what is held for whoever waits for them. A stop that is only decided now is no excuse, nor who
        overstays, nor who starts now."""
        before, claims = self._books.entry, self._claims.get(pot, {}).values()
        leaving = (self._books.leases[key] for key in self._books.leaving) if claim.start <= at else ()
        gone = [one for one in leaving if pot in pots_of(one.lease) and one.asked < before]
        if not gone and not any(one.order > claim.order and self._is_held(one, at=at) for one in claims):
            return 0
        stay = (one for one in late if one.fact < before and (self._declared(one) or FOREVER) > at)
        return sum(map(gpus_of, (*gone, *stay)))

    def _are_leaving(self, claims: dict[Pot, Claim], *, at: Instant) -> bool:
        """Whether a start that is due would have to wait where it was to be made: for those who were there before it,
        and were asked to leave."""
        leaving = [self._books.leases[key] for key in self._books.leaving]
        return any(
            claim.gpus + sum(map(gpus_of, gone)) > self._capacity(pot)
            for pot, claim in claims.items()
            if pot[0] == "node" and claim.start <= at
            for gone in [[one for one in leaving if pot in pots_of(one.lease) and not self._came_since(one, claim)]]
        )

    def _stays_on(self, one: Holding, *, by: Instant, at: Instant) -> bool:
        """Whether a lease was to end by an instant, and does not, by nobody's leave and past nobody: it overstays, or
        its pods took their time to be bound."""
        until, declared = one.lease.until, self._declared(one)
        if until is None or declared is None or self._books.run(one.lease.run_key).life.backfilled:
            return False
        return declared <= min(at, by) or until <= by < declared

    def _counted_on(self, stay: list[Holding], late: Holding) -> int:
        """GPUs that were still to be given back when somebody was let in, and were not."""
        return sum(gpus_of(one) for one in stay if (self._declared(one) or 0) > late.lease.start)

    def _handed_over(self, there: list[Holding], late: Holding) -> int:
        """GPUs whose money was still to run out when somebody was let in, and which others pay for since."""
        return sum(gpus_of(one) for one in there if one.lease.reason == "Refund" and one.fact > self._held_since(late))

    def _moved_here(self, pot: Pot, claim: Claim, late: Holding, *, then: Instant, at: Instant) -> int:
        """GPUs of earlier promises that were not planned there, or only for later, when somebody was let in: what they
        take since is their own doing."""
        came, claims = self._held_since(late), self._claims.get(pot, {}).values()
        return sum(one.gpus - (0 if one.start_at(came) > then else one.gpus_at(came))
                   for one in claims if one.order < claim.order and one.is_on(then, now=at))  # fmt: skip

    def _is_held(self, claim: Claim, *, at: Instant) -> bool:
        return claim.active and self._holds(self._books.reservations[claim.run], at=at)

    def _holds(self, one: Reservation, *, at: Instant) -> bool:
        """Whether something was held for a run, against everybody, already before this instant: until those have left
        who gave way for it. While its draw waits for the custodians nobody did."""
        is_held = one.state == "Active" and one.activated is not None and one.activated < at
        return is_held and not self._is_drawn_for(one)

    def _is_drawn_for(self, one: Reservation) -> bool:
        """Whether the draw of this very activation waits. One that was left over from before says nothing about what
        was freed since."""
        froze = self._books.draws.get(f"Reservation/{one.key}")
        return froze is not None and froze.intent.activation == one.activation

    def _was_held(self, pot: Pot, run: str, held: list[Holding]) -> bool:
        """Whether all that a run has of a pot was held for it until it started, in this entry."""
        claim = self._served.get(run, {}).get(pot) if self._served_by == self._books.entry else None
        return claim is not None and sum(gpus_of(one) for one in held if one.lease.run_key == run) <= claim.gpus

    def _is_late(self, one: Holding, claim: Claim, *, since: int) -> bool:
        """Whether a lease belongs to work that was admitted after a fact, by somebody who stands behind the claim."""
        run = one.lease.run_key
        if run == claim.run:
            return False
        return self._entered(one) > since and (one.extra or self._rank(run) > claim.order)

    def _is_young(self, one: Holding, then: Instant, *, at: Instant) -> bool:
        """Whether a lease is of a run that may not be drawn by then, and has nothing to give up but all of it."""
        book, lead = self._books.run(one.lease.run_key), parse_duration(self._books.policy.activation_lead)
        fixed = book.run is not None and book.run.spec.malleable is None
        since = at if book.running_since is None else book.running_since
        return fixed and one.lease.role == "Active" and not one.ending and since + lead > then

    def _came_since(self, one: Holding, claim: Claim) -> bool:
        return self._entered(one) > claim.fact

    def _held_since(self, one: Holding) -> int:
        """The fact from which on others had to plan around a lease's work: it was admitted, or its place was held."""
        entered = self._entered(one)
        return entered if one.extra else min(entered, self._activated.get(one.lease.run_key, entered))

    def _entered(self, one: Holding) -> int:
        """The fact by which a lease's work was admitted."""
        return one.fact if one.extra else self._books.run(one.lease.run_key).entered

    def _is_relabelled(self, one: Reservation) -> bool:
        """Whether a node of the plan lies in another domain by now: it may not be what its run asks for any more."""
        nodes = (self._books.node(share.node) for share in one.plan.shares)
        places = {str(place_of(node, self._books.policy)) for node in nodes if node is not None}
        return not places <= set(one.plan.domains)

    def _lacks_money(
        self, one: Reservation, segments: tuple[Segment, ...], claims: dict[Pot, Claim], *, at: Instant
    ) -> bool:  # fmt: skip
        """Whether hours or caps withhold this money from a plan, or its window closes before the run would be over, or
        it may not spend it there any more. What was there before it, and has no end ahead, spends until it starts.
        Whether yet other money would have paid is not seen from here, since that takes cover."""
        start, until = one.plan.start or at, one.plan.until
        length = parse_duration(self._books.policy.lookahead) if until is None else until - start

        def goes_on(key: str) -> bool:
            lease = self._books.leases[key]
            late = any(self._is_late(lease, claim, since=claim.since) for claim in claims.values())
            return not late and (self._declared(lease) or 0) <= at

        return not all(
            self._limits.could_pay(
                payer_of(segment), gpus=segment.gpus, length=length, at=at, by=start, goes_on=goes_on
            )
            and self._may_spend(one, segment, at=at)
            for segment in segments
        )

    def _paid_by(self, after: Reservation, claims: dict[Pot, Claim]) -> dict[Pot, Claim]:
        """An old plan's claims, on the money of the new one: behind all who have claims on that, and nobody is late."""
        some, fact = next(iter(claims.values())), self._books.fact
        last = (FOREVER, some.order[1])
        paid = {pot: some._replace(order=last, gpus=gpus, fact=fact, sizes=((fact, gpus),), firm=True)
                for pot, gpus in takes(after).items() if pot[0] == "envelope"}  # fmt: skip
        return {pot: claim for pot, claim in claims.items() if pot[0] == "node"} | paid

    def _may_spend(self, one: Reservation, segment: Segment, *, at: Instant) -> bool:
        """Whether a run is still related so to whom was to pay for it, there and for as long as it is to last: a Budget
        that is edited or deleted takes the places, the family ties and the ACLs along that it declared."""
        run, budget = self._books.run(one.run_key).run, self._books.budgets.get(segment.budget)
        envelopes = () if budget is None else budget.spec.envelopes
        found = next((some for some in envelopes if some.name == segment.envelope), None)
        if run is None or budget is None or found is None:
            return False
        start, end = one.plan.start or at, window_of(found)[1]
        late = 0 if one.reason == "EndsLate" else max(0, at - start)
        if end is not None and one.plan.until is not None and one.plan.until + late > end:
            return False
        nodes = ((self._books.node(share.node), share.gpus) for share in one.plan.shares)
        here = sum(gpus for node, gpus in nodes if node and selected(found.selector, node, self._books.policy))
        return here >= segment.gpus and not any(
            relation(self._books, found, run, payer=budget.spec.owner, funding=segment.funding)
        )

    # --- pots -------------------------------------------------------------------------------------------------

    def _capacity(self, pot: Pot, then: Instant | None = None) -> int:
        """GPUs of a pot: for those that are there now, or (``then``) for one who has yet to come."""
        if pot[0] == "node":
            node = self._books.node(pot[1])
            closed = node is None or (then is not None and bool(refusal(node)))
            return 0 if node is None or closed else capacity_of(node, self._books.policy)
        budget = self._books.budgets.get(pot[1])
        for envelope in budget.spec.envelopes if budget else ():
            if envelope.name == pot[2]:
                start, end = window_of(envelope)
                start = None if envelope.pre_activation.allow_admission else start
                closed = then is not None and not (start or 0) <= then < (FOREVER if end is None else end)
                return 0 if closed else envelope.concurrency
        return 0

    def _held(self, pot: Pot) -> list[Holding]:
        """Leases that take from a pot, less those that were asked to end. One on a GPU that its node does not report
        any more takes one of those that it does."""
        books = self._books
        if pot[0] == "envelope":
            envelope = books.envelopes.get((pot[1], pot[2]))
            return [books.leases[key] for key in envelope.staying] if envelope else []
        held = (books.leases[key] for key in books.on_node.get(pot[1], ()))
        return [one for one in held if not one.ending]

    def _declared(self, one: Holding) -> Instant | None:
        """The end that a lease declared: a duration is one of work, and counts from when the pods were bound. What a
        run took later, as it grew or when a node failed, ends with the run."""
        until, book = one.lease.until, self._books.run(one.lease.run_key)
        lasts = book.run.spec.runtime.expected_duration if book.run else None
        if until is None or lasts is None or book.running_since is None or book.life.backfilled:
            return until
        return max(until, book.running_since + parse_duration(lasts))

    def _ends(self, held: list[Holding], *, now: Instant) -> dict[str, Instant]:
        """When each of these leases ends, for all that is known."""
        payers = {(one.lease.budget, one.lease.envelope) for one in held}
        runs_out = {payer: self._limits.runs_out(payer, now=now) for payer in payers}
        ends = {}
        for one in held:
            declared = self._declared(one)
            ahead = declared if declared is not None and declared > now else FOREVER
            ends[one.lease.key] = min(ahead, runs_out[one.lease.budget, one.lease.envelope])
        return ends
