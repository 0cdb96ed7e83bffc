"""The machines of a simulated cluster, and what their kubelets tell the API server of them.

What is so and what is said are kept apart. ``Machine.alive`` are the pods whose processes are on its GPUs; the
objects in the API server follow when the kubelet has a say. A machine that burns or restarts loses its processes at
once and says so later or never; one that is cut off goes on and says nothing. ``overfull`` is the question that
matters: whether two pods ever were on one GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from proof.sim.api import Server
from proof.sim.api_forms import MERGE, Object
from proof.sim.loop import VirtualLoop
from tenure.api.meta import LABEL_RUN
from tenure.kube.marks import LABEL_ATTEMPT
from tenure.kube.resources import NODES, PODS, RUNS, SERVICES
from tenure.kube.translate import requested
from tenure.testing import FENCE
from tenure.units import HOUR, SECOND, Instant, Micros, format_time, parse_duration

GPU = "nvidia.com/gpu"
BEAT = 1.0
"""Kubelets look once in so many seconds, all at the same time: what happens together is decided on together."""
_encode = msgspec.json.Encoder().encode


class Alive(Struct):
    """A pod whose processes are on a machine."""

    key: str
    uid: str
    gpus: int
    ends: Any = None
    """The timer of its end, if it has one."""
    ended: tuple[int, Instant] | None = None
    """Its exit code and when, if it has ended and that was not told yet."""
    excused: bool = False
    """Its object was taken away by force: its GPUs are free before it knows."""


class Machine:
    """One node."""

    def __init__(self, name: str, gpus: int) -> None:
        self.name, self.gpus = name, gpus
        self.alive: dict[str, Alive] = {}
        self.down = False
        self.lied = False
        """It has said that it has more GPUs than it has: then more is placed on it than it can take."""
        self.mute = 0
        """How many troubles keep its kubelet from saying anything."""
        self.unheard: list[Callable[[], None]] = []
        """Who is told, once, that its kubelet had something to say or to do meanwhile."""

    def holds_back(self) -> bool:
        """Whether its kubelet, which has something to say or to do, cannot."""
        if self.mute:
            unheard, self.unheard = self.unheard, []
            for told in unheard:
                told()
        return bool(self.mute)

    @property
    def used(self) -> int:
        return sum(one.gpus for one in self.alive.values() if one.ended is None)


class Machines:
    """All machines, and the kubelet of each."""

    def __init__(self, loop: VirtualLoop, server: Server, luck: Random, tally: Counter[str]) -> None:
        self.loop, self.server, self.luck, self.tally = loop, server, luck, tally
        self.all: dict[str, Machine] = {}
        self.lengths: dict[str, Micros] = {}
        """How long the pods of a run take, by ``namespace/name``, where that is not what it declared."""
        self.broken: Counter[str] = Counter()
        """Runs whose pods cannot be started."""
        self.bind_delay, self.stop_delay = 0.0, 0.0
        self.found: list[str] = []
        self.hurried = False
        self._began: dict[tuple[str, str, str], Instant] = {}
        self._due: dict[str, Any] = {}
        shelf = server.shelf(PODS)
        before = shelf.put

        def put(key: str, change: Any) -> None:
            before(key, change)
            self.look(key)

        shelf.put = put  # type: ignore[method-assign]

    def add(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self.all[name] = Machine(name, int(node["status"]["allocatable"][GPU]))

    # --- kubelets -------------------------------------------------------------------------------------------------

    def look(self, key: str, seconds: float | None = None) -> None:
        """Have the kubelet of a pod look at it, soon."""
        if key not in self._due:
            wait = BEAT - self.loop.time() % BEAT if seconds is None else seconds
            self._due[key] = self.loop.call_later(wait, self._sync, key)

    def _sync(self, key: str) -> None:
        self._due.pop(key, None)
        pod = self.server.get(PODS, key)
        for machine in self.all.values():
            one = machine.alive.get(key)
            if one is not None and (pod is None or pod["metadata"]["uid"] != one.uid) and not machine.holds_back():
                self._kill(machine, key)
        node = None if pod is None else self.all.get(pod["spec"].get("nodeName") or "")
        if pod is not None and node is not None and not node.down and self._has_work(node, key, pod):
            self._tend(node, key, pod)

    def _has_work(self, node: Machine, key: str, pod: Object) -> bool:
        """Whether its kubelet sees to this pod now; one that cannot counts, if there was something to see to."""
        if not node.mute:
            return True
        one, phase = node.alive.get(key), pod["status"].get("phase")
        if pod["metadata"].get("deletionTimestamp") or (one is None) == (phase in ("Pending", "Running")):
            node.holds_back()
        return False

    def _tend(self, node: Machine, key: str, pod: Object) -> None:
        phase, one = pod["status"].get("phase"), node.alive.get(key)
        if pod["metadata"].get("deletionTimestamp"):
            if one is not None and one.ended is None:
                self._later(self.stop_delay, lambda: self._stopped(node, key, pod["metadata"]["uid"]))
            else:
                self._stopped(node, key, pod["metadata"]["uid"])
        elif one is not None and one.ended is not None:
            self._tell_end(node, key, *one.ended)
        elif phase == "Pending" and one is None:
            self._later(self.bind_delay, lambda: self._start(node, key, pod["metadata"]["uid"]))
        elif phase == "Running" and one is None:
            self._status(key, pod, phase="Failed", reason="NodeRebooted", containerStatuses=_ended(137, self._now()))

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self.loop.call_later(seconds + 0.01, do)

    def _start(self, node: Machine, key: str, uid: str) -> None:
        pod = self.server.get(PODS, key)
        if pod is None or pod["metadata"]["uid"] != uid or pod["metadata"].get("deletionTimestamp"):
            return
        if key in node.alive or node.down or pod["status"].get("phase") != "Pending" or node.holds_back():
            return
        run, gpus = self._run(pod), requested(pod["spec"], GPU)
        if self.broken[run]:
            self.tally["fault/pod-breaks"] += 1
            self._status(key, pod, phase="Failed", reason="ErrImagePull", message="no such image")
            return
        if node.used + gpus > node.gpus and any(other.excused for other in node.alive.values()):
            self.look(key, 5.0)  # a kubelet gives a GPU away when nobody is on it
            return
        if node.used + gpus > node.gpus:
            names = ", ".join(sorted(node.alive))
            if not node.lied:
                self.found.append(f"I1-capacity: {key} wants {gpus} GPUs on {node.name}, where {names} use {node.used}")
            self._status(key, pod, phase="Failed", reason="UnexpectedAdmissionError", message="not enough GPUs")
            return
        one = node.alive[key] = Alive(key, uid, gpus)
        running = [{"name": "main", "state": {"running": {"startedAt": format_time(self._now())}}}]
        self._status(key, pod, phase="Running", containerStatuses=running)
        length = self._length(run)
        if length is not None:
            attempt = (
                run,
                pod["metadata"]["ownerReferences"][0]["uid"],
                pod["metadata"]["labels"].get(LABEL_ATTEMPT, ""),
            )
            began = self._began.setdefault(attempt, self._now())
            left = max(0, began + length - self._now())
            one.ends = self.loop.call_later(left / SECOND, self.end, node.name, key, 0)

    def _length(self, run: str) -> Micros | None:
        if run in self.lengths:
            return self.lengths[run]
        item = self.server.get(RUNS, run)
        said = (
            None
            if item is None
            else ((item["spec"].get("runtime") or {}).get("expectedDuration") or item["spec"].get("expectedDuration"))
        )
        if said is None:
            return HOUR if self.hurried else None
        return parse_duration(said)

    def end(self, node: str, key: str, code: int) -> None:
        """A pod's processes end by themselves."""
        machine = self.all[node]
        one = machine.alive.get(key)
        if one is not None and one.ended is None:
            one.ended = (code, self._now())
            if not machine.holds_back():
                self._tell_end(machine, key, *one.ended)

    def _tell_end(self, node: Machine, key: str, code: int, at: Instant) -> None:
        pod, one = self.server.get(PODS, key), node.alive.pop(key)
        if pod is not None and pod["metadata"]["uid"] == one.uid:
            self._status(key, pod, phase="Failed" if code else "Succeeded", containerStatuses=_ended(code, at))

    def _stopped(self, node: Machine, key: str, uid: str) -> None:
        pod = self.server.get(PODS, key)
        if node.down or pod is None or pod["metadata"]["uid"] != uid or node.holds_back():
            return
        self._kill(node, key)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self.server.handle("DELETE", PODS.path(*key.split("/")), {}, _encode(options))

    def _kill(self, node: Machine, key: str) -> None:
        one = node.alive.pop(key, None)
        if one is not None and one.ends is not None:
            one.ends.cancel()

    def _status(self, key: str, pod: Object, **status: Any) -> None:
        namespace, name = key.split("/")
        self.server.handle(
            "PATCH", PODS.path(namespace, name, "status"), {}, _encode({"status": status}), content=MERGE
        )

    # --- what happens to machines ---------------------------------------------------------------------------------

    def lose(self, name: str) -> bool:
        """A machine stops with everything on it; False if it had stopped before."""
        machine = self.all[name]
        for key in list(machine.alive):
            self._kill(machine, key)
        was = machine.down
        machine.down = True
        return not was

    def back(self, name: str) -> None:
        """It is there again, and its kubelet looks at what it finds."""
        self.all[name].down = False
        self.look_at_all(name)

    def mute(self, name: str, told: Callable[[], None]) -> None:
        """Its kubelet says nothing more; ``told`` when it would have."""
        self.all[name].mute += 1
        self.all[name].unheard.append(told)

    def unmute(self, name: str, told: Callable[[], None]) -> None:
        machine = self.all[name]
        machine.mute -= 1
        machine.unheard = [one for one in machine.unheard if one is not told]
        self.look_at_all(name)

    def look_at_all(self, name: str) -> None:
        machine = self.all[name]
        bound = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in self.server.all(PODS)
                 if pod["spec"].get("nodeName") == name]  # fmt: skip
        for key in sorted({*bound, *machine.alive}):
            self.look(key)

    def snatch(self, name: str) -> int:
        """Somebody deletes the objects of pods by force, while their processes are there for a moment yet."""
        machine, count = self.all[name], 0
        for key, one in sorted(machine.alive.items()):
            if (
                one.ended is None
                and (pod := self.server.get(PODS, key)) is not None
                and pod["metadata"]["uid"] == one.uid
            ):
                one.excused = True
                count += 1
                self.server.handle("DELETE", PODS.path(*key.split("/")), {}, b'{"gracePeriodSeconds":0}')
        return count

    def excuse(self, name: str) -> None:
        """Whatever is on a machine may be taken for dead: two live copies are a risk that the policy accepts."""
        for one in self.all[name].alive.values():
            one.excused = True

    def hurry(self) -> None:
        """Whatever runs, and will run, ends within the hour if it does not say when it ends."""
        self.hurried = True
        for node, one in list(self.running(excused=True)):
            if one.ends is None:
                one.ends = self.loop.call_later(3600.0, self.end, node, one.key, 0)

    def show(self, name: str, troubles: set[str], gpus: int | None) -> None:
        """Write what the node controller, its kubelet and people say about a machine."""
        node = self.server.get(NODES, name)
        if node is None:
            return
        taints = [] if "fence" not in troubles else [msgspec.to_builtins(FENCE)]
        ready = "Unknown" if troubles & {"unready", "fence"} or self.all[name].down else "True"
        spec = {"unschedulable": True if "cordon" in troubles else None, "taints": taints or None}
        counted = self.all[name].gpus if gpus is None else gpus
        self.all[name].lied |= counted > self.all[name].gpus
        status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {GPU: str(counted)}}
        self._patch(NODES.path(None, name), {"spec": spec})
        self._patch(NODES.path(None, name, "status"), {"status": status})

    def _patch(self, path: str, change: Object) -> None:
        self.server.handle("PATCH", path, {}, _encode(change), content=MERGE)

    # --- what is so -----------------------------------------------------------------------------------------------

    def running(self, *, excused: bool = False) -> Iterator[tuple[str, Alive]]:
        """Every pod whose processes are on a machine, and which; with those that may be taken for dead, or without."""
        for name, machine in self.all.items():
            for one in machine.alive.values():
                if one.ended is None and (excused or not one.excused):
                    yield name, one

    def collect_garbage(self) -> None:
        """Delete what belonged to objects that are gone, as the controllers of a cluster do."""
        uids = {run["metadata"]["uid"] for run in self.server.all(RUNS)}
        for resource in (PODS, SERVICES):
            for item in self.server.all(resource):
                owners = item["metadata"].get("ownerReferences") or ()
                if (
                    owners
                    and all(one["uid"] not in uids for one in owners)
                    and "deletionTimestamp" not in item["metadata"]
                ):
                    meta = item["metadata"]
                    self.server.handle("DELETE", resource.path(meta["namespace"], meta["name"]), {})

    def run_of(self, key: str) -> str:
        """The run of a pod that has an object."""
        pod = self.server.get(PODS, key)
        return "" if pod is None else self._run(pod)

    def _run(self, pod: Object) -> str:
        return f"{pod['metadata']['namespace']}/{pod['metadata']['labels'].get(LABEL_RUN, '')}"

    def _now(self) -> Instant:
        return self.server.now()


def _ended(code: int, at: Instant) -> list[Object]:
    reason = "Completed" if code == 0 else "Error"
    return [
        {"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": format_time(at)}}}
    ]
