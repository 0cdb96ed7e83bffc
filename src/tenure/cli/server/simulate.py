"""`tenure simulate`: replay job traces on the engine, on virtual time, beside FIFO and EASY backfill."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from tenure.cli.exits import Exit
from tenure.cli.manifests import STDIN, read_text
from tenure.cli.output import Cell, Format, Table, columns, section, show
from tenure.cli.session import output
from tenure.cli.terminal import Progress, hint, say
from tenure.cli.trouble import Trouble, invalid
from tenure.cli.words import plural
from tenure.simulate.declare import WAYS, Declare, sentence
from tenure.simulate.reference import POLICIES, Policy
from tenure.simulate.swf import OWNER_FIELDS, OwnerField, is_swf, read_swf
from tenure.simulate.trace import Job, Trace, merge, read_trace

if TYPE_CHECKING:
    from tenure.api.budget import Budget
    from tenure.api.core import Namespace, Node
    from tenure.api.policy import Policy as Knobs
    from tenure.simulate.replay_world import Pods
    from tenure.simulate.report_data import Study
    from tenure.simulate.stats import Waits

SAID_MAX = 10
"""Rows that were left out and are said in full."""


@click.command("simulate", short_help="Replay job traces on the engine, beside FIFO and EASY.")
@click.option(
    "--trace", "sources", multiple=True, required=True, metavar="TRACE", help="A trace, CSV or SWF. May be repeated."
)
@click.option("--fleet", required=True, metavar="FLEET", help="A fleet file, or DOMAINSxNODESxGPUS such as 28x8x8.")
@click.option("--budgets", metavar="FILE", help="Budgets, YAML or JSON. Left out: each owner could pay for the fleet.")
@click.option("--policy", metavar="FILE", help="The policy. Left out: the fleet file's, or the defaults.")
@click.option(
    "--scale-submit", "scales", multiple=True, metavar="[TRACE:]F",
    help="Divide the times of submission by F, in one trace or in all. May be repeated.",
)  # fmt: skip
@click.option(
    "--compare", default=",".join(POLICIES), show_default=True, metavar="POLICY,...",
    help="What to compare with: fifo, easy, or none.",
)  # fmt: skip
@click.option(
    "--declare", type=click.Choice(WAYS), default="true", show_default=True,
    help="The duration that jobs declare, to all that is compared: what their users asked for (raised to the run time "
    "where that is longer, or raw), twice the true one, the true one, none, or the true one rounded up to 1 h, 2 h, "
    "4 h, ... 60 d.",
)  # fmt: skip
@click.option(
    "--pods", type=click.Choice(["any", "whole"]), default="any", show_default=True,
    help="Where gangs lie: on any free GPUs, or in pods that never cross a machine. Holds for all that is compared.",
)  # fmt: skip
@click.option(
    "--swf-owner", type=click.Choice(OWNER_FIELDS), default="user", show_default=True,
    help="The field of an SWF file that says who owns a job.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Stop at rows that cannot be used, instead of leaving them out.")
@click.option("--report", type=click.Path(path_type=Path), metavar="HTML", help="Also write a report with plots.")
@output("table", "wide", "json")
def command(
    sources: tuple[str, ...],
    fleet: str,
    budgets: str | None,
    policy: str | None,
    scales: tuple[str, ...],
    compare: str,
    declare: Declare,
    pods: Pods,
    swf_owner: OwnerField,
    strict: bool,
    report: Path | None,
    output: Format,
) -> Exit:
    """Replay job traces on the engine, on virtual time, and report waits, utilisation, promises, cuts and checks.

    A trace is CSV with a header: job_id, submit_s, duration_s, gpus, owner, and if known gpu_type, status, requested_s.
    Or it is a file of the Parallel Workloads Archive (.swf, .swf.gz), whose processors are read as GPUs. Rows that
    cannot be used are left out and named by their line.

    FIFO and EASY backfill are simple references: they hear the same durations as Tenure and know only a number of GPUs,
    or with --pods whole the machines; no topology and no budgets.

    Exit code 1 if an invariant did not hold.
    """
    if report is not None:
        _check_report(report)
    names = _policies(compare)
    traces = _traces(sources, scales, strict=strict, owner=swf_owner)
    nodes, knobs = _fleet(fleet, policy)
    money = None if budgets is None else _budgets(budgets)
    found = _study(traces, nodes, knobs, money, name=fleet, compare=names, declare=declare, pods=pods)
    if report is not None:
        from tenure.simulate.report import write_report

        write_report(found, report)
    show(output, tables=lambda: _parts(found, wide=output == "wide"), data=lambda: _data(found), names=list)
    _hints(report, output)
    return Exit.OK if not found.tenure.audit.violations else Exit.UNEXPECTED


def _hints(report: Path | None, form: Format) -> None:
    if report is not None:
        say(f"wrote {report}")
    elif form == "table":
        hint("add --report report.html for plots, -o wide for owners and fragmentation, -o json for everything")


# --- what was given ---------------------------------------------------------------------------------------------------


def _policies(text: str) -> tuple[Policy, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip() not in ("", "none")))
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        step = f"--compare takes {', '.join(POLICIES)}, or none"
        raise Trouble(f"there is no policy {unknown[0]!r} to compare with", next_step=step)
    return tuple(name for name in POLICIES if name in names)


def _traces(sources: Sequence[str], scales: Sequence[str], *, strict: bool, owner: OwnerField) -> list[Trace]:
    scale_of = _scales(sources, scales)
    traces = [_read(source, scale_of[source], owner) for source in sources]
    bad = [problem for trace in traces for problem in trace.problems]
    empty = [problem for trace in traces if not trace.jobs for problem in trace.problems]
    if empty or (strict and bad):
        raise invalid((empty or bad)[:SAID_MAX], next_step="mend the rows, or leave them out; nothing was replayed")
    _say_left_out(traces)
    return traces


def _read(source: str, scale: Fraction, owner: OwnerField) -> Trace:
    if source == STDIN:
        lines = (line.decode("utf-8-sig", errors="replace") for line in sys.stdin.buffer)
        return read_trace(lines, source="standard input", scale=scale)
    with _open(source) as file:
        if not is_swf(source):
            return read_trace(file, source=source, scale=scale)
        try:
            return read_swf(file, source=source, scale=scale, owner=owner)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Trouble(f"{source} is not a whole gzip file: {error}", next_step="fetch it again") from error


def _open(source: str) -> TextIO:
    if is_swf(source) and source.lower().endswith(".gz"):
        return gzip.open(source, "rt", encoding="utf-8-sig", errors="replace")
    return Path(source).open(encoding="utf-8-sig", errors="replace", newline="")


def _say_left_out(traces: Sequence[Trace]) -> None:
    for trace in traces:
        for problem in trace.problems[:SAID_MAX]:
            say(f"left out: {problem.sentence()}")
        if trace.left_out > SAID_MAX:
            say(f"left out: {trace.left_out - SAID_MAX} more rows of {trace.source}")


def _scales(sources: Sequence[str], scales: Sequence[str]) -> dict[str, Fraction]:
    """The divisor of each trace, by its path or by the name of its file."""
    out = dict.fromkeys(sources, Fraction(1))
    for text in scales:
        name, _, factor = text.rpartition(":")
        meant = [source for source in sources if name in ("", source, Path(source).name)]
        if not meant:
            raise Trouble(f"--scale-submit {text}: there is no trace {name}", next_step=f"--trace is {sources[0]}")
        out.update(dict.fromkeys(meant, _factor(text, factor)))
    return out


def _factor(text: str, factor: str) -> Fraction:
    try:
        value = Fraction(factor if len(factor) <= 20 else "")
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if not 0 < value <= 10**6:
        raise Trouble(f"--scale-submit {text}: {factor!r} is not a number above 0", next_step="write CSV:3, or 3")
    return value


def _fleet(text: str, policy: str | None) -> tuple[tuple[Node, ...], Knobs]:
    from tenure.api.decode import read_policy
    from tenure.api.policy import Policy
    from tenure.embedded.fleetfile import read_fleet
    from tenure.simulate.replay_world import uniform_nodes

    knobs = None
    if policy is not None:
        knobs, errors = read_policy(read_text(policy), source=policy, simulated=True)
        if errors:
            raise invalid(errors, next_step=f"mend {policy} and try again")
    uniform = uniform_nodes(text, (knobs or Policy()).gpu_resource)
    if uniform is not None:
        return uniform, knobs or Policy()
    fleet, wrong = read_fleet(read_text(text), source=text)
    if fleet is None:
        raise invalid(wrong, next_step=f"mend {text}, or give a uniform fleet such as 28x8x8")
    return fleet.nodes, knobs or fleet.policy


def _budgets(name: str) -> tuple[Budget | Namespace, ...]:
    from tenure.api.decode import read

    reading = read(read_text(name), source=name, kinds=frozenset({"Budget", "Namespace"}), simulated=True)
    if reading.errors:
        raise invalid(reading.errors, next_step=f"mend {name} and try again")
    return reading.objects  # type: ignore[return-value]  # no other kinds were let in


def _check_report(path: Path) -> None:
    """Before an hour of work, not after it."""
    from tenure.simulate.report import can_plot

    if not can_plot():
        step = "pip install '.[plots]' in a clone of Tenure, or leave --report out"
        raise Trouble("--report draws with matplotlib, which is not installed", next_step=step)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise Trouble(f"{path} cannot be written", next_step="give --report a file in a folder that you may write to")


# --- what was found ---------------------------------------------------------------------------------------------------


def _study(
    traces: Sequence[Trace],
    nodes: tuple[Node, ...],
    policy: Knobs,
    money: tuple[Budget | Namespace, ...] | None,
    *,
    name: str,
    compare: tuple[Policy, ...],
    declare: Declare,
    pods: Pods,
) -> Study:
    from tenure.simulate.replay import Setting
    from tenure.simulate.replay_world import Machines, ample_budgets
    from tenure.simulate.report_data import study

    machines = Machines(nodes, policy)
    jobs, left_out = machines.sort(merge(traces))
    if not jobs:
        why = left_out[0].why if left_out else "there are none"
        raise Trouble(f"no job of the trace could run on this fleet: {why}", next_step="give it another --fleet")
    for one in left_out[:SAID_MAX]:
        say(f"left out: job {one.job.name}: {one.why}")
    if len(left_out) > SAID_MAX:
        say(f"left out: {len(left_out) - SAID_MAX} more jobs that this fleet could never run")
    objects = ample_budgets(_owners(jobs.values()), machines) if money is None else money
    setting = Setting(
        jobs=jobs, nodes=nodes, objects=objects, policy=policy, gpus=machines.total, declare=declare, pods=pods
    )  # fmt: skip
    with Progress(f"replaying on {name}") as progress:
        return study(
            setting, name=name, traces=traces, machines=machines, left_out=left_out, compare=compare, progress=progress
        )  # fmt: skip


def _owners(jobs: Iterable[Sequence[Job]]) -> set[str]:
    return {job.owner for some in jobs for job in some}


def _data(found: Study) -> dict[str, object]:
    from tenure.simulate.report_data import to_tree

    return to_tree(found)


def _parts(found: Study, *, wide: bool) -> Iterator[Table | str]:
    load, fleet = found.load, found.fleet
    yield (
        f"{plural(load.jobs, 'job')} of {plural(load.owners, 'owner')} over {load.span_days:.1f} days on {fleet.name}: "
        f"{plural(fleet.machines, 'machine')}, {plural(fleet.domains, 'domain')}, {fleet.total:,} GPUs; "
        f"offered load {load.offered:.0%}"
    )
    yield sentence(found.declared)
    for trace in found.traces:
        if trace.processors is not None:
            yield f"{Path(trace.source).name}: its jobs ran on {trace.processors:,} processors"
    yield section("Waits (hours)")
    yield _waits(found)
    yield from (f"tenure's mean wait is {ratio:.2f} x that of {name}" for name, ratio in found.ratios.items())
    yield section("Mean wait by size (hours)")
    yield _by(found, "GPUS", {one.policy: one.wait_hours_by_size for one in found.summaries})
    if wide:
        yield section("Mean wait by owner (hours)")
        yield _by(found, "OWNER", {one.policy: one.wait_hours_by_owner for one in found.summaries})
        yield section("Gangs that fitted the free GPUs, on average")
        yield _fits(found)
    yield section("Promised starts")
    yield from _promises(found)
    yield section("Work thrown away")
    yield from _thrown(found)
    yield section("Checks")
    yield from _checks(found)


def _waits(found: Study) -> Table:
    rows: list[list[Cell]] = []
    for one in found.summaries:
        waits = one.wait_hours
        hours = [f"{value:.1f}" for value in (waits.mean, waits.p50, waits.p90, waits.max)]
        ends = [str(one.started), str(one.completed), f"{one.utilisation:.1%}", f"{one.virtual_days:.1f}d"]
        rows.append([one.policy, *hours, *ends])
    return Table(
        columns("POLICY", ">MEAN", ">P50", ">P90", ">MAX", ">STARTED", ">COMPLETED", ">BUSY", ">OVER-AT"), rows
    )


def _by(found: Study, what: str, tables: dict[str, dict[str, Waits]]) -> Table:
    """Mean waits, a row for each class and a column for each policy."""
    keys = list(dict.fromkeys(key for table in tables.values() for key in table))
    rows: list[list[Cell]] = [
        [key, str(max(table[key].jobs for table in tables.values() if key in table)),
         *(f"{table[key].mean:.1f}" if key in table else "-" for table in tables.values())]
        for key in keys
    ]  # fmt: skip
    return Table(columns(what, ">JOBS", *(f">{name.upper()}" for name in tables)), rows)


def _fits(found: Study) -> Table:
    rows: list[list[Cell]] = [
        [str(one.size), f"{one.fit:.1f}", f"{one.ideal:.1f}", f"{one.packed:.1f}"]
        for one in found.tenure.fragmentation.sizes
    ]
    return Table(columns(">GPUS", ">FITTED", ">DOMAINS-TIDY", ">FLEET-TIDY"), rows, "no GPU was ever free")


def _promises(found: Study) -> Iterator[Table | str]:
    kept = found.tenure.promises
    yield (
        f"{plural(kept.made, 'reservation')}: {kept.kept:,} started as promised or earlier, {kept.missed:,} later; "
        f"{kept.moved_later:,} were moved later ({plural(kept.moves_later, 'move')}), {kept.canceled:,} canceled"
    )
    rows: list[list[Cell]] = [
        [name, str(one.starts), *(f"{hours:.2f}" for hours in (one.mean, one.mean_absolute, one.p50, one.p90, one.max))]
        for name, one in kept.error_hours.items()
    ]
    if rows:
        yield "real start less first promise, in hours: late above zero, early below"
        yield Table(columns("CONFIDENCE", ">STARTS", ">MEAN", ">MEAN-ABS", ">P50", ">P90", ">MAX"), rows)


def _thrown(found: Study) -> Iterator[str]:
    thrown = found.tenure.thrown
    yield (
        f"{plural(thrown.runs_drawn, 'run')} drawn in {plural(thrown.draws, 'lottery', 'lotteries')}, "
        f"{plural(thrown.runs_cut, 'run')} cut in all; {thrown.gpu_hours:,.0f} GPU-hours thrown away, "
        f"{found.thrown_share:.1%} of the work"
    )
    for cut in found.tenure.cuts:
        yield f"cut: {plural(cut.leases, 'lease')}, {plural(cut.gpus, 'GPU')}, {cut.reason}"


def _checks(found: Study) -> Iterator[str]:
    tenure = found.tenure
    for waiting in tenure.unstarted:
        yield f"never started: {plural(waiting.jobs, 'job')}, {waiting.reason}; {waiting.example}"
    yield from (f"refused: {text}" for text in tenure.refused)
    audit, work = tenure.audit, tenure.work
    yield (
        f"invariants: {plural(audit.violations, 'violation')} in {audit.entries:,} entries and {audit.sweeps:,} "
        f"looks at all that was open"
    )
    yield from (f"  {text}" for text in audit.examples)
    yield (
        f"work: {work.facts:,} facts, {work.leases:,} leases, {work.pods:,} pods in {work.engine_seconds:.1f} s "
        f"(and {work.audit_seconds:.1f} s to audit them)"
    )
