"""Handing objects to an API server as a person would: all of them tried first, then written.

An API server takes objects one by one, so that several of them cannot be all or nothing as in an embedded fleet. What
comes close: everything is tried as a dry run, through every schema, policy and webhook, and only if nothing is refused
it is written, in the order in which one needs the other. What is there already is replaced in its spec; labels and
annotations are added to those that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from tenure.kube.client import Client, Object
from tenure.kube.errors import ApiError
from tenure.kube.resources import BUDGETS, NAMESPACES, RUNS, Resource, resource_of

Change = Literal["created", "changed", "unchanged"]
CONFLICTS_MAX = 5
ORDER = (NAMESPACES, BUDGETS, RUNS)


class Put(Struct, frozen=True):
    """What became of an object: what the server keeps now, or why it does not."""

    change: Change
    object: Object
    error: ApiError | None = None
    written: bool = False
    """Whether it was more than a trial."""


async def put_all(client: Client, objects: Sequence[Object], *, dry_run: bool = False) -> list[Put]:
    """Try everything; if nothing is refused and it is no dry run, write it. In the order given.

    If something is refused in spite of the trial, what comes before it is written, and the rest is not.
    """
    tried = await asyncio.gather(*(_tried(client, item, objects) for item in objects))
    if dry_run or any(one.error for one in tried):
        return list(tried)
    done: dict[int, Put] = {}
    for index in sorted(range(len(objects)), key=lambda index: ORDER.index(resource_of(objects[index]))):
        try:
            done[index] = await put(client, objects[index])
        except ApiError as error:
            done[index] = Put("unchanged", objects[index], error)
            break
    return [done.get(index, Put("unchanged", item)) for index, item in enumerate(objects)]


async def _tried(client: Client, item: Object, objects: Sequence[Object]) -> Put:
    home = item["metadata"].get("namespace")
    try:
        return await put(client, item, dry_run=True)
    except ApiError as error:
        if error.not_found and any(one["kind"] == "Namespace" and one["metadata"]["name"] == home for one in objects):
            return Put("created", item)  # its namespace comes with it, and cannot be tried without being there
        return Put("unchanged", item, error)


async def put(client: Client, item: Object, *, dry_run: bool = False) -> Put:
    """Create an object, or have the one of its name say what it says."""
    resource, meta = resource_of(item), item["metadata"]
    for number in range(CONFLICTS_MAX):
        try:
            found = await client.get(resource, meta["name"], meta.get("namespace"))
        except ApiError as error:
            if not error.not_found:
                raise
            found = None
        try:
            if found is None:
                return Put("created", await client.create(resource, item, dry_run=dry_run), written=not dry_run)
            after = await client.replace(resource, _over(resource, found, item), dry_run=dry_run)
            return Put("unchanged" if _said(found) == _said(after) else "changed", after, written=not dry_run)
        except ApiError as error:
            if number == CONFLICTS_MAX - 1 or not (error.conflict or error.exists):
                raise
    raise AssertionError("the last try returns or raises")


def _over(resource: Resource, found: Object, item: Object) -> Object:
    """What is there, with what the item says put over it."""
    meta = {key: value for key, value in found["metadata"].items() if key != "managedFields"}
    for notes in ("labels", "annotations"):
        if item["metadata"].get(notes):
            meta[notes] = {**(meta.get(notes) or {}), **item["metadata"][notes]}
    spec = {} if resource == NAMESPACES else {"spec": item.get("spec")}
    return {**found, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **spec}


def _said(item: Object) -> tuple[Any, ...]:
    meta = item["metadata"]
    return item.get("spec"), meta.get("labels") or {}, meta.get("annotations") or {}
