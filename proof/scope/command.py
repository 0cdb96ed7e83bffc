"""The command line of the small-scope check."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from os import cpu_count

from proof.again import command
from proof.commit import describe
from proof.options import positive, span
from proof.scope.expand import Finding
from proof.scope.replay import Broken, NoSuchMove, follow, story
from proof.scope.search import Level, search
from proof.scope.tally import lines, missing
from tenure.units import SECOND

GOAL = 1_000_000
DEPTH = 8
"""Where the goal is to be expected."""
MINUTES = 10.0
USUAL = {"depth": DEPTH, "minutes": MINUTES, "jobs": cpu_count() or 1, "after": ""}
"""What is meant where nothing is said."""
RICH = 6
"""From here on everything of ``tally.MUST`` has to have happened."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _read(argv)
    if options.path is not None:
        return _show(options.path.split())
    level: Level | None = None
    try:
        start = follow(options.after.split()).point()
    except NoSuchMove as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("depth   transitions   distinct states   new here   seconds    cpu s   states/cpu s")
    levels = search(start, options.depth, jobs=options.jobs, minutes=options.minutes, progress=sys.stderr.isatty())
    try:
        for level in levels:
            print(_row(level), flush=True)
    except KeyboardInterrupt:
        levels.close()  # and not without the workers
        print(_so_far(level, options.depth), flush=True)
        raise
    assert level is not None
    return _report(level, after=options.after)


def _row(level: Level) -> str:
    note = "" if level.complete else "   (time is up: not complete)"
    return (f"{level.depth:>5}   {level.transitions:>11,}   {level.states:>15,}   {level.found:>8,}   "
            f"{level.wall:>7.0f}  {level.cpu:>7.0f}   {level.states / max(level.cpu, 1e-9):>12,.0f}{note}")  # fmt: skip


def _so_far(level: Level | None, depth: int) -> str:
    """How far a search came that somebody stopped."""
    done = 0 if level is None else level.whole
    among = f"{depth - 1} and {depth}" if depth > 1 and done + 2 >= depth else f"{done + 1}"
    head = f"\nStopped at commit {describe()} while depth {among} was searched, which is not counted."
    if level is None:
        return f"{head} Nothing was complete."
    return (f"{head} All interleavings of {done} moves were: {level.transitions:,} transitions, "
            f"{level.states:,} distinct states, {len(level.tallies.findings)} violations.")  # fmt: skip


def _report(level: Level, *, after: str) -> int:
    tallies = level.tallies
    done = level.whole
    whole = done >= RICH and not after
    part = (
        "" if level.complete else f", and some of those of {' and '.join(map(str, range(done + 1, level.depth + 1)))}"
    )
    duplicates = level.transitions - (level.states - 1) - len(tallies.findings)
    since = f"after {after}" if after else "from a fleet with nothing on it"
    print(f"\ncommit {describe()}\nall interleavings of {done} moves{part}, {since}"
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
        print(f"\n{_violation(one)}")
    again = command("scope", "--path", " ".join(shortest[0].path))
    print(f"\nAt commit {describe()}. See one again, entry by entry:\n  {again}")
    return 1


def _violation(found: Finding | Broken) -> str:
    return f"VIOLATION after {len(found.path)} moves: {' '.join(found.path)}\n{found.says}"


def _show(path: list[str]) -> int:
    try:
        for step in story(path):
            print(f"{step.after / SECOND:>8.0f} s  {step.name}")
            for text in step.says:
                print(f"            {text}")
    except NoSuchMove as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Broken as found:
        print(f"\n{_violation(found)}")
        print(f"\nAt commit {describe()}. Keep the path as a test: tests/proof/test_scope.py, FOUND.")
        return 1
    print(f"\nNothing was found on this path of {len(path)} moves, at commit {describe()}.")
    return 0


def _read(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options; those that nobody gave are as usual, and those that would do nothing are refused."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.path is not None and (more := [name for name in USUAL if getattr(options, name) is not None]):
        parser.error(f"--path goes along one path: leave {', '.join(f'--{name}' for name in more)} away")
    for name, usual in USUAL.items():
        setattr(options, name, usual if getattr(options, name) is None else getattr(options, name))
    if not options.minutes:
        parser.error("--minutes 0 leaves no time to search anything")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof scope", description=__doc__)
    parser.add_argument("--depth", type=positive, help=f"moves in a row, all interleavings (default {DEPTH})")
    parser.add_argument("--minutes", type=span, help=f"stop after so long (default {MINUTES:g})")
    parser.add_argument(
        "--jobs",
        type=positive,
        help="processes (default: one for each core); no count depends on it",
    )
    parser.add_argument("--after", metavar="MOVES", help="begin where these have happened: deeper, and narrower")
    parser.add_argument("--path", metavar="MOVES", help="go along one path and show what was decided")
    return parser
