"""Games about money: Budgets are lowered, raised, deleted and made again while time passes and work comes and goes.

The auditor reads every entry (``Fleet``). Before every event the state is folded from the entries and loaded from its
image, and must decide as the one that has been there all the time; and nothing that somebody looks at changes anything.
A game is its seed.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from msgspec.structs import replace

from tenure.api.budget import AggregateCap, Budget, Envelope
from tenure.api.policy import Policy
from tenure.engine import Event, Outcome, State, Tick, dump, load, next_wake, render, step
from tenure.engine.threats import all_limits, threats
from tenure.shell.custodian import SimulatedCustodian
from tenure.shell.home import fold_entry
from tenure.testing import Fleet, budget, cap, elastic, envelope, nodes, run
from tenure.units import HOUR, MINUTE, SECOND, Instant, parse_duration

MOVES = ("run", "run", "edit", "edit", "edit", "time", "time", "time", "done", "del", "back", "resize", "fence", "late")
EDITS = ("hours", "hours", "conc", "end", "caps", "drop", "add", "exact")
LAGS = {"now", "departed"}
"""What a look that finds nothing moves on, and no entry says."""


class Twins(Fleet):
    """A fleet, and beside it one that only reads its entries."""

    def __init__(self, *items: Any, **terms: Any) -> None:
        self.folded, self._read, self._nested = State("test"), 0, False
        super().__init__(*items, **terms)

    def handle(self, event: Event, *, decide: bool = True) -> Outcome:
        self._follow()
        self.state.head = self._hash
        for state in (self.state, self.folded):
            assert dump(load(dump(state))) == dump(state), "an image gives the state that it is of"
        other = load(dump(self.folded))
        other.head = self._hash
        same = step(other, event, now=self.now, decide=decide).facts
        outcome = super().handle(event, decide=decide)
        assert same == outcome.facts, f"the rebuilt state decides otherwise on {event}"
        self._follow()
        if not self._nested:
            read, live = (_shown(state) for state in (self.folded, self.state))
            assert {key for key in live if read[key] != live[key]} <= LAGS, "the entries give another state"
        return outcome

    def reveal(self, custodian: SimulatedCustodian) -> None:
        self._nested = True
        try:
            super().reveal(custodian)
        finally:
            self._nested = False

    def _follow(self) -> None:
        for entry in self.entries[self._read :]:
            fold_entry(self.folded, entry)
        self._read = len(self.entries)


def _shown(state: State) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dump(state))
    return found


class Game:
    """One game, a move at a time."""

    moves = MOVES

    def __init__(self, seed: int) -> None:
        luck = self.luck = Random(seed)
        policy = Policy(
            budget_grace=luck.choice(["15m", "15m", "5m", "0s"]), activation_lead=luck.choice(["15m", "1m", "30m"]),
            on_budget_shortage=luck.choice(["Resolve"] * 9 + ["Coast"]),
        )  # fmt: skip
        self.fleet = Twins(*nodes("n", 3), policy=policy, secret="x" if luck.random() < 0.8 else None)
        self.runs = 0
        for name in "abs":
            self.fleet.offer(self._budget(name))
        self.fleet.offer(budget("p", self._envelope("main")))

    def play(self, moves: int = 40) -> None:
        for _ in range(moves):
            move = self.luck.choice(self.moves)
            getattr(self, f"_{move}")()
            if move != "late":
                self._settle()
            self._look()
        self._advance(self.fleet.now + HOUR)
        self.fleet.audit(settled=False)

    # --- what is granted ----------------------------------------------------------------------------------------------

    def _envelope(self, name: str) -> Envelope:
        luck = self.luck
        start, end = luck.choice([None, None, None, "0s", "30m"]), luck.choice([None] * 3 + ["2h", "65m", "90m", "4h"])
        gpus, hours = luck.choice([4, 8, 12, 16, 24]), luck.choice([None, None, 0, 4, 8, 12, 16, 20, 32, 60])
        if start and end and hours:
            hours = min(hours, gpus * ((parse_duration(end) - parse_duration(start)) // HOUR))
        lending: dict[str, Any] = {}
        if luck.random() < 0.5:
            most = luck.choice([None, 4, 8])
            lending = {"lends_to": ["*"], "lends": min(most, gpus) if most else None}
            if luck.random() < 0.4:
                lent = luck.choice([2, 4, 8])
                lending["lends_hours"] = lent if hours is None else min(lent, hours)
        return envelope(name, gpus, hours=hours, start=start, end=end, early=luck.random() < 0.7, **lending)

    def _budget(self, name: str) -> Budget:
        luck, envelopes, caps = self.luck, [self._envelope("main")], list[AggregateCap]()
        if luck.random() < 0.5:
            envelopes.append(self._envelope("two"))
        if luck.random() < 0.5:
            names = [one.name for one in envelopes] if luck.random() < 0.7 else ["main"]
            gpus, hours = luck.choice([None, 4, 8, 12, 16]), luck.choice([None, 4, 8, 16, 32])
            if gpus or hours:
                caps = [cap(luck.choice("cd"), names, gpus=gpus, hours=hours)]
        return budget(name, *envelopes, caps=caps, parents=["org:p"])

    def _edited(self, old: Budget) -> Budget:
        luck, envelopes = self.luck, list(old.spec.envelopes)
        place = luck.randrange(len(envelopes))
        one, what = envelopes[place], luck.choice(EDITS)
        if what == "hours":
            envelopes[place] = replace(one, max_gpu_hours=luck.choice([None, 0, 2, 4, 8, 12, 16, 24, 40]))
        elif what == "exact":
            used = self.fleet.state.books.funds[old.metadata.name, one.name].total.used(self.fleet.now)
            envelopes[place] = replace(one, max_gpu_hours=used // HOUR + luck.choice([0, 0, 1]))
        elif what == "conc":
            envelopes[place] = replace(one, concurrency=luck.choice([1, 4, 8, 12, 16, 24]))
        elif what == "end":
            new = self._envelope(one.name)
            envelopes[place] = replace(one, start=new.start, end=new.end)
        elif what == "drop" and len(envelopes) > 1:
            envelopes.pop(place)
        elif what == "add" and len(envelopes) == 1:
            envelopes.append(self._envelope("two" if one.name == "main" else "main"))
        caps = self._caps(old, [each.name for each in envelopes], change=what == "caps")
        return replace(old, spec=replace(old.spec, envelopes=tuple(envelopes), aggregate_caps=tuple(caps)))

    def _caps(self, old: Budget, names: list[str], *, change: bool) -> list[AggregateCap]:
        luck = self.luck
        caps = [replace(one, envelopes=tuple(each for each in one.envelopes if each in names))
                for one in old.spec.aggregate_caps]  # fmt: skip
        caps = [one for one in caps if one.envelopes]
        if not change:
            return caps
        if caps and luck.random() < 0.7:
            one = caps[0]
            gpus = luck.choice([one.max_concurrency, 4, 8, 16, None])
            one = replace(one, max_concurrency=gpus, max_gpu_hours=luck.choice([one.max_gpu_hours, 4, 8, 16, 40, None]))
            return [one] if one.max_concurrency is not None or one.max_gpu_hours is not None else []
        return [] if caps else [cap("c", names, gpus=luck.choice([4, 8, 16]), hours=luck.choice([None, 8, 16]))]

    # --- moves --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        luck, terms = self.luck, dict[str, Any]()
        self.runs += 1
        gpus = luck.choice([4, 4, 8, 12])
        if luck.random() < 0.4:
            terms["elastic"], gpus = elastic(4, 12, 4, desired=luck.choice([4, 8, 12])), 4
        elif luck.random() < 0.3:
            terms.update(group=4, spares=luck.choice([2, 4]))
        if luck.random() < 0.5:
            terms["lasts"] = luck.choice(["10m", "30m", "1h", "2h"])
        if luck.random() < 0.6:
            terms["sponsors"] = luck.sample(["org:a", "org:b", "org:s", "org:p"], 2)
        self.fleet.offer(run(f"r{self.runs}", gpus, owner=luck.choice(["org:a", "org:b", "org:s"]), **terms))

    def _edit(self) -> None:
        if self.fleet.state.budgets:
            name = self.luck.choice(sorted(self.fleet.state.budgets))
            self.fleet.offer(self._edited(self.fleet.state.budgets[name]))

    def _time(self) -> None:
        spans = [SECOND, MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE]
        self._advance(self.fleet.now + self.luck.choice(spans))

    def _late(self) -> None:
        """Pods are not heard of meanwhile."""
        self.fleet.until(self.fleet.now + self.luck.choice([SECOND, MINUTE, 7 * MINUTE]))

    def _done(self) -> None:
        rows = [row for _, row in sorted(self.fleet.state.runs.items()) if row.life.phase == "Running" and row.pods]
        keys = [row.key for row in rows if not any(pod.stop for pod in row.pods.values())]
        if keys:
            self.fleet.succeed(self.luck.choice(keys))

    def _del(self) -> None:
        if self.fleet.state.budgets and self.luck.random() < 0.6:
            self.fleet.delete("Budget", self.luck.choice(sorted(self.fleet.state.budgets)))

    def _back(self) -> None:
        gone = [name for name in "abs" if name not in self.fleet.state.budgets]
        if gone:
            self.fleet.offer(self._budget(gone[0]))

    def _resize(self) -> None:
        rows = [row for _, row in sorted(self.fleet.state.runs.items()) if row.life.phase == "Running"]
        keys = [row.key for row in rows if row.run.spec.malleable]
        if keys:
            self.fleet.resize(self.luck.choice(keys), self.luck.choice([4, 8, 12]))

    def _fence(self) -> None:
        if self.luck.random() < 0.2:
            name = self.luck.choice(["n0", "n1", "n2"])
            if self.luck.random() < 0.5:
                self.fleet.fence(name)
            else:
                self.fleet.apply(nodes("n", 3)[int(name[1])])

    # --- what follows -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Pods leave that were asked to, and start that were placed."""
        fleet = self.fleet
        for _ in range(6):
            leaving = [
                key for key, row in sorted(fleet.state.runs.items()) if any(pod.stop for pod in row.pods.values())
            ]
            for key in leaving:
                fleet.leave(key)
            placed = False
            for key in sorted(fleet.state.runs):
                pods = fleet.state.runs[key].pods.values()
                if new := [pod.pod.key for pod in pods if pod.phase == "Placed" and not pod.stop]:
                    fleet.report("Bound", *new)
                    placed = True
            if not leaving and not placed:
                return

    def _advance(self, until: Instant) -> None:
        fleet = self.fleet
        while (wake := next_wake(fleet.state)) is not None and wake <= until:
            fleet.now = max(fleet.now, wake)
            fleet.handle(Tick())
            self._settle()
        fleet.now = until
        fleet.handle(Tick())
        self._settle()

    def _look(self) -> None:
        state, now = self.fleet.state, self.fleet.now
        before = dump(state)
        list(threats(state, all_limits(state), now=now))
        for row in state.runs.values():
            render.run(state, row, now=now)
        assert dump(state) == before, "who looks changes nothing"
