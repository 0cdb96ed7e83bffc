"""The plots of a report, each an SVG that can stand inside a page. The only module that imports matplotlib.

A policy has one colour everywhere. Text stays text (the page's own font, and searchable), nothing carries a date or a
random id, and the same study gives the same bytes. Curves are averaged over a few hours, so that a month is readable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from itertools import zip_longest
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, NullLocator, PercentFormatter

from tenure.simulate.report_data import Study
from tenure.simulate.stats import SIZE_CLASSES, Curve, Summary, Waits

COLOURS = {"tenure": "#0f766e", "fifo": "#9aa5b1", "easy": "#e08a1e"}
NAMES = {"tenure": "Tenure", "fifo": "FIFO", "easy": "EASY backfill"}
POINTS = 360
"""Points of a curve on the page: about one for every other pixel."""
_INK, _GRID, _SHADE = "#334155", "#e2e8f0", "#f59e0b"
_TICKS = (0, 1, 6, 24, 168, 720)
_STEPS = (1 / 60, 1 / 12, 1 / 4, 1 / 2, 1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720)
"""Hours."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib and measures the text; the page sets its own
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": "#cbd5e1",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def queue(study: Study) -> str:
    """Jobs that wait, over time."""
    with _figure("queue", height=2.9) as (figure, out):
        axes = figure.subplots()
        for one in study.summaries:
            _line(axes, one.policy, one.queue_curve)
        _over_days(axes, study)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_ylabel("jobs waiting")
        _legend(figure, axes)
    return out()


def utilisation(study: Study) -> str:
    """GPUs that are held, over time."""
    with _figure("utilisation", height=2.9) as (figure, out):
        axes = figure.subplots()
        for one in study.summaries:
            _line(axes, one.policy, one.utilisation_curve)
        _over_days(axes, study)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("GPUs in use")
        _legend(figure, axes)
    return out()


def waits(study: Study) -> str:
    """Waits by the width of the job: a bar to the mean, a mark where nine of ten jobs had started."""
    classes = _classes(study)
    with _figure("waits", height=3.4) as (figure, out):
        axes = figure.subplots()
        width = 0.8 / len(study.summaries)
        for index, one in enumerate(study.summaries):
            _bars(axes, one, classes, shift=(index - (len(study.summaries) - 1) / 2) * width, width=width)
        axes.set_xticks(range(len(classes)), [_size_label(study, name) for name in classes])
        axes.grid(visible=False, axis="x")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_locator(MultipleLocator(_hour_step(axes.get_ylim()[1])))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _hours(value)))
        axes.set_ylabel("wait")
        _legend(figure, axes)
    return out()


def distribution(study: Study) -> str:
    """What share of the jobs had started after so long: all of them, and each class of widths."""
    classes = _classes(study)
    titles = ["all jobs", *(_gpus(name) for name in classes)]
    tables = [[one.wait_hours for one in study.summaries]]
    tables += [[one.wait_hours_by_size.get(name, Waits(jobs=0)) for one in study.summaries] for name in classes]
    longest = max(1.0, *(one.wait_hours.max for one in study.summaries))
    rows = -(-len(titles) // 3)
    with _figure("distribution", height=1.9 * rows + 0.6) as (figure, out):
        panels = figure.subplots(rows, 3, sharex=True, sharey=True, squeeze=False)
        for axes, title, waits in zip_longest(panels.flat, titles, tables):
            if title is None:
                axes.set_visible(False)
            else:
                _started(axes, title, waits, [one.policy for one in study.summaries], longest=longest)
        _hour_axis(panels[0][0], longest)
        panels[0][0].yaxis.set_major_formatter(PercentFormatter(1.0))
        for axes in panels[-1]:
            axes.set_xlabel("after waiting")
        _legend(figure, panels[0][0])
    return out()


def fragmentation(study: Study) -> str:
    """Gangs that fit, under those that would if all free GPUs lay together: one panel for each width."""
    curves = study.tenure.fragmentation.curves
    with _figure("fragmentation", height=1.9 * len(curves) + 0.7) as (figure, out):
        panels = figure.subplots(len(curves), 1, sharex=True, squeeze=False)
        for (axes,), one in zip(panels, curves, strict=True):
            days, packed = _points(one.packed)
            _, fit = _points(one.fit)
            axes.plot(days, fit, color=COLOURS["tenure"], label="fit", zorder=3)
            axes.plot(days, packed, color=_SHADE, linewidth=1, label="would fit if the free GPUs lay together")
            axes.fill_between(days, fit, packed, color=_SHADE, alpha=0.35, linewidth=0, label="lost to scattering")
            axes.set_ylabel(f"{one.size}-GPU gangs")
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            _over_days(axes, study, last=axes is panels[-1][0])
        _legend(figure, panels[0][0])
    return out()


# --- parts ------------------------------------------------------------------------------------------------------------


@contextmanager
def _figure(name: str, *, height: float) -> Iterator[tuple[Figure, Callable[[], str]]]:
    """A figure to draw into; what is given beside it answers its SVG once it is drawn."""
    text = StringIO()
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(9.2, height), layout="constrained")
        yield figure, lambda: _inline(text.getvalue())
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def _inline(svg: str) -> str:
    """The svg element alone, as wide as the page lets it be."""
    body = svg[svg.index("<svg") :]
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1), count=1
    )


def _line(axes: Axes, policy: str, curve: Curve) -> None:
    days, values = _points(curve)
    front = 3 if policy == "tenure" else 2
    axes.plot(days, values, color=_colour(policy), label=_name(policy), zorder=front)


def _points(curve: Curve) -> tuple[list[float], list[float]]:
    """Days and values, averaged until they are few enough to draw."""
    step = max(1, -(-len(curve.values) // POINTS))
    groups = [curve.values[at : at + step] for at in range(0, len(curve.values), step)]
    days = [(index * step + len(group) / 2) * curve.period_seconds / 86400 for index, group in enumerate(groups)]
    return days, [sum(group) / len(group) for group in groups]


def _bars(axes: Axes, one: Summary, classes: Sequence[str], *, shift: float, width: float) -> None:
    places = [index + shift for index, name in enumerate(classes) if name in one.wait_hours_by_size]
    found = [one.wait_hours_by_size[name] for name in classes if name in one.wait_hours_by_size]
    axes.bar(places, [row.mean for row in found], width * 0.92, color=_colour(one.policy), label=_name(one.policy))
    axes.scatter(
        places, [row.p90 for row in found], marker="_", s=130, color=_INK, linewidths=1.6, zorder=3, clip_on=False
    )


def _started(axes: Axes, title: str, waits: Sequence[Waits], policies: Sequence[str], *, longest: float) -> None:
    for one, policy in zip(waits, policies, strict=True):
        shares = [index / (len(one.quantiles) - 1) for index in range(len(one.quantiles))]
        line = (*one.quantiles, longest) if one.jobs else ()  # from the last start on, all have started
        axes.plot(line, [*shares, 1.0] if one.jobs else [], color=_colour(policy), label=_name(policy), clip_on=False)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_ylim(0, 1.02)


def _hour_axis(axes: Axes, longest: float) -> None:
    """Hours from left to right, where minutes matter as much as days."""
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(0, longest)
    axes.set_xticks([hours for hours in _TICKS if hours <= longest])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _hours(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def _over_days(axes: Axes, study: Study, *, last: bool = True) -> None:
    """Days from the start, with the last submission marked; what comes below has its own label."""
    axes.set_xlim(0, _days_shown(study))
    axes.axvline(study.load.span_days, color="#64748b", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate(
        "last submission", (study.load.span_days, 1), xytext=(0, 3), xycoords=("data", "axes fraction"),
        textcoords="offset points", ha="center", va="bottom", fontsize=9, color="#64748b",
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.set_xlabel("days" if last else "")


def _hour_step(most: float) -> float:
    """The distance between marks of an axis of hours: four to eight of them."""
    return next((step for step in _STEPS if most <= 8 * step), 24 * 30)


def _hours(hours: float) -> str:
    if hours == 0:
        return "0"
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:g} d"


def _days_shown(study: Study) -> float:
    """Until a little after the last wait or submission: the few long jobs that run on after it say nothing."""
    last = study.load.span_days
    for one in study.summaries:
        curve = one.queue_curve
        busy = [index for index, value in enumerate(curve.values) if value]
        last = max(last, (busy[-1] + 1) * curve.period_seconds / 86400 if busy else 0.0)
    end = max(one.virtual_days for one in study.summaries)
    return min(end, 1.15 * last) or end


def _classes(study: Study) -> list[str]:
    return [name for name in SIZE_CLASSES if any(name in one.wait_hours_by_size for one in study.summaries)]


def _size_label(study: Study, name: str) -> str:
    jobs = max(one.wait_hours_by_size[name].jobs for one in study.summaries if name in one.wait_hours_by_size)
    return f"{_gpus(name)}\n{jobs:,} jobs"


def _gpus(name: str) -> str:
    return "1 GPU" if name == "1" else f"{name} GPUs"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), fontsize=10, handlelength=1.4)


def _colour(policy: str) -> str:
    return COLOURS.get(policy, "#7c3aed")


def _name(policy: str) -> str:
    return NAMES.get(policy, policy)
