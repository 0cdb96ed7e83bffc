"""`pods`: what runs now, pod by pod."""

from __future__ import annotations

import click

from tenure.cli.lookup import find
from tenure.cli.output import Cell, Format, Table, columns, listing, phase, show
from tenure.cli.port import PodLine, View
from tenure.cli.session import Session, output, verb
from tenure.cli.words import age, ordinals


@verb("pods", "List the pods that run now.", listing=True)
@click.argument("run", required=False, metavar="[RUN]")
@output()
def command(session: Session, output: Format, run: str | None) -> None:
    """List the pods that run now, of one run or of all in the namespace.

    Pods that are over are gone from here; `logs` still has what they wrote.

    JSON: a List of Pod objects. Names: NAMESPACE/NAME.
    """
    with session.fleet() as fleet:
        view = fleet.view()
        line = find(session, view, run) if run else None
        namespace, name = (line.namespace, line.name) if line else (session.scope, None)
        pods = view.pods(namespace, name)
        show(
            output,
            tables=lambda: [table(pods, view, empty="no pods run now")],
            data=lambda: listing(_objects(pods, view)),
            names=lambda: (f"{pod.namespace}/{pod.name}" for pod in pods),
            hint=session.about("logs", pods[0].namespace, pods[0].run) if pods else session.command("list"),
        )


def table(pods: list[PodLine], view: View, *, empty: str = "") -> Table:
    """Pods by run and rank; `describe` shows the same."""
    heads = ("NAME", "RUN", ">RANK", ">GROUP", "NODE", "GPUS", "PHASE", ">SINCE", "MESSAGE")
    return Table(columns(*heads), [_row(pod, view) for pod in pods], empty)


def _row(pod: PodLine, view: View) -> list[Cell]:
    return [
        pod.name, f"{pod.namespace}/{pod.run}", str(pod.rank), str(pod.group), pod.node, ordinals(pod.gpus),
        phase(pod.phase), age(pod.since, view.now), pod.message,
    ]  # fmt: skip


def _objects(pods: list[PodLine], view: View) -> list[object]:
    from tenure.api.meta import to_wire

    return [to_wire(view.pod(pod.namespace, pod.name)) for pod in pods]
