"""The supervisor of one pod: starts its containers, stops them, and writes down how they ended.

There is one such process for each pod, so that pods outlive the daemon: it can be killed, upgraded and
started again while they run. This file is run as a script and imports little, and only from the standard
library: it must start in some 20 ms, thousands of times. It decides nothing. Its whole conversation with
the daemon is files in the pod's folder, and one signal:

    spec.json    from the daemon, before the shim is launched: what to run
    stopped      from the daemon: never start, or, if started, stop (SIGTERM tells a live shim to look)
    lock         held (flock) from before the start until the shim's end: its holder is the one shim
    started      from the shim: made once, while it holds the lock, before the first container
    state.json   from the shim: its own pid and the containers' pids, each with its start time
    exit.json    from the shim, last of all, when nothing of the pod is alive any more

What a reader may conclude: ``started`` without a lock holder and without ``exit.json`` means that the shim
was killed, and the pod is *lost*. Everything else is either not begun, alive, or ended.

Every container leads a session of its own. SIGTERM goes to its process group, SIGKILL after the grace
period, and the shim counts the grace period itself. When a container's first process exits, what is left
of its group is killed, as in a real container. The shim adopts orphans (child subreaper) and kills those
too before it writes ``exit.json``. If the shim itself is killed, the kernel kills the first process of
each container (PR_SET_PDEATHSIG), and the daemon looks for the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # importing typing would cost a quarter of the start
if TYPE_CHECKING:
    from typing import Any, NoReturn

SPEC, LOCK, STARTED, STOPPED = "spec.json", "lock", "started", "stopped"
STATE, EXIT, ERRORS, SCRATCH = "state.json", "exit.json", "supervisor.err", "work"

LOCK_PATIENCE = 10.0
"""Seconds to try for the lock: the daemon holds it for moments, when it looks whether anyone does."""
BACKSTOP = 5.0
"""Seconds between looks for ``stopped`` without a signal, should the daemon die between marker and signal."""
WRITE_PATIENCE = 30
"""Tries, a second apart, to write ``exit.json`` on a full disk before the pod counts as lost."""

_WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def reached(point: str) -> None:
    """Do nothing. Crash tests replace this to kill the shim at a named point."""


def main(folder: str) -> int:
    """Run the pod of a folder unless it was run, is being run, or was stopped before it began."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    os.chdir("/")
    lock = _take_lock(folder)
    if lock is None or _exists(folder, STARTED) or _exists(folder, STOPPED):
        return 0
    with open(os.path.join(folder, SPEC), encoding="utf-8") as file:
        pod = _Pod(folder, json.load(file))
    pod.record()
    reached("locked")
    _mark_started(folder)
    reached("started")
    pod.run()
    reached("ended")
    pod.bury()
    return 0


class _Pod:
    """The containers of one pod, from the first start to the last exit."""

    def __init__(self, folder: str, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.spec = spec
        self.began = now()
        self.alive: dict[int, dict[str, Any]] = {}
        self.records: list[dict[str, Any]] = []
        self.failure: dict[str, Any] | None = None
        self.stopping = False
        self.interrupted = False
        self.killed = False
        self.deadline = float("inf")

    def run(self) -> None:
        """Init containers one after another, then the containers together; return when nothing is alive."""
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for batch in [*([init] for init in self.spec["init"]), self.spec["containers"]]:
            for container in batch:
                if not self.stopping:
                    self.start(container)
                    reached("spawned")
            while self.alive:
                self.wait()
        self.linger()
        self.sweep()

    def start(self, container: dict[str, Any]) -> None:
        """Fork and exec one container; the pipe tells why if that did not work."""
        log = os.path.join(self.folder, container["name"] + ".log")
        report, answer = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(container, log=log, parent=parent, answer=answer)
        os.close(answer)
        record = {"name": container["name"], "pid": pid, "start": start_time(pid), "startedAt": now()}
        self.records.append(record)
        self.alive[pid] = record
        self.record()
        fault = os.read(report, 4096).decode("utf-8", "replace")
        os.close(report)
        if fault:
            record["message"] = fault

    def wait(self) -> None:
        """Sleep until a child exits, a signal asks to stop, or the grace period is over."""
        timeout = max(0.0, min(BACKSTOP, self.deadline - time.monotonic()))
        got = signal.sigtimedwait(_WATCHED, timeout)
        # Without its folder nobody can find the pod again, and its GPUs will be given to others.
        if _exists(self.folder, STOPPED) or not _exists(self.folder, STARTED):
            self.stop()
        elif got is not None and got.si_signo != signal.SIGCHLD:
            self.interrupted = self.interrupted or not self.stopping
            self.stop()
        if time.monotonic() >= self.deadline:
            self.killed = True
            self.signal(signal.SIGKILL)
            self.deadline = time.monotonic() + 1  # again, should something survive in the kernel for a while
        self.reap()

    def stop(self) -> None:
        """Ask every container to end, once, and start the grace period."""
        if not self.stopping:
            self.stopping = True
            self.deadline = time.monotonic() + self.spec["grace"]
            self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        for pid in self.alive:
            _kill_group(pid, number)

    def reap(self) -> bool:
        """Take note of every child that has exited; False when there are no children at all."""
        while True:
            try:
                # WNOWAIT: as long as it is not reaped, its pid, and so its group, cannot be anyone else's.
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if child is None:
                return True
            if child.si_pid in self.alive:
                self.ended(child)
            os.waitpid(child.si_pid, 0)

    def ended(self, child: os.waitid_result) -> None:
        """A container's first process exited: the rest of its group goes too; a failure stops the others."""
        if not self.stopping:
            _kill_group(child.si_pid, signal.SIGKILL)
        record = self.alive.pop(child.si_pid)
        record["endedAt"] = now()
        record["code"] = child.si_status if child.si_code == os.CLD_EXITED else 128 + child.si_status
        record.setdefault("message", _sentence(record["name"], child))
        if record["code"] != 0 and not self.stopping:
            self.failure = record
            self.stop()

    def linger(self) -> None:
        """A launcher that dies of SIGTERM at once must not cost its workers their grace period."""
        groups = {record["pid"] for record in self.records}
        while self.stopping and not self.killed and self.reap() and groups & set(_children().values()):
            left = self.deadline - time.monotonic()
            if left <= 0:
                break
            signal.sigtimedwait((signal.SIGCHLD,), left)

    def sweep(self) -> None:
        """Kill the orphans that this pod left behind, and theirs, until the shim has no child."""
        while self.reap():
            for pid in _children():
                _kill(pid, signal.SIGKILL)  # cannot be a stranger: our child until we reap it
            signal.sigtimedwait((signal.SIGCHLD,), 0.1)

    def record(self) -> None:
        """Write down who is who, for a daemon that has to find or end them."""
        me = {"pid": os.getpid(), "start": start_time(os.getpid())}
        containers = [{key: record[key] for key in ("name", "pid", "start")} for record in self.records]
        write(os.path.join(self.folder, STATE), {"boot": boot_id(), "shim": me, "containers": containers})

    def bury(self) -> None:
        """Write the last word. A full disk may clear within a while; after that the pod counts as lost."""
        code, message = self.verdict()
        keys = ("name", "code", "message", "startedAt", "endedAt")
        containers = [{key: record[key] for key in keys} for record in self.records]
        tree = {
            "code": code,
            "message": message,
            "startedAt": self.began,
            "endedAt": now(),
            "containers": containers,
        }
        for _ in range(WRITE_PATIENCE):
            try:
                write(os.path.join(self.folder, EXIT), tree, durable=True)
                break
            except FileNotFoundError:  # the folder is gone, and with it everybody who would read this
                break
            except OSError as fault:
                print(fault, file=sys.stderr)  # noqa: T201 - into supervisor.err, there is no logger here
                time.sleep(1)

    def verdict(self) -> tuple[int, str]:
        """The pod's exit code and why: the first failure, or an end that nobody asked for, or success."""
        if self.failure is not None:
            return self.failure["code"], self.failure["message"]
        if self.interrupted:
            # Its containers may well have exited 0, but they did not finish their work.
            return 128 + signal.SIGTERM, "interrupted: its supervisor was told to end, and not by the fleet"
        codes = [record["code"] for record in self.records if record["code"] != 0]
        return (codes[0], "stopped") if codes else (0, "")


def _become(container: dict[str, Any], *, log: str, parent: int, answer: int) -> NoReturn:
    """In the child: turn into the container. A fault goes up the pipe and ends in code 126 or 127."""
    code, what = 126, f"cannot write {log!r}"
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(code)  # the shim died before the line above
        _redirect(log)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, its children should not
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        what = f"cannot enter workingDir {container['cwd']!r}"
        os.chdir(container["cwd"])
        what = f"cannot run {container['argv'][0]!r}"
        os.execvpe(container["argv"][0], container["argv"], container["env"])
    except Exception as fault:
        code = 127 if isinstance(fault, FileNotFoundError) else 126
        why = fault.strerror if isinstance(fault, OSError) else fault
        os.write(answer, f"container {container['name']!r}: {what}: {why}".encode("utf-8", "replace")[:4096])
    finally:
        os._exit(code)


def _redirect(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (file, 1), (file, 2)):
        os.dup2(source, target)


def _sentence(name: str, child: os.waitid_result) -> str:
    if child.si_code == os.CLD_EXITED:
        return f"container {name!r} exited with code {child.si_status}"
    try:
        return f"container {name!r} was killed by {signal.Signals(child.si_status).name}"
    except ValueError:  # a real-time signal has no name
        return f"container {name!r} was killed by signal {child.si_status}"


def _take_lock(folder: str) -> int | None:
    """The lock's descriptor, or None when another shim has the pod."""
    lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    give_up = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if _exists(folder, STARTED) or time.monotonic() > give_up:
                os.close(lock)
                return None
            time.sleep(0.01)


def _mark_started(folder: str) -> None:
    os.close(os.open(os.path.join(folder, STARTED), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    sync_folder(folder)  # a start that a power cut could undo would be a double start


def _exists(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def _kill_group(leader: int, number: signal.Signals) -> None:
    _kill(-leader, number)


def _kill(target: int, number: signal.Signals) -> None:
    # Gone by itself, or become another user: then all we can do is to wait for its end.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(target, number)


def _children() -> dict[int, int]:
    """Our children, each with its process group."""
    stats = {int(name): stat_fields(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: int(fields[2]) for pid, fields in stats.items() if fields and int(fields[1]) == os.getpid()}


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its pid, its identity. 0 if there is none."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else 0


def boot_id() -> str:
    """This boot of this machine: pids and start times mean nothing in another."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def now() -> int:
    """Microseconds since 1970, as everywhere in Tenure."""
    return time.time_ns() // 1000


def write(path: str, tree: dict[str, Any], *, durable: bool = False) -> None:
    """Put a whole file in place, or leave things as they were."""
    draft = f"{path}.{os.getpid()}.tmp"
    with open(draft, "w", encoding="utf-8", opener=_private) as file:
        json.dump(tree, file)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    os.rename(draft, path)
    if durable:
        sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
