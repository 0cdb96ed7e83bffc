"""Which schedules there are, and which of them run every day.

All of them: a crash at every point of every write, recovered by the same process and by another one; at one point of
every moment of every write, by another one while the first lingers, with objects that come in by processes of their
own, and by one that comes late. And on the core scenarios every pair: at one point of every moment of every write, and
again at one of every moment of every write of the life that follows, recovered twice by the same process, and twice by
another one; and, after one of every three first crashes, by another one while those before linger.

The daily thousand are spread by a digest of their names, not by chance: the same today and tomorrow, and changed only
where a scenario's own writes change.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from proof.crashes import stock
from proof.crashes.judge import End, Verdict, end_of, judge
from proof.crashes.play import RECOVERIES, Recover, Schedule, make_custodian, play
from proof.crashes.trap import POINTS, Moment, Visit

DAILY_SINGLES = 15
"""Of each scenario, every day: so many that a thousand are left when those that come late, whose end is not compared,
are not counted."""
DAILY_FIRSTS, DAILY_PAIRS = 6, 17
"""Of each core scenario, every day: first crashes that are looked at, and pairs that are played."""
T = TypeVar("T")
_USUAL: dict[Moment, str] = {"before": "before-commit", "during": "after-commit", "after": "after-anchor"}
"""The point of the ledger that stands for a moment."""
ONCE_EACH: tuple[Recover, ...] = ("rival", "client", "late")
PAIRED: tuple[Recover, ...] = ("same", "other", "rival")


class Bench:
    """One scenario, played once undisturbed, and then as often as one likes."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.scenario = name, stock.scenario(name)
        self.custodian = make_custodian(self.scenario, folder / name)
        with play(self.scenario, self.custodian) as played:
            self.expected: End = end_of(played)
            self.undisturbed: Verdict = judge(played, self.expected, None)
            self.visits = played.visits[0]
        with play(self.scenario, self.custodian, recover="client") as played:
            self.with_clients: Verdict = judge(played, end_of(played), self.expected)
            self._client_visits = played.visits[0]

    def visits_of(self, recover: Recover) -> tuple[Visit, ...]:
        """The places that the first life comes by: more of them where people's processes open the files, too."""
        return self._client_visits if recover == "client" else self.visits

    def close(self) -> None:
        shutil.rmtree(self.custodian)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong though nobody dies, each once."""
        found = (*self.undisturbed.wrongs, *self.with_clients.wrongs, *self.with_clients.differences)
        return tuple(dict.fromkeys(found))

    @property
    def writes(self) -> int:
        return self.visits[-1].place.write

    def run(self, schedule: Schedule) -> Verdict:
        """Play a schedule, and compare; whatever is raised on the way is what is wrong with it."""
        try:
            with play(self.scenario, self.custodian, schedule.crashes, schedule.recover) as played:
                return judge(played, end_of(played), self.expected)
        except Exception as error:
            return Verdict((f"{type(error).__name__}: {error}",), ())

    # -- all of them --

    def singles(self) -> Iterator[Schedule]:
        for visit in self.visits:
            yield self._single(visit, "same")
            yield self._single(visit, "other")
        for recover in ONCE_EACH:
            for visit in one_each(self.visits_of(recover)):
                yield self._single(visit, recover)

    def pairs(self) -> Iterator[Schedule]:
        for first, recover in self.firsts():
            yield from self.pairs_after(first, recover)

    def firsts(self) -> Iterator[tuple[Visit, Recover]]:
        """The first crashes of all pairs, and who recovers from both."""
        for first in one_each(self.visits):
            for recover in PAIRED if _turn(first) == PAIRED.index("rival") else PAIRED[:-1]:
                yield first, recover

    def pairs_after(self, first: Visit, recover: Recover) -> Iterator[Schedule]:
        """Every second crash after this one."""
        with play(self.scenario, self.custodian, (first.place,), recover) as played:
            seconds = one_each(played.visits[1])
        for second in seconds:
            yield Schedule(self.name, (first.place, second.place), recover)

    def _single(self, visit: Visit, recover: Recover) -> Schedule:
        return Schedule(self.name, (visit.place,), recover)

    # -- every day --

    def daily(self) -> Iterator[Schedule]:
        yield from self._daily_singles()
        if self.name in stock.CORE:
            yield from self._daily_pairs()

    def _daily_singles(self) -> Iterator[Schedule]:
        """Of the cells (kind, point, who recovers) that the scenario has, some, and of each one write."""
        cells: dict[tuple[str, str, Recover], list[Visit]] = {}
        for recover in RECOVERIES:
            for visit in self.visits_of(recover):
                cells.setdefault((visit.kind, visit.place.point, recover), []).append(visit)
        for kind, point, recover in self._spread(cells)[:DAILY_SINGLES]:
            visits = cells[kind, point, recover]
            yield self._single(self._spread(visits)[0], recover)

    def _daily_pairs(self) -> Iterator[Schedule]:
        firsts = self._spread(one_each(self.visits))[:DAILY_FIRSTS]
        turns = [self._spread(self.pairs_after(first, PAIRED[_turn(first)]))[:DAILY_PAIRS] for first in firsts]
        taken = [pair for row in zip(*turns, strict=False) for pair in row]
        yield from taken[:DAILY_PAIRS]

    def _spread(self, items: Iterable[T]) -> list[T]:
        return sorted(items, key=lambda item: sha256(f"{self.name} {item}".encode()).digest())


def _turn(first: Visit) -> int:
    """Goes round, so that neighbours differ."""
    return (first.place.write + list(_USUAL).index(first.moment)) % len(PAIRED)


def one_each(visits: Iterable[Visit]) -> list[Visit]:
    """Of every write one place of each moment that it has."""
    found: list[Visit] = []
    for _, places in groupby(visits, key=lambda visit: visit.place.write):
        by_moment: dict[Moment, list[Visit]] = {}
        for visit in places:
            by_moment.setdefault(visit.moment, []).append(visit)
        for moment, there in by_moment.items():
            usual = [visit for visit in there if visit.place.point == _USUAL[moment]]
            found.append((usual or there)[-1])
    return found


def cells() -> set[tuple[str, str]]:
    """Every kind of write with every point it has, but those of a recovery: they are met by a second crash only."""
    return {(kind, point) for kind, points in POINTS.items() if kind != "roll" for point in points}
