"""Rules between objects: whose namespace a Run is in, what may change in it, and the family of Budgets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tenure.api.budget import Budget
from tenure.api.core import Namespace
from tenure.api.defaults import default, owner_of
from tenure.api.errors import Faults, FieldError, Path, show
from tenure.api.meta import OWNER_ANNOTATION, to_wire
from tenure.api.owners import is_below, is_owner
from tenure.api.run import Run
from tenure.api.validate import object_name

CHANGEABLE: frozenset[Path] = frozenset(
    {
        ("spec", "malleable", "desiredTotalGPUs"),
        ("spec", "funding", "sponsors"),
        ("spec", "funding", "maxBorrowGPUs"),
    }
)
"""What may change in a Run that was admitted."""

_ABSENT = object()


def check_owner(run: Run, namespace: Namespace | None) -> list[FieldError]:
    """A Run claims its namespace's owner or one below it (SPEC 12).

    A namespace bound to nobody binds nobody.
    """
    faults = Faults(_name(run))
    bound, claimed = owner_of(namespace), run.spec.owner or owner_of(namespace)
    if not claimed:
        problem = f"no owner, and namespace {run.metadata.namespace or 'default'} is bound to none"
        faults.add(("spec", "owner"), problem, f"give one, or annotate the namespace with {OWNER_ANNOTATION}")
    elif bound and not is_owner(bound):
        fix = f"have an administrator mend its annotation {OWNER_ANNOTATION}"
        faults.add(("spec", "owner"), f"the namespace is bound to {show(bound)}, which is no owner", fix)
    elif bound and claimed != bound and not is_below(claimed, bound):
        problem = f"not {bound}, to which the namespace is bound, nor below it"
        faults.add(("spec", "owner"), problem, f"write {bound} or an owner that begins {bound}:", value=show(claimed))
    return faults.errors


def check_update(old: Run, new: Run, *, admitted: bool) -> list[FieldError]:
    """What may not change: everything but ``CHANGEABLE``, once the Run was first admitted."""
    faults = Faults(_name(new))
    if admitted:
        before, after = (to_wire(default(each, namespace=None).spec) for each in (old, new))
        for path, was, wanted in _changes(before, after, ("spec",)):
            if path not in CHANGEABLE:
                fix = "leave it out" if was is _ABSENT else f"write {show(was)} again"
                problem = "cannot change once the Run was admitted"
                value = "absent" if wanted is _ABSENT else show(wanted)
                faults.add(path, problem, f"{fix}, or submit another Run", value=value)
    return faults.errors


def check_family(budgets: Iterable[Budget]) -> list[FieldError]:
    """Parents form a graph without cycles, over the owners of all Budgets. Each cycle is named once."""
    budgets = sorted(budgets, key=lambda each: each.metadata.name)
    parents: dict[str, set[str]] = {}
    for budget in budgets:
        parents.setdefault(budget.spec.owner, set()).update(budget.spec.parents)
    return [_cycle_error(cycle, budgets) for cycle in _cycles(parents)]


def _cycle_error(cycle: list[str], budgets: list[Budget]) -> FieldError:
    first, second = cycle[0], cycle[1] if len(cycle) > 1 else cycle[0]
    culprit = next(each for each in budgets if each.spec.owner == first and second in each.spec.parents)
    faults = Faults(object_name("Budget", "", culprit.metadata.name))
    at = ("spec", "parents", culprit.spec.parents.index(second))
    shown = [*cycle[:8], "..."] if len(cycle) > 8 else cycle
    problem = f"a cycle of parents: {' -> '.join([*shown, first])}"
    faults.add(at, problem, "a family has no cycles; remove one of these parents", value=show(second))
    return faults.errors[0]


def _cycles(parents: dict[str, set[str]]) -> Iterator[list[str]]:
    """Walk each owner's ancestors once, depth first, without recursion; a step back onto the walk is a
    cycle.
    """
    done: set[str] = set()
    for start in sorted(parents):
        walk: list[str] = []
        on_walk: dict[str, int] = {}
        waiting = [(start, False)] if start not in done else []
        while waiting:
            owner, left = waiting.pop()
            if left:
                done.add(walk.pop())
                del on_walk[owner]
            elif owner in on_walk:
                yield _from_smallest(walk[on_walk[owner] :])
            elif owner not in done:
                on_walk[owner] = len(walk)
                walk.append(owner)
                waiting.append((owner, True))
                waiting.extend((each, False) for each in sorted(parents.get(owner, ()), reverse=True))


def _from_smallest(cycle: list[str]) -> list[str]:
    at = cycle.index(min(cycle))
    return cycle[at:] + cycle[:at]


def _changes(old: Any, new: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """The fields in which two trees differ, at the deepest mapping that both have."""
    if path == ("spec", "template") or not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield path, old, new
        return
    for key in sorted(set(old) | set(new)):
        yield from _changes(old.get(key, _ABSENT), new.get(key, _ABSENT), (*path, key))


def _name(run: Run) -> str:
    return object_name("Run", run.metadata.namespace, run.metadata.name)
