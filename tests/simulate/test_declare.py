"""What jobs declare: six ways, and how many requests were not what they seem."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.simulate.declare import (
    DOUBLED_MAX,
    LONGEST_STEP,
    WAYS,
    Declarations,
    Declare,
    count_declarations,
    declared_by,
    round_up,
    sentence,
)
from tenure.simulate.trace import job
from tenure.units import DAY, HOUR, SECOND


@pytest.mark.parametrize(
    ("how", "enough", "too_little", "unknown"),
    [
        ("requested", 5 * HOUR, 2 * HOUR, 2 * HOUR),
        ("requested-raw", 5 * HOUR, HOUR, 2 * HOUR),
        ("x2", 4 * HOUR, 4 * HOUR, 4 * HOUR),
        ("true", 2 * HOUR, 2 * HOUR, 2 * HOUR),
        ("none", None, None, None),
        ("rounded", 2 * HOUR, 2 * HOUR, 2 * HOUR),
    ],
)
def test_what_a_job_of_two_hours_declares(
    how: Declare, enough: int | None, too_little: int | None, unknown: int | None
) -> None:
    asked = [job("a", 0, 2 * HOUR, 1, requested=requested) for requested in (5 * HOUR, HOUR, None)]
    assert [declared_by(one, how) for one in asked] == [enough, too_little, unknown]


@given(st.integers(1, 400 * DAY), st.one_of(st.none(), st.integers(1, 400 * DAY)))
def test_only_raw_requests_are_below_the_run_time(duration: int, requested: int | None) -> None:
    for how in WAYS:
        declared = declared_by(job("a", 0, duration, 1, requested=requested), how)
        assert declared is None or declared >= duration or how == "requested-raw"


@given(st.integers(1, 400 * DAY))
def test_rounding_up_goes_to_the_next_step_and_no_further(duration: int) -> None:
    rounded = round_up(duration)
    assert round_up(rounded) == rounded >= duration
    if duration <= DOUBLED_MAX:
        assert rounded < 2 * duration or rounded == HOUR
    else:
        assert rounded < duration + LONGEST_STEP


def test_the_steps_are_those_that_the_page_names() -> None:
    lengths = [SECOND, HOUR, HOUR + 1, 3 * HOUR, 1024 * HOUR, 1024 * HOUR + 1, 60 * DAY, 60 * DAY + 1]
    assert [round_up(length) // HOUR for length in lengths] == [1, 1, 2, 4, 1024, 1440, 1440, 2880]


def test_requests_below_the_run_time_are_counted_as_raised_or_as_overstays() -> None:
    asked = [job("a", 0, 60, 1, requested=requested) for requested in (59, 60, 61, None)]
    assert count_declarations(asked, "requested") == Declarations(how="requested", jobs=4, unknown=1, raised=1)
    assert count_declarations(asked, "requested-raw") == Declarations(how="requested-raw", jobs=4, unknown=1, below=1)
    for how in ("x2", "true", "none", "rounded"):
        assert count_declarations(asked, how) == Declarations(how=how, jobs=4)


@pytest.mark.parametrize("how", WAYS)
def test_every_way_to_declare_is_said_in_words(how: Declare) -> None:
    assert sentence(Declarations(how=how, jobs=1)).startswith("jobs declared ")
    assert len({sentence(Declarations(how=one, jobs=1)) for one in WAYS}) == len(WAYS)
