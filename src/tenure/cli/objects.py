"""Runs as their own objects tell of them: what is left to see for somebody who may not read the ledger.

A tenant may read the Runs of a namespace and nothing else (ClusterRole ``tenure-tenant``). That is enough to submit,
list, resize and cancel them: the operator writes into each status how the run stands. Whatever rests on the books says
what it would take.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec

from tenure.api.budget import Budget
from tenure.api.core import Node, Pod
from tenure.api.meta import ObjectMeta
from tenure.api.policy import Policy
from tenure.api.run import Estimate, Resources, Run, RunSpec, RunStatus
from tenure.cli.port import LendingLine, NodeLine, PodLine, RunLine, SlotLine, SponsorLine
from tenure.facts import Lease, Reservation
from tenure.units import Instant, parse_time

T = TypeVar("T", bound=msgspec.Struct)
Object = dict[str, Any]
Fetch = Callable[[str | None, str], list[Object]]
"""The Runs of a namespace (of all, if None), or the one of a name."""


class Remembered:
    """A fetch of one view: what was found once is there for as long as the view is, though it be deleted meanwhile."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._found: dict[tuple[str | None, str], Object] = {}

    def __call__(self, namespace: str | None, name: str) -> list[Object]:
        if (known := self._found.get((namespace, name))) is not None:
            return [known]
        found = self._fetch(namespace, name)
        self._found |= {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in found}
        return found


class ObjectsView:
    """Everything at this instant, as far as Runs tell."""

    def __init__(self, fetch: Fetch, *, now: Instant, unreadable: Exception) -> None:
        self._fetch, self._unreadable = Remembered(fetch), unreadable
        self.now = now

    # -- runs --

    def lines(self, namespace: str | None = None) -> list[RunLine]:
        runs = [to_run(item) for item in self._fetch(namespace, "")]
        return sorted(map(line_of, runs), key=lambda line: (line.namespace, line.name))

    def line(self, namespace: str, name: str) -> RunLine | None:
        return next((line_of(to_run(item)) for item in self._fetch(namespace, name)), None)

    def run(self, namespace: str, name: str) -> Run:
        return next(to_run(item) for item in self._fetch(namespace, name))

    def estimates(self, keys: Sequence[str] | None = None) -> Mapping[str, Estimate]:
        """As the operator wrote them."""
        found = self._fetch(None, "") if keys is None else [
            item for key in keys for item in self._fetch(*key.split("/"))
        ]  # fmt: skip
        told = {f"{run.metadata.namespace}/{run.metadata.name}": run.status.estimate for run in map(to_run, found)}
        return {key: one for key, one in told.items() if one is not None}

    def leases(self, namespace: str, name: str) -> list[Lease]:
        """Not told here: their names are in the status."""
        return []

    # -- what takes the books --

    @property
    def policy(self) -> Policy:
        self._not_readable()

    def _not_readable(self, *_: Any) -> NoReturn:
        raise self._unreadable

    def reservation(self, namespace: str, run: str) -> Reservation | None:
        self._not_readable()

    def sponsors(self, namespace: str, name: str) -> list[SponsorLine]:
        self._not_readable()

    def budgets(self) -> list[Budget]:
        self._not_readable()

    def lending(self) -> list[LendingLine]:
        self._not_readable()

    def pods(self, namespace: str | None = None, run: str | None = None) -> list[PodLine]:
        self._not_readable()

    def pod(self, namespace: str, name: str) -> Pod:
        self._not_readable()

    def nodes(self) -> list[NodeLine]:
        self._not_readable()

    def node(self, name: str) -> Node:
        self._not_readable()

    def slots(self) -> list[SlotLine]:
        self._not_readable()


def to_run(item: Object) -> Run:
    """A Run object with its status, as far as this release knows what is in it."""
    from tenure.kube.translate import read_object

    reading = read_object(item)
    (run,) = reading.objects or (_as_far_as_known(item),)
    assert isinstance(run, Run)
    leaving = item["metadata"].get("deletionTimestamp")
    meta = msgspec.structs.replace(run.metadata, deletion_timestamp=leaving)
    return msgspec.structs.replace(run, metadata=meta, status=_readable(item.get("status"), RunStatus))


def _as_far_as_known(item: Object) -> Run:
    """A Run that cannot be taken in as it is: its identity, and the fields of its spec that can be read."""
    meta = {key: item["metadata"][key] for key in ("name", "namespace", "uid", "creationTimestamp")}
    spec = item.get("spec")
    asked = _readable(spec.get("resources") if isinstance(spec, dict) else None, Resources, gpu_type="", total_gpus=0)
    return Run(metadata=msgspec.convert(meta, ObjectMeta), spec=_readable(spec, RunSpec, resources=asked))


def _readable(tree: Any, kind: type[T], **otherwise: Any) -> T:
    """A record of the fields of a tree that are what they should be; of the others, what is said ``otherwise``, or
    the default."""
    found = tree if isinstance(tree, dict) else {}
    known = {name: found[name] for name in kind.__struct_encode_fields__ if name in found}
    try:
        return msgspec.convert(known, kind)
    except msgspec.ValidationError:
        fields = [field for field in msgspec.structs.fields(kind) if field.encode_name in known]
        sound = {one.name: value for one in fields for value in _converted(known[one.encode_name], one.type)}
        return kind(**{**otherwise, **sound})


def _converted(value: Any, kind: Any) -> list[Any]:
    try:
        return [msgspec.convert(value, kind)]
    except msgspec.ValidationError:
        return []


def line_of(run: Run, *, taken: bool = True) -> RunLine:
    status, spec, meta = run.status, run.spec, run.metadata
    marks = {one.type: one for one in status.conditions}
    elastic = spec.malleable
    asked = spec.resources.total_gpus if elastic is None else elastic.desired_total_gpus or elastic.max_total_gpus
    waits = status.phase == "Pending"
    held = status.width.allocated if status.width is not None else asked if status.leases else 0
    blocked = waits and "Blocked" in marks and marks["Blocked"].status == "True"
    last = max(status.conditions, key=lambda one: (one.status == "True", one.last_transition_time), default=None)
    admitted = marks.get("Admitted")
    told = marks["Blocked"] if blocked else admitted if waits and admitted is not None else last
    began = marks.get("Scheduled")  # its pods were bound; whether they still run is another condition
    started = began.last_transition_time if began is not None and began.status == "True" and not waits else None
    by = status.promised_by or status.earliest_start
    return RunLine(
        namespace=meta.namespace, name=meta.name, owner=spec.owner, flavor=spec.resources.gpu_type, phase=status.phase,
        blocked=blocked, gpus=asked, need=asked, held=held,
        created=parse_time(meta.creation_timestamp) if meta.creation_timestamp else None,
        started=parse_time(started) if started else None, retry_at=None,
        planned=parse_time(status.earliest_start) if status.earliest_start else None,
        promise="Pending" if status.pending_reservation else "", by=parse_time(by) if by and waits else None,
        queue=status.queue, attempt=_attempt(run, taken=taken),
        restarts=status.restarts, stopping=meta.deletion_timestamp is not None, requeued=False,
        reason=told.reason if told else "", message=status.message, taken=taken,
    )  # fmt: skip


def _attempt(run: Run, *, taken: bool) -> int | None:
    """The attempt that its open leases are named after (``bind``)."""
    if not taken:
        return 0
    name = re.compile(rf"{re.escape(run.metadata.name)}-a(\d+)-g\d", re.ASCII)
    return next((int(found[1]) for lease in run.status.leases if (found := name.match(lease))), None)
