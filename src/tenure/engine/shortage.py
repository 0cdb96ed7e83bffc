"""Short of money (SPEC 3, 8): an envelope, or a cap, pays for more than it may, and its time has come.

First what is too much is handed over to other envelopes that cover allows for the same run: the newest leases first
(equals by owner, namespace, name; those that passed somebody last), split at ordinals where only a part is too much or
can be paid; pods notice nothing.
Nobody who was let past others takes over what these had been promised (SPEC 7: "the same holds for money").
Then cuts, by the steps of ``cuts``, among the leases that it pays for and no others, until its use is within its limit.

Where nothing is allowed any more (hours spent, window over, Budget deleted) everything has to go, and goes as soon as
it may: a run that has not run for ``activationLead`` yet follows when it has. Otherwise cuts are made whole: as long as
those that may be cut would not be enough, nobody is. Where the hours that an envelope lends run out, that is about what
it has lent and nothing else; lowering a lending cap or withdrawing an ACL entry cuts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tenure.draw import ReservationRef, Result
from tenure.engine.books import LENDING, AnyLimit, Limit, Loans
from tenure.engine.cover import Candidate, Purse, walk
from tenure.engine.cuts import Enough, Proposal, Scope, may_be_drawn, most, outcome, resolve
from tenure.engine.demand import Demand
from tenure.engine.future import Ahead
from tenure.engine.life import again
from tenure.engine.money import due, warn
from tenure.engine.resolver import carry_out, freeze, record
from tenure.engine.state import State
from tenure.engine.topology import matches
from tenure.engine.turn import Turn
from tenure.facts import Closed, Cut, Froze, Lease, Opened, Reason, Segment
from tenure.units import FOREVER, MINUTE, Instant, Micros, parse_duration


def settle(turn: Turn) -> None:
    """Resolve what is short and due.

    Where that is news it waits for the next step of the same instant: work that is over now, just as it said, is to be
    seen first. So do all who could count on that money, or on what it pays for (``put_off``).
    """
    agenda, decided = turn.state.agenda, -1
    if not agenda.short:
        return
    limits, agenda.short = sorted(agenda.short, key=lambda limit: (limit[0], limit[1] == "cap", limit[2])), set()
    while decided < len(turn.facts):  # what one gives up another may take over
        decided = len(turn.facts)
        for limit in limits:
            _look_at(turn, limit)


def _look_at(turn: Turn, limit: Limit) -> None:
    one = _to_resolve(turn.state, limit, now=turn.now)
    if one is None:
        return
    if limit in turn.state.books.announced:
        turn.state.agenda.wake(turn.now, "short", "/".join(limit))
    else:
        _resolve(turn, one)


def put_off(state: State, *, now: Instant) -> set[str]:
    """Flavors of which some money is found short in this very step, which the next one resolves: who pays for the work
    that it paid for, and whether that goes on, is not known before, so nobody is let in meanwhile."""
    if not state.books.announced:
        return set()
    found = (_to_resolve(state, limit, now=now) for limit in state.books.announced)
    return {fund.flavor for one in found if one is not None for fund in one.funds}


def _to_resolve(state: State, limit: Limit, *, now: Instant) -> AnyLimit | None:
    """An envelope or a cap, if it is short, its time has come, and there is something to be done about it."""
    one = _find(state, limit)
    return None if one is None or not _is_due(state, one, now=now) or _waits(state, one) else one


def _waits(state: State, one: AnyLimit) -> bool:
    """Whether a draw is needed that is under way, or that nobody can reveal: that was said, and nothing is done."""
    return subject(one) in state.draws or (not state.beacons and "custodian" in one.warned)


def drawn(turn: Turn, froze: Froze, result: Result) -> None:
    """The draw for a shortage is decided: cut as far as the limit asks, in the order that was drawn."""
    state, (budget, _, name) = turn.state, froze.intent.reservation.name.partition("/")
    for limit in ((budget, "envelope", name), (budget, "cap", name), (budget, "lending", name.removesuffix(LENDING))):
        one = _find(state, limit)
        if one is None or not _is_due(state, one, now=turn.now):
            continue
        state.agenda.short.add(limit)  # perhaps not all of it can be cut yet, or none of those who were drawn
        scope, lead = _scope(state, one), _lead(turn)
        goal = _goal(turn, one, scope)
        cuts = outcome(state, scope, result.order, goal, now=turn.now, lead=lead)
        if cuts is not None:
            record(turn, trigger="Shortage", subject=subject(one), activation=froze.intent.activation, cuts=cuts,
                   deficit=froze.intent.deficit, intent=froze.intent, result=result)  # fmt: skip
            carry_out(turn, cuts, subject=subject(one), seed=result.seed)
            return


def subject(one: AnyLimit) -> str:
    return f"Budget/{one.label}"


def is_unpaid(state: State, lease: Lease, *, now: Instant) -> bool:
    """Whether what pays for a lease may not pay for anything any more, and it is to go, but was not asked to yet."""
    fund, lent = state.books.funds[lease.budget, lease.envelope], lease.funding == "borrowed"
    limits = (one for one in fund.limits if lent or not isinstance(one, Loans))
    return lease.key not in state.ending and any(
        one.allowed(now) == 0 and _is_due(state, one, now=now) for one in limits
    )


# --- what is short --------------------------------------------------------------------------------------------------


def _find(state: State, limit: Limit) -> AnyLimit | None:
    budget, kind, name = limit
    if kind != "cap":
        fund = state.books.funds.get((budget, name))
        return fund.loans if fund is not None and kind == "lending" else fund
    return next((cap for cap in state.books.caps.get(budget, ()) if cap.key[1] == name), None)


def _is_due(state: State, one: AnyLimit, *, now: Instant) -> bool:
    return state.policy.on_budget_shortage == "Resolve" and one.short(now) > 0 and due(state, one) <= now


def _scope(state: State, one: AnyLimit) -> Scope:
    return Scope(leases=frozenset(lease.key for lease in _paid(state, one)))


def _paid(state: State, one: AnyLimit) -> Iterator[Lease]:
    """The open leases that it pays for."""
    leases = (state.leases[key] for fund in one.funds for key in fund.leases)
    return (lease for lease in leases if lease.funding == "borrowed") if isinstance(one, Loans) else leases


def _lead(turn: Turn) -> Micros:
    return parse_duration(turn.state.policy.activation_lead)


def _goal(turn: Turn, one: AnyLimit, scope: Scope) -> Enough:
    """Use within the limit; where nothing is allowed, as much as may be cut now."""
    gpus = one.short(turn.now)
    if one.allowed(turn.now) == 0:
        gpus = min(gpus, most(turn.state, scope, now=turn.now, lead=_lead(turn)))
    return lambda trial: trial.freed >= gpus


def _resolve(turn: Turn, one: AnyLimit) -> None:
    state, before = turn.state, one.short(turn.now)
    handed = _hand_over(turn, one)
    scope, deficit = _scope(state, one), one.short(turn.now)
    found = resolve(state, scope, _goal(turn, one, scope), now=turn.now, lead=_lead(turn))
    _look_again(turn, one, scope)
    if found is None:
        return
    if found.tokens:
        _draw(turn, one, found, deficit)
    elif found.cuts or handed:
        _cut(turn, one, found.cuts, before)


def _cut(turn: Turn, one: AnyLimit, cuts: tuple[Cut, ...], deficit: int) -> None:
    name = subject(one)
    record(turn, trigger="Shortage", subject=name, activation=_number(turn, one), cuts=cuts, deficit=deficit)
    carry_out(turn, cuts, subject=name)


def _draw(turn: Turn, one: AnyLimit, found: Proposal, deficit: int) -> None:
    budget = turn.state.budgets.get(one.key[0])
    ref = ReservationRef(namespace="", name=one.label, uid=budget.metadata.uid if budget else "")
    refusal = freeze(turn, trigger="Shortage", ref=ref, activation=_number(turn, one), deficit=deficit,
                     tokens=found.tokens)  # fmt: skip
    if refusal is None:
        return
    if refusal.code == "DrawWaits":
        turn.state.agenda.short.add(one.limit)
        return
    if found.cuts and one.allowed(turn.now) == 0:
        _cut(turn, one, found.cuts, deficit)
    if "custodian" not in one.warned:
        warn(turn, one, "custodian")
        turn.note("Draw", f"Budget/{one.key[0]}", refusal)


def _number(turn: Turn, one: AnyLimit) -> int:
    return turn.state.activations.get(subject(one), 0) + 1


def _look_again(turn: Turn, one: AnyLimit, scope: Scope) -> None:
    """As long as there are runs that may not be drawn yet, look at it in each step, and when the next of them may."""
    state, now, lead = turn.state, turn.now, _lead(turn)
    at = FOREVER
    for key in scope.leases or ():
        row = state.runs[state.leases[key].run_key]
        if row.life.phase in ("Starting", "Running") and not may_be_drawn(row, now=now, lead=lead, today=now):
            started = row.life.started
            at = min(at, now + max(MINUTE, lead) if started is None else started + max(1, lead))
    state.agenda.wake(at, "short", "/".join(one.limit))
    if at < FOREVER:
        state.agenda.short.add(one.limit)


# --- handing over ---------------------------------------------------------------------------------------------------


def _hand_over(turn: Turn, one: AnyLimit) -> int:
    """Let others pay for what is too much, as far as cover allows; returns the GPUs that were handed over. Who is in a
    draw that this very entry freezes stays in it with all that it has."""
    payers: dict[str, int] = {}
    wanted = one.short(turn.now) - leaving(turn.state, one)
    handing = Handing(turn.state, one, now=turn.now)
    drawn = {token.id for fact in turn.facts if isinstance(fact, Froze) for token in fact.intent.tokens}
    for lease in (lease for lease in newest_first(turn.state, one) if lease.run_key not in drawn):
        segments = handing.others(lease, wanted)
        if segments:
            _pass_on(turn, lease, segments)
        for segment in segments:
            wanted -= segment.gpus
            name = f"{segment.budget}/{segment.envelope}"
            payers[name] = payers.get(name, 0) + segment.gpus
    handed = sum(payers.values())
    if handed:
        names = ", ".join(f"{name} ({gpus})" for name, gpus in sorted(payers.items()))
        reason = Reason(code="HandedOver", data={"gpus": handed, "envelope": one.label, "payers": names})
        turn.note("BudgetNotice", f"Budget/{one.key[0]}", reason)
    return handed


def leaving(state: State, one: AnyLimit) -> int:
    """GPUs that it pays for and that come free by themselves."""
    return sum(len(lease.gpus) for lease in _paid(state, one) if lease.key in state.ending)


def newest_first(state: State, one: AnyLimit) -> list[Lease]:
    """Leases that are to stay, in the order in which others are asked to pay for them. Those come last that passed
    somebody: what the others take over may be what was left beside a promise."""
    staying = [lease for lease in _paid(state, one) if lease.key not in state.ending]
    staying.sort(key=lambda lease: (-lease.start, lease.owner, lease.namespace, lease.run, lease.name))
    return sorted(staying, key=lambda lease: _passed(state, lease) is not None)


class Handing:
    """Asks others to pay, one lease after the other; there is ever less money, so what was refused once is not asked
    again."""

    def __init__(self, state: State, one: AnyLimit, *, now: Instant) -> None:
        self._state, self._now = state, now
        self._barred = {fund.key for fund in one.funds}
        self._refused: set[tuple[str, str, str, Instant | None, int, int]] = set()

    def others(self, lease: Lease, wanted: int, *, borrowed: int = 0) -> list[Segment]:
        """Who else pays for so many GPUs of a lease, or for some of them. ``borrowed``: what its run would have
        borrowed besides, if this is only a question."""
        # Before anything is laid out: what time brings is not to be mistaken for what is tried. And every time: who is
        # past its end and was just handed over is not to be taken for gone.
        self._state.look_ahead(self._now)
        gpus = min(wanted, len(lease.gpus))
        alike = (lease.run_key, lease.node, lease.funding, _passed(self._state, lease), gpus, len(lease.gpus))
        if wanted <= 0 or alike in self._refused:
            return []
        segments = self._ask(lease, gpus, borrowed)
        if not segments:
            self._refused.add(alike)
        return segments

    def _ask(self, lease: Lease, gpus: int, borrowed: int) -> list[Segment]:
        """For all of it, or for as much as is paid while the rest goes on: that may be on money of the same cap."""
        state, now = self._state, self._now
        row, node = state.runs[lease.run_key], state.topology.rows.get(lease.node)
        end = row.end_of(lease)
        left = None if end is None or end <= now else end - now
        demand = msgspec.structs.replace(row.demand, duration=left)
        able = [
            candidate
            for candidate in walk(state.books, state.family, demand, now=now)
            if candidate.bar is None
            and candidate.fund.key not in self._barred
            and node is not None
            and matches(candidate.fund.selector, node.labels)
        ]
        borrowed += sum(len(other.gpus) for other in row.leases.values() if other.key != lease.key and _is_lent(other))
        while able and gpus:
            segments = self._paid(lease, gpus, able, demand, borrowed)
            paid = sum(segment.gpus for segment in segments)
            if paid == gpus:
                return segments
            gpus = paid
        return []

    def _paid(
        self, lease: Lease, gpus: int, able: list[Candidate], demand: Demand, borrowed: int
    ) -> list[Segment]:  # fmt: skip
        """Who would pay for so many, as if they had just been given back."""
        state, now = self._state, self._now
        rest = msgspec.structs.replace(lease, gpus=lease.gpus[gpus:])
        state.books.close(lease, end=now)
        state.books.reopen(rest, at=now)
        try:
            with self._promised_before(lease, rest, able, demand.duration) as ahead:
                held = borrowed + (len(rest.gpus) if _is_lent(rest) else 0)
                purse = Purse(demand, now=now, lookahead=state.world.lookahead, borrowed=held, ahead=ahead)
                return purse.pay(able, gpus)[0]
        finally:
            state.books.close(rest, end=now)
            state.books.reopen(lease, at=now)

    @contextmanager
    def _promised_before(
        self, lease: Lease, rest: Lease, able: list[Candidate], left: Micros | None
    ) -> Iterator[Ahead | None]:
        """What others were promised of this money before a run was let past them, or took on more: that is not for it
        to take. None if it passed nobody; what was promised since is not in its way."""
        state, timeline, now, passed = self._state, self._state.timeline, self._now, _passed(self._state, lease)
        if passed is None or not timeline.claims:
            yield None
            return
        funds = {
            fund.key for one in able for fund in (one.fund, *(mate for cap in one.fund.caps for mate in cap.funds))
        }
        since = [
            key
            for key, claim in timeline.claims.items()
            if state.reservations[key].made > passed
            and not funds.isdisjoint((one.budget, one.envelope) for one in claim.plan.segments)
        ]
        with timeline.set_aside(since), timeline.paid_by(lease.key, rest):
            yield Ahead(timeline, now=now, at=now, length=left)


def _passed(state: State, lease: Lease) -> Instant | None:
    """When a run took this on past others, or once it was at work (it grew, or got spares anew); None if it did not."""
    life = state.runs[lease.run_key].life
    is_extra = life.started is not None and lease.taken > life.started
    return lease.taken if life.backfilled or is_extra else None


def _is_lent(lease: Lease) -> bool:
    return lease.funding == "borrowed"


def _pass_on(turn: Turn, lease: Lease, segments: list[Segment]) -> None:
    """Close a lease and open it again with its new payers; what is left of it keeps its first GPUs and its payer."""
    row = turn.state.runs[lease.run_key]
    turn.emit(Closed(namespace=lease.namespace, leases=(lease.name,), end=turn.now, reason="Refund"))
    left = len(lease.gpus) - sum(segment.gpus for segment in segments)
    if left:
        part = again(row, lease, gpus=lease.gpus[:left], start=turn.now, reason="Refund")
        turn.emit(Opened(lease=part))
    for segment in segments:
        gpus = lease.gpus[left : left + segment.gpus]
        left += segment.gpus
        part = again(row, lease, gpus=gpus, start=turn.now, reason="Refund", budget=segment.budget,
                     envelope=segment.envelope, payer=segment.payer, funding=segment.funding)  # fmt: skip
        turn.emit(Opened(lease=part))
