"""The command: choose bugs and killers, try them, and tell what came of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec

from proof.mutants import page, results
from proof.mutants.bugs import MUTANTS
from proof.mutants.killers import Sight, scenarios
from proof.mutants.mutant import SOURCE, Mutant
from proof.mutants.results import Results, Row, judged
from proof.mutants.runner import HOW, Job, control, everything, run
from proof.mutants.seeds import NAMES

GOAL = 95
"""Per cent of the bugs that have to be caught."""


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    sys.path.insert(0, str(SOURCE.parent))  # the checkout's, whatever is installed
    if options.docs:
        page.PATH.write_text(page.text(results.load()))
        print(f"wrote {page.PATH.name}")
        return 0
    mutants = _chosen(options.only)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:<40} {mutant.file:<24} {mutant.bug}")
        return 0
    if not mutants:
        print(f"there is no bug of that name; see python -m proof mutants --list ({len(MUTANTS)})", file=sys.stderr)
        return 2
    return _quick(mutants, options) if options.quick else _whole(mutants, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof mutants", description="planted bugs, and what sees them")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this bug (may be repeated)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="bugs that are tried at a time (1)")
    parser.add_argument("--quick", action="store_true", help="each against its quickest killer of the kept results")
    parser.add_argument(
        "--how", choices=list(HOW), default="usual",
        help="how far to look: " + "; ".join(f"{how}: {says}" for how, says in HOW.items()),
    )  # fmt: skip
    parser.add_argument("--part", default="1/1", metavar="K/N", help="of the bugs, the K-th of N parts")
    parser.add_argument("--no-control", action="store_true", help="do not try the killers on the source as it is")
    parser.add_argument("--list", action="store_true", help="name the bugs, and try none")
    parser.add_argument("--keep", action="store_true", help="keep the results in place of older ones")
    parser.add_argument("--docs", action="store_true", help="write the page from the kept results")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _chosen(names: list[str]) -> list[Mutant]:
    """All, or those that are named, in the order in which they are."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    return [known[name] for name in names if name in known] if names else list(MUTANTS)


def _part(items: list[Mutant], text: str) -> list[Mutant]:
    place, _, count = text.partition("/")
    return items[int(place) - 1 :: int(count)]


# --- everything -----------------------------------------------------------------------------------------------------


def _whole(mutants: list[Mutant], options: argparse.Namespace) -> int:
    jobs = [everything(mutant, how=options.how) for mutant in _part(mutants, options.part)]
    if not options.no_control and not _is_clean(jobs):
        return 1
    found: dict[str, list[Sight]] = {}
    done: dict[str, Row] = {}
    commit = results.commit()
    for job, sights in run(_told(jobs), hands=options.jobs):
        assert job.mutant is not None
        found[job.name] = sights
        done[job.name] = judged(job.mutant, sights, how=job.how, commit=commit)
        if options.keep:
            _keep(done[job.name])
        _progress(f"{len(found)} of {len(jobs)}: {job.name}, {f'seen {len(sights)} times' if sights else 'NOT SEEN'}")
    rows = [done[job.name] for job in jobs]
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode({"rows": rows, "sights": found})).decode())
    elif len(jobs) <= 3:
        _tell_all(jobs, found)
    else:
        _table(rows)
    return _verdict(rows, all_of_them=len(rows) == len(MUTANTS))


def _told(jobs: list[Job]) -> list[Job]:
    _progress(f"{len(jobs)} bugs, each on {len(scenarios())} scenarios, {len(NAMES)} worlds and the tests of its area")
    return jobs


def _is_clean(jobs: list[Job]) -> bool:
    """The killers must see nothing where nothing is wrong."""
    began = time.monotonic()
    ((job, sights),) = run([control(jobs)])
    _progress(f"the source as it is, on {len(job.killers)} killers, in {time.monotonic() - began:.0f} s")
    for sight in sights:
        print(f"without any bug, {sight.killer} says: {sight.words}")
    if sights:
        print("A killer that fails by itself kills nothing: mend it first, then run this again.")
    return not sights


def _table(rows: list[Row]) -> None:
    for row in rows:
        named = " ".join(name.partition("-")[0] for name in row.invariants)
        print(f"{row.mutant:<40} {len(row.seen_by):>4}  {named or '-':<24} {row.killer or 'NOT CAUGHT'}")


def _tell_all(jobs: list[Job], found: dict[str, list[Sight]]) -> None:
    for job in jobs:
        assert job.mutant is not None
        print(
            f"{job.name}: {job.mutant.bug}\n  src/tenure/{job.mutant.file}\n  - {job.mutant.old}\n  + {job.mutant.new}"
        )
        for sight in found[job.name]:
            print(f"  {sight.killer} ({sight.seconds:.1f} s) {' '.join(sight.invariants)}\n      {sight.words}")


def _keep(row: Row) -> None:
    """At once: a run of all of them takes long, and what is known is known."""
    old = results.load().rows if results.PATH.exists() else ()
    rows = {one.mutant: one for one in (*old, row)}
    kept = tuple(rows[mutant.name] for mutant in MUTANTS if mutant.name in rows)
    tried = {"scenarios": len(scenarios()), "worlds": len(NAMES)}
    results.save(Results(command=f"python -m proof mutants --how {row.how} --keep", tried=tried, rows=kept))


def _verdict(rows: list[Row], *, all_of_them: bool) -> int:
    caught = [row for row in rows if row.caught]
    missed = [row.mutant for row in rows if not row.caught]
    idle = [name for name, killed in results.by_invariant(rows).items() if not killed] if all_of_them else []
    print(f"{len(caught)} of {len(rows)} bugs caught" + (f"; not: {', '.join(missed)}" if missed else ""))
    if all_of_them:
        print(
            f"invariants that kill at least one: {12 - len(idle)} of 12" + (f"; not {', '.join(idle)}" if idle else "")
        )
    good = not idle and (len(caught) * 100 >= GOAL * len(rows) if all_of_them else not missed)
    if good:
        print("To see what saw one of them: python -m proof mutants --only NAME")
    else:
        print("Write the test that is missing, or sharpen the auditor: python -m proof mutants --only NAME")
    return 0 if good else 1


# --- the quickest killers -------------------------------------------------------------------------------------------


def _quick(mutants: list[Mutant], options: argparse.Namespace) -> int:
    known = results.load()
    jobs, stale = [], []
    for mutant in _part(mutants, options.part):
        row = known.row(mutant.name)
        if row is None or row.digest != mutant.digest:
            stale.append(mutant.name)
        elif row.caught:
            jobs.append(Job(mutant, [row.killer]))
    for name in stale:
        print(f"{name}: no result of it is kept; run python -m proof mutants --only {name} --keep")
    if not options.no_control and not _is_clean(jobs):
        return 1
    missed = []
    for count, (job, sights) in enumerate(run(jobs, hands=options.jobs), 1):
        _progress(f"{count} of {len(jobs)}: {job.name}")
        if not sights:
            missed.append(job)
    for job in missed:
        print(f"{job.name} was not seen by {job.killers[0]}; run python -m proof mutants --only {job.name}")
    print(f"{len(jobs) - len(missed)} of {len(jobs)} bugs caught by the killer that was quickest before")
    return 1 if missed or stale or not jobs else 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
