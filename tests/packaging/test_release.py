"""A release: the checkout is prepared in one step, and its files follow from the commit."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import uuid
import zipfile
from pathlib import Path

import pytest

from tenure import __version__
from tests.packaging.conftest import PYTHON
from tests.tidy.repository import ROOT
from tools import plugin, release, sbom


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "CHANGELOG.md", "src/tenure/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README").write_text("not a note")
    (tmp_path / "changes" / "b.fixed.md").write_text("A fix\nof two lines.\n")
    (tmp_path / "changes" / "a.added.md").write_text("Something new.\n")
    return tmp_path


def test_a_release_says_its_version_everywhere_and_takes_the_notes(checkout: Path) -> None:
    release.cut(checkout, "1.2.3", date="2030-01-02")
    assert 'version = "1.2.3"\n' in (checkout / "pyproject.toml").read_text()
    assert '__version__ = "1.2.3"\n' in (checkout / "src/tenure/__init__.py").read_text()
    text = (checkout / "CHANGELOG.md").read_text()
    assert (
        "## Unreleased\n\n## 1.2.3 (2030-01-02)\n\n### Added\n\n- Something new.\n\n### Fixed\n\n- A fix of two" in text
    )
    assert "make run` gives the tour" in text, "what stood there before is released too"
    assert [path.name for path in (checkout / "changes").iterdir()] == ["README"]
    assert release.notes_of(text, "1.2.3").startswith("## 1.2.3 (2030-01-02)")


@pytest.mark.parametrize(
    ("version", "said"),
    [("v1.2", "is no version"), ("", "is no version"), ("1.2.3; rm -rf x", "is no version")],
)
def test_what_is_no_version_changes_nothing(checkout: Path, version: str, said: str) -> None:
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    with pytest.raises(release.Refused, match=said):
        release.cut(checkout, version, date="2030-01-02")
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


def test_a_release_without_notes_or_made_twice_is_refused(checkout: Path) -> None:
    release.cut(checkout, "1.2.3", date="2030-01-02")
    with pytest.raises(release.Refused, match="nothing to release"):
        release.cut(checkout, "1.2.4", date="2030-01-02")
    (checkout / "changes" / "c.added.md").write_text("More.\n")
    with pytest.raises(release.Refused, match=r"has 1\.2\.3 already"):
        release.cut(checkout, "1.2.3", date="2030-01-02")


def test_every_note_of_this_checkout_can_be_released() -> None:
    for kind, text in release.fragments(ROOT).values():
        assert kind in release.KINDS
        assert text


def test_the_files_of_a_release_are_whole(programs: dict[str, Path], built: Path, tmp_path: Path) -> None:
    """``built`` says whether the plugin's packages are here; the files themselves are made anew, from the commit."""
    into = tmp_path / "dist"
    files = release.build(
        into, programs["helm"], url="https://example.com", systems=(plugin.here(),), pythons=(PYTHON,), dirty=True
    )
    names = {path.name for path in files}
    assert names == {path.name for path in into.iterdir()}
    assert names >= {f"tenure-{__version__}.tar.gz", f"tenure-chart-{__version__}.tgz", "runs.yaml", "NOTES.md"}
    command = ["sha256sum", "--check", "--strict", release.SUMS]
    checked = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert len(checked.stdout.splitlines()) == len(files) - 1
    (wheel,) = into.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        held = set(content.namelist())
    assert {"tenure/cli/main.py", "tenure/kube/install.py", "tenure/py.typed"} <= held
    assert [name for name in held if name.endswith(".sql")]
    with tarfile.open(into / f"tenure-chart-{__version__}.tgz") as chart:
        assert {"tenure/Chart.yaml", "tenure/values.schema.json", "tenure/files/install.yaml"} <= set(chart.getnames())
    shown = subprocess.run(
        [str(programs["helm"]), "show", "chart", str(into / f"tenure-chart-{__version__}.tgz")],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert f"version: {__version__}" in shown
    (archive,) = into.glob("kubectl-runs-*.tar.gz")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() in (into / "runs.yaml").read_text()


# ---- the bill of materials ----

_PURL = re.compile(r"pkg:pypi/[a-z0-9]+(-[a-z0-9]+)*@[0-9][0-9A-Za-z.+!-]*")


def test_the_bill_of_materials_is_a_sound_document() -> None:
    """The rules of CycloneDX 1.5 for what we use of it: what must be there, its form, and where references lead."""
    found = json.loads(sbom.text(__version__))
    assert set(found) == {
        "bomFormat",
        "specVersion",
        "serialNumber",
        "version",
        "metadata",
        "components",
        "dependencies",
    }
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.5", 1)
    assert found["serialNumber"].startswith("urn:uuid:")
    uuid.UUID(found["serialNumber"].removeprefix("urn:uuid:"))
    everything = [found["metadata"]["component"], *found["components"]]
    for each in everything:
        assert {"type", "bom-ref", "name", "version", "purl"} <= set(each)
        assert each["type"] in ("application", "library")
        assert _PURL.fullmatch(each["purl"])
        assert each["purl"].endswith(f"@{each['version']}")
    refs = [each["bom-ref"] for each in everything]
    assert len(refs) == len(set(refs))
    assert sorted(each["ref"] for each in found["dependencies"]) == sorted(refs)
    for each in found["dependencies"]:
        assert set(each["dependsOn"]) <= set(refs)
        assert len(each["dependsOn"]) == len(set(each["dependsOn"]))


def test_everything_that_is_pinned_is_in_it_and_is_there_for_somebody() -> None:
    text = sbom.PINS.read_text()
    pinned = {line.split(" ")[0] for line in text.splitlines() if re.match(r"[A-Za-z0-9].*==", line)}
    found = sbom.document(__version__)
    named = {f"{each['name']}=={each['version']}" for each in found["components"]}
    assert {each.split("==")[0] for each in pinned - named} == sbom.BUILD_ONLY
    assert named <= pinned
    wants = {each["ref"]: each["dependsOn"] for each in found["dependencies"]}
    reached, todo = set(), [found["metadata"]["component"]["bom-ref"]]
    while todo:
        reached.add(ref := todo.pop())
        todo += [each for each in wants[ref] if each not in reached]
    assert reached == set(wants), "what nobody wants would not be pinned"
