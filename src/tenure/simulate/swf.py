"""Job traces of the Parallel Workloads Archive: the Standard Workload Format (SWF), version 2.2.

A line is a job: eighteen numbers with white space between them, -1 where the log does not know. What is read of them:

| field | read as |
|---|---|
| 1 job number | its name |
| 2 submit time | counted from the first job in the file that can be used |
| 4 run time | how long it really ran |
| 5 allocated, else 8 requested processors | GPUs |
| 9 requested time | what its user asked for |
| 11 status | rows of parts of a job (2, 3, 4) are left out: the job has a row of its own |
| 12 user, 13 group, or 15 queue | its owner (``OwnerField``) |

The owner is the user unless another field is asked for: it is known in nearly every log of the archive, and it says who
wants something. The queue often says how long a job may run, and the group is often not known.

Lines that begin with ``;`` are comments; of the header only ``MaxProcs`` is read. Blank lines, Windows line ends, tabs
and further fields at the end, as some tools write them, do no harm. A row that cannot be used is left out and named by
its line, as in CSV.

>>> rows = ["; MaxProcs: 64", "", " 7  100 5 3600 16 -1 -1 16 7200 -1 1 3 1 -1 2 -1 -1 -1"]
>>> trace = read_swf(rows, source="x.swf")
>>> [(job.name, job.owner, job.submit, job.duration // SECOND, job.gpus) for job in trace.jobs], trace.processors
([('7', 'user-3', 0, 3600, 16)], 64)
>>> [job.owner for job in read_swf(rows, source="x.swf", owner="queue").jobs]
['queue-2']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Literal, get_args

from msgspec.structs import replace

from tenure.simulate.trace import GPUS_MAX, SECONDS_MAX, Complaints, Job, Names, Trace
from tenure.units import SECOND, Micros

OwnerField = Literal["user", "group", "queue"]
OWNER_FIELDS: tuple[OwnerField, ...] = get_args(OwnerField)

FIELDS = 18
_NUMBER, _SUBMIT, _RUN, _ALLOCATED, _REQUESTED, _TIME, _STATUS = 0, 1, 3, 4, 7, 8, 10
_OWNERS: dict[OwnerField, int] = {"user": 11, "group": 12, "queue": 14}
_PARTS = ("2", "3", "4")
_VALUE = re.compile(r"(\d{1,12})(?:\.(\d{1,9})\d*)?", re.ASCII)
_UNKNOWN = re.compile(r"-\d{1,12}(?:\.\d*)?", re.ASCII)
"""-1, and what else is below zero: no quantity of a job is."""
_MAX_PROCS = re.compile(r";\s*MaxProcs:\s*(\d{1,9})\b", re.ASCII | re.IGNORECASE)


def is_swf(source: str) -> bool:
    """True if a file is one by its name.

    >>> is_swf("CTC-SP2-1996-3.1-cln.swf.gz"), is_swf("log.SWF"), is_swf("jobs.csv")
    (True, True, False)
    """
    return source.lower().removesuffix(".gz").endswith(".swf")


def read_swf(lines: Iterable[str], *, source: str, scale: Fraction = Fraction(1), owner: OwnerField = "user") -> Trace:
    """The jobs of an SWF text. ``scale`` divides the times of submission."""
    assert scale > 0
    reader = _Reader(Complaints(source), owner)
    jobs = list(reader.jobs(lines))
    first = min((job.submit for job in jobs), default=0)
    jobs = [replace(job, submit=round((job.submit - first) / scale)) for job in jobs]
    return reader.complaints.finish(jobs, processors=reader.processors)


class _Reader:
    """Reads one file."""

    def __init__(self, complaints: Complaints, owner: OwnerField) -> None:
        self.complaints = complaints
        self.owner = owner
        self.processors: int | None = None
        self._names, self._owners = Names(), Names()
        self._lines: dict[str, int] = {}

    def jobs(self, lines: Iterable[str]) -> Iterator[Job]:
        for line, text in enumerate(lines, 1):
            text = text.strip("\ufeff \t\r\n\f\v\x1a")
            if text.startswith(";"):
                self._comment(text)
            elif text and (job := self._job(line, text.split())) is not None:
                yield job

    def _comment(self, text: str) -> None:
        found = _MAX_PROCS.match(text)
        if found is not None and self.processors is None:
            self.processors = int(found[1]) or None

    def _job(self, line: int, fields: Sequence[str]) -> Job | None:
        if len(fields) < FIELDS:
            self.complaints.add(line, "", f"{len(fields)} fields", f"SWF has {FIELDS} in every row; -1 means unknown")
            return None
        if fields[_STATUS] in _PARTS:
            self.complaints.add(line, "status", "a part of a job", "leave it out; the job has a row of its own",
                                value=fields[_STATUS])  # fmt: skip
            return None
        number = fields[_NUMBER] if not _UNKNOWN.fullmatch(fields[_NUMBER]) else f"line-{line}"
        if (first := self._lines.setdefault(number, line)) != line:
            self.complaints.add(line, "job number", f"the job of line {first} already", "give it another", value=number)
        submit = self._seconds(line, fields, _SUBMIT, "submit time")
        duration = self._seconds(line, fields, _RUN, "run time")
        requested = self._seconds(line, fields, _TIME, "requested time")
        gpus = self._processors(line, fields)
        if line not in self.complaints.bad:
            if submit is None:
                self.complaints.add(line, "submit time", "unknown", "write the seconds since the log begins")
            if not duration:
                self.complaints.add(line, "run time", "no run time", "leave out jobs that did not run",
                                    value=fields[_RUN])  # fmt: skip
        if line in self.complaints.bad or submit is None or not duration:
            return None
        return Job(
            id=number, name=self._names.name(number), owner=self._owners.owner(self._owner(fields)), submit=submit,
            duration=duration, requested=requested or None, gpus=gpus,
        )  # fmt: skip

    def _owner(self, fields: Sequence[str]) -> str:
        known = fields[_OWNERS[self.owner]]
        return "nobody" if _UNKNOWN.fullmatch(known) else f"{self.owner}-{known}"

    def _seconds(self, line: int, fields: Sequence[str], index: int, what: str) -> Micros | None:
        """None if the log does not know."""
        if _UNKNOWN.fullmatch(fields[index]):
            return None
        found = _VALUE.fullmatch(fields[index])
        most = 2 * SECONDS_MAX if index == _SUBMIT else SECONDS_MAX  # some logs count submissions from 1970
        if found is None or int(found[1]) > most:
            self.complaints.add(line, what, "not a number of seconds", "write one from 0 up, or -1",
                                value=fields[index])  # fmt: skip
            return None
        return int(found[1]) * SECOND + int((found[2] or "0").ljust(6, "0")[:6])

    def _processors(self, line: int, fields: Sequence[str]) -> int:
        """What the job was given, else what it asked for: at least one."""
        for index in (_ALLOCATED, _REQUESTED):
            found = _VALUE.fullmatch(fields[index])
            if found is not None and 0 < int(found[1]) <= GPUS_MAX and not int(found[2] or 0):
                return int(found[1])
            if not _UNKNOWN.fullmatch(fields[index]) and not (found is not None and not int(found[1])):
                self.complaints.add(line, "processors", "not a number of processors", "write a whole number from 1 up",
                                    value=fields[index])  # fmt: skip
                return 0
        self.complaints.add(line, "processors", "neither allocated nor requested ones are known",
                            "leave out jobs of unknown width")  # fmt: skip
        return 0
