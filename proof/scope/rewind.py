"""Take back what happened to a graph of objects: put into each of them again what it held.

To try a move costs less this way than on a copy: nothing is built and nothing thrown away, and what was restored is
still in the processor's cache. Whatever a move has added is forgotten, since nothing refers to it any more.

Immutable things (text, numbers, tuples, records) need no restoring, nor do attributes that no line of the engine or of
the auditor sets once an object was made. Everything else has a rule here, by its type; what has none is refused, so
that nothing is left as it became.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache, partial
from gc import get_referents
from operator import attrgetter
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from msgspec import Struct

import tenure

FIXED = (str, bytes, int, tuple, frozenset, Struct, Enum, type, partial, FunctionType, BuiltinFunctionType, MethodType)
"""What cannot change. A tuple may hold something that can: that is in the graph itself, and has a rule."""
ENDS = (str, bytes, int, float, type(None), Struct, Enum, type, FunctionType, BuiltinFunctionType)
"""What cannot change, nor hold anything that can: copies share it."""
_ENDS = set[type]()
"""Classes of such, as they were come across."""

Put = Callable[[Any, Any], None]
Pairs = list[tuple[Any, Any]]
"""Objects, and what they held."""


class Many(NamedTuple):
    """The same for many objects of a class, with what may change once they were made."""

    read: Callable[[Any], Any]
    restore: Callable[[Pairs], None]


class Rule(NamedTuple):
    """How what an object of a class holds is saved and put back, if it may change; ``names``: its attributes, if it has
    such."""

    save: Callable[[Any], Any] | None
    put: Put
    names: tuple[str, ...] = ()
    many: Many | None = None


class Rewind:
    """What everything that can be reached from an object held, and how it is put back."""

    def __init__(self, root: object) -> None:
        lists: list[tuple[list[Any], list[Any]]] = []
        dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        sets: list[tuple[set[Any], set[Any]]] = []
        empty: list[list[Any] | dict[Any, Any] | set[Any]] = []
        rows: dict[type, tuple[Callable[[Pairs], None], Pairs]] = {}
        self._lists, self._dicts, self._sets, self._empty = lists, dicts, sets, empty
        rules, seen = RULES, set[int]()
        nearby: list[Any] = [root]
        while nearby:
            todo = []
            for one in nearby:
                number, kind = id(one), type(one)
                if number in seen:
                    continue
                seen.add(number)
                if kind is dict or kind is list or kind is set:
                    if not one:
                        empty.append(one)
                        continue
                    if kind is dict:
                        dicts.append((one, one.copy()))
                    elif kind is list:
                        lists.append((one, one[:]))
                    else:
                        sets.append((one, one.copy()))
                elif kind is not tuple:
                    if issubclass(kind, ENDS):
                        _ENDS.add(kind)
                        continue
                    many = (rules.get(kind) or rule(one)).many
                    if many is not None:
                        pair = one, many.read(one)
                        if kind in rows:
                            rows[kind][1].append(pair)
                        else:
                            rows[kind] = many.restore, [pair]
                todo.append(one)
            nearby = [one for one in get_referents(*todo) if type(one) not in _ENDS]
        self._rows = list(rows.values())

    def back(self) -> None:
        """Let everything be as it was. What held nothing mostly still does."""
        for one in self._empty:
            if one:
                one.clear()
        for a_list, values in self._lists:
            a_list[:] = values
        for a_dict, items in self._dicts:
            a_dict.clear()
            a_dict |= items
        for a_set, members in self._sets:
            a_set.clear()
            a_set |= members
        for restore, pairs in self._rows:
            restore(pairs)

    def let_go(self) -> None:
        """Nobody needs these objects any more. Many refer to one another: they are taken apart, or they would stay
        until somebody looks for such."""
        for a_list, _ in self._lists:
            a_list.clear()
        for a_dict, _ in self._dicts:
            a_dict.clear()
        for one in self._empty:
            one.clear()


def rule(one: object) -> Rule:
    """How what an object holds is saved and restored; every object of its class holds the same attributes."""
    kind = type(one)
    if issubclass(kind, FIXED) or getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
        found = Rule(None, _nothing)
    elif issubclass(kind, dict):
        found = Rule(dict, _put_items, (), Many(dict, _put_all_items))
    elif kind.__dictoffset__:
        found = _attributes(kind, tuple(vars(one)))
    elif names := [name for base in kind.__mro__ for name in vars(base).get("__slots__", ())]:
        found = _attributes(kind, tuple(names))
    else:
        raise TypeError(f"no rule to take back what happens to {kind}")
    RULES[kind] = found
    return found


RULES: dict[type, Rule] = {}
"""Those that were needed so far."""


def _nothing(one: Any, held: Any) -> None:
    """It cannot have changed."""


def _put_items(one: dict[Any, Any], held: dict[Any, Any]) -> None:
    dict.clear(one)
    dict.update(one, held)


def _put_all_items(pairs: list[tuple[dict[Any, Any], dict[Any, Any]]]) -> None:
    for one, held in pairs:
        _put_items(one, held)


def _attributes(kind: type, names: tuple[str, ...]) -> Rule:
    """Attributes as a tuple, and code of their own to put them back: it is run for each object after each move, so it
    unpacks into them, ``for one, (one.name, one.other) in pairs``, and calls nothing."""
    some = tuple(name for name in names if _may_be_set(kind, name))
    scope: dict[str, Any] = {}
    exec(f"def put(one, held): {_targets(names)} = held", scope)
    if not some:
        return Rule(_reader(names), scope["put"], names)
    exec(f"def restore(pairs):\n for one, ({_targets(some)}) in pairs: pass", scope)
    return Rule(_reader(names), scope["put"], names, Many(_reader(some), scope["restore"]))


def _targets(names: tuple[str, ...]) -> str:
    return ", ".join(f"one.{name}" for name in names) + ("," if len(names) == 1 else "")


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda row: (read(row),)


PACKAGES = ("engine", "audit")
"""Where every line is known that may set an attribute of their classes."""
_BEHIND = {"setattr", "vars", "__dict__", "__setattr__"}
"""Ways to set one that would not be seen."""


def _may_be_set(kind: type, name: str) -> bool:
    """Whether an attribute may be set once an object was made: by the object itself, or by anybody else."""
    if kind.__module__.rpartition(".")[0] not in [f"tenure.{package}" for package in PACKAGES]:
        return True
    return any((owner, name) in set_later() for owner in ("", *(base.__name__ for base in kind.__mro__)))


@cache
def set_later() -> frozenset[tuple[str, str]]:
    """Attributes that some line sets, and not while their object is being made: of ``self`` in a class, or (with no
    name) of whatever object."""
    root = Path(tenure.__file__).parent
    files = [path for package in PACKAGES for path in sorted((root / package).glob("*.py"))]
    return frozenset(found for path in files for found in set_in(ast.parse(path.read_text())))


def set_in(node: ast.AST, owner: str = "", *, made: bool = False) -> Iterator[tuple[str, str]]:
    """``made``: this is code of an ``__init__``, in which ``self`` is not yet known to anybody."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    if name in _BEHIND:
        raise TypeError(f"{name} sets attributes that cannot be known")
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not (own and made):
            yield owner if own else "", name
    if isinstance(node, ast.ClassDef):
        owner = node.name
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        made = isinstance(node, ast.FunctionDef) and node.name == "__init__"
    for child in ast.iter_child_nodes(node):
        yield from set_in(child, owner, made=made)
