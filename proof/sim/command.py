"""The command: seeds in, one table out; a failure is shrunk, written to a file, and told with how to see it again."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from proof import scratch
from proof.commit import describe
from proof.options import folder, positive, whole
from proof.sim import failure
from proof.sim.events import Event, Mode, Plan
from proof.sim.generate import generate, kinds
from proof.sim.play import Played, play, shrink
from proof.sim.report import table
from proof.sim.world import homes
from tenure.facts import Closed, Entry, Fact, Moved, Noted, Opened, Reserved
from tenure.testing import START
from tenure.units import format_time

USUAL = {"seeds": 100, "first": 0, "mode": "both", "home": "both", "hours": 48, "jobs": 2}
"""What is meant where nothing is said."""
TOLD_EVERY = 100
"""Seeds between two lines of progress, where nobody watches."""
TOLD_MAX = 5
"""Failures that are told in full: one of each kind first."""
SHRINK_SECONDS = 300.0
"""How long the lists of all these together are shrunk."""
EXPLAINED = "What each row counts: docs/develop/proof-sim.md, What goes wrong."
CLUSTER_SHARE = 5
"""Of so many seeds one is a cluster, where both homes are asked for: its worlds cost more."""


def main(argv: list[str]) -> int:
    parser = _arguments()
    args = parser.parse_args(argv)
    if senseless := _senseless(args):
        parser.error(senseless)
    for name, usual in USUAL.items():
        setattr(args, name, usual if getattr(args, name) is None else getattr(args, name))
    scratch.sweep()
    if args.events is not None:
        return _replay(args.events, args)
    if args.replay is not None:
        plan = _plan(args.replay, args.home, args.mode, args.hours, args.wild)
        if args.only is not None:
            if max(args.only) > len(plan.events):
                parser.error(f"--only: seed {plan.seed} has {len(plan.events)} events, and no {max(args.only)}")
            kept = tuple(event for number, event in enumerate(plan.events, start=1) if number in args.only)
            plan, args.no_shrink = msgspec.structs.replace(plan, events=kept), True
        return _replay(plan, args)
    return _many(args)


def _senseless(args: argparse.Namespace) -> str:
    """What was asked for and would be ignored, in a sentence; options that nobody gave are None."""

    def given(*names: str) -> str:
        return ", ".join(
            f"--{'from' if name == 'first' else name}" for name in names if getattr(args, name) is not None
        )

    if args.only is not None and args.replay is None:
        return "--only needs --replay: it names events of one seed"
    if args.replay is not None and args.events is not None:
        return "--replay makes a world from its seed, --events reads one from a file: write one of them"
    if args.events is not None and (more := given("home", "mode", "hours") or "--wild" * args.wild):
        return f"the world is in the file of --events: leave {more} away"
    if args.replay is None and args.events is None:
        return "--trace tells of one world: name it with --replay or --events" if args.trace else ""
    if more := given("seeds", "first", "jobs"):
        return f"--replay and --events play one world: leave {more} away"
    return ""


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m proof sim", description="Whole systems in virtual time, with faults."
    )
    parser.add_argument("--seeds", type=positive, help="how many worlds (100)")
    parser.add_argument("--from", type=whole, dest="first", metavar="K", help="the first seed (0)")
    parser.add_argument("--mode", choices=("safety", "liveness", "both"),
                        help="liveness: some of it stays broken for good (both: every second seed)")  # fmt: skip
    parser.add_argument("--home", choices=("embedded", "cluster", "both"),
                        help=f"both: every {CLUSTER_SHARE}th seed is a cluster")  # fmt: skip
    parser.add_argument("--hours", type=positive, help="virtual hours of events in each world (48)")
    parser.add_argument("--jobs", type=positive, help="processes (2)")
    parser.add_argument("--out", type=folder, default=".", help="where failures are written (here)")
    parser.add_argument("--replay", type=whole, metavar="SEED", help="one seed alone")
    parser.add_argument("--only", type=_steps, metavar="3,17,...", help="with --replay: of its events only these")
    parser.add_argument(
        "--events", type=_written, metavar="FILE", help="a list of events that was written for a failure"
    )
    parser.add_argument(
        "--wild", action="store_true", help="policies without notice and patience: everybody cuts everybody"
    )
    parser.add_argument("--trace", action="store_true", help="with --replay or --events: every event and every entry")
    parser.add_argument("--no-shrink", action="store_true", help="leave the list of events as long as it is")
    return parser


def _steps(text: str) -> set[int]:
    return {positive(one) for one in text.split(",")}


def _written(text: str) -> Plan:
    """The plan in a file."""
    try:
        plan = msgspec.json.decode(Path(text).read_bytes(), type=Plan)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of events of a failure: {error}") from None
    if plan.home not in homes():
        raise argparse.ArgumentTypeError(f"{text!r} is of a home {plan.home!r}; there are {' and '.join(homes())}")
    if unknown := {event.kind for event in plan.events} - kinds(plan.home):
        named = ", ".join(sorted(unknown))
        raise argparse.ArgumentTypeError(f"{text!r} has events that no {plan.home} home knows: {named}")
    return plan


def _plan(seed: int, home: str, mode: str, hours: int, wild: bool) -> Plan:
    """The world of a seed, given what was asked for."""
    if home == "both":
        home = "cluster" if seed % CLUSTER_SHARE == CLUSTER_SHARE - 1 and "cluster" in homes() else "embedded"
    which: Mode = "liveness" if mode == "liveness" or (mode == "both" and seed % 2) else "safety"
    return generate(seed, home=home, mode=which, hours=hours, wild=wild)


def _one(seed: int, home: str, mode: str, hours: int, wild: bool) -> Played:
    return play(_plan(seed, home, mode, hours, wild))


# -- many seeds --


def _many(args: argparse.Namespace) -> int:
    begun, total, failures, number = time.perf_counter(), Counter[str](), list[Played](), 0
    seeds, open_ones = range(args.first, args.first + args.seeds), list[int]()
    playing = play_all(
        seeds, home=args.home, mode=args.mode, hours=args.hours, jobs=args.jobs, wild=args.wild, left=open_ones.extend
    )
    stopped: KeyboardInterrupt | None = None
    try:
        for number, played in enumerate(playing, start=1):
            total.update(played.tally)
            total[f"world/{played.plan.home} {played.plan.mode}"] += 1
            if played.failed:
                failures.append(played)
                _say(f"\nseed {played.plan.seed} fails: {played.found[0].splitlines()[0]}\n")
            _progress(f"{number} of {args.seeds} seeds, {len(failures)} failed", line=number % TOLD_EVERY == 0)
    except KeyboardInterrupt as stop:
        stopped = stop
        playing.close()
    _say("\n" if sys.stderr.isatty() else "")
    took = time.perf_counter() - begun
    try:
        _tell_some(failures, args, hurried=stopped is not None)
    finally:  # a long table, and what failed once more below it
        print(f"commit {describe()}\n\n{table(total, seeds=number, hours=args.hours, seconds=took)}\n")
        print(f"{EXPLAINED}\n")
        for played in failures:
            print(failure.brief(played, wild=args.wild))
        sys.stdout.flush()
    if stopped is not None:
        print(f"Stopped after {number} of {args.seeds} seeds, of which {len(failures)} failed.{_still(open_ones)}")
        sys.stdout.flush()
        raise stopped
    print(f"{len(failures)} of {args.seeds} seeds failed." if failures else f"All {args.seeds} seeds hold.")
    return 1 if failures else 0


def _still(seeds: list[int]) -> str:
    """Who was not ready when somebody stopped it all: if it took long, one of these did."""
    return f" Still in play: {', '.join(map(str, seeds))}." if seeds else ""


def _tell_some(failures: list[Played], args: argparse.Namespace, *, hurried: bool) -> None:
    """The first of each kind, and more while there are few."""
    firsts = list({played.signature: played for played in reversed(failures)}.values())[::-1]
    chosen = {id(played) for played in firsts}
    some = [*firsts, *(played for played in failures if id(played) not in chosen)][:TOLD_MAX]
    until = time.monotonic() + SHRINK_SECONDS
    for left, played in zip(range(len(some), 0, -1), some, strict=True):
        _tell(played, args, hurried=hurried, seconds=max(0.0, until - time.monotonic()) / left)


def play_all(
    seeds: Iterable[int],
    *,
    home: str,
    mode: str,
    hours: int,
    jobs: int,
    wild: bool = False,
    left: Callable[[list[int]], None] = lambda _: None,
) -> Generator[Played, None, None]:
    """Every seed, in order, whoever played it. Who stops asking stops them all, at once and with nothing left; ``left``
    is told of the seeds that were in play."""
    if jobs <= 1:
        yield from _one_by_one(seeds, partial(_one, home=home, mode=mode, hours=hours, wild=wild), left)
        return
    pool = ProcessPoolExecutor(jobs, initializer=_deaf)
    futures: dict[int, Future[Played]] = {}
    try:
        futures = {seed: pool.submit(_one, seed, home, mode, hours, wild) for seed in seeds}
        for future in futures.values():
            yield future.result()
    except BaseException:
        left([seed for seed, future in futures.items() if not future.done()][:jobs])  # they are begun in this order
        workers, manager = list((pool._processes or {}).values()), pool._executor_manager_thread
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        if manager is not None:  # or it may close its pipe just when the interpreter, at its end, writes into it
            manager.join()
        scratch.sweep()
        raise
    pool.shutdown()


def _one_by_one(
    seeds: Iterable[int], one: Callable[[int], Played], left: Callable[[list[int]], None]
) -> Generator[Played, None, None]:
    for seed in seeds:
        try:
            played = one(seed)
        except KeyboardInterrupt:
            left([seed])
            raise
        yield played


def _deaf() -> None:
    """Ctrl-C reaches everybody at a terminal, and it is the parent who sees to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# -- one failure --


def _replay(plan: Plan, args: argparse.Namespace) -> int:
    try:
        played = play(plan, watch=_show if args.trace else None)
    except KeyboardInterrupt:
        print(f"Stopped. Still in play: {plan.seed} ({plan.home}, {plan.mode}).", flush=True)
        raise
    if args.events is not None:
        args.no_shrink = True
    try:
        if played.failed:
            _tell(played, args)
    finally:
        print(f"commit {describe()}\n\n{table(played.tally, seeds=1, hours=plan.hours)}\n")
    how = f"fails: {failure.where(played)}" if played.failed else "holds"
    print(f"Seed {plan.seed} ({plan.home}, {plan.mode}, {len(plan.events)} events) {how}.")
    return int(played.failed)


def _tell(played: Played, args: argparse.Namespace, *, hurried: bool = False, seconds: float = SHRINK_SECONDS) -> None:
    """Commit, seed, step, what does not hold, and the shortest list of events that shows it, in a file."""
    print(failure.head(played))
    if args.no_shrink:
        print(failure.events(played.plan, most=20, width=160))
    else:
        _shrink(played, args.out, hurried=hurried, seconds=seconds)
    if args.events is None and args.only is None:
        print(f"  the whole seed: {failure.seed_again(played.plan, wild=args.wild)}")
    print(flush=True)


def _shrink(played: Played, out: Path, *, hurried: bool, seconds: float) -> None:
    shortest, why = [played], "it does not end" if played.endless else "stopped"
    try:
        if not hurried and not played.endless:
            until = time.monotonic() + seconds
            shrink(
                played, say=lambda text: _progress(f"shrinking: {text}"), keep=shortest.append, seconds=seconds
            )  # fmt: skip
            why = "" if time.monotonic() < until else "time was up"
    finally:  # also of whoever has no patience: what was found is not lost
        _say("\n" if sys.stderr.isatty() else "")
        _keep(shortest[-1], out, "  " + failure.enough(shortest[-1], played, why=why))


def _keep(short: Played, out: Path, enough: str) -> None:
    plan = short.plan
    file = out / f"sim-{plan.home}-{plan.mode}-{plan.seed}.json"
    try:
        failure.write(plan, file)
    except OSError as error:
        print(f"{enough}; {file} cannot be written ({error.strerror}), so here is what it would hold:")
        print(msgspec.json.encode(plan).decode(), flush=True)
        return
    print(f"{enough}, in {file}:")
    print(failure.events(plan, most=20, width=160))
    print(f"  see it again:   {failure.file_again(file)}", flush=True)


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


def _progress(text: str, *, line: bool = False) -> None:
    """How far we are: over the last one at a terminal, and else only every so often (``line``)."""
    if sys.stderr.isatty():
        _say(f"\r{text:<60}")
    elif line:
        _say(f"{text}\n")


def _say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
