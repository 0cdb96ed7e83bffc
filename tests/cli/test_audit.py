"""`audit`: a whole ledger is checked from first principles, and whatever does not hold is told by name."""

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from tenure.audit import INVARIANTS
from tenure.cli.exits import Exit
from tenure.facts import Cleared, Opened, Seen, encode_entry
from tenure.ledger import Ledger
from tenure.testing.builders import budget, nodes, run
from tenure.testing.fleet import Fleet
from tests.cli import support
from tests.cli.support import call


def test_a_fleet_on_which_things_have_happened_holds(past: Path) -> None:
    done = call("runs", "audit", fleet=past)
    assert (done.code, done.err) == (Exit.OK, "")
    first, heads, *rows = done.out.splitlines()
    assert support.still(first).startswith("FLEET: everything holds in ")
    assert heads.split() == ["INVARIANT", "RESULT", "VIOLATIONS", "SAYS"]
    assert [row.split()[0] for row in rows] == [one.name for one in INVARIANTS]
    assert {row.split()[1] for row in rows} == {"holds", "not-here"}


def test_programs_are_told_the_same(past: Path) -> None:
    told = call("runs", "audit", "-o", "json", fleet=past).json
    with Ledger.open(past, readonly=True) as ledger:
        head = ledger.head
    assert (told["ok"], told["violations"]) == (True, [])
    assert (told["head"]["seq"], told["head"]["hash"]) == (head.seq, head.hash)
    assert [one["name"] for one in told["invariants"]] == [one.name for one in INVARIANTS]
    assert [one["name"] for one in told["invariants"] if not one["checked"]] == ["I11-settled"]


def forged(fleet: Path) -> Opened:
    """A fact that no engine decided: a lease of GPUs that no machine has, of a run that is over."""
    with Ledger.open(fleet, readonly=True) as ledger:
        row = ledger.leases(run="a-train")[0]
    return Opened(lease=replace(row.lease, name="forged", gpus=(90, 91)))


def with_entry(fleet: Path, fact: Opened) -> None:
    with Ledger.open(fleet) as ledger, ledger.write() as tx:
        tx.append(at=ledger.head.at, cause="forged", facts=(fact,))


def test_a_lease_that_nobody_decided_is_found_and_named(used: Path) -> None:
    with_entry(used, forged(used))
    done = call("runs", "audit", fleet=used)
    assert done.code == Exit.FINDINGS
    assert "something does not hold" in done.out
    assert "I1-capacity" in {row.split()[0] for row in done.out.splitlines() if row.split()[1:2] == ["violated"]}
    assert "Lease/rai/forged" in done.out.partition("What does not hold")[2]
    assert "next: keep a copy of the ledger as it is" in done.err
    told = call("runs", "audit", "-o", "json", fleet=used).json
    assert told["ok"] is False
    assert {one["invariant"] for one in told["violations"]} == {
        one["name"] for one in told["invariants"] if one["violations"]
    }


def test_a_lease_that_stays_open_without_a_pod_is_found(tmp_path: Path) -> None:
    """Its run goes on for ever, and is charged; nothing of that is wrong in any single entry."""
    fleet, path = Fleet(*nodes("n", 2), budget("a")), tmp_path / "fleet.db"
    fleet.start(run("t", 8, owner="org:a"))
    [pod] = [one.name for one in fleet.pods("lab/t")]
    with Ledger.create(path, fleet="test") as ledger:
        with ledger.write() as tx:
            for entry in fleet.entries:
                tx.take(encode_entry(entry))
        assert call("runs", "audit", fleet=path).code == Exit.OK
        gone = Seen(namespace="lab", pod=pod, phase="Gone"), Cleared(namespace="lab", pods=(pod,))
        with ledger.write() as tx:
            tx.append(at=fleet.now, cause="forged", facts=gone)
    told = call("runs", "audit", "-o", "json", fleet=path)
    assert told.code == Exit.FINDINGS
    assert [one["name"] for one in told.json["invariants"] if one["violations"]] == ["I3-pods-and-leases"]
    assert {one["expected"] for one in told.json["violations"]} == {"a pod of lab/t"}


def test_tables_that_questions_are_answered_from_are_held_against_the_entries(used: Path) -> None:
    """Who-pays and chargeback read the query tables: a payer changed there is found, and mended from the entries."""
    paid = call("runs", "who-pays", "rai/a-train", "-o", "name", fleet=used).out
    with sqlite3.connect(used) as db:
        db.execute("UPDATE leases SET payer = 'org:thief' WHERE run = 'a-train'")
    db.close()
    assert call("runs", "who-pays", "rai/a-train", "-o", "name", fleet=used).out == "org:thief\n"
    done = call("runs", "audit", fleet=used)
    assert done.code == Exit.FINDINGS
    assert "Table/leases rai/a-train-" in done.out.partition("What does not hold")[2]
    assert f"next: the entries hold: keep a copy of the file as it is, then: tenure ledger rebuild {used}" in done.err
    told = call("tenure", "ledger", "verify", str(used))
    assert (told.code, f"tenure ledger rebuild {used}" in told.err) == (Exit.REFUSED, True)
    told = call("tenure", "ledger", "rebuild", str(used))
    assert (told.code, told.out.startswith(f"filled the query tables of {used} again from ")) == (Exit.OK, True)
    assert call("tenure", "ledger", "verify", str(used)).code == Exit.OK
    assert call("runs", "audit", fleet=used).code == Exit.OK
    assert call("runs", "who-pays", "rai/a-train", "-o", "name", fleet=used).out == paid


def test_a_table_shows_so_many_and_says_how_many_more(used: Path) -> None:
    with_entry(used, forged(used))
    every = len(call("runs", "audit", "-o", "json", fleet=used).json["violations"])
    assert every > 1
    done = call("runs", "audit", "--limit", "1", fleet=used)
    assert f"{every - 1} more violations are not shown" in done.err


def test_bytes_that_were_changed_are_refused_by_the_ledger_itself(used: Path) -> None:
    with sqlite3.connect(used) as db:
        triggers = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in triggers:
            db.execute(f"DROP TRIGGER {name}")
        (seq,) = db.execute("SELECT min(seq) FROM entries WHERE instr(body, CAST('a-train' AS BLOB))").fetchone()
        changed = "CAST(replace(CAST(body AS TEXT), 'a-train', 'a-trial') AS BLOB)"
        assert db.execute(f"UPDATE entries SET body = {changed} WHERE seq = ?", (seq,)).rowcount == 1
    db.close()
    done = call("runs", "audit", fleet=used)
    assert (done.code, done.out) == (Exit.REFUSED, "")


def test_a_fleet_at_work_is_audited(fresh: Path) -> None:
    with support.driven(fresh):
        assert support.submit(fresh, support.run_yaml("long", 8, "sleep 5")).code == 0
        done = call("runs", "audit", fleet=fresh)
        assert (done.code, done.err) == (Exit.OK, "")
        call("runs", "cancel", "rai/long", fleet=fresh)


@pytest.mark.parametrize("verb", ["shrink", "grow"])
def test_another_width_can_be_tried_first(verb: str, fresh: Path) -> None:
    width = {"minTotalGPUs": 4, "maxTotalGPUs": 12, "stepGPUs": 4, "desiredTotalGPUs": 8}
    assert support.submit(fresh, support.run_yaml("soft", 8, "true", malleable=width)).code == 0
    gpus = {"shrink": "4", "grow": "12"}[verb]
    done = call("runs", verb, "rai/soft", gpus, "--dry-run=server", fleet=fresh)
    assert (done.code, done.out, done.err) == (0, f"Run/rai/soft: would desire {gpus} GPUs (server dry run)\n", "")
    told = call("runs", "list", "-A", "-o", "json", fleet=fresh).json["items"][0]
    assert told["spec"]["malleable"]["desiredTotalGPUs"] == 8


def test_sponsors_can_be_tried_first(fresh: Path) -> None:
    assert support.submit(fresh, support.run_yaml("poor", 14, "true", funding={"allowBorrow": True})).code == 0
    done = call("runs", "sponsors", "add", "rai/poor", "org:ai:vision", "--dry-run=server", fleet=fresh)
    assert (done.code, done.out) == (0, "Run/rai/poor: org:ai:vision is sponsor 1 of 1 (server dry run)\n")
    assert call("runs", "sponsors", "list", "rai/poor", "-o", "name", fleet=fresh).out == ""
    assert call("runs", "sponsors", "add", "rai/poor", "org:ai:vision", fleet=fresh).code == 0
    done = call("runs", "sponsors", "remove", "rai/poor", "org:ai:vision", "--dry-run", fleet=fresh)
    assert done.out.endswith("(server dry run)\n")
    assert call("runs", "sponsors", "list", "rai/poor", "-o", "name", fleet=fresh).out == "org:ai:vision\n"
