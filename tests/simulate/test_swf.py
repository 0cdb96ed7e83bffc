"""Files of the Parallel Workloads Archive: every row is a job or a complaint that names its line."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.simulate.swf import FIELDS, OwnerField, is_swf, read_swf
from tenure.simulate.trace import Trace
from tenure.units import HOUR, SECOND

HEADER = """; Version: 2.2
; Computer: IBM SP2
; MaxNodes: 100
; MaxProcs: 430 (of which 100 are interactive)
;
; UnixStartTime: 835466365
"""


def row(**fields: object) -> str:
    """A good row, but for what is given by the number of its field: ``f5=-1``."""
    good = [1, 10, 5, 3600, 16, -1, -1, 16, 7200, -1, 1, 3, 4, -1, 2, -1, -1, -1]
    for name, value in fields.items():
        good[int(name[1:]) - 1] = value  # type: ignore[call-overload]  # rows may hold anything
    return " ".join(map(str, good))


def read(text: str, *, scale: int = 1, owner: OwnerField = "user") -> Trace:
    return read_swf(text.splitlines(keepends=True), source="log.swf", scale=Fraction(scale), owner=owner)


def complaints(trace: Trace) -> list[str]:
    return [problem.sentence() for problem in trace.problems]


def test_a_row_is_a_job_and_the_header_says_how_large_the_machine_was() -> None:
    trace = read(HEADER + row())
    [job] = trace.jobs
    assert (job.id, job.name, job.owner, job.gpus) == ("1", "1", "user-3", 16)
    assert (job.submit, job.duration, job.requested) == (0, HOUR, 2 * HOUR)
    assert (trace.processors, trace.problems, trace.source) == (430, (), "log.swf")


def test_blank_lines_windows_line_ends_tabs_marks_and_comments_do_no_harm() -> None:
    rows = [row(), row(f1=2).replace(" ", "\t"), f"   {row(f1=3)}   ", row(f1=4) + " 9 9 9"]
    plain = read("\n".join(rows))
    odd = read("\ufeff; MaxProcs: 8\r\n\r\n" + "\r\n;\r\n".join(rows) + "\r\n\x1a")
    assert len(plain.jobs) == 4
    assert odd.jobs == plain.jobs
    assert odd.problems == ()


def test_times_count_from_the_first_job_that_can_be_used_and_scaling_divides_submissions() -> None:
    trace = read("\n".join([row(f1=1, f2=50, f4=-1), row(f1=2, f2=100), row(f1=3, f2=160.5)]), scale=2)
    assert [(job.name, job.submit) for job in trace.jobs] == [("2", 0), ("3", 30_250_000)]
    assert [job.duration for job in trace.jobs] == [HOUR, HOUR]
    since_1970 = read("\n".join([row(f1=1, f2=1_356_994_806), row(f1=2, f2=1_356_994_816)]))
    assert [job.submit for job in since_1970.jobs] == [0, 10 * SECOND]


@pytest.mark.parametrize(
    ("owner", "fields", "name"),
    [
        ("user", {}, "user-3"),
        ("group", {}, "group-4"),
        ("queue", {}, "queue-2"),
        ("queue", {"f15": 0}, "queue-0"),
        ("user", {"f12": -1}, "nobody"),
    ],
)
def test_the_owner_is_the_field_that_was_asked_for(owner: OwnerField, fields: dict[str, object], name: str) -> None:
    assert [job.owner for job in read(row(**fields), owner=owner).jobs] == [name]


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [({"f5": 4}, 4), ({"f5": -1}, 16), ({"f5": 0}, 16), ({"f5": -1, "f8": 3}, 3), ({"f8": -1}, 16)],
)
def test_processors_are_those_allocated_else_those_requested(fields: dict[str, object], gpus: int) -> None:
    assert [job.gpus for job in read(row(**fields)).jobs] == [gpus]


@pytest.mark.parametrize("unknown", [-1, 0, "-1.00"])
def test_a_request_that_the_log_does_not_know_is_none(unknown: object) -> None:
    assert [job.requested for job in read(row(f9=unknown)).jobs] == [None]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row(f4=-1), 'line 1, run time is "-1": no run time'),
        (row(f4=0), 'line 1, run time is "0": no run time'),
        (row(f4="x"), 'line 1, run time is "x": not a number of seconds'),
        (row(f2=-1), "line 1, submit time: unknown"),
        (row(f2="9" * 11), "line 1, submit time"),
        (row(f9="1e3"), 'line 1, requested time is "1e3": not a number of seconds'),
        (row(f5=-1, f8=-1), "line 1, processors: neither allocated nor requested"),
        (row(f5=2.5), 'line 1, processors is "2.5": not a number of processors'),
        (row(f5="9" * 12), "line 1, processors"),
        (row(f5="٣"), "line 1, processors"),
        (row(f11=2), 'line 1, status is "2": a part of a job'),
        (row(f11=4), 'line 1, status is "4": a part of a job'),
        ("1 2 3", "line 1: 3 fields; SWF has 18 in every row"),
        ("job_id,submit_s,duration_s,gpus,owner", "line 1: 1 fields"),
    ],
)
def test_a_bad_row_is_left_out_and_named_by_its_line(bad: str, says: str) -> None:
    trace = read(f"{bad}\n{row(f1='good')}")
    assert [job.name for job in trace.jobs] == ["good"]
    [complaint] = complaints(trace)
    assert f"log.swf: {says}" in complaint
    assert trace.left_out == 1


def test_failed_and_canceled_jobs_that_ran_are_jobs() -> None:
    assert len(read("\n".join([row(f1=1, f11=0), row(f1=2, f11=5), row(f1=3, f11=-1)])).jobs) == 3


def test_a_job_number_is_taken_once_and_an_unknown_one_is_no_number() -> None:
    trace = read("\n".join([row(f1=7), row(f1=7), row(f1=-1), row(f1=-1)]))
    assert [job.name for job in trace.jobs] == ["7", "line-3", "line-4"]
    assert complaints(trace) == ['log.swf: line 2, job number is "7": the job of line 1 already; give it another']


def test_a_file_of_comments_has_no_jobs_and_says_so() -> None:
    trace = read(HEADER)
    assert trace.jobs == ()
    assert "no jobs in it" in complaints(trace)[0]


def test_a_file_is_known_by_its_name() -> None:
    names = ["a.swf", "A.SWF.gz", "a.csv", "swf", "a.swf.csv", "-"]
    assert [is_swf(name) for name in names] == [True, True, False, False, False, False]


@given(st.lists(st.lists(st.text(max_size=6), max_size=FIELDS + 2).map(" ".join), max_size=8))
def test_no_text_stops_the_reader(lines: list[str]) -> None:
    trace = read_swf(lines, source="any")
    assert all(job.gpus > 0 and job.duration > 0 and job.submit >= 0 for job in trace.jobs)
    assert trace.jobs or trace.problems
