"""`sponsors`: who is asked to lend to a run, what each would answer, and how to ask others."""

from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.cli.support import Done, call, driven, run_yaml, still, submit, until_idle

BANKS = """
kind: Budget
metadata: {name: bio}
spec:
  owner: org:bio
  envelopes:
  - {name: west, flavor: H100, selector: {region: west}, concurrency: 8, lending: {allow: true, to: ["org:other"]}}
---
kind: Budget
metadata: {name: chem}
spec:
  owner: org:chem
  envelopes:
  - {name: old, flavor: A100, selector: {region: west}, concurrency: 8, lending: {allow: true, to: ["*"]}}
"""
BORROW = {"allowBorrow": True, "maxBorrowGPUs": 6, "sponsors": ["org:ai:vision", "org:bio", "org:chem"]}


def waiting(fleet: Path, **funding: Any) -> Path:
    """A fleet that nobody drives, with one run that wants more than its owner has."""
    assert submit(fleet, BANKS, run_yaml("x", 22, "true", funding=BORROW | funding)).code == 0
    return fleet


def sponsors(fleet: Path, *words: str) -> Done:
    return call("runs", "sponsors", *words, fleet=fleet)


def listed(fleet: Path) -> list[str]:
    return sponsors(fleet, "list", "rai/x", "-o", "name").out.split()


def test_the_list_says_who_lends_how_much_and_why_not_more(fresh: Path) -> None:
    assert still(sponsors(waiting(fresh), "list", "rai/x").out) == snapshot("""\
Run/rai/x of org:ai:rai may borrow at most 6 GPUs and borrows 0; asked in this order:
# SPONSOR RELATION ENVELOPE LENDS COULD-GIVE PAYS GPU-HOURS WHY NOT MORE
1 org:ai:vision sponsor vision/west yes 6 0 0 The run may borrow 6 GPUs and borrows 0; 8 more were needed: 2 too many.
2 org:bio sponsor bio/west no 0 0 0 bio/west does not lend to org:ai:rai.
3 org:chem sponsor - no 0 0 0 it has no envelope of H100
""")


def test_the_list_for_programs_holds_the_reason_with_its_numbers(fresh: Path) -> None:
    told = sponsors(waiting(fresh), "list", "rai/x", "-o", "json").json
    first, second, third = told.pop("sponsors")
    assert told == {"run": "rai/x", "owner": "org:ai:rai", "allowBorrow": True, "maxBorrowGPUs": 6, "borrowedGPUs": 0}
    assert (first["place"], first["owner"], first["budget"], first["envelope"], first["lends"], first["couldGive"]) == (
        1, "org:ai:vision", "vision", "west", True, 6,
    )  # fmt: skip
    assert (first["limit"]["code"], first["limit"]["data"]["limit"]) == ("BorrowLimit", 6)
    assert (second["lends"], second["limit"]["code"]) == (False, "ACLDenied")
    assert (third["budget"], third["lends"], third["limit"]) == (None, False, None)


def test_what_a_sponsor_paid_is_told_when_the_run_is_over(past: Path) -> None:
    assert still(sponsors(past, "list", "rai/c-eval").out) == snapshot("""\
Run/rai/c-eval of org:ai:rai is Completed: nobody is asked any more
# SPONSOR RELATION ENVELOPE LENDS COULD-GIVE PAYS GPU-HOURS WHY NOT MORE
1 org:ai:vision sponsor vision/west yes 0 0 N.NN -
""")


FAMILY_ONCE = """
kind: Scenario
metadata: {name: family-once}
start: "2025-11-01T00:00:00Z"
policy: {growInterval: 30m}
nodes: [{name: "a-{i}", count: 4, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}]
objects:
- kind: Budget
  metadata: {name: one}
  spec:
    owner: org:ai:one
    parents: [org:ai]
    envelopes: [{name: west, flavor: H100, selector: {region: west}, concurrency: 1}]
- kind: Budget
  metadata: {name: two}
  spec:
    owner: org:ai:two
    parents: [org:ai]
    envelopes:
    - {name: west, flavor: H100, selector: {region: west}, concurrency: 64, lending: {allow: true, to: ["*"]}}
- kind: Run
  metadata: {name: x, namespace: rai}
  spec:
    owner: org:ai:one
    funding: {allowBorrow: true, sponsors: ["org:ai:two"]}
    resources: {gpuType: H100, totalGPUs: 8}
    malleable: {minTotalGPUs: 8, maxTotalGPUs: 16, stepGPUs: 8, desiredTotalGPUs: 8}
timeline:
- {at: 1h, patch: {kind: Budget, name: two, merge: {spec: {parents: ["org:bio"]}}}}
- {at: 2h, patch: {kind: Run, name: x, namespace: rai, merge: {spec: {malleable: {desiredTotalGPUs: 16}}}}}
until: 4h
"""


def test_what_an_envelope_paid_as_family_and_as_a_sponsor_is_added_up(tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text(FAMILY_ONCE)
    fleet = tmp_path / "fleet.db"
    assert call("tenure", "scenario", str(tmp_path / "family.yaml"), "--keep", str(fleet)).code == 0
    (life,) = call("runs", "who-pays", "rai/x", "-o", "json", fleet=fleet).json["incarnations"]
    paid = {one["class"]: (one["gpus"], one["gpuMicroseconds"]) for one in life["payers"] if one["budget"] == "two"}
    assert set(paid) == {"shared", "borrowed"}
    (two,) = sponsors(fleet, "list", "rai/x", "-o", "json").json["sponsors"]
    assert (two["budget"], two["gpus"], two["gpuMicroseconds"]) == ("two", *map(sum, zip(*paid.values(), strict=True)))
    assert f" two/west yes 49 {two['gpus']} " in still(sponsors(fleet, "list", "rai/x").out)


def test_a_run_without_sponsors_says_that_nobody_is_asked(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 2, "true", funding={"allowBorrow": True})).code == 0
    told = sponsors(fresh, "list", "rai/x").out
    assert told.endswith("may borrow any number of GPUs but lists no sponsor: nobody outside the family is asked.\n")


# --- changing them --------------------------------------------------------------------------------------------------


def test_a_sponsor_is_added_at_the_end_and_its_answer_is_told(fresh: Path) -> None:
    fleet = waiting(fresh, sponsors=["org:bio"])
    before = call("runs", "describe", "rai/x", "-o", "json", fleet=fleet).json["run"]["spec"]
    done = sponsors(fleet, "add", "rai/x", "org:ai:vision")
    assert done == Done(
        0,
        "Run/rai/x: org:ai:vision is sponsor 2 of 2\n",
        f"vision/west could give 6 GPUs now\nnothing drives this fleet, so nothing changes yet: tenure up {fleet}\n",
    )
    assert listed(fleet) == ["org:bio", "org:ai:vision"]
    before["funding"]["sponsors"] = ["org:bio", "org:ai:vision"]
    assert call("runs", "describe", "rai/x", "-o", "json", fleet=fleet).json["run"]["spec"] == before


def test_first_puts_it_before_the_others_and_moves_it_if_it_is_there(fresh: Path) -> None:
    fleet = waiting(fresh)
    assert sponsors(fleet, "add", "rai/x", "org:new", "--first").out == "Run/rai/x: org:new is sponsor 1 of 4\n"
    assert sponsors(fleet, "add", "x", "org:chem", "--first", "-n", "rai").code == 0
    assert listed(fleet) == ["org:chem", "org:new", "org:ai:vision", "org:bio"]


def test_a_sponsor_that_would_give_nothing_is_taken_and_the_reason_told(fresh: Path) -> None:
    fleet = waiting(fresh, sponsors=[])
    told = {owner: sponsors(fleet, "add", "rai/x", owner).err.splitlines()[0] for owner in ("org:bio", "org:nobody")}
    assert told == {
        "org:bio": "bio/west gives nothing now: bio/west does not lend to org:ai:rai.",
        "org:nobody": "org:nobody gives nothing now: it has no envelope of H100",
    }


def test_adding_one_that_is_there_changes_nothing(fresh: Path) -> None:
    fleet = waiting(fresh)
    before = call("tenure", "ledger", "export", str(fleet)).out
    assert sponsors(fleet, "add", "rai/x", "org:bio").out == "Run/rai/x: org:bio is sponsor 2 of 3 already\n"
    assert call("tenure", "ledger", "export", str(fleet)).out == before


def test_removing_says_how_many_are_left(fresh: Path) -> None:
    fleet = waiting(fresh, sponsors=["org:bio", "org:chem"])
    assert (
        sponsors(fleet, "remove", "rai/x", "org:bio").out == "Run/rai/x: org:bio is a sponsor no more; 1 sponsor left\n"
    )
    assert "none is left, so nobody outside the family is asked" in sponsors(fleet, "remove", "rai/x", "org:chem").out
    assert listed(fleet) == []


@pytest.mark.parametrize(
    ("words", "problem", "step"),
    [
        (["add", "rai/x", "Org:Bank"], 'spec.funding.sponsors[3] is "Org:Bank"', "nothing was changed"),
        (["add", "rai/x", "org:*"], 'spec.funding.sponsors[3] is "org:*"', "nothing was changed"),
        (["add", "rai/x", "org:ai:rai"], "org:ai:rai owns Run/rai/x", "outside the family"),
        (["remove", "rai/x", "org:none"], "org:none is no sponsor of Run/rai/x", "sponsors list rai/x"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(fresh: Path, words: list[str], problem: str, step: str) -> None:
    fleet = waiting(fresh)
    done = sponsors(fleet, *words)
    assert (done.code, done.out) == (2, "")
    first, second = done.err.splitlines()
    assert problem in first
    assert second.startswith("next: ")
    assert step in second
    assert listed(fleet) == BORROW["sponsors"]


def test_more_sponsors_than_a_run_may_list_are_refused(fresh: Path) -> None:
    fleet = waiting(fresh, sponsors=[f"org:s{number}" for number in range(32)])
    done = sponsors(fleet, "add", "rai/x", "org:one-more")
    assert (done.code, len(listed(fleet))) == (2, 32)
    assert "spec.funding.sponsors" in done.err


def test_a_run_that_may_not_borrow_is_told_what_to_set(fresh: Path) -> None:
    assert submit(fresh, run_yaml("x", 2, "true")).code == 0
    done = sponsors(fresh, "add", "rai/x", "org:ai:vision")
    assert done == Done(
        2,
        "",
        "error: Run/rai/x may not borrow: spec.funding.allowBorrow is false\n"
        "next: set funding.allowBorrow: true and submit it again; if it was admitted already, cancel it first\n",
    )
    assert "may not borrow" in sponsors(fresh, "list", "rai/x").out


def test_a_run_that_is_over_has_nobody_to_ask(past: Path, used: Path) -> None:
    for words in (["add", "rai/c-eval", "org:bio"], ["remove", "rai/c-eval", "org:ai:vision"]):
        done = sponsors(used, *words)
        assert (done.code, done.err.splitlines()[0]) == (
            2,
            "error: Run/rai/c-eval is Completed: nobody is asked to pay for it any more",
        )


def test_a_run_that_is_not_there_is_not_found(fresh: Path) -> None:
    for words in (["list", "rai/no"], ["add", "rai/no", "org:x"], ["remove", "rai/no", "org:x"]):
        assert sponsors(fresh, *words).code == 5


# --- a fleet that is driven -----------------------------------------------------------------------------------------


def test_a_new_sponsor_starts_a_run_that_waits_and_goes_on_paying_when_it_is_removed(fresh: Path) -> None:
    with driven(fresh):
        borrows = {"allowBorrow": True, "sponsors": ["org:bio"]}
        assert submit(fresh, run_yaml("x", 20, "sleep 60", funding=borrows)).code == 0
        done = sponsors(fresh, "add", "rai/x", "org:ai:vision")
        assert "Run/rai/x starts: 20 GPUs" in done.err
        assert "vision/west (6 borrowed)" in done.err
        gone = sponsors(fresh, "remove", "rai/x", "org:ai:vision")
        assert gone.err.startswith("org:ai:vision goes on paying for the 6 GPUs that it pays for now, in 2 leases")
        row = sponsors(fresh, "list", "rai/x", "-o", "json").json["sponsors"][-1]
        assert (row["relation"], row["owner"], row["place"], row["gpus"]) == ("former", "org:ai:vision", None, 6)
        assert call("runs", "cancel", "rai/x", fleet=fresh).code == 0
    until_idle(fresh)
    payers = call("runs", "who-pays", "rai/x", "-o", "json", fleet=fresh).json["incarnations"][0]["payers"]
    assert {one["payer"] for one in payers} == {"org:ai:rai", "org:ai:vision"}
