"""The report: one HTML file with everything in it, for somebody who was not there.

It opens with the answer in a sentence, then shows it: waits, utilisation, the queue, room for wide jobs, and why the
numbers can be trusted. Plots are drawn when a report is asked for and not before, because matplotlib is an extra. The
page loads nothing from anywhere and runs no script; what came from a trace is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib.util import find_spec
from pathlib import Path

from tenure.simulate.declare import sentence
from tenure.simulate.report_data import Study
from tenure.simulate.report_style import STYLE
from tenure.simulate.stats import Waits

NAMES = {"tenure": "Tenure", "fifo": "FIFO", "easy": "EASY backfill"}
LONG_NAMES = {"fifo": "strict first come, first served", "easy": "EASY backfill"}
OWNERS_MAX = 25
_PODS = {
    "any": "A gang took any free GPUs.",
    "whole": "A gang lay on machines in pods that never cross one.",
}
_RESTS = {
    "all": "all promises",
    "projected": "declared ends",
    "window-aligned": "a budget's window",
    "conservative": "cuts, after notice",
}


def can_plot() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def write_report(study: Study, path: Path) -> None:
    """Write the page; an older one in its place is replaced whole."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(page(study), encoding="utf-8")
    draft.replace(path)


def page(study: Study) -> str:
    """The whole page."""
    title = f"{_count(study.load.jobs, 'job')} on {_count(study.fleet.total, 'GPU')}"
    body = "\n".join(_body(study))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _body(study: Study) -> Iterator[str]:
    from tenure.simulate import report_plots as plots

    yield _head(study)
    yield _cards(study)
    yield _section(
        "How long did jobs wait?",
        "Bars reach to the mean wait; the dark mark is where nine out of ten jobs had started. Wide jobs are the "
        "hard ones: many GPUs have to be free at the same moment.",
        plots.waits(study), _size_table(study), _worse_sentence(study),
        "The whole distribution: the share of jobs that had started after so long. The further left, the better.",
        plots.distribution(study),
    )  # fmt: skip
    yield _section(
        "How full was the fleet?",
        f"The share of the {study.fleet.total:,} GPUs that was in use. {_busy_sentence(study)}",
        plots.utilisation(study),
    )
    yield _section("How long was the queue?", "Jobs that had been submitted and had not started.", plots.queue(study))
    if study.tenure.fragmentation.curves:
        yield _section(
            "Was there room for wide jobs?",
            "Free GPUs are of little use when they are scattered. The line shows how many gangs of that width would "
            "have fitted at once; the shaded part is what scattering cost.",
            plots.fragmentation(study), _room_sentence(study),
        )  # fmt: skip
    yield _section("Who waited?", "Mean wait by owner.", _owner_table(study))
    yield _section("Were promises kept?", *_promises(study))
    yield _section("Was work thrown away?", *_thrown(study))
    yield _section("Can these numbers be trusted?", *_trust(study))
    yield _section("How this was made", *_method(study))


# --- the answer -------------------------------------------------------------------------------------------------------


def _head(study: Study) -> str:
    load, fleet = study.load, study.fleet
    sources = " and ".join(Path(trace.source).name for trace in study.traces)
    size = [_count(load.jobs, "job"), _count(round(load.span_days), "day"), _count(fleet.total, "GPU")]
    where = f"{_count(fleet.machines, 'machine')} in {_count(fleet.domains, 'fabric domain')}"
    facts = [sources, _count(load.owners, "owner"), where, f"offered load {load.offered:.0%}"]
    return (
        f'<header><p class="eyebrow">Tenure · trace replay</p><h1>{", ".join(size)}</h1>'
        f'<p class="lede">{escape(headline(study))}</p><p class="meta">{escape(" · ".join(facts))}</p></header>'
    )


def headline(study: Study) -> str:
    """The result in two sentences."""
    mine = study.tenure.summary.wait_hours
    first = f"On Tenure the average job waited {hours(mine.mean)}."
    others = [
        f"{hours(summary.wait_hours.mean)} under {LONG_NAMES.get(name, name)}"
        for name, summary in study.references.items()
    ]
    return f"{first} The same jobs would have waited {' and '.join(others)}." if others else first


def hours(amount: float) -> str:
    """A wait for people.

    >>> hours(0), hours(0.25), hours(7.93), hours(293.02), hours(2400)
    ('0 minutes', '15 minutes', '7.9 hours', '293.0 hours', '100.0 days')
    """
    if amount < 1:
        return f"{amount * 60:.0f} minutes"
    return f"{amount:.1f} hours" if amount < 1000 else f"{amount / 24:.1f} days"


def _cards(study: Study) -> str:
    summary, audit = study.tenure.summary, study.tenure.audit
    thrown, kept = study.tenure.thrown, study.tenure.promises
    wait = summary.wait_hours
    cards = [
        _card("Mean wait", _short(wait.mean), _against(study)),
        _card("Nine of ten started within", _short(wait.p90), f"half within {_short(wait.p50)}"),
        _card("GPUs in use", f"{summary.utilisation:.0%}", "while jobs were submitted"),
        _card("Work thrown away", f"{study.thrown_share:.1%}", f"{_count(thrown.runs_drawn, 'job')} drawn by lot"),
        _card("Promises missed", f"{kept.missed:,}", f"{kept.moved_later:,} of {kept.made:,} moved later"),
        _card("Jobs completed", f"{summary.completed:,}", f"of {summary.submitted:,} submitted"),
        _card("Rules broken", f"{audit.violations:,}", f"in {audit.entries:,} audited decisions",
              tone="good" if not audit.violations else "bad"),
    ]  # fmt: skip
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(label: str, value: str, note: str, *, tone: str = "") -> str:
    return (
        f'<div class="card {tone}"><div class="label">{escape(label)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
    )


def _against(study: Study) -> str:
    return ", ".join(f"{ratio:.2f} × {NAMES.get(name, name)}" for name, ratio in study.ratios.items()) or "alone"


# --- sections ---------------------------------------------------------------------------------------------------------


def _section(title: str, *parts: str) -> str:
    """A heading and its parts: markup stands as it is, text becomes a paragraph."""
    body = "".join(part if part.startswith("<") else f"<p>{escape(part)}</p>" for part in parts if part)
    body = body.replace("<svg", '<svg role="img"')
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _busy_sentence(study: Study) -> str:
    parts = [f"{NAMES.get(one.policy, one.policy)} {one.utilisation:.1%}" for one in study.summaries]
    return f"On average, while jobs were submitted: {', '.join(parts)}. After the last submission a fleet runs empty."


def _worse_sentence(study: Study) -> str:
    """Who would have been better off elsewhere: a mean hides them."""
    mine = study.tenure.summary.wait_hours_by_size
    parts = [
        f"jobs of {size} GPUs waited {_short(mine[size].mean)} here, {_short(waits.mean)} under {NAMES.get(name, name)}"
        for name, summary in study.references.items()
        for size, waits in summary.wait_hours_by_size.items()
        if size in mine and mine[size].mean > 1.05 * waits.mean and mine[size].mean - waits.mean > 0.1
    ]
    return f"Not everybody gained: {'; '.join(parts)}." if parts else ""


def _room_sentence(study: Study) -> str:
    room = study.tenure.fragmentation
    shown = {curve.size for curve in room.curves}
    parts = [f"{one.fit:.1f} of {one.packed:.1f} gangs of {one.size} GPUs" for one in room.sizes if one.size in shown]
    if not parts:
        return ""
    return f"On average {room.free:,.0f} GPUs were free while jobs were submitted, with room for {' and '.join(parts)}."


def _size_table(study: Study) -> str:
    return _table(study, "Width", {one.policy: one.wait_hours_by_size for one in study.summaries}, unit=" GPUs")


def _owner_table(study: Study) -> str:
    tables = {one.policy: one.wait_hours_by_owner for one in study.summaries}
    table = _table(study, "Owner", tables)
    rest = len(study.tenure.summary.wait_hours_by_owner) - OWNERS_MAX
    return table + (f'<p class="meta">and {rest} more owners</p>' if rest > 0 else "")


def _table(study: Study, what: str, tables: dict[str, dict[str, Waits]], *, unit: str = "") -> str:
    """Rows of waits; each policy has its mean, and Tenure also the time until nine of ten had started."""
    keys = list(dict.fromkeys(key for table in tables.values() for key in table))[:OWNERS_MAX]
    head = "".join(f"<th>{escape(NAMES.get(one.policy, one.policy))}</th>" for one in study.summaries)
    labels = {key: f"{key}{unit}" if key != "1" else f"{key}{unit.removesuffix('s')}" for key in keys}
    rows = "".join(_row(labels[key], [tables[one.policy].get(key) for one in study.summaries]) for key in keys)
    return (
        f"<table><thead><tr><th>{escape(what)}</th><th>Jobs</th>{head}<th>Tenure, 90 %</th><th>Tenure, longest</th>"
        f"</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(name: str, waits: list[Waits | None]) -> str:
    known = [one for one in waits if one is not None]
    best = min(one.mean for one in known) if len({one.mean for one in known}) > 1 else None
    cells = "".join(
        f'<td class="{"best" if one is not None and one.mean == best else ""}">'
        f"{'–' if one is None else _short(one.mean)}</td>"
        for one in waits
    )
    mine = waits[0]
    tail = "".join(
        f"<td>{'–' if mine is None else _short(value)}</td>" for value in ((mine.p90, mine.max) if mine else (0, 0))
    )
    return f"<tr><th>{escape(name)}</th><td>{max(one.jobs for one in known):,}</td>{cells}{tail}</tr>"


def _short(amount: float) -> str:
    if amount < 1:
        return f"{amount * 60:.0f} min"
    return f"{amount:.1f} h" if amount < 1000 else f"{amount / 24:.1f} d"


# --- promises ---------------------------------------------------------------------------------------------------------


def _promises(study: Study) -> Iterator[str]:
    kept = study.tenure.promises
    if not kept.made:
        yield "No job was promised a start: 0 promises were made, missed, or moved to a later start."
        return
    yield (
        "The first of those that cannot start at once are promised a start, worked out from what running jobs say "
        "about their ends and from the promises that stand. "
        f"{_count(kept.made, 'promise')} {'was' if kept.made == 1 else 'were'} made: "
        f"{_count(kept.kept, 'job')} started at that instant or earlier, {kept.missed:,} later; {kept.moved_later:,} "
        f"were moved to a later start on the way, {_count(kept.moves_later, 'time')} in all."
    )
    head = "<th>Rests on</th><th>Starts</th><th>Mean</th><th>Half within</th><th>90 % within</th><th>Latest</th>"
    rows = "".join(
        f"<tr><th>{escape(_RESTS.get(name, name))}</th><td>{one.starts:,}</td>"
        + "".join(f"<td>{_late(hours)}</td>" for hours in (one.mean, one.p50, one.p90, one.max))
        + "</tr>"
        for name, one in kept.error_hours.items()
    )
    if rows:
        yield "How far the real start was from the first promise:"
        yield f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _late(hours: float) -> str:
    """
    >>> _late(0.0), _late(-0.5), _late(2.0)
    ('on time', '30 min early', '2.0 h late')
    """
    if not hours:
        return "on time"
    return f"{_short(abs(hours))} {'late' if hours > 0 else 'early'}"


# --- work in vain ----------------------------------------------------------------------------------------------------


def _thrown(study: Study) -> Iterator[str]:
    thrown = study.tenure.thrown
    yield (
        f"{_count(thrown.runs_drawn, 'job')} lost a lottery ({_count(thrown.draws, 'draw')}); "
        f"{_count(thrown.runs_cut, 'job')} in all had to end for somebody else. They save nothing on the way here, so "
        f"they began again from zero: {thrown.gpu_hours:,.0f} GPU-hours were thrown away, {study.thrown_share:.1%} of "
        "the work. A job that is cut twice counts twice."
    )
    cuts = [f"{_count(cut.leases, 'lease')} ({cut.gpus:,} GPUs) by {cut.reason}" for cut in study.tenure.cuts]
    yield f"Leases that were cut for somebody else: {', '.join(cuts) or 'none'}."


# --- trust ------------------------------------------------------------------------------------------------------------


def _trust(study: Study) -> Iterator[str]:
    tenure = study.tenure
    audit = tenure.audit
    yield (
        "Every decision of the replay is an entry in a ledger, and an auditor that shares no code with the scheduler "
        f"read all {audit.entries:,} of them: GPUs never given twice, no budget exceeded, gangs whole, every "
        f"GPU-second paid for once. It also looked at everything open {audit.sweeps:,} times. "
        f"It found {_count(audit.violations, 'violation')}."
    )
    if audit.examples:
        yield "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in audit.examples) + "</ul>"
    for waiting in tenure.unstarted:
        yield f"{_count(waiting.jobs, 'job')} never started ({waiting.reason}). For example {waiting.example}"
    for why, jobs in study.left_out.items():
        yield f"{_count(jobs, 'job')} could not run on this fleet at all and was left out for every policy: {why}."


def _method(study: Study) -> Iterator[str]:
    work, summary = study.tenure.work, study.tenure.summary
    yield (
        f"Jobs were replayed on Tenure's real engine with a virtual clock: {summary.virtual_days:.0f} days in "
        f"{work.engine_seconds:.0f} seconds, {work.turns:,} instants, {work.facts:,} recorded facts. "
        f"{_capital(sentence(study.declared))}. {_PODS[study.pods]} The wait of a job is the time from its submission "
        "to its first start."
    )
    if study.references:
        yield (
            "FIFO and EASY backfill are simple references on the same jobs, which declared the same to them. They know "
            f"{'one number of GPUs' if study.pods == 'any' else 'machines'}, no topology and no budgets. That flatters "
            "them. FIFO starts jobs strictly in order; EASY lets later jobs past where, by what is declared, that "
            "cannot delay the first in the queue."
        )
    rows = "".join(
        f"<tr><th>{escape(Path(trace.source).name)}</th><td>{trace.jobs:,}</td><td>{trace.left_out:,}</td></tr>"
        for trace in study.traces
    )
    head = "<th>Trace</th><th>Jobs</th><th>Rows left out</th>"
    yield f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
