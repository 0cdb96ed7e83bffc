"""`tenure ledger`: is it whole, what does it say, and, if a person has decided so, it is right as it stands."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from tenure.api.meta import to_wire
from tenure.cli.exits import Exit
from tenure.cli.images import untrue
from tenure.cli.output import Cell, Format, Table, columns, escaped, show
from tenure.cli.server.fleets import fleet_argument
from tenure.cli.session import output
from tenure.cli.terminal import Progress, hint, is_terminal, paint, say
from tenure.cli.trouble import Trouble
from tenure.cli.words import plural, safe, stamp
from tenure.facts import Entry, Noted
from tenure.ledger import Ledger
from tenure.ledger.verify import Report
from tenure.units import format_time

SHOWN = 20
"""Entries shown unless more are asked for."""


@click.group("ledger", short_help="Verify, rebuild, export, show, accept or restore a ledger.")
def command() -> None:
    """Verify, rebuild, export, show, accept or restore a ledger."""


@command.command("verify", short_help="Check everything there is to check.")
@fleet_argument
@output("table", "json", "yaml")
def verify(file: Path, output: Format, anchor: Path | None) -> Exit:
    """Check everything there is to check: the file, the chain of hashes, the query tables, the anchor, and that the
    states which were saved are those that the entries give. Nothing is changed.

    A ledger that is being written can be verified, as of now. Exit code 0 means that it is whole, 6 that something
    was found.

    JSON: {"path", "fleet", "head": {"seq", "hash", "at"}, "entries", "leases", "findings": [{"check", "where",
    "sentence"}]}.
    """
    with Ledger.examine(file, anchor=anchor) as ledger, Progress("verifying") as progress:
        report = ledger.verify(progress)
        refusal = ledger.refusal
        if report.ok or report.can_be_filled_again:
            report = replace(report, findings=(*report.findings, *untrue(ledger, progress)))
    step = refusal.next_step if refusal else mending(report)
    head = report.head
    summary = f"{plural(report.entries, 'entry', 'entries')}, {plural(report.leases, 'lease')}"
    record = {**to_wire(report), "head": {"seq": head.seq, "hash": head.hash, "at": format_time(head.at)}}
    rows: list[list[Cell]] = [[(one.check, "bad"), one.where, one.sentence] for one in report.findings]
    end = f"head {head.seq} {head.hash[:16]} of {stamp(head.at)}"
    good = f"{safe(str(file))} is {paint('whole', 'good')}: {summary}, {end}"
    show(
        output,
        tables=lambda: [good] if report.ok else [Table(columns("CHECK", "WHERE", "FINDING"), rows)],
        data=lambda: record,
        names=list,
        hint="keep the head's hash somewhere else: it vouches for everything before it" if report.ok else "",
    )
    if report.ok:
        return Exit.OK
    raise Trouble(f"{file}: {plural(len(rows), 'finding')} in {summary}", next_step=step, exit=Exit.REFUSED)


def mending(report: Report) -> str:
    """How what was found is mended."""
    if report.can_be_filled_again:
        return f"the entries are whole: fill what is derived again from them: tenure ledger rebuild {report.path}"
    return "keep a copy of all its files, and restore the newest backup"


@command.command("rebuild", short_help="Fill the query tables again from the entries.")
@fleet_argument
def rebuild(file: Path, anchor: Path | None) -> None:
    """Fill the query tables again from the entries, which are checked on the way, and forget the states that were
    saved: for a ledger of which `verify` says that these differ, and that its entries are whole. The entries stay as
    they are. To know later how the others came to differ, keep a copy of the file first.
    """
    with Ledger.open(file, anchor=anchor) as ledger:
        ledger.rebuild()
        entries = plural(ledger.head.seq, "entry", "entries")
    print(f"filled the query tables of {safe(str(file))} again from {entries}")
    hint(f"tenure ledger verify {file}")


@command.command("export", short_help="Print every entry as a line of JSON.")
@fleet_argument
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Only entries after this one.")
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Only entries up to this one.")
def export(file: Path, after: int, until: int | None, anchor: Path | None) -> None:
    """Print every entry as a line of JSON: {"hash": ..., "entry": {...}}.

    The entry is, byte for byte, what the hash is the SHA-256 of, and holds the hash of the entry before it as
    "prev": anybody can check the chain with a few lines of their own.
    """
    with Ledger.open(file, readonly=True, anchor=anchor) as ledger:
        for line in ledger.export(after, until):
            if is_terminal():  # a hash is over the bytes; a person only looks at them
                print(escaped(line.decode()))
            else:
                sys.stdout.buffer.write(line + b"\n")


@command.command("show", short_help="Show the latest entries, or one of them.")
@fleet_argument
@click.option("--entry", "one", type=click.IntRange(min=1), metavar="N", help="All facts of this entry.")
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="Entries after this one.")
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, metavar="N", help="How many.")
@output("table", "json", "yaml")
def show_entries(
    file: Path, output: Format, one: int | None, after: int | None, limit: int, anchor: Path | None
) -> None:
    """Show the latest entries: when, why, and what became so.

    JSON: {"entries": [{"seq", "at", "cause", "prev", "facts": [...]}]}.
    """
    with Ledger.open(file, readonly=True, anchor=anchor) as ledger:
        head = ledger.head.seq
        if one is not None and one > head:
            raise Trouble(f"there is no entry {one}", next_step=f"the last one is {head}", exit=Exit.NOT_FOUND)
        start = one - 1 if one is not None else max(0, head - limit) if after is None else after
        entries = list(ledger.entries(start, start + (1 if one is not None else limit)))
    show(
        output,
        tables=lambda: _facts(entries[0]) if one is not None else [_table(entries)],
        data=lambda: {"entries": [_record(entry) for entry in entries]},
        names=list,
        hint=f"tenure ledger show {file} --entry {entries[-1].seq}" if entries and one is None else "",
    )


def _table(entries: list[Entry]) -> Table:
    rows: list[list[Cell]] = [[str(entry.seq), stamp(entry.at), _kinds(entry), entry.cause] for entry in entries]
    return Table(columns(">ENTRY", "AT", "FACTS", "CAUSE"), rows, "no entries")


def _kinds(entry: Entry) -> str:
    counts = Counter(type(fact).__name__ for fact in entry.facts)
    return ",".join(name if count == 1 else f"{name}*{count}" for name, count in counts.items())


def _facts(entry: Entry) -> Iterator[str]:
    yield f"Entry {entry.seq} of {stamp(entry.at)}: {safe(entry.cause)}"
    yield f"prev {entry.prev}"
    for fact in entry.facts:
        body = msgspec.json.encode(msgspec.to_builtins(fact)).decode()
        yield f"  {paint(type(fact).__name__, 'strong')} {safe(body)}"


def _record(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq, "at": format_time(entry.at), "cause": entry.cause, "prev": entry.prev,
        "facts": [msgspec.to_builtins(fact) for fact in entry.facts],
    }  # fmt: skip


@command.command("accept", short_help="Declare a ledger right as it stands.")
@fleet_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--who", envvar="USER", default="somebody", metavar="NAME", help="Who decides; recorded in the ledger.")
def accept(file: Path, yes: bool, who: str, anchor: Path | None) -> None:
    """Declare a ledger right as it stands, after it was refused: for a person who knows why its end, or its anchor,
    is not as it was.

    The whole chain is checked first. Then the anchor is set to the ledger's head, and who did so is recorded.
    Entries that are missing stay missing: what they said is gone from the books.
    """
    with Ledger.examine(file, anchor=anchor) as ledger:
        if ledger.refusal is None:
            say(f"{file} is not refused: there is nothing to accept")
            return
        head = ledger.head
        say(f"{ledger.refusal.code}: {ledger.refusal.sentence}")
        if not yes and not click.confirm(
            f"Accept {file} as it is, with entry {head.seq} of {stamp(head.at)} as its last?", err=True
        ):
            raise Trouble("not accepted; nothing was changed", next_step=ledger.refusal.next_step, exit=Exit.REFUSED)
        reason, accepted = str(ledger.refusal.code), ledger.accept_anchor()
    before = accepted.before.seq if accepted.before else "nothing readable"
    stands = f"{who} accepted the ledger as it stands at entry {accepted.after.seq}"
    _note(file, anchor, f"{stands}; its anchor had said {before} ({reason}).")
    print(f"accepted {safe(str(file))}: entry {accepted.after.seq} is its last; recorded as a note")
    hint(f"tenure ledger verify {file}")


@command.command("restore", short_help="Put back what a Kubernetes API server has lost.")
@fleet_argument
@click.option("--context", metavar="NAME", help="The context of the kubeconfig. Left out: the current one.")
@click.option(
    "--namespace", metavar="NAME", default="tenure-system", show_default=True,
    help="Where the operator lives, in whose name the ledger is written.",
)  # fmt: skip
def restore(file: Path, context: str | None, namespace: str, anchor: Path | None) -> None:
    """Put back what a Kubernetes API server has lost, from FILE, the journal of an operator: after etcd was restored
    from an old copy, when operators refuse to go on.

    Stop the operator first, and use the journal that knows most. Entries that are missing are written again, byte for
    byte, and the LedgerHead is moved forward over them. Nothing is changed if the two have different pasts. It takes
    the rights of a cluster administrator, who may act in the operator's name.
    """
    from tenure.kube.refusals import StoreRefused

    try:
        with Ledger.open(file, readonly=True, anchor=anchor) as ledger:
            before, after = _restored(ledger, context, f"system:serviceaccount:{namespace}:tenure-operator")
    except StoreRefused as refusal:
        raise Trouble(refusal.sentence, next_step=refusal.next_step, exit=Exit.REFUSED) from refusal
    if before == after:
        print(f"nothing was lost that {safe(str(file))} knows: the LedgerHead names entry {after}")
    else:
        print(f"restored entries {before + 1} to {after}; the LedgerHead names entry {after} again")


def _restored(ledger: Ledger, context: str | None, user: str) -> tuple[int, int]:
    import asyncio

    from tenure.kube.client import Client
    from tenure.kube.config import NoAccess, discover, from_kubeconfig
    from tenure.kube.repair import restore

    async def work() -> tuple[int, int]:
        access = from_kubeconfig(context=context) if context else discover()
        async with Client(access, headers={"Impersonate-User": user}) as client:
            done = await restore(client, ledger)
        return done.before, done.after

    try:
        return asyncio.run(work())
    except NoAccess as error:
        raise Trouble(str(error), next_step="set KUBECONFIG, or choose a --context", exit=Exit.NOT_FOUND) from error


def _note(file: Path, anchor: Path | None, message: str) -> None:
    from tenure.embedded.fleet import clock

    with Ledger.open(file, anchor=anchor) as ledger, ledger.write() as tx:
        fact = Noted(kind="Accepted", object=f"Ledger/{ledger.fleet}", reason="AnchorAccepted", message=safe(message))
        tx.append(at=max(clock(), tx.head.at), cause="accept the ledger", facts=(fact,), decided=False)
