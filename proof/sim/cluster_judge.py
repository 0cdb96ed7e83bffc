"""The judge of a simulated cluster: it reads what the API server holds and what machines run, and believes nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from proof.sim.api import Server
from proof.sim.audit import Watch
from proof.sim.machines import Machines
from proof.sim.seen import count
from tenure.api.ledger_objects import entry_name
from tenure.api.meta import ObjectMeta
from tenure.facts import GENESIS, Cleared, Entry, Placed, PutBudget, PutNode, PutRun, Removed
from tenure.kube.entries import read_batch, spec_of
from tenure.kube.resources import BUDGETS, LEDGER_ENTRIES, LEDGER_HEADS, NODES, RUNS
from tenure.units import Instant

if TYPE_CHECKING:
    from tenure.kube.operator import Operator


class Judge(Watch):
    """An auditor beside the LedgerHead."""

    def __init__(self, server: Server, machines: Machines, tally: Counter[str]) -> None:
        super().__init__(tally)
        self.server, self.machines = server, machines
        self.trace: Callable[[Entry], None] | None = None
        self.head = GENESIS
        self.pods: dict[str, Any] = {}
        """Pods that the ledger keeps."""
        self._put: dict[str, str] = {}
        """Objects that the ledger knows, and the uid of each."""
        self._failed: list[str] = []
        self.deciding: Callable[[], list[Instant]] = list
        """What the clocks of those show who decide, or believe that they do."""
        self.able: Callable[[], bool] = lambda: True
        """Whether one of them can: nobody can who stands still, or whose last turn failed."""
        self._due: Instant | None = None
        """When somebody should decide again, as whoever decided last had it."""
        self._due_after = 0
        """The last entry that was known then."""
        shelf = server.shelf(LEDGER_HEADS)
        before = shelf.put

        def put(key: str, change: Any) -> None:
            before(key, change)
            self._read(change.after.item["spec"])

        shelf.put = put  # type: ignore[method-assign]

    def failed(self, text: str) -> None:
        self._failed.append(text)

    def turning(self, operator: Operator, now: Instant) -> None:
        """A leader begins a turn: was it due long ago? Who follows another does not know yet what was due."""
        self.woken(operator.home.next_wake() if operator.home.seq == self.seq else self._left_due(), now)

    def turned(self, operator: Operator) -> None:
        """A leader has made a turn: what is due next, if nobody has decided meanwhile, and if it could be made?"""
        if operator.home.seq == self.seq and not (operator._trouble or operator._lost):
            self._due, self._due_after = operator.home.next_wake(), self.seq

    def _left_due(self) -> Instant | None:
        """What is due for whoever comes next. Whoever is in the middle of a turn has told nobody yet what it is: that
        may be anything since its first entry."""
        unsaid = [entry.at for entry in self.entries[self._due_after : self._due_after + 1]]
        return min((at for at in (self._due, *unsaid) if at is not None), default=None)

    def jumped(self, before: Instant, after: Instant) -> None:
        """The clock of somebody who decides was set: what lies between was for nobody."""
        self.stamped(before, after)

    def _read(self, head: dict[str, Any]) -> None:
        """The head has moved: walk back from it to what is known, and audit what is new."""
        seq, digest, batches = int(head["seq"]), head["hash"], []
        while seq > len(self.entries):
            found = self.server.get(LEDGER_ENTRIES, entry_name(seq, digest))
            if found is None:
                self.failed(f"I5-immutable: the head names entry {seq}, which is not there")
                return
            spec = spec_of(found)
            parts = [spec, *(spec_of(self.server.get(LEDGER_ENTRIES, entry_name(seq, digest, part)) or {})
                             for part in range(2, spec.parts + 1))]  # fmt: skip
            batch = read_batch(parts)
            batches.append(batch)
            seq, digest = batch.first - 1, batch.prev
        if seq != len(self.entries) or digest != self.head:
            self.failed(f"I5-immutable: entry {seq} is not the one that was committed before")
            return
        for line in (line for batch in reversed(batches) for line in batch.lines):
            self.feed(line.body)
            self.stamped(line.entry.at, max(self.deciding(), default=line.entry.at))
            self._follow(line.entry)
            self.head = line.hash

    def _follow(self, entry: Entry) -> None:
        count(entry, self.tally)
        if self.trace is not None:
            self.trace(entry)
        for fact in entry.facts:
            if isinstance(fact, PutRun | PutBudget | PutNode):
                self._put[f"{fact.object.kind}/{_key(fact.object.metadata)}"] = fact.object.metadata.uid
            elif isinstance(fact, Removed):
                self._check_gone(fact)
            elif isinstance(fact, Placed):
                self.pods[fact.pod.key] = fact.pod
            elif isinstance(fact, Cleared):
                for name in fact.pods:
                    self.pods.pop(f"{fact.namespace}/{name}", None)

    def _check_gone(self, fact: Removed) -> None:
        """Nothing is taken for gone that is there, and that nobody wants to go: a copy that lags is no evidence."""
        resource = {"Run": RUNS, "Budget": BUDGETS, "Node": NODES}.get(fact.kind)
        key = f"{fact.namespace}/{fact.name}" if fact.namespace else fact.name
        found = None if resource is None else self.server.get(resource, key)
        if found is not None and found["metadata"]["uid"] == self._put.get(f"{fact.kind}/{key}"):
            if "deletionTimestamp" not in found["metadata"]:
                self.failed(f"{fact.kind} {key} is there, and was taken for gone")

    def judged(self, now: Instant, *, settled: bool = False) -> list[str]:
        """What did not hold since this was last asked."""
        found, self._found = self._found, []
        last = self.entries[-1].at if self.entries else now
        found += self.auditor.check(max(now, last), settled=settled)
        if not self.able():
            self.woken(self._left_due(), max(now, last))
        kept = [one for one in found if not self._excused(one)]
        self.tally["seen/overdrawn while nobody decided"] += len(found) - len(kept)
        out = [*self._failed, *self.machines.found, *(one.sentence() for one in kept), *self._unpaid()]
        self._failed, self.machines.found = [], []
        return out

    def _unpaid(self) -> list[str]:
        """I3 as it is on the machines: whoever runs is in the ledger, there, with as many GPUs."""
        out = []
        for node, one in self.machines.running():
            pod = self.pods.get(one.key)
            if pod is None or (pod.node, len(pod.gpus)) != (node, one.gpus):
                kept = "keeps no such pod" if pod is None else f"has it on {pod.node} with {len(pod.gpus)}"
                out.append(f"I3-pods-and-leases: {one.key} runs on {node} with {one.gpus} GPUs, and the ledger {kept}")
        return out


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
