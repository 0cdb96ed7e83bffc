"""An operator's turns without a cluster: whose chain is published, what a refusal stops, and what is kept meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tenure.cli.server.operator import _custodians
from tenure.cli.trouble import Trouble
from tenure.custodian import Custodian, Revealed, Status, init, open_custodian
from tenure.draw import VERSION, Beacon, Intent, ReservationRef, Token
from tenure.embedded.custodians import OPERATOR
from tenure.kube.client import Client
from tenure.kube.loop import IO
from tenure.kube.operator import SILENCE_SECONDS, Chore, Operator, draws_wait
from tenure.kube.refusals import Code, refused
from tenure.kube.resources import PODS
from tenure.kube.store import KubeStore
from tenure.shell.custodian import SIMULATED, SimulatedCustodian
from tenure.shell.home import Home
from tenure.shell.store import MemoryStore

Make = Callable[..., Operator]


@pytest.fixture
def make(io: IO) -> Make:
    """Makes an operator on its own clock, whose turns do nothing; what it reports is kept in ``said``."""

    def made(home: Home | None = None, **how: Any) -> Operator:
        said: list[str] = []
        nobody, clock = cast(Client, object()), SimpleNamespace(now=0.0)
        operator: Any = Operator(
            io, nobody, cast(KubeStore, object()), report=said.append, now=lambda: 0, ticks=lambda: clock.now, **how
        )
        operator.home, operator.said, operator.clock = home or Home(MemoryStore()), said, clock
        operator.turn, operator._pause, operator._let_go = lambda: None, lambda: 1.0, lambda: None
        return cast(Operator, operator)

    return made


def said(operator: Operator) -> list[str]:
    return cast(Any, operator).said


def later(operator: Operator, seconds: float) -> None:
    cast(Any, operator).clock.now += seconds


def keeping(make: Make, home: Home, secret: str, **how: Any) -> Operator:
    """An operator with a custodian, on a ledger that others may have, too."""
    one = SimulatedCustodian(secret)
    home.custodians = (one,)
    return make(home, custodians=[one], roots=[(one.beacon, one.root)], **how)


# --- whose chain is published -------------------------------------------------------------------------------------


def test_regression_a_chain_that_an_operator_made_for_itself_replaces_no_other(make: Make) -> None:
    """Each replica of an installation makes one, and each that took over published its own: what was frozen and
    perhaps revealed already was void, and drawn again with other numbers."""
    store = MemoryStore()
    first, second = Home(store), Home(store)
    one = keeping(make, first, "one", self_made=True)
    one._publish()
    published = SimulatedCustodian("one").root
    assert (first.state.roots, said(one)) == ({SIMULATED: published}, [])

    two = keeping(make, second, "two", self_made=True)
    second.handle(now=0)
    two._publish()
    two._publish()  # it leads again
    assert (second.state.roots, second.custodians) == ({SIMULATED: published}, ())
    assert said(two) == [draws_wait([SIMULATED])]
    assert len(list(store.entries())) == 1

    one._publish()
    assert first.custodians != (), "the chain that is published is kept by who made it"


def test_a_custodian_that_is_named_takes_the_place_of_one_that_was_lost(make: Make) -> None:
    home = Home(MemoryStore())
    keeping(make, home, "lost", self_made=True)._publish()
    keeping(make, home, "new")._publish()
    assert home.state.roots == {SIMULATED: SimulatedCustodian("new").root}
    assert home.custodians != ()


def spent(folder: Path) -> str:
    """A chain that has revealed a value; its first one."""
    status = init(folder, beacon=OPERATOR, length=10)
    keeper = open_custodian(folder)
    assert isinstance(status, Status)
    assert isinstance(keeper, Custodian)
    intent = Intent(
        version=VERSION, reservation=ReservationRef(namespace="rai", name="w", uid="u"), activation=1,
        at="2025-11-01T00:15:00Z", ledger_head="ab" * 32, deficit=8,
        tokens=(Token(id="a/x", owner="org:a", gpus=8), Token(id="b/y", owner="org:b", gpus=8)),
        beacons=(Beacon(id=OPERATOR, index=1, previous=status.published),),
    )  # fmt: skip
    assert isinstance(keeper.answer(intent), Revealed)
    return status.published


def store_of(known: dict[str, str]) -> KubeStore:
    ledger = SimpleNamespace(beacons=lambda seq: known)
    return cast(KubeStore, SimpleNamespace(head=SimpleNamespace(seq=1), ledger=ledger))


def test_regression_an_operator_whose_own_chain_is_not_the_ledgers_runs_without_it(tmp_path: Path) -> None:
    """It ended at each start, for ever: "the chain ... has revealed 1 values, and not to this fleet"."""
    folder, told = tmp_path / "custodian", list[str]()
    root = spent(folder)
    other = store_of({OPERATOR: "11" * 32})
    assert _custodians(other, (folder,), given=False, say=told.append) == []
    assert told == [draws_wait([OPERATOR])]
    with pytest.raises(Trouble, match="has revealed 1 values"):
        _custodians(other, (folder,), given=True, say=told.append)
    with pytest.raises(Trouble, match="has revealed 1 values"):
        _custodians(store_of({}), (folder,), given=False, say=told.append)
    (ours,) = _custodians(store_of({OPERATOR: root}), (folder,), given=False, say=told.append)
    assert ours.root == root


# --- what a refusal stops -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [1.0, SILENCE_SECONDS - 1])
def test_regression_a_loop_that_is_refused_goes_round_and_lives(make: Make, seconds: float) -> None:
    """Only a turn that succeeded counted: an operator whose ledger refused was killed every two minutes."""
    operator = make()
    cast(Any, operator.informers).silent_seconds = lambda ticks: 0.0

    def turn() -> None:
        raise refused(Code.NotAllowed, why="403")

    operator.turn = turn  # type: ignore[method-assign]
    assert not operator.started
    for _ in range(3):
        later(operator, seconds)
        operator.once()
        later(operator, SILENCE_SECONDS - 1)
        assert (operator.started, operator.ready, operator.alive) == (True, False, True)
    later(operator, 1)
    assert not operator.alive, "nor does it live for ever"


def test_a_chore_that_is_refused_is_told_and_the_loop_goes_on(make: Make) -> None:
    operator = make()

    def retention() -> None:
        raise refused(Code.ArchiveRefuses, folder="/archive", why="No space left on device", seq=7)

    operator.chores = [Chore("retention", 0.0, retention, ticks=lambda: 0.0)]
    assert operator.once() == 1.0
    assert operator.ready
    (text,) = said(operator)
    assert text.startswith(
        "retention: ArchiveRefuses: The archive /archive cannot be written (No space left on device)"
    )


# --- who stands by ------------------------------------------------------------------------------------------------


def test_regression_who_stands_by_keeps_no_list_of_what_changed(make: Make) -> None:
    """It held every name of a pod and a lease since it had started, for ever."""
    operator = make()
    operator.leading = lambda: False
    operator.bell.add(PODS, ["rai/train-0"])
    operator.once()
    assert operator.bell.take() == {}
