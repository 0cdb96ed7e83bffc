"""The comparison with Slurm: what it says where there is no Slurm, and how it reads what the script says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import tenure
from bench import slurm
from bench.result import FULL, TINY

FILL = {"cell": "d-fill", "sys": "tenure", "n": 100, "mixed": True, "daemons": {"decider": 0.01}, "settled": True}


def line(mean: float, *, ends: int = 12, **more: Any) -> str:
    spread = {"n": ends, "min": mean / 2, "p50": mean * 0.9, "max": mean * 3}
    said = {"cell": "d", "ends": ends, "decider_mean": mean, "decider_per_end": spread, "next_start": spread}
    return json.dumps(said | more)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in place of the real one, and nothing that it would lack."""
    path = tmp_path / "slurm-headtohead.sh"
    monkeypatch.setattr(slurm, "SCRIPT", path)
    monkeypatch.setattr(slurm, "lacking", lambda: None)
    return path


def says(path: Path, body: str) -> None:
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o700)


def test_each_cell_is_a_ratio_of_its_own_and_promises_at_most_one(script: Path, tmp_path: Path) -> None:
    told = {"slurm": line(0.04), "tenure": line(0.03)}
    says(script, f"print({json.dumps(FILL)!r}); print({told!r}[sys.argv[2]], flush=True)")
    rows = slurm.run(FULL, tmp_path)
    assert [row.measured for row in rows] == pytest.approx([0.75] * 3)
    assert [row.goal for row in rows] == [1.0] * 3
    assert len({row.key for row in rows}) == 3
    assert all(row.key == row.what for row in rows), "how many wait is not stripped from a name"
    assert "100 waiting runs of 1 to 8 GPUs" in rows[0].what
    assert (rows[0].detail["ms_tenure"], rows[0].detail["ms_slurmctld"]) == (30.0, 40.0)


def test_the_script_is_told_the_cell_and_which_code_is_measured(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path of modules would be another one in the folder that the script works in."""
    monkeypatch.setenv("PYTHONPATH", "src")
    asked = tmp_path / "asked"
    said = "' '.join([*sys.argv[1:], os.environ['PYTHONPATH']])"
    says(script, f"import os; open({str(asked)!r}, 'a').write({said} + '\\n'); print({line(0.02, ends=2)!r})")
    slurm.run(TINY, tmp_path)
    code = Path(tenure.__file__).parents[1]
    assert asked.read_text().splitlines() == [f"d slurm 100 2 5 mixed {code}", f"d tenure 100 2 5 mixed {code}"]
    assert slurm.CELLS[2].arguments("slurm", ends=12) == ["d", "slurm", "2000", "12", "5"]


def test_what_did_not_come_to_its_end_is_no_measurement(script: Path, tmp_path: Path) -> None:
    stuck = json.dumps({"cell": "d-timeout", "after": 240.0})
    with pytest.raises(RuntimeError, match="after end 3 of 12 nothing started"):
        slurm.read(f"{stuck}\n{line(0.02, ends=3)}", ends=12)
    with pytest.raises(RuntimeError, match="no line tells of the ends: slurmctld: fatal"):
        slurm.read("slurmctld: fatal", ends=12)
    says(script, "print('no munge'); sys.exit(3)")
    with pytest.raises(RuntimeError, match="ended with 3: no munge"):
        slurm.run(TINY, tmp_path)


def test_without_slurm_it_says_what_is_lacking_and_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def why() -> str:
        (row,) = slurm.run(TINY, tmp_path)
        assert row.goal is None
        return row.what

    monkeypatch.setattr(slurm, "GROUPS", tmp_path)
    monkeypatch.setattr(slurm, "SCRIPT", tmp_path / "script")
    assert why() == "not measured: the script that sets Slurm up does not lie beside this checkout"
    (tmp_path / "script").touch()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert why() == "not measured: Slurm's daemons are set up by root"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name.startswith("slurm") else name)
    assert why() == "not measured: Slurm is not installed (no slurmctld, slurmd, slurmdbd)"
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert "cgroup" in why()
    (tmp_path / "cgroup.procs").touch()
    assert slurm.lacking() is None
