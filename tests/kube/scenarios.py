"""Scenario files on Kubernetes: the same player, with an API server between what people write and what is decided.

Whatever the timeline says is written to a real API server as people, kubelets and cloud providers would write it, and
reaches the operator through its informers only; what the operator decides comes back as objects. Pods live as KWOK
makes them live. Only the clock is the test's: when a pod's time has come (``SimulatedExecutor``, as in the simulator)
KWOK is told so by an annotation, and the test waits until it has shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tenure.api.core import Node
from tenure.api.decode import read_tree
from tenure.api.errors import FieldError
from tenure.api.meta import OWNER_ANNOTATION, to_wire
from tenure.engine import Apply, Delete, Event, SetPolicy
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.errors import ApiError
from tenure.kube.loop import IO, hang_up
from tenure.kube.marks import POLICY_KEY, POLICY_NAME
from tenure.kube.operator import Operator, Options
from tenure.kube.resources import CONFIG_MAPS, PODS, RUNS, SYSTEM_NAMESPACE, resource_of
from tenure.kube.shown import same
from tenure.kube.store import KubeStore
from tenure.shell.executor import PodReport, PodWork
from tenure.shell.home import Home
from tenure.simulate.player import Player, merge
from tenure.simulate.scenario import Patch, Scenario
from tenure.testing.builders import TEMPLATE
from tenure.testing.kube import AT, EXIT_CODE, GO, GONE, ControlPlane, until
from tenure.testing.kube.waiting import PATIENCE
from tenure.testing.scenarios import Watcher
from tenure.units import Instant, format_time, parse_time

Object = dict[str, Any]
Order = tuple[str, dict[str, str], str]
"""A pod, what KWOK reads on it, and the phase that it is then in; none if it is gone."""
SYNC_SECONDS = PATIENCE


class TracingClient(Client):
    """A client that remembers how far each kind was written, so that a test can wait until an informer is there."""

    def __init__(self, *arguments: Any, **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.written: dict[str, int] = {}

    def _note(self, item: Object) -> Object:
        version = str((item.get("metadata") or {}).get("resourceVersion", ""))
        if item.get("kind") not in (None, "Status", "Binding") and version.isdigit():
            self.written[item["kind"]] = max(self.written.get(item["kind"], 0), int(version))
        return item

    async def create(self, *arguments: Any, **rest: Any) -> Object:
        return self._note(await super().create(*arguments, **rest))

    async def replace(self, *arguments: Any, **rest: Any) -> Object:
        return self._note(await super().replace(*arguments, **rest))

    async def patch(self, *arguments: Any, **rest: Any) -> Object:
        return self._note(await super().patch(*arguments, **rest))

    async def delete(self, *arguments: Any, **rest: Any) -> Object:
        """What is asked to leave has a newer version, too: kubelets see to it when the informer shows that."""
        return self._note(await super().delete(*arguments, **rest))


class KubePlayer(Player):
    """One scenario on one cluster, which must be empty."""

    def __init__(self, scenario: Scenario, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.api = plane, plane.api
        self.io = IO()
        self.client = TracingClient(from_kubeconfig(plane.admin))
        self.store = KubeStore.open(self.io, self.client, folder / "journal.db", fleet="simulator")
        self.troubles: list[str] = []
        self.watcher = Watcher()
        self.now = scenario.start
        self.writer = TracingClient(from_kubeconfig(plane.admin))
        self._since: dict[str, tuple[str, bool, Instant]] = {}
        self._errors: list[FieldError] = []
        super().__init__(scenario, self._make_home, settled=self.watcher)
        self.home.watch = self.operator._entries.append
        self.operator.watch = self._watch

    def _make_home(self, executor: Any) -> Home:
        """The player's executor stays on its side of the API server: it is the kubelets' timing."""
        options = Options(hold=0.0, simulated=True, start_timeout=10**18)
        self.operator = Operator(
            self.io, self.client, self.store, options=options, now=lambda: self.now, report=self.troubles.append
        )
        self.operator.created = lambda item: None  # type: ignore[method-assign]  # the clock is ours
        self.operator.start()
        note = self.operator.intake._note

        def noted(mark: Any, errors: tuple[FieldError, ...]) -> None:
            if self.operator.intake.refused.get(mark) != errors:
                self._errors += errors
                self._reject(list(errors))
            note(mark, errors)

        self.operator.intake._note = noted  # type: ignore[method-assign]  # to hear of refusals in their order
        return self.operator.home

    def close(self) -> None:
        self.operator.stop()
        self.operator.finish()
        for client in (self.client, self.writer):
            self.io.run(client.close())
        self.io.run(hang_up())
        self.store.close()
        self.io.close()

    # -- what the timeline does goes through the API server --

    def _handle(self, event: Event) -> list[FieldError]:
        self._errors = []
        before: list[tuple[Object, Object | None]] = []
        if isinstance(event, SetPolicy):
            body = CONFIG_MAPS.named(POLICY_NAME, SYSTEM_NAMESPACE, data={POLICY_KEY: _json(to_wire(event.policy))})
            self._put(body)
        elif isinstance(event, Delete):
            if self._find(event.kind, event.namespace, event.name) is None:
                return super()._handle(event)
            self._remove(event)
        elif isinstance(event, Apply):
            before = [(body, self._put(body)) for body in map(_manifest, event.objects)]
        else:
            return super()._handle(event)
        self._turn()
        refused = {error.object for error in self._errors}
        for body, old in before:
            if f"{body['kind']}/{_key(body)}" in refused:
                self._take_back(body, old)
        self._errors = []
        return []  # it was told when it was refused

    def _patch(self, patch: Patch) -> None:
        """A merge patch is a merge patch: nothing of what the engine filled in is written back."""
        found = self._find(patch.kind, patch.namespace, patch.name)
        if found is None or patch.kind != "Run" or set(patch.merge) != {"spec"}:
            super()._patch(patch)
            return
        reading = read_tree(merge(to_wire(found), patch.merge), simulated=True)
        if reading.errors:
            self._reject(list(reading.errors))
            return
        space = patch.namespace or "default"
        old = self.api.get(RUNS.path(space, patch.name)).must()
        try:
            self.io.run(self.writer.patch(RUNS, patch.name, patch.merge, space))
        except ApiError as error:
            name = f"Run/{space}/{patch.name}"
            for _ in range(error.message.count("cannot change once")):
                self._event(self.now, "Rejected", name, "Invalid", error.message)
            return
        self._errors = []
        self._turn()
        errors, self._errors = self._errors, []
        if errors:
            self._take_back(old, old)

    def _put(self, body: Object) -> Object | None:
        """Create an object, or make the one that is there say this; returns what it said."""
        resource, meta = resource_of(body), body["metadata"]
        namespace = meta.get("namespace")
        if namespace:
            self.plane.namespace(namespace)
        if resource.kind == "Namespace":
            self.plane.namespace(meta["name"])
            change = {
                "metadata": {"annotations": {OWNER_ANNOTATION: meta.get("annotations", {}).get(OWNER_ANNOTATION)}}
            }
            self.io.run(self.writer.patch(resource, meta["name"], change))
            return body
        answer = self.api.get(resource.path(namespace, meta["name"]))
        if answer.status == 404:
            found = self.io.run(self.writer.create(resource, body))
        else:
            old = answer.must()
            whole = {**old, **body, "metadata": {**old["metadata"], "labels": meta.get("labels", {}),
                                                 "resourceVersion": old["metadata"]["resourceVersion"]}}  # fmt: skip
            found = self.io.run(self.writer.replace(resource, whole))
        if resource.kind == "Node":
            found["status"] = {**found.get("status", {}), **body["status"]}
            self.io.run(self.writer.replace(resource, found, subresource="status"))
        return None if answer.status == 404 else answer.body

    def _take_back(self, body: Object, old: Object | None) -> None:
        """What was refused is not there: a webhook would not have let it in."""
        if old is None:
            resource = resource_of(body)
            self.api.delete(resource.path(body["metadata"].get("namespace"), body["metadata"]["name"])).must()
            until(lambda: self.operator.caches[body["kind"]].get(_key(body)) is None)
        elif body["kind"] != "Namespace":
            self._put({key: old[key] for key in ("apiVersion", "kind", "metadata", "spec")})
        self._turn()

    def _remove(self, event: Delete) -> None:
        resource = {"Run": "runs", "Budget": "budgets"}.get(event.kind)
        if resource:
            group = RUNS.path(event.namespace) if event.kind == "Run" else f"/apis/{RUNS.api_version}/budgets"
            self.api.delete(f"{group}/{event.name}").must()
        elif event.kind == "Node":
            self.api.delete(f"/api/v1/nodes/{event.name}", grace=0).must()
        else:
            raise AssertionError("namespaces are not deleted in scenarios")
        key = f"{event.namespace}/{event.name}" if event.kind == "Run" else event.name
        cache = self.operator.caches[event.kind]
        until(lambda: (one := cache.get(key)) is None or one["metadata"].get("deletionTimestamp"))

    # -- time --

    def _advance(self, until: Instant) -> None:
        while (wake := self._next()) is not None and wake <= until:
            self.now = max(self.now, wake)
            self._settle()
        self.now = until
        self._settle()

    def _next(self) -> Instant | None:
        wakes = (self.home.next_wake(), self.executor.next_wake())
        return min((at for at in wakes if at is not None), default=None)

    def _settle(self) -> None:
        while self._play():
            self._turn()
        self._turn()
        while self._play():
            self._turn()
        assert not self.troubles, self.troubles
        self.watcher(self.home, self.now)

    def _turn(self) -> None:
        """Let the operator see and do everything that there is."""
        for _ in range(1000):
            self._sync()
            seq = self.home.seq
            self.operator.turn()
            assert self.operator.desk.wait(SYNC_SECONDS), "the desk is never empty"
            self._sync()
            waiting = self.operator.intake.waiting or self.operator.executor._inbox
            if seq == self.home.seq and not waiting and not self._news():
                return
        raise AssertionError("the operator does not come to rest")

    def _news(self) -> bool:
        return any(self.operator.bell._keys.values())

    def _sync(self) -> None:
        """Wait until the informers have seen what was written."""
        deadline = time.monotonic() + SYNC_SECONDS
        for client in (self.client, self.writer):
            for kind, version in list(client.written.items()):
                informer = self.operator.caches.get(kind)
                while informer is not None and int(informer._newest or 0) < version:
                    assert time.monotonic() < deadline, f"{kind} {version} was never seen"
                    time.sleep(0.001)

    # -- kubelets --

    def _play(self) -> bool:
        """Do what kubelets do by now; False if that is nothing."""
        work = list(self._work())
        reports = self.executor.reconcile(work, now=self.now)
        known = {item.pod.key for item in work}
        gone = [key for key, pod in self._pods() if key not in known and pod["metadata"].get("deletionTimestamp")]
        told = [*map(_orders, reports), *((key, {GONE: ""}, "") for key in gone)]
        if told:
            self.io.run(self._tell(told))
            until(lambda: all(self._is(key, phase) for key, _, phase in told), every=0.001)
        return bool(told)

    async def _tell(self, told: Iterable[Order]) -> None:
        """Let KWOK know what becomes of pods now. A pod that was deleted by force is gone already."""
        await asyncio.gather(*(self._annotate(key, {AT: format_time(self.now), **notes}) for key, notes, _ in told))

    async def _annotate(self, key: str, notes: dict[str, str]) -> None:
        namespace, _, name = key.partition("/")
        try:
            await self.writer.patch(PODS, name, {"metadata": {"annotations": notes}}, namespace)
        except ApiError as error:
            if not error.not_found or GONE not in notes:
                raise

    def _is(self, key: str, phase: str) -> bool:
        """Whether the operator's copy shows a pod in a phase; in none, if it is gone."""
        found = self.operator.caches["Pod"].get(key)
        return phase == ("" if found is None else found["status"]["phase"])

    def _pods(self) -> Iterable[tuple[str, Object]]:
        cache = self.operator.caches["Pod"]
        return [(key, pod) for key in sorted(cache.keys()) if (pod := cache.get(key)) is not None]

    def _work(self) -> Iterable[PodWork]:
        """What the kubelets have to do: pods as the API server shows them."""
        phases = {"Pending": "Placed", "Running": "Bound", "Succeeded": "Succeeded", "Failed": "Failed"}
        for key, pod in self._pods():
            row = self.home.state.pods.get(key)
            if row is None:
                continue
            known, stop = phases[pod["status"]["phase"]], bool(pod["metadata"].get("deletionTimestamp"))
            before = self._since.get(key)
            if before is None or before[:2] != (known, stop):
                self._since[key] = (known, stop, self.now)
            yield PodWork(pod=row.pod, known=known, since=self._since[key][2], stop=stop,  # type: ignore[arg-type]  # a phase
                          duration=self.home._work(row).duration)  # fmt: skip


def play(scenario: Scenario, plane: ControlPlane, folder: Path) -> Object:
    """The output of SPEC 15, from a cluster; AssertionError if an invariant breaks, or its objects say otherwise."""
    player = KubePlayer(scenario, plane, folder)
    try:
        output = player.play()
        compare(player, output["final"])
        violations = player.watcher.auditor.recheck(player.store.entries(), now=parse_time(output["final"]["now"]))
        assert not violations, "\n".join(map(str, violations))
        return output
    finally:
        player.close()


def compare(player: KubePlayer, final: Object) -> None:
    """What the API server holds is what was decided: every lease, every reservation, every status."""
    player.operator.materialiser.flush(player.home.state, now=player.now, all_of_it=True)
    player._turn()
    for kind in ("leases", "reservations"):
        found = {_key(item): item for item in _all(player.plane, kind)}
        newest = {_key(item): item for item in final[kind]}
        assert found.keys() == newest.keys(), kind
        for key, item in newest.items():
            assert _plain(found[key]["spec"]) == _plain(item["spec"]), key
            assert same(found[key].get("status") or {}, item["status"]), (key, found[key].get("status"), item["status"])
    runs = {_key(item): item for item in _all(player.plane, "runs")}
    for item in final["runs"]:
        status = runs[_key(item)].get("status") or {}
        assert (status.get("phase"), status.get("leases") or []) == (item["status"]["phase"], item["status"]["leases"])


def wipe(plane: ControlPlane) -> None:
    """Make a cluster empty again, as far as Tenure is concerned."""
    group = f"/apis/{RUNS.api_version}"
    for item in _all(plane, "runs"):
        if item["metadata"].get("finalizers"):
            plane.api.patch(
                f"{group}/namespaces/{_key(item).replace('/', '/runs/')}", {"metadata": {"finalizers": None}}
            )
    for item in plane.api.get("/api/v1/pods").must()["items"]:
        plane.api.delete(f"/api/v1/namespaces/{_key(item).replace('/', '/pods/')}", grace=0)
    spaces = [item["metadata"] for item in plane.api.get("/api/v1/namespaces").must()["items"]]
    for meta in spaces:
        for kind in ("runs", "leases", "reservations"):
            plane.api.call("DELETE", f"{group}/namespaces/{meta['name']}/{kind}").must()
        if OWNER_ANNOTATION in (meta.get("annotations") or {}):
            plane.api.patch(
                f"/api/v1/namespaces/{meta['name']}", {"metadata": {"annotations": {OWNER_ANNOTATION: None}}}
            )
    for kind in ("budgets", "ledgerentries", "ledgerheads"):
        plane.api.call("DELETE", f"{group}/{kind}").must()
    plane.api.call("DELETE", "/api/v1/nodes").must()
    plane.api.delete(CONFIG_MAPS.path(SYSTEM_NAMESPACE, POLICY_NAME))


def _orders(report: PodReport) -> Order:
    """What KWOK is told so that a pod does what its time has come for, and the phase that shows it."""
    match report.phase:
        case "Bound":
            return report.key, {GO: ""}, "Running"
        case "Gone":
            return report.key, {GONE: ""}, ""
        case phase:
            return report.key, {EXIT_CODE: str(report.code or 0)}, phase


def _all(plane: ControlPlane, kind: str) -> list[Object]:
    items: list[Object] = plane.api.get(f"/apis/{RUNS.api_version}/{kind}").must()["items"]
    return items


def _manifest(item: Any) -> Object:
    """An object as somebody would send it: with a template, which only the simulator does without."""
    tree: Object = {"apiVersion": item.api_version, "kind": item.kind, **msgspec.to_builtins(item)}
    meta = {
        key: tree["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in tree["metadata"]
    }
    if tree["kind"] == "Run":
        meta.setdefault("namespace", "default")
        tree["spec"].setdefault("template", TEMPLATE)
    body = {"apiVersion": tree["apiVersion"], "kind": tree["kind"], "metadata": meta}
    if isinstance(item, Node):
        status = tree.get("status", {})
        room = {**status.get("allocatable", {}), "cpu": "192", "memory": "2Ti", "pods": "250"}
        ready = status.get("conditions") or [{"type": "Ready", "status": "True"}]
        body["status"] = {"capacity": room, "allocatable": room, "conditions": ready}
        body["spec"] = {}
    return {**body, "spec": tree["spec"]} if "spec" in tree else body


def _key(item: Object) -> str:
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _plain(value: Any) -> Any:
    """Without what says nothing, and without uids: each place gives its own."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in (None, "", [], {}, 0) and key != "uid"}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
