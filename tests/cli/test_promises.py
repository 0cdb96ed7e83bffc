"""What the command line shows of promises, of their keeping, and of who gave way for them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from inline_snapshot import snapshot

from tenure.facts import Closed, Cut, Fact, Noted, Opened, Published, Removed, Reservation, Resolved
from tenure.ledger import Ledger
from tenure.units import HOUR, MINUTE, SECOND, Instant
from tests.cli.support import call, run_yaml, still, submit
from tests.engine.lottery_records import CHAINS, OPERATOR, drawn
from tests.ledger.support import lease
from tests.promises import NAME, draw_for, froze, moved, put, released, reservation, resolved, threatening

DAY_ONE = {"runtime": {"expectedDuration": "1h"}}


class World(NamedTuple):
    """A fleet without a driver, and the hand that writes its ledger."""

    path: Path

    def tell(self, *facts: Fact) -> Instant:
        """One entry, a moment after the last."""
        with Ledger.open(self.path) as ledger, ledger.write() as tx:
            return tx.append(at=tx.head.at + 1, cause="test", facts=facts).at

    @property
    def now(self) -> Instant:
        with Ledger.open(self.path) as ledger:
            return ledger.head.at

    def uid(self, name: str) -> str:
        with Ledger.open(self.path) as ledger:
            return ledger.submissions("rai", name)[-1].uid

    def call(self, *words: str) -> Any:
        return call("runs", *words, fleet=self.path)


def note(kind: str, message: str, about: str = "Run/rai/train") -> Noted:
    return Noted(kind=kind, object=about, reason=kind, message=message)


def opening(world: World, name: str, *, at: Instant, run: str = "train", **other: Any) -> Opened:
    gpus = tuple(range(8))
    return Opened(lease=lease(name, run=run, uid=world.uid(run), start=at, gpus=gpus, domain="A", **other))


@pytest.fixture
def world(fresh: Path) -> World:
    assert submit(fresh, run_yaml("train", 16, "true", **DAY_ONE), run_yaml("eval", 8, "true")).code == 0
    return World(fresh)


@pytest.fixture
def promised(world: World) -> Reservation:
    """rai/train is to start in an hour, and rai/eval, which holds a-0, may have to give way."""
    start = world.now + HOUR
    one = threatening(reservation(world.now, start, run_uid=world.uid("train")), eval="0.125")
    world.tell(put(one), opening(world, "eval-l0", at=world.now, run="eval", node="a-0"))
    return one


# --- reservations, list, describe ---------------------------------------------------------------------------------


def test_reservations_says_when_where_who_pays_and_what_is_in_the_way(world: World, promised: Reservation) -> None:
    head, row = still(world.call("reservations", "-n", "rai").out).splitlines()
    assert head == "RUN STATE BY LIKELY COUNTDOWN WHERE PAID-BY CONFIDENCE WHY"
    shown, why = row.split(" There is no room. ")
    assert shown == "rai/train Pending CLOCK CLOCK-CLOCK AGE west/lab/A rai/west:16 conservative"
    assert why == "32 GPUs missing: drop 4 spares of rai/big, shrink rai/wide by 16, lottery frees 12 of 40."
    assert world.call("reservations", "rai/train", "-o", "name").out == f"rai/{NAME}\n"
    assert world.call("reservations", "-A", "-o", "name").out == f"rai/{NAME}\n"


def test_reservations_are_whole_objects_for_programs(world: World, promised: Reservation) -> None:
    listed = world.call("reservations", "-A", "-o", "json").json
    assert listed["kind"] == "List"
    [item] = listed["items"]
    assert (item["kind"], item["metadata"]["name"]) == ("Reservation", NAME)
    assert item["spec"]["intendedSlice"]["nodes"] == ["a-0", "a-1"]
    assert item["status"]["forecast"]["cutProbabilities"] == {"rai/eval": "0.125"}


def test_what_is_over_is_shown_on_demand_with_its_resolution(world: World, promised: Reservation) -> None:
    frozen, result = draw_for(promised)
    world.tell(froze(frozen))
    at = world.tell(resolved(frozen, result))
    world.tell(put(released(promised, at)))
    done = world.call("reservations", "rai/train")
    assert (done.code, done.out) == (0, "")
    assert "1 reservation of the past: " in done.err
    assert done.err.endswith("reservations rai/train --all\n")
    table = world.call("reservations", "rai/train", "--all").out
    assert table.endswith("It was kept.\n"), "nothing is in the way of what is over"
    [item] = world.call("reservations", "rai/train", "--all", "-o", "json").json["items"]
    assert item["status"]["state"] == "Released"
    assert item["status"]["resolution"]["result"]["seed"] == result.seed


def test_reservations_of_a_run_that_never_was_are_an_error(world: World) -> None:
    done = world.call("reservations", "rai/trian")
    assert done.code == 5
    assert "did you mean rai/train?" in done.err
    told = world.call("reservations", "rai/train").err
    assert told.startswith("no reservation for Run/rai/train: no start is promised to it; see ")
    assert told.endswith(" explain rai/train\n")
    assert world.call("reservations", "-A").err == "no reservation: nothing that waits is promised a start\n"
    assert world.call("reservations", "-A", "--all").err == "there never was a reservation\n"


def test_list_shows_the_planned_start_of_what_waits(world: World, promised: Reservation) -> None:
    assert still(world.call("list", "-n", "rai").out) == snapshot("""\
NAME PHASE GPUS OWNER AGE STARTS-IN WHY
eval Pending 8/8 org:ai:rai AGE - waits for a driver to look at it
train Pending 0/16 org:ai:rai AGE AGE promised by CLOCK, likely CLOCK-CLOCK
""")
    [_, train] = world.call("list", "-n", "rai", "-o", "json").json["items"]
    assert train["status"]["pendingReservation"] == NAME
    assert (
        train["status"]["earliestStart"]
        == world.call("reservations", "-A", "-o", "json").json["items"][0]["status"]["plannedStart"]
    )


def test_describe_shows_the_reservation_of_a_run(world: World, promised: Reservation) -> None:
    later = moved(promised, world.now + 2 * HOUR)
    world.tell(put(later))
    told = still(world.call("describe", "rai/train").out)
    assert told.split("\n\n")[1] == snapshot("""\
Reservation
Name: train-r1
State: Pending [NoCapacity]
Why: There is no room.
Start: TIME (in AGE)
Promised: TIME (in AGE)
Rests on: conservative: nothing known frees enough, so others are given notice
Where: west/lab/A: a-0, a-1
Paid by: rai/west (16 owned, org:ai:rai)
In the way: 32 GPUs missing: drop 4 spares of rai/big, shrink rai/wide by 16, lottery frees 12 of 40\
""")
    record = world.call("describe", "rai/train", "-o", "json").json
    assert [one["metadata"]["name"] for one in record["reservations"]] == [NAME]


def test_describe_shows_the_risk_of_a_run(world: World, promised: Reservation) -> None:
    told = still(world.call("describe", "rai/eval").out)
    assert f"Risk: 12.5 % to be cut at TIME (in AGE) for rai/{NAME}\n" in told
    risk = world.call("describe", "rai/eval", "-o", "json").json["run"]["status"]["risk"]
    assert (risk["cutProbability"], risk["reservation"]) == (0.125, f"rai/{NAME}")


# --- forecast-error -----------------------------------------------------------------------------------------------


def kept(world: World, name: str, node: str, *, error: int, confidence: str = "projected", plan_error: int = 0) -> None:
    """A run that started so much later than it was first promised, and than it was planned last."""
    assert submit(world.path, run_yaml(name, 8, "true")).code == 0
    at = world.now + 4
    own = {"run": name, "name": f"{name}-r1", "run_uid": world.uid(name), "confidence": confidence}
    one = reservation(world.now, at - error, **own)
    last = moved(one, at - plan_error)
    world.tell(put(one))
    world.tell(put(last))
    world.tell()
    assert world.tell(put(released(last, at)), opening(world, f"{name}-l0", at=at, run=name, node=node)) == at


@pytest.fixture
def measured(world: World) -> World:
    kept(world, "late", "a-0", error=10 * MINUTE)
    kept(world, "early", "a-1", error=-MINUTE, plan_error=SECOND)
    kept(world, "right", "b-0", error=0, confidence="conservative")
    return world


def test_forecast_error_holds_promises_against_starts(measured: World) -> None:
    table, worst = measured.call("forecast-error").out.split("\n\n")
    assert f"{table}\n" == snapshot("""\
AGAINST        CONFIDENCE    STARTS    MEAN  OFF-BY  P50   P90   MAX
first-promise  all                3     +3m   3m40s   0s  +10m  +10m
first-promise  projected          2  +4m30s   5m30s  -1m  +10m  +10m
first-promise  conservative       1      0s      0s   0s    0s    0s
last-plan      all                3      0s      0s   0s   +1s   +1s
last-plan      projected          2      0s      0s   0s   +1s   +1s
last-plan      conservative       1      0s      0s   0s    0s    0s
bound          all                3      0s      0s   0s   +1s   +1s
bound          projected          2      0s      0s   0s   +1s   +1s
bound          conservative       1      0s      0s   0s    0s    0s
3 of 3 starts came by the bound that was promised
""")
    assert still(worst) == snapshot("""\
Furthest off
RUN RESERVATION CONFIDENCE PROMISED PLANNED STARTED ERROR
rai/late late-r1 projected TIME TIME TIME +AGE
rai/early early-r1 projected TIME TIME TIME -AGE
""")
    record = measured.call("forecast-error", "-o", "json").json
    assert record["starts"] == 3
    assert record["promise"]["all"]["maxSeconds"] == 600
    assert record["plan"]["projected"] == {
        "count": 2, "meanSeconds": 0.5, "meanAbsoluteSeconds": 0.5, "p50Seconds": 0, "p90Seconds": 1, "maxSeconds": 1,
    }  # fmt: skip
    assert [(one["run"], one["errorSeconds"]) for one in record["worst"]] == [("rai/late", 600), ("rai/early", -60)]


def test_forecast_error_of_a_period(measured: World) -> None:
    assert measured.call("forecast-error", "--since", "1h", "-o", "json").json["starts"] == 3
    done = measured.call("forecast-error", "--until", "1h")
    assert (done.code, done.out) == (0, "")
    assert done.err == "no run with a planned start has started in this time\n"
    assert measured.call("forecast-error", "--since", "1h", "--until", "2h").code == 2
    assert measured.call("forecast-error", "--worst", "1", "-o", "name").out == "rai/late\n"


# --- story --------------------------------------------------------------------------------------------------------


def live_and_die(world: World) -> None:
    """rai/train waits, is promised a start, sees it move, gets room made, starts, grows, completes and is deleted."""
    uid = world.uid("train")
    one = reservation(world.now, world.now + HOUR, run_uid=uid)
    later = moved(one, world.now + 2 * HOUR)
    frozen, result = draw_for(one)
    world.tell(note("Waiting", "west/lab has 0 free GPUs of the 16 that are needed."))
    world.tell(put(one), note("Reserved", "Promised."))
    world.tell(note("Countdown", "It comes near."))
    world.tell(put(later), note("StartMoved", "Moved later: node a-1 failed."))
    world.tell(put(moved(later, later.plan.start, state="Active", reason="Activated", message="Room is made.")))
    world.tell(froze(frozen))
    world.tell(resolved(frozen, result))
    at = world.now + 1
    world.tell(
        put(released(later, at)),
        opening(world, "train-l0", at=at, node="a-0"),
        note("Admitted", "8 GPUs on 1 node, paid by rai/west (8 owned)."),
    )
    world.tell(note("Started", "1 pod bound: it runs."))
    at = world.now + 1
    world.tell(opening(world, "train-l1", at=at, node="a-1", reason="Grow"), note("Grown", "Grown by 8 GPUs to 16."))
    at = world.now + 1
    leases = ("train-l0", "train-l1")
    world.tell(
        Closed(namespace="rai", leases=leases, end=at, reason="Completed"), note("Completed", "2 pods succeeded.")
    )
    world.tell(note("Deleted", "The run was deleted."), Removed(kind="Run", namespace="rai", name="train"))


def test_the_story_of_a_run_that_is_gone(world: World) -> None:
    live_and_die(world)
    assert still(world.call("story", "rai/train").out) == snapshot("""\
Run/rai/train, of org:ai:rai, submitted TIME
AT AFTER EVENT STORY
TIME +AGE Submitted org:ai:rai asked for 16 H100 GPUs.
TIME +AGE Waiting west/lab has 0 free GPUs of the 16 that are needed.
TIME +AGE Reserved Promised. The promise: 16 GPUs on 2 nodes of west/lab/A, paid by rai/west (16 owned, org:ai:rai).
TIME +AGE StartMoved Moved later: node a-1 failed.
TIME +AGE Activated Its planned start has come: Room is made.
TIME +AGE Draw To make room, a draw among 4 runs was frozen; nobody knew its seed yet.
TIME +AGE Resolved Room was made: ns/four was drawn by lot and ended: 8 GPUs.
TIME +AGE Released Its reservation was kept: It was kept.
TIME +AGE Admitted 8 GPUs on 1 node, paid by rai/west (8 owned). It took a-0[0-7] in domain A.
TIME +AGE Started 1 pod bound: it runs.
TIME +AGE Grown Grown by 8 GPUs to 16. It took a-1[0-7] in domain A, paid by rai/west.
TIME +AGE Completed 2 pods succeeded.
TIME +AGE Deleted The run was deleted.
It used N.NN GPU-hours, paid by rai/west (N.NN owned).
""")


def test_a_story_for_programs(world: World) -> None:
    live_and_die(world)
    assert submit(world.path, run_yaml("train", 4, "true")).code == 0
    record = world.call("story", "rai/train", "-o", "json").json
    first, second = record["incarnations"]
    assert [event["event"] for event in second["events"]] == ["Submitted"]
    assert second["uid"] != first["uid"]
    entries = [event["entry"] for event in first["events"]]
    assert entries == sorted(entries)
    assert set(first["events"][0]) == {"at", "entry", "event", "text"}
    assert world.call("story", "rai/train", "-o", "name").out.split()[:2] == ["Submitted", "Waiting"]


def test_the_story_of_a_run_that_gave_way_names_the_record(world: World, promised: Reservation) -> None:
    cut = Cut(kind="Lottery", run="rai/eval", owner="org:ai:rai", gpus=8, leases=("eval-l0",))
    spare = Cut(kind="DropSpare", run="rai/eval", owner="org:ai:rai", gpus=2)
    subject = f"Reservation/{promised.key}"
    told = note("Cut", "Drawn by lot.", "Run/rai/eval")
    world.tell(Resolved(trigger="Activation", subject=subject, activation=1, cuts=(spare, cut)), told)
    [_, spared, lost] = world.call("story", "rai/eval", "-o", "json").json["incarnations"][0]["events"]
    assert spared["text"] == f"It gave way: 2 spares of rai/eval were dropped. For {subject}, activation 1."
    gave = "It gave way: rai/eval was drawn by lot and ended: 8 GPUs."
    assert lost["text"] == f"{gave} For {subject}, activation 1: verify {subject}."


def test_what_no_note_told_is_told_from_the_record(world: World, promised: Reservation) -> None:
    world.tell(put(moved(promised, None, state="Blocked", message="Nobody can pay.", confidence="")))
    world.tell(put(moved(promised, world.now + 3 * HOUR, message="No machines yet.")))
    world.tell(put(moved(promised, world.now + 2 * HOUR, message="Still no machines.")))
    world.tell(put(moved(promised, world.now + 2 * HOUR, state="Canceled", message="The run was changed.")))
    events = world.call("story", "rai/train", "-o", "json").json["incarnations"][0]["events"]
    assert [(event["event"], still(event["text"])) for event in events[2:]] == snapshot(
        [
            ("ReservationBlocked", "Its reservation has no start: Nobody can pay."),
            ("Reserved", "It is to start at TIME: No machines yet."),
            ("StartMoved", "Its start moved from TIME to TIME, AGE earlier. Still no machines."),
            ("Canceled", "Its reservation was canceled: The run was changed."),
        ]
    )


def test_each_note_tells_of_its_own_event_in_the_order_in_which_they_came(world: World, promised: Reservation) -> None:
    """Two moves in one entry have a reason each; the run stopped before it waited, and waits for what stood in the end;
    what happened several times is told once."""
    first, second = moved(promised, world.now + 3 * HOUR), moved(promised, world.now + 2 * HOUR)
    shrunk = Cut(kind="Shrink", run="rai/train", owner="org:ai:rai", gpus=2)
    world.tell(
        note("Stopping", "Node a-1 failed under the run."),
        note("Waiting", "There is room now, but it is promised."),
        put(first),
        note("StartMoved", "Later: a node failed."),
        note("Waiting", "There are no machines."),
        put(second),
        note("StartMoved", "Earlier."),
    )
    cut = note("Cut", "Shrunk."), note("Shrunk", "1 group given up.")
    told = Resolved(trigger="Shortage", subject="Budget/rai/west", activation=1, cuts=(shrunk, shrunk))
    world.tell(told, *cut, *cut)
    events = world.call("story", "rai/train", "-o", "json").json["incarnations"][0]["events"]
    lost = "It gave way: rai/train was shrunk by 2. Because Budget/rai/west can no longer pay for all its runs"
    assert [(event["event"], event["text"]) for event in events[2:]] == [
        ("Stopping", "Node a-1 failed under the run."),
        ("Waiting", "There are no machines."),
        ("StartMoved", "Later: a node failed."),
        ("StartMoved", "Earlier."),
        ("Cut", f"{lost}, activation 1. (2 times)"),
        ("Shrunk", "1 group given up. (2 times)"),
    ]


def test_there_is_no_story_of_nobody(world: World) -> None:
    done = world.call("story", "rai/nobody")
    assert done.code == 5


# --- verify -------------------------------------------------------------------------------------------------------


def draw(world: World, one: Reservation, **changes: Any) -> None:
    """A whole draw, as the ledger has it; ``changes`` spoil its record."""
    frozen, result = draw_for(one)
    world.tell(Published(beacon="operator", root=OPERATOR[0].hex()))
    world.tell(froze(frozen))
    world.tell(resolved(frozen, result, count=2, **changes))


@pytest.mark.parametrize("name", [f"Reservation/rai/{NAME}", f"reservation/rai/{NAME}"])
def test_a_draw_is_verified_by_the_name_of_its_reservation(world: World, promised: Reservation, name: str) -> None:
    draw(world, promised)
    done = world.call("verify", name)
    assert (done.code, still(done.out)) == (
        0,
        snapshot("""\
SUBJECT ACTIVATION AT ENTRY RECORD
Reservation/rai/train-r1 1 TIME 9 right
"""),
    )
    record = world.call("verify", name, "-o", "json").json
    assert (record["ok"], [one["state"] for one in record["draws"]]) == (True, ["right"])
    assert world.call("verify", "-n", "rai", f"Reservation/{NAME}").code == 0


def test_a_draw_that_waits_and_a_resolution_without_one_are_told_apart(world: World, promised: Reservation) -> None:
    frozen, _ = draw_for(promised)
    world.tell(froze(frozen))
    world.tell(Resolved(trigger="Shortage", subject="Budget/rai/west", activation=1))
    assert "waits for reveals" in world.call("verify", f"Reservation/rai/{NAME}").out
    assert "no draw" in world.call("verify", "Budget/rai").out
    assert "no draw" in world.call("verify", "Budget/rai/west").out


def test_somebody_who_was_cut_out_of_order_is_found(world: World, promised: Reservation) -> None:
    _, result = draw_for(promised)
    wrong = tuple(Cut(kind="Lottery", run=run, owner="org:a", gpus=8) for run in (result.order[1], result.order[0]))
    draw(world, promised, cuts=wrong)
    done = world.call("verify", f"Reservation/rai/{NAME}", "-o", "json")
    assert done.code == 6
    [finding] = done.json["findings"]
    assert (finding["code"], finding["subject"]) == ("CutNotDrawn", result.order[1])


def test_an_intent_that_was_not_frozen_before_is_found(world: World, promised: Reservation) -> None:
    frozen, result = draw_for(promised)
    world.tell(froze(frozen), resolved(frozen, result))
    done = world.call("verify", f"Reservation/rai/{NAME}")
    assert done.code == 6
    assert "NeverFrozen" in done.out


def test_another_intent_than_the_frozen_one_is_found(world: World, promised: Reservation) -> None:
    frozen, _ = draw_for(promised)
    other = msgspec.structs.replace(frozen, deficit=99)
    world.tell(froze(frozen))
    world.tell(resolved(other, drawn(other)))
    done = world.call("verify", f"Reservation/rai/{NAME}")
    assert done.code == 6
    assert "NotFrozen" in done.out


def test_a_chain_that_nobody_published_is_found(world: World, promised: Reservation) -> None:
    frozen, result = draw_for(promised)
    world.tell(Published(beacon="operator", root="ab" * 32))
    world.tell(froze(frozen))
    world.tell(resolved(frozen, result))
    done = world.call("verify", f"Reservation/rai/{NAME}")
    assert done.code == 6
    assert "ForeignChain" in done.out


def test_a_draw_with_a_chain_of_ones_own_and_without_those_that_were_published_is_found(
    world: World, promised: Reservation
) -> None:
    frozen, _ = draw_for(promised)
    [beacon] = frozen.beacons
    own = msgspec.structs.replace(beacon, id="union", previous=CHAINS["union"][beacon.index - 1].hex())
    forged = msgspec.structs.replace(frozen, beacons=(own,))
    world.tell(Published(beacon="operator", root=OPERATOR[0].hex()))
    world.tell(froze(forged))
    world.tell(resolved(forged, drawn(forged)))
    done = world.call("verify", f"Reservation/rai/{NAME}", "-o", "json")
    assert done.code == 6
    assert [(one["code"], one["subject"]) for one in done.json["findings"]] == [
        ("BeaconLeftOut", '"operator"'), ("BeaconUnpublished", '"union"'),
    ]  # fmt: skip


def test_a_chain_that_was_published_after_the_freeze_has_no_part_in_the_draw(
    world: World, promised: Reservation
) -> None:
    draw(world, promised)
    world.tell(Published(beacon="operator", root="ab" * 32), Published(beacon="auditor", root="cd" * 32))
    assert world.call("verify", f"Reservation/rai/{NAME}").code == 0


def test_a_name_without_a_record_is_an_error_that_says_what_to_do(world: World) -> None:
    done = world.call("verify", "Reservation/rai/none")
    assert done.code == 5
    assert "the resolver never ran for Reservation/rai/none" in done.err
    assert world.call("verify", "Budget/rai", "--commit", "ab").code == 2


def test_the_resolution_in_a_status_is_a_record_to_verify(world: World, promised: Reservation, tmp_path: Path) -> None:
    draw(world, promised)
    [item] = world.call("reservations", "-A", "-o", "json").json["items"]
    record = tmp_path / "record.json"
    record.write_text(json.dumps(item["status"]["resolution"]))
    assert world.call("verify", str(record)).out == "right\n"
    assert world.call("verify", str(tmp_path / "none.json")).code == 2
