"""Hot spares and failed nodes (SPEC 9): who takes over, and what becomes of a run when nobody can.

A node has failed when it is fenced. Every lease on it closes first, whoever's it is; then each run is decided on, in
one commit. For each pod that was lost: (a) a spare of its group that is large enough takes over, paid by the spare's
payer, with the same rank; (b) else free GPUs of the domain, if cover pays; (c) else an elastic run sheds the group; (d)
else the run is queued again within its checkpoint window, or fails. What (b) needs is found before (a) is carried
out, so that nobody gives way in vain. Spares are topped up when capacity returns and no waiting run could use it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tenure.engine.bind import bind, pod_name
from tenure.engine.demand import Demand, Selector
from tenure.engine.elastic import domain_selector, ended_since, holding, left_to_pay, who
from tenure.engine.groups import given_up, kept, spare_gpus
from tenure.engine.life import again, close, drop, end, finish_if_over, full_name, move, progress
from tenure.engine.pack import Group
from tenure.engine.plan import Part, Plan, make_plan
from tenure.engine.starts import safe_plan
from tenure.engine.state import RunRow
from tenure.engine.topology import Site, matches
from tenure.engine.turn import Turn
from tenure.facts import Cleared, Lease, Opened, Placed, Pod, Reason, Removed, Verdict
from tenure.units import Micros, parse_duration

SHORT_OF_MACHINES = ("NoCapacity", "Fragmented", "SpreadForbidden")
_ASKED_MAX = 32

_Slot = tuple[bool, str, int]
"""A spare GPU: whether somebody fills it, its lease, its ordinal. The order in which they are taken."""
_Take = tuple[Lease, tuple[int, ...]]
"""Ordinals of a spare that take over."""


# --- nodes fail -----------------------------------------------------------------------------------------------------


def lose_nodes(turn: Turn, nodes: Iterable[str], *, removed: bool = False) -> None:
    """Nodes were fenced, or are removed now. A second call finds nothing left to lose."""
    state = turn.state
    dead = {node: state.topology.rows[node].site for node in sorted(nodes)}
    leases = [lease for node in dead for lease in state.leases_on(node)]
    # Work that gave way may still be leaving though its leases are closed.
    leaving = [pod.pod for pod in state.leaving.values() if pod.pod.node in dead]
    keys = {lease.run_key for lease in leases} | {pod.run_key for pod in leaving}
    rows = [state.runs[key] for key in sorted(keys)]
    for node in dead if removed else ():
        turn.emit(Removed(kind="Node", name=node))
    lost = {row.key: _clear(turn, row, dead, leases) for row in rows}
    for row in rows:
        _after_loss(turn, row, lost[row.key], dead, [lease for lease in leases if lease.run_key == row.key])


def _clear(turn: Turn, row: RunRow, dead: dict[str, Site | None], leases: list[Lease]) -> list[Pod]:
    """Close a run's leases on dead nodes and drop its pods there; returns those that were wanted, by rank."""
    close(turn, row, [lease.name for lease in leases if lease.run_key == row.key], "NodeFailure", taken=True)
    gone = sorted((pod for pod in row.pods.values() if pod.pod.node in dead), key=lambda pod: pod.pod.rank)
    wanted = [pod.pod for pod in gone if not pod.stop]
    if gone:
        turn.emit(Cleared(namespace=row.namespace, pods=tuple(pod.pod.name for pod in gone)))
    return wanted


def _after_loss(
    turn: Turn, row: RunRow, lost: list[Pod], dead: dict[str, Site | None], had: list[Lease]
) -> None:  # fmt: skip
    node = lost[0].node if lost else ""
    if row.life.phase == "Stopping":
        finish_if_over(turn, row)
    elif row.life.phase == "Running" and not lost:
        progress(turn, row)  # what was leaving is gone
    elif row.life.phase == "Running":
        _replace(turn, row, lost, dead, had)
    elif lost:
        reason = Reason(code="NodeFailure", data={"node": node})
        end(turn, row, "Fail", "Retry", reason, failures=row.life.failures + 1)


def _replace(turn: Turn, row: RunRow, lost: list[Pod], dead: dict[str, Site | None], had: list[Lease]) -> None:
    """``had``: its leases on the dead nodes."""
    swaps = _assign(turn, row, lost)
    rest = [pod for pod in lost if pod.name not in swaps]
    missing = {pod.group for pod in rest if not _move_to_free(turn, row, pod, dead[pod.node], had)}
    gone = given_up(turn.state, row, missing) if missing else set()
    if gone is None:
        requeue(turn, row, Reason(code="NodeFailure", data={"node": lost[0].node}))
        return
    for pod in lost:
        if pod.name in swaps and pod.group not in gone:
            _take_over(turn, row, pod, swaps[pod.name])
    if gone:
        reason = Reason(code="ShrunkByFailure", data={"node": lost[0].node, "groups": len(gone)})
        drop(turn, row, gone, "Shrink", reason)


def requeue(turn: Turn, row: RunRow, reason: Reason) -> None:
    """Nothing could take over: wait for a new place within the checkpoint window, if there is one."""
    checkpoint = row.run.spec.runtime.checkpoint
    if checkpoint is None:
        end(turn, row, "Fail", "Failed", reason)
    else:
        end(turn, row, "Fail", "Requeue", reason, deadline=turn.now + parse_duration(checkpoint))


# --- (a) a spare takes over -----------------------------------------------------------------------------------------


def _assign(turn: Turn, row: RunRow, lost: list[Pod]) -> dict[str, list[_Take]]:
    """For each lost pod that has one, spare GPUs of its group on one node: the smallest spare that is large enough.

    Nodes that take nothing new take no pod either. Of a spare, GPUs that nobody fills go first.
    """
    spares: dict[tuple[int, str], list[_Slot]] = {}
    for lease in kept(turn.state, row):
        node = turn.state.topology.rows.get(lease.node)
        if lease.role == "Spare" and node is not None and node.open:
            slots = [(bool(node.filled >> gpu & 1), lease.name, gpu) for gpu in lease.gpus]
            spares.setdefault((lease.group, lease.node), []).extend(slots)
    swaps = {}
    for pod in lost:
        need = len(pod.gpus)
        fit = [(len(slots), key) for key, slots in spares.items() if key[0] == pod.group and len(slots) >= need]
        if fit:
            _, best = min(fit)
            slots = sorted(spares[best])
            swaps[pod.name], spares[best] = _takes(row, slots[:need]), slots[need:]
    return swaps


def _takes(row: RunRow, slots: list[_Slot]) -> list[_Take]:
    by_lease: dict[str, list[int]] = {}
    for _, name, gpu in slots:
        by_lease.setdefault(name, []).append(gpu)
    return [(row.leases[name], tuple(sorted(gpus))) for name, gpus in sorted(by_lease.items())]


def _take_over(turn: Turn, row: RunRow, pod: Pod, takes: list[_Take]) -> None:
    """Turn spare GPUs of one node into active ones of the lost pod; what is left of a spare stays one."""
    for spare, gpus in takes:
        spare = _part_with(row, spare, gpus)
        _evict(turn, spare.node, gpus)
        close(turn, row, [spare.name], "Swap", taken=True)
        spare = _labelled(turn, spare)
        turn.emit(Opened(lease=again(row, spare, gpus=gpus, role="Active", start=turn.now, reason="Swap")))
        rest = tuple(gpu for gpu in spare.gpus if gpu not in gpus)
        if rest:
            turn.emit(Opened(lease=again(row, spare, gpus=rest, start=turn.now, reason="Swap")))
    ordinals = sorted(gpu for _, gpus in takes for gpu in gpus)
    _place_again(turn, row, pod, takes[0][0].node, tuple(ordinals))


def _part_with(row: RunRow, spare: Lease, gpus: tuple[int, ...]) -> Lease:
    """The open spare lease that has these GPUs: another pod may have taken the first part of it already."""
    here = (lease for lease in row.leases.values() if lease.role == "Spare" and lease.node == spare.node)
    return next(lease for lease in here if set(gpus) <= set(lease.gpus))


def _labelled(turn: Turn, lease: Lease) -> Lease:
    """A lease with the domain of its node as that is labelled now."""
    site = turn.state.topology.rows[lease.node].site
    return lease if site is None else msgspec.structs.replace(lease, domain=site.fabric)


def _evict(turn: Turn, node: str, ordinals: tuple[int, ...]) -> None:
    for lease in list(turn.state.leases_on(node)):
        if lease.role == "Borrowed" and set(lease.gpus) & set(ordinals) and lease.key in turn.state.leases:
            give_way(turn, turn.state.runs[lease.run_key], lease)


def give_way(turn: Turn, row: RunRow, lease: Lease) -> None:
    """A spare is needed: opportunistic work on it gives way at once, all of its run."""
    leaving = lease.key in turn.state.ending
    close(turn, row, [lease.name], "ReclaimedBySpare")
    if row.life.phase in ("Starting", "Running") and not leaving:
        reason = Reason(code="ReclaimedBySpare", data={"node": lease.node})
        again_later = row.run.spec.runtime.on_preemption == "Requeue"
        end(turn, row, "ReclaimedBySpare", "Requeue" if again_later else "Failed", reason, cut=again_later)


def _place_again(turn: Turn, row: RunRow, pod: Pod, node: str, ordinals: tuple[int, ...]) -> None:
    """The pod of a rank, somewhere else: same rank, same group, new name."""
    replaced = row.counters.replaced.get(pod.rank, 0) + 1
    name = pod_name(row.name, pod.attempt, pod.rank, replaced)
    turn.emit(Placed(pod=msgspec.structs.replace(pod, name=name, node=node, gpus=ordinals)))
    reason = Reason(code="Swapped", data={"rank": pod.rank, "old": pod.node, "new": node})
    move(turn, row, reason, marks={})
    turn.note("Swapped", full_name(row), reason)


# --- (b) free GPUs of the domain ------------------------------------------------------------------------------------


def _move_to_free(turn: Turn, row: RunRow, pod: Pod, was: Site | None, had: list[Lease]) -> bool:
    """Place a lost pod on free GPUs of its group's domain: that of what is left of the group, or of the dead node; but
    a run that must not spread stays where the rest of it is."""
    site = _site(turn, row, pod.group) or (None if row.demand.spread else _site(turn, row)) or was
    need = len(pod.gpus)
    left = None if row.until is None or row.until <= turn.now else row.until - turn.now
    later = _promised_later(turn, row)
    with turn.state.timeline.set_aside(later):
        plan = None if site is None else _plan_in(turn, row, site, need, pod=need, duration=left)
    if not isinstance(plan, Plan):
        return False
    bound = bind(plan.parts, who(row), turn.state.topology, now=turn.now, until=row.declared, pod=need,
                 counters=row.counters, reason="Swap", group=pod.group)  # fmt: skip
    since = min((lease.taken for lease in had if lease.node == pod.node and lease.group == pod.group), default=None)
    for lease in bound.leases:
        turn.emit(Opened(lease=msgspec.structs.replace(lease, since=since)))
    _place_again(turn, row, pod, bound.pods[0].node, bound.pods[0].gpus)
    return True


def _promised_later(turn: Turn, row: RunRow) -> list[str]:
    """Waiting runs that were promised something after this run had started, but hold nothing yet: its pods may take it,
    and they are planned anew. What was promised at that very instant may have been promised before."""
    since = row.life.started or 0
    found = turn.state.reservations.values()
    return [one.run_key for one in found if one.state == "Pending" and one.made > since]


def _site(turn: Turn, row: RunRow, group: int | None = None) -> Site | None:
    """The domain of a group, or of the run, as its nodes are labelled now."""
    nodes = sorted({lease.node for lease in kept(turn.state, row) if group in (None, lease.group)})
    rows = [turn.state.topology.rows.get(node) for node in nodes]
    return next((one.site for one in rows if one is not None and one.site is not None), None)


def _plan_in(
    turn: Turn, row: RunRow, site: Site, gpus: int, *, pod: int, duration: Micros | None, for_good: bool = False
) -> Plan | Verdict:  # fmt: skip
    """A plan for so many GPUs in one domain, in pods of one width."""
    demand = msgspec.structs.replace(
        row.demand, widths=range(gpus, gpus - 1, -1), group=gpus, pod=pod, spares=0, spread=False, fill=False,
        selector=domain_selector(row.demand, site), duration=duration,
    )  # fmt: skip
    return safe_plan(turn.state, demand, now=turn.now, has=holding(turn.state, row), for_good=for_good)


# --- topping up -----------------------------------------------------------------------------------------------------


def top_up(turn: Turn, rows: Iterable[RunRow]) -> None:
    """Give each group of these runs the spares that it lacks, where no waiting run could use the machines."""
    wanted: dict[str, set[Selector]] = {}
    for row in (one for one in rows if not ended_since(turn, one)):
        want, flavor = row.run.spec.spares_per_group, row.demand.flavor
        missing = [(group, want - have) for group, have in spare_gpus(turn.state, row).items() if have < want]
        if missing:
            wanted[flavor] = wanted[flavor] if flavor in wanted else _wanted(turn, flavor)
        for group, gpus in missing:
            _add_spares(turn, row, group, gpus, wanted[flavor])


def _wanted(turn: Turn, flavor: str) -> set[Selector]:
    """Where waiting runs would take machines: the selectors of those that lack nothing else, or are to be tried again.

    Asked anew of each demand, because a recorded reason may be out of date. When there are too many demands to ask,
    spares wait for all of them.
    """
    rows = (turn.state.runs[key] for key in turn.state.queue.waiting(flavor))
    demands = dict.fromkeys(row.demand for row in rows)
    short = {demand.selector for demand in list(demands)[:_ASKED_MAX] if _lacks_machines(turn, demand)}
    return short | ({()} if len(demands) > _ASKED_MAX else set())


def _lacks_machines(turn: Turn, demand: Demand) -> bool:
    plan = make_plan(turn.state.world, demand, now=turn.now)
    return isinstance(plan, Plan) or (plan.headline is not None and plan.headline.code in SHORT_OF_MACHINES)


def _add_spares(turn: Turn, row: RunRow, group: int, gpus: int, wanted: set[Selector]) -> None:
    """So many spares for one group: away from its nodes, or on them if there is no other place."""
    site = _site(turn, row, group)
    nodes = sorted({lease.node for lease in kept(turn.state, row) if lease.group == group and lease.role != "Spare"})
    labels = [turn.state.topology.rows[node].labels for node in nodes if node in turn.state.topology.rows]
    if site is None or any(matches(selector, one) for selector in wanted for one in labels):
        return
    plan = _beside(turn, row, site, gpus, nodes)
    if not isinstance(plan, Plan):
        return
    parts = [
        Part(tuple(Group(one.location, one.fabric, (), one.active) for one in part.groups), part.segments)
        for part in plan.parts
    ]
    bound = bind(parts, who(row), turn.state.topology, now=turn.now, until=row.declared, pod=0,
                 counters=row.counters, reason="Start", group=group)  # fmt: skip
    for lease in bound.leases:
        turn.emit(Opened(lease=lease))


def _beside(turn: Turn, row: RunRow, site: Site, gpus: int, avoid: list[str]) -> Plan | Verdict:
    topology, duration = turn.state.topology, left_to_pay(turn, row)
    aside = {name: topology.rows[name].free() for name in avoid if name in topology.rows}
    for name, free in aside.items():
        topology.tentative(name, free)
    plan = _plan_in(turn, row, site, gpus, pod=0, duration=duration, for_good=True)
    for name, free in aside.items():
        topology.tentative(name, -free)
    return plan if isinstance(plan, Plan) else _plan_in(turn, row, site, gpus, pod=0, duration=duration, for_good=True)
