"""A state as bytes and back: so that opening a fleet costs what is open, not what has ever happened.

An image holds facts and meters, never indexes: those are built again on the way in, by the same code that builds them
from the ledger. Equal states have equal images, byte for byte.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from tenure.api.budget import Budget
from tenure.api.core import Namespace, Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine.agenda import Agenda
from tenure.engine.bind import Counters
from tenure.engine.books import Crossing, Fund, FundKey, Limit
from tenure.engine.meters import Meter
from tenure.engine.names import Departed
from tenure.engine.settle import settle
from tenure.engine.state import PodRow, RunRow, State, spares_first
from tenure.facts import Froze, Lease, Life, Pod, PodPhase, Reservation, Resolved
from tenure.units import Instant

_Line = tuple[int, int]
"""A meter: (offset, rate)."""
_Key = TypeVar("_Key", str, FundKey)
_Row = TypeVar("_Row")


class _Counters(Struct, frozen=True):
    attempt: int
    groups: int
    ranks: int
    serials: tuple[tuple[int, str, int], ...]
    replaced: tuple[tuple[int, int], ...]


_NOTHING_COUNTED = _Counters(0, 0, 0, (), ())


class _RunImage(Struct, frozen=True):
    run: Run
    life: Life
    meters: tuple[tuple[str, str, _Line], ...]
    counters: _Counters
    asked: Instant | None = None


class _PodImage(Struct, frozen=True):
    pod: Pod
    phase: PodPhase
    since: Instant
    code: int | None
    message: str
    stop: bool


class _FundImage(Struct, frozen=True):
    budget: str
    envelope: str
    owner: str
    flavor: str
    window: tuple[Instant, Instant]
    since: Instant
    meters: tuple[_Line, _Line, _Line]
    warned: tuple[str, ...]
    lowered: Instant | None = None
    lent_lowered: Instant | None = None


class _Account(Struct, frozen=True):
    budget: str
    envelope: str
    window: tuple[Instant, Instant]
    offsets: tuple[int, int, int]
    warned: tuple[str, ...]


class _Marks(Struct, frozen=True):
    """The agenda of a state whose last facts nobody has decided on."""

    flavors: tuple[str, ...]
    runs: tuple[str, ...]
    elastic: tuple[str, ...]
    room: tuple[str, ...]


class Image(Struct, frozen=True):
    fleet: str
    now: Instant
    policy: Policy
    policy_known: bool
    namespaces: tuple[Namespace, ...]
    budgets: tuple[Budget, ...]
    nodes: tuple[Node, ...]
    runs: tuple[_RunImage, ...]
    leases: tuple[Lease, ...]
    ending: dict[str, tuple[str, Instant]]
    """Leases on their way out: why, and since when."""
    pods: tuple[_PodImage, ...]
    funds: tuple[_FundImage, ...]
    accounts: tuple[_Account, ...]
    cap_warned: tuple[tuple[str, str, tuple[str, ...]], ...]
    unready: dict[str, Instant]
    cap_lowered: tuple[tuple[str, str, Instant], ...] = ()
    crossed: tuple[tuple[Limit, Crossing, Instant], ...] = ()
    reservations: tuple[Reservation, ...] = ()
    promised: int = 0
    beacons: dict[str, tuple[int, str]] = {}
    roots: dict[str, str] = {}
    draws: dict[str, Froze] = {}
    void: tuple[str, ...] = ()
    resolutions: dict[str, tuple[Instant, Resolved]] = {}
    activations: dict[str, int] = {}
    settled: Instant | None = None
    """None in images of releases that did not keep it: everything is looked at anew then."""
    marks: _Marks | None = None
    put_off: tuple[str, ...] = ()
    """Flavors that are looked at in the next step of the same instant."""
    departed: dict[str, int] = {}
    """Objects that were removed at this instant, and how often."""


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Image)


def dump(state: State) -> bytes:
    books = state.books
    return _encoder.encode(
        Image(
            fleet=state.fleet,
            now=state.now,
            policy=state.policy,
            policy_known=state.policy_known,
            namespaces=_in_order(state.namespaces),
            budgets=_in_order(state.budgets),
            nodes=tuple([row.node for row in _in_order(state.topology.rows)]),
            runs=tuple([_run_image(row) for row in _in_order(state.runs)]),
            leases=_in_order(state.leases),
            ending={key: (reason, state.timeline.asked(key)) for key, reason in state.ending.items()},
            pods=tuple([_pod_image(row) for row in _in_order(state.pods)]),
            funds=tuple([_fund_image(fund) for fund in _in_order(books.funds)]),
            accounts=tuple(
                [
                    _Account(*key, window, offsets[:3], tuple(sorted(offsets[3])))
                    for (key, window), offsets in sorted(books.accounts.items(), key=lambda item: item[0])
                ]
            ),
            cap_warned=tuple(
                [(*key, tuple(sorted(marks))) for key, marks in sorted(books.cap_warned.items()) if marks]
            ),
            unready=state.unready,
            cap_lowered=tuple([(*key, since) for key, since in sorted(books.cap_lowered.items())]),
            crossed=tuple([(*key, since) for key, since in sorted(books.crossed.items())]),
            reservations=_in_order(state.reservations),
            promised=state.promised,
            beacons=state.beacons,
            roots=state.roots,
            draws=state.draws,
            void=tuple(sorted(state.void)),
            resolutions=state.resolutions,
            activations=state.activations,
            settled=state.settled,
            marks=_marks(state.agenda) if state.agenda.pending else None,
            put_off=tuple(sorted(state.agenda.put_off)),
            departed=state.departed.at(state.now),
        )
    )


def _in_order(table: dict[_Key, _Row]) -> tuple[_Row, ...]:
    """The rows of a table by their keys."""
    return tuple([table[key] for key in sorted(table)]) if len(table) > 1 else tuple(table.values())


def load(body: bytes) -> State:
    image = _decoder.decode(body)
    state = State(image.fleet)
    state.restore_policy(image.policy, known=image.policy_known)
    state.namespaces = {item.metadata.name: item for item in image.namespaces}
    for node in image.nodes:
        state.restore_node(node)
    state.unready.update(image.unready)
    state.beacons, state.roots = image.beacons, image.roots
    state.draws, state.resolutions, state.activations = image.draws, image.resolutions, image.activations
    state.void = set(image.void)
    state.promised, state.departed = image.promised, Departed(image.now, image.departed)
    _load_money(state, image)
    for one in image.runs:
        row = RunRow(one.run, one.life, asked=one.asked)
        if one.meters:
            row.meters = {(funding, payer): Meter(*line) for funding, payer, line in one.meters}
        if one.counters != _NOTHING_COUNTED:
            _load_counters(row.counters, one.counters)
        state.runs[row.key] = row
    state.restore_queue()
    for lease in spares_first(image.leases):
        state.register(lease)
        state.books.commit(lease)
    for key, (reason, asked) in image.ending.items():
        state.ending[key] = reason
        state.timeline.leaving(state.leases[key], asked)
        state.books.leave(state.leases[key])
    for pod in image.pods:
        _load_pod(state, pod)
    for row in state.runs.values():
        state.expect(row)
    _load_agenda(state, image)
    return state


def _load_agenda(state: State, image: Image) -> None:
    """Timers are set as they were when everything had last been decided on; what was marked since is marked again."""
    state.now = image.now if image.settled is None else image.settled
    for one in image.reservations:
        state.restore_reservation(one)
    state.mark_all()
    if image.settled is not None:
        settle(state)
    for fund in state.books.funds.values():
        state.agenda.rearm(fund)
    state.now = image.now
    state.agenda.put_off = set(image.put_off)
    if image.marks is not None:
        state.agenda.flavors.update(image.marks.flavors)
        state.agenda.runs.update(image.marks.runs)
        state.agenda.elastic.update(image.marks.elastic)
        state.agenda.room.update(image.marks.room)


def _marks(agenda: Agenda) -> _Marks:
    marks = (agenda.flavors, agenda.runs, agenda.elastic, agenda.room)
    flavors, runs, elastic, room = (tuple(sorted(one)) for one in marks)
    return _Marks(flavors, runs, elastic, room)


def _load_money(state: State, image: Image) -> None:
    state.books.cap_warned = {(budget, cap): set(marks) for budget, cap, marks in image.cap_warned}
    for budget in image.budgets:
        state.restore_budget(budget)
    for budget_name, cap_name, since in image.cap_lowered:
        state.books.restore_lowered((budget_name, cap_name), since)
    state.books.crossed = {(limit, which): since for limit, which, since in image.crossed}
    for one in image.funds:
        fund = state.books.funds.get((one.budget, one.envelope))
        if fund is None:  # its Budget is gone; what it paid for is not
            fund = state.books.funds[one.budget, one.envelope] = Fund((one.budget, one.envelope))
            fund.owner, fund.flavor = one.owner, one.flavor
        (fund.start, fund.end), fund.since = one.window, one.since
        fund.total, fund.lent, fund.spare = (Meter(*line) for line in one.meters)
        fund.warned, fund.lowered, fund.loans.lowered = set(one.warned), one.lowered, one.lent_lowered
    state.books.accounts = {
        ((one.budget, one.envelope), one.window): (*one.offsets, set(one.warned)) for one in image.accounts
    }


def _load_pod(state: State, image: _PodImage) -> None:
    row = PodRow(image.pod, image.since)
    row.phase, row.code, row.message, row.stop = image.phase, image.code, image.message, image.stop
    state.pods[image.pod.key] = row
    if row.stop:
        state.leaving[image.pod.key] = row
    state.runs[image.pod.run_key].pods[image.pod.name] = row


def _run_image(row: RunRow) -> _RunImage:
    meters = tuple([(*key, (meter.offset, meter.rate)) for key, meter in sorted(row.meters.items())])
    counters = row.counters
    serials = tuple([(*key, serial) for key, serial in sorted(counters.serials.items())])
    replaced = tuple(sorted(counters.replaced.items()))
    counted = _Counters(counters.attempt, counters.groups, counters.ranks, serials, replaced)
    return _RunImage(row.run, row.life, meters, counted, row.asked)


def _load_counters(counters: Counters, image: _Counters) -> None:
    counters.attempt, counters.groups, counters.ranks = image.attempt, image.groups, image.ranks
    counters.serials = {(group, node): serial for group, node, serial in image.serials}
    counters.replaced = dict(image.replaced)


def _pod_image(row: PodRow) -> _PodImage:
    return _PodImage(row.pod, row.phase, row.since, row.code, row.message, row.stop)


def _fund_image(fund: Fund) -> _FundImage:
    total, lent, spare = fund.total, fund.lent, fund.spare
    lines = ((total.offset, total.rate), (lent.offset, lent.rate), (spare.offset, spare.rate))
    return _FundImage(*fund.key, fund.owner, fund.flavor, (fund.start, fund.end), fund.since, lines,
                      tuple(sorted(fund.warned)), fund.lowered, fund.loans.lowered)  # fmt: skip
