"""Machines that pretend: nodes with GPUs and topology labels, and KWOK to play their kubelets.

A pod that is bound to a node runs at once and goes on for ever; its annotations say otherwise:

====================================  ====================================================================
``testing.tenure/runs-for: 30s``      it succeeds after that time
``testing.tenure/exit-code: "1"``     it ends (now, or after ``runs-for``) with that exit code; 0 is success
``testing.tenure/hold: ""``           it stays Pending, as while an image is pulled
``testing.tenure/rejected: OutOfgpu`` the kubelet refuses it: Failed, with that reason
``testing.tenure/stuck: ""``          once deleted, it stays Terminating
====================================  ====================================================================

They may be set in a template, or on a pod that runs. Where a test has a clock of its own, kubelets can be made to wait
for its word (``told``): a pod then does nothing until it has

====================================  ====================================================================
``testing.tenure/go: ""``             it runs
``testing.tenure/exit-code: "0"``     it ends, as above
``testing.tenure/gone: ""``           it goes, if it was deleted
``testing.tenure/at: TIME``           whichever it does, its status says that it was then
====================================  ====================================================================

Nodes send no heartbeats (nobody here reads them), so an idle
cluster of any size is really idle; a node's conditions are what a test wrote, and Ready when it wrote none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tenure.testing.kube.api import Object
from tenure.testing.kube.process import Program

PREFIX = "testing.tenure"
RUNS_FOR = f"{PREFIX}/runs-for"
EXIT_CODE = f"{PREFIX}/exit-code"
HOLD = f"{PREFIX}/hold"
REJECTED = f"{PREFIX}/rejected"
STUCK = f"{PREFIX}/stuck"
GO = f"{PREFIX}/go"
GONE = f"{PREFIX}/gone"
AT = f"{PREFIX}/at"

READY = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
AT_ONCE = 16


# ---- nodes ----


def gpu_node(name: str, gpus: int | str = 8, labels: Mapping[str, str] | None = None, **status: Any) -> Object:
    """A machine as its kubelet would register it."""
    room = {"cpu": "192", "memory": "2Ti", "pods": "250", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"capacity": room, "allocatable": room, "conditions": READY, **status},
    }


def gpu_nodes(
    count: int,
    *,
    gpus: int = 8,
    prefix: str = "node",
    per_domain: int = 16,
    per_rack: int = 4,
    region: str = "us-west",
    cluster: str = "gpu-a",
    flavor: str = "H100-80GB",
) -> list[Object]:
    """Machines in racks in fabric domains, labelled as SPEC 5 expects.

    >>> first, *_, last = gpu_nodes(40)
    >>> last["metadata"]["name"], last["metadata"]["labels"]["fabric.domain"], last["metadata"]["labels"]["rack"]
    ('node-0039', 'domain-02', 'rack-009')
    """
    where = {"region": region, "cluster": cluster, "gpu.flavor": flavor}
    return [
        gpu_node(
            f"{prefix}-{number:04d}",
            gpus,
            {
                **where,
                "fabric.domain": f"domain-{number // per_domain:02d}",
                "rack": f"rack-{number // per_rack:03d}",
            },
        )
        for number in range(count)
    ]


# ---- kubelets ----


class Kwok:
    """KWOK at work on all nodes of a cluster."""

    def __init__(
        self, program: Path, kubeconfig: Path, folder: Path, *, outlive: bool = False, told: bool = False
    ) -> None:
        config = folder / "kwok.yaml"
        config.write_text(yaml.safe_dump_all([_options(), *stages(told=told)], sort_keys=False))
        command = [str(program), f"--kubeconfig={kubeconfig}", f"--config={config}", "--manage-all-nodes=true"]
        self.process = Program("kwok", command, folder / "kwok.log", outlive=outlive)

    @classmethod
    @contextmanager
    def started(cls, program: Path, kubeconfig: Path, folder: Path, *, told: bool = False) -> Iterator[Kwok]:
        """KWOK for the length of a block. ``told``: pods wait for a test's word."""
        kwok = cls(program, kubeconfig, folder, told=told)
        kwok.process.start()
        try:
            yield kwok
        finally:
            kwok.process.stop()


def _options() -> Object:
    options = {"podPlayStageParallelism": AT_ONCE, "nodePlayStageParallelism": AT_ONCE, "nodeLeaseDurationSeconds": 0}
    return {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options}


def stages(*, told: bool = False) -> list[Object]:
    """What a kubelet does with a pod, as KWOK's stages; no two of them ever fit the same pod."""
    pending, running = _is(".status.phase", "Pending"), _is(".status.phase", "Running")
    kept, leaving = _absent(".metadata.deletionTimestamp"), _present(".metadata.deletionTimestamp")
    code, runs_for = _annotation(EXIT_CODE), _annotation(RUNS_FOR)
    held, rejected = _annotation(HOLD), _annotation(REJECTED)
    go = [_present(_annotation(GO))] if told else []
    gone = [_present(_annotation(GONE))] if told else []
    return [
        _stage("node-ready", "Node", [_absent(".status.conditions")], _NODE_READY),
        _stage("runs", "Pod", [pending, kept, _absent(held), _absent(rejected), *go], _RUNS),
        _stage("rejected", "Pod", [pending, kept, _present(rejected)], _REJECTED),
        _stage("succeeds-in-time", "Pod", [running, kept, _present(runs_for), _absent(code)], _SUCCEEDS, RUNS_FOR),
        _stage("succeeds", "Pod", [running, kept, _is(code, "0")], _SUCCEEDS, RUNS_FOR),
        _stage("fails", "Pod", [running, kept, _present(code), _is(code, "0", no=True)], _FAILS, RUNS_FOR),
        _stage("goes", "Pod", [leaving, _absent(_annotation(STUCK)), *gone], None),
    ]


def _stage(name: str, kind: str, when: list[Object], status: str | None, delay: str = "") -> Object:
    spec: Object = {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": {"matchExpressions": when}}
    if delay:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": _annotation(delay)}}
    patch = {"subresource": "status", "root": "status", "type": "merge", "template": status}
    spec["next"] = {"delete": True} if status is None else {"patches": [patch]}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _annotation(name: str) -> str:
    return f'.metadata.annotations["{name}"]'


def _is(key: str, value: str, *, no: bool = False) -> Object:
    return {"key": key, "operator": "NotIn" if no else "In", "values": [value]}


def _present(key: str) -> Object:
    return {"key": key, "operator": "Exists"}


def _absent(key: str) -> Object:
    return {"key": key, "operator": "DoesNotExist"}


_NODE_READY = """\
conditions:
- {type: Ready, status: "True", reason: KubeletReady, lastTransitionTime: {{ Now | Quote }}}
"""

_WHEN = f'{{{{ $now := or (index (or .metadata.annotations dict) "{AT}") Now }}}}\n'

_RUNS = (
    _WHEN
    + """\
phase: Running
startTime: {{ $now | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
conditions:
- {type: PodScheduled, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""
)

_REJECTED = f"""\
phase: Failed
reason: {{{{ index .metadata.annotations "{REJECTED}" | Quote }}}}
message: the kubelet refused the pod
"""


def _ended(phase: str, code: str, reason: str) -> str:
    return f"""\
{_WHEN}{{{{ $root := . }}}}
phase: {phase}
conditions:
- {{type: Ready, status: "False", reason: Pod{reason}, lastTransitionTime: {{{{ $now | Quote }}}}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state: {{terminated: {{exitCode: {code}, reason: {reason}, finishedAt: {{{{ $now | Quote }}}}}}}}
{{{{ end }}}}
"""


_SUCCEEDS = _ended("Succeeded", "0", "Completed")
_FAILS = _ended("Failed", f'{{{{ index $root.metadata.annotations "{EXIT_CODE}" }}}}', "Error")
