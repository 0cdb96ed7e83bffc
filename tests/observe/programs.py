"""prometheus and promtool, for tests that want the real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.kube_assets import Unobtainable
from tools.prometheus_assets import assets


def prometheus_programs() -> dict[str, Path]:
    """Both by name; without them the test is left out and says why, and with CI=true it fails."""
    try:
        return assets()
    except Unobtainable as error:
        why = f"these tests need a real Prometheus: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
