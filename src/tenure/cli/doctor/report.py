"""What a doctor says: one result for each thing that was looked at, and how to mend what is not right.

A *problem* keeps something from working or from being safe, and makes the exit code 7. A *warning* is for a person to
judge. What could not be looked at is *unknown*, and says what it would take: a doctor never guesses that all is well.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tenure.cli.trouble import Trouble

Result = Literal["ok", "warning", "problem", "unknown"]
STYLES: dict[Result, str] = {"ok": "good", "warning": "wait", "problem": "bad", "unknown": "dim"}


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    check: str
    result: Result
    finding: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert bool(self.fix) == (self.result != "ok"), f"{self.check}: a finding says how to mend it"


def ok(check: str, finding: str) -> Check:
    return Check(check=check, result="ok", finding=finding)


def warning(check: str, finding: str, fix: str) -> Check:
    return Check(check=check, result="warning", finding=finding, fix=fix)


def problem(check: str, finding: str, fix: str) -> Check:
    return Check(check=check, result="problem", finding=finding, fix=fix)


def unknown(check: str, finding: str, fix: str) -> Check:
    return Check(check=check, result="unknown", finding=finding, fix=fix)


def from_trouble(check: str, trouble: Trouble) -> Check:
    """What keeps a command from going on, as a finding."""
    return problem(check, "; ".join(trouble.problems), trouble.next_step or "see docs/operate/runbook.md")
