"""The tier on a real API server: one cluster for each worker, and a namespace of its own for each test.

Where the programs cannot be had, the tests here are left out, and each says why; with CI=true they fail instead.
A cluster takes seconds to start, so a test that breaks or restarts one asks for another (``new_plane``).
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure.kube.client import Client
from tenure.kube.config import Access
from tenure.kube.loop import IO
from tenure.testing.kube import ControlPlane, Kwok
from tools.kube_assets import Unobtainable, assets

Programs = dict[str, Path]


@pytest.fixture(scope="session")
def programs() -> Programs:
    """etcd, kube-apiserver, kubectl, KWOK and the controllers, by name."""
    try:
        return assets()
    except Unobtainable as error:
        why = f"tests/kube needs a real control plane: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="session")
def plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The cluster that most tests share. Its cluster-wide objects are everybody's: name yours after the test."""
    with ControlPlane.started(tmp_path_factory.mktemp("plane"), programs) as plane:
        yield plane


@pytest.fixture(scope="session")
def kwok(plane: ControlPlane) -> Iterator[Kwok]:
    """KWOK on the shared cluster: every node runs what is bound to it."""
    with Kwok.started(plane.programs["kwok"], plane.admin, plane.folder) as kwok:
        yield kwok


@pytest.fixture
def new_plane(programs: Programs, tmp_path: Path) -> Iterator[Callable[[], ControlPlane]]:
    """Starts clusters of the test's own, as many as it asks for."""
    numbers = itertools.count()
    with ExitStack() as running:
        yield lambda: running.enter_context(ControlPlane.started(tmp_path / f"plane-{next(numbers)}", programs))


@pytest.fixture
def io() -> Iterator[IO]:
    with IO() as io:
        yield io


@pytest.fixture
def connect(io: IO) -> Iterator[Callable[..., Client]]:
    """Makes clients, and closes them."""
    clients: list[Client] = []

    def connected(access: Access, **how: Any) -> Client:
        clients.append(client := Client(access, **how))
        return client

    yield connected
    for client in clients:
        io.run(client.close())


_NUMBERS = itertools.count()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A namespace that no other test knows, ready for pods."""
    return plane.namespace(f"test-{next(_NUMBERS)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure says where the logs of its cluster are."""
    report = yield
    for name, value in getattr(item, "funcargs", {}).items():
        if report.failed and isinstance(value, ControlPlane):
            report.sections.append((f"control plane {name!r}", f"its logs: {value.folder}"))
    return report
