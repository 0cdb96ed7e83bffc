"""Damaged images of the ledger: every acknowledged entry or a refusal that says why, never silence.

    python -m proof damage                        5,000 images, and a table: kind of damage x what came of it
    python -m proof damage --only flip            one kind, or one original (rebooted, journal, custodian, ...)
    python -m proof damage --replay rebooted:cut:fleet.db-wal:12800

See ``originals`` for what is damaged, ``cases`` for how, ``judges`` for what is asked of it afterwards.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.damage.cases import KINDS, Case, damaged, floor, plan
from proof.damage.judges import Outcome, judge
from proof.damage.originals import Original, originals, written

IMAGES = 5000
HANG_SECONDS = 60
"""An image that takes this long hangs: the process ends, with the image's name."""
COLUMNS = ("whole", "tail", "as its anchor", "refused", "found", "lost")
Judged = list[tuple[Case, Outcome]]


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder for images: in memory where the system offers that."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="tenure-damage-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


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
    """Kinds down, outcomes across, and how often each reason was given."""
    counts = Counter((case.kind, outcome.verdict) for case, outcome in judged)
    reasons = Counter(
        (outcome.verdict, outcome.why) for _, outcome in judged if outcome.verdict in ("refused", "found")
    )
    lines = [f"{'damage':<10}{'images':>8}" + "".join(f"{name:>15}" for name in COLUMNS)]
    for kind in [*KINDS, "all"]:
        row = [sum(n for (each, verdict), n in counts.items() if kind in (each, "all") and verdict == name)
               for name in COLUMNS]  # fmt: skip
        if sum(row):
            lines.append(f"{kind:<10}{sum(row):>8}" + "".join(f"{number or '.':>15}" for number in row))
    lines += ["", "refused, by code; found, by what the full check looked at:"]
    lines += [f"  {n:>6}  {verdict} {why}" for (verdict, why), n in sorted(reasons.items(), key=lambda one: -one[1])]
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof damage", description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=IMAGES, metavar="N", help="how many images (%(default)s)")
    parser.add_argument("--only", metavar="WHAT", help=f"one kind ({', '.join(KINDS)}) or one original")
    parser.add_argument("--replay", metavar="ID", type=Case.named, help="one image, by its name")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="with --replay: leave the damaged files here")
    given = parser.parse_args(argv)
    with workplace() as folder:
        wholes = originals(folder / "originals")
        cases = [given.replay] if given.replay else plan(wholes, given.images)
        cases = [case for case in cases if given.only in (None, case.kind, case.original)]
        if not cases or cases[0].original not in wholes:
            parser.error(f"there is no such image; originals are {', '.join(wholes)}")
        if given.replay and not _exists(given.replay, wholes):
            parser.error(f"{given.replay.id}: there is no such place in {given.replay.original}")
        if given.replay and given.keep:
            written(damaged(given.replay, wholes[given.replay.original]), given.keep)
        with _watched() as watch:
            judged = run(cases, wholes, folder, _progress(len(cases), watch))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if given.replay:
        print(f"{given.replay.id}: {judged[0][1].verdict} {judged[0][1].why}".rstrip())
    else:
        print(table(judged))
    return _ending(judged)


def _exists(case: Case, wholes: dict[str, Original]) -> bool:
    try:
        return bool(damaged(case, wholes[case.original])) or case.kind == "missing"
    except (KeyError, IndexError, ValueError):
        return False


def _ending(judged: Judged) -> int:
    lost = [(case, outcome) for case, outcome in judged if outcome.verdict == "lost"]
    for case, outcome in lost[:20]:
        print(f"LOST {case.id}: {outcome.why}\n     again: python -m proof damage --replay {case.id} --keep DIR")
    if lost:
        print(f"{len(lost)} of {len(judged)} images were lost in silence, or with a traceback.")
    else:
        print(f"\n{len(judged)} image{'s' * (len(judged) != 1)}: every acknowledged entry, or a refusal that says why.")
    return 1 if lost else 0


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
                    f"\nHANG {now[-1].id}: no answer in {HANG_SECONDS} seconds\n"
                    f"     again: python -m proof damage --replay {now[-1].id} --keep DIR",
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
