"""An operator asks for room: what gives way, what is refused and why, and that a dry run says what is then done."""

from __future__ import annotations

import pytest

from tenure.api.policy import Policy
from tenure.draw import Token
from tenure.engine import Apply, Outcome, Publish, Resolve, dump, load, step
from tenure.engine.asked import Room, look
from tenure.engine.lottery import verify
from tenure.engine.reasons import sentence
from tenure.facts import Froze, Reason, Reservation, Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import Fleet, at, budget, elastic, envelope, nodes, run

QUICK = Policy(activation_lead="10s")


def looked(fleet: Fleet, key: str) -> Room | Reason:
    """What would be done for a run; to ask changes nothing."""
    before = dump(fleet.state)
    found = look(fleet.state, fleet.state.runs[key], now=fleet.now)
    assert dump(fleet.state) == before
    return found


def declined(fleet: Fleet, key: str) -> Reason:
    """Why nothing is done; nobody is cut, and the dry run says the same."""
    outcome = fleet.handle(Resolve(key))
    assert outcome.declined is not None
    assert not [fact for fact in outcome.facts if isinstance(fact, Resolved | Froze)]
    if key in fleet.state.runs:
        assert looked(fleet, key) == outcome.declined
    assert "?" not in sentence(outcome.declined), "every number of its sentence is known"
    return outcome.declined


def done(fleet: Fleet, key: str) -> Outcome:
    outcome = fleet.handle(Resolve(key))
    assert outcome.declined is None
    return outcome


def records(fleet: Fleet) -> list[Resolved]:
    return [fact for fact in fleet.facts if isinstance(fact, Resolved)]


def promised(fleet: Fleet, key: str) -> Reservation:
    return fleet.state.reservations[key]


# --- what gives way -------------------------------------------------------------------------------------------------


def test_elastic_work_shrinks_at_once_and_the_run_starts_when_it_has_left() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a"))
    fleet.start(run("wide", 16, owner="org:a", elastic=elastic(8, 16, 8), lasts="6h"))
    fleet.apply(run("z", 8, owner="org:a", lasts="1h"))
    assert promised(fleet, "lab/z").confidence == "projected"
    found = looked(fleet, "lab/z")
    assert isinstance(found, Room)
    assert ([(cut.kind, cut.run, cut.gpus) for cut in found.cuts], found.tokens) == ([("Shrink", "lab/wide", 8)], ())
    assert (found.deficit, found.freed, found.plan.width) == (8, 8, 8)
    done(fleet, "lab/z")
    [record] = records(fleet)
    assert (record.trigger, record.subject, record.cuts) == ("Operator", found.subject, found.cuts)
    assert promised(fleet, "lab/z").state == "Active"
    fleet.leave("lab/wide")
    fleet.bind("lab/z")
    assert (fleet.phase("lab/z"), fleet.phase("lab/wide")) == ("Running", "Running")
    assert set(fleet.where("lab/z")) == {share.node for share in found.plan.shares}
    fleet.audit()


def lottery(*, secret: str | None = "s") -> Fleet:
    """Two fixed runs of two owners hold everything; lab/z waits for half of it."""
    fleet = Fleet(*nodes("a", 2), budget("a"), budget("b"), secret=secret)
    fleet.start(run("x", 8, owner="org:a"), run("y", 8, owner="org:b"))
    fleet.later("20m")
    fleet.apply(run("z", 8, owner="org:a", lasts="1h"))
    return fleet


def test_a_draw_is_frozen_first_with_the_tokens_and_odds_of_the_dry_run() -> None:
    fleet = lottery()
    found = looked(fleet, "lab/z")
    assert isinstance(found, Room)
    assert found.tokens == (Token(id="lab/x", owner="org:a", gpus=8), Token(id="lab/y", owner="org:b", gpus=8))
    assert found.odds == {"lab/x": "0.5000", "lab/y": "0.5000"}
    assert (found.cuts, len(found.victims), found.freed) == ((), 1, 8)
    outcome = done(fleet, "lab/z")
    [froze] = [fact for fact in outcome.facts if isinstance(fact, Froze)]
    assert (froze.trigger, froze.intent.tokens, froze.intent.activation) == ("Operator", found.tokens, 1)
    [record] = records(fleet)
    assert (record.trigger, record.intent, len(record.cuts)) == ("Operator", froze.intent, 1)
    assert record.result is not None
    assert not verify(record.intent, record.result)
    [cut] = record.cuts
    assert cut.run == record.result.order[0]
    fleet.leave(cut.run)
    fleet.bind("lab/z")
    assert fleet.phase("lab/z") == "Running"
    fleet.audit()


def test_a_reservation_without_a_start_gets_room_where_it_costs_least() -> None:
    """Everybody has only just started when lab/z comes: nothing can be promised, until an operator asks in time."""
    policy = Policy(activation_lead="15m", patience="1h")
    fleet = Fleet(*nodes("a", 1), *nodes("b", 2, domain="B"), budget("a"), policy=policy)
    fleet.start(run("x", 8, owner="org:a"), run("wide", 16, owner="org:a", elastic=elastic(8, 16, 8)))
    fleet.apply(run("z", 8, owner="org:a"))
    found = looked(fleet, "lab/z")
    assert isinstance(found, Room)
    assert found.plan.domains == ("us-west/gpu-a/B",)
    done(fleet, "lab/z")
    fleet.leave("lab/wide")
    fleet.bind("lab/z")
    assert fleet.domains("lab/z") == {"B": 8}
    fleet.audit()


@pytest.mark.parametrize("lasts", ["5h", "8h"], ids=["over by then", "in the way then"])
def test_what_was_promised_later_is_not_touched_either(lasts: str) -> None:
    """A promise is broken by the world, never for another run: what gives way ends on the node of the later one."""
    fleet = Fleet(*nodes("a", 2), budget("a"))
    fleet.start(run("wide", 16, owner="org:a", elastic=elastic(8, 16, 8), lasts="6h"))
    fleet.apply(run("z", 8, owner="org:a", lasts=lasts))
    fleet.later("1m")
    fleet.apply(run("later", 8, owner="org:a", lasts="1h"))
    before = promised(fleet, "lab/later")
    assert before.plan.start == at("6h"), "beside z, when lab/wide ends"
    if lasts == "5h":
        done(fleet, "lab/z")
        fleet.leave("lab/wide")
        fleet.bind("lab/z")
        assert fleet.where("lab/z") == {"a1": 8}
    else:
        assert declined(fleet, "lab/z").code == "NothingIsEnough"
    after = promised(fleet, "lab/later").plan.start
    assert after is not None
    assert after <= at("6h")
    fleet.audit()


def test_what_older_runs_were_promised_is_not_touched() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a"))
    fleet.start(run("wide", 16, owner="org:a", elastic=elastic(8, 16, 8), lasts="6h"))
    fleet.apply(run("old", 16, owner="org:a", lasts="1h"))
    fleet.later("1m")
    fleet.apply(run("young", 8, owner="org:a"))
    before = promised(fleet, "lab/old")
    assert declined(fleet, "lab/young").code == "NothingIsEnough"
    assert promised(fleet, "lab/old") == before
    fleet.audit()


def test_the_rebuilt_engine_decides_the_same() -> None:
    fleet = lottery()
    twin = load(dump(fleet.state))
    twin.head = fleet.entries[-1].prev  # any head: what follows is compared but for it
    mine = [type(fact).__name__ for fact in done(fleet, "lab/z").facts]
    assert [type(fact).__name__ for fact in step(twin, Resolve("lab/z"), now=fleet.now).facts] == mine


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_run_that_does_not_wait_needs_no_room() -> None:
    fleet = lottery()
    assert declined(fleet, "lab/x").code == "NotWaiting"
    assert declined(fleet, "lab/nobody").code == "NotWaiting"


def test_a_run_that_can_never_start_has_no_reservation() -> None:
    fleet = lottery()
    fleet.apply(run("huge", 64, owner="org:a"))
    assert declined(fleet, "lab/huge").code == "NoReservation"


def test_nobody_is_cut_for_money() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a", envelope(gpus=8)))
    fleet.start(run("x", 8, owner="org:a"))
    fleet.apply(run("z", 8, owner="org:a"))
    reason = declined(fleet, "lab/z")
    assert (reason.code, reason.data["short"]) == ("MoneyFirst", 8)


def test_nothing_is_cut_if_everything_would_not_be_enough() -> None:
    fleet = Fleet(*nodes("a", 2), budget("a"), secret="s")
    fleet.start(run("x", 16, owner="org:a", lasts="6h"))
    fleet.apply(run("z", 8, owner="org:a"))
    assert declined(fleet, "lab/z").code == "NothingIsEnough", "lab/x has only just started"
    assert fleet.phase("lab/x") == "Running"


def test_a_draw_needs_a_custodian_and_there_is_one_at_a_time() -> None:
    fleet = lottery(secret=None)
    reason = declined(fleet, "lab/z")
    assert (reason.code, reason.data["subject"]) == ("NoCustodian", f"Reservation/{promised(fleet, 'lab/z').key}")
    keeper = SimulatedCustodian("s")
    fleet.handle(Publish(keeper.beacon, keeper.root))
    fleet.apply(run("other", 8, owner="org:b", lasts="1h"))
    done(fleet, "lab/z")
    assert declined(fleet, "lab/other").code in ("DrawWaits", "NothingIsEnough")
    assert declined(fleet, "lab/z").code == "MadeAlready"
    fleet.reveal(keeper)
    [record] = records(fleet)
    assert len(record.cuts) == 1


@pytest.mark.parametrize("lasts", ["6h", None])
def test_a_run_that_was_cut_and_queued_again_cuts_nobody(lasts: str | None) -> None:
    """Whether it was promised the end of who took its place, or, since that has none, nothing."""
    fleet = Fleet(*nodes("a", 1), budget("a"), budget("b"), secret="s")
    fleet.start(run("x", 8, owner="org:b", on_preemption="Requeue"))
    fleet.later("20m")
    fleet.apply(run("z", 8, owner="org:a", lasts=lasts))
    done(fleet, "lab/z")
    fleet.leave("lab/x")
    fleet.bind("lab/z")
    fleet.later("20m")
    assert ("lab/x" in fleet.state.reservations) == (lasts is not None)
    assert declined(fleet, "lab/x").code == "CutBefore"
    fleet.audit()


def test_a_run_that_could_start_anyway_is_only_looked_at() -> None:
    fleet = lottery()
    fleet.handle(Apply(tuple(nodes("b", 1, domain="B"))), decide=False)
    found = looked(fleet, "lab/z")
    assert isinstance(found, Room)
    assert (found.cuts, found.tokens) == ((), ())
    done(fleet, "lab/z")
    assert not records(fleet)
    assert fleet.where("lab/z") == {"b0": 8}


@pytest.mark.parametrize(("lasts", "code"), [("6h", "CutsNobody"), (None, "NoReservation")])
def test_nobody_is_cut_for_work_that_gives_way_to_everybody(lasts: str | None, code: str) -> None:
    """An ordinary run was drawn by lot for it. It may be promised an end that is known; where none is, it is promised
    nothing."""
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), secret="s")
    fleet.start(run("old", 8, owner="org:a", lasts=lasts))
    fleet.later("1h")
    fleet.apply(run("guest", 8, owner="org:b", lasts="1h", opportunistic=True))
    assert ("lab/guest" in fleet.state.reservations) == (lasts is not None)
    assert declined(fleet, "lab/guest").code == code
