"""SPEC 15: how a timeline is played, and what is printed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tenure.shell.store import MemoryStore
from tenure.simulate.scenario import read_scenario
from tenure.testing.scenarios import brief, play

HEAD = """
kind: Scenario
metadata: {name: test}
start: "2025-11-01T00:00:00Z"
nodes:
- name: "a-{i:02d}"
  count: 2
  gpus: 8
  labels: {region: us-west, cluster: gpu-a, fabric.domain: A, gpu.flavor: H100-80GB}
objects:
- kind: Budget
  metadata: {name: rai}
  spec:
    owner: "org:rai"
    envelopes: [{name: main, flavor: H100-80GB, selector: {region: us-west}, concurrency: 16}]
"""
TRAIN = (
    "{kind: Run, metadata: {name: train, namespace: rai}, spec: {owner: 'org:rai', "
    "resources: {gpuType: H100-80GB, totalGPUs: 16}, locality: {groupGPUs: 8}%s}}"
)
BAD = TRAIN.replace("train", "bad").replace("16", "0") % ""


def run_yaml(extra: str = "") -> str:
    return TRAIN % (f", {extra}" if extra else "")


def played(tail: str, *, head: str = HEAD) -> dict[str, Any]:
    scenario, errors = read_scenario(head + tail)
    assert scenario is not None, [error.sentence() for error in errors]
    output = play(scenario, MemoryStore())
    return {"output": output, **brief(output, start=scenario.start)}


def errors_of(text: str) -> list[str]:
    scenario, errors = read_scenario(text)
    assert scenario is None
    return [error.path for error in errors]


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_declared_run_without_a_workload_entry_succeeds_when_its_time_is_over() -> None:
    told = played(f"- {run_yaml('runtime: {expectedDuration: 90m}')}\nuntil: 2h\n")
    assert told["events"][-1] == "1h30m Completed Run/rai/train Completed"


def test_an_undeclared_run_without_a_workload_entry_goes_on_for_ever() -> None:
    told = played(f"- {run_yaml()}\nuntil: 365d\n")
    assert told["runs"]["final"] == {"rai/train": "Running"}


def test_a_declared_run_with_a_workload_entry_ends_by_that_entry_alone() -> None:
    tail = f"""- {run_yaml("runtime: {expectedDuration: 10m}")}
timeline:
- {{at: 3h, workload: {{run: rai/train, do: succeed}}}}
until: 4h
"""
    assert played(tail)["events"][-1] == "3h Completed Run/rai/train Completed"


def test_timers_that_are_due_fire_before_the_timelines_entries() -> None:
    """The run completes at 1h by itself; at that very instant another one is applied and finds the place free."""
    tail = f"""- {run_yaml("runtime: {expectedDuration: 1h}")}
timeline:
- {{at: 1h, apply: [{run_yaml().replace("name: train", "name: next")}]}}
until: 2h
"""
    assert [event for event in played(tail)["events"] if event.startswith("1h")] == [
        "1h Completed Run/rai/train Completed",
        "1h Admitted Run/rai/next Admitted",
        "1h Started Run/rai/next Started",
    ]


def test_entries_of_one_instant_are_taken_in_order_and_each_is_settled() -> None:
    tail = f"""timeline:
- {{at: 1h, snapshot: before}}
- {{at: 1h, apply: [{run_yaml()}]}}
- {{at: 1h, snapshot: between}}
- {{at: 1h, delete: {{kind: Run, name: train, namespace: rai}}}}
- {{at: 1h, snapshot: after}}
until: 2h
"""
    runs = played(tail)["runs"]
    assert (runs["before"], runs["between"], runs["after"]) == ({}, {"rai/train": "Running"}, {})


def test_the_timeline_may_be_written_in_any_order() -> None:
    told = played("timeline:\n- {at: 2h, snapshot: late}\n- {at: 1h, snapshot: early}\nuntil: 3h\n")
    states = told["output"]["snapshots"]
    assert [(label, state["now"]) for label, state in states.items()] == [
        ("early", "2025-11-01T01:00:00Z"),
        ("late", "2025-11-01T02:00:00Z"),
    ]


def test_what_lies_after_the_end_does_not_happen() -> None:
    told = played(f"timeline:\n- {{at: 3h, apply: [{run_yaml()}]}}\nuntil: 2h\n")
    assert told["runs"]["final"] == {}
    assert told["output"]["final"]["now"] == "2025-11-01T02:00:00Z"


# --- nodes --------------------------------------------------------------------------------------------------------


def test_nodes_are_counted_from_zero_and_appear_as_node_objects() -> None:
    nodes = played("until: 1h\n")["output"]["final"]["nodes"]
    assert [node["metadata"]["name"] for node in nodes] == ["a-00", "a-01"]
    assert nodes[0]["metadata"]["labels"]["fabric.domain"] == "A"
    assert nodes[0]["status"]["allocatable"] == {"nvidia.com/gpu": "8"}


@pytest.mark.parametrize("how", ["fail", "delete"])
def test_a_lost_node_takes_its_pods_with_it_and_restore_brings_it_back_empty(how: str) -> None:
    tail = f"""- {run_yaml("runtime: {checkpoint: 1h}")}
timeline:
- {{at: 10m, node: {{name: a-01, do: {how}}}}}
- {{at: 20m, node: {{name: a-01, do: restore}}}}
until: 30m
"""
    told = played(tail)
    assert told["leases"] == [
        "train-a1-g00-a-00-0 Active 0-7 of a-00 paid by rai/main, 0s to 10m Fail",
        "train-a1-g01-a-01-0 Active 0-7 of a-01 paid by rai/main, 0s to 10m NodeFailure",
        "train-a2-g00-a-00-0 Active 0-7 of a-00 paid by rai/main, 20m on",
        "train-a2-g01-a-01-0 Active 0-7 of a-01 paid by rai/main, 20m on",
    ]


@pytest.mark.parametrize(("closed", "opened"), [("cordon", "uncordon"), ("unready", "ready")])
def test_a_node_that_is_closed_takes_nothing_until_it_is_opened(closed: str, opened: str) -> None:
    tail = f"""timeline:
- {{at: 1m, node: {{name: a-00, do: {closed}}}}}
- {{at: 2m, apply: [{run_yaml("runtime: {expectedDuration: 1m}")}]}}
- {{at: 3m, node: {{name: a-00, do: {opened}}}}}
until: 10m
"""
    assert played(tail)["events"] == [
        "2m Waiting Run/rai/train NoCapacity",
        "3m Admitted Run/rai/train Admitted",
        "3m Started Run/rai/train Started",
        "4m Completed Run/rai/train Completed",
    ]


def test_a_node_may_be_added() -> None:
    labels = "{region: us-west, cluster: gpu-a, fabric.domain: Z, gpu.flavor: H100-80GB}"
    told = played(f"timeline:\n- {{at: 1m, node: {{name: new, do: add, gpus: 4, labels: {labels}}}}}\nuntil: 2m\n")
    (new,) = [node for node in told["output"]["final"]["nodes"] if node["metadata"]["name"] == "new"]
    assert new["status"]["allocatable"] == {"nvidia.com/gpu": "4"}


# --- workloads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["group: 1", "pod: train-a1-1"])
def test_one_group_or_one_pod_may_end(part: str) -> None:
    tail = f"""- {run_yaml()}
timeline:
- {{at: 10m, workload: {{run: rai/train, do: succeed, {part}}}}}
- {{at: 11m, snapshot: half}}
- {{at: 20m, workload: {{run: rai/train, do: succeed}}}}
until: 30m
"""
    told = played(tail)
    assert told["runs"]["half"] == {"rai/train": "Running"}
    assert told["events"][-1] == "20m Completed Run/rai/train Completed"


def test_one_pod_that_fails_fails_the_run() -> None:
    tail = f"""- {run_yaml()}
timeline:
- {{at: 10m, workload: {{run: rai/train, do: fail, pod: train-a1-1}}}}
until: 30m
"""
    assert played(tail)["runs"]["final"] == {"rai/train": "Failed"}


# --- what is refused ----------------------------------------------------------------------------------------------


def test_what_is_refused_is_told_and_does_not_stop_the_scenario() -> None:
    tail = f"""- {BAD}
- {run_yaml()}
timeline:
- {{at: 1m, patch: {{kind: Run, name: nobody, namespace: rai, merge: {{}}}}}}
- {{at: 2m, delete: {{kind: Budget, name: nobody}}}}
- {{at: 3m, node: {{name: nobody, do: fail}}}}
- {{at: 4m, workload: {{run: rai/nobody, do: fail}}}}
until: 1h
"""
    told = played(tail)
    assert [event for event in told["events"] if "Rejected" in event] == [
        "0s Rejected Run/rai/bad Invalid",
        "1m Rejected Run/rai/nobody NotFound",
        "2m Rejected Budget/nobody Invalid",
        "3m Rejected Node/nobody NotFound",
        "4m Rejected Run/rai/nobody NoPods",
    ]
    assert told["runs"]["final"] == {"rai/train": "Running"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("start: now", "start"),
        ("until: soon", "until"),
        ("wat: 1", "wat"),
        ("timeline: [{at: 1m}]", "timeline[0]"),
        ("timeline: [{at: 1m, snapshot: a, delete: {kind: Run, name: x}}]", "timeline[0]"),
        ("timeline: [{at: 1m, node: {name: x, do: explode}}]", "timeline[0].node.do"),
        ("policy: {patiense: 1h}", "patiense"),
        ("policy: {lookahead: 1 hour}", "lookahead"),
        ("nodes: [{name: 'a-{i', gpus: 8}]", "nodes[0].name"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(text: str, path: str) -> None:
    tree = {"kind": "Scenario", "metadata": {"name": "x"}, "start": "2025-11-01T00:00:00Z", "until": "1h"}
    found = errors_of(yaml.safe_dump({**tree, **yaml.safe_load(text)}))
    assert len(found) == 1
    assert found[0].endswith(path)


# --- patches ------------------------------------------------------------------------------------------------------


def test_a_patch_merges_and_null_removes() -> None:
    tail = f"""- {run_yaml('funding: {allowBorrow: true, maxBorrowGPUs: 4, sponsors: ["org:x"]}')}
timeline:
- at: 1m
  patch:
    kind: Run
    name: train
    namespace: rai
    merge: {{metadata: {{labels: {{team: vision}}}}, spec: {{funding: {{maxBorrowGPUs: null}}}}}}
until: 1h
"""
    (run,) = played(tail)["output"]["final"]["runs"]
    assert run["metadata"]["labels"] == {"team": "vision"}
    assert run["spec"]["funding"] == {"allowBorrow": True, "sponsors": ["org:x"]}


# --- the output ---------------------------------------------------------------------------------------------------


def test_the_output_has_the_shape_that_is_fixed() -> None:
    tail = f"- {run_yaml()}\ntimeline:\n- {{at: 1m, snapshot: now}}\nuntil: 1h\n"
    output = played(tail)["output"]
    assert list(output) == ["scenario", "snapshots", "final", "events"]
    assert list(output["final"]) == ["now", "budgets", "runs", "reservations", "leases", "pods", "nodes"]
    assert list(output["events"][0]) == ["at", "kind", "object", "reason", "message"]
    for kind in ("budgets", "runs", "leases", "pods", "nodes"):
        items = output["final"][kind]
        names = [(item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items]
        assert names == sorted(names)
        assert all({"apiVersion", "kind", "metadata"} <= set(item) for item in items)


def test_ids_are_deterministic() -> None:
    tail = f"- {run_yaml()}\nuntil: 1h\n"
    first, second = (played(tail)["output"]["final"]["runs"][0]["metadata"]["uid"] for _ in range(2))
    assert first == second
    assert first


def test_a_run_may_do_without_a_template_here() -> None:
    output = played(f"- {run_yaml()}\nuntil: 1h\n")["output"]
    assert len(output["final"]["pods"]) == 2


def test_the_whole_default_policy_is_recorded() -> None:
    scenario, _ = read_scenario(HEAD + "until: 1h\n")
    assert scenario is not None
    store = MemoryStore()
    play(scenario, store)
    first = store.log[0]
    assert first.cause == "set policy"
    assert [type(fact).__name__ for fact in first.facts] == ["PutPolicy"]
