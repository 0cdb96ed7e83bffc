"""Whom a change may concern: what is known of the promises of one flavor, by what each of them rests on and waits for.

A change is of use, or a danger, to few of those who wait, and they are found here without a look at the others: who
may be paid by an envelope, who has a node in its slice, who waits for machines and not for money alone, and who is to
start soon. Too many may be named, and never too few: each is then looked at closely (``standing``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from tenure.engine.books import FundKey
from tenure.units import Instant

Key = TypeVar("Key", bound=Hashable)
NOBODY: dict[str, None] = {}


class Known(NamedTuple):
    """What was found when a promise was looked at: there is no earlier start, and this one can be kept."""

    marks: int
    """How many there had been."""
    start: Instant
    """The start that is promised."""
    nodes: frozenset[str]
    """The nodes of its slice."""
    funds: frozenset[FundKey]
    """Envelopes that might pay for it."""
    paid: Instant
    """Before that the money does not suffice."""
    rich: bool
    """Whether money is nothing that keeps it from starting earlier, now or at any time until it ends."""
    hours: bool
    """Whether hours are bounded of any of those envelopes: what is spent of them is spent for ever."""


class Watch:
    """Runs that wait for one flavor: of some it is known what they wait for, the others have to be looked at."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        self.unknown: dict[str, None] = {}
        self._machines: dict[str, None] = {}
        """Those for which the money suffices before they are to start."""
        self._funds: dict[FundKey, dict[str, None]] = {}
        self._hours: dict[FundKey, dict[str, None]] = {}
        self._nodes: dict[str, dict[str, None]] = {}
        self._starts: list[tuple[Instant, str]] = []

    def found(self, run: str, known: Known) -> None:
        if run not in self.known and run not in self.unknown:
            return  # it does not wait
        self.forget(run)
        del self.unknown[run]
        self.known[run] = known
        insort(self._starts, (known.start, run))
        if known.paid < known.start:
            self._machines[run] = None
        _enter(self._funds, known.funds, run)
        _enter(self._hours, known.funds if known.hours else (), run)
        _enter(self._nodes, known.nodes, run)

    def forget(self, run: str) -> None:
        """Nothing is known of it any more."""
        known = self.known.pop(run, None)
        if known is None:
            return
        self.unknown[run] = None
        self._machines.pop(run, None)
        del self._starts[bisect_left(self._starts, (known.start, run))]
        _leave(self._funds, known.funds, run)
        _leave(self._hours, known.funds if known.hours else (), run)
        _leave(self._nodes, known.nodes, run)

    def forget_all(self) -> None:
        self.unknown.update(dict.fromkeys(self.known))
        for table in (self.known, self._machines, self._funds, self._hours, self._nodes, self._starts):
            table.clear()

    # -- whom it may concern --

    def due(self, now: Instant) -> Iterable[str]:
        """Who was to have started by now."""
        return (run for _, run in self._starts[: bisect_left(self._starts, (now + 1, ""))])

    def paid_by(self, fund: FundKey) -> Iterable[str]:
        return self._funds.get(fund, NOBODY)

    def paid_by_the_hour(self, fund: FundKey) -> Iterable[str]:
        """Who may be paid by an envelope, and of whose envelopes hours are bounded."""
        return self._hours.get(fund, NOBODY)

    def waiting_for_machines(self) -> Iterable[str]:
        return self._machines

    def counting_on(self, node: str) -> Iterable[str]:
        """Who has a node in its slice."""
        return self._nodes.get(node, NOBODY)

    def starting(self, *, before: Instant, nodes: Mapping[str, int], funds: Mapping[FundKey, int]) -> Iterable[str]:
        """Who is to start before an instant, and has one of these nodes in its slice or may be paid by one of these
        envelopes, and was not looked at since so many marks."""
        for _, run in self._starts[: bisect_left(self._starts, (before, ""))]:
            known = self.known[run]
            marks = known.marks
            if any(nodes.get(node, 0) > marks for node in known.nodes) or any(
                funds.get(fund, 0) > marks for fund in known.funds
            ):
                yield run


def _enter(table: dict[Key, dict[str, None]], keys: Iterable[Key], run: str) -> None:
    for key in keys:
        table.setdefault(key, {})[run] = None


def _leave(table: dict[Key, dict[str, None]], keys: Iterable[Key], run: str) -> None:
    for key in keys:
        del table[key][run]
        if not table[key]:
            del table[key]
