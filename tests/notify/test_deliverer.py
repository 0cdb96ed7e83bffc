"""All receivers at once, in threads of their own: none waits for another, and stopping loses nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from tenure.ledger import Code, Ledger
from tenure.ledger.refusals import refused
from tenure.notify import Deliverer, NotifyConfig, Outbox, deliver
from tenure.notify.http import HttpSink
from tenure.notify.progress import Answer
from tenure.testing.kube.process import free_ports
from tests.notify.support import NOW, PACE, PATIENT, Reply, Running, Web, http, noted, receiver, tell, to_file


def config(*receivers: object) -> NotifyConfig:
    return NotifyConfig(receivers=receivers)  # type: ignore[arg-type]


def test_a_slow_receiver_does_not_hold_up_the_others(ledger: Ledger, path: Path, web: Web) -> None:
    answer = Event()
    with Web(lambda _: Reply(204) if answer.wait(PATIENT) else Reply(500)) as slow:
        both = config(receiver(name="slow", to=http(slow.port)), receiver(name="quick", to=http(web.port)))
        with Running(Deliverer(path, both)):
            for number in range(10):
                tell(ledger, f"a{number}")
                web.wait_for(number + 1)
            assert slow.heard == []
            answer.set()
            slow.wait_for(10)
    assert web.taken() == slow.taken() == [f"a{number}" for number in range(10)]


def test_a_receiver_that_was_down_gets_everything_when_it_is_up(ledger: Ledger, path: Path) -> None:
    (port,) = free_ports(1)
    said: list[str] = []
    troubled, well = Event(), Event()

    def report(sentence: str) -> None:
        said.append(sentence)
        (well if "answers again" in sentence else troubled).set()

    pace = replace(PACE, backoff=20_000, backoff_max=100_000)
    one = config(receiver(name="hook", to=http(port), pace=pace))
    with Running(Deliverer(path, one, report=report)):
        tell(ledger, "a1", "b1")
        assert troubled.wait(PATIENT)
        tell(ledger, "a2")
        with Web(port=port) as late:
            late.wait_for(3)
            assert sorted(late.taken()) == ["a1", "a2", "b1"]
            assert late.taken().index("a1") < late.taken().index("a2")
            assert well.wait(PATIENT)
    assert said == [
        "receiver hook: 127.0.0.1: connection refused; its events are kept, trying again",
        "receiver hook answers again",
    ]


def test_regression_a_mistake_in_the_notifier_is_told_and_its_receiver_goes_on(
    ledger: Ledger, path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread ended, and the receiver heard of nothing any more until the driver was started again."""
    said, answers = list[str](), iter([RuntimeError("s3cr3t"), RuntimeError("s3cr3t")])
    send = HttpSink.send

    def stumbling(sink: HttpSink, bodies: Sequence[bytes]) -> Answer:
        if (error := next(answers, None)) is not None:
            raise error
        return send(sink, bodies)

    monkeypatch.setattr(HttpSink, "send", stumbling)
    monkeypatch.setattr(deliver, "RETRY", 0.01)
    with Running(Deliverer(path, config(receiver(to=http(web.port))), report=said.append)):
        tell(ledger, "a1")
        web.wait_for(1)
    assert web.taken() == ["a1"]
    assert said == ["receiver hook: RuntimeError in the notifier; its events are kept, trying again"]


def test_what_happened_while_nobody_ran_is_delivered_by_the_next(ledger: Ledger, path: Path, web: Web) -> None:
    one = config(receiver(to=http(web.port), history=False))
    tell(ledger, "before")
    with Running(Deliverer(path, one)):
        tell(ledger, "a1")
        web.wait_for(1)
    tell(ledger, "a2")
    with Running(Deliverer(path, one)):
        web.wait_for(2)
    assert web.taken() == ["a1", "a2"]


def test_what_is_committed_before_the_stop_is_delivered_before_the_end(
    ledger: Ledger, path: Path, tmp_path: Path, web: Web
) -> None:
    file = tmp_path / "events.jsonl"
    both = config(receiver(name="web", to=http(web.port)), receiver(name="file", to=to_file(file)))
    deliverer = Deliverer(path, both)
    tell(ledger, *(f"a{number}" for number in range(200)))
    with Running(deliverer):
        pass
    wanted = [f"a{number}" for number in range(200)]
    assert web.taken() == wanted
    assert [json.loads(line)["data"]["message"] for line in file.read_text().splitlines()] == wanted
    assert [state.behind for state in Outbox(ledger).states()] == [0, 0]


def test_a_place_that_moved_over_unwanted_notes_is_saved_at_the_end(ledger: Ledger, path: Path, web: Web) -> None:
    with Running(Deliverer(path, config(receiver(to=http(web.port), kinds=("Failed",))))):
        tell(ledger, noted("Run/rai/a", "a1", "Failed"))
        web.wait_for(1)
        tell(ledger, "a2", "a3")
    assert web.taken() == ["a1"]
    assert Outbox(ledger).states()[0].behind == 0


def test_stopping_does_not_wait_for_a_receiver_that_hangs(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.notify.deliver.GRACE", 0.05)
    monkeypatch.setattr("tenure.notify.deliver.RETRY", 0.05)
    hold, came = Event(), Event()

    def hang(_: object) -> Reply:
        came.set()
        hold.wait(PATIENT)
        return Reply(204)

    with Web(hang) as slow:
        deliverer = Deliverer(path, config(receiver(to=http(slow.port))))
        tell(ledger, "a1")
        with Running(deliverer):
            assert came.wait(PATIENT)
        assert slow.heard == []
        hold.set()
        slow.wait_for(1)


def test_receivers_are_registered_before_anything_is_delivered(ledger: Ledger, path: Path, web: Web) -> None:
    """Whoever starts a deliverer and then decides something can be sure that it is told."""
    deliverer = Deliverer(path, config(receiver(to=http(web.port), history=False)))
    tell(ledger, "a1")
    assert deliverer.turn(NOW) is None
    deliverer.close()
    assert web.taken() == ["a1"]


def test_a_refused_save_is_made_on_a_fresh_handle_and_nothing_is_sent_twice(
    ledger: Ledger, path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenure.notify.deliver.RETRY", 0.01)
    deliverer = Deliverer(path, config(receiver(to=http(web.port))))
    first = deliverer.couriers[0].outbox

    def fails(*_: object, **__: object) -> None:
        raise refused(Code.WriteFailed, path=path, why="a test says so")

    monkeypatch.setattr(first, "save", fails)
    with Running(deliverer):
        tell(ledger, "a1", "a2")
        web.wait_for(2)
        tell(ledger, "a3")
        web.wait_for(3)
    assert web.taken() == ["a1", "a2", "a3"]
    assert deliverer.couriers[0].outbox is not first
    assert Outbox(ledger).states()[0].progress.sent == 3
