"""What `shrink` and `grow` share: another width for an elastic run.

Both change ``desiredTotalGPUs`` and nothing else; the engine does the rest, group by group and step by step. What
cannot be is refused here in the run's own numbers: a fixed run, a width between two steps, one beyond the range, the
wrong direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from tenure.cli.lookup import find, run_argument
from tenure.cli.manifests import dry_run
from tenure.cli.session import Function, Session
from tenure.cli.terminal import hint, say
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import plural, safe

if TYPE_CHECKING:
    from tenure.api.run import Malleable, Run
    from tenure.cli.port import RunLine, View

Direction = Literal["shrink", "grow"]


def arguments(function: Function) -> Function:
    """RUN, GPUS and ``--dry-run``."""
    return run_argument(click.argument("gpus", type=click.IntRange(min=1), metavar="GPUS")(dry_run(function)))


def resize(session: Session, text: str, gpus: int, *, direction: Direction, dry_run: bool = False) -> None:
    """Have a run desire another width, and say what becomes of it."""
    with session.fleet(write=True) as fleet:
        before = fleet.view()
        line = find(session, before, text)
        run = before.run(line.namespace, line.name)
        wanted = _resized(session, line, run, gpus, direction=direction)
        if wanted is None:
            print(f"Run/{safe(line.key)}: desires {plural(gpus, 'GPU')} already")
        else:
            done = fleet.amend(run, wanted, dry_run=dry_run)
            if done.refused:
                raise invalid(done.refused, next_step="mend what is listed above and try again; nothing was changed")
            if dry_run:
                print(f"Run/{safe(line.key)}: would desire {plural(gpus, 'GPU')} (server dry run)")
                return
            print(f"Run/{safe(line.key)}: {_fate(line, fleet.view(), gpus)}")
            if not fleet.driven:
                say(f"nothing drives this fleet, so nothing changes yet: {fleet.drive_command}")
    hint(session.about("describe", line.namespace, line.name))


def _resized(session: Session, line: RunLine, run: Run, gpus: int, *, direction: Direction) -> Run | None:
    """The run with another desire; None if it has that already."""
    from msgspec.structs import replace

    elastic = run.spec.malleable
    if elastic is None:
        problem = f"Run/{line.key} is fixed at {plural(line.gpus, 'GPU')}: it has no spec.malleable"
        raise Trouble(problem, next_step="cancel it and submit a malleable one; a gang cannot be cut to size")
    if line.over:
        raise Trouble(f"Run/{line.key} is {line.phase}", next_step="submit it again with another desiredTotalGPUs")
    desired = elastic.desired_total_gpus or elastic.max_total_gpus
    _check(elastic, line, gpus)
    if gpus == desired:
        return None
    if (gpus < desired) != (direction == "shrink"):
        other = "grow" if direction == "shrink" else "shrink"
        problem = f"Run/{line.key} desires {plural(desired, 'GPU')}: {gpus} would not {direction} it"
        raise Trouble(problem, next_step=f"{session.about(other, line.namespace, line.name)} {gpus}")
    return replace(run, spec=replace(run.spec, malleable=replace(elastic, desired_total_gpus=gpus)))


def _check(elastic: Malleable, line: RunLine, gpus: int) -> None:
    low, high, step = elastic.min_total_gpus, elastic.max_total_gpus, elastic.step_gpus
    if low <= gpus <= high and (gpus - low) % step == 0:
        return
    widths = range(low, high + 1, step)
    first = max(0, min((gpus - low) // step, len(widths) - 2))
    shown = f"{low} to {high} in steps of {step}" if high > low else f"{low} only"
    problem = f"Run/{line.key} cannot have {plural(gpus, 'GPU')}: its widths are {shown}"
    raise Trouble(problem, next_step=f"ask for {' or '.join(map(str, widths[first : first + 2]))}")


def _fate(line: RunLine, after: View, gpus: int) -> str:
    now = after.line(line.namespace, line.name) or line
    if now.phase != "Running":
        return f"desires {plural(gpus, 'GPU')}; it waits"
    if now.held == gpus:
        return f"desires {plural(gpus, 'GPU')}, which it has"
    how = "groups leave, and their leases close when their pods are gone" if now.held > gpus else (
        f"{_pace(after)}, when machines and money allow"
    )  # fmt: skip
    return f"desires {plural(gpus, 'GPU')} and has {now.held}: {how}"


def _pace(view: View) -> str:
    """How fast it grows, for who may read it."""
    try:
        return f"one step per {view.policy.grow_interval}"
    except Trouble:
        return "step by step"
