"""The command: play schedules, tell how far one is, and end with a table and with how to see a failure again."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from proof import scratch
from proof.commit import describe
from proof.crashes import stock
from proof.crashes.judge import Verdict
from proof.crashes.play import RECOVERIES, UNCOMPARED, Schedule, workplace
from proof.crashes.schedules import PAIRED, Bench
from proof.crashes.trap import POINTS, Place, Visit
from proof.options import part, positive

TOLD_MAX = 20
"""Failures that are told in full."""
TOLD_EVERY = 100
"""Schedules between two lines about how far we are, at a terminal."""
SAID_EVERY = 1000
"""And elsewhere."""


class Row(NamedTuple):
    """What a scenario contributes to the table."""

    scenario: str
    writes: int
    schedules: int
    wrong: int
    differing: int

    def plus(self, verdict: Verdict) -> Row:
        return self._replace(
            schedules=self.schedules + 1,
            wrong=self.wrong + bool(verdict.wrongs),
            differing=self.differing + bool(verdict.differences),
        )


def main(argv: list[str]) -> int:
    options = _read(argv)
    if options.shown:
        return _show()
    scratch.sweep()
    with workplace() as folder:
        if options.write is not None:
            return _replay(options, folder)
        if options.count:
            return _count(options, folder)
        return _play(options, folder)


def _read(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof crashes", description="Scenarios with a crash before, during and after every write."
    )
    parser.add_argument("--all", action="store_true", help="every schedule, not the daily thousand")
    parser.add_argument("--shown", action="store_true", help="print which rule of the SPEC each scenario shows")
    parser.add_argument("--scenario", choices=stock.names(), metavar="NAME", help="this one only, every schedule")
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="of these schedules one of every N")
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N", help="the K-th of N parts of equal size")
    parser.add_argument("--count", action="store_true", help="say how many schedules there are, and play none")
    parser.add_argument("--write", type=positive, metavar="N", help="replay: the write that is the first life's last")
    parser.add_argument("--point", metavar="P", help="replay: the point of it, one of those that a list names")
    parser.add_argument(
        "--second", type=_place, action="append", default=[], metavar="N:P", help="and of the next life"
    )
    parser.add_argument("--recover", choices=RECOVERIES, default="same", help="who goes on (default: %(default)s)")
    options = parser.parse_args(argv)
    if options.write is not None and not (options.scenario and options.point):
        parser.error("--write needs --scenario and --point")
    if options.write is None and (options.point or options.second):
        parser.error("--point and --second need --write")
    return options


def _place(text: str) -> Place:
    write, _, point = text.partition(":")
    if not write.isdecimal() or not any(point in points for points in POINTS.values()):
        raise argparse.ArgumentTypeError(f"write it as 6:before-commit, not {text!r}")
    return Place(int(write), point)


def _show() -> int:
    for name in stock.names():
        claim, sections = stock.shown(name)
        core = f" [pairs: {stock.CORE[name]}]" if name in stock.CORE else ""
        print(f"{name:<34} SPEC {', '.join(sections):<8} {claim}{core}")
    return 0


# --- one schedule -------------------------------------------------------------------------------------------------


def _replay(options: argparse.Namespace, folder: Path) -> int:
    bench = Bench(options.scenario, folder)
    if bench.problems:
        print(_by_itself(bench.name, bench.problems))
        return 1
    schedule = Schedule(options.scenario, (Place(options.write, options.point), *options.second), options.recover)
    visit = next((visit for visit in bench.visits_of(options.recover) if visit.place == schedule.crashes[0]), None)
    if visit is None:
        print(f"{bench.name} never comes by {schedule.crashes[0]}; these are its writes:", file=sys.stderr)
        for number, kind, points in _writes(bench.visits_of(options.recover)):
            print(f"  {number:>3} {kind:<7} {' '.join(points)}", file=sys.stderr)
        return 2
    about = f" {visit.about}" if visit.about else ""
    print(f"{bench.name}: dies in write {visit.place.write} ({visit.kind}{about}) at {visit.place.point}")
    verdict = bench.run(schedule)
    _tell(schedule, verdict)
    if verdict.is_good and schedule.recover in UNCOMPARED:
        print("no rule is broken; who comes late may end otherwise, so the end is not compared")
    elif verdict.is_good:
        print(
            f"no rule is broken, and the end is the undisturbed one: {len(bench.expected.entries)} entries to the byte"
        )
    return 0 if verdict.is_good else 1


def _writes(visits: tuple[Visit, ...]) -> Iterator[tuple[int, str, list[str]]]:
    kinds = {visit.place.write: visit.kind for visit in visits}
    for number, kind in kinds.items():
        yield number, kind, [visit.place.point for visit in visits if visit.place.write == number]


def _by_itself(name: str, problems: Iterable[str]) -> str:
    """Of a scenario that fails by itself nothing is learned by crashes."""
    head = f"\nFAILED  commit {describe()}  {name}\n  this scenario fails without any crash: mend that first"
    return "\n".join([head, *(f"  wrong: {problem}" for problem in problems)])


def _tell(schedule: Schedule, verdict: Verdict) -> None:
    if verdict.is_good:
        return
    print(f"\nFAILED  commit {describe()}\n  see it again: {schedule.command}")
    for wrong in verdict.wrongs:
        print(f"  wrong: {wrong}")
    for difference in verdict.differences:
        print(f"  ends otherwise: {difference}")


# --- many ---------------------------------------------------------------------------------------------------------


class Tally:
    """What was played so far, and what came of it."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.failed: list[Schedule] = []
        self.kinds: Counter[str] = Counter()
        self.compared = 0
        """Schedules whose end was compared with the undisturbed one."""
        self._began, self._told = time.monotonic(), 0

    def give_up(self, name: str, problems: Sequence[str], *, writes: int = 0) -> None:
        """A scenario fails without any crash: that is said, and no schedule of it is played."""
        print(_by_itself(name, problems))
        self.rows.append(Row(name, writes, 0, len(problems), 0))

    def play(self, bench: Bench, schedules: Iterable[Schedule]) -> None:
        row = Row(bench.name, bench.writes, 0, 0, 0)
        try:
            for schedule in schedules:
                verdict = bench.run(schedule)
                self.kinds[_kind(bench, schedule)] += 1
                self.compared += schedule.recover not in UNCOMPARED
                row = row.plus(verdict)
                if not verdict.is_good:
                    self.failed.append(schedule)
                    if len(self.failed) <= TOLD_MAX:
                        _tell(schedule, verdict)
                if row.schedules % TOLD_EVERY == 0:
                    self.tell(row)
        finally:
            self.rows.append(row)
        self.tell()

    def tell(self, present: Row | None = None) -> None:
        """A line about how far we are: over the last one at a terminal, and else now and then."""
        rows = [*self.rows, *([present] if present else [])]
        count = sum(row.schedules for row in rows)
        line = f"{len(rows)} scenarios, {count} schedules, {len(self.failed)} failed, {rows[-1].scenario}"
        if sys.stderr.isatty():
            print(f"\r{line:<90} {time.monotonic() - self._began:>5.0f} s", end="", file=sys.stderr, flush=True)
        elif count >= self._told + SAID_EVERY:
            self._told = count
            print(f"{line} ({time.monotonic() - self._began:.0f} s)", file=sys.stderr, flush=True)

    def print(self, *, stopped: bool = False) -> int:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        _print_table(self.rows, self.kinds)
        if self.failed:
            print(f"{len(self.failed)} schedules failed. To see the first again:\n  {self.failed[0].command}")
        elif stopped and not any(row.wrong for row in self.rows):
            print("Stopped before the end; what was played broke no rule, and ended as the undisturbed.")
        elif any(row.wrong for row in self.rows):
            alone = [row.scenario for row in self.rows if row.wrong]
            print(f"No schedule failed; but without any crash {', '.join(alone)} failed: mend that first.")
        else:
            late = sum(self.kinds.values()) - self.compared
            print(f"No rule was broken, and the {self.compared:,} ends that are compared were the undisturbed one (not "
                  f"compared: {late:,} where somebody comes late). One of them again: --help, --write.")  # fmt: skip
        return int(any(row.wrong or row.differing for row in self.rows))


def _play(options: argparse.Namespace, folder: Path) -> int:
    names = [options.scenario] if options.scenario else stock.names()
    tally, share = Tally(), Share(options)
    try:
        for name in names:
            _play_one(name, folder, tally, lambda bench: share.of(units(bench, options)))
    except KeyboardInterrupt:
        tally.print(stopped=True)
        raise
    if not any(row.schedules or row.wrong for row in tally.rows):
        print("error: this part has no schedule in it: there are fewer than parts", file=sys.stderr)
        return 2
    return tally.print()


def _play_one(name: str, folder: Path, tally: Tally, choose: Callable[[Bench], Iterable[Schedule]]) -> None:
    try:
        bench = Bench(name, folder)
    except Exception as error:
        tally.give_up(name, [f"{type(error).__name__}: {error}"])
        return
    if bench.problems:
        tally.give_up(name, bench.problems, writes=bench.writes)
    else:
        tally.play(bench, choose(bench))
    bench.close()


def _count(options: argparse.Namespace, folder: Path) -> int:
    """How many there are, in this part: of the pairs, only the first crashes have to be played for it."""
    everything = argparse.Namespace(**{**vars(options), "all": True})
    share, daily_share, daily = Share(everything), Share(options), 0
    print(f"commit {describe()}\n\n{'scenario':<34}{'writes':>8}{'single':>8}" + "".join(f"{one:>8}" for one in PAIRED))
    total: Counter[str] = Counter()
    for name in [options.scenario] if options.scenario else stock.names():
        bench = Bench(name, folder)
        found = Counter({"writes": bench.writes, "single": 0})
        for schedule in share.of(units(bench, everything)):
            found["single" if len(schedule.crashes) == 1 else schedule.recover] += 1
        if not (options.all or options.scenario):
            daily += sum(1 for _ in daily_share.of(units(bench, options)))
        total.update(found)
        print(_counted(name, found), flush=True)
        bench.close()
    pairs = sum(total[one] for one in PAIRED)
    print(_counted("all", total))
    print(
        f"\n{total['single'] + pairs:,} schedules: {total['single']:,} single crashes, {pairs:,} pairs{_which(options)}"
    )
    if not (options.all or options.scenario):
        print(f"{daily:,} of them are the daily ones, which are played without --all{_which(options)}")
    return 0


def _which(options: argparse.Namespace) -> str:
    """Of what a count is, if not of all there is."""
    turn, parts = options.part
    return (f"; part {turn} of {parts}" if parts > 1 else "") + (
        f"; one of every {options.every}" if options.every > 1 else ""
    )


def _counted(name: str, found: Counter[str]) -> str:
    return f"{name:<34}{found['writes']:>8}{found['single']:>8}" + "".join(f"{found[one] or '':>8}" for one in PAIRED)


class Share:
    """Of all that there is, what was asked for: one of every so many, round and round over all scenarios."""

    def __init__(self, options: argparse.Namespace) -> None:
        turn, parts = options.part
        self._units = (turn - 1, parts)
        self._every = options.every
        self._unit = self._schedule = 0

    def of(self, units: Iterable[Callable[[], Iterable[Schedule]]]) -> Iterator[Schedule]:
        turn, parts = self._units
        for unit in units:
            self._unit += 1
            if (self._unit - 1) % parts == turn:
                for schedule in unit():
                    self._schedule += 1
                    if (self._schedule - 1) % self._every == 0:
                        yield schedule


def units(bench: Bench, options: argparse.Namespace) -> Iterator[Callable[[], Iterable[Schedule]]]:
    """What is shared out among parts: single crashes one by one, and first crashes with all that may follow them."""
    singles = bench.singles() if options.all or options.scenario else bench.daily()
    for schedule in singles:
        yield partial(list, [schedule])
    if (options.all or options.scenario) and bench.name in stock.CORE:
        for first, recover in bench.firsts():
            yield partial(bench.pairs_after, first, recover)


def _kind(bench: Bench, schedule: Schedule) -> str:
    visits = bench.visits_of(schedule.recover)
    kind = next(visit.kind for visit in visits if visit.place == schedule.crashes[0])
    return f"{kind}, {schedule.recover}" + (", pairs" if len(schedule.crashes) > 1 else "")


def _print_table(rows: list[Row], kinds: Counter[str]) -> None:
    print(f"commit {describe()}\n")
    rows = [row for row in rows if row.schedules or row.wrong]
    width = max((len(row.scenario) for row in rows), default=8)
    print(f"{'scenario':<{width}}  writes  schedules  violations  differing ends")
    total = Row("all", *(sum(column) for column in zip((0, 0, 0, 0), *(row[1:] for row in rows), strict=True)))
    for row in (*rows, total):
        print(f"{row.scenario:<{width}}  {row.writes:>6}  {row.schedules:>9}  {row.wrong:>10}  {row.differing:>14}")
    print("\nby the kind of the first write that was disturbed, and who recovered:")
    for kind, count in sorted(kinds.items()):
        print(f"  {kind:<24} {count:>6}")
    print()
