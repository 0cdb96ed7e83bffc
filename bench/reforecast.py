"""Promise: a surprise that breaks promises costs at most 1.5 times as much behind 10,000 waiting runs as behind 1,000.

A fleet of 4,096 GPUs is full of work that said when it will end, and a queue waits for it, in sixty kinds of demand:
numbers of GPUs, groups, pods of 8 and one domain, in several sizes and lengths. Then nodes are closed and opened again,
which nobody had foreseen. In the good case it is one node, on which few promises rest. In the bad case it is every node
that is promised to anybody: all promises are broken at once, and each is planned anew, around those that stand by then.

Not shown: runs that end before they said (`saturated`): here nobody ends at all. What those see who hold no promise,
which is all but 48 of the queue: their estimates are made when somebody looks (`estimates`). The last quarter of the
places in the queue, which stay empty, since all that waits is one owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.crowd import Crowd, Size, ask, scattered
from bench.measure import Stopwatch, Took, in_turns
from bench.result import Row, Scale
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine import Apply, step
from tenure.units import SECOND

NAME = "reforecast"
GOAL = 1.5
PLACES = 3 * Policy().promise_depth // 4
"""Promises that one owner may hold."""
_PATIENT = Policy(patience="87600h")
_SIZE = Size(domains=64, nodes=8, gpus=8)
_LONG = {"full": 10_000, "quick": 10_000, "tiny": 600}
_HOUR = 3_600


def run(scale: Scale, folder: Path) -> list[Row]:
    long = _LONG[scale.name]
    short = long // 10
    beds = {count: bed(count) for count in (short, long)}
    rounds = 2 if scale.name == "tiny" else 5
    return [
        _row("one node closes and opens again", one_node, beds, rounds),
        _row(f"all nodes that are promised do, and {PLACES} promises are planned anew", all_promised, beds, rounds),
    ]


def _row(what: str, surprise: Callable[[Crowd, int], Took], beds: dict[int, Crowd], rounds: int) -> Row:
    short, long = beds
    times = in_turns({str(count): partial(surprise, crowd) for count, crowd in beds.items()}, rounds=rounds)
    each = {f"ms_behind_{count}": round(times.median(str(count), "cpu") * 1e3, 2) for count in beds}
    return Row(bench=NAME, what=f"{what}, {long:,} waiting runs against {short:,}, on {_SIZE.total:,} GPUs",
               measured=times.ratio(str(long), str(short), "cpu"), goal=GOAL, detail=each)  # fmt: skip


def bed(waiting: int, *, teams: Sequence[str] = ()) -> Crowd:
    """A full fleet, and so many runs that wait: the oldest were promised a start, as many as one owner may have. Teams
    are there, too, of which nothing waits yet, with money of their own."""
    crowd = Crowd(_SIZE, _PATIENT)
    crowd.found_teams(teams, gpus=_SIZE.total)
    count = _SIZE.domains * _SIZE.nodes
    crowd.start([ask(f"run-{index:05d}", 8, pod=8, seconds=4 * _HOUR + 60 * scattered(index, count))
                 for index in range(count)])  # fmt: skip
    runs = list(_waiting(waiting))
    crowd.promise(runs[:PLACES])
    crowd.wait(runs[PLACES:])
    assert len(crowd.promised) == min(waiting, PLACES), "the others wait without a promise"
    return crowd


def _waiting(count: int) -> Iterator[Run]:
    kinds: list[dict[str, Any]] = [{"gpus": gpus} for gpus in (1, 2, 4, 8, 16, 64)]
    kinds += [{"gpus": gpus, "pod": 8} for gpus in (8, 16, 32)]
    kinds += [{"gpus": 32, "group": 16}, {"gpus": 64, "group": 32}, {"gpus": 48, "spread": False}]
    for index in range(count):
        kind = kinds[index % len(kinds)]
        yield ask(f"wait-{index:05d}", **kind, seconds=(1, 2, 4, 8, 24)[index % 5] * _HOUR)


def one_node(crowd: Crowd, number: int) -> Took:
    """Close a node and open it again: what each of the two took."""
    return _surprise(crowd, {crowd.nodes[0].metadata.name})


def all_promised(crowd: Crowd, number: int) -> Took:
    """The same of all nodes that are promised to anybody, so that every promise has to be planned anew."""
    return _surprise(crowd, _promised_nodes(crowd))


def _surprise(crowd: Crowd, names: Collection[str]) -> Took:
    crowd.now += SECOND
    before = crowd.promised.keys()
    closed, opened = (crowd.set_open(names, is_open=is_open) for is_open in (False, True))
    with Stopwatch() as closing:
        step(crowd.state, Apply(closed), now=crowd.now)
    assert _promised_nodes(crowd).isdisjoint(names), "no promise rests on what is closed"
    with Stopwatch() as opening:
        step(crowd.state, Apply(opened), now=crowd.now)
    assert crowd.promised.keys() == before, "nobody starts, and nobody loses a promise or comes by one"
    assert None not in crowd.promised.values(), "every promise has a start"
    both = Took(closing.took.wall + opening.took.wall, closing.took.cpu + opening.took.cpu)
    return both.over(2)


def _promised_nodes(crowd: Crowd) -> set[str]:
    return {share.node for one in crowd.state.reservations.values() for share in one.plan.shares}
