"""`kubectl runs verify` and `tenure custodian`: the lottery from the command line."""

import json
from pathlib import Path

from tests.cli.support import call
from tests.engine.lottery_records import forge, good_record


def test_a_right_record_is_right(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps(good_record()))
    done = call("runs", "verify", str(record))
    assert (done.code, done.out) == (0, "right\n")
    assert json.loads(call("runs", "verify", str(record), "-o", "json").out) == {"ok": True, "findings": []}


def test_a_record_with_another_order_is_refused_with_the_reason(tmp_path: Path) -> None:
    record = good_record()
    record["result"]["order"].reverse()
    done = call("runs", "verify", "-", stdin=json.dumps(record))
    assert done.code == 6
    assert "finding" in done.err


def test_a_record_that_was_forged_whole_shows_against_the_ledgers_commit() -> None:
    record = good_record()
    commit = record["result"]["commit"]
    assert call("runs", "verify", "-", "--commit", commit, stdin=json.dumps(record)).code == 0
    record["intent"]["deficit"] += 1
    forged = json.dumps(forge(record))
    assert call("runs", "verify", "-", stdin=forged).code == 0
    assert call("runs", "verify", "-", "--commit", commit, stdin=forged).code == 6


def test_what_is_no_json_is_an_error_and_no_traceback() -> None:
    done = call("runs", "verify", "-", stdin="{")
    assert done.code == 2
    assert "not JSON" in done.err
    assert "Traceback" not in done.err


def test_a_custodian_is_made_once_and_tells_where_it_stands(tmp_path: Path) -> None:
    folder = str(tmp_path / "chain")
    made = json.loads(
        call("tenure", "custodian", "init", folder, "--beacon", "operator", "--length", "50", "-o", "json").out
    )
    stands = json.loads(call("tenure", "custodian", "status", folder, "-o", "json").out)
    assert (made["position"], made["length"], made["beacon"]) == (0, 50, "operator")
    assert stands["published"] == made["published"]
    again = call("tenure", "custodian", "init", folder, "--beacon", "operator")
    assert again.code == 6
    assert "never overwritten" in again.err
