"""One operator process of a simulated cluster: the real operator, its election and its journal, until it is killed.

The operator's thread is a callback here: each turn is made when the bell rings or its pause is over. While a turn waits
for the API server everybody else goes on, so another process may decide in the middle of it. A process that is killed
does nothing more, wherever it was; its successor finds its journal, or none.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proof.sim.api_client import VirtualClient
from proof.sim.journal import Journal
from proof.sim.loop import Killed, VirtualIO, VirtualLoop
from tenure.kube.elect import Elector
from tenure.kube.errors import ApiError
from tenure.kube.operator import LINGER_SECONDS, SILENCE_SECONDS, Chore, Operator, Options
from tenure.kube.refusals import StoreRefused
from tenure.kube.retention import Retention
from tenure.kube.store import KubeStore
from tenure.ledger import LedgerRefused
from tenure.shell.custodian import SimulatedCustodian
from tenure.units import HOUR, Instant, Micros

FLEET = "simulated-fleet"
SECRET = "simulated"
RENEW, DURATION = 600.0, 1800.0
LOOK, STANDBY, RETRY = 1800.0, 1800.0, 30.0
RETENTION = 600.0
OPTIONS = Options(simulated=True, watch_seconds=7200, look=LOOK)


class _Rung:
    """The bell's event: whoever rings makes the process look."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake, self._set = wake, False

    def set(self) -> None:
        self._set = True
        self._wake()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set


class Process:
    """An operator from its start to its death."""

    def __init__(
        self,
        loop: VirtualLoop,
        client: VirtualClient,
        journal: Journal,
        name: str,
        *,
        now: Callable[[], Instant],
        failed: Callable[[str], None],
        archive: Path | None = None,
        keep: Micros | None = None,
        turning: Callable[[Operator, Instant], None] = lambda operator, now: None,
        turned: Callable[[Operator], None] = lambda operator: None,
    ) -> None:
        self.loop, self.client, self.journal, self.name, self.now = loop, client, journal, name, now
        self._failed, self._archive, self._keep = failed, archive, keep
        self._turning, self._turned = turning, turned
        self.io = VirtualIO(loop)
        self.operator: Operator | None = None
        self.store: KubeStore | None = None
        self.elector: Elector | None = None
        self.sure = 0
        """How many reasons it has to believe that it leads, whatever the election says."""
        self.usurps: list[Callable[[], None]] = []
        """Who is told, once, when it writes though somebody else was elected."""
        self.paused = False
        self._held: Callable[[], None] | None = None
        """Who is told, once, that it would have done something and stands still."""
        self.dies: Callable[[], None] = self.kill
        """What is done when it dies of its own writing."""
        self.restarts: Callable[[], None] = self.kill
        """What is done when its probe fails."""
        self._troubled: float | None = None
        """Since when no turn could be made."""
        self._resumed: list[asyncio.Future[None]] = []
        self.troubles: list[str] = []
        self.turns = 0
        self._busy = False
        self._depth = 0
        self._next: asyncio.TimerHandle | asyncio.Handle | None = None
        self._at = 0.0
        self._soon(0.0)

    # --- what is so -----------------------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        return self.io.dead

    @property
    def leading(self) -> bool:
        return not self.dead and (bool(self.sure) or (self.elector is not None and self.elector.leading.is_set()))

    @property
    def able(self) -> bool:
        """Whether it decides, as far as is known: it does not stand still, and its last turn did not fail."""
        operator = self.operator
        return self.leading and not self.paused and operator is not None and operator.begun and not operator._trouble

    def wrote(self) -> None:
        """It has written something, besides what an election takes."""
        if self.usurps and self.sure and not (self.elector is not None and self.elector.leading.is_set()):
            told, self.usurps = self.usurps, []
            for one in told:
                one()

    # --- what others do to it -------------------------------------------------------------------------------------

    def kill(self, *, journal: bool = True) -> None:
        """Die now. ``journal``: whether its disk survives."""
        if self.dead:
            return
        self.io.kill()
        if self._next is not None:
            self._next.cancel()
        self.resume()
        if self.operator is not None:
            self.operator.desk.close()
        if not self._busy:
            self._bury()
        if not journal:
            self._lose = True

    def stop(self, stopped: Callable[[], None]) -> None:
        """End in good order: write down what was decided, and let go."""
        self._stopping = stopped
        self.wake()

    _lose = False
    _stopping: Callable[[], None] | None = None

    def _bury(self) -> None:
        self._close()
        if self._lose:
            self.journal.lose()
            self._lose = False

    def _close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None
            self.journal.closed()

    def buried(self) -> bool:
        """Whether nothing of it is left on the stack, so that another may have its folder."""
        if self.dead and not self._busy:
            self._bury()
            return True
        return False

    def pause(self, held: Callable[[], None]) -> None:
        self.paused, self._held = True, held

    def _hold(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held()

    @property
    def stands(self) -> bool:
        """Whether it takes nothing in. One that waits inside of another's turn goes on until that is over: else it
        would hold up the other."""
        return self.paused and self._depth <= 1

    async def going(self) -> None:
        """Wait until it goes on."""
        self._hold()
        future: asyncio.Future[None] = self.loop.create_future()
        self._resumed.append(future)
        await future

    def resume(self) -> None:
        self.paused, self._held = False, None
        resumed, self._resumed = self._resumed, []
        for one in resumed:
            if not one.done():
                one.set_result(None)
        self.wake()

    def wake(self) -> None:
        """Look soon."""
        if self.paused and not self.dead:
            self._hold()
        self._soon(LINGER_SECONDS)

    # --- turns ----------------------------------------------------------------------------------------------------

    def _soon(self, seconds: float) -> None:
        if self._busy or self.dead or self.paused:
            return
        at = self.loop.time() + seconds
        if self._next is not None:
            if self._at <= at:
                return
            self._next.cancel()
        self._at = at
        self._next = self.loop.call_at(at, self._turn)

    def _turn(self) -> None:
        """One turn, or the beginning: a callback of the loop, which drives the loop while it waits."""
        self._next, pause = None, RETRY
        if self.paused and not self.dead:
            self._hold()
        if self.dead or self.paused:
            return
        self._busy = True
        self.loop.depth += 1
        self._depth = self.loop.depth
        try:
            pause = self._go()
        except Killed:
            pass
        except Exception:
            self._failed(f"{self.name}: {traceback.format_exc()}")
        finally:
            self._busy = False
            self.loop.depth -= 1
            self._depth = 0
        if self.dead:
            self._bury()
            return
        operator = self.operator
        if operator is not None and operator.begun and operator.bell._rung.is_set():
            pause = min(pause, LINGER_SECONDS)
        self._soon(max(pause, 0.001))

    def _go(self) -> float:
        self.turns += 1
        if self.operator is None or not self.operator.begun:
            try:
                self._begin()
            except (ApiError, StoreRefused, LedgerRefused) as error:  # its container is started again
                self._say(str(error))
                self._end()
                return RETRY
            return 0.0
        self.operator.bell._rung.clear()
        if self._stopping is not None:
            self.operator.finish()
            stopped, self._stopping = self._stopping, None
            self.io.kill()
            stopped()
            return 0.0
        if not self.leading:
            self.operator.once()
            return STANDBY
        self._turning(self.operator, self.now())
        pause = self.operator.once()
        self._turned(self.operator)
        self._probe(self.operator)
        return pause if self.leading else STANDBY

    def _die(self) -> None:
        self.dies()

    def _probe(self, operator: Operator) -> None:
        """A loop that does not go round for long is not alive: its container is started again."""
        if not operator._trouble:
            self._troubled = None
            return
        self._troubled = self.loop.time() if self._troubled is None else self._troubled
        if self.loop.time() - self._troubled > SILENCE_SECONDS:
            self.restarts()

    def _begin(self) -> None:
        self.store = KubeStore.open(self.io, self.client, self.journal.path, fleet=FLEET, archive=self._archive)  # type: ignore[arg-type]
        self.journal.opened(self.store.ledger, self._die)
        custodian = SimulatedCustodian(SECRET)
        operator = self.operator = Operator(
            self.io, self.client, self.store, options=OPTIONS, custodians=[custodian], now=self.now,  # type: ignore[arg-type]
            ticks=self.loop.time, roots=[(custodian.beacon, custodian.root)], report=self._say,
        )  # fmt: skip
        operator.bell._rung = _Rung(self.wake)  # type: ignore[assignment]
        caches = operator.caches.values()
        operator.informers.wait = lambda seconds: self._synced(list(caches), seconds)  # type: ignore[method-assign]
        operator.desk.wait = lambda seconds: self.io.wait(lambda: operator.desk.idle, seconds)  # type: ignore[method-assign]
        self.elector = Elector(
            self.client, self.name, duration=DURATION, renew=RENEW, clock=self.loop.time, now=self.now,
            on_change=lambda leading: operator.bell.ring(),
        )  # fmt: skip
        operator.leading = lambda: self.leading
        moving = Retention(self.store, keep=self._keep, worth=HOUR, ticks=self.loop.time)
        operator.chores.append(
            Chore("retention", RETENTION, lambda: moving.step(self.now()) and None, ticks=self.loop.time)
        )
        operator.start()
        self.io.start(self.elector.campaign())

    def _synced(self, caches: list[Any], seconds: float) -> list[Any]:
        self.io.wait(lambda: all(one.synced.is_set() for one in caches), seconds)
        return [one for one in caches if not one.synced.is_set()]

    def _end(self) -> None:
        """Its process ended with an error; nothing of it goes on."""
        if self.operator is not None:
            self.operator.desk.close()
            self.operator.informers.stop()
        self._close()
        self.operator = self.elector = None

    def _say(self, text: str) -> None:
        self.troubles.append(text)
