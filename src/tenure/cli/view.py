"""A state of the engine as the port shows it: lines for tables, whole API objects on demand.

Lines are cheap and made for every row; an object with its status is rendered only when somebody asks for that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from tenure.api.budget import Budget, BudgetSpec
from tenure.api.core import Node, Pod
from tenure.api.meta import ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Estimate, Run
from tenure.cli.port import LendingLine, NodeLine, NodeState, PodLine, RunLine, SlotLine, SponsorLine
from tenure.engine import State, render
from tenure.engine.rows import bound_of, claims
from tenure.engine.shown import Risks, of_now
from tenure.engine.state import PodRow, RunRow
from tenure.engine.topology import Location, Row, is_fenced, is_ready, slots
from tenure.engine.words import NO_TIMES, Words, is_hopeless
from tenure.facts import Lease, Reservation
from tenure.units import Instant, parse_time

if TYPE_CHECKING:
    from tenure.engine.books import Fund
    from tenure.engine.lenders import Capacity, Prospect
    from tenure.shell.estimates import Estimates

_POD_PHASES = {"Placed": "Pending", "Bound": "Running", "Succeeded": "Succeeded", "Failed": "Failed", "Gone": "Failed"}


class StateView:
    """Everything at one instant, from a state."""

    def __init__(self, state: State, *, now: Instant, estimates: Estimates | None = None) -> None:
        """``estimates``: what knows when waiting runs are likely to start; without it nobody does."""
        self._state = state
        self.now = now
        self._words = Words(state, now=now)
        self._estimates = estimates

    @property
    def policy(self) -> Policy:
        return self._state.policy

    @cached_property
    def _risks(self) -> Risks:
        return Risks(self._state, now=self.now)

    # -- runs --

    def lines(self, namespace: str | None = None) -> list[RunLine]:
        runs, prefix = self._state.runs, f"{namespace}/"
        rows = [row for key, row in runs.items() if namespace is None or key.startswith(prefix)]
        rows.sort(key=lambda row: (row.namespace, row.name))
        return [run_line(self._state, row, self.now, self._words) for row in rows]

    def line(self, namespace: str, name: str) -> RunLine | None:
        row = self._state.runs.get(f"{namespace}/{name}")
        return None if row is None else run_line(self._state, row, self.now, self._words, fresh=True)

    def run(self, namespace: str, name: str) -> Run:
        row = self._state.runs[f"{namespace}/{name}"]
        risks = self._risks if row.leases else None  # what may be lost is what it holds
        shown = render.run(self._state, row, now=self.now, words=self._words, risks=risks)
        return likely(shown, self.estimates([row.key]).get(row.key)) if row.life.phase == "Pending" else shown

    def estimates(self, keys: Sequence[str] | None = None) -> Mapping[str, Estimate]:
        if self._estimates is None:
            return {}
        found = self._estimates.of(self._state, now=self.now, only=keys)
        return {key: one.to_api() for key, one in found.items()}

    def reservation(self, namespace: str, run: str) -> Reservation | None:
        found = self._state.reservations.get(f"{namespace}/{run}")
        return None if found is None else of_now(self._state, found, self._words)

    def leases(self, namespace: str, name: str) -> list[Lease]:
        row = self._state.runs[f"{namespace}/{name}"]
        return [row.leases[key] for key in sorted(row.leases)]

    # -- money --

    def budgets(self) -> list[Budget]:
        known = self._gone_budgets() | self._state.budgets
        return [render.budget(self._state, known[name], now=self.now) for name in sorted(known)]

    def _gone_budgets(self) -> dict[str, Budget]:
        """Of each Budget that was deleted and still pays: whose it was."""
        pay = [fund for _, fund in sorted(self._state.books.funds.items()) if fund.total.rate]
        return {
            fund.key[0]: Budget(metadata=ObjectMeta(name=fund.key[0]), spec=BudgetSpec(owner=fund.owner, envelopes=()))
            for fund in pay
        }

    def sponsors(self, namespace: str, name: str) -> list[SponsorLine]:
        from tenure.engine.lenders import prospects

        found = prospects(self._state, self._state.runs[f"{namespace}/{name}"], now=self.now)
        return [_sponsor_line(one) for one in found]

    def lending(self) -> list[LendingLine]:
        from tenure.engine.lenders import capacity

        funds = (fund for _, fund in sorted(self._state.books.funds.items()))
        wanted = [fund for fund in funds if fund.lends_to or fund.lent.rate]
        lookahead = self._state.policy.lookahead
        return [_lending_line(fund, capacity(fund, now=self.now, lookahead=lookahead), now=self.now) for fund in wanted]

    # -- pods --

    def pods(self, namespace: str | None = None, run: str | None = None) -> list[PodLine]:
        rows = [
            row
            for row in self._state.pods.values()
            if namespace in (None, row.pod.namespace) and run in (None, row.pod.run)
        ]
        rows.sort(key=lambda row: (row.pod.namespace, row.pod.run, row.pod.attempt, row.pod.rank))
        return [_pod_line(row) for row in rows]

    def pod(self, namespace: str, name: str) -> Pod:
        row = self._state.pods[f"{namespace}/{name}"]
        return render.pod(self._state.runs[row.pod.run_key], row, self._state.policy.gpu_resource)

    # -- machines --

    def nodes(self) -> list[NodeLine]:
        rows = self._state.topology.rows
        return [self._node_line(rows[name]) for name in sorted(rows)]

    def node(self, name: str) -> Node:
        return self._state.topology.rows[name].node

    def _node_line(self, row: Row) -> NodeLine:
        site = row.site
        return NodeLine(
            name=row.name, flavor=site.flavor if site else "", region=site.region if site else "",
            cluster=site.cluster if site else "", domain=site.fabric if site else "", rack=site.rack if site else "",
            gpus=row.gpus, held=row.held.bit_count(), free=row.free(), state=_node_state(row), fault=row.fault,
            leases=tuple(self._state.leases_on(row.name)),
        )  # fmt: skip

    def slots(self) -> list[SlotLine]:
        topology = self._state.topology
        places = ((flavor, place) for flavor in topology.flavors() for place in topology.locations(flavor))
        return [line for flavor, place in places for line in self._slots(flavor, place)]

    def _slots(self, flavor: str, place: Location) -> Iterator[SlotLine]:
        topology = self._state.topology
        pool = topology.pool(flavor, place, ())
        table = slots(pool)
        for fabric in sorted(topology.pool(flavor, place, (), "empty").domains):
            free = pool.domains[fabric].free if fabric in pool.domains else 0
            sizes = [(one.size, one.fit, one.ideal) for one in table.get(fabric, ())] or [(1, 0, 0)]
            for size, fit, ideal in sizes:
                yield SlotLine(flavor=flavor, region=place[0], cluster=place[1], domain=fabric, free=free, size=size,
                               fit=fit, ideal=ideal)  # fmt: skip


def likely(run: Run, estimate: Estimate | None) -> Run:
    """A run with its estimate in its status; where there are no times, its reason says why."""
    if estimate is None:
        return run
    place = run.status.queue
    if place is not None and estimate.basis == "none":
        place = msgspec.structs.replace(place, reason=f"{place.reason} {NO_TIMES[place.waits_for]}")
    return msgspec.structs.replace(run, status=msgspec.structs.replace(run.status, queue=place, estimate=estimate))


def run_line(state: State, row: RunRow, now: Instant, words: Words, *, fresh: bool = False) -> RunLine:
    """``fresh``: why it waits is told in the numbers of now, which takes a search."""
    life = row.life
    promised = state.reservations.get(row.key)
    waits = life.phase == "Pending"
    reason, message = words.told_freshly(row) if fresh else words.told(row)
    return RunLine(
        namespace=row.namespace, name=row.name, owner=row.demand.owner, flavor=row.demand.flavor,
        phase=render.run_phase(row), gpus=_asked(row), held=row.active(),
        need=row.demand.need,
        blocked=waits and is_hopeless(row),
        created=_created(row), started=life.started,
        retry_at=life.not_before if waits and life.not_before > now else None,
        planned=promised.plan.start if promised is not None else None,
        by=bound_of(promised) if promised is not None and claims(promised) else None, queue=words.queue(row),
        promise=promised.state if promised is not None else "", attempt=life.attempt,
        restarts=life.restarts, stopping=life.phase == "Stopping", requeued=waits and life.cut, reason=reason,
        message=message,
    )  # fmt: skip


def _created(row: RunRow) -> Instant | None:
    text = row.run.metadata.creation_timestamp
    if not text:
        return None
    return row.order[0] if row.asked is None else parse_time(text)


def _asked(row: RunRow) -> int:
    elastic = row.run.spec.malleable
    return row.run.spec.resources.total_gpus if elastic is None else render.desired(elastic)


def _sponsor_line(one: Prospect) -> SponsorLine:
    visit = one.visit
    if visit is None:
        return SponsorLine(place=one.place, owner=one.owner, relation="sponsor")
    return SponsorLine(
        place=one.place, owner=one.owner, relation=visit.relation, budget=visit.budget, envelope=visit.envelope,
        lends=one.lends, gpus=one.room, limit=visit.limit,
    )  # fmt: skip


def _lending_line(fund: Fund, could: Capacity, *, now: Instant) -> LendingLine:
    budget, envelope = fund.key
    return LendingLine(
        budget=budget, envelope=envelope, owner=fund.owner, flavor=fund.flavor, to=fund.lends_to, lent=fund.lent.rate,
        lent_max=fund.lending_max, used=fund.lent.used(now), committed=fund.lent_ahead.ahead(now),
        used_max=fund.lending_hours, room=could.room, bound=could.bound,
    )  # fmt: skip


def _pod_line(row: PodRow) -> PodLine:
    pod = row.pod
    return PodLine(
        namespace=pod.namespace, name=pod.name, run=pod.run, rank=pod.rank, group=pod.group, node=pod.node,
        gpus=pod.gpus, phase="Stopping" if row.stop else _POD_PHASES[row.phase], since=row.since, code=row.code,
        message=row.message, stopping=row.stop,
    )  # fmt: skip


def _node_state(row: Row) -> NodeState:
    """The first thing that keeps work away, by how bad it is."""
    node = row.node
    if row.fault is not None:
        return "Quarantined"
    if is_fenced(node):
        return "Fenced"
    if not is_ready(node):
        return "NotReady"
    if node.spec.unschedulable:
        return "Cordoned"
    if not row.gpus:
        return "NoGPUs"
    return "Ready" if row.open else "Tainted"
