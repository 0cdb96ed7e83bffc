"""Pods as processes: they start, end, stop, and leave nothing behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure.embedded.folder import PodFolder, containers, log_path
from tenure.embedded.process import LAUNCHES, ProcessExecutor
from tenure.shell.executor import PodWork
from tests.embedded.pods import World, alive, clock, container, is_alive, manifest, pod, wait_for


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "pods")
    yield world
    world.close()


# --- ends -------------------------------------------------------------------------------------------------


def test_a_pod_is_bound_when_started_and_succeeds_when_its_command_exits_zero(world: World) -> None:
    before = clock()
    world.run("p", "true")
    report = world.until("p", "Succeeded")
    assert world.phases("p") == ["Bound", "Succeeded"]
    assert report.code == 0
    assert before <= world.reports[0].at <= report.at <= clock()


def test_a_failing_command_fails_the_pod_with_its_exit_code(world: World) -> None:
    world.run("p", "exit 3")
    report = world.until("p", "Failed")
    assert (report.code, report.message) == (3, "container 'main' exited with code 3")
    assert world.phases("p") == ["Bound", "Failed"]


def test_a_command_killed_by_a_signal_fails_with_128_plus_its_number(world: World) -> None:
    world.run("p", "kill -9 $$$$")
    report = world.until("p", "Failed")
    assert (report.code, report.message) == (137, "container 'main' was killed by SIGKILL")


def test_a_pod_succeeds_only_when_all_its_containers_did(world: World, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    world.place("p", container("true", name="quick"), container(f"read line < {go}", name="slow"))
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "state.json")
    assert world.step() == []
    go.write_text("now\n")
    world.until("p", "Succeeded")


def test_the_first_failing_container_gives_the_code_and_the_others_are_stopped(world: World) -> None:
    world.place("p", container("exec sleep 300", name="long"), container("exit 4", name="bad"))
    report = world.until("p", "Failed")
    assert (report.code, report.message) == (4, "container 'bad' exited with code 4")
    assert alive(world.root) == []


def test_init_containers_run_one_after_another_and_before_the_rest(world: World) -> None:
    inits = [container("echo one >> ../order", name="one"), container("echo two >> ../order", name="two")]
    world.place("p", container("echo main >> ../order"), initContainers=inits)
    world.until("p", "Succeeded")
    assert (world.folder("p").path / "order").read_text().split() == ["one", "two", "main"]


def test_a_failing_init_container_keeps_the_rest_from_starting(world: World) -> None:
    world.place("p", container("touch ../ran"), initContainers=[container("exit 5", name="init")])
    assert world.until("p", "Failed").code == 5
    assert not (world.folder("p").path / "ran").exists()


def test_a_command_that_does_not_exist_fails_with_127_and_says_so(world: World) -> None:
    world.place("p", {"name": "main", "command": ["no-such-command"]})
    report = world.until("p", "Failed")
    assert report.code == 127
    assert report.message == "container 'main': cannot run 'no-such-command': No such file or directory"


def test_a_working_dir_that_does_not_exist_fails_and_says_so(world: World) -> None:
    world.place("p", container("true", workingDir="/no/such/place"))
    assert world.until("p", "Failed").message == (
        "container 'main': cannot enter workingDir '/no/such/place': No such file or directory"
    )


def test_what_a_container_left_in_the_background_dies_with_it(world: World, tmp_path: Path) -> None:
    """In its process group, and in a session of its own: both hold GPUs that the lease would give away."""
    pids, both = tmp_path / "pids", tmp_path / "both"
    own_session = f"setsid sh -c 'echo $$$$ >> {pids}; touch {both}; exec sleep 300'"
    world.run("p", f"sleep 300 & echo $! >> {pids}; {own_session} & until [ -e {both} ]; do sleep 0.01; done")
    world.until("p", "Succeeded")
    assert len(pids.read_text().split()) == 2
    assert [pid for pid in map(int, pids.read_text().split()) if is_alive(pid)] == []


# --- stops ------------------------------------------------------------------------------------------------


def test_a_stopped_pod_gets_sigterm_and_may_clean_up(world: World) -> None:
    world.run("p", "trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    world.stop("p")
    world.until("p", "Gone")
    assert world.log("p").splitlines()[-1] == "goodbye"
    assert alive(world.root) == []


def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(world: World) -> None:
    world.run("p", "trap '' TERM; echo ready; while :; do sleep 0.01; done", grace=0.2)
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    world.stop("p")
    asked = time.monotonic()
    report = world.until("p", "Gone")
    assert time.monotonic() - asked >= 0.2
    assert report.code == 137
    assert alive(world.root) == []


def test_sigterm_reaches_the_children_of_a_container_too(world: World) -> None:
    world.run("p", "sh -c 'trap \"echo child heard it; exit\" TERM; echo ready; while :; do sleep 0.01; done'; true")
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    world.stop("p")
    world.until("p", "Gone")
    assert "child heard it" in world.log("p")


def test_a_pod_stopped_before_it_started_is_gone_and_never_starts(world: World) -> None:
    world.run("p", "touch ../ran")
    late = world.work["p"]
    world.stop("p")
    assert [report.phase for report in world.step()] == ["Gone"]
    world.work["p"] = late  # a daemon that was paused, and has not heard of the stop
    report = world.until("p", "Failed")
    assert report.message == "asked to stop"
    assert not (world.folder("p").path / "started").exists()
    assert not (world.folder("p").path / "ran").exists()


def test_a_pod_that_has_ended_is_gone_at_once_when_stopped(world: World) -> None:
    world.run("p", "exit 3")
    ended = world.until("p", "Failed")
    world.stop("p")
    [report] = world.step()
    assert (report.phase, report.code, report.at) == ("Gone", 3, ended.at)


def test_a_full_disk_does_not_keep_a_pod_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("p", "exec sleep 300")
    world.until("p", "Bound")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(PodFolder, "_put", full)
    world.stop("p")
    assert world.step() == []
    assert isinstance(world.executor, ProcessExecutor)
    assert world.executor.unknown == {"rai/p": "[Errno 28] No space left on device"}
    world.until("p", "Gone")
    assert alive(world.root) == []


def test_a_supervisor_told_to_end_by_someone_else_does_not_count_as_success(world: World) -> None:
    """A machine that shuts down sends SIGTERM to everyone, and polite workloads exit 0."""
    world.run("p", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
    world.until("p", "Bound")
    wait_for(world.folder("p").path / "main.log")
    supervisor = world.folder("p").state().shim
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGTERM)
    report = world.until("p", "Failed")
    assert report.code == 143
    assert report.message.startswith("interrupted")


# --- what a process sees ----------------------------------------------------------------------------------


def test_a_process_sees_its_devices_and_rendezvous_and_not_the_daemons_secrets(tmp_path: Path) -> None:
    daemon = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "PYTHONPATH": "/x",
    }
    world = World(tmp_path / "pods", ProcessExecutor(tmp_path / "pods", environ=daemon))
    env = [
        {"name": "CUDA_VISIBLE_DEVICES", "value": "4,5"},
        {"name": "MASTER_ADDR", "value": "a-00"},
        {"name": "MASTER_PORT", "value": "29500"},
        {"name": "ENDPOINT", "value": "$(MASTER_ADDR):$(MASTER_PORT)"},
        {"name": "LANG", "value": "de_DE.UTF-8"},
    ]
    world.place("p", container("exec env", env=env))
    world.until("p", "Succeeded")
    seen = dict(line.split("=", 1) for line in world.log("p").splitlines())
    assert seen.pop("TENURE_POD_TOKEN")
    added_by_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name: value for name, value in seen.items() if name not in added_by_the_shell} == {
        "PATH": os.environ["PATH"],
        "LANG": "de_DE.UTF-8",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "4,5",
        "MASTER_ADDR": "a-00",
        "MASTER_PORT": "29500",
        "ENDPOINT": "a-00:29500",
    }


def test_references_in_command_and_args_are_expanded_from_the_pods_env_as_kubernetes_does(
    world: World,
) -> None:
    env = [{"name": "WHO", "value": "rank 3"}]
    command = {"command": ["printf", "%s|"], "args": ["$(WHO)", "$$(WHO)", "$(HOME)", "$WHO", "$(", "$"]}
    world.place("p", {"name": "main", "env": env, **command})
    world.until("p", "Succeeded")
    assert world.log("p") == "rank 3|$(WHO)|$(HOME)|$WHO|$(|$|"


def test_a_process_starts_in_its_working_dir_or_in_the_pods_scratch_folder(world: World, tmp_path: Path) -> None:
    world.place("p", container("pwd", workingDir=str(tmp_path)), container("pwd", name="other"))
    world.until("p", "Succeeded")
    assert world.log("p") == f"{tmp_path}\n"
    assert world.log("p", "other") == f"{world.folder('p').scratch}\n"


def test_each_container_of_each_pod_has_its_own_log_with_both_streams(world: World) -> None:
    init = [container("echo preparing", name="init")]
    world.place("p", container("echo out; echo err >&2"), container("echo side", name="side"), initContainers=init)
    world.run("q", "echo other")
    world.until("p", "Succeeded")
    world.until("q", "Succeeded")
    names = containers(world.root, namespace="rai", pod="p")
    logs = [log_path(world.root, namespace="rai", pod="p", container=name).read_text() for name in names]
    assert dict(zip(names, logs, strict=True)) == {
        "init": "preparing\n",
        "main": "out\nerr\n",
        "side": "side\n",
    }
    assert world.log("q") == "other\n"
    assert containers(world.root, namespace="rai", pod="never-ran") == []


def test_a_process_is_born_with_a_closed_stdin_default_signals_and_no_files_of_ours(world: World) -> None:
    world.run("p", "cat; grep -E 'Sig(Blk|Ign)' /proc/self/status; exec ls -l /proc/self/fd")
    world.until("p", "Succeeded")
    blocked, ignored, _, *files = world.log("p").splitlines()
    numbered_signals = 2**31 - 1  # the two above are glibc's own, and it ignores them in whatever it spawns
    assert int(blocked.split()[1], 16) & numbered_signals == 0
    assert int(ignored.split()[1], 16) & numbered_signals == 0
    targets = {int(line.split()[-3]): line.split()[-1] for line in files}
    log = str(world.folder("p").path / "main.log")
    assert {number: targets[number] for number in (0, 1, 2)} == {0: "/dev/null", 1: log, 2: log}
    assert [target for number, target in targets.items() if number > 2 and str(world.root) in target] == []


# --- pods that cannot run ---------------------------------------------------------------------------------

VALUE_FROM = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
SIDECAR = container("true", name="s", restartPolicy="Always")

SPECS: list[tuple[Any, str]] = [
    (None, "spec.containers is empty"),
    ({"containers": []}, "spec.containers is empty"),
    ("nonsense", "spec must be a mapping"),
    ({"containers": {"name": "main"}}, "spec.containers must be a list"),
    ({"containers": ["main"]}, "spec.containers[0] must be a mapping"),
    ({"containers": [{"name": "main", "image": "x"}]}, "embedded fleets run commands; images are not pulled"),
    ({"containers": [{"command": ["true"]}]}, "spec.containers[0].name must be"),
    ({"containers": [{"name": "../../x", "command": ["true"]}]}, "spec.containers[0].name must be"),
    ({"containers": [container("true"), container("true")]}, "spec.containers[1].name main is used twice"),
    ({"containers": [{"name": "main", "command": [1]}]}, "command[0] must be a string, in quotes: '1'"),
    ({"containers": [container("a\0b")]}, "command[2] must be text without NUL"),
    ({"containers": [container("\ud800")]}, "halves of surrogate pairs"),
    ({"containers": [container("true", env=[VALUE_FROM])]}, "env[0].valueFrom is not supported"),
    ({"containers": [container("true", env=[{"name": "A", "value": 1}])]}, "env[0].value must be a string"),
    ({"containers": [container("true", env=[{"name": "A=B", "value": ""}])]}, "env[0].name must be"),
    ({"containers": [container("true", envFrom=[{}])]}, "envFrom is not supported"),
    ({"containers": [container("true", volumeMounts=[{}])]}, "volumeMounts is not supported"),
    ({"containers": [container("true", lifecycle={"preStop": {}})]}, "lifecycle is not supported"),
    ({"containers": [container("true", workingDir=3)]}, "workingDir must be a string"),
    ({"containers": [container("true")], "terminationGracePeriodSeconds": -1}, "must be a number of seconds"),
    ({"containers": [container("true")], "terminationGracePeriodSeconds": True}, "must be a number of sec"),
    ({"containers": [container("true")], "terminationGracePeriodSeconds": float("nan")}, "must be a number"),
    ({"containers": [container("true")], "initContainers": [SIDECAR]}, "initContainers[0].restartPolicy Alw"),
]


@pytest.mark.parametrize(("spec", "problem"), SPECS, ids=[problem for _, problem in SPECS])
def test_a_manifest_that_cannot_run_here_fails_in_words_and_starts_nothing(
    world: World, spec: Any, problem: str
) -> None:
    world.work["p"] = PodWork(pod=pod("p"), known="Placed", since=clock(), manifest={"spec": spec})
    [report] = world.step()
    assert report.phase == "Failed"
    assert problem in report.message
    assert not world.root.exists()


def test_every_problem_of_a_manifest_is_named_at_once(world: World) -> None:
    world.place("p", {"name": "Main"}, container("true", name="b", volumeMounts=[{"name": "data"}]))
    [report] = world.step()
    assert len(report.message.split("; ")) >= 3


@pytest.mark.parametrize(("namespace", "name"), [("rai", "../p"), ("..", "p"), ("rai", "a/b"), ("rai", ""), ("", "p")])
def test_a_name_that_is_no_dns_name_never_becomes_a_path(world: World, namespace: str, name: str) -> None:
    bad = PodWork(pod=pod(name, namespace=namespace), known="Placed", since=0, manifest={})
    [report] = world.executor.reconcile([bad], now=clock())
    assert (report.phase, report.message) == (
        "Failed",
        f"cannot run: not a DNS name: {(namespace if namespace != 'rai' else name)!r}",
    )
    assert not world.root.exists()


def test_one_bad_pod_does_not_hold_up_the_others(world: World) -> None:
    world.place("bad", {"name": "main", "image": "x"})
    world.run("good", "true")
    assert world.until("good", "Succeeded").code == 0
    assert world.phases("bad") == ["Failed"]


def test_a_root_that_is_no_folder_fails_the_pod_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text("a file")
    world = World(tmp_path / "pods")
    world.run("p", "true")
    [report] = world.step()
    assert report.phase == "Failed"
    assert report.message.startswith("cannot start: ")
    assert "Not a directory" in report.message


def test_a_supervisor_that_never_gets_going_fails_the_pod_after_some_tries(tmp_path: Path) -> None:
    world = World(
        tmp_path / "pods",
        ProcessExecutor(tmp_path / "pods", supervisor=("/bin/sh", "-c", "echo try >&2; exit 1", "sh")),
    )
    world.run("p", "touch ../ran")
    report = world.until("p", "Failed")
    errors = world.folder("p").path / "supervisor.err"
    assert report.message == f"cannot start: its supervisor fails; see {errors}"
    assert errors.read_text().split() == ["try"] * LAUNCHES
    world.executor = ProcessExecutor(world.root)  # a healthy one must not start what was given up
    world.work["p"] = PodWork(pod=pod("p"), known="Placed", since=0, manifest=world.work["p"].manifest)
    assert world.until("p", "Failed").message == report.message
    world.close()


def test_the_folder_of_another_pod_of_that_name_is_not_taken_for_this_one(world: World) -> None:
    world.run("p", "true")
    world.work["p"].manifest["metadata"] = {"uid": "first"}
    world.until("p", "Succeeded")
    tree = world.work["p"].manifest | {"metadata": {"uid": "second"}}
    world.work["p"] = PodWork(pod=pod("p"), known="Placed", since=clock(), manifest=tree)
    [report] = world.step()
    assert report.phase == "Failed"
    assert "belongs to another pod of that name (first)" in report.message


def test_what_lives_in_the_folder_of_another_pod_of_that_name_ends_before_this_one_is_refused(world: World) -> None:
    world.run("p", "exec sleep 300")
    world.work["p"].manifest["metadata"] = {"uid": "first"}
    world.until("p", "Bound")
    tree = world.work["p"].manifest | {"metadata": {"uid": "second"}}
    world.work["p"] = PodWork(pod=pod("p"), known="Placed", since=clock(), manifest=tree)
    assert "belongs to another pod of that name (first)" in world.until("p", "Failed").message
    assert alive(world.root) == []


def on_gpus(gpus: str) -> PodWork:
    tree = manifest(container("exec sleep 300", env=[{"name": "CUDA_VISIBLE_DEVICES", "value": gpus}]))
    return PodWork(pod=pod("p"), known="Placed", since=clock(), manifest=tree | {"metadata": {"uid": "same"}})


def test_a_pod_on_other_gpus_than_the_one_that_lives_under_its_name_is_not_taken_for_that(world: World) -> None:
    """After an older copy of the ledger was put back: the uid is the same, and so may the name be."""
    world.work["p"] = on_gpus("0")
    world.until("p", "Bound")
    world.executor, world.work["p"] = ProcessExecutor(world.root), on_gpus("1")
    report = world.until("p", "Failed")
    assert report.message.endswith("belongs to an earlier pod of that name, on GPUs 0")
    assert world.phases("p") == ["Bound", "Failed"], "the new one never was: it is tried again under another name"
    assert alive(world.root) == [], "and the old one is not beside whoever has its GPUs"
    world.executor, world.work["p"] = ProcessExecutor(world.root), on_gpus("1")
    assert [again.message for again in world.step()] == [report.message]


def test_who_lives_under_the_name_of_a_pod_on_the_same_gpus_is_that_pod(world: World) -> None:
    world.work["p"] = on_gpus("0,1")
    world.until("p", "Bound")
    alive = world.folder("p").state()
    world.executor, world.work["p"] = ProcessExecutor(world.root), on_gpus("0,1")
    world.until("p", "Bound")
    assert alive is not None
    assert world.folder("p").state() == alive
    assert world.folder("p").forbidden() is None


# --- the port ---------------------------------------------------------------------------------------------


def test_reports_are_repeated_until_the_engine_has_recorded_them(world: World) -> None:
    world.run("p", "exit 3")
    asked = list(world.work.values())
    final = world.until("p", "Failed")
    again = world.executor.reconcile(asked, now=clock())
    assert [(report.phase, report.code) for report in again] == [("Bound", None), ("Failed", 3)]
    assert again[-1] == final
    assert world.executor.reconcile(list(world.work.values()), now=clock()) == []


def test_an_executor_with_nothing_to_watch_needs_no_waking(world: World) -> None:
    world.step()
    assert world.executor.next_wake() is None
    world.run("p", "true")
    before = clock()
    world.step()
    wake = world.executor.next_wake()
    assert wake is not None
    assert wake > before
    world.until("p", "Succeeded")
    world.step()
    assert world.executor.next_wake() is None


def test_the_record_of_an_ended_pod_names_every_container(world: World) -> None:
    world.place("p", container("exit 0", name="good"), container("sleep 0.05; exit 7", name="bad"))
    world.until("p", "Failed")
    record = json.loads((world.folder("p").path / "exit.json").read_text())
    assert [(each["name"], each["code"]) for each in record["containers"]] == [("good", 0), ("bad", 7)]
    assert record["startedAt"] <= record["containers"][0]["startedAt"] <= record["endedAt"]
    assert sorted(path.name for path in world.folder("p").path.glob("*.tmp")) == []
