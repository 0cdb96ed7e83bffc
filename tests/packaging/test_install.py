"""The chart on a real API server: installed by the real helm, used, upgraded, taken away, and installed again.

The operator runs as a process here, since nothing runs containers; but with the arguments, the account and the rights
that the chart gave it, and the webhook is called through the chart's service. It is one story, hence one test: each
chapter begins where the one before it ended.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure import __version__
from tenure.kube.machines import TAINT
from tenure.kube.system import System
from tenure.testing.kube import ControlPlane, Kwok, gpu_nodes, until
from tenure.testing.kube.process import free_ports
from tenure.testing.kube.waiting import PATIENCE
from tests.kube.anchor.test_webhook_in_cluster import own_address, slice_of
from tests.kube.worlds import GROUP, World, budget, run
from tests.packaging.conftest import CHART, IMAGE
from tests.packaging.test_plugin import Machine
from tools.packaged import KEPT_POLICIES
from tools.plugin import NAME

Object = dict[str, Any]
Books = dict[str, dict[str, Object]]
PROGRAM = "from tenure.cli.main import tenure; import sys; sys.exit(tenure())"
HOME = "tenure-system"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
HOOK = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tenure"
CLAIM = "--set=custodian.existingClaim=chain"
BOOKS = ("ledgerentries", "ledgerheads", "leases", "reservations", "runs", "budgets")


class Cluster:
    """A cluster, helm with an administrator's rights, and the operator that the chart describes."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.api, self.folder = plane, plane.api, folder
        self.journal = folder / "journal"
        self.custodian = folder / "custodian"
        self.custodian.mkdir()
        self.metrics = ""
        self.tools = folder / "tools"
        self.tools.mkdir()
        (self.tools / "tenure").write_text(f"#!{sys.executable}\n{PROGRAM.replace('; ', chr(10))}\n")
        (self.tools / "tenure").chmod(0o755)

    def helm(self, *arguments: str, code: int = 0) -> str:
        environment = {**os.environ, "HOME": str(self.folder), "KUBECONFIG": str(self.plane.admin)}
        done = subprocess.run(
            [str(self.plane.programs["helm"]), *arguments, f"--namespace={HOME}"],
            env=environment, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stateful_set(self) -> Object:
        return self.api.get(f"/apis/apps/v1/namespaces/{HOME}/statefulsets/tenure-operator").must()

    def books(self) -> Books:
        """What must outlive an installation, by its uid: objects that were made anew would have others."""
        found = {each: self.listed(each) for each in BOOKS}
        return {each: {one["metadata"]["uid"]: one for one in items} for each, items in found.items()}

    def listed(self, plural: str) -> list[Object]:
        """All objects of a kind. For a moment after its definition was changed the API server asks for patience."""
        until(lambda: self.api.get(f"{GROUP}/{plural}").status != 429)
        items: list[Object] = self.api.get(f"{GROUP}/{plural}").must()["items"]
        return items

    def head(self) -> int:
        (only,) = self.listed("ledgerheads")
        return int(only["spec"]["seq"])

    @contextmanager
    def operator(self) -> Iterator[Path]:
        """The chart's operator: its arguments, with folders and ports of this machine; its account; its service."""
        pod = self.stateful_set()["spec"]["template"]["spec"]
        account = pod["serviceAccountName"]
        self.api.get(f"/api/v1/namespaces/{HOME}/serviceaccounts/{account}").must()
        address = own_address()
        probes, webhook, metrics = free_ports(3)
        places = {
            "/var/lib/tenure/journal": str(self.journal),
            "/var/lib/tenure/custodian": str(self.custodian),
            "0.0.0.0:8080": f"127.0.0.1:{probes}",
            "0.0.0.0:9443": f"{address}:{webhook}",
            "0.0.0.0:9464": f"127.0.0.1:{metrics}",
        }
        self.metrics = f"http://127.0.0.1:{metrics}/metrics"
        arguments = [_replaced(each, places) for each in pod["containers"][0]["args"]]
        for each in pod.get("initContainers", ()):
            command = [_replaced(word, places) for word in each["command"]]
            subprocess.run(command, env={**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}"}, check=True)
        self.plane.api.apply(slice_of(System(), address, webhook)).must()
        config = self.plane.service_account(HOME, account)
        log = self.folder / "operator.log"
        with log.open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments, f"--kubeconfig={config}"],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ,
            )  # fmt: skip
            try:
                until(lambda: child.poll() is not None or "operating " in log.read_text())
                assert child.poll() is None, log.read_text()
                yield log
                assert child.poll() is None, log.read_text()
            finally:
                child.send_signal(signal.SIGTERM)
                child.wait(PATIENCE)


def _replaced(text: str, places: dict[str, str]) -> str:
    for old, new in places.items():
        text = text.replace(old, new)
    return text


def forged(cluster: Cluster) -> Object:
    """What the administrator gets who writes a lease."""
    lease = {
        "apiVersion": "rq.davidlangworthy.io/v1", "kind": "Lease", "metadata": {"name": "forged", "namespace": HOME},
        "spec": {"owner": "org:lab", "runRef": {"name": "x"}, "compPath": [], "reason": "Start",
                 "slice": {"nodes": ["n"], "gpus": [0], "role": "Active"},
                 "interval": {"start": "1970-01-01T00:00:00Z"},
                 "paidByEnvelope": "main", "paidByBudget": "lab", "paidByOwner": "org:lab"},
    }  # fmt: skip
    answer = cluster.api.create(lease, dry_run=True)
    return {"status": answer.status, "message": answer.message}


def is_guarded(cluster: Cluster) -> bool:
    return "ValidatingAdmissionPolicy 'tenure-leases'" in forged(cluster)["message"]


@pytest.fixture
def cluster(programs: dict[str, Path], tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path
    with ControlPlane.started(folder / "plane", programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        plane.api.create_all([{**one, "spec": {"taints": [TAINT]}} for one in gpu_nodes(2)])
        yield Cluster(plane, folder)


def test_an_installation_from_its_beginning_to_its_return(cluster: Cluster, built: Path) -> None:
    it_is_installed_and_helm_says_what_to_do_next(cluster)
    its_policies_are_as_the_command_installs_them(cluster)
    its_pods_meet_the_restricted_standard(cluster)
    world = a_team_with_money(cluster)
    a_run_is_admitted_with_the_rights_of_the_chart_alone(cluster, world)
    used = cluster.books()
    the_plugin_asks_the_cluster_with_python_alone(cluster, built / NAME)
    an_upgrade_changes_the_kinds_and_no_book(cluster, used)
    uninstalled_the_books_stay_and_stay_guarded(cluster, world, used)
    installed_again_it_goes_on_from_the_books(cluster, world, used)


def it_is_installed_and_helm_says_what_to_do_next(cluster: Cluster) -> None:
    """Into a namespace that holds pods to the restricted standard."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME, "labels": restricted}}
    cluster.api.create(home).must()
    values = [f"--set=image.repository={IMAGE}", "--set=networkPolicy.enabled=true", CLAIM]
    said = cluster.helm("install", "tenure", str(CHART), *values)
    until(lambda: is_guarded(cluster))
    assert f"Tenure {__version__} is installed: 2 operators, of which one decides at a time." in said
    assert "kubectl annotate namespace TEAM rq.davidlangworthy.io/owner=org:team" in said


def a_team_with_money(cluster: Cluster) -> World:
    """And somebody of it who may submit, by the chart's role."""
    world = World.made(cluster.plane, "lab")
    cluster.api.create(budget()).must()
    subject = {"kind": "Group", "name": "lab", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "tenure-tenant", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "subjects": [subject],
               "metadata": {"name": "people", "namespace": "lab"}, "roleRef": role}  # fmt: skip
    cluster.api.create(binding).must()
    return world


def submitted(world: World, name: str) -> Object:
    """A Run of somebody who has nothing but the chart's role for tenants; it names no owner."""
    wanted = run(name, 8, namespace="lab")
    del wanted["spec"]["owner"]
    return world.api.acting_as("alice", "lab").create(wanted).must()


def a_run_is_admitted_with_the_rights_of_the_chart_alone(cluster: Cluster, world: World) -> None:
    """End to end; then the operator stops."""
    with cluster.operator():
        until(lambda: "caBundle" in json.dumps(cluster.api.get(HOOK).must()))
        until(lambda: submitted_with_defaults(world), every=0.5)
        submitted(world, "first")
        world.is_phase("first", "Running")
        with urllib.request.urlopen(cluster.metrics, timeout=10) as answer:
            assert 'run_admissions_total{result="success"} 1.0' in answer.read().decode()
    (lease,) = world.open_leases("first")
    assert lease["spec"]["paidByBudget"] == "lab"
    assert len(world.pods("first")) == 1
    assert cluster.books()["ledgerentries"]


def submitted_with_defaults(world: World) -> bool:
    """Whether the webhook answers: it says who owns a Run that does not say so itself."""
    wanted = run("probe", 8, namespace="lab")
    del wanted["spec"]["owner"]
    tried = world.api.acting_as("alice", "lab").create(wanted, dry_run=True).must()
    return bool(tried["spec"].get("owner") == "org:lab")


def its_policies_are_as_the_command_installs_them(cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "install", "--kube", "--check"],
        env={**os.environ, "KUBECONFIG": str(cluster.plane.admin)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def its_pods_meet_the_restricted_standard(cluster: Cluster) -> None:
    template = cluster.stateful_set()["spec"]["template"]
    metadata = {**template["metadata"], "name": "tenure-operator-0", "namespace": HOME}
    claim = {"name": "journal", "persistentVolumeClaim": {"claimName": "journal-tenure-operator-0"}}
    spec = {**template["spec"], "volumes": [*template["spec"]["volumes"], claim]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    assert cluster.api.create(pod, dry_run=True).ok
    loose = {**spec, "securityContext": {}}
    assert "restricted" in cluster.api.create({**pod, "spec": loose}, dry_run=True).message


def the_plugin_asks_the_cluster_with_python_alone(cluster: Cluster, program: Path) -> None:
    (cluster.folder / "machine").mkdir()
    machine = Machine(cluster.folder / "machine", program)
    done = machine.run(NAME, "leases", "--run", "lab/first", KUBECONFIG=str(cluster.plane.admin))
    assert done.returncode == 0, done.stderr
    assert "lab/first" in done.stdout
    assert "lab/main" in done.stdout


def an_upgrade_changes_the_kinds_and_no_book(cluster: Cluster, used: Books) -> None:
    """A newer chart, in which a kind says something else; the webhook stays trusted."""
    newer = cluster.folder / "newer"
    shutil.copytree(CHART, newer)
    chart = yaml.safe_load((newer / "Chart.yaml").read_text())
    (newer / "Chart.yaml").write_text(yaml.safe_dump({**chart, "version": "99.0.0", "appVersion": "99.0.0"}))
    objects = list(yaml.safe_load_all((newer / "files" / "install.yaml").read_text()))
    (runs,) = [each for each in objects if each["metadata"]["name"].startswith("runs.")]
    runs["spec"]["names"]["shortNames"] = ["gpurun"]
    (newer / "files" / "install.yaml").write_text(yaml.safe_dump_all(objects))
    trusted = cluster.api.get(HOOK).must()["webhooks"][0]["clientConfig"]["caBundle"]

    said = cluster.helm("upgrade", "tenure", str(newer), "--reuse-values", "--set=replicas=3")
    assert "Tenure 99.0.0 is upgraded: 3 operators" in said
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runs.rq.davidlangworthy.io"
    assert cluster.api.get(definition).must()["spec"]["names"]["shortNames"] == ["gpurun"]
    assert cluster.stateful_set()["spec"]["replicas"] == 3
    assert cluster.api.get(HOOK).must()["webhooks"][0]["clientConfig"]["caBundle"] == trusted
    assert cluster.books() == used
    assert is_guarded(cluster)


def uninstalled_the_books_stay_and_stay_guarded(cluster: Cluster, world: World, used: Books) -> None:
    said = cluster.helm("uninstall", "tenure")
    assert "ledgerentries.rq.davidlangworthy.io" in said, "helm names what it leaves"
    gone = f"/apis/apps/v1/namespaces/{HOME}/statefulsets/tenure-operator"
    until(lambda: cluster.api.get(gone).status == 404)
    assert cluster.books() == used
    left = {each["metadata"]["name"] for each in cluster.api.get(POLICIES).must()["items"]}
    assert left == {f"tenure-{each}" for each in KEPT_POLICIES}
    assert is_guarded(cluster)
    assert "only the Tenure operator writes the ledger" in cluster.api.delete(f"{GROUP}/ledgerheads/head").message
    removed = cluster.api.delete(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ledgerentries.rq.davidlangworthy.io"
    )
    assert "every object of its kind is deleted" in removed.message
    assert cluster.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/tenure-operator").status == 404
    assert world.phase("first") == "Running", "work that runs goes on"


def installed_again_it_goes_on_from_the_books(cluster: Cluster, world: World, used: Books) -> None:
    """Without its journal even: what counts is in the API server."""
    shutil.rmtree(cluster.journal)
    cluster.helm("install", "tenure", str(CHART), f"--set=image.repository={IMAGE}", CLAIM)
    before = cluster.head()
    with cluster.operator() as log:
        submitted(world, "second")
        world.is_phase("second", "Running")
        assert world.phase("first") == "Running"
        assert (cluster.custodian / "operator" / "chain").exists()
        assert "draws wait" not in log.read_text(), "the custodian outlived the journal"
    now = cluster.books()
    assert cluster.head() > before
    assert now["ledgerentries"].items() >= used["ledgerentries"].items()
    assert set(now["leases"]) > set(used["leases"])
    slots = [(each["spec"]["slice"]["nodes"][0], gpu) for each in world.open_leases()
             for gpu in each["spec"]["slice"]["gpus"]]  # fmt: skip
    assert len(slots) == len(set(slots)) == 16
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "ledger", "verify", str(cluster.journal / "journal.db")],
        env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "whole" in done.stdout
