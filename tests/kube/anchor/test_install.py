"""`tenure install --kube` on the real API server: whole, twice the same, told, and repaired after tampering."""

import asyncio
import base64
import json
import ssl
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tenure.api.meta import GROUP
from tenure.cli.main import server
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.guard import Finding, inspect, is_enforced
from tenure.kube.install import install, manifests
from tenure.kube.policies import policies
from tenure.kube.resources import resource_of
from tenure.kube.system import System
from tenure.testing.kube import ControlPlane, gpu_node, until
from tests.kube.anchor.conftest import NOWHERE, installed

Tree = dict[str, Any]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def guarded(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster to tamper with: what is put right is in force a moment later only, and no probe should see that."""
    with ControlPlane.started(tmp_path_factory.mktemp("tampered"), programs) as plane:
        installed(plane, NOWHERE)
        yield plane


def asked(plane: ControlPlane, work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
    async def go() -> Any:
        async with Client(from_kubeconfig(plane.admin)) as client:
            return await work(client)

    return asyncio.run(go())


def findings(plane: ControlPlane) -> list[Finding]:
    found: list[Finding] = asked(plane, lambda client: inspect(client, NOWHERE))
    return found


def command(plane: ControlPlane, *words: str) -> Result:
    settings = {"KUBECONFIG": str(plane.admin)}
    return CliRunner().invoke(server, ["install", *words], env=settings)


def versions(plane: ControlPlane) -> dict[str, str]:
    """Every object of the installation, with the number that each write changes."""
    out = {}
    for each in manifests(NOWHERE):
        metadata = each["metadata"]
        path = resource_of(each).path(metadata.get("namespace"), metadata["name"])
        out[path] = plane.api.get(path).must()["metadata"]["resourceVersion"]
    return out


def test_a_second_installation_writes_nothing(guarded: ControlPlane) -> None:
    before = versions(guarded)
    done = asked(guarded, lambda client: install(client, NOWHERE))
    assert {each.change for each in done} == {"unchanged"}
    assert versions(guarded) == before


def test_what_is_installed_is_what_should_be(guarded: ControlPlane) -> None:
    assert findings(guarded) == []
    assert asked(guarded, lambda client: is_enforced(client, NOWHERE))


def test_the_clusters_own_type_checker_finds_nothing(guarded: ControlPlane) -> None:
    def checked() -> list[Tree]:
        found = [each for each in guarded.api.get(POLICIES).must()["items"] if each["metadata"]["name"] in names]
        current = [each for each in found if each["metadata"]["generation"] == each["status"].get("observedGeneration")]
        return current if len(current) == len(names) else []

    names = {f"tenure-{each.name}" for each in policies(NOWHERE)}
    warnings = {each["metadata"]["name"]: each["status"]["typeChecking"] for each in until(checked)}
    assert warnings == {name: {} for name in names}


@pytest.mark.parametrize("name", ["tenure-leases", "tenure-pods"])
def test_the_removal_of_a_policy_is_noticed_and_repaired(guarded: ControlPlane, name: str) -> None:
    guarded.api.delete(f"{POLICIES}/{name}").must()
    assert findings(guarded) == [Finding(kind="ValidatingAdmissionPolicy", name=name, problem="missing")]
    done = asked(guarded, lambda client: install(client, NOWHERE))
    assert [each.name for each in done if each.change != "unchanged"] == [name]
    assert findings(guarded) == []


TAMPERED = [
    ("binding that only warns", f"{BINDINGS}/tenure-leases", {"spec": {"validationActions": ["Warn"]}}),
    (
        "binding for some namespaces",
        f"{BINDINGS}/tenure-pods",
        {"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}},
    ),
    ("policy that fails open", f"{POLICIES}/tenure-leases", {"spec": {"failurePolicy": "Ignore"}}),
    (
        "policy with a way out",
        f"{POLICIES}/tenure-devices",
        {"spec": {"matchConditions": [{"name": "never", "expression": "false"}]}},
    ),
    (
        "policy of another cluster's operator",
        f"{POLICIES}/tenure-ledger",
        {"spec": {"validations": [{"expression": "true", "message": "yes"}]}},
    ),
]


@pytest.mark.parametrize(("path", "change"), [row[1:] for row in TAMPERED], ids=[row[0] for row in TAMPERED])
def test_tampering_with_a_policy_is_noticed_and_repaired(guarded: ControlPlane, path: str, change: Tree) -> None:
    guarded.api.patch(path, change).must()
    name = path.rpartition("/")[2]
    assert [(each.name, each.problem) for each in findings(guarded)] == [(name, "changed")]
    result = command(guarded, "--kube", "--check")
    assert result.exit_code == 6
    assert f"/{name} is not as it was installed" in result.stderr
    done = asked(guarded, lambda client: install(client, NOWHERE))
    assert [(each.name, each.change) for each in done if each.change != "unchanged"] == [(name, "changed")]
    assert findings(guarded) == []


def test_where_policies_are_off_the_installation_says_so(guarded: ControlPlane) -> None:
    """A forged lease that is let through is not called enforcement."""
    guarded.api.patch(f"{BINDINGS}/tenure-leases", {"spec": {"validationActions": ["Audit"]}}).must()
    try:
        until(lambda: not asked(guarded, lambda client: is_enforced(client, NOWHERE)))
    finally:
        installed(guarded, NOWHERE)
    assert asked(guarded, lambda client: is_enforced(client, NOWHERE))


def test_the_bundle_of_the_webhook_survives_an_installation(guarded: ControlPlane) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tenure"
    bundle = base64.b64encode(guarded.authority.read_bytes()).decode()
    found = guarded.api.get(path).must()
    found["webhooks"][0]["clientConfig"]["caBundle"] = bundle
    guarded.api.replace(found).must()
    installed(guarded, NOWHERE)
    assert guarded.api.get(path).must()["webhooks"][0]["clientConfig"]["caBundle"] == bundle


def test_the_command_tells_what_it_did(guarded: ControlPlane) -> None:
    result = command(guarded, "--kube", "--webhook-url", NOWHERE.webhook_url)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "CHANGE"]
    assert ["ValidatingAdmissionPolicy", "tenure-leases", "unchanged"] in [line.split() for line in lines]
    assert lines[-1] == f"0 created, 0 changed, {len(manifests(NOWHERE))} unchanged"
    checked = command(guarded, "--kube", "--check")
    assert (checked.exit_code, checked.stdout.strip()) == (
        0,
        "every admission policy is in place and as it was installed; every node with GPUs has its taint",
    )


def test_a_dry_run_tells_and_changes_nothing(guarded: ControlPlane) -> None:
    before = versions(guarded)
    result = command(guarded, "--kube", "--dry-run", "--namespace", "elsewhere", "--webhook-url", NOWHERE.webhook_url)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["Namespace", "elsewhere", "created"] in rows
    assert ["ServiceAccount", "elsewhere/tenure-operator", "created"] in rows
    assert ["ValidatingAdmissionPolicy", "tenure-leases", "changed"] in rows
    assert ["ClusterRole", "tenure-tenant", "unchanged"] in rows
    assert versions(guarded) == before
    assert guarded.api.get("/api/v1/namespaces/elsewhere").status == 404


@pytest.mark.parametrize(("form", "parse"), [("yaml", yaml.safe_load), ("json", json.loads)])
def test_the_objects_can_be_had_for_other_tools(form: str, parse: Callable[[str], Tree]) -> None:
    result = CliRunner().invoke(server, ["install", "--kube", "-o", form])
    assert result.exit_code == 0
    assert parse(result.stdout) == {"apiVersion": "v1", "kind": "List", "items": manifests(System())}


def test_kubectl_takes_what_is_printed(guarded: ControlPlane) -> None:
    """The printed objects are whole: kubectl applies them over an installation and finds nothing to change."""
    printed = CliRunner().invoke(server, ["install", "--kube", "-o", "yaml", "--webhook-url", NOWHERE.webhook_url])
    words = ("apply", "--server-side", "--force-conflicts", "--field-manager=tenure", "-f", "-")
    done = guarded.kubectl(*words, given=printed.stdout)
    assert len(done.stdout.splitlines()) == len(manifests(NOWHERE))
    assert findings(guarded) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "it is not said where to"),
        (("--kube", "--namespace", "Not A Name"), "is not a namespace's name"),
        (("--kube", "--webhook-url", "http://plain"), "is not an https address"),
        (("--kube", "--gpu-resource", "no/such/thing"), "is not a resource"),
        (("--kube", "--context", "absent"), "has no context 'absent'"),
    ],
)
def test_what_cannot_be_done_is_said_in_two_lines(guarded: ControlPlane, words: tuple[str, ...], says: str) -> None:
    result = command(guarded, *words)
    assert result.exit_code in (2, 5)
    assert says in result.stderr
    assert "next:" in result.stderr


def test_who_may_not_install_is_told(guarded: ControlPlane) -> None:
    somebody = guarded.user("somebody")
    result = CliRunner().invoke(server, ["install", "--kube"], env={"KUBECONFIG": str(somebody)})
    assert result.exit_code == 6
    assert "403 Forbidden" in result.stderr
    assert "cluster administrator" in result.stderr


def test_every_kind_of_ours_is_served(guarded: ControlPlane) -> None:
    served = {each["name"] for each in guarded.api.get(f"/apis/{GROUP}/v1").must()["resources"]}
    assert {"runs", "budgets", "leases", "reservations", "ledgerentries", "ledgerheads"} <= served


def test_the_operators_calls_have_a_share_of_the_server_of_their_own(guarded: ControlPlane) -> None:
    """The API server names the flow that it put a request into."""
    token = guarded.token(NOWHERE.namespace, NOWHERE.account)
    asked = urllib.request.Request(f"{guarded.server}/api/v1/namespaces", headers={"Authorization": f"Bearer {token}"})
    trust = ssl.create_default_context(cafile=str(guarded.authority))
    schema = guarded.api.get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/tenure-operator").must()

    def flow() -> str:
        with urllib.request.urlopen(asked, context=trust) as answer:
            return str(answer.headers["X-Kubernetes-PF-FlowSchema-UID"])

    until(lambda: flow() == schema["metadata"]["uid"])


# --- the taint of managed machines ---------------------------------------------------------------------------------

OTHER = {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}
OURS = {"key": f"{GROUP}/managed", "effect": "NoSchedule"}


@pytest.fixture
def machines(guarded: ControlPlane) -> Iterator[dict[str, list[Tree]]]:
    """Nodes by name and the taints that they have: three that other pods may use, one that they may not, one without
    GPUs."""
    soft = {**OURS, "effect": "PreferNoSchedule"}
    taints = {"bare": [], "spot": [OTHER], "soft": [soft], "kept": [OTHER, OURS], "plain": []}
    for name, given in taints.items():
        node = gpu_node(f"taints-{name}")
        if name == "plain":
            for field in ("capacity", "allocatable"):
                node["status"][field] = {"cpu": "8", "pods": "10"}
        guarded.api.create({**node, "spec": {"taints": given}}).must()
    yield {f"taints-{name}": given for name, given in taints.items()}
    for name in taints:
        guarded.api.delete(f"/api/v1/nodes/taints-{name}").must()


def taints_of(plane: ControlPlane) -> dict[str, list[Tree]]:
    """The taints of every node, but for those that the cluster itself gives to nodes which are new."""
    return {
        each["metadata"]["name"]: [
            one for one in each["spec"].get("taints") or () if not one["key"].startswith("node.kubernetes.io/")
        ]
        for each in plane.api.get("/api/v1/nodes").must()["items"]
    }


def test_nodes_that_take_other_pods_are_told_of_and_tainted(
    guarded: ControlPlane, machines: dict[str, list[Tree]]
) -> None:
    said = "Node/taints-bare, Node/taints-soft and Node/taints-spot have GPUs and take pods that are not Tenure's"
    checked = command(guarded, "--kube", "--check")
    assert (checked.exit_code, said in checked.stderr) == (6, True), checked.stderr
    assert "next: tenure install --kube --taint-nodes" in checked.stderr
    plain = command(guarded, "--kube", "--webhook-url", NOWHERE.webhook_url)
    assert (plain.exit_code, said in plain.stderr) == (0, True), plain.stderr

    before, rows = versions(guarded), ["bare", "soft", "spot"]
    shown = [["KIND", "NAME", "CHANGE"], *(["Node", f"taints-{name}", "changed"] for name in rows)]
    tried = command(guarded, "--kube", "--taint-nodes", "--dry-run")
    assert (tried.exit_code, [line.split() for line in tried.stdout.splitlines()[:-1]]) == (0, shown), tried.stderr
    assert taints_of(guarded) == machines
    done = command(guarded, "--kube", "--taint-nodes")
    assert (done.exit_code, [line.split() for line in done.stdout.splitlines()[:-1]]) == (0, shown), done.stderr
    wanted = {name: [*given, OURS] if name[7:] in rows else given for name, given in machines.items()}
    assert taints_of(guarded) == wanted
    assert command(guarded, "--kube", "--check").exit_code == 0

    again = command(guarded, "--kube", "--taint-nodes")
    assert again.stdout == "every node with GPUs has the taint already\n"
    assert taints_of(guarded) == wanted
    assert versions(guarded) == before


def test_the_operator_may_not_taint(guarded: ControlPlane, machines: dict[str, list[Tree]]) -> None:
    operator = guarded.bearer(guarded.token(NOWHERE.namespace, NOWHERE.account))
    refused = operator.patch("/api/v1/nodes/taints-bare", {"spec": {"taints": [OURS]}})
    assert (refused.status, "cannot patch resource" in refused.message) == (403, True)
    assert taints_of(guarded)["taints-bare"] == []
