"""What a job tells the scheduler about its run time. Everybody who is compared hears the same.

A job runs for as long as it really did, whatever it declares. What it declares:

- **true**: its real run time. Nobody knows that beforehand; it shows what a scheduler makes of perfect knowledge.
- **x2**: twice that.
- **rounded**: the real one, rounded up as people round: to 1 h, 2 h, 4 h, ... 1,024 h by doubling, then to 60 d, and
  beyond 60 d to whole multiples of them.
- **requested**: what its user asked for. Where that is less than the run time it is raised to the run time: a site that
  ends jobs at their limit never sees such a job, and a log of one that does not would measure overstays, not the queue.
- **requested-raw**: what its user asked for, as it stands; who asked for too little overstays.
- **none**: nothing.

A job whose request the trace does not know declares its real run time; how many did, and how many were raised or left
below their run time, is counted (``Declarations``).

>>> [round_up(hours * HOUR) // HOUR for hours in (1, 3, 4, 700, 1025, 1441)]
[1, 4, 4, 1024, 1440, 2880]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never, get_args

from msgspec import Struct

from tenure.simulate.trace import Job
from tenure.units import DAY, HOUR, Micros

Declare = Literal["requested", "requested-raw", "x2", "true", "none", "rounded"]
WAYS: tuple[Declare, ...] = get_args(Declare)

DOUBLED_MAX = 1024 * HOUR
LONGEST_STEP = 60 * DAY


class Declarations(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the jobs of a replay declared, and how well that agreed with what they took."""

    how: Declare
    jobs: int
    unknown: int = 0
    """Jobs whose request the trace does not know: they declared their real run time."""
    raised: int = 0
    """Jobs whose request was less than their run time, and was raised to it."""
    below: int = 0
    """Jobs that declared less than their run time: they overstay."""


def declared_by(job: Job, how: Declare) -> Micros | None:
    """The run time that a job declares; None if it declares nothing."""
    match how:
        case "true":
            return job.duration
        case "x2":
            return 2 * job.duration
        case "rounded":
            return round_up(job.duration)
        case "requested":
            return max(job.requested or 0, job.duration)
        case "requested-raw":
            return job.requested or job.duration
        case "none":
            return None
        case other:
            assert_never(other)


def round_up(duration: Micros) -> Micros:
    """The next step of the ladder: 1 h doubled up to 1,024 h, then multiples of 60 d."""
    if duration > DOUBLED_MAX:
        return -(-duration // LONGEST_STEP) * LONGEST_STEP
    step = HOUR
    while step < duration:
        step *= 2
    return step


def count_declarations(jobs: Iterable[Job], how: Declare) -> Declarations:
    """Count how many of some jobs declare what they really asked for.

    >>> from tenure.simulate.trace import job
    >>> asked = [job(name, 0, 60, 1, requested=asked) for name, asked in (("a", 20), ("b", 90), ("c", None))]
    >>> counted = count_declarations(asked, "requested")
    >>> (counted.jobs, counted.unknown, counted.raised, counted.below)
    (3, 1, 1, 0)
    >>> counted = count_declarations(asked, "requested-raw")
    >>> (counted.raised, counted.below)
    (0, 1)
    """
    jobs = list(jobs)
    if how not in ("requested", "requested-raw"):
        return Declarations(how=how, jobs=len(jobs))
    short = sum(job.requested is not None and job.requested < job.duration for job in jobs)
    return Declarations(
        how=how,
        jobs=len(jobs),
        unknown=sum(job.requested is None for job in jobs),
        raised=short if how == "requested" else 0,
        below=short if how == "requested-raw" else 0,
    )


def sentence(declared: Declarations) -> str:
    """What was declared, in words; used alike on screen and on the page.

    >>> sentence(Declarations(how="requested", jobs=8424, raised=457))
    'jobs declared what their users asked for; 457 of 8,424 had asked for less than they took and were raised to that'
    >>> sentence(Declarations(how="none", jobs=3))
    'jobs declared no duration'
    """
    parts = [f"jobs declared {_WORDS[declared.how]}"]
    if declared.raised:
        parts.append(
            f"{declared.raised:,} of {declared.jobs:,} had asked for less than they took and were raised to that"
        )
    if declared.below:
        parts.append(f"{declared.below:,} of {declared.jobs:,} had asked for less than they took and overstayed")
    if declared.unknown:
        parts.append(f"of {declared.unknown:,} no request is known, and they declared their true duration")
    return "; ".join(parts)


_WORDS: dict[Declare, str] = {
    "true": "their true duration",
    "x2": "twice their true duration",
    "rounded": "their true duration, rounded up to 1 h, 2 h, 4 h, ... 60 d",
    "requested": "what their users asked for",
    "requested-raw": "what their users asked for, as it stands",
    "none": "no duration",
}
