"""`chargeback`: what everybody has to pay for a period, exact, for people, spreadsheets and FinOps tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import click

from tenure.cli.bill import GRAINS, HEADER, PRICED, Grain, Line, Prices, check_prices, lines, read_prices, total_cost
from tenure.cli.output import Cell, Column, Table, columns, show
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import say
from tenure.cli.times import MOMENT, month
from tenure.cli.trouble import Trouble
from tenure.cli.words import gpu_hours, percents, stamp
from tenure.ledger import Charge
from tenure.units import HOUR, Instant, format_time


@verb("chargeback", "Say what everybody has to pay for a period.")
@click.option("--since", type=MOMENT, metavar="TIME", help="From then on; from the first of that month if left out.")
@click.option("--until", type=MOMENT, metavar="TIME", help="Up to then; up to now if left out.")
@click.option(
    "--by", type=click.Choice(GRAINS), help="One line for each of these that an owner pays; owner if left out."
)
@click.option("--payer", metavar="OWNER", help="Only what this owner pays.")
@click.option("--price", "prices", multiple=True, metavar="FLAVOR=AMOUNT", help="Price of a GPU-hour; may be repeated.")
@click.option("--currency", default="USD", show_default=True, metavar="CODE", help="The currency of the prices.")
@click.option("--provider", default="Tenure", show_default=True, metavar="NAME", help="Who provides, with -o focus.")
@output("table", "wide", "csv", "focus", "json", "yaml", "name")
def command(
    session: Session, output: str, since: Instant | None, until: Instant | None, by: Grain | None, payer: str | None,
    prices: tuple[str, ...], currency: str, provider: str,
) -> None:  # fmt: skip
    """Say what everybody has to pay for a period: GPU-hours for each payer, from the leases, exact to the microsecond.

    OWN, FAMILY and LENT say whose runs the payer's money paid for: its own, its family's, or those of others. Spares
    count in full. With --price each line has its cost. Lines of --by day are cut at midnight UTC; lines of --by run
    name the run's owner and each payer by itself.

    \b
    kubectl runs chargeback --since 2025-11-01 --until 2025-12-01
    kubectl runs chargeback --by run --price H100-80GB=2.50 -o csv > november.csv
    kubectl runs chargeback --since 2025-11-01 --price H100-80GB=2.50 -o focus

    CSV: since, until, payer, budget, envelope, owner, run, uid, flavor, gpuMicroseconds, gpuHours,
    ownedGPUMicroseconds, sharedGPUMicroseconds, lentGPUMicroseconds, spareGPUMicroseconds, and with --price unitPrice,
    cost, currency; a cell is empty where the line is summed over it. A text that a spreadsheet would take for a formula
    has an apostrophe in front.

    focus: a CSV of FOCUS 1.2 columns, a row for each day, run, envelope, class and role.

    TIME is 2025-11-01T00:15:00Z, 2025-11-01, now, or 2h (that long ago).

    JSON: {"since", "until", "by", "gpuMicroseconds", "gpuHours", "lines": [{as in CSV}]}; with --price "cost" and
    "currency". Names: the payers, budgets, envelopes, runs or days.
    """
    priced = read_prices(prices, currency)
    if output == "focus" and by is not None:
        raise Trouble("-o focus has a grain of its own", next_step="leave --by out, or use -o csv")
    with session.fleet() as fleet:
        now = fleet.view().now
        first, last = _period(since, until, now)
        charges = fleet.charges(since=first, until=last, payer=payer)
    check_prices(priced, charges)
    if output == "focus":
        _print_focus(charges, first, last, provider, priced)
        return
    bill = _Bill(charges, by or "owner", first, last, priced)
    if output == "csv":
        bill.print_csv()
        return
    show(
        output,  # type: ignore[arg-type]  # one of the usual ones by now
        tables=bill.parts,
        data=bill.record,
        names=lambda: dict.fromkeys(bill.name(one) for one in bill.lines),
        hint=session.command("chargeback", "--since", stamp(first)[:10], "-o", "csv"),
    )


def _period(since: Instant | None, until: Instant | None, now: Instant) -> tuple[Instant, Instant]:
    """The period, as far as it has come: nobody is charged for what has not happened."""
    last = now if until is None else min(until, now)
    if until is not None and until > now:
        say(f"{stamp(until)} is in the future: this is what was used up to {stamp(now)}")
    first = month(last - 1)[0] if since is None else since  # until the first of a month is the month before
    if first >= last:
        raise Trouble(
            f"the period from {stamp(first)} to {stamp(last)} is empty", next_step="check --since and --until"
        )
    return first, last


def _print_focus(charges: list[Charge], since: Instant, until: Instant, provider: str, prices: Prices) -> None:
    from tenure.cli import sheet
    from tenure.cli.focus import Sheet

    dataset = Sheet(since=since, until=until, provider=provider, prices=prices)
    print(sheet.text(dataset.header(), map(dataset.row, charges)), end="")
    if not prices:
        say("without --price there are no costs, which FOCUS asks for: this is usage only")


class _Bill:
    """The lines of a period, and the ways to show them."""

    def __init__(self, charges: Iterable[Charge], by: Grain, since: Instant, until: Instant, prices: Prices) -> None:
        self.by, self.since, self.until, self.prices = by, since, until, prices
        self.lines = lines(charges, by, since=since, until=until)
        self.used = sum(one.used for one in self.lines)

    def name(self, line: Line) -> str:
        names = {
            "owner": line.payer, "budget": line.budget, "envelope": f"{line.budget}/{line.envelope}", "run": line.run,
            "day": stamp(line.since)[:10],
        }  # fmt: skip
        return names[self.by]

    def cost(self) -> Decimal:
        return total_cost(self.lines, self.prices)

    # -- for spreadsheets --

    def print_csv(self) -> None:
        from tenure.cli import sheet

        header = (*HEADER, *(PRICED if self.prices else ()))
        print(sheet.text(header, (one.cells(self.prices) for one in self.lines)), end="")

    # -- for programs --

    def record(self) -> dict[str, Any]:
        whole: dict[str, Any] = {
            "since": format_time(self.since), "until": format_time(self.until), "by": self.by,
            "gpuMicroseconds": self.used, "gpuHours": self.used / HOUR,
        }  # fmt: skip
        if self.prices:
            whole |= {"cost": format(self.cost(), "f"), "currency": self.prices.currency}
        return whole | {"lines": [one.record(self.prices) for one in self.lines]}

    # -- for people --

    def parts(self) -> Iterator[Table | str]:
        yield f"GPU-hours paid by each owner from {stamp(self.since)} to {stamp(self.until)}:"
        parts = percents([line.used for line in self.lines])
        rows = [self._row(line, part) for line, part in zip(self.lines, parts, strict=True)]
        yield Table(self._heads(), [*rows, *self._total()], "nothing was used in this period")

    def _heads(self) -> tuple[Column, ...]:
        about = {
            "owner": ["PAYER"], "budget": ["PAYER", "BUDGET"], "envelope": ["PAYER", "ENVELOPE"],
            "run": ["PAYER", "RUN", "OWNER"], "day": ["DAY", "PAYER"],
        }[self.by]  # fmt: skip
        sums = [">OWN", ">FAMILY", ">LENT", "+>SPARE", ">GPU-HOURS", ">SHARE"]
        return columns(*about, "TYPE", *sums, *([f">{self.prices.currency}"] if self.prices else []))

    def _about(self, line: Line) -> list[Cell]:
        if self.by == "owner":
            return [line.payer]
        if self.by == "day":
            return [self.name(line), line.payer]
        return [line.payer, self.name(line), *([line.owner] if self.by == "run" else [])]

    def _row(self, line: Line, part: str) -> list[Cell]:
        sums = [gpu_hours(one) for one in (line.owned, line.shared, line.lent, line.spare, line.used)]
        money = [_money(self.prices.cost(line.flavor, line.used))] if self.prices else []
        return [*self._about(line), line.flavor, *sums, part, *money]

    def _total(self) -> list[list[Cell]]:
        if len(self.lines) < 2:
            return []
        blank = ["-"] * (len(self._about(self.lines[0])))
        sums = [
            gpu_hours(sum(getattr(one, kind) for one in self.lines))
            for kind in ("owned", "shared", "lent", "spare", "used")
        ]
        money = [_money(self.cost())] if self.prices else []
        return [[("TOTAL", "strong"), *blank, *sums, "100%", *money]]


def _money(amount: Decimal) -> str:
    return f"{amount:.2f}"
