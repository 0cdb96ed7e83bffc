from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tests.notify.support import Web


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """An empty ledger. Whatever the notifier did to it, it verifies in the end."""
    with Ledger.create(path, fleet="lab") as ledger:
        yield ledger
        assert ledger.verify().findings == ()


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web
