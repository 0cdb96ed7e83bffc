"""A cluster to measure on: a real API server with the admission policies, KWOK nodes, and the operator as a process.

The webhook is left out on both sides: it would be called for what the bare client submits too, and nobody would answer.
Writes are counted by the API server itself, so that nothing is missed; those of KWOK (a pod's status) and of whoever
submits (a Run) are not the operator's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bench.kube.bare import Bare
from tenure.api.meta import API_VERSION, GROUP, OWNER_ANNOTATION
from tenure.kube.install import manifests
from tenure.kube.system import System
from tenure.testing.kube import ControlPlane, Kwok, gpu_nodes, until
from tenure.testing.kube.process import free_ports
from tools.kube_assets import assets

Object = dict[str, Any]
OWNER, FLAVOR, NAMESPACE = "org:lab", "H100-80GB", "lab"
GPUS = 8
RESTING = 0.1
"""An API server that computes less than so much of a second rests."""
_PROGRAM = "import sys; from tenure.cli.main import tenure; sys.exit(tenure())"
_METRIC = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_COUNTED = ("POST", "PUT", "PATCH", "DELETE")
_OTHERS = {("runs", "POST"), ("pods/status", "PATCH"), ("pods", "DELETE"), ("runs", "DELETE")}
"""Who submits, KWOK, and who ends a run."""
_OURS = ("pods", "pods/binding", "services", "events")


class Cluster:
    """A running cluster with Tenure installed, and who writes to it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder, self.api = plane, folder, plane.api
        self.config = plane.service_account(System().namespace, System().account)
        self.loop = asyncio.new_event_loop()
        pki = plane.folder / "pki"
        self.admin = Bare(self.loop, plane.server, plane.authority, pair=(pki / "admin.crt", pki / "admin.key"))
        """Who submits, and watches."""
        token = plane.token(System().namespace, System().account)
        self.bare = Bare(self.loop, plane.server, plane.authority, token)
        """Who writes in the operator's name."""

    @classmethod
    @contextmanager
    def started(cls, folder: Path, *, nodes: int, kwok: bool = True) -> Iterator[Cluster]:
        with ControlPlane.started(folder / "plane", assets()) as plane:
            for item in manifests(System()):
                if "Webhook" not in item["kind"]:
                    plane.api.apply(item).must()
            for name in ("runs", "budgets", "leases", "reservations", "ledgerheads", "ledgerentries"):
                until(lambda name=name: plane.api.get(f"/apis/{API_VERSION}/{name}").ok)  # type: ignore[misc]  # a default
            cluster = cls(plane, folder)
            cluster.furnish(nodes)
            with Kwok.started(plane.programs["kwok"], plane.admin, plane.folder) if kwok else nullcontext():
                try:
                    yield cluster
                finally:
                    cluster.bare.close()
                    cluster.admin.close()
                    cluster.loop.close()

    def furnish(self, nodes: int) -> None:
        """Machines, a namespace, and money for all of them."""
        machines = gpu_nodes(nodes, gpus=GPUS, flavor=FLAVOR)
        self.admin.write([("POST", "/api/v1/nodes", json.dumps(one).encode()) for one in machines])
        self.plane.namespace(NAMESPACE, **{OWNER_ANNOTATION: OWNER})
        envelope = {"name": "main", "flavor": FLAVOR, "selector": {"region": "us-west"}, "concurrency": nodes * GPUS}
        self.plane.ensure({"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": "lab"},
                           "spec": {"owner": OWNER, "envelopes": [envelope]}})  # fmt: skip

    @contextmanager
    def operator(self, *flags: str) -> Iterator[Worker]:
        """The operator as people start it, for the length of a block; ready on entry."""
        with Worker.started(self.config, self.folder, *flags) as worker:
            yield worker

    # -- what is there --

    def path(self, plural: str, name: str = "") -> str:
        base = "/api/v1" if plural in ("pods", "services") else f"/apis/{API_VERSION}"
        return f"{base}/namespaces/{NAMESPACE}/{plural}" + (f"/{name}" if name else "")

    def items(self, plural: str) -> list[Object]:
        found: list[Object] = self.api.get(self.path(plural)).must()["items"]
        return found

    def is_running(self, run: str) -> bool:
        status = self.api.get(self.path("runs", run)).must().get("status") or {}
        return bool(status.get("phase") == "Running")

    def writes(self) -> Counter[str]:
        """What the operator has written since the API server began, by resource and verb."""
        answer = self.api.get("/metrics")
        assert answer.ok, answer.message
        found: Counter[str] = Counter()
        for line in answer.message.splitlines():
            if (match := _METRIC.match(line)) is None:
                continue
            labels = dict(_LABEL.findall(match[1]))
            what = labels["resource"] + (f"/{labels['subresource']}" if labels.get("subresource") else "")
            ours = labels["group"] == GROUP or (what in _OURS and labels["group"] in ("", "events.k8s.io"))
            if ours and labels["verb"] in _COUNTED and (what, labels["verb"]) not in _OTHERS:
                found[f"{what} {labels['verb']}"] += int(float(match[2]))
        return found

    def rest(self, seconds: float = 120.0) -> None:
        """Wait until the API server is done with what it does by itself: taking in what was put into its store."""
        pid, deadline = self.plane.apiserver.pid, time.monotonic() + seconds
        before = processor(pid)
        while time.monotonic() < deadline:
            time.sleep(1.0)
            now = processor(pid)
            if now - before < RESTING:
                return
            before = now

    def wipe(self, *plurals: str) -> None:
        """Let everything of some kinds vanish from the store: after a measurement, faster than by asking."""
        for plural in plurals:
            core = "" if plural in ("pods", "services") else f"{GROUP}/"
            folder = {"services": "services/specs"}.get(plural, plural)
            self._erase(f"/registry/{core}{folder}/{NAMESPACE}/")
            until(lambda plural=plural: not self.api.get(f"{self.path(plural)}?limit=1").must()["items"])  # type: ignore[misc]  # a default

    def forget(self, plural: str, run: str) -> None:
        """Let everything of one kind and one run vanish; its name begins with the run's."""
        self._erase(f"/registry/{GROUP}/{plural}/{NAMESPACE}/{run}-")

    def _erase(self, prefix: str) -> None:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self.store("kv/deleterange", {"key": _base64(prefix), "range_end": _base64(end)})

    def put(self, items: dict[str, bytes]) -> None:
        """Have objects in the store, as the API server would have stored them; at most 128 at a time."""
        puts = [
            {"requestPut": {"key": _base64(key), "value": base64.b64encode(body).decode()}}
            for key, body in items.items()
        ]
        self.store("kv/txn", {"success": puts})

    def store(self, call: str, body: Object) -> Object:
        """Speak to etcd itself."""
        flag = next(one for one in self.plane.etcd.command if one.startswith("--listen-client-urls="))
        request = urllib.request.Request(f"{flag.partition('=')[2]}/v3/{call}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: Object = json.load(answer)
        return found


class Worker:
    """The operator's process."""

    def __init__(self, child: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.child, self.log, self._port = child, log, port

    @classmethod
    @contextmanager
    def started(cls, config: Path, folder: Path, *flags: str, wait: bool = True) -> Iterator[Worker]:
        (port,) = free_ports(1)
        log = folder / "operator.log"
        command = ["operator", "--kubeconfig", str(config), "--journal", str(folder / "journal"),
                   "--probes", f"127.0.0.1:{port}", *flags]  # fmt: skip
        with log.open("ab") as out:
            child = subprocess.Popen([sys.executable, "-c", _PROGRAM, *command], stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=out, env=os.environ)  # fmt: skip
        worker = cls(child, port, log)
        try:
            if wait:
                until(worker.is_ready, 120, every=0.1)
            yield worker
        finally:
            worker.stop()

    def is_ready(self) -> bool:
        if self.child.poll() is not None:
            raise RuntimeError(f"the operator ended: {self.log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()

    def memory(self) -> tuple[int, int]:
        """Bytes it holds now, and the most it ever held."""
        text = Path(f"/proc/{self.child.pid}/status").read_text()
        found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE))
        return int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024

    def processor(self) -> float:
        """Seconds that it computed."""
        return processor(self.child.pid)


def processor(pid: int) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_run(name: str, gpus: int) -> Object:
    """A run as people submit them."""
    main = {"name": "main", "image": "train:1", "command": ["python", "train.py"]}
    return {"apiVersion": API_VERSION, "kind": "Run", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"owner": OWNER, "resources": {"gpuType": FLAVOR, "totalGPUs": gpus},
                     "template": {"spec": {"containers": [main]}}}}  # fmt: skip


def settle(cluster: Cluster, seconds: float = 60.0) -> Counter[str]:
    """Wait until nothing is written for a while; returns what was written up to then."""
    deadline, before = time.monotonic() + seconds, cluster.writes()
    while time.monotonic() < deadline:
        time.sleep(1.6)
        now = cluster.writes()
        if now == before:
            return now
        before = now
    raise TimeoutError(f"the operator goes on writing after {seconds:.0f} s")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
