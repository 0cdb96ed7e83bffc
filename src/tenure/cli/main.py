"""The two programs: `kubectl runs` and `tenure`, each a table of verbs.

Nothing else is imported here, because every command pays for it: a verb's module is imported when the verb is called.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import click

from tenure import __version__
from tenure.cli.lazy import Root, Verb
from tenure.cli.session import Session, fleet_options, namespace

RUNS = {
    "submit": Verb("tenure.cli.runs.submit", "Hand in runs, budgets and namespaces: all of them or none."),
    "plan": Verb("tenure.cli.runs.plan", "Say what would happen to runs, and change nothing."),
    "list": Verb("tenure.cli.runs.list", "List runs."),
    "describe": Verb("tenure.cli.runs.describe", "Tell everything about a run."),
    "explain": Verb(
        "tenure.cli.runs.explain", "Say how a run stands and why: why it waits, until when, and what would help."
    ),
    "reservations": Verb("tenure.cli.runs.reservations", "Show what waiting runs are promised."),
    "story": Verb("tenure.cli.runs.story", "Tell the life of a run, from its submission to its end."),
    "watch": Verb("tenure.cli.runs.watch", "Follow runs as they change."),
    "logs": Verb("tenure.cli.runs.logs", "Print what a run's pods wrote."),
    "shrink": Verb("tenure.cli.runs.shrink", "Have an elastic run give GPUs back."),
    "grow": Verb("tenure.cli.runs.grow", "Have an elastic run take more GPUs."),
    "resolve": Verb("tenure.cli.runs.resolve", "Have others give way now to a run that waits."),
    "cancel": Verb("tenure.cli.runs.cancel", "Stop runs and delete them."),
    "who-pays": Verb("tenure.cli.runs.who_pays", "Say who pays for a run, or paid."),
    "sponsors": Verb("tenure.cli.runs.sponsors", "Show and choose who lends to a run."),
    "leases": Verb("tenure.cli.runs.leases", "Say who holds which GPUs, or held them."),
    "budgets": Verb("tenure.cli.runs.budgets", "Show budgets and what was used of them."),
    "chargeback": Verb("tenure.cli.runs.chargeback", "Say what everybody has to pay for a period."),
    "pods": Verb("tenure.cli.runs.pods", "List the pods that run now."),
    "verify": Verb("tenure.cli.runs.verify", "Check the record of a draw."),
    "audit": Verb("tenure.cli.runs.audit", "Check the whole ledger against the invariants."),
    "doctor": Verb("tenure.cli.runs.doctor", "Check an installation, and say how to mend what is not right."),
    "forecast-error": Verb("tenure.cli.runs.forecast_error", "Say how good the promised starts were."),
    "nodes": Verb("tenure.cli.runs.nodes", "List machines, and the room on them."),
    "completion": Verb("tenure.cli.runs.completion", "Print what a shell needs to complete commands and names."),
    "version": Verb("tenure.cli.runs.version", "Print the version."),
}
SERVER = {
    "init": Verb("tenure.cli.server.init", "Create an embedded fleet."),
    "up": Verb("tenure.cli.server.up", "Drive an embedded fleet: let time pass, and run the work."),
    "install": Verb("tenure.cli.server.install", "Install Tenure in a Kubernetes cluster."),
    "operator": Verb("tenure.cli.server.operator", "Run a Kubernetes cluster: decide, bind pods, keep the books."),
    "scenario": Verb("tenure.cli.server.scenario", "Play a scenario on the simulator."),
    "simulate": Verb("tenure.cli.server.simulate", "Replay job traces on the engine, beside FIFO and EASY."),
    "ledger": Verb("tenure.cli.server.ledger", "Verify, rebuild, export, show, accept or restore a ledger."),
    "custodian": Verb("tenure.cli.server.custodian", "Keep a hash chain for the lottery."),
    "notify": Verb("tenure.cli.server.notify", "Show how notifications fare, or send dead letters again."),
    "policy": Verb("tenure.cli.server.policy", "Show or set a fleet's policy."),
    "explain-code": Verb("tenure.cli.server.explain_code", "Say what a reason's code means."),
    "completion": Verb("tenure.cli.runs.completion", "Print what a shell needs to complete commands and names."),
    "version": Verb("tenure.cli.runs.version", "Print the version."),
}
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.pass_context
def _begin_runs(ctx: click.Context, /, **given: Any) -> None:
    """Who holds which GPU, until when, and who pays.

    RUN is NAME, in the namespace of -n, or NAMESPACE/NAME.
    """
    ctx.obj = Session(program=ctx.info_name or "kubectl-runs").taking(given)


def _begin_server() -> None:
    """Keep an embedded fleet: create it, drive it, check its ledger."""


runs = Root("kubectl-runs", callback=_begin_runs, help=_begin_runs.__doc__, verbs=RUNS, context_settings=dict(_HELP))
for _option in (namespace, fleet_options):
    _option(runs)
server = Root("tenure", callback=_begin_server, help=_begin_server.__doc__, verbs=SERVER, context_settings=dict(_HELP))
for _program in (runs, server):
    click.version_option(__version__, message="%(prog)s %(version)s")(_program)


def kubectl_runs() -> int:
    """The console script ``kubectl-runs``, which kubectl finds as ``kubectl runs``."""
    # A command reads a fleet, answers and ends: next to nothing of it is garbage before, and a third of its time went
    # into looking for some in a long queue. Who follows a fleet collects (``Followed``).
    gc.disable()
    return _run(runs, called_as())


def tenure() -> int:
    """The console script ``tenure``."""
    return _run(server, "tenure")


def kubectl_complete_runs() -> int:
    """The console script ``kubectl_complete-runs``, which kubectl asks for completions of ``kubectl runs``."""
    from tenure.cli.completing import kubectl

    return kubectl(runs, "kubectl-runs", sys.argv[1:])


def _run(program: Root, name: str) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # an odd locale must not break a table
    code: int = program.main(prog_name=name, standalone_mode=False)
    return code


def called_as() -> str:
    """How to call this program again: as kubectl's plugin where kubectl finds it, else as it was called."""
    mine = Path(sys.argv[0])
    found = _on_path("kubectl-runs")
    if found is None or not mine.exists() or not os.path.samefile(found, mine):
        return sys.argv[0] if mine.name == "kubectl-runs" else "kubectl-runs"
    return "kubectl runs" if _on_path("kubectl") else "kubectl-runs"


def _on_path(name: str) -> str | None:
    """Like shutil.which, without its import."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None
