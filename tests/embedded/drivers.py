"""Real fleets for tests: drivers are processes of their own that may be killed, pods leave a trace when they start.

    site = Site(tmp_path)
    site.submit(site.run("train", 8, "sleep 1"))
    driver = site.up()
    site.until(lambda: "train-a1-0" in site.started())
    kill(driver)
    site.finish()
    site.judge({"train": "Completed"})
    site.close()

Every pod's command first appends the pod's name to one file, so that nobody has to be believed about what was started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tenure.api.core import Node
from tenure.api.policy import Policy
from tenure.api.run import Run
from tenure.embedded.fleet import Fleet, clock
from tenure.embedded.folder import PodFolder
from tenure.embedded.paths import pods_path
from tenure.engine import State
from tenure.ledger import LeaseRow, Ledger
from tenure.testing import budget, envelope, nodes
from tenure.testing import run as make_run
from tests.embedded.crash_support import audit
from tests.embedded.pods import alive

DEADLINE_SECONDS = 120
TENURE = (sys.executable, "-c", "import sys; from tenure.cli.main import tenure; sys.exit(tenure())")
OWNER = "org:lab"
HASTY = Policy(retry_backoff="50ms", retry_backoff_max="200ms", lookahead="1m")

HOOKED = """
import os, signal, sys
from functools import partial
from pathlib import Path
from tenure.embedded import daemon
from tenure.embedded.process import ProcessExecutor
from tenure.ledger import Ledger

path, log, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
count = 0

def hook(point):
    global count
    count += 1
    if number == 0:
        with open(log, "a") as file:
            print(point, file=file)
    if count == number:
        with open(log, "w") as file:
            print(point, file=file)
        os.kill(os.getpid(), signal.SIGKILL)

class Hooked(Ledger):
    @classmethod
    def open(cls, path, **options):
        return super().open(path, hook=hook, **options)

daemon.Ledger = Hooked
daemon.ProcessExecutor = partial(ProcessExecutor, hook=hook)
daemon.Daemon(path).run(until_idle=True)
"""
"""A driver that is killed when it reaches so many of the named points of its ledger and of its executor. With 0 it is
never killed, and writes down the points."""


class Site:
    """One embedded fleet in a folder, with real pods."""

    def __init__(
        self, folder: Path, *, machines: int = 2, gpus: int = 8, policy: Policy = HASTY, more: tuple[Node, ...] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "fleet.db"
        self.starts = folder / "starts"
        self.errors = folder / "driver.err"
        self.output = folder / "driver.out"
        self.processes: list[subprocess.Popen[bytes]] = []
        made = [*nodes("n", machines, gpus), *more]
        with Fleet.create(self.path, nodes=made, policy=policy) as fleet:
            self.pods = pods_path(self.path, fleet=fleet.ledger.fleet)
            assert fleet.apply([budget("lab", envelope("main", 1_000))]) == []

    # -- what people do --

    def run(self, name: str, gpus: int, script: str, *, grace: float = 5, **more: Any) -> Run:
        """A run whose pods first say that they started, and then do as the script says."""
        container = {"name": "main", "command": ["sh", "-c", f"echo $TENURE_POD >> {self.starts}; {script}"]}
        template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": grace}}
        return make_run(name, gpus, owner=OWNER, template=template, **more)

    def submit(self, *runs: Run) -> None:
        with Fleet.open(self.path, readonly=False) as fleet:
            assert fleet.apply(runs) == []

    def cancel(self, *names: str) -> None:
        with Fleet.open(self.path, readonly=False) as fleet:
            assert fleet.cancel([("lab", name) for name in names]) == []

    def up(self, *options: str) -> subprocess.Popen[bytes]:
        """``tenure up``, as a process that may be killed."""
        with open(self.output, "ab") as output, open(self.errors, "ab") as errors:
            return self._start([*TENURE, "up", str(self.path), *options], output, errors)

    def hooked(self, number: int, log: Path) -> subprocess.Popen[bytes]:
        """A driver that is killed at its n-th point."""
        with open(self.errors, "ab") as errors:
            command = [sys.executable, "-c", HOOKED, str(self.path), str(log), str(number)]
            return self._start(command, errors, errors)

    def _start(self, command: list[str], output: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        self.processes.append(process)
        return process

    def close(self) -> None:
        """End whatever a test that failed has left alive."""
        for process in self.processes:
            process.kill()
            process.wait()
        while left := alive(self.pods):
            for pid, _ in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def finish(self) -> None:
        """Drive until there is nothing left to do."""
        done = self.up("--until-idle")
        assert done.wait(DEADLINE_SECONDS) == 0, self.errors.read_text()

    # -- what can be seen --

    def state(self) -> State:
        with Fleet.open(self.path) as fleet:
            return fleet.state()

    def phase(self, name: str) -> str:
        row = self.state().runs.get(f"lab/{name}")
        return row.life.phase if row else "Gone"

    def until(self, so: Callable[[], object]) -> None:
        """Wait for something that a driver or a pod is about to do."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not so():
            assert time.monotonic() < deadline, f"it never came: {self.said()}"
            assert not any(process.poll() for process in self.processes[-1:]), f"the driver ended: {self.said()}"
            time.sleep(0.01)

    def started(self) -> Counter[str]:
        """Pods that really started, and how often."""
        return Counter(self.starts.read_text().split() if self.starts.exists() else ())

    def leases(self, name: str = "") -> list[LeaseRow]:
        with Ledger.open(self.path, readonly=True) as ledger:
            return [row for row in ledger.leases() if name in ("", row.lease.run)]

    def folder(self, pod: str) -> PodFolder:
        return PodFolder(self.pods, namespace="lab", pod=pod)

    def said(self) -> str:
        parts = [file.read_text() for file in (self.output, self.errors) if file.exists()]
        return "\n".join(parts)

    # -- what must be so in the end --

    def judge(self, expected: Mapping[str, str]) -> None:
        """Every run is what it should be; no pod started twice; nothing is held, nothing lives, the books are right."""
        state = self.state()
        assert {row.name: row.life.phase for row in state.runs.values()} == expected, self.said()
        assert [pod for pod, times in self.started().items() if times > 1] == []
        rows = self.leases()
        assert [row.lease.key for row in rows if row.end is None] == []
        self.check_starts(rows)
        with Ledger.open(self.path) as ledger:
            assert audit(ledger, now=clock()) == []
        assert alive(self.pods) == []

    def check_starts(self, rows: list[LeaseRow]) -> None:
        """What ran was recorded, and an attempt that completed really ran."""
        attempts = {f"{row.lease.run}-a{row.lease.attempt}": row.closure for row in rows}
        ran = {pod.rpartition("-")[0] for pod in self.started()}
        assert ran <= attempts.keys()
        assert {name for name, closure in attempts.items() if closure == "Completed"} <= ran


def kill(process: subprocess.Popen[bytes]) -> None:
    """No word of warning."""
    process.kill()
    assert process.wait() == -signal.SIGKILL


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C."""
    process.send_signal(signal.SIGINT)
    return process.wait(DEADLINE_SECONDS)


def pids(path: Path, count: int) -> list[int]:
    """Wait for so many pids in a file."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = path.read_text().split() if path.exists() else []
        if len(found) >= count:
            return [int(pid) for pid in found]
        time.sleep(0.01)
    raise AssertionError(f"{path} has no {count} pids")


def until_there(file: Path) -> str:
    """What a pod's shell does until a test is done with it: however slow the machine, it is there until then."""
    return f"until [ -e {file} ]; do sleep 0.02; done"


def is_running(pid: int) -> bool:
    try:
        return b"Z" not in Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1]
    except (FileNotFoundError, ProcessLookupError):  # it may go while one looks
        return False
