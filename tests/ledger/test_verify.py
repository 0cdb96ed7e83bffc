"""The full check: it finds what was done to a ledger and says where."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tests.ledger.support import append, opened


def findings(path: Path) -> list[tuple[str, str]]:
    with Ledger.examine(path) as ledger:
        return [(finding.check, finding.where) for finding in ledger.verify().findings]


def harm(path: Path, sql: str) -> None:
    """What somebody with SQL and no scruples can do: also put the triggers back afterwards."""
    db = sqlite3.connect(path)
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.executescript(sql)
    for _, text in triggers:
        db.execute(text)
    db.close()


def test_a_good_ledger_has_no_findings_and_its_size_is_told(filled: Path) -> None:
    with Ledger.open(filled) as ledger:
        report = ledger.verify()
        assert report.ok
        assert (report.fleet, report.entries, report.leases, report.head) == ("lab", 10, 10, ledger.head)


def test_progress_is_told_up_to_the_end(filled: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with Ledger.open(filled) as ledger:
        ledger.verify(progress=lambda stage, done, total: told.append((stage, done, total)))
    assert ("chain", 10, 10) in told
    assert ("leases", 10, 10) in told


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            "UPDATE entries SET body = CAST(replace(body, 'step 4', 'step X') AS BLOB) WHERE seq = 4",
            {("chain", "entry 4"), ("derived", "notes 4/2")},
        ),
        (
            "UPDATE entries SET hash = printf('%064d', 7) WHERE seq = 4",
            {("chain", "entry 4"), ("chain", "entry 5")},
        ),
        ("UPDATE entries SET cause = 'x' WHERE seq = 4", {("chain", "entry 4")}),
        ("UPDATE entries SET at = at + 1 WHERE seq = 4", {("chain", "entry 4")}),
        ("UPDATE entries SET body = x'7b7d' WHERE seq = 4", {("chain", "entry 4")}),
        ("UPDATE leases SET payer = 'org:thief' WHERE name = 'l3'", {("derived", "leases rai/l3")}),
        ("UPDATE leases SET end = end - 1 WHERE name = 'l3'", {("derived", "leases rai/l3")}),
        ("DELETE FROM leases WHERE name = 'l3'", {("derived", "leases rai/l3")}),
        (
            "INSERT INTO notes SELECT seq, 99, at, kind, object, reason, message FROM notes WHERE seq = 4",
            {("derived", "notes 4/99")},
        ),
        ("DELETE FROM decisions WHERE seq = 10", {("derived", "decisions rai/train/10/3")}),
        ("UPDATE snapshots SET body = x'00'", {("snapshots", "snapshot 10")}),
        ("UPDATE snapshots SET hash = 'x'", {("snapshots", "snapshot 10")}),
    ],
)
def test_what_was_done_is_found(filled: Path, sql: str, found: set[tuple[str, str]]) -> None:
    harm(filled, sql)
    assert set(findings(filled)) == found


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("DROP TRIGGER entries_never_go", "schema entries_never_go"),
        ("DROP INDEX leases_open", "schema leases_open"),
        ("CREATE TRIGGER t AFTER INSERT ON leases BEGIN UPDATE leases SET gpus = 1; END", "schema t"),
    ],
)
def test_a_changed_schema_is_found(filled: Path, sql: str, found: str) -> None:
    db = sqlite3.connect(filled)
    db.execute(sql)
    db.close()
    assert findings(filled) == [("schema", found)]


def test_missing_entries_are_found_in_the_middle_and_at_the_end(filled: Path) -> None:
    harm(filled, "PRAGMA foreign_keys = OFF; DELETE FROM entries WHERE seq = 5")
    assert {("chain", "entry 6"), ("sqlite", "notes")} <= set(findings(filled))
    harm(filled, "DELETE FROM entries WHERE seq > 8")
    assert ("anchor", "BehindAnchor") in findings(filled)


def test_many_findings_are_listed_first_and_then_counted(path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger, ledger.write() as tx:
        tx.append(at=1, cause="many", facts=[opened(f"l{number:03d}") for number in range(100)])
    harm(path, "UPDATE leases SET payer = 'org:thief'")
    with Ledger.open(path) as ledger:
        found = ledger.verify().findings
    assert len(found) == 21
    assert found[0].sentence == "Row rai/l000 of leases is not as it should be."
    assert found[-1].sentence == "and 80 more."


def test_a_ledger_can_be_verified_while_another_process_writes(path: Path, ledger: Ledger) -> None:
    append(ledger, 300)
    with Ledger.open(path) as other:

        def meanwhile(stage: str, done: int, total: int) -> None:
            append(other)

        report = ledger.verify(progress=meanwhile)
    assert report.ok
    assert report.entries <= 301
    assert ledger.head.seq > 301


def test_a_ledger_is_not_verified_inside_a_write(ledger: Ledger) -> None:
    with ledger.write(), pytest.raises(RuntimeError, match="outside of writes"):
        ledger.verify()
