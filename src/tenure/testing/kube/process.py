"""One program of the control plane: started with its log in a file, stopped, killed, or held still for a while.

A program dies with the process that started it, unless it is asked to outlive it (``make kube-up``). The kernel
sees to that, through ``setpriv``, where that is installed; it counts the *thread* that starts, so start programs
from one that stays.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

STOP_SECONDS = 10.0
LOG_LINES = 30


class NotStarted(Exception):
    """A program ended, or did not answer in time; the text has the end of its log."""


class Program:
    """A program with a log file. Its arguments stay, so that it can be started again as it was."""

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        *,
        outlive: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.command, self.log = name, command, log
        self.outlive, self.environment = outlive, environment
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; the log of an earlier life is kept, and goes on."""
        assert not self.running, f"{self.name} is running already"
        setpriv = None if self.outlive else shutil.which("setpriv")
        tied = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [*tied, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env=self.environment,
                start_new_session=True,  # Ctrl-C is for who started us; we stop it in order
            )

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was not started"
        return self._child.pid

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return when it is ready; raise NotStarted when it ended, or is not ready in time."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.running:
                code = self._child.poll() if self._child else None
                raise NotStarted(f"{self.name} ended with exit code {code}.{self.log_end()}")
            if time.monotonic() > deadline:
                raise NotStarted(f"{self.name} is not ready after {seconds:.0f} s.{self.log_end()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end, and make it end if it does not."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Hold it still: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._child is None:
            return
        with suppress(ProcessLookupError):
            if self.running:
                self._child.send_signal(how)
                self._child.send_signal(signal.SIGCONT)  # a paused one hears nothing else
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def log_end(self) -> str:
        """The last lines of the log, for a message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n  ".join([f" The end of {self.log}:", *lines[-LOG_LINES:]])


def free_ports(count: int) -> list[int]:
    """Ports for programs to listen on, which nobody else is given while this process lives.

    They stay bound here and are never listened on: a server asks for SO_REUSEADDR and is let in beside, again after a
    restart too; who takes any port that is free is given another one.
    """
    ports = []
    for _ in range(count):
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", 0))
            ports.append(holder.getsockname()[1])
            holder.detach()
    return ports
