"""An API server that shows another past than the journal remembers: nothing is admitted, and the words say why."""

import copy
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.server import operator
from tenure.kube.client import Client
from tenure.kube.loop import IO
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.store import KubeStore
from tenure.ledger import Code as LedgerCode
from tenure.ledger import LedgerRefused
from tenure.testing.kube import ControlPlane
from tests.kube.store.conftest import ENTRIES, HEAD, HEADS, OpenStore
from tests.kube.store.test_commit import causes, head_of, objects_of, say


def backup(plane: ControlPlane) -> list[dict[str, Any]]:
    """All ledger objects, as a backup of etcd would have them."""
    return [*objects_of(plane), head_of(plane)]


def restore(plane: ControlPlane, objects: list[dict[str, Any]]) -> None:
    for path in (ENTRIES, HEADS):
        plane.api.call("DELETE", path).must()
    for item in copy.deepcopy(objects):
        item["metadata"] = {"name": item["metadata"]["name"]}
        plane.api.call(
            "POST", HEADS if item["kind"] == "LedgerHead" else ENTRIES, {**KIND[item["kind"]], **item}
        ).must()


KIND = {kind: {"apiVersion": "rq.davidlangworthy.io/v1", "kind": kind} for kind in ("LedgerHead", "LedgerEntry")}


def old_copy(plane: ControlPlane, store: KubeStore) -> None:
    """A ledger of four entries, restored from a copy of when it had two."""
    say(store, "a", "b")
    kept = backup(plane)
    for item in kept:
        item.update(KIND["LedgerHead" if "fleet" in item["spec"] else "LedgerEntry"])
    say(store, "c")
    say(store, "d")
    restore(plane, kept)


def test_a_head_behind_the_journal_admits_nothing(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    old_copy(empty, store)
    for _ in range(2):
        with pytest.raises(StoreRefused) as refused:
            say(store, "e")
    assert refused.value.code in (Code.Outrun, Code.Behind)
    with pytest.raises(StoreRefused) as refused:
        say(store, "e")
    assert refused.value.code is Code.Behind
    assert "ends at entry 2, but this operator's journal knows entry 4" in refused.value.sentence
    assert "at least 2 committed entries are missing" in refused.value.sentence
    assert not refused.value.transient
    assert head_of(empty)["spec"]["seq"] == 2
    assert causes(store) == list("abcd"), "what the journal knows can still be read"


def test_an_operator_that_starts_on_an_old_copy_refuses_to(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    old_copy(empty, store)
    store.close()
    with pytest.raises(StoreRefused, match="Behind"):
        open_store()


def test_an_operator_does_not_start_on_a_journal_whose_tables_differ_from_its_entries(
    io: IO, client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    with KubeStore.open(io, client, path, fleet="lab") as store:
        say(store, "a", "b")
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("UPDATE notes SET message = 'another' WHERE seq = 1").rowcount
    with (
        pytest.raises(LedgerRefused, match=r"Damaged: .* of notes is not as it should be"),
        operator._ledger(io, client, tmp_path, anchor=None, archive=None),
    ):
        pass


def test_the_anchor_remembers_when_the_journal_is_lost(
    io: IO, client: Client, tmp_path: Path, empty: ControlPlane
) -> None:
    path, anchor = tmp_path / "journal.db", tmp_path / "elsewhere.anchor"
    with KubeStore.open(io, client, path, fleet="lab", anchor=anchor) as store:
        old_copy(empty, store)
    path.unlink()
    with pytest.raises(StoreRefused) as refused:
        KubeStore.open(io, client, path, fleet="lab", anchor=anchor)
    assert refused.value.code is Code.Behind
    assert f"the anchor {anchor} knows entry 4" in refused.value.sentence


def test_a_lost_journal_is_built_again_up_to_its_anchor(
    io: IO, client: Client, tmp_path: Path, empty: ControlPlane
) -> None:
    path, anchor = tmp_path / "journal.db", tmp_path / "elsewhere.anchor"
    with KubeStore.open(io, client, path, fleet="lab", anchor=anchor) as store:
        say(store, "a")
        say(store, "b")
    path.unlink()
    with KubeStore.open(io, client, path, fleet="lab", anchor=anchor) as again:
        assert causes(again) == ["a", "b"]
        say(again, "c")
    assert head_of(empty)["spec"]["seq"] == 3
    assert not list(tmp_path.glob("*rebuilding*"))


def test_an_anchor_that_saw_another_chain_is_noticed(
    io: IO, client: Client, tmp_path: Path, empty: ControlPlane, open_store: OpenStore
) -> None:
    path, anchor = tmp_path / "journal.db", tmp_path / "elsewhere.anchor"
    with KubeStore.open(io, client, path, fleet="lab", anchor=anchor) as store:
        old_copy(empty, store)
    rival = open_store("rival")  # knows only the old copy, and goes on from it
    for text in "xyz":
        say(rival, text)
    path.unlink()
    with pytest.raises(LedgerRefused) as refused:
        KubeStore.open(io, client, path, fleet="lab", anchor=anchor)
    assert refused.value.code is LedgerCode.AnchorMismatch


def test_a_chain_that_went_on_from_an_old_copy_is_a_fork(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    old_copy(empty, store)
    rival = open_store("rival")
    say(rival, "x")
    say(rival, "y")
    with pytest.raises(StoreRefused) as same_length:
        store.refresh()
    assert same_length.value.code is Code.Forked
    say(rival, "z")
    with pytest.raises(StoreRefused) as longer:
        store.refresh()
    assert longer.value.code is Code.Forked
    assert causes(store) == list("abcd")


def test_a_head_that_was_deleted_is_not_made_again(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    say(store, "a")
    empty.api.call("DELETE", HEAD).must()
    with pytest.raises(StoreRefused, match="NoHead"):
        say(store, "b")
    store.close()
    with pytest.raises(StoreRefused, match=r"NoHead.*knows entry 1"):
        open_store()
    assert empty.api.get(HEAD).status == 404


def test_a_journal_of_another_fleet_is_refused(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    store.close()
    empty.api.call("DELETE", HEAD).must()
    head = {**KIND["LedgerHead"], "metadata": {"name": "head"}}
    empty.api.call("POST", HEADS, {**head, "spec": {"fleet": "other", "seq": 0, "hash": "0" * 64, "at": 0}}).must()
    with pytest.raises(StoreRefused, match="OtherFleet"):
        open_store()


def test_an_entry_that_is_missing_is_named(open_store: OpenStore, empty: ControlPlane) -> None:
    store = open_store()
    for text in "abc":
        say(store, text)
    name = objects_of(empty)[1]["metadata"]["name"]
    empty.api.delete(f"{ENTRIES}/{name}").must()
    with pytest.raises(StoreRefused) as refused:
        open_store("another disk")
    assert refused.value.code is Code.EntryMissing
    assert name in refused.value.sentence
    say(store, "d")  # whoever has it all goes on
    assert causes(store) == list("abcd")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"body": "{}"}, "is no entry"),
        ({"prev": "1" * 64}, "does not follow"),
        ({"first": 1}, "does not follow"),
        ({"encoding": "gzip"}, "cannot be unpacked"),
        ({"hash": "1" * 64}, "another hash"),
    ],
    ids=["body", "prev", "first", "encoding", "hash"],
)
def test_an_entry_that_was_forged_is_not_believed(
    open_store: OpenStore, empty: ControlPlane, change: dict[str, Any], why: str
) -> None:
    store = open_store()
    for text in "abc":
        say(store, text)
    forged = objects_of(empty)[1]
    name = forged["metadata"]["name"]
    empty.api.delete(f"{ENTRIES}/{name}").must()
    spec = {**forged["spec"], **change}
    empty.api.call("POST", ENTRIES, {**KIND["LedgerEntry"], "metadata": {"name": name}, "spec": spec}).must()
    with pytest.raises(StoreRefused) as refused:
        open_store("another disk")
    assert refused.value.code is Code.EntryDamaged
    assert why in refused.value.sentence
