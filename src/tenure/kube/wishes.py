"""What an administrator asks of the operator about one Run: to make room for it now (`kubectl runs resolve`).

An API server has no verb for that, so the wish is written on the Run, as an annotation: when it was asked. Who may set
it is for the admission policies to say (the verb ``resolve`` on runs). The operator answers in the ledger, as an entry
like any other, and takes the annotation away. One that dies in between finds the wish again and asks the engine once
more; by then the run has started or its draw is frozen, and nothing more is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tenure.api.meta import GROUP
from tenure.engine import Resolve, State
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.marks import RESOLVE
from tenure.kube.resources import RUNS

Object = dict[str, Any]
Get = Callable[[str], Object | None]
PATH = f"/metadata/annotations/{GROUP}~1resolve"


def wish_of(item: Object | None) -> str:
    """What is asked on a Run: empty if nothing is."""
    notes = ((item or {}).get("metadata") or {}).get("annotations") or {}
    return str(notes.get(RESOLVE) or "")


class Wishes:
    """Which wishes were granted, so that each is granted once."""

    def __init__(self, get: Get) -> None:
        self._get = get
        self._granted: dict[str, str] = {}

    def among(self, keys: Iterable[str], state: State) -> Iterator[Resolve]:
        """New wishes on Runs that the engine knows."""
        for key in sorted(keys):
            wish = wish_of(self._get(key))
            if not wish:
                self._granted.pop(key, None)
            elif key in state.runs and self._granted.get(key) != wish:
                yield Resolve(key)

    def granted(self, key: str) -> str:
        """The engine was asked and its answer is committed; returns the wish, to be taken away."""
        self._granted[key] = wish = wish_of(self._get(key))
        return wish


async def take_away(client: Client, key: str, wish: str) -> None:
    """Remove a wish from a Run, unless it is another one by now."""
    namespace, _, name = key.partition("/")
    change = [{"op": "test", "path": PATH, "value": wish}, {"op": "remove", "path": PATH}]
    try:
        await client.patch(RUNS, name, change, namespace, kind="json")
    except ApiError as error:
        if not error.not_found and error.code != 422:
            raise
