"""`tenure operator`: run a cluster. One line for each event, printed when it is committed and not before."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING

import click

from tenure.cli.exits import Exit
from tenure.cli.server.logged import Format, Logged, log_options, logged
from tenure.cli.session import ANCHOR_VARIABLE
from tenure.cli.terminal import hint, is_terminal
from tenure.cli.trouble import Trouble
from tenure.cli.words import safe
from tenure.facts import Entry
from tenure.units import SECOND, parse_duration

if TYPE_CHECKING:
    from tenure.cli.server.scraped import Scraped
    from tenure.embedded.custodians import FolderCustodian
    from tenure.engine import State
    from tenure.kube.client import Client
    from tenure.kube.loop import IO
    from tenure.kube.operator import Chore, Operator
    from tenure.kube.store import KubeStore
    from tenure.notify import NotifyConfig
    from tenure.observe.meter import Meter

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
@click.option("--probes", metavar="HOST:PORT", help="Answer /startz, /livez and /readyz there.")
@click.option("--webhook", metavar="HOST:PORT", help="Answer the API server there: defaults, and errors in full.")
@click.option("--webhook-certificate", type=_FOLDER, metavar="FOLDER",
              help="Serve it with tls.crt and tls.key from there. Left out: certificates of its own.")  # fmt: skip
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
@click.option("--notify", "told", metavar="NOTIFY.YAML", help="Tell the receivers in this file what happens.")
@click.option("--metrics", "address", metavar="[HOST:]PORT",
              help="Serve metrics for Prometheus there; without HOST only to this machine.")  # fmt: skip
@log_options("lines for people on a terminal and JSON elsewhere")
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
    webhook_certificate: Path | None,
    archive: Path | None,
    keep: str,
    start_timeout: str,
    custodians: tuple[Path, ...],
    told: str | None,
    address: str | None,
    log_format: Format | None,
    otel: bool,
) -> Exit:
    """Run a Kubernetes cluster: take in Runs, Budgets and nodes, decide, bind pods, and keep the books.

    The ledger is in the API server; the journal is a copy that also tells when the API server was set back in time.
    Several operators may run; each decision is one of theirs alone. Ctrl-C or SIGTERM stops it; work that runs goes on.
    """
    from tenure.cli.server.up import receivers_of, scraped_at
    from tenure.kube.metered import dealings
    from tenure.kube.operator import Operator, Options

    notify, scraped = receivers_of(told), scraped_at(address)
    kept = _duration("--keep", keep) if archive is not None else None
    options = Options(
        bind=not no_bind,
        binding=binding,
        keep=kept,
        start_timeout=_duration("--start-timeout", start_timeout),
        reporter=socket.gethostname(),
    )
    with ExitStack() as open_things:
        log = open_things.enter_context(logged(log_format or ("console" if is_terminal() else "json"), otel=otel))
        io, client = open_things.enter_context(_connected(kubeconfig, context))
        store = open_things.enter_context(_ledger(io, client, folder, anchor=anchor, archive=archive))
        found = _custodians(store, custodians or (folder / "custodian",), given=bool(custodians), say=log.report)
        meter = open_things.enter_context(_metered(scraped, store, anchor, notify, log))
        operator = Operator(io, client, store, options=options, custodians=found, report=log.report,
                            watch=_telling(store, log), meter=meter,
                            roots=[(one.beacon, one.root) for one in found], self_made=not custodians)  # fmt: skip
        if meter is not None:
            meter.metrics.add(dealings(operator))
        operator.chores += _chores(operator, store, archive=archive, keep=kept, say=log.report)
        open_things.enter_context(_notifying(store, anchor, notify, log))
        if elect:
            open_things.enter_context(_elected(operator, io, client, log))
        if probes is not None:
            open_things.enter_context(_probed(operator, io, probes))
        if webhook is not None:
            open_things.enter_context(_answering(operator, io, client, webhook, webhook_certificate))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: _stop(operator, frame))
        log.put(f"operating {safe(client.access.server)}: ledger {safe(store.fleet)}, entry {store.head.seq}")
        _run(operator)
        log.put("stopped. Work that runs goes on; the next operator takes over.")
    return Exit.OK


@contextmanager
def _metered(
    scraped: Scraped | None, store: KubeStore, anchor: Path | None, notify: NotifyConfig | None, log: Logged
) -> Iterator[Meter | None]:
    """Metrics, served meanwhile if there is an address for them."""
    from tenure.embedded.metered import receivers
    from tenure.kube.operator import clock
    from tenure.observe.meter import Meter

    if scraped is None:
        yield None
        return
    names = [one.name for one in notify.receivers] if notify else []
    sources = [receivers(store.ledger.path, anchor, names)] if names else []
    with scraped.serving(*sources, say=log.say) as metrics:
        yield None if metrics is None else Meter(metrics, clock)


@contextmanager
def _notifying(store: KubeStore, anchor: Path | None, notify: NotifyConfig | None, log: Logged) -> Iterator[None]:
    """Deliver notifications meanwhile: from the journal, which also keeps how far each receiver has come."""
    if notify is None:
        yield
        return
    from tenure.notify import Deliverer

    deliverer, done = Deliverer(store.ledger.path, notify, anchor=anchor, report=log.report), Event()
    thread = Thread(target=deliverer.run, args=(done,), name="notify", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _telling(store: KubeStore, log: Logged) -> Callable[[Entry], None]:
    def tell(entry: Entry) -> None:
        head = store.ledger.head_at(entry.seq) if log.wants_entries else None
        log.entry(entry, hash=head.hash if head is not None else "")

    return tell


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
        store.ledger.attest()
        yield store


def _custodians(
    store: KubeStore, folders: tuple[Path, ...], *, given: bool, say: Callable[[str], None]
) -> list[FolderCustodian]:
    """Those that were named, or the operator's own, made if the ledger knows none at all. Its own serves the ledger
    that has its chain: what another operator has published is not replaced by it."""
    from tenure.custodian import Status
    from tenure.embedded.custodians import UnfitChain, make_operator, open_folders
    from tenure.kube.operator import draws_wait

    known = store.ledger.beacons(store.head.seq)
    if not given and not folders[0].exists():
        if known:
            say(draws_wait(known))
            return []
        made = make_operator(folders[0])
        if not isinstance(made, Status):
            raise Trouble(made.sentence, next_step=made.next_step, exit=Exit.REFUSED)
        hint(f"keep {folders[0]} secret: it is the custodian of this ledger's draws, and knows them in advance")
    opened = open_folders(folders, known=known, report=say)
    if not given and known and isinstance(opened, UnfitChain):
        say(draws_wait(known))
        return []
    if not isinstance(opened, list):
        raise Trouble(opened.sentence, next_step=opened.next_step, exit=Exit.REFUSED)
    return opened


def _chores(
    operator: Operator, store: KubeStore, *, archive: Path | None, keep: int | None, say: Callable[[str], None]
) -> Iterator[Chore]:
    """Look after the admission policies and the taint of nodes, and move what is old."""
    from tenure.kube.guard import inspect
    from tenure.kube.machines import is_open
    from tenure.kube.machines import told as open_nodes
    from tenure.kube.operator import Chore, clock
    from tenure.kube.retention import Retention
    from tenure.kube.system import System

    told: set[str] = set()

    def guard() -> None:
        resource = operator.home.state.policy.gpu_resource
        found = {one.sentence() for one in operator.io.run(inspect(operator.client, System(gpu_resource=resource)))}
        nodes = [one for one in operator.caches["Node"].values() if is_open(one, resource)]
        found |= {open_nodes(str(one["metadata"]["name"]) for one in nodes)} - {""}
        for sentence in sorted(found - told):
            say(sentence)
        told.clear()
        told.update(found)

    moving = Retention(store, keep=keep if archive is not None else None)

    def retention() -> None:
        moving.step(clock())

    guarding = Chore("guard", GUARD_SECONDS, guard)
    guarding.due = 0.0  # at once: policies may have gone while nobody looked
    yield guarding
    yield Chore("retention", RETIRE_SECONDS, retention)


@contextmanager
def _elected(operator: Operator, io: IO, client: Client, log: Logged) -> Iterator[None]:
    """Stand for election meanwhile; at the end step down, while there is a client to do it with."""
    from tenure.kube.elect import Elector

    def changed(leading: bool) -> None:
        log.say("leading" if leading else "another operator leads")
        operator.bell.ring()

    elector = Elector(client, f"{socket.gethostname()}-{os.getpid()}", on_change=changed)
    io.start(elector.campaign())
    operator.leading = elector.leading.is_set
    try:
        yield
    finally:
        io.run(elector.resign())


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
def _answering(operator: Operator, io: IO, client: Client, where: str, folder: Path | None) -> Iterator[None]:
    """The webhook, with certificates that it keeps itself or finds; it judges with what the operator knows."""
    from tenure.kube.provided import Provided, Unusable
    from tenure.kube.system import System
    from tenure.kube.webhook import serving

    host, port = _address("--webhook", where)
    names = [System().webhook_host, *([] if host == "0.0.0.0" else [host])]

    def known() -> State | None:
        """Who does not decide does not follow either: what it knows may be old."""
        return operator.home.state if operator.ready and operator.leading() else None

    try:
        provided = None if folder is None else Provided(folder)
    except Unusable as error:
        step = "put tls.crt and tls.key there, or leave --webhook-certificate out"
        raise Trouble(str(error), next_step=step, exit=Exit.NOT_FOUND) from error
    with serving(io, client, host, port, names=names, known=known, provided=provided):
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
