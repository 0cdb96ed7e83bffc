"""What leaves the API server goes to the archive first, and the books stay whole."""

import asyncio
import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from tenure.api.meta import to_wire
from tenure.api.policy import Policy
from tenure.engine import Apply, SetPolicy, dump, render
from tenure.kube import heads, retention
from tenure.kube.archive import Archive
from tenure.kube.client import Client
from tenure.kube.heads import Fence
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.resources import LEASES
from tenure.kube.retention import Retention, retire, sweep
from tenure.kube.store import KubeStore
from tenure.ledger import LeaseRow
from tenure.shell.home import Home, rebuild
from tenure.shell.simulated import SimulatedExecutor
from tenure.testing import START, budget, envelope, nodes, run
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy
from tenure.units import HOUR, MINUTE
from tests.kube.store.conftest import OpenStore
from tests.kube.store.test_commit import causes, head_of, objects_of, say


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def kept(open_store: OpenStore, folder: Path) -> KubeStore:
    """A store with an archive."""
    return open_store(archive=folder)


def hours(store: KubeStore, count: int) -> None:
    for number in range(count):
        say(store, f"{number}", f"{number}'", at=START + number * HOUR)


def numbers(plane: ControlPlane) -> list[int]:
    return sorted(item["spec"]["seq"] for item in objects_of(plane))


# --- entries ------------------------------------------------------------------------------------------------------


def test_old_entries_move_to_a_segment_and_leave_the_server(kept: KubeStore, empty: ControlPlane, folder: Path) -> None:
    hours(kept, 6)
    done = retire(kept, before=START + 3 * HOUR)
    assert (done.entries, [one.path.name[:25] for one in done.segments]) == (3, ["000000000001-000000000006"])
    assert numbers(empty) == [8, 10, 12]
    last = kept.ledger.head_at(6)
    assert last is not None
    assert head_of(empty)["spec"]["archived"] == {"seq": 6, "hash": last.hash, "at": last.at}
    lines = gzip.decompress(done.segments[0].path.read_bytes()).splitlines()
    assert lines == list(kept.ledger.export(until=6))
    assert Archive(folder).verify(until=6, digest=last.hash) == 6


def test_a_second_time_nothing_is_left_to_do(kept: KubeStore, client: Client) -> None:
    hours(kept, 4)
    retire(kept, before=START + 2 * HOUR)
    before = client.calls
    assert retire(kept, before=START + 2 * HOUR) == retention.Retired()
    assert client.calls - before == 4, "lists of entries, of leases, and of reservations kept and canceled"


def test_the_archive_is_not_made_of_crumbs(kept: KubeStore, empty: ControlPlane) -> None:
    hours(kept, 6)
    assert retire(kept, before=START + 3 * HOUR, worth=3 * HOUR + 1) == retention.Retired()
    assert len(numbers(empty)) == 6
    assert [one.last for one in retire(kept, before=START + 4 * HOUR, worth=3 * HOUR + 1).segments] == [8]


def test_step_by_step_the_same_is_done_and_nobody_waits(
    open_store: OpenStore, kept: KubeStore, empty: ControlPlane, folder: Path
) -> None:
    rival = open_store("rival")
    hours(kept, 6)
    with pytest.raises(StoreRefused, match="Outrun"):
        say(rival, "late")
    steps, now = Retention(kept, keep=7 * HOUR, worth=0), START + 10 * HOUR
    rounds = [until(lambda: steps.step(now), every=0.001)]
    assert (rounds[0].entries, [one.last for one in rounds[0].segments]) == (3, [6])
    assert numbers(empty) == [8, 10, 12], "swept, too"
    say(kept, "meanwhile", at=now)
    assert steps.step(now + 9 * MINUTE) is None, "a round is due every ten minutes"
    rounds.append(until(lambda: steps.step(now + HOUR), every=0.001))
    assert [one.last for one in rounds[1].segments] == [8]
    assert Archive(folder).verify(until=8, digest=head_of(empty)["spec"]["archived"]["hash"]) == 8


def test_a_round_that_fails_is_begun_again_later(
    open_store: OpenStore, faulty: Client, proxy: FaultProxy, folder: Path
) -> None:
    store = open_store(archive=folder, through=faulty)
    hours(store, 6)
    steps, now = Retention(store, keep=HOUR, worth=0), START + 3 * HOUR
    proxy.fail("error", method="DELETE", times=1)
    with pytest.raises(StoreRefused, match="Unreachable"):
        until(lambda: steps.step(now), every=0.001)
    assert steps.step(now) is None
    assert until(lambda: steps.step(now + HOUR), every=0.001).entries >= 1


def test_who_keeps_everything_only_sweeps(kept: KubeStore, empty: ControlPlane) -> None:
    hours(kept, 3)
    steps = Retention(kept, keep=None)
    assert until(lambda: steps.step(START), every=0.001) == retention.Retired()
    assert numbers(empty) == [2, 4, 6]


def test_the_archive_goes_on_where_it_ended(kept: KubeStore, folder: Path, empty: ControlPlane) -> None:
    hours(kept, 6)
    retire(kept, before=START + 2 * HOUR)
    say(kept, "later", at=START + 9 * HOUR)
    retire(kept, before=START + 5 * HOUR)
    assert [(one.first, one.last) for one in Archive(folder).segments()] == [(1, 4), (5, 10)]
    assert Archive(folder).verify(until=10, digest=head_of(empty)["spec"]["archived"]["hash"]) == 10
    say(kept, "on", at=START + 9 * HOUR)
    assert head_of(empty)["spec"]["archived"]["seq"] == 10


def test_the_last_commit_stays_however_old(kept: KubeStore, empty: ControlPlane) -> None:
    hours(kept, 3)
    retire(kept, before=START + 1000 * HOUR)
    assert numbers(empty) == [6]


def test_large_moves_are_cut_into_segments(
    kept: KubeStore, folder: Path, empty: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SEGMENT_ENTRIES_MAX", 3)
    hours(kept, 5)
    retire(kept, before=START + 4 * HOUR)
    assert [(one.first, one.last) for one in Archive(folder).segments()] == [(1, 3), (4, 6), (7, 8)]
    assert numbers(empty) == [10]


def test_a_new_operator_rebuilds_from_archive_and_live_entries(
    kept: KubeStore, open_store: OpenStore, folder: Path
) -> None:
    hours(kept, 6)
    retire(kept, before=START + 3 * HOUR)
    again = open_store("another disk", archive=folder)
    assert list(again.entries()) == list(kept.entries())
    assert again.ledger.verify().ok
    say(again, "on", at=START + 9 * HOUR)
    assert causes(again)[-1] == "on"


def test_without_the_archive_it_says_what_it_needs(kept: KubeStore, open_store: OpenStore, tmp_path: Path) -> None:
    hours(kept, 6)
    retire(kept, before=START + 3 * HOUR)
    with pytest.raises(StoreRefused, match=r"ArchiveNeeded: Entries up to 6 .*given no archive"):
        open_store("another disk")
    with pytest.raises(StoreRefused, match=r"ArchiveNeeded.*holds none after entry 0"):
        open_store("a third disk", archive=tmp_path / "wrong folder")


def test_a_damaged_segment_is_not_believed(kept: KubeStore, open_store: OpenStore, folder: Path) -> None:
    hours(kept, 4)
    (segment,) = retire(kept, before=START + 2 * HOUR).segments
    text = gzip.decompress(segment.path.read_bytes())
    segment.path.write_bytes(gzip.compress(text.replace(b"say 1", b"say 7", 1)))
    with pytest.raises(StoreRefused) as refused:
        open_store("another disk", archive=folder)
    assert (refused.value.code, segment.path.name in refused.value.sentence) == (Code.EntryDamaged, True)
    segment.path.write_bytes(segment.path.read_bytes()[:-20])
    with pytest.raises(StoreRefused, match="EntryDamaged"):
        open_store("another disk", archive=folder)


def test_nothing_is_deleted_when_the_segment_cannot_be_read_back(
    kept: KubeStore, empty: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours(kept, 4)
    write = gzip.GzipFile.write
    monkeypatch.setattr(gzip.GzipFile, "write", lambda file, data: write(file, data.replace(b"say 1", b"say 7")))
    with pytest.raises(StoreRefused, match="EntryDamaged"):
        retire(kept, before=START + 2 * HOUR)
    assert numbers(empty) == [2, 4, 6, 8]
    assert "archived" not in head_of(empty)["spec"]
    assert Archive(folder).segments() == []


@pytest.mark.parametrize("broken", ["mkdir", "fsync"])
def test_regression_an_archive_that_is_full_refuses_and_keeps_no_half_of_a_segment(
    kept: KubeStore, empty: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """It ended the operator, and every other that took over."""
    hours(kept, 4)
    steps = Retention(kept, keep=0, worth=0)

    def full(*args: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path if broken == "mkdir" else os, broken, full)
        with pytest.raises(StoreRefused, match=r"ArchiveRefuses: The archive .* cannot be written"):
            until(lambda: steps.step(START + 2 * HOUR), every=0.001)
    assert list(folder.glob("*")) == []
    assert numbers(empty) == [2, 4, 6, 8]
    assert retire(kept, before=START + 2 * HOUR).entries == 2


@pytest.mark.parametrize("point", ["written", "named"])
def test_who_dies_half_way_does_the_rest_the_next_time(
    kept: KubeStore,
    empty: ControlPlane,
    open_store: OpenStore,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    """After the segment is written and before the head says so; after the head says so and before the deletes."""

    class Died(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Died

    hours(kept, 6)
    with monkeypatch.context() as patched:
        patched.setattr(*((KubeStore, "move_archive") if point == "written" else (retention, "_deleting")), die)
        with pytest.raises(Died):
            retire(kept, before=START + 2 * HOUR)
    assert numbers(empty) == [2, 4, 6, 8, 10, 12]
    retire(kept, before=START + 3 * HOUR)
    assert numbers(empty) == [8, 10, 12]
    assert list(open_store("another disk", archive=folder).entries()) == list(kept.entries())


def test_a_commit_meanwhile_keeps_what_the_head_says_of_the_archive(
    kept: KubeStore, open_store: OpenStore, empty: ControlPlane
) -> None:
    rival = open_store("rival")
    hours(kept, 4)
    rival.refresh()
    retire(kept, before=START + 2 * HOUR)  # the rival's fence is old now, but the chain has not moved
    say(rival, "r", at=START + 9 * HOUR)
    assert head_of(empty)["spec"]["archived"]["seq"] == 4
    kept.refresh()
    assert causes(kept)[-1] == "r"


# --- leases -------------------------------------------------------------------------------------------------------


def lease_object(row: LeaseRow) -> dict[str, Any]:
    return to_wire(render.lease(row.lease, end=row.end, closure=row.closure))  # type: ignore[no-any-return]  # a mapping


def test_closed_leases_go_when_their_entries_are_in_the_archive(
    kept: KubeStore, open_store: OpenStore, empty: ControlPlane, folder: Path
) -> None:
    home = Home(kept, SimulatedExecutor())
    home.handle(SetPolicy(Policy()), now=START)
    home.handle(Apply((*nodes("n", 3), budget("a", envelope(hours=1000)))), now=START)
    for name, lasts in (("short", "1h"), ("long", "5h"), ("open", "50h")):
        home.handle(Apply((run(name, 8, owner="org:a", lasts=lasts),)), now=START)
    home.drive(now=START)
    for hour in range(1, 7):
        home.drive(now=START + hour * HOUR)
    empty.namespace("lab")
    for row in kept.ledger.leases():
        made = empty.api.create(lease_object(row)).must()
        empty.api.replace({**made, "status": lease_object(row).get("status", {})}, "status").must()
    done = retire(kept, before=START + 2 * HOUR)
    live = empty.api.get(LEASES.path()).must()["items"]
    assert (done.leases, sorted(item["spec"]["runRef"]["name"] for item in live)) == (1, ["long", "open"])
    again = open_store("another disk", archive=folder)
    assert dump(rebuild(again)[0]) == dump(home.state)
    assert sorted(again.lease_history(), key=lambda row: row[0].key) == sorted(
        kept.lease_history(), key=lambda row: row[0].key
    )
    empty.api.call("DELETE", LEASES.path("lab")).must()


# --- orphans ------------------------------------------------------------------------------------------------------


def test_what_losers_left_is_swept_and_nothing_else(open_store: OpenStore, empty: ControlPlane) -> None:
    one, two = open_store("one"), open_store("two")
    say(one, "a")
    with pytest.raises(StoreRefused, match="Outrun"):
        say(two, "b")
    assert len(objects_of(empty)) == 2
    assert (sweep(one), causes(one)) == (1, ["a"])
    assert [item["spec"]["hash"] for item in objects_of(empty)] == [one.head.hash]
    assert sweep(one) == 0


def test_what_may_still_be_committed_is_not_swept(
    open_store: OpenStore, empty: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has written an entry and not yet swapped: who sweeps meanwhile leaves it alone."""
    one, two = open_store("one"), open_store("two")
    found = []

    async def late(*what: Any) -> Fence:
        found.append((len(objects_of(empty)), await asyncio.to_thread(sweep, one)))
        return await heads.swap(*what)

    monkeypatch.setattr("tenure.kube.store.swap", late)
    say(two, "b", at=START + MINUTE)
    assert found == [(1, 0)]
    one.refresh()
    assert causes(one) == causes(two) == ["b"]
