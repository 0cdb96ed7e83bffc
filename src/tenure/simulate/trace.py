"""Job traces: CSV files of jobs that really ran, read row by row, with the line of everything that is wrong.

One row is one job: ``job_id, submit_s, duration_s, gpus, owner``, and where there are such columns ``gpu_type``,
``status`` and ``requested_s`` (the run time its user asked for); others are ignored. A row that cannot be read is left
out and told of, by its line; so is a job that never ran (status ``Pending``) or has no run time. What to make of a file
without one good job is the caller's business.

Names come from outside: what the API allows in a name is kept, the rest becomes a dash, and two that fall together are
told apart by a number.

>>> trace = read_trace(["job_id,submit_s,duration_s,gpus,owner", "J 1,60,90.5,8,Team_A", "J2,x,90,8,b"], source="t.csv")
>>> [(job.name, job.owner, job.submit, job.duration, job.gpus) for job in trace.jobs]
[('j-1', 'team-a', 60000000, 90500000, 8)]
>>> print(trace.problems[0].sentence())
t.csv: line 3, submit_s is "x": not a number of seconds; write one from 0 up, such as 3600 or 0.5
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from tenure.api.errors import ERROR_COUNT_MAX, FieldError, escape, show
from tenure.units import SECOND, Micros

NEEDED = ("job_id", "submit_s", "duration_s", "gpus", "owner")
ABSENT = ("", "-")
"""What stands in a cell of which the source does not know."""
NEVER_RAN = frozenset({"pending"})
SECONDS_MAX = 10**9
"""Thirty years: longer than any trace, and far from where integers of the API end."""
GPUS_MAX = 10**7

_SECONDS = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?", re.ASCII)
_COUNT = re.compile(r"(\d{1,8})(?:\.0+)?", re.ASCII)
_SEGMENT_MAX, _NAME_MAX = 40, 48


class Job(Struct, frozen=True, kw_only=True):
    """One job of a trace. Times are counted from the start of the trace."""

    id: str
    """As the trace spells it."""
    name: str
    """As an object's name."""
    owner: str
    submit: Micros
    duration: Micros
    """How long it really ran."""
    requested: Micros | None = None
    """How long its user said that it would run."""
    gpus: int
    flavors: tuple[str, ...] = ()
    """The kinds of GPU that it may run on, as the trace names them; none if it does not say."""


def job(
    name: str, submit: Micros, duration: Micros, gpus: int, owner: str = "somebody", *, requested: Micros | None = None
) -> Job:
    """A job in few words, for examples and tests."""
    return Job(id=name, name=name, owner=owner, submit=submit, duration=duration, gpus=gpus, requested=requested)


class Trace(Struct, frozen=True, kw_only=True):
    """What one file holds: jobs by the time they were submitted, and what is wrong with the other rows."""

    source: str
    jobs: tuple[Job, ...]
    problems: tuple[FieldError, ...] = ()
    """What is wrong with rows that were left out: the first hundred of them."""
    left_out: int = 0
    """How many rows were left out."""
    processors: int | None = None
    """How many the machine had on which these jobs ran, if the file says so."""


class Names:
    """Names that the API allows, one for each that came from outside.

    >>> names = Names()
    >>> [names.name("Job 1"), names.name("job-1"), names.name("Job 1"), names.owner("Org:AI_x")]
    ['job-1', 'job-1-2', 'job-1', 'org:ai-x']
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def name(self, raw: str, *, within: str = "") -> str:
        """The name of a job; the same text ``within`` another file is another job."""
        return self._unique((within, raw), slug(raw))

    def owner(self, raw: str) -> str:
        return self._unique(("", raw), ":".join(slug(part, _SEGMENT_MAX) for part in raw.split(":")[:8]))

    def _unique(self, key: tuple[str, str], wanted: str) -> str:
        if key not in self._given:
            name, count = wanted, 1
            while name in self._taken:
                count += 1
                name = f"{wanted}-{count}"
            self._given[key] = name
            self._taken.add(name)
        return self._given[key]


def read_trace(lines: Iterable[str], *, source: str, scale: Fraction = Fraction(1)) -> Trace:
    """The jobs of a CSV text. ``scale`` divides the times of submission: 3 squeezes ninety days into thirty."""
    assert scale > 0
    complaints = Complaints(source)
    return complaints.finish(_Reader(complaints, scale).jobs(lines))


def merge(traces: Sequence[Trace]) -> tuple[Job, ...]:
    """The jobs of several traces on one clock, by submission; equal instants keep the order of traces and rows.

    Owners of the same name are the same owner. A job whose name an earlier trace has gets a number.
    """
    names = Names()
    jobs = [
        replace(job, name=names.name(job.name, within=f"{index}"))
        for index, trace in enumerate(traces)
        for job in trace.jobs
    ]
    return tuple(sorted(jobs, key=lambda job: job.submit))


class Complaints:
    """What is wrong with the rows of one file: the first hundred in words, all of them counted."""

    def __init__(self, source: str) -> None:
        self.raw = source
        self.source = escape(source)
        self.problems: list[FieldError] = []
        self.bad: set[int] = set()
        """Lines with something wrong in them."""

    def add(self, line: int, column: str, problem: str, fix: str, *, value: str = "") -> None:
        where = f"line {line}, {column}" if column else f"line {line}"
        self.bad.add(line)
        if len(self.problems) < ERROR_COUNT_MAX:
            there = show(value) if value else ""
            self.problems.append(FieldError(object=self.source, path=where, value=there, problem=problem, fix=fix))

    def finish(self, jobs: Iterable[Job], *, processors: int | None = None) -> Trace:
        """The trace that the good rows make."""
        ordered = sorted(jobs, key=lambda job: job.submit)
        if not ordered and not self.problems:
            self.add(1, "", "no jobs in it", "write one row for each job below the header")
        return Trace(
            source=self.raw, jobs=tuple(ordered), problems=tuple(self.problems), left_out=len(self.bad),
            processors=processors,
        )  # fmt: skip


class _Reader:
    """Reads one CSV file."""

    def __init__(self, complaints: Complaints, scale: Fraction) -> None:
        self.complaints = complaints
        self.scale = scale
        self._names, self._owners = Names(), Names()
        self._lines: dict[str, int] = {}

    def jobs(self, lines: Iterable[str]) -> Iterator[Job]:
        rows = self._rows(lines)
        _, header = next(rows, (1, []))
        columns = [cell.strip().lower() for cell in header]
        missing = [name for name in NEEDED if name not in columns]
        if missing or len(set(columns)) < len(columns):
            what = f"no column {', '.join(missing)}" if missing else "a column stands there twice"
            self.complaints.add(1, "", what, f"begin with a header that has {', '.join(NEEDED)}")
            return
        for line, cells in rows:
            if len(cells) != len(columns):
                self.complaints.add(line, "", f"{len(cells)} cells", f"write {len(columns)}, as in the header")
            elif (job := self._job(line, dict(zip(columns, map(str.strip, cells), strict=True)))) is not None:
                yield job

    def _rows(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        """Rows with the line that they end on; what the CSV reader refuses is a problem of that line."""
        reader = csv.reader(lines, strict=True)
        while True:
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                self.complaints.add(reader.line_num or 1, "", f"not CSV: {escape(str(error))}", "quote it as CSV asks")
                continue
            if cells:
                yield reader.line_num, cells

    def _job(self, line: int, row: Mapping[str, str]) -> Job | None:
        if row.get("status", "").lower() in NEVER_RAN:
            self.complaints.add(line, "status", "the job never ran", "leave it out", value=row["status"])
            return None
        if row["job_id"] in ABSENT:
            self.complaints.add(line, "job_id", "missing", "give every job a name of its own")
        elif (first := self._lines.setdefault(row["job_id"], line)) != line:
            self.complaints.add(
                line, "job_id", f"the job of line {first} already", "give it another", value=row["job_id"]
            )
        submit, duration = self._seconds(line, row, "submit_s"), self._seconds(line, row, "duration_s")
        if duration == 0 and line not in self.complaints.bad:
            self.complaints.add(
                line, "duration_s", "no run time", "leave out jobs that did not run", value=row["duration_s"]
            )
        gpus = self._gpus(line, row["gpus"])
        asked = row.get("requested_s", "")
        requested = None if asked in ABSENT else self._seconds(line, row, "requested_s") or None
        if line in self.complaints.bad:
            return None
        return Job(
            id=row["job_id"], name=self._names.name(row["job_id"]), owner=self._owners.owner(_owner(row["owner"])),
            submit=round(submit / self.scale), duration=duration, requested=requested, gpus=gpus,
            flavors=tuple(one for one in row.get("gpu_type", "").split("|") if one not in ABSENT),
        )  # fmt: skip

    def _seconds(self, line: int, row: Mapping[str, str], column: str) -> Micros:
        found = _SECONDS.fullmatch(row[column])
        if found is None or int(found[1]) > SECONDS_MAX:
            fix = "write one from 0 up, such as 3600 or 0.5"
            self.complaints.add(line, column, "not a number of seconds", fix, value=row[column])
            return 0
        return int(found[1]) * SECOND + int((found[2] or "0").ljust(6, "0")[:6])

    def _gpus(self, line: int, text: str) -> int:
        found = _COUNT.fullmatch(text)
        if found is None or not 0 < int(found[1]) <= GPUS_MAX:
            self.complaints.add(line, "gpus", "not a number of GPUs", "write a whole number from 1 up", value=text)
            return 0
        return int(found[1])


def _owner(raw: str) -> str:
    return "nobody" if raw in ABSENT else raw


def slug(raw: str, length: int = _NAME_MAX) -> str:
    """What of a text may be a name: small letters, digits and single dashes between them."""
    return re.sub(r"[^a-z0-9]+", "-", raw.lower(), flags=re.ASCII).strip("-")[:length].rstrip("-") or "x"
