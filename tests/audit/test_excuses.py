"""What the auditor excuses, and what it must not: beside each honest history one that looks much like it, and in which
somebody was wronged all the same (I8, I9)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.api.budget import Envelope
from tenure.audit import LATE, check_all
from tenure.audit.claims import Claim, given_up
from tenure.draw import Intent, Token
from tenure.facts import Closed, Fact, Froze, Opened, PutNode, PutRun, Reserved, Resolved, Slice
from tenure.units import format_time
from tests.audit import drawing
from tests.audit.builders import SYS, History, budget, envelope, lease, node, pod, run, time
from tests.audit.promises import plan, reserved
from tests.audit.test_cuts import ELDER as DUE
from tests.audit.test_cuts import HELD, SUBJECT, TOKENS, cut, cutting, end, frozen, full, names
from tests.audit.test_reservations import ELDER, faults, fleet, starts, waiting

OTHERS = {"aged": run("aged", 8), "younger": run("younger", 8, duration="1h")}


def said(history: History, what: str) -> bool:
    """Whether I8 is said to be broken in these words."""
    return any(what in item.message for item in faults(history))


def again(planned: Slice, promise: Slice, **other: Any) -> Reserved:
    """elder is planned anew."""
    return reserved(planned, ELDER, promise=promise, **{"reason": "Overstayed", **other})


def opened_with(history: History, *, before: tuple[Fact, ...] = (), after: tuple[Fact, ...] = ()) -> History:
    """The last start, with facts of the same entry before and after it."""
    entry = history.entries[-2]
    history.entries[-2] = replace(entry, facts=(*before, *entry.facts, *after))
    return history


# --- money that may not be spent any more --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("east", "blamed"),
    [
        (envelope("east"), True),
        (envelope("east", concurrency=7), False),
        (envelope("east", concurrency=15), False),
        (envelope("east", concurrency=16), True),
        (envelope("east", start=format_time(time("3h"))), False),
        (envelope("east", selector={"cluster": "gpu-b"}), False),
    ],
    ids=[
        "it pays as well",
        "it is too little",
        "it is another's by then",
        "it pays for both",
        "it is not there yet",
        "it is for elsewhere",
    ],
)
def test_money_is_no_excuse_where_the_new_plan_has_other_money_that_pays_as_well(east: Envelope, blamed: bool) -> None:
    """younger overstays in elder's slice, and the money that was to pay may not be spent there any more. elder is to be
    paid by another envelope, an hour later: if that one had paid at once, it waits for younger and for nothing else."""
    promise, last = plan("2h", "a-0:8"), run("last", 8)
    history = starts(waiting(promise), "younger", "a-0:0-7", duration="1h").at("2h")
    history.add(PutRun(object=last), reserved(plan("2h", "a-1:8", paid="east", until="3h"), last, turn=9))
    history.budgets(budget("sys", SYS, envelope(selector={"cluster": "gpu-b"}), east))
    assert said(history.add(again(plan("3h", "a-0:8", paid="east"), promise)), "delayed by work") is blamed


@pytest.mark.parametrize(
    ("end", "reason", "blamed"),
    [("7h", "", False), ("8h", "", True), ("7h", "EndsLate", True)],
    ids=["it closes too early by now", "it lasts", "a moment for who ends late is no cause"],
)
def test_a_start_that_waited_too_long_for_its_window_is_nobodys_fault(end: str, reason: str, blamed: bool) -> None:
    """elder was to start at 2h and to last for four hours, and still waits at 4h; younger overstays in its slice."""
    promise = plan("2h", "a-0:8", until="6h")
    history = starts(waiting(promise, fleet(end=format_time(time(end)))), "younger", "a-0:0-7", duration="1h")
    history.at("2h").add(again(promise, promise, reason=reason)).at("4h")
    assert said(history.add(again(plan("5h", "a-0:8", until="9h"), promise)), "delayed by work") is blamed


# --- a pot that holds less by now -----------------------------------------------------------------------------


@pytest.mark.parametrize(("had", "blamed"), [(10, False), (9, True), (8, True)])
def test_gpus_that_a_node_had_when_somebody_was_let_in_excuse_so_many_and_no_more(had: int, blamed: bool) -> None:
    """elder was promised eight GPUs of a node; younger takes two while it says to have more, and then it has eight."""
    promise = plan("2h", "a-0:8")
    history = starts(waiting(promise).add(PutNode(object=node("a-0", gpus=had))), "younger", "a-0:0-1").at("1h")
    history.add(PutNode(object=node("a-0", gpus=8)), again(plan("3h", "a-0:8"), promise))
    assert said(history, "delayed by work") is blamed


@pytest.mark.parametrize(("had", "blamed"), [(10, False), (9, True), (8, True)])
def test_gpus_that_an_envelope_allowed_when_somebody_was_let_in_excuse_so_many_and_no_more(
    had: int, blamed: bool
) -> None:
    promise = plan("2h", "a-0:8")
    history = starts(waiting(promise, fleet(had)), "younger", "a-1:0-1").at("1h")
    history.budgets(budget("sys", SYS, envelope(concurrency=8), envelope("east")))
    assert said(history.add(again(plan("3h", "a-0:8"), promise)), "delayed by work") is blamed


@pytest.mark.parametrize(
    ("where", "first", "blamed"),
    [("a-0:0-1", "the move", False), ("a-0:0-0", "the move", True), ("a-0:0-1", "the start", True)],
    ids=["younger is in the way alone", "but for last there is room", "last starts before elder is moved"],
)
def test_who_is_let_in_where_a_start_was_moved_already_is_not_the_cause(where: str, first: str, blamed: bool) -> None:
    """elder was promised seven GPUs of a node; younger was let in while it had more, and is in the way or not. elder is
    moved, and last takes one of the GPUs that are left."""
    promise = plan("2h", "a-0:7", "a-2:1")
    history = starts(waiting(promise).add(PutNode(object=node("a-0", gpus=10))), "younger", where).at("1h")
    history.add(PutNode(object=node("a-0", gpus=8)))
    moved = (again(plan("3h", "a-1:8"), promise),)
    starts(history, "last", "a-0:7-7")
    opened_with(history, before=moved if first == "the move" else (), after=moved if first == "the start" else ())
    assert said(history, "delayed by work") is blamed


@pytest.mark.parametrize("stays", ["a-0:0-1", "a-2:0-7"], ids=["on the same node", "on another"])
@pytest.mark.parametrize(
    ("where", "blamed"),
    [("a-0:8-9", False), ("a-0:8-8", True)],
    ids=["last is in the way alone", "but for younger there is room"],
)
def test_who_overstays_before_another_came_while_a_node_had_more_is_not_the_cause(
    where: str, blamed: bool, stays: str
) -> None:
    """elder was promised seven GPUs of a node, and one of another; younger is to be over by then, and overstays; last
    was let in later, while the first node had more, and is in the way without younger, or is not."""
    promise = plan("2h", "a-0:7", "a-2:1")
    history = starts(waiting(promise), "younger", stays, until="1h").at("90m")
    starts(history.add(PutNode(object=node("a-0", gpus=12))), "last", where).at("100m")
    history.add(PutNode(object=node("a-0", gpus=8)))
    assert said(history.add(again(plan("3h", "a-1:8"), promise)), "delayed by work") is blamed


@pytest.mark.parametrize(("since", "blamed"), [("110m", False), ("0s", True)])
def test_a_start_on_cuts_that_waits_for_who_may_not_be_drawn_yet_is_not_delayed_by_others(
    since: str, blamed: bool
) -> None:
    """elder counts on cutting aged, who has not run for the lead of 15m when the start comes, or has; younger, who was
    let in for five minutes, is still there then, and on money that elder needs."""
    promise = plan("2h", "a-0:8")
    history = starts(fleet(16).at(since), "aged", "a-0:0-7").at("110m")
    starts(waiting(promise, history, confidence="conservative"), "younger", "a-1:0-0", duration="5m").at("2h")
    later = again(plan("125m", "a-0:8"), promise, confidence="conservative")
    assert said(history.add(later), "delayed by work") is blamed


@pytest.mark.parametrize(("claimed", "blamed"), [(5, False), (6, True)])
def test_who_is_on_gpus_that_a_node_does_not_report_any_more_takes_others_of_it(claimed: int, blamed: bool) -> None:
    """younger has two GPUs that the node no longer speaks of, elder was promised some of those that are left after
    that, and last takes one: two and one and five are eight."""
    history = fleet().add(PutNode(object=node("a-0", gpus=10)))
    starts(history, "younger", "a-0:8-9").add(PutNode(object=node("a-0", gpus=8)))
    history = starts(waiting(plan("2h", f"a-0:{claimed}"), history).at("1m"), "last", "a-0:0-0")
    assert said(history, "taken by") is blamed


# --- a start that is made elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaves", "state", "blamed"),
    [(True, "Active", False), (False, "Active", True), (False, "Pending", True)],
    ids=["it is made elsewhere", "nobody was waited for", "it is only moved"],
)
def test_who_is_let_in_where_a_start_would_have_to_wait_does_not_delay_one_that_is_made_now(
    leaves: bool, state: str, blamed: bool
) -> None:
    """Nobody drove when elder was to start. An hour later aged is sent away, and younger starts where elder was to."""
    promise, other = plan("2h", "a-0:8", "a-1:4"), plan("3h", "a-1:8", "a-2:4")
    history = starts(fleet(), "aged", "a-1:0-7" if leaves else "a-3:0-7", duration="2h")
    wide = run("elder", 12)
    history.add(PutRun(object=wide), reserved(promise, wide)).at("3h").stop("aged", "Canceled")
    fields = {"activated": time("3h"), "activation": 1} if state == "Active" else {}
    moved = reserved(other, wide, promise=promise, state=state, reason="Activated", **fields)
    starts(history, "younger", "a-0:0-7")
    assert said(opened_with(history, before=(moved,)), "delayed by work") is blamed


@pytest.mark.parametrize(("state", "blamed"), [("Active", False), ("Pending", True)])
def test_a_start_that_is_made_as_soon_as_somebody_drives_is_not_delayed_by_who_should_have_been_over(
    state: str, blamed: bool
) -> None:
    """Cluster seed 1462: younger was to be over when elder was to start, and nobody drove for an hour. Then elder is
    made elsewhere, at once; if it is only planned anew, it is younger who is in the way, and is to be sent away."""
    promise, other = plan("2h", "a-0:8"), plan("3h", "a-1:8")
    wide = run("elder", 8)
    history = fleet().add(PutRun(object=wide), reserved(promise, wide)).at("1h")
    starts(history, "younger", "a-0:0-7", duration="1h").at("3h")
    fields = {"activated": time("3h"), "activation": 1} if state == "Active" else {}
    later = other if state == "Active" else plan("4h", "a-0:8")
    moved = reserved(later, wide, promise=promise, state=state, reason="Activated", **fields)
    assert said(history.add(moved), "delayed by work") is blamed


# --- who is paid for by others since --------------------------------------------------------------------------


@pytest.mark.parametrize(("gpus", "first", "blamed"), [(4, "younger", False), (3, "younger", True), (4, "aged", True)],
                         ids=["as many", "fewer than were taken", "it was handed over before"])  # fmt: skip
def test_what_was_handed_over_since_somebody_was_let_in_excuses_so_many_and_no_more(
    gpus: int, first: str, blamed: bool
) -> None:
    """aged holds GPUs of a node, on money that runs out, and younger takes the rest of it; elder was promised what is
    free then, and is moved because aged goes on. That is younger's fault only if aged had gone on already, or if they
    would not have been enough."""
    promise = plan("2h", "a-0:4")
    one = run("aged", gpus)
    old = lease(one, f"a-0:0-{gpus - 1}", at=time("0s"))
    new = replace(old, name=f"{old.name}-again", envelope="east", start=time("1h"), reason="Refund", since=old.start)
    history = fleet().started(one, [old], [pod(one, f"a-0:0-{gpus - 1}", rank=0)])
    waiting(promise, history)
    handed = (Closed(namespace="rai", leases=(old.name,), end=time("1h"), reason="Refund"), Opened(lease=new))
    if first == "aged":
        history.at("1h").add(*handed)
    starts(history, "younger", f"a-0:{gpus}-7")
    if first == "younger":
        history.at("1h").add(*handed)
    history.at("90m").add(again(plan("3h", "a-1:4"), promise))
    assert said(history, "delayed by work") is blamed


# --- who was cut for somebody else ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trigger", "firm", "until", "start", "leaves", "counts"),
    [
        ("Activation", True, None, "2h", False, True),
        ("Activation", True, "3h", "2h", False, True),
        ("Activation", True, "2h", "2h", False, False),
        ("Activation", False, None, "2h", True, False),
        ("Operator", True, None, "2h", False, True),
        ("Shortage", True, "1h", "2h", True, True),
        ("Shortage", False, None, "2h", True, True),
        ("Shortage", True, None, "2h", False, False),
        ("Shortage", True, None, "3h", True, False),
    ],
    ids=["it was to stay", "it was to stay for longer", "it was to be over", "it was to be cut",
         "an operator asked for it", "it has yet to leave",
         "it has yet to leave, though it was to be cut", "it is gone", "it may leave until the start"],
)  # fmt: skip
def test_what_was_cut_for_others_was_not_there_for_a_start(
    trigger: Any, firm: bool, until: str | None, start: str, leaves: bool, counts: bool
) -> None:
    """Found by a reviewer's games: a later start was given what spares had, just after an earlier one was put off for
    want of money (1462); and a start waited for who had to go by a shortage (1470). Somebody else was blamed."""
    one = replace(lease(OTHERS["aged"], "a-0:0-7", at=time("0s")), until=None if until is None else time(until))
    fact = Resolved(trigger=trigger, subject="Reservation/rai/younger", activation=1)
    claim = Claim("rai/elder", (2, (0, "", "")), 4, start=time(start), until=time("9h"), written=1, fact=1, firm=firm,
                  active=False, waits=False, starts=(), sizes=((1, 4),))  # fmt: skip
    leaving, then = {one.key} if leaves else set[str](), max(time("2h"), claim.start)
    for pot, gpus in ((("node", "a-0"), 8), (("envelope", "sys", "west"), 8), (("node", "a-1"), 0)):
        found = given_up(pot, claim, [(fact, one)], leaving, then=then, at=time("2h"))
        assert found == (gpus if counts else 0), pot


# --- a plan that takes more of a node ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "lasts", "more", "blamed"),
    [("a-0:0-7", "1h", 5, True), ("a-0:4-7", None, 8, False), ("a-0:4-7", None, 5, False)],
    ids=["it was to be gone", "there was room", "there was room for all but the more"],
)
def test_who_came_before_a_plan_took_more_is_late_for_what_it_took_before(
    where: str, lasts: str | None, more: int, blamed: bool
) -> None:
    """elder was promised half of the node, and is planned to take more of it. younger came in between. Backfill that
    overstays on what was promised all along is to blame; who left that alone is not."""
    promise = plan("2h", "a-0:4", "a-1:4")
    history = starts(waiting(promise, confidence="conservative"), "younger", where, duration=lasts).at("90m")
    wider = plan("2h", f"a-0:{more}", *([f"a-1:{8 - more}"] if more < 8 else []))
    history.add(again(wider, promise, confidence="conservative")).at("2h")
    later = replace(wider, start=time("3h"))
    assert said(history.add(again(later, promise, confidence="conservative")), "delayed by work") is blamed


@pytest.mark.parametrize(("where", "blamed"), [("a-0:0-7", True), ("a-0:3-7", True), ("a-0:4-7", False)])
@pytest.mark.parametrize("confidence", ["projected", "conservative"])
def test_a_plan_that_takes_more_gives_up_nothing_that_was_promised_before(
    where: str, blamed: bool, confidence: str
) -> None:
    """One entry starts younger and then plans elder to take one GPU more of the node: what elder had is its own."""
    promise = plan("2h", "a-0:4", "a-1:4")
    history = starts(waiting(promise, confidence=confidence), "younger", where)
    opened_with(history, after=(again(plan("2h", "a-0:5", "a-1:3"), promise, confidence=confidence),))
    assert said(history, "taken by") is blamed


@pytest.mark.parametrize(("gpus", "blamed"), [(2, True), (1, False)])
def test_an_earlier_promise_that_takes_more_excuses_so_much_and_no_more(gpus: int, blamed: bool) -> None:
    """ancient has half of the node, elder three GPUs, and younger, who was to be gone, stays on some that are left or
    not. Then ancient takes one more. One GPU beside the two promises there was; for a second there never was room."""
    ancient, promise = run("ancient", 8), plan("2h", "a-0:3")
    history = fleet().add(PutRun(object=ancient), reserved(plan("2h", "a-0:4", "a-1:4"), ancient, turn=1))
    waiting(promise, history, turn=2)
    starts(history, "younger", f"a-0:{8 - gpus}-7", duration="1h").at("2h")
    history.add(reserved(plan("2h", "a-0:5", "a-1:3"), ancient, turn=1, promise=plan("2h", "a-0:4", "a-1:4")))
    assert said(history.add(again(plan("3h", "a-0:3"), promise, turn=2)), "delayed by work") is blamed


@pytest.mark.parametrize(
    ("gpus", "first", "blamed"),
    [(8, "the move", False), (8, "the start", True), (7, "the move", True)],
    ids=["aged is in the way", "younger starts before elder is moved", "there is room beside aged"],
)
def test_who_is_let_in_after_an_earlier_promise_moved_a_start_is_not_the_cause(
    gpus: int, first: str, blamed: bool
) -> None:
    """aged is planned onto a GPU of elder's node, and elder is moved; younger takes the node, to be over by then; and
    aged goes back, so that in the end only younger is where elder was to start."""
    aged, promise = OTHERS["aged"], plan("2h", f"a-0:{gpus}", f"a-2:{8 - gpus}") if gpus < 8 else plan("2h", "a-0:8")
    history = fleet().add(PutRun(object=aged), reserved(plan("2h", "a-1:8"), aged, turn=1))
    waiting(promise, history, turn=2).at("1h")
    before = reserved(plan("2h", "a-0:1", "a-1:7", until="5h"), aged, turn=1, promise=plan("2h", "a-1:8"))
    after = reserved(plan("2h", "a-1:8"), aged, turn=1)
    moved = again(plan("5h", "a-0:8"), promise, turn=2)
    starts(history, "younger", "a-0:0-7", duration="3h")
    around = (before, moved) if first == "the move" else (before,)
    opened_with(history, before=around, after=(after,) if first == "the move" else (moved, after))
    assert said(history, "delayed by work") is blamed


# --- who is in a draw ----------------------------------------------------------------------------------------


def claimed(planned: Slice, **other: Any) -> Reserved:
    """aged was promised a start before elder, counting on cuts as well."""
    fields = {"confidence": "conservative", "promise": plan("2h", "a-0:4", "a-5:4"), **other}
    return reserved(planned, OTHERS["aged"], **fields)


AFTERWARDS: dict[str, Fact] = {
    "nothing": claimed(plan("2h", "a-0:4", "a-5:4")),
    "it takes more": claimed(plan("2h", "a-0:8")),
    "it takes less": claimed(plan("2h", "a-0:1", "a-5:7")),
    "it goes elsewhere": claimed(plan("2h", "b-0:8")),
    "it is off": claimed(plan("2h", "a-0:4", "a-5:4"), state="Canceled"),
    "it moves later": claimed(plan("9h", "a-0:4", "a-5:4"), reason="Overstayed"),
}


def drawn_beside(*facts: Fact) -> History:
    """elder's draw is frozen by the last entry; aged was promised some of one's node."""
    slot = plan("1h", "a-1:8", until="3h")
    active = reserved(slot, DUE, confidence="conservative", state="Active", promise=plan("1h", "a-0:8"), turn=1)
    history = full().add(PutRun(object=OTHERS["aged"]), claimed(plan("2h", "a-0:4", "a-5:4")))
    return history.add(active).add(*facts)


@pytest.mark.parametrize("afterwards", AFTERWARDS)
def test_who_is_promised_to_another_at_the_freeze_is_in_no_draw_whatever_becomes_of_that(afterwards: str) -> None:
    """The tokens are a function of the ledger at the freeze (SPEC 8): what the same entry does later changes none."""
    spared = [token for token in TOKENS if token.id != "rai/one"]
    then = AFTERWARDS[afterwards]
    assert names(drawn_beside(Froze(trigger="Activation", intent=frozen(tokens=tuple(spared))), then)) == []
    assert names(drawn_beside(Froze(trigger="Activation", intent=frozen()), then)) == ["I9"]


@pytest.mark.parametrize(("least", "blamed"), [(4, False), (8, True)])
def test_who_could_give_way_before_the_draw_is_not_in_it_whatever_else_is_taken_of_it(least: int, blamed: bool) -> None:
    """wide has four GPUs near elder and four elsewhere. Where it could give up the first four it needs no token, also
    if the entry of the freeze takes the others for somebody else; where eight are its minimum it does."""
    wide = run("wide", 8, malleable=(least, 8, 4))
    parts = [lease(wide, "a-5:4-7", at=time("0s")), lease(wide, "b-0:0-3", at=time("0s"), group=1)]
    pods = [pod(wide, "a-5:4-7", rank=0), pod(wide, "b-0:0-3", rank=1, group=1)]
    history = full().started(wide, parts, pods).at("2h")
    intent = frozen(at="2h")
    history.add(Froze(trigger="Activation", intent=intent), end(parts[1], "Shrink", ("wide-a1-1",))).at("121m")
    history.add(*cutting(history, intent))
    found = [item.message for item in check_all(history.entries, now=history.now)]
    assert ("left rai/wide out of the draw" in found) is blamed


@pytest.mark.parametrize("first", ["the freeze", "the claim"])
def test_who_was_promised_to_another_until_just_before_the_freeze_is_in_the_draw(first: str) -> None:
    """aged is off, and with it the claim on one's node: left out of a draw that is frozen afterwards, one is missing
    from it."""
    tokens = tuple(token for token in TOKENS if token.id != "rai/one")
    intents = (frozen(tokens=tokens, deficit=deficit) for deficit in range(1, 99))
    intent = next(one for one in intents if drawing.result(one).order[0] == "rai/two")
    freeze, off, result = Froze(trigger="Activation", intent=intent), AFTERWARDS["it is off"], drawing.result(intent)
    history = drawn_beside(*((freeze, off) if first == "the freeze" else (off, freeze)))
    record = Resolved(trigger="Activation", subject=SUBJECT, activation=1, cuts=(cut("Lottery", HELD["two"]),),
                      intent=intent, result=result)  # fmt: skip
    gone = end(HELD["two"], f"RandomPreempt({result.seed})", ("two-a1-0",))
    history.at("61m").add(record, gone, history.moved("two", phase="Stopping"))
    assert names(history) == ([] if first == "the freeze" else ["I9"])


@pytest.mark.parametrize(("activation", "expected"), [(1, []), (2, ["I9"])])
def test_what_is_resolved_without_a_draw_does_not_spend_it(activation: int, expected: list[str]) -> None:
    """Of two draws that wait for the same reveal the second is a second try (docs/decisions/0038): one is over before
    the next is frozen, and a resolution of another activation, made without it, does not end it."""
    history = full().add(Froze(trigger="Activation", intent=frozen())).at("2h")
    drawn = Resolved(trigger="Activation", subject=SUBJECT, activation=1, cuts=(), intent=frozen(),
                     result=drawing.result(frozen()))  # fmt: skip
    history.add(drawn if activation == 1 else Resolved(trigger="Activation", subject=SUBJECT, activation=2, cuts=()))
    index = 2 if activation == 1 else 1
    tokens = [token for token in TOKENS if token.id in ("rai/one", "rai/two")]
    again = drawing.intent("sys/west", *tokens, at=history.now, index=index)
    assert names(history.add(Froze(trigger="Shortage", intent=again))) == expected


# --- what is held for a run whose draw waits ------------------------------------------------------------------


def drawing_for_younger(activation: int) -> tuple[History, Intent, Reserved]:
    """elder was promised a-0 from 2h on. younger, who was promised a start after it, is Active since 1h on the same
    node; its draw waits, or (2) that is an older one's, and what it has now was made for it without."""
    younger, claim = OTHERS["younger"], plan("1h", "a-0:8", until="2h")
    history = starts(fleet(), "aged", "a-3:0-7").add(*drawing.published())
    waiting(plan("2h", "a-0:8"), history, turn=1).add(PutRun(object=younger)).at("1h")
    token = Token(id="rai/aged", owner=SYS, gpus=8)
    intent = drawing.intent("younger", token, at=history.now, namespace="rai", uid="r-younger")
    active = reserved(claim, younger, state="Active", turn=2, activated=history.now, activation=activation)
    return history.add(Froze(trigger="Activation", intent=intent), active), intent, active


@pytest.mark.parametrize(("activation", "blamed"), [(1, False), (2, True)], ids=["its draw", "an older draw"])
def test_only_the_draw_of_this_activation_keeps_nothing_held(activation: int, blamed: bool) -> None:
    """elder, who was promised a start before, takes what is held for younger. While younger's draw waits nobody has
    given way for it; a draw that was left over from before says nothing about what was freed since (SPEC 7)."""
    history, _, _ = drawing_for_younger(activation)
    history.at("90m").started(ELDER, [lease(ELDER, "a-0:0-7", at=history.now)], [pod(ELDER, "a-0:0-7", rank=0)])
    released = reserved(plan("2h", "a-0:8"), ELDER, turn=1, state="Released", reason="Released")
    assert said(opened_with(history, after=(released,)), "taken by") is blamed


def test_a_draw_that_is_frozen_afterwards_excuses_nobody() -> None:
    """younger is Active, without a draw; the entry that lets elder take of it freezes one for the next activation."""
    younger, claim = OTHERS["younger"], plan("1h", "a-0:8", until="2h")
    history = starts(fleet(), "aged", "a-3:0-7").add(*drawing.published())
    waiting(plan("2h", "a-0:8"), history, turn=1).add(PutRun(object=younger)).at("1h")
    history.add(reserved(claim, younger, state="Active", turn=2, activated=history.now, activation=1)).at("90m")
    history.started(ELDER, [lease(ELDER, "a-0:0-7", at=history.now)], [pod(ELDER, "a-0:0-7", rank=0)])
    token = Token(id="rai/aged", owner=SYS, gpus=8)
    intent = drawing.intent("younger", token, at=history.now, namespace="rai", uid="r-younger", activation=2)
    released = reserved(plan("2h", "a-0:8"), ELDER, turn=1, state="Released", reason="Released")
    assert said(opened_with(history, after=(released, Froze(trigger="Activation", intent=intent))), "taken by")


@pytest.mark.parametrize(("over", "blamed"), [("2h", True), ("110m", False)], ids=["just now", "before"])
def test_a_draw_that_is_over_only_now_held_nothing_until_now(over: str, blamed: bool) -> None:
    """The reveal comes, and the very entry starts younger where elder was to start, and moves elder: until then nothing
    was held for younger, and elder came first."""
    history, intent, active = drawing_for_younger(1)
    record = Resolved(trigger="Activation", subject="Reservation/rai/younger", activation=1, cuts=(), intent=intent,
                      result=drawing.result(intent))  # fmt: skip
    if over != "2h":
        history.at(over).add(record)
    starts(history.at("2h"), "younger", "a-0:0-7", duration="1h")
    released = replace(active.reservation, state="Released", reason="Released")
    before = (record,) if over == "2h" else ()
    later = again(plan("3h", "a-0:8"), plan("2h", "a-0:8"), turn=1)
    opened_with(history, before=(*before, later), after=(Reserved(reservation=released),))
    assert said(history, "is delayed") is blamed


def test_what_is_held_for_a_run_is_no_excuse_for_its_own_start() -> None:
    """elder is Active, and younger, who overstays, was not asked to leave: elder is only put off, and stays Active."""
    promise = plan("2h", "a-0:8")
    history = starts(waiting(promise), "younger", "a-0:0-7", duration="1h").at("2h")
    history.add(reserved(promise, ELDER, state="Active", activated=history.now)).at("150m")
    later = again(plan("3h", "a-0:8"), promise, state="Active", activated=time("2h"))
    assert said(history.add(later), "delayed by work")


@pytest.mark.parametrize("reason", ["", "DrawWaits"])
def test_another_ones_draw_is_waited_for_only_where_the_record_says_so(reason: str) -> None:
    """elder's start is past, and somebody else's draw waits: one bad reservation never holds up another (SPEC 7)."""
    history, _, _ = drawing_for_younger(1)
    history.at("2h").add(reserved(plan("2h", "a-0:8"), ELDER, turn=1, reason=reason))
    found = [item for item in faults(history, now=time("2h") + LATE + 1, settled=True) if "neither" in item.message]
    assert [item.object for item in found] == ([] if reason else ["Reservation/rai/elder"])
