"""OpenTelemetry: one span for each entry, where its variables say, and never in the way."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tenure.facts import Noted, encode_entry, entry_hash
from tenure.ledger import Ledger
from tenure.observe.otel import Traces
from tenure.testing import Fleet, budget, nodes, run
from tests.cli.support import call, create, finish, run_yaml, spawn, submit


def spans(fleet: Fleet) -> list[ReadableSpan]:
    kept = InMemorySpanExporter()
    traces = Traces(kept, clock=lambda: (fleet.now + 5) * 1000)
    for entry in fleet.entries:
        traces.saw(entry, hash=entry_hash(encode_entry(entry)))
    traces.close()
    return list(kept.get_finished_spans())


def test_each_entry_is_a_span_with_its_ids_and_each_note_an_event() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.apply(run("y", 8, owner="org:a"))
    found = spans(fleet)
    assert [one.attributes["tenure.entry"] for one in found if one.attributes] == [one.seq for one in fleet.entries]
    for span, entry in zip(found, fleet.entries, strict=True):
        assert span.attributes is not None
        assert span.attributes["tenure.hash"] == entry_hash(encode_entry(entry))
        assert span.attributes["tenure.cause"] == entry.cause
        assert (span.start_time, span.end_time) == (entry.at * 1000, (fleet.now + 5) * 1000)
        notes = [fact.kind for fact in entry.facts if isinstance(fact, Noted)]
        assert [event.name for event in span.events] == notes
    [start] = [event for span in found for event in span.events if event.name == "Admitted"]
    assert start.attributes is not None
    assert start.attributes["tenure.run"] == "lab/x"
    assert start.attributes["tenure.reason"] == "Admitted"
    assert start.attributes["tenure.plan.payers"] == ("a main 8 owned",)


def test_a_run_that_fails_is_an_error() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.fail("lab/x")
    fleet.leave("lab/x")
    states = [span.status.status_code for span in spans(fleet)]
    assert states.count(StatusCode.ERROR) == 1


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector on this machine, and what it was sent."""
    heard: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    server.server_close()
    thread.join()


def test_up_sends_every_entry_to_the_collector_that_is_named(
    tmp_path: Path, collector: tuple[str, list[ExportTraceServiceRequest]]
) -> None:
    address, heard = collector
    fleet = create(tmp_path)
    assert submit(fleet, run_yaml("a", 8, "true")).code in (0, 3)
    with Ledger.open(fleet, readonly=True) as ledger:
        before = ledger.head.seq
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle", "--otel", env=env))
    assert (done.code, done.err) == (0, "")
    assert "Completed" in done.out, "people still get their lines"
    with Ledger.open(fleet, readonly=True) as ledger:
        seqs = [entry.seq for entry in ledger.entries(after=before)]
    sent = [
        (resource, {one.key: one.value for one in span.attributes})
        for request in heard
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert [attributes["tenure.entry"].int_value for _, attributes in sent] == seqs
    names = {one.value.string_value for resource, _ in sent for one in resource.resource.attributes
             if one.key == "service.name"}  # fmt: skip
    assert names == {"tenure"}


def test_a_collector_that_is_away_holds_up_nothing(tmp_path: Path) -> None:
    fleet = create(tmp_path)
    assert submit(fleet, run_yaml("a", 8, "true")).code in (0, 3)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle", "--otel", env=env))
    assert done.code == 0
    assert "Completed" in done.out


def test_without_the_extra_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = create(tmp_path)
    monkeypatch.delitem(sys.modules, "tenure.observe.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    done = call("tenure", "up", str(fleet), "--until-idle", "--otel")
    assert done.code == 2
    assert "pip install '.[otel]' in a clone of Tenure" in done.err
