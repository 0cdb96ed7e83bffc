"""An embedded fleet as its users hold it: one file, any number of handles, each decision whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.embedded.driver import DriverLock
from tenure.embedded.fleet import Fleet, clock, is_unfinished
from tenure.engine import Apply, dump
from tenure.ledger import CREATE_POINTS, WRITE_POINTS, Code, Ledger, LedgerRefused
from tenure.ledger.refusals import refused
from tenure.shell import home as homes
from tenure.testing import budget, envelope, nodes, run
from tests.embedded.crash_support import audit

POLICY = Policy(lookahead="10m")
BEFORE_COMMIT = WRITE_POINTS[: WRITE_POINTS.index("after-commit")]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A fleet of two machines and one budget. Whatever a test did to it, its books are right in the end."""
    path = tmp_path / "fleet.db"
    with Fleet.create(path, nodes=nodes("n", 2), policy=POLICY) as fleet:
        assert fleet.apply([budget("lab", envelope("main", 16))]) == []
    yield path
    with Ledger.open(path) as ledger:
        assert audit(ledger, now=clock(), settled=False) == []


@pytest.fixture
def driven(path: Path) -> Iterator[Path]:
    """The same while somebody drives it: whoever writes decides."""
    with DriverLock(path):
        yield path


def train(name: str, gpus: int = 8) -> list[Run]:
    return [run(name, gpus, owner="org:lab")]


def phases(path: Path) -> dict[str, str]:
    with Fleet.open(path) as fleet:
        return {row.name: row.life.phase for row in fleet.state().runs.values()}


# --- creation -----------------------------------------------------------------------------------------------------

CREATOR = """
import os, signal, sys
from functools import partial
from pathlib import Path
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.embedded import fleet
from tenure.ledger import Ledger
from tenure.testing import nodes

def hook(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

class Hooked(Ledger):
    @classmethod
    def create(cls, path, **options):
        return super().create(path, hook=hook, **options)

fleet.Ledger = Hooked
fleet.Fleet.create(Path(sys.argv[1]), nodes=nodes("n", 2), policy=Policy())
"""


@pytest.mark.parametrize("point", [*CREATE_POINTS, "begin", "after-append", "before-commit", "after-commit"])
def test_a_fleet_whose_creation_was_killed_is_whole_or_can_be_created_again(tmp_path: Path, point: str) -> None:
    path = tmp_path / "fleet.db"
    done = subprocess.run([sys.executable, "-c", CREATOR, str(path), point], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.exists() == (point not in CREATE_POINTS[:2])
    whole = point == "after-commit"
    assert is_unfinished(path) == (path.exists() and not whole)
    if not whole:
        Fleet.create(path, nodes=nodes("n", 2), policy=POLICY).close()
    with Fleet.open(path) as fleet:
        assert (sorted(fleet.state().topology.rows), fleet.ledger.head.seq) == (["n0", "n1"], 2)
        assert fleet.state().policy == (Policy() if whole else POLICY)
    with Ledger.open(path) as ledger:
        assert audit(ledger, now=clock()) == []


def test_a_fleet_whose_first_entries_found_no_room_can_be_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fleet.db"
    with monkeypatch.context() as patch:
        patch.setattr(homes.Home, "handle", Mock(side_effect=refused(Code.DiskFull, path=path)))
        with pytest.raises(LedgerRefused):
            Fleet.create(path, nodes=nodes("n", 2), policy=POLICY)
    with Fleet.create(path, nodes=nodes("n", 2), policy=POLICY) as fleet:
        assert sorted(fleet.state().topology.rows) == ["n0", "n1"]


def test_of_two_who_finish_a_creation_one_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.embedded.fleet.is_unfinished", lambda *_, **__: True)  # both have looked by now
    with pytest.raises(LedgerRefused) as caught:
        Fleet.create(path, nodes=nodes("other", 9), policy=Policy())
    assert caught.value.code is Code.Exists
    with Fleet.open(path) as fleet:
        assert sorted(fleet.state().topology.rows) == ["n0", "n1"]


def test_a_fleet_is_never_created_over_another(path: Path) -> None:
    with pytest.raises(LedgerRefused) as caught:
        Fleet.create(path, nodes=nodes("other", 9), policy=POLICY)
    assert caught.value.code is Code.Exists
    with Fleet.open(path) as fleet:
        assert sorted(fleet.state().topology.rows) == ["n0", "n1"]
        assert fleet.state().policy == POLICY


# --- several handles ----------------------------------------------------------------------------------------------


def test_handles_decide_on_what_the_others_have_written(driven: Path) -> None:
    with Fleet.open(driven, readonly=False) as first, Fleet.open(driven, readonly=False) as second:
        assert first.apply(train("a")) == []
        assert second.apply(train("b")) == []
        assert first.apply(train("c")) == [], "there is no room left, and this handle was not told"
        assert second.cancel([("lab", "c"), ("lab", "nobody")])[0].problem == "does not exist"
    assert phases(driven) == {"a": "Starting", "b": "Starting"}
    with Fleet.open(driven) as fleet:
        held = [(lease.node, ordinal) for lease in fleet.state().leases.values() for ordinal in lease.gpus]
    assert len(held) == len(set(held)) == 16


def test_without_a_driver_objects_are_recorded_and_nothing_starts(path: Path) -> None:
    with Fleet.open(path, readonly=False) as fleet:
        assert fleet.apply(train("a")) == []
        assert fleet.state().leases == {}
    assert phases(path) == {"a": "Pending"}
    with Fleet.open(path, readonly=False) as fleet:
        assert fleet.cancel([("lab", "a")]) == []
    assert phases(path) == {}


def test_a_refused_object_takes_the_whole_file_with_it(driven: Path) -> None:
    with Fleet.open(driven, readonly=False) as fleet:
        before = fleet.ledger.head
        good, bad = budget("good"), budget("bad", owner="org:x", parents=["org:x"])
        errors = fleet.apply([good, *train("a"), bad])
        assert {error.object for error in errors} == {"Budget/bad"}
        assert fleet.ledger.head == before, "nothing was stored"
    assert phases(driven) == {}


def test_a_fleet_opened_for_reading_is_not_written(path: Path) -> None:
    with Fleet.open(path) as fleet, pytest.raises(LedgerRefused) as caught:
        fleet.apply(train("a"))
    assert caught.value.code is Code.ReadOnly


# --- a commit that fails ------------------------------------------------------------------------------------------


class Interrupted(Exception):
    """What the hook raises."""


@pytest.mark.parametrize("point", WRITE_POINTS)
def test_a_handle_whose_commit_failed_goes_on_with_what_is_really_stored(driven: Path, point: str) -> None:
    armed = False

    def hook(reached: str) -> None:
        if armed and reached == point:
            raise Interrupted

    fleet = Fleet(Ledger.open(driven, hook=hook))
    assert fleet.apply(train("a")) == []
    armed = True
    with pytest.raises(Interrupted):
        fleet.apply(train("b"))
    armed = False
    if point in (*BEFORE_COMMIT, "after-anchor"):
        assert fleet.apply(train("c")) == []
    else:
        with pytest.raises(LedgerRefused) as caught:
            fleet.apply(train("c"))
        assert caught.value.code is Code.Unconfirmed
        fleet.close()
        fleet = Fleet.open(driven, readonly=False)
        assert fleet.apply(train("c")) == []
    fleet.close()
    # What was rolled back never held a GPU; what was committed holds them, though nobody had been told.
    if point in BEFORE_COMMIT:
        assert phases(driven) == {"a": "Starting", "c": "Starting"}
    else:
        assert phases(driven) == {"a": "Starting", "b": "Starting", "c": "Pending"}


# --- asking -------------------------------------------------------------------------------------------------------


def test_the_past_is_what_it_was(driven: Path) -> None:
    seen: list[tuple[int, bytes]] = []
    with Fleet.open(driven, readonly=False) as fleet:
        for name in ("a", "b", "c"):
            assert fleet.apply(train(name)) == []
            state = fleet.state()
            seen.append((state.now, dump(state)))
        assert fleet.cancel([("lab", "c")]) == []
    with Fleet.open(driven) as fleet:
        assert [dump(fleet.state_at(at)) for at, _ in seen] == [image for _, image in seen]
        assert fleet.state_at(0).runs == {}


def test_asking_what_would_happen_changes_nothing(driven: Path) -> None:
    [wanted] = train("a", gpus=16)
    with Fleet.open(driven, readonly=False) as fleet:
        before = fleet.ledger.head
        planned = fleet.plan(wanted)
        _, rehearsed = fleet.rehearse(Apply((wanted,)), now=clock())
        assert fleet.ledger.head == before
        decided = fleet.submit([wanted], decide=True)
    assert planned.outcome == "start"
    assert [type(fact) for fact in rehearsed.facts] == [type(fact) for fact in decided.facts]


# --- opening ------------------------------------------------------------------------------------------------------


def test_many_short_lived_processes_leave_an_image_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening must not cost the whole history where nobody drives for long."""
    monkeypatch.setattr(homes, "IMAGE_EVERY", 5)
    for number in range(12):
        with Fleet.open(path, readonly=False) as fleet:
            assert fleet.apply(train(f"r{number}")) == []
    with Fleet.open(path) as fleet:
        image = fleet.ledger.snapshot()
        assert image is not None
        assert fleet.ledger.head.seq - image.seq < 8
        assert len(fleet.state().runs) == 12
