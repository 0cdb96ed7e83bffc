"""`--log-format` and `--otel`: how what was committed, and what is said beside it, reaches whoever reads it.

On a console an event is a line for people. As JSON everything is a record of one line: decisions on standard output,
troubles on standard error, and what libraries log beside them. Traces go out whatever the format.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from tenure.cli import events, terminal
from tenure.cli.trouble import Trouble
from tenure.cli.words import safe
from tenure.facts import Entry, Noted
from tenure.observe import log

if TYPE_CHECKING:
    from tenure.observe.otel import Traces

Format = Literal["console", "json"]
LOG_FORMAT = "TENURE_LOG_FORMAT"
F = TypeVar("F", bound=Callable[..., Any])


def log_options(default: str) -> Callable[[F], F]:
    """The options of both commands; ``default`` is said in the help."""

    def added(command: F) -> F:
        command = click.option(
            "--otel", is_flag=True,
            help="Send a span for each decision, by OpenTelemetry and its own variables (OTEL_EXPORTER_OTLP_ENDPOINT).",
        )(command)  # fmt: skip
        return click.option(
            "--log-format", "log_format", type=click.Choice(["console", "json"]), envvar=LOG_FORMAT,
            help=f"Lines for people, or one JSON record a line. Left out: {default}.",
        )(command)  # fmt: skip

    return added


class Logged:
    """Where a command's words go."""

    def __init__(self, form: Format, traces: Traces | None = None) -> None:
        self.form = form
        self._traces = traces

    @property
    def wants_entries(self) -> bool:
        """Whether notes alone are not enough."""
        return self.form == "json" or self._traces is not None

    def entry(self, entry: Entry, *, hash: str) -> None:  # noqa: A002 -- the field's name
        """An entry counts: tell it."""
        if self.form == "json":
            put(*map(log.line, log.records(entry, hash=hash)))
        else:
            notes = (fact for fact in entry.facts if isinstance(fact, Noted))
            put(*(events.line(entry.at, note.kind, note.object, note.message) for note in notes))
        if self._traces is not None:
            self._traces.saw(entry, hash=hash)

    def put(self, text: str) -> None:
        """A word about the process itself, on standard output."""
        put(log.line(log.said(text, at=_now())) if self.form == "json" else text)

    def say(self, text: str, *, level: str = "info") -> None:
        """A remark, on standard error; it may have several lines."""
        if self.form == "json":
            print(log.line(log.said(text, at=_now(), level=level)), file=sys.stderr, flush=True)
        else:
            terminal.say(text)

    def warn(self, text: str) -> None:
        """The same of a trouble."""
        self.say(text, level="warning")

    def report(self, text: str) -> None:
        """The same where it may hold words of others: one line, whatever is in it."""
        self.warn(text if self.form == "json" else safe(text))


@contextmanager
def logged(form: Format, *, otel: bool = False) -> Iterator[Logged]:
    """Tell in one format meanwhile; what libraries log takes the same shape."""
    traces = _traces() if otel else None
    told = Logged(form, traces)
    handler = _Handler(told)
    root = logging.getLogger()
    if form == "json":
        root.addHandler(handler)
    try:
        yield told
    finally:
        root.removeHandler(handler)
        if traces is not None:
            traces.close()


class _Handler(logging.Handler):
    """Records of the standard library's loggers, from warnings on, as records of ours."""

    def __init__(self, told: Logged) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        level = "error" if record.levelno >= logging.ERROR else "warning"
        found = log.said(text, at=_now(), level=level, event="Logged") | {"logger": record.name}
        print(log.line(found), file=sys.stderr, flush=True)


def _traces() -> Traces:
    try:
        from tenure.observe.otel import Traces  # only where somebody wants spans
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        step = "pip install '.[otel]' in a clone of Tenure, or leave --otel out"
        raise Trouble("--otel needs OpenTelemetry's SDK, which is not installed", next_step=step) from error
    return Traces()


def put(*lines: str) -> None:
    """Print at once. If nobody listens any more, that is no reason to stop the fleet."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except OSError:  # the reader went away, or the disk is full: driving goes on
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- for the rest of this process


def _now() -> int:
    return time.time_ns() // 1000
