"""A kill before, during and after every write of a fleet: nothing acknowledged is lost, nothing happens twice.

Each timeline is killed at every named point of every write (``tenure.ledger.WRITE_POINTS``), and what comes after the
kill ends in the very ledger that the undisturbed timeline ends in, byte for byte. The default tier takes every point
once, and a sample of kills that are followed by another kill, or by a long time without a driver. All of those, nearly
forty thousand, take a quarter of an hour:

    KILLS=all .venv/bin/python -m pytest tests/embedded/test_kills.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from proof import scratch
from tenure.api.policy import Policy
from tenure.engine import Delete, SetPolicy
from tenure.facts import PutRun
from tenure.ledger import WRITE_POINTS
from tenure.shell import home as homes
from tenure.testing import at, budget, elastic, envelope, namespace, node, nodes, run
from tenure.units import MINUTE
from tests.embedded.crash_support import (
    Book,
    Play,
    Timeline,
    Wreck,
    apply,
    begin,
    book,
    breaks,
    burns,
    cancel,
    create,
    decide,
    exits,
    later,
    mistake,
    record,
    remove,
    send,
    violations,
    wrecks_of,
)

ALL = os.environ.get("KILLS") == "all"
SLOW = Policy(bind_delay="5s", stop_delay="3s")
"""Pods take a while to come and to go, so that every state a run passes through is written down on its own."""
SHORT = replace(SLOW, lookahead="5m")
EAGER = replace(SLOW, patience="0s", activation_lead="5m")
LAB = budget("lab", envelope("main", 16))


def timelines() -> Iterator[Timeline]:
    yield Timeline(
        "a run is admitted and completes",
        (
            begin(SLOW, *nodes("a", 2), LAB),
            send("1m", apply(run("train", 16, owner="org:lab", group=8, lasts="10m"))),
        ),
        until=at("1h"),
        writes=4,
        policy=SLOW,
    )
    yield Timeline(
        "a start fails twice and is tried again after a backoff",
        (
            begin(SLOW, *nodes("a", 2), LAB),
            breaks("1m", "train-a1-1", "train-a2-0"),
            send("1m", apply(run("train", 16, owner="org:lab", lasts="10m"))),
        ),
        until=at("1h"),
        writes=10,
        policy=SLOW,
    )
    yield Timeline(
        "a workload fails, is restarted, fails again and is over",
        (
            begin(SLOW, *nodes("a", 2), LAB),
            send("1m", apply(run("train", 8, owner="org:lab", pod=4, restarts=1))),
            exits("5m", "train-a1-0", "succeed"),
            exits("6m", "train-a1-1", "fail"),
            exits("9m", "train-a2-0", "fail"),
        ),
        until=at("1h"),
        writes=10,
        policy=SLOW,
    )
    yield Timeline(
        "runs are canceled while they wait, start and run",
        (
            begin(SLOW, *nodes("a", 2), LAB),
            send("1m", apply(run("long", 8, owner="org:lab"), run("short", 8, owner="org:lab"))),
            send("2m", apply(run("queued", 4, owner="org:lab"))),
            decide("3m", cancel("queued")),
            decide("4m", cancel("long")),
            send("5m", apply(run("hasty", 8, owner="org:lab"))),
            decide("5m", cancel("hasty")),
            send("6m", cancel("short"), apply(run("long", 8, owner="org:lab", lasts="1m"))),
        ),
        until=at("1h"),
        writes=16,
        policy=SLOW,
    )
    yield Timeline(
        "a machine burns and its runs are requeued",
        (
            begin(SLOW, *nodes("a", 3), LAB),
            send("1m", apply(run("train", 16, owner="org:lab", lasts="30m", checkpoint="30m"))),
            burns("10m", "a0"),
            send("11m", apply(run("doomed", 8, owner="org:lab"))),
            burns("55m", "a1"),
            send("56m", apply(node("a3"))),
        ),
        until=at("3h"),
        writes=11,
        policy=SLOW,
    )
    yield Timeline(
        "a budget is edited and runs out",
        (
            begin(SHORT, *nodes("a", 2), budget("lab", envelope("main", 4, hours=2))),
            send("1m", apply(run("first", 4, owner="org:lab"), run("second", 4, owner="org:lab"))),
            send("2m", apply(budget("lab", envelope("main", 8, hours=4)))),
            send("12m", apply(budget("lab", envelope("main", 8, hours=3)))),
            send("40m", apply(budget("lab", envelope("main", 8, hours=20, end="2h")))),
            send("50m", cancel("first")),
            exits("1h", "second-a1-0", "succeed"),
            send("70m", Delete(kind="Budget", name="lab")),
        ),
        until=at("3h"),
        writes=14,
        policy=SHORT,
        spends_hours=True,
    )
    yield Timeline(
        "two runs want the same machines",
        (
            begin(SLOW, *nodes("a", 2), LAB, budget("other", envelope("main", 16))),
            send(
                "1m",
                apply(
                    run("theirs", 16, owner="org:other", lasts="10m"),
                    run("mine", 12, owner="org:lab", lasts="5m"),
                ),
            ),
            record("2m", apply(run("third", 8, owner="org:lab", lasts="1m"))),
            decide("3m", apply(run("fourth", 4, owner="org:other", lasts="1m"))),
        ),
        until=at("1h"),
        writes=13,
        policy=SLOW,
    )
    yield Timeline(
        "files of several objects are applied whole or not at all",
        (
            record(
                "0s",
                SetPolicy(SLOW),
                apply(
                    run("train", 8, namespace="rai", lasts="10m"),
                    namespace("rai", owner="org:rai"),
                    *nodes("a", 2),
                    budget("rai"),
                ),
            ),
            record("1m", apply(run("ours", 8, namespace="rai", lasts="3m"), budget("more", owner="org:rai:more"))),
            mistake("2m", apply(run("bad", 8, namespace="rai", owner="org:else"), budget("unseen"))),
            mistake("3m", apply(run("train", 16, namespace="rai", lasts="10m"), budget("unseen"))),
            send(
                "4m",
                apply(
                    replace(node("a0"), spec=replace(node("a0").spec, unschedulable=True)),
                    run("next", 8, namespace="rai", lasts="3m"),
                ),
            ),
            send("5m", SetPolicy(replace(SLOW, lookahead="2h"))),
        ),
        until=at("1h"),
        writes=13,
        policy=SLOW,
    )
    yield Timeline(
        "a start is promised, others start past it, and it is kept",
        (
            begin(SLOW, *nodes("a", 2), LAB, budget("other", envelope("main", 16))),
            send("1m", apply(run("long", 8, owner="org:other", lasts="20m"))),
            send("2m", apply(run("waits", 16, owner="org:lab", lasts="5m"))),
            send("3m", apply(run("past", 4, owner="org:other", lasts="10m"))),
            send("4m", apply(run("too-long", 4, owner="org:other", lasts="30m"))),
            exits("10m", "long-a1-0", "succeed"),
        ),
        until=at("2h"),
        writes=14,
        policy=SLOW,
    )
    yield Timeline(
        "room is made: spares, a group, then one who is drawn",
        (
            begin(EAGER, *nodes("a", 4), LAB, budget("other", envelope("main", 32))),  # whoever is drawn comes back
            send("1m", apply(run("guarded", 8, owner="org:other", group=8, spares=4, on_preemption="Requeue"))),
            send(
                "2m", apply(run("wide", 12, owner="org:other", elastic=elastic(8, 12, step=4), on_preemption="Requeue"))
            ),
            send("3m", apply(run("gang", 8, owner="org:other", on_preemption="Requeue"))),
            send("10m", apply(run("first", 8, owner="org:lab", lasts="1h", on_preemption="Requeue"))),
            send("30m", apply(run("second", 8, owner="org:lab", lasts="30m"))),
        ),
        until=at("4h"),
        writes=20,
        policy=EAGER,
    )


TIMELINES = list(timelines())
by_name = pytest.mark.parametrize("timeline", TIMELINES, ids=lambda one: one.name)


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory if we can, see ``scratch``."""
    with TemporaryDirectory(dir=scratch.place(), prefix="tenure-kills-") as place:
        yield Path(place) / "play"


def undisturbed(timeline: Timeline, folder: Path) -> tuple[Book, list[str]]:
    path = create(timeline, folder)
    with Play(timeline, path) as play:
        play.to_the_end()
        found = violations(play)
        assert found == []
        return book(play), [link.hash for link in play.ledger.links()]


def survives(timeline: Timeline, wreck: Wreck, hashes: list[str] | None = None) -> Book:
    """Open what a kill left, and play on as if it were the first time. ``hashes`` is the chain without any kill."""
    with Play(timeline, wreck.path, wreck.cursor) as play:
        known, found = wreck.acknowledged, play.acknowledged
        assert found[: len(known)] == known, f"{wreck}: an acknowledged entry is gone"
        assert hashes is None or list(found) == hashes[: len(found)], f"{wreck}: something was never decided"
        play.to_the_end()
        assert violations(play) == [], str(wreck)
        return book(play)


@by_name
@pytest.mark.parametrize("images", [homes.IMAGE_EVERY, 2], ids=["from entries", "from images"])
def test_a_kill_at_any_point_of_any_write_changes_nothing(
    timeline: Timeline, images: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, hashes = undisturbed(timeline, folder / "undisturbed")
    monkeypatch.setattr(homes, "IMAGE_EVERY", images)
    wrecks = wrecks_of(timeline, create(timeline, folder / "wrecked"))
    assert {wreck.point for wreck in wrecks} == set(WRITE_POINTS)
    assert len(wrecks) >= timeline.writes * len(WRITE_POINTS)
    for wreck in wrecks:
        assert survives(timeline, wreck, hashes) == expected, str(wreck)
        remove(wreck.path)


@by_name
def test_a_kill_that_is_followed_by_another_changes_nothing(timeline: Timeline, folder: Path) -> None:
    expected, _ = undisturbed(timeline, folder / "undisturbed")
    schedules = 0
    for first in wrecks_of(timeline, create(timeline, folder / "wrecked"), pick=every(11)):
        for second in wrecks_of(timeline, first.path, first.cursor, pick=every(13)):
            got = survives(timeline, second)
            assert got == expected, f"{first}, then {second}"
            schedules += 1
        remove(first.path)
    assert schedules >= timeline.writes


@pytest.mark.parametrize("timeline", [one for one in TIMELINES if not one.spends_hours], ids=lambda one: one.name)
def test_a_kill_after_which_nobody_drives_for_a_while_breaks_no_rule(timeline: Timeline, folder: Path) -> None:
    """Things then happen later, and so may come out otherwise; but nobody is forgotten, and the books are right."""
    expected, hashes = undisturbed(timeline, folder / "undisturbed")
    schedules = 0
    for wreck in wrecks_of(timeline, create(timeline, folder / "wrecked"), pick=every(5)):
        got = survives(timeline, wreck._replace(cursor=later(wreck.cursor, 20 * MINUTE)), hashes)
        assert runs_put(got) == runs_put(expected), str(wreck)
        assert all(end is not None for lease, end, _ in got.leases if lease.until), str(wreck)
        schedules += 1
        remove(wreck.path)
    assert schedules >= timeline.writes


def every(number: int) -> Callable[[int], bool]:
    """Of so many points one; all of them if that was asked for."""
    return lambda count: ALL or count % number == 1


def runs_put(book: Book) -> set[str]:
    objects = [fact.object.metadata for fact in book.facts if isinstance(fact, PutRun)]
    return {f"{one.namespace}/{one.name}" for one in objects}
