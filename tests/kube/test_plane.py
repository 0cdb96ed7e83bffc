"""The control plane that the other tests stand on is real: it refuses, enforces, collects, and forgets nothing."""

import errno
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.testing.kube import ControlPlane, NotStarted, until
from tenure.testing.kube.process import free_ports

Object = dict[str, Any]


def config_map(namespace: str, name: str, **data: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


# ---- where it listens ----


def test_a_free_port_is_kept_for_who_listens_on_it() -> None:
    """From bind(0) and from explicit binds, before a server is there, beside it, and while it is restarted."""
    one, other = free_ports(2)
    assert one != other
    for _ in range(2):
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", one))
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", one)) == errno.ECONNREFUSED
        with socket.create_server(("127.0.0.1", one)), socket.create_connection(("127.0.0.1", one)) as client:
            assert client.getpeername() == ("127.0.0.1", one)


# ---- who may do what ----


def test_nobody_may_do_nothing(plane: ControlPlane, namespace: str) -> None:
    answer = plane.anonymous().get(config_maps(namespace))
    assert (answer.status, 'User "system:anonymous"' in answer.message) == (403, True)


def test_a_certificate_of_another_authority_is_nobody(plane: ControlPlane, new_plane: Callable[[], Any]) -> None:
    other = new_plane()
    assert other.bearer(plane.token("default", "default")).get("/api/v1/namespaces").status == 401
    done = other.kubectl("get", "namespaces", f"--server={plane.server}", check=False)
    assert done.returncode != 0


def test_a_user_may_do_what_a_role_says_and_no_more(plane: ControlPlane, namespace: str) -> None:
    config = plane.user("ada", "research")
    may = lambda verb: plane.kubectl("auth", "can-i", verb, "configmaps", "-n", namespace, config=config, check=False)  # noqa: E731
    assert may("list").stdout.strip() == "no"

    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
    place = {"name": "readers", "namespace": namespace}
    group = "rbac.authorization.k8s.io"
    plane.ensure({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": place, "rules": [rule]})
    plane.ensure(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": place,
            "subjects": [{"kind": "Group", "name": "research", "apiGroup": group}],
            "roleRef": {"kind": "Role", "name": "readers", "apiGroup": group},
        }
    )
    until(lambda: may("list").stdout.strip() == "yes")
    assert may("create").stdout.strip() == "no"
    assert may("delete").stdout.strip() == "no"


def test_a_service_account_is_known_by_its_token(plane: ControlPlane, namespace: str) -> None:
    config = plane.service_account(namespace, "robot")
    who = plane.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", config=config).stdout
    assert who == f"system:serviceaccount:{namespace}:robot"


def test_the_administrator_may_act_as_another(plane: ControlPlane, namespace: str) -> None:
    assert plane.api.get(config_maps(namespace)).ok
    answer = plane.api.acting_as("eve", "visitors").get(config_maps(namespace))
    assert (answer.status, 'User "eve"' in answer.message) == (403, True)


# ---- admission ----


def test_an_admission_policy_is_enforced(plane: ControlPlane, namespace: str) -> None:
    """By the API server alone: there is no webhook here."""
    name = f"no-secrets-{namespace}"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    validation = {"expression": "!('password' in object.data)", "message": "passwords are not for ConfigMaps"}
    group = "admissionregistration.k8s.io/v1"
    plane.ensure(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [validation]},
        }
    )
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    plane.ensure(
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": chosen},
        }
    )
    bad = config_map(namespace, "bad", password="x")
    refused = until(lambda: next((answer for answer in [plane.api.create(bad, dry_run=True)] if not answer.ok), None))
    assert "passwords are not for ConfigMaps" in refused.message
    assert plane.api.create(config_map(namespace, "good", colour="blue")).ok
    elsewhere = plane.namespace(f"{namespace}-elsewhere")
    assert plane.api.create(config_map(elsewhere, "bad", password="x")).ok


# ---- what the server does by itself ----


def test_what_is_owned_goes_with_its_owner(plane: ControlPlane, namespace: str) -> None:
    owner = plane.api.create(config_map(namespace, "owner")).must()
    owned = config_map(namespace, "owned")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned["metadata"]["ownerReferences"] = [reference]
    plane.api.create(owned).must()
    plane.api.delete(f"{config_maps(namespace)}/owner").must()
    until(lambda: plane.api.get(f"{config_maps(namespace)}/owned").status == 404)


def test_a_deleted_namespace_goes_with_what_it_holds(plane: ControlPlane, namespace: str) -> None:
    plane.api.create(config_map(namespace, "held")).must()
    plane.api.delete(f"/api/v1/namespaces/{namespace}").must()
    until(lambda: plane.api.get(f"/api/v1/namespaces/{namespace}").status == 404)
    assert plane.api.get(f"{config_maps(namespace)}/held").status == 404


def test_a_namespace_made_by_anyone_gets_its_service_account(plane: ControlPlane, namespace: str) -> None:
    plane.kubectl("create", "namespace", f"{namespace}-by-hand")
    until(lambda: plane.api.get(f"/api/v1/namespaces/{namespace}-by-hand/serviceaccounts/default").ok)


# ---- clusters come and go ----


def test_clusters_share_nothing_and_survive_their_servers(new_plane: Callable[[], ControlPlane]) -> None:
    one, two = new_plane(), new_plane()
    one.namespace("only-here")
    assert two.api.get("/api/v1/namespaces/only-here").status == 404

    one.apiserver.kill()
    assert not one.answers
    assert two.answers
    one.restart_server()
    assert one.api.get("/api/v1/namespaces/only-here").ok


def test_a_cluster_that_does_not_start_says_why(programs: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/bin/sh\necho 'the disk is on fire' >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(NotStarted, match=r"(?s)etcd ended with exit code 3.*the disk is on fire"):
        ControlPlane(tmp_path / "plane", {**programs, "etcd": broken}).start()


def test_a_cluster_dies_with_who_started_it(programs: dict[str, Path], tmp_path: Path) -> None:
    """Even when that one is killed and can clean up nothing."""
    code = """
        import sys, time
        from pathlib import Path
        from tenure.testing.kube import ControlPlane
        plane = ControlPlane(Path(sys.argv[1]), dict(zip(sys.argv[2::2], map(Path, sys.argv[3::2]))))
        plane.start()
        print(*plane.pids.values(), flush=True)
        time.sleep(600)
    """
    flat = [str(part) for pair in programs.items() for part in pair]
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "plane"), *flat]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        pids = [int(word) for word in child.stdout.readline().split()]
        assert len(pids) == 3
        assert all(alive(pid) for pid in pids)
        child.kill()
    until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    """Whether a process is there, and is not just waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
