"""Reservations as objects, the promise in a run's status, and the risk in the status of others."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.api.meta import to_wire
from tenure.api.run import Run
from tenure.engine import Apply, State, render
from tenure.engine.shown import of_now
from tenure.engine.words import Words
from tenure.facts import Cut, Fact, Forecast, Froze, Reservation, Resolved, Segment
from tenure.shell.home import Home, rebuild
from tenure.shell.store import MemoryStore
from tenure.testing import START, Fleet, budget, envelope, nodes, run
from tenure.units import HOUR, MINUTE, SECOND
from tests.engine.lottery_records import drawn, intent, pool
from tests.promises import draw_for, froze, moved, put, released, reservation, resolved, slice_at, threatening

SOON = START + 15 * MINUTE


def world(*facts: Fact, decide: bool = False) -> State:
    """Runs rai/eval and rai/big hold GPUs, rai/train and two more wait, looked at or not; then the facts are so."""
    store = MemoryStore()
    home = Home(store)
    money = budget("ai", envelope(gpus=64), owner="org:ai:rai")
    home.handle(Apply((*nodes("a-", 2), money)), now=START)
    home.handle(Apply(tuple(run(name, 8, namespace="rai", owner="org:ai:rai") for name in ("big", "eval"))), now=START)
    waiting = tuple(run(name, 16, namespace="rai", owner="org:ai:rai") for name in ("train", "b", "c"))
    home.handle(Apply(waiting), now=START, decide=decide)
    with store.write() as tx:
        tx.append(at=START, cause="test", facts=facts)
    return rebuild(store)[0]


def shown(state: State, name: str) -> Run:
    return render.run(state, state.runs[f"rai/{name}"], now=START)


def object_of(one: Reservation, *, now: int = START, resolution: Froze | Resolved | None = None) -> dict[str, Any]:
    wire: dict[str, Any] = to_wire(render.reservation(None, one, now=now, resolution=resolution))
    return wire


# --- the object ---------------------------------------------------------------------------------------------------


def test_the_spec_is_the_promise_as_first_made_and_the_status_the_plan() -> None:
    first = reservation(START, SOON)
    plan = slice_at(SOON + HOUR, "b-0", gpus=16, domain={"region": "east"})
    shown = object_of(moved(first, None, plan=plan))
    assert shown["metadata"] == {
        "name": "train-r1",
        "namespace": "rai",
        "uid": first.uid,
        "labels": {"rq.davidlangworthy.io/run": "train"},
        "creationTimestamp": "2025-11-01T00:00:00Z",
    }
    assert shown["spec"] == {
        "runRef": {"name": "train", "uid": "u-1"},
        "intendedSlice": {"nodes": ["a-0", "a-1"], "domain": {"region": "west", "cluster": "lab"}},
        "payingEnvelopes": [{"budget": "rai", "envelope": "west", "gpus": 16}],
        "earliestStart": "2025-11-01T00:15:00Z",
    }
    status = shown["status"]
    assert status["plannedStart"] == "2025-11-01T01:15:00Z"
    assert status["plannedSlice"] == {"nodes": ["b-0"], "domain": {"region": "east"}}
    assert (status["state"], status["reason"], status["message"]) == ("Pending", "NoCapacity", "There is no room.")


def test_two_segments_of_one_envelope_are_one_payer() -> None:
    def part(envelope: str, gpus: int) -> Segment:
        return Segment(budget="rai", envelope=envelope, payer="org:ai:rai", funding="owned", gpus=gpus)

    promise = slice_at(SOON, "a-0", segments=(part("west", 4), part("east", 2), part("west", 2)))
    told = object_of(reservation(START, SOON, promise=promise))["spec"]["payingEnvelopes"]
    assert told == [
        {"budget": "rai", "envelope": "west", "gpus": 6},
        {"budget": "rai", "envelope": "east", "gpus": 2},
    ]


def test_the_countdown_falls_to_zero_and_is_gone_when_it_is_over() -> None:
    one = reservation(START, SOON)
    ticks = [object_of(one, now=at)["status"]["countdownSeconds"] for at in (START, SOON - SECOND // 2, SOON, SOON + 1)]
    assert ticks == [15 * 60, 1, 0, 0]
    assert "countdownSeconds" not in object_of(released(one, SOON))["status"]


def test_a_blocked_one_has_no_start_and_says_what_is_short() -> None:
    one = threatening(reservation(START, None, state="Blocked", reason="NoEnvelope", message="Nobody can pay."))
    shown = object_of(one)
    assert "earliestStart" not in shown["spec"]
    assert not {"plannedStart", "plannedSlice", "countdownSeconds"} & set(shown["status"])
    assert shown["status"]["message"] == "Nobody can pay."


def test_when_it_was_activated_and_released_is_told() -> None:
    status = object_of(released(reservation(START, SOON), SOON))["status"]
    assert (status["activatedAt"], status["releasedAt"]) == ("2025-11-01T00:15:00Z", "2025-11-01T00:15:00Z")


def test_remedies_are_told_in_sentences_and_a_lottery_names_nobody() -> None:
    told = object_of(threatening(reservation(START, SOON), eval="0.3"))["status"]["forecast"]
    assert [(one["kind"], one["run"], one["gpus"], one["text"]) for one in told["remedies"]] == [
        ("DropSpare", "rai/big", 4, "drop 4 spares of rai/big"),
        ("Shrink", "rai/wide", 16, "shrink rai/wide by 16"),
        ("Lottery", "", 12, "lottery frees 12 of 40"),
    ]
    assert (told["deficitGPUs"], told["shortGPUs"], told["confidence"]) == (32, 0, "conservative")
    assert told["cutProbabilities"] == {"rai/eval": "0.3"}


def test_the_record_of_the_resolver_is_shown_as_it_was_hashed() -> None:
    one = reservation(START, SOON)
    frozen, result = draw_for(one)
    assert set(object_of(one, resolution=froze(frozen))["status"]["resolution"]) == {"intent", "cuts"}
    told = object_of(one, resolution=resolved(frozen, result))["status"]["resolution"]
    assert told["intent"]["ledgerHead"] == frozen.ledger_head
    assert told["intent"]["reservation"] == {"namespace": "rai", "name": "train-r1", "uid": one.uid}
    assert (told["result"]["seed"], told["result"]["order"]) == (result.seed, list(result.order))
    [cut] = told["cuts"]
    assert (cut["kind"], cut["run"], cut["gpus"]) == ("Lottery", result.order[0], 8)


def test_regression_a_resolution_of_very_many_runs_fits_into_an_object() -> None:
    """Ten thousand small runs in a forecast and in a draw, all of them cut: an API server would not take all of it, and
    the reservation would stay as it was for ever. The likeliest and the first are told, and that there was a draw."""
    names = [f"{number:04}-{'x' * 50}" for number in range(10_000)]
    frozen = intent(pool(a=" ".join(names)))
    drops = tuple(Cut(kind="DropSpare", run=f"rai/{name}", owner="org:ai", gpus=1) for name in names)
    odds = {f"rai/{name}": "0.5" if index >= 9_000 else "0.1" for index, name in enumerate(names)}
    lots = Cut(kind="Lottery", run="rai/eval", owner="org:ai", gpus=8)
    said = Forecast(deficit=8, remedies=(*drops, lots), pool=40, odds=odds)
    one = msgspec.structs.replace(reservation(START, SOON), forecast=said)
    wire = object_of(one, resolution=resolved(frozen, drawn(frozen), count=10_000))
    assert len(msgspec.json.encode(wire)) < 1 << 20
    told, forecast = wire["status"]["resolution"], wire["status"]["forecast"]
    assert set(told) == {"cuts", "drawLeftOut"}
    assert [cut["run"] for cut in told["cuts"]] == list(drawn(frozen).order[:1024])
    assert set(object_of(one, resolution=froze(frozen))["status"]["resolution"]) == {"cuts", "drawLeftOut"}
    assert [item["run"] for item in forecast["remedies"]] == [*(cut.run for cut in drops[:1023]), ""]
    assert len(forecast["cutProbabilities"]) == 1024
    assert list(forecast["cutProbabilities"].values()).count("0.5") == 1000, "the likeliest"


def test_regression_two_shortages_of_very_many_runs_fit_into_one_budget() -> None:
    """The draws of all its envelopes stand in one object, and share its room."""
    frozen = intent(pool(a=" ".join(f"{number:04}-{'x' * 50}" for number in range(6_000))))
    fleet = Fleet(budget("a", envelope("one"), envelope("two")))
    for name in ("one", "two"):
        record = resolved(frozen, drawn(frozen), count=6_000)
        fleet.state.fold(msgspec.structs.replace(record, trigger="Shortage", subject=f"Budget/a/{name}"), fleet.now)
    status = render.budget(fleet.state, fleet.state.budgets["a"], now=fleet.now).status
    assert len(msgspec.json.encode(status)) < 1 << 20
    assert [(one.name, one.draw_left_out, one.intent) for one in status.shortages] == [
        ("one", True, None), ("two", True, None)]  # fmt: skip
    assert all(0 < len(one.cuts) <= 1024 for one in status.shortages)


def test_regression_cuts_of_very_many_leases_are_shown_as_far_as_there_is_room() -> None:
    cuts = tuple(
        Cut(
            kind="Shrink",
            run=f"rai/{name}",
            owner="org:ai",
            gpus=8,
            leases=tuple(f"{name}-l{n:056}" for n in range(99)),
        )
        for name in range(1000)
    )
    done = Resolved(trigger="Activation", subject="Reservation/rai/train-r1", activation=1, cuts=cuts)
    told = object_of(reservation(START, SOON), resolution=done)["status"]["resolution"]["cuts"]
    assert 10 < len(told) < 100
    assert told[-1]["leases"] == list(cuts[len(told) - 1].leases), "whole, or not at all"


def test_a_resolution_without_a_lottery_has_no_intent() -> None:
    cut = Cut(kind="DropSpare", run="rai/big", owner="org:ai:rai", gpus=2, leases=("big-l0",))
    done = Resolved(trigger="Activation", subject="Reservation/rai/train-r1", activation=1, cuts=(cut,))
    told = object_of(reservation(START, SOON), resolution=done)["status"]["resolution"]
    assert told == {
        "cuts": [{"kind": "DropSpare", "run": "rai/big", "owner": "org:ai:rai", "gpus": 2, "leases": ["big-l0"]}]
    }


def test_a_draw_that_waits_for_its_reveals_is_shown_from_the_state() -> None:
    one = reservation(START, SOON, state="Active")
    frozen, _ = draw_for(one)
    state = world(put(one), froze(frozen))
    told = render.reservation(state, one, now=START).status.resolution
    assert told is not None
    assert told.intent is not None
    assert told.result is None


def test_who_asks_about_one_is_told_in_the_numbers_of_now() -> None:
    state = world(decide=True)
    one = reservation(START, SOON, reason="NoCapacity", message="old numbers")
    words = Words(state, now=START)
    assert of_now(state, one, words).message == "us-west/gpu-a has 0 free GPUs of the 16 that are needed."
    other = reservation(START, SOON, reason="SomethingElse", message="old numbers")
    assert of_now(state, other, words).message == "old numbers"
    over = released(one, SOON)
    assert of_now(state, over, words).message == over.message
    assert render.reservation(state, one, now=START).status.message == "old numbers", "as it was recorded"


def test_a_waiting_run_is_told_what_its_reservation_says_where_that_is_newer() -> None:
    def told(**says: str) -> tuple[str, str]:
        state = world(decide=True)
        state.fold(put(reservation(START, SOON, **says)), START)
        item = shown(state, "train")
        [admitted] = [mark for mark in item.status.conditions if mark.type == "Admitted"]
        assert admitted.reason == "NoCapacity"
        code, fresh = Words(state, now=START).told_freshly(state.runs["rai/train"])
        assert item.status.message == says["message"], "lists and objects show what was recorded"
        return code, fresh

    assert told(reason="NoCapacity", message="old numbers") == (
        "NoCapacity",
        "us-west/gpu-a has 0 free GPUs of the 16 that are needed.",
    )
    newer = "There is room now, but to start would delay rai/b, which is reserved for 2025-11-01T00:30:00Z."
    assert told(reason="Protected", message=newer) == ("Protected", newer)
    due = "The start of rai/train is due: what it needs on west is held for it."
    assert told(state="Active", reason="Activated", message=due) == ("Activated", due)
    assert told(state="Blocked", reason="NoStartInSight", message="None in sight.")[1] == "None in sight."


# --- the run's own status -----------------------------------------------------------------------------------------


def test_a_waiting_run_names_its_reservation_and_mirrors_its_start() -> None:
    one = moved(reservation(START, SOON), SOON + HOUR)
    status = shown(world(put(one)), "train").status
    assert (status.pending_reservation, status.earliest_start) == ("train-r1", "2025-11-01T01:15:00Z")


def test_a_run_whose_reservation_is_blocked_has_no_start() -> None:
    status = shown(world(put(reservation(START, None, state="Blocked"))), "train").status
    assert (status.pending_reservation, status.earliest_start) == ("train-r1", None)


def test_a_reservation_that_is_over_is_nobodys_start() -> None:
    one = reservation(START, SOON)
    status = shown(world(put(one), put(released(one, SOON))), "train").status
    assert (status.pending_reservation, status.earliest_start) == (None, None)


# --- the risk to others -------------------------------------------------------------------------------------------


def test_the_risk_of_a_run_is_the_highest_over_live_reservations() -> None:
    mild = threatening(reservation(START, SOON), eval="0.25", big="0.5")
    grave = threatening(reservation(START, SOON + HOUR, run="b", name="b-r1"), eval="0.75", train="1")
    over = threatening(reservation(START, SOON, run="c", name="c-r1", state="Canceled"), eval="0.9")
    state = world(put(mild), put(grave), put(over))
    risks = {name: shown(state, name).status.risk for name in ("eval", "big", "train")}
    assert [(one.cut_probability, one.reservation, one.at) if one else None for one in risks.values()] == [
        (0.75, "rai/b-r1", "2025-11-01T01:15:00Z"),
        (0.5, "rai/train-r1", "2025-11-01T00:15:00Z"),
        None,  # it holds nothing that could be cut
    ]


def test_of_equal_risks_the_first_to_come_is_told() -> None:
    late = threatening(reservation(START, SOON + HOUR), eval="0.5")
    soon = threatening(reservation(START, SOON, run="b", name="b-r1"), eval="0.5")
    risk = shown(world(put(late), put(soon)), "eval").status.risk
    assert risk is not None
    assert risk.reservation == "rai/b-r1"


def test_nobody_is_at_risk_from_what_has_no_start_or_no_chance() -> None:
    blocked = threatening(reservation(START, None, state="Blocked"), eval="0.5")
    harmless = threatening(reservation(START, SOON, run="b", name="b-r1"), eval="0")
    assert shown(world(put(blocked), put(harmless)), "eval").status.risk is None
