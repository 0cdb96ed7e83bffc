"""An API server in memory: what Tenure's client can ask of one, answered as the real one answers.

    server = Server(now)
    reply = server.handle("GET", "/api/v1/nodes", {})
    stream = server.watch("/api/v1/nodes", {"resourceVersion": "12", "timeoutSeconds": 60})

Objects have versions, generations, uids, finalizers and a status of their own; writes are optimistic; a watch begins
where a list ended. There is no schema, no admission and nobody is refused: whatever matters of that is a fault. That it
answers like a real one is not believed but tested: tests/proof/test_sim_api.py asks both the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from proof.sim.api_forms import Object, Refusal, expired, invalid, patched, selector
from proof.sim.api_rules import check
from proof.sim.api_shelf import KINDS, Change, Kind, Shelf, Stored, Stream
from tenure.units import Instant, format_time

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.decode
_BY_PATH: dict[tuple[str, str], Kind] = {(one.resource.path().rpartition("/")[0], one.resource.plural): one
                                         for one in KINDS}  # fmt: skip
PAGE_SECONDS = 300.0
"""How long the rest of a list may be asked for."""
Query = Mapping[str, Any]


class Reply(Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes
    headers: dict[str, str] = {}


class Where(Struct, frozen=True):
    """What a path names."""

    kind: Kind
    namespace: str | None
    name: str
    part: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Server:
    """All objects of a cluster."""

    def __init__(self, now: Callable[[], Instant], *, version: int = 1000) -> None:
        self.now = now
        self.version = version
        self.shelves = {kind.resource.plural + "." + kind.resource.group: Shelf(kind) for kind in KINDS}
        self.writes: Counter[str] = Counter()
        """Writes that were asked for, by kind, whatever came of them."""
        self.estimates: Counter[str] = Counter()
        """Of these, by run: those that said another place in the queue or another estimate, and nothing else."""
        self._pages: dict[str, tuple[float, int, list[Stored]]] = {}
        self._made = 0

    # --- for who plays with the cluster ---------------------------------------------------------------------------

    def shelf(self, resource: Any) -> Shelf:
        return self.shelves[f"{resource.plural}.{resource.group}"]

    def get(self, resource: Any, key: str) -> Object | None:
        found = self.shelf(resource).items.get(key)
        return None if found is None else found.item

    def all(self, resource: Any) -> list[Object]:
        return [one.item for one in self.shelf(resource).chosen(None, None)]

    def forget(self) -> None:
        """Compact: what happened until now can no longer be asked for."""
        for shelf in self.shelves.values():
            shelf.forgotten = self.version
        self._pages.clear()

    # --- requests -------------------------------------------------------------------------------------------------

    def handle(
        self,
        method: str,
        path: str,
        query: Query,
        data: bytes | None = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Reply:
        """One request, carried out."""
        try:
            where = locate(path)
            dry = query.get("dryRun") == "All"
            if method != "GET" and not dry:
                self.writes[where.kind.name] += 1
            match method:
                case "GET" if where.name:
                    return Reply(200, self._found(where).raw)
                case "GET":
                    return Reply(200, self._list(where, query, accept))
                case "POST":
                    return self._create(where, _decode(data or b"{}"), dry=dry)
                case "PUT":
                    return Reply(200, self._replace(where, _decode(data or b"{}"), dry=dry).raw)
                case "PATCH":
                    before = self._found(where)
                    wanted = patched(before.item, _decode(data or b"{}"), content)
                    if not dry and _is_estimate(before.item, wanted):
                        self.estimates[where.key] += 1
                    return Reply(200, self._update(where, before, wanted, dry=dry).raw)
                case "DELETE":
                    return self._delete(where, _decode(data) if data else {})
            raise Refusal(405, "MethodNotAllowed", f"the fake knows no {method}")
        except Refusal as refusal:
            return Reply(refusal.code, _encode(refusal.status()))

    def watch(self, path: str, query: Query) -> Stream | Reply:
        """Changes from a version on."""
        where = locate(path)
        shelf = self._shelf(where)
        try:
            match = selector(
                str(query.get("labelSelector", "")), str(query.get("fieldSelector", "")), where.kind.fields
            )
            at = shelf.after(int(query.get("resourceVersion") or self.version))
        except Refusal as refusal:
            if refusal.code == 410:
                return Reply(200, b'{"type":"ERROR","object":%s}\n' % _encode(refusal.status()))
            return Reply(refusal.code, _encode(refusal.status()))
        ends = asyncio.get_running_loop().time() + float(query.get("timeoutSeconds", 1800))
        return Stream(shelf, at, namespace=where.namespace, match=match, ends=ends, version=lambda: self.version)

    # --- reading --------------------------------------------------------------------------------------------------

    def _shelf(self, where: Where) -> Shelf:
        return self.shelf(where.kind.resource)

    def _found(self, where: Where) -> Stored:
        found = self._shelf(where).items.get(where.key)
        if found is None:
            raise Refusal(404, "NotFound", f'{where.kind.name} "{where.name}" not found')
        return found

    def _list(self, where: Where, query: Query, accept: str) -> bytes:
        resource, limit = where.kind.resource, int(query.get("limit") or 0)
        token = str(query.get("continue") or "")
        if token:
            until, version, rest = self._pages.pop(token, (-1.0, 0, []))
            if asyncio.get_running_loop().time() > until:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
        else:
            match = selector(
                str(query.get("labelSelector", "")), str(query.get("fieldSelector", "")), where.kind.fields
            )
            version, rest = self.version, self._shelf(where).chosen(where.namespace, match)
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        meta: Object = {"resourceVersion": str(version)}
        if rest:
            self._made += 1
            meta["continue"] = token = f"page-{self._made}"
            self._pages[token] = (asyncio.get_running_loop().time() + PAGE_SECONDS, version, rest)
        partial = "PartialObjectMetadataList" in accept
        kind, group = ("PartialObjectMetadata", "meta.k8s.io/v1") if partial else (resource.kind, resource.api_version)
        items = (_encode({"metadata": one.item["metadata"]}) if partial else one.raw for one in page)
        head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
            kind.encode(), group.encode(), _encode(meta))  # fmt: skip
        return head + b",".join(items) + b"]}"

    def list_at(self, path: str, query: Query, version: int) -> bytes:
        """All at once, as it was at an earlier version."""
        where = locate(path)
        match = selector(str(query.get("labelSelector", "")), str(query.get("fieldSelector", "")), where.kind.fields)
        found = self._shelf(where).at(version).chosen(where.namespace, match)
        meta = _encode({"resourceVersion": str(version)})
        return b'{"kind":"List","apiVersion":"v1","metadata":%s,"items":[%s]}' % (
            meta,
            b",".join(one.raw for one in found),
        )

    # --- writing --------------------------------------------------------------------------------------------------

    def _create(self, where: Where, body: Object, *, dry: bool) -> Reply:
        if where.part == "binding":
            return self._bind(where, body)
        meta, kind = dict(body.get("metadata") or {}), where.kind
        if kind.resource.namespaced:
            self._check_open(where)
            meta["namespace"] = where.namespace
        where = Where(kind, where.namespace, str(meta["name"]), "")
        if where.key in self._shelf(where).items:
            raise Refusal(409, "AlreadyExists", f'{kind.name} "{where.name}" already exists')
        if meta.pop("resourceVersion", None):
            raise Refusal(500, "InternalError", "resourceVersion should not be set on objects to be created")
        self._made += 1
        meta["uid"] = f"{self._made:08x}-0000-4000-8000-{self._made:012x}"
        meta["creationTimestamp"] = self._time()
        if kind.custom:
            meta["generation"] = 1
        item = {**body, "metadata": meta}
        if kind.status and kind.custom:
            item.pop("status", None)
        if kind.resource.kind == "Pod":
            item["status"] = {"phase": "Pending"}
            item["spec"] = {"terminationGracePeriodSeconds": 30, **item.get("spec", {})}
        if kind.resource.kind == "Namespace":
            item["spec"], item["status"] = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
        check(None, item)
        return Reply(201, self._store(where, None, item, dry=dry).raw)

    def _check_open(self, where: Where) -> None:
        found = self.shelves["namespaces."].items.get(where.namespace or "")
        if found is None:
            raise Refusal(404, "NotFound", f'namespaces "{where.namespace}" not found')
        if found.item["metadata"].get("deletionTimestamp"):
            message = f"unable to create new content in namespace {where.namespace} because it is being terminated"
            raise Refusal(403, "Forbidden", f'{where.kind.name} "{where.name}" is forbidden: {message}')

    def _replace(self, where: Where, body: Object, *, dry: bool) -> Stored:
        before = self._found(where)
        meta = body.get("metadata") or {}
        if meta.get("name") != where.name:
            raise Refusal(400, "BadRequest", "the name of the object does not match the name on the URL")
        if where.kind.custom and not meta.get("resourceVersion"):
            raise invalid(f'{where.kind.name} "{where.name}" is invalid: metadata.resourceVersion: must be specified')
        return self._update(where, before, body, dry=dry)

    def _update(self, where: Where, before: Stored, wanted: Object, *, dry: bool) -> Stored:
        old, meta = before.item["metadata"], dict(wanted["metadata"])
        if (
            meta.get("resourceVersion") not in (None, "", old["resourceVersion"])
            or (meta.get("uid") or old["uid"]) != old["uid"]
        ):
            raise _conflict(where)
        kept = (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "name",
            "namespace",
        )
        meta = {**{key: value for key, value in meta.items() if key not in kept},
                **{key: old[key] for key in kept if key in old}}  # fmt: skip
        if where.part == "status":
            meta = dict(old)
            item = {**before.item, "metadata": meta}
            item.pop("status", None)
            if "status" in wanted:
                item["status"] = wanted["status"]
        else:
            item = {**wanted, "apiVersion": before.item["apiVersion"], "kind": before.item["kind"], "metadata": meta}
            if where.kind.status:
                item.pop("status", None)
                if "status" in before.item:
                    item["status"] = before.item["status"]
        added = set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ())
        if added and "deletionTimestamp" in old:
            raise invalid(
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
            )
        if not meta.get("finalizers"):
            meta.pop("finalizers", None)
        if where.kind.custom and _content(item) != _content(before.item):
            meta["generation"] = int(old.get("generation", 0)) + 1
        check(before.item, item)
        return self._store(where, before, item, dry=dry)

    def _store(
        self, where: Where, before: Stored | None, item: Object, *, dry: bool = False, gone: bool = False
    ) -> Stored:
        """Write a version, if it says anything new; what is leaving and held by nobody is gone with it."""
        meta = item["metadata"]
        if before is not None:
            meta["resourceVersion"] = before.item["metadata"]["resourceVersion"]
            if item == before.item and not gone:
                return before
        if dry:
            return Stored({**item, "metadata": {**meta, "resourceVersion": meta.get("resourceVersion", "0")}})
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        after = Stored(item)
        leaves = (
            "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        )
        if where.kind.resource.kind == "Namespace" and (item.get("spec") or {}).get("finalizers"):
            leaves = False
        self._shelf(where).put(where.key, Change(self.version, before, after, deleted=leaves or gone))
        return after

    def _bind(self, where: Where, body: Object) -> Reply:
        before = self._found(Where(where.kind, where.namespace, where.name, ""))
        spec, meta = before.item["spec"], before.item["metadata"]
        if spec.get("nodeName") or meta.get("deletionTimestamp"):
            raise Refusal(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{where.name}"')
        item = {**before.item, "metadata": dict(meta), "spec": {**spec, "nodeName": body["target"]["name"]}}
        self._store(where, before, item)
        return Reply(
            201, _encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        )

    def _delete(self, where: Where, options: Object) -> Reply:
        if not where.name:
            raise Refusal(405, "MethodNotAllowed", "the fake deletes no collections")
        before = self._found(where)
        meta = before.item["metadata"]
        for key, value in (options.get("preconditions") or {}).items():
            if meta[key] != value:
                raise Refusal(409, "Conflict", f"the {key} in the precondition ({value}) does not match: {meta[key]}")
        item = {**before.item, "metadata": {**meta, "deletionTimestamp": meta.get("deletionTimestamp") or self._time()}}
        grace = self._grace(before.item, options)
        if grace:
            if "deletionGracePeriodSeconds" in meta:
                return Reply(200, before.raw)
            item["metadata"]["deletionGracePeriodSeconds"] = grace
        else:
            item["metadata"]["deletionGracePeriodSeconds"] = 0
        if where.kind.resource.kind == "Namespace":
            item["status"] = {**item.get("status", {}), "phase": "Terminating"}
        if "deletionTimestamp" in meta and item["metadata"] == meta:
            return Reply(200, before.raw)
        if where.kind.custom and "deletionTimestamp" not in meta:
            if meta.get("finalizers"):
                item["metadata"]["generation"] = int(meta["generation"]) + 1
            else:  # it is gone at once, and was never leaving
                item["metadata"] = dict(meta)
        after = self._store(where, before, item, gone=where.kind.custom and not meta.get("finalizers"))
        gone = where.key not in self._shelf(where).items
        if gone and where.kind.resource.kind != "Pod":
            details = {
                "name": where.name,
                "group": where.kind.resource.group,
                "kind": where.kind.resource.plural,
                "uid": meta["uid"],
            }
            done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            return Reply(200, _encode(done))
        return Reply(200, after.raw)

    @staticmethod
    def _grace(item: Object, options: Object) -> int:
        """Seconds that a pod has to end; nothing else has any, nor has a pod that nobody runs."""
        if item["kind"] != "Pod" or not item["spec"].get("nodeName"):
            return 0
        if (item.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        given = options.get("gracePeriodSeconds")
        return int(item["spec"].get("terminationGracePeriodSeconds", 30) if given is None else given)

    def _time(self) -> str:
        return format_time(self.now() // 1_000_000 * 1_000_000)


def locate(path: str) -> Where:
    """
    >>> one = locate("/api/v1/namespaces/rai/pods/train-0/status")
    >>> one.kind.name, one.key, one.part
    ('pods', 'rai/train-0', 'status')
    >>> locate("/api/v1/namespaces/rai").key, locate("/apis/rq.davidlangworthy.io/v1/budgets").name
    ('rai', '')
    """
    parts = path.split("/")
    start = 3 if parts[1] == "api" else 4
    base, rest = "/".join(parts[:start]), parts[start:]
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and (base, rest[2]) in _BY_PATH:
        namespace, rest = rest[1], rest[2:]
    kind = _BY_PATH.get((base, rest[0]))
    if kind is None:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    return Where(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")


def _conflict(where: Where) -> Refusal:
    message = "the object has been modified; please apply your changes to the latest version and try again"
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {where.kind.name} "{where.name}": {message}')


def _is_estimate(old: Object, new: Object) -> bool:
    """Whether nothing else changes than a place in the queue and an estimate."""
    was, told = ({**(item.get("status") or {}), "queue": None, "estimate": None} for item in (old, new))
    same = all(old.get(part) == new.get(part) for part in old.keys() | new.keys() if part not in ("metadata", "status"))
    return same and was == told and old.get("status") != new.get("status")


def _content(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in ("metadata", "status", "apiVersion", "kind")}
