"""What hostile manifests are made of: honest objects, the places in them, and ways to write them down."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
from typing import Any

import yaml
from msgspec import Struct

Tree = dict[str, Any]
MIB = 1024 * 1024
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_STEP = re.compile(r"\[\d+\]|[^.\[\]]+")


class Variant(Struct, frozen=True):
    """One manifest. ``bad``: it must be refused by whoever reads the text; otherwise it may be good."""

    text: bytes
    bad: bool = True
    together: bool = False
    """Each object is good, and the last one wrong where the others are: all are sent to the webhook, in their order."""
    tree: Any = None
    """What a plain text says, however it is spelled."""

    def less(self, name: str) -> str:
        """What is left of it without its own name: two variants that differ in less are one."""
        text = self.text if self.tree is None else json.dumps(self.tree).encode()
        for code in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le"):
            text = text.replace(name.encode(code), b"")
        return hashlib.sha256(text).hexdigest()


def run(name: str = "honest") -> Tree:
    """A Run with everything in it that a person can say, and valid."""
    container = {"name": "main", "image": "registry/train:1", "command": ["sh", "-c", "sleep 1"],
                 "env": [{"name": "MODE", "value": "train"}]}  # fmt: skip
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": name, "namespace": "rai", "labels": {"team": "sys"}, "annotations": {"note": "a test"}},
        "spec": {
            "owner": "org:ai:rai:sys",
            "resources": {"gpuType": "H100", "totalGPUs": 4, "gpusPerPod": 2},
            "locality": {"groupGPUs": 2, "allowCrossGroupSpread": True, "selector": {"region": "west"}},
            "sparesPerGroup": 0,
            "malleable": {"minTotalGPUs": 2, "maxTotalGPUs": 6, "stepGPUs": 2, "desiredTotalGPUs": 4},
            "funding": {"allowBorrow": True, "maxBorrowGPUs": 2, "sponsors": ["org:ai:vision"]},
            "opportunistic": False,
            "runtime": {"expectedDuration": "6h", "checkpoint": "30m", "onPreemption": "Fail", "maxRestarts": 3},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}},
        },
    }


def budget(name: str = "honest") -> Tree:
    """The same for a Budget."""
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Budget",
        "metadata": {"name": name},
        "spec": {
            "owner": f"org:x:{name}"[:60],
            "parents": ["org:x"],
            "envelopes": [
                {"name": "west", "flavor": "H100", "selector": {"region": "west"}, "concurrency": 8,
                 "maxGPUHours": 100, "start": "2025-11-01T00:00:00Z", "end": "2025-12-01T00:00:00Z",
                 "sharing": "Family", "preActivation": {"allowReservations": True, "allowAdmission": False},
                 "lending": {"allow": True, "to": ["org:ai:*"], "maxConcurrency": 4, "maxGPUHours": 10}},
                {"name": "east", "flavor": "H100", "selector": {"region": "east"}, "concurrency": 8},
            ],
            "aggregateCaps": [{"name": "all", "flavor": "H100", "envelopes": ["west", "east"], "maxConcurrency": 12,
                               "maxGPUHours": 1000}],
        },
    }  # fmt: skip


RUN_NUMBERS = (
    "spec.resources.totalGPUs", "spec.resources.gpusPerPod", "spec.locality.groupGPUs", "spec.sparesPerGroup",
    "spec.malleable.minTotalGPUs", "spec.malleable.maxTotalGPUs", "spec.malleable.stepGPUs",
    "spec.malleable.desiredTotalGPUs", "spec.funding.maxBorrowGPUs", "spec.runtime.maxRestarts",
)  # fmt: skip
BUDGET_NUMBERS = (
    "spec.envelopes[0].concurrency", "spec.envelopes[0].maxGPUHours", "spec.envelopes[0].lending.maxConcurrency",
    "spec.envelopes[0].lending.maxGPUHours", "spec.aggregateCaps[0].maxConcurrency",
    "spec.aggregateCaps[0].maxGPUHours",
)  # fmt: skip
RUN_WORDS = (
    "metadata.name", "metadata.namespace", "spec.owner", "spec.resources.gpuType", "spec.runtime.onPreemption",
    "spec.locality.selector.region", "spec.funding.sponsors[0]", "metadata.labels.team",
    "spec.template.spec.containers[0].name",
)  # fmt: skip
"""Places for words of a fixed grammar: whatever else stands there is wrong."""
BUDGET_WORDS = (
    "metadata.name", "spec.owner", "spec.parents[0]", "spec.envelopes[0].name", "spec.envelopes[0].flavor",
    "spec.envelopes[0].selector.region", "spec.envelopes[0].sharing", "spec.envelopes[0].lending.to[0]",
    "spec.aggregateCaps[0].name", "spec.aggregateCaps[0].envelopes[0]",
)  # fmt: skip
FREE = (
    "spec.template.spec.containers[0].command[2]", "spec.template.spec.containers[0].env[0].value",
    "spec.template.spec.containers[0].image", "metadata.annotations.note", "spec.template.spec.serviceAccountName",
)  # fmt: skip
"""Places for text that is the tenant's own business."""
RUN_PARTS = (
    "metadata", "metadata.labels", "metadata.annotations", "spec", "spec.resources", "spec.locality",
    "spec.locality.selector", "spec.malleable", "spec.funding", "spec.funding.sponsors", "spec.runtime",
    "spec.template", "spec.template.metadata", "spec.template.metadata.labels", "spec.template.spec",
    "spec.template.spec.containers", "spec.template.spec.containers[0]", "spec.template.spec.containers[0].command",
    "spec.template.spec.containers[0].env", "spec.template.spec.containers[0].env[0]",
    "spec.template.spec.containers[0].resources", "spec.template.spec.initContainers",
    "spec.template.spec.tolerations", "spec.template.metadata.annotations",
)  # fmt: skip
BUDGET_PARTS = (
    "metadata", "spec", "spec.parents", "spec.envelopes", "spec.envelopes[0]", "spec.envelopes[0].selector",
    "spec.envelopes[0].preActivation", "spec.envelopes[0].lending", "spec.envelopes[0].lending.to",
    "spec.aggregateCaps", "spec.aggregateCaps[0]", "spec.aggregateCaps[0].envelopes",
)  # fmt: skip


def put(tree: Tree, path: str, value: Any) -> Tree:
    """A copy with a value at a path; parents that are absent are made."""
    tree = copy.deepcopy(tree)
    *parents, last = [int(step[1:-1]) if step[0] == "[" else step for step in _STEP.findall(path)]
    place: Any = tree
    for step in parents:
        place = place[step] if isinstance(step, int) else place.setdefault(step, {})
    place[last] = value
    return tree


def at(tree: Tree, path: str) -> Any:
    """What stands there; None if nothing does."""
    place: Any = tree
    for step in _STEP.findall(path):
        place = place[int(step[1:-1])] if step[0] == "[" else place.get(step)
        if place is None:
            return None
    return place


def one(luck: random.Random, name: str) -> Tree:
    """A Run or a Budget."""
    return run(name) if luck.random() < 0.6 else budget(name)


def pick(luck: random.Random, tree: Tree, runs: tuple[str, ...], budgets: tuple[str, ...]) -> str:
    return luck.choice(runs if tree["kind"] == "Run" else budgets)


def plain(luck: random.Random, tree: Any, *, bad: bool = True, together: bool = False) -> Variant:
    """A variant that is hostile by what it says, and not by how."""
    return Variant(said(luck, tree), bad, together, tree)


def said(luck: random.Random, tree: Any) -> bytes:
    """The tree as text: JSON in one line or in many, or YAML."""
    how = luck.randrange(3)
    if how == 0:
        return json.dumps(tree).encode("utf-8", "surrogatepass")
    if how == 1:
        return json.dumps(tree, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return as_yaml(tree)


def as_yaml(tree: Any) -> bytes:
    text: str = yaml.dump(tree, Dumper=_DUMPER, sort_keys=False, default_flow_style=False, allow_unicode=True)
    return text.encode()


def size(luck: random.Random, most: int) -> int:
    """Small ones mostly, large ones too."""
    return int(most ** luck.random()) + 1
