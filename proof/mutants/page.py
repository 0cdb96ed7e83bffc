"""``docs/develop/proof-mutants.md``, made from the bugs and the results that are kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from proof.mutants import matrix
from proof.mutants.bugs import MUTANTS, PARTS
from proof.mutants.detectors import DETECTORS, INVARIANTS
from proof.mutants.killers import ENDLESS_MAX, SECONDS_MAX, scenarios
from proof.mutants.mutant import KINDS, ROOT, Mutant
from proof.mutants.results import Results, Row, alone, by_detector
from proof.mutants.runner import HOW
from proof.mutants.seeds import CHECK_EVERY, NAMES, STEPS

PATH = ROOT / "docs" / "develop" / "proof-mutants.md"

_INTRO = """\
# Planted bugs

<!-- Generated from proof/mutants by `python -m proof mutants --docs`; do not edit. -->

A suite of tests that has never failed has proved nothing. Here are {count} bugs that a tired engineer might really
write: one place of `src/tenure` each, the text that stands there and what stands there instead. Each was planted (in a
process of its own; the checkout is never touched) and tried on {how}:

- {scenarios} **scenarios** on the simulator, with the auditor after every step, and the page of what must come out;
- {worlds} **worlds**: random histories of {steps} steps, with the auditor at every entry, and the books counted from
  scratch every {every} steps;
- the **tests** of its own area (`AREAS` in `proof/mutants/killers.py`). Bugs outside the engine and the shell are tried
  on these alone: no scenario and no world has a part of what they are in.

Nobody stops at the first that sees a bug. What bounds the work: a scenario or world that takes {world_seconds} s of
processor time counts as endless, and so does a test that takes {test_seconds} s; after {endless} such no others of its
sort are asked. Tests of other areas are not run.

**{caught} of {count} are caught ({percent:.1f} %), and each of the twelve [invariants](../reference/invariants.md)
sees at least {least}.** Measured with `python -m proof mutants --keep`, which keeps nothing of a tree that is no
commit, on {when}.

| command | what it does |
|---|---|
| `python -m proof mutants` | every bug on all of these: some 10 minutes of one idle core |
| `python -m proof mutants --only NAME` | one bug, and all that saw it, in its own words |
| `python -m proof mutants --quick` | each bug against its quickest killer: some minutes; `make test` runs it |
| `python -m proof mutants --list` | their names |

**To read a failure.** "*NAME was not seen by KILLER*": the code or the test has changed so that this bug would go
unnoticed there; `--only NAME` tells who else still sees it. "*BROKEN, not tried: NAME: its text stands 0 times in
FILE*": the line was rewritten; rewrite the bug to match (`proof/mutants/bugs/`), commit, then `--only NAME --keep` and
`--docs`. So is a bug that cannot be imported, whose process dies, or whose tests cannot be run: it is neither caught
nor missed, and the command exits 1. "*without any bug, KILLER says ...*": a real failure, which has nothing to do with
planted ones.

**To add one**, write it down in `proof/mutants/bugs/`, commit, run it with `--only NAME --keep`, and `--docs`. If
nothing sees it, write the test that would have (`tests/engine/test_planted.py` and `test_planted_queue.py` have those
of the engine); a bug that stays uncaught says why (`survives`).
"""


def text(results: Results) -> str:
    return "\n".join(
        (
            _head(results),
            *_kinds(results),
            *_invariants(results),
            *matrix.by_detector(results),
            *matrix.by_killer(results),
            *_parts(results),
            *_survivors(results),
        )
    )


def _head(results: Results) -> str:
    rows = results.rows
    caught, killed = sum(row.caught for row in rows), by_detector(rows)
    when = Counter((row.commit, row.date) for row in rows)
    return _INTRO.format(
        count=len(rows), caught=caught, percent=100 * caught / len(rows), steps=STEPS, every=CHECK_EVERY,
        how=" and ".join(sorted({HOW[row.how] for row in rows})), scenarios=len(scenarios()), worlds=len(NAMES),
        least=min(len(killed[name]) for name in INVARIANTS), world_seconds=SECONDS_MAX["world"],
        test_seconds=SECONDS_MAX["test"], endless=ENDLESS_MAX,
        when=" and ".join(_measured(*one, of) for one, of in sorted(when.items(), key=lambda item: -item[1])),
    )  # fmt: skip


def _measured(commit: str, date: str, bugs: int) -> str:
    return f"`{commit}` ({date}, {bugs} bug{'' if bugs == 1 else 's'})"


def _kinds(results: Results) -> Iterator[str]:
    rows = {row.mutant: row for row in results.rows}
    yield "## By class\n\n| class | what they have in common | bugs | caught |\n|---|---|---:|---:|"
    for kind, says in KINDS.items():
        some = [rows[one.name] for one in MUTANTS if one.kind == kind and one.name in rows]
        yield f"| {kind} | {says} | {len(some)} | {sum(row.caught for row in some)} |"
    yield ""


_JUDGES = """\
An invariant has seen a bug where the auditor reported it under its name, in whichever scenario, world or test. I1 to
I10 and the second half of I12 it reads from the ledger. I11 is judged by `tenure.audit.settled_pass_wrote`: a harness
(`tests/engine/machine.py`, `tenure.testing.scenarios`, `proof/mutants/worlds.py`) asks for one more pass where nothing
is left to do, also of a state that was rebuilt, and hands over what that wrote. The first half of I12 (who could start
does) is no property of a ledger: it is the detector `anew` below, and not counted here.

| invariant | bugs it sees | no other invariant does | nothing else does | among them |
|---|---:|---:|---:|---|"""


def _invariants(results: Results) -> Iterator[str]:
    seen = by_detector(results.rows)
    first, only = alone(results.rows, INVARIANTS), alone(results.rows, DETECTORS)
    yield f"## By invariant\n\n{_JUDGES}"
    for name in INVARIANTS:
        yield f"| {name} | {len(seen[name])} | {len(first[name])} | {len(only[name])} | {_some(seen[name])} |"
    yield ""


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(f"`{name}`" for name in names[:4]) + more


def _parts(results: Results) -> Iterator[str]:
    rows = {row.mutant: row for row in results.rows}
    for title, mutants in PARTS.items():
        yield f"## {title}\n"
        yield "| bug | where | quickest |\n|---|---|---|"
        yield from (_row(mutant, rows[mutant.name]) for mutant in mutants if mutant.name in rows)
        yield ""


def _row(mutant: Mutant, row: Row) -> str:
    quickest = f"`{_short(row.killer)}`" if row.caught else "**nothing**"
    return f"| `{mutant.name}`: {_escaped(mutant.bug)} | {mutant.file} | {quickest} |"


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
