"""From text to objects: read, check, and answer either all objects of an input or all that is wrong with it.

A file of several objects is applied whole or not at all, so one error leaves none. Errors come all at once,
up to a hundred: of the shape first, and, for every object whose types are right, of its rules too. ``kind:
List`` and lists are taken apart. Nothing is defaulted here (``defaults``), and rules between objects are in
``relations``. A fault at the end of a long file is found soon because what is right before it is passed over
quickly (``quick``, ``yaml_lines``).

>>> reading = read("kind: Namespace\\nmetadata: {name: rai}\\n---\\nkind: Budjet\\n")
>>> print(reading.errors[0].sentence())
document 2: kind is "Budjet": unknown kind; did you mean Budget?
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tenure.api.budget import Budget
from tenure.api.compile import shape_of
from tenure.api.core import Namespace, Node
from tenure.api.errors import ERROR_COUNT_MAX, Faults, FieldError, escape, show
from tenure.api.lease import Lease
from tenure.api.policy import Policy
from tenure.api.quick import quick
from tenure.api.reservation import Reservation
from tenure.api.run import Run
from tenure.api.shape import BAD
from tenure.api.text import Meter, documents, parse
from tenure.api.tree import nearest
from tenure.api.validate import (
    DEFAULT_NAMESPACE,
    NAMESPACED,
    ApiObject,
    check_policy_rules,
    check_rules,
    object_name,
)

KINDS: Final[dict[str, type[ApiObject]]] = {
    "Budget": Budget,
    "Run": Run,
    "Namespace": Namespace,
    "Node": Node,
    "Reservation": Reservation,
    "Lease": Lease,
}
USER_KINDS: Final = frozenset({"Budget", "Run", "Namespace", "Node"})
"""What people write. Reservations and Leases are written by the scheduler alone."""
OBJECT_COUNT_MAX: Final = 10_000


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was read: objects, or errors."""

    objects: tuple[ApiObject, ...] = ()
    errors: tuple[FieldError, ...] = ()


def read(
    text: str | bytes, *, source: str = "<input>", kinds: frozenset[str] = USER_KINDS, simulated: bool = False
) -> Reading:
    """The objects of a YAML or JSON text."""
    meter = Meter()
    reader = _Reader(kinds, simulated=simulated)
    for count, tree in enumerate(documents(text, source=source, meter=meter), start=1):
        if isinstance(tree, FieldError):
            reader.errors.append(tree)
        else:
            reader.document(tree, f"document {count}")
        if not reader.errors:
            # What was good so far is no burden: only input that turns out bad has to end soon.
            meter.refill()
        if reader.full:
            break
    return reader.reading(escape(source))


def read_tree(
    tree: Any, *, source: str = "<input>", kinds: frozenset[str] = USER_KINDS, simulated: bool = False
) -> Reading:
    """The objects of a tree that was parsed already: an object, a ``List``, or a list of objects."""
    reader = _Reader(kinds, simulated=simulated)
    reader.document(tree, escape(source))
    return reader.reading(escape(source))


def read_policy(text: Any, *, source: str = "policy", simulated: bool = False) -> tuple[Policy, tuple[FieldError, ...]]:
    """A policy from text or from a tree, or the errors and a policy of defaults.

    An empty text is all defaults.
    """
    tree = text
    if isinstance(text, str | bytes):
        parsed = parse(text, source=source)
        if parsed.errors:
            return Policy(), parsed.errors
        if len(parsed.trees) > 1:
            error = FieldError(object=escape(source), path="", problem="several documents", fix="write one policy")
            return Policy(), (error,)
        tree = parsed.trees[0] if parsed.trees else {}
    faults = Faults(escape(source))
    policy = shape_of(Policy).read(tree, (), faults)
    if policy is not BAD:
        check_policy_rules(policy, faults, simulated=simulated)
    return (Policy(), tuple(faults.errors)) if faults.errors else (policy, ())


class _Reader:
    """Reads documents into objects and collects what is wrong."""

    def __init__(self, kinds: frozenset[str], *, simulated: bool) -> None:
        self.kinds = kinds
        self.simulated = simulated
        self.objects: list[ApiObject] = []
        self.errors: list[FieldError] = []
        self.seen: dict[tuple[str, str, str], str] = {}

    @property
    def full(self) -> bool:
        return len(self.errors) >= ERROR_COUNT_MAX

    def reading(self, source: str) -> Reading:
        if not self.errors and not self.objects:
            self._error(source, "", "empty: there is no object in it", "write at least one object")
        if self.full:
            fix = "mend these first"
            self._error(source, "", f"more than {ERROR_COUNT_MAX} errors; the rest was not read", fix)
        objects = () if self.errors else tuple(self.objects)
        return Reading(objects=objects, errors=tuple(self.errors))

    def document(self, tree: Any, where: str) -> None:
        for place, item in self._items(tree, where):
            if self.full:
                return
            if len(self.objects) >= OBJECT_COUNT_MAX:
                self._error(where, "", f"more than {OBJECT_COUNT_MAX} objects", "split it into several files")
                return
            self._object(item, place)

    def _items(self, tree: Any, where: str) -> Iterable[tuple[str, Any]]:
        items = tree
        if isinstance(tree, dict) and tree.get("kind") == "List":
            items = tree.get("items")
            self._check_list(tree, where)
        elif not isinstance(tree, list):
            return ((where, tree),)
        if not isinstance(items, list):
            return ()
        return ((f"{where}, item {index}", item) for index, item in enumerate(items, start=1))

    def _check_list(self, tree: dict[str, Any], where: str) -> None:
        if not isinstance(tree.get("items"), list):
            self._error(where, "items", "a List without a list of items", "give items: [...]")
        for key in tree:
            if key not in ("apiVersion", "kind", "metadata", "items"):
                fix = "the fields of a List are apiVersion, kind, metadata, items"
                self._error(where, show(key).strip('"'), "unknown field", fix)

    def _object(self, tree: Any, where: str) -> None:
        if not isinstance(tree, dict):
            fix = "write a mapping with kind, metadata and spec"
            self._error(where, "", "not an object", fix, value=show(tree))
            return
        kind = tree.get("kind")
        if isinstance(kind, str) and kind in self.kinds:
            self._known(tree, kind, where)
            return
        problem, fix = self._kind_problem(kind)
        self._error(where, "kind", problem, fix, value="" if kind is None else show(kind))

    def _kind_problem(self, kind: Any) -> tuple[str, str]:
        choices = ", ".join(sorted(self.kinds))
        if kind is None:
            return "required and missing", f"write one of {choices}"
        if not isinstance(kind, str):
            return "not a string", f"write one of {choices}"
        if kind in KINDS:
            return "written by the scheduler, not by people", f"write one of {choices}"
        like = nearest(kind, tuple(sorted(self.kinds)))
        return "unknown kind", f"did you mean {like}?" if like else f"write one of {choices}"

    def _known(self, tree: dict[str, Any], kind: str, where: str) -> None:
        named = _identity(tree, kind)
        faults = Faults(object_name(*named) if named else where, room=ERROR_COUNT_MAX - len(self.errors))
        obj = quick(KINDS[kind])(tree)
        if obj is BAD:
            obj = shape_of(KINDS[kind]).read(tree, (), faults)
        if obj is not BAD:
            check_rules(obj, faults, simulated=self.simulated)
            self.objects.append(obj)
        if named and self.seen.setdefault(named, where) != where:
            faults.add((), f"the same object as {self.seen[named]}", "keep one of them")
        self.errors.extend(faults.errors)

    def _error(self, name: str, path: str, problem: str, fix: str, *, value: str = "") -> None:
        self.errors.append(FieldError(object=name, path=path, value=value, problem=problem, fix=fix))


def _identity(tree: dict[str, Any], kind: str) -> tuple[str, str, str] | None:
    """Kind, namespace and name of an object that may be badly made; None if it has no name."""
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name:
        return None
    if kind not in NAMESPACED:
        return kind, "", name
    return kind, (namespace if isinstance(namespace, str) else "") or DEFAULT_NAMESPACE, name
