"""The command: choose bugs and killers, try them, and tell what came of it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from difflib import get_close_matches

import msgspec

from proof import stops
from proof.mutants import page, results
from proof.mutants.bugs import MUTANTS
from proof.mutants.detectors import INVARIANTS, Sight
from proof.mutants.killers import scenarios
from proof.mutants.mutant import SOURCE, Mutant
from proof.mutants.results import Results, Row, judged
from proof.mutants.runner import HOW, Job, Verdict, control, everything, run
from proof.mutants.seeds import NAMES
from proof.options import part, positive

GOAL = 95
"""Per cent of the bugs that have to be caught."""
KILLS_MIN = 2
"""Bugs that every invariant has to see."""


def main(argv: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    if options.output == "json" and (options.quick or options.list or options.docs):
        parser.error("-o json tells what all killers saw: leave --quick, --list and --docs away")
    sys.path.insert(0, str(SOURCE.parent))  # the checkout's, whatever is installed
    if options.docs:
        page.PATH.write_text(page.text(results.load()))
        print(f"wrote {page.PATH.name}")
        return 0
    mutants = _chosen(options.only)
    if mutants is None:
        return 2
    mutants = mutants[options.part[0] - 1 :: options.part[1]]
    if not mutants:
        print("error: this part has no bug in it: there are fewer than parts", file=sys.stderr)
        return 2
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name:<40} {mutant.file:<24} {mutant.bug}")
        return 0
    options.commit = results.commit()  # now: what is tried is read now
    if options.keep and (why := _not_to_keep(options)):
        print(f"--keep: {why}", file=sys.stderr)
        return 2
    if homeless := [mutant for mutant in mutants if _homeless(mutant)]:
        return _broken({mutant.name: _homeless(mutant) for mutant in homeless})
    stops.listen()
    try:
        return _quick(mutants, options) if options.quick else _whole(mutants, options)
    except KeyboardInterrupt as stop:
        print("Interrupted before anything was tried.")
        return 128 + stops.number(stop)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof mutants", description="planted bugs, and what sees them")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this bug (may be repeated)")
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="bugs that are tried at a time (1)")
    parser.add_argument("--quick", action="store_true", help="each against its quickest killer of the kept results")
    parser.add_argument(
        "--how", choices=list(HOW), default="all",
        help="how far to look: " + "; ".join(f"{how}: {says}" for how, says in HOW.items()),
    )  # fmt: skip
    parser.add_argument("--part", type=part, default=(1, 1), metavar="K/N", help="of the bugs, the K-th of N parts")
    parser.add_argument("--no-control", action="store_true", help="do not try the killers on the source as it is")
    parser.add_argument("--list", action="store_true", help="name the bugs, and try none")
    parser.add_argument("--keep", action="store_true", help="keep the results in place of older ones")
    parser.add_argument("--docs", action="store_true", help="write the page from the kept results")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="what to print (table)")
    return parser


def _chosen(names: list[str]) -> list[Mutant] | None:
    """All, or those that are named, in the order in which they are; None if there is none of some name."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    unknown = [name for name in names if name not in known]
    for name in unknown:
        close = get_close_matches(name, known, n=3)
        meant = f"did you mean {' or '.join(close)}?" if close else "see python -m proof mutants --list"
        print(f"there is no bug {name}; {meant}", file=sys.stderr)
    if unknown:
        return None
    return [known[name] for name in dict.fromkeys(names)] if names else list(MUTANTS)


def _not_to_keep(options: argparse.Namespace) -> str:
    """Why results of this run cannot be kept, if so: what is kept can be measured again by anybody."""
    if options.quick or options.how != "all":
        return "only what all killers were asked about is kept; leave --quick and --how away"
    if not results.is_whole(options.commit):
        return f"what would be tried ({options.commit}) is no commit; commit first, so that anybody can try the same"
    return ""


def _homeless(mutant: Mutant) -> str:
    try:
        mutant.source()
    except (ValueError, OSError) as error:
        return str(error)
    return ""


# --- everything -----------------------------------------------------------------------------------------------------


def _whole(mutants: list[Mutant], options: argparse.Namespace) -> int:
    jobs = [everything(mutant, how=options.how) for mutant in mutants]
    with _beside(options):
        if not options.no_control and not _is_clean(jobs):
            return 1
    _progress(f"{len(jobs)} bugs, each on {len(scenarios())} scenarios, {len(NAMES)} worlds and the tests of its area")
    tried, interrupted = _tried(jobs, options)
    done = [job for job in jobs if job.name in tried and not tried[job.name].broken]
    found = {job.name: tried[job.name].sights for job in done}
    rows = [_row(job, tried[job.name], options.commit) for job in done]
    if options.output == "json":
        print(msgspec.json.format(msgspec.json.encode({"rows": rows, "sights": found})).decode())
    elif len(jobs) <= 3:
        _tell_all(done, found)
    else:
        _table(rows)
    with _beside(options):
        code = _verdict(rows, all_of_them=len(rows) == len(MUTANTS))
        if broken := {name: one.broken for name, one in tried.items() if one.broken}:
            code = _broken(broken)
        return _interrupted(interrupted, len(tried), len(jobs)) if interrupted else code


def _beside(options: argparse.Namespace) -> AbstractContextManager[object]:
    """What is said to people: not where a program reads."""
    return redirect_stdout(sys.stderr) if options.output == "json" else nullcontext()


def _tried(jobs: list[Job], options: argparse.Namespace) -> tuple[dict[str, Verdict], KeyboardInterrupt | None]:
    """What came of each; and how a person lost patience."""
    done: dict[str, Verdict] = {}
    began = time.monotonic()
    trying = run(jobs, hands=options.jobs)
    try:
        for job, verdict in trying:
            done[job.name] = verdict
            if options.keep and not verdict.broken:
                _keep(_row(job, verdict, options.commit))
            said = "BROKEN" if verdict.broken else f"seen {len(verdict.sights)} times" if verdict.sights else "NOT SEEN"
            _progress(f"{len(done)} of {len(jobs)}: {job.name}, {said} ({time.monotonic() - began:.0f} s)")
    except KeyboardInterrupt as stop:
        return done, stop
    finally:
        trying.close()
    return done, None


def _row(job: Job, verdict: Verdict, commit: str) -> Row:
    assert job.mutant is not None
    return judged(job.mutant, verdict.sights, how=job.how, commit=commit)


def _is_clean(jobs: list[Job]) -> bool:
    """The killers must see nothing where nothing is wrong."""
    began = time.monotonic()
    ((job, verdict),) = run([control(jobs)])
    _progress(f"the source as it is, on {len(job.killers)} killers, in {time.monotonic() - began:.0f} s")
    if verdict.broken:
        print(f"The killers could not be run on the source as it is: {verdict.broken}")
        return False
    for sight in verdict.sights:
        print(f"without any bug, {sight.killer} says: {sight.words}")
    if verdict.sights:
        print("A killer that fails by itself kills nothing: mend it first, then run this again.")
    return not verdict.sights


def _table(rows: list[Row]) -> None:
    for row in rows:
        print(f"{row.mutant:<40} {len(row.seen_by):>4}  {' '.join(row.found) or '-':<32} {row.killer or 'NOT CAUGHT'}")


def _tell_all(jobs: list[Job], found: dict[str, list[Sight]]) -> None:
    for job in jobs:
        assert job.mutant is not None
        print(
            f"{job.name}: {job.mutant.bug}\n  src/tenure/{job.mutant.file}\n  - {job.mutant.old}\n  + {job.mutant.new}"
        )
        for sight in found[job.name]:
            print(f"  {sight.killer} ({sight.seconds:.1f} s), seen by {' '.join(sight.detectors)}\n      {sight.words}")


def _keep(row: Row) -> None:
    """At once: a run of all of them takes long, and what is known is known."""
    old = results.load().rows if results.PATH.exists() else ()
    rows = {one.mutant: one for one in (*old, row)}
    results.save(Results(rows=tuple(rows[mutant.name] for mutant in MUTANTS if mutant.name in rows)))


def _verdict(rows: list[Row], *, all_of_them: bool) -> int:
    caught = [row for row in rows if row.caught]
    missed = [row.mutant for row in rows if not row.caught]
    print(f"{len(caught)} of {len(rows)} bugs caught" + (f"; not: {', '.join(missed)}" if missed else ""))
    idle = list(_idle(rows)) if all_of_them else []
    if all_of_them:
        print(f"invariants that see {KILLS_MIN} or more: {12 - len(idle)} of 12" + "".join(f"; not {o}" for o in idle))
    good = not idle and (len(caught) * 100 >= GOAL * len(rows) if all_of_them else not missed)
    if good:
        print("To see what saw one of them: python -m proof mutants --only NAME")
    else:
        print("Write the test that is missing, or sharpen the auditor: python -m proof mutants --only NAME")
    return 0 if good else 1


def _idle(rows: list[Row]) -> Iterator[str]:
    seen = results.by_detector(rows)
    return (f"{name} ({len(seen[name])})" for name in INVARIANTS if len(seen[name]) < KILLS_MIN)


def _broken(broken: dict[str, str]) -> int:
    """Bugs that could not be tried: neither caught nor missed."""
    for name, why in broken.items():
        print(f"BROKEN, not tried: {name}: {why.removeprefix(f'{name}: ')}")
    print(
        f"{len(broken)} could not be tried: rewrite them to match today's source (proof/mutants/bugs), and run again."
    )
    return 1


def _interrupted(stop: KeyboardInterrupt, done: int, of: int) -> int:
    print(f"Interrupted: {done} of {of} were tried.")
    return 128 + stops.number(stop)


# --- the quickest killers -------------------------------------------------------------------------------------------


def _quick(mutants: list[Mutant], options: argparse.Namespace) -> int:
    known = results.load()
    jobs, stale, known_to_survive = [], [], []
    for mutant in mutants:
        row = known.row(mutant.name)
        if row is None or row.digest != mutant.digest:
            stale.append(mutant.name)
        elif row.caught:
            jobs.append(Job(mutant, [row.killer]))
        else:
            known_to_survive.append(mutant)
    for name in stale:
        print(f"{name}: no result of it is kept; run python -m proof mutants --only {name} --keep")
    for mutant in known_to_survive:
        print(f"{mutant.name} is not tried: nothing sees it. {mutant.survives}")
    if jobs and not options.no_control and not _is_clean(jobs):
        return 1
    tried, interrupted = _tried(jobs, options)
    missed = [job for job in jobs if job.name in tried and not tried[job.name].sights and not tried[job.name].broken]
    for job in missed:
        print(f"{job.name} was not seen by {job.killers[0]}; run python -m proof mutants --only {job.name}")
    seen = sum(bool(one.sights) for one in tried.values())
    print(f"{seen} of {len(mutants)} bugs caught by the killer that was quickest before")
    broken = {name: one.broken for name, one in tried.items() if one.broken}
    enough = len(mutants) < len(MUTANTS) or seen * 100 >= GOAL * len(mutants)
    code = _broken(broken) if broken else 0 if enough and not missed and not stale else 1
    return _interrupted(interrupted, len(tried), len(jobs)) if interrupted else code


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
