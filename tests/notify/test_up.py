"""`tenure up --notify` and `tenure notify`, called as people call them; and the guide does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tenure.embedded.daemon import Daemon
from tenure.ledger import Ledger
from tenure.notify import KINDS, NotifyConfig
from tenure.testing.kube.process import free_ports
from tests.cli.support import call, create, finish, run_yaml, spawn, submit
from tests.notify.support import PATIENT, Reply, Running, Web, http, receiver, tell

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "notifications.md").read_text()


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet with a run that ends by itself, waiting for somebody to drive."""
    fleet = create(tmp_path)
    assert submit(fleet, run_yaml("train", 4, "true")).code in (0, 3)
    return fleet


def notify(folder: Path, *receivers: dict[str, Any]) -> str:
    file = folder / "notify.yaml"
    file.write_text(json.dumps({"kind": "Notify", "receivers": receivers}))
    return str(file)


def test_a_driver_tells_its_receivers_everything_before_it_leaves(fleet: Path, tmp_path: Path, web: Web) -> None:
    both = notify(
        tmp_path,
        {"name": "web", "url": f"http://127.0.0.1:{web.port}/", "objects": ["Run/rai/train"]},
        {"name": "file", "file": "events.jsonl", "history": True},
    )
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle", "--notify", both))
    assert (done.code, done.err) == (0, "")
    kinds = [event["data"]["kind"] for event in web.heard]
    assert [kind for kind in kinds if kind in ("Admitted", "Started", "Completed")] == [
        "Admitted",
        "Started",
        "Completed",
    ]
    assert {event["data"]["owner"] for event in web.heard} == {"org:ai:rai"}
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    with Ledger.open(fleet, readonly=True) as ledger:
        assert [line["data"]["message"] for line in lines] == [note.message for note in ledger.notes()]
    assert {line["data"]["kind"] for line in lines} <= set(KINDS)


def test_events_on_standard_output_are_not_mixed_with_words_for_people(fleet: Path, tmp_path: Path) -> None:
    one = notify(tmp_path, {"name": "console", "stdout": True})
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle", "--notify", one))
    kinds = [json.loads(line)["data"]["kind"] for line in done.out.splitlines()]
    assert kinds[-1] == "Completed"
    assert "driving " in done.err
    assert "idle: " in done.err


def test_a_receiver_that_is_away_is_said_and_kept_for_the_next_driver(fleet: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    one = notify(tmp_path, {"name": "hook", "url": f"http://127.0.0.1:{port}/"})
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle", "--notify", one))
    assert done.code == 0
    assert "receiver hook: 127.0.0.1: connection refused; its events are kept, trying again" in done.err
    [state] = call("tenure", "notify", "status", str(fleet), "-o", "json").json["receivers"]
    assert (state["name"], state["sent"]) == ("hook", 0)
    assert state["behind"] > 0
    assert state["problem"] == "127.0.0.1: connection refused"
    assert re.search(r"hook +away +0 +\d+ +0 +0 +127.0.0.1: connection refused; \d+ times; next try", call(
        "tenure", "notify", "status", str(fleet)).out)  # fmt: skip
    with Web(port=port) as back:
        process = spawn("tenure", "up", str(fleet), "--notify", one)
        back.wait_for(state["behind"])
        process.terminate()
        assert finish(process).code == 0
        assert back.taken()[-1:] != []


def test_dead_letters_are_listed_and_sent_again_on_request(fleet: Path, tmp_path: Path, web: Web) -> None:
    web.script = lambda event: Reply(403 if event["data"]["kind"] == "Started" else 204)
    hook = {"name": "hook", "url": f"http://127.0.0.1:{web.port}/", "attempts": 1}
    words = ("tenure", "up", str(fleet), "--until-idle", "--notify", notify(tmp_path, hook))
    assert finish(spawn(*words)).code == 0
    [state] = call("tenure", "notify", "status", str(fleet), "-o", "json").json["receivers"]
    assert state["deadLetters"] == 1
    [dead] = state["dead"]
    assert (dead["kind"], dead["object"], dead["problem"]) == ("Started", "Run/rai/train", "answered 403")
    table = call("tenure", "notify", "status", str(fleet)).out
    assert re.search(r"hook +\d+ +\S+ +Started +Run/rai/train +answered 403, 1 time", table)
    web.script = lambda _: Reply()
    again = call("tenure", "notify", "retry", str(fleet), "hook")
    assert (again.code, again.out) == (0, "1 event will be sent to hook again\n")
    heard = len(web.heard)
    assert finish(spawn(*words)).code == 0
    assert [event["data"]["kind"] for event in web.heard[heard:]] == ["Started"]
    assert call("tenure", "notify", "status", str(fleet), "-o", "json").json["receivers"][0]["deadLetters"] == 0


def test_a_notify_file_that_is_wrong_stops_before_anything_is_made(tmp_path: Path) -> None:
    fleet = tmp_path / "new.db"
    (tmp_path / "fleet.yaml").write_text("kind: Fleet\nmetadata: {name: x}\nnodes: []\n")
    bad = notify(tmp_path, {"name": "a", "url": "ftp://h"}, {"name": "b", "stdout": True, "kinds": ["Nope"]})
    done = call("tenure", "up", str(fleet), "--fleet", str(tmp_path / "fleet.yaml"), "--notify", bad)
    assert done.code == 2
    assert done.err.count("error: ") == 2
    assert "receivers[0].url: neither http nor https" in done.err
    assert not fleet.exists()


def test_a_token_that_is_not_there_is_said_at_the_start(fleet: Path, tmp_path: Path) -> None:
    hook = {"name": "a", "url": "http://h", "headers": {"Authorization": {"env": "NO_SUCH_TOKEN"}}}
    done = call("tenure", "up", str(fleet), "--notify", notify(tmp_path, hook))
    assert done.code == 2
    assert 'receivers[0].headers.Authorization.env is "NO_SUCH_TOKEN": the variable is not set; export it' in done.err


def test_a_receiver_that_nobody_knows_cannot_be_retried(fleet: Path) -> None:
    done = call("tenure", "notify", "retry", str(fleet), "nobody")
    assert done.code == 5
    assert "there is no receiver nobody" in done.err
    assert call("tenure", "notify", "status", str(fleet)).err.startswith("no receiver was ever named")


def test_a_daemon_delivers_while_it_drives_and_what_is_decided_first_is_told(fleet: Path, web: Web) -> None:
    config = NotifyConfig(receivers=(receiver(to=http(web.port), history=False),))
    daemon = Daemon(fleet, notify=config)

    class Driving:
        def run(self, stop: Any) -> None:
            daemon.run()

    with Running(Driving()):
        web.wait_for(1)
        assert web.heard[0]["data"]["kind"] in ("Admitted", "Waiting")
        with web.changed:
            assert web.changed.wait_for(lambda: web.heard[-1]["data"]["kind"] == "Completed", PATIENT)
        with Ledger.open(fleet) as ledger:
            tell(ledger, "last1")
        daemon.stop()
    assert web.heard[-1]["data"]["message"] == "last1"


def test_the_guide_can_be_followed(fleet: Path) -> None:
    [script] = re.findall(r"^```sh\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=fleet.parent, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^archive +well +\d+ +0 +0 +0 +-$", done.stdout, re.MULTILINE)
    assert (fleet.parent / "events.jsonl").read_text().count("\n") == 3


def test_the_guide_lists_every_kind_with_its_meaning() -> None:
    assert all(f"| `{kind}` | {meaning} |" in GUIDE for kind, meaning in KINDS.items())
