"""All that the engine knows, and the indexes over it.

Facts are kept by what they are of; every index has one owner (``Books``, ``Family``, ``Topology``, ``Queue``,
``Timeline``, ``Agenda``), and what is kept here is brought up to date where a fact touches it. Closed leases are gone;
the ledger keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenure.api.budget import Budget
from tenure.api.core import Namespace, Node
from tenure.api.defaults import owner_of
from tenure.api.policy import Policy
from tenure.engine.agenda import Agenda, Timers
from tenure.engine.books import Books, Fund, FundKey
from tenure.engine.family import Family
from tenure.engine.names import Departed
from tenure.engine.plan import World
from tenure.engine.queue.age import Age, Rank
from tenure.engine.queue.changes import Changes
from tenure.engine.queue.order import Queue
from tenure.engine.rows import (
    MILESTONES,
    PodRow,
    RunRow,
    bound_of,
    claims,
    held,
    is_late,
    spares_first,
)
from tenure.engine.timeline.timeline import GRACE, Timeline
from tenure.engine.topology import Topology
from tenure.facts import (
    GENESIS,
    Froze,
    Lease,
    Life,
    Reservation,
    Resolved,
)
from tenure.units import FOREVER, HOUR, Instant, Micros, parse_duration


class Indexes:
    """Everything the engine knows, and where to find it."""

    def __init__(self, fleet: str = "") -> None:
        self.fleet = fleet
        self.head = GENESIS
        """The hash of the ledger's last entry: set by whoever keeps the ledger, before each step."""
        self.now: Instant = 0
        self.settled: Instant = 0
        """When the last decided entry was made: timers are those of then, whoever looked at them since in vain."""
        self.namespaces: dict[str, Namespace] = {}
        self.runs: dict[str, RunRow] = {}
        self.departed = Departed()
        self.leases: dict[str, Lease] = {}
        self.ending: dict[str, str] = {}
        """Leases that close with this reason as soon as their pods are gone."""
        self.pods: dict[str, PodRow] = {}
        self.leaving: dict[str, PodRow] = {}
        """Of those, the ones that were asked to leave."""
        self.reservations: dict[str, Reservation] = {}
        """By run: promises that are neither Released nor Canceled."""
        self.promised = 0
        """How many starts were promised so far."""
        self.promises: dict[str, dict[str, Reservation]] = {}
        """By flavor and run: those of the reservations that protect something."""
        self.unpaid: dict[str, dict[str, set[str]]] = {}
        """By flavor, and by the owner whose places count: runs that say for all of them that money is short."""
        self.late: Timers[str] = Timers()
        """Runs whose start has come and is not made yet: until when their slice is held, if not for longer."""
        self.beacons: dict[str, tuple[int, str]] = {}
        """Custodians' chains: the index that was revealed last, and its value. Index 0 is what was published."""
        self.roots: dict[str, str] = {}
        """What each custodian published."""
        self.draws: dict[str, Froze] = {}
        """By subject: draws that wait for their reveals."""
        self.void: set[str] = set()
        """Subjects whose draw can never be revealed, since a chain was begun anew: what is due is drawn anew."""
        self.resolutions: dict[str, tuple[Instant, Resolved]] = {}
        """By subject, for those without a reservation: when the resolver last ran, and what it did."""
        self.activations: dict[str, int] = {}
        """Of the same, the number that was used last: also by a draw that came to nothing."""
        self.books = Books()
        self.family = Family()
        self.changes = Changes()
        self.queue = Queue()
        self.promise_asked: dict[str, int] = {}
        """By run: at which number of changes its promise was last found not to start yet; no fact."""
        self.promise_moved: dict[str, int] = {}
        """And when it was last found not to be planned earlier."""
        self.promise_funds: dict[str, tuple[int, frozenset[FundKey]]] = {}
        """And who might pay for it, as found at some number."""
        self.promise_unpaid: dict[str, int] = {}
        """And at which number it was last found that nobody can pay for it yet."""
        self.takers: dict[str, set[str]] = {}
        """By flavor, running runs that may grow, or have spares."""
        self.agenda = Agenda()
        self.unready: dict[str, Instant] = {}
        """Nodes that are not ready, and since when."""
        self.policy = Policy()
        self.policy_known = False
        """True once a policy was recorded; the defaults count from then on like any other."""
        self.topology = Topology(self.policy)
        self.timeline = Timeline(self.topology, self.changes)

    @property
    def world(self) -> World:
        return World(self.books, self.family, self.topology, parse_duration(self.policy.lookahead))

    @property
    def budgets(self) -> dict[str, Budget]:
        return self.books.budgets

    # -- indexes --

    def _enqueue(self, row: RunRow) -> None:
        if waits(row.life):
            self._queue_up(row)
            self.agenda.run_changed(row.key)
            self._set_timers(row)

    def _queue_up(self, row: RunRow) -> None:
        self.queue.add(row.key, row.order, row.demand, owner=self.place_owner(row), ran=row.life.admitted,
                       in_line=self._is_in_line(row, self.now))  # fmt: skip

    def line_up(self, row: RunRow, now: Instant = 0) -> None:
        """Let a waiting run stand in line if it is free to start, and holds no promise."""
        if waits(row.life):
            self.queue.put_in_line(row.key, in_line=self._is_in_line(row, max(now, self.now)))

    def _is_in_line(self, row: RunRow, now: Instant) -> bool:
        return row.key not in self.promises.get(row.demand.flavor, ()) and row.life.not_before <= now

    def place_owner(self, row: RunRow) -> str:
        """The owner whose places a run counts against: the one that an administrator bound to its namespace, or its own
        where none is bound. Owners of a tenant's choice gain nothing."""
        return owner_of(self.namespaces.get(row.namespace)) or row.demand.owner

    def _owner_changed(self, namespace: str) -> None:
        """Runs of a namespace count against somebody else's places from now on."""
        for row in self.runs.values():
            if row.namespace == namespace and waits(row.life):
                self._paid_for(row)
                if row.key in self.reservations:
                    self._says_unpaid(self.reservations[row.key])
                self.queue.remove(row.key)
                self._queue_up(row)

    def _unqueue(self, row: RunRow) -> None:
        if waits(row.life):
            self.queue.remove(row.key)
            self._leaves_room(row)

    def _says_unpaid(self, one: Reservation) -> None:
        """A run that is Blocked for want of money says so for its owner."""
        row = self.runs[one.run_key]
        if one.state == "Blocked" and one.forecast.short:
            self.unpaid.setdefault(row.demand.flavor, {}).setdefault(self.place_owner(row), set()).add(row.key)

    def _paid_for(self, row: RunRow) -> None:
        """A run does not say for others any more that money is short."""
        for runs in self.unpaid.get(row.demand.flavor, {}).values():
            runs.discard(row.key)

    def _held_on(self, flavor: str, one: Reservation) -> None:
        """What is held for one who is late is held for longer than others were told."""
        for share in one.plan.shares:
            self.changes.lose_node(flavor, share.node)
        for part in one.plan.segments:
            self.changes.lose_fund((part.budget, part.envelope))

    def _are_not_cut(self, runs: Iterable[str]) -> None:
        """Whoever counts on the cuts of an earlier promise has to be looked at: these runs may stay."""
        for key in sorted(runs):
            for lease in self.runs[key].leases.values() if key in self.runs else ():
                row = self.topology.rows.get(lease.node)
                if row is not None and row.site is not None:
                    self.changes.lose_node(row.site.flavor, lease.node)

    def _look_at_width(self, row: RunRow) -> None:
        """Something happened to a run that may grow, shrink or take spares."""
        spec, takers = row.run.spec, self.takers.setdefault(row.demand.flavor, set())
        if row.life.phase == "Running" and (spec.malleable is not None or spec.spares_per_group):
            takers.add(row.key)
            self.agenda.elastic.add(row.key)
        else:
            takers.discard(row.key)

    def _leaves_room(self, row: RunRow) -> None:
        """Something came free as foreseen, or a waiting run perhaps no longer keeps others from taking more."""
        if self.takers.get(row.demand.flavor):
            self.agenda.room.add(row.demand.flavor)

    def expect(self, row: RunRow) -> None:
        """A declared duration is one of work: once a run works, it is known when that ends."""
        runs = row.life.phase == "Running" and row.life.started is not None
        if row.life.bound is None and (not runs or row.until is None or row.life.backfilled):
            return
        moved = [
            self.timeline.declare(one.key, end) for one in row.leases.values() if (end := row.end_of(one)) is not None
        ]
        if any(moved):
            self.came_free({row.demand.flavor})

    def _may_give_way(self, row: RunRow) -> None:
        """A run runs now, or asks for another width: what could be cut for others has changed."""
        if self.queue.lined(row.demand.flavor) and self.has_place(row.demand.flavor):
            self.came_free({row.demand.flavor})

    def has_place(self, flavor: str) -> bool:
        """True if somewhere a place is free."""
        clusters = {location[1] for location in self.topology.locations(flavor)}
        return len(self.promises.get(flavor, ())) < len(clusters) * self.policy.promise_depth

    def _arm_bound(self, row: RunRow) -> None:
        """Wake ahead of the bound of a run that was let past distant promises: it is told once more."""
        bound = row.life.bound
        at = FOREVER if bound is None else bound - parse_duration(self.policy.activation_lead)
        self.agenda.wake(at if at > self.now else FOREVER, "bound", row.key)

    def came_free(self, flavors: Iterable[str]) -> None:
        """Machines or money of these flavors may have come free, for whoever waits for them or might take more."""
        for flavor in flavors:
            if self.queue.waits(flavor):
                self.agenda.flavors.add(flavor)
            if self.takers.get(flavor):
                self.agenda.room.add(flavor)

    def _set_timers(self, row: RunRow) -> None:
        life = row.life
        if life.not_before > self.now:
            self.agenda.wake(life.not_before, "retry", row.key)
        self.agenda.wake(FOREVER if life.deadline is None else life.deadline, "deadline", row.key)

    def _drop_timers(self, row: RunRow) -> None:
        self.agenda.wake(FOREVER, "retry", row.key)
        self.agenda.wake(FOREVER, "deadline", row.key)

    def _all_changed(self) -> None:
        self.came_free({*self.queue.flavors(), *self.takers})

    def _terms_changed(self, funds: list[Fund], old: Budget | None) -> None:
        before = old.spec.envelopes if old is not None else ()
        flavors = {fund.flavor for fund in funds} | {envelope.flavor for envelope in before}
        for flavor in sorted(flavors):
            self.changes.gain_all(flavor)
        for fund in funds:
            self.agenda.rearm(fund)
        self.came_free(flavors)

    def _family_changed(self) -> None:
        """Relatives may pay with envelopes of any flavor."""
        self.changes.everything()
        self._all_changed()

    # -- coming back from an image --

    def restore_policy(self, policy: Policy, *, known: bool) -> None:
        self.policy, self.policy_known = policy, known
        old = self.topology.policy
        if (policy.topology_labels, policy.gpu_resource) != (old.topology_labels, old.gpu_resource):
            self._rebuild_topology(policy)
        self.topology.policy = policy

    def _rebuild_topology(self, policy: Policy) -> None:
        """Other label keys are another map of the same nodes."""
        old, self.topology = self.topology, Topology(policy)
        for name in sorted(old.rows):
            self.topology.put(old.rows[name].node)
        for lease in spares_first(self.leases.values()):
            self._hold(lease)
        self._rebuild_horizon()
        for fund in self.books.funds.values():
            fund.place = None

    def _rebuild_horizon(self) -> None:
        old, self.timeline = self.timeline, Timeline(self.topology, self.changes)
        for name in sorted(self.topology.rows):
            self.timeline.touch(name)
        for key in sorted(self.leases):
            self.timeline.opened(self.leases[key])
        for key in sorted(self.ending):
            self.timeline.leaving(self.leases[key], old.asked(key))
        for run in sorted(old.claims):
            claim = old.claims[run]
            self.timeline.add_claim(run, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)
        for key in sorted(self.runs):
            self.expect(self.runs[key])

    def register(self, lease: Lease) -> None:
        """Enter an open lease everywhere but in the meters."""
        assert lease.key not in self.leases, f"I5: lease {lease.key} opened twice"
        self.leases[lease.key] = lease
        self.runs[lease.run_key].leases[lease.name] = lease
        self._hold(lease)
        self.timeline.opened(lease)

    def _hold(self, lease: Lease) -> None:
        if lease.node in self.topology.rows:
            self.topology.hold(lease)

    def restore_node(self, node: Node) -> None:
        self.timeline.touch(self.topology.put(node).name)

    def restore_budget(self, budget: Budget) -> None:
        self.family.add(budget.spec.owner, budget.spec.parents)
        self.books.put(budget, at=0)

    def restore_reservation(self, one: Reservation) -> None:
        row = self.runs[one.run_key]
        self.reservations[one.run_key] = one
        promises = self.promises.setdefault(row.demand.flavor, {})
        if claims(one):
            promises[one.run_key] = one
        else:
            promises.pop(one.run_key, None)
        self._paid_for(row)
        self._says_unpaid(one)
        self.claim(one)
        self.arm(one)
        self.line_up(row)

    def arm(self, one: Reservation) -> None:
        """Wake at a planned start and at its bound, a while before it so that people hear that it comes near, and when
        others are to hear that it is late."""
        start = one.plan.start if one.state == "Pending" and one.plan.start is not None else FOREVER
        due = FOREVER if start == FOREVER else bound_of(one) or start
        later = held(one, self.runs[one.run_key].demand.duration, now=self.now)[1] if is_late(one) else FOREVER
        wakes = (at for at in (start, due, due + GRACE, later) if self.now < at < FOREVER)
        self.agenda.wake(min(wakes, default=FOREVER), "activate", one.run_key)
        near = (start - before for before in MILESTONES if self.now < start - before < FOREVER - HOUR)
        self.agenda.wake(min(near, default=FOREVER), "countdown", one.run_key)

    def claim(self, one: Reservation) -> None:
        """Protect what a reservation plans: only Pending and Active ones of fundable demand do (SPEC 7)."""
        plan, due = held(one, self.runs[one.run_key].demand.duration, now=self.now)
        self.late.set(FOREVER if plan.until is None else due, one.run_key)
        row = self.runs[one.run_key]
        if claims(one):
            cuts = one.state == "Active" or one.confidence == "conservative"
            self.timeline.add_claim(one.run_key, row.demand.flavor, plan, self.period(row), cuts=cuts)
        else:
            self.timeline.remove_claim(one.run_key)

    def hold_late(self, now: Instant) -> None:
        """Go on holding what is held for those who are late."""
        for _, key in self.late.due(now):
            claim = self.timeline.claims.get(key)
            if claim is not None:
                self.now = max(self.now, now)
                self.claim(self.reservations[key])
                self._held_on(claim.flavor, self.reservations[key])

    def rank(self, row: RunRow) -> Rank:
        """The order of promises, by their numbers; who has none comes last, and of those the older first."""
        one = self.promises.get(row.demand.flavor, {}).get(row.key)
        return (FOREVER if one is None else one.turn, row.order)

    def period(self, row: RunRow) -> Micros:
        """The time for which a claim needs hours: its declared duration, or the look-ahead."""
        return row.demand.duration or max(1, parse_duration(self.policy.lookahead))

    def look_ahead(self, now: Instant) -> Timeline:
        """The known future, as it looks now."""
        late = self.timeline.pass_time(now, backfilled=lambda lease: self.runs[lease.run_key].life.backfilled)
        for fund in self.books.bound_with(late) if late else ():
            self.foresee(fund, now)
        return self.timeline

    def overdue_before(self, row: RunRow, *, now: Instant) -> tuple[str, ...]:
        """Leases of backfill that is overdue, and gone when a run starts: it is the first to go. A run that was cut has
        nobody sent away; it counts on those alone who are a moment late."""
        overdue = tuple(self.timeline.overdue)
        if not row.life.cut:
            return overdue
        lives = {key: self.runs[self.leases[key].run_key].life for key in overdue}
        return tuple(key for key, one in lives.items() if now < (one.bound or one.until or 0) + GRACE)

    def foresee(self, fund: Fund, now: Instant) -> bool:
        """When money that runs out will end what it pays for; True if that is news."""
        resolves = self.policy.on_budget_shortage == "Resolve"
        return self.timeline.fund_ends(fund.key, *(fund.foreseen(now) if resolves else (None, None)))

    def restore_queue(self) -> None:
        """Line up all who wait, oldest first: each one at the end, since a place in the midst of a long line costs as
        much as the line is long."""
        for row in sorted((row for row in self.runs.values() if waits(row.life)), key=_age):
            self._queue_up(row)

    def mark_all(self) -> None:
        """Let everything be looked at, as if all had just been recorded. A settled world starts nothing then."""
        self.changes.everything()
        for row in self.runs.values():
            if waits(row.life):
                if row.life.not_before or row.key in self.promises.get(row.demand.flavor, ()):
                    self.line_up(row)  # all others stand in line since they wait
                self.agenda.run_changed(row.key)
                self._set_timers(row)
            elif row.life.bound is not None:
                self._arm_bound(row)
            self._look_at_width(row)
        self.came_free(self.topology.flavors())
        for fund in self.books.funds.values():
            self.agenda.rearm(fund)
        self._watch_unready()

    def _watch_unready(self) -> None:
        for node, since in self.unready.items():
            self.agenda.wake(since + parse_duration(self.policy.unready_debounce), "unready", node)

    def must_wait(self, pod: PodRow) -> bool:
        """Whether work that gave way to this new pod has not left its GPUs yet: until then the pod must not start."""
        if pod.phase != "Placed" or pod.stop:
            return False
        here = (other.pod.gpus for other in self.leaving.values() if other.pod.node == pod.pod.node)
        return any(not set(gpus).isdisjoint(pod.pod.gpus) for gpus in here)

    def leases_on(self, node: str) -> Iterator[Lease]:
        row = self.topology.rows.get(node)
        for key in sorted(row.leases) if row else ():
            yield self.leases[key]


def _age(row: RunRow) -> Age:
    return row.order


def waits(life: Life) -> bool:
    return life.phase == "Pending" and not life.deleting
