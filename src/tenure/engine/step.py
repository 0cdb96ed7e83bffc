"""The only way in: one event and a clock reading in, facts out.

    outcome = step(state, Apply(objects=(run,)), now=now)    # pure, but for ``state``, which now holds the facts
    ledger.append(outcome.facts)                             # the shell's business

Within a step timers that are due fire first, then the event is taken, then whatever can start is started; but a report
that comes late tells of what was so before, and is taken before timers fire. A refusal (an object that may not be
applied) is an answer: it comes back as errors, with no facts at all. If the facts cannot be committed, the state is
ahead of the ledger and must be thrown away: it is rebuilt from what is stored.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from msgspec import Struct

from tenure.api.errors import FieldError
from tenure.api.policy import Policy
from tenure.engine import asked, draws, elastic, intake, life, money, promise, shortage, spares
from tenure.engine.admit import admit
from tenure.engine.intake import Applied
from tenure.engine.rows import is_late
from tenure.engine.state import State
from tenure.engine.topology import is_fenced, is_ready
from tenure.engine.turn import Turn
from tenure.facts import Fact, PodPhase, PutPolicy, Reason, Seen
from tenure.units import Instant


class Apply(Struct, frozen=True):
    """Create or update objects, all or none. ``attempts``: the last attempt of earlier runs of the same name."""

    objects: tuple[Applied, ...]
    attempts: dict[str, int] = {}
    named: bool = False
    """True: somebody else gave them their uids and their times of creation, and these stay (an API server does)."""


class Delete(Struct, frozen=True):
    kind: Literal["Budget", "Run", "Namespace", "Node"]
    name: str
    namespace: str = ""


class SetPolicy(Struct, frozen=True):
    policy: Policy


class Sighting(Struct, frozen=True):
    """What was observed of one pod."""

    pod: str
    phase: PodPhase
    code: int | None = None
    message: str = ""
    since: Instant | None = None
    """When it became so, if that is known to be earlier than now."""


class Report(Struct, frozen=True):
    """Pods were looked at; repeated and stale sightings change nothing."""

    pods: tuple[Sighting, ...]


class Publish(Struct, frozen=True):
    """A custodian has made a chain: its first value, c[0]."""

    beacon: str
    root: str


class Reveal(Struct, frozen=True):
    """The custodians of a frozen draw have answered: their next values, by beacon, as hex."""

    subject: str
    reveals: dict[str, str]


class Resolve(Struct, frozen=True):
    """An operator wants room made now for a run that waits: ``namespace/name``."""

    run: str


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = Apply | Delete | SetPolicy | Report | Publish | Reveal | Resolve | Tick


class Outcome(Struct, frozen=True):
    """What was decided: facts to commit (none if nothing changed), or why the event was refused."""

    cause: str
    facts: tuple[Fact, ...] = ()
    refused: tuple[FieldError, ...] = ()
    declined: Reason | None = None
    """Why room was not made that an operator asked for."""
    looked: bool = False
    """True if there was something to look at that an entry has to take off the agenda, though it may have no facts."""


def step(state: State, event: Event, *, now: Instant, decide: bool = True) -> Outcome:
    """Take an event in. With ``decide=False`` it is only recorded: whoever drives the fleet decides on it later."""
    turn = Turn(state, now=max(now, state.now))
    looked = decide and state.agenda.pending
    state.hold_late(turn.now)  # before nodes fail, or somebody asks for room: they plan as well
    if decide:
        # Who overstays is seen first: a state that was loaded looks at all its money, and is not to find that news.
        state.look_ahead(turn.now)
    waited = set(state.queue.flavors())
    late = isinstance(event, Report) and any(one.since is not None and one.since < turn.now for one in event.pods)
    if late:
        _take(turn, event)  # it was so before: no timer is to go off for what is spent no more
    if decide:
        looked = _timers(turn, event, waited) or looked
    declined = asked.ask(turn, event.run) if isinstance(event, Resolve) else None
    refused = [] if late else _take(turn, event)
    if not refused:
        _fences(turn, event)
    if decide:
        _decide(turn)
        while state.agenda.pending:
            _decide(turn)
        state.books.announced.clear()
    state.now = turn.now
    if decide and (turn.facts or looked):
        state.settled = turn.now
    return Outcome(_cause(event), tuple(turn.facts), tuple(refused), declined, looked)


def next_wake(state: State) -> Instant | None:
    """The next instant at which time alone changes something."""
    return state.agenda.next()


def _decide(turn: Turn) -> None:
    """Look at everything on the agenda: money that is short, runs that wait, runs that want more."""
    money.arm(turn)
    shortage.settle(turn)
    money.arm(turn)  # who pays instead may run out as well: that is to be known before promises are looked at
    elastic.resize(turn)
    put_off = shortage.put_off(turn.state, now=turn.now)
    _set_aside(turn.state, put_off)
    admit(turn)
    _take_more(turn, put_off)
    money.arm(turn)
    _put_off(turn)


def _set_aside(state: State, flavors: set[str]) -> None:
    """Take off the agenda whoever waits for a flavor in which nobody is let in before the next step, which looks at all
    of them."""
    if not flavors:
        return
    agenda = state.agenda
    agenda.flavors -= flavors
    agenda.put_off |= flavors
    for row in [state.runs[key] for key in agenda.runs if key in state.runs]:
        if row.demand.flavor in flavors:
            agenda.runs.discard(row.key)
            if row.key in state.reservations:
                state.arm(state.reservations[row.key])


def _put_off(turn: Turn) -> None:
    """Leave to the next step what is to wait for it, and look now at what need not wait any more."""
    state, put_off = turn.state, shortage.put_off(turn.state, now=turn.now)
    state.came_free(state.agenda.put_off - put_off)
    state.agenda.put_off = put_off


def _take_more(turn: Turn, put_off: set[str]) -> None:
    """Let running runs take spares and width, and look again at those that did, until nobody takes anything. Not those
    whose flavor is ``put_off``: they are looked at in the next step.

    A run for which only time has passed gets no spares while somebody waits for machines: whether those could be put to
    a better use depends on the clock as well, and what is decided must not depend on who looks when.
    """
    state = turn.state
    while state.agenda.elastic or state.agenda.room or state.agenda.timed:
        rows, timed = elastic.due(state)
        some = [row for row in rows if row.demand.flavor not in put_off]
        spares.top_up(turn, [row for row in some if row.key not in timed or not state.queue.waits(row.demand.flavor)])
        elastic.grow(turn, some)
        elastic.put_down(state, rows, now=turn.now)


def _timers(turn: Turn, event: Event, waited: Container[str]) -> bool:
    """Fire what is due. True if that makes runs be looked at which wait already (for a flavor that is ``waited`` for):
    what is found then may be worth no fact, but must not be looked for again later.

    That a node has been unready for too long is decided only when time has passed and nothing else: by then whoever
    drives has said what became of it."""
    state = turn.state
    flavors, state.agenda.put_off = state.agenda.put_off, set()
    looked = bool(flavors)  # also if nobody waits: who reads the entries is to know that nothing is put off any more
    state.came_free(flavors)
    due = state.agenda.due(turn.now)
    for which in (which for _, what, which in due if what == "fund"):
        budget, _, envelope = which.partition("/")
        fund = state.books.funds[budget, envelope]
        money.ring(turn, fund)
        looked = looked or fund.flavor in waited
    money.arm(turn)  # also of what was only recorded so far: notices come first
    for _, what, which in due:
        if what == "fund":
            continue
        if what == "grow":
            state.agenda.timed.add(which)
        elif what == "unready":
            if isinstance(event, Tick):
                _unready(turn, which)
            else:
                state.agenda.wake(turn.now, "unready", which)
        elif what == "short":
            budget, kind, name = which.split("/", 2)
            state.agenda.short.add((budget, kind, name))
        elif which in state.runs:
            row = state.runs[which]
            if what == "countdown":
                promise.milestone(turn, row)
            elif what == "bound":
                promise.tell_bound(turn, row)
            elif what == "deadline" and row.life.phase == "Pending" and row.life.deadline is not None:
                life.expire(turn, row)
            else:
                state.agenda.run_changed(which)
                looked = True
                if what == "activate" and row.key in state.reservations and is_late(state.reservations[row.key]):
                    state.arm(state.reservations[row.key])
    return looked


def _unready(turn: Turn, node: str) -> None:
    """A node has not been ready for long: a failure only if the operator accepted that risk (SPEC 9)."""
    row = turn.state.topology.rows.get(node)
    if row is not None and turn.state.policy.unready_is_failure and not is_ready(row.node):
        spares.lose_nodes(turn, [node])


def _take(turn: Turn, event: Event) -> list[FieldError]:
    match event:
        case Apply():
            return intake.apply(turn, event.objects, event.attempts, named=event.named)
        case Delete():
            return intake.delete(turn, event.kind, event.namespace, event.name)
        case SetPolicy():
            if event.policy != turn.state.policy or not turn.state.policy_known:
                turn.emit(PutPolicy(policy=event.policy))
        case Report():
            for one in event.pods:
                pod = turn.state.pods.get(one.pod)
                if pod is not None:
                    life.pod_seen(turn, pod, Seen(namespace=pod.pod.namespace, pod=pod.pod.name, phase=one.phase,
                                                  code=one.code, message=one.message, since=one.since))  # fmt: skip
        case Publish():
            draws.publish(turn, event.beacon, event.root)
        case Reveal():
            draws.reveal(turn, event.subject, event.reveals)
        case Resolve() | Tick():
            pass
    return []


def _fences(turn: Turn, event: Event) -> None:
    """Nodes that an event fenced lose what is on them."""
    if isinstance(event, Apply):
        nodes = {item.metadata.name for item in event.objects if item.kind == "Node" and is_fenced(item)}
        if nodes:
            spares.lose_nodes(turn, nodes)


def _cause(event: Event) -> str:
    match event:
        case Apply():
            names = [intake.full_name(item) for item in intake.in_order(event.objects)]
            return f"apply {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "") if names else "apply"
        case Delete():
            return f"delete {event.kind}/{event.namespace + '/' if event.namespace else ''}{event.name}"
        case SetPolicy():
            return "set policy"
        case Report():
            return "pods " + ", ".join(f"{one.pod} {one.phase}" for one in event.pods[:3])
        case Publish():
            return f"publish {event.beacon}"
        case Reveal():
            return f"reveal {event.subject}"
        case Resolve():
            return f"resolve {event.run}"
        case Tick():
            return "tick"
