"""A world for executor tests: it keeps what was reported of each pod, as the engine does, and asks again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tenure.embedded.folder import PodFolder
from tenure.embedded.launch import TOKEN
from tenure.embedded.process import ProcessExecutor
from tenure.facts import Pod, PodPhase
from tenure.shell.executor import Executor, PodReport, PodWork
from tenure.units import Instant

DEADLINE_SECONDS = 120


def clock() -> Instant:
    return time.time_ns() // 1000


def pod(name: str, *, namespace: str = "rai", run: str = "train", node: str = "a-00", group: int = 0) -> Pod:
    return Pod(namespace=namespace, name=name, run=run, attempt=1, group=group, rank=0, node=node, gpus=(0, 1))


def container(script: str, *, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": ["sh", "-c", script], **more}


def manifest(*containers: dict[str, Any], grace: float = 5, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), "terminationGracePeriodSeconds": grace, **spec}}


class World:
    """Pods by name, in namespace ``rai``, and every report about them."""

    def __init__(self, root: Path, executor: Executor | None = None) -> None:
        self.root = root
        self.executor: Executor = executor or ProcessExecutor(root)
        self.work: dict[str, PodWork] = {}
        self.reports: list[PodReport] = []

    def place(self, name: str, *containers: dict[str, Any], grace: float = 5, **spec: Any) -> None:
        tree = manifest(*containers, grace=grace, **spec)
        self.work[name] = PodWork(pod=pod(name), known="Placed", since=clock(), manifest=tree)

    def run(self, name: str, script: str, **more: Any) -> None:
        self.place(name, container(script), **more)

    def stop(self, name: str) -> None:
        self.work[name] = replace(self.work[name], stop=True, since=clock())

    def step(self) -> list[PodReport]:
        """One pass: what an engine does with its executor."""
        reports = self.executor.reconcile(list(self.work.values()), now=clock())
        for report in reports:
            name = report.key.partition("/")[2]
            if report.phase == "Gone":
                del self.work[name]
            else:
                self.work[name] = replace(self.work[name], known=report.phase, since=report.at)
        self.reports += reports
        return reports

    def until(self, name: str, *phases: PodPhase) -> PodReport:
        """The report that a pod is so; passes the time as the executor asks for it until there is one."""
        if name in self.work and self.work[name].known in phases:
            return next(report for report in reversed(self.reports) if report.key == f"rai/{name}")
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for report in self.step():
                if report.key == f"rai/{name}" and report.phase in phases:
                    return report
            wake = self.executor.next_wake()
            assert wake is not None, f"nobody will ever look at {name} again; it is {self.work}"
            time.sleep(max(0, wake - clock()) / 1e6)
        raise AssertionError(f"{name} was never {phases}; reported: {self.reports}")

    def phases(self, name: str) -> list[str]:
        return [report.phase for report in self.reports if report.key == f"rai/{name}"]

    def folder(self, name: str) -> PodFolder:
        return PodFolder(self.root, namespace="rai", pod=name)

    def log(self, name: str, container: str = "main") -> str:
        return (self.folder(name).path / f"{container}.log").read_text()

    def close(self) -> None:
        """Stop everything, and check that nothing of any pod is alive."""
        for name in list(self.work):
            self.stop(name)
        while self.work:
            self.until(next(iter(self.work)), "Gone")
        assert alive(self.root) == []


def wait_for(path: Path) -> str:
    """Wait until a file is there and has something in it; returns that."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.005)
    raise AssertionError(f"{path} never appeared")


def wait_for_nobody(root: Path) -> None:
    """Wait until nothing of any pod under a root is alive, its supervisors included."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (left := alive(root)) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert left == []


def alive(root: Path) -> list[tuple[int, str]]:
    """Every live process of a pod under a root, found by its token or by its supervisor's arguments."""
    tokens = {
        f"{TOKEN}={spec.token}".encode()
        for path in root.glob("*/*/spec.json")
        if (spec := PodFolder(root, namespace=path.parts[-3], pod=path.parts[-2]).spec()) is not None
    }
    found = [(int(path.name), _read(path / "cmdline")) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [
        (pid, line.replace(b"\0", b" ").decode(errors="replace"))
        for pid, line in found
        if line and ((str(root).encode() in line and b"shim" in line) or _environ(pid) & tokens)
    ]


def is_alive(pid: int) -> bool:
    """Alive, and more than a zombie that its parent has not buried."""
    return _read(Path(f"/proc/{pid}/cmdline")) != b""


def _environ(pid: int) -> set[bytes]:
    return set(_read(Path(f"/proc/{pid}/environ")).split(b"\0"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
