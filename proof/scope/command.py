"""The command line of the small-scope check."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from os import cpu_count
from signal import SIGTERM, signal

from proof.again import command
from proof.commit import describe
from proof.options import positive, span
from proof.scope.expand import Finding
from proof.scope.replay import NoSuchMove, follow, story
from proof.scope.search import Level, search
from proof.scope.tally import lines, missing
from tenure.units import SECOND

GOAL = 1_000_000
DEPTH = 8
"""Where the goal is to be expected."""
RICH = 6
"""From here on everything of ``tally.MUST`` has to have happened."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.path is not None:
        return _show(options.path.split())
    level: Level | None = None
    try:
        start = follow(options.after.split()).point()
    except NoSuchMove as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    signal(SIGTERM, lambda *_: sys.exit(128 + SIGTERM))  # and not without the workers
    print("depth   transitions   distinct states   new here   seconds    cpu s   states/cpu s")
    for level in search(start, options.depth, jobs=options.jobs, minutes=options.minutes, progress=sys.stderr.isatty()):
        print(_row(level), flush=True)
    assert level is not None
    return _report(level, after=options.after)


def _row(level: Level) -> str:
    note = "" if level.complete else "   (time is up: not complete)"
    return (f"{level.depth:>5}   {level.transitions:>11,}   {level.states:>15,}   {level.found:>8,}   "
            f"{level.wall:>7.0f}  {level.cpu:>7.0f}   {level.states / max(level.cpu, 1e-9):>12,.0f}{note}")  # fmt: skip


def _report(level: Level, *, after: str) -> int:
    tallies = level.tallies
    done = level.whole
    whole = done >= RICH and not after
    part = (
        "" if level.complete else f", and some of those of {' and '.join(map(str, range(done + 1, level.depth + 1)))}"
    )
    duplicates = level.transitions - (level.states - 1) - len(tallies.findings)
    since = f"after {after}" if after else "from a fleet with nothing on it"
    print(f"\nall interleavings of {done} moves{part}, {since}"
          f"\n  transitions       {level.transitions:>12,}"
          f"\n  distinct states   {level.states:>12,}   {level.states / max(level.wall, 1e-9):,.0f} a second"
          f"\n  duplicates        {duplicates:>12,}   {tallies.met:,} of them followed on both paths: the same future"
          f"\n  decided again     {tallies.rebuilt:>12,}   by an engine rebuilt from the image: the same decision"
          f"\n  gone again        {tallies.proved:>12,}   paths, their ledgers recounted and folded from entry 1"
          f"\n  violations        {len(tallies.findings):>12,}")  # fmt: skip
    print("what happened:")
    print("\n".join(lines(tallies.facts)))
    print("\n".join(lines(Counter({f"moves {name}": many for name, many in tallies.moves.items()}))))
    lacking = missing(tallies.facts)
    if tallies.findings:
        return _tell(tallies.findings)
    if lacking and not after:
        print(f"never happened: {', '.join(lacking)}" + ("" if whole else f" (depth {RICH} has it all)"))
    short = level.states < GOAL and not after
    if short:
        print(f"The goal is {GOAL:,} distinct states: give it --depth {DEPTH} and the minutes it needs.")
    else:
        print(f"Nothing was found in all interleavings of {done} moves{part}. "
              "A larger --depth, with more --minutes, looks further.")  # fmt: skip
    return 1 if (lacking and whole) or (short and not level.complete) else 0


def _tell(findings: list[Finding]) -> int:
    shortest = sorted(findings, key=lambda one: (len(one.path), one.path))[:5]
    for one in shortest:
        print(f"\nVIOLATION after {len(one.path)} moves: {' '.join(one.path)}\n{one.says}")
    again = command("scope", "--path", " ".join(shortest[0].path))
    print(f"\nAt commit {describe()}. See one again, entry by entry:\n  {again}")
    return 1


def _show(path: list[str]) -> int:
    try:
        for step in story(path):
            print(f"{step.after / SECOND:>8.0f} s  {step.name}")
            for text in step.says:
                print(f"            {text}")
    except NoSuchMove as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except AssertionError as error:
        print(f"\nVIOLATION: {error}\nKeep the path as a test: tests/proof/test_scope.py, FOUND.")
        return 1
    print(f"\nNothing was found on this path of {len(path)} moves.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof scope", description=__doc__)
    parser.add_argument(
        "--depth", type=positive, default=DEPTH, help="moves in a row, all interleavings (default %(default)s)"
    )
    parser.add_argument("--minutes", type=span, default=10.0, help="stop after so long (default %(default)s)")
    parser.add_argument(
        "--jobs",
        type=positive,
        default=cpu_count() or 1,
        help="processes (default: one for each core); no count depends on it",
    )
    parser.add_argument(
        "--after", metavar="MOVES", default="", help="begin where these have happened: deeper, and narrower"
    )
    parser.add_argument("--path", metavar="MOVES", help="go along one path and show what was decided")
    return parser
