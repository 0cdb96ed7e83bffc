"""Promise: to find the earliest start with 100,000 running leases and 1,000 reservations takes at most 2 times as long
as with 1,000 leases and 10 reservations.

Nodes of 8 GPUs in domains of 16 are full to the last GPU, each held by one lease, as gangs hold them: the fleet is as
large as its leases make it. Every run said when it will end, each at an instant of its own. Runs that wait have been
promised starts in turn, among the declared ends: each is of another team, and ``promiseDepth`` is as large as it may
be, since an owner that holds a promise gets none of the last quarter of places. What is asked is a mixture: a number of
GPUs, groups, groups with spares, pods of 8, one domain; for round times, for odd ones, and for ever. None of it can
start now.

Beside the promise, harder beds: eight leases to a node, so that a start is gathered from crumbs of many domains; and
one fleet of nodes with 128 GPUs for both loads, where each node is shared by up to a hundred leases. There the answer
itself is larger: a hundred crumbs where the other fleet gives one node.

That these searches find what trying every instant finds is shown by tests (``tests/engine/test_forecast.py``). The
first question of a kind makes a view of the location, which later ones bring up to date: that is measured as well.

Not shown: runs that wait without a promise, since no search reads them (``saturated``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from bench.crowd import Crowd, Size, ask, scattered
from bench.measure import Stopwatch, Times, Took, in_turns
from bench.result import Row, Scale
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine.demand import Demand, compile_demand
from tenure.engine.forecast import Search

NAME = "earliest"
GOAL = 2.0
_PATIENT = Policy(patience="8760h", promise_depth=1_024)
_LEASES = {"full": 100_000, "quick": 20_000, "tiny": 2_000}
_FEW = 1_000
_HOUR = 3_600
_LASTS = {
    "for 4 hours": 4 * _HOUR,
    "for 47 minutes": 47 * 60,
    "for 5 h 30 min 1 s": 11 * _HOUR // 2 + 1,
    "for ever": None,
}


def run(scale: Scale, folder: Path) -> list[Row]:
    leases = _LEASES[scale.name]
    rounds = max(2, scale.rounds // 4)
    fewer = max(2 * _FEW, leases // 5)
    return [*_one_lease_a_node(leases, rounds), *_crumbs(fewer, rounds), *_same_fleet(fewer, rounds)]


def _one_lease_a_node(leases: int, rounds: int) -> Iterator[Row]:
    sizes = {count: Size(domains=count // 16, nodes=16, gpus=8) for count in (_FEW, leases)}
    beds = {count: bed(size, size.domains * 16, count // 100) for count, size in sizes.items()}
    asked = questions(unit=16)
    firsts = {key: _first_questions(one, asked) for key, one in beds.items()}
    times = in_turns({str(key): partial(_ask_all, one, asked) for key, one in beds.items()}, rounds=rounds)
    what = f"{leases:,} leases and {leases // 100:,} reservations against {_FEW:,} and 10"
    counts = {"leases_few": len(beds[_FEW].state.leases), "leases_many": len(beds[leases].state.leases)}
    yield _row(times, leases, what, goal=GOAL, detail=counts)
    for kind in asked:
        some = {kind: asked[kind]}
        times = in_turns({str(key): partial(_ask_all, one, some) for key, one in beds.items()}, rounds=rounds)
        yield _row(times, leases, f"of these: {kind}")
    yield Row(bench=NAME, what="the first question of a kind, which makes a view, at the most", unit="ms",
              measured=firsts[leases] * 1e3, detail={"ms_few": round(firsts[_FEW] * 1e3, 1)})  # fmt: skip


def _crumbs(leases: int, rounds: int) -> Iterator[Row]:
    sizes = {count: Size(domains=max(1, count // 128), nodes=16, gpus=8) for count in (_FEW, leases)}
    beds = {count: bed(size, size.total, count // 100) for count, size in sizes.items()}
    asked = questions(unit=16)
    times = in_turns({str(key): partial(_ask_all, one, asked) for key, one in beds.items()}, rounds=rounds)
    yield _row(times, leases, f"eight leases to a node, {leases:,} against {_FEW:,}")


def _same_fleet(leases: int, rounds: int) -> Iterator[Row]:
    size = Size(domains=max(2, leases // 800), nodes=8, gpus=128)
    count = size.domains * size.nodes
    beds = {_FEW: bed(size, count, 10), leases: bed(size, leases, leases // 100)}
    asked = questions(unit=128)
    times = in_turns({str(key): partial(_ask_all, one, asked) for key, one in beds.items()}, rounds=rounds)
    yield _row(times, leases, f"on the same {size.total:,} GPUs, {leases:,} leases against {count:,}")


def _row(
    times: Times, leases: int, what: str, *, goal: float | None = None, detail: dict[str, int] | None = None
) -> Row:
    micros = {f"us_{name}": round(times.median(str(key), "cpu") * 1e6, 1)
              for name, key in (("few", _FEW), ("many", leases))}  # fmt: skip
    return Row(bench=NAME, what=what, measured=times.ratio(str(leases), str(_FEW), "cpu"), goal=goal,
               detail=micros | (detail or {}))  # fmt: skip


# --- the beds -------------------------------------------------------------------------------------------------------


def bed(size: Size, leases: int, waiting: int) -> Crowd:
    """A full fleet with so many leases, and so many runs that were promised a start."""
    crowd = Crowd(size, _PATIENT)
    crowd.start(list(_running(size, leases)))
    crowd.found_teams(_team(index) for index in range(waiting))
    crowd.promise(_waiting(size, waiting))
    return crowd


def _running(size: Size, leases: int) -> Iterator[Run]:
    """Runs that fill each node alike, one lease each; they end one by one within two days, neighbours far apart."""
    nodes = size.domains * size.nodes
    each = leases // nodes
    for index in range(each * nodes):
        share = size.gpus // each + (index // nodes < size.gpus % each)
        yield ask(f"run-{index:06d}", share, seconds=_HOUR + scattered(index, each * nodes) * 47 * _HOUR // leases,
                  pod=share)  # fmt: skip


def _waiting(size: Size, count: int) -> Iterator[Run]:
    unit = size.gpus * size.nodes // 16
    kinds: list[dict[str, Any]] = [
        {"gpus": unit}, {"gpus": 2 * unit, "group": unit}, {"gpus": unit, "pod": 8},
        {"gpus": 3 * unit, "spread": False},
        {"gpus": 4 * unit},
    ]  # fmt: skip
    for index in range(count):
        yield ask(f"wait-{index:05d}", **kinds[index % len(kinds)], seconds=(1 + index % 7) * _HOUR, team=_team(index))


def _team(index: int) -> str:
    return f"team-{index:05d}"


def questions(unit: int) -> dict[str, Demand]:
    """What is asked, by its name."""
    kinds: dict[str, dict[str, Any]] = {
        "a number of GPUs": {"gpus": unit},
        "many GPUs": {"gpus": 3 * unit},
        "groups": {"gpus": 3 * unit, "group": unit},
        "groups with spares": {"gpus": 2 * unit, "group": unit, "spares": 2},
        "pods of 8": {"gpus": 2 * unit, "pod": 8},
        "one domain": {"gpus": 4 * unit, "spread": False},
    }
    return {
        f"{name}, {lasts}": compile_demand(ask("asked", **kind, seconds=length))
        for name, kind in kinds.items()
        for lasts, length in _LASTS.items()
    }


def _ask_all(crowd: Crowd, asked: dict[str, Demand], number: int) -> Took:
    with Stopwatch() as watch:
        for demand in asked.values():
            _find(crowd, demand)
    return watch.took.over(len(asked))


def _first_questions(crowd: Crowd, asked: dict[str, Demand]) -> float:
    took = []
    for demand in asked.values():
        start = process_time()
        _find(crowd, demand)
        took.append(process_time() - start)
    return max(took)


def _find(crowd: Crowd, demand: Demand) -> None:
    found = Search(crowd.state, demand, now=crowd.now).earliest(since=crowd.now, limit=None)
    assert found is not None, "it can start some day"
    assert found.at > crowd.now, "but not now"
