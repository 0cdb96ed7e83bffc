"""Custodians in folders: what they reveal decides a draw, and a crash in between repeats it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tenure.custodian import Custodian, Status, init, open_custodian
from tenure.draw import Intent
from tenure.embedded.custodians import FolderCustodian, UnfitChain, make_operator, open_folders
from tenure.embedded.fleet import Fleet
from tenure.embedded.paths import custodian_path
from tenure.engine import Apply, Publish, Reveal, SetPolicy
from tenure.engine.lottery import verify
from tenure.facts import Froze, Resolved
from tenure.shell.home import Home
from tenure.shell.simulated import SimulatedExecutor
from tenure.shell.store import MemoryStore
from tenure.testing import at, budget, envelope, nodes, run
from tests.cli.support import call

SHORT = 100


def opened(folder: Path, known: dict[str, str] | None = None) -> FolderCustodian:
    found = open_folders([folder], known=known or {})
    assert isinstance(found, list), found.sentence
    return found[0]


def made(folder: Path, beacon: str) -> FolderCustodian:
    assert isinstance(init(folder, beacon=beacon, length=SHORT), Status)
    return opened(folder)


def frozen(*custodians: FolderCustodian) -> Home:
    """A home in which a draw was frozen and nobody was asked yet."""
    home = Home(MemoryStore(), SimulatedExecutor())
    home.handle(SetPolicy(home.state.policy), *(Publish(one.beacon, one.root) for one in custodians), now=at("0s"))
    home.handle(Apply((*nodes("n", 4), budget("a", envelope("main", 32)))), now=at("0s"))
    home.handle(Apply(tuple(run(name, 8, owner="org:a") for name in "wxyz")), now=at("0s"))
    home.drive(now=at("0s"))
    item = home.state.budgets["a"]
    spec = msgspec.structs.replace(item.spec, envelopes=(envelope("main", 16),))
    home.handle(Apply((msgspec.structs.replace(item, spec=spec),)), now=at("20m"))
    home.drive(now=at("35m"))
    assert list(home.state.draws) == ["Budget/a/main"]
    return home


def records(home: Home) -> list[Resolved]:
    return [fact for entry in home.store.entries() for fact in entry.facts if isinstance(fact, Resolved)]


def test_all_custodians_are_asked_and_the_record_verifies(tmp_path: Path) -> None:
    both = [made(tmp_path / name, name) for name in ("operator", "council")]
    home = frozen(*both)
    home.custodians = tuple(both[:1])
    home.drive(now=at("36m"))
    assert home.state.draws, "one of two is not enough"
    home.custodians = tuple(both)
    home.drive(now=at("37m"))
    (record,) = records(home)
    assert record.intent is not None
    assert record.result is not None
    roots = {one.beacon: one.root for one in both}
    assert verify(record.intent, record.result, published=roots) == []
    assert [beacon.id for beacon in record.intent.beacons] == ["council", "operator"]
    assert len(record.cuts) == 2


def spent(folder: Path) -> list[int]:
    """The indexes that a custodian has revealed."""
    found = open_custodian(folder)
    assert isinstance(found, Custodian)
    lines = found.history()
    assert isinstance(lines, list)
    return [one.index for one in lines]


@pytest.mark.parametrize("lost", ["gone", "no journal"])
def test_nobody_reveals_before_all_can_so_that_one_who_was_lost_is_replaced_alone(tmp_path: Path, lost: str) -> None:
    operator, council = (made(tmp_path / name, name) for name in ("operator", "council"))
    home = frozen(operator, council)
    home.custodians = (operator,) if lost == "gone" else (operator, council)
    (tmp_path / "council" / "journal").unlink()
    home.drive(now=at("36m"))
    assert spent(tmp_path / "operator") == []
    heir = made(tmp_path / "heir", "council")
    home.custodians = (operator, heir)
    home.handle(Publish("council", heir.root), now=at("37m"))
    home.drive(now=at("38m"))
    assert not home.state.draws
    (record,) = records(home)
    assert record.intent is not None
    assert [(beacon.id, beacon.index) for beacon in record.intent.beacons] == [("council", 1), ("operator", 1)]


def test_who_has_revealed_is_not_asked_again_while_another_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    council, operator = (made(tmp_path / name, name) for name in ("council", "operator"))
    home = frozen(council, operator)
    home.custodians = (council, operator)
    asked = list[str]()
    answer = FolderCustodian.answer

    def lost(self: FolderCustodian, intent: Intent) -> str | None:
        asked.append(self.beacon)
        return None if self.beacon == "operator" else answer(self, intent)

    with monkeypatch.context() as patch:
        patch.setattr(FolderCustodian, "answer", lost)
        for minute in (36, 37, 38):
            home.drive(now=at(f"{minute}m"))
    assert asked == ["council", *["operator"] * 3]
    assert (spent(tmp_path / "council"), spent(tmp_path / "operator")) == ([1], [])
    home.drive(now=at("39m"))
    assert len(records(home)) == 1, "it was only away"


def test_if_one_is_lost_after_another_has_revealed_all_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/concepts/lottery.md: the value that was revealed serves no other draw, and so neither does its chain."""
    said: list[str] = []
    made(tmp_path / "council", "council")
    found = open_folders([tmp_path / "council"], known={}, report=said.append)
    assert isinstance(found, list)
    council, operator = *found, made(tmp_path / "o", "o")
    home = frozen(council, operator)
    home.custodians = (council, operator)
    with monkeypatch.context() as patch:
        patch.setattr(operator, "answer", lambda intent: None)
        home.drive(now=at("36m"))
    heirs = made(tmp_path / "o-2", "o"), made(tmp_path / "council-2", "council")
    home.custodians = (council, heirs[0])
    home.handle(Publish("o", heirs[0].root), now=at("37m"))
    home.drive(now=at("38m"))
    assert home.state.draws
    assert "c[1] was revealed for commit" in said[0]
    home.custodians = heirs
    home.handle(*(Publish(one.beacon, one.root) for one in heirs), now=at("39m"))
    home.drive(now=at("40m"))
    assert not home.state.draws
    assert len(records(home)) == 1


class Crash(Exception):
    """The power went."""


@pytest.mark.parametrize("committed", [False, True])
def test_a_crash_between_freeze_and_result_repeats_the_same_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    keeper = made(tmp_path / "operator", "operator")
    home = frozen(keeper)
    home.custodians = (keeper,)
    handle = home.handle

    def crash(*events: object, **options: object) -> None:
        if committed:
            handle(*events, **options)  # type: ignore[arg-type]  # as they came
        raise Crash

    monkeypatch.setattr(home, "handle", crash)
    with pytest.raises(Crash):
        home.drive(now=at("36m"))
    asked = open_custodian(tmp_path / "operator")
    assert isinstance(asked, Custodian)
    assert [one.index for one in asked.history()] == [1], "the value has left the custodian"  # type: ignore[union-attr]  # no refusal
    again = Home(
        home.store, SimulatedExecutor(), custodians=(opened(tmp_path / "operator", {"operator": keeper.root}),)
    )
    again.drive(now=at("40m"))
    (record,) = records(again)
    froze = next(fact for entry in again.store.entries() for fact in entry.facts if isinstance(fact, Froze))
    assert record.intent == froze.intent
    assert record.result is not None
    assert again.state.beacons["operator"] == (1, record.result.reveals["operator"])
    once = again.handle(Reveal("Budget/a/main", record.result.reveals), now=at("41m"))
    assert not once[0].facts


def test_a_custodian_that_refuses_delays_and_says_so_once(tmp_path: Path) -> None:
    keeper = made(tmp_path / "operator", "operator")
    home = frozen(keeper)
    said: list[str] = []
    other = made(tmp_path / "other", "operator")
    stranger = open_folders([tmp_path / "other"], known={}, report=said.append)
    assert isinstance(stranger, list)
    home.custodians = tuple(stranger)
    for minute in (36, 37, 38):
        home.drive(now=at(f"{minute}m"))
    assert not records(home)
    assert len(said) == 1
    assert other.root != keeper.root


def test_a_chain_that_others_have_seen_is_not_taken(tmp_path: Path) -> None:
    keeper = made(tmp_path / "operator", "operator")
    home = frozen(keeper)
    home.custodians = (keeper,)
    home.drive(now=at("36m"))
    refused = open_folders([tmp_path / "operator"], known={})
    assert isinstance(refused, UnfitChain)
    assert isinstance(make_operator(tmp_path / "operator"), UnfitChain)


def test_a_new_fleet_has_a_custodian_that_it_has_published(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("{kind: Fleet, metadata: {name: x}, nodes: [{name: n, gpus: 1, labels: {}}]}")
    path = tmp_path / "fleet.db"
    assert call("tenure", "init", str(path), "--fleet", str(tmp_path / "fleet.yaml")).code == 0
    keeper = opened(custodian_path(path))
    with Fleet.open(path) as fleet:
        assert fleet.state().roots == {"operator": keeper.root}
    assert custodian_path(path).stat().st_mode & 0o777 == 0o700
