"""A plan from a seed.

Each seed has its own taste: which kinds of things happen to it, and how often (swarm testing), since a world where
everything happens at once hides what only shows when little does.
"""

from __future__ import annotations

from importlib import import_module
from random import Random

import msgspec

from proof.sim import fleets
from proof.sim.events import FAULTS, FOR_GOOD, KINDS, Event, Mode, Plan, manifest
from proof.sim.wider import widened
from tenure.units import HOUR, MINUTE, SECOND, Micros

HOME_FAULTS = {"embedded": "proof.sim.faults_store", "cluster": "proof.sim.faults_api"}
"""Modules with the faults that only one home has: ``KINDS`` and ``faults(luck, hours=, mode=, plan=)``."""


def generate(seed: int, *, home: str, mode: Mode = "safety", hours: int = 48, wild: bool = False) -> Plan:
    """The plan of a seed: always the same."""
    luck = Random(f"{home} {mode} {hours} {seed}")
    machines = fleets.nodes(luck)
    plan = Plan(
        seed=seed,
        home=home,
        mode=mode,
        hours=hours,
        policy=manifest(fleets.policy(luck, wild=wild)),
        nodes=tuple(manifest(one) for one in machines),
        budgets=tuple(manifest(one) for one in fleets.budgets(luck)),
    )
    names = [one.metadata.name for one in machines]
    calendar = Calendar(luck, hours)
    events = [*_people(luck, calendar, hours), *_pods(luck, calendar), *faults(luck, names, calendar, mode)]
    own = import_module(HOME_FAULTS[home])
    plan = msgspec.structs.replace(plan, events=tuple(events))
    events += own.faults(luck, hours=hours, mode=mode, plan=plan, moment=calendar.moment)
    return widened(msgspec.structs.replace(plan, events=tuple(sorted(events, key=lambda event: event.at))))


def kinds(home: str) -> set[str]:
    """All kinds of events that a home knows."""
    return {*KINDS, *FAULTS, *import_module(HOME_FAULTS[home]).KINDS}


class Calendar:
    """When things happen: mostly in a few busy spans, so that faults meet work, and mostly at whole minutes, as people
    and timers have it. The last tenth of the plan is left alone."""

    def __init__(self, luck: Random, hours: int) -> None:
        self._luck = luck
        self.end = hours * HOUR * 9 // 10
        self._busy = [luck.randrange(self.end) for _ in range(luck.choice((1, 2, 3)))]
        self._span = luck.choice((HOUR, 3 * HOUR, 6 * HOUR))

    def moment(self) -> Micros:
        luck = self._luck
        at = luck.randrange(self.end)
        if luck.random() < 0.8:
            at = min(luck.choice(self._busy) + luck.randrange(self._span), self.end)
        return at if luck.random() < 0.2 else at // MINUTE * MINUTE


def _people(luck: Random, calendar: Calendar, hours: int) -> list[Event]:
    """Runs, mostly; some are canceled or resized, and budgets change under them."""
    out = []
    taste = [luck.random() for _ in range(4)]
    times = sorted(calendar.moment() for _ in range(luck.choice((6, 10, 14, 18)) * hours // 48))
    for index, at in enumerate(times):
        made = fleets.run_of(luck, f"r{index}")
        odd = luck.random() < 0.15  # declared one thing, takes another
        lasts = luck.choice((MINUTE, HOUR, 6 * HOUR)) if odd else 0
        out.append(Event(at=at, kind="submit", object=manifest(made), lasts=lasts, number=luck.randrange(4)))
        name, later = made.metadata.name, at + luck.choice((0, MINUTE, 20 * MINUTE, 3 * HOUR))
        if luck.random() < 0.15 * taste[0]:
            out.append(Event(at=later, kind="cancel", target=name, number=luck.randrange(4)))
            if luck.random() < 0.3:  # and the same name again
                again = fleets.run_of(luck, name)
                out.append(Event(at=later + luck.choice((0, HOUR)), kind="submit", object=manifest(again)))
        if made.spec.malleable is not None and luck.random() < taste[1]:
            shape = made.spec.malleable
            wide = luck.randrange(shape.min_total_gpus, shape.max_total_gpus + 1, shape.step_gpus)
            out.append(Event(at=later, kind="resize", target=name, number=wide))
    for _ in range(int(8 * taste[2])):
        owner = luck.choice(fleets.OWNERS)
        made = manifest(fleets.budget_of(luck, owner))
        out.append(Event(at=calendar.moment(), kind="budget", object=made, number=luck.randrange(4)))
    for _ in range(int(2 * taste[3])):
        at, owner = calendar.moment(), luck.choice(fleets.OWNERS)
        out.append(Event(at=at, kind="drop-budget", target=owner.removeprefix("org:")))
        back = manifest(fleets.budget_of(luck, owner))
        out.append(Event(at=at + luck.choice((MINUTE, 2 * HOUR)), kind="budget", object=back))
    if luck.random() < 0.2:
        out.append(Event(at=calendar.moment(), kind="policy", object=manifest(fleets.policy(luck))))
    return out


def _pods(luck: Random, calendar: Calendar) -> list[Event]:
    """Pods that exit, fail, or cannot be started."""
    out = []
    for kind in ("pod-exits", "pod-fails", "pod-breaks"):
        for _ in range(luck.choice((0, 2, 5))):
            lasts = luck.choice((MINUTE, 20 * MINUTE)) if kind == "pod-breaks" else 0
            run = f"r{luck.randrange(12)}"
            out.append(Event(at=calendar.moment(), kind=kind, target=run, number=luck.randrange(8), lasts=lasts))
    return out


def faults(luck: Random, nodes: list[str], calendar: Calendar, mode: Mode) -> list[Event]:
    """The faults that both homes have. In liveness mode one of the nodes never comes back."""
    kinds = [kind for kind in FAULTS if luck.random() < 0.5]
    out = [fault(luck, kind, nodes, calendar.moment()) for kind in kinds for _ in range(luck.choice((1, 1, 2)))]
    if mode == "liveness":
        kind = luck.choice(("node-fail", "node-unready", "node-cordon", "node-lie"))
        dead = fault(luck, kind, [luck.choice(nodes)], calendar.moment() // 2)
        out.append(msgspec.structs.replace(dead, lasts=FOR_GOOD))
        if luck.random() < 0.5:  # and one tenant's money is gone
            owner = luck.choice(fleets.OWNERS).removeprefix("org:")
            out.append(Event(at=calendar.end, kind="drop-budget", target=owner))
    return out


def fault(luck: Random, kind: str, nodes: list[str], at: Micros) -> Event:
    """One fault, with numbers that suit its kind."""
    lasts = luck.choice((20 * SECOND, 5 * MINUTE, HOUR, 5 * HOUR))
    number = luck.randrange(1000)
    match kind:
        case "node-reboot" | "pods-lie":
            lasts = luck.choice((30 * SECOND, 10 * MINUTE))
        case "node-lie":
            number = luck.choice((0, 1, 2, 6, 16))
        case "clock-skew":
            lasts, number = luck.choice((10 * MINUTE, 3 * HOUR)), luck.choice((-1, 1)) * luck.randrange(300 * SECOND)
        case "clock-step":
            number = luck.choice((-3600, -60, -1, 1, 60, 3600)) * SECOND + luck.randrange(SECOND)
        case "clock-freeze":
            lasts = luck.choice((30 * SECOND, 10 * MINUTE, HOUR))
        case "crash":
            lasts = luck.choice((0, 0, SECOND, 30 * SECOND, HOUR))
        case "two-leaders":
            lasts = luck.choice((10 * MINUTE, 3 * HOUR))
    return Event(at=at, kind=kind, target=luck.choice(nodes), number=number, lasts=lasts)
