"""`reservations`: what waiting runs are promised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from tenure.cli.lookup import unknown
from tenure.cli.output import Cell, Format, Table, columns, listing, phase, show
from tenure.cli.port import Fleet, View
from tenure.cli.promised import starts, where, why, wire
from tenure.cli.queued import band, clock
from tenure.cli.session import Session, output, verb
from tenure.cli.words import plural, span, stamp
from tenure.engine.rows import bound_of, claims
from tenure.engine.shown import countdown
from tenure.facts import Reservation
from tenure.units import SECOND, Instant

if TYPE_CHECKING:
    from tenure.api.run import Estimate


@verb("reservations", "Show what waiting runs are promised.", listing=True)
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--all", "everything", is_flag=True, help="Also those that are Released or Canceled.")
@output()
def command(session: Session, output: Format, run: str | None, everything: bool) -> None:
    """Show what waiting runs are promised: when each is to start, where, who is to pay, what that rests on, and what
    is in its way.

    BY is the bound, by which the run starts; LIKELY when it is likely to: by half of the chances, and by nine tenths
    (UTC). Runs without a promise are in `list`, with their place in the queue.

    A reservation that was kept is Released, one whose run was deleted or changed is Canceled; both stay for audit,
    and --all shows them.

    JSON: a List of Reservation objects. Names: NAMESPACE/NAME.
    """
    namespace, name = session.key(run) if run else (session.scope, None)
    with session.fleet() as fleet:
        view = fleet.view()
        rows = fleet.find_reservations(namespace=namespace, run=name, live=not everything)
        found = [_of_now(view, row.reservation) if run else row.reservation for row in rows]
        likely = view.estimates([one.run_key for one in found if claims(one)]) if output != "name" else {}
        if not found and namespace and name and not _is_known(fleet, view, namespace, name):
            raise unknown(session, view, namespace, name)
        empty = _empty(session, fleet, namespace, name, everything=everything) if not found else ""
        show(
            output,
            tables=lambda: [_table(found, likely, now=view.now, empty=empty)],
            data=lambda: listing(wire(fleet, one, now=view.now) for one in found),
            names=lambda: (one.key for one in found),
            hint=session.about("describe", found[0].namespace, found[0].run) if found else "",
        )


def _is_known(fleet: Fleet, view: View, namespace: str, name: str) -> bool:
    return view.line(namespace, name) is not None or bool(fleet.submissions(namespace, name))


def _of_now(view: View, one: Reservation) -> Reservation:
    """One that is live says why in the numbers of now."""
    live = view.reservation(one.namespace, one.run)
    return live if live is not None and live.uid == one.uid else one


def _table(found: list[Reservation], likely: Mapping[str, Estimate], *, now: Instant, empty: str) -> Table:
    heads = (
        "RUN", "STATE", "BY", "LIKELY", ">COUNTDOWN", "+START", "+NAME", "+PROMISED", "+>GPUS", "+NODES", "WHERE",
        "PAID-BY", "CONFIDENCE", "WHY",
    )  # fmt: skip
    return Table(columns(*heads), [_row(one, likely.get(one.run_key), now) for one in found], empty)


def _row(one: Reservation, likely: Estimate | None, now: Instant) -> list[Cell]:
    left = countdown(one, now)
    return [
        one.run_key, phase(one.state), _bound(one, now), band(likely if claims(one) else None, now),
        "-" if left is None else span(left * SECOND), starts(one), one.name,
        stamp(one.promise.start), str(one.plan.width), ",".join(share.node for share in one.plan.shares),
        ",".join(where(one.plan)), ",".join(f"{part.budget}/{part.envelope}:{part.gpus}" for part in one.plan.segments),
        one.confidence, why(one),
    ]  # fmt: skip


def _bound(one: Reservation, now: Instant) -> str:
    by = None if one.plan.start is None else bound_of(one)
    return "-" if by is None else clock(by, now)


def _empty(session: Session, fleet: Fleet, namespace: str | None, run: str | None, *, everything: bool) -> str:
    """Nothing is promised here; perhaps something was."""
    whose = f" for Run/{namespace}/{run}" if run else f" in namespace {namespace}" if namespace else ""
    if everything:
        return f"there never was a reservation{whose}"
    over = len(fleet.find_reservations(namespace=namespace, run=run))
    if not over and namespace and run:
        return f"no reservation{whose}: no start is promised to it; see {session.about('explain', namespace, run)}"
    if not over:
        return f"no reservation{whose}: nothing that waits is promised a start"
    words = (
        "reservations",
        *((f"{namespace}/{run}",) if run else ("-n", namespace) if namespace else ("-A",)),
        "--all",
    )
    return f"no reservation{whose} now; {plural(over, 'reservation')} of the past: {session.command(*words)}"
