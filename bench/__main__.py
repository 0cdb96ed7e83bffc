"""``python -m bench``: run the benchmarks, print one table, fail if a promise is broken."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench import instructions
from bench.promises import ALL, BENCHES
from bench.report import ROOT, Measured, Results, from_json, page, summary, table, this_machine, to_json
from bench.result import FULL, QUICK, TINY, Scale

RESULTS = ROOT / "bench" / "results.json"
DOCS = ROOT / "docs" / "performance.md"
_SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    scale = QUICK if options.quick else _SCALES[options.scale]
    names = [*(options.only or BENCHES), *([instructions.NAME] if options.callgrind else [])]
    results = Results(scale, measure(names, scale))
    print(to_json(results) if options.output == "json" else f"{table(results.rows)}\n{summary(results)}")
    whole = results.over(from_json(RESULTS.read_text()) if RESULTS.is_file() else None)
    if scale is FULL:
        RESULTS.write_text(to_json(whole))
    if options.docs:
        DOCS.write_text(page(whole if scale is FULL else results))
    return 1 if results.broken else 0


def measure(names: list[str], scale: Scale) -> dict[str, Measured]:
    """Run benchmarks one after the other, each in a folder of its own on the disk that the checkout is on."""
    out: dict[str, Measured] = {}
    cache = ROOT / "bench" / ".cache"
    cache.mkdir(exist_ok=True)
    for name in names:
        begin = perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        with TemporaryDirectory(dir=cache, prefix=f"{name}-") as folder:
            rows = ALL[name].run(scale, Path(folder))
        out[name] = Measured(this_machine(), rows)
        print(f"{name}: {perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return out


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what Tenure promises about cost.")
    parser.add_argument("--only", action="append", choices=list(BENCHES), metavar="NAME",
                        help=f"only this promise (may be repeated): {', '.join(BENCHES)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="100,000 where the promise says 1,000,000")
    parser.add_argument("--scale", choices=list(_SCALES), default="full", help="tiny is for testing the harness itself")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="what to print")
    parser.add_argument("--callgrind", action="store_true", help="count instructions too (slow; needs valgrind)")
    parser.add_argument(
        "--docs",
        action="store_true",
        help=f"write {DOCS.relative_to(ROOT)} as well, with what was measured before of the rest",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
