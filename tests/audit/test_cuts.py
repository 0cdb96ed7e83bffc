"""I9 and I12: a cut that its record explains passes; each way in which it might not is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.api.policy import Policy
from tenure.api.run import Malleable, Run
from tenure.audit import Auditor, check_all
from tenure.audit.redraw import redrawn
from tenure.draw import Intent, Token
from tenure.engine.lottery import draws
from tenure.facts import (
    Cleared,
    Closed,
    Cut,
    Ending,
    Entry,
    Fact,
    Froze,
    Lease,
    Opened,
    Published,
    PutBudget,
    PutNode,
    PutPolicy,
    PutRun,
    Resolved,
    decode_entry,
    encode_entry,
    entry_hash,
)
from tests.audit import drawing
from tests.audit.builders import (
    FENCED,
    NLP,
    SYS,
    T0,
    History,
    budget,
    chained,
    envelope,
    lease,
    node,
    pod,
    run,
    time,
)
from tests.audit.promises import plan, reserved

OWN_NLP = ("nlp", NLP, "owned")
ELDER = run("elder", 8)
RUNS = [run("one", 8), run("two", 8), run("three", 8, owner=NLP)]
FLEXIBLE = run("flexible", 8, malleable=(4, 8, 4))
KEEPER = run("keeper", 4, group=4, spares=4)


def names(history: History, *, settled: bool = False) -> list[str]:
    found = check_all(history.entries, now=history.now, settled=settled)
    return sorted({item.invariant.split("-")[0] for item in found})


def place(of: Run, where: str, **other: Any) -> Lease:
    return lease(of, where, at=T0, paid=OWN_NLP if of.spec.owner == NLP else ("sys", SYS, "owned"), **other)


HELD = {one.metadata.name: place(one, f"a-{index}:0-7") for index, one in enumerate(RUNS)}
PARTS = [place(FLEXIBLE, "a-3:0-3"), place(FLEXIBLE, "a-3:4-7", group=1)]
ACTIVE, SPARE = place(KEEPER, "a-4:0-3"), place(KEEPER, "a-5:0-3", role="Spare")


def full() -> History:
    """Domain A is full: three runs of two owners, an elastic one, one with a spare. An hour later elder is due."""
    history = History().fleet(*(node(f"a-{index}") for index in range(6)), node("b-0"))
    history.budgets(budget("sys", SYS), budget("nlp", NLP)).add(*drawing.published())
    for index, one in enumerate(RUNS):
        history.started(one, [HELD[one.metadata.name]], [pod(one, f"a-{index}:0-7", rank=0)])
    pods = [pod(FLEXIBLE, "a-3:0-3", rank=0), pod(FLEXIBLE, "a-3:4-7", rank=1, group=1)]
    history.started(FLEXIBLE, PARTS, pods)
    history.started(KEEPER, [ACTIVE, SPARE], [pod(KEEPER, "a-4:0-3", rank=0)])
    history.add(PutRun(object=ELDER), reserved(plan("1h", "a-0:8"), ELDER, confidence="conservative"))
    return history.at("1h").add(reserved(plan("1h", "a-0:8"), ELDER, confidence="conservative", state="Active"))


TOKENS = (
    *(Token(id=f"rai/{one.metadata.name}", owner=one.spec.owner, gpus=8) for one in RUNS),
    Token(id="rai/flexible", owner=SYS, gpus=4),
    Token(id="rai/keeper", owner=SYS, gpus=4),
)
SUBJECT = "Reservation/rai/elder"


def frozen(*, at: str = "1h", tokens: tuple[Token, ...] = TOKENS, **other: Any) -> Intent:
    return drawing.intent("elder", *tokens, at=time(at), namespace="rai", uid="r-elder", **other)


def end(one: Lease, reason: str, pods: tuple[str, ...] = ()) -> Ending:
    return Ending(namespace="rai", run=one.run, leases=(one.name,), pods=pods, reason=reason)


def cut(kind: Any, *leases: Lease) -> Cut:
    one = leases[0]
    gpus = sum(len(item.gpus) for item in leases)
    return Cut(kind=kind, run=one.run_key, owner=one.owner, gpus=gpus, leases=tuple(item.name for item in leases))


DROPPED, SHED = cut("DropSpare", SPARE), cut("Shrink", PARTS[1])


def drawn(intent: Intent) -> list[Lease]:
    """The leases of the run that is drawn first."""
    first = drawing.result(intent).order[0].removeprefix("rai/")
    return [HELD[first]] if first in HELD else PARTS[:1] if first == "flexible" else [ACTIVE]


def cutting(history: History, intent: Intent | None = None) -> list[Fact]:
    """The entry that cuts: a spare, a step of the elastic run, and one run by lot."""
    intent = intent or frozen()
    result, victims = drawing.result(intent), drawn(intent)
    seed, name = f"RandomPreempt({result.seed})", victims[0].run
    return [
        end(SPARE, "DropSpare"),
        Closed(namespace="rai", leases=(SPARE.name,), end=history.now, reason="DropSpare"),
        end(PARTS[1], "Shrink", ("flexible-a1-1",)),
        *(end(one, seed, (f"{name}-a1-0",)) for one in victims),
        history.moved(name, phase="Stopping"),
        Resolved(
            trigger="Activation",
            subject=SUBJECT,
            activation=1,
            cuts=(DROPPED, SHED, cut("Lottery", *victims)),
            deficit=8,
            intent=intent,
            result=result,
        ),
    ]


def resolved(**changes: Any) -> Callable[[list[Fact]], list[Fact]]:
    """Another record of the same cuts."""
    return lambda facts: [replace(fact, **changes) if isinstance(fact, Resolved) else fact for fact in facts]


def with_result(**changes: Any) -> Callable[[list[Fact]], list[Fact]]:
    return resolved(result=replace(drawing.result(frozen()), **changes))


def without(reason: str) -> Callable[[list[Fact]], list[Fact]]:
    """The record stands, and the deed is missing."""
    return lambda facts: [fact for fact in facts if not getattr(fact, "reason", "").startswith(reason)]


def history_of(mutate: Callable[[list[Fact]], list[Fact]] = lambda facts: facts) -> History:
    history = full().add(Froze(trigger="Activation", intent=frozen())).at("61m")
    return history.add(*mutate(cutting(history)))


FIRST = drawn(frozen())[0]
LOTTERY = cut("Lottery", FIRST)
OTHER = next(one for name, one in HELD.items() if name != FIRST.run)
GOOD = drawing.result(frozen())


def test_a_cut_with_its_record_passes() -> None:
    assert names(history_of()) == []


def test_spares_and_steps_need_no_draw() -> None:
    history = full()
    facts = [fact for fact in cutting(history)[:3] if not isinstance(fact, Resolved)]
    record = Resolved(trigger="Activation", subject=SUBJECT, activation=1, cuts=(DROPPED, SHED))
    assert names(history.add(*facts, record)) == []


def test_the_engine_and_the_auditor_draw_alike() -> None:
    assert redrawn(TOKENS, bytes.fromhex(GOOD.seed)) == GOOD.order


@given(st.binary(min_size=32, max_size=32), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 40))))
def test_any_pool_is_drawn_alike(seed: bytes, pool: list[tuple[str, int]]) -> None:
    tokens = [Token(id=f"ns/{number}", owner=owner, gpus=1) for owner, number in {n: (o, n) for o, n in pool}.values()]
    assert redrawn(tokens, seed) == tuple(draws(tokens, seed))


LIES: dict[str, Callable[[list[Fact]], list[Fact]]] = {
    "no record": lambda facts: [fact for fact in facts if not isinstance(fact, Resolved)],
    "a record without the spare": resolved(cuts=(SHED, LOTTERY)),
    "a record without the step": resolved(cuts=(DROPPED, LOTTERY)),
    "a record without the run": resolved(cuts=(DROPPED, SHED)),
    "a spare that was not dropped": without("DropSpare"),
    "a step that was not taken": without("Shrink"),
    "a run that was not ended": without("RandomPreempt"),
    "the lottery before the spares": resolved(cuts=(LOTTERY, DROPPED, SHED)),
    "the step before the spare": resolved(cuts=(SHED, DROPPED, LOTTERY)),
    "an overstayer after the spare": resolved(cuts=(DROPPED, replace(DROPPED, kind="Overstay"), SHED, LOTTERY)),
    "a spare called a step": resolved(cuts=(replace(DROPPED, kind="Shrink"), SHED, LOTTERY)),
    "somebody else's lease": resolved(cuts=(DROPPED, SHED, replace(LOTTERY, owner="org:x"))),
    "more GPUs than it had": resolved(cuts=(DROPPED, SHED, replace(LOTTERY, gpus=99))),
    "no GPUs": resolved(cuts=(DROPPED, replace(SHED, gpus=0), LOTTERY)),
    "a run that was not drawn first": lambda facts: resolved(cuts=(DROPPED, SHED, cut("Lottery", OTHER)))(
        [
            end(OTHER, fact.reason) if isinstance(fact, Ending) and fact.reason.startswith("Random") else fact
            for fact in facts
        ]
    ),
    "another seed in the closure": lambda facts: [
        replace(fact, reason="RandomPreempt(9f)")
        if isinstance(fact, Ending) and fact.reason.startswith("Random")
        else fact
        for fact in facts
    ],
    "another seed": with_result(seed="0" * 64),
    "another order": with_result(order=tuple(reversed(GOOD.order))),
    "an order that lacks one": with_result(order=GOOD.order[:-1]),
    "another commit": with_result(commit="0" * 64),
    "a reveal of another chain": with_result(reveals={"operator": "0" * 64}),
    "a reveal that is no hex": with_result(reveals={"operator": "soon"}),
    "no reveal": with_result(reveals={}),
    "a reveal of a stranger": with_result(reveals={**GOOD.reveals, "stranger": "0" * 64}),
    "no intent": resolved(intent=None),
    "no result": resolved(result=None),
    "another intent than was frozen": resolved(intent=frozen(deficit=9)),
    "another subject": resolved(subject="Budget/sys/west"),
    "another activation": resolved(activation=2),
    "the record twice": lambda facts: [*facts, facts[-1]],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_about_a_cut_is_noticed(lie: Callable[[list[Fact]], list[Fact]]) -> None:
    assert "I9" in names(history_of(lie))


@pytest.mark.parametrize(("where", "blamed"), [("b-0:0-3", False), ("a-5:4-7", True)])
def test_who_was_drawn_first_is_passed_over_only_if_it_has_nothing_there_any_more(where: str, blamed: bool) -> None:
    """flexible is drawn first. Since the freeze it has grown, out of the way of elder or not, and gives up all that it
    had then, before anybody goes by lot: one, the next in the order."""
    assert GOOD.order[:2] == ("rai/flexible", "rai/one")
    history = full().add(Froze(trigger="Activation", intent=frozen()))
    grown = lease(FLEXIBLE, where, at=history.now, group=2, reason="Grow")
    history.add(Opened(lease=grown)).at("61m")
    shed = [end(part, "Shrink", (f"flexible-a1-{rank}",)) for rank, part in enumerate(PARTS)]
    lost = end(HELD["one"], f"RandomPreempt({GOOD.seed})", ("one-a1-0",))
    cuts = (DROPPED, SHED, cut("Shrink", PARTS[0]), cut("Lottery", HELD["one"]))
    history.add(
        *cutting(history)[:2],
        *shed,
        lost,
        history.moved("one", phase="Stopping"),
        *resolved(cuts=cuts)(cutting(history)[-1:]),
    )
    found = {item.message for item in check_all(history.entries, now=history.now) if item.invariant.startswith("I9")}
    assert found == ({"cuts others than were drawn first"} if blamed else set())


def test_only_spares_are_dropped() -> None:
    history = full()
    record = Resolved(trigger="Operator", subject=SUBJECT, activation=1, cuts=(cut("DropSpare", ACTIVE),))
    assert "I9" in names(history.add(end(ACTIVE, "DropSpare"), record))


@pytest.mark.parametrize("kind", ["Lottery", "Overstay"])
def test_who_is_drawn_or_overstays_ends_whole(kind: str) -> None:
    intent = frozen(tokens=(Token(id="rai/keeper", owner=SYS, gpus=4),))
    result = drawing.result(intent)
    closure = f"RandomPreempt({result.seed})" if kind == "Lottery" else "Overstay"
    for leases, expected in (([ACTIVE], True), ([ACTIVE, SPARE], False)):
        history = full().add(Froze(trigger="Activation", intent=intent)).at("61m")
        # The others are left out of this draw: that is not what this test is about.
        record = Resolved(trigger="Activation", subject=SUBJECT, activation=1, cuts=(cut(kind, *leases),))
        record = replace(record, intent=intent, result=result) if kind == "Lottery" else record
        history.add(*(end(one, closure) for one in leases), history.moved("keeper", phase="Stopping"), record)
        found = check_all(history.entries, now=history.now)
        assert any("in part" in item.message for item in found) is expected


# --- the freeze ---------------------------------------------------------------------------------------------


def freeze_faults(intent: Intent, *before: Fact) -> list[str]:
    return names(full().add(*before, Froze(trigger="Activation", intent=intent)))


FREEZES: dict[str, tuple[str, Intent]] = {
    "an owner that is not the run's": ("I9", frozen(tokens=(replace(TOKENS[0], owner=NLP), *TOKENS[1:]))),
    "more GPUs than it holds": ("I9", frozen(tokens=(replace(TOKENS[0], gpus=9), *TOKENS[1:]))),
    "a run that is not there": ("I9", frozen(tokens=(*TOKENS, Token(id="rai/ghost", owner=SYS, gpus=8)))),
    "the one that waits": ("I9", frozen(tokens=(*TOKENS, Token(id="rai/elder", owner=SYS, gpus=8)))),
    "tokens out of order": ("I9", replace(frozen(), tokens=tuple(reversed(frozen().tokens)))),
    "a token twice": ("I9", replace(frozen(), tokens=(frozen().tokens[0], *frozen().tokens))),
    "another version": ("I9", replace(frozen(), version="rq-draw/0")),
    "another instant": ("I9", frozen(at="59m")),
    "no beacon": ("I9", replace(frozen(), beacons=())),
    "a beacon twice": ("I9", replace(frozen(), beacons=frozen().beacons * 2)),
    "a beacon that nobody published": ("I9", replace(frozen(), beacons=(replace(drawing.beacon(), id="mine"),))),
    "an index that is not the next": ("I9", frozen(index=2)),
    "a value of another chain": ("I9", replace(frozen(), beacons=(replace(drawing.beacon(), previous="0" * 64),))),
}


@pytest.mark.parametrize(("rule", "intent"), FREEZES.values(), ids=FREEZES.keys())
def test_a_lie_at_the_freeze_is_noticed(rule: str, intent: Intent) -> None:
    assert freeze_faults(frozen()) == []
    assert rule in freeze_faults(intent)


def test_every_published_beacon_is_of_every_draw() -> None:
    assert freeze_faults(frozen(), Published(beacon="auditor", root="0" * 64)) == ["I9"]


def test_a_run_that_has_not_run_for_the_lead_is_in_no_draw() -> None:
    assert freeze_faults(frozen(), PutPolicy(policy=Policy(activation_lead="61m"))) == ["I12"]
    assert freeze_faults(frozen(), PutPolicy(policy=Policy(activation_lead="1h"))) == []


def test_nobody_is_left_out_unnoticed() -> None:
    for absent in TOKENS:
        intent = frozen(tokens=tuple(token for token in TOKENS if token is not absent))
        history = full().add(Froze(trigger="Activation", intent=intent)).at("61m")
        found = check_all(history.add(*cutting(history, intent)).entries, now=history.now)
        assert [item.message for item in found] == [f"left {absent.id} out of the draw"]


def test_who_lost_all_it_had_in_scope_by_other_steps_is_no_token() -> None:
    """flexible lies with its second group in B: that is all that is in scope, and it is shed."""
    history = full()
    intent = drawing.intent("sys/east", *TOKENS[:0], at=history.now)
    both = budget("sys", SYS, envelope(), envelope("east"))
    moved = replace(PARTS[1], name="moved", start=history.now, envelope="east", reason="Refund")
    history.add(
        PutBudget(object=both),
        Closed(namespace="rai", leases=(PARTS[1].name,), end=history.now, reason="Refund"),
        Opened(lease=moved),
    )
    history.add(Froze(trigger="Shortage", intent=intent)).at("61m")
    record = Resolved(
        trigger="Shortage", subject="Budget/sys/east", activation=1, cuts=(cut("Shrink", moved),), intent=intent,
        result=drawing.result(intent),
    )  # fmt: skip
    assert names(history.add(end(moved, "Shrink", ("flexible-a1-1",)), record)) == []


def test_the_scope_is_what_the_envelope_or_the_domain_has() -> None:
    of_nlp = drawing.intent("nlp/west", TOKENS[2], at=time("1h"))
    assert freeze_faults(of_nlp) == []
    assert freeze_faults(drawing.intent("nlp/west", TOKENS[0], at=time("1h"))) == ["I9"]
    history = full()
    elsewhere = run("elsewhere", 8)
    history.entries.insert(2, Entry(seq=0, at=T0, cause="by hand", facts=(PutRun(object=elsewhere),), prev=""))
    far = lease(elsewhere, "b-0:0-7", at=T0)
    started = History().started(elsewhere, [far], [pod(elsewhere, "b-0:0-7", rank=0)]).entries
    history.entries[3:4] = [history.entries[3], *started]
    history.entries = [replace(entry, seq=number) for number, entry in enumerate(history.entries, 1)]
    strange = frozen(tokens=(*TOKENS, Token(id="rai/elsewhere", owner=SYS, gpus=8)))
    assert names(history.add(Froze(trigger="Activation", intent=strange))) == ["I9"]


@pytest.mark.parametrize(("first", "expected"), [("freeze", []), ("move", ["I9"])])
def test_regression_what_is_promised_after_the_freeze_takes_nobody_out_of_the_draw(
    first: str, expected: list[str]
) -> None:
    """The tokens are a function of the ledger at the freeze (SPEC 8); the same entry may then move an earlier promise
    onto a node where one of them is. One that was moved there before is to be left alone."""
    aged, slot = run("aged", 8), plan("1h", "a-0:8", until="3h")
    history = full().add(
        PutRun(object=aged), reserved(plan("5h", "a-0:8"), aged, confidence="conservative"),
        reserved(slot, ELDER, confidence="conservative", state="Active", promise=plan("1h", "a-0:8")),
    )  # fmt: skip
    nearer = reserved(plan("2h", "a-1:8"), aged, confidence="conservative", promise=plan("5h", "a-0:8"))
    facts: list[Fact] = [Froze(trigger="Activation", intent=frozen()), nearer]
    assert names(history.add(*(facts if first == "freeze" else reversed(facts)))) == expected


def test_the_head_of_the_ledger_is_frozen_with_the_draw() -> None:
    for right in (True, False):
        bodies = chained(full().entries)
        head = entry_hash(bodies[-1])
        last = decode_entry(bodies[-1])
        froze = Froze(trigger="Activation", intent=frozen(head=head if right else "0" * 64))
        entry = Entry(seq=last.seq + 1, at=last.at, cause="by hand", facts=(froze,), prev=head)
        auditor = Auditor()
        found = [item for body in [*bodies, encode_entry(entry)] for item in auditor.feed_raw(body)]
        assert (found == []) is right


def test_a_draw_is_frozen_by_an_earlier_entry_and_once() -> None:
    history = full().at("1h")
    assert names(history.add(Froze(trigger="Activation", intent=frozen()), *cutting(history))) == ["I9"]
    again = Froze(trigger="Activation", intent=frozen())
    assert names(full().add(again).add(again)) == ["I9"]
    assert "I9" in names(history_of().add(again))


def test_the_next_draw_goes_on_along_the_chain() -> None:
    for index, expected in ((2, []), (1, ["I9"])):
        history = history_of()
        tokens = tuple(token for token in TOKENS if token.id != FIRST.run_key)
        history.add(Froze(trigger="Activation", intent=frozen(at="61m", tokens=tokens, index=index, activation=2)))
        assert names(history) == expected


# --- cuts that have other causes ----------------------------------------------------------------------------


def test_a_step_that_the_owner_wished_for_needs_no_record() -> None:
    wish = Malleable(min_total_gpus=4, max_total_gpus=8, step_gpus=4, desired_total_gpus=4)
    wished = replace(FLEXIBLE, spec=replace(FLEXIBLE.spec, malleable=wish))
    shed = end(PARTS[1], "Shrink", ("flexible-a1-1",))
    assert names(full().add(PutRun(object=wished), shed)) == []
    assert names(full().add(shed)) == ["I9"]


def test_a_step_after_a_failure_needs_no_record() -> None:
    wide = run("wide", 32, malleable=(16, 32, 16))
    places = [("a-0:0-7", 0), ("a-1:0-7", 0), ("a-2:0-7", 1), ("a-3:0-7", 1)]
    for failed, expected in ((True, []), (False, ["I9"])):
        history = History().fleet(*(node(f"a-{index}") for index in range(4))).budgets(budget("sys", SYS))
        leases = [lease(wide, where, at=T0, group=group) for where, group in places]
        pods = [pod(wide, where, rank=rank, group=group) for rank, (where, group) in enumerate(places)]
        history.started(wide, leases, pods).at("1h")
        lost: list[Fact] = [
            PutNode(object=node("a-3", taints=(FENCED,))),
            Closed(namespace="rai", leases=(leases[3].name,), end=history.now, reason="NodeFailure"),
            Cleared(namespace="rai", pods=("wide-a1-3",)),
        ]
        shed: list[Fact] = [end(leases[2], "Shrink", ("wide-a1-2",)), end(leases[3], "Shrink", ("wide-a1-3",))]
        assert names(history.add(*(lost + shed[:1] if failed else shed))) == expected


GUEST = run("guest", 4, owner=NLP)
SEAT = lease(GUEST, "a-5:0-3", at=T0, role="Borrowed", paid=OWN_NLP)


def with_guest() -> History:
    """The same, and guest sits on keeper's spare."""
    history = full()
    seated = History().started(GUEST, [SEAT], [pod(GUEST, "a-5:0-3", rank=0)]).entries
    entries = [*history.entries[:-2], *seated, *history.entries[-2:]]
    history.entries = [replace(entry, seq=number) for number, entry in enumerate(entries, 1)]
    history.moved("guest", phase="Running", attempt=1, admitted=True)
    return history


def test_a_guest_gives_way_to_a_spare_that_takes_over_or_by_a_record() -> None:
    record = Resolved(trigger="Activation", subject=SUBJECT, activation=1, cuts=(cut("Reclaim", SEAT),))
    for facts, expected in (([], ["I9"]), ([record], [])):
        history = with_guest()
        history.add(
            Closed(namespace="rai", leases=(SEAT.name,), end=time("1h"), reason="ReclaimedBySpare"),
            Ending(namespace="rai", run="guest", leases=(), pods=("guest-a1-0",), reason="ReclaimedBySpare"),
            history.moved("guest", phase="Stopping"),
            *facts,
        )
        assert names(history) == expected


@pytest.mark.parametrize(("reason", "expected"), [("Overstay", []), ("DropSpare", ["I5", "I9"])])
def test_a_guest_that_was_cut_may_change_hands_on_its_way_out(reason: str, expected: list[str]) -> None:
    """Before it has left, the spare under it ends, and its lease goes on as an Active one, which is to end as well."""
    history = with_guest()
    record = Resolved(trigger="Activation", subject=SUBJECT, activation=1, cuts=(cut("Overstay", SEAT),))
    history.add(end(SEAT, "Overstay", ("guest-a1-0",)), history.moved("guest", phase="Stopping"), record).at("61m")
    again = replace(lease(GUEST, "a-5:0-3", at=history.now, paid=OWN_NLP, reason="Refund"), name="again")
    history.add(
        end(SPARE, "Canceled"),
        end(ACTIVE, "Canceled", ("keeper-a1-0",)),
        history.moved("keeper", phase="Stopping"),
        Closed(namespace="rai", leases=(SPARE.name,), end=history.now, reason="Canceled"),
        Closed(namespace="rai", leases=(SEAT.name,), end=history.now, reason="Refund"),
        Opened(lease=again),
        end(again, reason),
    )
    assert names(history.at("62m").add(*left(history, again))) == expected


def left(history: History, again: Lease) -> list[Fact]:
    return [
        Cleared(namespace="rai", pods=("guest-a1-0",)),
        Closed(namespace="rai", leases=(again.name,), end=history.now, reason="Overstay"),
        history.moved("guest", phase="Failed"),
    ]


def test_a_reservation_of_a_run_that_was_cut_cuts_nobody() -> None:
    history = full()
    history.add(history.moved("elder", cut=True)).add(Froze(trigger="Activation", intent=frozen())).at("61m")
    assert names(history.add(*cutting(history))) == ["I12"]


def test_a_run_that_started_anew_after_the_freeze_is_not_cut() -> None:
    history = full().add(Froze(trigger="Activation", intent=frozen()))
    name = FIRST.run
    life = [history.moved(name, phase="Starting"), history.moved(name, phase="Running")]
    history.at("61m").add(life[0]).add(life[1])
    assert names(history.add(*cutting(history))) == ["I12"]
