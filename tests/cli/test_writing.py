"""`submit` and `cancel`: whole or not at all, and what became of each."""

import json
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tenure.cli.local import LocalFleet
from tenure.testing.kube import until
from tests.cli.support import BUDGETS, FLEET, Done, call, driven, run_yaml, still, submit


def head(fleet: Path) -> str:
    return call("tenure", "ledger", "export", str(fleet)).out


def test_without_a_driver_runs_are_recorded_and_the_next_step_is_named(fresh: Path) -> None:
    done = submit(fresh, run_yaml("x", 8, "true"))
    assert done == Done(
        0,
        "Run/rai/x created: recorded; nothing drives this fleet yet\n",
        f"nothing drives this fleet, so nothing starts yet: tenure up {fresh}\n",
    )


def test_with_a_driver_each_run_is_answered_at_once(fresh: Path) -> None:
    with driven(fresh):
        done = submit(fresh, run_yaml("a", 8, "sleep 60"), run_yaml("b", 8, "true"), run_yaml("c", 99, "true"))
        assert done.out == snapshot("""\
Run/rai/a created: starts with 8 GPUs on 1 node, paid by rai/west (8 owned).
Run/rai/b created: waits: rai/west allows 14 GPUs at once; 8 are in use and 8 were asked: 2 too many. Wait for work paid by this envelope to end, or borrow from a sponsor.
Run/rai/c created: can never start as things are: rai/west allows 14 GPUs at once; 8 are in use and 99 were asked: 93 too many. Waiting does not help: ask for less, or have the limit raised.
""")  # noqa: E501 -- as it is printed
        assert call("runs", "cancel", "rai/a", fleet=fresh).code == 0


def test_handing_in_the_same_thing_twice_changes_nothing(fresh: Path) -> None:
    before = head(fresh)
    done = submit(fresh, BUDGETS)
    assert done.out == "Namespace/rai unchanged\nBudget/rai unchanged\nBudget/vision unchanged\n"
    assert head(fresh) == before


def test_a_change_is_said_to_be_one(fresh: Path) -> None:
    done = submit(fresh, BUDGETS.replace("concurrency: 14", "concurrency: 15"))
    assert done.out.splitlines()[1] == "Budget/rai changed"


def test_one_bad_object_keeps_all_out(fresh: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(run_yaml("good", 8, "true"))
    bad.write_text(run_yaml("bad", -8, "true") + "\n---\nkind: Budjet\n")
    before = head(fresh)
    done = call("runs", "submit", "-f", str(good), "-f", str(bad), fleet=fresh)
    assert (done.code, done.out) == (2, "")
    errors = done.err.splitlines()
    assert len(errors) == 3
    assert f"{bad}: Run/rai/bad: spec.resources.totalGPUs is -8" in errors[0]
    assert "did you mean Budget?" in errors[1]
    assert errors[2].startswith("next: ")
    assert head(fresh) == before


def test_what_only_the_fleet_can_refuse_is_refused_whole(fresh: Path) -> None:
    before = head(fresh)
    done = submit(fresh, run_yaml("good", 8, "true"), run_yaml("bad", 8, "true", owner="org:other"))
    assert (done.code, done.out) == (2, "")
    assert "Run/rai/bad: spec.owner" in done.err
    assert head(fresh) == before


def test_files_may_follow_one_another_and_the_same_object_twice_is_an_error(fresh: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.yaml" for name in ("one", "two")]
    for path in paths:
        path.write_text(run_yaml("same", 8, "true"))
    done = call("runs", "submit", "-f", *map(str, paths), fleet=fresh)
    assert done.code == 2
    assert done.err.splitlines()[0] == "error: Run/rai/same: given twice; keep one of them"
    assert call("runs", "submit", "-f", str(paths[0]), fleet=fresh).code == 0


def test_the_namespace_option_places_what_names_none_and_must_not_disagree(fresh: Path) -> None:
    bare = run_yaml("x", 8, "true", owner="org:ai:rai").replace(', "namespace": "rai"', "")
    done = call("runs", "submit", "-n", "elsewhere", "-f", "-", "-o", "name", fleet=fresh, stdin=bare)
    assert (done.code, done.out) == (0, "elsewhere/x\n")
    done = call("runs", "submit", "-n", "elsewhere", "-f", "-", fleet=fresh, stdin=run_yaml("y", 8, "true"))
    assert done.code == 2
    assert "metadata.namespace is rai: -n says elsewhere" in done.err


@pytest.mark.parametrize("name", ["Bad NS", "a/b", "-x", "x" * 64, "\x1b[31m"])
def test_a_namespace_that_cannot_be_is_refused_and_nothing_is_written(fresh: Path, name: str) -> None:
    bare = run_yaml("x", 8, "true", owner="org:ai:rai").replace(', "namespace": "rai"', "")
    before = head(fresh)
    for flags, env in ((["-n", name], {}), ([], {"TENURE_NAMESPACE": name})):
        for words in (["submit", "-f", "-"], ["plan", "-f", "-"], ["list"], ["describe", "x"]):
            done = call("runs", *words, *flags, fleet=fresh, stdin=bare, **env)
            assert (done.code, done.out) == (2, "")
            assert "is not a namespace's name\nnext: write up to 63 of a-z" in done.err
    assert head(fresh) == before
    assert call("runs", "budgets", "list", fleet=fresh, TENURE_NAMESPACE=name).code == 0, "that asks for none"


def test_a_namespace_that_a_kubeconfig_fills_in_is_checked_too(tmp_path: Path) -> None:
    context = {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "Bad_NS"}}
    config = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "contexts": [context],
              "users": [{"name": "u", "user": {}}], "current-context": "lab"}  # fmt: skip
    (tmp_path / "config").write_text(json.dumps(config))
    bare = run_yaml("x", 8, "true").replace(', "namespace": "rai"', "")
    done = call("runs", "submit", "-f", "-", stdin=bare, KUBECONFIG=str(tmp_path / "config"))
    assert (done.code, done.out) == (2, "")
    assert 'metadata.namespace is "Bad_NS": not a namespace\'s name' in done.err


def test_submit_answers_programs_too(fresh: Path) -> None:
    done = call("runs", "submit", "-f", "-", "-o", "json", fleet=fresh, stdin=run_yaml("x", 8, "true"))
    assert done.json == {
        "decided": False,
        "objects": [{"object": "Run/rai/x", "change": "created", "phase": "Pending", "reason": "", "message": ""}],
    }


def test_a_waiting_run_is_canceled_at_once(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 8, "true")).code == 0
    assert call("runs", "cancel", "rai/x", fleet=fresh) == Done(0, "Run/rai/x: deleted; it held no GPU\n", "")
    assert call("runs", "list", "-A", "-o", "name", fleet=fresh).out == ""


def test_a_running_run_stops_and_its_lease_closes_as_canceled(fresh: Path) -> None:
    with driven(fresh):
        assert submit(fresh, run_yaml("x", 8, "sleep 60")).code == 0
        done = call("runs", "cancel", "rai/x", fleet=fresh)
        assert done.out == "Run/rai/x: stopping; its 1 lease closes when its pods are gone\n"
        assert call("runs", "watch", "rai/x", "-o", "json", fleet=fresh).code in (0, 5)  # 5: it was gone already
    lease = call("runs", "leases", "--run", "rai/x", "-o", "json", fleet=fresh).json["items"][0]
    assert lease["status"]["closureReason"] == "Canceled"


@pytest.mark.parametrize(("gpus", "leases"), [(4, "1 lease is"), (12, "2 leases are")])
def test_pods_that_are_gone_before_anybody_looks_held_gpus(
    gpus: int, leases: str, fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LocalFleet.cancel

    def slow(fleet: LocalFleet, *words: Any, **options: Any) -> None:
        whole(fleet, *words, **options)
        until(lambda: "rai/x" not in fleet._fleet.state().runs)
        fleet._state = None

    monkeypatch.setattr(LocalFleet, "cancel", slow)
    with driven(fresh):
        assert submit(fresh, run_yaml("x", gpus, "sleep 60")).code == 0
        assert call("runs", "cancel", "rai/x", fleet=fresh).out == f"Run/rai/x: deleted; its {leases} closed\n"


def test_cancel_takes_all_or_none(used: Path) -> None:
    before = head(used)
    done = call("runs", "cancel", "rai/a-train", "rai/nope", fleet=used)
    assert (done.code, done.out) == (5, "")
    assert head(used) == before
    assert call("runs", "cancel", "a-train", "d-later", "-n", "rai", fleet=used).code == 0


@pytest.mark.parametrize("words", [["submit"], ["plan"], ["cancel"]])
def test_nothing_to_do_is_wrong_usage(fresh: Path, words: list[str]) -> None:
    assert call("runs", *words, fleet=fresh).code == 2


CONTAINER = {"name": "main", "image": "trainer:1", "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {}}}]}
IMAGE = json.dumps({
    "kind": "Run", "metadata": {"name": "image", "namespace": "rai"},
    "spec": {"resources": {"gpuType": "H100", "totalGPUs": 4}, "template": {"spec": {"containers": [CONTAINER]}}},
})  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "step"),
    [
        ("submit", "mend what is listed above and try again; nothing was changed"),
        ("plan", "mend what is listed above; submit would refuse it too"),
    ],
)
def test_what_no_embedded_fleet_can_run_is_refused_before_it_is_tried_for_ever(
    fresh: Path, verb: str, step: str
) -> None:
    done = call("runs", verb, "-f", "-", fleet=fresh, stdin=IMAGE)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "error: Run/rai/image: spec.template.spec.containers[0].env[0].valueFrom: not supported by embedded fleets: "
        "give a value; mend it, or submit it to a cluster\n"
        "error: Run/rai/image: spec.template.spec.containers[0].command: missing: embedded fleets run commands; images "
        "are not pulled; name the program and its arguments\n"
        f"next: {step}\n"
    )
    assert call("runs", "list", "-A", "-o", "name", fleet=fresh).out == ""


def test_machines_that_are_all_simulated_run_anything(tmp_path: Path) -> None:
    fleet, file = tmp_path / "fleet.db", tmp_path / "fleet.yaml"
    file.write_text(FLEET.replace("nodes:", "executor: simulated\nnodes:"))
    assert call("tenure", "init", str(fleet), "--fleet", str(file)).code == 0
    assert submit(fleet, BUDGETS).code == 0
    assert call("runs", "plan", "-f", "-", fleet=fleet, stdin=IMAGE).code == 0
    assert submit(fleet, IMAGE).code == 0
    real = "kind: Node\nmetadata: {name: real}\nstatus: {allocatable: {nvidia.com/gpu: '8'}}\n"
    assert submit(fleet, real).code == 0
    assert (
        call("runs", "plan", "-f", "-", fleet=fleet, stdin=IMAGE.replace('"name": "image"', '"name": "other"')).code
        == 2
    )


def test_a_run_that_waits_is_told_when_it_starts_and_what_that_rests_on(fresh: Path) -> None:
    with driven(fresh):
        assert submit(fresh, run_yaml("a", 14, "sleep 60", runtime={"expectedDuration": "1h"})).code == 0
        until(lambda: call("runs", "list", "-n", "rai", "--phase", "Running", "-o", "name", fleet=fresh).out)
        told = submit(fresh, run_yaml("b", 8, "true")).out  # its start moves no more: the hour of the other has begun
        assert still(told).endswith(" Planned start: TIME (in AGE), projected from declared ends.\n"), still(told)
        again = call("runs", "submit", "-f", "-", "-o", "json", fleet=fresh, stdin=run_yaml("b", 8, "true")).json
        planned = call("runs", "list", "-n", "rai", "-o", "json", fleet=fresh).json["items"][1]["status"]
        assert again["objects"][0]["plannedStart"] == planned["earliestStart"]
        call("runs", "cancel", "rai/a", "rai/b", fleet=fresh)


def test_the_hint_at_logs_names_the_run(fresh: Path) -> None:
    with driven(fresh):
        assert submit(fresh, run_yaml("fails", 4, "exit 3")).code == 0
        assert call("runs", "watch", "rai/fails", fleet=fresh).code == 0
        for verb in ("explain", "describe"):
            assert "Look at `kubectl-runs logs rai/fails`." in call("runs", verb, "rai/fails", fleet=fresh).out
