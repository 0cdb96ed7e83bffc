"""Bugs that were planted (proof/mutants) and that no test saw: each has one here now, under its name."""

from __future__ import annotations

from tenure.api.policy import Policy
from tenure.engine import Publish
from tenure.engine.agenda import Agenda
from tenure.facts import Reserved, Resolved
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing import Fleet, at, budget, elastic, envelope, node, nodes, run
from tenure.units import HOUR


def test_lent_spares_not_lent() -> None:
    """What a lender has lent counts with its spares, for the next one who asks."""
    bank = budget("bank", envelope("main", 32, lends_to=["org:*"], lends=8))
    fleet = Fleet(*nodes("n", 4), bank)
    fleet.start(run("first", 4, owner="org:a", group=4, spares=4, sponsors=("org:bank",)))
    fleet.apply(run("second", 4, owner="org:b", sponsors=("org:bank",)))
    assert (fleet.phase("lab/second"), fleet.code("lab/second")) == ("Pending", "LendingCapExceeded")
    assert fleet.headroom("bank").lent == 8


def test_hours_round_down() -> None:
    """7 GPUs use up 10 GPU-hours at an instant that is no whole microsecond: the shortage is resolved at the next."""
    fleet = Fleet(*nodes("n", 1), budget("a", envelope("main", 8, hours=10)), secret="x")
    fleet.start(run("train", 7, owner="org:a"))
    fleet.later("2h")
    fleet.audit()
    fleet.leave("lab/train")
    assert fleet.phase("lab/train") == "Failed"
    spent_at = at("0s") + -(-10 * HOUR // 7)
    assert [note.reason for note in fleet.notes("Cut")] == ["CutByLottery"]
    entry = next(entry for entry in fleet.entries if any(type(fact).__name__ == "Froze" for fact in entry.facts))
    assert entry.at == spent_at


def test_cluster_leaks() -> None:
    """A run that may spread grows within its cluster: a gang never spans two."""
    fleet = Fleet(*nodes("a", 1, cluster="gpu-a"), *nodes("b", 1, cluster="gpu-b"), budget("x"))
    fleet.start(run("train", 8, owner="org:x", elastic=elastic(8, 16, 8)))
    home = fleet.leases("lab/train")[0].node
    fleet.later("10m")
    assert fleet.where("lab/train") == {home: 8}
    fleet.apply(node(f"{home[0]}9", cluster=f"gpu-{home[0]}"))
    fleet.later("10m")
    assert fleet.where("lab/train") == {home: 8, f"{home[0]}9": 8}


def test_spares_before_the_queue() -> None:
    """Free machines are not taken for spares while somebody waits for machines, promised a start or not."""
    fleet = Fleet(*nodes("n", 3), budget("x"))
    fleet.start(run("train", 8, owner="org:x", group=8, spares=4))
    (spare,) = [lease.node for lease in fleet.leases("lab/train") if lease.role == "Spare"]
    fleet.apply(run("big", 24, owner="org:x", opportunistic=True))
    assert fleet.phase("lab/big") == "Pending"
    fleet.fence(spare)
    fleet.later("5m")
    assert [lease.role for lease in fleet.leases("lab/train")] == ["Active"]
    fleet.delete("Run", "lab/big")
    fleet.later("5m")
    assert [lease.role for lease in fleet.leases("lab/train")] == ["Active", "Spare"]


def test_floor_counts_spares() -> None:
    """An elastic run at its minimum gives no group when its money is short, however many spares it had: it is drawn."""
    fleet = Fleet(*nodes("n", 4), budget("x", envelope("main", 16)), secret="s")
    fleet.start(run("train", 8, owner="org:x", group=4, spares=4, elastic=elastic(8, 16, 4, desired=8)))
    fleet.later("1h")
    fleet.apply(budget("x", envelope("main", 4)))
    fleet.later("1h")
    kinds = [cut.kind for fact in fleet.facts if isinstance(fact, Resolved) for cut in fact.cuts]
    assert sorted(set(kinds)) == ["DropSpare", "Lottery"]


def test_released_promise_stays() -> None:
    """A run that started as promised, and waits again later, is promised something else, under another name."""
    fleet = Fleet(*nodes("n", 2), budget("x"))
    fleet.start(run("first", 8, owner="org:x", lasts="1h"), run("other", 8, owner="org:x", lasts="5h"))
    fleet.apply(run("second", 8, owner="org:x", checkpoint="2h"))
    fleet.later("59m")
    fleet.succeed("lab/first")
    fleet.bind("lab/second")
    fleet.fence(*fleet.where("lab/second"))
    records = [fact.reservation for fact in fleet.facts if isinstance(fact, Reserved)]
    assert [(one.uid == records[0].uid, one.state) for one in records] == [
        (True, "Pending"),
        (True, "Released"),
        (False, "Pending"),
    ]
    assert [one.turn for one in records] == [1, 1, 2], "and has another number"


def test_stopped_twice() -> None:
    """A group that was given back, and is still leaving when its run is deleted, ends for the reason it was given."""
    fleet = Fleet(*nodes("n", 1), budget("x"))
    fleet.start(run("train", 8, owner="org:x", elastic=elastic(4, 8, 4)))
    fleet.resize("lab/train", 4)
    fleet.delete("Run", "lab/train")
    fleet.leave("lab/train")
    assert sorted(end.reason for end in fleet.closed().values()) == ["Canceled", "Shrink"]


def test_spares_before_overstayed() -> None:
    """Who overstays goes before anybody's spare: ``wide`` finds room without ``keeper`` giving anything up."""
    fleet = Fleet(*nodes("n", 3), budget("x"), budget("y"), policy=Policy(patience="1000h"))
    fleet.start(run("keeper", 4, owner="org:x", group=4, spares=4), run("long", 8, owner="org:x", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:x", lasts="1h"))
    fleet.start(run("late", 8, owner="org:y", lasts="1h"))
    fleet.until(at("2h") - 1)
    fleet.now = at("2h")
    fleet.succeed("lab/long")
    fleet.later("5m")
    cuts = [(cut.kind, cut.run) for fact in fleet.facts if isinstance(fact, Resolved) for cut in fact.cuts]
    assert cuts == [("Overstay", "lab/late")]
    fleet.leave("lab/late")
    assert sum(fleet.where("lab/wide").values()) == 16


def test_activation_number_again() -> None:
    """Each resolution for an envelope has a number of its own, so that each cut can be recomputed from its record."""
    fleet = Fleet(*nodes("n", 4), budget("x", envelope("main", 32)), secret="s")
    fleet.start(run("train", 32, owner="org:x", elastic=elastic(8, 32, 8)))
    for gpus in (24, 16):
        fleet.apply(budget("x", envelope("main", gpus)))
        fleet.later("1h")
        fleet.leave("lab/train")
    assert [fact.activation for fact in fleet.facts if isinstance(fact, Resolved)] == [1, 2]


def test_spent_draw_unrecorded() -> None:
    """A draw whose run is gone when it is revealed cuts nobody, leaves its record, and is in nobody's way."""
    custodian = SimulatedCustodian("s")
    fleet = Fleet(*nodes("n", 1), budget("x"), budget("y"), policy=Policy(patience="0s"))
    fleet.handle(Publish(custodian.beacon, custodian.root))
    fleet.start(run("old", 8, owner="org:x"))
    fleet.later("1h")
    for name in ("new", "newer"):
        fleet.apply(run(name, 8, owner="org:y"))
        fleet.later("20m")
        assert len(fleet.state.draws) == 1
        if name == "new":
            fleet.delete("Run", "lab/new")
        fleet.reveal(custodian)
        assert not fleet.state.draws
    records = [fact for fact in fleet.facts if isinstance(fact, Resolved)]
    assert [[cut.run for cut in one.cuts] for one in records] == [[], ["lab/old"]]


def test_timer_fires_early() -> None:
    """A thing has one timer: the one that was set last, earlier or later than the one before."""
    agenda = Agenda()
    agenda.wake(10, "retry", "lab/x")
    agenda.wake(20, "retry", "lab/x")
    assert (agenda.next(), agenda.due(15), agenda.due(20)) == (20, [], [(20, "retry", "lab/x")])


def test_hindered_again() -> None:
    """A start that is due and cannot be made is told once, however often it is looked at for the same reason."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), budget("c"), policy=Policy(patience="0s"))
    for name in ("a", "b"):
        fleet.start(run(name, 8, owner=f"org:{name}"))
    fleet.later("1h")
    fleet.apply(run("w", 8, owner="org:c", lasts="3h"))
    fleet.later("2h")
    assert [note.reason for note in fleet.notes("Waiting") if note.reason == "NoCustodian"] == ["NoCustodian"]
    fleet.apply(node("small", gpus=1))
    fleet.later("1h")
    assert fleet.phase("lab/w") == "Pending"
    assert [note.reason for note in fleet.notes("Waiting") if note.reason == "NoCustodian"] == ["NoCustodian"]
