"""What is told as Events of a cluster, and what no longer is."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tenure.engine import State
from tenure.facts import GENESIS, Entry, Noted
from tenure.kube.tidings import BURST, KEPT, Tidings
from tenure.testing import START


class Desk:
    """Takes wishes down."""

    def __init__(self) -> None:
        self.wishes: list[str] = []

    def put(self, key: str, write: Callable[[], Awaitable[None]], *, rank: int) -> None:
        self.wishes.append(key)


def entry(*notes: Noted) -> Entry:
    return Entry(seq=7, at=START, cause="tick", facts=notes, prev=GENESIS)


def note(kind: str = "Waiting") -> Noted:
    return Noted(kind=kind, object="Run/lab/train", reason="NoCapacity", message="It waits.")


def told(one: Entry, *, now: int) -> int:
    desk: Any = Desk()
    client: Any = None
    state = State("lab")
    state.now = now
    Tidings(client, desk, clock=lambda: 0.0).follow(one, state)
    return len(desk.wishes)


@pytest.mark.parametrize(("later", "count"), [(0, 2), (KEPT, 2), (KEPT + 1, 0)])
def test_who_takes_over_does_not_tell_again_what_an_api_server_has_forgotten(later: int, count: int) -> None:
    """Cluster seed 1129: a standby took over ten hours later, and told fifty old stories as new."""
    assert told(entry(note(), note("Blocked")), now=START + later) == count


def test_events_are_not_told_without_bound() -> None:
    assert 0 < told(entry(*[note()] * 200), now=START) < BURST
