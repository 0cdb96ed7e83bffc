"""Pictures of how costs grow: SVG written by hand, so that the same numbers give the same bytes.

Two panels side by side over the same sizes: milliseconds, which people feel, and counted steps, which do not depend on
the machine. Both axes are logarithmic, so a straight line is a power and its slope the exponent; the dashed line is
what growth in proportion would look like. Each picture brings its own background, light or dark as the reader's system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import floor, log10
from xml.sax.saxutils import escape

import msgspec

from bench.growth import Curve, Point
from bench.result import Row, number

WIDTH, HEIGHT = 860, 330
_PANEL, _TOP, _BOTTOM, _LEFT, _GAP = 330, 62, 262, 64, 90
_COLOURS = ("a", "b", "c")
_STYLE = """
    .card { fill: #ffffff; } text { fill: #1f2937; font: 12px system-ui, sans-serif; }
    .title { font-size: 15px; font-weight: 600; } .faint { fill: #6b7280; }
    .grid { stroke: #e5e7eb; } .axis { stroke: #9ca3af; } .guide { stroke: #9ca3af; stroke-dasharray: 5 4; }
    .a { stroke: #0f766e; fill: #0f766e; } .b { stroke: #c2410c; fill: #c2410c; } .c { stroke: #6d28d9; fill: #6d28d9; }
    polyline { fill: none !important; stroke-width: 2; } circle { stroke: none; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #111827; } text { fill: #e5e7eb; } .faint { fill: #9ca3af; }
      .grid { stroke: #374151; } .axis { stroke: #6b7280; } .guide { stroke: #6b7280; }
      .a { stroke: #2dd4bf; fill: #2dd4bf; } .b { stroke: #fb923c; fill: #fb923c; }
      .c { stroke: #a78bfa; fill: #a78bfa; }
    }
"""


def curves(rows: Iterable[Row]) -> list[Curve]:
    """What was measured of growth, out of the rows that tell of it."""
    return [msgspec.convert(row.detail["curve"], Curve) for row in rows if "curve" in row.detail]


def caption(curve: Curve) -> str:
    """The picture in a sentence, for those who cannot see it."""
    said = []
    for name, points in curve.series.items():
        few, many = points[0], points[-1]
        said.append(f"{name}: {_ms(few.ms)} at {few.at:,} {curve.unit}, {_ms(many.ms)} at {many.at:,} "
                    f"({number(many.ms / few.ms)} times; steps {number(many.steps / few.steps)} times)")  # fmt: skip
    return f"{curve.title}. {'; '.join(said)}."


def draw(curve: Curve) -> str:
    """The picture as a file."""
    body = "\n".join(_picture(curve))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(caption(curve), {chr(34): "&quot;"})}">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )


def _picture(curve: Curve) -> Iterator[str]:
    yield f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    yield _text(_LEFT - 44, 26, curve.title, "title")
    yield from _legend(curve)
    yield from _Panel(curve, _LEFT, "milliseconds of processor time", lambda point: point.ms).draw()
    yield from _Panel(curve, _LEFT + _PANEL + _GAP, "counted steps of the engine", lambda point: point.steps).draw()


def _legend(curve: Curve) -> Iterator[str]:
    x = float(_LEFT)
    y = HEIGHT - 14
    for colour, name in zip(_COLOURS, curve.series, strict=False):
        yield f'<line class="{colour}" x1="{x:g}" y1="{y - 4}" x2="{x + 22:g}" y2="{y - 4}" stroke-width="2"/>'
        yield _text(x + 28, y, name)
        x += 28 + 6.4 * len(name) + 30
    yield f'<line class="guide" x1="{x:g}" y1="{y - 4}" x2="{x + 22:g}" y2="{y - 4}"/>'
    yield _text(x + 28, y, "in proportion", "faint")


class _Panel:
    """One chart of a picture."""

    def __init__(self, curve: Curve, left: int, label: str, value: Callable[[Point], float]) -> None:
        self._curve, self._left, self._label, self._value = curve, left, label, value
        points = [point for some in curve.series.values() for point in some]
        self._xs = decades([point.at for point in points], round_up=False)
        self._ys = decades([max(value(point), 1e-6) for point in points])

    def draw(self) -> Iterator[str]:
        yield _text(self._left, _TOP - 14, self._label, "faint")
        yield from self._axes()
        yield from self._guide()
        for colour, points in zip(_COLOURS, self._curve.series.values(), strict=False):
            line = " ".join(f"{self._x(point.at):.1f},{self._y(self._value(point)):.1f}" for point in points)
            yield f'<polyline class="{colour}" points="{line}"/>'
            for point in points:
                title = f"<title>{point.at:,} {self._curve.unit}: {number(self._value(point))}</title>"
                x, y = self._x(point.at), self._y(self._value(point))
                yield f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{title}</circle>'
        yield from self._labels()

    def _labels(self) -> Iterator[str]:
        """The first and the last value of each series, where no other line is: at the end above the highest and below
        the others, at the beginning below the lowest (from there the guide goes up) and above the others."""
        for end, anchor in ((0, "start"), (-1, "end")):
            values = sorted((points[end] for points in self._curve.series.values()), key=self._value)
            for place, point in enumerate(values):
                above = place > 0 if end == 0 else place == len(values) - 1
                y = self._y(self._value(point)) + (-9 if above else 18)
                yield _text(self._x(point.at), max(y, _TOP + 8), number(self._value(point)), anchor=anchor)

    def _axes(self) -> Iterator[str]:
        right = self._left + _PANEL
        for tick in _ticks(self._ys):
            y = self._y(tick)
            yield f'<line class="grid" x1="{self._left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
            yield _text(self._left - 8, y + 4, _short(tick), "faint", anchor="end")
        for tick in _ticks(self._xs):
            x = self._x(tick)
            yield f'<line class="axis" x1="{x:.1f}" y1="{_BOTTOM}" x2="{x:.1f}" y2="{_BOTTOM + 5}"/>'
            yield _text(x, _BOTTOM + 19, _short(tick), "faint", anchor="middle")
        yield f'<line class="axis" x1="{self._left}" y1="{_BOTTOM}" x2="{right}" y2="{_BOTTOM}"/>'
        yield _text(right, _BOTTOM + 34, self._curve.unit, "faint", anchor="end")

    def _guide(self) -> Iterator[str]:
        """Growth in proportion, from where the first series begins until it leaves the panel."""
        first = next(iter(self._curve.series.values()))[0]
        begin, top = self._value(first), self._ys[1]
        end = min(self._xs[1], first.at * top / begin)
        if end > first.at:
            yield (f'<line class="guide" x1="{self._x(first.at):.1f}" y1="{self._y(begin):.1f}" '
                   f'x2="{self._x(end):.1f}" y2="{self._y(begin * end / first.at):.1f}"/>')  # fmt: skip

    def _x(self, value: float) -> float:
        return self._left + _PANEL * _part(value, self._xs)

    def _y(self, value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * _part(max(value, self._ys[0]), self._ys)


def decades(values: Sequence[float], *, round_up: bool = True) -> tuple[float, float]:
    """The ends of a logarithmic axis: powers of ten around all values; at least one decade.

    >>> decades([0.3, 0.5]), decades([10, 3000]), decades([1000, 1000000], round_up=False)
    ((0.1, 1.0), (10.0, 10000.0), (1000.0, 1000000))
    """
    low = 10.0 ** floor(log10(min(values)))
    if not round_up:
        return low, max(values)
    high = low * 10
    while high < max(values) * 0.999:
        high *= 10
    return low, high


def _ticks(ends: tuple[float, float]) -> Iterator[float]:
    tick = ends[0]
    while tick <= ends[1] * 1.001:
        yield tick
        tick *= 10


def _part(value: float, ends: tuple[float, float]) -> float:
    return (log10(value) - log10(ends[0])) / (log10(ends[1]) - log10(ends[0]))


def _short(value: float) -> str:
    """
    >>> [_short(value) for value in (0.1, 10.0, 1000.0, 100000.0, 1e6)]
    ['0.1', '10', '1k', '100k', '1M']
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _ms(value: float) -> str:
    return f"{number(value)} ms"


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(text)}</text>'
