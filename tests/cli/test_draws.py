"""`kubectl runs verify` and `tenure custodian`: the lottery from the command line."""

import json
from pathlib import Path

import pytest

from tests.cli.support import call
from tests.engine.lottery_records import AUDITOR, OPERATOR, forge, good_record


def test_a_right_record_is_right(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps(good_record()))
    done = call("runs", "verify", str(record))
    assert (done.code, done.out) == (0, "right\n")
    told = call("runs", "verify", str(record), "-o", "json").json
    assert told == {"ok": True, "findings": [], "untied": ["operator", "auditor"]}


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


def test_what_custodians_published_ties_a_record_and_who_is_left_untied_is_said() -> None:
    record = json.dumps(good_record())
    operator, auditor = f"operator={OPERATOR[0].hex()}", f"auditor={AUDITOR[0].hex().upper()}"
    done = call("runs", "verify", "-", "--published", operator, stdin=record)
    assert (done.code, done.out) == (0, "right, without what auditor published\n")
    done = call("runs", "verify", "-", "--published", operator, "--published", auditor, "-o", "json", stdin=record)
    assert (done.code, done.json) == (0, {"ok": True, "findings": [], "untied": []})


def test_a_published_value_of_another_chain_or_of_a_beacon_that_is_not_there_is_found() -> None:
    for given, code in ((f"operator={AUDITOR[0].hex()}", "ForeignChain"), (f"union={'ab' * 32}", "BeaconLeftOut")):
        done = call("runs", "verify", "-", "--published", given, "-o", "json", stdin=json.dumps(good_record()))
        assert (done.code, [one["code"] for one in done.json["findings"]]) == (6, [code])


@pytest.mark.parametrize(
    "given",
    [["operator:" + "ab" * 32], ["ab" * 32], ["operator=abcd"], ["=" + "ab" * 32], [f"operator={'ab' * 32}"] * 2],
)
def test_a_published_value_that_cannot_be_read_is_not_passed_over(given: list[str]) -> None:
    options = [word for one in given for word in ("--published", one)]
    done = call("runs", "verify", "-", *options, stdin=json.dumps(good_record()))
    assert (done.code, done.out) == (2, "")
    assert f"--published {given[0]}: " in done.err


def test_a_record_without_a_draw_has_nothing_to_verify_and_says_so() -> None:
    cuts = [{"kind": "DropSpare", "run": "rai/x", "owner": "org:a", "gpus": 8, "leases": ["x-a1-g00-n0-0"]}]
    for record in ({"cuts": cuts}, {"intent": None, "result": None, "cuts": cuts}):
        done = call("runs", "verify", "-", stdin=json.dumps(record))
        assert (done.code, done.err) == (0, "")
        assert done.out == (
            "no draw: the record has no draw (what gave way did so without a lottery), so there is nothing to verify\n"
        )
        told = call("runs", "verify", "-", "-o", "json", stdin=json.dumps(record)).json
        assert told == {"ok": True, "findings": [], "state": "no draw"}


def test_a_draw_that_waits_for_its_reveals_has_nothing_to_verify_yet() -> None:
    done = call("runs", "verify", "-", stdin=json.dumps({"intent": good_record()["intent"]}))
    assert done.code == 0
    assert done.out.startswith("waits for reveals: the draw is frozen and has no result yet")


def test_a_draw_that_is_too_large_for_an_object_is_no_missing_draw() -> None:
    cuts = [{"kind": "Lottery", "run": "rai/x", "owner": "org:a", "gpus": 8}]
    done = call("runs", "verify", "-", stdin=json.dumps({"drawLeftOut": True, "cuts": cuts}))
    assert done.code == 2
    assert "too large for an object" in done.err
    assert "verify Reservation/NAMESPACE/NAME" in done.err


def test_who_was_cut_by_lot_without_a_draw_is_found() -> None:
    cuts = [{"kind": "Lottery", "run": "rai/x", "owner": "org:a", "gpus": 8}]
    done = call("runs", "verify", "-", "-o", "json", stdin=json.dumps({"cuts": cuts}))
    assert done.code == 6
    assert [one["code"] for one in done.json["findings"]] == ["CutNotDrawn"]


def test_a_record_without_a_draw_is_wrong_where_the_ledger_froze_one() -> None:
    done = call("runs", "verify", "-", "--commit", "0" * 64, stdin=json.dumps({"cuts": []}))
    assert (done.code, "Malformed" in done.out) == (6, True)


def test_what_has_nothing_of_a_record_is_malformed() -> None:
    for record in ({}, [], {"cuts": "all"}, {"intent": good_record()["intent"], "cuts": []}):
        done = call("runs", "verify", "-", stdin=json.dumps(record))
        assert (done.code, "Malformed" in done.out) == (6, True), record


@pytest.mark.parametrize("text", [b"{", b"", b"\x7fELF\x02\xff", b"[" * 200_000, b"{}\n---\n{}", b'{"a": 1, "a": 2}'])
def test_what_is_no_json_is_an_error_and_no_traceback(text: bytes) -> None:
    done = call("runs", "verify", "-", stdin=text)
    assert (done.code, done.out) == (2, "")
    assert "not JSON" in done.err
    assert "a bug" not in done.err


def test_a_custodian_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert call("tenure", "custodian", "status", str(tmp_path / "nope")).code == 5


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
