"""Bills: charges added up for whoever pays, at the grain that was asked for, with a price if there is one.

GPU-microseconds are the truth: integers, whose sum over the lines of any bill is the sum over the leases. GPU-hours are
written with ten digits behind the point, which is finer than a microsecond, so either can be had from the other. Hours
of different kinds of GPU are never added up in a line. A cost is GPU-hours x price, as written, not rounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from functools import reduce
from typing import Any, Literal, get_args

from msgspec import Struct

from tenure.cli.sheet import Value
from tenure.cli.trouble import Trouble
from tenure.ledger import Charge
from tenure.units import DAY, HOUR, GpuMicros, Instant, format_time

Grain = Literal["owner", "budget", "envelope", "run", "day"]
GRAINS: tuple[Grain, ...] = get_args(Grain)
_FIELDS: dict[Grain, tuple[str, ...]] = {
    "owner": ("payer",),
    "budget": ("payer", "budget"),
    "envelope": ("payer", "budget", "envelope"),
    "run": ("payer", "owner", "run_key", "uid"),
    "day": ("day", "payer"),
}
"""What tells the lines of a grain apart, besides the kind of GPU."""
_KINDS = {"owned": "owned", "shared": "shared", "borrowed": "lent"}
HEADER = (
    "since", "until", "payer", "budget", "envelope", "owner", "run", "uid", "flavor", "gpuMicroseconds", "gpuHours",
    "ownedGPUMicroseconds", "sharedGPUMicroseconds", "lentGPUMicroseconds", "spareGPUMicroseconds",
)  # fmt: skip
PRICED = ("unitPrice", "cost", "currency")
_PRICE = re.compile(r"(?P<flavor>.+)=(?P<amount>\d{1,12}(\.\d{1,10})?)", re.ASCII)
_EXACT = Context(prec=80)


class Prices(Struct, frozen=True, kw_only=True):
    """Prices of a GPU-hour, by flavor, in one currency; without any, a bill has hours only."""

    currency: str = ""
    of: dict[str, Decimal] = {}

    def __bool__(self) -> bool:
        return bool(self.of)

    def cost(self, flavor: str, used: GpuMicros) -> Decimal:
        return _plain(_EXACT.multiply(hours(used), self.of[flavor]))


def read_prices(texts: Sequence[str], currency: str) -> Prices:
    """Prices from ``FLAVOR=AMOUNT``."""
    if not re.fullmatch(r"[A-Z]{3}", currency, re.ASCII):
        raise Trouble(f"{currency[:20]!r} is no currency", next_step="write a code such as USD or EUR")
    found: dict[str, Decimal] = {}
    for text in texts:
        match = _PRICE.fullmatch(text)
        if match is None:
            raise Trouble(f"{text[:60]!r} is no price", next_step="write --price H100-80GB=2.50, per GPU-hour")
        if match["flavor"] in found:
            raise Trouble(f"{match['flavor']} has two prices", next_step="leave one out")
        found[match["flavor"]] = Decimal(match["amount"])
    return Prices(currency=currency, of=found)


def check_prices(prices: Prices, charges: Iterable[Charge]) -> None:
    """A bill with costs has a price for everything in it."""
    missing = sorted({one.flavor for one in charges} - set(prices.of)) if prices else []
    if missing:
        more = " ".join(f"--price {flavor}=..." for flavor in missing)
        raise Trouble(f"no price for {', '.join(missing)}", next_step=f"add {more}, or leave all prices out")


class Line(Struct, kw_only=True):
    """One line of a bill; what it is summed over is empty."""

    since: Instant
    until: Instant
    payer: str
    budget: str = ""
    envelope: str = ""
    owner: str = ""
    run: str = ""
    uid: str = ""
    flavor: str
    used: GpuMicros = 0
    owned: GpuMicros = 0
    shared: GpuMicros = 0
    lent: GpuMicros = 0
    spare: GpuMicros = 0

    def add(self, charge: Charge) -> None:
        kind = _KINDS[charge.funding]
        self.used += charge.used
        setattr(self, kind, getattr(self, kind) + charge.used)
        self.spare += charge.used if charge.role == "Spare" else 0

    def cells(self, prices: Prices) -> list[Value]:
        """The line under ``HEADER`` and, with prices, ``PRICED``."""
        cells: list[Value] = [
            format_time(self.since), format_time(self.until), self.payer, self.budget, self.envelope, self.owner,
            self.run, self.uid, self.flavor, self.used, hours(self.used), self.owned, self.shared, self.lent,
            self.spare,
        ]  # fmt: skip
        if prices:
            cells += [prices.of[self.flavor], prices.cost(self.flavor, self.used), prices.currency]
        return cells

    def record(self, prices: Prices) -> dict[str, Any]:
        """The same for programs: what is empty is left out, amounts of money are text."""
        named = zip((*HEADER, *(PRICED if prices else ())), self.cells(prices), strict=True)
        texts = ("unitPrice", "cost")
        found = {name: format(value, "f") if name in texts else value for name, value in named if value != ""}
        return found | {"gpuHours": self.used / HOUR}


def lines(charges: Iterable[Charge], by: Grain, *, since: Instant, until: Instant) -> list[Line]:
    """Charges of ``[since, until)`` added up, sorted by what the grain is about."""
    found: dict[tuple[int | str, ...], Line] = {}
    for one in charges:
        key = (*(getattr(one, name) for name in _FIELDS[by]), one.flavor)
        line = found.get(key)
        if line is None:
            first, last = clipped(one.day, since, until) if by == "day" else (since, until)
            about = {name.removesuffix("_key"): getattr(one, name) for name in _FIELDS[by] if name != "day"}
            line = found[key] = Line(since=first, until=last, flavor=one.flavor, **about)
        line.add(one)
    return [found[key] for key in sorted(found)]


def total_cost(found: Iterable[Line], prices: Prices) -> Decimal:
    """The sum of the costs of some lines."""
    return _plain(reduce(_EXACT.add, (prices.cost(one.flavor, one.used) for one in found), Decimal(0)))


def clipped(day: Instant, since: Instant, until: Instant) -> tuple[Instant, Instant]:
    """The part of a day that lies in the period."""
    return max(day, since), min(day + DAY, until)


def hours(used: GpuMicros) -> Decimal:
    """GPU-hours, to the tenth digit.

    >>> hours(8 * HOUR), hours(1), hours(HOUR // 3)
    (Decimal('8'), Decimal('3E-10'), Decimal('0.3333333333'))
    """
    digits = (2 * used * 10**10 + HOUR) // (2 * HOUR)
    return _plain(Decimal(digits).scaleb(-10, _EXACT))


def _plain(number: Decimal) -> Decimal:
    """The same number without noughts at its end."""
    whole = number.to_integral_value()
    return whole if whole == number else number.normalize(_EXACT)
