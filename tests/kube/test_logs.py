"""Logs that are followed through an API server: streams break off, pods come and go, and no line is lost or doubled."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import combinations_with_replacement
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.cli.cluster import ClusterFleet
from tenure.cli.runs import logs as verb
from tenure.cli.trouble import Trouble
from tenure.kube import logs
from tenure.kube.errors import ApiError
from tenure.kube.logs import PodLogs, _Tape
from tenure.kube.loop import IO
from tenure.kube.marks import LABEL_ATTEMPT
from tenure.kube.resources import PODS
from tests.kube.homes import run_yaml

TURNS = 20_000
"""A run that never comes to what a test waits for is over then."""
BROKEN = ApiError(0, "AnswerLost", "connection reset")
Object = dict[str, Any]


def pod(attempt: int = 1, **status: Any) -> Object:
    name = f"x-a{attempt}-0"
    meta = {"name": name, "uid": f"u-{name}", "labels": {LABEL_ATTEMPT: str(attempt)}}
    return {"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": status}


def line(second: int, text: str) -> bytes:
    return b"2026-01-01T00:00:%02d.5Z %s\n" % (second, text.encode())


class Server:
    """An API server with a script: what it answers to each request for a log, in order; nothing more after that."""

    def __init__(self, *answers: list[Any], pods: list[Object] | None = None) -> None:
        self.answers, self.pods = list(answers), [pod()] if pods is None else pods
        self.asked: list[dict[str, str]] = []
        self.outage: ApiError | None = None

    async def list(self, *_: Any, **__: Any) -> Any:
        if self.outage is not None:
            raise self.outage
        return SimpleNamespace(items=list(self.pods))

    async def stream(self, path: str, *, query: dict[str, str]) -> AsyncIterator[bytes]:
        self.asked.append(query)
        for item in self.answers.pop(0) if self.answers else ():
            if isinstance(item, Exception):
                raise item
            if isinstance(item, asyncio.Event):
                await item.wait()
            elif callable(item):
                item()
            else:
                yield item

    def silent(self) -> bool:
        return not self.answers


@contextmanager
def following(server: Server, folder: Path) -> Iterator[Any]:
    """A cluster, as far as who follows logs asks it."""
    with IO() as io:
        pods = PodLogs(io, server, folder)  # type: ignore[arg-type]
        yield SimpleNamespace(
            io=io, pods=pods, settle_logs=lambda: pods.settle(60),
            logs=lambda namespace, name, follow: pods.of(namespace, name, follow=follow),
        )  # fmt: skip


def follow(fleet: Any, over: Callable[[], bool], tail: int | None = None) -> None:
    """`logs -f` until the run is over."""
    turns = iter(range(TURNS))

    def shown(namespace: str, name: str) -> Any:
        return SimpleNamespace(over=over() or next(turns, None) is None)

    fleet.follow = lambda: SimpleNamespace(view=lambda: SimpleNamespace(line=shown), wait=lambda seconds: None)
    wanted = verb._Wanted(pod=None, group=None, container=None, attempt=None, before=0)
    known = fleet.logs("rai", "x", True)
    wanted.begin(known)
    verb._follow(fleet, "rai", "x", wanted, known, tail)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE", 0.001)
    monkeypatch.setattr(verb, "LOOK_EVERY", 0.001)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r"^\[x-(a\d+)-0/main\] ", r"\1 ", text) for text in capsys.readouterr().out.splitlines()]


def test_a_stream_that_breaks_off_is_taken_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(
        [line(1, "one")],
        [line(1, "one"), line(2, "two"), BROKEN],
        [ApiError(503, "ServiceUnavailable", "the kubelet is away")],
        [line(2, "two"), line(3, "three")[:25], BROKEN],
        [line(2, "two"), line(3, "three")],  # and ends, as a server does that goes down in good order
        [line(3, "three"), line(3, "four").replace(b".5Z", b".6Z")],
    )
    with following(server, tmp_path) as fleet:
        follow(fleet, server.silent)
    assert printed(capsys) == ["a1 one", "a1 two", "a1 three", "a1 four"]
    assert [asked.get("sinceTime", "")[-4:] for asked in server.asked[:6]] == [
        "",
        ":01Z",
        ":02Z",
        ":02Z",
        ":02Z",
        ":03Z",
    ]


def test_every_cut_of_a_log_gives_the_same_log(tmp_path: Path) -> None:
    """Lines of one instant, of other zones, out of order, empty, and one without an end."""
    stamps = ["00:00:01.1Z", "00:00:01.1Z", "00:00:01.7Z", "02:00:02.3+02:00", "00:00:02.2Z", "00:00:02.3Z"]
    texts = ["a", "b", "", "2026-01-01T00:00:09Z looks like a time", "c", "the end"]
    lines = [f"2026-01-01T{stamp} {text}".encode() for stamp, text in zip(stamps, texts, strict=True)]
    seconds = [1, 1, 1, 2, 2, 2]

    def answer(tape: _Tape) -> bytes:
        since = int(tape.missing().get("sinceTime", ":00Z")[-3:-1])
        return b"\n".join(one for one, second in zip(lines, seconds, strict=True) if second >= since)

    whole = len(b"\n".join(lines))
    for number, cuts in enumerate(combinations_with_replacement(range(0, whole + 1, 5), 2)):
        tape = _Tape(tmp_path / str(number))
        for cut in (*cuts, whole):
            if block := answer(tape)[:cut]:
                tape.splice()
                tape.put(block)
        tape.end()
        assert (tmp_path / str(number)).read_text() == "\n".join(texts), cuts


def test_a_stream_that_ends_with_its_container_is_not_asked_for_again(tmp_path: Path) -> None:
    server = Server(
        [], [line(1, "one")], pods=[pod(containerStatuses=[{"name": "main", "state": {"terminated": {"x": 1}}}])]
    )
    with following(server, tmp_path) as fleet:
        fleet.logs("rai", "x", True)
        fleet.pods._following[tmp_path / "u-x-a1-0-main.log"].result(60)
        fleet.logs("rai", "x", True)
    assert len(server.asked) == 2


@pytest.mark.parametrize("code", [401, 403])
@pytest.mark.parametrize("first", [[], [[line(1, "one")]]])
def test_who_may_not_read_logs_is_told(
    code: int, first: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = ApiError(code, "Denied", "pods/log")
    server = Server(*first, [denied], [denied], [denied])
    with following(server, tmp_path) as fleet, pytest.raises(ApiError) as told:
        follow(fleet, lambda: False)
    assert told.value.code == code
    assert printed(capsys) == ["a1 one"] * len(first)


def test_a_token_that_expires_is_no_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expired = ApiError(401, "Unauthorized", "the token has expired")
    server = Server([], [expired], [line(1, "one")], [expired], [line(1, "one"), line(2, "two")])
    with following(server, tmp_path) as fleet:
        follow(fleet, server.silent)
    assert printed(capsys) == ["a1 one", "a1 two"]


def test_the_last_words_of_a_pod_that_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = asyncio.Event()
    server = Server([line(1, "one")])
    server.answers.append([line(1, "one"), seen, server.pods.clear, line(2, "Traceback"), line(3, "the end")[:-1]])
    with following(server, tmp_path) as fleet:

        def over() -> bool:
            fleet.io.loop.call_soon_threadsafe(seen.set)
            return not server.pods

        follow(fleet, over)
    assert printed(capsys) == ["a1 one", "a1 Traceback", "a1 the end"]


def test_what_is_still_under_way_when_the_run_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = asyncio.Event()
    server = Server(
        [line(1, "one")], [line(1, "one"), last, line(2, "two"), BROKEN], [line(2, "two"), line(3, "three")]
    )
    with following(server, tmp_path) as fleet:

        def settle() -> None:
            fleet.io.loop.call_soon_threadsafe(last.set)
            fleet.pods.settle(60)

        fleet.settle_logs = settle
        follow(fleet, lambda: True)
    assert printed(capsys) == ["a1 one", "a1 two", "a1 three"]


def test_a_container_that_never_starts_is_not_waited_for(tmp_path: Path) -> None:
    class Waiting(Server):
        async def stream(self, path: str, *, query: dict[str, str]) -> AsyncIterator[bytes]:
            raise ApiError(400, "BadRequest", 'container "main" in pod "x-a1-0" is waiting to start: PodInitializing')
            yield b""

    with following(Waiting(), tmp_path) as fleet:
        follow(fleet, lambda: True)
        assert [one.result(0) for one in fleet.pods._following.values()] == [None]


def test_an_api_server_that_is_away_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server([line(1, "one")], [line(1, "one"), line(2, "two")])
    outages = iter([BROKEN, BROKEN])

    def over() -> bool:
        server.outage = next(outages, None)
        return server.outage is None and server.silent()

    with following(server, tmp_path) as fleet:
        follow(fleet, over)
    assert printed(capsys) == ["a1 one", "a1 two"]


def test_the_tail_is_of_what_there_was_when_it_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = asyncio.Event()
    old = [line(1, "one"), line(1, "two").replace(b".5Z", b".6Z")]
    server = Server(old, pods=[pod(phase="Failed")])
    server.answers.append([*old, begun, line(3, "three"), lambda: server.pods.append(pod(2))])
    server.answers.append([line(4, "four"), line(5, "five")])
    with following(server, tmp_path) as fleet:

        def over() -> bool:
            fleet.io.loop.call_soon_threadsafe(begun.set)
            return server.silent()

        follow(fleet, over, tail=1)
    assert printed(capsys) == ["a1 two", "a1 three", "a2 four", "a2 five"]


@pytest.mark.parametrize(("phase", "gone"), [("Completed", True), ("Failed", True), ("Pending", False)])
def test_who_cannot_read_the_ledger_is_told_that_pods_are_gone(phase: str, gone: bool) -> None:
    class Tenant(Server):
        async def list(self, resource: Any, *_: Any, **__: Any) -> Any:
            assert resource is PODS
            return SimpleNamespace(items=[])

        async def get(self, *_: Any) -> Object:
            made = {"uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
            item: Object = json.loads(run_yaml("x", 1))
            return {**item, "metadata": {**item["metadata"], **made}, "status": {"phase": phase}}

        async def close(self) -> None: ...

    with ClusterFleet(IO(), Tenant(), None, why=Trouble("no ledger", next_step="")) as fleet:  # type: ignore[arg-type]
        if not gone:
            assert fleet.logs("rai", "x") == []
            return
        with pytest.raises(Trouble) as told:
            fleet.logs("rai", "x")
    assert told.value.problems == ("the pods of Run/rai/x are gone, and their logs with them",)
