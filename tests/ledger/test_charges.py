"""Charges: the finest rows of a bill. Their sum is the sum over the leases, to the microsecond, however it is cut."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tenure.facts import PutRun
from tenure.ledger import Charge, Ledger
from tenure.testing import run
from tenure.units import DAY, HOUR, parse_time
from tests.ledger.support import closed, opened
from tests.ledger.test_queries import Span, histories, play, record

NOON = parse_time("2025-11-01T12:00:00Z")
MIDNIGHT = NOON - 12 * HOUR
TIMES = st.integers(0, 300 * HOUR)


def submitted(name: str, *, uid: str, flavor: str) -> PutRun:
    made = run(name, 8, owner="org:ai:rai", namespace="rai", flavor=flavor)
    return PutRun(object=replace(made, metadata=replace(made.metadata, uid=uid)))


def test_a_lease_over_midnight_is_cut_and_nothing_is_lost(ledger: Ledger) -> None:
    record(
        ledger,
        (NOON, [submitted("train", uid="u-1", flavor="H100"), opened("a", start=NOON, gpus=(0, 1, 2))]),
        (NOON + DAY + 7, [closed("a", end=NOON + DAY + 7)]),
    )
    whole = {"payer": "org:ai:rai", "budget": "rai", "envelope": "west", "flavor": "H100", "owner": "org:ai:rai",
             "namespace": "rai", "run": "train", "uid": "u-1", "funding": "owned", "role": "Active"}  # fmt: skip
    assert ledger.charges(since=0, until=NOON + 9 * DAY) == [
        Charge(day=MIDNIGHT, used=3 * 12 * HOUR, **whole),  # type: ignore[arg-type]  # as above
        Charge(day=MIDNIGHT + DAY, used=3 * (12 * HOUR + 7), **whole),  # type: ignore[arg-type]
    ]


def test_leases_of_a_run_are_one_charge_unless_payer_class_or_role_differ(ledger: Ledger) -> None:
    loan = {"budget": "mm", "payer": "org:ai:mm", "funding": "borrowed"}
    record(
        ledger,
        (0, [opened("a"), opened("b", group=1), opened("c", role="Spare"), opened("d", **loan)]),
        (5, [opened("e", start=5, uid="u-2")]),
    )
    found = [(one.payer, one.uid, one.funding, one.role, one.used) for one in ledger.charges(since=0, until=10)]
    assert found == [
        ("org:ai:mm", "u-1", "borrowed", "Active", 20),
        ("org:ai:rai", "u-1", "owned", "Active", 40),
        ("org:ai:rai", "u-1", "owned", "Spare", 20),
        ("org:ai:rai", "u-2", "owned", "Active", 10),
    ]
    assert sum(one.used for one in ledger.charges(since=0, until=10, funding="borrowed")) == 20
    assert ledger.charges(since=0, until=0) == []


def test_the_flavor_is_what_the_run_asked_for_when_it_was_admitted(ledger: Ledger) -> None:
    """A waiting run may still ask for another kind of GPU, and a name may be used by one run after the other."""
    record(
        ledger,
        (0, [submitted("train", uid="u-1", flavor="A100")]),
        (1, [submitted("train", uid="u-1", flavor="H100"), opened("a", start=1)]),
        (2, [closed("a", end=2), submitted("train", uid="u-2", flavor="A100"), opened("b", start=2, uid="u-2")]),
    )
    assert {one.uid: one.flavor for one in ledger.charges(since=0, until=9)} == {"u-1": "H100", "u-2": "A100"}


@given(spans=histories(), since=TIMES, until=TIMES)
def test_charges_add_up_to_the_leases(spans: list[Span], since: int, until: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "f.db", fleet="lab") as ledger:
        play(ledger, spans)
        rows = ledger.charges(since=since, until=until)
        assert sum(one.used for one in rows) == sum(row.used(since=since, until=until) for row in ledger.leases())
        assert rows == sorted(rows)
        assert all(one.used > 0 and one.day % DAY == 0 for one in rows)
        for by, name in (("payer", "payer"), ("owner", "owner"), ("run", "run_key")):
            sums: dict[str, int] = {}
            for one in rows:
                sums[getattr(one, name)] = sums.get(getattr(one, name), 0) + one.used
            assert sums == ledger.usage(by=by, since=since, until=until)  # type: ignore[arg-type]  # each is a key
        # A period cut in two is the whole period.
        middle = (since + until) // 2
        halves = [*ledger.charges(since=since, until=middle), *ledger.charges(since=middle, until=until)]
        assert sum(one.used for one in halves) == sum(one.used for one in rows)


@pytest.mark.parametrize("funding", ["owned", "shared", "borrowed"])
def test_leases_are_found_by_class(ledger: Ledger, funding: str) -> None:
    record(ledger, (0, [opened(one, funding=one) for one in ("owned", "shared", "borrowed")]))
    assert [row.lease.name for row in ledger.leases(funding=funding)] == [funding]  # type: ignore[arg-type]  # a class
