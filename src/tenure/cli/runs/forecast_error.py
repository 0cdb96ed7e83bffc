"""`forecast-error`: how good the promised starts were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tenure.cli.output import Cell, Format, Table, columns, section, show
from tenure.cli.session import Session, output, verb
from tenure.cli.times import MOMENT
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, span, stamp
from tenure.ledger import PromiseRow
from tenure.shell.forecasts import Errors, Measured, measure
from tenure.units import SECOND, Instant, Micros, format_time

_BASES = {"promise": "first promise", "plan": "last plan", "bound": "bound"}


@verb("forecast-error", "Say how good the promised starts were.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Only runs that started at or after this instant.")
@click.option("--until", type=MOMENT, metavar="TIME", help="Only runs that started before this instant.")
@click.option("--worst", type=click.IntRange(min=0), default=5, show_default=True, help="How many examples to list.")
@output("table", "json", "yaml", "name")
def command(session: Session, output: Format, since: Instant | None, until: Instant | None, worst: int) -> None:
    """Say how good the promised starts were: for every run that started out of a reservation, when it was first
    promised to start, when it was planned to in the end, by when it was promised then (the bound), and when it did.

    A start after its bound broke a promise; half a minute is let pass. How often estimates held is not told here: they
    are made when somebody looks, and are kept nowhere.

    An error is the real start less the promised one: +10m is ten minutes late, -10m ten minutes early. OFF-BY is the
    mean of the errors without their signs.

    TIME is 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (that long ago).

    JSON: {"since", "until", "starts", "promise": {CONFIDENCE: {"count", "meanSeconds", "meanAbsoluteSeconds",
    "p50Seconds", "p90Seconds", "maxSeconds"}}, "plan": {...}, "bound": {...}, "kept", "worst": [...]}, where
    CONFIDENCE is one of a Reservation's, or "all". Names: the runs listed as worst.
    """
    with session.fleet() as fleet:
        end = fleet.view().now + 1 if until is None else until
        begin = 0 if since is None else since
        if begin >= end:
            raise Trouble(f"--since {stamp(begin)} is not before --until {stamp(end)}", next_step="swap them")
        rows = fleet.promises(since=begin, until=end)
    told = measure(rows, worst=worst)
    show(
        output,
        tables=lambda: _parts(told),
        data=lambda: _record(told, len(rows), since, until),
        names=lambda: (f"{row.namespace}/{row.run}" for row in told.worst),
        hint=session.about("story", told.worst[0].namespace, told.worst[0].run) if told.worst else "",
    )


def _parts(told: Measured) -> Iterator[Table | str]:
    rows: list[list[Cell]] = [
        [basis.replace(" ", "-"), confidence, str(one.count), _signed(one.mean), span(one.mean_absolute),
         _signed(one.p50), _signed(one.p90), _signed(one.max)]
        for name, basis in _BASES.items()
        for confidence, one in getattr(told, name).items()
    ]  # fmt: skip
    heads = columns("AGAINST", "CONFIDENCE", ">STARTS", ">MEAN", ">OFF-BY", ">P50", ">P90", ">MAX")
    yield Table(heads, rows, "no run with a planned start has started in this time")
    if bounds := told.bound.get("all"):
        yield f"{told.kept} of {plural(bounds.count, 'start')} came by the bound that was promised"
    if told.worst:
        yield section("Furthest off")
        yield Table(
            columns("RUN", "RESERVATION", "CONFIDENCE", "PROMISED", "PLANNED", "STARTED", ">ERROR"),
            [
                [f"{row.namespace}/{row.run}", row.name, row.confidence, stamp(row.promised), stamp(row.planned),
                 stamp(row.started), _signed(row.started - (row.promised or 0))]
                for row in told.worst
            ],
        )  # fmt: skip


def _signed(error: Micros) -> str:
    """
    >>> _signed(600 * SECOND), _signed(-90 * SECOND), _signed(0)
    ('+10m', '-1m30s', '0s')
    """
    return span(error) if abs(error) < SECOND else f"{'+' if error > 0 else '-'}{span(error)}"


def _record(told: Measured, starts: int, since: Instant | None, until: Instant | None) -> dict[str, Any]:
    return {
        "since": None if since is None else format_time(since),
        "until": None if until is None else format_time(until),
        "starts": starts,
        **{name: {key: _numbers(one) for key, one in getattr(told, name).items()} for name in _BASES},
        "kept": told.kept,
        "worst": [_example(row) for row in told.worst],
    }


def _numbers(one: Errors) -> dict[str, float]:
    return {
        "count": one.count, "meanSeconds": one.mean / SECOND, "meanAbsoluteSeconds": one.mean_absolute / SECOND,
        "p50Seconds": one.p50 / SECOND, "p90Seconds": one.p90 / SECOND, "maxSeconds": one.max / SECOND,
    }  # fmt: skip


def _example(row: PromiseRow) -> dict[str, Any]:
    return {
        "run": f"{row.namespace}/{row.run}", "reservation": row.name, "confidence": row.confidence,
        "promised": None if row.promised is None else format_time(row.promised),
        "planned": None if row.planned is None else format_time(row.planned),
        "promisedBy": None if row.bound is None else format_time(row.bound),
        "started": format_time(row.started), "errorSeconds": (row.started - (row.promised or 0)) / SECOND,
    }  # fmt: skip
