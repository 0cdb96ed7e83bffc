"""The outbox: what it keeps, and that the ledger around it stays what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.facts import PutBudget, PutNamespace, PutRun
from tenure.ledger import Code, Ledger, LedgerRefused, derive, promises, schema
from tenure.notify import Outbox
from tenure.notify.progress import Dead, Lag, Progress
from tenure.testing import budget, namespace, run
from tests.notify.support import noted, tell

EVERYTHING = (0, 0)
LAG = Lag(object="Run/rai/a", seq=1, idx=0, tries=4, refusals=2, not_before=77, why="answered 500")


def owners(ledger: Ledger) -> list[tuple[str, str]]:
    return [(letter.message, letter.owner) for letter in Outbox(ledger).letters(after=EVERYTHING, limit=100)]


def test_what_is_saved_is_what_is_read_again(ledger: Ledger) -> None:
    tell(ledger, "a1", "a2")
    outbox = Outbox(ledger)
    outbox.register("hook", history=True)
    saved = Progress(seq=1, idx=1, sent=3, fails=2, not_before=99, why="away", lags=(LAG,))
    outbox.save("hook", saved, dead=[Dead(seq=1, idx=1, at=5, refusals=8, why="answered 404")])
    assert Outbox(ledger).register("hook", history=False) == saved
    [state] = outbox.states()
    assert (state.progress, state.behind, state.dead) == (saved, 0, 1)
    assert outbox.dead_letters("hook", limit=1)[0].object == "Run/rai/a"


def test_saving_touches_neither_the_entries_nor_the_anchor(ledger: Ledger, path: Path) -> None:
    tell(ledger, "a1")
    before = ledger.head, ledger.anchor_path.read_bytes()
    outbox = Outbox(ledger)
    outbox.save("hook", outbox.register("hook", history=True))
    assert (ledger.head, ledger.anchor_path.read_bytes()) == before


def test_letters_are_read_from_a_place_on_and_never_more_than_asked(ledger: Ledger) -> None:
    tell(ledger, "a1", "b1", "a2")
    tell(ledger, "a3")
    outbox = Outbox(ledger)
    assert [one.message for one in outbox.letters(after=(1, 0), limit=2)] == ["b1", "a2"]
    about = outbox.letters_about("Run/rai/a", since=(1, 1), until=(2, 0), limit=9)
    assert [one.message for one in about] == ["a2", "a3"]
    assert [one.message for one in outbox.letters_about("Run/rai/a", since=(1, 0), until=(1, 2), limit=9)] == [
        "a1",
        "a2",
    ]


def test_a_page_of_letters_costs_the_same_however_long_the_history(ledger: Ledger) -> None:
    outbox = Outbox(ledger)

    def work() -> tuple[int, int]:
        """Instructions of SQLite for a page of the stream, and for a page about one object, at the end."""
        head = ledger.head.seq
        page = lambda: outbox.letters(after=(head - 10, 0), limit=20)  # noqa: E731 -- two questions, asked alike
        about = lambda: outbox.letters_about("Run/rai/a", since=(head - 10, 0), until=(head, 9), limit=20)  # noqa: E731
        return steps(ledger, page), steps(ledger, about)

    for number in range(50):
        tell(ledger, f"a{number}", f"b{number}")
    early = work()
    with ledger.write() as tx:
        for number in range(2000):
            facts = [noted("Run/rai/a", f"a{number}"), noted("Run/rai/b", f"b{number}")]
            tx.append(at=tx.head.at, cause="test", facts=facts)
    late = work()
    assert all(0 < after <= 1.1 * before for before, after in zip(early, late, strict=True)), (early, late)


def steps(ledger: Ledger, ask: Callable[[], object]) -> int:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    with ledger.beside(writing=False) as db:
        db.set_progress_handler(step, 1)
        ask()
        db.set_progress_handler(None, 1)
    return count


def test_owners_come_from_runs_budgets_and_namespaces(ledger: Ledger) -> None:
    tell(
        ledger,
        PutRun(object=run("train", 8, namespace="rai", owner="org:ai:rai")),
        PutBudget(object=budget("west", owner="org:ai")),
        PutNamespace(object=namespace("rai", owner="org:ai:rai")),
        PutNamespace(object=namespace("free")),
        *(
            noted(about, about)
            for about in ("Run/rai/train", "Budget/west", "Namespace/rai", "Namespace/free", "Node/n")
        ),
    )
    assert owners(ledger) == [
        ("Run/rai/train", "org:ai:rai"),
        ("Budget/west", "org:ai"),
        ("Namespace/rai", "org:ai:rai"),
        ("Namespace/free", ""),
        ("Node/n", ""),
    ]


def test_an_edit_that_keeps_the_owner_costs_no_row(ledger: Ledger) -> None:
    for gpus in (8, 16, 32):
        tell(ledger, PutRun(object=run("train", gpus, namespace="rai", owner="org:a")))
    tell(ledger, PutRun(object=run("train", 8, namespace="rai", owner="org:b")))
    with ledger.beside(writing=False) as db:
        assert db.execute("SELECT seq, owner FROM owners").fetchall() == [(1, "org:a"), (4, "org:b")]


def test_a_ledger_from_before_the_outbox_gets_it_with_its_owners(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as past:
        past.setattr(schema, "STEPS", schema.STEPS[:1])
        past.setattr(derive, "_own", lambda *_, **__: None)
        past.setattr(promises, "put_run", lambda *_, **__: None)
        with Ledger.create(path, fleet="lab") as ledger:
            tell(ledger, PutRun(object=run("train", 8, namespace="rai", owner="org:a")), noted("Run/rai/train", "old"))
    with Ledger.open(path) as ledger:
        assert owners(ledger) == [("old", "org:a")]
        assert ledger.verify().findings == ()


def test_a_wrong_owner_in_the_table_is_found_by_verification(path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        tell(ledger, PutRun(object=run("train", 8, namespace="rai", owner="org:a")))
        with ledger.beside(writing=True) as db:
            db.execute("UPDATE owners SET owner = 'org:evil'")
        [finding] = ledger.verify().findings
        assert finding.where == "owners Run/rai/train/1"


def test_a_reader_cannot_save(ledger: Ledger, path: Path) -> None:
    Outbox(ledger).register("hook", history=True)
    with Ledger.open(path, readonly=True) as reader:
        outbox = Outbox(reader)
        assert [state.name for state in outbox.states()] == ["hook"]
        with pytest.raises(LedgerRefused) as caught:
            outbox.revive("hook")
    assert caught.value.code is Code.ReadOnly
