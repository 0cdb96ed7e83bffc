"""The bell of a fleet file: who waits hears of commits, of ends, and of being told to stop."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from tenure.api.policy import Policy
from tenure.embedded import bell as bells
from tenure.embedded.bell import LISTENING, POLL, Bell
from tenure.embedded.daemon import Daemon
from tenure.embedded.fleet import Fleet
from tenure.testing import budget, node, run
from tests.embedded.pods import DEADLINE_SECONDS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.db"
    with Fleet.create(path, nodes=[node("a")], policy=Policy()) as fleet:
        assert fleet.apply([budget("lab")]) == []
    return path


@pytest.fixture
def bell(path: Path) -> Iterator[Bell]:
    with Bell(path.with_name("fleet.db.anchor")) as bell:
        yield bell


def commit(path: Path) -> None:
    with Fleet.open(path, readonly=False) as fleet:
        assert fleet.apply([budget("other")]) == []


def test_it_rings_once_when_somebody_commits(path: Path, bell: Bell) -> None:
    assert not bell.wait(0)
    commit(path)
    assert bell.wait(0)
    assert not bell.wait(0)


def test_reading_does_not_ring_it(path: Path, bell: Bell) -> None:
    with Fleet.open(path) as fleet:
        fleet.state()
    assert not bell.wait(0)


def test_it_is_rung_before_anybody_waits(bell: Bell) -> None:
    bell.ring()
    bell.ring()
    assert bell.wait(DEADLINE_SECONDS)
    assert not bell.wait(0)


def test_it_heeds_one_other_descriptor(bell: Bell) -> None:
    first, second = os.pipe(), os.pipe()
    for reads, _ in (first, second):
        bell.heed(reads)
        bell.heed(reads)
    os.write(first[1], b"x")
    assert not bell.wait(0)
    os.write(second[1], b"x")
    assert bell.wait(0)
    assert bell.wait(0), "as long as nobody reads it"
    bell.heed(None)
    assert not bell.wait(0)
    for fd in (*first, *second):
        os.close(fd)


def test_it_hears_the_file_that_is_in_the_old_ones_place(path: Path, bell: Bell) -> None:
    """An anchor that was put back from a copy is another file."""
    anchor = path.with_name("fleet.db.anchor")
    shutil.copy(anchor, copy := path.with_name("copy"))
    os.replace(copy, anchor)
    while bell.wait(0):  # the old one's end
        pass
    commit(path)
    assert bell.wait(0)


def test_without_a_file_it_is_deaf_and_looks_more_often(tmp_path: Path) -> None:
    with Bell(tmp_path / "later") as bell:
        assert (bell.hears, bell.longest()) == (False, POLL)
        (tmp_path / "later").touch()
        assert not bell.wait(0)
        assert (bell.hears, bell.longest()) == (True, LISTENING)


def test_ringing_after_its_end_does_nothing(tmp_path: Path) -> None:
    bell = Bell(tmp_path)
    bell.close()
    bell.ring()


def test_a_driver_that_never_looks_by_itself_hears_all_that_happens(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of others, ends of pods, the next run's start and the order to stop: all of them ring."""
    monkeypatch.setattr(bells, "LISTENING", DEADLINE_SECONDS)
    seen: list[str] = []
    driver = Daemon(path, watch=lambda entry: seen.append(entry.cause))
    thread = Thread(target=driver.run)
    begin = monotonic()
    thread.start()
    template = {"spec": {"containers": [{"name": "main", "command": ["true"]}]}}
    with Fleet.open(path, readonly=False) as fleet:
        assert fleet.apply([run(f"r{i}", 8, owner="org:lab", template=template) for i in range(3)]) == []
    while monotonic() - begin < DEADLINE_SECONDS / 2:
        with Fleet.open(path) as fleet:
            if {row.life.phase for row in fleet.state().runs.values()} == {"Completed"}:
                break
    else:
        raise AssertionError(f"it slept: {seen}")
    driver.stop()
    thread.join(DEADLINE_SECONDS / 4)
    assert not thread.is_alive()
