"""Every scenario of tests/scenarios on Kubernetes: the same page must come out as in memory and on SQLite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.testing.kube import ControlPlane, Kwok
from tenure.testing.scenarios import brief
from tests.kube.operating import installed
from tests.kube.scenarios import play, wipe
from tests.scenarios.test_scenarios import HERE, NAMES, scenario

_RESERVATION = re.compile(r"(Reservation/\S+)-[0-9a-f]{8}")


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of this module's own, with KWOK on all nodes: the scenarios say when kubelets do what."""
    folder = tmp_path_factory.mktemp("scenarios")
    with (
        ControlPlane.started(folder, programs) as plane,
        Kwok.started(programs["kwok"], plane.admin, folder, told=True),
    ):
        installed(plane)
        yield plane


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_comes_out_as_written_on_kubernetes(name: str, cluster: ControlPlane, tmp_path: Path) -> None:
    wipe(cluster)
    wanted = scenario(name)
    expected = yaml.safe_load((HERE / f"{name}.expect.yaml").read_text())
    found = brief(play(wanted, cluster, tmp_path), start=wanted.start)
    assert _named_alike(found) == _named_alike(expected)


def _named_alike(page: dict[str, Any]) -> dict[str, Any]:
    """A reservation is named after its run's uid, which the API server draws: the name without it."""
    return {**page, "events": [_RESERVATION.sub(r"\1", line) for line in page["events"]]}
