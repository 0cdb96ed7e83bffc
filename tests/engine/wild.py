"""Wilder games about money: as in ``edits``, but work ends a moment late or just in time, pods are bound late, and time
goes to just about the next start. A game is its seed.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tenure.api.budget import Envelope
from tenure.api.policy import Policy
from tenure.engine.state import RunRow
from tenure.testing import budget, elastic, envelope, nodes, run
from tenure.units import HOUR, SECOND, parse_duration
from tests.engine.edits import Game, Twins

MOMENTS = (0, 0, 0, SECOND, 10 * SECOND, 29 * SECOND, 30 * SECOND)


class Wild(Game):
    moves = (
        "run", "run", "run", "edit", "time", "time", "time", "due", "due", "done", "del", "back", "resize", "fence",
        "late", "slow", "over", "over",
    )  # fmt: skip

    def __init__(self, seed: int) -> None:
        luck = self.luck = Random(seed)
        policy = Policy(
            budget_grace=luck.choice(["15m", "5m", "0s"]), activation_lead=luck.choice(["15m", "1m", "30m"]),
            on_budget_shortage=luck.choice(["Resolve"] * 4 + ["Coast"]),
            patience=luck.choice(["24h", "24h", "1h", "1000h"]), lookahead=luck.choice(["1h", "10m"]),
            grow_interval=luck.choice(["1m", "10m"]),
        )  # fmt: skip
        self.nodes = luck.choice([3, 4, 6])
        self.fleet = Twins(*nodes("n", self.nodes), policy=policy, secret="x" if luck.random() < 0.8 else None)
        self.runs, self.slow = 0, False
        for name in "abs":
            self.fleet.offer(self._budget(name))
        self.fleet.offer(budget("p", self._envelope("main")))

    def _envelope(self, name: str) -> Envelope:
        luck = self.luck
        start = luck.choice([None, None, None, "0s", "30m", "70m", "2h"])
        end = luck.choice([None] * 4 + ["3h", "150m", "4h", "6h"])
        gpus, hours = luck.choice([4, 8, 12, 16, 24, 32]), luck.choice([None, None, 8, 12, 16, 20, 24, 32, 48, 60])
        if start and end and hours:
            hours = min(hours, gpus * ((parse_duration(end) - parse_duration(start)) // HOUR))
        lending: dict[str, Any] = {}
        if luck.random() < 0.5:
            most, lent = luck.choice([None, 4, 8]), luck.choice([None, 2, 4, 8, 12])
            lending = {"lends_to": ["*"], "lends": min(most, gpus) if most else None}
            lending["lends_hours"] = min(lent, hours) if lent and hours else lent
        return envelope(name, gpus, hours=hours, start=start, end=end, early=luck.random() < 0.3, **lending)

    # --- moves --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        luck, terms = self.luck, dict[str, Any]()
        self.runs += 1
        gpus, shape = luck.choice([2, 4, 4, 8, 12, 16]), luck.random()
        if shape < 0.25:
            terms["elastic"], gpus = elastic(4, 12, 4, desired=luck.choice([4, 8, 12])), 4
        elif shape < 0.4:
            gpus = luck.choice([4, 8])
            terms.update(group=4, spares=luck.choice([1, 2, 4]))
        elif shape < 0.45:
            terms["opportunistic"] = True
        if luck.random() < 0.7:
            terms["lasts"] = luck.choice(["10m", "30m", "1h", "1h", "2h"])
        if luck.random() < 0.5:
            terms["sponsors"] = luck.sample(["org:a", "org:b", "org:s", "org:p"], 2)
        self.fleet.offer(run(f"r{self.runs}", gpus, owner=luck.choice(["org:a", "org:b", "org:s"]), **terms))

    def _fence(self) -> None:
        if self.luck.random() < 0.15:
            number = self.luck.randrange(self.nodes)
            if self.luck.random() < 0.5:
                self.fleet.fence(f"n{number}")
            else:
                self.fleet.apply(nodes("n", self.nodes)[number])

    def _due(self) -> None:
        """Until just about the next start that is planned."""
        fleet = self.fleet
        starts = [one.plan.start for one in fleet.state.reservations.values() if one.plan.start is not None]
        if starts := [start for start in starts if start >= fleet.now]:
            self._advance(min(starts) + self.luck.choice(MOMENTS))

    def _slow(self) -> None:
        """Pods are bound late from now on, or in time again."""
        self.slow = not self.slow

    def _over(self) -> None:
        """Those end whose time has come, or whose time comes next: just then, or a moment late."""
        fleet, luck = self.fleet, self.luck
        rows = sorted((row for row in fleet.state.runs.values() if row.until is not None and _works(row)), key=_end)
        if past := [row for row in rows if _end(row)[0] <= fleet.now]:
            for row in past:
                if _works(row) and luck.random() < 0.8:
                    fleet.succeed(row.key)
        elif rows:
            self._advance(_end(rows[0])[0])
            fleet.now += luck.choice(MOMENTS)
            row = fleet.state.runs.get(rows[0].key, rows[0])
            if _works(row) and luck.random() < 0.8:
                fleet.succeed(row.key)

    def _settle(self) -> None:
        if not self.slow or self.luck.random() < 0.5:
            super()._settle()


def _works(row: RunRow) -> bool:
    return row.life.phase == "Running" and bool(row.pods) and not any(pod.stop for pod in row.pods.values())


def _end(row: RunRow) -> tuple[int, str]:
    return row.until or 0, row.key
