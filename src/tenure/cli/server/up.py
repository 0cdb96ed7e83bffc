"""`tenure up`: drive an embedded fleet. One line for each event, printed when it is committed and not before.

The driver decides and runs; what it does is told by a second reader of the same file (``_Teller``). So only what is
committed is ever said, whoever decided it, and a closed pipe or a slow terminal holds up nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING

import click

from tenure.cli import events
from tenure.cli.exits import Exit
from tenure.cli.local import LocalFleet
from tenure.cli.server.fleets import create, fleet_argument, is_created
from tenure.cli.server.logged import Format, Logged, log_options, logged, put
from tenure.cli.terminal import hint
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, safe
from tenure.custodian import Status
from tenure.embedded.bell import Bell
from tenure.embedded.custodians import FolderCustodian, make_operator, open_folders
from tenure.embedded.daemon import Daemon
from tenure.embedded.driver import DriverBusy
from tenure.embedded.fleet import Fleet, clock
from tenure.embedded.metered import receivers
from tenure.embedded.paths import custodian_path, driver_path
from tenure.ledger import Ledger, LedgerRefused
from tenure.observe.meter import Meter

if TYPE_CHECKING:
    from tenure.cli.server.scraped import Scraped
    from tenure.notify import NotifyConfig
    from tenure.observe.metrics import Source

LOOK_EVERY = 0.1
"""Seconds between two looks for the driver's place."""
TRIES = 10
"""How often to try again for the driver's place."""


@click.command("up", short_help="Drive an embedded fleet: let time pass, and run the work.")
@fleet_argument
@click.option("--fleet", "source", metavar="FLEET.YAML", help="Create FILE from this fleet file if it does not exist.")
@click.option("--notify", "told", metavar="NOTIFY.YAML", help="Tell the receivers in this file what happens.")
@click.option(
    "--custodian",
    "folders",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A custodian that reveals for draws; may be given several times. Left out: one beside FILE.",
)
@click.option(
    "--metrics",
    "address",
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus there; without HOST only to this machine. Left out: they are not served.",
)
@log_options("lines for people")
@click.option("--until-idle", is_flag=True, help="Stop when nothing runs and nothing that waits could start by itself.")
def command(
    file: Path,
    source: str | None,
    told: str | None,
    folders: tuple[Path, ...],
    address: str | None,
    log_format: Format | None,
    otel: bool,
    until_idle: bool,
    anchor: Path | None,
) -> Exit:
    """Drive an embedded fleet: let time pass, decide, and run the work as processes of this machine.

    Prints one line for each event; on standard error, if standard output is a receiver of notifications. Ctrl-C stops
    driving; work that runs goes on, and the next `tenure up` finds it again. There is one driver for a fleet.

    When whole runs have to give way, they are drawn by lot, and custodians make the draw. A fleet without any gets one
    beside FILE: whoever can read that folder knows every draw in advance, so have others keep one too.
    """
    notify, scraped = receivers_of(told), scraped_at(address)
    created = is_created(file, anchor=anchor)
    if source is None and not created:
        step = f"tenure up {file} --fleet fleet.yaml creates it; examples/fleet.yaml is one"
        raise Trouble(f"there is no fleet at {file}", next_step=step, exit=Exit.NOT_FOUND)
    with logged(log_format or "console", otel=otel) as log:
        if not created:
            log.put(f"created {safe(str(file))}: {create(file, source, anchor=anchor)}")
        custodians = _custodians(file, anchor, folders, say=log.say)
        with (
            nullcontext()
            if scraped is None
            else scraped.serving(*_sources(file, anchor, notify), say=log.say) as numbers
        ):
            meter = None if numbers is None else Meter(numbers, clock)
            _drive(file, anchor, log, until_idle=until_idle, notify=notify, custodians=custodians, metered=meter)
    return Exit.OK


def _sources(file: Path, anchor: Path | None, notify: NotifyConfig | None) -> list[Source]:
    names = [one.name for one in notify.receivers] if notify else []
    return [receivers(file, anchor, names)] if names else []


def scraped_at(address: str | None) -> Scraped | None:
    """Where metrics are served, if they are."""
    if address is None:
        return None
    from tenure.cli.server.scraped import read_address  # only where metrics are served

    return read_address(address)


def _custodians(
    file: Path, anchor: Path | None, folders: tuple[Path, ...], *, say: Callable[[str], None]
) -> list[FolderCustodian]:
    """Those that were named, or the fleet's own, made if the fleet has none at all."""
    with Fleet.open(file, readonly=False, anchor=anchor) as fleet:
        known = fleet.state().roots
    own = custodian_path(file)
    if not folders and own.exists():
        folders = (own,)
    elif not folders and known:
        say(f"draws wait for the custodians of this fleet ({', '.join(sorted(known))}): name theirs with --custodian")
    elif not folders:
        made = make_operator(own)
        if not isinstance(made, Status):
            raise Trouble(made.sentence, next_step=made.next_step, exit=Exit.REFUSED)
        folders = (own,)
        hint(f"keep {own} secret: it is the custodian of this fleet's draws, and knows them in advance")
    opened = open_folders(folders, known=known, report=say)
    if not isinstance(opened, list):
        raise Trouble(opened.sentence, next_step=opened.next_step, exit=Exit.REFUSED)
    return opened


def receivers_of(name: str | None) -> NotifyConfig | None:
    """Who is told. If standard output is one of them, what people read goes beside it: events are for programs."""
    if name is None:
        return None
    from tenure.cli.server.notify import read_receivers

    config = read_receivers(name)
    if config.uses_stdout:
        sys.stdout = sys.stderr
    return config


def _drive(
    file: Path,
    anchor: Path | None,
    log: Logged,
    *,
    until_idle: bool,
    notify: NotifyConfig | None,
    custodians: list[FolderCustodian],
    metered: Meter | None,
) -> None:
    complaints = _Complaints(log.warn)
    daemon = Daemon(
        file, anchor=anchor, trouble=complaints, notify=notify, report=log.report, custodians=custodians,
        metered=metered,
    )  # fmt: skip
    asked = Event()

    def stop(number: int, frame: FrameType | None) -> None:
        asked.set()
        daemon.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with _Teller(file, anchor, log):
        _run(daemon, until_idle=until_idle)
    _part(file, anchor, log, interrupted=asked.is_set())


def _run(daemon: Daemon, *, until_idle: bool) -> None:
    """Drive. A process that only looks whether somebody drives holds the lock for a moment: that is no driver."""
    for left in range(TRIES, -1, -1):
        try:
            return daemon.run(until_idle=until_idle)
        except DriverBusy:
            if not left or daemon.stopping.wait(LOOK_EVERY):
                raise
    raise AssertionError("the last try raises")


class _Teller:
    """Tells what was committed, as it is committed, until the block ends."""

    def __init__(self, file: Path, anchor: Path | None, log: Logged) -> None:
        self._file, self._anchor, self._log = file, anchor, log
        self._done = Event()
        self._ledger = Ledger.open(file, readonly=True, anchor=anchor)
        self._bell = Bell(self._ledger.anchor_path)
        self._seq, self._version = self._ledger.head.seq, -1
        self._thread = Thread(target=self._work, name="teller", daemon=True)

    def __enter__(self) -> _Teller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._bell.ring()
        self._thread.join()
        self._bell.close()
        self._ledger.close()

    def _work(self) -> None:
        while not _is_mine(self._file):
            if self._done.wait(LOOK_EVERY / 10):
                return
        _greet(self._file, self._anchor, self._log)
        done = False
        while not done:
            self._bell.wait(self._bell.longest())
            done = self._done.is_set()  # and once more after the end: what happened last is news too
            try:
                self._look()
            except LedgerRefused:
                continue  # the driver meets the same, and complains

    def _look(self) -> None:
        version = self._ledger.data_version()
        if version == self._version:
            return
        self._version = version
        if self._log.wants_entries:
            for link in self._ledger.links(after=self._seq):
                self._log.entry(link.entry, hash=link.hash)
                self._seq = link.entry.seq
            return
        notes = self._ledger.notes(after_seq=self._seq)
        put(*(events.line(note.at, note.kind, note.object, note.message) for note in notes))
        self._seq = notes[-1].seq if notes else self._seq


class _Complaints:
    """Says what the ledger refuses; once, until it is something else: a full disk stays full for a while."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._last = say, ""

    def __call__(self, refused: LedgerRefused) -> None:
        text = f"{refused.code}: {refused.sentence}"
        if text != self._last:
            self._say(
                f"error: {text}\nnext: {refused.next_step} Running work goes on, nothing is admitted; trying again."
            )
        self._last = text


def _is_mine(file: Path) -> bool:
    """Whether this process drives: the driver writes its pid down once it has the lock."""
    try:
        return driver_path(file).read_text().strip() == str(os.getpid())
    except FileNotFoundError:
        return False


def _greet(file: Path, anchor: Path | None, log: Logged) -> None:
    with LocalFleet.open(file, write=False, anchor=anchor) as fleet:
        view = fleet.view()
        nodes, waiting = view.nodes(), sum(line.phase == "Pending" for line in view.lines())
    gpus = plural(sum(node.gpus for node in nodes), "GPU")
    log.put(
        f"driving {safe(str(file))}: {plural(len(nodes), 'machine')}, {gpus}, {plural(waiting, 'run')} waiting. "
        "Ctrl-C stops driving; work goes on."
    )


def _part(file: Path, anchor: Path | None, log: Logged, *, interrupted: bool) -> None:
    with LocalFleet.open(file, write=False, anchor=anchor) as fleet:
        lines = fleet.view().lines()
    held = sum(bool(line.held) for line in lines)
    waiting = sum(line.phase == "Pending" and not line.held for line in lines)
    if not interrupted:
        rest = f"{plural(waiting, 'run')} waiting for something to change" if waiting else "and nothing waits"
        log.put(f"idle: nothing runs, {rest}")
    elif held:
        goes = "1 run goes on, its leases stay" if held == 1 else f"{held} runs go on, their leases stay"
        log.put(f"stopped driving. {goes} open. `tenure up {safe(str(file))}` takes over again.")
    else:
        log.put(f"stopped driving. Nothing was running; {plural(waiting, 'run')} waiting.")
