"""Supervisors that are known to live, so that nobody has to look at their pods: the kernel tells when one ends.

A supervisor holds its pod's lock until its own end, whatever else happens to the pod. So as long as the process that
wrote itself down lives, a look at the folder would find the same as before. A pidfd stays with the process that it was
opened for; that this is the one that was written down is asked after it was opened, and so holds from then on.
"""

from __future__ import annotations

import os
import resource
import select

from tenure.embedded import shim
from tenure.embedded.folder import State
from tenure.embedded.survivors import is_same


class Supervisors:
    """The supervisors of some pods, by the pods' keys, as long as they live."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._keys: dict[int, str] = {}
        self._fds: dict[str, int] = {}
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        """Half of the descriptors that this process may have: the other pods are looked at, as ever."""

    def fileno(self) -> int:
        """A descriptor that can be read when one of them has ended."""
        return self._epoll.fileno()

    def watch(self, key: str, state: State) -> bool:
        """Watch a pod's supervisor; False where that is not possible, or it has ended."""
        if key in self._fds:
            return True
        who = state.shim
        if who is None or state.boot != shim.boot_id() or len(self._fds) >= self._most:
            return False
        try:
            fd = os.pidfd_open(who.pid)
        except OSError:  # it ended, or the kernel cannot
            return False
        if not is_same(who):
            os.close(fd)
            return False
        self._epoll.register(fd, select.EPOLLIN)
        self._keys[fd], self._fds[key] = key, fd
        return True

    def ended(self) -> list[str]:
        """The pods whose supervisors have ended since the last call; they are watched no more."""
        keys = [self._keys[fd] for fd, _ in self._epoll.poll(0)]
        for key in keys:
            self.drop(key)
        return keys

    def drop(self, key: str) -> None:
        fd = self._fds.pop(key, None)
        if fd is not None:
            del self._keys[fd]
            os.close(fd)  # and with it it leaves the set

    def close(self) -> None:
        for key in list(self._fds):
            self.drop(key)
        self._epoll.close()
