"""What whoever drives asks before acting: are the query tables as the entries say?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.facts import Lease
from tenure.ledger import Code, Ledger, LedgerRefused, store
from tests.ledger.support import closed, lease, opened
from tests.ledger.test_verify import harm


def held(path: Path) -> list[Lease]:
    with Ledger.open(path, readonly=True) as ledger:
        return [row.lease for row in ledger.leases(open_only=True)]


def why(path: Path, leases: list[Lease] | None = None, *, at: int = 10) -> str:
    """What a driver is told, who finds that a reader is told nothing."""
    with Ledger.open(path) as ledger:
        ledger.leases()
        try:
            ledger.attest(leases, at=at)
        except LedgerRefused as refusal:
            return str(refusal)
    return ""


def test_a_good_ledger_is_attested(filled: Path) -> None:
    assert why(filled, held(filled)) == ""


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("DELETE FROM leases WHERE name = 'l4'", "Row rai/l4 of leases is missing"),
        (
            "UPDATE leases SET end = NULL, closed_by = NULL WHERE name = 'l4'",
            "Row rai/l4 of leases is not as it should",
        ),
        ("UPDATE notes SET message = 'another' WHERE seq = 3", "Row 3/2 of notes is not as it should be"),
        ("DELETE FROM decisions WHERE seq = 2", "of decisions is missing"),
        ("DROP INDEX leases_open", "leases_open is missing"),
    ],
)
def test_tables_that_differ_from_the_entries_are_refused_to_a_driver(filled: Path, sql: str, named: str) -> None:
    harm(filled, sql)
    assert why(filled).startswith(f"{Code.Damaged}: ")
    assert named in why(filled)


def test_an_image_that_is_damaged_keeps_nobody_from_driving(filled: Path) -> None:
    harm(filled, "UPDATE snapshots SET body = x'00'")
    with Ledger.open(filled) as ledger:
        assert [finding.check for finding in ledger.verify().findings] == ["snapshots"]
    assert why(filled, held(filled)) == ""


def test_of_a_long_history_what_is_open_is_compared_and_the_rest_is_left_to_the_full_check(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ATTESTED", 9)
    right = held(filled)
    assert [one.key for one in right] == ["rai/l10"]
    assert why(filled, right) == ""
    harm(filled, "DELETE FROM leases WHERE name = 'l4'")
    assert why(filled, right) == ""
    with Ledger.open(filled) as ledger:
        assert [finding.where for finding in ledger.verify().findings] == ["leases rai/l4"]
    harm(filled, "UPDATE leases SET node = 'n7' WHERE name = 'l10'")
    assert "the open lease rai/l10 is not in its query tables" in why(filled, right)
    harm(filled, "DELETE FROM leases WHERE name = 'l10'")
    assert "the open lease rai/l10 is not in its query tables" in why(filled, right)


def test_what_others_wrote_since_is_taken_into_account(filled: Path) -> None:
    right = held(filled)
    with Ledger.open(filled) as other, other.write() as tx:
        tx.append(at=10**9, cause="another", facts=[closed("l10", end=10**9), opened("l11", start=10**9)])
    assert why(filled, right) == ""
    assert "the open lease rai/l10 " in why(filled, right, at=11)
    assert why(filled, [lease("l11", start=10**9)], at=11) == ""
