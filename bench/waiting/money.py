"""Promise: behind 100,000 runs that are short of money of one envelope an end of another owner, an end of the flood's
own, and 8 GPUs more for its envelope cost at most 1.2 times what each costs without them.

1,024 GPUs that are not full: four owners hold half of them, and nobody of these waits. A fifth may use 128 at once, and
asks for far more: what it submits is 1 to 8 GPUs wide, and waits for its own money. *Without* is the same fleet with so
few of these that money and machines are used alike, and as many start after an end; for an end of another owner it is
also one where nobody waits at all. The fleets are asked in turns, and every decision is committed to a ledger on disk:
where nobody waits, deciding on an end takes less than committing it.

Not shown: the engine alone, where an end of another owner stood at 1.5 to 2.7 times against a fleet in which nobody
waits (some 0.1 and 0.2 ms, the engine before bounded promises, 60 to 2,000 in the flood), and not at 1.1 to 1.2 as with
its commit; a flood that waits for money of several envelopes, or for hours; a family that lends; a limit that is
lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bench.result import Row, Scale
from bench.waiting.side import Side, enough, in_turns, mean, part, ratio, rounded, row
from bench.waiting.world import OWNERS, TOTAL, End, Load, World, budget, jobs
from tenure.engine import Apply
from tenure.ledger import Ledger
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.store import Store

T = TypeVar("T")
NAME = "waiting-money"
FLAT = 1.2
FLOOD = "flood"
SHARE = TOTAL // 8
MORE = 8
_WIDTHS = (1, 2, 4, 8)
_DECISIONS = 4
"""Ends of either sort for each time that more money comes."""


class Size(Struct, frozen=True):
    flood: int
    few: int
    rounds: int
    limit: float


SIZES = {
    "full": Size(flood=100_000, few=200, rounds=32, limit=600),
    "quick": Size(flood=10_000, few=200, rounds=16, limit=60),
    "tiny": Size(flood=60, few=30, rounds=3, limit=20),
}


class Flooded(World):
    """One such fleet, with so many of the flood that wait."""

    def __init__(self, waiting: int, *, store: Store | None = None) -> None:
        super().__init__(concurrency={FLOOD: SHARE}, store=store)
        self.supply = jobs(Load(), owners=OWNERS, widths=_WIDTHS)
        self.flood = jobs(Load(), owners=(FLOOD,), widths=_WIDTHS)
        while self.held < TOTAL // 2:
            self.submit()
        assert not self.waiting, "others have money and machines"
        if waiting:
            self.fill(waiting, supply=self.flood)

    @property
    def held(self) -> int:
        return sum(self.jobs[key].gpus for key in self.running)

    def end_one(self, *, of_flood: bool) -> End:
        """The first of them to have started ends; as large a one comes for it."""
        key = next(key for key in self.running if key.startswith(f"{FLOOD}/") == of_flood)
        job = next(self.flood if of_flood else self.supply)
        return self.end_of(key, job if of_flood else replace(job, gpus=self.jobs[key].gpus))

    def give_more(self) -> tuple[float, int]:
        """What more money for the flood took, and how many start by it; as many come for them."""
        self.money[FLOOD] += MORE
        before = self.starts
        took = self.handle(Apply((budget(FLOOD, self.money[FLOOD]),)))
        starts = self.starts - before
        for _ in range(starts):
            self.submit(next(self.flood))
        return took.cpu, starts


class More(Struct, frozen=True):
    """What more money took, and how many started by it."""

    ms: float
    starts: int


def run(scale: Scale, folder: Path) -> list[Row]:
    size = SIZES[scale.name]
    waiting = {"flood": size.flood, "few": size.few, "nobody": 0}
    with ExitStack() as stack:
        ledgers = {name: stack.enter_context(Ledger.create(folder / f"{name}.db", fleet=name)) for name in waiting}
        sides = {name: Side(partial(Flooded, count, store=LedgerStore(ledgers[name])), size.limit)
                 for name, count in waiting.items()}  # fmt: skip
        return [*_rows(size, sides)]


def _rows(size: Size, sides: dict[str, Side]) -> Iterator[Row]:
    """One kind of decision after the other, so that those which take long leave the others' caches warm."""
    behind, side = f"{size.flood:,} short of money", sides["flood"]
    with_money = {name: sides[name] for name in ("flood", "few")}
    others = _turns(sides, partial(_end, of_flood=False), _DECISIONS * size.rounds)
    yield _ends(f"{behind} against none: an end of another owner, p50", side, others["flood"], others["nobody"])
    yield from _against(size, side, "an end of another owner", others)
    own = _turns(with_money, partial(_end, of_flood=True), _DECISIONS * size.rounds)
    yield from _against(size, side, "an end of the flood's own", own)
    more = _turns(with_money, _more, size.rounds)
    flood, few = (part((one.ms for one in more[name]), 0.5) for name in with_money)
    starts, others_start = (mean(one.starts for one in more[name]) for name in with_money)
    yield row(NAME, f"{behind} against {size.few:,}: {MORE} GPUs more for its envelope, p50", ratio(flood, few),
              side.limit, goal=FLAT,
              detail=rounded(ms_flood=flood, ms_without=few, starts=starts, starts_without=others_start))  # fmt: skip


def _turns(sides: dict[str, Side], piece: Callable[[World, int], T], rounds: int) -> dict[str, Sequence[T]]:
    return {name: enough(some, rounds) for name, some in in_turns(sides, piece, rounds=rounds).items()}


def _end(world: World, number: int, *, of_flood: bool) -> End:
    assert isinstance(world, Flooded)
    return world.end_one(of_flood=of_flood)


def _more(world: World, number: int) -> More:
    assert isinstance(world, Flooded)
    seconds, starts = world.give_more()
    return More(1000 * seconds, starts)


def _against(size: Size, side: Side, what: str, ends: dict[str, Sequence[End]]) -> Iterator[Row]:
    against = f"{size.flood:,} short of money against {size.few:,}: {what}"
    yield _ends(f"{against}, p50", side, ends["flood"], ends["few"])
    facts = [mean(end.facts for end in ends[name]) for name in ("flood", "few")]
    yield row(NAME, f"{against}, facts", ratio(*facts), side.limit, steady=True,
              detail=rounded(flood=facts[0], without=facts[1]))  # fmt: skip


def _ends(what: str, side: Side, some: Sequence[End], others: Sequence[End]) -> Row:
    flood, without = (part((1000 * end.took.cpu for end in one), 0.5) for one in (some, others))
    return row(NAME, what, ratio(flood, without), side.limit, goal=FLAT,
               detail=rounded(ms_flood=flood, ms_without=without, ends=len(some)))  # fmt: skip
