"""``docs/develop/proof-mutants.md``, made from the bugs and the results that are kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proof.mutants.bugs import MUTANTS, PARTS
from proof.mutants.mutant import KINDS, ROOT, Mutant
from proof.mutants.results import Results, Row, by_invariant
from proof.mutants.seeds import CHECK_EVERY, STEPS

PATH = ROOT / "docs" / "develop" / "proof-mutants.md"

_INTRO = """\
# Planted bugs

<!-- Generated from proof/mutants by `python -m proof mutants --docs`; do not edit. -->

A suite of tests that has never failed has proved nothing. Here are {count} bugs that a tired engineer might really
write: one place of `src/tenure` each, the text that stands there and what stands there instead. Each was planted (in a
process of its own; the checkout is never touched) and tried{extent} on

- {scenarios} **scenarios** on the simulator, with the auditor after every step, and the page of what must come out;
- {worlds} **worlds**: random histories of {steps} steps, with the auditor at every entry, and the books counted from
  scratch every {every} steps;
- the **tests** of its own area. Bugs outside the engine and the shell are tried on these alone.

**{caught} of {count} are caught ({percent:.1f} %), and {kill} of the twelve [invariants](../reference/invariants.md)
kill at least one.** Measured on {commits} with `{command}`.

| command | what it does |
|---|---|
| `python -m proof mutants` | every bug on every scenario and world, and on tests: some 15 minutes of one core |
| `python -m proof mutants --only NAME` | one bug, and all that saw it, in its own words |
| `python -m proof mutants --quick` | each bug against its quickest killer: some minutes; `make test` runs it |
| `python -m proof mutants --list` | their names |

**To read a failure.** "*NAME was not seen by KILLER*": the code or the test has changed so that this bug would go
unnoticed there; `--only NAME` tells who else still sees it. "*its text stands 0 times in FILE*": the line was
rewritten; rewrite the bug to match (`proof/mutants/bugs/`), then `--only NAME --keep` and `--docs`. "*without any bug,
KILLER says ...*": a real failure, which has nothing to do with planted ones.

**To add one**, write it down in `proof/mutants/bugs/`, run it with `--only NAME --keep`, and `--docs`. If nothing sees
it, write the test that would have (`tests/engine/test_planted.py` has those of the engine); a bug that stays uncaught
says why (`survives`).

"Seen by" counts the killers that saw a bug ("at least": nobody looked further, see `--how`), and "invariants" names
those that any of them named; the whole table of bugs and killers is in `proof/mutants/results.json`.
"""


def text(results: Results) -> str:
    return "\n".join((_head(results), *_kinds(results), *_invariants(results), *_parts(results), *_survivors(results)))


def _head(results: Results) -> str:
    caught = sum(row.caught for row in results.rows)
    early = any(row.how in ("first", "some") for row in results.rows)
    commits = " and ".join(f"`{one}`" for one in sorted({row.commit for row in results.rows}))
    kill = sum(bool(killed) for killed in by_invariant(results.rows).values())
    return _INTRO.format(
        count=len(results.rows), caught=caught, percent=100 * caught / len(results.rows), steps=STEPS,
        extent=", most of them until something saw it," if early else "",
        every=CHECK_EVERY, kill=kill, commits=commits, command=results.command, **results.tried,
    )  # fmt: skip


def _kinds(results: Results) -> Iterator[str]:
    rows = {row.mutant: row for row in results.rows}
    yield "## By class\n\n| class | what they have in common | bugs | caught |\n|---|---|---:|---:|"
    for kind, says in KINDS.items():
        some = [rows[one.name] for one in MUTANTS if one.kind == kind and one.name in rows]
        yield f"| {kind} | {says} | {len(some)} | {sum(row.caught for row in some)} |"
    yield ""


def _invariants(results: Results) -> Iterator[str]:
    yield "## By invariant\n\nA bug is named once for each invariant that any killer named for it.\n"
    yield "| invariant | bugs it kills | among them |\n|---|---:|---|"
    for name, killed in by_invariant(results.rows).items():
        yield f"| {name} | {len(killed)} | {_some(killed)} |"
    yield ""


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(f"`{name}`" for name in names[:4]) + more


def _parts(results: Results) -> Iterator[str]:
    rows = {row.mutant: row for row in results.rows}
    for title, mutants in PARTS.items():
        yield f"## {title}\n"
        yield "| bug | where | seen by | invariants | quickest |\n|---|---|---|---|---|"
        yield from (_row(mutant, rows[mutant.name]) for mutant in mutants if mutant.name in rows)
        yield ""


def _row(mutant: Mutant, row: Row) -> str:
    named = " ".join(name.partition("-")[0] for name in row.invariants)
    quickest = f"`{_short(row.killer)}`" if row.caught else "**nothing**"
    said = _escaped(mutant.bug)
    return f"| `{mutant.name}`: {said} | {mutant.file} | {_seen(row)} | {named} | {quickest} |"


def _seen(row: Row) -> str:
    counts = Counter(killer.partition(" ")[0] for killer in row.seen_by)
    words = [f"{counts[sort]} {sort}{'' if counts[sort] == 1 else 's'}" for sort in ("scenario", "world", "test")
             if counts[sort]]  # fmt: skip
    more = " at least" if row.how in ("first", "some") and row.caught else ""
    return (", ".join(words) or "nothing") + more


def _short(killer: str) -> str:
    return _escaped(killer.removeprefix("test ").replace("tests/", "", 1))


def _survivors(results: Results) -> Iterator[str]:
    missed = {row.mutant for row in results.rows if not row.caught}
    yield "## What is not caught\n"
    if not missed:
        yield "Nothing of what is planted today.\n"
    for mutant in MUTANTS:
        if mutant.name in missed:
            yield f"- `{mutant.name}`: {mutant.survives}\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
