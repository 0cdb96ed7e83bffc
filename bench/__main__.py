"""``python -m bench``: run benchmarks, print one table, fail if a promise is broken or a number worse than before."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench import counted, gate, plots, ranges
from bench.gate import Gate
from bench.promises import BENCHES, listed
from bench.report import PLOTS, ROOT, Measured, Results, from_json, page, table, this_machine, to_json
from bench.result import FULL, QUICK, TINY, Scale
from proof import stops

RESULTS = ROOT / "bench" / "results.json"
DOCS = ROOT / "docs" / "performance.md"
CACHE = ROOT / "bench" / ".cache"
_SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    for senseless in _senseless(options):
        parser.error(senseless)
    scale = _scale(options)
    if options.list:
        print(listed())
        return 0
    if options.accept:
        return _accept(options.accept, scale, widen=options.widen)
    if options.docs in ("only", "last"):
        return _redraw(options.only or list(BENCHES), last=options.docs == "last")
    names = [counted.NAME] if options.counters else options.only or list(BENCHES)
    try:
        results = Results(scale, measure(names, scale))
    except KeyboardInterrupt as stop:
        number = stops.number(stop)
        print(f"\nstopped ({number.name}). What was measured to its end can be accepted: --accept NAME.",
              file=sys.stderr)  # fmt: skip
        return 128 + number
    judged = Gate(results, ranges.load(), strict=os.environ.get("CI") == "true")
    shown = f"{table(results.rows, judged)}\n{judged.summary()}"
    print(to_json(results) if options.output == "json" else shown)
    _keep(results)
    if options.docs:
        _write(results.over(_read(RESULTS)))
    elif scale is FULL and not options.counters:
        print(f"Kept in {_named(_cached(scale))}, which is in no repository; `--docs last` writes it to "
              f"{_named(RESULTS)} and the page.", file=sys.stderr)  # fmt: skip
    return 0 if judged.passes else 1


def _scale(options: argparse.Namespace) -> Scale:
    return QUICK if options.quick else _SCALES[options.scale or "full"]


def _senseless(options: argparse.Namespace) -> Iterator[str]:
    """Options that do not go together: one of them would be ignored."""
    is_full, measures = _scale(options) is FULL, not (options.accept or options.list or options.docs == "only")
    if options.docs and (not is_full or options.counters):
        yield "--docs writes the page of the full scale: leave --quick, --scale and --counters away"
    if options.counters and options.only:
        yield "--counters counts and --only NAME measures: leave one of them away (`--only counted` is --counters)"
    if options.quick and options.scale:
        yield "--quick is a scale: leave --scale away"
    if options.accept and not is_full and not set(options.accept) <= set(gate.ONE_SIZE):
        yield "--accept takes ranges of the full scale: leave --quick and --scale away"
    if not measures and (options.only or options.counters):
        yield "--accept, --list and `--docs only` measure nothing: leave --only and --counters away"
    if options.accept and options.docs:
        yield "--accept writes ranges and --docs the page: one after the other"
    if options.widen and not options.accept:
        yield "--widen is for --accept: it changes how a range is taken"


def measure(names: list[str], scale: Scale) -> dict[str, Measured]:
    """Run benchmarks one after the other, each in a folder of its own on the disk that the checkout is on."""
    out: dict[str, Measured] = {}
    CACHE.mkdir(exist_ok=True)
    for name in names:
        begin = perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        with TemporaryDirectory(dir=CACHE, prefix=f"{name}-") as folder:
            rows = BENCHES[name].run(scale, Path(folder))
        out[name] = Measured(this_machine(), rows)
        _keep(Results(scale, {name: out[name]}))  # at once: all of them take hours, and the next one may fail
        print(f"{name}: {perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return out


# --- what was measured before ---------------------------------------------------------------------------------------


def _cached(scale: Scale) -> Path:
    """Where the last run on this machine is kept; it is in no repository."""
    CACHE.mkdir(exist_ok=True)
    return CACHE / f"last-{scale.name}.json"


def _keep(results: Results) -> None:
    file = _cached(results.scale)
    file.write_text(to_json(results.over(_read(file))))


def _read(file: Path) -> Results | None:
    return from_json(file.read_text()) if file.is_file() else None


def _newest(*runs: Results | None) -> dict[str, Measured]:
    """Of each benchmark the run that was made last."""
    found = [its for one in runs if one is not None for its in one.benches.items()]
    return dict(sorted(found, key=lambda its: its[1].machine.at))


def _accept(names: list[str], scale: Scale, *, widen: bool) -> int:
    """Take over as ranges what was measured last."""
    known = _newest(_read(_cached(scale)), _read(RESULTS) if scale is FULL else None)
    wanted = list(known) if "all" in names else names
    missing = [name for name in wanted if name not in known]
    if missing:
        print(f"Nothing was measured of {', '.join(missing)} at the {scale.name} scale: "
              f"`python -m bench --only {missing[0]}` first.", file=sys.stderr)  # fmt: skip
        return 1
    if dirty := [name for name in wanted if known[name].machine.commit.endswith(ranges.DIRTY)]:
        print(f"What was measured of {', '.join(dirty)} is of no commit ({known[dirty[0]].machine.commit}): commit, "
              f"measure that, and accept it, so that anybody can do the same.", file=sys.stderr)  # fmt: skip
        return 1
    taken = gate.accept(Results(scale, {name: known[name] for name in wanted}), widen=widen)
    for row, found in taken:
        print(f"{row.bench}: {row.key}: {found.shown} {found.unit}, from {found.runs}")
    print(f"{len(taken)} ranges are in bench/ranges.json: look at its difference, and commit it.")
    return 0


def _redraw(names: list[str], *, last: bool) -> int:
    """Write what the repository keeps; with ``last`` what was measured since of these benchmarks as well."""
    kept = _read(RESULTS)
    newest = _newest(kept, _read(_cached(FULL))) if last else {}
    results = Results(FULL, {name: newest[name] for name in names if name in newest}).over(kept)
    if not results.benches:
        print("Nothing was measured yet: run `python -m bench` first.", file=sys.stderr)
        return 1
    _write(results)
    return 0


def _write(results: Results) -> None:
    """The results that the repository keeps, the page and its pictures, which are of what can be read back."""
    kept = to_json(results)
    results = from_json(kept)
    files = {RESULTS: kept, DOCS: page(results)}
    for curve in plots.curves([row for row in results.rows if row.bench == "growth"]):
        files[DOCS.parent / PLOTS / f"{curve.axis}.svg"] = plots.draw(curve)
    for file, text in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    print(f"Written: {', '.join(map(_named, files))}. They are under version control: look at the difference, and "
          "commit it.", file=sys.stderr)  # fmt: skip


def _named(file: Path) -> str:
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure what Tenure promises about cost, and compare it with what was measured before.",
        epilog="Exit status 1: a promise is broken, or a number is worse than its range in bench/ranges.json; with "
        "CI=true also: something could not be measured.",
    )
    add = parser.add_argument
    add("--only", action="append", choices=list(BENCHES), metavar="NAME",
        help=f"only this benchmark (may be repeated): {', '.join(BENCHES)}")  # fmt: skip
    add("--list", action="store_true", help="what was promised in which issue, and what measures it")
    add("--counters", action="store_true", help="only what is counted, not timed: seconds, and the same everywhere")
    add("--quick", action="store_true", help="100,000 where the promise says 1,000,000: for looking, judges none")
    add("--scale", choices=list(_SCALES), help="tiny is for testing the harness itself, judges none")
    add("-o", "--output", choices=["table", "json"], default="table", help="what to print")
    add("--accept", action="append", choices=[*BENCHES, "all"], metavar="NAME",
        help="measure nothing; what was measured last of this benchmark (or all) becomes its range")  # fmt: skip
    add("--widen", action="store_true", help="with --accept: what the range was taken from before counts as well")
    add("--docs", nargs="?", const="too", choices=["too", "only", "last"],
        help="write bench/results.json, docs/performance.md and its plots as well, with what was measured before of "
        "the rest; `--docs last` measures nothing and takes what was measured last (all, or --only NAME); "
        "`--docs only` draws what bench/results.json has again")  # fmt: skip
    return parser


def run(argv: list[str] | None = None) -> int:
    """The same as a process: who is asked to end tidies up first."""
    stops.listen()
    return main(argv)


if __name__ == "__main__":
    sys.exit(run())
