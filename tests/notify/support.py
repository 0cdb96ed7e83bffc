"""What the notifier's tests are written in: a ledger that tells, a receiver that hears, and the round between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

from msgspec import Struct

from tenure.facts import Fact, Noted
from tenure.ledger import Ledger
from tenure.notify.config import File, Header, Http, Receiver
from tenure.notify.deliver import Courier
from tenure.notify.event import Letter
from tenure.notify.outbox import Outbox
from tenure.notify.progress import Answer, Delivered, Pace
from tenure.notify.sinks import sink_for
from tenure.units import SECOND

NOW = 1_761_955_200 * SECOND
PATIENT = 30.0
"""Seconds that a test waits for something that must happen."""


class Reply(Struct, frozen=True):
    """What a receiver answers."""

    status: int = 204
    headers: dict[str, str] = {}
    body: bytes = b""


class Web:
    """A real HTTP server on loopback that remembers what it was sent, in order, and answers as a script says."""

    def __init__(self, script: Callable[[dict[str, Any]], Reply] | None = None, *, port: int = 0) -> None:
        self.script = script or (lambda _: Reply())
        self.heard: list[dict[str, Any]] = []
        self.requests: list[dict[str, str]] = []
        self.changed = Condition()
        self.connections = 0
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.web = self
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Web:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hear(self, event: dict[str, Any], headers: dict[str, str]) -> Reply:
        reply = self.script(event)
        with self.changed:
            self.heard.append({**event, "answered": reply.status})
            self.requests.append(headers)
            self.changed.notify_all()
        return reply

    def wait_for(self, count: int) -> None:
        """Until so many events have come."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.heard) >= count, PATIENT), f"only {len(self.heard)} came"

    def taken(self) -> list[str]:
        """The messages that were answered with success, in order."""
        return [event["data"]["message"] for event in self.heard if event["answered"] < 300]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    web: Web


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.web.connections += 1

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self.server.web.hear(event, {"path": self.path, **dict(self.headers.items())})
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        pass


class Post:
    """A sink in memory, which answers as a script says."""

    def __init__(self, script: Callable[[dict[str, Any]], Answer] | None = None, *, width: int = 1) -> None:
        self.script = script or (lambda _: Delivered())
        self.width = width
        self.asked: list[str] = []
        self.taken: list[str] = []
        self.ids: list[str] = []

    def send(self, bodies: Sequence[bytes]) -> Answer:
        events = [json.loads(body) for body in bodies]
        answers = [self.script(event) for event in events]
        self.asked += [event["data"]["message"] for event in events]
        if answers[0] == Delivered():
            self.taken += [event["data"]["message"] for event in events]
            self.ids += [event["id"] for event in events]
        return answers[0]

    def rest(self) -> None:
        pass


def noted(about: str, message: str, kind: str = "Started") -> Noted:
    return Noted(kind=kind, object=about, reason="Test", message=message)


def tell(ledger: Ledger, *facts: Fact | str) -> None:
    """Commit an entry. A text such as ``a1`` is a note with that message about the run named by its letters."""
    notes = [noted(f"Run/rai/{fact.rstrip('0123456789')}", fact) if isinstance(fact, str) else fact for fact in facts]
    with ledger.write() as tx:
        tx.append(at=max(tx.head.at, NOW) + 1, cause="test", facts=notes)


def receiver(**changes: Any) -> Receiver:
    """A receiver of everything, by HTTP to nowhere."""
    usual: dict[str, Any] = {"name": "hook", "to": http(1), "pace": PACE, "history": True}
    return Receiver(**(usual | changes))


def http(port: int, *headers: Header, target: str = "/events", timeout: int = 10 * SECOND) -> Http:
    return Http(secure=False, host="127.0.0.1", port=port, target=target, headers=headers, timeout=timeout)


def to_file(path: Path) -> File:
    return File(path=path)


PACE = Pace(attempts=3, backoff=SECOND, backoff_max=60 * SECOND)


def courier(ledger: Ledger, to: Receiver, sink: Any = None, **options: Any) -> Courier:
    """A courier on the ledger's handle, to a real place unless a sink is given."""
    return Courier(to, Outbox(ledger), sink or sink_for(to, environ={}), **options)


def rounds(man: Courier, *, now: int, until: int | None = None, most: int = 1000) -> int:
    """Turn after turn, each at the instant that the one before asked for, up to ``until``; the instant of the last."""
    last = now if until is None else until
    for _ in range(most):
        wake = man.turn(now)
        if wake is None or wake > last:
            return now
        now = max(now, wake)
    raise AssertionError(f"after {most} turns there is still something due")


def order_kept(taken: Iterable[str], *, told: Sequence[str]) -> bool:
    """Whether the messages of each object came in the order in which they were told, repetitions aside."""
    first = list(dict.fromkeys(taken))
    names = {message.rstrip("0123456789") for message in told}
    return all(
        [one for one in first if one.rstrip("0123456789") == name]
        == [one for one in told if one.rstrip("0123456789") == name and one in first]
        for name in names
    )


def letter(**changes: Any) -> Letter:
    usual: dict[str, Any] = {
        "seq": 7, "idx": 2, "at": NOW, "kind": "Started", "object": "Run/rai/train", "reason": "Bound",
        "message": "Every pod is bound.", "hash": "9f86d081", "owner": "org:ai:rai",
    }  # fmt: skip
    return Letter(**(usual | changes))


class Running:
    """A deliverer in its own threads, for the time of a block."""

    def __init__(self, deliverer: Any) -> None:
        self.stop = Event()
        self._thread = Thread(target=deliverer.run, args=(self.stop,), daemon=True)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(PATIENT)
        assert not self._thread.is_alive()
