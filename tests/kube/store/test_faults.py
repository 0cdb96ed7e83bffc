"""Commits through an API server that goes wrong: an entry is there once or not at all, and the home knows which."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from tenure.kube import walk
from tenure.kube.client import Client
from tenure.kube.config import Access
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.resources import NAMESPACES
from tenure.kube.store import KubeStore
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy
from tenure.testing.kube.waiting import PATIENCE
from tests.kube.store.conftest import OpenStore
from tests.kube.store.test_commit import causes, head_of, objects_of, say

WRITES = [("POST", "/ledgerentries"), ("PUT", "/ledgerheads/head")]
PASSING = ["throttle", "error", "error-after", "reset-before", "reset-after"]


@pytest.fixture
def shaky(open_store: OpenStore, faulty: Client) -> KubeStore:
    """A store behind the proxy, with one entry."""
    store = open_store("shaky", through=faulty)
    say(store, "a")
    return store


@pytest.mark.parametrize("kind", PASSING)
@pytest.mark.parametrize(("method", "path"), WRITES, ids=["entry", "swap"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_fault_that_passes_is_not_even_noticed(
    shaky: KubeStore, proxy: FaultProxy, open_store: OpenStore, kind: str, method: str, path: str, times: int
) -> None:
    fault = proxy.fail(kind, method=method, path=path, times=times)
    say(shaky, "b", "c")
    assert fault.hits >= 1
    proxy.heal()
    say(shaky, "d")
    assert causes(shaky) == ["a", "b", "c", "d"] == causes(open_store("witness"))
    assert shaky.ledger.verify().ok


@pytest.mark.parametrize(("method", "path"), WRITES, ids=["entry", "swap"])
def test_an_answer_that_never_comes_is_looked_up(
    shaky: KubeStore, proxy: FaultProxy, open_store: OpenStore, method: str, path: str
) -> None:
    fault = proxy.fail("hang-after", method=method, path=path)
    say(shaky, "b")
    assert fault.hits == 1
    assert causes(shaky) == ["a", "b"] == causes(open_store("witness"))


def test_a_conflict_that_is_none_does_not_stop_a_commit(shaky: KubeStore, proxy: FaultProxy) -> None:
    """What a repeated request meets that had been applied the first time: a conflict with itself, or with nobody."""
    proxy.fail("conflict", method="PUT", path="/ledgerheads/head")
    say(shaky, "b")
    assert causes(shaky) == ["a", "b"]


@pytest.mark.parametrize("kind", ["error", "reset-before"])
def test_nothing_is_committed_while_entries_cannot_be_written(
    shaky: KubeStore, proxy: FaultProxy, empty: ControlPlane, kind: str
) -> None:
    proxy.fail(kind, method="POST", path="/ledgerentries", times=1000)
    with pytest.raises(StoreRefused) as refused:
        say(shaky, "b")
    assert (refused.value.code, refused.value.transient) == (Code.Unreachable, True)
    assert (causes(shaky), head_of(empty)["spec"]["seq"]) == (["a"], 1)
    proxy.heal()
    say(shaky, "c")
    assert causes(shaky) == ["a", "c"]


@pytest.mark.parametrize("kind", ["error", "error-after"])
def test_a_swap_of_which_nothing_can_be_learnt_is_learnt_later(
    shaky: KubeStore, proxy: FaultProxy, empty: ControlPlane, kind: str
) -> None:
    proxy.fail("error", method="GET", path="/ledgerheads/head", times=1000)
    proxy.fail(kind, method="PUT", path="/ledgerheads/head", times=1000)
    with pytest.raises(StoreRefused) as refused:
        say(shaky, "b")
    assert refused.value.code is Code.InDoubt
    assert causes(shaky) == ["a"]
    happened = kind == "error-after"
    assert head_of(empty)["spec"]["seq"] == (2 if happened else 1)
    proxy.heal()
    say(shaky, "c")
    assert causes(shaky) == (["a", "b", "c"] if happened else ["a", "c"])


def test_a_lost_answer_and_a_rival_who_goes_on_from_it(
    shaky: KubeStore, proxy: FaultProxy, open_store: OpenStore
) -> None:
    """The swap counts, though by the time that it is looked up the head names somebody else's entry."""
    rival = open_store("rival")
    proxy.fail("error", method="GET", path="/ledgerheads/head", times=1000)
    proxy.fail("reset-after", method="PUT", path="/ledgerheads/head", times=1000)
    with pytest.raises(StoreRefused):
        say(shaky, "b")
    rival.refresh()
    say(rival, "r")
    proxy.heal()
    say(shaky, "c")
    assert causes(shaky) == ["a", "b", "r", "c"]


def test_no_schedule_of_faults_loses_or_doubles_an_entry(
    shaky: KubeStore, proxy: FaultProxy, open_store: OpenStore, empty: ControlPlane
) -> None:
    """Two writers, a fault at every second write: what each was told, and what it was not, agrees with the chain."""
    rival, told, doubted = open_store("rival"), ["a"], []
    schedule = itertools.cycle(itertools.product(PASSING, WRITES))
    for number in range(40):
        kind, (method, path) = next(schedule)
        proxy.fail(kind, method=method, path=path, times=1 + number % 3, skip=number % 2)
        writer, text = (rival, f"r{number}") if number % 5 == 0 else (shaky, f"s{number}")
        try:
            say(writer, text)
            told.append(text)
        except StoreRefused as refusal:
            doubted.append((text, refusal.code))
    witness = open_store("witness")
    chain = causes(witness)
    assert [text for text in chain if text in told] == told
    assert len(chain) == len(set(chain))
    assert {text for text in chain if text not in told} <= {text for text, code in doubted if code is Code.InDoubt}
    assert any(code is Code.Outrun for _, code in doubted)
    assert witness.ledger.verify().ok
    assert head_of(empty)["spec"]["hash"] == witness.head.hash
    assert len(objects_of(empty)) >= len(chain)


@pytest.mark.parametrize("skip", [0, 12], ids=["names", "bodies"])
def test_a_long_way_back_is_walked_though_lists_expire(
    open_store: OpenStore, faulty: Client, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, skip: int
) -> None:
    monkeypatch.setattr(walk, "PAGE", 3)
    store = open_store()
    for number in range(30):
        say(store, str(number))
    fault = proxy.fail("gone", method="GET", path="continue=", times=2, skip=skip)
    assert causes(open_store("another disk", through=faulty)) == [str(number) for number in range(30)]
    assert fault.hits == 2


def test_a_commit_does_not_wait_for_other_writes(
    open_store: OpenStore, connect: Callable[..., Client], proxy: FaultProxy, empty: ControlPlane
) -> None:
    """As many calls as may be under way are, and hang; what everybody waits for passes them."""
    client = connect(Access(server=proxy.server), timeout=PATIENCE)
    store = open_store("shaky", through=client)
    proxy.fail("hold", method="GET", path="/api/v1/namespaces/default", times=1000)

    async def ask_all() -> None:
        await asyncio.gather(*(client.get(NAMESPACES, "default") for _ in range(100)))

    asking = store.io.start(ask_all())
    until(lambda: len(proxy.log) > 32)
    say(store, "a")
    assert not asking.done()
    assert causes(store) == ["a"]
    asking.cancel()
