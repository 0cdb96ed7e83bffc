"""The API server in memory answers as a real one: the same requests are sent to both, and their answers are compared.

The requests are drawn from a seed, over the verbs, the parts and the mistakes that Tenure's client can make: a second
create, an old version, a wrong uid, a patch whose test fails, a status in the wrong place, finalizers on what is
leaving, selectors, pages, and watches from where a list ended. Compared are the status, the server's reason, and
everything in an object but what each server makes up for itself.
"""

import itertools
import json
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest

from proof.sim.api import Server
from proof.sim.api_forms import JSON_PATCH, MERGE
from proof.sim.api_shelf import Stream
from proof.sim.loop import VirtualLoop
from tenure.api import ledger_objects
from tenure.api.meta import API_VERSION
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.install import manifests
from tenure.kube.loop import IO
from tenure.kube.resources import CONFIG_MAPS, LEASES, LEDGER_HEADS, NODES, PODS, RUNS, Resource
from tenure.kube.system import System
from tenure.testing import START
from tenure.testing.kube import ControlPlane, until
from tests.kube.conftest import plane, programs  # noqa: F401 -- the fixtures of the tier with a real API server

Object = dict[str, Any]
Answer = tuple[int, Object]
STEPS = 120
NUMBERS = itertools.count()
MADE_UP = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "deletionTimestamp", "selfLink")
PLAIN = "application/json"
FINALIZER = "rq.davidlangworthy.io/leases"
DIGESTS = ["0" * 64, "1" * 64, "2" * 64]


class Both:
    """A caller of two servers, who remembers which object of the one is which of the other."""

    def __init__(self, real: ControlPlane, fake: Server) -> None:
        self.real, self.fake = real.api, fake
        self.space = ""

    def call(
        self, method: str, path: str, body: Any = None, *, content: str = PLAIN, **query: Any
    ) -> tuple[Answer, Answer]:
        asked = f"{path}?{urlencode(query)}" if query else path
        found = self.real.call(method, asked, self._dressed(body, 0), form=content)
        data = None if body is None else json.dumps(self._dressed(body, 1)).encode()
        reply = self.fake.handle(method, path, query, data, content=content)
        return (found.status, found.body), (reply.status, json.loads(reply.body))

    def _dressed(self, body: Any, side: int) -> Any:
        """What differs between the servers is written as a pair: here each gets its own."""
        if isinstance(body, tuple):
            return body[side]
        if isinstance(body, dict):
            return {key: self._dressed(value, side) for key, value in body.items()}
        return [self._dressed(value, side) for value in body] if isinstance(body, list) else body

    def same(self, method: str, path: str, body: Any = None, **rest: Any) -> Answer:
        """Ask both; they must agree. Returns the answer, with pairs for what each made up."""
        one, other = self.call(method, path, body, **rest)
        about = f"{method} {path} {body} {rest}:\n real {one}\n fake {other}"
        assert one[0] == other[0], about
        if one[0] >= 300:
            assert one[1]["reason"] == other[1]["reason"], about
        elif one[1].get("kind") != "Status":
            assert essence(one[1]) == essence(other[1]), about
        return one[0], paired(one[1], other[1])


def essence(item: Any) -> Any:
    """What an object says, less what a server makes up and fills in."""
    if "items" in item:
        return [essence(one) for one in item["items"]]
    meta = {key: value for key, value in item["metadata"].items() if key not in MADE_UP}
    kept = {"metadata": meta}
    if item.get("kind") in ("Node", "Pod"):  # a real server fills in a hundred defaults
        spec, status = item.get("spec") or {}, item.get("status") or {}
        meta.pop("generation", None)
        kept["spec"] = {key: spec[key] for key in ("nodeName", "unschedulable") if key in spec}
        kept["status"] = {key: status[key] for key in ("phase", "reason") if key in status}
        return kept
    return {**kept, "spec": item.get("spec"), "status": item.get("status"), "data": item.get("data")}


def paired(one: Object, other: Object) -> Object:
    meta, theirs = one.get("metadata") or {}, other.get("metadata") or {}
    pairs = {
        key: (meta[key], theirs[key]) for key in ("uid", "resourceVersion", "continue") if key in meta and key in theirs
    }
    return {**one, "metadata": {**meta, **pairs}}


@pytest.fixture(scope="module")
def servers(plane: ControlPlane) -> Iterator[Both]:  # noqa: F811
    kinds = [ledger_objects.manifest(kind) for kind in ledger_objects.RESOURCES]
    for item in [*kinds, *manifests(System())]:
        if not item["apiVersion"].startswith("admissionregistration"):
            plane.api.apply(item).must()
    for name in ("runs", "leases", "reservations", "ledgerheads", "ledgerentries"):
        until(lambda name=name: plane.api.get(f"/apis/{API_VERSION}/{name}").ok)
    loop = VirtualLoop()
    with loop.entered():
        made = Both(plane, Server(lambda: START))
        yield made
    loop.close()


@pytest.fixture
def both(servers: Both, plane: ControlPlane) -> Both:  # noqa: F811
    """In a namespace that no other test knows."""
    servers.space = plane.namespace(f"contract-{next(NUMBERS)}")
    body = json.dumps({"metadata": {"name": servers.space}}).encode()
    assert servers.fake.handle("POST", "/api/v1/namespaces", {}, body).status == 201
    return servers


def run(name: str, space: str) -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"owner": "org:lab", "resources": {"gpuType": "H100-80GB", "totalGPUs": 4}, "template": template,
            "opportunistic": False, "sparesPerGroup": 0}  # fmt: skip
    return RUNS.named(name, space, spec=spec)


def lease(name: str, space: str) -> Object:
    """As the operator writes it: see ``shown.lease_object``."""
    spec = {
        "owner": "org:lab",
        "runRef": {"name": "x"},
        "slice": {"nodes": ["n0"], "role": "Active", "gpus": [0]},
        "interval": {"start": "2025-11-01T00:00:00Z"},
        "paidByBudget": "lab",
        "paidByEnvelope": "main",
        "paidByOwner": "org:lab",
        "reason": "Start",
        "compPath": ["group-0"],
    }
    return LEASES.named(name, space, spec=spec)


CLOSED = {"status": {"closed": True, "endTime": "2025-11-01T01:00:00Z", "closureReason": "Completed"}}


def step(both: Both, luck: Random, known: dict[str, Object]) -> None:
    """One request, sensible or not."""
    resource: Resource = luck.choice((RUNS, RUNS, LEASES, CONFIG_MAPS))
    name = luck.choice(("a", "b", "c"))
    path, key = resource.path(both.space, name), f"{resource.plural}/{name}"
    seen = known.get(key)
    stale = luck.random() < 0.3
    match luck.choice(("create", "create", "get", "status", "merge", "json", "finalize", "replace", "delete", "list")):
        case "create":
            body = (
                run(name, both.space)
                if resource is RUNS
                else lease(name, both.space)
                if resource is LEASES
                else CONFIG_MAPS.named(name, both.space)
            )
            query = {"dryRun": "All"} if luck.random() < 0.2 else {}
            status, found = both.same("POST", resource.path(both.space), body, **query)
            if status == 201 and not query:
                known[key] = found
        case "get":
            both.same("GET", path)
        case "status" if resource is RUNS:
            change = [{"op": "add", "path": "/status", "value": {"phase": luck.choice(("Pending", "Running"))}}]
            both.same("PATCH", f"{path}/status", change, content=JSON_PATCH)
        case "status" if resource is LEASES:
            both.same("PATCH", f"{path}/status", CLOSED, content=MERGE)
        case "merge":
            meta: Object = {"annotations": {"example.com/note": luck.choice(("1", "2"))}}
            if seen is not None and stale:
                meta["resourceVersion"] = seen["metadata"]["resourceVersion"]
            both.same("PATCH", path, {"metadata": meta}, content=MERGE)
        case "json":
            what, test = luck.choice(("add", "remove")), luck.choice((name, "other"))
            change = [{"op": "test", "path": "/metadata/name", "value": test},
                      {"op": what, "path": "/metadata/labels", "value": {"l": "1"}}]  # fmt: skip
            both.same("PATCH", path, change, content=JSON_PATCH)
        case "finalize" if resource is RUNS:
            wanted = luck.choice(([FINALIZER], []))
            both.same("PATCH", path, {"metadata": {"finalizers": wanted}}, content=MERGE)
        case "replace" if seen is not None:
            both.same("PUT", path, {**seen, "metadata": {**seen["metadata"], "labels": {"l": luck.choice("12")}}})
        case "delete":
            options: Object = {}
            if seen is not None and luck.random() < 0.5:
                options = {"preconditions": {"uid": seen["metadata"]["uid"]}}
            both.same("DELETE", path, options or None)
        case "list":
            fields = luck.choice(("", "metadata.name=a", "status.closed=true", "status.closed!=true", "spec.no=1"))
            both.same("GET", resource.path(both.space), **({"fieldSelector": fields} if fields else {}))
        case _:
            pass


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_requests_are_answered_alike(both: Both, seed: int) -> None:
    luck, known = Random(seed), {}
    for _ in range(STEPS):
        step(both, luck, known)


def test_the_head_is_swapped_once_forward_and_never_back(both: Both) -> None:
    def head(seq: int, digest: str, version: Any = None) -> Object:
        item = LEDGER_HEADS.named("head", spec={"fleet": "f", "seq": seq, "hash": digest, "at": 0})
        if version is not None:
            item["metadata"]["resourceVersion"] = version
        return item

    path = LEDGER_HEADS.path(None, "head")
    both.same("GET", path)
    status, first = both.same("POST", LEDGER_HEADS.path(), head(0, DIGESTS[0]))
    assert status == 201
    assert both.same("PUT", path, head(1, DIGESTS[1]))[0] == 422  # without a version nothing is swapped
    assert both.same("PUT", path, head(1, DIGESTS[1], first["metadata"]["resourceVersion"]))[0] == 200
    assert both.same("PUT", path, head(1, DIGESTS[2], first["metadata"]["resourceVersion"]))[0] == 409
    status, now = both.same("GET", path)
    assert both.same("PUT", path, head(0, DIGESTS[0], now["metadata"]["resourceVersion"]))[0] == 422


def test_pods_are_bound_once_and_go_as_their_kubelet_says(both: Both) -> None:
    node = {**NODES.named("contract-n0"), "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    both.same("POST", NODES.path(), node)
    pod = PODS.named("p", both.space, spec={"containers": [{"name": "main", "image": "busybox"}]})
    path = PODS.path(both.space, "p")
    both.same("POST", PODS.path(both.space), pod)
    target = {"apiVersion": "v1", "kind": "Node", "name": "contract-n0"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": both.space},
        "target": target,
    }
    assert both.same("POST", f"{path}/binding", binding)[0] == 201
    assert both.same("POST", f"{path}/binding", binding)[0] == 409
    both.same("PATCH", f"{path}/status", {"status": {"phase": "Running"}}, content=MERGE)
    both.same("DELETE", path)  # it is asked to end
    _, found = both.same("GET", path)
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    both.same("DELETE", path, {"gracePeriodSeconds": 0})
    assert both.same("GET", path)[0] == 404
    both.same("DELETE", NODES.path(None, "contract-n0"))


def test_nothing_is_made_where_there_is_no_namespace(both: Both) -> None:
    item = {**run("x", both.space), "metadata": {"name": "x", "namespace": "nowhere"}}
    assert both.same("POST", RUNS.path("nowhere"), item)[0] == 404


def test_lists_come_in_pages_and_watches_go_on_where_they_ended(both: Both, plane: ControlPlane) -> None:  # noqa: F811
    for name in ("a", "b", "c"):
        both.same("POST", LEASES.path(both.space), lease(name, both.space))
    _, page = both.same("GET", LEASES.path(both.space), limit=2)
    assert [one["metadata"]["name"] for one in page["items"]] == ["a", "b"]
    tokens = page["metadata"]["continue"]
    rest = both.real.call("GET", f"{LEASES.path(both.space)}?limit=2&continue={tokens[0]}").body
    ours = both.fake.handle("GET", LEASES.path(both.space), {"limit": 2, "continue": tokens[1]})
    assert essence(rest) == essence(json.loads(ours.body))
    since = page["metadata"]["resourceVersion"]
    both.same("PATCH", f"{LEASES.path(both.space, 'b')}/status", CLOSED, content=MERGE)
    both.same("POST", LEASES.path(both.space), lease("d", both.space))
    both.same("DELETE", LEASES.path(both.space, "a"))
    for fields in ("", "status.closed!=true", "status.closed=true"):
        query = {"resourceVersion": since[1], **({"fieldSelector": fields} if fields else {})}
        stream = both.fake.watch(LEASES.path(both.space), query)
        assert isinstance(stream, Stream)
        told = [news(json.loads(line)) for line in stream.ready()]
        assert told == watched(plane, both.space, since[0], fields), fields
        assert told


def watched(plane: ControlPlane, space: str, since: str, fields: str) -> list[Any]:  # noqa: F811
    """What the real server tells of leases from a version on."""

    async def watch() -> list[Any]:
        async with Client(from_kubeconfig(plane.admin)) as client:
            events = client.watch(LEASES, space, resource_version=since, fields=fields, timeout_seconds=1)
            return [news({"type": one.type, "object": one.object}) async for one in events if one.type != "BOOKMARK"]

    with IO() as io:
        return io.run(watch())


def news(event: Object) -> Any:
    return event["type"], essence(event["object"])


def test_what_is_too_old_to_go_on_from_is_said_to_be(both: Both) -> None:
    """Only of the fake: a real server forgets after minutes. This is what it then says (tests/kube/test_informer)."""
    before = both.fake.version
    both.fake.handle("POST", CONFIG_MAPS.path(both.space), {}, json.dumps(CONFIG_MAPS.named("z", both.space)).encode())
    both.fake.forget()
    reply = both.fake.watch(CONFIG_MAPS.path(), {"resourceVersion": str(before)})
    assert not isinstance(reply, Stream)
    event = json.loads(reply.body)
    said = (event["type"], event["object"]["code"], event["object"]["reason"])
    assert (reply.status, *said) == (200, "ERROR", 410, "Expired")
