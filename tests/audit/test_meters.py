"""The arithmetic of hours: exact at every microsecond, against counting one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure.audit.meters import Meter, Promises, first_over

HORIZON = 60
PIECES = st.dictionaries(st.integers(0, 40), st.integers(0, 5), max_size=5).map(
    lambda rates: sorted({0: 0, **rates}.items())
)


def used_at(instant: int, pieces: list[tuple[int, int]], used: int) -> int:
    """Count microsecond by microsecond."""
    for moment in range(instant):
        used += next(rate for start, rate in reversed(pieces) if start <= moment)
    return used


@given(pieces=PIECES, used=st.integers(0, 20), bound=st.integers(0, 60))
def test_the_crossing_is_the_first_microsecond_that_exceeds_the_bound(
    pieces: list[tuple[int, int]], used: int, bound: int
) -> None:
    over = [instant for instant in range(HORIZON) if used_at(instant, pieces, used) > bound]
    found = first_over(used=used, bound=bound, pieces=pieces)
    if over:
        assert found == over[0]
    else:
        assert found is None or found >= HORIZON


CHANGES = st.lists(st.tuples(st.integers(0, 9), st.integers(-4, 4)), max_size=8)


@given(changes=CHANGES, after=st.integers(0, 9))
def test_a_meter_does_not_care_when_anybody_looked(changes: list[tuple[int, int]], after: int) -> None:
    meter, rate, total, now = Meter(), 0, 0, 0
    for wait, gpus in changes:
        total += rate * wait
        now += wait
        assert meter.read(now) == total
        meter.change(gpus, at=now)
        rate += gpus
    assert meter.read(now + after) == total + rate * after


LEASES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 30)), max_size=6)


@given(leases=LEASES, dropped=st.sets(st.integers(0, 5)), looks=st.lists(st.integers(0, 12), max_size=5))
def test_promises_are_what_declared_leases_may_still_use(
    leases: list[tuple[int, int]], dropped: set[int], looks: list[int]
) -> None:
    promises, now = Promises(), 0
    for number, (gpus, until) in enumerate(leases):
        promises.add(str(number), gpus=gpus, until=until)
    for number in dropped:
        promises.drop(str(number))
    kept = [lease for number, lease in enumerate(leases) if number not in dropped]
    for wait in looks:
        now += wait
        assert promises.read(now) == sum(gpus * max(0, until - now) for gpus, until in kept)
