"""`tenure scenario`: play a timeline on the simulator (SPEC 15) and print what happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tenure.cli.manifests import read_text
from tenure.cli.output import Cell, Format, Table, columns, draw, phase, section, to_json_line
from tenure.cli.terminal import Progress, hint
from tenure.cli.trouble import invalid
from tenure.cli.words import hours, ordinals, plural, span
from tenure.engine.shown import OVER
from tenure.shell.home import Home
from tenure.shell.store import MemoryStore, Store
from tenure.simulate.player import Player
from tenure.simulate.scenario import read_scenario
from tenure.units import Instant, parse_time


@click.command("scenario", short_help="Play a scenario on the simulator.")
@click.argument("file", metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Form of the answer.",
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="LEDGER",
    help="Keep the ledger in a new file, to be asked later.",
)
def command(file: str, output: Format, keep: Path | None) -> None:
    """Play a scenario on the simulator, on virtual time, and print what happened.

    FILE is YAML or JSON, - is standard input. Objects that are refused appear among the events and do not stop it.

    With --keep, everything that was decided stays in a ledger: `kubectl runs --local LEDGER` answers questions about it
    as of the scenario's end (its instants are those of the scenario, and its clock stands still), and `tenure ledger
    verify` checks it.

    JSON: {"scenario", "snapshots": {LABEL: STATE}, "final": STATE, "events": [{"at", "kind", "object", "reason",
    "message"}]}, where STATE is {"now", "budgets", "runs", "reservations", "leases", "pods", "nodes"} of whole API
    objects.
    """
    scenario, errors = read_scenario(read_text(file), source=file)
    if scenario is None:
        raise invalid(errors, next_step=f"mend {file} and try again")
    with Progress(f"playing {scenario.name}") as progress, _store(keep, end=scenario.start + scenario.until) as store:
        player = Player(
            scenario,
            lambda executor: Home(store, executor),
            settled=lambda home, now: progress("minute", _minutes(now - scenario.start), _minutes(scenario.until)),
        )
        result = player.play()
    if output == "json":
        print(to_json_line(result))
        return
    for part in _parts(result, scenario.start):
        draw(part)
    hint(f"kubectl runs --local {keep} leases" if keep else f"tenure scenario {file} --output json")


@contextmanager
def _store(keep: Path | None, *, end: Instant) -> Iterator[Store]:
    """Where the truth is kept: in memory, unless somebody wants it afterwards, who then finds the clock at its end."""
    if keep is None:
        yield MemoryStore()
        return
    from tenure.ledger import Ledger
    from tenure.shell.ledger_store import LedgerStore

    with Ledger.create(keep, fleet="simulator") as ledger:
        yield LedgerStore(ledger)
        ledger.stop_clock(end)


def _minutes(length: int) -> int:
    return length // 60_000_000


def _parts(result: dict[str, Any], start: Instant) -> Iterator[Table | str]:
    yield f"Scenario {result['scenario']}"
    yield section("Events")
    rows: list[list[Cell]] = [
        [f"+{span(parse_time(one['at']) - start)}", phase(one["kind"]), one["object"], one["reason"], one["message"]]
        for one in result["events"]
    ]
    yield Table(columns(">AT", "EVENT", "OBJECT", "REASON", "MESSAGE"), rows, "nothing happened")
    for label, state in [*result["snapshots"].items(), ("final", result["final"])]:
        yield from _state(label, state, start)


def _state(label: str, state: dict[str, Any], start: Instant) -> Iterator[Table | str]:
    yield section(f"{label} (+{span(parse_time(state['now']) - start)})")
    runs: list[list[Cell]] = [
        [_name(run), phase(run["status"]["phase"]), _gpus(run), run["status"]["message"]] for run in state["runs"]
    ]
    yield Table(columns("RUN", "PHASE", ">GPUS", "WHY"), runs, "no runs")
    promised = [_promised(one, start) for one in state["reservations"] if one["status"]["state"] not in OVER]
    if promised:
        yield Table(columns("WAITING", "STATE", ">START", "CONFIDENCE", "IN THE WAY"), promised)
    risks = [_risk(_name(run), run["status"]["risk"], start) for run in state["runs"] if run["status"].get("risk")]
    if risks:
        yield Table(columns("AT RISK", ">CHANCE", ">AT", "FOR"), risks)
    leases: list[list[Cell]] = [_lease(lease) for lease in state["leases"] if not lease["status"]["closed"]]
    if leases:
        yield Table(columns("RUN", "NODE", "GPUS", "ROLE", "PAID-BY"), leases)
    rooms: list[list[Cell]] = [
        [
            f"{budget['metadata']['name']}/{room['name']}",
            str(room["used"]),
            str(room["concurrency"]),
            hours(room["usedGPUHours"]),
        ]
        for budget in state["budgets"]
        for room in budget["status"]["headroom"]
    ]
    if rooms:
        yield Table(columns("ENVELOPE", ">USED", ">FREE", ">GPU-HOURS"), rooms)


def _gpus(run: dict[str, Any]) -> str:
    width = run["status"]["width"]
    return f"{width['allocated']}/{width['desired']}"


def _name(item: dict[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _promised(one: dict[str, Any], start: Instant) -> list[Cell]:
    status = one["status"]
    run = f"{one['metadata']['namespace']}/{one['spec']['runRef']['name']}"
    at = status.get("plannedStart")
    said = status.get("forecast") or {}
    parts = [remedy["text"] for remedy in said.get("remedies", ())]
    if said.get("shortGPUs"):
        parts.append(f"{plural(said['shortGPUs'], 'GPU')} that nobody can pay for")
    starts = f"+{span(parse_time(at) - start)}" if at else "-"
    return [run, status["state"], starts, said.get("confidence") or "-", ", ".join(parts)]


def _risk(run: str, told: dict[str, Any], start: Instant) -> list[Cell]:
    chance = f"{100 * told['cutProbability']:.3g} %"
    why = f"Reservation/{told['reservation']}" if told.get("reservation") else f"Budget/{told['envelope']}"
    return [run, chance, f"+{span(parse_time(told['at']) - start)}", why]


def _lease(lease: dict[str, Any]) -> list[Cell]:
    spec = lease["spec"]
    run = f"{lease['metadata']['namespace']}/{spec['runRef']['name']}"
    place = spec["slice"]
    return [
        run,
        place["nodes"][0],
        ordinals(place["gpus"]),
        place["role"],
        f"{spec['paidByBudget']}/{spec['paidByEnvelope']}",
    ]
