"""Money that will run short: from its announcement on, each run that may be cut sees its odds (SPEC 3, 8)."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from tenure.api.policy import Policy
from tenure.engine import Publish, Reveal, dump, next_wake, render
from tenure.engine.odds import decimal
from tenure.engine.threats import all_limits, threats
from tenure.facts import Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import Fleet, at, budget, cap, elastic, envelope, nodes, run
from tenure.units import format_time
from tests.engine.test_shortage import change, lower

Odds = dict[str, str]


def lender(gpus: int = 64, **terms: Any) -> Any:
    """One envelope that pays for everybody."""
    return budget("l", envelope("main", gpus, lends_to=["*"], **terms), owner="org:l")


def job(name: str, gpus: int, owner: str, **more: Any) -> Any:
    return run(name, gpus, owner=f"org:{owner}", sponsors=["org:l"], **more)


def risks(fleet: Fleet) -> dict[str, tuple[float, str, str]]:
    """(probability, what from, when) of each run that has a risk."""
    shown = {key: fleet.run(key).status.risk for key in sorted(fleet.state.runs)}
    return {key: (one.cut_probability, one.envelope, one.at) for key, one in shown.items() if one is not None}


def foreseen(fleet: Fleet, name: str = "l") -> list[tuple[str, str, int, Odds]]:
    status = render.budget(fleet.state, fleet.state.budgets[name], now=fleet.now).status
    return [(one.name, one.at, one.short_gpus, one.cut_probabilities) for one in status.foreseen]


def enumerated(pool: dict[str, tuple[str, int]], need: int) -> Odds:
    """The odds by following every draw to its end: {run: (owner, GPUs)}, and the GPUs that have to go."""
    odds: Counter[str] = Counter()

    def follow(left: tuple[str, ...], freed: int, chance: Fraction) -> None:
        if freed >= need:
            return
        owners = sorted({pool[name][0] for name in left})
        for owner in owners:
            mine = [name for name in left if pool[name][0] == owner]
            for name in mine:
                one = chance / len(owners) / len(mine)
                odds[name] += one  # type: ignore[assignment]  # a Fraction counts as well
                follow(tuple(other for other in left if other != name), freed + pool[name][1], one)

    follow(tuple(sorted(pool)), 0, Fraction(1))
    return {name: decimal(Fraction(chance)) for name, chance in sorted(odds.items())}


# --- when -----------------------------------------------------------------------------------------------------------


def test_an_exhaustion_is_a_risk_from_its_announcement_on_and_then_takes_everybody() -> None:
    fleet = Fleet(*nodes("n", 2), lender(hours=16), secret="x")
    fleet.start(job("x", 8, "a"), job("y", 8, "b"))
    fleet.until(at("45m") - 1)
    assert (risks(fleet), foreseen(fleet)) == ({}, [])
    fleet.until(at("45m"))
    assert [note.reason for note in fleet.notes("BudgetNotice")] == ["ExhaustsSoon"]
    end = format_time(at("1h"))
    assert risks(fleet) == {"lab/x": (1.0, "l/main", end), "lab/y": (1.0, "l/main", end)}
    assert foreseen(fleet) == [("main", end, 16, {"lab/x": "1.0000", "lab/y": "1.0000"})]
    fleet.until(at("1h"))
    assert {fleet.state.runs[key].life.phase for key in ("lab/x", "lab/y")} == {"Stopping"}
    for key in ("lab/x", "lab/y"):
        fleet.leave(key)
    assert (risks(fleet), foreseen(fleet)) == ({}, [])


def test_the_end_of_a_window_is_a_risk_too_and_who_has_just_started_follows() -> None:
    fleet = Fleet(*nodes("n", 2), lender(end="1h"), policy=Policy(lookahead="0s"), secret="x")
    fleet.start(job("x", 8, "a"))
    fleet.until(at("50m"))
    fleet.start(job("young", 8, "b"))
    end = format_time(at("1h"))
    assert risks(fleet) == {"lab/x": (1.0, "l/main", end), "lab/young": (1.0, "l/main", end)}
    fleet.until(at("1h"))
    assert [fleet.state.runs[key].life.phase for key in ("lab/x", "lab/young")] == ["Stopping", "Running"]
    assert risks(fleet)["lab/young"][0] == 1.0
    fleet.until(at("65m"))
    assert fleet.state.runs["lab/young"].life.phase == "Stopping"


def test_work_that_says_it_ends_before_is_no_victim_and_saves_the_hours_of_others() -> None:
    fleet = Fleet(*nodes("n", 2), lender(hours=16), policy=Policy(lookahead="0s"), secret="x")
    fleet.start(job("brief", 8, "a", lasts="50m"), job("y", 8, "b"))
    fleet.until(at("46m"))
    assert risks(fleet) == {}, "with brief gone at 50m there are hours for 20 minutes more, until 70m"
    fleet.until(at("50m"))
    fleet.succeed("lab/brief")
    fleet.until(at("56m"))
    assert risks(fleet) == {"lab/y": (1.0, "l/main", format_time(at("70m")))}


def test_coasting_cuts_nobody_and_threatens_nobody() -> None:
    fleet = Fleet(*nodes("n", 2), lender(hours=16), policy=Policy(on_budget_shortage="Coast"), secret="x")
    fleet.start(job("x", 16, "a"))
    fleet.until(at("50m"))
    assert (risks(fleet), foreseen(fleet)) == ({}, [])


# --- whom -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_odds_of_a_lowered_limit_are_those_of_following_every_draw(seed: int) -> None:
    luck = Random(seed)
    pool = {f"lab/r{n}": (f"org:{luck.choice('abc')}", luck.choice((1, 2, 4, 8))) for n in range(luck.randint(2, 6))}
    total = sum(gpus for _, gpus in pool.values())
    limit = luck.randint(1, total - 1)
    fleet = Fleet(*nodes("n", 6), lender(), secret="x")
    fleet.start(*(job(key.partition("/")[2], gpus, owner[4:]) for key, (owner, gpus) in pool.items()))
    fleet.later("1h")
    lower(fleet, "l", limit)
    expected = enumerated(pool, total - limit)
    [(name, when, short, odds)] = foreseen(fleet)
    assert (name, when, short) == ("main", format_time(fleet.now + 15 * 60 * 10**6), total - limit)
    assert odds == expected
    assert {key: chance for key, (chance, _, _) in risks(fleet).items()} == {
        key: float(chance) for key, chance in expected.items()
    }
    fleet.later("15m")
    [resolved] = [fact for fact in fleet.facts if isinstance(fact, Resolved)]
    assert {cut.run for cut in resolved.cuts} <= set(expected)
    assert {key for key, chance in expected.items() if chance == "1.0000"} <= {cut.run for cut in resolved.cuts}


def test_who_can_shrink_loses_groups_and_is_not_in_the_draw_as_long_as_that_is_enough() -> None:
    fleet = Fleet(*nodes("n", 4), lender(), secret="x")
    fleet.start(job("fixed", 8, "a"), job("wide", 24, "b", elastic=elastic(8, 24, 8)))
    fleet.later("1h")
    lower(fleet, "l", 16)
    assert foreseen(fleet)[0][2:] == (16, {})
    assert risks(fleet) == {}
    lower(fleet, "l", 15)
    assert foreseen(fleet)[0][2:] == (17, {"lab/fixed": "0.5000", "lab/wide": "0.5000"})


def test_what_others_would_pay_for_is_no_risk_and_asking_leaves_the_books_as_they_are() -> None:
    both = budget("l", envelope("main", 16, lends_to=["*"]), envelope("more", 8, lends_to=["*"]), owner="org:l",
                  caps=[cap("all", ["main", "more"], gpus=16)])  # fmt: skip
    fleet = Fleet(*nodes("n", 2), both, secret="x")
    fleet.start(job("old", 8, "a"))
    fleet.later("1m")
    fleet.start(job("new", 8, "b"))
    fleet.later("1h")
    before = dump(fleet.state)
    lower(fleet, "l", 8)
    assert dump(fleet.state) != before
    before = dump(fleet.state)
    assert (risks(fleet), foreseen(fleet)) == ({}, []), "the newest is handed over, under the same cap"
    assert dump(fleet.state) == before
    lower(fleet, "l", 4)
    before = dump(fleet.state)
    assert foreseen(fleet)[0][2:] == (4, {"lab/old": "1.0000"})
    assert dump(fleet.state) == before
    fleet.later("15m")
    assert [cut.run for fact in fleet.facts if isinstance(fact, Resolved) for cut in fact.cuts] == ["lab/old"]
    assert fleet.payers("lab/new") == {"l/more": 8}


def test_a_run_that_may_borrow_no_more_is_not_handed_over_beyond_that() -> None:
    own = budget("a", envelope("main", 16), owner="org:a")
    fleet = Fleet(*nodes("n", 2), own, lender(), secret="x")
    fleet.start(run("x", 16, owner="org:a", pod=4, sponsors=["org:l"], max_borrow=12))
    fleet.later("1h")
    lower(fleet, "a", 4)
    assert foreseen(fleet, "a") == []
    lower(fleet, "a", 1)
    assert foreseen(fleet, "a")[0][2:] == (3, {"lab/x": "1.0000"})


def test_a_cap_threatens_what_its_envelopes_pay_for() -> None:
    item = budget("l", envelope("main", 64, lends_to=["*"]), envelope("rest", 64), owner="org:l",
                  caps=[cap("all", ["main", "rest"], hours=16)])  # fmt: skip
    fleet = Fleet(*nodes("n", 2), item, policy=Policy(lookahead="0s"), secret="x")
    fleet.start(job("x", 8, "a"), job("y", 8, "b"))
    fleet.until(at("50m"))
    assert {key: one[1] for key, one in risks(fleet).items()} == {"lab/x": "l/all", "lab/y": "l/all"}


# --- at the draw ----------------------------------------------------------------------------------------------------


def test_odds_stand_while_the_draw_waits_for_its_reveals() -> None:
    fleet = Fleet(*nodes("n", 2), lender(), secret=None)
    custodian = SimulatedCustodian("later")
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(job("x", 8, "a"), job("y", 8, "b"))
    fleet.later("1h")
    lower(fleet, "l", 8)
    fleet.later("20m")
    [(subject, froze)] = fleet.state.draws.items()
    assert foreseen(fleet)[0][3] == {"lab/x": "0.5000", "lab/y": "0.5000"}
    fleet.handle(Reveal(subject, {custodian.beacon: custodian.answer(froze.intent) or ""}))
    for key in ("lab/x", "lab/y"):
        fleet.leave(key)
    assert (risks(fleet), foreseen(fleet)) == ({}, [])


def test_the_higher_of_two_risks_is_told() -> None:
    fleet = Fleet(*nodes("n", 2), lender(), budget("z"), policy=Policy(patience="1m"), secret="x")
    fleet.start(job("x", 8, "a"), job("y", 8, "b"))
    fleet.later("1h")
    fleet.apply(run("wide", 8, owner="org:z"))
    assert fleet.run("lab/x").status.risk.reservation.startswith("lab/wide-")  # type: ignore[union-attr]  # it has one
    lower(fleet, "l", 4)
    assert {key: one[:2] for key, one in risks(fleet).items()} == {"lab/x": (1.0, "l/main"), "lab/y": (1.0, "l/main")}
    change(fleet, "l", 0, concurrency=64)
    assert fleet.run("lab/x").status.risk.envelope == ""  # type: ignore[union-attr]  # it has one


def crowd(luck: Random) -> Fleet:
    """Runs of all shapes, paid by two envelopes under one cap, and by one of their own family."""
    money = budget("l", envelope("main", 40, lends_to=["*"], hours=luck.choice((None, 60, 90))),
                   envelope("more", luck.choice((4, 8)), lends_to=["*"], end=luck.choice((None, "2h"))), owner="org:l",
                   caps=[cap("all", ["main", "more"], gpus=luck.choice((None, 40)), hours=luck.choice((None, 70)))]
                   if luck.random() < 0.6 else [])  # fmt: skip
    fleet = Fleet(*nodes("n", 5), money, policy=Policy(lookahead="0s"), secret=str(luck.random()))
    for number in range(luck.randint(2, 6)):
        gpus, wide = luck.choice((2, 4, 4, 8)), luck.random() < 0.3
        shape = elastic(gpus, 2 * gpus, gpus) if wide else None
        more = {"group": gpus, "spares": luck.choice((0, 2))} if luck.random() < 0.4 else {}
        fleet.apply(job(f"r{number}", gpus, luck.choice("abc"), elastic=shape, max_borrow=luck.choice((None, 16)),
                        lasts=luck.choice((None, None, "50m", "3h")), opportunistic=not more and luck.random() < 0.1,
                        **more))  # fmt: skip
        fleet.bind(f"lab/r{number}") if fleet.pods(f"lab/r{number}") else None
        fleet.later(luck.choice(("1s", "7m")))
    return fleet


@pytest.mark.parametrize("part", range(4))
def test_what_is_foreseen_just_before_is_what_happens(part: int) -> None:
    """Whatever the shortage: whoever is drawn had odds, who was sure to go has gone, and looking changed nothing."""
    seen: Counter[str] = Counter()
    for seed in range(part, 60, 4):
        luck = Random(f"crowd {seed}")
        fleet = crowd(luck)
        fleet.later(luck.choice(("20m", "30m")))
        if luck.random() < 0.7:
            lower(fleet, "l", luck.randint(1, 20))
        while fleet.now < at("4h") and (wake := next_wake(fleet.state)) is not None:
            fleet.until(max(fleet.now, wake - 1))
            before, known = dump(fleet.state), len(fleet.entries)
            found = {one.label: one for one in threats(fleet.state, all_limits(fleet.state), now=fleet.now)}
            assert dump(fleet.state) == before
            fleet.until(max(fleet.now + 1, wake))
            facts = [fact for entry in fleet.entries[known:] for fact in entry.facts if isinstance(fact, Resolved)]
            for fact in facts:
                one = found.get(fact.subject.removeprefix("Budget/"))
                drawn = {cut.run for cut in fact.cuts if cut.kind == "Lottery"}
                assert drawn <= (set(one.odds) if one else set()), (seed, fact.subject, fact.cuts, found)
                if one is not None and len(facts) == 1 and one.at == fleet.now:
                    ripe = {key for key, chance in one.odds.items() if chance == "1.0000"} - young(fleet)
                    assert ripe <= {cut.run for cut in fact.cuts}
                seen["drawn" if drawn else "cut" if fact.cuts else "handed over"] += 1
            for key in sorted(fleet.state.runs):
                fleet.leave(key)
    assert set(seen) == {"drawn", "cut", "handed over"} or part, seen
    assert sum(seen.values()) > 5


def young(fleet: Fleet) -> set[str]:
    """Runs that may not be drawn yet, or do not run."""
    lead = 15 * 60 * 10**6
    rows = fleet.state.runs.items()
    return {key for key, row in rows if row.life.started is None or row.life.started + lead > fleet.now}
