"""Names for completions: little is read, and nothing is written. The same questions in both homes.

An embedded fleet is asked for its state, which is as quick as any verb. A cluster is asked for objects, a few hundred
at most: the copy of its ledger may have to be filled first, and nobody waits for that at a prompt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.api.meta import OWNER_ANNOTATION

if TYPE_CHECKING:
    from tenure.cli.port import View
    from tenure.cli.session import Session

Row = tuple[str, str]
MOST = 500
"""Objects that a cluster is asked for."""


class LocalNames:
    """The names in an embedded fleet."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def _view(self) -> View:
        with self._session.fleet() as fleet:
            return fleet.view()

    def runs(self, namespace: str | None) -> list[tuple[str, str, str]]:
        return [(line.namespace, line.name, line.phase) for line in self._view.lines(namespace)]

    def owners(self) -> list[Row]:
        budgets = {one.spec.owner: f"Budget {one.metadata.name}" for one in self._view.budgets()}
        return sorted({**{line.owner: "" for line in self._view.lines()}, **budgets}.items())

    def budgets(self) -> list[Row]:
        return [(one.metadata.name, one.spec.owner) for one in self._view.budgets()]

    def envelopes(self) -> list[Row]:
        return [(each.name, one.metadata.name) for one in self._view.budgets() for each in one.spec.envelopes]

    def nodes(self) -> list[Row]:
        return [(line.name, f"{line.flavor} {line.state}") for line in self._view.nodes()]

    def namespaces(self) -> list[Row]:
        return [(name, "") for name in sorted({line.namespace for line in self._view.lines()})]


class ClusterNames:
    """The names in a cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def runs(self, namespace: str | None) -> list[tuple[str, str, str]]:
        from tenure.kube.resources import RUNS

        found = self._list(RUNS.path(namespace))
        return [
            (one["metadata"]["namespace"], one["metadata"]["name"], (one.get("status") or {}).get("phase", ""))
            for one in found
        ]

    def owners(self) -> list[Row]:
        from tenure.kube.resources import BUDGETS, NAMESPACES

        owners = {one["spec"]["owner"]: f"Budget {one['metadata']['name']}" for one in self._list(BUDGETS.path())}
        for one in self._list(NAMESPACES.path()):
            if owner := (one["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION):
                owners.setdefault(owner, f"namespace {one['metadata']['name']}")
        return sorted(owners.items())

    def budgets(self) -> list[Row]:
        from tenure.kube.resources import BUDGETS

        return [(one["metadata"]["name"], one["spec"]["owner"]) for one in self._list(BUDGETS.path())]

    def envelopes(self) -> list[Row]:
        from tenure.kube.resources import BUDGETS

        found = self._list(BUDGETS.path())
        return [(each["name"], one["metadata"]["name"]) for one in found for each in one["spec"]["envelopes"]]

    def nodes(self) -> list[Row]:
        from tenure.kube.resources import NODES

        found = self._list(NODES.path())
        return [(one["metadata"]["name"], (one["metadata"].get("labels") or {}).get("gpu.flavor", "")) for one in found]

    def namespaces(self) -> list[Row]:
        from tenure.kube.resources import NAMESPACES

        found = self._list(NAMESPACES.path())
        return [
            (one["metadata"]["name"], (one["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION, ""))
            for one in found
        ]

    def _list(self, path: str) -> list[dict[str, Any]]:
        """The first objects of a kind; none where we may not look."""
        import asyncio

        import msgspec

        from tenure.cli.reach import access_to
        from tenure.kube.client import Client
        from tenure.kube.errors import ApiError

        async def asked() -> bytes:
            async with Client(access_to(self._session.kubeconfig, self._session.context)) as client:
                return await client.call("GET", path, query={"limit": MOST})

        try:
            items: list[dict[str, Any]] = msgspec.json.decode(asyncio.run(asked())).get("items") or []
        except ApiError:
            return []
        return items


def contexts(session: Session) -> Iterator[Row]:
    """The contexts of the kubeconfig."""
    import yaml

    named = str(session.kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    for file in named.split(os.pathsep):
        content = yaml.safe_load(Path(file).read_text()) if Path(file).is_file() else {}
        for one in (content or {}).get("contexts") or ():
            yield one["name"], (one.get("context") or {}).get("cluster", "")
