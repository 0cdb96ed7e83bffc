"""Promise: whatever is handed in, what is wrong with it is said within 100 ms.

Files of up to a mebibyte (more is not read), hostile ones and honest ones whose only fault is at their very end, are
read in a warm process. Like the start of a command this is felt, so it is in milliseconds, and the fastest of the
repetitions is judged: a busy machine can only add to it. What a command adds is its own start (``startup``).

The tests count the steps of the same texts, which no neighbour can disturb.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from bench.measure import Stopwatch, Took, in_turns
from bench.result import Row, Scale
from tenure.api.decode import read
from tenure.api.text import TEXT_BYTES_MAX, Meter
from tenure.api.yaml_events import read_documents

NAME = "refusals"
GOAL_MS = 100.0
ROUNDS = 20

_RUN = """\
apiVersion: rq.davidlangworthy.io/v1
kind: Run
metadata:
  name: train-{number}
  namespace: rai
spec:
  owner: org:ai:rai:sys
  resources: {{gpuType: H100-80GB, totalGPUs: 128, gpusPerPod: 8}}
  locality:
    groupGPUs: 32
    allowCrossGroupSpread: true  # the fabric is wide enough
    selector: {{region: us-west}}
  sparesPerGroup: 4
  malleable:
    minTotalGPUs: 96
    maxTotalGPUs: 160
    stepGPUs: 32
  funding:
    allowBorrow: true
    maxBorrowGPUs: 32
    sponsors:
    - org:ai:mm:vision
  runtime:
    expectedDuration: 6h
    checkpoint: 30m
  template:
    spec:
      containers:
      - name: main
        image: registry/train:{number}
        command:
        - sh
        - -c
        - |
          set -e
          python train.py --seed {number}
"""
_BUDGET = """\
apiVersion: rq.davidlangworthy.io/v1
kind: Budget
metadata:
  name: team-{number}
spec:
  owner: org:ai:team-{number}
  parents: [org:ai]
  envelopes:
  - name: west
    flavor: H100-80GB
    selector:
      region: us-west
      cluster: gpu-a
    concurrency: 256
    maxGPUHours: 90000
    start: "2025-11-01T00:00:00Z"
    end: "2025-12-01T00:00:00Z"
    sharing: Family
    lending:
      allow: true
      to: ["org:ai:*"]
      maxConcurrency: 64
  - name: east
    flavor: H100-80GB
    selector:
      region: us-east
    concurrency: 64
  aggregateCaps:
  - name: all
    flavor: H100-80GB
    envelopes:
    - west
    - east
    maxConcurrency: 300
"""
_NAMESPACE = "kind: Namespace\nmetadata:\n  name: n{number}\n"
_WRONG = "kind: Budjet\n"


def _filled(template: str, last: str, *, most: int = 10_000) -> str:
    """So many documents as fit into a mebibyte, and a last one."""
    room = TEXT_BYTES_MAX - len(last)
    documents: list[str] = []
    for number in count():
        document = f"{template.format(number=number)}---\n"
        room -= len(document)
        if room < 0 or number + 1 == most:
            return "".join([*documents, last])
        documents.append(document)
    raise AssertionError


def _json_list() -> str:
    run = {"kind": "Run", "metadata": {"name": "", "namespace": "rai"},
           "spec": {"owner": "org:ai", "resources": {"gpuType": "H100-80GB", "totalGPUs": 40, "gpusPerPod": 8},
                    "template": {"spec": {"containers": [{"name": "main", "command": ["sleep", "1"]}]}}}}  # fmt: skip
    size = len(json.dumps(run)) + 16
    runs = [run | {"metadata": {"name": f"r{number}"}} for number in range(TEXT_BYTES_MAX // size)]
    return json.dumps([*runs, {"kind": "Budjet"}])


_ENVELOPE = "  - name: e{number}\n    flavor: H100\n    selector: {{region: west}}\n    concurrency: 8\n"
TEXTS: dict[str, Callable[[], str]] = {
    "runs, the last wrong": partial(_filled, _RUN, _WRONG),
    "budgets, the last wrong": partial(_filled, _BUDGET, _WRONG),
    "tiny documents, the last wrong": partial(_filled, _NAMESPACE, _WRONG),
    "JSON, the last wrong": _json_list,
    "a quote that does not end": partial(_filled, _RUN, f'{_WRONG}"'),
    "a key twice at the end": partial(_filled, _BUDGET, f"{_WRONG}{_WRONG}"),
    "a Budget of thousands of envelopes": lambda: (
        "kind: Budget\nmetadata: {name: x}\nspec:\n  owner: org\n  envelopes:\n"
        + "".join(_ENVELOPE.format(number=number) for number in range(2_500))
    ),
    "too many values": lambda: "".join(f"k{number}: v\n" for number in range(90_000)),
    "deep": lambda: "{a: " * (TEXT_BYTES_MAX // 4),
    "deep JSON": lambda: '{"a":' * (TEXT_BYTES_MAX // 5),
    "aliases": lambda: "a: &a [x, x]\n" + "".join(f"k{number}: [*a, *a]\n" for number in range(50_000)),
    "a long string": lambda: "kind: Run\nmetadata: {name: x}\nspec: ".ljust(TEXT_BYTES_MAX, "a"),
}
"""Inputs near the largest that is read. There is something wrong with each."""


def run(scale: Scale, folder: Path) -> list[Row]:
    texts = {name: text() for name, text in TEXTS.items()}
    events = "runs, by events"
    sides = {name: partial(_refuse, text) for name, text in texts.items()}
    sides[events] = partial(_events, texts["runs, the last wrong"])
    times = in_turns(sides, rounds=min(ROUNDS, max(2, scale.rounds)))
    took = {name: times.fastest(name) * 1e3 for name in texts}
    return [
        Row(bench=NAME, what="the slowest refusal of a file near 1 MiB", measured=max(took.values()), unit="ms",
            goal=GOAL_MS, detail={name: round(ms, 1) for name, ms in took.items()}),
        Row(bench=NAME, what="runs, the last wrong: all of it, against their YAML from events",
            measured=times.ratio("runs, the last wrong", events, "cpu")),
    ]  # fmt: skip


def _refuse(text: str, _: int) -> Took:
    with Stopwatch() as watch:
        reading = read(text)
    if reading.objects or not reading.errors:
        raise RuntimeError("there was nothing wrong with it")
    return watch.took


def _events(text: str, _: int) -> Took:
    with Stopwatch() as watch:
        for _ in read_documents(text, Meter(TEXT_BYTES_MAX)):
            pass
    return watch.took
