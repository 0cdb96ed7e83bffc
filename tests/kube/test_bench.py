"""The promises about a cluster can be measured: each at its smallest, on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.promises import BENCHES
from bench.result import TINY


@pytest.mark.parametrize("name", ["kube-admit", "kube-gang", "kube-memory", "kube-list", "kube-queue"])
def test_every_promise_of_a_cluster_can_be_measured(name: str, programs: dict[str, Path], tmp_path: Path) -> None:
    rows = BENCHES[name].run(TINY, tmp_path)
    assert {row.bench for row in rows} == {name}
    assert any(row.goal is not None for row in rows)
    assert all(row.measured > 0 for row in rows)
