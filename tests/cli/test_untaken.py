"""Runs that are written in a cluster and that nobody has taken in yet: a plan counts them where they stand."""

from typing import Any, cast

import pytest

from tenure.cli.objects import ObjectsView
from tenure.cli.resizing import _fate as fate
from tenure.cli.runs.list import table
from tenure.cli.trouble import Trouble
from tenure.cli.untaken import Untaken, WholeView, in_turn
from tenure.engine import Apply
from tenure.kube.client import Client
from tenure.kube.loop import IO
from tenure.kube.translate import read_object
from tenure.testing import Fleet, budget, envelope, node
from tenure.units import parse_time
from tests.kube.worlds import run

Object = dict[str, Any]


def written(name: str, second: int, **spec: Any) -> Object:
    """As an API server has it; `second` is when it was created."""
    item = run(name, 4, namespace="lab", **spec)
    item["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": f"2025-10-31T23:59:{second:02d}Z"}
    return item


def started(*found: Object, file: Object | None = None) -> set[str]:
    """Which of them get the eight GPUs that there are."""
    fleet = Fleet(node("n0"), budget("lab", envelope("main", 64), owner="org:lab"))
    asked = in_turn(fleet.state, read_object(file).objects if file else (), list(found))
    assert not fleet.handle(Apply(asked, named=True)).refused
    return {key for key, row in fleet.state.runs.items() if row.leases}


def test_who_wrote_first_is_asked_first_whatever_the_name() -> None:
    assert started(written("a", 3), written("b", 1), written("c", 2)) == {"lab/b", "lab/c"}
    assert started(written("a", 1), written("b", 1), written("c", 1)) == {"lab/a", "lab/b"}, "then by name"


def test_a_file_comes_after_what_is_written_whatever_it_says_of_itself() -> None:
    found = written("y", 1), written("z", 2)
    assert started(*found, file=run("a", 4, namespace="lab")) == {"lab/y", "lab/z"}
    assert started(*found, file=written("a", 0)) == {"lab/y", "lab/z"}


def test_a_file_that_is_written_already_stands_where_it_was_written() -> None:
    mine = written("b", 2)
    assert started(written("a", 3), mine, written("c", 1), file=run("b", 4, namespace="lab")) == {"lab/b", "lab/c"}


def test_what_an_operator_would_not_take_in_is_left_out() -> None:
    wrong = written("wrong", 1, resources={"gpuType": "H100-80GB", "totalGPUs": 0})
    leaving = written("leaving", 1)
    leaving["metadata"]["deletionTimestamp"] = "2025-10-31T23:59:59Z"
    assert started(wrong, leaving, written("a", 3), file=run("b", 4, namespace="lab")) == {"lab/a", "lab/b"}


@pytest.mark.parametrize("kind", ["the ledger", "objects"])
def test_regression_a_run_that_goes_while_it_is_listed_is_listed_whole(kind: str) -> None:
    """Its entry said already that it is gone, its object was there, and then it was not: `list -o json` ended with an
    unexpected KeyError, now and then, for who polled until a run was gone."""
    left = [written("going", 1)]

    def fetch(namespace: str | None, name: str) -> list[Object]:
        return [left.pop()] if left else []

    fleet = Fleet(node("n0"))
    view = (
        WholeView(fleet.state, fetch, now=fleet.now)
        if kind == "the ledger"
        else ObjectsView(fetch, now=fleet.now, unreadable=Exception("no ledger"))
    )
    (line,) = view.lines()
    assert view.run(line.namespace, line.name).metadata.name == "going"
    assert view.line(line.namespace, line.name) == line
    assert view.line("lab", "another") is None


ESCAPE = {"template": {"spec": {"containers": [{"name": "main", "command": ["printf", "\x1b[1m"]}]}}}
NEWER = {"resources": {"gpuType": "H100-80GB", "totalGPUs": 4, "gpusPerRack": 2}, "newField": 1}
GARBAGE = {"owner": 7, "resources": {"gpuType": ["x"], "totalGPUs": "many"}}
ELASTIC = {"malleable": {"minTotalGPUs": 2, "maxTotalGPUs": 8, "stepGPUs": 2}}


@pytest.mark.parametrize(
    ("spec", "owner", "flavor", "gpus"),
    [
        (ESCAPE, "org:lab", "H100-80GB", 4),
        (NEWER, "org:lab", "H100-80GB", 4),
        ({**NEWER, **ELASTIC}, "org:lab", "H100-80GB", 8),
        (GARBAGE, "", "", 0),
    ],
)
@pytest.mark.parametrize("kind", ["the ledger", "objects"])
def test_a_run_that_cannot_be_read_is_shown_as_far_as_it_can(
    kind: str, spec: Object, owner: str, flavor: str, gpus: int
) -> None:
    odd, sound = written("odd", 1, **spec), written("sound", 2)
    odd["status"] = {"phase": "Pending", "message": "it cannot be read", "newerField": {}, "risk": "a word"}
    items = {"odd": odd, "sound": sound}
    assert read_object(odd).errors

    def fetch(namespace: str | None, name: str) -> list[Object]:
        return [items[name]] if name else [*items.values()]

    fleet = Fleet(node("n0"))
    view = (
        WholeView(fleet.state, fetch, now=fleet.now)
        if kind == "the ledger"
        else ObjectsView(fetch, now=fleet.now, unreadable=Exception("no ledger"))
    )
    line, other = view.lines()
    assert (line.key, line.owner, line.flavor, line.gpus) == ("lab/odd", owner, flavor, gpus)
    assert (line.phase, line.message) == ("Pending", "it cannot be read")
    assert (other.key, other.gpus) == ("lab/sound", 4), "the others are listed as ever"
    assert view.line("lab", "odd") == line
    assert view.run("lab", "odd").metadata.uid == "uid-odd"


def test_what_is_wrong_with_a_run_that_was_seen_is_told_of_that_run_alone() -> None:
    class Server:
        async def get(self, kind: object, name: str, namespace: str) -> Object:
            return {"odd": written("odd", 1, **ESCAPE), "sound": written("sound", 2)}[name]

    with IO() as io:
        untaken = Untaken(io, cast("Client", Server()))
        found = {name: untaken.look((), "lab", name)[0] for name in ("odd", "sound")}
    view = ObjectsView(lambda _, name: [found[name]], now=0, unreadable=Exception("no ledger"))
    odd, sound = view.run("lab", "odd"), view.run("lab", "sound")
    (error,) = untaken.wrong([sound, odd])
    assert (error.object, error.path) == ("Run/lab/odd", "spec.template.spec.containers[0].command[1]")
    (mended,) = read_object(run("odd", 4, namespace="lab")).objects
    assert not untaken.wrong([sound, mended]), "a file that would mend it is another matter"


# --- what objects tell who may not read the ledger ------------------------------------------------------------------


def condition(kind: str, status: str, reason: str, minute: int) -> Object:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": f"2025-11-01T00:{minute:02d}:00Z"}


ADMITTED = condition("Admitted", "True", "Admitted", 1)
RUNNING = {
    "phase": "Running",
    "conditions": [ADMITTED, condition("Scheduled", "True", "Started", 2), condition("Running", "True", "Started", 2)],
    "leases": ["x-a3-g0-n0-0"],
}
COMPLETED = {
    "phase": "Completed",
    "conditions": [
        ADMITTED, condition("Scheduled", "True", "Started", 2), condition("Running", "False", "Completed", 30),
        condition("Completed", "True", "Completed", 30),
    ],
}  # fmt: skip
AGAIN = {
    "phase": "Pending",
    "conditions": [
        condition("Admitted", "False", "WorkloadFailed", 9), condition("Scheduled", "False", "WorkloadFailed", 9),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "started", "attempt"),
    [
        (RUNNING, "2025-11-01T00:02:00Z", 3),
        (COMPLETED, "2025-11-01T00:02:00Z", None),
        (AGAIN, None, None),
        ({**RUNNING, "leases": ["another-a3-g0-n0-0"]}, "2025-11-01T00:02:00Z", None),
    ],
)
def test_a_status_tells_the_start_of_a_run_and_its_attempt_while_it_holds_leases(
    status: Object, started: str | None, attempt: int | None
) -> None:
    item = {**written("x", 1), "status": status}
    view = ObjectsView(lambda *_: [item], now=0, unreadable=Exception("no ledger"))
    (line,) = view.lines()
    assert (line.started, line.attempt) == (None if started is None else parse_time(started), attempt)
    shown = table([line], view, all_namespaces=False)
    row = dict(zip((one.name for one in shown.columns), shown.rows[0], strict=True))
    assert row["ATTEMPT"] == ("-" if attempt is None else str(attempt))


def test_who_may_not_read_the_policy_is_told_no_interval_of_growth() -> None:
    held = {"min": 2, "max": 8, "desired": 8, "allocated": 4, "pending": 4}
    item = {**written("x", 1, **ELASTIC), "status": {**RUNNING, "width": held}}
    view = ObjectsView(lambda *_: [item], now=0, unreadable=Trouble("no ledger", next_step="ask for it"))
    (line,) = view.lines()
    assert fate(line, view, 8) == "desires 8 GPUs and has 4: step by step, when machines and money allow"
