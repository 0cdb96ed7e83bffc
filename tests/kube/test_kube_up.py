"""`make kube-up`: the same control plane by hand, with nodes, and nothing left of it after `make kube-down`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kube.test_plane import alive
from tools.kube_up import ROOT, running

FLAVOR = "H100-80GB"
GROUP = "rq.davidlangworthy.io"
ENVELOPE = {"name": "west", "flavor": FLAVOR, "selector": {"region": "us-west"}, "concurrency": 64}
WORK = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo", "annotations": {f"{GROUP}/owner": "org:a"}}},
    {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Budget",
        "metadata": {"name": "a"},
        "spec": {"owner": "org:a", "envelopes": [ENVELOPE]},
    },
    {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Run",
        "metadata": {"name": "train", "namespace": "demo"},
        "spec": {
            "resources": {"gpuType": FLAVOR, "totalGPUs": 8},
            "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
        },
    },
]
pytestmark = pytest.mark.usefixtures("programs")


def test_a_cluster_goes_up_is_used_and_goes_down(tmp_path: Path) -> None:
    folder = tmp_path / "kube"
    before: list[tuple[str, int]] = []
    try:
        told = call(folder, "up", "--nodes", "3", "--gpus", "4")
        assert f"kubeconfig  {folder / 'kubeconfig'}" in told
        assert in_its_shell(folder, "kubectl get nodes -o name").split() == [f"node/node-000{n}" for n in range(3)]
        assert "runs.rq.davidlangworthy.io" in in_its_shell(folder, "kubectl get crds -o name")

        before = running(folder)
        assert [name for name, _ in before][:4] == ["etcd", "kube-apiserver", "kube-controller-manager", "kwok"]
        operated = knows_the_verb("operator")
        assert [name for name, _ in before][4:] == ["tenure-operator"] * operated
        if operated:
            given = "\n---\n".join(json.dumps(each) for each in WORK)
            in_its_shell(folder, "kubectl apply -f -", given)
            in_its_shell(folder, "kubectl wait --for=condition=Running run/train -n demo --timeout=120s")
            pods = in_its_shell(folder, "kubectl get pods -n demo -o jsonpath='{.items[*].status.phase}'")
            assert pods.split() == ["Running", "Running"]

        assert "up already" in call(folder, "up")
        assert running(folder) == before
        assert all(alive(pid) for _, pid in before)
    finally:
        call(folder, "down")
    assert not folder.exists()
    assert not [name for name, pid in before if alive(pid)]


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, verb: str) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(AssertionError, match="holds no cluster; it is left as it is"):
        call(tmp_path, verb)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def call(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "tools.kube_up", "--folder", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def knows_the_verb(verb: str) -> bool:
    """Whether this checkout's `tenure` has a verb: what it has, kube-up must use."""
    code = "import sys; from tenure.cli.main import tenure; sys.exit(tenure())"
    done = subprocess.run(
        [sys.executable, "-c", code, verb, "--help"], env=environment(), capture_output=True, check=False
    )
    return done.returncode == 0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def in_its_shell(folder: Path, command: str, given: str = "") -> str:
    """What a command prints to a developer who has sourced the settings."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    line = ["bash", "-c", f"source {folder / 'env'}; {command}"]
    done = subprocess.run(line, env=own, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
