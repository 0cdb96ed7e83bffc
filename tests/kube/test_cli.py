"""`kubectl runs` on a real API server: the same commands as on an embedded fleet, and the same answers."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.api.meta import GROUP, OWNER_ANNOTATION
from tenure.cli.cluster import ClusterFleet
from tenure.cli.copied import DRIVE
from tenure.cli.main import RUNS as VERBS
from tenure.engine import State
from tenure.kube import guard
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.install import manifests
from tenure.kube.loop import IO
from tenure.kube.marks import RESOLVE
from tenure.kube.retention import retire
from tenure.kube.store import KubeStore
from tenure.kube.system import System
from tenure.kube.webhook import serving
from tenure.ledger import Ledger
from tenure.testing.kube import ControlPlane, Kwok, until
from tenure.testing.kube.waiting import PATIENCE
from tests.cli import support
from tests.kube.homes import Home, Kept, binding, cluster_home, kubelet, machines, prepared, run_yaml, still
from tests.kube.operating import Running, installed, operating
from tests.kube.worlds import World

GOLDEN = Path(__file__).with_name("golden.yaml")
WORDS = {
    "list": ("list", "-n", "rai"),
    "list-all": ("list", "-A", "-o", "wide"),
    "list-names": ("list", "-A", "-o", "name"),
    "describe-running": ("describe", "rai/train"),
    "describe-waiting": ("describe", "rai/wide"),
    "explain-running": ("explain", "rai/train"),
    "explain-waiting": ("explain", "rai/wide"),
    "explain-never": ("explain", "rai/giant"),
    "story": ("story", "rai/done"),
    "story-waiting": ("story", "rai/wide"),
    "budgets-list": ("budgets", "list"),
    "budgets-usage": ("budgets", "usage"),
    "budgets-lent": ("budgets", "lent"),
    "who-pays": ("who-pays", "rai/done"),
    "who-pays-running": ("who-pays", "rai/train"),
    "sponsors": ("sponsors", "list", "rai/wide"),
    "leases": ("leases", "--run", "rai/done"),
    "leases-open": ("leases", "--open", "-n", "rai"),
    "reservations": ("reservations", "-A"),
    "pods": ("pods", "-A"),
    "nodes": ("nodes",),
    "forecast-error": ("forecast-error",),
    "resolve-dry-run": ("resolve", "rai/wide", "--dry-run"),
    "verify-nothing": ("verify", "Reservation/rai/wide"),
    "chargeback": ("chargeback", "--since", "1h"),
    "unknown-run": ("describe", "rai/trian"),
    "shrink-fixed": ("shrink", "rai/train", "4"),
    "sponsors-remove-none": ("sponsors", "remove", "rai/wide", "org:ai:vision"),
}  # fmt: skip
TOLD_TO_PEOPLE = ("shrink",)
"""Verbs that answer in a sentence and have no -o json."""
ELSEWHERE = {"uid", "resourceVersion", "fleet", "hash", "seq", "entry", "head", "managedFields", "annotations", "image",
             "gpuMicroseconds", "ownedGPUMicroseconds", "countdownSeconds"}  # fmt: skip
"""Fields that are of one home, or of one moment."""
PLANS = {
    "plan-start": run_yaml("small", 4, runtime={"expectedDuration": "5m"}),
    "plan-wait": run_yaml("later", 12),
    "plan-never": run_yaml("huge", 640),
    "plan-refused": run_yaml("other", 4, owner="org:elsewhere"),
}


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Commands wait for the operator for as long as a slow machine takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenure.cli.cluster.PATIENCE", PATIENCE)
        patch.setattr("tenure.cli.mirrored.PATIENCE", PATIENCE)
        yield


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of this module's own, where ada may read the books, set owners and submit runs, and no more."""
    folder = tmp_path_factory.mktemp("cli")
    with (
        kubelet() as port,
        ControlPlane.started(folder, programs) as plane,
        Kwok.started(programs["kwok"], plane.admin, folder),
    ):
        installed(plane, guarded=True)
        machines(plane, port)
        for role in ("tenure-auditor", "tenure-administrator", "tenure-tenant"):
            plane.api.create(binding(role)).must()
        for name in ("rai", "vis"):
            plane.namespace(name)
        yield plane


@pytest.fixture(scope="module")
def running(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    config = cluster.service_account("tenure-system", "tenure-operator")
    with operating(config, tmp_path_factory.mktemp("journal")) as running:
        yield running


@pytest.fixture(scope="module")
def in_cluster(cluster: ControlPlane, running: Running, tmp_path_factory: pytest.TempPathFactory) -> Home:
    return prepared(cluster_home(cluster, cluster.user("ada"), tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    file = support.create(tmp_path_factory.mktemp("embedded"))
    with support.driven(file):
        home = prepared(Home("embedded", TENURE_LOCAL=str(file)))
        yield home
        gone(home, "rai/train")


@pytest.fixture(params=["embedded", "cluster"])
def home(request: pytest.FixtureRequest) -> Home:
    found: Home = request.getfixturevalue("embedded" if request.param == "embedded" else "in_cluster")
    return found


@pytest.fixture
def kept(home: Home, request: pytest.FixtureRequest) -> Kept:
    return Kept(request.getfixturevalue("cluster") if home.name == "cluster" else None)


# --- the same answers -----------------------------------------------------------------------------------------------


def test_a_name_that_reads_like_an_age_is_still_a_name() -> None:
    assert still("wide-1234567d and wide-12d4567d, 2h5m ago") == "wide ID and wide ID, AGE ago"
    assert still(f"head {'12345678' * 7}1234567d") == "head HASH"


def golden(name: str, home: Home, told: support.Done) -> None:
    """Held against what is written down, which is the same for both homes."""
    text = still(f"exit code {int(told.code)}\n{told.out}{told.err}")
    expected = yaml.safe_load(GOLDEN.read_text())[name]
    assert [line.rstrip() for line in text.splitlines()] == expected.splitlines(), f"{name}, in the {home.name}"


@pytest.mark.parametrize("name", WORDS)
def test_both_homes_answer_alike(name: str, home: Home) -> None:
    golden(name, home, home.call(*WORDS[name]))


@pytest.mark.parametrize("name", PLANS)
def test_both_homes_plan_alike(name: str, home: Home) -> None:
    golden(name, home, home.call("plan", "-f", "-", stdin=PLANS[name]))


def machine(node: Any) -> Any:
    return node["metadata"]["name"], node["spec"], node["status"]["allocatable"]["nvidia.com/gpu"]


def settled(told: Any) -> Any:
    """What programs are told, with everything taken out that is different each time, and each place."""
    if isinstance(told, dict):
        return {key: settled(value) for key, value in told.items() if key not in ELSEWHERE}
    if isinstance(told, list):
        return [settled(one) for one in told]
    if isinstance(told, str):
        return still(told)
    return "N" if isinstance(told, float) else told


@pytest.mark.parametrize("name", [name for name, words in WORDS.items() if words[0] not in TOLD_TO_PEOPLE])
def test_both_homes_tell_programs_alike(name: str, embedded: Home, in_cluster: Home) -> None:
    words = [word for word in WORDS[name] if word not in ("-o", "wide", "name")]
    here, there = (home.call(*words, "-o", "json") for home in (embedded, in_cluster))
    assert here.code == there.code
    if name == "nodes":  # a kubelet says more about its machine than a fleet file does
        here, there = (support.Done(0, json.dumps(list(map(machine, one.json["items"]))), "") for one in (here, there))
    assert settled(here.json if here.out else here.err) == settled(there.json if there.out else there.err)


def test_both_homes_audit_alike(embedded: Home, in_cluster: Home) -> None:
    here, there = (home.call("audit", "-o", "json") for home in (embedded, in_cluster))
    assert (here.code, there.code) == (0, 0), (here, there)
    assert here.json["invariants"] == there.json["invariants"]
    assert settled(here.json) == settled(there.json)


def test_every_verb_is_tried_in_both_homes() -> None:
    source = Path(__file__).read_text()
    tried = {words[0] for words in WORDS.values()} | set(re.findall(r'home\.call\("([a-z-]+)"', source))
    tried |= {"submit", "audit", "doctor"}  # doctor: tests/cli/test_doctor.py and tests/kube/test_doctor.py
    assert {*VERBS} - tried == {"version", "completion"}


# --- the same effects -----------------------------------------------------------------------------------------------


def vision(name: str, gpus: int, **rest: Any) -> str:
    """A run of namespace vis that ends before anybody else needs its machines."""
    given = {"runtime": {"expectedDuration": "10m"}, **rest}
    return run_yaml(name, gpus, **given).replace('"namespace": "rai"', '"namespace": "vis"')


def gone(home: Home, *keys: str) -> None:
    home.call("cancel", *keys)
    for key in keys:
        home.is_phase(key, "Gone")


def test_a_run_is_submitted_runs_and_is_canceled(home: Home, kept: Kept) -> None:
    golden("submit", home, home.submit(vision("one", 4, held=True)))
    kept.go("vis/one")
    home.is_phase("vis/one", "Running")
    golden("submit-again", home, home.submit(vision("one", 4, held=True)))
    golden("submit-changed", home, home.submit(vision("one", 8, held=True)))
    golden("cancel-dry-run", home, home.call("cancel", "vis/one", "--dry-run=server"))
    assert home.phase("vis/one") == "Running"
    with kept.stays("vis/one"):
        golden("cancel", home, home.call("cancel", "vis/one"))
    home.is_phase("vis/one", "Gone")
    golden("cancel-gone", home, home.call("cancel", "vis/one"))
    golden("who-paid", home, home.call("who-pays", "vis/one", "-o", "name"))


def canceled_late(home: Home, key: str) -> support.Done:
    """Cancel a run, and look only when it is gone."""
    whole = ClusterFleet.cancel

    def slow(fleet: ClusterFleet, *words: Any, **options: Any) -> None:
        whole(fleet, *words, **options)
        until(lambda: not fleet._runs(*key.split("/")))
        if fleet._books is not None:
            assert fleet._await(lambda state: key not in state.runs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterFleet, "cancel", slow)
        return home.call("cancel", key)


def test_pods_that_are_gone_before_anybody_looks_held_gpus(in_cluster: Home, tenant: Home) -> None:
    for home, leases in ((in_cluster, "1 lease is"), (tenant, "leases are")):
        assert home.submit(vision("swift", 4, owner="org:ai:vision")).code == 0
        in_cluster.is_phase("vis/swift", "Running")
        until(lambda: "Running" in tenant.call("list", "-n", "vis").out)
        told = canceled_late(home, "vis/swift")
        assert (told.code, told.out) == (0, f"Run/vis/swift: deleted; its {leases} closed\n")


def test_a_dry_run_writes_nothing(home: Home) -> None:
    golden("dry-run", home, home.submit(vision("trial", 4), flags=("--dry-run=server",)))
    assert home.phase("vis/trial") == "Gone"
    bad = vision("trial", 4, owner="org:elsewhere")
    golden("dry-run-refused", home, home.submit(bad, flags=("--dry-run=server",)))


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_written(home: Home) -> None:
    bad = vision("bad", 4, owner="org:elsewhere")
    golden("refused", home, home.submit(vision("good", 4), bad, bad.replace('"bad"', '"worse"')))
    assert home.phase("vis/good") == "Gone"
    golden("refused-file", home, home.submit(vision("bad", -4, funding={"allowBorow": True})))


def test_an_elastic_run_is_shrunk_and_grown(home: Home, kept: Kept) -> None:
    width = {"minTotalGPUs": 4, "maxTotalGPUs": 8, "stepGPUs": 4, "desiredTotalGPUs": 8}
    assert home.submit(vision("elastic", 8, malleable=width)).code == 0
    home.is_phase("vis/elastic", "Running")
    with kept.stays("vis/elastic"):
        golden("shrink", home, home.call("shrink", "vis/elastic", "4"))
    until(lambda: " 4/4 " in home.call("list", "-n", "vis").out)
    told = home.call("grow", "vis/elastic", "8")
    assert told.out.startswith("Run/vis/elastic: desires 8 GPUs")
    gone(home, "vis/elastic")


def test_sponsors_are_added_and_removed(home: Home) -> None:
    funding = {"allowBorrow": True, "maxBorrowGPUs": 2}
    assert home.submit(run_yaml("poor", 14, funding=funding)).code == 0
    golden("sponsors-add", home, home.call("sponsors", "add", "rai/poor", "org:ai:vision"))
    golden("sponsors-listed", home, home.call("sponsors", "list", "rai/poor", "-o", "name"))
    golden("sponsors-remove", home, home.call("sponsors", "remove", "rai/poor", "org:ai:vision"))
    gone(home, "rai/poor")


def test_a_watch_tells_what_happens_until_the_run_is_over(home: Home) -> None:
    assert home.submit(vision("short", 4, script="sleep 2", seconds=2)).code == 0
    told = home.call("watch", "vis/short")
    assert told.code == 0
    assert "Completed" in told.out.splitlines()[-1]
    gone(home, "vis/short")


def test_who_watches_asks_nothing_while_nothing_happens(in_cluster: Home) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in in_cluster.env.items():
            patch.setenv(name, value)
        with ClusterFleet.open(kubeconfig=None, context=None, archive=None) as fleet:
            follower = fleet.follow()

            def nothing() -> bool:
                calls = fleet._client.calls
                return follower.wait(1.0) is None and fleet._client.calls == calls

            until(nothing)  # when it has seen what there is, and has begun to listen


def test_logs_are_printed_and_followed(home: Home) -> None:
    text = vision("talks", 8, script="echo hello; sleep 0.5; echo done; sleep 600", resources={"gpusPerPod": 4})
    assert home.submit(text).code == 0
    home.is_phase("vis/talks", "Running")
    for pod in ("0", "1"):
        until(lambda pod=pod: home.call("logs", "vis/talks", "--pod", pod).out == "hello\ndone\n")
    golden("logs", home, home.call("logs", "vis/talks"))
    golden("logs-tail", home, home.call("logs", "vis/talks", "--pod", "1", "--tail", "1"))
    golden("logs-nothing", home, home.call("logs", "rai/wide"))
    gone(home, "vis/talks")
    assert home.submit(vision("ends", 4, script="echo hello; sleep 0.5; echo done; sleep 600")).code == 0
    follower = support.spawn("runs", "logs", "vis/ends", "-f", env=home.env)
    assert follower.stdout is not None
    seen = [follower.stdout.readline() for _ in ("hello", "done")]
    gone(home, "vis/ends")
    rest = support.finish(follower)
    golden("logs-follow", home, rest._replace(out="".join(seen) + rest.out))


def test_others_give_way_now_to_a_run_that_waits(home: Home, kept: Kept, request: pytest.FixtureRequest) -> None:
    width = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8, "desiredTotalGPUs": 16}
    assert home.submit(vision("soft", 16, malleable=width)).code == 0
    home.is_phase("vis/soft", "Running")
    assert home.submit(run_yaml("urgent", 4, runtime={"expectedDuration": "5m"})).code == 0
    golden("resolve-would", home, home.call("resolve", "rai/urgent", "--dry-run"))
    with kept.stays("vis/soft"):
        golden("resolve", home, home.call("resolve", "rai/urgent"))
    home.is_phase("rai/urgent", "Running")
    golden("resolve-again", home, home.call("resolve", "rai/urgent"))
    if home.name == "cluster":
        world = World(request.getfixturevalue("cluster"), "rai")
        until(lambda: RESOLVE not in (world.run("urgent")["metadata"].get("annotations") or {}))
    gone(home, "rai/urgent", "vis/soft")


# --- a cluster's own ------------------------------------------------------------------------------------------------


def test_logs_go_with_their_pods(in_cluster: Home) -> None:
    told = in_cluster.call("logs", "rai/done")
    assert (told.code, told.out) == (5, "")
    assert told.err.startswith("error: the pods of Run/rai/done are gone, and their logs with them\n")


def test_machines_of_a_cluster_are_not_submitted(in_cluster: Home) -> None:
    told = in_cluster.call("submit", "-f", "-", stdin='{"kind": "Node", "metadata": {"name": "x"}}')
    assert (told.code, told.out) == (2, "")
    assert "error: Node/x: kind is Node: the machines of a cluster join it by themselves" in told.err


def test_kubectl_finds_it_as_a_plugin(cluster: ControlPlane, in_cluster: Home) -> None:
    path = f"{support.BIN}:{cluster.programs['kubectl'].parent}:{os.environ['PATH']}"
    env = {**os.environ, **in_cluster.env, "PATH": path}
    done = subprocess.run(["kubectl", "runs", "list", "-n", "rai"], env=env, capture_output=True, text=True, check=True)
    golden("list", in_cluster, support.Done(done.returncode, done.stdout, ""))
    helped = subprocess.run(["kubectl", "runs", "nope"], env=env, capture_output=True, text=True, check=False)
    assert helped.returncode == 2
    assert "next: kubectl runs --help" in helped.stderr


def test_kubectl_completes_names_of_the_cluster(cluster: ControlPlane, in_cluster: Home) -> None:
    path = f"{support.BIN}:{cluster.programs['kubectl'].parent}:{os.environ['PATH']}"
    env = {**os.environ, **in_cluster.env, "PATH": path, "TENURE_COMPLETION_SECONDS": "60"}

    def completed(*words: str) -> list[str]:
        command = ["kubectl", "__complete", "runs", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert completed("describe", "-n", "rai", "t") == ["train\tRunning", ":4"]
    assert completed("describe", "rai/w") == ["rai/wide\tPending", ":4"]
    assert completed("budgets", "usage", "v") == ["vision\torg:ai:vision", ":4"]
    assert completed("list", "--owner", "org:ai:v") == ["org:ai:vision\tBudget vision", ":4"]
    assert completed("leases", "--node", "b") == ["b-0\tH100", ":4"]
    assert completed("-n", "vi") == ["vis\torg:ai:vision", ":4"]


def test_a_helper_that_the_kubeconfig_names_logs_in(cluster: ControlPlane, in_cluster: Home, tmp_path: Path) -> None:
    """As clouds have it: a program prints the token, and kubectl runs the same one."""
    cluster.namespace("people")
    role = binding("tenure-auditor", "helped")
    role["subjects"] = [{"kind": "ServiceAccount", "name": "helped", "namespace": "people"}]
    cluster.api.create(role).must()
    helped = cluster.api.acting_as("system:serviceaccount:people:helped")
    until(lambda: helped.get(f"/apis/{GROUP}/v1/ledgerentries").ok)
    config = yaml.safe_load(cluster.service_account("people", "helped").read_text())
    token = config["users"][0]["user"].pop("token")
    helper = tmp_path / "helper"
    told = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
    helper.write_text(f"#!/bin/sh\n[ \"$1 $WHO\" = 'token me' ] && cat <<'END'\n{json.dumps(told)}\nEND\n")
    helper.chmod(0o755)
    config["users"][0]["user"]["exec"] = {
        "apiVersion": told["apiVersion"], "command": "./helper", "args": ["token"], "interactiveMode": "Never",
        "env": [{"name": "WHO", "value": "me"}],
    }  # fmt: skip
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    home = cluster_home(cluster, tmp_path / "config", tmp_path / "cache")
    golden("list", home, home.call("list", "-n", "rai"))
    helper.write_text("#!/bin/sh\nexit 3\n")
    broken = home.call("list", "--kubeconfig", str(tmp_path / "config"))
    assert broken.code == 6
    assert "helper ended with exit code 3\nnext: see whether kubectl can log in" in broken.err


def test_the_copy_is_brought_up_to_the_head_and_only_news_is_read(
    cluster: ControlPlane, tmp_path: Path, in_cluster: Home, running: Running
) -> None:
    def opened() -> tuple[int, int]:
        with ClusterFleet.open(kubeconfig=cluster.user("ada"), context=None, archive=None) as fleet:
            assert fleet._copy is not None
            return fleet._copy.head.seq, fleet._client.calls

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENURE_CACHE", str(tmp_path))
        assert opened()[1] > 2
        until(lambda: opened() == (running.store.head.seq, 2))  # the LedgerHead, and nothing else
        seq, _ = opened()
        assert in_cluster.submit(vision("news", 2)).code == 0
        head, calls = opened()
        assert head > seq
        assert calls <= 2 + head - seq
        patch.setattr("tenure.shell.home.IMAGE_EVERY", 1)  # so that the next command need not fold it all
        gone(in_cluster, "vis/news")
        opened()
    (folder,) = tmp_path.iterdir()
    with Ledger.open(folder / "ledger.db", readonly=True) as ledger:
        image = ledger.snapshot()
    assert image is not None
    assert image.seq > head
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_list_does_not_wait_for_the_ledger_to_be_copied(
    cluster: ControlPlane, in_cluster: Home, tmp_path: Path
) -> None:
    """On a computer without a copy, or with an old one, runs are listed from their objects: in the same words, once the
    operator has written into them when they are likely to start."""
    waiting = "/apis/rq.davidlangworthy.io/v1/namespaces/rai/runs/wide"
    until(lambda: cluster.api.get(waiting).must()["status"].get("estimate"))
    away = Home("cluster, without a copy", **{**in_cluster.env, "TENURE_CACHE": str(tmp_path)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tenure.cli.copied.FAR_BEHIND", 0)
        for name in ("list", "list-names"):
            golden(name, away, away.call(*WORDS[name]))
        assert not list(tmp_path.iterdir())
        patch.setattr("tenure.cli.copied.is_terminal", lambda stream: True)
        told = away.call(*WORDS["list-all"])  # what only the ledger knows takes the ledger
        assert re.fullmatch(r"copying \d+ entries of the cluster's ledger to this computer; .*\n", told.err)
        golden("list-all", away, told._replace(err=""))
        assert list(tmp_path.iterdir())


def test_commands_at_the_same_time_share_a_copy(in_cluster: Home, tmp_path: Path) -> None:
    env = {**os.environ, **in_cluster.env, "TENURE_CACHE": str(tmp_path)}
    command = [support.BIN / "kubectl-runs", "list", "-A", "-o", "name"]
    started = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    told = {one.communicate(timeout=PATIENCE) for one in started}
    assert told == {(in_cluster.call("list", "-A", "-o", "name").out.encode(), b"")}


# --- who may not ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tenant(cluster: ControlPlane, in_cluster: Home, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Bob submits runs in namespace vis, and has no other right."""
    role = binding("tenure-tenant", "bob")
    cluster.api.create({**role, "kind": "RoleBinding", "metadata": {**role["metadata"], "namespace": "vis"}}).must()
    until(lambda: cluster.api.acting_as("bob").get(f"/apis/{GROUP}/v1/namespaces/vis/runs").ok)
    return cluster_home(cluster, cluster.user("bob"), tmp_path_factory.mktemp("bob"))


def test_a_tenant_lives_without_the_ledger(cluster: ControlPlane, tenant: Home) -> None:
    kept = Kept(cluster)
    told = tenant.submit(vision("bobs", 4, owner="org:ai:vision", held=True))
    assert (told.code, told.err) == (0, "")
    assert told.out == "Run/vis/bobs created: starts with 4 GPUs on 1 node, paid by vision/west (4 owned).\n"
    kept.go("vis/bobs")
    until(lambda: "Running" in tenant.call("list", "-n", "vis").out)
    assert still(tenant.call("list", "-n", "vis").out) == (
        "NAME PHASE GPUS OWNER AGE WHY\nbobs Running 4/4 org:ai:vision AGE 1 pod bound: it runs.\n"
    )
    with kept.stays("vis/bobs"):
        told = tenant.call("cancel", "vis/bobs")
    assert (told.code, told.out) == (0, "Run/vis/bobs: stopping; its leases close when its pods are gone\n")
    until(lambda: not tenant.call("list", "-n", "vis", "-o", "name").out)


def test_a_tenant_changes_who_is_asked_to_lend(tenant: Home) -> None:
    assert tenant.submit(vision("asks", 2, owner="org:ai:vision", funding={"allowBorrow": True})).code == 0
    told = tenant.call("sponsors", "add", "vis/asks", "org:ai:rai")
    assert (told.code, told.out) == (0, "Run/vis/asks: org:ai:rai is sponsor 1 of 1\n"), told.err
    told = tenant.call("sponsors", "remove", "vis/asks", "org:ai:rai")
    assert told.code == 0, told.err
    assert tenant.call("cancel", "vis/asks").code == 0
    until(lambda: not tenant.call("list", "-n", "vis", "-o", "name").out)


def test_a_tenant_and_a_namesake_are_told_of_pods_that_are_gone(tenant: Home, in_cluster: Home) -> None:
    assert tenant.submit(vision("brief", 4, script="true", seconds=1, owner="org:ai:vision")).code == 0
    until(lambda: "Completed" in tenant.call("list", "-n", "vis").out)
    for home in (tenant, in_cluster):
        until(lambda home=home: "pods of Run/vis/brief are gone" in home.call("logs", "vis/brief").err)
    gone(in_cluster, "vis/brief")
    assert in_cluster.submit(vision("brief", 640)).code == 0
    for home in (tenant, in_cluster):
        told = home.call("logs", "vis/brief")
        assert (told.code, "it has not started any pod here yet" in told.err) == (5, True), told
    gone(in_cluster, "vis/brief")


@pytest.mark.parametrize("name", ["describe", "explain", "leases", "budgets-usage", "who-pays", "plan", "story"])
def test_a_tenant_is_told_what_the_books_would_take(name: str, tenant: Home) -> None:
    words = {"budgets-usage": ("budgets", "usage"), "leases": ("leases",), "plan": ("plan", "-f", "-")}
    told = tenant.call(*words.get(name, (name, "vis/x")), stdin=vision("x", 4))
    if name in ("describe", "explain"):
        tenant.submit(vision("x", 4))
        told = tenant.call(name, "vis/x")
        tenant.call("cancel", "vis/x")
    assert (told.code, told.out) == (6, "")
    assert told.err == (
        "error: bob may not read the ledger of this cluster, and this answer is in nothing else\n"
        "next: ask an administrator: kubectl create clusterrolebinding NAME --clusterrole=tenure-auditor --user=bob; "
        "submit, list, shrink, grow and cancel work without it\n"
    )


def test_a_policy_speaks_as_the_fleet_does(tenant: Home) -> None:
    told = tenant.submit(vision("spoofed", 4, owner="org:elsewhere"))
    assert (told.code, told.out) == (2, "")
    assert told.err == (
        "error: Run/vis/spoofed: spec.owner is org:elsewhere: not org:ai:vision, to which the namespace is bound, nor "
        "below it; the cluster's admission policy tenure-runs says so\n"
        "next: mend what is listed above and try again; nothing was changed\n"
    )


def test_what_is_refused_by_the_server_keeps_the_rest_from_being_written(tenant: Home) -> None:
    told = tenant.submit(vision("fine", 4, owner="org:ai:vision"), vision("spoofed", 4, owner="org:elsewhere"))
    assert (told.code, told.out) == (2, "")
    assert told.err.endswith("next: mend what is listed above and try again; nothing was changed\n")
    assert "fine" not in tenant.call("list", "-n", "vis", "-o", "name").out


def test_a_tenant_has_nobody_give_way(cluster: ControlPlane, tenant: Home) -> None:
    assert tenant.submit(vision("pushy", 2, owner="org:ai:vision")).code == 0
    note = "rq.davidlangworthy.io/resolve=now"
    config = Path(tenant.env["KUBECONFIG"])
    done = cluster.kubectl(
        "annotate", "runs.rq.davidlangworthy.io", "pushy", "-n", "vis", note, config=config, check=False
    )
    assert done.returncode == 1
    assert "takes the verb resolve on runs" in done.stderr
    tenant.call("cancel", "vis/pushy")


def test_elsewhere_a_tenant_is_told_which_right_is_missing(tenant: Home) -> None:
    told = tenant.submit(run_yaml("elsewhere", 4))
    assert (told.code, told.out) == (6, "")
    assert "error: Run/rai/elsewhere was not taken: bob may not get runs in namespace rai" in told.err
    assert "next: ask an administrator: kubectl create rolebinding NAME -n rai --clusterrole=tenure-tenant" in told.err
    assert tenant.call("list", "-A").code == 6


def test_the_webhook_speaks_as_the_fleet_does_and_says_all_at_once(
    cluster: ControlPlane, running: Running, tenant: Home
) -> None:
    def known() -> State:
        return running.operator.home.state

    with serving(running.io, running.client, "127.0.0.1", 0, names=["127.0.0.1"], known=known) as webhook:
        system = System(webhook_url=f"https://127.0.0.1:{webhook.port}")
        for item in manifests(system):
            if item["kind"].endswith("WebhookConfiguration"):
                cluster.api.apply(item).must()
        bad = vision("bad", 4, owner="org:elsewhere")
        both = (bad, bad.replace('"bad"', '"worse"'))
        told = until(lambda: (done := tenant.submit(*both)).err.count("write") == 2 and done)
    assert (told.code, told.out) == (2, "")
    expected = yaml.safe_load(GOLDEN.read_text())["refused"]  # what both homes say to who may read the ledger
    assert still(f"exit code 2\n{told.err}") == expected


def test_an_operator_that_was_elected_and_has_gone_is_noticed(cluster: ControlPlane, in_cluster: Home) -> None:
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
             "metadata": {"name": "tenure-operator", "namespace": "tenure-system"}}  # fmt: skip
    cluster.api.create(lease).must()
    told = in_cluster.call("describe", "rai/wide").out
    assert f"Driven: no: nothing starts or stops until {DRIVE}" in still(told)
    path = "/apis/coordination.k8s.io/v1/namespaces/tenure-system/leases/tenure-operator"
    cluster.api.patch(path, {"spec": {"renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"}}).must()
    assert "Driven:" not in in_cluster.call("describe", "rai/wide").out
    what_it_cannot_take_in(cluster, in_cluster)
    cluster.api.delete(path).must()


def what_it_cannot_take_in(cluster: ControlPlane, home: Home) -> None:
    """A Run that no operator can read, however alive it is: every verb that shows runs shows it, and the others."""
    cluster.api.create(json.loads(run_yaml("odd", 4, "printf '\x1b[1m'"))).must()
    odd, reason = "Run/rai/odd: spec.template.spec.containers[0].command[2]", "holds a control character"
    until(lambda: reason in home.call("list", "-n", "rai", "-o", "wide").out)
    assert {"rai/odd", "rai/wide"} <= set(home.call("list", "-A", "-o", "name").out.split())
    assert home.phase("rai/odd") == "Pending"
    told = home.call("describe", "rai/odd")
    assert told.code == 0, told
    assert "GPUs: 0 of 4 H100" in still(told.out)
    assert "Taken in: not yet: the ledger knows nothing of it" in still(told.out)
    told = home.call("explain", "rai/odd")
    assert (told.code, told.out) == (2, "")
    assert odd in told.err
    assert reason in told.err
    assert home.call("cancel", "rai/odd").out == "Run/rai/odd: deleted; nobody had taken it in yet\n"
    assert "rai/odd" not in home.call("list", "-A", "-o", "name").out


# --- clusters that are not ready ------------------------------------------------------------------------------------


def test_a_cluster_on_its_way(
    new_plane: Callable[[], ControlPlane], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing there, then everything but an operator, one that has gone, an archive, a ledger set back in time."""
    for part in ("cluster", "mirrored"):
        monkeypatch.setattr(f"tenure.cli.{part}.PATIENCE", 5.0)  # it is waited out, for there is no operator
    plane = new_plane()
    home = cluster_home(plane, plane.admin, tmp_path / "cache")
    told = home.call("list")
    assert (told.code, told.out) == (5, "")
    assert told.err.startswith("error: Tenure is not installed in this cluster\nnext: tenure install --kube")
    installed(plane)
    plane.namespace("rai", **{OWNER_ANNOTATION: "org:ai:rai"})
    told = home.call("budgets", "usage")
    assert told.err.startswith("error: this cluster has no ledger yet: no operator has run in it\nnext: have somebody")
    told = home.submit(run_yaml("early", 4))
    assert told.out == "Run/rai/early created: recorded; nothing drives this fleet yet\n"
    assert told.err == f"nothing drives this fleet, so nothing starts yet: {DRIVE}\n"
    with operating(plane.admin, tmp_path / "journal"):
        until(lambda: home.phase("rai/early") == "Pending" and home.call("explain", "rai/early").code == 0)
    made = World(plane, "rai").run("early")["metadata"]["creationTimestamp"]
    (life,) = home.call("story", "rai/early", "-o", "json").json["incarnations"]
    assert life["submitted"] == life["events"][0]["at"] == made  # not when somebody came to take it in
    nobody_took_it_in(home)
    forged(plane, home)
    archived(plane, tmp_path)
    assert home.call("list", "-A", "-o", "name").out == "rai/early\n"  # this copy had them before
    other = cluster_home(plane, plane.admin, tmp_path / "other")
    assert other.call("list", "-A", "-o", "name").out == "rai/early\n"  # that the API server tells
    told = other.call("explain", "rai/early")
    assert (told.code, told.out) == (6, "")
    assert told.err.startswith("error: ArchiveNeeded: Entries up to ")
    assert "next: once, name the operator's --archive folder or a copy of it: --archive FOLDER" in told.err
    told = other.call("explain", "rai/early", "--archive", str(tmp_path / "archive"))
    assert told.code == 0, told.err
    assert other.call("explain", "rai/early").code == 0, "once: it has them now"
    (copy,) = (tmp_path / "cache").glob("*/ledger.db")
    with Ledger.open(copy) as ledger, ledger.write() as tx:  # as if the API server had known more once
        head = tx.append(at=ledger.head.at, cause="lost", facts=()).seq
    told = home.call("list", "-A")
    assert (told.code, told.out) == (6, "")
    assert f"ends at entry {head - 1}, but the copy on this computer knows entry {head}" in told.err
    assert "next: tell who keeps the cluster first" in told.err


def nobody_took_it_in(home: Home) -> None:
    """A Run that came while no operator is there, and is in no ledger: every verb that shows runs shows it."""
    assert home.submit(run_yaml("late", 4)).out == "Run/rai/late created: recorded; nothing drives this fleet yet\n"
    told = still(home.call("list", "-n", "rai").out)
    assert re.search(
        r"^early .*\nlate Pending 0/4 org:ai:rai AGE (\S+ )?waits for a driver to look at it$", told, re.MULTILINE
    ), told
    assert home.phase("rai/late") == "Pending"
    told = home.call("explain", "rai/late")
    assert told.code == 0, told
    assert told.out.startswith(f"Run/rai/late waits for a driver ({DRIVE}); if it were driven now, it "), told
    told = home.call("describe", "rai/late")
    assert told.code == 0, told
    assert "Taken in: not yet: the ledger knows nothing of it" in still(told.out)
    assert f"Driven: no: nothing starts or stops until {DRIVE}" in still(told.out)
    for words in (("story",), ("resolve", "--dry-run")):
        told = home.call(*words, "rai/late")
        assert (told.code, told.out) == (5, "")
        assert told.err.startswith("error: Run/rai/late has not been taken in yet"), told
    with pytest.MonkeyPatch.context() as patch:
        for name, value in home.env.items():
            patch.setenv(name, value)
        with ClusterFleet.open(kubeconfig=None, context=None, archive=None) as fleet:
            (late,) = [one for one in fleet._asked((), "").objects if one.metadata.name == "late"]
            assert late.metadata.creation_timestamp, "a plan counts it where it stands in the queue"
            follower = fleet.follow()
            assert {line.key: line.taken for line in follower.view().lines()} == {"rai/early": True, "rai/late": False}
            assert home.call("cancel", "rai/late").out == "Run/rai/late: deleted; nobody had taken it in yet\n"
            until(lambda: follower.wait(0.1) or [line.key for line in follower.view().lines()] == ["rai/early"])
            assert [line.key for line in follower.view().lines()] == ["rai/early"]
    assert home.phase("rai/late") == "Gone"
    assert home.call("explain", "rai/late").code == 5


def forged(plane: ControlPlane, home: Home) -> None:
    """A Lease object that no entry of the ledger opened is found by the audit, and by nothing else."""
    assert home.call("audit").code == 0
    plane.api.create(guard._forged(System(namespace="rai"))).must()
    told = home.call("audit")
    assert told.code == 7
    assert "Lease/rai/tenure-is-this-refused" in told.out.partition("What does not hold")[2]
    assert "no entry of the ledger opened it: expected no object, found an object" in told.out
    plane.api.delete(f"/apis/{GROUP}/v1/namespaces/rai/leases/tenure-is-this-refused").must()


def archived(plane: ControlPlane, folder: Path) -> None:
    """Old entries are moved away, as an operator with an archive does."""
    with IO() as io:
        client = Client(from_kubeconfig(plane.admin))
        with KubeStore.open(
            io, client, folder / "journal" / "journal.db", fleet="", archive=folder / "archive"
        ) as store:
            assert retire(store, before=store.head.at).entries
        io.run(client.close())


def test_an_api_server_that_does_not_answer_is_said_so(tmp_path: Path) -> None:
    config = tmp_path / "config"
    context = {"cluster": "c", "user": "u"}
    config.write_text(yaml.safe_dump({
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": context}], "current-context": "x",
    }))  # fmt: skip
    told = support.call("runs", "list", "--kubeconfig", str(config), TENURE_CACHE=str(tmp_path / "cache"))
    assert (told.code, told.out) == (6, "")
    assert told.err.startswith("error: the API server cannot be reached: ")
