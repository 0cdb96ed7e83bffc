"""The operator behind an API server that goes wrong while it works: conflicts, throttling, errors, connections that
break before and after a write was applied, watches that drop, fall silent or expire, and lists that are old.

Every operation comes to the same end as without faults; the books are audited, and nothing is left over.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.audit import Auditor
from tenure.facts import encode_entry
from tenure.kube.informer import STALE_LISTS_MAX
from tenure.kube.operator import Options, clock
from tenure.testing.kube import ControlPlane, Kwok, until
from tenure.testing.kube.proxy import Fault, FaultProxy
from tests.kube.operating import Running, installed
from tests.kube.test_crashes import STAGES, Stage
from tests.kube.worlds import World, budget

WRITES = ("POST", "PUT", "PATCH", "DELETE")
OF_WRITES = ("throttle", "conflict", "error", "error-after", "reset-before", "reset-after")
OF_WATCHES = ("drop", "expire", "silent")
OPTIONS = Options(hold=0.05, watch_seconds=2)
KINDS = 9
"""How many the operator watches."""
STALE = 3
"""Old lists of each kind. A server that insists on the past for longer is believed: then etcd was set back."""
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("faults")
    with ControlPlane.started(folder, programs) as plane, Kwok.started(programs["kwok"], plane.admin, folder):
        installed(plane, guarded=True)
        plane.api.create(budget()).must()
        yield plane


@pytest.fixture(scope="module")
def proxy(cluster: ControlPlane) -> Iterator[FaultProxy]:
    """Between the operator and the API server; it calls with the operator's account."""
    with FaultProxy.started(cluster.service_account("tenure-system", "tenure-operator")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def running(proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("journal")
    running = Running(proxy.write_kubeconfig(folder / "config"), folder / "journal", OPTIONS, timeout=5.0)
    yield running
    running.stop()


@pytest.fixture(params=STAGES)
def act(request: pytest.FixtureRequest, cluster: ControlPlane, running: Running, proxy: FaultProxy) -> Iterator[Stage]:
    act = STAGES[request.param](World.made(cluster, f"f{next(_NUMBERS)}"))
    act.before()
    running.settled()
    yield act
    proxy.heal()
    print(*running.troubles, sep="\n")
    running.troubles.clear()
    world = act.world
    for one in world.items("runs"):
        world.delete("runs", one["metadata"]["name"])
    try:
        until(lambda: not world.items("runs"))
    except TimeoutError:
        print(*running.troubles, *(world.items("runs") + world.pods()), sep="\n")
        print(*((one.resource.plural, one.failures, one.lists) for one in running.operator.caches.values()))
        print(running.operator.ready, running.operator.alive, running.operator.desk.idle, running.failed)
        raise
    for name in act.nodes:
        world.api.delete(f"/api/v1/nodes/{name}").must()


def ends_well(act: Stage, running: Running, proxy: FaultProxy, faults: list[Fault]) -> None:
    """Wait for the end, with faults; then for quiet, without; then look at everything."""
    until(act.is_done)
    assert any(fault.hits for fault in faults), "nothing went wrong: the test shows nothing"
    proxy.heal()
    running.settled()
    assert act.is_done()
    auditor = Auditor()
    found = [one for entry in running.store.entries() for one in auditor.feed_raw(encode_entry(entry))]
    found += auditor.check(clock(), settled=True)
    assert not found, "\n".join(map(str, found))
    written = {lease["metadata"]["name"] for lease in act.world.leases()}
    decided = {one.name for one, _, _ in running.store.lease_history() if one.namespace == act.world.namespace}
    assert written == decided
    until(lambda: _head(act) == (running.store.head.seq, running.store.head.hash))  # machines go on reporting meanwhile


def _head(act: Stage) -> tuple[int, str]:
    head = act.world.api.get("/apis/rq.davidlangworthy.io/v1/ledgerheads/head").must()["spec"]
    return head["seq"], head["hash"]


@pytest.mark.parametrize("kind", OF_WRITES)
def test_writes_that_go_wrong(act: Stage, running: Running, proxy: FaultProxy, kind: str) -> None:
    """Of each verb every other write fails, ten times."""
    faults = [proxy.fail(kind, method=method, skip=skip) for skip in range(9, -1, -1) for method in WRITES]
    act.do()
    ends_well(act, running, proxy, faults)


@pytest.mark.parametrize("kind", OF_WATCHES)
def test_watches_that_go_wrong(act: Stage, running: Running, proxy: FaultProxy, kind: str) -> None:
    """Every watch does, and while they do everything happens."""
    fault = proxy.fail(kind, times=KINDS if kind == "silent" else 2 * KINDS)  # silence takes its time
    until(lambda: fault.hits >= KINDS)
    act.do()
    ends_well(act, running, proxy, [fault])


def test_lists_that_are_old(act: Stage, running: Running, proxy: FaultProxy) -> None:
    """Every watch expires twice, and the lists that follow are those of the beginning."""
    assert STALE < STALE_LISTS_MAX
    paths = [f"/{one.resource.plural}?" for one in running.operator.caches.values()]
    assert len(paths) == KINDS
    stale = [proxy.fail("stale", method="GET", path=path, times=STALE) for path in paths]
    for path in paths:
        proxy.fail("expire", path=path, times=2)
    until(lambda: all(fault.hits for fault in stale))
    act.do()
    ends_well(act, running, proxy, stale)


def test_a_server_that_is_away_for_a_while(act: Stage, running: Running, proxy: FaultProxy) -> None:
    faults = [proxy.fail("reset-before", times=100_000), proxy.fail("drop", times=100_000)]
    act.do()
    until(lambda: faults[0].hits > 20)
    proxy.heal()
    until(act.is_done)
    ends_well(act, running, proxy, faults)
