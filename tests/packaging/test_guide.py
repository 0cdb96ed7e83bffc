"""docs/operate/install.md, followed to the letter: every block marked ``sh``, in its order, by the real programs.

Nothing runs containers here, so the page is followed up to what the API server says; ``test_install`` has the operator
at work.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tenure.kube.policies import policies
from tenure.kube.system import System
from tenure.testing.kube import ControlPlane
from tests.kube.anchor.test_guide import Reader
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "operate" / "install.md"
TEXT = PAGE.read_text()
SECTIONS = dict(re.findall(r"^#{2,3} (.*?)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Administrator(Reader):
    """Somebody with a checkout, helm, kubectl and `tenure` on the path."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(plane, folder)
        (folder / "bin" / "helm").symlink_to(plane.programs["helm"])
        shutil.copytree(ROOT / "deploy", folder / "deploy")

    def follow(self, section: str) -> str:
        """Do what a section says; what was printed."""
        blocks = re.findall(r"^```sh\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL)
        assert blocks, section
        return "".join(self.done(block) for block in blocks)

    def done(self, block: str) -> str:
        try:
            done: subprocess.CompletedProcess[str] = self.run(block)
        except subprocess.TimeoutExpired as late:
            said = b"".join(part for part in (late.stdout, late.stderr) if isinstance(part, bytes)).decode()
            state = self.plane.kubectl("get", "namespaces,crd", "-o", "json", check=False).stdout
            raise AssertionError(f"this does not end:\n{block}\nit said: {said}\nthere are: {state[-8000:]}") from late
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        return done.stdout

    def list_all(self) -> None:
        """Everything of ours, as an operator has that was at work. An API server that is asked for a kind for the first
        time when that is deleted finds its storage not ready, and asks again only after minutes."""
        kinds = ",".join(sorted(self.names(DEFINITIONS)))
        self.done(f"until kubectl get {kinds} --all-namespaces; do sleep 1; done")

    def names(self, path: str) -> set[str]:
        return {each["metadata"]["name"] for each in self.plane.api.get(path).must()["items"]}


@contextmanager
def administrator(programs: dict[str, Path], folder: Path) -> Iterator[Administrator]:
    with ControlPlane.started(folder / "plane", programs) as plane:
        yield Administrator(plane, folder)


def test_the_page_works_as_written(programs: dict[str, Path], tmp_path: Path) -> None:
    everything = {f"tenure-{each.name}" for each in policies(System())}
    with administrator(programs, tmp_path) as someone:
        assert "every admission policy is in place" in someone.follow("With helm")
        assert "is upgraded" in someone.follow("Upgrade")
        assert "is installed" in someone.follow("Uninstall")
        named = re.findall(r"`(tenure-[a-z]+)`", SECTIONS["Uninstall"])
        someone.done("helm uninstall tenure --namespace tenure-system")
        assert someone.names(POLICIES) == set(named), "the page names the policies that stay"
        someone.done("helm install tenure deploy/chart --namespace tenure-system --set image.repository=x")
        someone.list_all()
        someone.follow("For good")
        assert not someone.names(DEFINITIONS)
        assert not someone.names(POLICIES)
        assert "is installed" in someone.follow("From `tenure install --kube` to the chart")
        assert someone.names(POLICIES) == everything

        found = someone.plane.api.get(f"{POLICIES}/tenure-pods").must()
        found["spec"]["matchConditions"].append({"name": "never", "expression": "false"})
        someone.plane.api.replace(found).must()
        assert someone.run("tenure install --kube --check").returncode == 6
        someone.follow("When a policy was changed by hand")
        assert someone.run("tenure install --kube --check").returncode == 0


def test_kustomize_works_as_written(programs: dict[str, Path], tmp_path: Path) -> None:
    with administrator(programs, tmp_path) as someone:
        someone.follow("With Kustomize")
        found = someone.plane.api.get("/apis/apps/v1/namespaces/tenure-system/statefulsets/tenure-operator").must()
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/tenure:0.1.0"
        assert someone.run("tenure install --kube --check").returncode == 0
        assert len(someone.names(DEFINITIONS)) == 6


def test_the_readme_says_the_same() -> None:
    (command,) = re.findall(r"^ +(helm install .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert command in SECTIONS["With helm"]


def test_every_value_of_the_table_exists() -> None:
    values = yaml.safe_load((ROOT / "deploy" / "chart" / "values.yaml").read_text())
    rows = [line for line in SECTIONS["With helm"].splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    for row in rows:
        head = ""
        for name in re.findall(r"`(\.?[a-zA-Z.]+)`", row.split("|")[1]):
            path = f"{head}{name}" if name.startswith(".") else name
            head = path.rpartition(".")[0] if not name.startswith(".") else head
            part = values
            for key in path.split("."):
                assert key in part, f"{path} is no value of the chart"
                part = part[key]
