"""Whether what a copy does not show is really gone: only what we have seen ourselves, and see no longer.

The ledger may know objects that our copies have not been told of yet: another operator saw them first. To take such an
object for deleted would end a run, or close leases of a budget, that nobody has touched. So one that we never saw is
looked for, by a read that is not served from a copy, and counts as gone when that does not find it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.resources import BUDGETS, NAMESPACES, NODES, RUNS

Kind = Literal["ConfigMap", "Namespace", "Budget", "Node", "Run", "Pod"]
Mark = tuple[Kind, str]
Object = dict[str, Any]
Look = Callable[[], Awaitable[None]]
_RESOURCES = {one.kind: one for one in (NAMESPACES, BUDGETS, NODES, RUNS)}


class Absent:
    """What was seen of each object, by its uid: of a name that is used again, each one is another."""

    def __init__(self) -> None:
        self.missing: dict[Mark, str] = {}
        """Objects that should be looked for, and the uid of each."""
        self._seen: dict[Mark, str] = {}
        self._gone: dict[Mark, str] = {}
        """Those that were looked for in vain, or whose name another has by now."""

    def saw(self, mark: Mark, item: Object) -> None:
        """A copy shows it."""
        uid, before = item["metadata"]["uid"], self._seen.get(mark)
        if before not in (None, uid):
            self._gone[mark] = before
        self._seen[mark] = uid

    def is_gone(self, mark: Mark, uid: str) -> bool:
        """Whether an object that the state knows, and a copy does not show, is gone; if not, it is to be looked for."""
        if uid in (self._seen.get(mark), self._gone.get(mark)):
            return True
        self.missing[mark] = uid
        return False

    def forget(self, mark: Mark) -> None:
        """Neither is it there, nor does the state know it."""
        self._seen.pop(mark, None)
        self._gone.pop(mark, None)

    def search(self, client: Client, found_out: Callable[[Mark], None]) -> list[tuple[Mark, Look]]:
        """What to do to look for each; ``found_out`` is called for what is not there."""
        missing, self.missing = self.missing, {}
        return [(mark, self._looking(client, mark, uid, found_out)) for mark, uid in missing.items()]

    def _looking(self, client: Client, mark: Mark, uid: str, found_out: Callable[[Mark], None]) -> Look:
        namespace, _, name = mark[1].rpartition("/")

        async def look() -> None:
            try:
                found = await client.get(_RESOURCES[mark[0]], name, namespace or None)
            except ApiError as error:
                if not error.not_found:
                    raise
                found = None
            if found is None or found["metadata"]["uid"] != uid:
                self._gone[mark] = uid
                found_out(mark)

        return look
