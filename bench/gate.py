"""Whether a run of the benchmarks may pass: promises are kept, and no number is worse than its range.

What is counted does not depend on how large the promises are measured, so its ranges stand once, under ``any``.
"""

from __future__ import annotations

from bench import counted, instructions, ranges
from bench.ranges import Judged, Range, Ranges
from bench.report import Results
from bench.result import Row, Scale

_ONE_SIZE = (counted.NAME, instructions.NAME)


class Gate:
    """One run, judged by the ranges."""

    def __init__(self, results: Results, known: Ranges) -> None:
        self._results = results
        self._known = known
        self._machines = {name: its.machine for name, its in results.benches.items()}

    def of(self, row: Row) -> tuple[str, Judged]:
        """A row's range, and where it stands in it."""
        found = self.range_of(row)
        if found is None:
            return "", "new"
        machine = self._machines.get(row.bench) or next(iter(self._machines.values()))
        return found.shown, found.judge(row, machine.system, machine.python, machine.cores)

    def range_of(self, row: Row) -> Range | None:
        return self._known.get(part_of(row.bench, self._results.scale), {}).get(row.bench, {}).get(row.key)

    @property
    def worse(self) -> list[Row]:
        return [row for row in self._results.rows if self.of(row)[1] == "worse"]

    @property
    def missing(self) -> list[str]:
        """Numbers that there was a range for, and that this run did not measure, though it could have."""
        out = []
        for name, its in self._results.benches.items():
            if not any(_left_out(row) for row in its.rows):
                keys = {row.key for row in its.rows}
                known = self._known.get(part_of(name, self._results.scale), {}).get(name, {})
                out += [f"{name}: {key}" for key in known if key not in keys]
        return out

    @property
    def fresh(self) -> list[Row]:
        """Numbers of the full scale that were never compared with anything: a gate that has no range for them is
        open. Smaller scales are for looking."""
        rows = self._results.rows if self._results.scale.name == "full" else []
        return [row for row in rows if self.of(row)[1] == "new"]

    @property
    def passes(self) -> bool:
        return not (self._results.broken or self.worse or self.missing or self.fresh)

    def summary(self) -> str:
        """What came of it, and on the last line what to do."""
        rows, broken, worse = self._results.rows, self._results.broken, self.worse
        stands = [self.of(row)[1] for row in rows]
        promises = sum(row.goal is not None for row in rows)
        kept = f"All {promises} promises hold" if not broken else f"{len(broken)} of {promises} promises are broken"
        known = [one for one in stands if one in ("inside", "better", "worse")]
        lines = [_told(kept, len(known), stands)]
        if missing := self.missing:
            names = dict.fromkeys(one.partition(":")[0] for one in missing)
            lines.append(f"Not measured any more: {'; '.join(missing)}. If that is meant: "
                         f"`python -m bench{self._scale} --accept {' --accept '.join(names)}`.")  # fmt: skip
        elif worse:
            lines.append(f"Worse than before: look at what changed since {self._since(worse)}. If it is meant to be "
                         f"so: `python -m bench{self._scale} --accept {_names(worse)}`.")  # fmt: skip
        elif broken:
            lines.append(f"Broken: {_names(broken)}. How it is measured is told at the top of its module in bench/.")
        elif "better" in stands:
            better = [row for row, one in zip(rows, stands, strict=True) if one == "better"]
            lines.append(f"Better than before: `python -m bench{self._scale} --accept {_names(better)}` takes that "
                         "over, so that it cannot be lost unseen.")  # fmt: skip
        elif "new" in stands:
            fresh = [row for row, one in zip(rows, stands, strict=True) if one == "new"]
            lines.append(f"Without a range: `python -m bench{self._scale} --accept {_names(fresh)}`.")
        else:
            lines.append("Nothing to do.")
        return "\n".join(lines)

    @property
    def _scale(self) -> str:
        name = self._results.scale.name
        return "" if name == "full" else f" --scale {name}"

    def _since(self, rows: list[Row]) -> str:
        found = [one for one in map(self.range_of, rows) if one is not None]
        commits = {one.taken_from[-1].commit for one in found}
        return " and ".join(sorted(commits))


def _told(kept: str, known: int, stands: list[Judged]) -> str:
    inside, better, worse = (stands.count(one) for one in ("inside", "better", "worse"))
    return f"{kept}; of {known} known numbers {inside} are within their range, {better} better, {worse} worse."


def part_of(bench: str, scale: Scale) -> str:
    """Under which scale a benchmark's ranges stand."""
    return "any" if bench in _ONE_SIZE else scale.name


def accept(results: Results, *, widen: bool = False) -> list[tuple[Row, Range]]:
    """Take over what was measured as what is expected; what could not be measured has no number."""
    known = ranges.load()
    taken: list[tuple[Row, Range]] = []
    for name, its in results.benches.items():
        rows = [(row, ranges.origin(row, its.machine)) for row in its.rows if not _left_out(row)]
        part = known.setdefault(part_of(name, results.scale), {})
        if rows and not widen:
            part.pop(name, None)  # with what is measured no more
        taken += ranges.take(known, part_of(name, results.scale), rows, widen=widen)
    ranges.save(known)
    return taken


def _left_out(row: Row) -> bool:
    """Whether a row says that something could not be measured here, and why."""
    return row.what.startswith("not measured")


def _names(rows: list[Row]) -> str:
    return " --accept ".join(dict.fromkeys(row.bench for row in rows))
