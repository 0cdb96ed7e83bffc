"""`nodes`: the machines, what is held and free on them, and why one takes no work; and the slots that are left."""

from __future__ import annotations

from typing import Any

import click

from tenure.api.meta import to_wire
from tenure.cli.explaining import remedy
from tenure.cli.output import Cell, Format, Table, columns, listing, show
from tenure.cli.port import NodeLine, SlotLine, View
from tenure.cli.session import Session, output, verb
from tenure.cli.words import plural, some
from tenure.engine.reasons import sentence

_STYLES = {
    "Ready": "good",
    "Quarantined": "bad",
    "Fenced": "bad",
    "NotReady": "bad",
    "Cordoned": "wait",
    "Tainted": "wait",
}


@verb("nodes", "List machines, and the room on them.")
@click.option("--slots", is_flag=True, help="Instead, how many gangs of each size fit now in each domain.")
@output()
def command(session: Session, output: Format, slots: bool) -> None:
    """List machines: GPUs held and free, where they are, and why one takes no work.

    With --slots: for gangs of 1, 2, 4, ... GPUs how many fit now in each domain. 3/5 means that 3 fit now and 5
    would if the free GPUs were not scattered over machines.

    JSON: a List of Node objects with "gpus", "held", "free", "state" and "reason" beside; with --slots {"slots":
    [...]}. Names: the machines.
    """
    with session.fleet() as fleet:
        view = fleet.view()
    if slots:
        _show_slots(session, output, view)
        return
    lines = view.nodes()
    show(
        output,
        tables=lambda: [_table(lines), *_faults(session, lines), _sum(lines)],
        data=lambda: listing(_record(view, line) for line in lines),
        names=lambda: (line.name for line in lines),
        hint=session.command("nodes", "--slots"),
    )


def _table(lines: list[NodeLine]) -> Table:
    heads = ("NAME", "STATE", "TYPE", ">GPUS", ">HELD", ">FREE", "REGION", "CLUSTER", "DOMAIN", "+RACK", "HELD-BY")
    return Table(columns(*heads), [_row(line) for line in lines], "no machines")


def _row(line: NodeLine) -> list[Cell]:
    runs = sorted({lease.run_key for lease in line.leases})
    return [
        line.name, (line.state, _STYLES.get(line.state, "")), line.flavor, str(line.gpus), str(line.held),
        str(line.free), line.region, line.cluster, line.domain, line.rack, some(runs, 3),
    ]  # fmt: skip


def _faults(session: Session, lines: list[NodeLine]) -> list[str]:
    return [f"{sentence(line.fault)} {remedy(session, line.fault)}" for line in lines if line.fault is not None]


def _sum(lines: list[NodeLine]) -> str:
    gpus, held, free = (sum(getattr(line, name) for line in lines) for name in ("gpus", "held", "free"))
    return f"{plural(len(lines), 'machine')}, {plural(gpus, 'GPU')}: {held} held, {free} free"


def _record(view: View, line: NodeLine) -> dict[str, Any]:
    reason = sentence(line.fault) if line.fault else ""
    numbers = {"gpus": line.gpus, "held": line.held, "free": line.free, "state": line.state, "reason": reason}
    return {**to_wire(view.node(line.name)), **numbers}


def _show_slots(session: Session, output: Format, view: View) -> None:
    lines = view.slots()
    show(
        output,
        tables=lambda: [_slot_table(lines)],
        data=lambda: {"slots": [to_wire(line) for line in lines]},
        names=lambda: dict.fromkeys(f"{line.region}/{line.cluster}/{line.domain}" for line in lines),
        hint=session.command("nodes"),
    )


def _slot_table(lines: list[SlotLine]) -> Table:
    sizes = sorted({line.size for line in lines})
    rows: dict[tuple[str, ...], dict[int, SlotLine]] = {}
    for line in lines:
        rows.setdefault((line.flavor, line.region, line.cluster, line.domain), {})[line.size] = line
    heads = columns("TYPE", "REGION", "CLUSTER", "DOMAIN", ">FREE", *(f">{size}" for size in sizes))
    table = [
        [*place, str(next(iter(found.values())).free), *(_slot(found.get(size)) for size in sizes)]
        for place, found in rows.items()
    ]
    return Table(heads, table, "no machine has GPUs that take work")


def _slot(line: SlotLine | None) -> str:
    if line is None:
        return "0"
    return str(line.fit) if line.fit == line.ideal else f"{line.fit}/{line.ideal}"
