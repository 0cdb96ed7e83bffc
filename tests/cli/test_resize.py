"""`shrink` and `grow`: another width for an elastic run, or why not."""

from pathlib import Path
from typing import IO, Any

import pytest
from msgspec.structs import replace

from tenure.api.run import Run
from tenure.cli.exits import Exit
from tenure.cli.local import LocalFleet
from tenure.cli.trouble import Trouble
from tests.cli.support import Done, call, driven, finish, run_yaml, spawn, submit

ELASTIC = {"malleable": {"minTotalGPUs": 4, "maxTotalGPUs": 12, "stepGPUs": 4}}


def desired(fleet: Path, name: str = "x") -> int:
    found: int = spec(fleet, name)["malleable"]["desiredTotalGPUs"]
    return found


def spec(fleet: Path, name: str = "x") -> dict[str, Any]:
    found: dict[str, Any] = call("runs", "describe", f"rai/{name}", "-o", "json", fleet=fleet).json["run"]["spec"]
    return found


def waiting(fleet: Path) -> Path:
    """A fleet that nobody drives, with one elastic run."""
    assert submit(fleet, run_yaml("x", 12, "sleep 60", **ELASTIC)).code == 0
    return fleet


def test_what_is_desired_is_changed_and_nothing_else(fresh: Path) -> None:
    fleet = waiting(fresh)
    before = spec(fleet)
    done = call("runs", "shrink", "rai/x", "8", fleet=fleet)
    assert done == Done(
        0,
        "Run/rai/x: desires 8 GPUs; it waits\n",
        f"nothing drives this fleet, so nothing changes yet: tenure up {fleet}\n",
    )
    before["malleable"]["desiredTotalGPUs"] = 8
    assert spec(fleet) == before


def test_grow_is_the_way_back(fresh: Path) -> None:
    fleet = waiting(fresh)
    assert call("runs", "shrink", "x", "4", "-n", "rai", fleet=fleet).code == 0
    assert call("runs", "grow", "x", "12", "-n", "rai", fleet=fleet).code == 0
    assert desired(fleet) == 12


def test_the_same_width_again_changes_nothing(fresh: Path) -> None:
    fleet = waiting(fresh)
    before = call("tenure", "ledger", "export", str(fleet)).out
    assert call("runs", "grow", "rai/x", "12", fleet=fleet).out == "Run/rai/x: desires 12 GPUs already\n"
    assert call("tenure", "ledger", "export", str(fleet)).out == before


@pytest.mark.parametrize(
    ("words", "problem", "step"),
    [
        (["shrink", "rai/x", "6"], "cannot have 6 GPUs: its widths are 4 to 12 in steps of 4", "ask for 4 or 8"),
        (["shrink", "rai/x", "2"], "cannot have 2 GPUs", "ask for 4 or 8"),
        (["grow", "rai/x", "16"], "cannot have 16 GPUs", "ask for 8 or 12"),
        (["grow", "rai/x", "8"], "desires 12 GPUs: 8 would not grow it", "shrink rai/x 8"),
        (["shrink", "rai/x", "0"], "0 is not in the range", "--help"),
        (["shrink", "rai/x", "many"], "'many' is not a valid integer", "--help"),
    ],
)
def test_what_cannot_be_is_refused_in_the_runs_own_numbers(
    fresh: Path, words: list[str], problem: str, step: str
) -> None:
    fleet = waiting(fresh)
    done = call("runs", *words, fleet=fleet)
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert problem in first
    assert second.startswith("next: ")
    assert step in second
    assert desired(fleet) == 12


@pytest.mark.parametrize(
    ("highest", "asked", "step"),
    [(900_000_000, 7, "6 or 8"), (6, 7, "6"), (900_000_000, 10**12, "899999998 or 900000000")],
)
def test_the_nearest_widths_are_told_however_many_there_are(fresh: Path, highest: int, asked: int, step: str) -> None:
    wide = {"malleable": {"minTotalGPUs": 6, "maxTotalGPUs": highest, "stepGPUs": 2}}
    assert submit(fresh, run_yaml("x", 6, "sleep 60", **wide)).code == 0
    done = call("runs", "grow", "rai/x", str(asked), fleet=fresh)
    assert (done.code, done.err.splitlines()[1]) == (2, f"next: ask for {step}")


def test_a_fixed_run_has_one_width(fresh: Path) -> None:
    assert submit(fresh, run_yaml("fixed", 8, "true")).code == 0
    done = call("runs", "shrink", "rai/fixed", "4", fleet=fresh)
    assert done.code == 2
    assert done.err.splitlines()[0] == "error: Run/rai/fixed is fixed at 8 GPUs: it has no spec.malleable"


def test_a_run_that_is_not_there_is_not_found(fresh: Path) -> None:
    done = call("runs", "grow", "rai/nope", "8", fleet=fresh)
    assert (done.code, done.err.splitlines()[0]) == (5, "error: Run/rai/nope does not exist")


def test_a_running_run_shrinks_and_its_leases_close_as_shrunk(fresh: Path) -> None:
    with driven(fresh):
        waiting(fresh)
        watch = spawn("runs", "watch", "rai/x", "-o", "json", fleet=fresh)
        assert watch.stdout is not None
        _read_until(watch.stdout, "Started")
        done = call("runs", "shrink", "rai/x", "8", fleet=fresh)
        assert done.out.startswith("Run/rai/x: desires 8 GPUs and has 12: groups leave")
        _read_until(watch.stdout, "ShrunkByOwner")
        assert call("runs", "cancel", "rai/x", fleet=fresh).code == 0
        finish(watch)
    leases = call("runs", "leases", "--run", "rai/x", "-o", "json", fleet=fresh).json["items"]
    assert sorted(one["status"]["closureReason"] for one in leases) == ["Canceled", "Canceled", "Shrink"]


def _read_until(lines: IO[str], word: str) -> None:
    for line in lines:
        if word in line:
            return
    raise AssertionError(f"never said {word}")


# --- others write meanwhile -----------------------------------------------------------------------------------------


def narrower(run: Run) -> Run:
    assert run.spec.malleable is not None
    return replace(run, spec=replace(run.spec, malleable=replace(run.spec.malleable, desired_total_gpus=8)))


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_others_changed_since_it_was_read_stays(fresh: Path, dry_run: bool) -> None:
    assert submit(fresh, run_yaml("x", 12, "sleep 60", **ELASTIC, funding={"allowBorrow": True})).code == 0
    with LocalFleet.open(fresh, write=True, anchor=None) as fleet:
        before = fleet.view().run("rai", "x")
        assert call("runs", "sponsors", "add", "rai/x", "org:ai:vision", fleet=fresh).code == 0
        done = fleet.amend(before, narrower(before), dry_run=dry_run)
    assert done.changes == (("Run/rai/x", "changed"),)
    found = spec(fresh)
    assert found["funding"]["sponsors"] == ["org:ai:vision"]
    assert found["malleable"]["desiredTotalGPUs"] == (12 if dry_run else 8)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_run_that_was_cancelled_since_it_was_read_does_not_come_back(fresh: Path, again: bool, dry_run: bool) -> None:
    fleet = waiting(fresh)
    with LocalFleet.open(fleet, write=True, anchor=None) as hold:
        before = hold.view().run("rai", "x")
        assert call("runs", "cancel", "rai/x", fleet=fleet).code == 0
        if again:
            waiting(fleet)
        head = call("tenure", "ledger", "export", str(fleet)).out
        with pytest.raises(Trouble, match="Run/rai/x was deleted while it was looked at") as told:
            hold.amend(before, narrower(before), dry_run=dry_run)
    assert told.value.exit is Exit.NOT_FOUND
    assert call("tenure", "ledger", "export", str(fleet)).out == head
