"""Damaged images of the ledger: every acknowledged entry or a refusal that says why, never silence.

    python -m proof damage                        5,000 different images, and a table: damage x what came of it
    python -m proof damage --only flip            one kind, or one original (rebooted, journal, custodian, ...)
    python -m proof damage --replay rebooted:cut:fleet.db-wal:12800

See ``originals`` for what is damaged, ``cases`` for how, ``judges`` for what is asked of it afterwards.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from proof import scratch
from proof.again import command
from proof.commit import describe
from proof.damage.cases import KINDS, Case, damaged, different, floor, plan
from proof.damage.judges import Outcome, judge
from proof.damage.originals import Original, originals, written
from proof.options import positive

IMAGES = 5000
HANG_SECONDS = 60
"""An image that takes this long hangs: the process ends, with the image's name."""
COLUMNS = ("whole", "tail", "as its anchor", "refused", "found", "drivers only", "lost")
Judged = list[tuple[Case, Outcome]]


workplace = partial(scratch.workplace, "damage")
"""A folder for images: in memory where the system offers that."""


def run(
    cases: Iterable[Case], wholes: dict[str, Original], folder: Path, tell: Callable[[int, Case], None] | None = None
) -> Judged:
    """Judge each image."""
    found: Judged = []
    for number, case in enumerate(cases):
        if tell is not None:
            tell(number, case)
        whole = wholes[case.original]
        files = damaged(case, whole)
        outcome = judge(files, whole, floor=floor(case, whole, files), folder=folder / "image")
        found.append((case, outcome))
    return found


def table(judged: Judged) -> str:
    """Kinds down, outcomes across, and how often each reason was given: of trials, see ``plan``."""
    counts = Counter((case.kind, outcome.verdict) for case, outcome in judged)
    reasons = Counter(
        (outcome.verdict, outcome.why)
        for _, outcome in judged
        if outcome.verdict in ("refused", "found", "drivers only")
    )
    lines = [f"{'damage':<10}{'trials':>8}" + "".join(f"{name:>15}" for name in COLUMNS)]
    for kind in [*KINDS, "all"]:
        row = [sum(n for (each, verdict), n in counts.items() if kind in (each, "all") and verdict == name)
               for name in COLUMNS]  # fmt: skip
        if sum(row):
            lines.append(f"{kind:<10}{sum(row):>8}" + "".join(f"{number or '.':>15}" for number in row))
    lines += ["", "refused, by code; found and drivers only, by what the full check looked at:"]
    lines += [f"  {n:>6}  {verdict} {why}" for (verdict, why), n in sorted(reasons.items(), key=lambda one: -one[1])]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof damage", description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=positive, default=IMAGES, metavar="N", help="how many images (%(default)s)")
    parser.add_argument("--only", metavar="WHAT", help=f"one kind ({', '.join(KINDS)}) or one original")
    parser.add_argument("--replay", metavar="ID", type=Case.named, help="one image, by its name")
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="with --replay: leave the damaged files in a new folder"
    )
    given = parser.parse_args(argv)
    if given.keep and not given.replay:
        parser.error("--keep is for one image: name it with --replay")
    if given.only and given.replay:
        parser.error("--only is for many images, --replay for one: write one of them")
    scratch.sweep()
    with workplace() as folder:
        wholes = originals(folder / "originals")
        try:
            cases = _chosen(wholes, given)
        except ValueError as error:
            parser.error(str(error))
        with _watched() as watch:
            judged = run(cases, wholes, folder, _progress(len(cases), watch))
        images = different(cases, wholes)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if given.replay:
        _tell(given.replay, judged[0][1], given.keep)
    else:
        print(f"commit {describe()}\n\n{table(judged)}")
        if given.only and images < given.images:
            print(f"\nOf {given.images:,} images {images:,} are {given.only}: --images counts all kinds and stores.")
    return _ending(judged, images)


def _tell(case: Case, outcome: Outcome, kept: Path | None) -> None:
    """What came of one image, in the words that a person would read, and where its files are."""
    print(f"commit {describe()}\n{case.id}: {outcome.verdict} {outcome.why}".rstrip())
    for line in outcome.words.splitlines():
        print(f"  {line}")
    if kept is not None:
        print(f"Its files are in {kept.resolve()}.")


def _chosen(wholes: dict[str, Original], given: argparse.Namespace) -> list[Case]:
    """The cases that were asked for; ValueError where there are none."""
    case: Case | None = given.replay
    if case is None:
        if given.only not in (None, *KINDS, *wholes):
            raise ValueError(f"{given.only} is no kind ({', '.join(KINDS)}) and no original ({', '.join(wholes)})")
        cases = [each for each in plan(wholes, given.images) if given.only in (None, each.kind, each.original)]
        if not cases:
            raise ValueError(f"of {given.images} images none is {given.only}: ask for more")
        return cases
    if case.original not in wholes:
        raise ValueError(f"{case.original} is no original; there are {', '.join(wholes)}")
    files = damaged(case, wholes[case.original])
    if given.keep:
        _leave(files, given.keep)
    return [case]


def _leave(files: dict[str, bytes], folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ValueError(f"{folder} is there already: name a folder for --keep that is empty or not there yet")
    try:
        if folder.exists():
            folder.rmdir()
        written(files, folder)
    except OSError as error:
        raise ValueError(f"the damaged files cannot be left in {folder}: {error.strerror}") from error


def _again(case: Case) -> str:
    """How to see an image again, to be pasted into a shell."""
    return f"     at commit {describe()}, again: {command('damage', '--replay', case.id)}"


def _ending(judged: Judged, images: int) -> int:
    lost = [(case, outcome) for case, outcome in judged if outcome.verdict == "lost"]
    for case, outcome in lost[:20]:
        print(f"LOST {case.id}: {outcome.why}\n{_again(case)}")
    if lost:
        print(f"{len(lost)} of {len(judged)} trials were lost in silence, or with a traceback.")
        print("Add --keep and the name of a new folder to look at one's files.")
        return 1
    more = f", in {len(judged):,} trials" if len(judged) > images else ""
    plural = "s, no two with the same bytes" if images > 1 else ""
    print(f"\n{images:,} damaged image{plural}{more}: every acknowledged entry, or a refusal that says why.")
    if misled := sum(outcome.verdict == "drivers only" for _, outcome in judged):
        print(f"On {misled} of them only a driver is refused: who reads without the full check gets a wrong answer.")
    return 0


@contextmanager
def _watched() -> Iterator[Callable[[Case], None]]:
    """A thread that ends the process when one image takes for ever: SQLite lets it run meanwhile."""
    news, over = threading.Event(), threading.Event()
    now: list[Case] = []

    def watch() -> None:
        while not over.is_set():
            if news.wait(HANG_SECONDS):
                news.clear()
            elif now and not over.is_set():
                print(
                    f"\nHANG {now[-1].id}: no answer in {HANG_SECONDS} seconds\n{_again(now[-1])}",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)

    def tell(case: Case) -> None:
        now[:] = [case]
        news.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield tell
    finally:
        over.set()
        news.set()


def _progress(total: int, watch: Callable[[Case], None]) -> Callable[[int, Case], None]:
    def tell(number: int, case: Case) -> None:
        watch(case)
        if sys.stderr.isatty():
            print(f"\r\033[K{number + 1}/{total} {case.id}", end="", file=sys.stderr, flush=True)
        elif number and number % 1000 == 0:
            print(f"{number}/{total} images, now {case.id}", file=sys.stderr)

    return tell
