"""A cluster with Tenure installed and nothing of it running: whatever is refused, the API server refuses by itself."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.install import install
from tenure.kube.system import System
from tenure.testing.kube import ControlPlane
from tests.kube.anchor.world import World

# Nobody listens there: the webhook is down.
NOWHERE = System(webhook_url="https://127.0.0.1:9")


def installed(plane: ControlPlane, system: System) -> None:
    async def go() -> None:
        async with Client(from_kubeconfig(plane.admin)) as client:
            await install(client, system)

    asyncio.run(go())


@pytest.fixture(scope="session")
def guarded(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster of our own: its policies would stand in the way of tests that play the scheduler themselves."""
    with ControlPlane.started(tmp_path_factory.mktemp("guarded"), programs) as plane:
        installed(plane, NOWHERE)
        yield plane


@pytest.fixture(scope="session")
def world(guarded: ControlPlane) -> World:
    return World.made(guarded, NOWHERE)
