"""Flood: one tenant with 100,000 pending runs, and a day of churn (``python -m proof flood``).

What is proved: behind one tenant's flood the p99 of decisions about other tenants' runs, starts and early ends, is at
most twice that of an empty queue (``behind``); the metrics show no more series for it; and 24 virtual hours of churn
leave memory as it was (``churn``). The same rows are part of ``make bench``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.result import Row
from proof.again import command
from proof.commit import describe
from proof.flood import behind, churn
from proof.options import span, whole

SAMPLES = 384
"""Small runs of a round in each fleet; half of them stay, and none past its declared end."""

PENDING_MIN = 50
"""Of fewer none, or hardly any, has to wait: there would be nothing to be behind."""


def rows(folder: Path, *, pending: int, hours: float, seed: int = 1, samples: int = SAMPLES) -> Iterator[Row]:
    """Everything, measured in this folder; 0 leaves a part out."""
    if pending:
        yield from behind.rows(folder, pending, samples=samples, tell=behind.telling)
    if hours:
        yield from churn.rows(folder, hours, tell=behind.telling, seed=seed)


def main(argv: list[str]) -> int:
    options = _options(argv)
    from bench.report import table  # knows all benchmarks, this one among them

    begin = perf_counter()
    with TemporaryDirectory(prefix="flood-") as folder:
        found = list(rows(Path(folder), pending=options.pending, hours=options.hours, seed=options.seed))
    print("" if not sys.stderr.isatty() else "\n", end="", file=sys.stderr)
    print(table(found))
    broken = [row for row in found if not row.ok]
    for row in broken:
        print(f"{row.bench}: {row.what}: {row.found}, promised {row.promised}: {row.detail}")
    if broken:
        again = command("flood", "--pending", options.pending, "--hours", f"{options.hours:g}", "--seed", options.seed)
        print(
            f"{len(broken)} do not hold at commit {describe()}; docs/develop/proof-flood.md says how to read that. "
            f"Once more: `{again}`."
        )
        return 1
    promised, took = sum(row.goal is not None for row in found), perf_counter() - begin
    print(f"All {promised} hold at commit {describe()}, in {took:.0f} s. "
          "`python -m bench --only flood` compares them with before.")  # fmt: skip
    return 0


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof flood", description=(__doc__ or "").partition("\n\n")[2])
    add = parser.add_argument
    add("--pending", type=whole, default=100_000, help="runs that one tenant submits (100,000); 0: no flood")
    add("--hours", type=span, default=24, help=f"virtual hours of churn (24), more than {churn.FIRST}; 0: none")
    add("--seed", type=whole, default=1, help="of what happens during the churn")
    options = parser.parse_args(argv)
    if not options.pending and not options.hours:
        parser.error("--pending 0 and --hours 0 leave nothing to try")
    if 0 < options.pending < PENDING_MIN:
        parser.error(f"--pending: {PENDING_MIN} runs or more, of which some wait, or 0 for no flood")
    if 0 < options.hours <= churn.FIRST:
        parser.error(f"--hours: more than the {churn.FIRST} that the day is compared with, or 0 for no churn")
    return options
