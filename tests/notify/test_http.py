"""POST to a real server: what it is sent, what its answers mean, and what a bad one cannot do."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.ledger import Ledger
from tenure.notify import Outbox
from tenure.notify.config import Header
from tenure.notify.deliver import Courier
from tenure.notify.event import body
from tenure.notify.http import HttpSink
from tenure.notify.progress import Away, Declined, Delivered
from tenure.units import MINUTE, SECOND
from tests.notify.support import NOW, PATIENT, Reply, Web, courier, http, letter, receiver, rounds, tell

EVENT = body(letter(), fleet="lab")


def answer(web: Web, reply: Reply, **options: Any) -> Any:
    """What one POST comes to when the server answers so."""
    web.script = lambda _: reply
    sink = HttpSink(http(web.port, **options), environ={})
    try:
        return sink.send([EVENT])
    finally:
        sink.rest()


# --- what goes out ----------------------------------------------------------------------------------------------


def test_an_event_is_posted_as_structured_json(ledger: Ledger, web: Web) -> None:
    tell(ledger, "a1")
    rounds(courier(ledger, receiver(to=http(web.port, target="/hook?team=x"))), now=NOW)
    [event], [request] = web.heard, web.requests
    assert event["data"]["message"] == "a1"
    assert request["path"] == "/hook?team=x"
    assert request["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert request["User-Agent"].startswith("tenure/")


def test_headers_and_body_leave_in_one_write(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = socket.socket.sendall

    def sendall(self: socket.socket, data: bytes, *rest: int) -> None:
        if self.getpeername()[1] == web.port:
            writes.append(bytes(data))
        real(self, data, *rest)

    monkeypatch.setattr(socket.socket, "sendall", sendall)
    assert answer(web, Reply(204)) == Delivered()
    [whole] = writes
    assert whole.startswith(b"POST /events HTTP/1.1\r\n")
    assert whole.endswith(b"\r\n\r\n" + EVENT)


def test_one_connection_serves_a_round(ledger: Ledger, web: Web) -> None:
    tell(ledger, *(f"a{number}" for number in range(20)))
    web.script = lambda _: Reply(200, {}, b"thanks")
    man = courier(ledger, receiver(to=http(web.port)))
    man.turn(NOW)
    assert (len(web.heard), web.connections) == (20, 1)


def test_a_connection_that_was_closed_in_between_is_made_anew_without_a_failure(ledger: Ledger) -> None:
    """Servers drop idle connections whenever they like."""
    with raw(lambda _: b"HTTP/1.1 204 No Content\r\n\r\n") as (port, asked):
        tell(ledger, "a1", "a2", "a3")
        man = courier(ledger, receiver(to=http(port)))
        man.turn(NOW)
        assert len(asked) == 3
    assert man.progress.sent == 3
    assert man.progress.fails == 0


def test_header_values_come_from_variables_and_files_and_are_read_anew(web: Web, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("first\n")
    environ = {"TOKEN": "abc"}
    headers = (
        Header(name="Authorization", prefix="Bearer ", file=secret),
        Header(name="X-Key", prefix="", env="TOKEN"),
        Header(name="X-Team", prefix="", value="rai"),
    )
    sink = HttpSink(http(web.port, *headers), environ=environ)
    assert sink.send([EVENT]) == Delivered()
    secret.write_text("second")
    environ["TOKEN"] = "def"
    assert sink.send([EVENT]) == Delivered()
    sink.rest()
    sent = [(one["Authorization"], one["X-Key"], one["X-Team"]) for one in web.requests]
    assert sent == [("Bearer first", "abc", "rai"), ("Bearer second", "def", "rai")]


@pytest.mark.parametrize("value", ["", "a\r\nX-Evil: 1", "h\x00", "\u00e9"])
def test_a_value_that_cannot_be_a_header_is_kept_back_and_never_shown(web: Web, value: str) -> None:
    sink = HttpSink(http(web.port, Header(name="Authorization", prefix="", env="TOKEN")), environ={"TOKEN": value})
    found = sink.send([EVENT])
    assert found == Away(why="header Authorization: its value is empty, or not printable ASCII")
    assert web.heard == []


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (Header(name="X-A", prefix="", env="NOT_THERE"), "header X-A: the variable NOT_THERE is not set"),
        (
            Header(name="X-A", prefix="", file=Path("not-there")),
            "header X-A: its file cannot be read: no such file or directory",
        ),
    ],
)
def test_a_header_whose_source_is_missing_waits_for_it(web: Web, header: Header, why: str) -> None:
    assert HttpSink(http(web.port, header), environ={}).send([EVENT]) == Away(why=why)


# --- what answers mean ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_success_is_delivery(web: Web, status: int) -> None:
    assert answer(web, Reply(status)) == Delivered()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422])
def test_a_refusal_is_about_the_event_and_counts(web: Web, status: int) -> None:
    assert answer(web, Reply(status)) == Declined(why=f"answered {status}", final=True)


@pytest.mark.parametrize("status", [500, 501, 507])
def test_an_error_of_the_receiver_is_about_the_event_and_does_not_count(web: Web, status: int) -> None:
    assert answer(web, Reply(status)) == Declined(why=f"answered {status}", final=False)


@pytest.mark.parametrize("status", [408, 425, 429, 502, 503, 504])
def test_an_answer_about_the_receiver_makes_everything_wait(web: Web, status: int) -> None:
    assert answer(web, Reply(status)) == Away(why=f"answered {status}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(web: Web, status: int) -> None:
    with Web() as elsewhere:
        found = answer(web, Reply(status, {"Location": f"http://127.0.0.1:{elsewhere.port}/"}))
        assert elsewhere.heard == []
    assert found == Away(why=f"answered {status}: redirects are not followed, correct its url")


def test_retry_after_is_read_as_seconds_or_as_a_date(web: Web) -> None:
    assert answer(web, Reply(429, {"Retry-After": "120"})).retry_after == 120 * SECOND
    assert answer(web, Reply(422, {"Retry-After": "7"})).retry_after == 7 * SECOND
    assert answer(web, Reply(503, {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"})).retry_after == 24 * 60 * MINUTE
    assert answer(web, Reply(503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"})).retry_after == 0
    for nonsense in ("soon", "-5", "9" * 4000, "1.5", ""):
        assert 0 <= answer(web, Reply(503, {"Retry-After": nonsense})).retry_after <= 24 * 60 * MINUTE


def test_nobody_listens(web: Web) -> None:
    port = web.port
    web.close()
    assert HttpSink(http(port), environ={}).send([EVENT]) == Away(why="127.0.0.1: connection refused")


@pytest.mark.parametrize("host", ["hooks..example.com", f"{'a' * 64}.example.com"])
def test_regression_a_host_name_that_no_resolver_can_be_asked_for_makes_it_wait(host: str) -> None:
    """The library raises neither an OSError nor one of its own: the receiver's thread ended."""
    to = replace(http(1), host=host)
    assert HttpSink(to, environ={}).send([EVENT]) == Away(why=f"{host}: its host name cannot be resolved")


def test_a_host_name_that_is_none() -> None:
    to = replace(http(80), host="nowhere.invalid")
    assert HttpSink(to, environ={}).send([EVENT]) == Away(why="nowhere.invalid: its host name cannot be resolved")


# --- what a bad receiver cannot do ------------------------------------------------------------------------------


@contextmanager
def raw(reply: Any) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each connection with bytes (or does as the function does with it), then hangs up."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = Event()

        def serve() -> None:
            server.settimeout(0.05)
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(PATIENT)
                    asked.append(connection.recv(65536))
                    try:
                        out = reply(connection)
                        if out:
                            connection.sendall(out)
                    except OSError:
                        pass  # the other side had enough: that is what some of the tests are about

        thread = Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], asked
        finally:
            done.set()
            thread.join(PATIENT)


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (b"", "closed the connection without an answer"),
        (b"220 mail.example.com ESMTP\r\n", "what it answered is not HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "what it answered is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 1000 + b"\r\n", "what it answered is not HTTP"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, "what it answered is not HTTP"),
    ],
)
def test_an_answer_that_is_none_makes_it_wait(out: bytes, why: str) -> None:
    with raw(lambda _: out) as (port, _):
        assert HttpSink(http(port), environ={}).send([EVENT]) == Away(why=f"127.0.0.1: {why}")


def test_a_receiver_that_says_nothing_runs_into_the_timeout() -> None:
    hold = Event()
    with raw(lambda _: hold.wait(PATIENT) and b"") as (port, _):
        found = HttpSink(http(port, timeout=200_000), environ={}).send([EVENT])
        hold.set()
    assert found == Away(why="127.0.0.1: no answer within 200ms")


def test_an_answer_that_drips_has_one_deadline_for_all_of_it() -> None:
    """Each byte in time, and the whole never."""
    enough = Event()

    def drip(connection: socket.socket) -> bytes:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not enough.wait(0.05):
            connection.sendall(b"X")
        return b""

    with raw(drip) as (port, _):
        found = HttpSink(http(port, timeout=400_000), environ={}).send([EVENT])
        enough.set()
    assert found == Away(why="127.0.0.1: no answer within 400ms")


def test_an_endless_body_is_not_read() -> None:
    sent = 0

    def pour(connection: socket.socket) -> bytes:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)
            sent += 65536

    with raw(pour) as (port, _):
        sink = HttpSink(http(port), environ={})
        assert sink.send([EVENT]) == Delivered()
        sink.rest()
    assert sent < 64 * 1024 * 1024


def test_a_body_that_never_comes_does_not_undo_the_answer() -> None:
    hold = Event()

    def stall(connection: socket.socket) -> bytes:
        connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\n")
        hold.wait(PATIENT)
        return b""

    with raw(stall) as (port, _):
        found = HttpSink(http(port, timeout=3_000_000), environ={}).send([EVENT])  # for the head to come, in any case
        hold.set()
    assert found == Delivered()


def test_what_is_said_about_a_receiver_holds_no_secret(ledger: Ledger) -> None:
    tell(ledger, "a1")
    said: list[str] = []
    with raw(lambda _: b"HTTP/1.1 401 hunter2 s3cret\r\nContent-Length: 0\r\n\r\n") as (port, asked):
        to = http(port, Header(name="Authorization", prefix="Bearer ", env="TOKEN"), target="/s3cret?key=hunter2")
        sink = HttpSink(to, environ={"TOKEN": "t0ps3cret"})
        man = Courier(receiver(to=to), Outbox(ledger), sink, report=said.append)
        now = rounds(man, now=NOW, until=NOW + MINUTE)
        assert b"t0ps3cret" in asked[0]
    tell(ledger, "a2")
    rounds(man, now=now, until=now + MINUTE)  # and now nobody listens
    shown = repr(said) + repr(Outbox(ledger).states()) + repr(Outbox(ledger).dead_letters("hook", limit=9))
    assert "answered 401" in shown
    assert "connection refused" in shown
    assert not [word for word in ("s3cret", "hunter2") if word in shown]


# --- TLS --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    return cert, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")
def test_a_certificate_must_be_trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with Web() as web:
        web._server.socket = context.wrap_socket(web._server.socket, server_side=True)
        to = replace(http(web.port), secure=True)
        stranger = HttpSink(to, environ={}).send([EVENT])
        assert isinstance(stranger, Away)
        assert stranger.why.startswith("127.0.0.1: its certificate is not trusted: ")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        friend = HttpSink(to, environ={})
        assert friend.send([EVENT]) == Delivered()
        friend.rest()
        assert len(web.heard) == 1
