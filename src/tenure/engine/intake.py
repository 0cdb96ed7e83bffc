"""Taking objects in (SPEC 2, 12): what one object alone cannot show is checked here, against the state.

Everything is checked before anything is taken: a file of several objects is applied whole or not at all. What is taken
gets its identity here: a uid made from the fleet, the name, the instant, and how often that name was given up at this
instant, so that the same history gives the same ids. Only an API server's objects bring theirs along.

Annotations of our own group tell what kind of machine a node is (in an embedded fleet, whether its pods only simulate).
A manifest that does not name them, written to cordon the node, leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from tenure.api.budget import Budget, BudgetStatus
from tenure.api.core import Namespace, Node
from tenure.api.defaults import default
from tenure.api.errors import FieldError, path_text, show
from tenure.api.meta import GROUP, ObjectMeta
from tenure.api.relations import check_family, check_owner, check_update
from tenure.api.run import Run, RunStatus
from tenure.engine import life, promise, spares
from tenure.engine.demand import asks
from tenure.engine.names import object_uid
from tenure.engine.state import RunRow, State
from tenure.engine.turn import Turn
from tenure.facts import PutBudget, PutNamespace, PutNode, PutRun, Reason, Removed
from tenure.units import Instant, format_time

Applied = Budget | Run | Namespace | Node
_Object = TypeVar("_Object", Budget, Run, Namespace, Node)


def apply(
    turn: Turn, objects: tuple[Applied, ...], attempts: dict[str, int], *, named: bool = False
) -> list[FieldError]:
    """Take objects in, or say why none of them was."""
    ready, errors = _judged(turn.state, objects)
    errors += [] if named else _node_errors(turn.state, ready)
    if not errors:
        for item in in_order(ready):
            _put(turn, item, attempts, named=named)
    return errors


def check(state: State, objects: tuple[Applied, ...]) -> list[FieldError]:
    """Why objects would not be taken in. Nothing is, and nothing changes."""
    return _judged(state, objects)[1]


def delete(turn: Turn, kind: str, namespace: str, name: str) -> list[FieldError]:
    state = turn.state
    subject = f"{kind}/{namespace}/{name}" if kind == "Run" else f"{kind}/{name}"
    if kind == "Run" and f"{namespace}/{name}" in state.runs:
        row = state.runs[f"{namespace}/{name}"]
        if not row.life.deleting:
            life.cancel(turn, row)
    elif kind == "Budget" and name in state.budgets:
        turn.emit(Removed(kind="Budget", name=name))
    elif kind == "Node" and name in state.topology.rows:
        spares.lose_nodes(turn, [name], removed=True)
    elif kind == "Namespace" and name in state.namespaces:
        turn.emit(Removed(kind="Namespace", name=name))
    else:
        return [FieldError(object=subject, path="metadata.name", value=name, problem="does not exist",
                           fix="check the name and the namespace with `kubectl runs list`")]  # fmt: skip
    return []


def full_name(item: Applied) -> str:
    meta = item.metadata
    return f"{item.kind}/{meta.namespace}/{meta.name}" if isinstance(item, Run) else f"{item.kind}/{meta.name}"


def in_order(objects: Iterable[Applied]) -> list[Applied]:
    """Namespaces and money before machines, machines before runs, by name within a kind.

    In whatever order a file has them, the entry is the same, and with it the head that a later draw is frozen on.
    """
    kinds = (Namespace, Budget, Node, Run)
    return sorted(objects, key=lambda one: (kinds.index(type(one)), one.metadata.namespace, one.metadata.name))


def _judged(state: State, objects: tuple[Applied, ...]) -> tuple[list[Applied], list[FieldError]]:
    """The objects with their defaults, and what is wrong between them and the state."""
    namespaces = state.namespaces | {item.metadata.name: item for item in objects if isinstance(item, Namespace)}
    ready = [_defaulted(item, namespaces) for item in objects]
    return ready, [*_budget_errors(state, ready), *_run_errors(state, ready, namespaces)]


def _defaulted(item: Applied, namespaces: dict[str, Namespace]) -> Applied:
    return default(item, namespace=namespaces.get(item.metadata.namespace or "default"))


def _budget_errors(state: State, objects: Iterable[Applied]) -> list[FieldError]:
    new = {item.metadata.name: item for item in objects if isinstance(item, Budget)}
    return check_family((state.budgets | new).values()) if new else []


def _run_errors(state: State, objects: Iterable[Applied], namespaces: dict[str, Namespace]) -> list[FieldError]:
    errors: list[FieldError] = []
    for run in objects:
        if isinstance(run, Run):
            errors += check_owner(run, namespaces.get(run.metadata.namespace))
            row = state.runs.get(f"{run.metadata.namespace}/{run.metadata.name}")
            if row is not None and row.life.deleting:
                errors.append(_leaving(row))
            elif row is not None:
                errors += check_update(row.run, run, admitted=row.life.admitted)
    return errors


def _node_errors(state: State, objects: Iterable[Applied]) -> list[FieldError]:
    """What kind of machine a node is does not change under the pods that are there."""
    leaving = {pod.pod.node for pod in state.leaving.values()}  # its leases may be closed already
    known = ((item, state.topology.rows.get(item.metadata.name)) for item in objects if isinstance(item, Node))
    used = ((node, row) for node, row in known if row is not None and (any(row.leases) or row.name in leaving))
    return [error for node, row in used for error in _new_marks(node, row.node)]


def _new_marks(node: Node, old: Node) -> list[FieldError]:
    was, fix = _marks(old), "leave it as it is, or cordon the node and wait until its pods are gone"
    return [
        FieldError(object=full_name(node), path=path_text(("metadata", "annotations", key)), value=show(value),
                   problem=f"was {show(was[key]) if key in was else 'not set'} when the pods there began", fix=fix)
        for key, value in _marks(node).items() if value != was.get(key)
    ]  # fmt: skip


def _marks(node: Node) -> dict[str, str]:
    """Annotations that are ours."""
    return {key: value for key, value in node.metadata.annotations.items() if key.startswith(f"{GROUP}/")}


def _marked(node: Node, old: Node) -> Node:
    """The node, with the marks of the old one that it does not name."""
    annotations = {**_marks(old), **node.metadata.annotations}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=annotations))


def _leaving(row: RunRow) -> FieldError:
    """What is applied to a run that is being deleted would be lost with it."""
    return FieldError(object=f"Run/{row.key}", path="metadata.deletionTimestamp", problem="the Run is being deleted",
                      fix="apply it again when its last lease is closed")  # fmt: skip


def _put(turn: Turn, item: Applied, attempts: dict[str, int], *, named: bool) -> None:
    state, now = turn.state, turn.now
    if isinstance(item, Namespace):
        if (known := _identified(state, item, state.namespaces.get(item.metadata.name), now, named=named)) is not None:
            turn.emit(PutNamespace(object=known))
    elif isinstance(item, Budget):
        budget = msgspec.structs.replace(item, status=BudgetStatus())
        if (taken := _identified(state, budget, state.budgets.get(item.metadata.name), now, named=named)) is not None:
            turn.emit(PutBudget(object=taken))
    elif isinstance(item, Node):
        _put_node(turn, item, named=named)
    else:
        key = f"{item.metadata.namespace}/{item.metadata.name}"
        row = state.runs.get(key)
        run = msgspec.structs.replace(item, status=RunStatus())
        before = attempts.get(key, 0) if row is None else 0
        old = row.run if row else None
        if (wanted := _identified(state, run, old, now, before=before, named=named)) is not None:
            if row is not None and asks(row.run) != asks(wanted):
                promise.cancel(turn, row, Reason(code="DemandChanged"))
            turn.emit(PutRun(object=wanted, attempts=before))


def _put_node(turn: Turn, node: Node, *, named: bool) -> None:
    state = turn.state
    before = state.topology.rows.get(node.metadata.name)
    old_fault = before.fault if before else None
    if before is not None and not named:  # what an API server says of its nodes is all there is to say
        node = _marked(node, before.node)
    taken = _identified(state, node, before.node if before else None, turn.now, named=named)
    if taken is None:
        return
    turn.emit(PutNode(object=taken))
    row = state.topology.rows[node.metadata.name]
    if row.held >> row.gpus:
        data: dict[str, int | str] = {"node": row.name, "count": row.gpus}
        turn.note("Quarantined", f"Node/{row.name}", Reason(code="Overcommitted", data=data))
    fault = row.fault
    if fault is not None and fault != old_fault:
        turn.note("Quarantined", f"Node/{node.metadata.name}", fault)


def _identified(
    state: State, item: _Object, old: _Object | None, now: Instant, *, before: int = 0, named: bool
) -> _Object | None:
    """The object with its identity; None if it says nothing new. ``before``: attempts of earlier runs of that name."""
    found = _known(state, item, old, now, before=before, named=named)
    # As it will be read back: what a default is and what only equals one is not told apart in the ledger.
    return None if found is None else msgspec.json.decode(msgspec.json.encode(found), type=type(found))


def _known(
    state: State, item: _Object, old: _Object | None, now: Instant, *, before: int, named: bool
) -> _Object | None:
    meta = item.metadata
    if old is None:
        name, past = full_name(item), [str(before)] if before else []
        if again := state.departed.at(now).get(name):  # nothing else tells it from the one that left at this instant
            past.append(f"again {again}")
        uid = object_uid(state.fleet, name, str(now), *past)
        known = ObjectMeta(
            name=meta.name, namespace=meta.namespace, labels=meta.labels, annotations=meta.annotations, generation=1,
            uid=meta.uid if named and meta.uid else uid,
            creation_timestamp=(meta.creation_timestamp if named else None) or format_time(now),
        )  # fmt: skip
        return msgspec.structs.replace(item, metadata=known)
    kept = msgspec.structs.replace(old.metadata, labels=meta.labels, annotations=meta.annotations)
    same = msgspec.structs.replace(item, metadata=kept)
    if same == old:
        return None
    return msgspec.structs.replace(same, metadata=msgspec.structs.replace(kept, generation=old.metadata.generation + 1))
