"""Objects as people and programs see them: specs from the facts, statuses computed from the state, nothing stored.

The simulator's output, the CLI and the API server all show what is made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tenure.api.budget import AggregateHeadroom, Budget, BudgetStatus, Foreseen, Headroom, Shortage
from tenure.api.core import Node, Pod, PodStatus
from tenure.api.lease import Interval, Lease, LeaseSpec, LeaseStatus, Slice
from tenure.api.meta import (
    LABEL_GROUP,
    LABEL_ROLE,
    LABEL_RUN,
    Condition,
    ObjectMeta,
    RunRef,
)
from tenure.api.run import FundingStatus, Malleable, Run, RunStatus, SpareStatus, SponsorShare, Width
from tenure.engine.books import AnyLimit, Books, Cap, Fund
from tenure.engine.groups import spare_gpus
from tenure.engine.names import object_uid
from tenure.engine.reasons import sentence
from tenure.engine.rows import bound_of, claims
from tenure.engine.shown import ROOM_BYTES, Risks, drawn, likeliest
from tenure.engine.shown import reservation as reservation
from tenure.engine.state import PodRow, RunRow, State
from tenure.engine.threats import threats
from tenure.engine.words import Words
from tenure.facts import Lease as LeaseFact
from tenure.facts import Reason, Reservation
from tenure.units import HOUR, LATEST, GpuMicros, Instant, format_time, gpu_hours

_PHASES = {
    "Pending": "Pending",
    "Starting": "Pending",
    "Running": "Running",
    "Completed": "Completed",
    "Failed": "Failed",
}
_POD_PHASES = {"Placed": "Pending", "Bound": "Running", "Succeeded": "Succeeded", "Failed": "Failed", "Gone": "Failed"}
MASTER_PORT = 29500


# --- runs ---------------------------------------------------------------------------------------------------------


def run(state: State, row: RunRow, *, now: Instant, words: Words | None = None, risks: Risks | None = None) -> Run:
    """A Run with its status. ``words`` and ``risks`` are shared by who shows many: what is equal is found once."""
    life = row.life
    promised = state.reservations.get(row.key)
    words = words or Words(state, now=now)
    reason, message = words.told(row)
    status = RunStatus(
        phase=run_phase(row),  # type: ignore[arg-type]  # one of the four
        conditions=tuple(
            Condition(type=mark.type, status=mark.status, reason=mark.reason, last_transition_time=format_time(mark.at),
                      message=message if (mark.reason, mark.message) == (reason, life.message) else mark.message)
            for mark in life.marks
        ),
        message=message,
        leases=tuple(sorted(row.leases)),
        pending_reservation=None if promised is None else promised.name,
        earliest_start=None if promised is None or promised.plan.start is None else format_time(promised.plan.start),
        promised_by=_bound(promised),
        queue=words.queue(row),
        restarts=life.restarts,
        width=_width(row),
        funding=_funding(row, now),
        spares=_spares(state, row),
        risk=(risks or Risks(state, now=now)).of(row.key) if row.leases else None,
    )  # fmt: skip
    meta = row.run.metadata
    if life.deleting:
        asked = now if life.deleted is None else life.deleted
        meta = msgspec.structs.replace(meta, deletion_timestamp=format_time(asked))
    return msgspec.structs.replace(row.run, metadata=meta, status=status)


def run_phase(row: RunRow) -> str:
    """The phase that people see: a run that stops is Running until its last lease is closed, if it ever ran."""
    if row.life.phase == "Stopping":
        return "Running" if row.life.started is not None else "Pending"
    return _PHASES[row.life.phase]


def _bound(promised: Reservation | None) -> str | None:
    by = None if promised is None or not claims(promised) else bound_of(promised)
    return None if promised is None or by is None or by == promised.plan.start else format_time(by)


def _width(row: RunRow) -> Width:
    spec = row.run.spec
    total, allocated = spec.resources.total_gpus, row.active()
    over = row.life.phase in ("Completed", "Failed")
    if spec.malleable is None:
        return Width(min=total, max=total, desired=total, allocated=allocated, pending=0 if over else total - allocated)
    wanted = desired(spec.malleable)
    return Width(min=spec.malleable.min_total_gpus, max=spec.malleable.max_total_gpus, desired=wanted,
                 allocated=allocated, pending=0 if over else max(0, wanted - allocated))  # fmt: skip


def desired(elastic: Malleable) -> int:
    """The width that an elastic run is to have."""
    return elastic.desired_total_gpus or elastic.max_total_gpus


def _funding(row: RunRow, now: Instant) -> FundingStatus:
    held: dict[str, int] = {}
    used: dict[str, int] = {}
    sponsors = []
    for (funding, payer), meter in sorted(row.meters.items()):
        held[funding] = held.get(funding, 0) + meter.rate
        used[funding] = used.get(funding, 0) + meter.used(now)
        if funding == "borrowed":
            sponsors.append(SponsorShare(owner=payer, gpus=meter.rate, gpu_hours=gpu_hours(meter.used(now))))
    return FundingStatus(
        owned_gpus=held.get("owned", 0), shared_gpus=held.get("shared", 0), borrowed_gpus=held.get("borrowed", 0),
        owned_gpu_hours=gpu_hours(used.get("owned", 0)), shared_gpu_hours=gpu_hours(used.get("shared", 0)),
        borrowed_gpu_hours=gpu_hours(used.get("borrowed", 0)), sponsors=tuple(sponsors),
    )  # fmt: skip


def _spares(state: State, row: RunRow) -> tuple[SpareStatus, ...]:
    want = row.run.spec.spares_per_group
    return tuple(
        SpareStatus(group=group, available=have, consumed=max(0, want - have))
        for group, have in (spare_gpus(state, row) if want else {}).items()
    )


# --- leases -------------------------------------------------------------------------------------------------------


def lease(fact: LeaseFact, *, end: Instant | None = None, closure: str | None = None) -> Lease:
    return Lease(
        metadata=ObjectMeta(name=fact.name, namespace=fact.namespace, labels={
            LABEL_RUN: fact.run, LABEL_GROUP: str(fact.group), LABEL_ROLE: fact.role}),
        spec=LeaseSpec(
            owner=fact.owner,
            run_ref=RunRef(name=fact.run, uid=fact.uid),
            comp_path=(f"SHARD[{fact.group}]", fact.domain),
            slice=Slice(nodes=(fact.node,), gpus=fact.gpus, role=fact.role),
            interval=Interval(start=format_time(fact.start)),
            paid_by_envelope=fact.envelope,
            paid_by_budget=fact.budget,
            paid_by_owner=fact.payer,
            reason=fact.reason,
        ),
        status=LeaseStatus() if end is None else LeaseStatus(
            closed=True, end_time=format_time(end), closure_reason=closure),
    )  # fmt: skip


# --- pods ---------------------------------------------------------------------------------------------------------


def pod(row: RunRow, one: PodRow, policy_resource: str) -> Pod:
    """The run's template with placement, GPUs, labels and the rendezvous filled in."""
    fact = one.pod
    template = row.run.spec.template or {}
    meta = template.get("metadata") or {}
    labels = {**(meta.get("labels") or {}), LABEL_RUN: fact.run, LABEL_GROUP: str(fact.group), LABEL_ROLE: "Active"}
    status = PodStatus(phase=_POD_PHASES[one.phase], message=one.message, exit_code=one.code)  # type: ignore[arg-type]  # one of the four
    return Pod(
        metadata=ObjectMeta(
            name=fact.name,
            namespace=fact.namespace,
            labels=labels,
            annotations=meta.get("annotations") or {},
            uid=object_uid(row.run.metadata.uid, f"Pod/{fact.name}"),
        ),
        spec=_pod_spec(row, one, template.get("spec") or {}, policy_resource),
        status=status,
    )


def _pod_spec(row: RunRow, one: PodRow, spec: dict[str, Any], resource: str) -> dict[str, Any]:
    env = [{"name": name, "value": value} for name, value in rendezvous(row, one).items()]
    count = str(len(one.pod.gpus))
    containers = []
    for index, container in enumerate(spec.get("containers") or ()):
        mine = {item["name"] for item in env}
        kept = [item for item in container.get("env") or () if item.get("name") not in mine]
        full = {**container, "env": [*kept, *env]}
        if index == 0:  # GPUs are given to the first container; side-cars see none
            asked = container.get("resources") or {}
            limits = {**(asked.get("limits") or {}), resource: count}
            requests = {**(asked.get("requests") or {}), resource: count}
            full["resources"] = {**asked, "limits": limits, "requests": requests}
        containers.append(full)
    return {**spec, "containers": containers, "nodeName": one.pod.node, "restartPolicy": "Never"}


def rendezvous(row: RunRow, one: PodRow) -> dict[str, str]:
    """What a launcher such as torchrun needs to find the others."""
    master = min(row.pods.values(), key=lambda other: (other.stop, other.pod.rank)).pod.node
    fact = one.pod
    env = {
        "TENURE_RUN": f"{fact.namespace}/{fact.run}",
        "TENURE_POD": fact.name,
        "TENURE_GROUP": str(fact.group),
        "TENURE_ATTEMPT": str(fact.attempt),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(MASTER_PORT),
        "NODE_RANK": str(fact.rank),
        "NPROC_PER_NODE": str(len(fact.gpus)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, fact.gpus)),
    }
    elastic = row.run.spec.malleable
    if elastic is None:
        return env | {"WORLD_SIZE": str(row.life.width), "NNODES": str(len(row.pods))}
    return env | {"TENURE_MIN_GPUS": str(elastic.min_total_gpus), "TENURE_MAX_GPUS": str(elastic.max_total_gpus),
                  "TENURE_RDZV_ENDPOINT": f"{master}:{MASTER_PORT}"}  # fmt: skip


# --- budgets ------------------------------------------------------------------------------------------------------


def budget(state: State, item: Budget, *, now: Instant) -> Budget:
    name = item.metadata.name
    funds = funds_of(state, name)
    caps = state.books.caps.get(name, [])
    limits = (*(one for fund in funds for one in fund.own_limits), *caps)
    return msgspec.structs.replace(
        item,
        status=BudgetStatus(
            headroom=tuple(_headroom(state, fund, now) for fund in funds),
            aggregate_headroom=tuple(_cap(cap, now) for cap in caps),
            conditions=_over_budget(state, (*funds, *caps), now),
            shortages=tuple(_shortages(state, limits)),
            foreseen=tuple(_foreseen(state, limits, now)),
        ),
    )


def _shortages(state: State, limits: Iterable[AnyLimit]) -> Iterator[Shortage]:
    names = dict.fromkeys(one.label for one in limits)
    found = {name: state.resolutions[f"Budget/{name}"] for name in names if f"Budget/{name}" in state.resolutions}
    for name, (at, fact) in found.items():
        done = drawn(fact, room=ROOM_BYTES // len(found))
        yield Shortage(
            name=_shown(name), activation=fact.activation, at=format_time(at), deficit_gpus=fact.deficit,
            cuts=done.cuts, intent=done.intent, result=done.result, draw_left_out=done.draw_left_out,
        )  # fmt: skip


def _foreseen(state: State, limits: Iterable[AnyLimit], now: Instant) -> Iterator[Foreseen]:
    for one in threats(state, limits, now=now):
        yield Foreseen(name=_shown(one.label), at=format_time(one.at), short_gpus=one.short,
                       cut_probabilities=likeliest(one.odds))  # fmt: skip


def _shown(label: str) -> str:
    """An envelope or a cap, as its Budget's status names it; ``ENVELOPE.lending`` where what it lends is meant."""
    return label.partition("/")[2].replace("/", ".")


def funds_of(state: State, budget: str) -> list[Fund]:
    """A Budget's envelopes, and those that are no longer in it and still pay for something."""
    item = state.budgets.get(budget)
    listed = [(budget, envelope.name) for envelope in item.spec.envelopes] if item else []
    gone = [
        key for key, fund in state.books.funds.items() if key[0] == budget and key not in listed and fund.total.rate
    ]
    return [state.books.funds[key] for key in (*listed, *sorted(gone))]


def _headroom(state: State, fund: Fund, now: Instant) -> Headroom:
    spent = fund.exhausts()
    ends = min(spent if spent > now else state.books.over(fund, "hours", now=now), fund.end)
    used, committed = fund.total.used(now), fund.ahead.ahead(now)
    return Headroom(
        name=fund.key[1], flavor=fund.flavor, concurrency=fund.concurrency - fund.total.rate, used=fund.total.rate,
        gpu_hours=_left(fund.hours, used + committed), used_gpu_hours=gpu_hours(used),
        committed_gpu_hours=gpu_hours(committed), lent=fund.lent.rate, spare=fund.spare.rate, borrowed=fund.borrowed,
        exhausts_at=format_time(ends) if ends <= LATEST and fund.total.rate else None,
    )  # fmt: skip


def _cap(cap: Cap, now: Instant) -> AggregateHeadroom:
    used, spent = sum(fund.total.used(now) for fund in cap.funds), cap.spent(now)
    return AggregateHeadroom(
        name=cap.key[1], flavor=cap.funds[0].flavor, used=cap.used, gpu_hours=_left(cap.hours, spent),
        concurrency=None if cap.concurrency is None else cap.concurrency - cap.used,
        used_gpu_hours=gpu_hours(used), committed_gpu_hours=gpu_hours(spent - used),
    )  # fmt: skip


def _left(limit: GpuMicros | None, spent: GpuMicros) -> float | None:
    return None if limit is None else gpu_hours(max(0, limit - spent))


def _over_budget(state: State, limits: Iterable[Fund | Cap], now: Instant) -> tuple[Condition, ...]:
    """One condition, however many envelopes and caps it speaks of: types are unique. True since the first crossing."""
    found = [one for limit in limits for one in _over(state.books, limit, now)]
    if not found:
        return ()
    message = " ".join(sentence(reason) for reason, _ in found)
    since = min(since for _, since in found)
    return (Condition(type="OverBudget", status="True", reason=found[0][0].code, message=message,
                      last_transition_time=format_time(since)),)  # fmt: skip


def _over(books: Books, one: Fund | Cap, now: Instant) -> Iterator[tuple[Reason, Instant]]:
    """What it is over, and since when."""
    deleted = isinstance(one, Fund) and one.terms is None
    if one.hours is not None and sum(fund.total.used(now) for fund in one.funds) > one.hours and not deleted:
        reason = Reason(code="Exhausted", data={"envelope": one.label, "limit": one.hours // HOUR})
        yield reason, books.over(one, "hours", now=now)
    if one.concurrency is not None and one.used > one.concurrency:
        data: dict[str, int | str] = {"envelope": one.label, "limit": one.concurrency, "used": one.used}
        yield Reason(code="OverBudget", data=data), books.over(one, "gpus", now=now)


def to_manifest(item: Pod) -> dict[str, Any]:
    manifest: dict[str, Any] = msgspec.to_builtins(item)
    return manifest


# --- everything ---------------------------------------------------------------------------------------------------


def nodes(state: State) -> list[Node]:
    return [state.topology.rows[name].node for name in sorted(state.topology.rows)]
