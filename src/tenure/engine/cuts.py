"""Who gives way, and in which order (SPEC 8): the resolver as a dry run.

    1  opportunistic work on spares, then overstayed backfill      whole runs
    2  spares, from the run with the most of them                  one lease at a time
    3  elastic runs above their minimum, the widest surplus first  one group at a time (or as many as a step has)
    4  whole runs, drawn by lot                                    see ``lottery``

A ``Scope`` says what counts: GPUs of some nodes, or leases that an envelope pays for. ``steps`` lists 1 to 3 in order.
A ``Trial`` lays cuts out on the live indexes and takes them back, so the question "is that enough" is asked of the same
search that will decide later; nothing is written. ``resolve`` finds the *first* point at which it is enough. More room
never hurts, so it is found in few questions: twice as many cuts each time, then by halving.

Leases that are on their way out already count as gone. All of this costs what is in scope, whatever the fleet holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from types import TracebackType

import msgspec
from msgspec import Struct

from tenure.draw import Token
from tenure.engine.groups import kept
from tenure.engine.odds import SAMPLES, SETS_MAX, Odds, estimated_odds, exact_odds, odds, samples_for
from tenure.engine.state import RunRow, State
from tenure.facts import Cut, CutKind, Lease
from tenure.units import Instant, Micros


class Scope(Struct, frozen=True):
    """Where room is needed: on these nodes, or among these leases. One of the two is given."""

    nodes: frozenset[str] | None = None
    leases: frozenset[str] | None = None
    """Keys of the leases that an envelope, or the envelopes of a cap, pay for."""
    spare: frozenset[str] = frozenset()
    """Runs that are never touched."""
    also: frozenset[str] = frozenset()
    """Backfilled runs that overstay elsewhere, on money that is needed here, or on nodes that others have a part of."""
    mild: bool = False
    """Only backfill that overstays gives way."""
    near: frozenset[str] = frozenset()
    """Nodes where who was told to leave counts as gone, though nobody else may be cut there."""

    def holds(self, lease: Lease) -> bool:
        return lease.node in self.nodes if self.nodes is not None else lease.key in (self.leases or ())


class Proposal(Struct, frozen=True):
    """What would be cut, in order. With tokens, a draw decides who else is; ``victims`` are the fewest that will do."""

    cuts: tuple[Cut, ...] = ()
    tokens: tuple[Token, ...] = ()
    victims: tuple[Cut, ...] = ()


# --- laying cuts out ------------------------------------------------------------------------------------------------


class Trial:
    """Cuts laid out on the live state, as far as one goes; taken back at the end of the block, whatever happens."""

    def __init__(self, state: State, scope: Scope) -> None:
        self.state = state
        self.scope = scope
        self.cuts: list[Cut] = []
        """Those that are known; the first ``position`` of them are laid out."""
        self.gone: dict[str, Lease] = {}
        """What is laid out, by key: leases that are leaving already, then those of the cuts."""
        self.freed = 0
        """GPUs in scope that came free: of machines, those that nobody is left on; of money, all that it paid for."""
        self.touched: set[str] = set()
        """Nodes that look otherwise than when this was last cleared, by whoever looks at them."""
        self._out: list[tuple[Lease, int]] = []
        self._marks: list[int] = []

    def __enter__(self) -> Trial:
        near = (lease for node in sorted(self.scope.near) for lease in self.state.leases_on(node))
        known = {lease.key: lease for lease in (*_scoped(self.state, self.scope), *near)}
        leaving = [lease for key, lease in known.items() if key in self.state.ending]
        for lease in sorted(leaving, key=lambda lease: lease.role != "Borrowed"):
            self._lay(lease)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._back(0)

    @property
    def position(self) -> int:
        return len(self._marks)

    def go(self, position: int) -> None:
        """Lay out the first so many of the known cuts, and no more."""
        if position < self.position:
            self._back(self._marks[position])
            del self._marks[position:]
        for cut in self.cuts[self.position : position]:
            self._marks.append(len(self._out))
            namespace = cut.run.partition("/")[0]
            leases = [self.state.leases[f"{namespace}/{name}"] for name in cut.leases]
            for lease in sorted(leases, key=lambda lease: lease.role != "Borrowed"):
                self._lay(lease)

    def forget(self, position: int) -> None:
        """Take back and drop all cuts but the first so many."""
        self.go(min(position, self.position))
        del self.cuts[position:]

    def whole(self, run: str) -> Cut:
        """Everything that a run still has."""
        row = self.state.runs[run]
        left = [lease for lease in kept(self.state, row) if lease.key not in self.gone]
        return _cut("Lottery", row, left)

    def _lay(self, lease: Lease) -> None:
        if lease.key in self.gone:
            return
        self.gone[lease.key] = lease
        freed = len(lease.gpus)
        if self.scope.nodes is not None:
            lease = self._unfilled(lease)
            freed = len(lease.gpus) if lease.role != "Borrowed" else 0
            self.state.topology.release(lease)
            self.touched.add(lease.node)
        if self.scope.holds(lease):
            self.freed += freed
        else:
            freed = 0
        self._out.append((lease, freed))

    def _unfilled(self, lease: Lease) -> Lease:
        """A spare without the GPUs on which opportunistic work stays: that keeps them when the spare ends."""
        row = self.state.topology.rows.get(lease.node)
        if lease.role != "Spare" or row is None or not row.filled:
            return lease
        return msgspec.structs.replace(lease, gpus=tuple(gpu for gpu in lease.gpus if not row.filled >> gpu & 1))

    def _back(self, count: int) -> None:
        while len(self._out) > count:
            lease, freed = self._out.pop()
            if self.scope.nodes is not None and lease.node in self.state.topology.rows:
                self.state.topology.hold(lease)
                self.touched.add(lease.node)
            self.freed -= freed
            del self.gone[lease.key]


Enough = Callable[[Trial], bool]
"""Whether what is laid out suffices. Once it does, it does with more."""


def _scoped(state: State, scope: Scope) -> Iterator[Lease]:
    if scope.nodes is not None:
        for node in sorted(scope.nodes):
            yield from state.leases_on(node)
    else:
        yield from (state.leases[key] for key in sorted(scope.leases or ()))


# --- steps 1 to 3 ---------------------------------------------------------------------------------------------------


def steps(state: State, scope: Scope, *, now: Instant, today: Instant | None = None) -> Iterator[Cut]:
    """What gives way before anybody is drawn, one cut after the other. Asked ``today`` about a later instant, who is
    just starting is taken to run by then."""
    held = _held(state, scope)
    if scope.mild:
        yield from _overstayed(state, held, now=now)
        return
    yield from _guests(state, held)
    yield from _overstayed(state, held, now=now)
    dropped: set[str] = set()
    yield from _spares(state, held, dropped)
    yield from _groups(state, held, dropped, starting=today is not None and today < now)


def _held(state: State, scope: Scope) -> dict[str, list[Lease]]:
    """By run, the leases in scope that are to stay."""
    held: dict[str, list[Lease]] = {}
    for lease in _scoped(state, scope):
        if lease.key not in state.ending and lease.run_key not in scope.spare:
            held.setdefault(lease.run_key, []).append(lease)
    held.update((key, kept(state, state.runs[key])) for key in sorted(scope.also - scope.spare))
    return held


def _rank(row: RunRow) -> tuple[str, str, str]:
    """Who comes first among equals."""
    return row.run.spec.owner, row.namespace, row.name


def _cut(kind: CutKind, row: RunRow, leases: Iterable[Lease]) -> Cut:
    found = sorted(leases, key=lambda lease: lease.name)
    return Cut(kind=kind, run=row.key, owner=row.run.spec.owner, gpus=sum(len(lease.gpus) for lease in found),
               leases=tuple(lease.name for lease in found))  # fmt: skip


def _guests(state: State, held: dict[str, list[Lease]]) -> Iterator[Cut]:
    """Opportunistic runs on spares in scope, all of each, the one on the most spares first."""
    on_spares = {
        key: gpus
        for key, leases in held.items()
        if (gpus := sum(len(lease.gpus) for lease in leases if lease.role == "Borrowed"))
    }
    for key in sorted(on_spares, key=lambda key: (-on_spares[key], _rank(state.runs[key]))):
        del held[key]
        yield _cut("Reclaim", state.runs[key], kept(state, state.runs[key]))


def _overstayed(state: State, held: dict[str, list[Lease]], *, now: Instant) -> Iterator[Cut]:
    """Backfilled runs that said they would be gone by now, all of each, the longest overdue first."""
    due = []
    for key in held:
        row = state.runs[key]
        if row.overstays(now):
            due.append((row.life.until or 0, _rank(row), key))
    for _, _, key in sorted(due):
        del held[key]
        yield _cut("Overstay", state.runs[key], kept(state, state.runs[key]))


def _spares(state: State, held: dict[str, list[Lease]], dropped: set[str]) -> Iterator[Cut]:
    """Spare leases, each from the run that has the most spare GPUs left in scope.

    In that run those that borrowed money pays for come first, then those of the highest group.
    """
    rows: dict[str, list[Lease]] = {}
    heap = []
    for key, leases in held.items():
        mine = [lease for lease in leases if lease.role == "Spare"]
        if mine:
            mine.sort(key=lambda lease: (lease.funding == "borrowed", lease.group, lease.name))
            rows[key] = mine
            heap.append((-sum(len(lease.gpus) for lease in mine), _rank(state.runs[key]), key))
    heapify(heap)
    while heap:
        gpus, rank, key = heap[0]
        lease = rows[key].pop()
        if rows[key]:
            heapreplace(heap, (gpus + len(lease.gpus), rank, key))
        else:
            heappop(heap)
        dropped.add(lease.key)
        yield _cut("DropSpare", state.runs[key], [lease])


class _Surplus:
    """An elastic run in scope: how far it is above its minimum, and its groups in the order in which they go."""

    def __init__(self, state: State, row: RunRow, scoped: list[Lease]) -> None:
        elastic = row.run.spec.malleable
        assert elastic is not None
        leases = kept(state, row)
        self.row = row
        self.step = elastic.step_gpus
        self.above = sum(len(one.gpus) for one in leases if one.role != "Spare") - elastic.min_total_gpus
        self.groups: dict[int, list[Lease]] = {}
        for lease in leases:
            self.groups.setdefault(lease.group, []).append(lease)
        borrowed = {lease.group for lease in leases if lease.funding == "borrowed"}
        wanted = {lease.group for lease in scoped if lease.role != "Spare"}
        # Groups out of scope go only where a step takes more than one.
        self.order = sorted(self.groups, key=lambda group: (group in wanted, group in borrowed, group))
        self.left = len(wanted)

    @property
    def may_go(self) -> bool:
        return self.left > 0 and self.above >= self.step

    def next(self, dropped: set[str]) -> Cut:
        count = max(1, self.step // self.row.demand.group)
        going = [self.order.pop() for _ in range(count)]
        self.left -= count
        self.above -= self.step
        leases = [lease for group in going for lease in self.groups[group] if lease.key not in dropped]
        return _cut("Shrink", self.row, leases)


def _groups(
    state: State, held: dict[str, list[Lease]], dropped: set[str], *, starting: bool
) -> Iterator[Cut]:  # fmt: skip
    """Groups of elastic runs, each from the run that is furthest above its minimum."""
    heap = []
    for key, leases in held.items():
        row = state.runs[key]
        runs = row.life.phase == "Running" or (starting and row.life.phase == "Starting")
        if row.run.spec.malleable is not None and runs:
            surplus = _Surplus(state, row, leases)
            if surplus.may_go:
                heap.append((-surplus.above, _rank(row), surplus))
    heapify(heap)
    while heap:
        _, rank, surplus = heappop(heap)
        yield surplus.next(dropped)
        if surplus.may_go:
            heappush(heap, (-surplus.above, rank, surplus))


# --- step 4 ---------------------------------------------------------------------------------------------------------


def tokens(
    trial: Trial, *, now: Instant, lead: Micros, today: Instant | None = None, scope: Scope | None = None
) -> tuple[Token, ...]:  # fmt: skip
    """Who is in the pool once the trial's cuts are made: whole runs that still have Active GPUs in scope, and have run
    for ``lead``. Asked ``today`` about a later instant, those that are just starting are taken to run from today on."""
    state, pool, scope = trial.state, [], trial.scope if scope is None else scope
    for key, leases in _held(state, scope).items() if not scope.mild else ():
        row = state.runs[key]
        gpus = sum(len(lease.gpus) for lease in leases if lease.role == "Active" and lease.key not in trial.gone)
        if gpus and may_be_drawn(row, now=now, lead=lead, today=now if today is None else today):
            pool.append(Token(id=key, owner=row.run.spec.owner, gpus=gpus))
    return tuple(sorted(pool, key=lambda token: token.id))


def may_be_drawn(row: RunRow, *, now: Instant, lead: Micros, today: Instant) -> bool:
    phases = ("Starting", "Running") if today < now else ("Running",)
    started = today if row.life.phase == "Starting" else row.life.started
    return row.life.phase in phases and started is not None and started + lead <= now


# --- how much is enough ---------------------------------------------------------------------------------------------


def resolve(
    state: State, scope: Scope, enough: Enough, *, now: Instant, lead: Micros, today: Instant | None = None
) -> Proposal | None:
    """The first cuts, in order, that are enough; None if nothing would be, and then nothing is cut."""
    with Trial(state, scope) as trial:
        if _first(trial, steps(state, scope, now=now, today=today), enough):
            return Proposal(tuple(trial.cuts))
        count, pool = len(trial.cuts), tokens(trial, now=now, lead=lead, today=today)
        largest = sorted(pool, key=lambda token: (-token.gpus, token.owner, token.id))
        if not _first(trial, (trial.whole(token.id) for token in largest), enough, known_short=True):
            return None
        return Proposal(tuple(trial.cuts[:count]), pool, tuple(trial.cuts[count:]))


def most(state: State, scope: Scope, *, now: Instant, lead: Micros) -> int:
    """GPUs in scope that come free when everything is cut that may be."""
    with Trial(state, scope) as trial:
        lay_all(trial, now=now, lead=lead)
        return trial.freed


def lay_all(trial: Trial, *, now: Instant, lead: Micros, today: Instant | None = None) -> None:
    """Lay out everything that may be cut."""
    _first(trial, steps(trial.state, trial.scope, now=now, today=today), _never)
    pool = tokens(trial, now=now, lead=lead, today=today)
    _first(trial, (trial.whole(token.id) for token in pool), _never)


def _never(trial: Trial) -> bool:
    return False


def outcome(
    state: State, scope: Scope, order: Sequence[str], enough: Enough, *, now: Instant, lead: Micros,
    drawn: Scope | None = None,
) -> tuple[Cut, ...] | None:  # fmt: skip
    """All cuts, given the order of a draw: steps 1 to 3, then the shortest prefix of the order that is enough.

    Runs that are over, or have started anew since the freeze, are passed over. ``drawn``: where the others of the order
    are, if not in scope: nobody is spared because of what was promised there since. None if nothing is enough any more.
    """
    with Trial(state, scope) as trial:
        if _first(trial, steps(state, scope, now=now), enough):
            return tuple(trial.cuts)
        pool = {token.id for token in tokens(trial, now=now, lead=lead, scope=drawn)}
        if _first(trial, (trial.whole(name) for name in order if name in pool), enough, known_short=True):
            return tuple(trial.cuts)
    return None


ROUGH_SETS, ROUGH_SAMPLES = 128, 100
"""What rough odds cost at most: sets, or draws. Their standard error is then at most 0.05."""


def chances(
    state: State, scope: Scope, proposal: Proposal, enough: Enough, *, seed: bytes, rough: bool = False
) -> Odds:
    """The odds of each run in the pool to be cut, once the proposal's cuts are made. ``rough``: as a forecast has them,
    which is made often and long before the draw."""
    with Trial(state, scope) as trial:
        trial.cuts.extend(proposal.cuts)
        trial.go(len(trial.cuts))
        count = trial.position
        runs = {token.id: trial.whole(token.id) for token in proposal.tokens}
        known: dict[frozenset[str], bool] = {}

        def is_enough(cut: frozenset[str]) -> bool:
            if cut not in known:
                trial.forget(count)
                trial.cuts.extend(runs[name] for name in sorted(cut))
                trial.go(len(trial.cuts))
                known[cut] = enough(trial)
            return known[cut]

        def victims(order: Iterator[str]) -> list[str]:
            trial.forget(count)
            _first(trial, (runs[name] for name in order), enough)
            return [cut.run for cut in trial.cuts[count:]]

        if is_enough(frozenset()) or not is_enough(frozenset(runs)):
            return odds(proposal.tokens, is_enough, seed=seed)
        exact = exact_odds(proposal.tokens, is_enough, sets_max=ROUGH_SETS if rough else SETS_MAX)
        samples = min(ROUGH_SAMPLES if rough else SAMPLES, samples_for(len(proposal.tokens)))
        return exact or estimated_odds(proposal.tokens, victims, seed=seed, samples=samples)


def _first(trial: Trial, source: Iterator[Cut], enough: Enough, *, known_short: bool = False) -> bool:
    """Lay out cuts from the source up to the first point where it is enough; all of them if it never is.
    ``known_short``: what is laid out by now is not enough, as somebody asked before."""
    short, size = trial.position, 1
    if not known_short and enough(trial):
        return True
    while True:
        more = list(islice(source, size))
        trial.cuts += more
        trial.go(len(trial.cuts))
        if not more:
            return False
        if enough(trial):
            break
        short, size = trial.position, 2 * size
    long = trial.position
    while long - short > 1:
        middle = (short + long) // 2
        trial.go(middle)
        if enough(trial):
            long = middle
        else:
            short = middle
    trial.forget(long)
    trial.go(long)
    return True
