"""The end of a simulated cluster: faults stop, work ends, and everything that should follow is asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from proof.sim.liveness import left_waiting, still_busy
from tenure.engine import State, dump
from tenure.engine.render import run_phase
from tenure.facts import Closed, Opened
from tenure.kube.marks import FLEET
from tenure.kube.resources import ELECTION_LEASES, LEASES, PODS, RESERVATIONS, RUNS
from tenure.shell.home import fold_entry
from tenure.units import HOUR

if TYPE_CHECKING:
    from proof.sim.cluster import ClusterWorld
    from tenure.kube.operator import Operator

QUIET = 240
"""Quarters of a day that the end may take."""
LEAVES = 8
"""Spans of three hours in which what is old must have left."""


def finish(world: ClusterWorld) -> list[str]:
    """Let everything end, then ask everything."""
    world.advance(world.at + 6 * HOUR)  # the longest fault that is not for good, and a watch that was silent
    _find_out(world)
    world.machines.hurry()
    found = _quiet(world)
    if found:
        return found
    for _ in range(LEAVES):  # where a server refuses much for good, a leader may lose its lead, and finds it again
        if any(one.leading for one in world.processes):
            break
        world.advance(world.at + 3 * HOUR)
    process = world.processes[world.leader]
    if process.operator is None or not process.leading:
        return ["I12-liveness: nobody leads any more"]
    operator = process.operator
    now = max(world.fleet_now(), operator.home.state.now)
    found = _busy(world, operator)
    found += left_waiting(operator.home.state, world.judge.auditor.charges(now), now=now)
    found += _settled(world)
    now = max(world.fleet_now(), operator.home.state.now)
    found += world.judge.judged(now, settled=True)
    found += [one.sentence() for one in world.judge.auditor.recheck(world.judge.entries, now=now)]
    found += _rebuilt(world, operator)
    found += _objects(world, operator)
    return found


def _find_out(world: ClusterWorld) -> None:
    """A machine that claims GPUs which it has not is seen through at last, as somebody would who sees every start fail
    there: work that fits only what it claims would else be tried without end, every ten minutes."""
    for node, found in world.troubles.items():
        for number, (kind, gpus) in list(found.items()):
            if kind == "lie" and gpus > world.machines.all[node].gpus:
                del found[number]
        with world.loop.entered():
            world.show(node)


def _quiet(world: ClusterWorld) -> list[str]:
    for _ in range(QUIET):
        world.advance(world.at + 6 * HOUR)
        found = world.violations()
        if found:
            return found
        operator = world.processes[world.leader].operator
        if operator is None or not operator.begun or any(world.machines.running(excused=True)):
            continue
        if operator.home.next_wake() is None and operator.desk.idle:
            break
    return []


def _busy(world: ClusterWorld, operator: Operator) -> list[str]:
    """Who is not over though everything should be."""
    held = _held(world, operator)
    found = still_busy(operator.home.state)
    kept = [one for one in found if not any(f" {run} " in one for run in held)]
    world.tally["seen/run on a machine that is silent for good"] += len(found) - len(kept)
    return kept


def _held(world: ClusterWorld, operator: Operator) -> set[str]:
    """Runs with a pod on a machine that is silent for good. Nobody can know of that pod whether it still runs, and
    nobody has said that the machine is dead."""
    silent = _silent(world)
    return {one.pod.run_key for one in operator.home.state.pods.values() if one.pod.node in silent}


def _silent(world: ClusterWorld) -> set[str]:
    return {name for name, one in world.machines.all.items() if one.mute or one.down}


def _settled(world: ClusterWorld) -> list[str]:
    """I11: in a settled world nothing is written, for as long as one looks; what is old leaves before that, and where a
    server refuses some of it for good, not at the first attempt. Whoever takes over makes sure that all is shown."""
    if world.keep is not None:
        world.advance(world.at + 2 * world.keep)
        for _ in range(LEAVES):
            if not _written(world):
                break
    head = world.judge.head
    for _ in range(LEAVES):
        before = _elected(world)
        wrote = _written(world)
        if _elected(world) == before:
            break
    out = [f"I11-settled: {number} writes of {kind} in a settled world" for kind, number in sorted(wrote.items())]
    if world.judge.head != head:
        out.append("I11-settled: a settled world was decided on")
    return out


def _elected(world: ClusterWorld) -> list[int]:
    """How often somebody else was elected."""
    return [item["spec"].get("leaseTransitions", 0) for item in world.server.all(ELECTION_LEASES)]


def _written(world: ClusterWorld) -> dict[str, int]:
    """How many writes of which kinds there are in three hours. Elections are aside, and so are places in the queue and
    estimates, as long as there is no more than one of a run a minute."""
    server = world.server
    before, said = Counter(server.writes), Counter(server.estimates)
    world.advance(world.at + 3 * HOUR)
    wrote = server.writes - before
    wrote[f"{RUNS.plural}.{RUNS.group}"] -= sum(min(number, 3 * 60) for number in (server.estimates - said).values())
    del wrote[f"{ELECTION_LEASES.plural}.{ELECTION_LEASES.group}"]
    return {kind: number for kind, number in wrote.items() if number}


def _rebuilt(world: ClusterWorld, operator: Operator) -> list[str]:
    folded = State(operator.store.fleet)
    for entry in world.judge.entries:
        fold_entry(folded, entry)
    folded.now = operator.home.state.now  # it also goes on where nothing happens
    if dump(folded) != dump(operator.home.state):
        return ["the engine that is rebuilt from all entries is not the live one"]
    return []


def _objects(world: ClusterWorld, operator: Operator) -> list[str]:
    """What is shown is what is so: leases, pods and runs."""
    server, out = world.server, []
    leases: dict[str, bool] = {}
    for entry in world.judge.entries:
        for fact in entry.facts:
            if isinstance(fact, Opened):
                leases[fact.lease.key] = False
            elif isinstance(fact, Closed):
                leases.update((f"{fact.namespace}/{name}", True) for name in fact.leases)
    shown = {key: bool((one.item.get("status") or {}).get("closed")) for key, one in server.shelf(LEASES).items.items()}
    for key in sorted(shown.keys() | leases.keys()):
        if key not in leases:
            out.append(f"Lease {key} is shown and was never opened")
        elif key not in shown:
            if world.keep is None or not leases[key]:
                out.append(f"Lease {key} is not shown")
        elif shown[key] != leases[key]:
            out.append(f"Lease {key} is shown {'closed' if shown[key] else 'open'} and is not")
    state = operator.home.state
    silent = _silent(world)
    for pod in server.all(PODS):
        meta = pod["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if FLEET in (meta.get("annotations") or {}) and key not in state.pods:
            # Who was asked to leave stays in the API server until its kubelet has said that it is gone.
            if "deletionTimestamp" in meta and pod["spec"].get("nodeName") in silent:
                world.tally["seen/pod asked to leave a machine that is silent for good"] += 1
            else:
                out.append(f"Pod {key} is left over ({pod['status'].get('phase')})")
    held = _held(world, operator)
    for run in server.all(RUNS):
        meta = run["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        row = state.runs.get(key)
        said = (run.get("status") or {}).get("phase")
        if meta.get("deletionTimestamp"):
            if key not in held:  # whose leases are open
                out.append(f"Run {key} is being deleted and held by {meta.get('finalizers')}")
        elif row is None:
            if ("Run", key) not in operator.intake.refused:
                out.append(f"Run {key} is not known")
        elif said != run_phase(row):
            out.append(f"Run {key} is shown {said} and is {row.life.phase}")
    out += [f"Run {key} is known and is not there" for key in sorted(state.runs) if server.get(RUNS, key) is None]
    for item in server.all(RESERVATIONS):
        key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        standing = any(one.key == key for one in state.reservations.values())
        if standing == ((item.get("status") or {}).get("state") in ("Released", "Canceled")):
            out.append(f"Reservation {key} is shown {(item.get('status') or {}).get('state')} and stands: {standing}")
    return out
