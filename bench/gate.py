"""Whether a run of the benchmarks may pass: promises are kept, and no number is worse than its range.

Promises and ranges speak of the full scale. A smaller one is for looking, or for testing the harness: it is held
against neither, and passes if everything ran and what must be right at any size (all answers, say) is right. What is
counted does not depend on how large the promises are measured: its ranges stand once, under ``any``, for every run.

What could not be measured here (there is no control plane, no valgrind, no trace) is told by name and number, and then
not all promises hold; where nothing may be left out (``CI=true``) it is a failure. What could be measured and was not
done within its limit is no such case: its promise is broken, and its range stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench import counted, evidence, instructions, ranges
from bench.promises import PROMISED
from bench.ranges import DIRTY, Judged, Range, Ranges
from bench.report import Results
from bench.result import Row, Scale

ONE_SIZE = (counted.NAME, instructions.NAME)
_LOOKED = {"quick": "Quick look", "tiny": "Harness test"}
"""What a run is that is not of the scale of the promises."""


class Gate:
    """One run, judged by the ranges."""

    def __init__(self, results: Results, known: Ranges, *, strict: bool = False) -> None:
        """``strict``: what was not measured fails."""
        self._results = results
        self._known = known
        self._strict = strict
        self._machines = {name: its.machine for name, its in results.benches.items()}

    def of(self, row: Row) -> tuple[str, Judged]:
        """A row's range with the number of runs that it is from, and where the row stands in it."""
        if not _has_number(row) or not self._compares(row.bench):
            return "", "unjudged"
        found = self.range_of(row)
        if found is None:
            return "", "new"
        machine = self._machines.get(row.bench) or next(iter(self._machines.values()))
        return f"{found.shown}, {found.runs}", found.judge(row, machine.system, machine.python, machine.cores)

    def range_of(self, row: Row) -> Range | None:
        return self._known.get(part_of(row.bench, self._results.scale), {}).get(row.bench, {}).get(row.key)

    def holds(self, row: Row) -> bool | None:
        """Whether a row keeps its promise; None where it has none, or this run is too small to say so."""
        if row.goal is None or not (self._compares(row.bench) or _at_any_size(row)):
            return None
        return row.ok

    @property
    def broken(self) -> list[Row]:
        return [row for row in self._results.rows if self.holds(row) is False]

    @property
    def worse(self) -> list[Row]:
        return self._that_are("worse")

    @property
    def missing(self) -> list[str]:
        """Numbers that there was a range for, and that this run did not measure, though it could have."""
        out = []
        for name, its in self._results.benches.items():
            if self._compares(name) and not any(_left_out(row) for row in its.rows):
                keys = {row.key for row in its.rows}
                known = self._known.get(part_of(name, self._results.scale), {}).get(name, {})
                out += [f"{name}: {key}" for key in known if key not in keys]
        return out

    @property
    def fresh(self) -> list[Row]:
        """Numbers that were never compared with anything: a gate that has no range for them is open."""
        return self._that_are("new")

    @property
    def passes(self) -> bool:
        return not (self.broken or self.worse or self.missing or self.fresh or (self._strict and self.unmeasured))

    @property
    def unmeasured(self) -> dict[str, str]:
        """Benchmarks that say nothing of their promises here, and why."""
        return {
            name: next((row.what for row in its.rows), "not measured: it has no numbers")
            for name, its in self._results.benches.items()
            if self._compares(name) and (not its.rows or any(map(_left_out, its.rows)))
        }

    def summary(self) -> str:
        """What came of it, and on the last line what to do."""
        parts = [*self._promises(), *self._numbers()]
        said = ["; ".join(parts) + "."] if parts else []
        return "\n".join([*self._looked(), *self._left_out(), *self._of_no_commit(), *said, self._to_do()])

    # -- what came of it --

    def _looked(self) -> Iterator[str]:
        name = self._results.scale.name
        if name in _LOOKED and not all(map(self._compares, self._results.benches)):
            yield f"{_LOOKED[name]}: no promise judged, because they are about the full scale."

    def _left_out(self) -> Iterator[str]:
        yield from (f"{name}: {why}" for name, why in self.unmeasured.items())

    def _of_no_commit(self) -> Iterator[str]:
        """Ranges that nobody can measure again: what they were taken from was never committed."""
        found = [(row.bench, run.commit) for row in self._results.rows if (one := self.range_of(row)) is not None
                 for run in one.taken_from if run.commit.endswith(DIRTY)]  # fmt: skip
        if found:
            names, commits = (", ".join(dict.fromkeys(some)) for some in zip(*found, strict=True))
            yield f"Of no commit that can be checked out ({commits}) are ranges of {names}: to be taken anew."

    def _promises(self) -> Iterator[str]:
        broken, judged = len(self.broken), sum(self.holds(row) is not None for row in self._results.rows)
        unmeasured = sum(one.by in self.unmeasured for one in PROMISED)
        if judged and self._is_whole:
            every = f"The {judged} that were measured hold" if unmeasured else f"All {judged} promises hold"
            yield f"{broken} of {judged} promises are broken" if broken else every
        elif broken:
            yield f"{broken} of {judged} answers are wrong, which they may be at no scale"
        if unmeasured:
            yield f"{unmeasured} promise{'s were' if unmeasured > 1 else ' was'} NOT measured"

    def _numbers(self) -> Iterator[str]:
        """How many numbers are where they are expected."""
        inside, better, worse = (self._that_are(*some) for some in (["inside"], ["better", "far"], ["worse"]))
        if not (known := [*inside, *better, *worse]):
            return
        kind = "counts" if all(row.steady for row in known) else "known numbers"
        if better or worse:
            yield (f"of {len(known)} {kind} {len(inside)} are within their ranges, {len(better)} better, "
                   f"{len(worse)} worse")  # fmt: skip
        else:
            yield f"{len(known)} {kind} are within their ranges"

    # -- what to do --

    def _to_do(self) -> str:
        if missing := self.missing:
            names = dict.fromkeys(one.partition(":")[0] for one in missing)
            return f"Not measured any more: {'; '.join(missing)}. If that is meant: `{self._accept(names)}`."
        if worse := self.worse:
            return (f"Worse than before: look at what changed since {self._since(worse)}. If it is meant to be so: "
                    f"`{self._accept(_names(worse))}`.")  # fmt: skip
        if broken := self.broken:
            names = ", ".join(_names(broken))
            return f"Broken: {names}. How it is measured is told at the top of its module in bench/."
        if far := self._that_are("far"):
            return (f"More than twice as good as before: {', '.join(_names(far))}. That is another machine sooner than "
                    "better code: not to be taken over as ranges without knowing why.")  # fmt: skip
        if better := self._that_are("better"):
            return (f"Better than before: `{self._accept(_names(better))}` takes that over, so that it cannot be lost "
                    "unseen.")  # fmt: skip
        if fresh := self.fresh:
            return f"Without a range: `{self._accept(_names(fresh))}`."
        if unmeasured := self.unmeasured:
            return f"Not measured here: {', '.join(unmeasured)}. Why is said above; with CI=true it is a failure."
        return "Nothing to do."

    def _accept(self, names: Iterable[str]) -> str:
        scale = "" if self._is_whole else f" --scale {self._results.scale.name}"
        return " --accept ".join([f"python -m bench{scale}", *names])

    def _since(self, rows: list[Row]) -> str:
        found = [one for one in map(self.range_of, rows) if one is not None]
        commits = {run.commit if run.commit != "unknown" else run.at for run in (one.taken_from[-1] for one in found)}
        return " and ".join(sorted(commits))

    # -- which rows --

    @property
    def _is_whole(self) -> bool:
        return self._results.scale.name == "full"

    def _compares(self, bench: str) -> bool:
        """Whether this run says something of what is promised and expected of a benchmark."""
        return self._is_whole or bench in ONE_SIZE

    def _that_are(self, *judged: Judged) -> list[Row]:
        return [row for row in self._results.rows if self.of(row)[1] in judged]


def part_of(bench: str, scale: Scale) -> str:
    """Under which scale a benchmark's ranges stand."""
    return "any" if bench in ONE_SIZE else scale.name


def accept(results: Results, *, widen: bool = False) -> list[tuple[Row, Range]]:
    """Take over what was measured as what is expected; what could not be measured has no number."""
    known = ranges.load()
    taken: list[tuple[Row, Range]] = []
    for name, its in results.benches.items():
        rows = [(row, ranges.origin(row, its.machine)) for row in its.rows if _has_number(row)]
        part = known.setdefault(part_of(name, results.scale), {})
        if rows and not widen:
            part.pop(name, None)  # with what is measured no more
        taken += ranges.take(known, part_of(name, results.scale), rows, widen=widen)
    ranges.save(known)
    return taken


def _left_out(row: Row) -> bool:
    """Whether a row says that something could not be measured here, and why."""
    return row.what.startswith("not measured")


def _has_number(row: Row) -> bool:
    """Whether there is anything to compare, and to expect from now on."""
    return not (row.beyond or _left_out(row))


def _at_any_size(row: Row) -> bool:
    """Whether a row must hold at every scale: all answers are right, a command came to its end."""
    return row.bench == evidence.NAME or (row.unit == "%" and row.goal == 100)


def _names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.bench for row in rows))
