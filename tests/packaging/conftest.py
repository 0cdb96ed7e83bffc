"""The real helm and kubectl, what they make of the files in deploy/, and the plugin as it is shipped."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.conftest import programs  # noqa: F401 -- a fixture
from tests.tidy.repository import ROOT
from tools import plugin

Manifest = dict[str, Any]
Rendered = dict[tuple[str, str], Manifest]
CHART = ROOT / "deploy" / "chart"
IMAGE = "registry.example/tenure"
PYTHON = "{}.{}".format(*sys.version_info)


def by_name(text: str) -> Rendered:
    """Objects by kind and name; two of the same would be one lost."""
    found = [each for each in yaml.safe_load_all(text) if each]
    named = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(named) == len(found)
    return named


@pytest.fixture(scope="session")
def helm(programs: dict[str, Path]) -> Callable[..., subprocess.CompletedProcess[str]]:  # noqa: F811
    """Run helm; its answer, whatever it is."""

    def run(*arguments: str, values: Manifest | None = None) -> subprocess.CompletedProcess[str]:
        given = yaml.safe_dump({"image": {"repository": IMAGE}} | (values or {}))
        command = [str(programs["helm"]), *arguments, "--namespace=tenure-system", "--values=-"]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def rendered(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Rendered]:
    """What `helm template` makes of the chart with these values."""

    def render(**values: Any) -> Rendered:
        done = helm("template", "tenure", str(CHART), values=values)
        assert done.returncode == 0, done.stderr
        return by_name(done.stdout)

    return render


@pytest.fixture(scope="session")
def kustomized(programs: dict[str, Path]) -> Callable[[str], Rendered]:  # noqa: F811
    """What `kubectl kustomize` makes of a folder in deploy/kustomize."""

    def build(folder: str) -> Rendered:
        command = [str(programs["kubectl"]), "kustomize", str(ROOT / "deploy" / "kustomize" / folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return by_name(done.stdout)

    return build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, the program and the manifest for this machine and this Python."""
    if not plugin.cache_folder(plugin.here(), PYTHON).is_dir():
        why = "the plugin's packages were not fetched: `python -m tools.plugin --fetch` does it, `make test` too"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("plugin")
    plugin.write(folder, (plugin.here(),), pythons=(PYTHON,), url="https://example.com/x/")
    return folder
