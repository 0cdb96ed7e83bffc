"""Promise: 1,000,000 closed leases change an admission, or a question about the present, by at most 1.2 times.

Two ledgers hold the same fleet, nine tenths full, and differ in what happened before: 1,000 closed leases, or a
million. Then both are asked, in turns, for admissions, for headroom, and for what is open.

The past is written through the ledger's public write path, in large batches: runs that came, held eight nodes for ten
seconds, and went. That takes a minute, so the file is kept under ``bench/.cache``, under a name that changes with its
form; each measurement works on a copy.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

import tenure
from bench import fleet
from bench.bed import Bed, telling
from bench.load import batch
from bench.measure import Clock, Side, Stopwatch, Took, in_turns
from bench.result import Row, Scale
from tenure.api.run import Run
from tenure.engine import State, dump, render
from tenure.facts import Closed, Fact, Lease, Opened, PutRun, Removed
from tenure.ledger import Ledger
from tenure.shell.home import Home, rebuild
from tenure.shell.ledger_store import LedgerStore
from tenure.units import DAY, HOUR, SECOND, Instant, format_time

NAME = "history"
GOAL = 1.2
CACHE = Path(__file__).parent / ".cache"
SHORT = 1_000
_HELD = 8
"""Leases of one past run, on as many nodes."""
_BATCH = 2_500
"""Past runs in one commit."""
_PAST: Instant = fleet.NOW - 300 * DAY


def run(scale: Scale, folder: Path) -> list[Row]:
    sizes = {"short": SHORT, "long": scale.leases}
    beds = {name: _bed(count, folder / f"{name}.db") for name, count in sizes.items()}
    try:
        return [row for what, ask in _questions(beds) for row in _rows(what, ask, scale)]
    finally:
        for bed in beds.values():
            bed.close()


def _questions(beds: dict[str, Bed]) -> Iterator[tuple[str, dict[str, Side]]]:
    asks: dict[str, Callable[[Bed, int], Took]] = {
        "an admission, committed": lambda bed, number: bed.admit(batch(number), bed.committed),
        "headroom of all budgets": _headroom,
        "headroom, from opening the file": _headroom_anew,
        "GPUs held by envelope": _held,
        "open leases": _open_leases,
        "usage of the last hour by owner": _usage,
    }
    for what, ask in asks.items():
        yield what, {name: partial(ask, bed) for name, bed in beds.items()}


def _rows(what: str, sides: dict[str, Side], scale: Scale) -> Iterator[Row]:
    """By the processor's time; where the disk takes part, by the wall clock too."""
    times = in_turns(sides, rounds=scale.rounds)
    clocks: dict[Clock, str] = {"wall": "", "cpu": ", processor time"} if "committed" in what else {"cpu": ""}
    for clock, note in clocks.items():
        yield Row(
            bench=NAME, what=f"{scale.leases:,} against {SHORT:,} closed leases: {what}{note}", goal=GOAL,
            measured=times.ratio("long", "short", clock),
            detail={f"us_{name}": round(times.median(name, clock) * 1e6, 1) for name in sides},
        )  # fmt: skip


# --- questions ------------------------------------------------------------------------------------------------------


def _headroom(bed: Bed, _: int) -> Took:
    with Stopwatch() as watch:
        _read(bed.state, bed.now)
    return watch.took


def _headroom_anew(bed: Bed, _: int) -> Took:
    """What a command line does that finds nothing in memory."""
    with Stopwatch() as watch, Ledger.open(_ledger(bed).path, readonly=True) as ledger:
        _read(rebuild(LedgerStore(ledger))[0], bed.now)
    return watch.took


def _read(state: State, now: Instant) -> None:
    for name in sorted(state.budgets):
        render.budget(state, state.budgets[name], now=now)


def _held(bed: Bed, _: int) -> Took:
    with Stopwatch() as watch:
        _ledger(bed).concurrency(by="envelope", at=bed.now)
    return watch.took


def _open_leases(bed: Bed, _: int) -> Took:
    with Stopwatch() as watch:
        _ledger(bed).leases(open_only=True)
    return watch.took


def _usage(bed: Bed, _: int) -> Took:
    with Stopwatch() as watch:
        _ledger(bed).usage(by="owner", since=bed.now - HOUR, until=bed.now)
    return watch.took


def _ledger(bed: Bed) -> Ledger:
    assert isinstance(bed.home.store, LedgerStore)
    return bed.home.store.ledger


# --- the past -------------------------------------------------------------------------------------------------------


def _bed(leases: int, copy: Path) -> Bed:
    """A fleet with a past, on a copy of the cached file; with a fresh image, as a fleet in use has."""
    kept = CACHE / f"past-{leases}-{_version()}.db"
    if not kept.exists():
        for stale in CACHE.glob(f"past-{leases}-*"):
            stale.unlink()
        _make(leases, kept)
    shutil.copyfile(kept, copy)
    shutil.copyfile(_anchor(kept), _anchor(copy))
    bed = Bed(Home(LedgerStore(Ledger.open(copy))))
    bed.measure_images()
    return bed


def _version() -> str:
    """Changes with whatever gives the file its form: the records, the ledger, images, and the way the past is made."""
    source = Path(tenure.__file__).parent
    forms = [*source.glob("api/*.py"), *source.glob("ledger/*"), source / "facts.py", source / "engine" / "image.py"]
    digest = hashlib.sha256()
    for path in sorted(path for path in (*forms, Path(__file__), Path(fleet.__file__)) if path.is_file()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _make(leases: int, kept: Path) -> None:
    """Write the file under another name first: one that was begun and not finished is not taken for whole."""
    CACHE.mkdir(exist_ok=True)
    draft = kept.with_suffix(".part")
    for leftover in CACHE.glob(f"{draft.name}*"):
        leftover.unlink()
    with Ledger.create(draft, fleet=f"past-{leases}") as ledger:
        home, plan = Home(LedgerStore(ledger)), fleet.plan_fleet(1_000)
        fleet.furnish(home.handle, plan, now=_PAST)
        _live(ledger, plan, leases)
        fleet.fill(home.handle, plan, now=fleet.NOW)
        with ledger.write() as tx:
            tx.save_snapshot(dump(home.state))
    _anchor(draft).rename(_anchor(kept))
    draft.rename(kept)


def _anchor(file: Path) -> Path:
    return file.with_name(file.name + ".anchor")


def _live(ledger: Ledger, plan: fleet.Plan, leases: int) -> None:
    """Let runs come and go until there are so many closed leases."""
    runs, tell = -(-leases // _HELD), telling(f"{leases:,} closed leases")
    owners = [account for account in fleet.accounts() if not account.owner.endswith(":junior")]
    names = [node.metadata.name for node in fleet.nodes(plan)]
    for first in range(0, runs, _BATCH):
        with ledger.write() as tx:
            for number in range(first, min(first + _BATCH, runs)):
                at = _PAST + (number + 1) * 15 * SECOND
                facts = _stay(owners[number % len(owners)], number, names, at=at)
                tx.append(at=at + 10 * SECOND, cause="a run that came and went", facts=facts)
        tell("runs", min(first + _BATCH, runs), runs)


def _stay(payer: fleet.Account, number: int, names: list[str], *, at: Instant) -> Iterator[Fact]:
    """One past run, from its coming to its going."""
    run = _past_run(payer, f"past-{number:07d}", at)
    leases = [_past_lease(run, payer, index, names[(number + index) % len(names)], at=at) for index in range(_HELD)]
    yield PutRun(object=run)
    yield from (Opened(lease=lease) for lease in leases)
    yield Closed(namespace=payer.namespace, leases=tuple(lease.name for lease in leases), end=at + 10 * SECOND,
                 reason="Completed")  # fmt: skip
    yield Removed(kind="Run", namespace=payer.namespace, name=run.metadata.name)


def _past_run(payer: fleet.Account, name: str, at: Instant) -> Run:
    run = fleet.make_run(name, owner=payer.owner, namespace=payer.namespace, gpus=_HELD * fleet.GPUS, pod=fleet.GPUS)
    known = msgspec.structs.replace(run.metadata, uid=f"uid-{name}", creation_timestamp=format_time(at), generation=1)
    return msgspec.structs.replace(run, metadata=known)


def _past_lease(run: Run, payer: fleet.Account, index: int, node: str, *, at: Instant) -> Lease:
    meta = run.metadata
    return Lease(
        namespace=meta.namespace, name=f"{meta.name}-a1-g00-{node}-0", run=meta.name, uid=meta.uid, owner=payer.owner,
        attempt=1, group=0, domain=node[1:6], node=node, gpus=tuple(range(fleet.GPUS)), role="Active", start=at,
        budget=payer.owner.replace(":", "-"), envelope=f"e{payer.places[0]:02d}", payer=payer.owner, funding="owned",
        reason="Start",
    )  # fmt: skip
