"""Objects for a cluster in few words: what people would write, and what a test asks of the API server."""

from __future__ import annotations

from typing import Any

from tenure.api.meta import API_VERSION, OWNER_ANNOTATION
from tenure.testing.kube import ControlPlane, until

Object = dict[str, Any]
OWNER = "org:lab"
FLAVOR = "H100-80GB"
GROUP = f"/apis/{API_VERSION}"


def budget(name: str = "lab", gpus: int = 1024, **rest: Any) -> Object:
    envelope = {"name": "main", "flavor": FLAVOR, "selector": {"region": "us-west"}, "concurrency": gpus, **rest}
    return {"apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": name},
            "spec": {"owner": f"org:{name}", "envelopes": [envelope]}}  # fmt: skip


def run(name: str, gpus: int, *, namespace: str, notes: dict[str, str] | None = None, **spec: Any) -> Object:
    """``notes`` are annotations of its pods: what KWOK is to do with them."""
    template = {
        "metadata": {"annotations": notes or {}},
        "spec": {"containers": [{"name": "main", "image": "busybox", "command": ["true"]}]},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "owner": OWNER,
            "resources": {"gpuType": FLAVOR, "totalGPUs": gpus},
            "template": template,
            **spec,
        },
    }


class World:
    """One namespace of a cluster, seen and written by a test."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.api, self.namespace = plane, plane.api, namespace

    @classmethod
    def made(cls, plane: ControlPlane, namespace: str) -> World:
        plane.namespace(namespace, **{OWNER_ANNOTATION: OWNER})
        return cls(plane, namespace)

    def submit(self, name: str, gpus: int, **rest: Any) -> Object:
        return self.api.create(run(name, gpus, namespace=self.namespace, **rest)).must()

    def path(self, plural: str, name: str = "") -> str:
        base = "/api/v1" if plural in ("pods", "services", "events") else GROUP
        return f"{base}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def run(self, name: str) -> Object:
        return self.api.get(self.path("runs", name)).must()

    def phase(self, name: str) -> str:
        answer = self.api.get(self.path("runs", name))
        return "Gone" if answer.status == 404 else str(answer.body.get("status", {}).get("phase", ""))

    def is_phase(self, name: str, phase: str) -> Object:
        until(lambda: self.phase(name) == phase)
        return {} if phase == "Gone" else self.run(name)

    def condition(self, name: str, kind: str) -> Object:
        found = self.run(name).get("status", {}).get("conditions") or []
        return next((one for one in found if one["type"] == kind), {})

    def items(self, plural: str, run: str = "") -> list[Object]:
        found: list[Object] = self.api.get(self.path(plural)).must()["items"]
        label = "rq.davidlangworthy.io/run"
        mine = [one for one in found if run in ("", (one["metadata"].get("labels") or {}).get(label))]
        return sorted(mine, key=lambda one: str(one["metadata"]["name"]))

    def pods(self, run: str = "") -> list[Object]:
        return self.items("pods", run)

    def leases(self, run: str = "") -> list[Object]:
        return self.items("leases", run)

    def open_leases(self, run: str = "") -> list[Object]:
        return [one for one in self.leases(run) if not (one.get("status") or {}).get("closed")]

    def closures(self, run: str = "") -> list[str]:
        return sorted(
            {str(one["status"]["closureReason"]) for one in self.leases(run) if (one.get("status") or {}).get("closed")}
        )

    def note(self, pod: str, **notes: str | None) -> None:
        """Annotate a pod, so that KWOK does something with it; None takes an annotation away."""
        change = {
            "metadata": {
                "annotations": {f"testing.tenure/{key.replace('_', '-')}": text for key, text in notes.items()}
            }
        }
        self.api.patch(self.path("pods", pod), change).must()

    def delete(self, plural: str, name: str, grace: int | None = None) -> None:
        self.api.delete(self.path(plural, name), grace=grace).must()
