"""A cluster whose ledger belongs to these tests: there is one LedgerHead in a cluster, so they share it with nobody.

Every test begins with an empty ledger. What tests look at to judge is read by ``plane.api``, which knows nothing of the
client and the store under test.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure.api.crd import manifest
from tenure.api.ledger_objects import manifest as ledger_manifest
from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.loop import IO
from tenure.kube.resources import LEASES, RESERVATIONS
from tenure.kube.store import KubeStore
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.proxy import FaultProxy

ENTRIES = "/apis/rq.davidlangworthy.io/v1/ledgerentries"
HEADS = "/apis/rq.davidlangworthy.io/v1/ledgerheads"
HEAD = f"{HEADS}/head"

OpenStore = Callable[..., KubeStore]
"""Opens a store with a journal of the given name."""


@pytest.fixture(scope="session")
def books(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The cluster, with the kinds of the ledger, leases and reservations."""
    with ControlPlane.started(tmp_path_factory.mktemp("books"), programs) as plane:
        kinds = (
            ledger_manifest("LedgerEntry"),
            ledger_manifest("LedgerHead"),
            manifest("Lease"),
            manifest("Reservation"),
        )
        for each in kinds:
            plane.ensure(each)
        paths = (ENTRIES, HEADS, LEASES.path(), RESERVATIONS.path())
        until(lambda: all(plane.api.get(path).ok for path in paths))
        yield plane


@pytest.fixture
def empty(books: ControlPlane) -> ControlPlane:
    """The cluster, with an empty ledger."""
    for path in (ENTRIES, HEADS):
        books.api.call("DELETE", path).must()
    return books


@pytest.fixture
def client(empty: ControlPlane, connect: Callable[[Access], Client]) -> Client:
    """A client of the cluster with the empty ledger."""
    return connect(from_kubeconfig(empty.admin))


@pytest.fixture
def proxy(empty: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy.started(empty.admin) as proxy:
        yield proxy


@pytest.fixture
def faulty(proxy: FaultProxy, connect: Callable[..., Client]) -> Client:
    """A client behind the proxy, with little patience."""
    return connect(Access(server=proxy.server), timeout=3.0)


@pytest.fixture
def open_store(io: IO, client: Client, tmp_path: Path) -> Iterator[OpenStore]:
    with ExitStack() as opened:

        def opener(name: str = "journal", *, through: Client | None = None, **how: Any) -> KubeStore:
            path = tmp_path / name / "journal.db"
            return opened.enter_context(KubeStore.open(io, through or client, path, fleet="lab", **how))

        yield opener


@pytest.fixture
def store(open_store: OpenStore) -> KubeStore:
    return open_store()
