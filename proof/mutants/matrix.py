"""The report bug x detector and bug x killer, as two parts of the page."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill

from proof.mutants.detectors import DETECTORS, INVARIANTS
from proof.mutants.killers import scenarios
from proof.mutants.results import Results, Row, alone
from proof.mutants.results import by_detector as seen_by
from proof.mutants.seeds import NAMES

_SORTS = ("scenario", "world", "test")
_SIGNS = {"anew": "a", "source": "s", "count": "c", "state": "r", "page": "p", "time": "t"}
_EACH = 10
"""Columns that stand together."""


def by_detector(results: Results) -> Iterator[str]:
    """Rows: bugs. Columns: who speaks up, in how many killers; and how many killers of each sort saw it."""
    seen, only = seen_by(results.rows), alone(results.rows, DETECTORS)
    yield "## Bugs and detectors\n"
    yield "In how many scenarios, worlds and tests each detector saw each bug; and how many of each sort did.\n"
    for name, says in DETECTORS.items():
        if name not in INVARIANTS:
            yield f"- **{name}**: {says}. It sees {len(seen[name])}, and {len(only[name])} that nothing else does."
    yield ""
    columns = [*DETECTORS, *(f"{sort}s" for sort in _SORTS)]
    yield f"| bug | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}"
    for row in results.rows:
        counts = [*(len(row.found.get(name, ())) for name in DETECTORS), *_sorts(row)]
        yield f"| `{row.mutant}` | {' | '.join(str(count or '') for count in counts)} |"
    totals = [*(len(seen[name]) for name in DETECTORS), *map(sum, zip(*map(_any, results.rows), strict=True))]
    yield f"| **bugs seen** | {' | '.join(f'**{total}**' for total in totals)} |\n"


def _sorts(row: Row) -> list[int]:
    return [sum(killer.startswith(f"{sort} ") for killer in row.seen_by) for sort in _SORTS]


def _any(row: Row) -> list[bool]:
    return [count > 0 for count in _sorts(row)]


_KEY = """\
## Bugs, scenarios and worlds

Who saw what, one by one: `i` the auditor, `p` the page, `c` a count from scratch, `r` a state that is another one or
does not come to rest, `a` looked at anew, `s` the source itself, `t` it does not end. Bugs that are tried on tests
alone are left out; which tests saw which bug is in `proof/mutants/results.json`, a line for each bug."""


def by_killer(results: Results) -> Iterator[str]:
    """Rows: bugs. Columns: every scenario and every world, a sign each."""
    killers = [*(f"scenario {name}" for name in scenarios()), *(f"world {name}" for name in NAMES)]
    yield f"{_KEY}\n\n```text"
    width = max(len(row.mutant) for row in results.rows)
    for place in (0, 1):
        yield f"{'':<{width}} {_spaced([f'{number:02d}'[place] for number in range(1, len(killers) + 1)])}"
    killed = set[str]()
    for row in results.rows:
        signs = _signs(row)
        killed |= signs.keys()
        if not signs.keys().isdisjoint(killers):
            yield f"{row.mutant:<{width}} {_spaced([signs.get(killer, '.') for killer in killers])}"
    yield "```\n"
    named = (f"{number:02d} {killer}" for number, killer in enumerate(killers, 1))
    yield f"{_wrapped(', '.join(named))}.\n"
    if idle := [killer for killer in killers if killer not in killed]:
        yield f"{_wrapped('None of these bugs is seen by ' + ', '.join(idle))}.\n"


def _wrapped(text: str) -> str:
    return fill(text, width=119, break_long_words=False, break_on_hyphens=False)


def _signs(row: Row) -> dict[str, str]:
    """By killer, the sign of the one who spoke."""
    return {killer: _SIGNS.get(name, "i") for name, some in row.found.items() for killer in some}


def _spaced(signs: list[str]) -> str:
    return " ".join("".join(signs[at : at + _EACH]) for at in range(0, len(signs), _EACH))
