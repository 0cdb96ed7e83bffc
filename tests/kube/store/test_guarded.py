"""The ledger as the operator's account keeps it, in a cluster with every role and admission policy in force."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.api.meta import to_wire
from tenure.api.policy import Policy
from tenure.engine import Apply, SetPolicy, render
from tenure.kube.client import Client
from tenure.kube.config import Access, from_kubeconfig
from tenure.kube.install import install
from tenure.kube.loop import IO
from tenure.kube.refusals import Code, StoreRefused
from tenure.kube.retention import retire, sweep
from tenure.kube.store import KubeStore
from tenure.kube.system import System
from tenure.shell.home import Home
from tenure.shell.simulated import SimulatedExecutor
from tenure.testing import START, budget, envelope, nodes, run
from tenure.testing.kube import ControlPlane
from tenure.testing.kube.api import path_of
from tenure.units import HOUR
from tests.cli.support import call
from tests.kube.store.conftest import ENTRIES, HEAD
from tests.kube.store.test_commit import causes, objects_of, say


@pytest.fixture
def guarded(new_plane: Callable[[], ControlPlane]) -> ControlPlane:
    plane = new_plane()

    async def installed() -> None:
        async with Client(from_kubeconfig(plane.admin)) as client:
            await install(client, System())

    asyncio.run(installed())
    return plane


def access(plane: ControlPlane) -> Access:
    """The operator's, by its token."""
    system = System()
    token = plane.token(system.namespace, system.account)
    return Access(server=plane.server, ca=from_kubeconfig(plane.admin).ca, token=token)


def lease_object(item: tuple[Any, Any, Any]) -> dict[str, Any]:
    lease, end, closure = item
    return to_wire(render.lease(lease, end=end, closure=closure))  # type: ignore[no-any-return]  # a mapping


def test_the_operators_account_may_do_all_that_the_ledger_needs_and_nobody_else(
    guarded: ControlPlane, io: IO, connect: Callable[[Access], Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, archive = connect(access(guarded)), tmp_path / "archive"
    operator = guarded.bearer(client.access.token)
    with (
        KubeStore.open(io, client, tmp_path / "one.db", fleet="lab", archive=archive) as one,
        KubeStore.open(io, client, tmp_path / "two.db", fleet="lab", archive=archive) as two,
    ):
        home = Home(one, SimulatedExecutor())
        home.handle(SetPolicy(Policy()), now=START)
        home.handle(Apply((*nodes("n", 1), budget("a", envelope(hours=1000)))), now=START)
        home.handle(Apply((run("x", 8, owner="org:a", lasts="1h"),)), now=START)
        home.drive(now=START)
        home.drive(now=START + HOUR)
        guarded.namespace("lab")
        for row in one.lease_history():
            item = lease_object(row)
            operator.create(item).must()
            operator.patch(f"{path_of(item)}/status", {"status": item["status"]}).must()
        with pytest.raises(StoreRefused, match="Outrun"):
            say(two, "late", at=START)
        two.refresh()
        say(two, "b", at=START + 9 * HOUR)
        one.refresh()
        assert sweep(one) == 1
        done = retire(one, before=START + 5 * HOUR)
        assert (done.leases, len(done.segments), len(objects_of(guarded))) == (1, 1, 1)

        name = objects_of(guarded)[0]["metadata"]["name"]
        for path in (HEAD, f"{ENTRIES}/{name}"):
            refused = guarded.api.delete(path)
            assert (refused.status, "only the Tenure operator writes" in refused.message) == (403, True), refused
        stranger = connect(from_kubeconfig(guarded.admin))
        with KubeStore.open(io, stranger, tmp_path / "three.db", fleet="lab", archive=archive) as three:
            assert causes(three) == causes(one), "who may read, reads all"
            with pytest.raises(StoreRefused) as no:
                say(three, "forged", at=START + 10 * HOUR)
            assert no.value.code is Code.NotAllowed
        journal = str(one.ledger.path)

    monkeypatch.setenv("KUBECONFIG", str(guarded.admin))
    restored = call("tenure", "ledger", "restore", journal)
    assert (restored.code, restored.err) == (0, "")
