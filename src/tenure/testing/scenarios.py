"""Scenarios as tests: play a file on any store with the auditor looking on, and tell what happened in few words.

A scenario ``NAME.yaml`` stands beside ``NAME.expect.yaml``, which says in the domain's language what must come out:

    leases:                                   # every lease there ever was, by name
    - train-a1-g00-a-00-0 Active 0-7 of a-00 paid by rai/west, 0s to 1h Completed
    events:                                   # everything that was told, in order
    - 0s Admitted Run/rai/train Admitted
    runs:                                     # phases (and why, while it waits) at each snapshot and at the end
      final: {rai/train: Completed}
    promised:                                 # starts at each snapshot, and places in the queue of those without
      waiting: {rai/wide: 6h, rai/late: place 1}
    used:                                     # GPU-hours charged in the window in force, likewise
      final: {rai/west: 8}

``brief`` makes that page from a scenario's output, so a page and an output are compared as plain data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.audit import Auditor, Violation, settled_pass_wrote
from tenure.engine import Tick, dump, load, step
from tenure.facts import Opened, encode_entry
from tenure.shell.home import Home
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import Store
from tenure.simulate.player import Player
from tenure.simulate.scenario import Scenario
from tenure.units import Instant, format_duration, parse_time


class Watcher:
    """An auditor beside a home: asked whenever the world has settled."""

    def __init__(self) -> None:
        self.auditor = Auditor()
        self.seq = 0
        self.passes = 0

    def __call__(self, home: Home, now: Instant) -> None:
        found: list[Violation] = []
        for entry in home.store.entries(after=self.seq):
            found += self.auditor.feed_raw(encode_entry(entry))
            self.seq = entry.seq
        found += self.auditor.check(now, settled=True)
        assert not found, "\n".join(map(str, found))
        again = load(dump(home.state))
        wrote = settled_pass_wrote(step(again, Tick(), now=now).facts, at=now)
        assert not wrote, f"rebuilt, the world is not settled: {wrote}"
        again.mark_all()
        started = [fact for fact in step(again, Tick(), now=now).facts if isinstance(fact, Opened)]
        assert not started, f"looked at anew, something could have started: {started}"
        self.passes += 1


def play(scenario: Scenario, store: Store) -> dict[str, Any]:
    """The output of SPEC 15, from a home on this store; AssertionError if an invariant breaks on the way."""
    watcher = Watcher()
    make_home: Callable[[SimulatedExecutor], Home] = lambda executor: Home(store, executor)  # noqa: E731
    output = Player(scenario, make_home, settled=watcher).play()
    assert watcher.passes, "nobody looked"
    violations = watcher.auditor.recheck(store.entries(), now=parse_time(output["final"]["now"]))
    assert not violations, "\n".join(map(str, violations))
    return output


def brief(output: dict[str, Any], *, start: Instant) -> dict[str, Any]:
    """What happened, in few words."""

    def offset(text: str) -> str:
        return format_duration(parse_time(text) - start)

    states = {**output["snapshots"], "final": output["final"]}
    promised = {label: _promised(state, offset) for label, state in states.items()}
    return {
        "leases": [_lease(lease, offset) for lease in output["final"]["leases"]],
        "events": [
            f"{offset(event['at'])} {event['kind']} {event['object']} {event['reason']}" for event in output["events"]
        ],
        "runs": {label: {_name(item): _phase(item) for item in state["runs"]} for label, state in states.items()},
        **({"promised": promised} if any(promised.values()) else {}),
        "used": {label: _used(state) for label, state in states.items()},
    }


def _promised(state: dict[str, Any], offset: Callable[[str], str]) -> dict[str, str]:
    """When runs that wait were promised a start, or which place they have among those that were not."""
    found = {}
    for run in state["runs"]:
        status = run["status"]
        if status.get("earliestStart"):
            found[_name(run)] = offset(status["earliestStart"])
        elif status.get("queue"):
            found[_name(run)] = f"place {status['queue']['position']}"
    return found


def _used(state: dict[str, Any]) -> dict[str, float | int]:
    rooms = [(item["metadata"]["name"], room) for item in state["budgets"] for room in item["status"]["headroom"]]
    return {f"{budget}/{room['name']}": _hours(room["usedGPUHours"]) for budget, room in rooms}


def _lease(lease: dict[str, Any], offset: Callable[[str], str]) -> str:
    spec, status = lease["spec"], lease["status"]
    # The seed of a draw is another one whenever an entry before it is worded otherwise; who was drawn is what counts.
    end = f"to {offset(status['endTime'])} {status['closureReason'].partition('(')[0]}" if status["closed"] else "on"
    return (
        f"{lease['metadata']['name']} {spec['slice']['role']} {_ranges(spec['slice']['gpus'])} of "
        f"{spec['slice']['nodes'][0]} paid by {spec['paidByBudget']}/{spec['paidByEnvelope']}, "
        f"{offset(spec['interval']['start'])} {end}"
    )


def _phase(run: dict[str, Any]) -> str:
    phase: str = run["status"]["phase"]
    admitted = [mark for mark in run["status"]["conditions"] if mark["type"] == "Admitted"]
    if phase == "Pending" and admitted and admitted[0]["status"] == "False":
        return f"Pending {admitted[0]['reason']}"
    return phase


def _name(item: dict[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _hours(hours: float) -> float | int:
    return int(hours) if hours == int(hours) else round(hours, 6)


def _ranges(ordinals: list[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2,5``."""
    out: list[list[int]] = []
    for one in ordinals:
        if out and one == out[-1][1] + 1:
            out[-1][1] = one
        else:
            out.append([one, one])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in out)
