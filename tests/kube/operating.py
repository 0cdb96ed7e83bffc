"""An operator on a real API server, in a thread of the test: started, stopped, started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenure.api import ledger_objects
from tenure.api.meta import API_VERSION
from tenure.kube.client import Client
from tenure.kube.config import from_kubeconfig
from tenure.kube.install import manifests
from tenure.kube.loop import IO, hang_up
from tenure.kube.operator import Operator, Options
from tenure.kube.store import KubeStore
from tenure.kube.system import System
from tenure.observe.meter import Meter
from tenure.shell.custodian import SimulatedCustodian
from tenure.testing.kube import ControlPlane, until
from tenure.testing.kube.waiting import PATIENCE

Object = dict[str, Any]
FLEET = "test-fleet"


class Running:
    """An operator that runs until it is stopped."""

    def __init__(
        self,
        config: Path,
        folder: Path,
        options: Options | None = None,
        *,
        make: type[Client] = Client,
        meter: Meter | None = None,
        leading: Callable[[], bool] = lambda: True,
        **rest: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.io = IO()
        self.client = make(from_kubeconfig(config), **rest)
        self.store = KubeStore.open(self.io, self.client, folder / "journal.db", fleet=FLEET)
        self.troubles: list[str] = []
        custodian = SimulatedCustodian("secret")
        self.operator = Operator(
            self.io, self.client, self.store, options=options, report=self.troubles.append, custodians=[custodian],
            roots=[(custodian.beacon, custodian.root)], meter=meter,
        )  # fmt: skip
        self.operator.leading = leading
        self.failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.operator.run()
        except BaseException as error:
            self.failed = error

    def stop(self) -> None:
        self.operator.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the operator does not stop"
        self._close()
        if self.failed is not None:
            raise self.failed

    def bury(self) -> None:
        """The process was killed: nothing of it writes any more, and its memory is gone."""
        self.operator.stopping.set()
        self.operator.bell.ring()
        self.operator.desk.close()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the dead do not walk"
        self.operator.informers.stop()
        self._close()

    def _close(self) -> None:
        self.io.loop.call_soon_threadsafe(self.io.loop.set_exception_handler, lambda loop, context: None)
        self.io.run(self.client.close())
        self.io.run(hang_up())
        self.store.close()
        self.io.close()

    def settled(self, seconds: float = PATIENCE) -> None:
        """Wait until nothing is left to be written, for a moment."""
        deadline = time.monotonic() + seconds
        quiet = 0
        while quiet < 3:
            assert self.failed is None, self.failed
            assert time.monotonic() < deadline, "the operator does not settle"
            quiet = quiet + 1 if self.operator.ready and self._has_written() else 0
            time.sleep(0.05)

    def _has_written(self) -> bool:
        """Whether nothing waits to be written: at the desk, or held back for a second since it may change again."""
        operator = self.operator
        held = operator.leading() and (operator.intake.waiting or operator.materialiser.next_flush() is not None)
        return operator.desk.idle and not held


@contextmanager
def operating(config: Path, folder: Path, options: Options | None = None, **rest: Any) -> Iterator[Running]:
    running = Running(config, folder, options, **rest)
    try:
        until(lambda: running.operator.ready or running.failed)
        yield running
    finally:
        running.stop()


def installed(plane: ControlPlane, *, guarded: bool = False) -> None:
    """Install Tenure; ``guarded``: with the admission policies, which let nobody tidy up."""
    kinds = [ledger_objects.manifest(kind) for kind in ledger_objects.RESOURCES]
    for item in [*kinds, *manifests(System())]:
        if guarded or not item["apiVersion"].startswith("admissionregistration"):
            plane.api.apply(item).must()
    for name in ("runs", "budgets", "leases", "reservations", "ledgerheads", "ledgerentries"):
        until(lambda name=name: plane.api.get(f"/apis/{API_VERSION}/{name}").ok)
