from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tests.ledger.support import append


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """An empty ledger. Whatever a test did to it, it verifies in the end: the books check themselves."""
    with Ledger.create(path, fleet="lab") as ledger:
        yield ledger
    with Ledger.open(path) as again:
        assert again.verify().findings == ()


@pytest.fixture
def filled(path: Path) -> Path:
    """Nine leases that are closed, the tenth is open, and a snapshot."""
    with Ledger.create(path, fleet="lab") as ledger:
        append(ledger, 10)
        with ledger.write() as tx:
            tx.save_snapshot(b"state")
    return path
