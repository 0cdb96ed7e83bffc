"""Objects as people write them, and changes to them by path: ``{"spec.envelopes[0].end": None}``."""

import copy
import re
from typing import Any

ABSENT = object()
"""As a value: take the field away."""

BUDGET: dict[str, Any] = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Budget",
    "metadata": {"name": "rai-sys"},
    "spec": {
        "owner": "org:ai:rai:sys",
        "parents": ["org:ai:rai"],
        "envelopes": [
            {
                "name": "west-h100",
                "flavor": "H100-80GB",
                "selector": {"region": "us-west", "cluster": "gpu-a"},
                "concurrency": 256,
                "maxGPUHours": 90_000,
                "start": "2025-11-01T00:00:00Z",
                "end": "2025-12-01T00:00:00Z",
                "sharing": "Family",
                "preActivation": {"allowReservations": True, "allowAdmission": False},
                "lending": {"allow": True, "to": ["org:ai:*"], "maxConcurrency": 64, "maxGPUHours": 10_000},
            },
            {
                "name": "east-h100",
                "flavor": "H100-80GB",
                "selector": {"region": "us-east"},
                "concurrency": 64,
            },
            {"name": "a100", "flavor": "A100-40GB", "selector": {"region": "us-east"}, "concurrency": 8},
        ],
        "aggregateCaps": [
            {
                "name": "all-h100",
                "flavor": "H100-80GB",
                "envelopes": ["west-h100", "east-h100"],
                "maxConcurrency": 300,
                "maxGPUHours": 150_000,
            }
        ],
    },
}

RUN: dict[str, Any] = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "metadata": {"name": "train-128", "namespace": "rai"},
    "spec": {
        "owner": "org:ai:rai:sys",
        "resources": {"gpuType": "H100-80GB", "totalGPUs": 128, "gpusPerPod": 8},
        "locality": {"groupGPUs": 32, "allowCrossGroupSpread": True, "selector": {"region": "us-west"}},
        "sparesPerGroup": 4,
        "malleable": {"minTotalGPUs": 96, "maxTotalGPUs": 160, "stepGPUs": 32, "desiredTotalGPUs": 128},
        "funding": {"allowBorrow": True, "maxBorrowGPUs": 32, "sponsors": ["org:ai:mm:vision"]},
        "opportunistic": False,
        "runtime": {"expectedDuration": "6h", "checkpoint": "30m", "onPreemption": "Fail", "maxRestarts": 3},
        "template": {"spec": {"containers": [{"name": "main", "image": "x", "command": ["sleep", "1"]}]}},
    },
}

FIXED: dict[str, Any] = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Run",
    "metadata": {"name": "plain", "namespace": "rai"},
    "spec": {
        "owner": "org:ai",
        "resources": {"gpuType": "H100-80GB", "totalGPUs": 40},
        "template": {"spec": {"containers": [{"name": "main"}]}},
    },
}

LEASE: dict[str, Any] = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Lease",
    "metadata": {"name": "train-128-a1-g03-n17-04-0", "namespace": "rai"},
    "spec": {
        "owner": "org:ai:rai:sys",
        "runRef": {"name": "train-128", "uid": "u-1"},
        "compPath": ["SHARD[3]", "D"],
        "slice": {"nodes": ["n17-04"], "gpus": [0, 1, 2, 3], "role": "Active"},
        "interval": {"start": "2025-11-01T00:00:10Z"},
        "paidByEnvelope": "west-h100",
        "paidByBudget": "rai-sys",
        "paidByOwner": "org:ai:rai:sys",
        "reason": "Start",
    },
    "status": {"closed": True, "endTime": "2025-11-01T03:33:29Z", "closureReason": "Completed"},
}

RESERVATION: dict[str, Any] = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Reservation",
    "metadata": {"name": "train-128", "namespace": "rai"},
    "spec": {
        "runRef": {"name": "train-128", "uid": "u-1"},
        "intendedSlice": {"nodes": ["n17-04"], "domain": {"region": "us-west"}},
        "payingEnvelopes": [{"budget": "rai-sys", "envelope": "west-h100", "gpus": 128}],
        "earliestStart": "2025-11-01T06:00:00Z",
    },
    "status": {"state": "Pending", "plannedStart": "2025-11-01T06:00:00Z", "countdownSeconds": 21_600},
}

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "a-00", "labels": {"region": "us-west", "fabric.domain": "A"}},
    "spec": {"unschedulable": False, "taints": [{"key": "x", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
}

NAMESPACE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "rai", "annotations": {"rq.davidlangworthy.io/owner": "org:ai:rai"}},
}

ALL = {tree["kind"]: tree for tree in (BUDGET, RUN, LEASE, RESERVATION, NODE, NAMESPACE)}
EVERY_KIND = frozenset(ALL)


def changed(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of the tree with values put at paths; parents that are absent are made."""
    tree = copy.deepcopy(tree)
    for path, value in changes.items():
        *parents, last = [
            int(step[1:-1]) if step[0] == "[" else step for step in re.findall(r"\[\d+\]|[^.\[\]]+", path)
        ]
        place: Any = tree
        for step in parents:
            place = place[step] if isinstance(step, int) else place.setdefault(step, {})
        if value is ABSENT:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return tree
