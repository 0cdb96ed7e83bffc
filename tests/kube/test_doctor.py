"""`kubectl runs doctor` on a real API server: what is broken is found, named, and mended as it says."""

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.api.meta import GROUP, OWNER_ANNOTATION
from tenure.cli.doctor import cluster as looks
from tenure.cli.doctor import world
from tenure.cli.exits import Exit
from tenure.engine import State
from tenure.kube.certs import Keeper, make_authority
from tenure.kube.webhook import serving
from tenure.ledger import Ledger
from tenure.testing.kube import ControlPlane, gpu_node, until
from tests.cli import support
from tests.kube.homes import binding, run_yaml
from tests.kube.operating import Running, operating

LABELS = {"region": "west", "cluster": "lab", "fabric.domain": "A", "gpu.flavor": "H100"}
TAINT = [{"key": f"{GROUP}/managed", "effect": "NoSchedule"}]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Checks = list[dict[str, Any]]


class Patient:
    """A cluster, and somebody who may look at all of it."""

    def __init__(self, plane: ControlPlane, cache: Path) -> None:
        self.plane, self.cache = plane, cache
        self.env = {"KUBECONFIG": str(plane.admin), "TENURE_CACHE": str(cache), "HOME": str(cache)}

    def told(self, code: Exit | None = None, **env: str) -> Checks:
        """What the doctor says."""
        done = support.call("runs", "doctor", "-o", "json", **{**self.env, **env})
        checks: Checks = done.json["checks"]
        assert done.json["ok"] == (done.code == Exit.OK)
        if code is not None:
            assert done.code == code, checks
        return checks

    def finding(self, check: str, part: str) -> str:
        """The way to mend a finding that must be there."""
        checks = self.told(Exit.FINDINGS)
        found = [one["fix"] for one in checks if one["check"] == check and part in one["finding"]]
        assert len(found) == 1, [one for one in checks if one["result"] != "ok"]
        return str(found[0])

    def install(self) -> None:
        done = support.call("tenure", "install", "--kube", **self.env)
        assert done.code == 0, done

    def mended(self, fix: str) -> None:
        """What the doctor said to do is done, and helps."""
        assert fix.startswith("tenure install --kube"), fix
        self.install()
        assert [one for one in self.told() if one["result"] == "problem"] == []


@pytest.fixture(scope="module")
def patient(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    """A cluster in which nothing is installed; each fixture below adds to it."""
    folder = tmp_path_factory.mktemp("doctor")
    with ControlPlane.started(folder, programs) as plane:
        yield Patient(plane, folder / "cache")


@pytest.fixture(scope="module")
def bare(patient: Patient) -> Checks:
    """What is said of a cluster without Tenure."""
    return patient.told(Exit.FINDINGS)


@pytest.fixture(scope="module")
def empty(bare: Checks, patient: Patient) -> Checks:
    """What is said after the installation, with neither an operator nor machines."""
    patient.install()
    return patient.told(Exit.FINDINGS)


@pytest.fixture(scope="module")
def running(empty: Checks, patient: Patient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    plane = patient.plane
    config = plane.service_account("tenure-system", "tenure-operator")
    with operating(config, tmp_path_factory.mktemp("journal")) as running:
        plane.api.create({**gpu_node("a-0", 8, LABELS), "spec": {"taints": TAINT}}).must()
        plane.namespace("rai", **{OWNER_ANNOTATION: "org:ai:rai"})
        done = support.call("runs", "submit", "-f", "-", stdin=support.BUDGETS, **patient.env)
        assert done.code == 0, done
        yield running


@pytest.fixture
def healthy(running: Running, patient: Patient) -> Patient:
    """Everything is right before something is broken."""
    until(lambda: all(one["result"] != "problem" for one in patient.told()))
    return patient


def test_a_cluster_without_tenure(bare: Checks) -> None:
    kinds = [one for one in bare if one["check"] == "kinds"]
    assert len(kinds) == 6
    assert {one["result"] for one in kinds} == {"problem"}
    assert {one["fix"] for one in kinds} == {"tenure install --kube"}
    assert not [one for one in bare if one["check"] in ("ledger", "machines", "runs")]


def test_an_installation_without_operator_and_machines(empty: Checks) -> None:
    bad = {one["check"]: one for one in empty if one["result"] == "problem"}
    assert set(bad) == {"ledger", "machines"}
    assert bad["ledger"]["finding"] == "this cluster has no ledger yet: no operator has run in it"
    assert bad["machines"]["finding"] == "no node offers nvidia.com/gpu: nothing can start"
    warned = {one["check"] for one in empty if one["result"] == "warning"}
    assert warned == {"webhook", "namespaces"}


def test_what_is_right_is_told_so(healthy: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "QUIET", 1 << 60)  # however slow this machine is
    checks = healthy.told(Exit.OK)
    right = {one["check"] for one in checks if one["result"] == "ok"}
    assert right >= {"server", "clock", "kinds", "policies", "enforcement", "roles", "ledger", "driver", "machines",
                     "namespaces", "runs", "custodians", "budgets", "leader"}  # fmt: skip
    done = support.call("runs", "doctor", **healthy.env)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0].split() == ["CHECK", "RESULT", "FINDING"]


def test_no_election_and_nothing_to_do_is_no_sign_of_life(healthy: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "QUIET", -(1 << 60))
    (found,) = [one for one in healthy.told(Exit.OK) if one["check"] == "driver"]
    assert found["result"] == "warning"
    assert found["finding"].startswith("cannot tell: no election is held, and nothing was decided since 20")
    assert "--elect" in found["fix"]
    assert "kubectl get pods -n tenure-system" in found["fix"]


def test_a_policy_that_was_deleted(healthy: Patient) -> None:
    healthy.plane.api.delete(f"{ADMISSION}/validatingadmissionpolicies/tenure-leases").must()
    fix = healthy.finding("policies", "ValidatingAdmissionPolicy/tenure-leases is missing")
    until(lambda: any(one["check"] == "enforcement" and one["result"] == "problem" for one in healthy.told()))
    healthy.mended(fix)


def test_a_policy_that_was_weakened(healthy: Patient) -> None:
    path = f"{ADMISSION}/validatingadmissionpolicybindings/tenure-runs"
    healthy.plane.api.patch(path, {"spec": {"validationActions": ["Warn"]}}).must()
    healthy.mended(
        healthy.finding("policies", "ValidatingAdmissionPolicyBinding/tenure-runs is not as it was installed")
    )


def test_rights_that_the_operator_lost(healthy: Patient) -> None:
    path = f"{RBAC}/clusterroles/tenure-operator"
    rules = healthy.plane.api.get(path).must()["rules"]
    healthy.plane.api.patch(path, {"rules": [one for one in rules if "pods/binding" not in one["resources"]]}).must()
    healthy.mended(healthy.finding("roles", "ClusterRole/tenure-operator lacks create of pods/binding"))


def test_rights_that_somebody_added(healthy: Patient) -> None:
    path = f"{RBAC}/clusterroles/tenure-tenant"
    rules = healthy.plane.api.get(path).must()["rules"]
    extra = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    healthy.plane.api.patch(path, {"rules": [*rules, extra]}).must()
    (found,) = [one for one in healthy.told(Exit.OK) if one["check"] == "roles" and one["result"] == "warning"]
    assert found["finding"] == "ClusterRole/tenure-tenant also has get of secrets"
    healthy.plane.api.patch(path, {"rules": rules}).must()


def test_what_helm_installed_is_mended_by_helm(healthy: Patient) -> None:
    path, role = f"{RBAC}/clusterrolebindings/tenure-operator", f"{RBAC}/clusterroles/tenure-auditor"
    notes = {"meta.helm.sh/release-name": "gpus", "meta.helm.sh/release-namespace": "tenure-system"}
    healthy.plane.api.patch(path, {"metadata": {"annotations": notes}}).must()
    healthy.plane.api.delete(role).must()
    fix = healthy.finding("roles", "ClusterRole/tenure-auditor is missing")
    assert fix == "helm upgrade gpus CHART --namespace tenure-system"
    healthy.plane.api.patch(path, {"metadata": {"annotations": dict.fromkeys(notes)}}).must()
    healthy.mended(healthy.finding("roles", "ClusterRole/tenure-auditor is missing"))


def test_a_role_that_is_bound_to_nobody(healthy: Patient) -> None:
    healthy.plane.api.delete(f"{RBAC}/namespaces/tenure-system/rolebindings/tenure-operator").must()
    healthy.mended(healthy.finding("roles", "RoleBinding/tenure-operator is missing"))


def test_a_kind_of_another_version(healthy: Patient) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runs.rq.davidlangworthy.io"
    versions = healthy.plane.api.get(path).must()["spec"]["versions"]
    versions[0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"].pop()
    healthy.plane.api.patch(path, {"spec": {"versions": versions}}).must()
    healthy.mended(
        healthy.finding(
            "kinds", "CustomResourceDefinition/runs.rq.davidlangworthy.io is not as this version defines it"
        )
    )


def test_machines_without_labels_and_taints(healthy: Patient) -> None:
    api = healthy.plane.api
    labels = {key: value for key, value in LABELS.items() if key != "fabric.domain"}
    api.create(gpu_node("bare", 8, labels)).must()
    fix = healthy.finding("machines", "Node/bare has GPUs and no label fabric.domain: nothing is placed on it")
    assert fix == "kubectl label node bare fabric.domain=VALUE"
    (taint,) = [one for one in healthy.told() if one["check"] == "taints"]
    assert taint["fix"] == f"kubectl taint nodes bare {GROUP}/managed=:NoSchedule"
    for command in (fix.replace("VALUE", "B"), taint["fix"]):
        healthy.plane.kubectl(*command.split()[1:])
    checks = healthy.told(Exit.OK)
    assert not [one for one in checks if one["check"] in ("machines", "taints") and one["result"] != "ok"]
    api.delete("/api/v1/nodes/bare").must()


def test_the_webhook_and_its_certificate(healthy: Patient, running: Running) -> None:
    env, api = healthy.env, healthy.plane.api

    def told() -> dict[str, Any]:
        return next(one for one in healthy.told() if one["check"] == "webhook")

    def trust(pem: bytes) -> None:
        for kind in ("mutating", "validating"):
            path = f"{ADMISSION}/{kind}webhookconfigurations/tenure"
            found = api.get(path).must()
            found["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(pem).decode()
            api.replace(found).must()

    assert told()["result"] == "warning"
    assert "trusts no certificate yet" in told()["finding"]

    def known() -> State:
        return running.operator.home.state

    with serving(running.io, running.client, "127.0.0.1", 0, names=["127.0.0.1"], known=known) as hook:
        url = f"https://127.0.0.1:{hook.port}"
        assert support.call("tenure", "install", "--kube", "--webhook-url", url, **env).code == 0
        until(lambda: told()["result"] == "ok" and url in told()["finding"])
        now = datetime.now(UTC)
        trust(Keeper(["127.0.0.1"], now=now).authorities[0])
        found = told()
        assert found["result"] == "problem"
        assert "does not trust" in found["finding"]
        old = make_authority(now=now - timedelta(days=400), life=timedelta(days=1))
        trust(old.pem)
        found = told()
        assert found["result"] == "problem"
        assert "trusts only certificates that ended on" in found["finding"]
    for kind in ("mutating", "validating"):
        api.delete(f"{ADMISSION}/{kind}webhookconfigurations/tenure").must()
    healthy.mended(next(one["fix"] for one in healthy.told(Exit.FINDINGS) if "WebhookConfiguration" in one["finding"]))


def test_clocks_that_disagree(healthy: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()

    async def earlier(client: Any) -> float:
        return now - 60 - 0.5  # as if the second were half over: a date does not tell how far it is

    monkeypatch.setattr(looks, "time", SimpleNamespace(time=lambda: now, time_ns=time.time_ns))
    monkeypatch.setattr(looks, "_date", earlier)
    assert "timedatectl" in healthy.finding("clock", "this computer is 60 s ahead of the API server")


def test_a_leader_that_has_gone(healthy: Patient) -> None:
    spec = {"holderIdentity": "gone", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
             "metadata": {"name": "tenure-operator", "namespace": "tenure-system"}}  # fmt: skip
    healthy.plane.api.create(lease).must()
    assert "tenure operator" in healthy.finding("leader", "gone led, and has not renewed for")
    healthy.plane.api.delete("/apis/coordination.k8s.io/v1/namespaces/tenure-system/leases/tenure-operator").must()


def test_a_ledger_that_was_set_back(healthy: Patient, tmp_path: Path) -> None:
    """The copy on this computer is the witness."""
    env = {"TENURE_CACHE": str(tmp_path)}
    assert not [one for one in healthy.told(Exit.OK, **env) if one["result"] == "problem"]
    (copy,) = tmp_path.glob("*/ledger.db")
    with Ledger.open(copy) as ledger, ledger.write() as tx:  # as if the API server had known more once
        tx.append(at=ledger.head.at, cause="lost", facts=())
    (found,) = [one for one in healthy.told(Exit.FINDINGS, **env) if one["check"] == "ledger"]
    assert "but the copy on this computer knows entry" in found["finding"]


def test_a_run_that_nobody_takes_in(healthy: Patient, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "TAKEN_IN", -1.0)
    assert not [one for one in healthy.told() if one["check"] == "runs" and one["result"] != "ok"]
    running.operator.desk.close()  # it goes on, and writes nothing any more
    healthy.plane.api.create(json.loads(run_yaml("unseen", 4))).must()
    assert "tenure operator" in healthy.finding("runs", "nobody has taken in rai/unseen")


def test_who_may_look_at_little_is_told_what_it_would_take(healthy: Patient, tmp_path: Path) -> None:
    plane = healthy.plane
    plane.api.create(binding("tenure-auditor", "eve")).must()
    until(lambda: plane.api.acting_as("eve").get(f"/apis/{GROUP}/v1/ledgerentries").ok)
    env = {"KUBECONFIG": str(plane.user("eve")), "TENURE_CACHE": str(tmp_path)}
    checks = {one["check"]: one for one in healthy.told(**env)}
    for name in ("kinds", "enforcement", "roles", "webhook"):
        assert checks[name]["result"] == "unknown"
        assert checks[name]["fix"] == "have a cluster administrator call the doctor"
    assert {checks[name]["result"] for name in ("policies", "ledger", "machines", "clock")} == {"ok"}


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    config = tmp_path / "config"
    context = {"cluster": "c", "user": "u"}
    config.write_text(json.dumps({
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": context}], "current-context": "x",
    }))  # fmt: skip
    done = support.call("runs", "doctor", "-o", "json", KUBECONFIG=str(config), HOME=str(tmp_path))
    assert done.code == Exit.FINDINGS
    (found,) = done.json["checks"]
    assert found["finding"].startswith("the API server cannot be reached: ")
