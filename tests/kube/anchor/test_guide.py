"""docs/guide/kubernetes.md, followed to the letter: every command in it, in its order, on a real cluster.

Blocks marked ``sh`` are run as they stand; the one that starts the operator is started and left running. KWOK plays the
machines' kubelets. Blocks marked ``console`` are shown, and what they show is tried here.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.kube.policies import policies
from tenure.kube.rbac import cluster_roles
from tenure.kube.system import System
from tenure.testing.kube import ControlPlane, Kwok, gpu_node, gpu_nodes, until
from tenure.testing.kube.process import free_ports
from tenure.testing.kube.waiting import PATIENCE
from tests.tidy.repository import ROOT

GUIDE = ROOT / "docs" / "guide" / "kubernetes.md"
SECURITY = ROOT / "docs" / "operate" / "security.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
(OPERATOR,) = [block for block in BLOCKS if block.startswith("tenure operator")]


class Reader:
    """Somebody with a shell, a kubeconfig and the programs on the path."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        tools = folder / "bin"
        tools.mkdir()
        (tools / "kubectl").symlink_to(plane.programs["kubectl"])
        for name, function in (("tenure", "tenure"), ("kubectl-runs", "kubectl_runs")):
            program = tools / name
            call = f"from tenure.cli.main import {function}\nsys.exit({function}())\n"
            program.write_text(f"#!{sys.executable}\nimport sys\n{call}")
            program.chmod(0o755)
        config = folder / "config"
        config.write_bytes(plane.admin.read_bytes())
        self.environment = {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "KUBECONFIG": str(config),
            "HOME": str(folder),
        }

    def run(self, block: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eu", "-c", block],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=2 * PATIENCE,
        )

    @contextmanager
    def running(self, block: str) -> Iterator[Path]:
        """A command that goes on; gives the file that holds what it printed."""
        log = self.folder / "operator.log"
        with log.open("w") as out:
            child = subprocess.Popen(["bash", "-c", f"exec {block}"], cwd=self.folder, env=self.environment, stdout=out,
                                     stderr=subprocess.STDOUT)  # fmt: skip
        try:
            yield log
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(PATIENCE)


@pytest.fixture(scope="module")
def reader(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A cluster where the guide was followed up to the start of the operator."""
    folder = tmp_path_factory.mktemp("guide")
    with ControlPlane.started(folder / "plane", programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        plane.api.create_all(gpu_nodes(2))
        reader = Reader(plane, folder)
        for block in BLOCKS[: BLOCKS.index(OPERATOR)]:
            done = reader.run(block)
            assert done.returncode == 0, f"{block}\n{done.stderr}"
        yield reader


def test_the_guide_works_as_written(reader: Reader) -> None:
    with reader.running(elsewhere(OPERATOR)) as log:
        until(lambda: "operating " in log.read_text())
        for block in BLOCKS[BLOCKS.index(OPERATOR) + 1 :]:
            done = reader.run(block)
            assert done.returncode == 0, f"{block}\n{done.stderr}\n{log.read_text()}"
        leases = reader.run(
            "kubectl get leases.rq.davidlangworthy.io --namespace rai -o jsonpath='{.items[*].spec.owner}'"
        )
        assert set(leases.stdout.split()) == {"org:ai:rai"}
        for command in re.findall(r"^\$ (.*)$", GUIDE.read_text(), re.MULTILINE):
            shown = reader.run(command)
            assert (shown.returncode == 0) is ("annotate" in command), shown
            if shown.returncode:
                refused = "in a namespace that Tenure manages, only the operator gives a pod its nodeName"
                assert refused in " ".join(shown.stderr.split())
                assert refused in " ".join(GUIDE.read_text().split())
    assert "stopped. Work that runs goes on" in log.read_text()


def elsewhere(block: str) -> str:
    """On other ports: those of the guide may be taken here."""
    webhook, probes = map(str, free_ports(2))
    return block.replace("9443", webhook).replace("8080", probes)


def test_the_operator_notices_a_policy_that_is_gone_and_a_node_that_is_open(reader: Reader) -> None:
    reader.plane.api.create(gpu_node("late")).must()
    reader.plane.api.delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/tenure-pods").must()
    with reader.running(elsewhere(OPERATOR)) as log:
        gone = "ValidatingAdmissionPolicy/tenure-pods is missing: `tenure install --kube` puts it right"
        late = "Node/late has GPUs and takes pods that are not Tenure's"
        until(lambda: gone in log.read_text() and late in log.read_text())
    assert reader.run("tenure install --kube --check").returncode == 6
    assert reader.run("tenure install --kube").returncode == 0


def test_the_security_page_names_every_policy_and_every_role() -> None:
    text = SECURITY.read_text()
    named = {f"tenure-{each.name}" for each in policies(System())}
    named |= {each["metadata"]["name"] for each in cluster_roles()}
    assert {name for name in named if f"`{name}`" not in text} == set()
    shown = set(re.findall(r"^\| `(tenure-[a-z-]+)`", text, re.MULTILINE))
    assert shown == named
