"""Generated files are fresh, complete, and what ``make generate`` writes."""

from pathlib import Path

import pytest
import yaml

from tenure.api.compile import shape_of
from tenure.api.crd import RESOURCES, manifest
from tenure.api.policy import Policy
from tools import generate


def test_generated_files_are_fresh() -> None:
    assert [path for path, _ in generate.stale()] == [], "run `make generate`"


def test_check_tells_stale_from_fresh(tmp_path: Path) -> None:
    everything = [path for path, _ in generate.FILES]
    missing = generate.stale(tmp_path)
    assert [path for path, _ in missing] == everything
    generate.write(missing, tmp_path)
    assert generate.stale(tmp_path) == []
    (tmp_path / everything[0]).write_text("touched by hand")
    assert [path for path, _ in generate.stale(tmp_path)] == everything[:1]


def test_the_exit_status_says_whether_files_are_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = generate.ROOT / "docs" / "reference" / "api.md"
    monkeypatch.setattr(generate, "FILES", [("docs/reference/api.md", lambda: "another text")])
    assert generate.main(["--check"]) == 1
    assert "make generate" in capsys.readouterr().err
    monkeypatch.setattr(generate, "FILES", [("docs/reference/api.md", fresh.read_text)])
    assert generate.main(["--check"]) == 0
    assert generate.main(["--chekc"]) == 2


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_a_manifest_reads_back_as_it_was_made(kind: str) -> None:
    path = generate.ROOT / "deploy" / "crds" / f"{kind.lower()}s.yaml"
    assert yaml.safe_load(path.read_text()) == manifest(kind)


def test_every_policy_key_is_in_the_reference() -> None:
    page = (generate.ROOT / "docs" / "reference" / "policy.md").read_text()
    for field in shape_of(Policy).fields:
        assert f"| `{field.wire}` |" in page
        assert field.shape.description.split("`")[0] in page


@pytest.mark.parametrize("kind", sorted(RESOURCES))
def test_every_spec_field_is_in_the_reference(kind: str) -> None:
    page = (generate.ROOT / "docs" / "reference" / "api.md").read_text()
    spec = shape_of(RESOURCES[kind].cls).by_wire["spec"].shape
    for field in spec.fields:  # type: ignore[attr-defined]  # a spec is a record
        assert f"| `{field.wire}` |" in page
        assert field.shape.description
