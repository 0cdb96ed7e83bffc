"""The records of which the known future is made: what an envelope pays, what a location gains, when a lease ends, and
what is claimed for a promise."""

from __future__ import annotations

from tenure.engine.demand import Selector
from tenure.engine.meters import Commitments
from tenure.engine.timeline.capacity_index import WindowCapacity
from tenure.engine.timeline.step_function import StepFunction
from tenure.engine.timeline.step_trace import Span, both
from tenure.engine.topology import Location, Row
from tenure.facts import Lease, Slice
from tenure.units import Instant, Micros

CHANGES_MAX = 8
"""Changes of a node that are told apart; those before are told as one."""


class EnvelopeTimeline:
    """The future of one envelope: GPUs that it pays, as a negative level, and hours that are promised."""

    __slots__ = ("hours", "lent", "lent_hours", "lent_spared", "lent_starts", "spared", "starts", "total")

    def __init__(self) -> None:
        self.total = StepFunction()
        self.lent = StepFunction()
        self.hours = 0
        self.lent_hours = 0
        self.starts = Commitments()
        """When what is promised begins."""
        self.lent_starts = Commitments()
        self.spared = 0
        """GPUs that are looked at as if they were not paid for any more."""
        self.lent_spared = 0


class LocationTimeline:
    """The future of one location: its nodes by domain, when any of them gains something, and views of their room."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.rows: dict[str, dict[str, Row]] = {}
        """By fabric domain: its nodes."""
        self.rises = StepFunction()
        """What nodes have gained by an instant, each for itself: what others lose does not count against it."""
        self.views: dict[tuple[Micros, int, Selector], WindowCapacity] = {}
        self.changes: dict[str, list[tuple[int, Span]]] = {}
        """Nodes that ever changed, the latest last, with the numbers of their last changes, and what they changed."""
        self.version = 0

    def change(self, name: str, span: Span) -> None:
        self.version += 1
        changes = self.changes.pop(name, [])
        if len(changes) == CHANGES_MAX:
            changes[:2] = [(changes[1][0], both(changes[0][1], changes[1][1]))]
        changes.append((self.version, span))
        self.changes[name] = changes

    def bring_up(self, view: WindowCapacity) -> WindowCapacity:
        """Let a view show what changed since it was read last."""
        for name, changes in reversed(self.changes.items()):
            if changes[-1][0] <= view.version:
                break
            for version, span in changes:
                if version > view.version:
                    view.look_at((name,), span)
        view.version = self.version
        return view.refresh()


class Held:
    """When an open lease is expected to end, and from what."""

    __slots__ = ("asked", "declared", "end", "late", "lease", "leaving", "overstays", "spared")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.declared = lease.until
        self.spared = False
        """Its money is counted as if nobody spent it any more."""
        self.late = False
        """It has not ended when it said it would, which is a moment ago."""
        self.overstays = False
        """That is longer ago: nobody counts on its end any more."""
        self.asked: Instant | None = None
        self.leaving: Instant | None = None
        self.end: Instant | None = None


class Claim:
    """What is promised to a waiting run; ``period`` is the time for which hours are set aside, ``cuts`` whether others
    will have to go for it."""

    __slots__ = ("cuts", "flavor", "period", "plan")

    def __init__(self, flavor: str, plan: Slice, period: Micros, cuts: bool) -> None:
        self.flavor, self.plan, self.period, self.cuts = flavor, plan, period, cuts
