"""What the webhook answers: an object defaulted and judged by the same code as in the embedded fleet.

Pure: an AdmissionRequest and what is known around it in, an AdmissionResponse out. The same limits hold as for a file
that is submitted (1 MiB, depth 32, ...), the same sentences are said, and all errors come at once.

Defaulting and judging happen in the mutating call already: it comes before the API server's own validation, so that a
person reads our sentence and not the schema's. The validating call repeats the judgement on what is about to be stored.
Neither is needed for safety: with the webhook away, the schemas' CEL and the admission policies hold, and the operator
judges again when it takes an object in.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tenure.api.budget import Budget
from tenure.api.decode import read
from tenure.api.defaults import default
from tenure.api.errors import FieldError, show
from tenure.api.meta import GROUP, to_wire
from tenure.api.relations import check_update
from tenure.api.run import Run
from tenure.api.validate import object_name
from tenure.engine import intake
from tenure.engine.state import State

SHOWN_MAX: Final = 20
"""Errors in one answer: a person mends the first few."""


class Kind(Struct, frozen=True):
    """Which kind, as the API server spells it."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(Struct, frozen=True, rename="camel"):
    """What the API server asks about, as far as it matters here."""

    uid: str
    kind: Kind
    operation: str
    name: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class Review(Struct, frozen=True, rename="camel"):
    """An AdmissionReview as it comes in."""

    api_version: str
    kind: str
    request: Request


Known = Callable[[], State | None]
"""The engine's state, to read only: None until there is one."""


def nothing_known() -> State | None:
    """Whoever has no state judges what an object alone can show."""
    return None


def answer(review: Review, *, known: Known = nothing_known, patching: bool) -> dict[str, Any]:
    """The AdmissionReview that goes back."""
    response = {"uid": review.request.uid, **_response(review.request, known(), patching=patching)}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _response(request: Request, state: State | None, *, patching: bool) -> dict[str, Any]:
    tree = request.object
    if tree is None or request.kind.group != GROUP or request.kind.kind not in ("Run", "Budget"):
        return {"allowed": True}
    old = request.old_object
    if old is not None and _same_spec(tree, old, request):
        # Labels, finalizers, a status: never a reason to hold up what was taken in already.
        return {"allowed": True}
    obj, errors = _read(tree, request)
    if obj is not None:
        errors = _relations(_still_nameless(obj, tree, request), old, request, state)
    if errors:
        return {"allowed": False, "status": _status(errors, request)}
    assert obj is not None
    patch = list(_patch(tree, obj, state)) if patching else []
    return {"allowed": True, **_encoded(patch)}


def _same_spec(tree: dict[str, Any], old: dict[str, Any], request: Request) -> bool:
    """Whether an edit leaves the spec as it was taken in, to the letter: to Python, true is 1."""
    before, after = old.get("spec"), tree.get("spec")
    if before is None or before != after or tree.get("kind", request.kind.kind) != request.kind.kind:
        return False
    return msgspec.json.encode(before, order="sorted") == msgspec.json.encode(after, order="sorted")


def _read(tree: dict[str, Any], request: Request) -> tuple[Budget | Run | None, list[FieldError]]:
    """The object, or what is wrong with it. The API server has looked after its metadata, and status is not judged."""
    if tree.get("kind", request.kind.kind) != request.kind.kind:
        return None, [_other_kind(tree["kind"], request)]
    metadata = _metadata(tree)
    name = request.name or metadata.get("name") or f"{metadata.get('generateName') or request.kind.kind.lower()}0"
    shown = {
        "apiVersion": tree.get("apiVersion"),
        "kind": request.kind.kind,
        "metadata": {"name": name, **({"namespace": request.namespace} if request.namespace else {})},
        **{key: value for key, value in tree.items() if key not in ("apiVersion", "kind", "metadata", "status")},
    }
    reading = read(msgspec.json.encode(shown), source=request.kind.kind, kinds=frozenset({request.kind.kind}))
    if reading.errors:
        return None, list(reading.errors)
    (obj,) = reading.objects
    assert isinstance(obj, Budget | Run)
    return obj, []


def _metadata(tree: dict[str, Any]) -> dict[str, Any]:
    given = tree.get("metadata")
    return given if isinstance(given, dict) else {}


def _other_kind(kind: Any, request: Request) -> FieldError:
    """No API server asks like that; whoever else does is not told that a Lease is a good Run."""
    named = object_name(request.kind.kind, request.namespace, request.name) if request.name else request.kind.kind
    return FieldError(object=named, path="kind", value=show(kind),
                      problem="not the kind that the request is about", fix=f"send a {request.kind.kind}")  # fmt: skip


def _still_nameless(obj: Budget | Run, tree: dict[str, Any], request: Request) -> Budget | Run:
    """An object whose name the API server is yet to generate is nobody we know: a star is in no name.

    It was read under a name made up for the purpose, and somebody else may have that very one.
    """
    if request.name or _metadata(tree).get("name"):
        return obj
    prefix = obj.metadata.name.removesuffix("0")
    return replace(obj, metadata=replace(obj.metadata, name=f"{prefix}*"))


def _relations(
    obj: Budget | Run, old: dict[str, Any] | None, request: Request, state: State | None
) -> list[FieldError]:
    """The rules between objects: the engine's own where it knows of them, else what the two versions show.

    A namespace may be newer than the state; whose money a Run in it may claim is then for the policies to say.
    """
    if state is not None and (isinstance(obj, Budget) or request.namespace in state.namespaces):
        return intake.check(state, (obj,))
    if not isinstance(obj, Run) or old is None:
        return []
    before, faults = _read(old, request)
    return check_update(before, obj, admitted=_admitted(old)) if isinstance(before, Run) and not faults else []


def _admitted(tree: dict[str, Any]) -> bool:
    status = tree.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return isinstance(conditions, list) and any(
        isinstance(one, dict) and (one.get("type"), one.get("status")) == ("Admitted", "True") for one in conditions
    )


def _status(errors: list[FieldError], request: Request) -> dict[str, Any]:
    shown = errors[:SHOWN_MAX]
    lines = [error.sentence() for error in shown]
    if len(errors) > len(shown):
        lines.append(f"and {len(errors) - len(shown)} more errors")
    causes = [{"reason": "FieldValueInvalid", "message": each.sentence(), "field": each.path} for each in shown]
    details = {"group": GROUP, "kind": request.kind.kind, "name": request.name, "causes": causes}
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "\n".join(lines),
        "details": details,
    }


# --- defaulting -----------------------------------------------------------------------------------------------------


def _patch(tree: dict[str, Any], obj: Budget | Run, state: State | None) -> Iterator[dict[str, Any]]:
    """What defaulting adds, as a JSON patch of what was sent: nothing that the sender wrote is touched."""
    namespace = state.namespaces.get(obj.metadata.namespace) if state is not None else None
    before, after = (to_wire(each.spec) for each in (obj, default(obj, namespace=namespace)))
    yield from _added(before, after, tree["spec"], "/spec")


def _added(before: dict[str, Any], after: dict[str, Any], raw: Any, at: str) -> Iterator[dict[str, Any]]:
    for key, value in after.items():
        was = before.get(key)
        if was == value:
            continue
        place = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
        if isinstance(value, dict) and isinstance(was, dict) and isinstance(raw.get(key), dict):
            yield from _added(was, value, raw[key], place)
        elif isinstance(value, dict) and isinstance(was, dict):
            yield {
                "op": "add",
                "path": place,
                "value": {name: one for name, one in value.items() if was.get(name) != one},
            }
        else:
            yield {"op": "add", "path": place, "value": value}


def _encoded(patch: list[dict[str, Any]]) -> dict[str, Any]:
    if not patch:
        return {}
    return {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
