"""What changed since starts were promised: marks on nodes and envelopes, for those whom they concern.

To search for the earliest start of a waiting run costs far more than to see that nothing changed that could move it. So
whatever changes the known future otherwise than foreseen leaves a mark: a node or an envelope has more than it had, or
less; and if a promise was changed, only those behind it are concerned. What was found of a run is kept with the number
of marks that there had been (``Known``), so that those are found whom a mark may concern (``watch``). Marks are no
facts: without them everybody is planned again, with the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tenure.engine.books import FundKey
from tenure.engine.topology import Row
from tenure.engine.watch import Known, Watch
from tenure.facts import Lease, Reservation, Slice
from tenure.units import FOREVER, Instant

QueueKey = tuple[Instant, str, str]
"""(creation, namespace, name): the order in which waiting runs are considered."""
Rank = tuple[int, QueueKey]
"""(the turn in which a start was promised, the place in the queue)"""

EVERYBODY: Rank = (-1, (0, "", ""))
"""Ahead of all ranks: what happens to a lease or a node concerns all who wait."""

HINDERED = ("NoCustodian", "DrawWaits", "EndsLate")
"""Reasons why a start that is due is not made yet."""

MarkKey = tuple[str, FundKey | None, bool]
"""(node or nothing, envelope or none, whether it gained)"""


class Mark(NamedTuple):
    """A node or an envelope that has more than it had at some instant to come, or less; for those behind a rank, and
    what is lost for those who start ``before`` it is there again."""

    node: str
    fund: FundKey | None
    gain: bool
    behind: Rank
    before: Instant
    number: int

    def concerns(self, known: Known, rank: Rank) -> bool:
        """Whether it was made since something was found, and is about those of a rank."""
        return self.number > known.marks and self.behind < rank


def claims(one: Reservation) -> bool:
    """Whether a reservation protects anything."""
    return one.state in ("Pending", "Active") and one.plan.start is not None


def is_late(one: Reservation) -> bool:
    """Whether a start is due and waits for others to leave: what is held for it lasts for longer than was planned."""
    return one.state == "Active" or one.reason in HINDERED


def _behind(one: Reservation, order: QueueKey) -> Rank:
    """Who is concerned: what is being started is held against everybody."""
    return EVERYBODY if one.state == "Active" or one.confidence == "conservative" else (one.turn, order)


class News:
    """Marks by flavor, and what is known of the promises of waiting runs."""

    def __init__(self) -> None:
        self._marks: dict[str, dict[MarkKey, Mark]] = {}
        """Of each node and each envelope the last of each kind, the latest last; it says what those before it said."""
        self._count = 0
        self._watches: dict[str, Watch] = {}
        self._flavors: dict[str, str] = {}
        """Of each waiting run."""
        self._gains: dict[str, int] = {}
        self._opening: list[tuple[str, Lease, Instant]] = []
        """Leases of one run that opened last, and until when: to be marked, unless they carry out what was promised."""

    def gains(self, flavor: str) -> int:
        """How often a node has gained something by what happened to it or on it."""
        return self._gains.get(flavor, 0)

    # -- what happens --

    def node(
        self, flavor: str, name: str, *, gain: bool, behind: Rank = EVERYBODY, before: Instant = FOREVER
    ) -> None:  # fmt: skip
        if gain and behind == EVERYBODY:
            self._gains[flavor] = self.gains(flavor) + 1
        self._add(flavor, name, None, gain, behind, before)

    def fund(
        self, flavor: str, key: FundKey, *, gain: bool, behind: Rank = EVERYBODY, before: Instant = FOREVER
    ) -> None:  # fmt: skip
        self._add(flavor, "", key, gain, behind, before)

    def opened(self, flavor: str, lease: Lease, *, before: Instant) -> None:
        """A lease opened, and ends then."""
        if self._opening and self._opening[0][1].run_key != lease.run_key:
            self._mark_opened()
        self._opening.append((flavor, lease, before))

    def node_changed(self, row: Row, *, known: bool) -> None:
        """A node was put; ``known``: with the labels that it had."""
        if not known:
            self.everything()
        elif row.site is not None:
            self.node(row.site.flavor, row.name, gain=True)
            self.node(row.site.flavor, row.name, gain=False)

    def promised(self, flavor: str, order: QueueKey, old: Reservation | None, new: Reservation) -> None:
        """A promise was made, changed or given up: what was known of it is to be found again.

        A first promise is behind all others, and concerns none of them; nor does a start that is made just as promised.
        """
        self.forget(new.run_key)
        if old is not None and new.state == "Released" and self._is_carried_out(old):
            return
        same = old is not None and (old.state, old.plan, is_late(old)) == (new.state, new.plan, is_late(new))
        if same and claims(new):
            return
        for one, gain in ((old, True), (new, False)):
            if one is not None and claims(one):
                behind = _behind(one, order)
                if behind != EVERYBODY and (old is None or not claims(old)):
                    continue
                until = None if is_late(one) else one.plan.until  # what is late is held for longer than planned
                self._mark(flavor, one.plan, gain=gain, behind=behind, until=until)
                if behind == EVERYBODY:  # who is to be cut for it will be gone afterwards, or will not
                    self._mark(flavor, one.plan, gain=not gain, behind=behind, until=until)

    def _is_carried_out(self, one: Reservation) -> bool:
        """Whether the leases that opened for a run take, from whom and until when, just what was set aside for it: then
        nobody's future has changed, and they are forgotten."""
        opened = [(lease, end) for _, lease, end in self._opening]
        nodes, paid = Counter[str](), Counter[tuple[str, str, str]]()
        for lease, _ in opened:
            nodes[lease.node] += len(lease.gpus)
            paid[lease.budget, lease.envelope, lease.funding] += len(lease.gpus)
        plan, segments = one.plan, Counter[tuple[str, str, str]]()
        for part in plan.segments:
            segments[part.budget, part.envelope, part.funding] += part.gpus
        same = (
            one.state == "Pending"
            and one.confidence != "conservative"
            and not is_late(one)
            and all(lease.run_key == one.run_key and lease.role != "Borrowed" for lease, _ in opened)
            and all((lease.start, end) == (plan.start, plan.until) for lease, end in opened)
            and nodes == {share.node: share.gpus for share in plan.shares}
            and paid == segments
        )
        if same:
            self._opening = []
        return same

    def held_on(self, flavor: str, one: Reservation) -> None:
        """What is held for one who is late is held for longer."""
        self._mark(flavor, one.plan, gain=False, behind=EVERYBODY, until=None)

    def _mark(self, flavor: str, plan: Slice, *, gain: bool, behind: Rank, until: Instant | None) -> None:
        before = FOREVER if gain or behind == EVERYBODY or until is None else until
        for share in plan.shares:
            self.node(flavor, share.node, gain=gain, behind=behind, before=before)
        for part in plan.segments:
            self.fund(flavor, (part.budget, part.envelope), gain=gain, behind=behind, before=before)

    def everything(self) -> None:
        """Terms, labels or the policy changed: what was found says nothing any more."""
        self._marks.clear()
        for watch in self._watches.values():
            watch.forget_all()

    def terms_changed(self, fund: FundKey) -> None:
        """An envelope is not what it was: what was found of those whom it might pay says nothing any more."""
        for watch in self._watches.values():
            for run in list(watch.paid_by(fund)):
                watch.forget(run)

    def _mark_opened(self) -> None:
        opening, self._opening = self._opening, []
        for flavor, lease, before in opening:
            self.node(flavor, lease.node, gain=False, before=before)
            self.fund(flavor, (lease.budget, lease.envelope), gain=False, before=before)

    def _add(
        self, flavor: str, node: str, fund: FundKey | None, gain: bool, behind: Rank, before: Instant
    ) -> None:  # fmt: skip
        if flavor not in self._watches:
            return  # it concerns nobody, and those who come later find it as it is
        marks = self._marks.setdefault(flavor, {})
        old = marks.pop((node, fund, gain), None)
        if old is not None:
            behind, before = min(behind, old.behind), max(before, old.before)
        self._count += 1
        marks[node, fund, gain] = Mark(node, fund, gain, behind, before, self._count)

    # -- what is known --

    def waits(self, run: str, flavor: str) -> None:
        """A run waits for a flavor."""
        self._flavors[run] = flavor
        self._watches.setdefault(flavor, Watch()).unknown[run] = None

    def gone(self, run: str) -> None:
        """It waits no more."""
        flavor = self._flavors.pop(run)
        watch = self._watches[flavor]
        watch.forget(run)
        del watch.unknown[run]
        if not watch.unknown and not watch.known:
            del self._watches[flavor]
            self._marks.pop(flavor, None)

    def forget(self, run: str) -> None:
        if run in self._flavors:
            self._watches[self._flavors[run]].forget(run)

    def found(self, run: str, known: Known) -> None:
        self._mark_opened()
        self._watches[self._flavors[run]].found(run, known._replace(marks=self._count))

    def known(self, run: str) -> Known | None:
        return self._watches[self._flavors[run]].known.get(run) if run in self._flavors else None

    def marks(self, flavor: str, known: Known) -> Mapping[MarkKey, Mark]:
        """What was marked, by what it is about; nothing if nothing happened since something was found."""
        self._mark_opened()
        return self._marks[flavor] if any(self._after(flavor, known.marks)) else {}

    def gained(self, flavor: str, known: Known, rank: Rank) -> Iterator[str]:
        """Nodes that have gained something since, if it concerns a rank."""
        marks = self._after(flavor, known.marks)
        return (mark.node for mark in marks if mark.gain and mark.fund is None and mark.behind < rank)

    def woken(self, flavor: str, *, now: Instant, after: int | None) -> tuple[set[str], int]:
        """Whom that may concern which happened after so many marks, and how many there are by now. None: whom it may
        concern whatever happened, and all of whom nothing is known."""
        watch, some = self._watches.get(flavor), set[str]()
        if watch is None:
            return some, self._count
        self._mark_opened()
        if after is None:
            some.update(watch.unknown, watch.due(now))
        gained, until = False, 0
        lost: dict[str, int] = {}
        spent: dict[FundKey, int] = {}
        for mark in self._after(flavor, after or 0):
            if not mark.gain and mark.before < FOREVER:
                until = max(until, mark.before)
                if mark.fund is None:
                    lost[mark.node] = mark.number
                else:
                    spent[mark.fund] = mark.number
                    some.update(_unaware(watch, watch.paid_by_the_hour(mark.fund), mark))
            elif mark.fund is not None:
                some.update(_unaware(watch, watch.paid_by(mark.fund), mark))
            elif not mark.gain:
                some.update(_unaware(watch, watch.counting_on(mark.node), mark))
            elif not gained:
                some.update(_unaware(watch, watch.waiting_for_machines(), mark))
                gained = True
        some.update(watch.starting(before=until, nodes=lost, funds=spent))
        return some, self._count

    def starting(self, flavor: str, *, before: Instant) -> list[str]:
        """Who is to start before an instant; and those of whom nothing is known."""
        watch = self._watches.get(flavor)
        return [] if watch is None else [*watch.due(before - 1), *watch.unknown]

    def _after(self, flavor: str, number: int) -> Iterator[Mark]:
        for mark in reversed(self._marks.get(flavor, {}).values()):
            if mark.number <= number:
                return
            yield mark

    def settled(self, flavor: str) -> None:
        """All who wait for a flavor and whom it may concern were looked at: what is known of them is known of now."""
        self._mark_opened()
        self._marks.pop(flavor, None)


def _unaware(watch: Watch, runs: Iterable[str], mark: Mark) -> Iterator[str]:
    """Those of whom nothing was found since."""
    return (run for run in runs if watch.known[run].marks < mark.number)
