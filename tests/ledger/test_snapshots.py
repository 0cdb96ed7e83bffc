"""Snapshots: a damaged one costs time, never truth."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tests.ledger.support import append


def snap(ledger: Ledger, body: bytes) -> None:
    with ledger.write() as tx:
        tx.save_snapshot(body)


@pytest.fixture
def kept(path: Path) -> Path:
    """Three snapshots were taken, at entries 2, 4 and 6; of entries there are 7."""
    with Ledger.create(path, fleet="lab") as ledger:
        for body in (b"two", b"four", b"six"):
            append(ledger, 2)
            snap(ledger, body)
        append(ledger, 1)
    return path


def harm(path: Path, sql: str) -> None:
    db = sqlite3.connect(path)
    db.execute(sql)
    db.commit()
    db.close()


def newest(path: Path) -> tuple[int, bytes] | None:
    with Ledger.open(path) as ledger:
        found = ledger.snapshot()
        if found is None:
            return None
        assert found.hash == next(iter(ledger.links(after=found.seq - 1))).hash
        return found.seq, found.body


def test_the_newest_snapshot_is_found_and_replay_goes_on_from_there(kept: Path) -> None:
    assert newest(kept) == (6, b"six")
    with Ledger.open(kept) as ledger:
        assert [entry.seq for entry in ledger.entries(after=6)] == [7]


def test_there_is_none_before_the_first(ledger: Ledger) -> None:
    append(ledger, 1)
    assert ledger.snapshot() is None


def test_a_snapshot_can_be_taken_with_the_entries_it_covers(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.append(at=1, cause="a", facts=[])
        tx.save_snapshot(b"one")
        tx.save_snapshot(b"one, again")
    found = ledger.snapshot()
    assert found is not None
    assert (found.seq, found.hash, found.body) == (1, ledger.head.hash, b"one, again")


def test_an_empty_ledger_has_no_state_to_keep(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="before the first entry"):
        snap(ledger, b"nothing")


@pytest.mark.parametrize(
    "harmful",
    [
        "UPDATE snapshots SET body = x'00' WHERE seq = 6",
        "UPDATE snapshots SET digest = 'x' WHERE seq = 6",
        "UPDATE snapshots SET hash = 'of another chain' WHERE seq = 6",
        "DELETE FROM snapshots WHERE seq = 6",
    ],
)
def test_a_damaged_snapshot_gives_way_to_the_one_before(kept: Path, harmful: str) -> None:
    harm(kept, harmful)
    assert newest(kept) == (4, b"four")


def test_two_damaged_snapshots_leave_none_and_the_older_ones_were_dropped(kept: Path) -> None:
    harm(kept, "UPDATE snapshots SET body = x'00'")
    assert newest(kept) is None
    with Ledger.open(kept) as ledger:
        assert [entry.seq for entry in ledger.entries()] == list(range(1, 8))
        assert [finding.where for finding in ledger.verify().findings] == ["snapshot 4", "snapshot 6"]
        snap(ledger, b"seven")
    assert newest(kept) == (7, b"seven")
