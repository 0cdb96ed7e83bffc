"""``python -m bench``: run benchmarks, print one table, fail if a promise is broken or a number worse than before."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from signal import SIGINT
from tempfile import TemporaryDirectory
from time import perf_counter

from bench import counted, gate, plots, ranges
from bench.gate import Gate
from bench.promises import BENCHES, listed
from bench.report import PLOTS, ROOT, Measured, Results, from_json, page, table, this_machine, to_json
from bench.result import FULL, QUICK, TINY, Scale

RESULTS = ROOT / "bench" / "results.json"
DOCS = ROOT / "docs" / "performance.md"
CACHE = ROOT / "bench" / ".cache"
_SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}


def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    scale = QUICK if options.quick else _SCALES[options.scale]
    if options.docs and (scale is not FULL or options.counters):
        parser.error("--docs writes the page of the full scale: leave --quick, --scale and --counters away")
    if options.accept and scale is not FULL and not set(options.accept) <= set(gate.ONE_SIZE):
        parser.error("--accept takes ranges of the full scale: leave --quick and --scale away")
    if options.widen and not options.accept:
        parser.error("--widen is for --accept: it changes how a range is taken")
    if options.list:
        print(listed())
        return 0
    if options.accept:
        return _accept(options.accept, scale, widen=options.widen)
    if options.docs == "only":
        return _redraw(scale)
    names = [counted.NAME] if options.counters else options.only or list(BENCHES)
    try:
        results = Results(scale, measure(names, scale))
    except KeyboardInterrupt:
        print("\nstopped (SIGINT). What was measured to its end can be accepted: --accept NAME.", file=sys.stderr)
        return 128 + SIGINT
    judged = Gate(results, ranges.load())
    shown = f"{table(results.rows, judged)}\n{judged.summary()}"
    print(to_json(results) if options.output == "json" else shown)
    whole = results.over(_last(scale))
    if not options.counters and scale is FULL:
        RESULTS.write_text(to_json(whole))
    _keep(results)
    if options.docs:
        _write(whole)
    return 0 if judged.passes else 1


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


def _last(scale: Scale) -> Results | None:
    """The last run of each benchmark: of the full scale those that the repository keeps."""
    return _read(RESULTS if scale is FULL else _cached(scale))


def _newest(*runs: Results | None) -> dict[str, Measured]:
    """Of each benchmark the run that was made last."""
    found = [its for one in runs if one is not None for its in one.benches.items()]
    return dict(sorted(found, key=lambda its: its[1].machine.at))


def _accept(names: list[str], scale: Scale, *, widen: bool) -> int:
    """Take over as ranges what was measured last."""
    known = _newest(_read(_cached(scale)), _last(scale))
    wanted = list(known) if "all" in names else names
    missing = [name for name in wanted if name not in known]
    if missing:
        print(f"Nothing was measured of {', '.join(missing)} at the {scale.name} scale: "
              f"`python -m bench --only {missing[0]}` first.", file=sys.stderr)  # fmt: skip
        return 1
    taken = gate.accept(Results(scale, {name: known[name] for name in wanted}), widen=widen)
    for row, found in taken:
        print(f"{row.bench}: {row.key}: {found.shown} {found.unit}, from {len(found.taken_from)} runs")
    print(f"{len(taken)} ranges are in bench/ranges.json: look at its difference, and commit it.")
    return 0


def _redraw(scale: Scale) -> int:
    results = _last(scale)
    if results is None:
        print("Nothing was measured yet: run `python -m bench` first.", file=sys.stderr)
        return 1
    _write(results)
    return 0


def _write(results: Results) -> None:
    """The page and its pictures."""
    DOCS.write_text(page(results))
    rows = [row for row in results.rows if row.bench == "growth"]
    for curve in plots.curves(rows):
        file = DOCS.parent / PLOTS / f"{curve.axis}.svg"
        file.parent.mkdir(exist_ok=True)
        file.write_text(plots.draw(curve))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure what Tenure promises about cost, and compare it with what was measured before.",
        epilog="Exit status 1: a promise is broken, or a number is worse than its range in bench/ranges.json.",
    )
    add = parser.add_argument
    add("--only", action="append", choices=list(BENCHES), metavar="NAME",
        help=f"only this benchmark (may be repeated): {', '.join(BENCHES)}")  # fmt: skip
    add("--list", action="store_true", help="what was promised in which issue, and what measures it")
    add("--counters", action="store_true", help="only what is counted, not timed: seconds, and the same everywhere")
    add("--quick", action="store_true", help="100,000 where the promise says 1,000,000: for looking, judges none")
    add("--scale", choices=list(_SCALES), default="full", help="tiny is for testing the harness itself, judges none")
    add("-o", "--output", choices=["table", "json"], default="table", help="what to print")
    add("--accept", action="append", choices=[*BENCHES, "all"], metavar="NAME",
        help="measure nothing; what was measured last of this benchmark (or all) becomes its range")  # fmt: skip
    add("--widen", action="store_true", help="with --accept: what the range was taken from before counts as well")
    add("--docs", nargs="?", const="too", choices=["too", "only"],
        help="write docs/performance.md and its plots as well, with what was measured before of the rest; "
        "`--docs only` measures nothing")  # fmt: skip
    return parser


if __name__ == "__main__":
    sys.exit(main())
