"""Entries: appended once, chained, never changed, read as they were written."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from tenure.facts import GENESIS, Noted, encode_entry
from tenure.ledger import Code, Ledger, LedgerRefused
from tests.ledger.support import append, closed, decision, hashes, noted, opened


def test_what_was_appended_is_read_back(ledger: Ledger) -> None:
    with ledger.write() as tx:
        first = tx.append(at=5, cause="apply Run/rai/train", facts=decision(1))
        second = tx.append(at=5, cause="tick", facts=[noted("again")])
    assert list(ledger.entries()) == [first, second]
    assert [(entry.seq, entry.at, entry.cause) for entry in ledger.entries()] == [
        (1, 5, "apply Run/rai/train"),
        (2, 5, "tick"),
    ]


def test_every_entry_names_the_hash_of_the_one_before(ledger: Ledger) -> None:
    append(ledger, 3)
    links = list(ledger.links())
    assert [link.entry.prev for link in links] == [GENESIS, links[0].hash, links[1].hash]
    assert all(link.hash == hashlib.sha256(link.body).hexdigest() for link in links)
    assert all(link.body == encode_entry(link.entry) for link in links)
    assert (ledger.head.seq, ledger.head.hash) == (3, links[2].hash)


def test_entries_can_be_read_from_anywhere_to_anywhere(ledger: Ledger) -> None:
    append(ledger, 200)
    assert [entry.seq for entry in ledger.entries(after=197)] == [198, 199, 200]
    assert [entry.seq for entry in ledger.entries(after=60, until=130)] == list(range(61, 131))
    assert list(ledger.entries(after=200)) == []


def test_asking_after_an_entry_that_never_was_is_refused(ledger: Ledger) -> None:
    append(ledger, 2)
    with pytest.raises(LedgerRefused) as refusal:
        list(ledger.entries(after=7))
    assert refusal.value.code is Code.ChainBroken


def test_a_restart_finds_everything(path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        written = append(ledger, 4)
    with Ledger.open(path) as ledger:
        assert ledger.fleet == "lab"
        written += append(ledger, 2)
    assert hashes(path) == written


def test_an_exception_in_the_block_stores_nothing(ledger: Ledger) -> None:
    def changes_its_mind() -> None:
        with ledger.write() as tx:
            tx.append(at=9_000_000, cause="never", facts=[noted("never")])
            raise ZeroDivisionError

    append(ledger, 1)
    with pytest.raises(ZeroDivisionError):
        changes_its_mind()
    assert ledger.head.seq == 1
    assert [note.message for note in ledger.notes()] == ["step 1"]
    append(ledger, 1)


def test_many_appends_share_one_commit(ledger: Ledger) -> None:
    before = ledger.commits
    with ledger.write() as tx:
        for number in range(1, 101):
            tx.append(at=number, cause="batch", facts=[noted(str(number))])
    assert tx.head.seq == 100
    assert ledger.commits - before == 1
    assert ledger.head.seq == 100


def test_a_transaction_sees_its_own_head_and_what_others_appended(path: Path, ledger: Ledger) -> None:
    append(ledger, 2)
    with Ledger.open(path) as other:
        append(other, 3)
    with ledger.write() as tx:
        assert [entry.seq for entry in tx.since(2)] == [3, 4, 5]
        assert tx.head.seq == 5
        entry = tx.append(at=tx.head.at, cause="mine", facts=[noted("mine")])
        assert tx.head.seq == entry.seq == 6
        assert [entry.cause for entry in tx.since(5)] == ["mine"]


def test_only_commits_of_others_change_the_data_version(path: Path, ledger: Ledger) -> None:
    before = ledger.data_version()
    append(ledger, 1)
    assert ledger.data_version() == before
    with Ledger.open(path) as other:
        append(other, 1)
    assert ledger.data_version() != before


def test_time_never_runs_backwards(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.append(at=10, cause="a", facts=[])
        tx.append(at=10, cause="b", facts=[])
        with pytest.raises(ValueError, match="earlier than entry 2 at 10"):
            tx.append(at=9, cause="c", facts=[])
    assert ledger.head.seq == 2


def test_an_entry_that_could_not_be_read_back_is_never_written(ledger: Ledger) -> None:
    wrong = Noted(kind="Normal", object="x", reason="x", message=7)  # type: ignore[arg-type]
    with ledger.write() as tx, pytest.raises(ValueError, match="could not be read back"):
        tx.append(at=1, cause="a bug", facts=[wrong])
    assert ledger.head.seq == 0


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ([opened("a"), opened("a")], "opens lease rai/a a second time"),
        ([closed("a", end=5)], "closes lease rai/a, which is not open"),
        ([opened("a"), closed("a", end=5), closed("a", end=6)], "closes lease rai/a, which is not open"),
        ([opened("a", start=5), closed("a", end=4)], "closes lease rai/a before its start"),
    ],
)
def test_a_lease_opens_once_and_closes_once(ledger: Ledger, facts: list[object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint), ledger.write() as tx:
        tx.append(at=10, cause="a bug", facts=facts)  # type: ignore[arg-type]
    assert ledger.head.seq == 0
    assert ledger.leases() == []


def test_a_swallowed_failure_still_rolls_the_whole_transaction_back(ledger: Ledger) -> None:
    def carries_on_regardless() -> None:
        with ledger.write() as tx:
            tx.append(at=1, cause="good", facts=[noted("good")])
            with pytest.raises(ValueError, match="not open"):
                tx.append(at=2, cause="a bug", facts=[closed("nothing", end=2)])

    with pytest.raises(RuntimeError, match="swallowed"):
        carries_on_regardless()
    assert ledger.head.seq == 0


def test_a_transaction_is_over_when_its_block_is(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.append(at=1, cause="in time", facts=[])
    with pytest.raises(RuntimeError, match="is over"):
        tx.append(at=2, cause="too late", facts=[])


def test_a_handle_writes_one_transaction_at_a_time(ledger: Ledger) -> None:
    with ledger.write(), pytest.raises(RuntimeError, match="inside a write"), ledger.write():
        pass


def test_a_half_read_ledger_can_be_written(path: Path, ledger: Ledger) -> None:
    append(ledger, 100)
    reading = ledger.entries()
    assert next(reading).seq == 1
    with Ledger.open(path) as other:
        append(other, 1)
    append(ledger, 1)
    assert [entry.seq for entry in reading] == list(range(2, 103))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET cause = 'x' WHERE seq = 2",
        "DELETE FROM entries WHERE seq = 3",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT seq, at, 'x', body, hash FROM entries WHERE seq = 2",
        "INSERT INTO entries SELECT seq + 2, at, cause, body, hash FROM entries WHERE seq = 3",
    ],
)
def test_no_sql_changes_or_removes_or_skips_an_entry(path: Path, ledger: Ledger, sql: str) -> None:
    written = append(ledger, 3)
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match=r"append-only|in sequence"):
        db.execute(sql)
    db.close()
    assert [link.hash for link in ledger.links()] == written


def test_an_export_is_lines_of_json_with_the_exact_bytes(ledger: Ledger) -> None:
    written = append(ledger, 3)
    lines = list(ledger.export())
    assert [json.loads(line)["hash"] for line in lines] == written
    assert [json.loads(line)["entry"]["seq"] for line in lines] == [1, 2, 3]
    assert [hashlib.sha256(line[83:-1]).hexdigest() for line in lines] == written
    assert list(ledger.export(after=2)) == lines[2:]
