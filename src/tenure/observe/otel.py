"""OpenTelemetry: a span for each decision, with an event for each thing it tells. The only module that imports it.

A span begins when an entry was decided and ends when it was taken in here; its attributes are the entry's ids, its
events the same records that logs are made of. Where spans go and what the service is called is set by the variables of
OpenTelemetry itself (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``, ...). They are sent by a thread of the
SDK; a collector that is away costs spans, and never holds up a decision.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode

from tenure import __version__
from tenure.facts import Entry
from tenure.observe.log import Record, records

FLUSH_MILLIS = 2000
"""How long the end of a process waits for its last spans."""


class Traces:
    """Sends spans until it is closed."""

    def __init__(self, exporter: SpanExporter | None = None, *, clock: Callable[[], int] = time.time_ns) -> None:
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "tenure"}
        resource = Resource.create({**named, "service.version": __version__})
        self._clock = clock
        self._processor = BatchSpanProcessor(exporter or OTLPSpanExporter())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("tenure", __version__)

    def saw(self, entry: Entry, *, hash: str) -> None:  # noqa: A002 -- the field's name
        """An entry counts."""
        began = entry.at * 1000
        span = self._tracer.start_span(
            entry.cause.split(" ", 1)[0] or "decision",
            kind=SpanKind.INTERNAL,
            start_time=began,
            attributes={
                "tenure.entry": entry.seq,
                "tenure.hash": hash,
                "tenure.cause": entry.cause,
                "tenure.decided": entry.decided,
                "tenure.facts": len(entry.facts),
            },
        )
        for record in records(entry, hash=hash):
            if record["event"] != "Entry":
                span.add_event(record["event"], dict(_attributes(record)), timestamp=began)
                if record["event"] == "Failed":
                    span.set_status(Status(StatusCode.ERROR, record.get("message", "")))
        span.end(max(began, self._clock()))

    def close(self) -> None:
        """Send what is left, as far as a moment allows."""
        self._processor.force_flush(FLUSH_MILLIS)


def _attributes(record: Record, prefix: str = "tenure") -> Iterator[tuple[str, str | int | list[str]]]:
    """What a record has beyond its entry's ids, flat: attributes know no nesting."""
    for name, value in record.items():
        key = f"{prefix}.{name}"
        if name in ("time", "event", "entry", "hash", "cause"):
            continue
        if isinstance(value, dict):
            yield from _attributes(value, key)
        elif isinstance(value, list):
            yield key, [_flat(one) for one in value]
        else:
            yield key, value


def _flat(value: object) -> str:
    return " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)
