"""What an envelope has given: one account for each window it ever had, of which one is in force (SPEC 3).

An account is (budget, envelope, start, end). Open leases charge the account in force. An edit of the window
stops the old account where it stands and goes on in the new window's; returning to an earlier window
resumes its account. No other edit touches an account, and neither does the removal of the Budget. Use
before ``start`` counts like any other.

>>> book = EnvelopeBook(at=0)
>>> book.charge("ns/x", gpus=2, lent=False, until=None, at=0)
>>> book.switch((0, 100), at=10)
>>> book.release("ns/x", gpus=2, lent=False, end=13, at=15)
>>> {window: account.used.read(15) for window, account in book.accounts.items()}
{(None, None): 20, (0, 100): 6}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tenure.api.budget import Envelope
from tenure.audit.meters import Meter, Promises
from tenure.units import Instant, Micros, parse_time

EnvelopeKey = tuple[str, str]
"""(budget, envelope)"""
Window = tuple[Instant | None, Instant | None]
AccountKey = tuple[str, str, Instant | None, Instant | None]
"""(budget, envelope, start, end)"""
UNBOUNDED: Window = (None, None)


def window_of(envelope: Envelope) -> Window:
    """The window as instants, so that two spellings of one time are one window."""
    start, end = (None if time is None else parse_time(time) for time in (envelope.start, envelope.end))
    return start, end


@dataclass(slots=True)
class Account:
    """GPU-time charged in one window: all of it, and the part of it that was lent."""

    used: Meter = field(default_factory=Meter)
    lent: Meter = field(default_factory=Meter)
    notices: dict[str, Instant] = field(default_factory=dict)
    """When each mark was first announced."""

    def meter(self, *, lent: bool) -> Meter:
        return self.lent if lent else self.used


class EnvelopeBook:
    """The accounts of one envelope, and what its open leases may still use."""

    def __init__(self, *, at: Instant) -> None:
        self.window: Window = UNBOUNDED
        self.accounts: dict[Window, Account] = {UNBOUNDED: Account()}
        self._since: list[tuple[Instant, Window]] = [(at, UNBOUNDED)]
        self._promised, self._promised_lent = Promises(), Promises()
        self.staying: dict[str, int] = {}
        """GPUs of each open lease that nobody has asked to end yet."""
        self._lent: set[str] = set()

    @property
    def account(self) -> Account:
        """The account in force."""
        return self.accounts[self.window]

    def gpus(self, *, lent: bool = False) -> int:
        """GPUs in open leases, of all roles: all of them, or those that were lent."""
        return self.account.meter(lent=lent).rate

    def staying_leases(self, *, lent: bool = False) -> Iterator[str]:
        """Open leases that nobody has asked to end: all of them, or those that were lent."""
        return (lease for lease in self.staying if lease in self._lent or not lent)

    def promised(self, now: Instant, *, lent: bool = False) -> int:
        return (self._promised_lent if lent else self._promised).read(now)

    def switch(self, window: Window, *, at: Instant) -> None:
        """Put another window in force."""
        if window == self.window:
            return
        before, after = self.account, self.accounts.setdefault(window, Account())
        for lent in (False, True):
            rate = before.meter(lent=lent).rate
            before.meter(lent=lent).change(-rate, at=at)
            after.meter(lent=lent).change(+rate, at=at)
        self.window = window
        self._since.append((at, window))

    def charge(self, lease: str, *, gpus: int, lent: bool, until: Instant | None, at: Instant) -> None:
        """A lease opened."""
        self.account.used.change(+gpus, at=at)
        self.staying[lease] = gpus
        if lent:
            self.account.lent.change(+gpus, at=at)
            self._lent.add(lease)
        if until is not None:
            self._promised.add(lease, gpus=gpus, until=until)
            if lent:
                self._promised_lent.add(lease, gpus=gpus, until=until)

    def leave(self, lease: str) -> None:
        """A stop was decided: what the lease had declared is no longer held for it."""
        self.staying.pop(lease, None)
        self._lent.discard(lease)
        self._promised.drop(lease)
        self._promised_lent.drop(lease)

    def release(self, lease: str, *, gpus: int, lent: bool, end: Instant, at: Instant) -> None:
        """A lease closed at ``end``, which an entry at ``at`` tells: what ran on in between is taken back."""
        self.leave(lease)
        for is_lent in (False, True) if lent else (False,):
            self.account.meter(lent=is_lent).change(-gpus, at=at)
            for window, length in self._in_force(since=end, until=at):
                self.accounts[window].meter(lent=is_lent).correct(-gpus * length)

    def _in_force(self, *, since: Instant, until: Instant) -> Iterator[tuple[Window, Micros]]:
        """Which windows were in force in an interval that reaches to the present, and for how long each."""
        for begin, window in reversed(self._since):
            if until <= since:
                return
            begin = max(since, begin)
            yield window, until - begin
            until = begin
