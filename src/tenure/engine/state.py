"""The whole state: what the facts say.

``fold`` is the only way the state changes, and it only ever follows a fact: a state folded from the ledger and one that
decided the same facts itself are equal. A fact costs what it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from tenure.api.defaults import owner_of
from tenure.engine.demand import asks, compile_demand
from tenure.engine.indexes import Indexes, waits
from tenure.engine.meters import Meter
from tenure.engine.notices import take_back
from tenure.engine.queue.age import Rank
from tenure.engine.queue.order import Queue
from tenure.engine.rows import (
    HINDERED,
    MILESTONES,
    PodRow,
    RunRow,
    bound_of,
    claims,
    is_late,
    named,
    names,
    spares_first,
)
from tenure.engine.timeline.timeline import GRACE
from tenure.engine.topology import is_ready
from tenure.facts import (
    Cleared,
    Closed,
    Decided,
    Ending,
    Fact,
    Froze,
    Life,
    Moved,
    Noted,
    Opened,
    Placed,
    Published,
    PutBudget,
    PutNamespace,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Reservation,
    Reserved,
    Resolved,
    Seen,
    Warned,
)
from tenure.units import FOREVER, Instant, parse_duration

__all__ = ["GRACE", "HINDERED", "MILESTONES", "PodRow", "Queue", "Rank", "RunRow", "State", "spares_first"]


class State(Indexes):
    """Everything the engine knows. Changed by ``fold`` alone."""

    def fold(self, fact: Fact, at: Instant) -> None:
        """Let one fact be so, from ``at`` on."""
        self.now = max(self.now, at)
        _FOLDS[type(fact)](self, fact, at)

    # -- objects --

    def _put_namespace(self, fact: PutNamespace, at: Instant) -> None:
        name = fact.object.metadata.name
        was, self.namespaces[name] = owner_of(self.namespaces.get(name)), fact.object
        if was != owner_of(fact.object):
            self._owner_changed(name)

    def _put_budget(self, fact: PutBudget, at: Instant) -> None:
        budget = fact.object
        old = self.budgets.get(budget.metadata.name)
        if old is not None:
            self.family.remove(old.spec.owner, old.spec.parents)
        self.family.add(budget.spec.owner, budget.spec.parents)
        self._terms_changed(self.books.put(budget, at=at), old)
        if old is None or (old.spec.owner, old.spec.parents) != (budget.spec.owner, budget.spec.parents):
            self._family_changed()

    def _put_node(self, fact: PutNode, at: Instant) -> None:
        before = self.topology.rows.get(fact.object.metadata.name)
        was = (before.site, before.labels) if before else None
        flavors = {before.site.flavor} if before and before.site else set()
        row = self.topology.put(fact.object)
        self.timeline.touch(row.name)
        flavors |= {row.site.flavor} if row.site else set()
        for flavor in flavors:
            if (row.site, row.labels) == was:
                self.changes.gain_node(flavor, row.name)
                self.changes.lose_node(flavor, row.name)
            else:
                self.changes.gain_all(flavor)
        self.came_free(flavors)
        if is_ready(fact.object):
            self.unready.pop(row.name, None)
        elif row.name not in self.unready:
            self.unready[row.name] = at
            self.agenda.wake(at + parse_duration(self.policy.unready_debounce), "unready", row.name)

    def _put_run(self, fact: PutRun, at: Instant) -> None:
        run = fact.object
        row = self.runs.get(f"{run.metadata.namespace}/{run.metadata.name}")
        if row is None:
            row = self.runs[f"{run.metadata.namespace}/{run.metadata.name}"] = RunRow(run, Life(attempt=fact.attempts))
        else:
            self._unqueue(row)
            changed = asks(row.run) != asks(run)
            row.run, row.demand = run, compile_demand(run)
            if changed:
                row.ask_since(at)
            if row.key in self.reservations:
                self.changes.gain_all(row.demand.flavor)  # what is promised to it may not be what it may have any more
            self._look_at_width(row)
            self._may_give_way(row)
        self._enqueue(row)

    def _removed(self, fact: Removed, at: Instant) -> None:
        self.departed.add("/".join(filter(None, (fact.kind, fact.namespace, fact.name))), at)
        if fact.kind == "Budget":
            budget = self.budgets[fact.name]
            self.family.remove(budget.spec.owner, budget.spec.parents)
            self._terms_changed(self.books.remove(fact.name, at=at), budget)
            self._family_changed()
        elif fact.kind == "Node":
            site = self.topology.rows[fact.name].site
            self.topology.remove(fact.name)
            self.timeline.touch(fact.name)
            if site is not None:
                self.changes.gain_all(site.flavor)
            self.came_free({site.flavor} if site else ())
            self.unready.pop(fact.name, None)
        elif fact.kind == "Namespace":
            if owner_of(self.namespaces.pop(fact.name, None)):
                self._owner_changed(fact.name)
        else:
            row = self.runs.pop(f"{fact.namespace}/{fact.name}")
            assert not row.leases, "a run is removed after its last lease is closed"
            assert not row.pods, "a run is removed after its last pod is gone"
            self._unqueue(row)
            self._drop_timers(row)

    def _put_policy(self, fact: PutPolicy, at: Instant) -> None:
        self.restore_policy(fact.policy, known=True)
        self.changes.everything()
        self._all_changed()
        for fund in self.books.funds.values():
            self.agenda.rearm(fund)
        self._watch_unready()

    # -- leases and pods --

    def _opened(self, fact: Opened, at: Instant) -> None:
        lease = fact.lease
        self.register(lease)
        self.agenda.rearm(self.books.open(lease))
        row = self.runs[lease.run_key]
        self._look_at_width(row)
        row.counters.opened(lease)
        if not waits(row.life):  # of who starts it is said next; until then its life is that of an earlier attempt
            self.expect(row)
        row.meters.setdefault((lease.funding, lease.payer), Meter()).open(len(lease.gpus), at=lease.start)

    def _ending(self, fact: Ending, at: Instant) -> None:
        for name in fact.leases:
            self.ending[f"{fact.namespace}/{name}"] = fact.reason
            lease = self.leases[f"{fact.namespace}/{name}"]
            self.timeline.leaving(lease, at)
            self.agenda.rearm(self.books.leave(lease))
        row = self.runs[f"{fact.namespace}/{fact.run}"]
        self._look_at_width(row)
        self.came_free({row.demand.flavor} if fact.leases else ())  # soon
        for name in fact.pods:
            pod = self.pods[f"{fact.namespace}/{name}"]
            pod.stop = True
            if pod.phase in ("Placed", "Bound"):  # what has ended by itself ended then, not now
                pod.since = at
            self.leaving[pod.pod.key] = pod

    def _closed(self, fact: Closed, at: Instant) -> None:
        for name in fact.leases:
            lease = self.leases.pop(f"{fact.namespace}/{name}")
            self.ending.pop(lease.key, None)
            self.topology.release(lease)
            fund = self.books.close(lease, end=fact.end)
            self.books.leaving.discard(lease.key)
            if fact.reason not in ("Refund", "Swap"):  # what changes hands is opened again
                self.books.relieved(fund, at=fact.end)
                take_back(self.books, fund, self.policy, now=at)
            row = self.runs[lease.run_key]
            del row.leases[name]
            self._look_at_width(row)
            row.meters[lease.funding, lease.payer].close(len(lease.gpus), at=fact.end)
            self.agenda.rearm(fund)
            self.timeline.closed(lease, fact.end)
            self.came_free({row.demand.flavor})

    def _placed(self, fact: Placed, at: Instant) -> None:
        row = PodRow(fact.pod, at)
        self.pods[fact.pod.key] = row
        run = self.runs[fact.pod.run_key]
        run.pods[fact.pod.name] = row
        run.counters.placed(fact.pod)

    def _seen(self, fact: Seen, at: Instant) -> None:
        row = self.pods[f"{fact.namespace}/{fact.pod}"]
        row.phase, row.code, row.message = fact.phase, fact.code, fact.message
        row.since = at if fact.since is None else min(at, max(row.since, fact.since))

    def _cleared(self, fact: Cleared, at: Instant) -> None:
        for name in fact.pods:
            row = self.pods.pop(f"{fact.namespace}/{name}")
            self.leaving.pop(row.pod.key, None)
            del self.runs[row.pod.run_key].pods[name]

    # -- lives --

    def _moved(self, fact: Moved, at: Instant) -> None:
        row = self.runs[f"{fact.namespace}/{fact.run}"]
        waited = waits(row.life)
        if waited:
            self._leaves_room(row)
            if not waits(fact.life):
                self.queue.remove(row.key)
        old, row.life = row.life, fact.life
        if old.started != fact.life.started:
            self._may_give_way(row)
        begins = waited and not waits(fact.life)
        if begins or (old.started, old.bound) != (fact.life.started, fact.life.bound):
            self.expect(row)
            self._arm_bound(row)
        self._look_at_width(row)
        if waits(fact.life):
            self._set_timers(row)
            if waited:
                self.line_up(row)
            else:
                self._enqueue(row)
        elif waited:
            self._drop_timers(row)

    def _warned(self, fact: Warned, at: Instant) -> None:
        fund = self.books.warned(fact, at=at)
        if fund is None:
            self.changes.everything()
        else:
            self.changes.gain_fund(fund.key)
            self.changes.lose_fund(fund.key)
            self.agenda.rearm(fund)

    # -- reservations and draws --

    def _reserved(self, fact: Reserved, at: Instant) -> None:
        one, row = fact.reservation, self.runs[fact.reservation.run_key]
        self.promised = max(self.promised, one.turn)
        old, flavor = self.reservations.get(one.run_key), row.demand.flavor
        if old is not None and claims(old) and (not claims(one) or one.plan != old.plan):
            for share in old.plan.shares:
                self.changes.gain_node(flavor, share.node)
            for part in old.plan.segments:
                self.changes.gain_fund((part.budget, part.envelope))
            if old.confidence == "conservative":
                self._held_on(flavor, old)
        if old is not None and self._spares_any(old, one if claims(one) else None):
            self._are_not_cut(names(old))
        if one.confidence == "conservative" and claims(one) and (old is None or one.plan != old.plan):
            for share in one.plan.shares:  # what is cut for it is free when it is over
                self.changes.gain_node(flavor, share.node)
        self._leaves_room(row)
        if one.state == "Active" and (old is None or old.plan != one.plan):
            self._held_on(flavor, one)  # those who were to have this by cuts, or after it, are to be looked at
            self.came_free({flavor})
        if one.state not in ("Released", "Canceled"):
            self.restore_reservation(one)
            return
        if old is not None and old.plan.start is not None and (is_late(old) or (bound_of(old) or 0) < at):
            self._held_on(flavor, old)  # who starts late is there for that much longer
        self.reservations.pop(one.run_key, None)
        self.promises.get(flavor, {}).pop(one.run_key, None)
        self.void.discard(f"Reservation/{one.key}")
        self.promise_asked.pop(one.run_key, None)
        self.promise_moved.pop(one.run_key, None)
        self.promise_funds.pop(one.run_key, None)
        self.promise_unpaid.pop(one.run_key, None)
        self._paid_for(row)
        self.late.set(FOREVER, one.run_key)
        self.timeline.remove_claim(one.run_key)
        self.arm(one)
        self.line_up(row)
        if one.state == "Canceled" or (old is not None and claims(old)):
            self.came_free({flavor})  # what it protected is for others

    def _spares_any(self, old: Reservation, new: Reservation | None) -> bool:
        """True if somebody whom a promise named is named no more, or does not count as gone any more."""
        after, counted = (names(new), named(new, self.draws)) if new is not None else (set[str](), set[str]())
        return bool(names(old) - after or named(old, self.draws) - counted)

    def _published(self, fact: Published, at: Instant) -> None:
        """A chain that is begun anew leaves draws that named the old one without a reveal: they are void."""
        self.beacons[fact.beacon], self.roots[fact.beacon] = (0, fact.root), fact.root
        void = {subject for subject, draw in self.draws.items()
                if any(beacon.id == fact.beacon for beacon in draw.intent.beacons)}  # fmt: skip
        self.draws = {subject: draw for subject, draw in self.draws.items() if subject not in void}
        self.void |= void
        for fund in self.books.funds.values():
            self.agenda.rearm(fund)  # what waited for a draw need not wait any more
        self._look_at_due(void)

    def _look_at_due(self, void: Container[str] = ()) -> None:
        """Reservations whose start could not be made because a draw was in the way, or is ``void``, are tried again."""
        for one in self.reservations.values():
            due = one.state == "Pending" and one.plan.start is not None and one.plan.start <= self.now
            if due or f"Reservation/{one.key}" in void:
                self.agenda.run_changed(one.run_key)

    def _froze(self, fact: Froze, at: Instant) -> None:
        self.draws[fact.subject] = fact
        self.void.discard(fact.subject)
        if fact.subject.startswith("Budget/"):
            self.activations[fact.subject] = fact.intent.activation

    def _resolved(self, fact: Resolved, at: Instant) -> None:
        froze = self.draws.get(fact.subject)
        if froze is not None and froze.intent.activation == fact.activation:  # one of another activation waits on
            del self.draws[fact.subject]
            for one in self.reservations.values():
                if fact.subject == f"Reservation/{one.key}":
                    self._are_not_cut(names(one))
        if fact.subject.startswith("Budget/"):
            self.resolutions[fact.subject] = (at, fact)
            self.activations[fact.subject] = fact.activation
        if fact.intent is not None and fact.result is not None:
            for beacon in fact.intent.beacons:
                self.beacons[beacon.id] = (beacon.index, fact.result.reveals[beacon.id])
            self._look_at_due()

    def _told(self, fact: Decided | Noted, at: Instant) -> None:
        """Explanations and notices are for people: the ledger keeps them, no decision reads them."""


_FOLDS: dict[type, Callable[[State, Any, Instant], None]] = {
    PutNamespace: State._put_namespace,
    PutBudget: State._put_budget,
    PutNode: State._put_node,
    PutRun: State._put_run,
    PutPolicy: State._put_policy,
    Removed: State._removed,
    Opened: State._opened,
    Ending: State._ending,
    Closed: State._closed,
    Placed: State._placed,
    Seen: State._seen,
    Cleared: State._cleared,
    Moved: State._moved,
    Warned: State._warned,
    Reserved: State._reserved,
    Published: State._published,
    Froze: State._froze,
    Resolved: State._resolved,
    Decided: State._told,
    Noted: State._told,
}
