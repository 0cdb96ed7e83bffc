"""The schema: old ledgers are brought up to date, newer ones are refused, and either way nothing is lost."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tenure.ledger import Code, Ledger, LedgerRefused, queries, schema, sidecar
from tests.ledger.support import append, hashes

NEXT = schema.Step(sql="ALTER TABLE entries ADD COLUMN note TEXT; CREATE TABLE extra (a INTEGER) STRICT;")
RELAID = schema.Step(
    sql="""DROP TABLE notes;
    CREATE TABLE notes (
        seq INTEGER NOT NULL, idx INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL,
        object TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, PRIMARY KEY (seq, idx)
    ) STRICT;""",
    rebuild=True,
)
BROKEN = schema.Step(sql="CREATE TABLE half (a INTEGER) STRICT; INSERT INTO nowhere VALUES (1);")


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    found = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return int(found)


def layout(path: Path) -> list[tuple[str, ...]]:
    db = sqlite3.connect(path)
    found = db.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    db.close()
    return found


def made_by(steps: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A ledger as the release with so many steps made and filled it."""
    with monkeypatch.context() as past:
        past.setattr(schema, "STEPS", schema.STEPS[:steps])
        if steps < 4:
            past.setattr(queries, "_LEASE", queries._LEASE.replace("since", "NULL"))
        with Ledger.create(path, fleet="lab") as ledger:
            return append(ledger, 5)


@pytest.mark.parametrize("steps", range(1, len(schema.STEPS) + 1))
def test_a_ledger_of_every_earlier_schema_opens_under_this_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    said = made_by(steps, path, monkeypatch)
    assert version(path) == steps
    with Ledger.open(path) as ledger:
        said += append(ledger, 2)
        assert ledger.verify().findings == ()
    assert hashes(path) == said
    assert version(path) == len(schema.STEPS)
    Ledger.create(tmp_path / "fresh.db", fleet="lab").close()
    assert layout(path) == layout(tmp_path / "fresh.db")


def test_an_upgrade_takes_each_step_and_keeps_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = made_by(1, path, monkeypatch)
    before = sidecar(path).read_bytes()
    with Ledger.open(path) as ledger:
        notes, leases = ledger.notes(), ledger.leases()
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, RELAID))
    with Ledger.open(path) as ledger:
        assert (ledger.notes(), ledger.leases()) == (notes, leases)
        assert len(notes) == 5
        assert ledger.verify().findings == ()
    assert version(path) == len(schema.STEPS)
    assert hashes(path) == said
    assert sidecar(path).read_bytes() == before


def test_an_upgrade_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = made_by(1, path, monkeypatch)
    before = layout(path)
    with monkeypatch.context() as future:
        future.setattr(schema, "STEPS", (*schema.STEPS, NEXT, BROKEN))
        with pytest.raises(LedgerRefused):
            Ledger.open(path)
    assert layout(path) == before
    assert hashes(path) == said


def test_a_reader_does_not_upgrade(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by(1, path, monkeypatch)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, NEXT))
    with pytest.raises(LedgerRefused) as caught:
        Ledger.open(path, readonly=True)
    assert caught.value.code is Code.OlderSchema


def test_a_ledger_of_the_future_is_refused_and_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as future:
        future.setattr(schema, "STEPS", (*schema.STEPS, NEXT))
        Ledger.create(path, fleet="lab").close()
    before = path.read_bytes()
    for readonly in (True, False):
        with pytest.raises(LedgerRefused) as caught:
            Ledger.open(path, readonly=readonly)
        assert caught.value.code is Code.NewerSchema
        assert f"its schema is {len(schema.STEPS) + 1}" in caught.value.sentence
    assert path.read_bytes() == before


def test_a_database_of_another_application_is_refused(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE entries (seq)")
    db.commit()
    db.close()
    with pytest.raises(LedgerRefused) as caught:
        Ledger.open(path)
    assert caught.value.code is Code.NotALedger


def test_the_file_is_kept_as_durability_needs_it(path: Path, ledger: Ledger) -> None:
    append(ledger, 1)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert db.execute("PRAGMA application_id").fetchone()[0] == schema.APPLICATION_ID
    tables = db.execute("PRAGMA table_list").fetchall()
    db.close()
    assert all(strict for _, name, kind, _, _, strict in tables if kind == "table" and not name.startswith("sqlite_"))
    settings = {name: ledger._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "foreign_keys")}
    assert settings == {"synchronous": 2, "foreign_keys": 1}


def test_only_its_owner_may_read_a_ledger_and_its_companions(path: Path) -> None:
    before = os.umask(0)
    try:
        with Ledger.create(path, fleet="lab") as ledger:
            append(ledger, 1)
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("fleet.db", "fleet.db-shm", "fleet.db-wal", "fleet.db.anchor"), 0o600)
