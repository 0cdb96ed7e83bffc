"""`budgets lent`: the statements of lenders and borrowers, on the worked example of the guide and by hand."""

from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from tenure.cli.loans import Loan, Pair, loans, reciprocal
from tenure.facts import Lease
from tenure.ledger import LeaseRow
from tenure.units import HOUR
from tests.cli.support import call, still

DECEMBER = ["--until", "2025-12-02"]


def lent(fleet: Path, *words: str) -> Any:
    return call("runs", "budgets", "lent", *words, "-o", "json", fleet=fleet).json


def text(fleet: Path, *words: str) -> str:
    return still(call("runs", "budgets", "lent", *words, fleet=fleet).out)


def test_a_lender_sees_what_went_to_whom_until_when_and_what_is_left(funded: Path) -> None:
    assert call(
        "runs", "budgets", "lent", "org:mm:vision", "--until", "2025-11-30T22:00:00Z", fleet=funded
    ).out == snapshot("""\
From the beginning to 2025-11-30T22:00:00Z, GPUs as of then:

Lent by org:mm:vision
TO          RUN        ENVELOPE     GPUS  GPU-HOURS  UNTIL
org:ai:rai  rai/train  vision/west    12      24.00  2025-12-01T02:00:00Z (in 4h)

Borrowed by org:mm:vision
nothing in this period

Left to lend (hours: in the window in force)
ENVELOPE     LENT  LEFT  OF  HOURS-LENT  COMMITTED  HOURS-LEFT  HOURS-OF  COULD-LEND  BOUND-BY                TO
vision/west    12     0  12       24.00      48.00       28.00    100.00           0  lending.maxConcurrency  org:ai:*
""")


def test_a_borrower_sees_both_directions_and_the_net(funded: Path) -> None:
    told = lent(funded, "org:ai:rai", *DECEMBER)
    assert [(one["borrower"], one["run"], one["gpuHours"], one["ended"]) for one in told["lent"]] == [
        ("org:mm:vision", "vision/sweep", 8.0, "2025-12-01T05:00:00Z")
    ]
    assert {(one["lender"], one["gpuHours"]) for one in told["borrowed"]} == {
        ("org:bio", 16.0),
        ("org:mm:vision", 48.0),
    }
    assert told["reciprocal"] == [
        {
            "owner": "org:ai:rai", "with": "org:mm:vision",
            "lentGPUMicroseconds": 8 * HOUR, "lentGPUHours": 8.0,
            "borrowedGPUMicroseconds": 48 * HOUR, "borrowedGPUHours": 48.0,
            "netGPUMicroseconds": -40 * HOUR, "netGPUHours": -40.0,
        }
    ]  # fmt: skip


def test_a_budget_has_a_statement_of_its_own(funded: Path) -> None:
    told = lent(funded, "bio", *DECEMBER)
    assert (told["owner"], told["budget"]) == ("org:bio", "bio")
    assert [one["gpuHours"] for one in told["lent"]] == [16.0]
    assert [(one["envelope"], one["maxConcurrency"], one["couldLend"]) for one in told["limits"]] == [("west", 8, 8)]


def test_without_a_name_everybody_is_there_and_each_pair_once_with_who_lent_more_first(funded: Path) -> None:
    told = lent(funded, *DECEMBER)
    assert (told["owner"], told["budget"], told["borrowed"]) == (None, None, [])
    assert {(one["lender"], one["borrower"], one["gpuHours"]) for one in told["lent"]} == {
        ("org:ai:rai", "org:mm:vision", 8.0), ("org:bio", "org:ai:rai", 16.0), ("org:mm:vision", "org:ai:rai", 48.0),
    }  # fmt: skip
    assert [(one["owner"], one["with"], one["netGPUHours"]) for one in told["reciprocal"]] == [
        ("org:mm:vision", "org:ai:rai", 40.0)
    ]
    assert call("runs", "budgets", "lent", *DECEMBER, "-o", "name", fleet=funded).out == "vision/sweep\nrai/train\n"


@pytest.mark.parametrize(
    ("words", "hours"),
    [
        (["--since", "2025-11-30", "--until", "2025-12-01"], 40.0),
        (["--since", "2025-12-01", "--until", "2025-12-02"], 8.0),
        (["--since", "2025-11-30T20:30:00Z", "--until", "2025-11-30T20:31:00Z"], 0.2),
    ],
)
def test_a_period_counts_what_was_used_in_it(funded: Path, words: list[str], hours: float) -> None:
    assert sum(one["gpuHours"] for one in lent(funded, "vision", *words)["lent"]) == hours


def test_both_sides_of_a_loan_agree_with_the_ledger(funded: Path) -> None:
    everything = lent(funded, *DECEMBER)["lent"]
    by_sponsor = call(
        "runs", "budgets", "usage", "--by", "sponsor", *DECEMBER, "-o", "json", fleet=funded
    ).json["usage"]  # fmt: skip
    assert sum(one["gpuMicroseconds"] for one in everything) == sum(one["gpuMicroseconds"] for one in by_sponsor)
    for owner in ("org:ai:rai", "org:bio", "org:mm:vision", "org:ai:eval"):
        told = lent(funded, owner, *DECEMBER)
        assert told["lent"] == [one for one in everything if one["lender"] == owner]
        assert told["borrowed"] == [one for one in everything if one["borrower"] == owner]


def test_sharing_within_the_family_is_no_loan(funded: Path) -> None:
    assert "Lent by org:ai:eval\nnothing in this period" in text(funded, "org:ai:eval", *DECEMBER)
    assert "org:ai:eval lends to nobody" in text(funded, "org:ai:eval", *DECEMBER)


def test_nobody_of_that_name(funded: Path) -> None:
    done = call("runs", "budgets", "lent", "org:nobody", fleet=funded)
    assert (done.code, done.err.splitlines()[0]) == (
        5,
        "error: there is no Budget, and no owner, of the name org:nobody",
    )
    assert call("runs", "budgets", "lent", "--until", "2999-01-01", fleet=funded).code == 2
    assert call("runs", "budgets", "lent", "--since", "2025-12-02", "--until", "2025-12-01", fleet=funded).code == 2


# --- by hand --------------------------------------------------------------------------------------------------------


def row(lender: str, borrower: str, start: int, end: int | None, **other: Any) -> LeaseRow:
    usual: dict[str, Any] = {
        "namespace": "ns", "name": "l", "run": "r", "uid": "u", "owner": borrower, "attempt": 1, "group": 0,
        "domain": "d", "node": "n", "gpus": (0, 1), "role": "Active", "start": start, "budget": "b",
        "envelope": "e", "payer": lender, "funding": "borrowed", "reason": "Start",
    }  # fmt: skip
    return LeaseRow(lease=Lease(**(usual | other)), end=end, closure=None if end is None else "Completed", seq=1)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("a", "b", 0, None)], "no end declared"),
        ([row("a", "b", 0, None, until=20 * HOUR)], "1970-01-01T20:00:00Z (in 10h)"),
        ([row("a", "b", 0, None, until=20 * HOUR), row("a", "b", 0, None)], "no end declared"),
        ([row("a", "b", 0, None), row("a", "b", 0, None, until=20 * HOUR)], "no end declared"),
        ([row("a", "b", 0, None, until=12 * HOUR), row("a", "b", 0, None, until=20 * HOUR)],
         "1970-01-01T20:00:00Z (in 10h)"),
        ([row("a", "b", 0, None, until=5 * HOUR)], "overdue since 1970-01-01T05:00:00Z"),
        ([row("a", "b", 0, 3 * HOUR), row("a", "b", 0, 2 * HOUR)], "ended 1970-01-01T03:00:00Z"),
        ([row("a", "b", 0, 3 * HOUR), row("a", "b", 0, None)], "no end declared"),
        ([row("a", "b", 0, 11 * HOUR)], "no end declared"),
    ],
)  # fmt: skip
def test_until_when_a_loan_lasts(rows: list[LeaseRow], said: str) -> None:
    (loan,) = loans(rows, since=0, at=10 * HOUR)
    assert loan.end(10 * HOUR) == said


def loan(lender: str, borrower: str, used: int) -> Loan:
    return Loan(lender=lender, borrower=borrower, run="ns/r", budget="b", envelope="e", used=used)


def test_only_owners_who_lend_to_each_other_are_a_pair() -> None:
    found = [loan("a", "b", 3), loan("b", "a", 2), loan("b", "a", 4), loan("a", "c", 9), loan("c", "d", 1)]
    assert reciprocal(found) == [Pair(one="b", other="a", lent=6, borrowed=3)]
    assert reciprocal(found, owner="a") == [Pair(one="a", other="b", lent=3, borrowed=6)]
    assert reciprocal([loan("a", "b", 5), loan("b", "a", 5)]) == [Pair(one="a", other="b", lent=5, borrowed=5)]
    assert reciprocal(found, owner="c") == []
