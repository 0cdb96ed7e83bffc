"""How an API server is found: kubeconfigs of several shapes, and the inside of a pod."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.kube.config import Access, NoAccess, discover, from_kubeconfig, in_cluster


def config(path: Path, **changes: Any) -> Path:
    content = {
        "clusters": [
            {"name": "lab", "cluster": {"server": "https://lab:6443/", "certificate-authority-data": _64("CA")}},
            {"name": "far", "cluster": {"server": "https://far:6443", "tls-server-name": "kubernetes"}},
        ],
        "users": [
            {"name": "me", "user": {"client-certificate-data": _64("CERT"), "client-key-data": _64("KEY")}},
            {"name": "robot", "user": {"tokenFile": "robot.token"}},
            {"name": "helper", "user": {"exec": {"command": "curl"}}},
        ],
        "contexts": [
            {"name": "lab", "context": {"cluster": "lab", "user": "me"}},
            {"name": "far", "context": {"cluster": "far", "user": "robot", "namespace": "rai"}},
            {"name": "helped", "context": {"cluster": "lab", "user": "helper"}},
            {"name": "nobody", "context": {"cluster": "lab"}},
            {"name": "broken", "context": {"cluster": "none", "user": "me"}},
        ],
        "current-context": "lab",
        **changes,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_current_context_is_taken_unless_another_is_named(tmp_path: Path) -> None:
    path = config(tmp_path / "config")
    lab = Access(server="https://lab:6443", ca="CA", certificate="CERT", key="KEY", context="lab")
    assert from_kubeconfig(path) == lab
    far = from_kubeconfig(path, context="far")
    assert (far.server, far.server_name, far.namespace) == ("https://far:6443", "kubernetes", "rai")
    assert far.token_file == str(tmp_path / "robot.token")
    assert from_kubeconfig(path, context="nobody").certificate == ""


def test_files_are_found_beside_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("FILE")
    cluster = {"server": "https://lab", "certificate-authority": "ca.pem", "insecure-skip-tls-verify": False}
    path = config(tmp_path / "config", clusters=[{"name": "lab", "cluster": cluster}])
    assert from_kubeconfig(path).ca == "FILE"


def test_the_first_of_several_files_wins(tmp_path: Path) -> None:
    one = config(tmp_path / "one", clusters=[{"name": "lab", "cluster": {"server": "https://one"}}])
    two = config(tmp_path / "two")
    environment = {"KUBECONFIG": f"{tmp_path / 'none'}:{one}:{two}"}
    assert from_kubeconfig(environment=environment).server == "https://one"
    assert from_kubeconfig(environment=environment, context="far").server == "https://far:6443"
    assert discover(environment).server == "https://one"


def test_without_anything_the_home_folder_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    config(tmp_path / ".kube" / "config")
    assert discover({"HOME": str(tmp_path)}).context == "lab"


@pytest.mark.parametrize(
    ("changes", "context", "why"),
    [
        ({}, "helped", "helper program"),
        ({}, "none", "no context 'none'"),
        ({}, "broken", "no cluster 'none'"),
        ({"current-context": ""}, None, "no current context"),
        ({"users": [{"name": "me", "user": {"client-key-data": "!!"}}]}, None, "not base64"),
        ({"users": [{"name": "me", "user": {"client-key": "no.key"}}]}, None, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path: Path, changes: dict[str, Any], context: str | None, why: str) -> None:
    with pytest.raises(NoAccess, match=why):
        from_kubeconfig(config(tmp_path / "config", **changes), context=context)


def test_what_is_no_kubeconfig_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="no kubeconfig at"):
        from_kubeconfig(tmp_path / "config")
    for text in ("- a", "a: ["):
        (tmp_path / "config").write_text(text)
        with pytest.raises(NoAccess, match="is no kubeconfig"):
            from_kubeconfig(tmp_path / "config")


def test_certificates_that_are_none_are_refused() -> None:
    with pytest.raises(NoAccess, match="certificates for https://lab"):
        Access(server="https://lab", ca="no certificate").tls()
    assert Access(server="http://lab").tls() is None


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    for name, text in (("ca.crt", "CA"), ("token", "first\n"), ("namespace", "tenure-system\n")):
        (tmp_path / name).write_text(text)
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (access.server, access.namespace, access.ca) == ("https://[fd00::1]:443", "tenure-system", "CA")
    with pytest.raises(NoAccess, match="no pod"):
        in_cluster({}, tmp_path)


def test_a_token_is_read_again_when_it_is_old_or_was_refused(tmp_path: Path) -> None:
    file, now = tmp_path / "token", [0.0]
    file.write_text("first\n")
    bearer = Access(server="https://lab", token_file=str(file)).bearer(lambda: now[0])
    assert bearer.headers() == {"Authorization": "Bearer first"}
    file.write_text("second")
    now[0] = 59
    assert bearer.headers() == {"Authorization": "Bearer first"}
    now[0] = 61
    assert bearer.headers() == {"Authorization": "Bearer second"}
    assert not bearer.refresh()
    file.write_text("third")
    assert bearer.refresh()
    file.unlink()
    now[0] = 600
    assert bearer.headers() == {"Authorization": "Bearer third"}, "a token that is being replaced is no reason to stop"
