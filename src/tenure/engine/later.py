"""What was promised later, in a pass over waiting runs: each is planned only on the promises that were made before it.

The claims of those behind it are taken back while it is planned, and laid again as the pass reaches them: as they were,
if nobody has planned them anew. What is being started (Active) is held against everybody.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from tenure.engine.horizon import Claim
from tenure.engine.rows import is_held
from tenure.engine.state import Rank, RunRow, State
from tenure.facts import Reservation


class Later:
    """The claims of runs that are yet to be considered."""

    def __init__(self, state: State, rows: Callable[[], list[RunRow]]) -> None:
        """``rows``: all whose plans may change; asked for when the first of them is planned."""
        self._state, self._all = state, rows
        self._rows: list[tuple[Rank, str]] = []
        self._laid = 0
        self._known: set[str] | None = None
        self._taken: dict[str, tuple[Reservation, Claim]] = {}
        """What was taken back, and for which reservation."""

    def promised(self) -> list[tuple[Rank, str]]:
        """Whose claims are laid, and are behind one another."""
        if self._known is None:
            state = self._state
            ranks = sorted((state.rank(row), row.key) for row in self._all() if row.key in state.horizon.claims)
            self._rows = [one for one in ranks if not is_held(state.reservations[one[1]], state.draws)]
            self._known = {key for _, key in self._rows}
            self._laid = len(self._rows)
        return self._rows

    def plan(self, row: RunRow) -> None:
        """Take back what this run was promised, and what others were promised later."""
        rank, horizon = self._state.rank(row), self._state.horizon
        self.promised()
        horizon.retract(row.key)
        while self._laid and self._rows[self._laid - 1][0] > rank:
            self._laid -= 1
            self._take_back(self._rows[self._laid][1])
        self.reach(row)

    def is_last(self, row: RunRow) -> bool:
        """Whether nothing stands of what this run was promised, or others later; as long as nothing was taken back it
        does."""
        if self._known is None:
            return False
        return not self._laid or self._rows[self._laid - 1][0] < self._state.rank(row)

    def _take_back(self, key: str) -> None:
        one = self._state.reservations.get(key)
        if one is not None and is_held(one, self._state.draws):
            return  # it came to be started in this very pass
        claim = self._state.horizon.retract(key)
        if one is not None and claim is not None:
            self._taken[key] = one, claim

    def reach(self, row: RunRow) -> None:
        """Let stand what others were promised before this run."""
        rank = self._state.rank(row)
        while self._laid < len(self._rows) and self._rows[self._laid][0] < rank:
            self._claim(self._rows[self._laid][1])
            self._laid += 1

    def planned(self, row: RunRow) -> None:
        """The run was considered: what it is promised now counts for those who were promised later."""
        if self._laid < len(self._rows) and self._rows[self._laid][1] == row.key:
            self._laid += 1
        elif row.key in self._state.horizon.claims and self._is_new(row):
            one = (self._state.rank(row), row.key)
            place = bisect_left(self._rows, one)  # the last, unless it was being started: then it has its old rank
            self._rows.insert(place, one)
            if self._known is not None:
                self._known.add(row.key)
            if place <= self._laid:
                self._laid += 1
            else:
                self._state.horizon.retract(row.key)

    def _is_new(self, row: RunRow) -> bool:
        new = self._known is None or row.key not in self._known
        return new and not is_held(self._state.reservations[row.key], self._state.draws)

    def lay(self) -> None:
        """Let all promises stand again."""
        for _, key in self._rows[self._laid :]:
            self._claim(key)
        self._laid = len(self._rows)
        self._all = list  # nobody asks any more; and whoever would have answered is not held on to

    def _claim(self, key: str) -> None:
        one, state = self._state.reservations.get(key), self._state
        known, claim = self._taken.pop(key, (None, None))
        if one is not None and one is known and claim is not None:
            state.horizon.lay(key, claim.flavor, claim.plan, claim.period, cuts=claim.cuts)
        elif one is not None:
            state.claim(one)
