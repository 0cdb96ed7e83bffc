"""The executor's port: what the engine wants of each pod, and what is really so.

An executor is level-triggered. It is given every pod that the engine still keeps, with what the engine last
recorded of it, and answers with the facts that the engine does not know yet. Nothing is lost when either side
dies: whoever comes back asks again, and the same reality gives the same answer.

    wanted: PodWork(known=Placed)              reality: not started     -> start it
    wanted: PodWork(known=Placed)              reality: alive           -> PodReport(Bound)
    wanted: PodWork(known=Bound)               reality: all exited 0    -> PodReport(Succeeded)
    wanted: PodWork(known=Bound)               reality: one exited 3    -> PodReport(Failed, code=3)
    wanted: PodWork(known=Bound, stop=True)    reality: alive           -> stop it
    wanted: PodWork(known=Bound, stop=True)    reality: nothing alive   -> PodReport(Gone)

Five rules bind every executor:

1. A pod starts at most once, whatever dies in between. A pod's name is never used for a second pod.
2. A pod that was asked to stop before it started never starts.
3. ``Gone`` means that nothing of the pod is alive: its GPUs are free, and its leases may close.
4. One bad pod is one ``Failed`` report; it never raises and never holds up another pod.
5. What started is reported ``Bound`` before its end, in the same answer if need be. ``Failed`` alone means
   that it could not be started at all.

An executor that knows by itself when its pods change need not be handed all of them each time: it may be
``Attentive``, and is then told only of pods that changed. One that has to look (at processes, at an API server)
is handed everything, every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from tenure.facts import Pod, PodPhase
from tenure.units import Instant, Micros


class PodWork(Struct, frozen=True, kw_only=True):
    """What the engine wants of one pod."""

    pod: Pod
    known: PodPhase
    """What the engine last recorded: Placed, Bound, Succeeded or Failed."""
    since: Instant
    """When the engine recorded the last change of ``known`` or of ``stop``, whichever came later."""
    stop: bool = False
    """The pod was asked to leave."""
    duration: Micros | None = None
    """How long the pod's work takes, if the run declared it. Simulated pods end by it; real ones end by themselves."""
    manifest: dict[str, Any] = {}
    """The pod as a Kubernetes Pod object, the rendezvous and the devices already in its env.

    Read only to start it: it may be left out unless ``known`` is Placed and ``stop`` is False."""


class PodReport(Struct, frozen=True, kw_only=True):
    """What is so. A fact about reality: reporting it twice changes nothing."""

    key: str
    """The pod's ``namespace/name``."""
    phase: PodPhase
    """Bound, Succeeded, Failed or Gone."""
    code: int | None = None
    """The exit code of the first container that failed; 0 if all succeeded; None if nobody can know."""
    message: str = ""
    at: Instant
    """When it became so, never later than the ``now`` of the call."""


class Executor(Protocol):
    """Runs pods."""

    def reconcile(self, work: Sequence[PodWork], *, now: Instant) -> list[PodReport]:
        """Start and stop what is wanted; report each pod that is not what the engine last recorded.

        ``work`` is every pod the engine keeps: one that is no longer in it has been dropped by the engine.
        """
        ...

    def next_wake(self) -> Instant | None:
        """When to call again though nothing else happens; None if only the engine can cause a change."""
        ...


@runtime_checkable
class Attentive(Executor, Protocol):
    """An executor that keeps the work in mind, so that a call costs what changed and not what runs.

    ``reconcile`` still hands over everything: at the beginning, and whenever the engine's state was built anew.
    """

    def revise(self, changed: Sequence[PodWork], *, dropped: Sequence[str], now: Instant) -> list[PodReport]:
        """Reconcile, knowing that since the last call the engine recorded nothing but this.

        ``changed`` are pods that are new, or of which the engine recorded something; ``dropped`` are the keys of pods
        that it keeps no longer. The answer is that of ``reconcile`` with every pod.
        """
        ...
