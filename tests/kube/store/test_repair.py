"""What an API server has lost is put back from a journal, byte for byte, or not at all."""

import pytest

from tenure.kube import repair
from tenure.kube.client import Client
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.repair import Restored, restore
from tenure.testing.kube import ControlPlane
from tests.cli.support import call
from tests.kube.store.conftest import ENTRIES, HEADS, OpenStore
from tests.kube.store.test_commit import causes, head_of, say
from tests.kube.store.test_trust import old_copy


def test_entries_that_were_lost_are_written_again(
    open_store: OpenStore, client: Client, empty: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "BATCH", 1)
    store = open_store()
    old_copy(empty, store)
    assert store.io.run(restore(client, store.ledger)) == Restored(2, 4)
    say(store, "e")
    assert causes(store) == list("abcde") == causes(open_store("another disk"))
    assert store.io.run(restore(client, store.ledger)) == Restored(5, 5)


def test_a_ledger_that_is_gone_altogether_is_written_again(
    open_store: OpenStore, client: Client, empty: ControlPlane
) -> None:
    store = open_store()
    for text in "abc":
        say(store, text)
    for path in (ENTRIES, HEADS):
        empty.api.call("DELETE", path).must()
    assert store.io.run(restore(client, store.ledger)) == Restored(0, 3)
    assert list(open_store("another disk").entries()) == list(store.entries())


def test_two_histories_are_not_mixed(open_store: OpenStore, client: Client, empty: ControlPlane) -> None:
    store = open_store()
    old_copy(empty, store)
    rival = open_store("rival")
    say(rival, "x")
    before = head_of(empty)["spec"]
    with pytest.raises(StoreRefused) as refused:
        store.io.run(restore(client, store.ledger))
    assert refused.value.code is Code.Forked
    assert head_of(empty)["spec"] == before


def test_a_journal_that_is_behind_changes_nothing(open_store: OpenStore, client: Client) -> None:
    old = open_store("old")
    say(open_store("new"), "a", "b")
    assert old.head.seq == 0
    assert old.io.run(restore(client, old.ledger)) == Restored(2, 2)


def test_the_command_acts_in_the_operators_name(
    open_store: OpenStore, empty: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    old_copy(empty, store)
    journal = str(store.ledger.path)
    store.close()
    monkeypatch.setenv("KUBECONFIG", str(empty.admin))
    refused = call("tenure", "ledger", "restore", journal, "--namespace", "nowhere")
    assert refused.code == 6
    assert 'User "system:serviceaccount:nowhere:tenure-operator" cannot' in refused.err
    empty.ensure(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "restoring"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenure-operator", "namespace": "tenure-system"}],
        }
    )
    done = call("tenure", "ledger", "restore", journal)
    assert (done.code, done.err) == (0, "")
    assert done.out == "restored entries 3 to 4; the LedgerHead names entry 4 again\n"
    again = call("tenure", "ledger", "restore", journal)
    assert again.out == f"nothing was lost that {journal} knows: the LedgerHead names entry 4\n"


def test_the_command_says_when_there_is_no_cluster(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = str(open_store().ledger.path)
    monkeypatch.setenv("KUBECONFIG", "nowhere.yaml")
    done = call("tenure", "ledger", "restore", journal)
    assert (done.code, "no kubeconfig at nowhere.yaml" in done.err) == (5, True)
