"""The cluster's half of the simulation: its time, its worlds, and what they have found."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from proof.sim.api import Server
from proof.sim.api_client import PlainLink, VirtualClient
from proof.sim.events import KINDS
from proof.sim.generate import generate
from proof.sim.loop import Restless, Stuck, VirtualIO, VirtualLoop
from proof.sim.play import play
from tenure.engine import State
from tenure.kube.desk import Desk
from tenure.kube.marks import ENTRY, FLEET
from tenure.kube.pods import ASK_AGAIN, KubeExecutor
from tenure.kube.resources import PODS
from tenure.testing import START


def test_time_passes_only_when_nothing_is_ready() -> None:
    loop, seen = VirtualLoop(), []
    loop.call_later(7200.0, lambda: seen.append(loop.time()))
    loop.call_soon(lambda: seen.append(loop.time()))
    assert loop.drive(lambda: len(seen) == 2)
    assert seen == [0.0, 7200.0]
    assert not loop.drive(lambda: False, until=9000.0)
    assert loop.time() == 9000.0
    loop.close()


def test_who_waits_lets_others_go_on_and_finds_the_world_changed() -> None:
    loop = VirtualLoop()
    one, other = VirtualIO(loop), VirtualIO(loop)
    told: list[str] = []

    def turn() -> None:
        other.run(asyncio.sleep(1.0))
        told.append("the other, inside")

    loop.call_later(0.5, turn)
    one.run(asyncio.sleep(2.0))
    told.append("the one")
    assert (told, loop.time()) == (["the other, inside", "the one"], 2.0)
    loop.close()


def test_a_loop_that_never_rests_and_one_that_nobody_wakes_are_failures() -> None:
    loop = VirtualLoop()

    def again() -> None:
        loop.call_soon(again)

    with pytest.raises(Stuck):
        loop.drive(lambda: False)
    again()
    with pytest.raises(Restless):
        loop.drive(lambda: False)
    loop.close()


@pytest.mark.parametrize("seed", [2, 6])
def test_a_world_without_faults_ends_well(seed: int) -> None:
    plan = generate(seed, home="cluster", hours=24)
    calm = msgspec.structs.replace(plan, events=tuple(one for one in plan.events if one.kind in KINDS))
    played = play(calm)
    assert not played.found
    assert played.tally["seen/run Completed"]


def test_the_same_plan_gives_the_same_world() -> None:
    plan = generate(3, home="cluster", hours=12)
    before = random.getstate()
    first, second = play(plan), play(plan)
    assert (first.found, first.tally) == (second.found, second.tally)
    assert random.getstate() == before


class Shown(dict[str, Any]):
    """An informer that shows what it is told to."""

    def passed(self, version: str) -> bool:
        return False


def test_regression_a_pod_that_a_watch_still_shows_is_not_deleted_without_end() -> None:
    """Each answer rang the bell and each ring asked again: hundreds of deletes a second, as long as a watch lagged."""
    loop = VirtualLoop()
    server = Server(lambda: START)
    notes = {FLEET: "ours", ENTRY: "1"}
    meta: dict[str, Any] = {"name": "old-0", "namespace": "lab", "uid": "u", "annotations": notes}
    shown = Shown({"lab/old-0": {**PODS.named("old-0", "lab"), "metadata": meta, "spec": {"nodeName": "n0"}}})
    desk = Desk(VirtualIO(loop))  # type: ignore[arg-type]
    client = VirtualClient(PlainLink(), server)
    executor = KubeExecutor(client, desk, shown, fleet="ours", state=lambda: State("ours"), seq=lambda: 5)

    def asked(at: int) -> int:
        """Look as often as somebody rings."""
        for turn in range(50):
            assert executor.revise([], dropped=[], now=START + at + turn) == []
            loop.drive(lambda: desk.idle)
        return server.writes["pods"]

    executor.reconcile([], now=START)
    assert asked(0) == 1
    assert asked(ASK_AGAIN) == 2  # it may be that nobody has heard
    shown.clear()
    assert asked(3 * ASK_AGAIN) == 2
    loop.close()
