"""What the executor of a cluster does when the API server does not do as it is asked. The server is one in memory, the
time is made up, and each test says which requests are answered by somebody else."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from proof.sim.api import Reply, Server
from proof.sim.api_client import PlainLink, Request, Unreached, VirtualClient
from proof.sim.loop import VirtualIO, VirtualLoop
from tenure.engine import render
from tenure.kube.desk import Desk
from tenure.kube.pods import START_TIMEOUT, KubeExecutor
from tenure.kube.resources import NAMESPACES, PODS, SERVICES
from tenure.shell.executor import PodReport, PodWork
from tenure.testing import START, Fleet, budget, elastic, nodes, run
from tenure.units import SECOND, Instant

Object = dict[str, Any]
Answer = Callable[[Request], Reply | None]


def answer(code: int, reason: str, message: str = "no") -> Reply:
    return Reply(code, msgspec.json.encode({"kind": "Status", "reason": reason, "message": message, "code": code}))


UNKNOWN, FORBIDDEN = answer(401, "Unauthorized"), answer(403, "Forbidden", "exceeded quota: services")


def times(number: int, method: str, path: str, reply: Reply) -> Answer:
    """So many requests get this answer; then they are carried out."""
    left = [number]

    def answers(request: Request) -> Reply | None:
        if request.method != method or path not in request.path or not left[0]:
            return None
        left[0] -= 1
        return reply

    return answers


class Wire(PlainLink):
    """Some requests are answered before they reach the server."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    async def pass_on(self, request: Request) -> Reply | None:
        await super().pass_on(request)
        return next((reply for one in self.answers if (reply := one(request)) is not None), None)


class Live:
    """An informer that is never late."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def get(self, key: str) -> Object | None:
        return self.server.get(PODS, key)

    def keys(self) -> Iterable[str]:
        return list(self.server.shelf(PODS).items)

    def passed(self, version: str) -> bool:
        return True


class World:
    """An engine that has placed a run of two pods, an executor, and the API server."""

    def __init__(self) -> None:
        self.fleet = Fleet(*nodes("m", 4), budget("rai"))
        self.loop, self.wire, self.told = VirtualLoop(), Wire(), list[str]()
        self.server = Server(lambda: self.now)
        self.server.handle("POST", NAMESPACES.path(), {}, msgspec.json.encode(NAMESPACES.named("lab")))
        self.desk = Desk(VirtualIO(self.loop), trouble=lambda key, error: self.told.append(f"{key}: {error}"))  # type: ignore[arg-type]
        self.executor = KubeExecutor(
            VirtualClient(self.wire, self.server), self.desk, Live(self.server), fleet="ours",
            state=lambda: self.fleet.state, seq=lambda: 5,
        )  # fmt: skip
        width = elastic(16, 24, 8, desired=16)
        self.fleet.apply(run("train", 16, owner="org:rai", elastic=width, restarts=1))

    @property
    def now(self) -> Instant:
        return START + int(self.loop.time() * SECOND)

    def work(self, *, stop: bool = False) -> list[PodWork]:
        """All pods that the engine keeps."""
        return [
            PodWork(pod=one.pod, known=one.phase, since=one.since, stop=stop or one.stop,
                    manifest=render.to_manifest(self.fleet.manifest(key)))
            for key, one in sorted(self.fleet.state.pods.items())
        ]  # fmt: skip

    def ask(self, work: list[PodWork] | None = None) -> list[PodReport]:
        return self.executor.reconcile(self.work() if work is None else work, now=self.now)

    def later(self, seconds: float) -> list[PodReport]:
        """Let time pass, and look whenever something was written or is due."""
        found, end = list[PodReport](), self.loop.time() + seconds
        while not found and self.loop.time() < end:
            wake = self.executor.next_wake()
            until = end if wake is None else min(end, max(0, wake - START) / SECOND)
            self.loop.drive(lambda: bool(self.executor._inbox), until=max(until, self.loop.time() + 0.1))
            found = self.executor.revise([], dropped=[], now=self.now)
        return found

    def pods(self) -> list[str]:
        """Pods that are there, less those that are asked to leave."""
        items = self.server.all(PODS)
        return sorted(one["metadata"]["name"] for one in items if "deletionTimestamp" not in one["metadata"])


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    yield found
    found.loop.close()


# -- who is not known for a moment --


@pytest.mark.parametrize(
    ("reply", "looks"),
    [(UNKNOWN, 0), (UNKNOWN, 1), (answer(500, "InternalError"), 1)],
    ids=["to make it", "to make it and to look", "to look whether it was made"],
)
def test_regression_a_pod_is_made_though_nobody_knew_who_asked(world: World, reply: Reply, looks: int) -> None:
    """The answer was 401, and it was given up; nobody looked again, and the run held its GPUs without an end."""
    world.wire.answers += [times(1, "POST", "/pods", reply), times(looks, "GET", "/pods/", UNKNOWN)]
    assert world.ask() == []
    assert world.later(10) == []
    assert world.pods() == ["train-a1-0", "train-a1-1"]
    assert len(world.told) == 1, "it is told once"


def test_regression_a_pod_is_bound_though_nobody_knew_who_asked(world: World) -> None:
    """It was there and had no node, until the time was up in which it had to start."""
    world.executor._bind = True
    world.wire.answers.append(times(3, "POST", "/binding", UNKNOWN))
    world.ask()
    world.later(10)
    assert [one["spec"].get("nodeName") for one in world.server.all(PODS)] == ["m0", "m1"]


def test_regression_a_pod_is_asked_to_leave_though_nobody_knew_who_asked(world: World) -> None:
    """It worked on, on GPUs that were to be somebody else's."""
    world.ask()
    world.later(1)
    assert len(world.pods()) == 2
    world.wire.answers.append(times(3, "DELETE", "/pods/", UNKNOWN))
    assert world.ask(world.work(stop=True)) == []
    world.later(10)
    assert world.pods() == []


def test_regression_a_pod_that_was_there_and_is_gone_again_is_made(world: World) -> None:
    """A create came second; when it was looked for, what had come first was gone."""
    world.wire.answers.append(times(1, "POST", "/pods", answer(409, "AlreadyExists")))
    assert world.ask() == []
    assert world.later(10) == []
    assert world.pods() == ["train-a1-0", "train-a1-1"]


# -- who cannot make a pod --

DOWN = answer(500, "InternalError", 'failed calling webhook "others.example.com": connection refused')
LIMIT = START_TIMEOUT / SECOND


def test_regression_a_pod_that_the_api_server_fails_to_make_is_given_up_in_time(world: World) -> None:
    """A webhook of others was down. The run was being started for ever, paid its leases, and nobody was told why."""
    world.wire.answers.append(times(10_000, "POST", "/pods", DOWN))
    assert world.ask() == []
    assert world.later(LIMIT - 10) == []
    found = world.later(60)
    assert {one.phase for one in found} == {"Failed"}
    assert found[0].message.startswith('it could not be made within 10 minutes: failed calling webhook "others.')
    world.wire.answers.clear()
    world.loop.drive(lambda: False, until=world.loop.time() + LIMIT)
    assert world.pods() == [], "what was given up is not made later"


def test_a_pod_that_can_be_made_at_last_has_its_whole_time_to_start(world: World) -> None:
    world.wire.answers.append(times(10_000, "POST", "/pods", DOWN))
    assert world.ask() == []
    assert world.later(LIMIT - 60) == []
    world.wire.answers.clear()
    assert world.later(LIMIT) == []
    assert world.pods() == ["train-a1-0", "train-a1-1"]
    assert "did not start" in world.later(100)[0].message


@pytest.mark.parametrize("before", [0, 2], ids=["all along", "after it failed"])
@pytest.mark.parametrize("gone", [None, answer(503, "ServiceUnavailable")], ids=["unreachable", "a proxy answers"])
def test_an_api_server_that_is_away_makes_no_pod_late(world: World, gone: Reply | None, before: int) -> None:
    """It answers nothing at all, or something in between does: that is not about a pod, however long it lasts."""

    def nobody(request: Request) -> Reply | None:
        if gone is None:
            raise Unreached
        return gone

    fails, looks = times(before, "POST", "/pods", DOWN), times(before, "GET", "/pods/", answer(404, "NotFound"))
    world.wire.answers += [fails, looks, nobody]
    assert world.ask() == []
    assert world.later(3 * LIMIT) == []
    world.wire.answers.clear()
    assert world.later(LIMIT) == []
    assert world.pods() == ["train-a1-0", "train-a1-1"]


def test_a_failure_before_and_one_after_an_outage_are_not_one_long_failure(world: World) -> None:
    """Nobody looked meanwhile: what was decided could not be committed either."""
    world.wire.answers.append(times(10_000, "POST", "/pods", DOWN))
    assert world.ask() == []
    assert world.later(LIMIT / 2) == []
    world.wire.answers.insert(0, lambda request: answer(503, "ServiceUnavailable"))
    world.loop.drive(lambda: False, until=world.loop.time() + 2 * LIMIT)
    world.wire.answers.pop(0)
    world.loop.drive(lambda: bool(world.executor._inbox))
    assert world.later(LIMIT / 2) == []
    assert {one.phase for one in world.later(LIMIT)} == {"Failed"}


def test_regression_a_pod_that_is_wanted_no_more_while_it_is_being_made_is_not_tried_again(world: World) -> None:
    """It could not be taken back while a try was under way, and was tried until it was there."""
    world.wire.answers.append(times(10_000, "POST", "/pods", DOWN))
    world.ask()
    world.loop.drive(lambda: not world.desk.waiting)
    assert not world.desk.idle, "each is under way"
    world.ask([])
    world.later(60)
    assert world.desk.idle
    world.wire.answers.clear()
    world.later(60)
    assert world.server.writes["pods"] == 0


# -- the Service --

SERVICE = SERVICES.path("lab", "run-train")


@pytest.mark.parametrize("reply", [UNKNOWN, FORBIDDEN], ids=["unknown", "a quota"])
def test_regression_a_service_that_was_refused_is_made_when_it_may_be(world: World, reply: Reply) -> None:
    """It was given up and counted as made, so that the run's pods never found one another."""
    world.wire.answers.append(times(4, "POST", "/services", reply))
    world.ask()
    world.later(30)
    assert [one["metadata"]["name"] for one in world.server.all(SERVICES)] == ["run-train"]
    assert [line.partition(":")[0] for line in world.told] == ["Service/lab/run-train"], "it is told once"


def try_again(fleet: Fleet) -> None:
    fleet.fail("lab/train")
    fleet.leave("lab/train")
    fleet.later("1h")
    assert {pod.attempt for pod in fleet.pods("lab/train")} == {2}


def grow(fleet: Fleet) -> None:
    fleet.resize("lab/train", 24)
    fleet.later("1h")
    assert {pod.attempt for pod in fleet.pods("lab/train")} == {1}
    assert len(fleet.pods("lab/train")) == 3


@pytest.mark.parametrize("change", [try_again, grow])
def test_regression_a_service_that_somebody_deleted_is_made_again(
    world: World, change: Callable[[Fleet], None]
) -> None:
    """Once made it was never looked for again, as long as the operator lived."""
    world.ask()
    world.later(5)
    assert world.server.writes["services"] == 1, "once for both pods"
    assert world.server.handle("DELETE", SERVICE, {}).status == 200
    world.fleet.bind("lab/train")
    change(world.fleet)
    world.ask()
    world.later(5)
    assert len(world.server.all(SERVICES)) == 1


def test_regression_what_is_known_of_services_goes_with_the_last_pod(world: World) -> None:
    """A run left its uid behind: an operator that lived long grew with every run it had seen."""
    world.ask()
    world.later(5)
    assert list(world.executor._served) == ["lab/train"]
    world.fleet.delete("Run", "lab/train")
    world.fleet.leave("lab/train")
    world.ask()
    assert not world.executor._served


def test_a_service_is_not_asked_for_without_end_for_a_run_that_is_gone(world: World) -> None:
    world.wire.answers.append(times(10_000, "POST", "/services", FORBIDDEN))
    world.ask()
    world.later(60)
    assert not world.desk.idle
    world.fleet.delete("Run", "lab/train")
    world.fleet.leave("lab/train")
    world.ask()
    world.later(60)
    assert world.desk.idle
