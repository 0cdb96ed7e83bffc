"""SPEC 1, rebuildable: an engine that comes back from what is stored decides, and explains, as if it had never left."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tenure.api.policy import Policy
from tenure.engine import Apply, Delete, SetPolicy, State, Tick, dump, load, next_wake, step
from tenure.facts import Decided
from tenure.shell.home import fold_entry
from tenure.testing import FLAVOR, Fleet, at, budget, elastic, envelope, namespace, node, nodes, run
from tenure.units import HOUR, MINUTE


def from_entries(fleet: Fleet) -> State:
    state = State(fleet.state.fleet)
    for entry in fleet.entries:
        fold_entry(state, entry)
    return state


def from_image(fleet: Fleet) -> State:
    return load(dump(fleet.state))


def from_image_and_entries(fleet: Fleet) -> State:
    """From an image of the state as it was some entries ago."""
    early = State(fleet.state.fleet)
    for entry in fleet.entries[:-2]:
        fold_entry(early, entry)
    state = load(dump(early))
    for entry in fleet.entries[-2:]:
        fold_entry(state, entry)
    return state


anyhow = pytest.mark.parametrize("rebuilt", [from_entries, from_image, from_image_and_entries])
Rebuilt = Callable[[Fleet], State]


def stale() -> Fleet:
    """A run waits for machines, behind the only promise there may be, and in the meantime another has taken its money:
    its reason is out of date."""
    fleet = Fleet(node("n0"), budget("a", envelope(gpus=4)), budget("b"), policy=Policy(promise_depth=1))
    fleet.start(run("theirs", 6, owner="org:b"))
    fleet.apply(run("first", 8, owner="org:b"))
    fleet.apply(run("waits", 4, owner="org:a"))
    fleet.start(run("small", 2, owner="org:a", lasts="10m"))
    return fleet


def test_the_reason_of_this_world_is_out_of_date() -> None:
    """Else the tests below would show nothing. (Who holds a promise is told no reason anew.)"""
    fleet = stale()
    assert "lab/waits" not in fleet.state.reservations
    again = from_image(fleet)
    again.mark_all()
    told = [fact.verdict.headline for fact in step(again, Tick(), now=fleet.now).facts if isinstance(fact, Decided)]
    assert fleet.state.runs["lab/waits"].life.reason == "NoCapacity"
    assert [reason.code for reason in told if reason] == ["ConcurrencyCapExceeded"]


@anyhow
def test_a_reason_that_went_out_of_date_is_not_told_anew_by_who_comes_back(rebuilt: Rebuilt) -> None:
    fleet = stale()
    twin = rebuilt(fleet)
    assert not twin.agenda.pending
    for event in (Tick(), Apply((run("other", 1, owner="org:b"),)), Delete("Run", "other", "lab")):
        assert step(twin, event, now=fleet.now) == fleet.handle(event)
    assert dump(twin) == dump(fleet.state)


@anyhow
def test_what_was_only_recorded_is_decided_alike_by_who_comes_back(rebuilt: Rebuilt) -> None:
    fleet = stale()
    fleet.handle(Apply((run("new", 8, owner="org:a"),)), decide=False)
    fleet.handle(Apply((node("n1", 4), budget("c"))), decide=False)
    twin = rebuilt(fleet)
    assert dump(twin) == dump(fleet.state)
    outcome = fleet.handle(Tick())
    assert outcome.facts
    assert step(twin, Tick(), now=fleet.now) == outcome
    assert dump(twin) == dump(fleet.state)


@anyhow
def test_what_was_looked_at_in_vain_is_not_looked_at_again(rebuilt: Rebuilt) -> None:
    """Nothing came of what was recorded: an entry without facts says that somebody looked, and no second one does."""
    fleet = stale()
    fleet.delete("Run", "lab/small")
    fleet.leave("lab/small")
    fleet.handle(Apply((budget("z"),)), decide=False)
    before = len(fleet.entries)
    for _ in range(2):
        fleet.handle(Tick())
    assert [(entry.facts, entry.decided) for entry in fleet.entries[before:]] == [((), True)]
    event = Apply((run("small", 2, owner="org:a", lasts="10m"),), {"lab/small": 1})
    twin = rebuilt(fleet)
    assert step(twin, event, now=fleet.now) == fleet.handle(event)
    assert not step(rebuilt(fleet), Tick(), now=fleet.now).facts


@anyhow
def test_a_window_that_opens_for_nobody_makes_nobody_explain_twice(rebuilt: Rebuilt) -> None:
    """Time alone made waiting runs be looked at, and gave no fact. Whoever comes back must not look again: by then too
    little is left of the envelope's window for the run, and nobody else was told so."""
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(gpus=8, end="5h")), budget("z", envelope(start="1h")))
    fleet.start(run("mine", 8, owner="org:a"))
    fleet.apply(run("waits", 4, owner="org:a", lasts="4h"))
    before = len(fleet.entries)
    fleet.later("2h")
    assert [entry.facts for entry in fleet.entries[before:]] == [()]
    twin = rebuilt(fleet)
    assert step(twin, Tick(), now=fleet.now) == fleet.handle(Tick())
    twin.mark_all()
    assert step(twin, Tick(), now=fleet.now).facts, "there would have been something to tell"


@anyhow
def test_the_same_instants_are_waited_for(rebuilt: Rebuilt) -> None:
    fleet = Fleet(*nodes("n", 2), budget("a", envelope(hours=100, end="9h")))
    fleet.start(run("x", 8, owner="org:a", lasts="5h", elastic=elastic(8, 32, step=8), group=8))
    while (wake := next_wake(fleet.state)) is not None and wake < at("4h"):
        twin = rebuilt(fleet)
        step(twin, Tick(), now=fleet.now)
        assert next_wake(twin) == wake
        fleet.until(wake)
    assert fleet.now >= at("3h")


@anyhow
def test_nothing_that_fell_due_while_nobody_drove_is_missed(rebuilt: Rebuilt) -> None:
    """Somebody records, with a later clock, past instants that nobody was there for."""
    fleet = Fleet(node("n0"), budget("a", envelope(start="1h", hours=64)), budget("b"))
    fleet.start(run("theirs", 4, owner="org:b", restarts=1))
    fleet.apply(run("waits", 4, owner="org:a"))
    fleet.fail("lab/theirs")
    fleet.leave("lab/theirs")
    fleet.now += 3 * HOUR
    fleet.handle(Apply((budget("c"),)), decide=False)
    twin = rebuilt(fleet)
    fleet.now += MINUTE
    outcome = fleet.handle(Tick())
    assert {lease.run for lease in fleet.leases()} == {"theirs", "waits"}
    assert step(twin, Tick(), now=fleet.now) == outcome


def test_an_image_of_an_earlier_release_is_looked_at_from_end_to_end() -> None:
    fleet = stale()
    fields = msgspec.json.decode(dump(fleet.state))
    state = load(msgspec.json.encode({key: fields[key] for key in fields if key not in ("settled", "marks")}))
    assert state.agenda.pending
    outcome = step(state, Tick(), now=fleet.now)
    assert outcome.looked
    assert [type(fact) for fact in outcome.facts][:1] == [Decided]


@anyhow
def test_a_run_that_wants_more_is_tried_again_at_the_same_instants(rebuilt: Rebuilt) -> None:
    fleet = Fleet(node("n0"), budget("a"))
    fleet.start(run("x", 8, owner="org:a", lasts="5h", elastic=elastic(8, 16, step=8), group=8))
    for minute in range(1, 5):
        fleet.until(at(f"{minute}m"))
        fleet.later("30s")
        fleet.apply(namespace(f"n{minute}"))
        assert next_wake(rebuilt(fleet)) == next_wake(fleet.state) == at(f"{minute + 1}m")


@anyhow
def test_other_label_keys_do_not_make_the_engine_forget_how_long_work_takes(rebuilt: Rebuilt) -> None:
    """A declared duration is one of work; binding took ten minutes here. (Found by a soak: only who came back knew.)"""
    fleet = Fleet(node("n0"), budget("a"), policy=Policy(patience="1000h"))
    fleet.apply(run("x", 8, owner="org:a", lasts="1h"))
    fleet.later("10m")
    fleet.bind("lab/x")
    fleet.handle(SetPolicy(Policy(patience="1000h", topology_labels={"rack": "shelf"})))
    twin, event = rebuilt(fleet), Apply((run("next", 8, owner="org:a", lasts="1h"),))
    twin.head = fleet.state.head
    assert step(twin, event, now=fleet.now) == fleet.handle(event)
    assert fleet.state.reservations["lab/next"].plan.start == at("70m")


@anyhow
def test_the_line_is_the_same_whatever_the_runs_are_called(rebuilt: Rebuilt) -> None:
    """An image holds runs by name; they are lined up by age."""
    fleet = Fleet(node("n0"), budget("a"), budget("b"), policy=Policy(promise_depth=1))
    fleet.start(run("runs", 8, owner="org:a"))
    for name in ("m", "z", "c", "y", "a"):
        fleet.later("1m")
        fleet.apply(run(name, 8, owner=f"org:{'a' if name < 'n' else 'b'}", lasts="1h"))
    again = rebuilt(fleet)
    assert again.queue.waiting("H100-80GB") == fleet.state.queue.waiting("H100-80GB")
    assert again.queue.lined("H100-80GB") == fleet.state.queue.lined("H100-80GB")
    assert {kind.key: kind.line.ages() for kind in again.queue.classes("H100-80GB")} == {
        kind.key: kind.line.ages() for kind in fleet.state.queue.classes("H100-80GB")}  # fmt: skip


@anyhow
def test_the_bound_of_an_earlier_attempt_is_no_end_of_the_next(rebuilt: Rebuilt) -> None:
    """It was let past a window, and queued again when its node failed; nobody waits for that window any more when it
    starts anew. Who comes next is promised nothing of what it holds (found as crowd-89 of test_queue_machine)."""
    window = budget("w", envelope("main", 64, start="25h"))
    fleet = Fleet(*nodes("n", 2), budget("a"), window, policy=Policy(patience="24h"))
    fleet.apply(run("wide", 16, owner="org:w", lasts="1h"))
    fleet.start(run("open", 8, owner="org:a", checkpoint="8h"))
    assert fleet.state.runs["lab/open"].life.bound == at("25h")
    fleet.fence("n0")
    fleet.fence("n1")
    assert fleet.phase("lab/open") == "Pending"
    fleet.delete("Run", "lab/wide")
    fleet.apply(node("n0"))
    fleet.bind("lab/open")
    assert (fleet.phase("lab/open"), fleet.state.runs["lab/open"].life.bound) == ("Running", None)
    fleet.later("2h")
    twin = rebuilt(fleet)
    waits = Apply((run("next", 8, owner="org:w", lasts="1h"), budget("w")))
    assert step(twin, waits, now=fleet.now) == fleet.handle(waits)
    assert fleet.state.reservations["lab/next"].confidence == "conservative", "nothing says that it will end"


@anyhow
def test_who_says_that_money_is_short_says_it_for_the_owner_that_its_namespace_is_bound_to_now(
    rebuilt: Rebuilt,
) -> None:
    """(Found as crowd-89 of test_queue_machine.)"""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 8)))
    fleet.start(run("mine", 8, owner="org:a"))
    fleet.apply(run("poor", 4, owner="org:a"))
    fleet.apply(namespace("lab", owner="org"))
    twin = rebuilt(fleet)
    assert {owner: keys for owner, keys in twin.unpaid[FLAVOR].items() if keys} == {"org": {"lab/poor"}}
    poorer = Apply((run("poorer", 4, owner="org:a"),))
    assert step(twin, poorer, now=fleet.now) == fleet.handle(poorer)
    assert "lab/poorer" not in fleet.state.reservations, "one says it for all of its owner"
