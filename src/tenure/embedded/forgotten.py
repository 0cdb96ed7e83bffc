"""Pods that the engine keeps no longer, though something of them may be alive.

An engine asks its pods to stop and keeps them until they are gone, except those of a node that was fenced: these it
takes for dead, and their GPUs are free at once. And a ledger that was put back to an older copy knows nothing of pods
that started since. On this machine their processes live on, beside whatever gets their GPUs next: so they have to end.

A pod is forgotten when it was handed over the last time and is not this time. An executor made a moment ago does not
know what its predecessor was handed: it looks through the folders, once, for pods that started and have not ended. A
pod that the engine holds back was never handed over, and has no folder yet: it is not forgotten.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Set
from pathlib import Path

from tenure.embedded.folder import PodFolder, find_open
from tenure.facts import Pod


class Forgotten:
    """The forgotten pods of one root, until nothing of them is alive."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handed: Set[str] | None = None
        """The pods that were handed over last; None before the first time."""
        self._folders: dict[str, PodFolder] = {}

    def __iter__(self) -> Iterator[tuple[str, PodFolder]]:
        """By key; any of them may be dropped meanwhile."""
        return iter(sorted(self._folders.items(), key=lambda item: item[0]))

    def notice(self, keys: Set[str], *, gone: Iterable[str] | None = None) -> None:
        """Take note of which pods are handed over now, and so of which are not any more: ``gone``, if that is known."""
        if self._handed is None:
            gone = set(find_open(self._root)) - keys
        elif gone is None:
            gone = self._handed - keys
        self._handed = keys
        for key in gone:
            namespace, _, name = key.partition("/")
            with contextlib.suppress(ValueError):  # such a name never became a folder of ours
                folder = PodFolder(self._root, namespace=namespace, pod=name)
                if folder.is_open():
                    self._folders[key] = folder

    def drop(self, key: str) -> None:
        """Nothing of it is alive any more."""
        del self._folders[key]

    def are_on_gpus_of(self, pod: Pod) -> bool:
        """Whether a forgotten pod may still be alive on a GPU that this one is to have."""
        return any(_is_on_gpus_of(folder, pod) for folder in self._folders.values())


def _is_on_gpus_of(folder: PodFolder, pod: Pod) -> bool:
    spec = None
    with contextlib.suppress(OSError):
        spec = folder.spec()
    if spec is None or spec.node not in ("", pod.node):
        return False
    return not set(spec.devices.split(",")).isdisjoint(map(str, pod.gpus))
