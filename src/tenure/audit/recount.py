"""I10 from scratch: who was charged what, counted from the whole ledger in three different ways.

    by account   each lease's time, cut at the edits of its envelope's window, under the window then in force
    by node      how many GPUs of the node were held, integrated over time
    by run       gpus x (end - start), lease by lease

The three totals are equal, exactly, and so is what the incremental books say. This costs the whole history,
shares no arithmetic with ``books``, and is what the books are tested against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tenure.api.budget import Budget
from tenure.audit.accounts import UNBOUNDED, AccountKey, EnvelopeKey, Window, window_of
from tenure.audit.books import Books
from tenure.audit.checks_facts import unreadable
from tenure.audit.invariants import SUMS
from tenure.audit.report import Violation
from tenure.facts import Closed, Entry, Lease, Opened, PutBudget
from tenure.units import FOREVER, GpuMicros, Instant


class Stay(NamedTuple):
    """A lease with its whole interval."""

    lease: Lease
    start: Instant
    end: Instant


@dataclass(slots=True)
class Recount:
    """GPU-microseconds by account, by node and by run."""

    accounts: Counter[AccountKey] = field(default_factory=Counter)
    lent: Counter[AccountKey] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)


def recount(entries: Iterable[Entry], *, now: Instant) -> Recount:
    """Count the whole ledger again, up to ``now``."""
    entries = list(entries)
    stays, windows, result = _stays(entries, now=now), _windows(entries), Recount()
    for stay in stays:
        lease = stay.lease
        result.runs[lease.run_key] += len(lease.gpus) * (stay.end - stay.start)
        for account, charge in _charges(stay, windows.get((lease.budget, lease.envelope), [])):
            result.accounts[account] += charge
            result.lent[account] += charge if lease.funding == "borrowed" else 0
    for node, held in _steps(stays).items():
        result.nodes[node] = _integral(held)
    return result


def _stays(entries: list[Entry], *, now: Instant) -> list[Stay]:
    """Every lease with its interval. A second opening or closing of one name counts for nothing."""
    opened: dict[str, tuple[Lease, Instant]] = {}
    ended: dict[str, Instant] = {}
    latest = 0
    for entry in entries:
        latest = max(latest, entry.at)
        for fact in entry.facts:
            if isinstance(fact, Opened):
                opened.setdefault(fact.lease.key, (fact.lease, latest))
            elif isinstance(fact, Closed):
                for key in (f"{fact.namespace}/{name}" for name in fact.leases):
                    if key in opened:
                        ended.setdefault(key, min(max(fact.end, opened[key][1]), latest))
    return [Stay(lease, start, ended.get(key, max(now, latest))) for key, (lease, start) in opened.items()]


def _windows(entries: list[Entry]) -> dict[EnvelopeKey, list[tuple[Instant, Window]]]:
    """For each envelope, from when on which window was in force."""
    found: dict[EnvelopeKey, list[tuple[Instant, Window]]] = {}
    latest = 0
    for entry in entries:
        latest = max(latest, entry.at)
        for budget in _readable_budgets(entry):
            for key, window in _granted(budget):
                found.setdefault(key, []).append((latest, window))
    return found


def _readable_budgets(entry: Entry) -> list[Budget]:
    return [
        fact.object for fact in entry.facts if isinstance(fact, PutBudget) and not any(unreadable(fact, at=entry.at))
    ]


def _granted(budget: Budget) -> Iterator[tuple[EnvelopeKey, Window]]:
    for envelope in budget.spec.envelopes:
        yield (budget.metadata.name, envelope.name), window_of(envelope)


def _charges(stay: Stay, windows: list[tuple[Instant, Window]]) -> Iterator[tuple[AccountKey, GpuMicros]]:
    lease = stay.lease
    for (since, window), (until, _) in pairwise([(0, UNBOUNDED), *windows, (FOREVER, UNBOUNDED)]):
        overlap = min(stay.end, until) - max(stay.start, since)
        if overlap > 0:
            yield (lease.budget, lease.envelope, *window), len(lease.gpus) * overlap


def _steps(stays: list[Stay]) -> dict[str, list[tuple[Instant, int]]]:
    """For each node, when how many GPUs came and went."""
    steps: dict[str, list[tuple[Instant, int]]] = {}
    for lease, start, end in stays:
        steps.setdefault(lease.node, []).extend([(start, len(lease.gpus)), (end, -len(lease.gpus))])
    return steps


def _integral(steps: list[tuple[Instant, int]]) -> GpuMicros:
    total = held = 0
    last = 0
    for at, change in sorted(steps):
        total += held * (at - last)
        held, last = held + change, at
    return total


# --- comparisons --------------------------------------------------------------------------------------------


def sums_agree(count: Recount, *, at: Instant) -> Iterator[Violation]:
    """The three sums of a recount, against each other."""
    payers = count.accounts.total()
    for name, total in (("nodes", count.nodes.total()), ("runs", count.runs.total())):
        if total != payers:
            yield _violation(f"the sum over {name} is not the sum over payers", at=at, expected=payers, found=total)


def books_agree(books: Books, count: Recount, *, at: Instant) -> Iterator[Violation]:
    """The incremental books against a recount, account by account, node by node and run by run."""
    lent = {
        (*key, *window): account.lent.read(at)
        for key, book in books.envelopes.items()
        for window, account in book.accounts.items()
    }
    pairs: list[tuple[str, Mapping[Any, GpuMicros], Mapping[Any, GpuMicros]]] = [
        ("account", books.charges(at), count.accounts),
        ("lent", lent, count.lent),
        ("node", {key: meter.read(at) for key, meter in books.spent_by_node.items()}, count.nodes),
        ("run", {key: meter.read(at) for key, meter in books.spent_by_run.items()}, count.runs),
    ]
    for view, kept, counted in pairs:
        for key in sorted(kept.keys() | counted.keys(), key=repr):
            if kept.get(key, 0) != counted.get(key, 0):
                message = f"the books and a recount differ on {view} {key}"
                yield _violation(message, at=at, expected=counted.get(key, 0), found=kept.get(key, 0))


def totals_agree(books: Books, *, at: Instant) -> Iterator[Violation]:
    """The three sums that the books keep, without any history."""
    payers = sum(account.used.read(at) for book in books.envelopes.values() for account in book.accounts.values())
    for name, meter in (("nodes", books.node_total), ("runs", books.run_total)):
        if meter.read(at) != payers:
            message = f"the sum over {name} is not the sum over payers"
            yield _violation(message, at=at, expected=payers, found=meter.read(at))


def _violation(message: str, *, at: Instant, expected: int, found: int) -> Violation:
    return Violation(
        invariant=SUMS.name,
        at=at,
        object="Ledger",
        message=f"{message}, in GPU-microseconds",
        expected=expected,
        found=found,
    )
