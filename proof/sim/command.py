"""The command: seeds in, one table out; a failure is shrunk, written to a file, and told with how to see it again."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from proof import scratch
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

TOLD_EVERY = 100
"""Seeds between two lines of progress, where nobody watches."""
CLUSTER_SHARE = 5
"""Of so many seeds one is a cluster, where both homes are asked for: its worlds cost more."""


def main(argv: list[str]) -> int:
    parser = _arguments()
    args = parser.parse_args(argv)
    if args.only is not None and args.replay is None:
        parser.error("--only needs --replay: it names events of one seed")
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


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m proof sim", description="Whole systems in virtual time, with faults."
    )
    parser.add_argument("--seeds", type=positive, default=100, help="how many worlds (100)")
    parser.add_argument("--from", type=whole, default=0, dest="first", metavar="K", help="the first seed (0)")
    parser.add_argument("--mode", choices=("safety", "liveness", "both"), default="both",
                        help="liveness: some of it stays broken for good (both: every second seed)")  # fmt: skip
    parser.add_argument("--home", choices=("embedded", "cluster", "both"), default="both",
                        help=f"both: every {CLUSTER_SHARE}th seed is a cluster")  # fmt: skip
    parser.add_argument("--hours", type=positive, default=48, help="virtual hours of events in each world (48)")
    parser.add_argument("--jobs", type=positive, default=2, help="processes (2)")
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
    seeds = range(args.first, args.first + args.seeds)
    playing = play_all(seeds, home=args.home, mode=args.mode, hours=args.hours, jobs=args.jobs, wild=args.wild)
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
    print(table(total, seeds=number, hours=args.hours, seconds=took))
    seen: set[str] = set()
    for played in failures:
        if played.signature not in seen and len(seen) < 5:
            seen.add(played.signature)
            _tell(played, args, hurried=stopped is not None)
    if stopped is not None:
        print(f"\nStopped after {number} of {args.seeds} seeds, of which {len(failures)} failed.", flush=True)
        raise stopped
    print(f"\n{len(failures)} of {args.seeds} seeds failed." if failures else f"\nAll {args.seeds} seeds hold.")
    return 1 if failures else 0


def play_all(
    seeds: Iterable[int], *, home: str, mode: str, hours: int, jobs: int, wild: bool = False
) -> Generator[Played, None, None]:
    """Every seed, in order, whoever played it. Who stops asking stops them all, at once and with nothing left."""
    if jobs <= 1:
        yield from (_one(seed, home, mode, hours, wild) for seed in seeds)
        return
    pool = ProcessPoolExecutor(jobs, initializer=_deaf)
    try:
        futures = [pool.submit(_one, seed, home, mode, hours, wild) for seed in seeds]
        for future in futures:
            yield future.result()
    except BaseException:
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


def _deaf() -> None:
    """Ctrl-C reaches everybody at a terminal, and it is the parent who sees to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


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


def _tell(played: Played, args: argparse.Namespace, *, hurried: bool = False) -> None:
    """Commit, seed, step, what does not hold, and the shortest list of events that shows it, in a file."""
    print("\n" + failure.head(played))
    shortest = [played]
    if not args.no_shrink:
        try:
            if not hurried:
                shrink(played, say=lambda text: _progress(f"shrinking: {text}"), keep=shortest.append)
        finally:  # also of whoever has no patience: what was found is not lost
            _say("\n" if sys.stderr.isatty() else "")
            _keep(shortest[-1], played, args.out)
    else:
        print(failure.events(played.plan, most=20, width=160))
    if args.events is None and args.only is None:
        print(f"  the whole seed: {failure.seed_again(played.plan, wild=args.wild)}", flush=True)


def _keep(short: Played, whole: Played, out: Path) -> None:
    plan = short.plan
    file = out / f"sim-{plan.home}-{plan.mode}-{plan.seed}.json"
    enough = f"  {len(plan.events)} of {len(whole.plan.events)} events are enough"
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
