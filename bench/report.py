"""The table for people, the file for programs, and the page for the docs: one set of rows, written three ways."""

from __future__ import annotations

import os
import platform
import subprocess
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from inspect import getdoc
from itertools import groupby
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from bench import growth, plots
from bench.promises import BENCHES
from bench.ranges import DIRTY, Judged
from bench.result import Machine, Row, Scale, number

ROOT = Path(__file__).resolve().parents[1]
PLOTS = "performance"
"""The folder of the pictures, beside the page."""


class Measured(Struct, frozen=True):
    """One benchmark: where and when it was run, and what came of it."""

    machine: Machine
    rows: list[Row]


class Results(Struct, frozen=True):
    """What was measured, each benchmark with where its numbers come from: they may be run one by one."""

    scale: Scale
    benches: dict[str, Measured]

    @property
    def rows(self) -> list[Row]:
        return [row for one in self.benches.values() for row in one.rows]

    def over(self, older: Results | None) -> Results:
        """These, and of what was not measured now what was measured before at the same scale."""
        if older is None or older.scale != self.scale:
            return self
        both = older.benches | self.benches
        return Results(self.scale, {name: both[name] for name in BENCHES if name in both})


WRITTEN = (
    "bench/results.json", "bench/ranges.json", "docs/performance.md", "docs/performance",
    "proof/mutants/results.json", "docs/develop/proof-mutants.md",
)  # fmt: skip
"""What measuring writes itself, and the planted bugs that ``evidence`` runs."""


def commit() -> str:
    """What is measured; ``-dirty`` if it is not quite that commit. What measuring itself writes does not count."""
    git = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False)
    head = git(["git", "rev-parse", "--short", "HEAD"]).stdout.strip()
    others = [".", *(f":!{path}" for path in WRITTEN)]
    changed = git(["git", "diff", "--quiet", "HEAD", "--", *others]).returncode != 0
    return head + DIRTY * changed if head else "unknown"


def this_machine() -> Machine:
    return Machine(
        at=datetime.now(UTC).isoformat(timespec="seconds"), commit=commit(),
        python=platform.python_version(), system=f"{platform.system()} {platform.machine()}", cores=os.cpu_count() or 0,
        load=round(os.getloadavg()[1], 1),
    )  # fmt: skip


# --- for people -----------------------------------------------------------------------------------------------------


class Judge(Protocol):
    """What is expected of rows (``gate.Gate``)."""

    def of(self, row: Row) -> tuple[str, Judged]: ...

    def holds(self, row: Row) -> bool | None: ...


def table(rows: Iterable[Row], judge: Judge | None = None) -> str:
    """One line for each row, under the name of its promise; ``judge`` tells a row's range and where it stands in it,
    and whether it says anything of the promise.

    >>> print(table([Row(bench="commits", what="leases in a second", measured=110.2, goal=10, sense="at least")]))
                                                 goal           measured  of goal  ok
    commits
      leases in a second               at least 10 x              110 x     11.0  yes
    """
    rows = list(rows)
    wide = max([30, *(len(row.what) for row in rows)])
    lines = [f"{'':{wide}}  {'goal':>16}  {'measured':>17}  of goal  ok{'   range, from' if judge else ''}"]
    for bench, its in groupby(rows, key=lambda row: row.bench):
        lines.append(bench)
        for row in its:
            holds = judge.holds(row) if judge else None if row.goal is None else row.ok
            verdict = {True: "yes", False: "NO", None: ""}[holds]
            part = "" if row.ratio is None or holds is None else number(row.ratio)
            known, stands = judge.of(row) if judge else ("", "inside")
            note = f"{known} {_STANDS[stands]}".strip()
            lines.append(
                f"  {row.what:{wide}} {row.promised:>16} {row.found:>17} {part:>8}  {verdict:<3}  {note}".rstrip()
            )
        lines += textwrap.wrap(not_shown(bench) if bench in BENCHES else "", 118, initial_indent="  ",
                               subsequent_indent="  ")  # fmt: skip
    return "\n".join(lines)


_STANDS: dict[Judged, str] = {
    "inside": "",
    "better": "better",
    "far": "better, as on another machine",
    "worse": "WORSE",
    "new": "(no range yet)",
    "elsewhere": "(of another machine)",
    "unjudged": "",
}


# --- for programs ---------------------------------------------------------------------------------------------------


def from_json(text: str) -> Results | None:
    """Results that were written before; None if they are of an older form."""
    try:
        return msgspec.json.decode(text, type=Results)
    except msgspec.ValidationError:
        return None


def to_json(results: Results) -> str:
    return msgspec.json.format(msgspec.json.encode(results, order="deterministic"), indent=2).decode() + "\n"


# --- for the docs ---------------------------------------------------------------------------------------------------

_PAGE = """# What it costs

<!-- Written by `make bench ARGS=--docs`. Do not edit. -->

Tenure promises how costs grow, not how many seconds something takes: a number with an x compares two things that were
measured in turns within one run. `make bench` measures all of it again and fails if a promise is broken, or if a number
is worse than the range in which it was before (`bench/ranges.json`, with what each was taken from; the table says from
how many runs, and most are from one); how each is measured is told at the top of its module in `bench/`. A load above
the number of cores disturbs wall clocks, and processor time hardly; what is counted (steps, lines, instructions) is the
same whatever else the machine does. What was not measured within its limit has no number, and its promise does not
hold. Below some tables stands what they do not show.

"""

_WHERE = "Measured {at} at commit {commit}: Python {python} on {system}, {cores} cores, load {load}.{older}\n\n"
_OLDER = " **Of older code: {days} before the newest of these figures.**"


def page(results: Results) -> str:
    """``docs/performance.md``."""
    out = [_PAGE, *_plots(results)]
    newest = max((_when(its) for its in results.benches.values()), default=None)
    for bench in (name for name in BENCHES if name in results.benches):
        its = results.benches[bench]
        out.append(f"## {bench.capitalize()}\n\n{_promise(bench)}\n\n")
        days = (newest - _when(its)).days if newest else 0
        older = _OLDER.format(days="a day" if days == 1 else f"{days} days") if days else ""
        out.append(_WHERE.format(**msgspec.structs.asdict(its.machine), older=older))
        out.append("| what | goal | measured | of goal | |\n|---|---:|---:|---:|---|\n")
        out.extend(
            f"| {row.what} | {row.promised} | {row.found} | {'' if row.ratio is None else number(row.ratio)} "
            f"| {_figures(row)} |\n"
            for row in its.rows
        )
        out.append("\n")
        if hidden := not_shown(bench):
            out.append(f"{hidden}\n\n")
    return "".join(out).rstrip() + "\n"


def _when(its: Measured) -> datetime:
    return datetime.fromisoformat(its.machine.at)


def _plots(results: Results) -> Iterable[str]:
    """The pictures of how costs grow, if that was measured."""
    its = results.benches.get(growth.NAME)
    curves = plots.curves(its.rows) if its is not None else []
    if its is None or not curves:
        return
    yield "## How costs grow\n\n"
    for curve in curves:
        yield f"![{curve.title}]({PLOTS}/{curve.axis}.svg)\n\n{plots.caption(curve)}\n\n"


def _promise(bench: str) -> str:
    """The first paragraph of a benchmark's theory."""
    return (BENCHES[bench].__doc__ or "").split("\n\n")[0].replace("\n", " ")


_NOT_SHOWN = "Not shown: "


def not_shown(bench: str) -> str:
    """What a benchmark's table does not tell, if its theory says so: the paragraph that begins with these words."""
    theory = getdoc(BENCHES[bench]) or ""
    return next((part.replace("\n", " ") for part in theory.split("\n\n") if part.startswith(_NOT_SHOWN)), "")


def _figures(row: Row) -> str:
    """The absolute numbers behind a ratio, where there are few of them."""
    plain = {name: value for name, value in row.detail.items() if isinstance(value, int | float)}
    return ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in plain.items())
