"""One suite for every store: what a home may rely on, whatever keeps the entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.api.policy import Policy
from tenure.engine import Apply, Delete, SetPolicy, dump
from tenure.facts import GENESIS, Decided, Fact, Noted, Resolved, encode_entry, entry_hash
from tenure.ledger import Ledger
from tenure.shell.home import Home, rebuild
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import MemoryStore, Store
from tenure.shell.view import snapshot
from tenure.testing import START, budget, envelope, node, nodes, run
from tenure.units import HOUR, MINUTE
from tests.promises import draw_for, froze, put, released, reservation, resolved

MakeStore = Callable[[], Store]


def note(text: str) -> Noted:
    return Noted(kind="Test", object="Run/lab/x", reason="Test", message=text)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore("lab")
    return LedgerStore(Ledger.create(tmp_path / "fleet.db", fleet="lab"))


def append(store: Store, *texts: str, at: int = START) -> None:
    with store.write() as tx:
        for text in texts:
            tx.append(at=at, cause=f"say {text}", facts=(note(text),))


# --- entries ------------------------------------------------------------------------------------------------------


def test_a_new_store_is_empty_and_has_a_name(store: Store) -> None:
    assert (store.fleet, store.head.seq, store.head.hash) == ("lab", 0, GENESIS)
    assert list(store.entries()) == []
    assert store.snapshot() is None
    assert list(store.lease_history()) == []


def test_entries_are_numbered_from_one_and_chained(store: Store) -> None:
    append(store, "a", "b")
    append(store, "c", at=START + 1)
    entries = list(store.entries())
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert [entry.prev for entry in entries] == [GENESIS, *(entry_hash(encode_entry(one)) for one in entries[:2])]
    assert (store.head.seq, store.head.at) == (3, START + 1)
    assert store.head.hash == entry_hash(encode_entry(entries[-1]))


def test_entries_come_back_as_they_were_written(store: Store) -> None:
    with store.write() as tx:
        written = tx.append(at=START, cause="apply", facts=(note("é\u2028\x00"), note("b")))
    assert list(store.entries()) == [written]


def test_an_entry_says_if_it_was_only_recorded(store: Store) -> None:
    with store.write() as tx:
        tx.append(at=START, cause="apply", facts=(note("a"),), decided=False)
        tx.append(at=START, cause="tick", facts=())
    assert [entry.decided for entry in store.entries()] == [False, True]


def test_entries_may_be_read_in_part(store: Store) -> None:
    append(store, *"abcde")
    assert [entry.seq for entry in store.entries(after=2)] == [3, 4, 5]
    assert [entry.seq for entry in store.entries(after=1, until=3)] == [2, 3]
    assert list(store.entries(after=5)) == []


def test_a_transaction_sees_what_it_wrote_and_what_was_there(store: Store) -> None:
    append(store, "a")
    with store.write() as tx:
        assert [entry.seq for entry in tx.since(0)] == [1]
        tx.append(at=START, cause="b", facts=(note("b"),))
        assert tx.head.seq == 2
        assert [entry.seq for entry in tx.since(1)] == [2]


def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    append(store, "a")
    before = store.head.hash
    with pytest.raises(RuntimeError, match="no"):
        append_and_fail(store)
    assert (store.head.seq, store.head.hash) == (1, before)
    assert [entry.cause for entry in store.entries()] == ["say a"]


def append_and_fail(store: Store, *facts: Fact) -> None:
    with store.write() as tx:
        tx.append(at=START, cause="b", facts=facts or (note("b"),))
        raise RuntimeError("no")


# --- a home on it -------------------------------------------------------------------------------------------------


def home_on(store: Store) -> Home:
    return Home(store, SimulatedExecutor())


def busy_home(store: Store) -> Home:
    home = home_on(store)
    home.handle(SetPolicy(Policy()), now=START)
    home.handle(Apply((*nodes("n", 2), budget("a", envelope(hours=100)))), now=START)
    home.handle(Apply((run("x", 8, owner="org:a"), run("y", 8, owner="org:a", lasts="1h"))), now=START)
    home.drive(now=START)
    return home


def test_a_home_that_comes_back_is_the_one_that_left(store: Store) -> None:
    home = busy_home(store)
    again = home_on(store)
    assert dump(again.state) == dump(home.state)
    again.drive(now=START)
    assert store.head.seq == home.seq, "a settled world writes nothing when it is opened again"
    assert again.next_wake() == home.next_wake()


def test_two_homes_of_one_store_see_each_others_decisions(store: Store) -> None:
    first, second = busy_home(store), home_on(store)
    second.handle(Delete(kind="Run", namespace="lab", name="x"), now=START + MINUTE)
    second.drive(now=START + MINUTE)
    first.drive(now=START + MINUTE)
    assert sorted(first.state.runs) == sorted(second.state.runs) == ["lab/y"]
    assert dump(first.state) == dump(second.state)


def test_an_event_that_changes_nothing_writes_nothing(store: Store) -> None:
    home = busy_home(store)
    before = store.head.seq
    home.handle(Apply((budget("a", envelope(hours=100)),)), now=START + HOUR // 2)
    home.drive(now=START + HOUR // 2)
    assert store.head.seq == before


def test_events_handled_together_are_committed_together(store: Store) -> None:
    home = home_on(store)
    with pytest.raises(AttributeError):
        home.handle(Apply((node("n0"),)), Apply(("no object",)), now=START)  # type: ignore[arg-type]  # on purpose
    assert store.head.seq == 0
    home.handle(Apply((node("n1"),)), now=START)
    assert sorted(home.state.topology.rows) == ["n1"], "the state that was ahead of the store is gone"


def test_attempts_are_remembered_after_the_run_is_gone(store: Store) -> None:
    home = busy_home(store)
    assert (store.attempts("lab", "x"), store.attempts("lab", "nobody")) == (1, 0)
    home.handle(Delete(kind="Run", namespace="lab", name="x"), now=START)
    home.drive(now=START)
    assert store.attempts("lab", "x") == 1
    home.handle(Apply((run("x", 8, owner="org:a"),)), now=START)
    home.drive(now=START)
    assert store.attempts("lab", "x") == 2


def test_the_history_of_leases_is_kept_with_ends_and_reasons(store: Store) -> None:
    home = busy_home(store)
    home.drive(now=START + HOUR)
    told = {lease.run: (lease.start, end, reason) for lease, end, reason in store.lease_history()}
    assert told == {"x": (START, None, None), "y": (START, START + HOUR, "Completed")}


def test_a_rebuilt_state_is_the_same_from_any_image(store: Store) -> None:
    home = busy_home(store)
    with store.write() as tx:
        tx.save_snapshot(dump(home.state))
    home.drive(now=START + HOUR)
    state, seq = rebuild(store)
    assert seq == store.head.seq
    assert dump(state) == dump(home.state)


def test_who_only_records_leaves_the_decision_to_who_drives(store: Store) -> None:
    home = busy_home(store)
    Home(store).handle(Apply((run("z", 99, owner="org:a"), node("n9", 1))), now=START, decide=False)
    assert [entry.decided for entry in store.entries()][-2:] == [True, False]
    late = Home(store)
    for one in (home, late):
        one.drive(now=START)
    last = list(store.entries())[-1]
    assert last.decided
    assert [fact.run for fact in last.facts if isinstance(fact, Decided)] == ["z"]
    assert dump(home.state) == dump(late.state) == dump(rebuild(store)[0])


def test_who_watches_hears_of_every_entry_once_also_after_a_decision_that_was_lost(store: Store) -> None:
    heard: list[int] = []
    home = Home(store, watch=lambda entry: heard.append(entry.seq))
    home.handle(SetPolicy(Policy()), now=START)
    with pytest.raises(AttributeError):  # the first event is decided on, the second cannot be: neither counts
        home.handle(Apply(nodes("n", 2)), Apply((object(),)), now=START)  # type: ignore[arg-type]
    Home(store).handle(Apply((budget("a", envelope(hours=100)),)), now=START)
    home.handle(Apply((run("x", 8, owner="org:a"),)), now=START)
    assert heard == [entry.seq for entry in store.entries()]
    assert heard == [1, 2, 3]


def test_one_look_in_vain_is_written_down_and_no_second(store: Store) -> None:
    home = busy_home(store)
    home.handle(Apply((run("z", 99, owner="org:a"),)), now=START)
    home.handle(Apply((node("n9", 1),)), now=START, decide=False)
    before = store.head.seq
    for one in (Home(store), Home(store), home):
        one.drive(now=START)
    assert [(entry.facts, entry.decided) for entry in store.entries(after=before)] == [((), True)]


def test_time_in_the_store_never_runs_back(store: Store) -> None:
    home = busy_home(store)
    home.drive(now=START + HOUR)
    home.handle(Apply((run("z", 8, owner="org:a"),)), now=START)
    times = [entry.at for entry in store.entries()]
    assert times == sorted(times)


# --- promises -----------------------------------------------------------------------------------------------------


def tell(store: Store, *entries: list[Fact]) -> None:
    with store.write() as tx:
        for facts in entries:
            tx.append(at=START, cause="test", facts=facts)


def test_every_reservation_stays_with_its_last_record(store: Store) -> None:
    assert list(store.reservation_history()) == list(store.resolution_history()) == []
    kept, waits = reservation(), reservation(name="eval-r1", run="eval")
    tell(store, [put(kept)], [put(waits)], [put(released(kept, START))])
    assert sorted(store.reservation_history(), key=lambda row: row[0].name) == [
        (waits, None),
        (released(kept, START), None),
    ]


def test_what_the_resolver_did_stays_with_its_reservation_and_in_order(store: Store) -> None:
    one, other = reservation(), reservation(name="eval-r1", run="eval")
    frozen, result = draw_for(one)
    done = resolved(frozen, result)
    shortage = Resolved(trigger="Shortage", subject="Budget/rai/west", activation=1)
    tell(store, [put(one), put(other)], [froze(frozen)])
    assert {row[0].name: row[1] for row in store.reservation_history()} == {
        one.name: froze(frozen),
        other.name: None,
    }
    tell(store, [done, shortage], [put(released(one, START))])
    assert {row[0].name: row[1] for row in store.reservation_history()} == {one.name: done, other.name: None}
    assert list(store.resolution_history()) == [froze(frozen), done, shortage]


def test_a_name_that_came_back_is_another_reservation(store: Store) -> None:
    old, new = reservation(state="Canceled"), reservation(uid="uid-of-the-second")
    frozen, _ = draw_for(new)
    tell(store, [put(old)], [put(new)], [froze(frozen)])
    assert list(store.reservation_history()) == [(old, None), (new, froze(frozen))]


def test_a_promise_that_was_not_committed_was_never_made(store: Store) -> None:
    one = reservation()
    frozen, _ = draw_for(one)
    tell(store, [put(one)])
    with pytest.raises(RuntimeError, match="no"):
        append_and_fail(store, froze(frozen), put(released(one, START)))
    assert list(store.reservation_history()) == [(one, None)]
    assert list(store.resolution_history()) == []


def test_a_snapshot_shows_live_and_past_reservations_as_objects(store: Store) -> None:
    busy_home(store)
    waits = reservation(START, START + HOUR, namespace="lab", run="y")
    past = released(reservation(START, START, namespace="lab", run="x", name="x-r1"), START)
    frozen, result = draw_for(past)
    tell(store, [put(waits), put(past), froze(frozen)], [resolved(frozen, result)])
    shown = snapshot(home_on(store), now=START + MINUTE)["reservations"]
    assert [(one["metadata"]["name"], one["status"]["state"]) for one in shown] == [
        ("train-r1", "Pending"),
        ("x-r1", "Released"),
    ]
    assert shown[0]["status"]["countdownSeconds"] == 59 * 60
    assert shown[1]["status"]["resolution"]["result"]["order"] == list(result.order)


def test_a_store_that_keeps_nothing_does_not_pretend() -> None:
    store = MemoryStore("lab", keep=False)
    tell(store, [put(reservation())])
    for question in (store.reservation_history, store.resolution_history, store.lease_history):
        with pytest.raises(AssertionError, match="keep no entries"):
            list(question())
