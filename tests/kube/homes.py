"""One world in two homes: the same machines, money and runs in an embedded fleet and in a cluster, asked alike."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from tenure.api.meta import GROUP
from tenure.kube.certs import Keeper
from tenure.kube.loop import IO
from tenure.testing.kube import RUNS_FOR, ControlPlane, gpu_node, until
from tenure.testing.kube.kwok import HOLD
from tests.cli import support
from tests.cli.support import BUDGETS, Done
from tests.kube.worlds import World

NODES = {"a-0": "A", "a-1": "A", "b-0": "B"}
PERSON = "ada"


def run_yaml(
    name: str, gpus: int, script: str = "sleep 3600", *, seconds: int = 0, held: bool = False, **spec: Any
) -> str:
    """A Run in namespace rai; ``seconds``: how long KWOK pretends that its pods run, as the script really does;
    ``held``: it lets them run when it is told to, see ``Kept``."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    notes = {**({RUNS_FOR: f"{seconds}s"} if seconds else {}), **({HOLD: ""} if held else {})}
    resources = {"gpuType": "H100", "totalGPUs": gpus, **spec.pop("resources", {})}
    template = {**({"metadata": {"annotations": notes}} if notes else {}), "spec": {"containers": [container]}}
    body = {"resources": resources, "template": template, **spec}
    return json.dumps({"apiVersion": f"{GROUP}/v1", "kind": "Run", "metadata": {"name": name, "namespace": "rai"},
                       "spec": body})  # fmt: skip


class Home:
    """A home that is driven, and a way to ask it."""

    def __init__(self, name: str, **env: str) -> None:
        self.name, self.env = name, env

    def call(self, *words: str, stdin: str | None = None) -> Done:
        return support.call("runs", *words, stdin=stdin, **self.env)

    def submit(self, *texts: str, flags: tuple[str, ...] = ()) -> Done:
        return self.call("submit", "-f", "-", *flags, stdin="\n---\n".join(texts))

    def phase(self, key: str) -> str:
        told = self.call("list", "-A", "-o", "json").json["items"]
        found = {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one["status"]["phase"] for one in told}
        return str(found.get(key, "Gone"))

    def is_phase(self, key: str, phase: str) -> None:
        until(lambda: self.phase(key) == phase)


class Kept:
    """What KWOK waits with until a command was answered, so that the answer does not race with the operator.

    In an embedded fleet nothing has to wait: a command decides by itself, and tells that.
    """

    def __init__(self, plane: ControlPlane | None) -> None:
        self._plane = plane

    def _note(self, key: str, **notes: str | None) -> None:
        if self._plane is not None:
            namespace, _, run = key.partition("/")
            world = World(self._plane, namespace)
            for pod in until(lambda: world.pods(run)):
                world.note(pod["metadata"]["name"], **notes)

    def go(self, key: str) -> None:
        """Pods of a run that was submitted as ``held`` run."""
        self._note(key, hold=None)

    @contextmanager
    def stays(self, key: str) -> Iterator[None]:
        """Pods of a run that are told to go do so after the block."""
        self._note(key, stuck="")
        try:
            yield
        finally:
            self._note(key, stuck=None)


VISION = """
kind: Namespace
metadata: {name: vis, annotations: {rq.davidlangworthy.io/owner: "org:ai:vision"}}
"""


def prepared(home: Home) -> Home:
    """Four runs: one that is over, one that runs, one that waits for it, one that can never start."""
    assert home.submit(BUDGETS, VISION).code == 0
    assert home.submit(run_yaml("done", 2, "sleep 1", seconds=1)).code == 0
    home.is_phase("rai/done", "Completed")
    assert home.submit(run_yaml("train", 8, runtime={"expectedDuration": "1h"})).code == 0
    home.is_phase("rai/train", "Running")
    assert home.submit(run_yaml("wide", 12), run_yaml("giant", 64)).code == 0
    return home


def still(text: str) -> str:
    """The text with everything taken out that is different each time, and each place: names first, see support."""
    text = re.sub(r"\b(wide|urgent)-[0-9a-f]{8}\b|\b(entry) \d+", r"\1\2 ID", text)
    return re.sub(r"\bN\.NN\b|\b0\.\d+\b", "N.NN", support.still(text))


def cluster_home(plane: ControlPlane, config: Path, cache: Path) -> Home:
    return Home("cluster", KUBECONFIG=str(config), TENURE_CACHE=str(cache), HOME=str(cache))


def machines(plane: ControlPlane, kubelet: int) -> None:
    """The machines, whose kubelets all answer at one port."""
    where = {"region": "west", "cluster": "lab", "gpu.flavor": "H100"}
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
    }
    nodes = [gpu_node(name, 8, {**where, "fabric.domain": domain}, **status) for name, domain in NODES.items()]
    plane.api.create_all(nodes)


@contextmanager
def kubelet() -> Iterator[int]:
    """What KWOK leaves out of a kubelet: logs. Every container writes the same two lines, one of them later.

    Who follows gets one of them, and is hung up on: what is missing comes to who asks again.
    """
    lines = [("2026-01-01T00:00:00Z", "hello\n"), ("2026-01-01T00:00:01Z", "done\n")]

    async def written(request: web.Request) -> web.StreamResponse:
        asked = request.query
        answer = web.StreamResponse()
        await answer.prepare(request)
        found = [line for line in lines if line[0] >= asked.get("sinceTime", "")]
        for stamp, text in found[:1] if asked.get("follow") and len(found) == len(lines) else found:
            await answer.write((f"{stamp} {text}" if asked.get("timestamps") else text).encode())
        return answer

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", written)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(
            runner, "127.0.0.1", 0, ssl_context=Keeper(["127.0.0.1"], now=datetime.now(UTC)).context
        ).start()
        return runner

    with IO("kubelet") as io:
        runner = io.run(start())
        yield runner.addresses[0][1]
        io.run(runner.cleanup())


def binding(role: str, person: str = PERSON) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{person}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person}],
    }  # fmt: skip
