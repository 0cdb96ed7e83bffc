"""SPEC 2 and 6: leases follow payment, pods follow placement; names, ranks, ordinals, and what a pod is told."""

from __future__ import annotations

import pytest

from tenure.api.meta import LABEL_GROUP, LABEL_ROLE, LABEL_RUN, to_wire
from tenure.api.policy import Policy
from tenure.engine import render
from tenure.engine.bind import lease_name
from tenure.testing import Fleet, at, budget, elastic, env, envelope, node, nodes, run


def fleet_of(*machines: object, **terms: object) -> Fleet:
    fleet = Fleet(*machines, budget("a", envelope("main", 64)))  # type: ignore[arg-type]  # nodes
    fleet.apply(run("train", owner="org:a", **terms))  # type: ignore[arg-type]  # the test names them
    return fleet


# --- leases -------------------------------------------------------------------------------------------------------


def test_one_lease_is_one_attempt_group_node_role_and_payer() -> None:
    fleet = fleet_of(*nodes("n", 3), gpus=16, group=8, spares=2)
    assert [(one.name, one.role, one.gpus) for one in fleet.leases()] == [
        ("train-a1-g00-n0-0", "Active", tuple(range(8))),
        ("train-a1-g00-n2-0", "Spare", (0, 1)),
        ("train-a1-g01-n1-0", "Active", tuple(range(8))),
        ("train-a1-g01-n2-0", "Spare", (2, 3)),
    ]


def test_a_pod_whose_gpus_have_two_payers_has_two_leases_and_is_one_pod() -> None:
    fleet = Fleet(node("n0"), budget("a", envelope("x", 5), envelope("y", 5)))
    fleet.apply(run("train", 8, owner="org:a"))
    assert [(one.name, one.gpus, one.envelope) for one in fleet.leases()] == [
        ("train-a1-g00-n0-0", (0, 1, 2, 3, 4), "x"),
        ("train-a1-g00-n0-1", (5, 6, 7), "y"),
    ]
    assert [pod.gpus for pod in fleet.pods("lab/train")] == [tuple(range(8))]


def test_the_first_tiers_pay_for_the_first_groups_and_borrowed_money_sits_in_the_last() -> None:
    fleet = Fleet(
        *nodes("n", 3),
        budget("me", envelope(gpus=10), parents=["org:up"]),
        budget("up", envelope(gpus=6)),
        budget("far", envelope(gpus=8, lends_to=["*"])),
    )
    fleet.apply(run("train", 24, owner="org:me", group=8, sponsors=["org:far"]))
    assert [(one.group, one.funding, len(one.gpus)) for one in fleet.leases()] == [
        (0, "owned", 8),
        (1, "owned", 2),
        (1, "shared", 6),
        (2, "borrowed", 8),
    ]


def test_ordinals_are_the_lowest_that_are_free() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 2, owner="org:a"), run("y", 2, owner="org:a"), run("z", 2, owner="org:a"))
    fleet.succeed("lab/y")
    fleet.start(run("w", 4, owner="org:a"))
    assert fleet.leases("lab/w")[0].gpus == (2, 3, 6, 7)


def test_a_lease_says_who_asked_who_paid_where_and_why() -> None:
    fleet = Fleet(
        node("n0", domain="D"),
        budget("me", envelope(gpus=1), parents=["org:up"]),
        budget("rai", envelope("west"), owner="org:up"),
    )
    fleet.apply(run("train", 9 - 2, owner="org:me"))
    lease = to_wire(render.lease(fleet.leases()[1]))
    assert lease["spec"] == {
        "owner": "org:me",
        "runRef": {"name": "train", "uid": fleet.run("lab/train").metadata.uid},
        "compPath": ["SHARD[0]", "D"],
        "slice": {"nodes": ["n0"], "gpus": [1, 2, 3, 4, 5, 6], "role": "Active"},
        "interval": {"start": "2025-11-01T00:00:00Z"},
        "paidByEnvelope": "west",
        "paidByBudget": "rai",
        "paidByOwner": "org:up",
        "reason": "Start",
    }
    assert (lease["metadata"]["namespace"], lease["kind"]) == ("lab", "Lease")


def test_the_declared_end_is_recorded_on_the_lease() -> None:
    fleet = fleet_of(node("n0"), gpus=8, lasts="2h")
    assert [lease.until for lease in fleet.leases()] == [at("2h")]


def test_long_names_stay_names_and_stay_apart() -> None:
    long = ["n" * 200 + str(index) for index in range(3)]
    names = {lease_name("r" * 63, 1, 0, one, 0) for one in long}
    assert len(names) == 3
    assert all(len(name) <= 253 for name in names)


# --- pods ---------------------------------------------------------------------------------------------------------


def test_there_is_one_pod_per_group_and_node() -> None:
    fleet = fleet_of(*nodes("n", 3), gpus=24, group=12)
    assert [(pod.rank, pod.group, pod.node, len(pod.gpus)) for pod in fleet.pods("lab/train")] == [
        (0, 0, "n0", 8),
        (1, 0, "n1", 4),
        (2, 1, "n2", 8),
        (3, 1, "n1", 4),
    ]


def test_or_several_of_exactly_the_width_asked() -> None:
    fleet = fleet_of(*nodes("n", 2), gpus=16, pod=4)
    assert [(pod.rank, pod.node, pod.gpus) for pod in fleet.pods("lab/train")] == [
        (0, "n0", (0, 1, 2, 3)),
        (1, "n0", (4, 5, 6, 7)),
        (2, "n1", (0, 1, 2, 3)),
        (3, "n1", (4, 5, 6, 7)),
    ]


def test_ranks_are_dense_in_every_attempt() -> None:
    fleet = fleet_of(*nodes("n", 4), gpus=32, group=8, restarts=1)
    fleet.bind("lab/train")
    fleet.fail("lab/train")
    fleet.leave("lab/train")
    fleet.later("1s")
    for attempt in (1, 2):
        assert [pod.rank for pod in fleet.placed() if pod.attempt == attempt] == [0, 1, 2, 3]


def test_every_pod_gets_its_rendezvous() -> None:
    fleet = fleet_of(*nodes("n", 2), gpus=16, group=8)
    first, second = (env(fleet.manifest(pod.key)) for pod in fleet.pods("lab/train"))
    assert second == {
        "TENURE_RUN": "lab/train",
        "TENURE_POD": "train-a1-1",
        "TENURE_GROUP": "1",
        "TENURE_ATTEMPT": "1",
        "MASTER_ADDR": "n0",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "16",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "8",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
    }
    assert (first["NODE_RANK"], first["MASTER_ADDR"]) == ("0", "n0")


def test_the_world_size_counts_gpus_not_spares() -> None:
    fleet = fleet_of(*nodes("n", 2), gpus=8, group=8, spares=4)
    assert env(fleet.manifest(fleet.pods("lab/train")[0].key))["WORLD_SIZE"] == "8"


def test_an_elastic_run_gets_the_elastic_rendezvous_instead_of_a_world_size() -> None:
    fleet = fleet_of(*nodes("n", 2), gpus=16, elastic=elastic(8, 32, 8))
    told = env(fleet.manifest(fleet.pods("lab/train")[0].key))
    assert "WORLD_SIZE" not in told
    assert "NNODES" not in told
    assert (told["TENURE_MIN_GPUS"], told["TENURE_MAX_GPUS"], told["TENURE_RDZV_ENDPOINT"]) == ("8", "32", "n0:29500")


def test_every_pod_gets_its_labels_and_its_node() -> None:
    fleet = fleet_of(*nodes("n", 2), gpus=16, group=8)
    pod = fleet.manifest(fleet.pods("lab/train")[1].key)
    assert pod.metadata.labels == {LABEL_RUN: "train", LABEL_GROUP: "1", LABEL_ROLE: "Active"}
    assert (pod.spec["nodeName"], pod.spec["restartPolicy"]) == ("n1", "Never")


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
def test_every_pod_gets_its_gpu_request(resource: str) -> None:
    machine = node("n0")
    machine.status.allocatable["amd.com/gpu"] = "8"
    fleet = Fleet(machine, budget("a"), policy=Policy(gpu_resource=resource))
    fleet.apply(run("train", 6, owner="org:a"))
    container = fleet.manifest(fleet.pods("lab/train")[0].key).spec["containers"][0]
    assert container["resources"]["limits"] == {resource: "6"}
    assert container["resources"]["requests"] == {resource: "6"}


def test_the_template_is_kept_and_what_it_says_of_ours_is_replaced() -> None:
    template = {
        "metadata": {"labels": {"team": "vision", LABEL_RUN: "forged"}, "annotations": {"note": "mine"}},
        "spec": {
            "nodeName": "elsewhere",
            "containers": [
                {
                    "name": "main",
                    "image": "trainer",
                    "env": [{"name": "LR", "value": "1e-4"}, {"name": "NODE_RANK", "value": "99"}],
                    "resources": {"limits": {"memory": "1Gi", "nvidia.com/gpu": "64"}},
                },
                {"name": "side", "image": "logs"},
            ],
        },
    }
    fleet = fleet_of(node("n0"), gpus=8, template=template)
    pod = fleet.manifest(fleet.pods("lab/train")[0].key)
    main, side = pod.spec["containers"]
    assert (pod.metadata.labels["team"], pod.metadata.labels[LABEL_RUN]) == ("vision", "train")
    assert pod.metadata.annotations == {"note": "mine"}
    assert pod.spec["nodeName"] == "n0"
    assert main["resources"]["limits"] == {"memory": "1Gi", "nvidia.com/gpu": "8"}
    told = {item["name"]: item["value"] for item in main["env"]}
    assert (told["LR"], told["NODE_RANK"], len(main["env"])) == ("1e-4", "0", len(told))
    assert "resources" not in side, "GPUs go to the first container"
