"""Committing to the API server: what is written, what counts, and who wins."""

import base64
import gzip
import random
import threading
from typing import Any

import pytest

from tenure.engine import Apply, dump
from tenure.facts import Noted, decode_entry, encode_entry, entry_hash
from tenure.kube import walk
from tenure.kube.client import Client
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.store import KubeStore
from tenure.ledger import Ledger
from tenure.shell.home import Home, rebuild
from tenure.shell.store import Store
from tenure.testing import START, node, nodes
from tenure.testing.kube import ControlPlane
from tests.kube.store.conftest import ENTRIES, HEAD, HEADS, OpenStore


def note(text: str) -> Noted:
    return Noted(kind="Test", object="Run/lab/x", reason="Test", message=text)


def say(store: Store, *texts: str, at: int = START) -> None:
    with store.write() as tx:
        for text in texts:
            tx.append(at=at, cause=f"say {text[:20]}", facts=(note(text),))


def say_and_fail(store: Store) -> None:
    with store.write() as tx:
        tx.append(at=START, cause="x", facts=(note("x"),))
        raise RuntimeError("no")


def causes(store: Store) -> list[str]:
    return [entry.cause.removeprefix("say ") for entry in store.entries()]


def head_of(plane: ControlPlane) -> dict[str, Any]:
    return plane.api.get(HEAD).must()


def objects_of(plane: ControlPlane) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = plane.api.get(ENTRIES).must()["items"]
    return items


# --- what is written ----------------------------------------------------------------------------------------------


def test_a_new_ledger_is_a_head_without_entries(store: KubeStore, empty: ControlPlane) -> None:
    assert head_of(empty)["spec"] == {"fleet": "lab", "seq": 0, "hash": "0" * 64, "at": 0}
    assert objects_of(empty) == []


def test_a_commit_is_one_object_of_exact_bytes_and_a_head_that_names_it(store: KubeStore, empty: ControlPlane) -> None:
    say(store, "a")
    (entry,) = store.entries()
    body, (item,) = encode_entry(entry), objects_of(empty)
    digest = entry_hash(body)
    assert item["metadata"]["name"] == f"000000000001-{digest[:16]}"
    assert item["spec"] == {
        "first": 1,
        "seq": 1,
        "hash": digest,
        "prev": "0" * 64,
        "at": START,
        "part": 1,
        "parts": 1,
        "encoding": "json",
        "body": body.decode(),
    }
    assert head_of(empty)["spec"] == {"fleet": "lab", "seq": 1, "hash": digest, "at": START}


def test_a_commit_of_many_entries_costs_two_writes(store: KubeStore, client: Client, empty: ControlPlane) -> None:
    before = client.calls
    say(store, *(str(number) for number in range(50)))
    assert client.calls - before == 2
    (item,) = objects_of(empty)
    assert (item["spec"]["first"], item["spec"]["seq"]) == (1, 50)
    lines = [decode_entry(line.encode()) for line in item["spec"]["body"].split("\n")]
    assert lines == list(store.entries())


def test_a_transaction_without_entries_writes_nothing(store: KubeStore, client: Client) -> None:
    before = client.calls
    with store.write() as tx:
        assert tx.head.seq == 0
    assert client.calls == before


def test_a_large_commit_is_compressed_and_a_huge_one_comes_in_parts(open_store: OpenStore, empty: ControlPlane) -> None:
    store, noise = open_store(), random.Random(7)
    say(store, "abc" * 100_000)
    say(store, base64.b64encode(noise.randbytes(2_000_000)).decode())
    first, *parts = (item["spec"] for item in objects_of(empty))
    assert (first["encoding"], first["parts"]) == ("gzip", 1)
    assert gzip.decompress(base64.b64decode(first["body"])) == encode_entry(next(store.entries()))
    assert {spec["parts"] for spec in parts} == {len(parts)}
    assert len(parts) > 1
    assert list(open_store("another").entries()) == list(store.entries())


def test_a_transaction_that_fails_sends_nothing(store: KubeStore, empty: ControlPlane) -> None:
    with pytest.raises(RuntimeError, match="no"):
        say_and_fail(store)
    assert (objects_of(empty), head_of(empty)["spec"]["seq"]) == ([], 0)


# --- what the API server itself refuses ---------------------------------------------------------------------------


def test_no_entry_changes_and_the_head_only_moves_forward(store: KubeStore, empty: ControlPlane) -> None:
    say(store, "a")
    say(store, "b")
    item, head = objects_of(empty)[0], head_of(empty)
    forged = {**item, "spec": {**item["spec"], "at": 1}}
    assert "never changes" in empty.api.call("PUT", f"{ENTRIES}/{item['metadata']['name']}", forged).message
    back = {**head, "spec": {**head["spec"], "seq": 1, "hash": item["spec"]["hash"]}}
    assert "forward only" in empty.api.call("PUT", HEAD, back).message
    other = {**head, "spec": {**head["spec"], "hash": "1" * 64}}
    assert "forward only" in empty.api.call("PUT", HEAD, other).message
    fleet = {**head, "spec": {**head["spec"], "fleet": "other"}}
    assert "one fleet" in empty.api.call("PUT", HEAD, fleet).message
    second = {**head, "metadata": {"name": "second"}}
    assert "called head" in empty.api.call("POST", HEADS, second).message


# --- two at once --------------------------------------------------------------------------------------------------


def test_who_comes_second_loses_and_goes_on_from_the_winner(open_store: OpenStore) -> None:
    one, two = open_store("one"), open_store("two")
    say(one, "a")
    with pytest.raises(StoreRefused) as lost:
        say(two, "b")
    assert (lost.value.code, lost.value.transient) == (Code.Outrun, True)
    assert causes(two) == []
    say(two, "b")
    assert causes(two) == ["a", "b"]
    one.refresh()
    assert list(one.entries()) == list(two.entries())


def test_of_two_writers_at_once_exactly_one_wins_each_swap(open_store: OpenStore, empty: ControlPlane) -> None:
    names, each = ("one", "two", "three"), 12
    lost: list[Code] = []

    def work(name: str, store: KubeStore) -> None:
        for number in range(each):
            while True:
                try:
                    say(store, f"{name}-{number}", f"{name}-{number}-again")
                    break
                except StoreRefused as refusal:
                    lost.append(refusal.code)

    stores = {name: open_store(name) for name in names}
    threads = [threading.Thread(target=work, args=item) for item in stores.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores.values():
        store.refresh()
    told = causes(stores["one"])
    assert sorted(told) == sorted(
        f"{name}-{number}{end}" for name in names for number in range(each) for end in ("", "-again")
    )
    assert set(lost) == {Code.Outrun}, "if they never met, the test shows nothing"
    assert all(list(store.entries()) == list(stores["one"].entries()) for store in stores.values())
    assert all(store.ledger.verify().ok for store in stores.values())
    assert head_of(empty)["spec"]["seq"] == len(told)


def test_a_home_that_is_outrun_rebuilds_on_what_the_winner_decided(open_store: OpenStore) -> None:
    one, two = Home(open_store("one")), Home(open_store("two"))
    one.handle(Apply(tuple(nodes("n", 2))), now=START)
    with pytest.raises(StoreRefused, match="Outrun"):
        two.handle(Apply((node("m0"),)), now=START)
    two.handle(Apply((node("m0"),)), now=START)
    assert sorted(two.state.topology.rows) == ["m0", "n0", "n1"]
    with pytest.raises(StoreRefused, match="Outrun"):  # the first was paused all the while, and wakes up now
        one.handle(Apply((node("m1"),)), now=START)
    one.handle(Apply((node("m1"),)), now=START)
    assert dump(one.state) == dump(rebuild(open_store("three"))[0])


# --- coming back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [3, 100])
def test_a_journal_that_is_lost_is_built_again(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(walk, "PAGE", page)
    store, loser, noise = open_store(), open_store("loser"), random.Random(7)
    for text in "abcdefghijklmnopqrstuvwxyz":  # more commits than are read one by one
        say(store, text, text.upper())
    with pytest.raises(StoreRefused):
        say(loser, "never")  # its object comes first in every list, and is no part of the chain
    say(store, base64.b64encode(noise.randbytes(2_000_000)).decode())
    again = open_store("another disk")
    assert list(again.entries()) == list(store.entries())
    assert again.ledger.verify().ok
    say(again, "on")
    assert causes(again)[-1] == "on"


def test_a_journal_that_is_behind_catches_up(open_store: OpenStore) -> None:
    one, two = open_store("one"), open_store("two")
    for text in "abc":
        say(one, text)
    assert causes(two) == []
    two.refresh()
    assert causes(two) == list("abc")


def test_a_journal_that_stopped_within_a_commit_goes_on_from_there(open_store: OpenStore) -> None:
    """Catching up is written in pieces; whoever is interrupted has a part of a batch."""
    store = open_store()
    say(store, "a", "b", "c", "d")
    say(store, "e")
    behind = open_store("behind")
    with Ledger.create(behind.ledger.path.with_name("part.db"), fleet="lab") as journal:
        with journal.write() as tx:
            for link in store.ledger.links(until=2):
                tx.take(link.body)
        partly = KubeStore(store.io, store.client, journal)
        partly.refresh()
        assert causes(partly) == list("abcde")
    with Ledger.create(behind.ledger.path.with_name("fork.db"), fleet="lab") as journal:
        with journal.write() as tx:
            tx.append(at=START, cause="another past", facts=())
        with pytest.raises(StoreRefused, match="Forked"):
            KubeStore(store.io, store.client, journal).refresh()


def test_who_dies_between_the_swap_and_the_journal_has_committed(
    open_store: OpenStore, client: Client, empty: ControlPlane
) -> None:
    class Died(BaseException):
        pass

    def die(point: str) -> None:
        if point == "before-commit" and armed:
            raise Died

    armed: list[bool] = []
    store = open_store()
    say(store, "a")
    path = store.ledger.path
    store.close()
    dying = KubeStore(store.io, client, Ledger.open(path, hook=die))
    armed.append(True)
    with pytest.raises(Died):
        say(dying, "b")
    assert head_of(empty)["spec"]["seq"] == 2
    armed.clear()
    assert causes(dying) == ["a"], "the journal has not got it yet"
    say(dying, "c")
    assert causes(dying) == ["a", "b", "c"]
    dying.close()
    assert causes(open_store()) == ["a", "b", "c"]


def test_images_stay_in_the_journal(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    home = Home(store)
    home.handle(Apply(tuple(nodes("n", 2))), now=START)
    with store.write() as tx:
        tx.save_snapshot(dump(home.state))
    store.close()
    image = open_store().snapshot()
    assert image is not None
    assert (image.seq, image.body) == (home.seq, dump(home.state))
    assert len(objects_of(empty)) == 1
