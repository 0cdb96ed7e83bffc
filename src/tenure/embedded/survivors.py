"""What a dead supervisor left alive: found, told from strangers, and ended.

When a pod's supervisor is killed, the kernel kills the first process of each container; their children may
live on and hold GPUs. A process is the pod's if it carries the pod's token in its environment, or if it
is in the session of a container of this very boot. A session has the pid of its first process for a name,
and the kernel gives that number to nobody as long as anyone is in the session, though the first process is
dead. So the session is the pod's when that process is the recorded one (pid *and* start time), or is no
more; where the number is a later process's, the session ended before. (A stranger would fit only if the
whole session ended, the number came round to it, it led a session too, and died, before anyone looked.) A
signal goes through a pidfd opened before the check, and so cannot reach a later owner of the number.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

from tenure.embedded import shim
from tenure.embedded.folder import Identity, State
from tenure.embedded.launch import TOKEN


def find_survivors(state: State, token: str) -> list[int]:
    """The pids of a pod's processes that are still alive. Reads all of /proc: for lost pods only."""
    sessions = _live_sessions(state)
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if _belongs(pid, token=token, sessions=sessions)]


def kill_survivors(state: State, token: str) -> list[int]:
    """Kill what is left of a pod; returns the pids that were alive. Call again until there are none."""
    sessions = _live_sessions(state)
    found = find_survivors(state, token)
    for pid in found:
        _signal_if(pid, signal.SIGKILL, partial(_belongs, token=token, sessions=sessions))
    return found


def signal_supervisor(state: State) -> None:
    """Tell a live supervisor to look for its orders."""
    who = state.shim
    if who is not None and state.boot == shim.boot_id():
        _signal_if(who.pid, signal.SIGTERM, lambda _: is_same(who))


def is_same(who: Identity) -> bool:
    """Is the process that was recorded still there?"""
    return who.start != 0 and shim.start_time(who.pid) == who.start


def _live_sessions(state: State) -> set[int]:
    """Sessions of the pod that may still have members: their leader is the process that was recorded, or is dead."""
    if state.boot != shim.boot_id():
        return set()
    return {one.pid for one in state.containers if one.start != 0 and shim.start_time(one.pid) in (0, one.start)}


def _belongs(pid: int, *, token: str, sessions: set[int]) -> bool:
    fields = shim.stat_fields(pid)
    if not fields or fields[0] in "ZX":  # a zombie holds nothing, and is its parent's to bury
        return False
    return int(fields[3]) in sessions or _carries(pid, token)


def _carries(pid: int, token: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return token != "" and f"{TOKEN}={token}".encode() in file.read().split(b"\0")
    except OSError:  # it ended, or is another user's
        return False


def _signal_if(pid: int, number: signal.Signals, fits: Callable[[int], bool]) -> None:
    """Send a signal to the process that fits, never to one that got its pid since."""
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it ended
        return
    try:
        if fits(pid):
            signal.pidfd_send_signal(process, number)
    except (ProcessLookupError, PermissionError):  # it ended, or became another user's: the next look tells
        pass
    finally:
        os.close(process)
