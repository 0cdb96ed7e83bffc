"""`kubectl runs` as one file: it runs where there is Python and nothing else, and krew's manifest names it."""

import ast
import hashlib
import subprocess
import sys
import tarfile
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tenure import __version__
from tests.packaging.conftest import PYTHON
from tests.tidy.repository import ROOT
from tools import plugin

SYSTEM = plugin.here()
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


class Machine:
    """A machine with Python, `env`, and perhaps kubectl; no package, no setting, an empty home."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder, self.bin, self.home = folder, folder / "bin", folder / "home"
        self.bin.mkdir()
        self.home.mkdir()
        venv.create(folder / "python", with_pip=False, symlinks=True)
        self.link("python3", folder / "python" / "bin" / "python3")
        self.link("env", Path("/usr/bin/env"))
        self.link(plugin.NAME, program)

    def link(self, name: str, target: Path) -> None:
        (self.bin / name).symlink_to(target)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        given = {"PATH": str(self.bin), "HOME": str(self.home), **environment}
        program = str(self.bin / command[0])
        return subprocess.run(
            [program, *command[1:]], cwd=self.folder, env=given, capture_output=True, text=True, check=False
        )

    @property
    def kept(self) -> list[str]:
        return sorted(path.name for path in self.home.glob(".cache/tenure/program/*"))


@pytest.fixture
def machine(built: Path, tmp_path: Path) -> Machine:
    return Machine(tmp_path, built / plugin.NAME)


def test_it_runs_with_python_alone_and_unpacks_once(machine: Machine) -> None:
    assert machine.run("python3", "-c", "import msgspec").returncode == 1, "this Python has packages"
    first = machine.run(plugin.NAME, "version")
    assert (first.returncode, first.stdout, first.stderr) == (0, f"tenure {__version__}\n", "")
    (kept,) = machine.kept
    (folder,) = machine.home.glob(".cache/tenure/program/*")
    inode = folder.stat().st_ino
    assert machine.run(plugin.NAME, "version").stdout == first.stdout
    assert (machine.kept, folder.stat().st_ino) == ([kept], inode)


@pytest.mark.parametrize("name", SCRIPTS)
def test_by_its_name_it_is_each_of_the_programs(machine: Machine, name: str) -> None:
    """Whatever a virtual environment would have in its bin."""
    if name != plugin.NAME:
        machine.link(name, machine.bin / plugin.NAME)
    text = plugin.beginning(SYSTEM, (PYTHON,), {}).decode()
    assert f"{name}={SCRIPTS[name].rpartition(':')[2]}" in text
    done = machine.run(name, "--help")
    assert "Traceback" not in done.stderr
    assert "cannot be loaded" not in done.stderr


def test_it_works_on_a_fleet(machine: Machine) -> None:
    """By both names: the operator's command makes a fleet, the plugin submits, asks and tells."""
    machine.link("tenure", machine.bin / plugin.NAME)
    example = ROOT / "examples"
    made = machine.run("tenure", "init", "fleet.db", "--fleet", str(example / "fleet.yaml"))
    assert made.returncode == 0, made.stderr
    sent = machine.run(plugin.NAME, "--local", "fleet.db", "submit", "-f", str(example / "quickstart.yaml"))
    assert sent.returncode == 0, sent.stderr
    listed = machine.run(plugin.NAME, "--local", "fleet.db", "list")
    assert listed.returncode == 0, listed.stderr
    assert "first" in listed.stdout
    assert "second" in listed.stdout


def test_it_can_speak_to_a_cluster(machine: Machine) -> None:
    """Its packages for that are there, the compiled ones too: nobody answers, which is said in words."""
    config = {"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}], "current-context": "c",
              "contexts": [{"name": "c", "context": {"cluster": "c"}}]}  # fmt: skip
    (machine.folder / "config").write_text(yaml.safe_dump(config))
    done = machine.run(plugin.NAME, "--kubeconfig", "config", "list")
    assert done.returncode not in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert "127.0.0.1:9" in done.stderr


def test_kubectl_finds_it(machine: Machine, programs: dict[str, Path]) -> None:
    machine.link("kubectl", programs["kubectl"])
    done = machine.run("kubectl", "runs", "version")
    assert (done.returncode, done.stdout) == (0, f"tenure {__version__}\n")


def test_several_first_calls_at_once_get_along(machine: Machine) -> None:
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: machine.run(plugin.NAME, "version"), range(3)))
    assert [each.stdout for each in done] == [f"tenure {__version__}\n"] * 3
    assert len(machine.kept) == 1, "nothing half done is left"


def test_where_nothing_can_be_kept_it_runs_all_the_same(machine: Machine) -> None:
    (machine.folder / "file").touch()
    done = machine.run(plugin.NAME, "version", TENURE_CACHE=str(machine.folder / "file"), TMPDIR=str(machine.folder))
    assert (done.returncode, done.stdout) == (0, f"tenure {__version__}\n")
    assert not list(machine.folder.glob("tenure-*"))


def test_a_python_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """Here the file is for another Python than the one that runs it."""
    (tmp_path / "__main__.py").write_bytes(plugin.beginning(SYSTEM, ("9.8", "9.9"), {}))
    done = subprocess.run([sys.executable, str(tmp_path), "version"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = f"kubectl-runs {__version__}: it runs with CPython 9.8 to 9.9, and python3 is cpython {PYTHON}\n"
    assert done.stderr == said


def test_a_python_that_fits_is_used_if_there_is_one(machine: Machine, tmp_path: Path) -> None:
    """python3 may be an old one, with a newer one beside it."""
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "__main__.py").write_bytes(plugin.beginning(SYSTEM, ("9.9",), {}))
    (machine.bin / "python9.9").write_text("#!/bin/sh\necho instead: $2\n")
    (machine.bin / "python9.9").chmod(0o755)
    done = machine.run("python3", str(wrong), "version")
    assert done.stdout == "instead: version\n"


def test_any_python_can_read_the_beginning() -> None:
    """So that an old one is told what is wrong, not shown a syntax error."""
    ast.parse((ROOT / "tools" / "bootstrap.py").read_text(), feature_version=(3, 4))


def test_the_same_checkout_gives_the_same_bytes(built: Path) -> None:
    assert plugin.build(SYSTEM, (PYTHON,)) == (built / plugin.NAME).read_bytes()


def test_the_manifest_names_what_was_built(built: Path) -> None:
    """What krew asks of a manifest: a name, a version, few words, and for each system an archive that fits."""
    manifest = yaml.safe_load((built / "runs.yaml").read_text())
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "runs")
    spec = manifest["spec"]
    assert spec["version"] == f"v{__version__}"
    assert 0 < len(spec["shortDescription"]) <= 50
    (only,) = spec["platforms"]
    assert only["selector"]["matchLabels"] == {"os": SYSTEM.os, "arch": SYSTEM.arch}
    archive = built / only["uri"].rpartition("/")[2]
    assert only["uri"] == f"https://example.com/x/{archive.name}"
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == only["sha256"]
    with tarfile.open(archive) as content:
        held = {entry.name: entry for entry in content}
    assert {each["from"] for each in only["files"]} == set(held)
    assert held[only["bin"]].mode == 0o755


def test_the_packages_are_the_pinned_ones_that_it_imports() -> None:
    names = {line.split("==")[0] for line in plugin.pins().splitlines() if "==" in line}
    assert set(plugin.NEEDED) | {"yarl", "multidict", "markdown-it-py", "attrs"} <= names
    assert not names & {"cryptography", "cffi", "prometheus-client", "nvidia-ml-py", "setuptools", "protobuf"}
