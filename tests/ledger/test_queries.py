"""The query tables: leases, usage, notes and decisions, exactly what the entries say."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.facts import Closed, Fact, Lease, Opened
from tenure.ledger import Ledger
from tenure.units import DAY, HOUR, parse_time
from tests.ledger.support import append, closed, decided, lease, noted, opened

NOON = parse_time("2025-11-01T12:00:00Z")


def record(ledger: Ledger, *entries: tuple[int, list[Fact]]) -> None:
    with ledger.write() as tx:
        for at, facts in entries:
            tx.append(at=at, cause="test", facts=facts)


@pytest.fixture
def busy(ledger: Ledger) -> Ledger:
    """Four leases of three runs.

    a  n1  0 .. 10   rai pays itself             attempt 1
    b  n1  10 .. 20  rai pays itself, a spare    attempt 2
    c  n2  5 ..      mm pays for rai (borrowed)
    d  n2  15 .. 15  vision, over as it began
    """
    loan = {"run": "eval", "budget": "mm", "payer": "org:ai:mm", "funding": "borrowed"}
    record(
        ledger,
        (0, [opened("a")]),
        (5, [opened("c", start=5, node="n2", gpus=(3,), **loan)]),
        (10, [closed("a", end=10), opened("b", start=10, attempt=2, role="Spare")]),
        (15, [opened("d", start=15, node="n2", run="see", owner="org:ai:vision", budget="vision")]),
        (15, [closed("d", end=15, reason="Canceled")]),
        (25, [closed("b", end=20, reason="DropSpare")]),
    )
    return ledger


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({}, "acbd"),
        ({"newest": True, "limit": 2}, "db"),
        ({"limit": 1}, "a"),
        ({"run": "train"}, "ab"),
        ({"namespace": "elsewhere"}, ""),
        ({"node": "n2"}, "cd"),
        ({"owner": "org:ai:vision"}, "d"),
        ({"budget": "rai", "envelope": "west"}, "ab"),
        ({"payer": "org:ai:mm"}, "c"),
        ({"role": "Spare"}, "b"),
        ({"open_only": True}, "c"),
        ({"open_only": True, "node": "n1"}, ""),
        ({"at": 0}, "a"),
        ({"at": 9}, "ac"),
        ({"at": 10}, "cb"),
        ({"at": 15}, "cb"),
        ({"at": 20}, "c"),
        ({"at": 9, "node": "n1"}, "a"),
        ({"since": 10}, "cbd"),
        ({"since": 0, "until": 5}, "a"),
        ({"until": 6}, "ac"),
        ({"since": 15, "until": 16}, "cbd"),
        ({"since": 16, "until": 17}, "cb"),
        ({"since": 20, "until": 99}, "c"),
    ],
)
def test_leases_are_found_by(busy: Ledger, question: dict[str, object], answer: str) -> None:
    assert "".join(row.lease.name for row in busy.leases(**question)) == answer  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ({}, "abd"),
        ({"since": 11}, "bd"),
        ({"since": 21}, ""),
        ({"but": {"rai/a", "rai/c"}}, "bd"),
        ({"but": {"rai/a", "rai/b", "rai/d"}}, ""),
    ],
)
def test_what_is_over_is_told_one_by_one(busy: Ledger, question: dict[str, object], answer: str) -> None:
    rows = list(busy.closed_leases(**question))  # type: ignore[arg-type]
    assert "".join(sorted(row.lease.name for row in rows)) == answer
    assert all(row in busy.leases() and not row.open for row in rows)


def test_a_lease_is_read_back_whole_with_how_it_ended(busy: Ledger) -> None:
    first, second, third, _ = busy.leases()
    assert first.lease == lease("a")
    assert (first.open, first.end, first.closure, first.seq, first.closed_by) == (
        False,
        10,
        "Completed",
        1,
        3,
    )
    assert second.lease.gpus == (3,)
    assert (second.open, second.end, second.closure, second.seq, second.closed_by) == (
        True,
        None,
        None,
        2,
        None,
    )
    assert (third.lease.attempt, third.lease.role, third.closure) == (2, "Spare", "DropSpare")


def test_every_field_of_a_lease_is_kept(path: Path, ledger: Ledger) -> None:
    whole = lease("a", start=5, until=9, attempt=3, group=4, gpus=(7, 1), role="Borrowed", funding="shared",
                  since=2)  # fmt: skip
    record(ledger, (5, [Opened(lease=whole)]))
    assert [row.lease for row in ledger.leases()] == [whole]
    db = sqlite3.connect(path)
    columns = {row[1] for row in db.execute("PRAGMA table_info(leases)")}
    db.close()
    fields = {{"group": "grp", "gpus": "ordinals"}.get(name, name) for name in Lease.__struct_fields__}
    assert fields <= columns, "a new field of Lease needs a column and a migration step"


@pytest.mark.parametrize(
    ("by", "since", "until", "answer"),
    [
        ("owner", 0, 30, {"org:ai:rai": 2 * 10 + 2 * 10 + 25}),
        ("payer", 0, 30, {"org:ai:mm": 25, "org:ai:rai": 40}),
        ("envelope", 0, 30, {"mm/west": 25, "rai/west": 40}),
        ("sponsor", 0, 30, {"org:ai:mm": 25}),
        ("run", 0, 30, {"rai/eval": 25, "rai/train": 40}),
        ("node", 0, 30, {"n1": 40, "n2": 25}),
        ("node", 9, 11, {"n1": 4, "n2": 2}),
        ("node", 20, 21, {"n2": 1}),
        ("node", 0, 0, {}),
        ("node", 30, 10, {}),
        ("day", 0, 30, {"1970-01-01": 65}),
    ],
)
def test_usage_is_clipped_to_the_interval(
    busy: Ledger, by: str, since: int, until: int, answer: dict[str, int]
) -> None:
    assert busy.usage(by=by, since=since, until=until) == answer  # type: ignore[arg-type]


def test_usage_can_be_narrowed_down(busy: Ledger) -> None:
    assert busy.usage(by="run", since=0, until=30, role="Spare") == {"rai/train": 20}
    assert busy.usage(by="run", since=0, until=30, budget="mm") == {"rai/eval": 25}
    assert busy.usage(by="sponsor", since=0, until=30, namespace="rai", run="train") == {}


@pytest.mark.parametrize(
    ("by", "at", "answer"),
    [
        ("node", 9, {"n1": 2, "n2": 1}),
        ("node", 20, {"n2": 1}),
        ("owner", 10, {"org:ai:rai": 3}),
        ("sponsor", 10, {"org:ai:mm": 1}),
        ("envelope", 4, {"rai/west": 2}),
    ],
)
def test_who_held_how_many_at_an_instant(busy: Ledger, by: str, at: int, answer: dict[str, int]) -> None:
    assert busy.concurrency(by=by, at=at) == answer  # type: ignore[arg-type]


def test_days_are_cut_at_midnight_utc(ledger: Ledger) -> None:
    record(ledger, (NOON, [opened("a", start=NOON)]), (NOON, [opened("b", start=NOON, gpus=(7,))]))
    record(ledger, (NOON + 2 * DAY, [closed("a", end=NOON + DAY)]))
    assert ledger.usage(by="day", since=0, until=NOON + 2 * DAY) == {
        "2025-11-01": (2 + 1) * 12 * HOUR,
        "2025-11-02": 2 * 12 * HOUR + 24 * HOUR,
        "2025-11-03": 12 * HOUR,
    }


def test_sums_beyond_64_bits_are_exact(ledger: Ledger) -> None:
    wide, long = tuple(range(4096)), 2**53 - 1
    record(ledger, (0, [opened(name, gpus=wide) for name in "abcdef"]))
    for by in ("owner", "run", "node", "envelope"):
        assert sum(ledger.usage(by=by, since=0, until=long).values()) == 6 * 4096 * long > 2**66
    assert ledger.usage(by="node", since=1, until=4 * DAY) == {"n1": 6 * 4096 * (4 * DAY - 1)}


def test_attempts_go_on_counting_for_a_name(busy: Ledger) -> None:
    assert busy.attempts("rai", "train") == 2
    assert busy.attempts("rai", "eval") == 1
    assert busy.attempts("rai", "never") == busy.attempts("other", "train") == 0


def test_notes_come_in_order_and_decisions_newest_first(ledger: Ledger) -> None:
    record(
        ledger,
        (1, [noted("one"), decided("train", "p1"), noted("other", about="Budget/rai")]),
        (2, [decided("eval", "p2"), decided("train", "p3")]),
        (3, [noted("two"), noted("three"), decided("train", "p4")]),
    )
    assert [note.message for note in ledger.notes()] == ["one", "other", "two", "three"]
    assert [note.message for note in ledger.notes("Run/rai/train")] == ["one", "two", "three"]
    assert [note.message for note in ledger.notes(after_seq=1, limit=1)] == ["two"]
    assert [(note.seq, note.at, note.kind, note.reason) for note in ledger.notes("Budget/rai")] == [
        (1, 1, "Normal", "Started")
    ]
    assert [(one.seq, one.verdict.plan_hash) for one in ledger.decisions("rai", "train")] == [
        (3, "p4"),
        (2, "p3"),
        (1, "p1"),
    ]
    assert [one.verdict.plan_hash for one in ledger.decisions("rai", "train", limit=1)] == ["p4"]


def test_names_with_quotes_and_unicode_are_only_names(ledger: Ledger) -> None:
    odd = "x' OR 1=1; -- é \u2603"
    record(ledger, (1, [opened("a", run=odd, node=odd), noted("m", about=odd)]))
    assert [row.lease.node for row in ledger.leases(run=odd)] == [odd]
    assert ledger.leases(run="x' OR 1=1") == []
    assert len(ledger.notes(odd)) == 1


# --- random histories against a fold written from the definition ----------------------------------

Span = tuple[Lease, int | None]
_times = st.integers(0, 40).map(lambda tick: tick * 7 * HOUR + tick)


@st.composite
def histories(draw: st.DrawFn) -> list[Span]:
    """Leases with their ends, if they have one."""
    spans: list[Span] = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(_times)
        length = draw(st.none() | _times)
        payer = draw(st.sampled_from(["org:a", "org:b"]))
        one = lease(
            f"l{number}",
            start=start,
            payer=payer,
            budget=payer[4:],
            owner=draw(st.sampled_from(["org:a", "org:c"])),
            run=draw(st.sampled_from(["r", "s"])),
            node=draw(st.sampled_from(["n1", "n2", "n3"])),
            gpus=tuple(range(draw(st.integers(1, 8)))),
            funding=draw(st.sampled_from(["owned", "shared", "borrowed"])),
            role=draw(st.sampled_from(["Active", "Spare"])),
        )
        spans.append((one, None if length is None else start + length))
    return spans


KEYS: dict[str, Callable[[Lease], str | None]] = {
    "owner": lambda one: one.owner,
    "payer": lambda one: one.payer,
    "envelope": lambda one: f"{one.budget}/{one.envelope}",
    "sponsor": lambda one: one.payer if one.funding == "borrowed" else None,
    "run": lambda one: f"{one.namespace}/{one.run}",
    "node": lambda one: one.node,
}


def fold(spans: list[Span], by: str, since: int, until: int) -> dict[str, int]:
    """The definition of usage, lease by lease."""
    totals: dict[str, int] = {}
    for one, end in spans:
        key = KEYS[by](one)
        length = min(until if end is None else end, until) - max(one.start, since)
        if key is not None and length > 0:
            totals[key] = totals.get(key, 0) + len(one.gpus) * length
    return dict(sorted(totals.items()))


def fold_days(spans: list[Span], since: int, until: int) -> dict[str, int]:
    """Day by day, each with the definition of usage."""
    totals = {}
    for day in range(31):  # no question goes further
        used = fold(spans, "owner", max(since, day * DAY), min(until, (day + 1) * DAY))
        if used:
            totals[f"1970-01-{day + 1:02d}"] = sum(used.values())
    return totals


def play(ledger: Ledger, spans: list[Span]) -> None:
    """Open and close everything in the order of time, in as many entries."""
    moments: list[tuple[int, int, Fact]] = [(one.start, 0, Opened(lease=one)) for one, _ in spans]
    moments += [
        (end, 1, Closed(namespace=one.namespace, leases=(one.name,), end=end, reason="Completed"))
        for one, end in spans
        if end is not None
    ]
    record(ledger, *((at, [fact]) for at, _, fact in sorted(moments, key=lambda moment: moment[:2])))


@given(spans=histories(), since=_times, until=_times)
def test_usage_equals_a_fold_of_the_leases(spans: list[Span], since: int, until: int) -> None:
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "f.db", fleet="lab") as ledger:
        play(ledger, spans)
        answers = {by: ledger.usage(by=by, since=since, until=until) for by in KEYS}  # type: ignore[arg-type]
        assert answers == {by: fold(spans, by, since, until) for by in KEYS}
        assert {by: list(answer) for by, answer in answers.items()} == {by: sorted(answers[by]) for by in KEYS}
        assert ledger.usage(by="day", since=since, until=until) == fold_days(spans, since, until)
        assert sum(row.used(since=since, until=until) for row in ledger.leases()) == sum(answers["node"].values())
        # The three ways to add up agree (SPEC 13, invariant 10).
        assert len({sum(answers[by].values()) for by in ("payer", "node", "run")}) == 1
        assert sum(ledger.concurrency(by="node", at=since).values()) == sum(
            len(one.gpus) for one, end in spans if one.start <= since and (end is None or since < end)
        )
        before = (ledger.leases(), ledger.notes())
        ledger.rebuild()
        assert (ledger.leases(), ledger.notes()) == before
        assert ledger.verify().findings == ()


def test_a_rebuild_repairs_the_tables_from_the_entries(path: Path, ledger: Ledger) -> None:
    append(ledger, 20)
    before = (ledger.leases(), ledger.notes(), ledger.decisions("rai", "train"))
    _sql(path, "UPDATE leases SET payer = 'org:thief', gpus = 1")
    _sql(path, "DELETE FROM notes WHERE seq = 7; DELETE FROM decisions")
    assert ledger.leases() != before[0]
    ledger.rebuild()
    assert (ledger.leases(), ledger.notes(), ledger.decisions("rai", "train")) == before


def test_importing_the_ledger_loads_neither_the_engine_nor_anything_heavy() -> None:
    script = "import sys, json, tenure.ledger; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert {"sqlite3", "msgspec"} <= loaded
    heavy = {"yaml", "click", "rich", "asyncio", "logging", "tempfile", "subprocess", "importlib.resources"}
    assert not loaded & (heavy | {"tenure.engine", "tenure.shell", "tenure.ledger.verify"})


def _sql(path: Path, statements: str) -> None:
    db = sqlite3.connect(path)
    db.executescript(statements)
    db.close()


# --- completed runs -------------------------------------------------------------------------------------------------


def ran(name: str, *, start: int, end: int, until: int | None = None, owner: str = "org:a", reason: str = "Completed",
        attempt: int = 1) -> list[tuple[int, list[Fact]]]:  # fmt: skip
    """A run of one lease, from its opening to its end."""
    own = {"run": name, "uid": f"u-{name}", "owner": owner, "attempt": attempt, "until": until}
    key = f"{name}-{attempt}"
    return [(start, [opened(key, start=start, **own)]), (end, [closed(key, end=end, reason=reason)])]


def test_completed_runs_say_what_they_declared_and_what_they_took(ledger: Ledger) -> None:
    record(ledger, *ran("a", start=0, end=30, until=100), *ran("b", start=40, end=60))
    found = ledger.completed(["org:a"], before=60)
    assert [(row.owner, row.declared, row.real, row.end) for row in found] == [
        ("org:a", 100, 30, 30), ("org:a", None, 20, 60),
    ]  # fmt: skip
    assert len(ledger.completed(["org:a"], before=59)) == 1, "of an instant of the past, what was over by then"


def test_only_who_came_to_its_end_by_itself_has_completed(ledger: Ledger) -> None:
    """Of several attempts the one that completed counts, from its own first lease to its last."""
    record(ledger, *ran("a", start=0, end=5, reason="Failed"), *ran("a", start=10, end=30, attempt=2),
           *ran("gone", start=40, end=50, reason="Canceled"))  # fmt: skip
    own = {"run": "wide", "uid": "u-wide", "owner": "org:a", "attempt": 1}
    record(
        ledger,
        (60, [opened("w0", start=60, **own)]),
        (70, [opened("w1", start=70, **own), closed("w0", end=70, reason="Swap")]),
        (90, [closed("w1", end=90)]),
    )
    assert [row.real for row in ledger.completed(["org:a"], before=1000)] == [20, 30]


def test_the_last_of_each_owner_count_and_the_fleets_where_one_has_few(ledger: Ledger) -> None:
    for number in range(10):
        record(ledger, *ran(f"a{number}", start=number * 10, end=number * 10 + number + 1))
    record(ledger, *ran("b", start=100, end=150, owner="org:b"))
    assert [row.real for row in ledger.completed(["org:a"], before=1000, each=6)] == [5, 6, 7, 8, 9, 10]
    both = ledger.completed(["org:b"], before=1000, fleet=3)
    assert [(row.owner, row.real) for row in both] == [("org:a", 9), ("org:a", 10), ("org:b", 50)]
    assert ledger.completed([], before=1000, fleet=1) == both[-1:]
