"""`audit`: does everything hold that must hold? The whole ledger, read by a checker that shares no code with the
engine that wrote it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tenure.audit import INVARIANTS, Auditor, Violation
from tenure.audit.invariants import IMMUTABLE, LIVENESS, SETTLED, Invariant
from tenure.audit.report import difference, moment
from tenure.cli.exits import Exit
from tenure.cli.output import Cell, Format, Table, columns, section, show
from tenure.cli.port import TABLE
from tenure.cli.session import Session, output, verb
from tenure.cli.terminal import Progress, paint, say
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, safe, stamp
from tenure.units import MINUTE, Instant, format_time

if TYPE_CHECKING:
    from tenure.cli.port import Fleet
    from tenure.ledger import Head

NOT_HERE = (SETTLED.name,)
"""What a ledger cannot show: it takes the engine itself, and is shown by the tests."""
SAID = {LIVENESS.name: "No run is cut before it has run for `activationLead`."}
"""Where only a part can be seen in a ledger: which."""
REST = 2 * MINUTE
"""From when on a run that no entry touches must stand as the last one left it: with a pod under each of its leases."""
SHOWN = 50


@verb("audit", "Check the whole ledger against the invariants.")
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, metavar="N",
              help="How many violations a table shows; JSON has all of them.")  # fmt: skip
@output("table", "json", "yaml")
def command(session: Session, output: Format, limit: int) -> Exit:
    """Check the whole ledger, from its first entry to now, against the invariants (docs/reference/invariants.md).

    The checker keeps books of its own and shares no code with the engine: every hash, every lease's opening and end,
    its payer, every limit at every instant, every promise, every draw, and all sums counted again from scratch. It
    reads only, and may be run while the fleet works. In a cluster the Lease objects are compared with the ledger too,
    in an embedded fleet the tables that questions are answered from. What holds only where somebody drives is not
    asked: that a failed node holds no lease, and that no start which was promised is past.

    Exit code 0 means that everything holds, 7 that something does not, 6 that the ledger itself was refused.

    \b
    kubectl runs audit
    kubectl runs audit -o json > audit.json

    JSON: {"fleet", "now", "head": {"seq", "hash", "at"}, "ok", "invariants": [{"name", "says", "checked",
    "violations"}], "violations": [{"invariant", "at", "object", "message", "expected", "found"}]}.
    """
    with session.fleet() as fleet:
        head, now = fleet.head, fleet.view().now
        with Progress("auditing") as progress:
            found = audited(fleet, head, now=now, progress=progress)
        name = fleet.name
    counts = Counter(one.invariant for one in found)
    show(
        output,
        tables=lambda: _tables(name, head, found, counts, limit),
        data=lambda: _record(name, head, found, counts, now=now),
        names=list,
        hint="" if found else "keep the head's hash somewhere else: it vouches for everything before it",
    )
    if not found:
        return Exit.OK
    if len(found) > limit and output == "table":
        say(f"{len(found) - limit} more violations are not shown: -o json has all of them")
    problem = f"{plural(len(found), 'violation')} of {plural(len(counts), 'invariant')} in {name}"
    step = "keep a copy of the ledger as it is, and report it: docs/reference/invariants.md says what each one means"
    if all(one.object.startswith(TABLE) for one in found):
        step = f"the entries hold: keep a copy of the file as it is, then: tenure ledger rebuild {name}"
    raise Trouble(problem, next_step=step, exit=Exit.FINDINGS)


def audited(fleet: Fleet, head: Head, *, now: Instant, progress: Progress) -> list[Violation]:
    """Everything that does not hold: entry by entry, at the end, counted again, and in what is shown to others."""
    auditor, found = Auditor(), list[Violation]()
    for done, link in enumerate(fleet.links(head.seq), 1):
        found += auditor.feed_raw(link.body)
        progress("entry", done, head.seq)
    found += auditor.check(now, rest=REST)
    again = (link.entry for link in fleet.links(head.seq))
    found += auditor.recheck(_counted(again, head, progress), now=now)
    found += [
        Violation(invariant=IMMUTABLE.name, at=now, object=one.object, message=one.message, expected=one.expected,
                  found=one.found)
        for one in fleet.misshown(progress)
    ]  # fmt: skip
    return found


def _counted(entries: Iterator[Any], head: Head, progress: Progress) -> Iterator[Any]:
    for done, entry in enumerate(entries, 1):
        progress("counting again, entry", done, head.seq)
        yield entry


def _tables(name: str, head: Head, found: list[Violation], counts: Counter[str], limit: int) -> Iterator[Table | str]:
    verdict = paint("something does not hold", "bad") if found else paint("everything holds", "good")
    entries = plural(head.seq, "entry", "entries")
    yield f"{safe(name)}: {verdict} in {entries}, head {head.seq} {head.hash[:16]} of {stamp(head.at)}"
    yield Table(columns("INVARIANT", "RESULT", ">VIOLATIONS", "SAYS"), [_row(one, counts) for one in INVARIANTS])
    if found:
        yield section("What does not hold")
        rows: list[list[Cell]] = [[one.invariant, moment(one.at), one.object, _told(one)] for one in found[:limit]]
        yield Table(columns("INVARIANT", "AT", "OBJECT", "FINDING"), rows)


def _row(one: Invariant, counts: Counter[str]) -> list[Cell]:
    if one.name in NOT_HERE:
        return [one.name, ("not-here", "dim"), "-", one.says]
    result: Cell = ("violated", "bad") if counts[one.name] else ("holds", "good")
    return [one.name, result, str(counts[one.name]), _says(one)]


def _says(one: Invariant) -> str:
    """What is checked here."""
    return SAID.get(one.name, one.says)


def _told(one: Violation) -> str:
    return f"{one.message}: expected {one.expected}, found {one.found}{difference(one.expected, one.found)}"


def _record(name: str, head: Head, found: list[Violation], counts: Counter[str], *, now: Instant) -> dict[str, Any]:
    return {
        "fleet": name, "now": format_time(now), "ok": not found,
        "head": {"seq": head.seq, "hash": head.hash, "at": format_time(head.at)},
        "invariants": [
            {"name": one.name, "says": _says(one), "checked": one.name not in NOT_HERE, "violations": counts[one.name]}
            for one in INVARIANTS
        ],
        "violations": [
            {"invariant": one.invariant, "at": moment(one.at), "object": one.object, "message": one.message,
             "expected": one.expected, "found": one.found}
            for one in found
        ],
    }  # fmt: skip
