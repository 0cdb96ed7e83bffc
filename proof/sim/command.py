"""The command: seeds in, one table out; a failure is shrunk, written to a file, and told with how to see it again."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from proof.sim.events import Event, Mode, Plan
from proof.sim.generate import generate
from proof.sim.play import AT_THE_END, Played, play, shrink
from proof.sim.report import table
from proof.sim.world import homes
from tenure.facts import Closed, Entry, Fact, Moved, Noted, Opened, Reserved
from tenure.testing import START
from tenure.units import format_time

CLUSTER_SHARE = 5
"""Of so many seeds one is a cluster, where both homes are asked for: its worlds cost more."""


def main(argv: list[str]) -> int:
    args = _arguments().parse_args(argv)
    if args.events is not None:
        plan = msgspec.json.decode(args.events.read_bytes(), type=Plan)
        return _replay(plan, args)
    if args.replay is not None:
        return _replay(_plan(args.replay, args.home, args.mode, args.hours), args)
    return _many(args)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m proof sim", description="Whole systems in virtual time, with faults."
    )
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds (100)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="K", help="the first seed (0)")
    parser.add_argument("--mode", choices=("safety", "liveness", "both"), default="both",
                        help="liveness: some of it stays broken for good (both: every second seed)")  # fmt: skip
    parser.add_argument("--home", choices=("embedded", "cluster", "both"), default="both",
                        help=f"both: every {CLUSTER_SHARE}th seed is a cluster")  # fmt: skip
    parser.add_argument("--hours", type=int, default=48, help="virtual hours of events in each world (48)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--out", type=Path, default=Path("."), help="where failures are written (here)")
    parser.add_argument("--replay", type=int, metavar="SEED", help="one seed alone, told step by step")
    parser.add_argument("--events", type=Path, metavar="FILE", help="a list of events that was written for a failure")
    parser.add_argument("--trace", action="store_true", help="with --replay or --events: every event and every entry")
    parser.add_argument("--no-shrink", action="store_true", help="leave the list of events as long as it is")
    return parser


def _plan(seed: int, home: str, mode: str, hours: int) -> Plan:
    """The world of a seed, given what was asked for."""
    if home == "both":
        home = "cluster" if seed % CLUSTER_SHARE == CLUSTER_SHARE - 1 and "cluster" in homes() else "embedded"
    which: Mode = "liveness" if mode == "liveness" or (mode == "both" and seed % 2) else "safety"
    return generate(seed, home=home, mode=which, hours=hours)


def _one(seed: int, home: str, mode: str, hours: int) -> Played:
    return play(_plan(seed, home, mode, hours))


# -- many seeds --


def _many(args: argparse.Namespace) -> int:
    begun, total, failures = time.perf_counter(), Counter[str](), []
    seeds = range(args.first, args.first + args.seeds)
    playing = play_all(seeds, home=args.home, mode=args.mode, hours=args.hours, jobs=args.jobs)
    for number, played in enumerate(playing, start=1):
        total.update(played.tally)
        total[f"world/{played.plan.home} {played.plan.mode}"] += 1
        if played.failed:
            failures.append(played)
            _say(f"\nseed {played.plan.seed} fails: {played.found[0].splitlines()[0]}\n")
        _say(f"\r{number} of {args.seeds} seeds, {len(failures)} failed")
    _say("\n")
    took = time.perf_counter() - begun
    print(table(total, seeds=args.seeds, hours=args.hours, seconds=took))
    seen: set[str] = set()
    for played in failures:
        if played.signature not in seen and len(seen) < 5:
            seen.add(played.signature)
            _tell(played, args)
    print(f"\n{len(failures)} of {args.seeds} seeds failed." if failures else f"\nAll {args.seeds} seeds hold.")
    return 1 if failures else 0


def play_all(seeds: Iterable[int], *, home: str, mode: str, hours: int, jobs: int) -> Iterator[Played]:
    """Every seed, in order, whoever played it."""
    if jobs <= 1:
        yield from (_one(seed, home, mode, hours) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_one, seed, home, mode, hours) for seed in seeds]
        for future in futures:
            yield future.result()


# -- one failure --


def _replay(plan: Plan, args: argparse.Namespace) -> int:
    played = play(plan, watch=_show if args.trace else None)
    print(table(played.tally, seeds=1, hours=plan.hours))
    if not played.failed:
        print(f"\nSeed {plan.seed} ({plan.home}, {plan.mode}, {len(plan.events)} events) holds.")
        return 0
    if args.events is not None:
        args.no_shrink = True
    _tell(played, args)
    return 1


def _tell(played: Played, args: argparse.Namespace) -> None:
    """Commit, seed, step, what does not hold, and the shortest list of events that shows it, in a file."""
    plan, step = played.plan, played.step
    where = "at the end" if step == AT_THE_END else f"step {step} of {len(plan.events)}"
    print(f"\nFAILED  commit {_commit()}  seed {plan.seed}  {plan.home}  {plan.mode}  {where}")
    for sentence in played.found[:5]:
        print("  " + sentence.replace("\n", "\n  "))
    if not args.no_shrink:
        short = shrink(played, say=lambda text: _say(f"\rshrinking: {text}      "))
        _say("\n")
        file = args.out / f"sim-{plan.home}-{plan.mode}-{plan.seed}.json"
        file.write_bytes(msgspec.json.format(msgspec.json.encode(short.plan), indent=1))
        plan = short.plan
        print(f"  {len(plan.events)} of {len(played.plan.events)} events are enough, in {file}:")
    for event in plan.events[:20]:
        print("    " + _line(event))
    if not args.no_shrink:
        print(f"  see it again:  python -m proof sim --events {file}")
    options = f"--home {plan.home} --mode {plan.mode} --hours {plan.hours}"
    print(f"  the whole seed: python -m proof sim --replay {plan.seed} {options}")


def _show(what: Event | Entry) -> None:
    """One line for what happened to the world, one for each entry that Tenure made of it."""
    if isinstance(what, Event):
        print(f"{format_time(START + what.at)} <- {_line(what)}")
        return
    kinds = Counter(_doing(fact) for fact in what.facts)
    text = ", ".join(f"{name} x{number}" if number > 1 else name for name, number in kinds.items())
    print(f"{format_time(what.at)} {what.seq:>5} {what.cause}{'' if what.decided else ' (recorded)'}: {text}")


def _doing(fact: Fact) -> str:
    match fact:
        case Opened():
            return f"+{fact.lease.role} {fact.lease.run} {fact.lease.reason} {fact.lease.budget}/{fact.lease.envelope}"
        case Closed():
            return f"-{','.join(fact.leases)} {fact.reason[:13]}"
        case Moved():
            return f"{fact.run}={fact.life.phase}/{fact.life.reason}"
        case Reserved():
            one = fact.reservation
            start = None if one.plan.start is None else format_time(one.plan.start)
            return f"promise {one.run} {one.state} {start} {one.confidence} {one.reason}"
        case Noted():
            return f"note {fact.kind}"
        case _:
            return type(fact).__name__


def _line(event: object) -> str:
    text = msgspec.json.encode(event).decode()
    return text if len(text) <= 160 else text[:157] + "..."


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
