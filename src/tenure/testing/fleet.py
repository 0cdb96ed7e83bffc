"""A fleet for tests: the engine with a clock in your hand, a log, and an auditor who looks at every entry.

    fleet = Fleet(*nodes("a", 2), budget("rai"))
    fleet.apply(run("train", 16, owner="org:rai"))
    fleet.bind("lab/train")
    fleet.later("1h")
    fleet.succeed("lab/train")
    fleet.closed()["train-a1-g00-a0-0"]

Everything a test may ask is read from the entries that were decided, or rendered from the state as users see it. The
verbs are what the world does to the engine; none of them writes a state. ``Fleet`` refuses (AssertionError) to go on
when the auditor finds a violation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from tenure.api.budget import Headroom
from tenure.api.core import Node
from tenure.api.core import Pod as PodObject
from tenure.api.errors import FieldError
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.audit import Auditor, Violation, settled_pass_wrote
from tenure.engine import (
    Apply,
    Delete,
    Event,
    Outcome,
    Publish,
    Report,
    Reveal,
    SetPolicy,
    Sighting,
    State,
    Tick,
    next_wake,
    render,
    step,
)
from tenure.engine.intake import Applied
from tenure.facts import (
    GENESIS,
    Closed,
    Decided,
    Entry,
    Fact,
    Lease,
    Noted,
    Opened,
    Placed,
    Pod,
    Verdict,
    encode_entry,
    entry_hash,
)
from tenure.shell.custodian import Custodian, SimulatedCustodian
from tenure.testing.builders import FENCE, START
from tenure.units import Instant, parse_duration


class End(NamedTuple):
    """How a lease ended."""

    lease: Lease
    end: Instant
    reason: str


class Fleet:
    """An engine, its entries, and the auditor beside it."""

    def __init__(
        self, *objects: Applied, policy: Policy | None = None, name: str = "test", secret: str | None = None
    ) -> None:
        """With a ``secret`` there is a custodian, who answers at once when a draw is frozen."""
        self.state = State(name)
        self.custodian = None if secret is None else SimulatedCustodian(secret)
        self.now: Instant = START
        self.entries: list[Entry] = []
        self.auditor = Auditor()
        self._hash = GENESIS
        if policy is not None:
            self.handle(SetPolicy(policy))
        if self.custodian is not None:
            self.handle(Publish(self.custodian.beacon, self.custodian.root))
        if objects:
            self.apply(*objects)

    # -- what the world does --

    def handle(self, event: Event, *, decide: bool = True) -> Outcome:
        """One event at the present instant; its facts become an entry."""
        self.state.head = self._hash
        outcome = step(self.state, event, now=self.now, decide=decide)
        if outcome.facts or outcome.looked:
            self._record(outcome, decided=decide)
        if self.custodian is not None and outcome.facts:
            self.reveal(self.custodian)
        return outcome

    def reveal(self, custodian: Custodian) -> None:
        """The custodian answers every draw that waits."""
        for subject, froze in sorted(self.state.draws.items()):
            self.handle(Reveal(subject, {custodian.beacon: custodian.answer(froze.intent) or ""}))

    def apply(self, *objects: Applied) -> Outcome:
        """Apply objects that must be taken."""
        outcome = self.offer(*objects)
        assert not outcome.refused, [error.sentence() for error in outcome.refused]
        return outcome

    def offer(self, *objects: Applied) -> Outcome:
        """Apply objects that may be refused."""
        keys = [f"{item.metadata.namespace}/{item.metadata.name}" for item in objects if item.kind == "Run"]
        return self.handle(Apply(objects, {key: self.attempts(key) for key in keys}))

    def refusal(self, *objects: Applied) -> list[str]:
        """The field paths that an apply is refused for; nothing is taken then."""
        outcome = self.offer(*objects)
        assert outcome.refused, "it was taken"
        assert not outcome.facts, "what is refused leaves no trace"
        return [error.path for error in outcome.refused]

    def delete(self, kind: Literal["Budget", "Run", "Namespace", "Node"], name: str) -> tuple[FieldError, ...]:
        namespace, _, short = name.rpartition("/")
        return self.handle(Delete(kind=kind, name=short, namespace=namespace)).refused

    def later(self, offset: str) -> None:
        """Let so much time pass, stopping at every instant at which the engine asked to be woken."""
        self.until(self.now + parse_duration(offset))

    def until(self, instant: Instant) -> None:
        while (wake := next_wake(self.state)) is not None and wake <= instant:
            self.now = max(self.now, wake)
            self.handle(Tick())
        self.now = instant
        self.handle(Tick())

    def report(self, phase: str, *pods: str, code: int | None = None, message: str = "") -> Outcome:
        seen = tuple(Sighting(pod, phase, code, message) for pod in pods)  # type: ignore[arg-type]  # a PodPhase
        return self.handle(Report(seen))

    def bind(self, run: str) -> None:
        """All pods of a run start."""
        self.report("Bound", *(pod.key for pod in self.pods(run)))

    def succeed(self, run: str) -> None:
        """All pods of a run exit well, one after the other, and are gone."""
        for pod in self.pods(run):
            self.report("Succeeded", pod.key, code=0)

    def fail(self, run: str, *, code: int = 1) -> None:
        """The first pod of a run exits badly."""
        self.report("Failed", self.pods(run)[0].key, code=code, message=f"exited with code {code}")

    def leave(self, run: str) -> None:
        """Pods of a run that were asked to leave are gone."""
        asked = [row.pod.key for row in self.state.runs[run].pods.values() if row.stop]
        self.report("Gone", *asked)

    def fence(self, name: str) -> None:
        """A node is declared out of service."""
        item = self.node(name)
        spec = msgspec.structs.replace(item.spec, taints=(*item.spec.taints, FENCE))
        self.apply(msgspec.structs.replace(item, spec=spec))

    def resize(self, run: str, gpus: int) -> None:
        """The owner of an elastic run desires another width."""
        item = self.state.runs[run].run
        shape = msgspec.structs.replace(item.spec.malleable, desired_total_gpus=gpus)  # type: ignore[type-var]  # it has one
        self.apply(msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, malleable=shape)))

    def start(self, *runs: Run) -> None:
        """Apply runs that must all be running afterwards."""
        self.apply(*runs)
        for item in runs:
            key = f"{item.metadata.namespace}/{item.metadata.name}"
            self.bind(key)
            assert self.phase(key) == "Running", self.run(key).status.message

    # -- what a test asks --

    @property
    def facts(self) -> Iterator[Fact]:
        return (fact for entry in self.entries for fact in entry.facts)

    def kinds(self, entry: int = -1) -> list[str]:
        """The facts of an entry by the names of their types."""
        return [type(fact).__name__ for fact in self.entries[entry].facts]

    def opened(self) -> dict[str, Lease]:
        """Every lease that was ever opened."""
        return {fact.lease.name: fact.lease for fact in self.facts if isinstance(fact, Opened)}

    def closed(self) -> dict[str, End]:
        """Every lease that was closed, with its end and reason."""
        opened = self.opened()
        return {
            name: End(opened[name], fact.end, fact.reason)
            for fact in self.facts
            if isinstance(fact, Closed)
            for name in fact.leases
        }

    def leases(self, run: str = "") -> list[Lease]:
        """Open leases, all or of one run, by name."""
        closed = self.closed()
        return [
            lease for name, lease in sorted(self.opened().items()) if name not in closed and run in ("", lease.run_key)
        ]

    def pods(self, run: str) -> list[Pod]:
        """Pods of a run that are wanted or not gone yet, by rank."""
        return sorted((row.pod for row in self.state.runs[run].pods.values()), key=lambda pod: pod.rank)

    def placed(self) -> list[Pod]:
        return [fact.pod for fact in self.facts if isinstance(fact, Placed)]

    def attempts(self, run: str) -> int:
        return max((lease.attempt for lease in self.opened().values() if lease.run_key == run), default=0)

    def run(self, key: str) -> Run:
        return render.run(self.state, self.state.runs[key], now=self.now)

    def phase(self, key: str) -> str:
        """The phase people see, or Gone."""
        return self.run(key).status.phase if key in self.state.runs else "Gone"

    def condition(self, key: str, kind: str) -> tuple[str, str]:
        """(status, reason) of a condition."""
        found = [mark for mark in self.run(key).status.conditions if mark.type == kind]
        return (found[0].status, found[0].reason) if found else ("", "")

    def verdict(self, key: str) -> Verdict:
        """The last explanation that was recorded for a run."""
        namespace, _, name = key.partition("/")
        found = [
            fact for fact in self.facts if isinstance(fact, Decided) and (fact.namespace, fact.run) == (namespace, name)
        ]
        assert found, f"nothing was decided about {key}"
        return found[-1].verdict

    def code(self, key: str) -> str:
        """The headline of the last verdict; empty if it started."""
        headline = self.verdict(key).headline
        return headline.code if headline else ""

    def payers(self, key: str) -> dict[str, int]:
        """Who pays for a run's open leases: ``budget/envelope`` -> GPUs."""
        out: dict[str, int] = {}
        for lease in self.leases(key):
            label = f"{lease.budget}/{lease.envelope}"
            out[label] = out.get(label, 0) + len(lease.gpus)
        return out

    def where(self, key: str) -> dict[str, int]:
        """Active GPUs of a run by node."""
        out: dict[str, int] = {}
        for lease in self.leases(key):
            if lease.role == "Active":
                out[lease.node] = out.get(lease.node, 0) + len(lease.gpus)
        return out

    def domains(self, key: str) -> dict[str, int]:
        """Active GPUs of a run by fabric domain."""
        out: dict[str, int] = {}
        for lease in self.leases(key):
            if lease.role == "Active":
                out[lease.domain] = out.get(lease.domain, 0) + len(lease.gpus)
        return out

    def headroom(self, budget: str, envelope: str = "main") -> Headroom:
        item = render.budget(self.state, self.state.budgets[budget], now=self.now)
        return next(one for one in item.status.headroom if one.name == envelope)

    def notes(self, kind: str = "") -> list[Noted]:
        return [fact for fact in self.facts if isinstance(fact, Noted) and kind in ("", fact.kind)]

    def node(self, name: str) -> Node:
        return self.state.topology.rows[name].node

    def manifest(self, key: str) -> PodObject:
        """A pod as the API server would show it."""
        row = self.state.pods[key]
        return render.pod(self.state.runs[row.pod.run_key], row, self.state.policy.gpu_resource)

    # -- the auditor --

    def _record(self, outcome: Outcome, *, decided: bool) -> None:
        entry = Entry(
            seq=len(self.entries) + 1,
            at=self.state.now,
            cause=outcome.cause,
            facts=outcome.facts,
            prev=self._hash,
            decided=decided,
        )
        body = encode_entry(entry)
        self._hash = entry_hash(body)
        self.entries.append(entry)
        _insist(self.auditor.feed_raw(body))

    def audit(self, *, settled: bool = True) -> None:
        """Everything that is open is as it should be, and (``settled``) one more pass writes nothing."""
        _insist(self.auditor.check(self.now, settled=False))
        _insist(self.auditor.recheck(self.entries, now=self.now))
        if settled:
            outcome = step(self.state, Tick(), now=self.now)
            _insist(settled_pass_wrote(outcome.facts, at=self.now))
            assert not outcome.looked, "there was something to decide on"


def _insist(violations: Iterable[Violation]) -> None:
    found = [str(violation) for violation in violations]
    assert not found, "\n".join(found)


def env(pod: PodObject) -> dict[str, Any]:
    """The environment of a pod's first container."""
    return {item["name"]: item["value"] for item in pod.spec["containers"][0]["env"]}
