"""Promise: to find the earliest start with 100,000 running leases and 1,000 reservations takes at most 2 times as long
as with 1,000 leases and 10 reservations.

Both fleets are of one size, 131,072 GPUs in 128 domains of 8 nodes, and full to the last GPU: in one a run holds each
node, in the other nearly a hundred share it. Every run said when it will end, each at an instant of its own. Runs that
wait have been promised starts in turn, among the declared ends. What is asked is a mixture: a number of GPUs, groups,
pods of 8, one domain; with and without a duration. None of it can start now.

Beside the promise: the same questions where the fleet grows with the load, from 1,000 to 100,000 GPUs of 8-GPU nodes.
That these searches find what trying every instant finds is shown by tests (``tests/engine/test_forecast.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
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
_PATIENT = Policy(patience="8760h")
_LEASES = {"full": 100_000, "quick": 20_000, "tiny": 2_000}
_FEW = 1_000
_HOUR = 3_600


def run(scale: Scale, folder: Path) -> list[Row]:
    leases = _LEASES[scale.name]
    waiting = {_FEW: 10, leases: leases // 100}
    rounds = max(2, scale.rounds // 4)
    return [*_same_fleet(leases, waiting, rounds), *_growing_fleet(leases, waiting, rounds)]


def _same_fleet(leases: int, waiting: dict[int, int], rounds: int) -> Iterator[Row]:
    size = Size(domains=max(2, leases // 800), nodes=8, gpus=128)
    count = size.domains * size.nodes
    beds = {_FEW: bed(size, count, waiting[_FEW]), leases: bed(size, leases, waiting[leases])}
    open_leases = {key: len(one.state.leases) for key, one in beds.items()}
    times = in_turns({str(key): partial(_ask_all, one) for key, one in beds.items()}, rounds=rounds)
    what = f"{leases:,} leases and {waiting[leases]:,} reservations against {count:,} and {waiting[_FEW]}"
    yield _row(times, leases, f"{what}, on {size.total:,} GPUs", goal=GOAL, detail={
        "leases_few": open_leases[_FEW], "leases_many": open_leases[leases]})  # fmt: skip
    for kind in questions(size):
        times = in_turns({str(key): partial(_ask_one, one, kind) for key, one in beds.items()}, rounds=rounds)
        yield _row(times, leases, f"of these: {kind}")


def _growing_fleet(leases: int, waiting: dict[int, int], rounds: int) -> Iterator[Row]:
    sizes = {count: Size(domains=max(8, count // 128), nodes=16, gpus=8) for count in (_FEW, leases)}
    beds = {count: bed(size, size.total, waiting[count]) for count, size in sizes.items()}
    times = in_turns({str(key): partial(_ask_all, one) for key, one in beds.items()}, rounds=rounds)
    yield _row(times, leases, f"the fleet growing with the load, {sizes[leases].total:,} against "
               f"{sizes[_FEW].total:,} GPUs in domains of 128")  # fmt: skip


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
    crowd.wait(_waiting(size, waiting))
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
        yield ask(f"wait-{index:05d}", **kinds[index % len(kinds)], seconds=(1 + index % 7) * _HOUR)


def questions(size: Size) -> dict[str, Demand]:
    """What is asked, by its name."""
    unit = size.gpus * size.nodes // 8
    kinds: dict[str, dict[str, Any]] = {
        "a number of GPUs": {"gpus": unit},
        "many GPUs": {"gpus": 3 * unit},
        "groups": {"gpus": 3 * unit, "group": unit},
        "pods of 8": {"gpus": 2 * unit, "pod": 8},
        "one domain": {"gpus": 4 * unit, "spread": False},
    }
    out = {}
    for name, kind in kinds.items():
        for length in (4 * _HOUR, None):
            lasts = "without a duration" if length is None else "with a duration"
            out[f"{name}, {lasts}"] = compile_demand(ask("asked", **kind, seconds=length))
    return out


def _ask_all(crowd: Crowd, number: int) -> Took:
    demands = list(questions(crowd.size).values())
    with Stopwatch() as watch:
        for demand in demands:
            _find(crowd, demand)
    return watch.took.over(len(demands))


def _ask_one(crowd: Crowd, kind: str, number: int) -> Took:
    demand = questions(crowd.size)[kind]
    with Stopwatch() as watch:
        _find(crowd, demand)
    return watch.took


def _find(crowd: Crowd, demand: Demand) -> None:
    found = Search(crowd.state, demand, now=crowd.now).earliest(since=crowd.now, limit=None)
    assert found is not None, "it can start some day"
    assert found.at > crowd.now, "but not now"
