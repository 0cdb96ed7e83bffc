"""`tenure scenario`: play a timeline on the simulator (SPEC 15) and print what happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tenure.cli.manifests import read_text
from tenure.cli.output import Cell, Format, Table, columns, draw, phase, section, to_json_line
from tenure.cli.terminal import Progress, hint
from tenure.cli.trouble import invalid
from tenure.cli.words import hours, ordinals, span
from tenure.shell.home import Home
from tenure.shell.store import MemoryStore
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
def command(file: str, output: Format) -> None:
    """Play a scenario on the simulator, on virtual time, and print what happened.

    FILE is YAML or JSON, - is standard input. Objects that are refused appear among the events and do not stop it.

    JSON: {"scenario", "snapshots": {LABEL: STATE}, "final": STATE, "events": [{"at", "kind", "object", "reason",
    "message"}]}, where STATE is {"now", "budgets", "runs", "reservations", "leases", "pods", "nodes"} of whole API
    objects.
    """
    scenario, errors = read_scenario(read_text(file), source=file)
    if scenario is None:
        raise invalid(errors, next_step=f"mend {file} and try again")
    with Progress(f"playing {scenario.name}") as progress:
        player = Player(
            scenario,
            lambda executor: Home(MemoryStore(), executor),
            settled=lambda home, now: progress("minute", _minutes(now - scenario.start), _minutes(scenario.until)),
        )
        result = player.play()
    if output == "json":
        print(to_json_line(result))
        return
    for part in _parts(result, scenario.start):
        draw(part)
    hint(f"tenure scenario {file} --output json")


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
    return f"{run['status']['width']['allocated']}/{run['spec']['resources']['totalGPUs']}"


def _name(item: dict[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


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
