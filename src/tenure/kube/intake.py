"""What people and machines write into the API server, as the engine's events.

Informers only say *that* something changed (``mark``); what is so is then read from their caches and compared with the
state, so that a missed, repeated or late notice changes nothing. All changes since the last decision make one batch:
one ``Apply`` for what is there, a ``Delete`` for what is not. An object that is refused is left out and said so in its
own status; it never stops the others. Who asked first is looked at first: objects are taken by the time of their
creation, and by name where an API server's seconds do not tell them apart. Of very many Runs a batch takes some, of
each namespace in turn, so that a flood from one tenant keeps no other waiting until all of it is decided on.

    Run          deletion asked for, or another object of the same name: Delete; else Apply, if it says anything new;
                 then Resolve, if an administrator asks for it
    Node         gone: Delete (it is fenced); else Apply, less the GPUs that pods hold which are none of ours
    Budget       gone: Delete; else Apply
    Namespace    only its owner matters; when it is going, so are its runs
    ConfigMap    the policy
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from threading import Lock
from typing import Protocol

import msgspec
from msgspec import Struct

from tenure.api.decode import read_policy
from tenure.api.defaults import default
from tenure.api.errors import FieldError
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.engine import Apply, Delete, Event, Resolve, SetPolicy, State
from tenure.engine.intake import Applied
from tenure.engine.topology import label_keys
from tenure.facts import (
    Cleared,
    Entry,
    Placed,
    PutBudget,
    PutNamespace,
    PutNode,
    PutRun,
    Removed,
)
from tenure.kube.absent import Absent, Kind, Mark
from tenure.kube.informer import older
from tenure.kube.marks import POLICY_KEY, POLICY_NAME
from tenure.kube.resources import SYSTEM_NAMESPACE
from tenure.kube.translate import Object, gpus_of, has_gpus, is_leaving, key_of, read_object, to_namespace, to_node
from tenure.kube.wishes import Wishes

KINDS: tuple[Kind, ...] = ("ConfigMap", "Namespace", "Budget", "Node", "Run", "Pod")
POLICY = f"{SYSTEM_NAMESPACE}/{POLICY_NAME}"
RUNS_MAX = 64
"""Runs with something new that are decided on together."""


class Cache(Protocol):
    """What an informer knows: whole objects by ``namespace/name`` or name. Read from any thread."""

    def get(self, key: str) -> Object | None: ...
    def keys(self) -> Iterable[str]: ...


class Batch(Struct, frozen=True):
    """What has happened since the last one."""

    first: tuple[Event, ...] = ()
    """The policy, and what is gone."""
    objects: tuple[Applied, ...] = ()
    """What is there: to be applied together, less what is refused."""
    taken: frozenset[Mark] = frozenset()
    """What was looked at: to be marked again if it could not be committed."""
    last: tuple[Resolve, ...] = ()
    """What administrators ask for, of what is there."""

    def __bool__(self) -> bool:
        return bool(self.first or self.objects or self.last)


class Intake:
    """Informers' caches on one side, the state on the other, and what differs between them."""

    def __init__(
        self,
        caches: Mapping[Kind, Cache],
        *,
        simulated: bool = False,
        created: Callable[[Object], str | None] = lambda item: item["metadata"].get("creationTimestamp"),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.caches = caches
        self.wishes = Wishes(caches["Run"].get)
        self.absent = Absent()
        self.refused: dict[Mark, tuple[FieldError, ...]] = {}
        """What was refused, and why, as it stands now."""
        self.news: set[Mark] = set()
        """Of which the refusal changed since somebody last cleared this."""
        self.left = False
        """Whether the last batch left Runs for the next."""
        self._simulated = simulated
        self._created = created
        self._changed = changed
        self._lock = Lock()
        self._marked: set[Mark] = set()
        self._foreign: dict[str, tuple[str, int]] = {}
        self._taken: dict[str, int] = {}

    # -- what changed --

    def mark(self, kind: Kind, key: str) -> None:
        """Something may have happened to an object. From any thread."""
        with self._lock:
            self._marked.add((kind, key))
        self._changed()

    def mark_all(self, state: State) -> None:
        """Everything may have changed: at the beginning, and after the state was built anew."""
        known: dict[Kind, Iterable[str]] = {
            "Namespace": state.namespaces, "Budget": state.budgets, "Node": state.topology.rows, "Run": state.runs,
        }  # fmt: skip
        with self._lock:
            self._marked.add(("ConfigMap", POLICY))
            for kind in KINDS[1:]:
                self._marked |= {(kind, key) for key in (*self.caches[kind].keys(), *known.get(kind, ()))}

    def follow(self, entry: Entry) -> None:
        """What was decided may make an object worth a look: a name that is free now, a pod that is ours no more."""
        for fact in entry.facts:
            if isinstance(fact, Removed) and fact.kind == "Run":
                self.mark("Run", f"{fact.namespace}/{fact.name}")
            elif isinstance(fact, Placed):
                self.mark("Pod", fact.pod.key)
            elif isinstance(fact, Cleared):
                for name in fact.pods:
                    self.mark("Pod", f"{fact.namespace}/{name}")

    def learned(self, entry: Entry, version: str) -> None:
        """Somebody else has decided this, and ``version`` is of the head that says so. What it put there may have been
        looked at before, by us who did not know it: if it is leaving or is not there, or was changed since, it is
        looked at again. Else they have seen what we see, or more, and to contradict them would never end. Of nodes no
        version is kept (each sign of life is another one): one that they saw as it was before is put right when it
        changes next."""
        for fact in entry.facts:
            if isinstance(fact, PutRun | PutBudget | PutNode | PutNamespace):
                meta, kind = fact.object.metadata, fact.object.kind
                key = f"{meta.namespace}/{meta.name}" if kind == "Run" else meta.name
                item = self.caches[kind].get(key)
                if item is None or is_leaving(item) or older(version, item["metadata"].get("resourceVersion", "")):
                    self.mark(kind, key)

    @property
    def waiting(self) -> bool:
        return bool(self._marked)

    # -- what it comes to --

    def collect(self, state: State) -> Batch:
        """What differs between the caches and the state, of all that was marked."""
        with self._lock:
            marked, self._marked = self._marked, set()
        if not marked:
            return Batch()
        if any(kind in ("Namespace", "Budget", "ConfigMap") for kind, _ in marked):
            marked |= set(self.refused)  # what was wrong may be right now
        marked |= self._in_leaving(marked)
        policy = self._policy(state) if ("ConfigMap", POLICY) in marked else None
        resource = (policy or state.policy).gpu_resource
        if resource != state.policy.gpu_resource:
            marked |= {("Pod", key) for key in list(self.caches["Pod"].keys())}  # other devices are counted now
        nodes = {key for kind, key in marked if kind == "Node"} | self._count_foreign(marked, state, resource)
        if policy is not None:
            nodes |= set(self.caches["Node"].keys())  # another resource, other labels
        gone: list[Event] = [] if policy is None else [SetPolicy(policy)]
        there: list[Applied] = []
        new, runs = 0, self._in_turn({key for kind, key in marked if kind == "Run"})
        for kind in KINDS[1:-1]:
            others = nodes if kind == "Node" else {key for one, key in marked if one == kind}
            for key in runs if kind == "Run" else self._by_age(kind, others):
                for found in self._differs(kind, key, state, policy or state.policy):
                    if isinstance(found, Delete):
                        gone.append(found)
                    else:
                        there.append(found)
                        new += kind == "Run"
                if new == RUNS_MAX:
                    break
        marked -= self._leave(runs)
        wishes = self.wishes.among((key for kind, key in marked if kind == "Run"), state)
        read: set[Mark] = {("Node", key) for key in nodes}  # why they were is known by now, and no reason a second time
        return Batch(tuple(gone), tuple(there), frozenset(marked | read), tuple(wishes))

    def _in_turn(self, keys: set[str]) -> Iterator[str]:
        """Runs to look at, the oldest first; if they are many, one of each namespace after the other, beginning with
        the namespace that has waited longest."""
        aged = self._by_age("Run", keys)
        if len(aged) <= RUNS_MAX:
            return iter(aged)
        spaces: dict[str, list[str]] = {}
        for key in aged:
            spaces.setdefault(key.partition("/")[0], []).append(key)
        turns = zip_longest(*spaces.values())
        return (key for turn in turns for key in turn if key is not None)

    def _by_age(self, kind: Kind, keys: Iterable[str]) -> list[str]:
        """By when they were created, then by name; what is gone comes first."""
        return sorted(keys, key=lambda key: (self._made(kind, key), key))

    def _made(self, kind: Kind, key: str) -> str:
        item = self.caches[kind].get(key)
        return "" if item is None else self._created(item) or ""

    def _leave(self, keys: Iterator[str]) -> set[Mark]:
        """What was not looked at stays marked."""
        rest: set[Mark] = {("Run", key) for key in keys}
        self.left = bool(rest)
        with self._lock:
            self._marked |= rest
        return rest

    def put_back(self, batch: Batch) -> None:
        """Nothing of it could be committed."""
        with self._lock:
            self._marked |= batch.taken

    def apply(self, batch: Batch, handle: Callable[[Event], Iterable[FieldError]]) -> None:
        """Hand a batch over, less what is refused."""
        for event in batch.first:
            handle(event)  # what is gone already need not go
        waiting = [list(batch.objects)] if batch.objects else []
        while waiting:
            objects = waiting.pop()
            errors = list(handle(Apply(tuple(objects), named=True)))
            named = {error.object for error in errors}
            kept = [item for item in objects if _name(item) not in named]
            if not errors:
                for item in objects:
                    self._accept((item.kind, _key(item)))
            elif len(kept) < len(objects):
                self._refuse(errors)
                waiting += [kept] if kept else []
            elif len(objects) == 1:
                self._note((objects[0].kind, _key(objects[0])), tuple(errors))
            else:
                waiting += _apart(objects)
        for wish in batch.last:
            handle(wish)

    def _differs(self, kind: Kind, key: str, state: State, policy: Policy) -> Iterator[Applied | Delete]:
        item = self.caches[kind].get(key)
        if item is not None:
            self.absent.saw((kind, key), item)
        if kind == "Run":
            yield from self._run(key, item, state)
        elif kind == "Namespace":
            yield from self._namespace(key, item, state)
        elif kind == "Budget":
            yield from self._budget(key, item, state)
        elif kind == "Node":
            yield from self._node(key, item, state, policy)

    # -- one kind after the other --

    def _run(self, key: str, item: Object | None, state: State) -> Iterator[Applied | Delete]:
        row = state.runs.get(key)
        namespace, _, name = key.partition("/")
        leaving = item is None or is_leaving(item) or self._is_going(namespace)
        if row is None and item is None:
            self.absent.forget(("Run", key))
        if row is not None and not row.life.deleting and self._is_lost(("Run", key), item, row.run.metadata):
            return
        if row is not None and (leaving or item is None or item["metadata"]["uid"] != row.run.metadata.uid):
            if not row.life.deleting:
                yield Delete(kind="Run", name=name, namespace=namespace)
        elif item is not None and not leaving:
            for found in self._read("Run", key, item):
                if row is not None and not row.life.deleting and self._is_known(found, row.run):
                    self._accept(("Run", key))
                else:
                    yield found
            return
        self._accept(("Run", key))

    def _is_lost(self, mark: Mark, item: Object | None, known: ObjectMeta) -> bool:
        """Whether something that the state knows is not what our copy shows, and yet not known to be gone: then the
        copy is older than the ledger, and says nothing of it."""
        another = item is None or item["metadata"]["uid"] != known.uid
        return another and not self.absent.is_gone(mark, known.uid)

    def _is_known(self, found: Applied, known: Run) -> bool:
        """Whether a Run says what the engine knows: of most that changed, only the status did, which we wrote."""
        assert isinstance(found, Run)
        item = self.caches["Namespace"].get(found.metadata.namespace)
        wanted = default(found, namespace=None if item is None else to_namespace(item))
        old, new = known.metadata, wanted.metadata
        return wanted.spec == known.spec and (old.labels, old.annotations) == (new.labels, new.annotations)

    def _is_going(self, namespace: str) -> bool:
        item = self.caches["Namespace"].get(namespace)
        return item is not None and is_leaving(item)

    def _in_leaving(self, marked: Iterable[Mark]) -> set[Mark]:
        """The runs of namespaces that are going: they are not to start again while it empties."""
        going = tuple(f"{key}/" for kind, key in marked if kind == "Namespace" and self._is_going(key))
        return {("Run", key) for key in list(self.caches["Run"].keys()) if key.startswith(going)} if going else set()

    def _budget(self, key: str, item: Object | None, state: State) -> Iterator[Applied | Delete]:
        known = state.budgets.get(key)
        if known is not None and self._is_lost(("Budget", key), item, known.metadata):
            return
        if known is not None and (item is None or item["metadata"]["uid"] != known.metadata.uid):
            yield Delete(kind="Budget", name=key)
        if item is None:
            self._accept(("Budget", key))
        else:
            yield from self._read("Budget", key, item)

    def _namespace(self, key: str, item: Object | None, state: State) -> Iterator[Applied | Delete]:
        if item is None:
            if key in state.namespaces and not self._is_lost(("Namespace", key), item, state.namespaces[key].metadata):
                yield Delete(kind="Namespace", name=key)
        elif key in state.namespaces or OWNER_ANNOTATION in (item["metadata"].get("annotations") or {}):
            yield to_namespace(item)

    def _node(self, key: str, item: Object | None, state: State, policy: Policy) -> Iterator[Applied | Delete]:
        row = state.topology.rows.get(key)
        if row is not None and self._is_lost(("Node", key), item, row.node.metadata):
            return
        if row is not None and (item is None or item["metadata"]["uid"] != row.node.metadata.uid):
            yield Delete(kind="Node", name=key)
        if item is not None and (row is not None or has_gpus(item, policy.gpu_resource)):
            labels = tuple(name for what in ("region", "cluster", "domain", "rack", "flavor")
                           for name in label_keys(policy, what))  # fmt: skip
            yield to_node(item, policy.gpu_resource, taken=self._taken.get(key, 0), topology=labels)

    def _read(self, kind: Kind, key: str, item: Object) -> Iterator[Applied]:
        reading = read_object(item, simulated=self._simulated)
        if reading.errors:
            self._note((kind, key), reading.errors)
        for one in reading.objects:
            meta = msgspec.structs.replace(one.metadata, creation_timestamp=self._created(item))
            yield msgspec.structs.replace(one, metadata=meta)  # type: ignore[misc]  # a Budget or a Run

    def _policy(self, state: State) -> Policy | None:
        """The policy if it is another one; a bad one is told of, and the old one stays."""
        item = self.caches["ConfigMap"].get(POLICY)
        text = ((item or {}).get("data") or {}).get(POLICY_KEY, "")
        policy, errors = read_policy(text, source=f"ConfigMap/{POLICY}", simulated=self._simulated)
        if errors:
            self._note(("ConfigMap", POLICY), errors)
            return None if state.policy_known else Policy()
        self._accept(("ConfigMap", POLICY))
        return policy if policy != state.policy or not state.policy_known else None

    def _count_foreign(self, marked: Iterable[Mark], state: State, resource: str) -> set[str]:
        """GPUs that pods hold which are none of ours; returns the nodes on which that changed."""
        changed = set()
        for key in (key for kind, key in marked if kind == "Pod"):
            item = self.caches["Pod"].get(key)
            held = 0 if item is None or key in state.pods else gpus_of(item, resource)
            now = (str(item["spec"]["nodeName"]), held) if item is not None and held else None
            was = self._foreign.pop(key, None)
            if now is not None:
                self._foreign[key] = now
            if was != now:
                for node, gpus, sign in ((*one, sign) for one, sign in ((was, -1), (now, 1)) if one is not None):
                    self._taken[node] = self._taken.get(node, 0) + sign * gpus
                    changed.add(node)
        return changed

    # -- refusals --

    def _refuse(self, errors: Iterable[FieldError]) -> None:
        by_object: dict[Mark, list[FieldError]] = {}
        for error in errors:
            kind, _, key = error.object.partition("/")
            by_object.setdefault((kind, key), []).append(error)  # type: ignore[arg-type]  # a kind of ours
        for mark, found in by_object.items():
            self._note(mark, tuple(found))

    def _note(self, mark: Mark, errors: tuple[FieldError, ...]) -> None:
        if self.refused.get(mark) != errors:
            self.refused[mark] = errors
            self.news.add(mark)

    def _accept(self, mark: Mark) -> None:
        if self.refused.pop(mark, None) is not None:
            self.news.add(mark)


def _apart(objects: list[Applied]) -> list[list[Applied]]:
    """Budgets one by one, and the rest together: a budget may be what is wrong with another, in a circle of parents.

    What is to be tried first comes last, as on a stack.
    """
    rest: list[Applied] = [item for item in objects if item.kind != "Budget"]
    alone: list[list[Applied]] = [[item] for item in objects if item.kind == "Budget"]
    halves = [rest[: len(rest) // 2], rest[len(rest) // 2 :]] if not alone else [rest]
    return [*(half for half in reversed(halves) if half), *reversed(alone)]


def _name(item: Applied) -> str:
    return f"{item.kind}/{_key(item)}"


def _key(item: Applied) -> str:
    meta = item.metadata
    return f"{meta.namespace or 'default'}/{meta.name}" if item.kind == "Run" else meta.name


__all__ = ["KINDS", "POLICY", "Batch", "Cache", "Intake", "Kind", "Mark", "key_of"]
