"""I9 and the second half of I12: every cut has a record from which it can be recomputed (SPEC 8).

A cut is a lease that is asked to end, or closes, for somebody else's sake. In the entry that decides it a
``Resolved`` fact names it; and what a ``Resolved`` fact names is decided in its entry, with the closure of its
kind:

    Reclaim  ReclaimedBySpare      Overstay  Overstay      DropSpare  DropSpare, spares only
    Shrink   Shrink                Lottery   RandomPreempt(<seed of the result>)

in this order. Two closures have other causes as well. ``Shrink`` without a record must be the owner's wish (the run
was wider than desired) or a failure (the entry closes a lease of the run ``NodeFailure``); ``ReclaimedBySpare``
without one needs a spare that takes over (``Swap``) on GPUs that the run sat on.

A lottery is drawn again. Its intent was frozen by an earlier entry, and is the same to the last byte; the beacons
are all that were published, each with the next index and value of its chain; commit, seed and order follow; and the
runs that are cut are the beginning of the order, each of them whole. (subject, activation) is frozen once and
resolved once; and none is frozen while another waits, also if its subject was served without it in the meantime: one
reveal would decide two draws.

The tokens are recounted at the freeze. Each is a run of that owner, holds as many Active GPUs in scope, and has run for
``activationLead``. A run that could have been drawn and is no token must have lost what it held in scope by other steps
when the draw is resolved: nobody is left out unnoticed. The scope is the envelopes of a Budget's shortage; for a
reservation, the domains of its plan, on nodes that no older reservation claims at that very fact, whatever the same
entry did before and does after.

Not seen from here: that no shorter beginning of the order would have done, since that takes the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tenure.audit.books import Books, Holding, Order, RunBook
from tenure.audit.invariants import CUT, LIVENESS, Invariant
from tenure.audit.promises import LENIENCY
from tenure.audit.redraw import intent_faults, result_faults
from tenure.audit.report import Value, Violation, listed, moment
from tenure.draw import Intent, Token
from tenure.facts import Cut, CutKind, Froze, Lease, Published, Reservation, Resolved
from tenure.units import SECOND, Instant, Micros, format_time, parse_duration, parse_time

STEPS: tuple[CutKind, ...] = ("Reclaim", "Overstay", "DropSpare", "Shrink", "Lottery")
"""The kinds of cuts, in the order in which the resolver takes them."""
CLOSURES: dict[CutKind, str] = {
    "Reclaim": "ReclaimedBySpare", "Overstay": "Overstay", "DropSpare": "DropSpare", "Shrink": "Shrink",
}  # fmt: skip
"""What a lease closes with, by the kind of its cut; a lottery's closure holds the seed."""
WHOLE: tuple[CutKind, ...] = ("Overstay", "Lottery")
"""Kinds that end all of a run."""


@dataclass(slots=True)
class Draw:
    """A draw that waits for its reveals."""

    froze: Froze
    entry: int
    promised: dict[str, Reservation]
    """By run: what was promised when it was frozen."""
    elastic: dict[str, list[Holding]] = field(default_factory=dict)
    """What elastic runs held when it was frozen."""
    domains: tuple[str, ...] = ()
    """Where room is to be made, if it is machines that are short."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Runs that could have been drawn and are no tokens: the leases that they held in scope."""


@dataclass(slots=True)
class Acts:
    """What one entry did that somebody may have to answer for."""

    opened: list[Lease] = field(default_factory=list)
    inherited: dict[str, str] = field(default_factory=dict)
    """Leases that go on in the place of others, which were asked to end: why."""
    ended: dict[str, tuple[Lease, str]] = field(default_factory=dict)
    """Leases whose end the entry decided, and why."""
    widths: dict[str, int] = field(default_factory=dict)
    """GPUs that a run worked on before the first of its leases was to end."""
    frozen: list[str] = field(default_factory=list)
    resolved: list[tuple[Resolved, Draw | None]] = field(default_factory=list)

    def open(self, lease: Lease, *, leaving: set[str]) -> None:
        self.opened.append(lease)
        if len(leaving) == 1:
            self.inherited[lease.key] = next(iter(leaving))

    def end(self, lease: Lease, reason: str, run: RunBook) -> None:
        if lease.run_key not in self.widths:
            staying = (one.lease for one in run.leases.values() if not one.ending and one.lease.role != "Spare")
            self.widths[lease.run_key] = sum(len(one.gpus) for one in staying)
        if self.inherited.get(lease.key) != reason:
            self.ended.setdefault(lease.key, (lease, reason))


class CutWatch:
    """Follows draws and cuts."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._chains: dict[str, tuple[int, str]] = {}
        """The last value that is known of each beacon's chain, and its index."""
        self._draws: dict[str, Draw] = {}
        self._frozen: set[tuple[str, int]] = set()
        self._resolved: set[tuple[str, int]] = set()
        self.passed_over: dict[tuple[str, int], list[str]] = {}
        """Of each draw, by subject and activation: who of its order was not there any more when it was resolved."""

    # --- one fact ---------------------------------------------------------------------------------------------

    def publish(self, fact: Published) -> None:
        """A chain is published; draws that wait for an old one of that name are void."""
        self._chains[fact.beacon] = (0, fact.root)
        self._books.custodians.add(fact.beacon)
        for subject, draw in list(self._draws.items()):
            if any(beacon.id == fact.beacon for beacon in draw.froze.intent.beacons):
                del self._draws[subject]
                self._books.draws.pop(subject, None)

    def freeze(self, fact: Froze, acts: Acts, *, at: Instant) -> Iterator[Violation]:
        subject, number = subject_of(fact.intent), fact.intent.activation
        if subject in self._draws or (subject, number) in self._frozen | self._resolved:
            message = f"is frozen a second time for activation {number}"
            yield _violation(subject, message, at=at, expected="one draw", found="frozen already")
        for other in sorted(self._draws.keys() - {subject}):
            message = "is frozen while another draw waits for the same reveal"
            yield _violation(subject, message, at=at, expected="one draw at a time", found=other)
        for what, expected, found in [*intent_faults(fact.intent), *self._chain_faults(fact.intent)]:
            yield _violation(subject, f"has an intent that {what}", at=at, expected=expected, found=found)
        self._frozen.add((subject, number))
        draw = self._draws[subject] = Draw(fact, self._books.entry, dict(self._books.reservations))
        for one in _staying(self._books.leases.values()):
            run = self._books.run(one.lease.run_key).run
            if run is not None and run.spec.malleable is not None:
                draw.elastic.setdefault(one.lease.run_key, []).append(one)
        self._books.draws[subject] = fact
        acts.frozen.append(subject)

    def resolve(self, fact: Resolved, acts: Acts, *, at: Instant) -> Iterator[Violation]:
        if (fact.subject, fact.activation) in self._resolved:
            message = f"is resolved a second time for activation {fact.activation}"
            yield _violation(fact.subject, message, at=at, expected="one resolution", found="resolved already")
        self._resolved.add((fact.subject, fact.activation))
        draw = self._draws.get(fact.subject)
        if draw is not None and draw.froze.intent.activation != fact.activation:
            draw = None  # it waits on: what is resolved without it does not spend it
        if draw is not None:
            del self._draws[fact.subject]
            self._books.draws.pop(fact.subject, None)
        acts.resolved.append((fact, draw))
        if fact.intent is not None and fact.result is not None:
            for beacon in fact.intent.beacons:
                if beacon.id in fact.result.reveals:
                    self._chains[beacon.id] = (beacon.index, fact.result.reveals[beacon.id])

    def _chain_faults(self, intent: Intent) -> Iterator[tuple[str, str, str]]:
        named = {beacon.id: (beacon.index, beacon.previous) for beacon in intent.beacons}
        if named.keys() != self._chains.keys():
            yield "does not name the beacons that were published", listed(sorted(self._chains)), listed(sorted(named))
        for name in sorted(named.keys() & self._chains.keys()):
            index, value = self._chains[name]
            if named[name] != (index + 1, value):
                expected, found = f"c[{index + 1}] after {value}", "c[{}] after {}".format(*named[name])
                yield f"does not follow the chain of {name}", expected, found

    # --- after an entry ---------------------------------------------------------------------------------------

    def after(self, acts: Acts, *, head: str | None, at: Instant) -> Iterator[Violation]:
        """What the entry froze, resolved and cut, now that it is folded whole."""
        for subject in acts.frozen:
            if subject in self._draws:
                yield from self._recount(subject, self._draws[subject], head=head, at=at)
        named = {
            f"{cut.run.split('/')[0]}/{name}" for fact, _ in acts.resolved for cut in fact.cuts for name in cut.leases
        }
        for key, (lease, reason) in sorted(acts.ended.items()):
            if key not in named:
                yield from self._unrecorded(lease, reason, acts, at=at)
        for fact, draw in acts.resolved:
            yield from self._resolution(fact, draw, acts, at=at)

    def _unrecorded(self, lease: Lease, reason: str, acts: Acts, *, at: Instant) -> Iterator[Violation]:
        match reason:
            case "Shrink":
                is_explained = self._is_wished(lease, acts) or _failed(lease, acts)
            case "ReclaimedBySpare":
                is_explained = _taken_over(lease, acts)
            case _:
                is_explained = reason not in ("DropSpare", "Overstay") and not reason.startswith("RandomPreempt")
        if not is_explained:
            message = f"ends {reason} without a resolution record"
            yield _violation(f"Lease/{lease.key}", message, at=at, expected="a record that names it", found="none")

    def _is_wished(self, lease: Lease, acts: Acts) -> bool:
        """The run was wider than its owner desires."""
        run = self._books.run(lease.run_key).run
        elastic = run.spec.malleable if run else None
        if elastic is None:
            return False
        return acts.widths[lease.run_key] > (elastic.desired_total_gpus or elastic.max_total_gpus)

    # --- a resolution -----------------------------------------------------------------------------------------

    def _resolution(self, fact: Resolved, draw: Draw | None, acts: Acts, *, at: Instant) -> Iterator[Violation]:
        steps = [STEPS.index(cut.kind) for cut in fact.cuts]
        if steps != sorted(steps):
            found = listed(cut.kind for cut in fact.cuts)
            yield _violation(fact.subject, "cuts out of order", at=at, expected=" before ".join(STEPS), found=found)
        faults = [fault for cut in fact.cuts for fault in self._cut_faults(cut, fact, acts)]
        for fault in [*faults, *self._draw_faults(fact, draw)]:
            yield _violation(fact.subject, fault[0], at=at, expected=fault[1], found=fault[2])
        yield from self._ping_pong(fact, at=at)

    def _cut_faults(self, cut: Cut, fact: Resolved, acts: Acts) -> Iterator[tuple[str, Value, Value]]:
        seed = fact.result.seed if fact.result else ""
        closure = CLOSURES.get(cut.kind, f"RandomPreempt({seed})")
        gpus = 0
        for key in (f"{cut.run.split('/')[0]}/{name}" for name in cut.leases):
            lease, reason = acts.ended.get(key, (None, "none"))
            gpus += len(lease.gpus) if lease else 0
            if reason != closure:
                yield f"cuts {key}, which does not end so in its entry", closure, reason
            elif lease and (lease.run_key, lease.owner) != (cut.run, cut.owner):
                yield f"cuts {key} as somebody else's", f"{lease.run_key} of {lease.owner}", f"{cut.run} of {cut.owner}"
            elif lease and cut.kind == "DropSpare" and lease.role != "Spare":
                yield f"drops {key}, which is no spare", "Spare", lease.role
        if not 0 < cut.gpus <= gpus:
            yield f"misstates the GPUs that {cut.run} gave up", f"1 to {gpus}", cut.gpus
        kept = sorted(key for key, one in self._books.run(cut.run).leases.items() if not one.ending)
        if cut.kind in WHOLE and kept:
            yield f"cuts {cut.run} in part", "the whole run", f"kept: {listed(kept)}"

    def _is_still_there(self, key: str, intent: Intent, draw: Draw | None) -> bool:
        """Whether a run still runs as it did at the freeze: one that is over, or began anew, is passed over; and so is
        one that has nothing there any more, since a spare took over elsewhere, or it grew elsewhere and gave up all
        that it had there before anybody was drawn."""
        book = self._books.run(key)
        started = book.life.started
        kept = _staying(book.leases.values())
        return (
            any(self._in_scope(subject_of(intent), draw, kept) if draw else kept)
            and started is not None
            and started <= parse_time(intent.at)
        )

    def _draw_faults(self, fact: Resolved, draw: Draw | None) -> Iterator[tuple[str, Value, Value]]:
        """What is wrong with the lottery, if there was one."""
        drawn = tuple(cut.run for cut in fact.cuts if cut.kind == "Lottery")
        if fact.intent is None or fact.result is None:
            if drawn or fact.intent or fact.result:
                yield "has a lottery without its record", "an intent and a result", "not both"
            return
        if draw is None or draw.entry == self._books.entry:
            yield (
                "is drawn without having been frozen by an earlier entry",
                "a freeze",
                "none" if draw is None else "now",
            )
        elif draw.froze.intent != fact.intent:
            yield "is drawn from another intent than was frozen", str(draw.froze.intent), str(fact.intent)
        if (subject_of(fact.intent), fact.intent.activation) != (fact.subject, fact.activation):
            found = f"{subject_of(fact.intent)}, activation {fact.intent.activation}"
            yield "is drawn for something else", f"{fact.subject}, activation {fact.activation}", found
        for what, expected, found in result_faults(fact.intent, fact.result):
            yield f"has a result that {what}", expected, found
        left = (key for key in fact.result.order if key not in drawn)
        gone = [key for key in left if not self._is_still_there(key, fact.intent, draw)]
        self.passed_over[fact.subject, fact.activation] = gone
        absent = set(gone)
        order = [key for key in fact.result.order if key not in absent]
        if list(drawn) != order[: len(drawn)]:
            yield "cuts others than were drawn first", listed(order[: len(drawn)]), listed(drawn)
        for run, leases in sorted(draw.left_out.items()) if draw and drawn else ():
            kept = [key for key in leases if key in self._books.leases and not self._books.leases[key].ending]
            if kept:
                yield f"left {run} out of the draw", f"a token for {listed(kept)}", "none"

    def _ping_pong(self, fact: Resolved, *, at: Instant) -> Iterator[Violation]:
        """The reservation of a run that was itself cut never cuts."""
        reservation = self._reservation(fact.subject)
        if reservation is not None and fact.cuts and self._books.run(reservation.run_key).life.cut:
            message = f"cuts for {reservation.run_key}, which was requeued after a cut"
            found = listed(cut.run for cut in fact.cuts)
            yield _violation(fact.subject, message, at=at, expected="no cut", found=found, rule=LIVENESS)

    # --- the tokens, recounted ----------------------------------------------------------------------------------

    def _recount(self, subject: str, draw: Draw, *, head: str | None, at: Instant) -> Iterator[Violation]:
        intent = draw.froze.intent
        for what, expected, found in (("instant", format_time(at), intent.at), ("head", head, intent.ledger_head)):
            if expected is not None and expected != found:
                yield _violation(subject, f"is frozen with another {what}", at=at, expected=expected, found=found)
        reservation, held = self._reservation(subject), dict[str, list[Lease]]()
        draw.domains = reservation.plan.domains if reservation else ()
        shielded = self._shielded(reservation, draw.promised) if reservation else set()
        for one in self._in_scope(subject, draw, _staying(self._books.leases.values())):
            if reservation is None or self._may_be_cut(one, reservation, shielded):
                held.setdefault(one.lease.run_key, []).append(one.lease)
        for token in intent.tokens:
            yield from self._token(subject, token, held.get(token.id, []), at=at)
        draw.left_out = {
            run: [lease.key for lease in held[run]]
            for run in sorted(held.keys() - {one.id for one in intent.tokens})
            if self._since(run, at=at, least=SECOND) is None and not self._gives_way_first(run, subject, draw)
        }

    def _gives_way_first(self, key: str, subject: str, draw: Draw) -> bool:
        """Whether an elastic run could give up all that it had in scope, at the freeze, and keep its minimum: whatever
        the same entry took of it then, for others, it is not in this draw."""
        run, had = self._books.run(key).run, draw.elastic.get(key, [])
        elastic = run.spec.malleable if run else None
        if elastic is None:
            return False
        groups = {one.lease.group for one in self._in_scope(subject, draw, had)}  # it gives up whole ones
        near = sum(len(one.lease.gpus) for one in had if one.lease.group in groups)
        return near <= sum(len(one.lease.gpus) for one in had) - elastic.min_total_gpus

    def _token(self, subject: str, token: Token, held: list[Lease], *, at: Instant) -> Iterator[Violation]:
        run = self._books.run(token.id).run
        owner = self._books.owner_of(run) if run else "none"
        gpus = sum(len(lease.gpus) for lease in held)
        if token.owner != owner:
            message = f"has a token of {token.id} for another owner"
            yield _violation(subject, message, at=at, expected=owner, found=token.owner)
        if not 0 < token.gpus <= gpus:
            message = f"has a token of {token.id} for GPUs that it does not hold in scope"
            yield _violation(subject, message, at=at, expected=gpus, found=token.gpus)
        earliest = self._since(token.id, at=at, late=LENIENCY)
        if earliest is not None:
            message = f"has a token of {token.id} before it has run for {self._books.policy.activation_lead}"
            yield _violation(subject, message, at=at, expected=earliest, found=moment(at), rule=LIVENESS)

    def _since(self, run: str, *, at: Instant, least: Micros = 0, late: Micros = 0) -> str | None:
        """From when on a run may be drawn, if not yet; ``least``: by who gives it that much time at any rate; ``late``:
        what its pods may have taken to be bound."""
        since, lead = self._books.run(run).running_since, parse_duration(self._books.policy.activation_lead)
        lead = max(least, lead)
        if since is None:
            return "a running run"
        return None if at - since >= lead - late else f"{moment(since + lead)} or later"

    def _in_scope(self, subject: str, draw: Draw, holdings: Iterable[Holding]) -> Iterator[Holding]:
        """Those of these leases that a draw for this subject is about."""
        if not subject.startswith("Budget/"):
            return (one for one in holdings if not draw.domains or str(one.place) in draw.domains)
        _, budget, name = subject.split("/", 2)
        name, _, lending = name.partition("/")
        payers = {(budget, name)} if lending else self._payers(budget, name)
        paid = (one for one in holdings if (one.lease.budget, one.lease.envelope) in payers)
        return (one for one in paid if one.lease.funding == "borrowed" or not lending)

    def _shielded(self, reservation: Reservation, promised: Mapping[str, Reservation]) -> set[str]:
        """Nodes that somebody claims who was promised a start before, or for whom it is held by now, and from before
        the run is over, but for those that were promised to it; as it was at the freeze, since the entry may have moved
        it."""
        rank, until = self._rank(reservation), reservation.plan.until
        own = promised.get(reservation.run_key, reservation)
        others = {
            share.node
            for one in promised.values()
            if one.run_key != reservation.run_key and one.state in ("Pending", "Active") and one.plan.start is not None
            if (until is None or one.plan.start < until) and (self._rank(one) < rank or self._is_held(one))
            for share in one.plan.shares
        }  # fmt: skip
        return others - {share.node for share in own.plan.shares}

    def _rank(self, one: Reservation) -> tuple[int, Order]:
        return one.turn, self._books.order_of(one.run_key)

    def _is_held(self, one: Reservation) -> bool:
        """Whether something is held for a start. While the draw of this activation waits nobody gave way for it."""
        froze = self._books.draws.get(f"Reservation/{one.key}")
        return one.state == "Active" and (froze is None or froze.intent.activation != one.activation)

    def _may_be_cut(self, one: Holding, reservation: Reservation, shielded: Container[str]) -> bool:
        """Whether it is for this reservation to cut a lease."""
        mine, theirs = (self._books.run(key).run for key in (reservation.run_key, one.lease.run_key))
        if mine and theirs and mine.spec.resources.gpu_type != theirs.spec.resources.gpu_type:
            return False
        return one.lease.run_key != reservation.run_key and one.lease.node not in shielded

    def _payers(self, budget: str, name: str) -> set[tuple[str, str]]:
        spec = self._books.budgets[budget].spec if budget in self._books.budgets else None
        caps = [cap for cap in spec.aggregate_caps if cap.name == name] if spec else []
        return {(budget, name)} | {(budget, envelope) for cap in caps for envelope in cap.envelopes}

    def _reservation(self, subject: str) -> Reservation | None:
        one = self._books.reservations_by_name.get(subject.removeprefix("Reservation/"))
        return self._books.reservations.get(one) if one else None


def _staying(holdings: Iterable[Holding]) -> Iterator[Holding]:
    """The Active leases of these, less those that were asked to end."""
    return (one for one in holdings if one.lease.role == "Active" and not one.ending)


def subject_of(intent: Intent) -> str:
    """What a draw is for: a reservation, or (without a namespace) an envelope or a cap."""
    ref = intent.reservation
    return f"Reservation/{ref.namespace}/{ref.name}" if ref.namespace else f"Budget/{ref.name}"


def _failed(lease: Lease, acts: Acts) -> bool:
    """The entry closes a lease of the same run because its node has failed."""
    return any(one.run_key == lease.run_key and reason == "NodeFailure" for one, reason in acts.ended.values())


def _taken_over(lease: Lease, acts: Acts) -> bool:
    """A spare that the run sat on takes over."""
    taken = Counter((one.node, gpu) for one in acts.opened if one.reason == "Swap" for gpu in one.gpus)
    reclaimed = (one for one, reason in acts.ended.values() if reason == "ReclaimedBySpare")
    return any((one.node, gpu) in taken for one in reclaimed if one.run_key == lease.run_key for gpu in one.gpus)


def _violation(
    thing: str, message: str, *, at: Instant, expected: Value, found: Value, rule: Invariant = CUT
) -> Violation:
    return Violation(invariant=rule.name, at=at, object=thing, message=message, expected=expected, found=found)
