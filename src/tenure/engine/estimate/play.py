"""One replay of a queue to its end, at capacity level: so many GPUs, no topology.

The rules are those of SPEC 7 as far as they decide who starts when:

- who holds a promise starts as soon as it fits and takes nothing from the others, by number;
- the first promise is moved earlier, by at least a tenth of what was to be waited, into what nobody else is promised;
- while fewer than ``places`` promises stand, the oldest is dealt one;
- then whoever delays no promise by its *declared* length starts, oldest first, and really stays as long as this replay
  says.

Safe backfill needs no timeline. By declarations, room only shrinks where a promise begins, so a *level* for each
promise says it all: how many GPUs more could be in use when it begins.

    a run of w GPUs and length d may start now   <=>   w <= free, and w <= level of every promise that begins within d

Those who wait stand in lines by width and declared length, so a pass looks at the heads of lines, not at the queue.
What is left after so many starts can be poured (``columns``), which is faster and knows no backfill.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from tenure.engine.estimate.columns import Held, Runs, pour
from tenure.units import FOREVER, Instant, Micros


class Claim:
    """A promise that stands in a replay."""

    __slots__ = ("by", "gpus", "lasts", "level", "opens", "run", "step")

    def __init__(self, run: int, gpus: int, lasts: Micros, by: Instant, opens: Instant, step: Micros) -> None:
        self.run, self.gpus, self.lasts, self.by, self.opens, self.step = run, gpus, lasts, by, opens, step
        self.level = 0


class Play:
    """The state of one replay."""

    def __init__(
        self, free: int, held: list[Held], ends: list[Instant], runs: Runs, length: Callable[[int], Micros], *,
        now: Instant, patience: Micros, places: int,
    ) -> None:  # fmt: skip
        """``ends``: when each of those that hold GPUs leaves; ``length``: how long one that waits will take."""
        self.now, self.free, self.runs, self.length = now, free, runs, length
        self.patience, self.places = patience, places
        self.starts: list[Instant] = [FOREVER] * len(runs.gpus)
        self._ends = [(end, run.gpus, run.declared, run.owner) for run, end in zip(held, ends, strict=True)
                      if end < FOREVER]  # fmt: skip
        heapify(self._ends)
        self._declared = sorted((run.declared, -run.gpus) for run in held if run.declared < FOREVER)
        self._steps = [*self._declared]
        """What is declared, in order of time: (when, GPUs taken then), of those who run and of promises that stand."""
        self._in_use: dict[str, int] = {}
        for run in held:
            self._in_use[run.owner] = self._in_use.get(run.owner, 0) + run.gpus
        self._gone = bytearray(len(runs.gpus))
        """Who started or was dealt a promise."""
        self._heads = [0] * len(runs.lines)
        self._parked: dict[str, list[int]] = {}
        """Who waits for its owner's money, by age."""
        self._back: list[int] = []
        """Who has its money and waits for machines, by age."""
        self._oldest = len(runs.promised)
        self._claims: list[Claim] = []
        """By number."""
        self._bounds: list[Claim] = []
        """By bound."""
        for place, (by, opens) in enumerate(runs.promised):
            self._lay(Claim(place, runs.gpus[place], runs.lasts[place], by, opens, max(1, (by - now) // 10)))
        self.started: list[int] = []
        """Who started, in order."""

    def run(self, asked: set[int] | None = None, *, most: int) -> list[Instant]:
        """Play until all have started, or those that are asked for, or so many; ``FOREVER`` for who has not."""
        left = len(self.starts) if asked is None else len(asked)
        opens = sorted({claim.opens for claim in self._claims if claim.opens > self.now})
        self._asked, self._left = asked, left
        self._pass()
        while self._left and len(self.started) < most and (self._ends or opens):
            if not self._ends or (opens and opens[0] < self._ends[0][0]):
                self.now = opens.pop(0)
            else:
                self.now = self._ends[0][0]
                self._end()
            self._pass()
        return self.starts

    @property
    def is_over(self) -> bool:
        """True if nothing more would start, or all that were asked for have."""
        return not self._left or not self._ends

    # --- what happens -----------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Everything that leaves at this instant."""
        ends, now = self._ends, self.now
        while ends and ends[0][0] <= now:
            _, gpus, declared, owner = heappop(ends)
            self.free += gpus
            self._in_use[owner] -= gpus
            if declared < FOREVER:
                _remove(self._declared, (declared, -gpus))
                _remove(self._steps, (declared, -gpus))
            for claim in self._bounds:
                if claim.by >= declared:
                    break
                claim.level += gpus
            if owner in self._parked:
                self._unpark(owner)

    def _start(self, run: int, until: Instant) -> None:
        """``until``: the bound of a promise that ends it; ``FOREVER`` for most."""
        gpus, lasts, owner, now = self.runs.gpus[run], self.runs.lasts[run], self.runs.owners[run], self.now
        declared = min(now + lasts, until)
        for claim in self._bounds:
            if claim.by >= declared:
                break
            claim.level -= gpus
        self.free -= gpus
        self.starts[run] = now
        self._gone[run] = 1
        self.started.append(run)
        if self._asked is None or run in self._asked:
            self._left -= 1
        self._in_use[owner] = self._in_use.get(owner, 0) + gpus
        if declared < FOREVER:
            insort(self._declared, (declared, -gpus))
            insort(self._steps, (declared, -gpus))
        end = min(now + self.length(run), until)
        if end < FOREVER:
            heappush(self._ends, (end, gpus, declared, owner))

    def _pass(self) -> None:
        for claim in [claim for claim in self._claims if claim.gpus <= self.free]:
            if claim.gpus <= self.free and claim.opens <= self.now and (until := self._may_stay(claim)):
                self._take_back(claim)
                self._start(claim.run, until)
        if self._claims:
            self._improve()
        if len(self._claims) < self.places:
            self._deal()
        if self.free:
            self._backfill()

    # --- promises ---------------------------------------------------------------------------------------------------

    def _may_stay(self, claim: Claim) -> Instant:
        """Until when who holds a promise may stay if it starts now; 0 if it may not."""
        end, gpus = min(claim.by, self.now + claim.lasts), claim.gpus
        for other in self._bounds:
            if other.by >= end:
                break
            if other.level < gpus and other is not claim:
                return other.by if claim.lasts == FOREVER and other.by - self.now > self.patience else 0
        return FOREVER

    def _improve(self) -> None:
        first = next((claim for claim in self._claims if claim.opens <= self.now), None)
        if first is None or first.by - first.step <= self.now:
            return
        at = self._earliest(first.gpus, first.lasts, first.by - first.step, first)
        if at is not None:
            place = self._claims.index(first)
            self._take_back(first)
            first.by = at
            self._lay(first, place)

    def _deal(self) -> None:
        runs, gone = self.runs, self._gone
        while len(self._claims) < self.places:
            while self._oldest < len(gone) and (gone[self._oldest] or runs.limits[self._oldest] is not None):
                self._oldest += 1
            if self._oldest == len(gone):
                return
            run = self._oldest
            gpus, lasts = runs.gpus[run], runs.lasts[run]
            at = self._earliest(gpus, lasts, FOREVER, None)
            if at is None:
                return
            until = self._may_pass(gpus, lasts) if gpus <= self.free else 0
            if until:
                self._start(run, until)
            else:
                gone[run] = 1
                self._lay(Claim(run, gpus, lasts, at, 0, max(1, (at - self.now) // 10)))

    def _lay(self, claim: Claim, place: int | None = None) -> None:
        """Enter a promise among those that stand."""
        end, at = claim.by + claim.lasts, max(claim.by, self.now)
        level = self.free - claim.gpus
        for when, gpus in self._declared:
            if when > at:
                break
            level -= gpus
        for other in self._bounds:
            if other.by <= at < other.by + other.lasts:
                level -= other.gpus
            if claim.by <= other.by < end:
                other.level -= claim.gpus
        claim.level = level
        insort(self._bounds, claim, key=_bound)
        for step in _steps_of(claim):
            insort(self._steps, step)
        self._claims.insert(len(self._claims) if place is None else place, claim)

    def _take_back(self, claim: Claim) -> None:
        self._claims.remove(claim)
        self._bounds.remove(claim)
        for step in _steps_of(claim):
            _remove(self._steps, step)
        begin, end, gpus = claim.by, claim.by + claim.lasts, claim.gpus
        for other in self._bounds:
            if begin <= other.by < end:
                other.level += gpus

    def _earliest(self, gpus: int, lasts: Micros, before: Instant, mine: Claim | None) -> Instant | None:
        """The first instant by ``before`` from which so many GPUs are free for so long, by what is declared."""
        now, level = self.now, self.free
        steps = self._steps[bisect_right(self._steps, (now, FOREVER)) :]
        if mine is not None:
            for step in _steps_of(mine):
                if step[0] > now:
                    _remove(steps, step)
        for claim in self._bounds:  # who is late has begun now
            if claim.by > now:
                break
            if claim is not mine:
                level -= claim.gpus
                if claim.lasts < FOREVER:
                    if claim.by + claim.lasts > now:
                        _remove(steps, (claim.by + claim.lasts, -claim.gpus))
                    insort(steps, (now + claim.lasts, -claim.gpus))
        start = now if level >= gpus else None
        for at, taken in steps:
            if start is None:
                if at > before:
                    return None
            elif at >= start + lasts:
                return start
            level -= taken
            if level < gpus:
                start = None
            elif start is None:
                start = at
        return start if start is None or start <= before else None

    # --- who passes -------------------------------------------------------------------------------------------------

    def _backfill(self) -> None:
        heads = self._candidates()
        while heads:
            run, line = heappop(heads)
            gpus = self.runs.gpus[run]
            limit = self.runs.limits[run]
            if gpus > self.free:
                if line < 0:
                    self._back.append(run)
                continue  # nor does who stands behind it in its line
            if limit is not None and self._in_use.get(self.runs.owners[run], 0) + gpus > limit:
                heappush(self._parked.setdefault(self.runs.owners[run], []), run)
                self._gone[run] = 1
            elif until := self._may_pass(gpus, self.runs.lasts[run]):
                self._start(run, until)
            else:
                if line < 0:
                    self._back.append(run)
                continue
            if line >= 0 and (head := self._head(line)) is not None:
                heappush(heads, (head, line))

    def _candidates(self) -> list[tuple[int, int]]:
        """(run, line) of the heads of lines that may pass; of who came back from waiting for money, line -1."""
        free, now, found, width, room = self.free, self.now, [], 0, FOREVER
        for line, (gpus, least, _) in enumerate(self.runs.lines):
            if gpus > free:
                break
            if gpus > width:
                width, room = gpus, self._hole(gpus) - now
            may_pass = least <= room or (least == FOREVER and room > self.patience)
            if may_pass and (head := self._head(line)) is not None:
                found.append((head, line))
        found += [(run, -1) for run in self._back]
        self._back = []
        heapify(found)
        return found

    def _head(self, line: int) -> int | None:
        runs, gone, at = self.runs.lines[line][2], self._gone, self._heads[line]
        while at < len(runs) and gone[runs[at]]:
            at += 1
        self._heads[line] = at
        return runs[at] if at < len(runs) else None

    def _may_pass(self, gpus: int, lasts: Micros) -> Instant:
        """Until when who holds no promise may stay if it starts now; 0 if it may not."""
        hole = self._hole(gpus)
        if self.now + lasts <= hole:
            return FOREVER
        return hole if lasts == FOREVER and hole - self.now > self.patience else 0

    def _hole(self, gpus: int) -> Instant:
        """Until when so many GPUs are left beside all promises."""
        for claim in self._bounds:
            if claim.level < gpus:
                return claim.by
        return 2 * FOREVER

    def _unpark(self, owner: str) -> None:
        """As many come back as the money pays for that its owner has now."""
        parked, runs = self._parked[owner], self.runs
        in_use = self._in_use.get(owner, 0)
        while parked and in_use + runs.gpus[parked[0]] <= (runs.limits[parked[0]] or 0):
            run = heappop(parked)
            in_use += runs.gpus[run]
            self._back.append(run)

    def pour(self) -> None:
        """Give the rest a start without playing it."""
        lanes = [(self.now, self.free), *((end, gpus) for end, gpus, _, _ in self._ends)]
        pour(self.starts, lanes, self.runs, self.length, now=self.now)


def _bound(claim: Claim) -> Instant:
    return claim.by


def _steps_of(claim: Claim) -> list[tuple[Instant, int]]:
    begins = (claim.by, claim.gpus)
    return [begins] if claim.lasts >= FOREVER else [begins, (claim.by + claim.lasts, -claim.gpus)]


def _remove(steps: list[tuple[Instant, int]], step: tuple[Instant, int]) -> None:
    del steps[bisect_left(steps, step)]
