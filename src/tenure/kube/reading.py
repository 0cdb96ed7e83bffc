"""A reader's copy of the ledger: what `kubectl runs` answers from.

    copy = Copy.of(io, client, folder)      # None: this cluster has no ledger yet
    copy.refresh()                          # what was committed up to now; only what is new is read

The copy is an ordinary ledger in a folder of the user's own, one for each LedgerHead: a cluster that is set up anew has
another one, and another copy. Every entry is checked against its hash and the chain on its way in, and the copy ends
where the LedgerHead said that the ledger ends, never in the middle of a commit. Several commands may share a copy: one
of them fills it at a time, and the others find it filled.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tenure.api.ledger_objects import HEAD, LedgerHeadSpec
from tenure.api.meta import GROUP
from tenure.kube.archive import Archive
from tenure.kube.client import Client
from tenure.kube.errors import ApiError
from tenure.kube.heads import fence_of
from tenure.kube.journal import open_journal
from tenure.kube.loop import IO
from tenure.kube.resources import LEDGER_HEADS
from tenure.kube.store import KubeStore
from tenure.ledger import Ledger, sidecar

FOLDER_VARIABLE = "TENURE_CACHE"
LEDGER = "ledger.db"


class NotInstalled(Exception):
    """The API server does not know our kinds."""


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where copies are kept: ``TENURE_CACHE``, else ``tenure`` in the user's cache folder.

    >>> str(cache_folder({"XDG_CACHE_HOME": "/home/ada/.cache"}))
    '/home/ada/.cache/tenure'
    """
    environment = os.environ if environment is None else environment
    if environment.get(FOLDER_VARIABLE):
        return Path(environment[FOLDER_VARIABLE])
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environment.get("HOME", "~")).expanduser() / ".cache") / "tenure"


class Copy(KubeStore):
    """The ledger of one cluster, to read."""

    copy = "the copy on this computer"
    no_archive = "no archive was named"
    folder = Path()
    grew = False
    """Whether anything was taken in since somebody last set this back."""

    @classmethod
    def of(
        cls,
        io: IO,
        client: Client,
        folder: Path,
        *,
        archive: Path | None = None,
        told: Callable[[int], None] = lambda behind: None,
    ) -> Self | None:
        """The copy in ``folder`` for the cluster that the client reaches, filled up to its head; None if the cluster
        has no ledger. ``told`` hears before how many entries it lacks. Raises ``NotInstalled``, ``ApiError`` or
        ``StoreRefused``."""
        try:
            found = io.run(client.get(LEDGER_HEADS, HEAD))
        except ApiError as error:
            if not error.not_found:
                raise
            if f'"{HEAD}" not found' not in error.message:
                raise NotInstalled(f"the API server knows no {GROUP}") from error
            return None
        place = folder / str(found["metadata"]["uid"])
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        segments = None if archive is None else Archive(archive)
        with _alone(place):
            journal = _opened(place / LEDGER, fence_of(found).spec)
        copy = cls(io, client, journal, archive=segments)
        copy.folder = place
        told(fence_of(found).spec.seq - copy.head.seq)
        try:
            copy.refresh()
        except BaseException:
            copy.close()
            raise
        return copy

    def refresh(self) -> None:
        with _alone(self.folder):
            before = self.head.seq
            super().refresh()
            self.grew = self.grew or self.head.seq != before


def _opened(path: Path, head: LedgerHeadSpec) -> Ledger:
    """The copy's file. A file whose anchor is left without it is simply made again: nothing is lost with a copy."""
    if not path.exists():
        sidecar(path).unlink(missing_ok=True)
    return open_journal(path, anchor=None, head=head, fill=lambda journal: None)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One at a time fills a copy."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
