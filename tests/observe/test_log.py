"""Structured logs: every entry, with its cause and ids; nothing that a tenant writes breaks a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tenure.facts import Entry, Froze, Noted, Resolved, encode_entry, entry_hash
from tenure.ledger import Ledger
from tenure.observe.log import Record, line, records
from tenure.testing import Fleet, budget, nodes, run
from tests.cli.support import call, create, finish, run_yaml, spawn, submit
from tests.engine.machine import KINDS, World


def told(entries: list[Entry]) -> list[Record]:
    """All records of some entries, as a collector would read them."""
    lines = [line(one) for entry in entries for one in records(entry, hash=entry_hash(encode_entry(entry)))]
    return [json.loads(one) for one in lines]


def test_a_record_says_what_was_decided_and_why_and_by_which_entry() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.apply(run("x", 8, owner="org:a"))
    fleet.apply(run("y", 8, owner="org:a"))
    found = {(one["event"], one.get("run")): one for one in told(fleet.entries)}
    start, wait = found["Admitted", "lab/x"], found["Waiting", "lab/y"]
    entry = next(one for one in fleet.entries if one.seq == start["entry"])
    assert start["hash"] == entry_hash(encode_entry(entry))
    assert (start["level"], start["cause"], start["reason"]) == ("info", entry.cause, "Admitted")
    assert start["plan"]["payers"] == [{"budget": "a", "envelope": "main", "gpus": 8, "funding": "owned"}]
    assert start["leases"] == {"opened": 1, "closed": 0}
    assert wait["plan"]["outcome"] == "wait"
    assert wait["reason"] == wait["plan"]["headline"]["code"]


def test_who_waits_for_a_custodian_is_a_warning_and_who_waits_for_machines_is_not() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("y", 8, owner="org:a"))
    fleet.later("61m")
    levels = {one["reason"]: one["level"] for one in told(fleet.entries) if one["event"] == "Waiting"}
    assert levels == {"NoCapacity": "info", "EndsLate": "info", "NoCustodian": "warning"}


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_is_told_and_every_note_and_resolution_once(seed: int) -> None:
    world, luck = World(seed), Random(seed)
    for _ in range(60):
        world.act(luck.choice(KINDS), luck)
    entries = world.fleet.entries
    found = told(entries)
    assert [*dict.fromkeys(one["entry"] for one in found)] == [entry.seq for entry in entries]
    facts = [fact for entry in entries for fact in entry.facts]
    noted = [(fact.kind, fact.object, fact.reason, fact.message) for fact in facts if isinstance(fact, Noted)]
    assert noted == [
        (one["event"], one["object"], one["reason"], one["message"])
        for one in found
        if one["event"] not in ("Entry", "Resolved", "Frozen")
    ]
    resolved = [len(fact.cuts) for fact in facts if isinstance(fact, Resolved)]
    assert resolved == [len(one["cuts"]) for one in found if one["event"] == "Resolved"]
    assert sum(isinstance(fact, Froze) for fact in facts) == sum(one["event"] == "Frozen" for one in found)


def test_a_message_can_neither_break_a_line_nor_steer_a_terminal() -> None:
    evil = 'a\n{"level":"info"}\r\x1b[2J\x9b31m\x7f\u202e\u2028"\\'
    note = Noted(kind="Failed", object="Run/lab/x", reason="Failed", message=evil)
    entry = Entry(seq=1, at=0, cause="tick", facts=(note,), prev="0" * 64)
    [record] = records(entry, hash="f" * 64)
    text = line(record)
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text)["message"] == evil


def test_up_writes_records_of_exactly_what_the_ledger_holds(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    assert submit(fleet, run_yaml("a", 8, "sleep 0.1"), run_yaml("e", 64, "true")).code in (0, 3)
    with Ledger.open(fleet, readonly=True) as ledger:
        before = ledger.head.seq
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle", "--log-format", "json"))
    assert (done.code, done.err) == (0, "")
    found = [json.loads(one) for one in done.out.splitlines()]
    assert {one["event"] for one in found if "entry" not in one} == {"Process"}
    with Ledger.open(fleet, readonly=True) as ledger:
        links = list(ledger.links(after=before))
    assert {one["entry"]: one["hash"] for one in found if "entry" in one} == {one.entry.seq: one.hash for one in links}
    assert [one["run"] for one in found if one["event"] == "Completed"] == ["rai/a"]


def test_troubles_are_records_too(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    done = finish(
        spawn("tenure", "up", str(fleet), "--until-idle", "--metrics", "0", env={"TENURE_LOG_FORMAT": "json"})
    )
    assert done.code == 0
    [said] = [json.loads(one) for one in done.err.splitlines()]
    assert said["event"] == "Process"
    assert said["message"].startswith("metrics are served at")
    for one in done.out.splitlines():
        json.loads(one)


def test_people_get_lines_unless_they_ask_for_records(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    done = call("tenure", "up", str(fleet), "--until-idle", "--log-format", "yaml")
    assert done.code == 2
    assert "--log-format" in done.err
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle"))
    assert "idle: nothing runs" in done.out
    assert "{" not in done.out


def test_what_libraries_log_takes_the_same_shape(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    from tenure.cli.server.logged import logged

    with logged("json"):
        logging.getLogger("aiohttp.client").warning("lost %s\n\x1b[2J", "it")
        logging.getLogger("tenure.kube.informer").info("not this")
    logging.getLogger("aiohttp.client").debug("nor that")
    [record] = [json.loads(one) for one in capsys.readouterr().err.splitlines()]
    assert (record["level"], record["logger"], record["message"]) == ("warning", "aiohttp.client", "lost it\n\x1b[2J")


def test_the_engine_logs_nothing_and_logging_costs_no_import_of_opentelemetry() -> None:
    code = (
        "import sys, tenure.cli.server.up, tenure.cli.server.operator, tenure.cli.server.logged\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
