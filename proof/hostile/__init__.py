"""Hostile manifests: 24 classes, on the command line, on an embedded fleet and at the webhook.

    python -m proof hostile                       24 classes x 50 variants on three surfaces, and a table
    python -m proof hostile --class unicode       one class
    python -m proof hostile --replay unicode:17   one manifest: its text, and what each surface said

See ``classes`` for what is tried (``texts``, ``objects``), ``surfaces`` for the ways in, ``judge`` for what must hold.
"""

from __future__ import annotations

import argparse
import re
import sys

from proof.damage import workplace
from proof.hostile.classes import CLASSES, VARIANTS, variant
from proof.hostile.judge import Bench, Finding, Result

_NAMED = re.compile(rf"({'|'.join(CLASSES)}):\d+")


def table(results: dict[str, Result]) -> str:
    """Classes down, surfaces across: refused and taken, and the most work that one answer took."""
    head = f"{'class':<12}{'':>9}{'command line':^18}{'fleet':^18}{'webhook':^18}"
    lines = [head, f"{'':<12}{'variants':>9}" + f"{'refused':>9}{'taken':>9}" * 3 + f"{'most steps':>12}{'faults':>8}"]
    for name, one in results.items():
        cells = "".join(
            f"{one.refused[where] or '.':>9}{one.taken[where] or '.':>9}" for where in ("cli", "fleet", "hook")
        )
        lines.append(f"{name:<12}{one.count:>9}{cells}{one.steps:>12,}{len(one.findings) or '.':>8}")
    return "\n".join(lines)


def run(bench: Bench, name: str, count: int) -> Result:
    """One class: each of its variants on each surface, and an honest run afterwards."""
    result = Result()
    for number in range(count):
        bench.judge(f"{name}:{number}", variant(name, number), result)
    bench.close_class(name, result)
    return result


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof hostile", description=__doc__.split("\n")[0])
    parser.add_argument("--variants", type=int, default=VARIANTS, metavar="N", help="of each class (%(default)s)")
    parser.add_argument("--class", dest="only", choices=CLASSES, metavar="CLASS", help=f"one of {', '.join(CLASSES)}")
    parser.add_argument("--replay", metavar="CLASS:N", help="one manifest, and what was said to it")
    parser.add_argument("--no-processes", action="store_true", help="leave out the sample in real processes")
    given = parser.parse_args(argv)
    if given.replay and not _NAMED.fullmatch(given.replay):
        parser.error(f"a manifest is named CLASS:NUMBER, and a class is one of {', '.join(CLASSES)}")
    with workplace() as folder, Bench(folder) as bench:
        if given.replay:
            return _replay(bench, given.replay)
        results: dict[str, Result] = {}
        for name in [given.only] if given.only else CLASSES:
            if sys.stderr.isatty():
                print(f"\r\033[K{name}", end="", file=sys.stderr, flush=True)
            results[name] = run(bench, name, given.variants)
            if not given.no_processes:
                bench.in_a_process(f"{name}:0", variant(name, 0), results[name])
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(table(results))
    return _ending([finding for one in results.values() for finding in one.findings], results)


def _replay(bench: Bench, name: str) -> int:
    kind, _, number = name.partition(":")
    tried, result = variant(kind, int(number)), Result()
    text = tried.text if len(tried.text) < 4000 else tried.text[:2000] + b" ... " + tried.text[-1000:]
    print(text.decode("utf-8", "backslashreplace").encode("unicode_escape").decode().replace("\\n", "\n"))
    for where, told in bench.judge(name, tried, result):
        words = told.why[:5] or ("its metadata is the API server's to judge",) * (where == "webhook")
        print(f"--- {where}: {'taken' if told.taken else 'refused'}", *words, sep="\n    ")
    return _ending(result.findings, {kind: result})


def _ending(findings: list[Finding], results: dict[str, Result]) -> int:
    for finding in findings[:20]:
        print(f"FAULT {finding.id} on {finding.where}: {finding.what}")
        print(f"      again: python -m proof hostile --replay {finding.id}")
    total = sum(one.count for one in results.values())
    if findings:
        print(f"{len(findings)} faults in {total} manifests.")
        return 1
    plural = "" if total == 1 else "s"
    print(f"\n{total} manifest{plural}: refused in words on every surface, or valid and the same on all of them.")
    return 0
