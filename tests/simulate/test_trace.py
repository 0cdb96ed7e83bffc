"""Traces: every row is a job or a complaint that names its line, and nothing that a file may hold gets further."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.api.formats import FORMATS
from tenure.simulate.trace import Names, Trace, merge, read_trace
from tenure.units import HOUR, SECOND

HEADER = "job_id,submit_s,duration_s,gpus,owner,user,gpu_type,status"


def read(*rows: str, header: str = HEADER, scale: int = 1) -> Trace:
    return read_trace([header, *rows], source="t.csv", scale=Fraction(scale))


def complaints(trace: Trace) -> list[str]:
    return [problem.sentence() for problem in trace.problems]


def test_a_row_is_a_job() -> None:
    trace = read("k0007,60,3600,128,pretrain,-,A100,COMPLETED")
    [job] = trace.jobs
    assert (job.id, job.name, job.owner, job.gpus) == ("k0007", "k0007", "pretrain", 128)
    assert (job.submit, job.duration, job.flavors) == (60 * SECOND, HOUR, ("A100",))
    assert trace.problems == ()


def test_jobs_come_by_submission_and_equal_instants_in_the_order_of_rows() -> None:
    trace = read("late,9,1,1,a,-,-,-", "b,3,1,1,a,-,-,-", "a,3,1,1,a,-,-,-")
    assert [job.name for job in trace.jobs] == ["b", "a", "late"]


def test_columns_may_stand_in_any_order_and_unknown_ones_are_ignored() -> None:
    trace = read("8,team,x,5,7,deep", header="GPUs,owner,job_id,duration_s,submit_s,mood")
    assert [(job.gpus, job.owner, job.submit) for job in trace.jobs] == [(8, "team", 7 * SECOND)]


def test_scaling_divides_submissions_and_nothing_else() -> None:
    [job] = read("a,10,7,1,x,-,-,-", scale=3).jobs
    assert (job.submit, job.duration) == (3_333_333, 7 * SECOND)


def test_what_the_user_asked_for_is_kept_apart_from_what_it_took() -> None:
    header = "job_id,submit_s,duration_s,gpus,owner,requested_s"
    known, unknown = read("a,0,10,1,x,60", "b,1,10,1,x,-", header=header).jobs
    assert (known.duration, known.requested) == (10 * SECOND, 60 * SECOND)
    assert unknown.requested is None


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,x,1,1,o,-,-,-", 'line 2, submit_s is "x": not a number of seconds'),
        ("a,-1,1,1,o,-,-,-", 'line 2, submit_s is "-1": not a number of seconds'),
        ("a,1e9,1,1,o,-,-,-", 'line 2, submit_s is "1e9"'),
        ("a,nan,1,1,o,-,-,-", 'line 2, submit_s is "nan"'),
        ("a,99999999999,1,1,o,-,-,-", "line 2, submit_s"),
        ("a,0,,1,o,-,-,-", "line 2, duration_s: not a number of seconds"),
        ("a,0,0,1,o,-,-,-", 'line 2, duration_s is "0": no run time'),
        ("a,0,1,0,o,-,-,-", 'line 2, gpus is "0": not a number of GPUs'),
        ("a,0,1,2.5,o,-,-,-", 'line 2, gpus is "2.5"'),
        ("a,0,1,99999999999,o,-,-,-", "line 2, gpus"),
        ("a,0,1,٣,o,-,-,-", "line 2, gpus"),
        (",0,1,1,o,-,-,-", "line 2, job_id: missing"),
        ("a,0,1,1,o,-,-,Pending", 'line 2, status is "Pending": the job never ran'),
        ("a,0,1", "line 2: 3 cells; write 8, as in the header"),
        ("a,0,1,1,o,-,-,-,extra", "line 2: 9 cells; write 8, as in the header"),
        ('a,0,1,1,"o"x,-,-,-', "line 2: not CSV"),
    ],
)
def test_a_bad_row_is_left_out_and_named_by_its_line(row: str, says: str) -> None:
    trace = read(row, "good,0,1,1,o,-,-,-")
    assert [job.name for job in trace.jobs] == ["good"]
    [complaint] = complaints(trace)
    assert f"t.csv: {says}" in complaint
    assert trace.left_out == 1


def test_everything_that_is_wrong_with_a_row_is_said_and_the_row_is_counted_once() -> None:
    trace = read("a,x,y,z,o,-,-,-")
    assert [problem.path for problem in trace.problems] == [
        "line 2, submit_s",
        "line 2, duration_s",
        "line 2, gpus",
    ]
    assert trace.left_out == 1


def test_a_job_that_stands_there_twice_is_taken_once() -> None:
    trace = read("a,0,1,1,o,-,-,-", "a,5,1,1,o,-,-,-")
    assert len(trace.jobs) == 1
    assert complaints(trace) == ['t.csv: line 3, job_id is "a": the job of line 2 already; give it another']


@pytest.mark.parametrize("header", ["", "job_id,submit_s", "a,b,c", HEADER + ",gpus"])
def test_a_file_without_the_columns_has_no_jobs_and_says_what_it_lacks(header: str) -> None:
    trace = read("a,0,1,1,o,-,-,-", header=header)
    assert trace.jobs == ()
    assert "header that has job_id, submit_s, duration_s, gpus, owner" in complaints(trace)[0]


def test_a_file_without_a_row_says_so() -> None:
    assert complaints(read()) == ["t.csv: line 1: no jobs in it; write one row for each job below the header"]


def test_a_flood_of_bad_rows_is_counted_in_full_and_told_in_part() -> None:
    trace = read(*(f"{index},x,1,1,o,-,-,-" for index in range(5000)))
    assert (len(trace.problems), trace.left_out) == (100, 5000)


def test_names_that_fall_together_are_told_apart() -> None:
    trace = read("Job 1,0,1,1,Team_A,-,-,-", "job-1,1,1,1,team-a,-,-,-", "JOB.1,2,1,1,Team_A,-,-,-")
    assert [job.name for job in trace.jobs] == ["job-1", "job-1-2", "job-1-3"]
    assert [job.owner for job in trace.jobs] == ["team-a", "team-a-2", "team-a"]


def test_jobs_of_two_traces_share_owners_and_keep_names_apart() -> None:
    one, two = read("a,5,1,1,x,-,-,-"), read("a,0,1,1,x,-,-,-", "a-2,1,1,1,x,-,-,-")
    assert [(job.name, job.owner, job.submit) for job in merge([one, two])] == [
        ("a-2", "x", 0),
        ("a-2-2", "x", SECOND),
        ("a", "x", 5 * SECOND),
    ]


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_becomes_a_name_and_an_owner_that_the_api_takes(job: str, owner: str) -> None:
    names = Names()
    assert FORMATS["name"].accepts(names.name(job))
    assert FORMATS["owner"].accepts(names.owner(owner))


@given(st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=40), max_size=8))
def test_no_text_stops_the_reader(lines: list[str]) -> None:
    for header in ([], [HEADER]):
        trace = read_trace([*header, *lines], source="any")
        assert all(job.gpus > 0 and job.duration > 0 for job in trace.jobs)
        assert trace.jobs or trace.problems
