"""The round: nothing is lost, order is kept for each object, and nothing holds up the rest for ever."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.embedded.metered import receivers
from tenure.facts import PutBudget, PutRun
from tenure.ledger import Ledger, LedgerRefused
from tenure.notify import Outbox
from tenure.notify.deliver import LAZY, PAGE, SENDS_PER_TURN, Courier
from tenure.notify.progress import ISOLATE_EVERY, LAG_COUNT_MAX, Answer, Away, Declined, Delivered
from tenure.testing import budget, run
from tenure.units import MINUTE, SECOND
from tests.cli.support import call
from tests.notify.support import NOW, PACE, Post, courier, noted, order_kept, receiver, rounds, tell

DOWN = Away(why="connection refused")
NO = Declined(why="answered 422", final=True)
OOPS = Declined(why="answered 500", final=False)


def refusing(*messages: str, answer: Answer = NO) -> Any:
    return lambda event: answer if event["data"]["message"] in messages else Delivered()


# --- the stream -------------------------------------------------------------------------------------------------


def test_every_note_is_sent_once_in_the_order_of_the_ledger(ledger: Ledger) -> None:
    tell(ledger, "a1", "b1")
    tell(ledger, "a2")
    post = Post()
    man = courier(ledger, receiver(), post)
    assert man.turn(NOW) is None
    tell(ledger, "b2")
    assert man.turn(NOW) is None
    assert man.turn(NOW) is None
    assert post.taken == ["a1", "b1", "a2", "b2"]
    assert len(set(post.ids)) == 4


def test_a_new_receiver_begins_now_unless_it_asks_for_history(ledger: Ledger) -> None:
    tell(ledger, "a1")
    late, early = Post(), Post()
    couriers = [
        courier(ledger, receiver(name="late", history=False), late),
        courier(ledger, receiver(name="early", history=True), early),
    ]
    tell(ledger, "a2")
    for man in couriers:
        man.turn(NOW)
    assert (late.taken, early.taken) == (["a2"], ["a1", "a2"])


def test_a_receiver_goes_on_where_it_was_after_a_restart(ledger: Ledger) -> None:
    post = Post()
    courier(ledger, receiver(history=False), post).turn(NOW)
    tell(ledger, "a1")
    courier(ledger, receiver(history=False), post).turn(NOW)
    tell(ledger, "a2")
    courier(ledger, receiver(history=False), post).turn(NOW)
    assert post.taken == ["a1", "a2"]


def test_ten_thousand_notes_cost_a_bounded_amount_a_turn(ledger: Ledger) -> None:
    for start in range(0, 10_000, 500):
        tell(ledger, *(noted(f"Run/rai/r{number % 97}", f"m{number}") for number in range(start, start + 500)))
    post = Post()
    man = courier(ledger, receiver(), post)
    read = Counter[str]()
    letters = man.outbox.letters

    def counted(**asked: Any) -> Any:
        page = letters(**asked)
        read["most"] = max(read["most"], len(page))
        return page

    man.outbox.letters = counted  # type: ignore[method-assign]
    wake, turns, now = man.turn(NOW), 1, NOW
    while wake is not None:
        assert wake == now
        assert len(post.taken) <= turns * SENDS_PER_TURN
        wake, turns = man.turn(now), turns + 1
    assert post.taken == [f"m{number}" for number in range(10_000)]
    assert read["most"] <= PAGE
    assert ledger.commits <= 20 + turns + 2


def test_notes_that_nobody_wants_are_skipped_without_a_commit_each(ledger: Ledger) -> None:
    man = courier(ledger, receiver(kinds=("Failed",)), Post())
    for number in range(20):
        tell(ledger, f"a{number}")
        before = ledger.commits
        assert man.turn(NOW) == NOW + LAZY or number == 0
        assert ledger.commits - before == (number == 0)
    before = ledger.commits
    assert man.turn(NOW + LAZY) is None
    assert ledger.commits == before + 1
    assert Outbox(ledger).states()[0].behind == 0


# --- the receiver is away ---------------------------------------------------------------------------------------


def test_a_receiver_that_is_away_gets_everything_when_it_is_back(ledger: Ledger) -> None:
    told = [f"{name}{number}" for number in range(5) for name in "abc"]
    for message in told:
        tell(ledger, message)
    back = False
    post = Post(lambda _: Delivered() if back else DOWN)
    man = courier(ledger, receiver(), post)
    now = rounds(man, now=NOW, until=NOW + 2 * MINUTE)
    assert post.taken == []
    back = True
    rounds(man, now=now, until=now + 2 * MINUTE)
    assert sorted(post.taken) == sorted(told)
    assert order_kept(post.taken, told=told)


def test_a_receiver_that_is_away_is_asked_ever_more_rarely_and_one_thing_at_a_time(ledger: Ledger) -> None:
    tell(ledger, "a1", "b1", "c1")
    post = Post(lambda _: DOWN)
    man = courier(ledger, receiver(), post)
    now, waits = NOW, []
    for _ in range(9):
        asked = len(post.asked)
        wake = man.turn(now)
        assert wake is not None
        assert len(post.asked) == asked + 1
        assert man.turn(wake - 1) == wake, "not a microsecond too early"
        waits.append((wake - now) // SECOND)
        now = wake
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_retry_after_is_honoured_and_has_an_end(ledger: Ledger) -> None:
    tell(ledger, "a1")
    for asked, given in ((120 * SECOND, 120 * SECOND), (10**15, 24 * 60 * MINUTE)):
        man = courier(
            ledger, receiver(name=f"r{asked}"), Post(lambda _, asked=asked: Away(why="503", retry_after=asked))
        )
        assert man.turn(NOW) == NOW + given


def test_an_event_that_brings_the_receiver_down_does_not_keep_it_from_the_others(ledger: Ledger) -> None:
    tell(ledger, "a1", "b1", "a2", "b2")
    post = Post(refusing("a1", answer=DOWN))
    man = courier(ledger, receiver(), post)
    rounds(man, now=NOW, until=NOW + 40 * SECOND)
    assert post.asked[:ISOLATE_EVERY] == ["a1"] * ISOLATE_EVERY
    assert post.taken == ["b1", "b2"]


def test_a_file_that_cannot_be_written_keeps_the_order_of_everything(ledger: Ledger) -> None:
    told = [f"{name}{number}" for number in range(5) for name in "abc"]
    tell(ledger, *told)
    answers = iter([DOWN] * (3 * ISOLATE_EVERY))
    post = Post(lambda _: next(answers, Delivered()), width=4)
    rounds(courier(ledger, receiver(pace=replace(PACE, isolates=False)), post), now=NOW, until=NOW + 60 * MINUTE)
    assert post.taken == told


# --- one object's event is not taken ----------------------------------------------------------------------------


def test_no_later_event_of_an_object_passes_one_that_failed_and_other_objects_go_on(ledger: Ledger) -> None:
    tell(ledger, "a1", "b1", "a2", "b2")
    post = Post(refusing("a1", answer=OOPS))
    man = courier(ledger, receiver(), post)
    now = rounds(man, now=NOW, until=NOW + 30 * SECOND)
    tell(ledger, "a3", "b3")
    now = rounds(man, now=now, until=now + 30 * SECOND)
    assert post.taken == ["b1", "b2", "b3"]
    assert set(post.asked) == {"a1", "b1", "b2", "b3"}
    post.script = lambda _: Delivered()
    rounds(man, now=now, until=now + 2 * MINUTE)
    assert post.taken == ["b1", "b2", "b3", "a1", "a2", "a3"]
    assert man.progress.lags == ()


def test_an_object_that_lags_still_lags_after_a_restart(ledger: Ledger) -> None:
    tell(ledger, "a1", "a2", "b1")
    post = Post(refusing("a1", answer=OOPS))
    courier(ledger, receiver(), post).turn(NOW)
    assert post.taken == ["b1"]
    post.script = lambda _: Delivered()
    rounds(courier(ledger, receiver(), post), now=NOW, until=NOW + MINUTE)
    assert post.taken == ["b1", "a1", "a2"]


def test_what_fails_on_our_receivers_side_is_tried_for_ever(ledger: Ledger) -> None:
    tell(ledger, "a1")
    post = Post(refusing("a1", answer=OOPS))
    man = courier(ledger, receiver(), post)
    rounds(man, now=NOW, until=NOW + 60 * MINUTE)
    assert len(post.asked) > 60
    assert Outbox(ledger).states()[0].dead == 0


def test_an_event_refused_often_enough_is_a_dead_letter_and_its_object_goes_on(ledger: Ledger) -> None:
    tell(ledger, "a1", "a2", "b1")
    post = Post(refusing("a1"))
    said: list[str] = []
    man = courier(ledger, receiver(), post, report=said.append)
    rounds(man, now=NOW, until=NOW + MINUTE)
    assert post.asked.count("a1") == PACE.attempts == 3
    assert post.taken == ["b1", "a2"]
    [dead] = Outbox(ledger).dead_letters("hook", limit=10)
    assert (dead.object, dead.seq, dead.idx, dead.refusals, dead.why) == ("Run/rai/a", 1, 0, 3, "answered 422")
    assert Outbox(ledger).states()[0].dead == 1
    assert said == [
        "receiver hook answered 422: the event is kept, trying again",
        "receiver hook answered 422, 3 times: the event of entry 1 is a dead letter",
        "receiver hook owes no answer any more",
    ]


def test_regression_a_receiver_that_answers_500_to_everything_is_told_of_once_and_its_oldest_event_ages(
    ledger: Ledger, path: Path
) -> None:
    """It was well: no line in the log, nothing behind, nothing dead."""
    post, said = Post(lambda _: OOPS), list[str]()
    man = courier(ledger, receiver(), post, report=said.append)
    scraped = receivers(path, None, ["hook"], clock=lambda: NOW + 1 + 60 * MINUTE)
    tell(ledger, "a1", "b1", "a2")
    rounds(man, now=NOW, until=NOW + 60 * MINUTE)
    assert said == ["receiver hook answered 500: the event is kept, trying again"]
    assert ("notifier_outbox_events", ("hook",), 0.0) in scraped()
    assert ("notifier_delay_seconds", ("hook",), 3600.0) in scraped()
    assert re.search(r"^hook +lags +0 ", call("tenure", "notify", "status", str(path)).out, re.MULTILINE)

    post.script = lambda _: Delivered()
    rounds(man, now=NOW + 60 * MINUTE, until=NOW + 120 * MINUTE)
    assert said[1:] == ["receiver hook owes no answer any more"]
    assert ("notifier_delay_seconds", ("hook",), 0.0) in scraped()
    assert re.search(r"^hook +well +3 ", call("tenure", "notify", "status", str(path)).out, re.MULTILINE)


def test_only_refusals_make_a_dead_letter_not_failures_before_them(ledger: Ledger) -> None:
    tell(ledger, "a1")
    answers = iter([OOPS] * 10 + [NO] * 10)
    post = Post(lambda _: next(answers))
    rounds(courier(ledger, receiver(), post), now=NOW, until=NOW + 60 * MINUTE)
    assert len(post.asked) == 10 + PACE.attempts


def test_a_receiver_that_refuses_everything_ends_with_everything_dead_and_nothing_waiting(ledger: Ledger) -> None:
    told = [f"r{number}x" for number in range(3 * LAG_COUNT_MAX)]
    tell(ledger, *told)
    post = Post(lambda _: NO)
    man = courier(ledger, receiver(), post)
    rounds(man, now=NOW, until=NOW + 10 * MINUTE)
    assert Counter(post.asked) == dict.fromkeys(told, PACE.attempts)
    [state] = Outbox(ledger).states()
    assert (state.dead, state.behind, state.progress.lags) == (len(told), 0, ())


def test_only_so_many_objects_lag_and_then_the_rest_waits_for_them(ledger: Ledger) -> None:
    tell(ledger, *(f"r{number}x" for number in range(2 * LAG_COUNT_MAX)))
    post = Post(lambda _: OOPS)
    man = courier(ledger, receiver(), post)
    now = rounds(man, now=NOW, until=NOW + 5 * MINUTE)
    assert len(man.progress.lags) == len(set(post.asked)) == LAG_COUNT_MAX
    post.script = lambda _: Delivered()
    rounds(man, now=now, until=now + 5 * MINUTE)
    assert len(post.taken) == 2 * LAG_COUNT_MAX
    assert man.progress.lags == ()


def test_new_notes_are_not_kept_waiting_by_an_object_that_owes_many(ledger: Ledger) -> None:
    tell(ledger, *(f"a{number}" for number in range(5 * SENDS_PER_TURN)))
    post = Post(lambda _: OOPS)
    man = courier(ledger, receiver(), post)
    rounds(man, now=NOW, until=NOW)
    post.script = lambda _: Delivered()
    tell(ledger, "b0")
    rounds(man, now=NOW + MINUTE)
    assert post.taken.index("b0") <= 1
    assert order_kept(post.taken, told=[f"a{number}" for number in range(5 * SENDS_PER_TURN)])
    assert len(post.taken) == 5 * SENDS_PER_TURN + 1


# --- dead letters sent again ------------------------------------------------------------------------------------


def test_a_person_can_have_dead_letters_sent_again(ledger: Ledger) -> None:
    tell(ledger, "a1", "a2", "b1")
    post = Post(refusing("a1", "b1"))
    man = courier(ledger, receiver(), post)
    now = rounds(man, now=NOW, until=NOW + MINUTE)
    post.script = refusing("b1")
    assert Outbox(ledger).revive("hook") == 2
    asked = len(post.asked)
    rounds(man, now=now, until=now + 10 * MINUTE)
    assert post.asked[asked:] == ["a1", "b1"]
    assert post.taken == ["a2", "a1"]
    assert [dead.object for dead in Outbox(ledger).dead_letters("hook", limit=10)] == ["Run/rai/b"]


# --- filters ----------------------------------------------------------------------------------------------------


def heard(ledger: Ledger, name: str, **filters: Any) -> list[str]:
    """What a receiver with these filters gets of the whole ledger."""
    post = Post()
    rounds(courier(ledger, receiver(name=name, **filters), post), now=NOW)
    return post.taken


def test_filters_let_through_what_passes_all_of_them(ledger: Ledger) -> None:
    tell(
        ledger,
        PutRun(object=run("train", 8, namespace="rai", owner="org:ai:rai")),
        PutRun(object=run("eval", 8, namespace="mm", owner="org:ai:mm")),
        PutBudget(object=budget("rai", owner="org:ai:rai")),
        noted("Run/rai/train", "train starts", "Started"),
        noted("Run/rai/train", "train fails", "Failed"),
        noted("Run/mm/eval", "eval starts", "Started"),
        noted("Budget/rai", "80 %", "BudgetNotice"),
        noted("Node/n1", "odd labels", "Quarantined"),
    )
    assert heard(ledger, "kinds", kinds=("Failed", "BudgetNotice")) == ["train fails", "80 %"]
    assert heard(ledger, "objects", objects=("Run/rai/*", "Node/*")) == ["train starts", "train fails", "odd labels"]
    assert heard(ledger, "owners", owners=("org:ai:rai",)) == ["train starts", "train fails", "80 %"]
    assert heard(ledger, "below", owners=("org:ai:*",)) == ["train starts", "train fails", "eval starts", "80 %"]
    assert heard(ledger, "all", kinds=("Started",), objects=("Run/*",), owners=("org:ai:rai",)) == ["train starts"]
    assert len(heard(ledger, "none")) == 5


def test_the_owner_is_the_one_of_the_time_of_the_note(ledger: Ledger) -> None:
    for owner, message in (("org:a", "first"), ("org:b", "second"), ("org:b", "third")):
        tell(ledger, PutRun(object=run("train", 8, namespace="rai", owner=owner)), noted("Run/rai/train", message))
    assert heard(ledger, "a", owners=("org:a",)) == ["first"]
    assert heard(ledger, "b", owners=("org:b",)) == ["second", "third"]


def test_a_filter_that_was_changed_counts_for_what_lags_too(ledger: Ledger) -> None:
    tell(ledger, noted("Run/rai/a", "a1", "Started"), noted("Run/rai/a", "a2", "Failed"), noted("Run/rai/b", "b1"))
    post = Post(refusing("a1", "b1", answer=OOPS))
    courier(ledger, receiver(), post).turn(NOW)
    post.script = lambda _: Delivered()
    man = courier(ledger, receiver(kinds=("Failed",)), post)
    rounds(man, now=NOW + MINUTE)
    assert post.taken == ["a2"]
    assert man.progress.lags == ()


# --- the ledger refuses -----------------------------------------------------------------------------------------


def test_what_was_sent_is_not_sent_again_because_the_ledger_was_busy(ledger: Ledger, path: Path) -> None:
    tell(ledger, "a1", "a2")
    post = Post()
    with Ledger.open(path, busy_timeout=0.01) as mine:
        man = courier(mine, receiver(), post)
        with ledger.write(), pytest.raises(LedgerRefused, match="Busy"):
            man.turn(NOW)
        assert post.taken == ["a1", "a2"]
        with ledger.write(), pytest.raises(LedgerRefused, match="Busy"):
            man.turn(NOW)  # and nothing more is sent before that is saved
        tell(ledger, "a3")
        man.turn(NOW)
    assert post.taken == ["a1", "a2", "a3"]


# --- histories --------------------------------------------------------------------------------------------------


class Died(Exception):
    pass


@pytest.mark.parametrize("seed", range(8))
def test_in_random_histories_nothing_is_lost_and_order_is_kept(ledger: Ledger, seed: int) -> None:
    """Notes, failures of all kinds, and deaths between a send and its save, in any order."""
    luck = random.Random(seed)
    told: list[str] = []
    moods: list[Answer] = [Delivered(), Delivered(), DOWN, OOPS, NO]
    post = Post(lambda _: luck.choice(moods))
    now = NOW
    man = courier(ledger, receiver(), post)
    deaths = 0
    for _ in range(60):
        fresh = [
            f"{name}{len(told) + number}" for number, name in enumerate(luck.choices("abcdef", k=luck.randrange(4)))
        ]
        told += fresh
        if fresh:
            tell(ledger, *fresh)
        try:
            wake = _turn(man, now, dies=luck.random() < 0.2)
        except Died:
            man, deaths, wake = courier(ledger, receiver(), post), deaths + 1, now
        now = max(now + 1, wake or 0)
    post.script = lambda _: Delivered()
    rounds(man, now=now + 10 * MINUTE, until=now + 60 * MINUTE)
    dead = {message_at(ledger, one.seq, one.idx) for one in Outbox(ledger).dead_letters("hook", limit=1000)}
    assert deaths
    assert set(post.taken) | dead == set(told)
    assert order_kept(post.taken, told=told)
    again = Counter(post.ids).values()
    assert sum(again) - len(again) <= deaths * SENDS_PER_TURN


def message_at(ledger: Ledger, seq: int, idx: int) -> str:
    [entry] = ledger.entries(seq - 1, seq)
    fact = entry.facts[idx]
    return str(getattr(fact, "message", ""))


def _turn(man: Courier, now: int, *, dies: bool) -> int | None:
    """A turn; or one that dies after its sends and before its save."""
    if not dies:
        return man.turn(now)
    real = man.outbox.save

    def death(*_: Any, **__: Any) -> None:
        raise Died

    man.outbox.save = death  # type: ignore[method-assign]
    try:
        return man.turn(now)
    finally:
        man.outbox.save = real  # type: ignore[method-assign]
