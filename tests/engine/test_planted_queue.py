"""Bugs that were planted in the queue (proof/mutants) and that no test saw: each has one here now, under its name."""

from __future__ import annotations

from random import Random

import pytest

from tenure.api.policy import Policy
from tenure.engine import Publish, SetPolicy, State, admit, dump, load
from tenure.engine.demand import Demand
from tenure.engine.plan import Plan
from tenure.engine.queue.age import Age
from tenure.engine.queue.lines import Line
from tenure.engine.starts import plan_now
from tenure.facts import Reserved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import FLAVOR, Fleet, at, budget, envelope, namespace, node, nodes, run
from tenure.units import FOREVER


def start_of(fleet: Fleet, name: str) -> int | None:
    return fleet.state.reservations[f"lab/{name}"].plan.start


def promised(fleet: Fleet) -> list[str]:
    """Who is promised a start, in the lab and elsewhere."""
    return sorted(key for some in fleet.state.promises.values() for key in some)


def test_one_place_too_many() -> None:
    """Two places are two, also for an owner that holds none."""
    fleet = Fleet(*nodes("n", 1), *(budget(name) for name in "abc"), policy=Policy(promise_depth=2))
    fleet.start(run("first", 8, owner="org:a", lasts="1h"))
    for name in "abc":
        fleet.later("1m")
        fleet.apply(run(name, 8, owner=f"org:{name}", lasts="1h"))
    fleet.apply(node("small", gpus=1))  # everything is looked at anew
    assert promised(fleet) == ["lab/a", "lab/b"]


def test_places_of_ones_own_naming() -> None:
    """A tenant gains no places by naming owners below its own: the last of four is kept for somebody else."""
    owners = [f"org:t:{number}" for number in range(4)]
    money = [budget(f"t{number}", owner=owner) for number, owner in enumerate(owners)]
    fleet = Fleet(*nodes("n", 1), *money, budget("b"), policy=Policy(promise_depth=4))
    fleet.apply(namespace("lab", owner="org:t"))
    fleet.start(run("first", 8, owner=owners[0], lasts="1h"))
    for number, owner in enumerate(owners):
        fleet.later("1m")
        fleet.apply(run(f"t{number}", 8, owner=owner, lasts="1h"))
    assert promised(fleet) == ["lab/t0", "lab/t1", "lab/t2"]
    fleet.apply(run("b", 8, namespace="other", owner="org:b", lasts="1h"))
    assert promised(fleet) == ["lab/t0", "lab/t1", "lab/t2", "other/b"]


def test_who_ran_before_waits_by_age() -> None:
    """Who lost its node is queued again, and has its owner's next place, before an older run that never ran."""
    fleet = Fleet(*nodes("n", 3), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("first", 16, owner="org:a", lasts="2h"))
    fleet.apply(run("next", 16, owner="org:a", lasts="3h"))
    fleet.later("1m")
    fleet.apply(run("older", 16, owner="org:a", lasts="3h"))
    fleet.later("1m")
    fleet.start(run("small", 8, owner="org:a", lasts="1h", checkpoint="8h"))
    fleet.fence(*fleet.where("lab/small"))
    assert (fleet.phase("lab/small"), promised(fleet)) == ("Pending", ["lab/next"])
    fleet.until(at("2h"))
    fleet.succeed("lab/first")
    assert fleet.leases("lab/next")
    assert promised(fleet) == ["lab/small"]


def test_repaired_from_behind() -> None:
    """Two promises are lost with one node: the earlier is planned anew first, and has what comes free first."""
    fleet = Fleet(*nodes("n", 2), budget("a"), policy=Policy(patience="24h"))
    fleet.start(run("o", 8, owner="org:a", lasts="3h"), run("p", 8, owner="org:a", lasts="4h"))
    fleet.apply(node("wide", gpus=16))
    fleet.start(run("m", 8, owner="org:a", lasts="2h"), run("n", 8, owner="org:a", lasts="2h"))
    for name in ("c", "d"):
        fleet.later("1m")
        fleet.apply(run(name, 8, owner="org:a", lasts="5h"))
    assert [start_of(fleet, name) for name in "cd"] == [at("2h")] * 2
    fleet.fence("wide")
    assert [start_of(fleet, name) for name in "cd"] == [at("3h"), at("4h")]


def test_money_wakes_nobody() -> None:
    """Who was refused for want of money, and has no place to be dealt, starts when its envelope has some again."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 8)), budget("b"), policy=Policy(promise_depth=1))
    fleet.start(run("mine", 8, owner="org:a", lasts="1h"), run("theirs", 16, owner="org:b", lasts="2h"))
    fleet.apply(run("wide", 32, owner="org:b", lasts="1h"))
    fleet.later("1m")
    fleet.apply(run("poor", 4, owner="org:a", lasts="30m"))
    fleet.apply(node("small", gpus=1))  # everything is looked at anew
    assert promised(fleet) == ["lab/wide"]
    fleet.until(at("1h"))
    fleet.succeed("lab/mine")
    assert fleet.leases("lab/poor")


def test_bound_told_once() -> None:
    """Who passes a promise that is two days off hears at once that its start is the end, and again when it is near."""
    later = budget("w", envelope("main", 64, start="48h"))
    fleet = Fleet(*nodes("n", 2), budget("u"), later, policy=Policy(patience="24h"))
    fleet.apply(run("wide", 16, owner="org:w", lasts="1h"))
    fleet.start(run("open", 8, owner="org:u"))
    assert len(fleet.notes("Bounded")) == 1
    fleet.until(at("48h") - 1)
    assert [note.reason for note in fleet.notes("Bounded")] == ["Bounded", "Bounded"]


def test_everybody_says_there_is_no_money() -> None:
    """The oldest run of an owner says that its money is not in sight; one that came later has no Reservation."""
    fleet = Fleet(*nodes("n", 4), budget("a", envelope("main", 8)), budget("b", envelope("main", 8)))
    for name in "ab":
        fleet.start(run(f"mine-{name}", 8, owner=f"org:{name}"))
        for number in range(3):
            fleet.later("1m")
            fleet.apply(run(f"{name}{number}", 4 + number, owner=f"org:{name}"))
    blocked = {key: one.state for key, one in fleet.state.reservations.items()}
    assert blocked == {"lab/a0": "Blocked", "lab/b0": "Blocked"}


def test_refused_for_all() -> None:
    """One of a class was refused, as it would be there too long: who comes later and takes less long starts."""
    here, there = {"fabric.domain": "A"}, {"fabric.domain": "B"}
    later = budget("s", envelope("main", 64, start="3h"))
    fleet = Fleet(node("n0"), node("idle", domain="B"), budget("a"), budget("b"), later, policy=Policy(promise_depth=1))
    fleet.start(*(run(name, 1, owner="org:a", where=there) for name in ("one", "two")))
    fleet.start(run("x", 8, owner="org:a", lasts="30m", where=here))
    fleet.apply(run("late", 8, owner="org:s", lasts="1h", where=here))
    fleet.apply(run("long", 8, owner="org:b", lasts="4h", where=here))
    fleet.succeed("lab/one")  # everybody is looked at
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    fleet.succeed("lab/two")  # once more, and now there is room, but for too short a time
    assert fleet.phase("lab/long") == "Pending"
    fleet.later("1m")
    fleet.apply(run("short", 8, owner="org:b", lasts="1h", where=here))
    assert fleet.leases("lab/short")


def test_own_slice_in_the_way() -> None:
    """What is promised to a run is no bound for how long it has room: it starts when its nodes are free early, though
    it takes longer than it is until then."""
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("a", 16, owner="org:a", lasts="6h"))
    fleet.apply(run("b", 16, owner="org:a", lasts="8h"))
    fleet.until(at("2h"))
    fleet.succeed("lab/a")
    assert fleet.leases("lab/b")


def test_shorter_one_not_noticed() -> None:
    """In a line are the long, and behind them one that is short enough for what comes free: it is found."""
    fleet = Fleet(*nodes("n", 2), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("a", 8, owner="org:a", lasts="2h"), run("x", 8, owner="org:a", lasts="30m"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    for name, lasts in (("long", "3h"), ("short", "1h")):
        fleet.later("1m")
        fleet.apply(run(name, 8, owner="org:a", lasts=lasts))
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    assert (len(fleet.leases("lab/long")), len(fleet.leases("lab/short"))) == (0, 1)


def test_a_line_finds_the_oldest_as_if_it_looked_at_everybody() -> None:
    luck, line, all_of_them = Random("lines"), Line(), dict[Age, int]()
    for number in range(3_000):
        if all_of_them and luck.random() < 0.4:
            age = luck.choice(list(all_of_them))
            line.remove(age)
            del all_of_them[age]
        else:
            age = luck.randrange(10_000), "lab", f"r{number}"
            all_of_them[age] = luck.choice([*range(1, 50), FOREVER])
            line.add(age, all_of_them[age])
        for within in (1, luck.randrange(1, 50), FOREVER):
            fits = (age for age, lasts in all_of_them.items() if lasts <= within)
            assert line.oldest(within=within) == min(fits, default=None)
        assert (len(line), line.least) == (len(all_of_them), min(all_of_them.values(), default=FOREVER + 1))
    assert line.ages() == sorted(all_of_them)


def test_lateness_not_told() -> None:
    """While a draw waits for its reveal, its start is later and later; who was promised what follows hears of it."""
    custodian = SimulatedCustodian("s")
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), policy=Policy(patience="24h"))
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(run("A", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("x", 8, owner="org:b", lasts="1h"))
    fleet.apply(run("y", 8, owner="org:b", lasts="1h"))
    assert [start_of(fleet, name) for name in "xy"] == [at("1h"), at("2h")]
    fleet.until(at("90m"))
    assert fleet.state.draws
    assert (start_of(fleet, "y") or 0) >= at("150m")
    assert fleet.phase("lab/A") == "Running"


def test_family_before_the_owner() -> None:
    """Two runs come at once, and there is room for one: whose money it is starts, though the other is older."""
    elsewhere = budget("b", envelope("else", 1, flavor="A100"), parents=("org:a",))
    fleet = Fleet(*nodes("n", 1), budget("a"), elsewhere)
    fleet.apply(run("early", 8, owner="org:b", lasts="1h"), run("late", 8, owner="org:a", lasts="1h"))
    assert (len(fleet.leases("lab/early")), len(fleet.leases("lab/late"))) == (0, 1)


def test_youngest_first() -> None:
    """Two that ask for different widths wait for the same hole: the older gets it."""
    fleet = Fleet(*nodes("n", 2), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("a", 8, owner="org:a", lasts="2h"), run("x", 8, owner="org:a", lasts="30m"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    for name, gpus in (("older", 8), ("younger", 7)):
        fleet.later("1m")
        fleet.apply(run(name, gpus, owner="org:a", lasts="1h"))
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    assert (len(fleet.leases("lab/older")), len(fleet.leases("lab/younger"))) == (1, 0)


def test_promises_by_age() -> None:
    """b was promised a start before a4, which is older: b is the first, and moved earlier, when all before it left."""
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), policy=Policy(promise_depth=4))
    fleet.start(run("first", 8, owner="org:a", lasts="1h"))
    for name in ("a1", "a2", "a3", "a4", "b"):
        fleet.later("1m")
        fleet.apply(run(name, 8, owner=f"org:{name[0]}", lasts="1h"))
    assert promised(fleet) == ["lab/a1", "lab/a2", "lab/a3", "lab/b"]
    for name in ("a2", "a3", "a1"):
        fleet.delete("Run", f"lab/{name}")
    assert (start_of(fleet, "b"), start_of(fleet, "a4")) == (at("1h"), at("2h"))


def test_blocked_keeps_its_number() -> None:
    """A promise that nothing could keep any more is made anew when a start is known again, behind those that stood."""
    fleet = Fleet(*nodes("n", 3), budget("a"), policy=Policy(patience="24h"))
    fleet.start(*(run(name, 8, owner="org:a", lasts=lasts) for name, lasts in (("o", "2h"), ("p", "3h"), ("q", "4h"))))
    (gone,) = fleet.where("lab/q")
    fleet.apply(run("wide", 24, owner="org:a", lasts="1h"))
    fleet.apply(run("small", 16, owner="org:a", lasts="1h"))
    assert (start_of(fleet, "wide"), start_of(fleet, "small")) == (at("4h"), at("3h"))
    fleet.fence(gone)
    assert (promised(fleet), fleet.state.reservations["lab/wide"].state) == (["lab/small"], "Blocked")
    fleet.apply(node(gone))
    assert promised(fleet) == ["lab/small", "lab/wide"]
    assert [fleet.state.reservations[f"lab/{name}"].turn for name in ("small", "wide")] == [2, 3]


def test_patience_from_the_submission() -> None:
    """A run waits for two hours until a place is free; then a start two hours off is within its patience."""
    fleet = Fleet(*nodes("n", 1), budget("a"), secret="s", policy=Policy(promise_depth=1, patience="3h"))
    fleet.start(run("first", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="2h30m"))
    fleet.later("1m")
    fleet.apply(run("last", 8, owner="org:a", lasts="1h"))
    fleet.until(at("2h"))
    fleet.succeed("lab/first")
    fleet.bind("lab/next")
    one = fleet.state.reservations["lab/last"]
    assert (one.confidence, one.plan.start) == ("projected", at("4h30m"))


def test_patience_begins_anew() -> None:
    """Its machines are lost two hours after it was promised a start; that two more are known to do within three hours
    from then is no help: three hours from its making are over before."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), secret="s", policy=Policy(patience="3h"))
    fleet.start(run("short", 8, owner="org:a", lasts="2h30m"), run("long", 8, owner="org:a", lasts="4h"))
    (gone,) = fleet.where("lab/short")
    fleet.apply(run("next", 8, owner="org:b", lasts="1h"))
    assert start_of(fleet, "next") == at("2h30m")
    fleet.until(at("2h"))
    fleet.fence(gone)
    one = fleet.state.reservations["lab/next"]
    assert (one.confidence, one.plan.start) == ("conservative", at("2h15m"))


def test_slack_for_a_window() -> None:
    """A window opens when it says; only what follows somebody's end has slack."""
    later = budget("w", envelope("main", 64, start="4h"))
    fleet = Fleet(*nodes("n", 1), budget("a"), later, policy=Policy(promise_slack="50%"))
    fleet.start(run("first", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("late", 8, owner="org:w", lasts="1h"))
    one = fleet.state.reservations["lab/late"]
    assert (one.confidence, one.plan.start, one.by) == ("window-aligned", at("4h"), at("4h"))


def test_slack_without_its_slice() -> None:
    """With an hour of slack a run of one hour needs its node for two: there is not so much before a window."""
    later = budget("w", envelope("main", 64, start="3h30m"))
    fleet = Fleet(*nodes("n", 1), budget("a"), later, policy=Policy(promise_slack="50%"))
    fleet.start(run("first", 8, owner="org:a", lasts="2h"))
    fleet.apply(run("late", 8, owner="org:w", lasts="1h"))
    fleet.apply(run("next", 8, owner="org:a", lasts="1h"))
    assert start_of(fleet, "next") == at("4h30m")


def test_lines_by_their_words() -> None:
    """All nodes are in the one region: who names it stands in the line of who does not, and is not moved."""
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("A", 16, owner="org:a", lasts="6h"))
    for name, lasts, where in (("B", "4h", {}), ("C", "2h", {}), ("D", "1h", {"region": "us-west"})):
        fleet.later("1m")
        fleet.apply(run(name, 16, owner="org:a", lasts=lasts, where=where))
    fleet.until(at("2h"))
    fleet.succeed("lab/A")
    assert (len(fleet.leases("lab/B")), start_of(fleet, "C"), start_of(fleet, "D")) == (2, at("6h"), at("12h"))


def test_stays_past_its_bound() -> None:
    """Who was let past a window declares no end; when the window opens it has to go."""
    later = budget("w", envelope("main", 64, start="48h"))
    fleet = Fleet(*nodes("n", 2), budget("u"), later, policy=Policy(patience="24h"))
    fleet.apply(run("wide", 16, owner="org:w", lasts="1h"))
    fleet.start(run("open", 8, owner="org:u"))
    fleet.until(at("48h30s"))
    assert {row.pod.run_key for row in fleet.state.leaving.values()} == {"lab/open"}
    fleet.leave("lab/open")
    assert {end.reason for end in fleet.closed().values()} == {"Overstay"}
    assert len(fleet.leases("lab/wide")) == 2


def test_parked_are_asked_for_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are machines enough for who waits for money: that there are more is nothing to look at."""
    fleet = Fleet(*nodes("n", 5), budget("a", envelope("main", 8)), budget("b"), policy=Policy(promise_depth=1))
    fleet.start(run("mine", 8, owner="org:a", lasts="2h"))
    fleet.start(*(run(f"b{number}", 4, owner="org:b", lasts="2h") for number in range(2)))
    fleet.apply(run("wide", 40, owner="org:b", lasts="1h"))
    fleet.later("1m")
    fleet.apply(run("poor", 4, owner="org:a", lasts="30m"))
    fleet.apply(node("small", gpus=1))  # everything is looked at anew
    asked: list[str] = []

    def plan(state: State, demand: Demand, *, now: int) -> Plan | None:
        asked.append(demand.owner)
        return plan_now(state, demand, now=now)

    monkeypatch.setattr(admit, "plan_now", plan)
    fleet.succeed("lab/b0")
    assert asked.count("org:a") == 0
    fleet.succeed("lab/mine")
    assert fleet.leases("lab/poor"), "it is looked at when there is money"


def test_hole_of_one_node() -> None:
    """Two nodes come free, one for half an hour and one for longer: who takes three hours starts on that."""
    soon, later = (budget(name, envelope("main", 64, start=start)) for name, start in (("s", "1h"), ("l", "5h")))
    racks = [node(f"n{number}", rack=f"r{number}") for number in range(3)]
    racks.append(node("idle", domain="B"))
    fleet = Fleet(*racks, budget("a"), budget("b"), soon, later, policy=Policy(promise_depth=2))
    fleet.start(run("both", 16, owner="org:a", lasts="30m", spread=True, where={"fabric.domain": "A"}, pod=8))
    here = {"fabric.domain": "A"}
    fleet.start(*(run(name, gpus, owner="org:a", lasts=lasts, where=here)
                  for name, gpus, lasts in (("one", 1, "10m"), ("rest", 7, "9h"))))  # fmt: skip
    (third,) = fleet.where("lab/rest")
    taken = sorted({"n0", "n1", "n2"} - {third})
    for owner, name in zip("sl", taken, strict=True):
        fleet.apply(run(f"at-{name}", 8, owner=f"org:{owner}", lasts="1h", where={"rack": name.replace("n", "r")}))
    assert len(promised(fleet)) == 2
    fleet.apply(run("long", 8, owner="org:b", lasts="3h", where=here))
    fleet.until(at("10m"))
    fleet.succeed("lab/one")
    assert fleet.phase("lab/long") == "Pending"
    fleet.until(at("30m"))
    fleet.succeed("lab/both")
    assert fleet.where("lab/long") == {taken[1]: 8}


def test_hole_of_all_in_one_domain() -> None:
    """Each of two domains has room for one of its groups."""
    fleet = Fleet(node("a", 8), node("b", 8, domain="B"), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("x", 8, owner="org:a", lasts="1h"), run("y", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("first", 16, owner="org:a", lasts="1h", group=8, spread=True))
    fleet.later("1m")
    fleet.apply(run("both", 8, owner="org:a", lasts="10m", group=4, spread=True))
    fleet.apply(node("a", 12), node("b", 12, domain="B"))
    assert len(fleet.where("lab/both")) == 2


def test_spared_not_told() -> None:
    """A start needs one spare of another run, and is made without a draw: what else that run holds stays, and who
    counted on that is to be looked at."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=Policy(patience="0s"))
    fleet.start(run("g", 8, owner="org:a", group=4, spares=4))
    nodes_of = {lease.node for lease in fleet.leases("lab/g")}
    fleet.apply(run("w", 4, owner="org:b"))
    assert fleet.state.reservations["lab/w"].confidence == "conservative"
    fleet.until(at("15m") - 1)
    state = load(dump(fleet.state))
    state.changes.lost_nodes.clear()
    fleet.until(at("15m"))
    made = next(fact for fact in fleet.facts if isinstance(fact, Reserved) and fact.reservation.state == "Active")
    state.fold(made, at("15m"))
    assert set(state.changes.lost_nodes[FLAVOR]) == nodes_of == {"n0", "n1"}


def test_cuts_take_what_is_promised() -> None:
    """Who has to make room by cuts is planned around who was promised what comes free there: neither is in the other's
    way, whenever somebody looks."""
    policy = Policy(patience="2h", activation_lead="1h")
    fleet = Fleet(*nodes("n", 1), budget("a"), budget("b"), secret="s", policy=policy)
    fleet.start(run("open", 6, owner="org:a"), run("soon", 2, owner="org:a", lasts="30m"))
    fleet.apply(node("n1"))
    fleet.start(run("other", 8, owner="org:a", lasts="1h"))
    fleet.apply(run("wide", 5, owner="org:b", lasts="1h"))
    fleet.apply(run("small", 2, owner="org:b", lasts="9h"))
    assert [start_of(fleet, name) for name in ("wide", "small")] == [at("1h"), at("30m")]
    fleet.later("1m")
    fleet.fence("n1")
    assert fleet.state.reservations["lab/wide"].confidence == "conservative"
    before = fleet.state.reservations["lab/small"]
    fleet.handle(SetPolicy(Policy(patience="2h", activation_lead="1h", notices=(50,))))
    assert fleet.state.reservations["lab/small"] == before


def test_newcomers_refused_unasked() -> None:
    """A node comes free for two hours and a half, which is too short for who waits; who comes then and takes one hour
    starts."""
    here, there = {"fabric.domain": "A"}, {"fabric.domain": "B"}
    later = budget("s", envelope("main", 64, start="3h"))
    fleet = Fleet(node("n0"), node("idle", domain="B"), budget("a"), budget("b"), later, policy=Policy(promise_depth=1))
    fleet.start(run("x", 8, owner="org:a", lasts="30m", where=here), run("one", 1, owner="org:a", where=there))
    fleet.apply(run("late", 8, owner="org:s", lasts="1h", where=here))
    fleet.apply(run("long", 8, owner="org:b", lasts="4h", where=here))
    fleet.succeed("lab/one")  # now everybody is asked, and refused
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    assert fleet.phase("lab/long") == "Pending"
    fleet.later("1m")
    fleet.apply(run("short", 8, owner="org:b", lasts="1h", where=here))
    assert fleet.leases("lab/short")


def test_in_its_own_way() -> None:
    """It is second in line: when the node that it is promised comes free an hour early, with another's money, it starts
    there."""
    here, there = {"fabric.domain": "A"}, {"fabric.domain": "B"}
    fleet = Fleet(*nodes("n", 2), node("idle", domain="B"), budget("a"), budget("b"))
    fleet.start(run("first", 8, owner="org:a", lasts="2h", where=here), run("one", 1, owner="org:a", where=there))
    fleet.start(run("long", 8, owner="org:a", lasts="5h", where=here))
    fleet.apply(run("wide", 16, owner="org:b", lasts="1h", where=here))
    fleet.apply(run("next", 8, owner="org:b", lasts="3h", where=here))
    assert (start_of(fleet, "wide"), start_of(fleet, "next")) == (at("5h"), at("2h"))
    fleet.succeed("lab/one")  # it is asked, and can only start where it was promised to
    fleet.until(at("1h"))
    fleet.succeed("lab/first")
    assert fleet.leases("lab/next")


def test_unpaid_for_ever() -> None:
    """Its money comes back five minutes early: that is no tenth of what it was to wait, and it starts all the same."""
    fleet = Fleet(*nodes("n", 3), budget("a", envelope("main", 8)), budget("b"))
    fleet.start(run("mine", 8, owner="org:a", lasts="2h"), run("other", 8, owner="org:b", lasts="2h"))
    fleet.apply(run("poor", 8, owner="org:a", lasts="1h"))
    assert start_of(fleet, "poor") == at("2h")
    fleet.until(at("1h"))
    fleet.succeed("lab/other")  # everybody is looked at
    fleet.until(at("1h55m"))
    fleet.succeed("lab/mine")
    assert fleet.leases("lab/poor")


def test_one_of_a_class() -> None:
    """Two that ask for the same wait for a node with room for both."""
    fleet = Fleet(*nodes("n", 2), budget("a"), policy=Policy(promise_depth=1))
    fleet.start(run("a", 8, owner="org:a", lasts="2h"), run("x", 8, owner="org:a", lasts="30m"))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h"))
    fleet.apply(*(run(name, 4, owner="org:a", lasts="1h") for name in ("one", "two")))
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    assert (len(fleet.leases("lab/one")), len(fleet.leases("lab/two"))) == (1, 1)


def test_undeclared_needs_for_ever() -> None:
    """Who declares no end waits in line when a node comes free that is promised for in two days: it may pass."""
    later = budget("w", envelope("main", 64, start="48h"))
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("u"), later, policy=Policy(promise_depth=1, patience="24h"))
    fleet.start(run("x", 16, owner="org:a", lasts="30m"))
    fleet.apply(run("wide", 16, owner="org:w", lasts="1h"))
    fleet.apply(run("open", 8, owner="org:u"))
    assert promised(fleet) == ["lab/wide"]
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    assert fleet.leases("lab/open")
    assert fleet.state.runs["lab/open"].life.bound == at("48h")
