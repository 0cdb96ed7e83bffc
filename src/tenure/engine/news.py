"""What changed since starts were promised: marks on nodes and envelopes, for those whom they concern.

To search for the earliest start of a waiting run costs far more than to see that nothing changed that could move it. So
whatever changes the known future otherwise than foreseen leaves a mark: a node or an envelope has more than it had, or
less; and if a promise was changed, only those behind it are concerned. What was found of a run is kept with the number
of marks that there were then (``Known``). Marks are no facts: without them everybody is planned again, with the same
result.
"""

from __future__ import annotations

from typing import NamedTuple

from tenure.engine.books import FundKey
from tenure.engine.topology import Row
from tenure.facts import Reservation, Slice
from tenure.units import Instant

QueueKey = tuple[Instant, str, str]
"""(creation, namespace, name): the order in which waiting runs are considered."""
Rank = tuple[int, QueueKey]
"""(the turn in which a start was promised, the place in the queue)"""

EVERYBODY: Rank = (-1, (0, "", ""))
"""Ahead of all ranks: what happens to a lease or a node concerns all who wait."""

MARKS_MAX = 1_024
"""So many marks are kept of a flavor; after that everybody is planned again."""


HINDERED = ("NoCustodian", "DrawWaits", "EndsLate")
"""Reasons why a start that is due is not made yet."""


class Mark(NamedTuple):
    """A node or an envelope that has more than it had at some instant to come, or less; for those behind a rank."""

    node: str
    fund: FundKey | None
    gain: bool
    behind: Rank


def claims(one: Reservation) -> bool:
    """Whether a reservation protects anything."""
    return one.state in ("Pending", "Active") and one.plan.start is not None


def is_late(one: Reservation) -> bool:
    """Whether a start is due and waits for others to leave: what is held for it lasts for longer than was planned."""
    return one.state == "Active" or one.reason in HINDERED


def _behind(one: Reservation, order: QueueKey) -> Rank:
    """Who is concerned: what is being started is held against everybody."""
    return EVERYBODY if one.state == "Active" or one.confidence == "conservative" else (one.turn, order)


class Known(NamedTuple):
    """What was found when a promise was looked at: there is no earlier start, and this one can be kept."""

    marks: int
    """How many there were."""
    nodes: frozenset[str]
    """The nodes of its slice."""
    funds: frozenset[FundKey]
    """Envelopes that might pay for it."""
    paid: Instant
    """Before that the money does not suffice."""
    rich: bool
    """Whether money is nothing that keeps it from starting earlier, now or at any time until it ends."""


class News:
    """Marks by flavor, and what is known of the promises of waiting runs."""

    def __init__(self) -> None:
        self._marks: dict[str, list[Mark]] = {}
        self._known: dict[str, Known] = {}
        self._gains: dict[str, int] = {}

    def gains(self, flavor: str) -> int:
        """How often a node has gained something by what happened to it or on it."""
        return self._gains.get(flavor, 0)

    def node(self, flavor: str, name: str, *, gain: bool, behind: Rank = EVERYBODY) -> None:
        if gain and behind == EVERYBODY:
            self._gains[flavor] = self.gains(flavor) + 1
        self._add(flavor, Mark(name, None, gain, behind))

    def fund(self, flavor: str, key: FundKey, *, gain: bool, behind: Rank = EVERYBODY) -> None:
        self._add(flavor, Mark("", key, gain, behind))

    def node_changed(self, row: Row, *, known: bool) -> None:
        """A node was put; ``known``: with the labels that it had."""
        if not known:
            self.everything()
        elif row.site is not None:
            self.node(row.site.flavor, row.name, gain=True)
            self.node(row.site.flavor, row.name, gain=False)

    def promised(self, flavor: str, order: QueueKey, old: Reservation | None, new: Reservation) -> None:
        """A promise was made, changed or given up; of one that is over nothing needs to be known."""
        if not claims(new):
            self.forget(new.run_key)
        same = old is not None and (old.state, old.plan, is_late(old)) == (new.state, new.plan, is_late(new))
        if same and claims(new):
            return
        for one, gain in ((old, True), (new, False)):
            if one is not None and claims(one):
                behind = _behind(one, order)
                self._mark(flavor, one.plan, gain=gain, behind=behind)
                if behind == EVERYBODY:  # who is to be cut for it will be gone afterwards, or will not
                    self._mark(flavor, one.plan, gain=not gain, behind=behind)

    def held_on(self, flavor: str, one: Reservation) -> None:
        """What is held for one who is late is held for longer."""
        self._mark(flavor, one.plan, gain=False, behind=EVERYBODY)

    def _mark(self, flavor: str, plan: Slice, *, gain: bool, behind: Rank) -> None:
        for share in plan.shares:
            self.node(flavor, share.node, gain=gain, behind=behind)
        for part in plan.segments:
            self.fund(flavor, (part.budget, part.envelope), gain=gain, behind=behind)

    def everything(self) -> None:
        """Terms, labels or the policy changed: what was found says nothing any more."""
        self._marks.clear()
        self._known.clear()

    def forget(self, run: str) -> None:
        self._known.pop(run, None)

    def found(self, run: str, flavor: str, known: Known) -> None:
        self._known[run] = known._replace(marks=len(self._marks.get(flavor, ())))

    def known(self, run: str) -> Known | None:
        return self._known.get(run)

    def since(self, flavor: str, known: Known) -> list[Mark]:
        """What happened since something was found."""
        return self._marks.get(flavor, [])[known.marks :]

    def settled(self, flavor: str, runs: list[str]) -> None:
        """All who wait for a flavor were looked at: what is known of them is known of now."""
        if self._marks.get(flavor):
            for run in runs:
                known = self._known.get(run)
                if known is not None:
                    self._known[run] = known._replace(marks=0)
            self._marks[flavor] = []

    def _add(self, flavor: str, mark: Mark) -> None:
        marks = self._marks.setdefault(flavor, [])
        if len(marks) >= MARKS_MAX:
            self.everything()
            marks = self._marks.setdefault(flavor, [])
        marks.append(mark)
