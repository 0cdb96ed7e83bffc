"""`budgets`: what was granted, and what is used, lent, committed and left; now or at any instant of the past."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import click

from tenure.api.budget import AggregateCap, AggregateHeadroom, Budget, Envelope, Headroom
from tenure.api.meta import to_wire
from tenure.cli.exits import Exit
from tenure.cli.lookup import view_at
from tenure.cli.output import Cell, Format, Table, columns, listing, section, show
from tenure.cli.port import Fleet
from tenure.cli.promised import odds
from tenure.cli.runs.lent import lent
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import say
from tenure.cli.times import MOMENT
from tenure.cli.trouble import Trouble
from tenure.cli.words import age, gpu_hours, hours, moment, stamp
from tenure.ledger import UsageKey
from tenure.units import HOUR, GpuMicros, Instant, format_time, parse_time

BY: tuple[str, ...] = get_args(UsageKey)
_HOURS = (">HOURS-USED", ">COMMITTED", ">LEFT", ">OF")


@click.group("budgets", short_help="Show budgets and what was used of them.")
def command() -> None:
    """Show budgets and what was used of them."""


@verb("list", "List budgets.")
@output()
def list_budgets(session: Session, output: Format) -> None:
    """List budgets: whose they are, and what was granted; one that was deleted, as long as it still pays.

    JSON: a List of the Budget objects that there are, whole. Names: the budgets.
    """
    with session.fleet() as fleet:
        view = fleet.view()
        budgets = view.budgets()
    heads = columns("NAME", "OWNER", ">ENVELOPES", ">GPUS", ">CAPS", ">AGE", "PARENTS")
    rows = [_budget_row(item, view.now) for item in budgets]
    show(
        output,
        tables=lambda: [Table(heads, rows, "no budgets: nobody can pay for anything yet")],
        data=lambda: listing(to_wire(item) for item in budgets if item.spec.envelopes),
        names=lambda: (item.metadata.name for item in budgets),
        hint=session.command("budgets", "usage") if budgets else session.command("submit", "-f", "budgets.yaml"),
    )


def _budget_row(item: Budget, now: Instant) -> list[Cell]:
    spec, born = item.spec, item.metadata.creation_timestamp
    gpus = sum(envelope.concurrency for envelope in spec.envelopes)
    return [
        item.metadata.name, spec.owner, str(len(spec.envelopes)), str(gpus), str(len(spec.aggregate_caps)),
        age(parse_time(born) if born else None, now), ", ".join(spec.parents),
    ]  # fmt: skip


@verb("usage", "Show what is used, lent, committed and left.")
@click.argument("budget", required=False, metavar="[BUDGET]")
@click.option(
    "--owner", metavar="OWNER", help="Only budgets of this owner and below; with --by, only runs of this owner."
)
@click.option("--at", type=MOMENT, metavar="TIME", help="As it was at this instant.")
@click.option("--by", type=click.Choice(BY), help="GPU-hours of a period instead, summed by this.")
@click.option("--since", type=MOMENT, metavar="TIME", help="With --by: from then on; from the beginning if left out.")
@click.option("--until", type=MOMENT, metavar="TIME", help="With --by: up to then; up to now if left out.")
@output()
def usage(
    session: Session, output: Format, budget: str | None, owner: str | None, at: Instant | None, by: UsageKey | None,
    since: Instant | None, until: Instant | None,
) -> None:  # fmt: skip
    """Show what is used, lent, committed and left of every envelope; or, with --by, GPU-hours of a period.

    LIMIT, USED, FREE, SPARE and LENT are GPUs. Then GPU-hours in the window in force: used, COMMITTED (what running
    claims with a declared duration may still use) and LEFT of the limit. EXHAUSTS says when hours or window run out
    at the present rate. What is announced to run short is listed with the odds of the runs that may be cut then.

    \b
    kubectl runs budgets usage --at 2025-11-01T12:00:00Z  # as it was then, under the limits of then
    kubectl runs budgets usage --by owner --since 2025-11-01  # who spent what this month
    kubectl runs budgets usage rai --by day --since 30d

    TIME is 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (that long ago).

    JSON: {"at", "envelopes": [...], "caps": [...], "foreseen": [...]}; with --by {"by", "since", "until", "usage":
    [{"key", "gpuMicroseconds", "gpuHours", "spareGPUHours"}]}. Names: BUDGET/ENVELOPE, or the keys.
    """
    with session.fleet() as fleet:
        if by is not None:
            if at is not None:
                raise Trouble("--at and --by exclude each other", next_step="a period has --since and --until")
            _Period(session, fleet, by, budget, owner, since, until).show(output)
            return
        if since is not None or until is not None:
            raise Trouble("--since and --until need --by", next_step="add --by owner, or use --at")
        _show_instant(session, output, fleet, budget, owner, at)


for _verb in (list_budgets, usage, lent):
    command.add_command(_verb)


# --- at an instant --------------------------------------------------------------------------------------------------


def _show_instant(
    session: Session, output: Format, fleet: Fleet, budget: str | None, owner: str | None, at: Instant | None
) -> None:
    view = view_at(fleet, at)
    budgets = [
        item
        for item in view.budgets()
        if budget in (None, item.metadata.name) and (owner is None or f"{item.spec.owner}:".startswith(f"{owner}:"))
    ]
    if budget is not None and not budgets:
        step = session.command("budgets", "list")
        raise Trouble(f"Budget/{budget} does not exist", next_step=step, exit=Exit.NOT_FOUND)
    show(
        output,
        tables=lambda: _instant_parts(budgets, view.now, past=at is not None),
        data=lambda: {"at": format_time(view.now), "envelopes": [_envelope_record(*one) for one in _envelopes(budgets)],
                      "caps": [_cap_record(*one) for one in _caps(budgets)],
                      "foreseen": [{"budget": item.metadata.name, **to_wire(one)}
                                   for item in budgets for one in item.status.foreseen]},
        names=lambda: (f"{item.metadata.name}/{room.name}" for item, _, room in _envelopes(budgets)),
        hint=session.command("budgets", "usage", "--by", "owner"),
    )  # fmt: skip


def _envelopes(budgets: list[Budget]) -> Iterator[tuple[Budget, Envelope | None, Headroom]]:
    """Envelopes with their headroom; one that was taken out of its Budget shows as long as it pays for something."""
    for item in budgets:
        granted = {envelope.name: envelope for envelope in item.spec.envelopes}
        for room in item.status.headroom:
            yield item, granted.get(room.name), room


def _caps(budgets: list[Budget]) -> Iterator[tuple[Budget, AggregateCap, AggregateHeadroom]]:
    for item in budgets:
        for cap, room in zip(item.spec.aggregate_caps, item.status.aggregate_headroom, strict=True):
            yield item, cap, room


def _instant_parts(budgets: list[Budget], now: Instant, *, past: bool) -> Iterator[Table | str]:
    if past:
        yield f"As of {stamp(now)}, under the limits in force then:"
    heads = ("ENVELOPE", "+OWNER", "+TYPE", ">LIMIT", ">USED", ">FREE", ">SPARE", ">LENT", *_HOURS, "EXHAUSTS")
    yield Table(columns(*heads), [_envelope_row(*one, now) for one in _envelopes(budgets)], "no budgets")
    caps = [_cap_row(*one) for one in _caps(budgets)]
    if caps:
        yield section("Aggregate caps")
        over = ("CAP", "+OWNER", "+TYPE", ">LIMIT", ">USED", ">FREE", *_HOURS, "OVER")
        yield Table(columns(*over), caps)
    short = [[f"{item.metadata.name}/{one.name}", moment(parse_time(one.at), now), str(one.short_gpus),
              odds(one.cut_probabilities) or "-"] for item in budgets for one in item.status.foreseen]  # fmt: skip
    if short:
        yield section("Running short")
        rows: list[list[Cell]] = [[*row] for row in short]
        yield Table(columns("ENVELOPE", "AT", ">GPUS", "MAY BE CUT"), rows)
    for item in budgets:
        for condition in item.status.conditions:
            yield f"{item.metadata.name}: {condition.message}"


def _envelope_row(item: Budget, envelope: Envelope | None, room: Headroom, now: Instant) -> list[Cell]:
    ends = moment(parse_time(room.exhausts_at), now) if room.exhausts_at else "-"
    return [
        f"{item.metadata.name}/{room.name}", item.spec.owner, room.flavor, str(room.concurrency + room.used),
        str(room.used), (str(room.concurrency), "bad" if room.concurrency <= 0 else ""), str(room.spare),
        str(room.lent), hours(room.used_gpu_hours), hours(room.committed_gpu_hours), _hours(room.gpu_hours),
        _limit(envelope.max_gpu_hours if envelope else 0), ends,
    ]  # fmt: skip


def _cap_row(item: Budget, cap: AggregateCap, room: AggregateHeadroom) -> list[Cell]:
    return [
        f"{item.metadata.name}/{cap.name}", item.spec.owner, cap.flavor, _limit(cap.max_concurrency), str(room.used),
        _limit(room.concurrency), hours(room.used_gpu_hours), hours(room.committed_gpu_hours), _hours(room.gpu_hours),
        _limit(cap.max_gpu_hours), ", ".join(cap.envelopes),
    ]  # fmt: skip


def _limit(value: int | None) -> str:
    return "-" if value is None else str(value)


def _hours(value: float | None) -> str:
    return "-" if value is None else hours(value)


def _envelope_record(item: Budget, envelope: Envelope | None, room: Headroom) -> dict[str, Any]:
    hours_limit = envelope.max_gpu_hours if envelope else 0
    limits = {"concurrencyLimit": room.concurrency + room.used, "gpuHoursLimit": hours_limit}
    return {"budget": item.metadata.name, "owner": item.spec.owner, **limits, **to_wire(room)}


def _cap_record(item: Budget, cap: AggregateCap, room: AggregateHeadroom) -> dict[str, Any]:
    limits = {
        "concurrencyLimit": cap.max_concurrency,
        "gpuHoursLimit": cap.max_gpu_hours,
        "envelopes": list(cap.envelopes),
    }
    return {"budget": item.metadata.name, "owner": item.spec.owner, **limits, **to_wire(room)}


# --- over a period --------------------------------------------------------------------------------------------------


class _Period:
    """GPU-hours used in ``[since, until)``, from the leases."""

    def __init__(
        self, session: Session, fleet: Fleet, by: UsageKey, budget: str | None, owner: str | None,
        since: Instant | None, until: Instant | None,
    ) -> None:  # fmt: skip
        now = fleet.view().now
        self.session, self.by = session, by
        self.since, self.until = since or 0, now if until is None else until
        if self.since >= self.until:
            raise Trouble(f"--since {stamp(since)} is not before --until {stamp(self.until)}", next_step="swap them")
        if self.until > now:
            say(f"{stamp(self.until)} is in the future; open leases are counted as if they went on until then")
        self.used = fleet.usage(by=by, since=self.since, until=self.until, budget=budget, owner=owner)
        self.spare = fleet.usage(by=by, since=self.since, until=self.until, budget=budget, owner=owner, role="Spare")

    def show(self, output: Format) -> None:
        show(
            output,
            tables=self._parts,
            data=lambda: {"by": self.by, "since": format_time(self.since), "until": format_time(self.until),
                          "usage": [self._record(key, used) for key, used in self.used.items()]},
            names=lambda: self.used,
            hint=self.session.command("leases", "--since", stamp(self.since)[:10]),
        )  # fmt: skip

    def _parts(self) -> Iterator[Table | str]:
        since = stamp(self.since) if self.since else "the beginning"
        yield f"GPU-hours by {self.by}, from {since} to {stamp(self.until)}:"
        total = sum(self.used.values())
        rows: list[list[Cell]] = [
            [key, gpu_hours(used), gpu_hours(self.spare.get(key, 0)), f"{100 * used // total}%"]
            for key, used in self.used.items()
        ]
        if len(rows) > 1:
            rows.append([("TOTAL", "strong"), gpu_hours(total), gpu_hours(sum(self.spare.values())), "100%"])
        yield Table(
            columns(self.by.upper(), ">GPU-HOURS", ">SPARE-HOURS", ">SHARE"), rows, "nothing was used in this period"
        )

    def _record(self, key: str, used: GpuMicros) -> dict[str, Any]:
        spare = self.spare.get(key, 0)
        return {"key": key, "gpuMicroseconds": used, "gpuHours": used / HOUR, "spareGPUHours": spare / HOUR}
