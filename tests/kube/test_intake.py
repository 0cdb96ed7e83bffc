"""What the caches show, as events: level-triggered, in batches, and nobody stopped by another's mistake."""

import asyncio
from collections.abc import Iterable
from typing import Any

from tenure.api.meta import OWNER_ANNOTATION
from tenure.engine import Apply, Delete, Event, SetPolicy
from tenure.kube.errors import ApiError
from tenure.kube.intake import KINDS, POLICY, RUNS_MAX, Intake, Kind, Mark
from tenure.kube.translate import key_of
from tenure.testing import Fleet
from tenure.testing.kube import gpu_node
from tests.kube.worlds import FLAVOR, budget, run

Object = dict[str, Any]
LABELS = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": "A", "gpu.flavor": FLAVOR}


class Cluster:
    """Caches that a test writes, an engine, and the intake between them."""

    def __init__(self) -> None:
        self.caches: dict[Kind, dict[str, Object]] = {kind: {} for kind in KINDS}
        self.fleet = Fleet()
        self.intake = Intake(self.caches)
        self.uids = 0
        self.put({"kind": "Namespace", "metadata": {"name": "lab", "annotations": {OWNER_ANNOTATION: "org:lab"}}})
        self.put(budget())
        for name in ("n0", "n1"):
            self.put({**gpu_node(name, 8, LABELS)})

    def put(self, item: Object) -> None:
        self.uids += 1
        item["metadata"].setdefault("uid", f"u{self.uids}")
        item["metadata"].setdefault("creationTimestamp", "2025-11-01T00:00:00Z")
        self.caches[item["kind"]][key_of(item)] = item
        self.intake.mark(item["kind"], key_of(item))

    def drop(self, kind: Kind, key: str) -> None:
        del self.caches[kind][key]
        self.intake.mark(kind, key)

    def turn(self, lost: tuple[type[Event], ...] = ()) -> list[Event]:
        """Take everything in; returns the events that were handed over. What is ``lost`` cannot be committed."""
        told: list[Event] = []

        def handle(event: Event) -> Iterable[Any]:
            if isinstance(event, lost):
                raise ApiError(0, "Unreachable", "nobody answers")
            told.append(event)
            if isinstance(event, Apply):  # as a home does: names of leases go on counting
                keys = [f"lab/{item.metadata.name}" for item in event.objects if item.kind == "Run"]
                event = Apply(event.objects, {key: self.fleet.attempts(key) for key in keys}, event.named)
            return self.fleet.handle(event).refused

        batch = self.intake.collect(self.fleet.state)
        try:
            self.intake.apply(batch, handle)
        except ApiError:
            self.intake.put_back(batch)
        for entry in self.fleet.entries:
            self.intake.follow(entry)
        return told


def cluster() -> Cluster:
    found = Cluster()
    found.intake.mark("ConfigMap", POLICY)
    found.turn()
    return found


def test_everything_that_changed_is_one_batch() -> None:
    found = Cluster()
    found.put(run("train", 8, namespace="lab"))
    found.intake.mark("ConfigMap", POLICY)
    policy, apply = found.turn()
    assert isinstance(policy, SetPolicy)
    assert isinstance(apply, Apply)
    assert {item.kind for item in apply.objects} == {"Namespace", "Budget", "Node", "Run"}
    assert found.fleet.phase("lab/train") == "Pending"
    assert found.fleet.leases("lab/train")


def test_a_notice_without_news_is_no_fact() -> None:
    found = cluster()
    count = len(found.fleet.entries)
    found.intake.mark_all(found.fleet.state)
    found.turn()
    found.turn()
    assert len(found.fleet.entries) == count


def test_a_run_of_which_only_the_status_changed_is_not_judged_again() -> None:
    """Its owner came from the namespace, and other defaults from the engine: it still says what is known."""
    found = cluster()
    width = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    item = run("train", 8, namespace="lab", malleable=width)
    del item["spec"]["owner"]
    found.put(item)
    assert [type(event) for event in found.turn()] == [Apply]
    assert found.fleet.state.runs["lab/train"].run.spec.owner == "org:lab"
    found.put({**item, "status": {"phase": "Running"}})
    assert found.turn() == []
    labelled = {**item, "metadata": {**item["metadata"], "labels": {"team": "a"}}}
    found.put(labelled)
    assert [type(event) for event in found.turn()] == [Apply]
    assert found.fleet.state.runs["lab/train"].run.metadata.labels == {"team": "a"}
    wrong = {**labelled, "spec": {**item["spec"], "resources": {**item["spec"]["resources"], "gpuType": "H200"}}}
    found.put(wrong)
    found.turn()
    assert ("Run", "lab/train") in found.intake.refused
    found.put(labelled)
    assert found.turn() == []
    assert not found.intake.refused, "it says again what is known"


def test_a_flood_is_taken_in_by_portions_and_others_have_their_turn() -> None:
    found = cluster()
    found.put({"kind": "Namespace", "metadata": {"name": "other", "annotations": {OWNER_ANNOTATION: "org:lab"}}})
    found.turn()
    for number in range(2 * RUNS_MAX):
        item = run(f"flood-{number:04d}", 1, namespace="lab")
        item["metadata"]["creationTimestamp"] = f"2025-11-01T00:{59 - number // 60:02d}:{number % 60:02d}Z"
        found.put(item)
    late = run("late", 1, namespace="other")
    late["metadata"]["creationTimestamp"] = "2025-11-01T05:00:00Z"
    found.put(late)
    taken: list[list[str]] = []
    while found.intake.waiting:
        batch = found.intake.collect(found.fleet.state)
        taken.append([f"{one.metadata.namespace}/{one.metadata.name}" for one in batch.objects])
        assert found.intake.left == found.intake.waiting
        assert batch.taken == {("Run", key) for key in taken[-1]}
        found.intake.apply(batch, lambda event: found.fleet.handle(event).refused)
    assert [len(keys) for keys in taken] == [RUNS_MAX, RUNS_MAX, 1]
    assert "other/late" in taken[0]
    ages = [
        found.caches["Run"][key]["metadata"]["creationTimestamp"] for keys in taken for key in keys if key[0] == "l"
    ]
    assert ages == sorted(ages), "the oldest of a namespace first"
    assert len(found.fleet.state.runs) == 2 * RUNS_MAX + 1


def test_who_asked_first_is_looked_at_first() -> None:
    """By the time of creation, whatever the name; only where that is the same, by name."""
    found = cluster()
    for name, seconds in (("a", 3), ("b", 1), ("c", 2), ("e", 0), ("d", 0)):
        item = run(name, 1, namespace="lab")
        item["metadata"]["creationTimestamp"] = f"2025-11-01T00:00:0{seconds}Z"
        found.put(item)
    batch = found.intake.collect(found.fleet.state)
    assert [one.metadata.name for one in batch.objects] == ["d", "e", "b", "c", "a"]


def test_in_a_flood_of_many_namespaces_the_one_that_waited_longest_has_the_first_turn() -> None:
    found = cluster()
    for number in range(RUNS_MAX + 1):
        space = f"s{number:03d}"
        found.put({"kind": "Namespace", "metadata": {"name": space, "annotations": {OWNER_ANNOTATION: "org:lab"}}})
        item = run("train", 1, namespace=space)
        item["metadata"]["creationTimestamp"] = f"2025-11-01T00:{30 - number // 60:02d}:{59 - number % 60:02d}Z"
        found.put(item)
    batch = found.intake.collect(found.fleet.state)
    taken = [one.metadata.namespace for one in batch.objects if one.kind == "Run"]
    assert taken == [f"s{number:03d}" for number in range(RUNS_MAX, 0, -1)]
    assert found.intake.left, "s000 asked last, and waits for the next batch"


def test_of_budgets_in_a_circle_the_one_that_was_there_first_stands() -> None:
    found = cluster()
    for name, parent, seconds in (("one", "two", 2), ("two", "one", 1)):
        item = budget(name)
        item["spec"]["parents"] = [f"org:{parent}"]
        item["metadata"]["creationTimestamp"] = f"2025-11-01T00:00:0{seconds}Z"
        found.put(item)
    found.turn()
    assert set(found.intake.refused) == {("Budget", "one")}
    assert set(found.fleet.state.budgets) == {"lab", "two"}


def test_uids_and_times_of_creation_are_the_api_servers() -> None:
    found = cluster()
    item = run("train", 8, namespace="lab")
    item["metadata"] |= {"uid": "from-the-server", "creationTimestamp": "2025-10-31T23:00:00Z"}
    found.put(item)
    found.turn()
    meta = found.fleet.state.runs["lab/train"].run.metadata
    assert (meta.uid, meta.creation_timestamp) == ("from-the-server", "2025-10-31T23:00:00Z")
    assert {lease.uid for lease in found.fleet.leases("lab/train")} == {"from-the-server"}


def test_a_run_whose_deletion_was_asked_for_is_deleted_once() -> None:
    found = cluster()
    item = run("train", 8, namespace="lab")
    found.put(item)
    found.turn()
    found.fleet.bind("lab/train")
    found.put({**item, "metadata": {**item["metadata"], "deletionTimestamp": "2025-11-01T01:00:00Z"}})
    assert [type(event) for event in found.turn()] == [Delete]
    found.intake.mark("Run", "lab/train")
    assert found.turn() == []


def test_another_run_of_the_same_name_comes_when_the_first_is_gone() -> None:
    found = cluster()
    found.put(run("train", 8, namespace="lab"))
    found.turn()
    found.fleet.bind("lab/train")
    old = found.fleet.state.runs["lab/train"].run.metadata.uid
    found.put(run("train", 4, namespace="lab"))
    assert [type(event) for event in found.turn()] == [Delete]
    assert found.turn() == []
    found.fleet.leave("lab/train")
    for entry in found.fleet.entries[-1:]:
        found.intake.follow(entry)
    found.turn()
    row = found.fleet.state.runs["lab/train"]
    assert row.run.metadata.uid != old
    assert row.demand.widths[0] == 4


def test_one_bad_object_is_said_and_stops_nobody() -> None:
    found = cluster()
    found.put(run("foreign", 8, namespace="lab", owner="org:other"))
    found.put(run("bad", 0, namespace="lab"))
    found.put(run("good", 8, namespace="lab"))
    found.turn()
    assert set(found.fleet.state.runs) == {"lab/good"}
    assert set(found.intake.refused) == {("Run", "lab/foreign"), ("Run", "lab/bad")}
    found.put(run("bad", 8, namespace="lab"))
    found.turn()
    assert set(found.intake.refused) == {("Run", "lab/foreign")}


def test_a_circle_of_parents_blocks_the_budget_that_closes_it_and_nothing_else() -> None:
    found = cluster()
    for name, parent in (("one", "two"), ("two", "one")):
        item = budget(name)
        item["spec"]["parents"] = [f"org:{parent}"]
        found.put(item)
        found.put(run(f"with-{name}", 4, namespace="lab"))
        found.turn()
    assert set(found.intake.refused) == {("Budget", "two")}
    assert set(found.fleet.state.budgets) == {"lab", "one"}
    assert {"lab/with-one", "lab/with-two"} <= set(found.fleet.state.runs)


def test_a_node_that_is_gone_or_is_another_machine_loses_what_ran_on_it() -> None:
    found = cluster()
    found.put(run("train", 16, namespace="lab"))
    found.turn()
    found.fleet.bind("lab/train")
    found.put(gpu_node("n0", 8, LABELS))  # deleted and made anew between two looks
    deleted, applied = found.turn()
    assert isinstance(deleted, Delete)
    assert isinstance(applied, Apply)
    assert [end.reason for end in found.fleet.closed().values() if end.lease.node == "n0"] == ["NodeFailure"]


def test_gpus_of_foreign_pods_are_taken_off_and_given_back() -> None:
    found = cluster()
    raw = {"kind": "Pod", "metadata": {"name": "raw", "namespace": "x"}, "status": {"phase": "Running"},
           "spec": {"nodeName": "n0", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "6"}}}]}}  # fmt: skip
    found.put(raw)
    found.turn()
    assert found.fleet.state.topology.rows["n0"].free() == 2
    found.put({**raw, "status": {"phase": "Succeeded"}})
    found.turn()
    assert found.fleet.state.topology.rows["n0"].free() == 8


def test_regression_a_foreign_pod_counts_though_the_commit_failed_that_would_have_said_so() -> None:
    """It was counted when it was looked at, so that the second look found nothing new: its GPUs were offered until its
    node changed, or the operator was restarted."""
    found = cluster()
    limits = {"resources": {"limits": {"nvidia.com/gpu": "6"}}}
    found.put({"kind": "Pod", "metadata": {"name": "raw", "namespace": "x"}, "status": {"phase": "Running"},
               "spec": {"nodeName": "n0", "containers": [limits]}})  # fmt: skip
    assert found.turn(lost=(Apply,)) == []
    assert found.fleet.state.topology.rows["n0"].free() == 8
    found.turn()
    assert found.fleet.state.topology.rows["n0"].free() == 2


def test_regression_nodes_are_read_by_a_new_policy_though_only_the_policy_was_committed() -> None:
    """The policy was known by the second look, which therefore read no node again."""
    found = cluster()
    for name in ("n0", "n1"):
        found.caches["Node"][name]["status"]["allocatable"]["example.com/gpu"] = "4"
    item = {"kind": "ConfigMap", "metadata": {"name": "tenure-policy", "namespace": "tenure-system"}}
    found.put({**item, "data": {"policy.yaml": "gpuResource: example.com/gpu"}})
    assert [type(event) for event in found.turn(lost=(Apply,))] == [SetPolicy]
    found.turn()
    assert [row.free() for row in found.fleet.state.topology.rows.values()] == [4, 4]


def test_what_is_held_counts_wherever_its_ordinals_are() -> None:
    """A foreign pod has no ordinals: with 8 GPUs, 4 held and 3 taken, one is left, whichever are held."""
    found = cluster()
    found.drop("Node", "n1")
    for name in ("first", "second"):
        found.put(run(name, 4, namespace="lab"))
    found.turn()
    found.fleet.bind("lab/first")
    found.drop("Run", "lab/first")
    found.turn()
    found.fleet.leave("lab/first")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "3"}}}
    found.put({"kind": "Pod", "metadata": {"name": "raw", "namespace": "x"}, "status": {"phase": "Running"},
               "spec": {"nodeName": "n0", "containers": [limits]}})  # fmt: skip
    found.turn()
    assert found.fleet.leases("lab/second")[0].gpus == (4, 5, 6, 7)
    assert found.fleet.state.topology.rows["n0"].free() == 1


def test_a_bad_policy_leaves_the_old_one() -> None:
    found = cluster()
    item = {"kind": "ConfigMap", "metadata": {"name": "tenure-policy", "namespace": "tenure-system"}}
    found.put({**item, "data": {"policy.yaml": "growInterval: 5m"}})
    found.turn()
    assert found.fleet.state.policy.grow_interval == "5m"
    found.put({**item, "data": {"policy.yaml": "growInterval: never"}})
    found.turn()
    assert found.fleet.state.policy.grow_interval == "5m"
    assert ("ConfigMap", POLICY) in found.intake.refused


class Asked:
    """A client that finds some objects."""

    def __init__(self, **uids: str) -> None:
        self.uids = uids

    async def get(self, resource: Any, name: str, namespace: str | None = None) -> Object:
        if name not in self.uids:
            raise ApiError(404, "NotFound", name)
        return {"metadata": {"name": name, "uid": self.uids[name]}}


def test_regression_what_a_copy_that_lags_does_not_show_is_looked_for_before_it_counts_as_gone() -> None:
    """A new leader knew runs and budgets from the ledger that its watches had not told it of: it ended them."""
    found = cluster()
    found.put(run("train", 8, namespace="lab"))
    found.turn()
    state, other = found.fleet.state, Intake({kind: {} for kind in KINDS})  # whose copies were told nothing yet
    other.mark_all(state)
    batch = other.collect(state)
    assert not any(isinstance(event, Delete) for event in batch.first)

    told: list[Mark] = []
    there = {"train": state.runs["lab/train"].run.metadata.uid, "n0": state.topology.rows["n0"].node.metadata.uid}
    for _, look in other.absent.search(Asked(**there, n1="another"), told.append):  # type: ignore[arg-type]
        asyncio.run(look())
    (budget_name,) = state.budgets
    assert sorted(told) == [("Budget", budget_name), ("Namespace", "lab"), ("Node", "n1")]
    assert other.absent.search(Asked(), told.append) == []  # type: ignore[arg-type]
    for mark in told:
        other.mark(*mark)
    gone = [(event.kind, event.name) for event in other.collect(state).first if isinstance(event, Delete)]
    assert sorted(gone) == sorted((kind, key) for kind, key in told)


def test_regression_a_run_that_left_while_another_led_is_not_forgotten() -> None:
    """It was looked at with a state that did not know it yet, and never again: its finalizer held it for ever."""
    found = cluster()
    before = len(found.fleet.entries)
    found.put(item := run("train", 8, namespace="lab"))
    other = Intake(found.caches)
    old = Fleet().state
    found.turn()
    item["metadata"]["deletionTimestamp"] = "2025-11-01T00:10:00Z"
    other.mark("Run", "lab/train")
    assert not other.collect(old)
    assert not other.waiting
    for entry in found.fleet.entries[before:]:
        other.learned(entry, "100")
    assert other.collect(found.fleet.state).first == (Delete(kind="Run", name="train", namespace="lab"),)


def test_regression_two_leaders_do_not_contradict_each_other_in_the_ledger_without_end() -> None:
    """One saw a node as it had been: it took back what the other had decided, who took that back, and so on."""
    found = cluster()
    other = Intake(found.caches)
    for entry in found.fleet.entries:
        other.learned(entry, "100")
    assert not other.waiting
    (name,) = found.fleet.state.budgets
    found.caches["Budget"][name]["metadata"]["resourceVersion"] = "101"  # written after the head was
    for entry in found.fleet.entries:
        other.learned(entry, "100")
    assert other.waiting
