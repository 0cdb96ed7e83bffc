"""Bugs that were planted in the queue (proof/mutants) and that no test saw: each has one here now, under its name."""

from __future__ import annotations

from random import Random

from tenure.api.policy import Policy
from tenure.engine import Publish
from tenure.engine.queue.age import Age
from tenure.engine.queue.lines import Line
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import Fleet, at, budget, envelope, namespace, node, nodes, run
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
    """One of a class was refused, as it would be there too long: who comes later and takes less long starts. There is
    room for both of them for ever where neither may go, so only the plan itself knows."""
    rack = {"rack": "r"}
    fleet = Fleet(*(node(name, rack="r") for name in ("n0", "n1")), node("other"), budget("a"),
                  policy=Policy(promise_depth=1))  # fmt: skip
    for name, lasts in (("a", "2h"), ("x", "30m")):
        fleet.start(run(name, 8, owner="org:a", lasts=lasts, where=rack))
    fleet.apply(run("wide", 16, owner="org:a", lasts="1h", where=rack))
    fleet.apply(run("long", 8, owner="org:a", lasts="3h", where=rack))
    fleet.until(at("30m"))
    fleet.succeed("lab/x")
    assert fleet.phase("lab/long") == "Pending"
    fleet.later("1m")
    fleet.apply(run("short", 8, owner="org:a", lasts="1h", where=rack))
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
