"""A process that dies between a send and its save: the event comes again, with the same id, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tenure.notify.deliver import SENDS_PER_TURN
from tests.notify.support import Web, tell

ROOT = Path(__file__).parents[2]
TOLD = [f"{name}{number}" for number in range(50) for name in "ab"]
SAVE_POINTS = ("begin", "before-commit", "after-commit", "after-anchor")


def deliver(path: Path, target: str, *kill: str) -> int:
    """Run the process; its return code."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.notify.deliver_once", str(path), target, *kill]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode


@pytest.fixture
def told(path: Path) -> Path:
    """A ledger with a hundred notes; the receiver is registered already."""
    with Ledger.create(path, fleet="lab") as ledger:
        tell(ledger, *TOLD)
    return path


@pytest.mark.parametrize("point", SAVE_POINTS)
def test_an_event_sent_before_the_death_comes_again_with_the_same_id(told: Path, web: Web, point: str) -> None:
    # The first transaction of the process registers the receiver; the second saves what its first turn sent.
    assert deliver(told, str(web.port), point, "2") == -signal.SIGKILL
    assert len(web.heard) == SENDS_PER_TURN
    assert deliver(told, str(web.port)) == 0
    ids = Counter(event["id"] for event in web.heard)
    assert len(ids) == len(TOLD)
    again = [count for count in ids.values() if count > 1]
    assert len(again) == (SENDS_PER_TURN if point in ("begin", "before-commit") else 0)
    firsts = list(dict.fromkeys(event["data"]["message"] for event in web.heard))
    assert firsts == TOLD
    same = {event["id"]: event for event in web.heard}
    assert all(event == same[event["id"]] for event in web.heard)


def test_a_process_killed_at_any_moment_loses_nothing(told: Path, web: Web) -> None:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.notify.deliver_once", str(told), str(web.port)]
    for count in (3, 30, 70):
        process = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
        web.wait_for(len(web.heard) + min(count, 3))
        process.kill()
        process.wait()
        with Ledger.open(told) as ledger:
            tell(ledger, f"c{count}", f"d{count}", f"c{count}0")
    assert deliver(told, str(web.port)) == 0
    found = {event["data"]["message"] for event in web.heard}
    assert found == {*TOLD, *(f"{name}{count}" for count in (3, 30, 70) for name in "cd"), "c30", "c300", "c700"}
    with Ledger.open(told) as ledger:
        assert ledger.verify().findings == ()


def test_a_file_holds_whole_lines_after_any_death(told: Path, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert deliver(told, str(file), "before-commit", "2") == -signal.SIGKILL
    with file.open("ab") as half:
        half.write(b'{"specversion":"1.0","id":"lab.')  # what the death of a machine may leave behind
    assert deliver(told, str(file)) == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert list(dict.fromkeys(event["data"]["message"] for event in events)) == TOLD
    assert set(Counter(event["id"] for event in events).values()) == {2}
