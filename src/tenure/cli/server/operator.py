"""`tenure operator`: run a cluster. One line for each event, printed when it is committed and not before."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from tenure.cli import events
from tenure.cli.exits import Exit
from tenure.cli.session import ANCHOR_VARIABLE
from tenure.cli.terminal import hint, say
from tenure.cli.trouble import Trouble
from tenure.cli.words import safe
from tenure.facts import Entry, Noted
from tenure.units import SECOND, parse_duration

if TYPE_CHECKING:
    from tenure.embedded.custodians import FolderCustodian
    from tenure.engine import State
    from tenure.kube.client import Client
    from tenure.kube.loop import IO
    from tenure.kube.operator import Chore, Operator
    from tenure.kube.store import KubeStore

_FOLDER = click.Path(path_type=Path, file_okay=False)
GUARD_SECONDS = 60.0
RETIRE_SECONDS = 1.0


@click.command("operator", short_help="Run a Kubernetes cluster: decide, bind pods, keep the books.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
              help="How to reach the API server. Left out: KUBECONFIG, or the pod's own account.")  # fmt: skip
@click.option("--context", metavar="NAME", help="The context of the kubeconfig. Left out: its current one.")
@click.option("--journal", "folder", type=_FOLDER, required=True, metavar="FOLDER",
              help="Where the copy of the ledger is kept: this operator's own.")  # fmt: skip
@click.option("--anchor", type=click.Path(path_type=Path), envvar=ANCHOR_VARIABLE, metavar="FILE",
              help="Where the journal's anchor is, if not beside it.")  # fmt: skip
@click.option("--no-bind", is_flag=True, help="Decide nothing new: what runs goes on, and is accounted for.")
@click.option(
    "--binding", is_flag=True, help="Give pods their node by the Binding subresource, after they are created."
)
@click.option("--elect", is_flag=True, help="Decide only while elected as leader, where several operators run.")
@click.option("--probes", metavar="HOST:PORT", help="Answer /livez and /readyz there.")
@click.option("--webhook", metavar="HOST:PORT", help="Answer the API server there: defaults, and errors in full.")
@click.option(
    "--archive",
    type=_FOLDER,
    metavar="FOLDER",
    help="Where old entries are moved to; leases and reservations that are over go with them.",
)
@click.option("--keep", metavar="DURATION", default="720h", show_default=True,
              help="How long they stay in the API server; needs --archive.")  # fmt: skip
@click.option("--start-timeout", metavar="DURATION", default="10m", show_default=True,
              help="How long a pod may take to start.")  # fmt: skip
@click.option("--custodian", "custodians", multiple=True, type=_FOLDER, metavar="DIR",
              help="A custodian that reveals for draws; several may be given. Left out: its own.")  # fmt: skip
def command(
    kubeconfig: Path | None,
    context: str | None,
    folder: Path,
    anchor: Path | None,
    no_bind: bool,
    binding: bool,
    elect: bool,
    probes: str | None,
    webhook: str | None,
    archive: Path | None,
    keep: str,
    start_timeout: str,
    custodians: tuple[Path, ...],
) -> Exit:
    """Run a Kubernetes cluster: take in Runs, Budgets and nodes, decide, bind pods, and keep the books.

    The ledger is in the API server; the journal is a copy that also tells when the API server was set back in time.
    Several operators may run; each decision is one of theirs alone. Ctrl-C or SIGTERM stops it; work that runs goes on.
    """
    from tenure.kube.operator import Operator, Options

    kept = _duration("--keep", keep) if archive is not None else None
    options = Options(
        bind=not no_bind,
        binding=binding,
        keep=kept,
        start_timeout=_duration("--start-timeout", start_timeout),
        reporter=socket.gethostname(),
    )
    with ExitStack() as open_things:
        io, client = open_things.enter_context(_connected(kubeconfig, context))
        store = open_things.enter_context(_ledger(io, client, folder, anchor=anchor, archive=archive))
        found = _custodians(store, custodians or (folder / "custodian",), given=bool(custodians))
        operator = Operator(io, client, store, options=options, custodians=found, report=_say, watch=_tell,
                            roots=[(one.beacon, one.root) for one in found])  # fmt: skip
        operator.chores += _chores(operator, store, archive=archive, keep=kept)
        if elect:
            _elect(operator, io, client)
        if probes is not None:
            open_things.enter_context(_probed(operator, io, probes))
        if webhook is not None:
            open_things.enter_context(_answering(operator, io, client, webhook))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: _stop(operator, frame))
        _put(f"operating {safe(client.access.server)}: ledger {safe(store.fleet)}, entry {store.head.seq}")
        _run(operator)
    _put("stopped. Work that runs goes on; the next operator takes over.")
    return Exit.OK


def _run(operator: Operator) -> None:
    from tenure.kube.errors import ApiError

    try:
        operator.run()
    except ApiError as error:
        step = "check that the API server answers, and that `tenure install --kube` was run"
        raise Trouble(str(error), next_step=step, exit=Exit.REFUSED) from error


@contextmanager
def _connected(kubeconfig: Path | None, context: str | None) -> Iterator[tuple[IO, Client]]:
    from tenure.kube.client import Client
    from tenure.kube.config import NoAccess, discover, from_kubeconfig
    from tenure.kube.loop import IO

    try:
        access = discover() if kubeconfig is None and context is None else from_kubeconfig(kubeconfig, context=context)
    except NoAccess as error:
        raise Trouble(str(error), next_step="name a kubeconfig with --kubeconfig", exit=Exit.NOT_FOUND) from error
    with IO() as io:
        client = Client(access, compressed=False)  # who lists everything is not far away
        try:
            yield io, client
        finally:
            io.run(client.close())


@contextmanager
def _ledger(io: IO, client: Client, folder: Path, *, anchor: Path | None, archive: Path | None) -> Iterator[KubeStore]:
    import secrets

    from tenure.kube.errors import ApiError
    from tenure.kube.refusals import StoreRefused
    from tenure.kube.store import KubeStore

    folder.mkdir(parents=True, exist_ok=True)
    try:
        name = secrets.token_hex(8)
        store = KubeStore.open(io, client, folder / "journal.db", fleet=name, anchor=anchor, archive=archive)
    except StoreRefused as refused:
        raise Trouble(refused.sentence, next_step=refused.next_step, exit=Exit.REFUSED) from refused
    except ApiError as error:
        step = "`tenure install --kube` installs what is needed"
        raise Trouble(str(error), next_step=step, exit=Exit.REFUSED) from error
    with store:
        yield store


def _custodians(store: KubeStore, folders: tuple[Path, ...], *, given: bool) -> list[FolderCustodian]:
    """Those that were named, or the operator's own, made if the ledger knows none at all."""
    from tenure.custodian import Status
    from tenure.embedded.custodians import make_operator, open_folders

    known = store.ledger.beacons(store.head.seq)
    if not given and not folders[0].exists():
        if known:
            say(f"draws wait for this ledger's custodians ({', '.join(sorted(known))}): name theirs with --custodian")
            return []
        made = make_operator(folders[0])
        if not isinstance(made, Status):
            raise Trouble(made.sentence, next_step=made.next_step, exit=Exit.REFUSED)
        hint(f"keep {folders[0]} secret: it is the custodian of this ledger's draws, and knows them in advance")
    opened = open_folders(folders, known=known, report=say)
    if not isinstance(opened, list):
        raise Trouble(opened.sentence, next_step=opened.next_step, exit=Exit.REFUSED)
    return opened


def _chores(operator: Operator, store: KubeStore, *, archive: Path | None, keep: int | None) -> Iterator[Chore]:
    """Look after the admission policies and the taint of nodes, and move what is old."""
    from tenure.kube.guard import inspect
    from tenure.kube.machines import is_open
    from tenure.kube.machines import told as open_nodes
    from tenure.kube.operator import Chore, clock
    from tenure.kube.retention import Retention
    from tenure.kube.system import System

    told: set[str] = set()

    def guard() -> None:
        found = {one.sentence() for one in operator.io.run(inspect(operator.client, System()))}
        resource = operator.home.state.policy.gpu_resource
        nodes = [one for one in operator.caches["Node"].values() if is_open(one, resource)]
        found |= {open_nodes(str(one["metadata"]["name"]) for one in nodes)} - {""}
        for sentence in sorted(found - told):
            _say(sentence)
        told.clear()
        told.update(found)

    moving = Retention(store, keep=keep if archive is not None else None)

    def retention() -> None:
        moving.step(clock())

    guarding = Chore("guard", GUARD_SECONDS, guard)
    guarding.due = 0.0  # at once: policies may have gone while nobody looked
    yield guarding
    yield Chore("retention", RETIRE_SECONDS, retention)


def _elect(operator: Operator, io: IO, client: Client) -> None:
    from tenure.kube.elect import Elector

    def changed(leading: bool) -> None:
        _say("leading" if leading else "another operator leads")
        operator.bell.ring()

    elector = Elector(client, f"{socket.gethostname()}-{os.getpid()}", on_change=changed)
    io.start(elector.campaign())
    operator.leading = elector.leading.is_set


@contextmanager
def _probed(operator: Operator, io: IO, where: str) -> Iterator[None]:
    from tenure.kube.probes import Probes

    probes = Probes(operator)
    io.run(probes.start(*_address("--probes", where)))
    try:
        yield
    finally:
        io.run(probes.stop())


@contextmanager
def _answering(operator: Operator, io: IO, client: Client, where: str) -> Iterator[None]:
    """The webhook, with certificates that it keeps itself; it judges with what the operator knows."""
    from tenure.kube.system import System
    from tenure.kube.webhook import serving

    host, port = _address("--webhook", where)
    names = [System().webhook_host, *([] if host == "0.0.0.0" else [host])]

    def known() -> State | None:
        """Who does not decide does not follow either: what it knows may be old."""
        return operator.home.state if operator.ready and operator.leading() else None

    with serving(io, client, host, port, names=names, known=known):
        yield


def _address(option: str, where: str) -> tuple[str, int]:
    host, _, port = where.rpartition(":")
    if not port.isdigit():
        raise click.BadParameter("write HOST:PORT, such as 0.0.0.0:8080", param_hint=option)
    return host or "0.0.0.0", int(port)


def _duration(option: str, text: str) -> int:
    try:
        return max(SECOND, parse_duration(text))
    except ValueError:
        raise click.BadParameter("write a length of time such as 90s or 720h", param_hint=option) from None


def _stop(operator: Operator, frame: FrameType | None) -> None:
    operator.stop()


def _tell(entry: Entry) -> None:
    notes = (fact for fact in entry.facts if isinstance(fact, Noted))
    _put(*(events.line(entry.at, note.kind, note.object, note.message) for note in notes))


def _say(text: str) -> None:
    say(safe(text))


def _put(*lines: str) -> None:
    """Print at once. If nobody listens any more, that is no reason to stop."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 -- for the rest of this process
