"""Hostile manifests: 24 classes, on the command line, on an embedded fleet and at the webhook.

    python -m proof hostile                       24 classes x 50 variants on three surfaces, and a table
    python -m proof hostile --class unicode       one class
    python -m proof hostile --replay unicode:17   one manifest: its text, and what each surface said

See ``classes`` for what is tried (``texts``, ``objects``), ``surfaces`` for the ways in, ``judge`` for what must hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import count

from proof.again import command
from proof.commit import describe
from proof.damage import workplace
from proof.hostile import edits
from proof.hostile.classes import CLASSES, VARIANTS, NoMore, variant
from proof.hostile.judge import Bench, Result
from proof.hostile.parts import Variant
from proof.options import positive

SURFACES = ("cli", "fleet", "hook")
NUMBERED_MAX = 10_000
SHOWN_MAX = 8
SAID_EVERY = 1000
"""Manifests between two lines of progress, where nobody watches."""


def table(results: dict[str, Result]) -> str:
    """Classes down, surfaces across: refused and taken, as edits too, and the most work that one answer took."""
    head = f"{'class':<12}{'':>9}{'command line':^18}{'fleet':^18}{'webhook':^36}{'edits refused/taken':^27}"
    cells = f"{'variants':>9}" + f"{'refused':>9}{'taken':>9}" * 3 + f"{'reviews':>9}{'as bytes':>9}"
    cells += "".join(f"{where:>9}" for where in SURFACES)
    lines = [head, f"{'':<12}{cells}{'most steps':>12}{'faults':>8}"]
    for name, one in results.items():
        cells = "".join(f"{one.refused[where] or '.':>9}{one.taken[where] or '.':>9}" for where in SURFACES)
        cells += f"{one.reviews:>9,}{one.raw or '.':>9}"
        cells += "".join(f"{one.edits_refused[where]:>6}/{one.edits_taken[where]:<2}" for where in SURFACES)
        lines.append(f"{name:<12}{one.count:>9}{cells}{one.steps:>12,}{len(one.findings) or '.':>8}")
    return "\n".join(lines)


def run(bench: Bench, name: str, count: int, tell: Callable[[str], None] = lambda _: None) -> Result:
    """One class: each of its variants on each surface, some as an edit too, and an honest run afterwards; ``tell``
    hears of each."""
    result = Result()
    for number in range(count):
        tell(f"{name}:{number}")
        tried = variant(name, number)
        bench.judge(f"{name}:{number}", tried, result)
        if number % edits.EVERY == 0:
            edits.judge(bench, f"{name}:{number}", tried, result)
    bench.close_class(name, result)
    return result


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof hostile", description=__doc__.split("\n")[0])
    parser.add_argument("--variants", type=positive, default=VARIANTS, metavar="N", help="of each class (%(default)s)")
    parser.add_argument("--class", dest="only", choices=CLASSES, metavar="CLASS", help=f"one of {', '.join(CLASSES)}")
    parser.add_argument("--replay", metavar="CLASS:N", type=_named, help="one manifest, and what was said to it")
    parser.add_argument("--no-processes", action="store_true", help="leave out the sample in real processes")
    given = parser.parse_args(argv)
    if given.replay and given.only:
        parser.error("--class is for many manifests, --replay for one: write one of them")
    try:
        for name in [given.only] if given.only else () if given.replay else CLASSES:
            variant(name, given.variants - 1)
        tried = variant(*given.replay) if given.replay else None
    except NoMore as error:
        parser.error(str(error))
    with workplace() as folder, Bench(folder) as bench:
        if tried is not None:
            return _replay(bench, *given.replay, tried, processes=not given.no_processes)
        results: dict[str, Result] = {}
        names = [given.only] if given.only else [*CLASSES]
        tell = _progress(len(names) * given.variants)
        for name in names:
            results[name] = run(bench, name, given.variants, tell)
            if not given.no_processes:
                bench.in_a_process(f"{name}:0", variant(name, 0), results[name])
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(f"commit {describe()}\n\n{table(results)}")
    return _ending(results)


def _progress(total: int) -> Callable[[str], None]:
    """How many were tried, and which is being tried now: at a terminal each, and elsewhere one line in a while."""
    done = count(1)

    def tell(name: str) -> None:
        number = next(done)
        if sys.stderr.isatty():
            print(f"\r\033[K{number} of {total} manifests, now {name}", end="", file=sys.stderr, flush=True)
        elif number % SAID_EVERY == 0:
            print(f"{number} of {total} manifests", file=sys.stderr, flush=True)

    return tell


def _named(text: str) -> tuple[str, int]:
    """A variant's name, taken apart."""
    name, _, number = text.partition(":")
    if name not in CLASSES or not number.isdecimal() or int(number) >= NUMBERED_MAX:
        raise argparse.ArgumentTypeError(
            f"a manifest is named CLASS:NUMBER with a number below {NUMBERED_MAX} and a class of {', '.join(CLASSES)}"
        )
    return name, int(number)


def _replay(bench: Bench, kind: str, number: int, tried: Variant, *, processes: bool) -> int:
    name, result = f"{kind}:{number}", Result()
    print(f"commit {describe()}\n")
    text = tried.text if len(tried.text) < 4000 else tried.text[:2000] + b" ... " + tried.text[-1000:]
    print(text.decode("utf-8", "backslashreplace").encode("unicode_escape").decode().replace("\\n", "\n"))
    answers = [*bench.judge(name, tried, result), *edits.judge(bench, name, tried, result)]
    for where, told in answers if len(answers) <= SHOWN_MAX else [*answers[: SHOWN_MAX - 1], answers[-1]]:
        words = told.why[:5] or ("its metadata is the API server's to judge",) * where.startswith("webhook")
        print(f"--- {where}: {'refused' if told.why else 'taken'}", *words, sep="\n    ")
    if len(answers) > SHOWN_MAX:
        print(f"({len(answers) - SHOWN_MAX} answers of the webhook before the last are not shown)")
    bench.close_class(kind, result)
    if processes:
        bench.in_a_process(name, tried, result)
    return _ending({kind: result})


def _ending(results: dict[str, Result]) -> int:
    findings = [finding for one in results.values() for finding in one.findings]
    for finding in findings[:20]:
        words: list[object] = ["--replay", finding.id]
        if finding.id in results:
            words = ["--class", finding.id, "--variants", results[finding.id].count]
        print(f"FAULT {finding.id} on {finding.where}: {finding.what}")
        print(f"      at commit {describe()}, again: {command('hostile', *words)}")
    total = sum(one.count for one in results.values())
    if findings:
        print(f"{len(findings)} faults in {total} manifests.")
        return 1
    reviews, raw, passed = (sum(getattr(one, key) for one in results.values()) for key in ("reviews", "raw", "passed"))
    print(f"\nThe webhook answered {reviews:,} review{'s' * (reviews != 1)}, {raw} of them with a text that is no "
          f"object. It let {passed} of the manifests\npass that the fleet refuses: for spelling, metadata, a status or "
          "a document beside, which it is not asked to judge.")  # fmt: skip
    edited = [sum((one.edits_refused + one.edits_taken)[where] for one in results.values()) for where in SURFACES]
    updates = sum(one.updates for one in results.values())
    print("As edits of honest objects that were there: {} on the command line, {} on the fleet, {} at the webhook, "
          "with\n{:,} reviews of updates.".format(*edited, updates))  # fmt: skip
    alone = "" if total == 1 else "s, no two of a class alike"
    print(f"{total:,} manifest{alone}, on three surfaces: refused in words, or with nothing wrong that is the "
          "surface's to judge.")  # fmt: skip
    return 0
