"""A saved state that is not what the entries give: whoever opens the ledger would decide by it."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tenure.cli.exits import Exit
from tenure.cli.images import untrue
from tenure.engine import Apply, Tick, dump
from tenure.facts import Noted
from tenure.ledger import Ledger
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.testing.builders import START, budget, envelope, nodes, run
from tenure.units import HOUR
from tests.cli.support import call


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


def home(ledger: Ledger) -> Home:
    return Home(LedgerStore(ledger), SimulatedExecutor())


def save(path: Path, spoil: Callable[[bytes], bytes] = bytes, *, later: int = 0) -> None:
    """A fleet with one budget and a run, and its state, saved as ``spoil`` makes it; somebody had looked ``later``."""
    with Ledger.create(path, fleet="test") as ledger:
        one = home(ledger)
        one.handle(Apply((*nodes("n", 4), budget("a", envelope("main", 8)), run("t", 8, owner="org:a"))), now=START)
        head = ledger.head.seq
        if later:
            one.handle(Tick(), now=START + later)
        assert ledger.head.seq == head
        body = spoil(dump(one.state))
        with ledger.write() as tx:
            tx.save_snapshot(body)


def widened(body: bytes) -> bytes:
    assert body.count(b'"concurrency":8') == 1
    return body.replace(b'"concurrency":8', b'"concurrency":9')


def found(path: Path) -> list[tuple[str, str]]:
    with Ledger.open(path, readonly=True) as ledger:
        return [(one.where, one.sentence) for one in untrue(ledger, lambda *_: None)]


@pytest.mark.parametrize("later", [0, HOUR])
def test_a_state_that_was_saved_as_it_was_is_true_also_after_a_look_that_found_nothing(path: Path, later: int) -> None:
    save(path, later=later)
    assert call("tenure", "ledger", "verify", str(path)).code == Exit.OK
    assert call("runs", "audit", fleet=path).code == Exit.OK


def test_a_state_that_was_saved_by_a_release_that_knew_less_is_true(path: Path) -> None:
    def older(body: bytes) -> bytes:
        parts = msgspec.json.decode(body)
        return msgspec.json.encode({key: parts[key] for key in parts.keys() - {"settled", "marks", "put_off"}})

    save(path, older)
    assert found(path) == []


def test_a_limit_that_was_widened_in_a_saved_state_is_found_and_mended_from_the_entries(path: Path) -> None:
    save(path, widened)
    with Ledger.open(path) as ledger:
        seq = ledger.head.seq
        assert home(ledger).state.budgets["a"].spec.envelopes[0].concurrency == 9
    done = call("tenure", "ledger", "verify", str(path), "-o", "json")
    sentence = f"The snapshot at entry {seq} is not the state that the entries give: budgets."
    assert done.code == Exit.REFUSED
    assert done.json["findings"] == [{"check": "snapshots", "where": f"snapshot {seq}", "sentence": sentence}]
    told = call("runs", "audit", "-o", "json", fleet=path)
    assert (told.code, [one["object"] for one in told.json["violations"]]) == (7, [f"Table/snapshot {seq}"])
    for one in (done, told):
        assert f"tenure ledger rebuild {path}" in one.err
    assert call("tenure", "ledger", "rebuild", str(path)).code == Exit.OK
    assert call("tenure", "ledger", "verify", str(path)).code == Exit.OK
    with Ledger.open(path) as ledger:
        assert home(ledger).state.budgets["a"].spec.envelopes[0].concurrency == 8


def test_a_saved_state_that_no_engine_could_load_is_found(path: Path) -> None:
    save(path, lambda body: b'{"fleet": "test"}')
    [(where, sentence)] = found(path)
    assert where.startswith("snapshot ")
    assert "cannot be loaded: ValidationError" in sentence


def test_a_saved_state_is_not_later_than_the_entry_after_it(path: Path) -> None:
    save(path, later=HOUR)
    with Ledger.open(path) as ledger, ledger.write() as tx:
        note = Noted(kind="Accepted", object="Ledger/test", reason="AnchorAccepted", message="So it is.")
        tx.append(at=START + HOUR - 1, cause="forged", facts=(note,), decided=False)
    [(_, sentence)] = found(path)
    assert sentence.endswith("is not the state that the entries give: now.")
