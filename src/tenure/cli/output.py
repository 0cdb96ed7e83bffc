"""Tables for people, JSON and YAML for programs, names for the next command; all from the same data.

A table on a terminal is drawn with rich, which is imported then and not before: it fits columns to the width and
wraps the last one. In a pipe the same table is aligned text: a header, columns two blanks apart, and blanks inside
a cell only in the last column, so that grep, awk and cut work. Cells are text, never markup, and are escaped here,
in one place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from tenure.api.errors import UNSAFE
from tenure.cli.terminal import fold, is_coloured, is_terminal, paint, width
from tenure.cli.terminal import hint as give_hint
from tenure.cli.words import safe

Format = Literal["table", "wide", "json", "yaml", "name"]
FORMATS: tuple[Format, ...] = ("table", "wide", "json", "yaml", "name")
Cell = str | tuple[str, str]
"""A text, or a text and its style (``terminal.paint``)."""

PHASE_STYLES = {
    "Running": "good", "Completed": "dim", "Failed": "bad", "Pending": "wait", "Blocked": "bad", "Stopping": "wait",
    "Starting": "info", "Succeeded": "dim", "Waiting": "wait", "Started": "good", "Admitted": "good",
    "Rejected": "bad", "Quarantined": "bad", "BudgetNotice": "wait", "Deleted": "dim", "Reserved": "info",
    "StartMoved": "wait", "ReservationBlocked": "bad", "Activated": "info", "Active": "info", "Released": "good",
    "Canceled": "dim", "Cut": "bad",
}  # fmt: skip


class Column(Struct, frozen=True):
    """A column: its header, whether numbers in it line up at the right, and whether only ``-o wide`` shows it."""

    name: str
    right: bool = False
    wide: bool = False


class Table(Struct, frozen=True):
    """Rows under columns; ``empty`` is said, on standard error, when there is no row."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    empty: str = ""

    def narrowed(self, *, wide: bool) -> Table:
        """Only the columns that are asked for."""
        shown = [index for index, column in enumerate(self.columns) if wide or not column.wide]
        columns = tuple(self.columns[index] for index in shown)
        return Table(columns, [[row[index] for index in shown] for row in self.rows], self.empty)


def columns(*specs: str) -> tuple[Column, ...]:
    """Columns from short specs: ``>NAME`` lines up at the right, ``+NAME`` is for ``-o wide``.

    >>> columns("NAME", ">GPUS", "+>RESTARTS")[2]
    Column(name='RESTARTS', right=True, wide=True)
    """
    out = []
    for spec in specs:
        name = spec.lstrip("+>")
        marks = spec[: len(spec) - len(name)]
        out.append(Column(name, ">" in marks, "+" in marks))
    return tuple(out)


def phase(text: str) -> Cell:
    return text, PHASE_STYLES.get(text, "")


def show(
    output: Format,
    *,
    tables: Callable[[], Iterable[Table | str]],
    data: Callable[[], Any],
    names: Callable[[], Iterable[str]],
    hint: str = "",
) -> None:
    """Print an answer in the form that was asked for; only that form is made."""
    match output:
        case "json":
            print(to_json(data()))
        case "yaml":
            print(to_yaml(data()), end="")
        case "name":
            for name in names():
                print(safe(name))
        case _:
            for part in tables():
                draw(part, wide=output == "wide")
            give_hint(hint)


def draw(part: Table | str, *, wide: bool = False) -> None:
    """Print one table, or one line."""
    if isinstance(part, str):
        print(part)
        return
    table = part.narrowed(wide=wide)
    if not table.rows:
        sys.stdout.flush()
        print(safe(table.empty), file=sys.stderr)
    elif is_terminal():
        _draw_rich(table)
    else:
        print("\n".join(plain(table)))


def or_say(table: Table) -> Table | str:
    """The table, or, as a part of a longer answer, what stands for it when it has no row."""
    return table if table.rows else table.empty


def listing(items: Iterable[Any]) -> dict[str, Any]:
    """Objects as kubectl lists them; ``submit`` reads the same form."""
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def to_json(data: Any) -> str:
    """Indented JSON, without a character that a terminal would obey."""
    import msgspec

    return escaped(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def to_json_line(data: Any) -> str:
    """The same on one line."""
    import msgspec

    return escaped(msgspec.json.encode(data).decode())


def escaped(text: str) -> str:
    """JSON in which every character that a terminal would obey is written as an escape: the same JSON."""
    return UNSAFE.sub(lambda found: "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def to_yaml(data: Any) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=False, width=110)
    return text


def plain(table: Table) -> list[str]:
    """The lines of an aligned table.

    >>> plain(Table(columns("NAME", ">GPUS"), [["a", "8"], ["bcdef", ("16", "good")]]))
    ['NAME   GPUS', 'a         8', 'bcdef    16']
    """
    grid = _grid(table)
    form = "  ".join(
        f"{{:{'>' if column.right else '<'}{wide}}}" for column, wide in zip(table.columns, _widths(grid), strict=True)
    )
    return [form.format(*row).rstrip() for row in grid]


def _grid(table: Table) -> list[list[str]]:
    return [[column.name for column in table.columns], *([_text(cell) for cell in row] for row in table.rows)]


def _widths(grid: list[list[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(*grid, strict=True)]


def _text(cell: Cell) -> str:
    return safe(cell if isinstance(cell, str) else cell[0]) or "-"


def section(title: str) -> str:
    """A heading between parts of a longer answer."""
    return "\n" + paint(safe(title), "strong")


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Named values, one a line, lined up.

    >>> print(fields([("Owner", "org:ai"), ("GPUs", "8")]))
    Owner:  org:ai
    GPUs:   8
    """
    rows = [(name, value) for name, value in pairs if value]
    left = max((len(name) for name, _ in rows), default=0) + 1
    return "\n".join(fold(f"{(name + ':').ljust(left)}  {safe(value)}", indent=left + 2) for name, value in rows)


_LAST_MIN = 24
_RICH_STYLES = {"good": "green", "bad": "red", "wait": "yellow", "dim": "dim", "strong": "bold", "info": "cyan"}


def _draw_rich(table: Table) -> None:
    from rich.console import Console

    console = Console(
        file=sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
        no_color=not is_coloured(),
        width=max(width(), _narrowest(table)),
    )
    console.print(rich_table(table))


def _narrowest(table: Table) -> int:
    """What the table needs so that nothing but its last column is wrapped: a number cut short is a lie."""
    *fixed, last = _widths(_grid(table))
    return sum(fixed) + 2 * len(fixed) + min(last, _LAST_MIN)


def rich_table(table: Table) -> Any:
    """The table as rich draws it: text only, nothing in a cell is taken for markup."""
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    last = len(table.columns) - 1
    for index, column in enumerate(table.columns):
        drawn.add_column(
            Text(column.name),
            justify="right" if column.right else "left",
            no_wrap=index != last,
            overflow="fold" if index == last else "ellipsis",
        )
    for row in table.rows:
        drawn.add_row(*(Text(_text(cell), style=_style(cell)) for cell in row))
    return drawn


def _style(cell: Cell) -> str:
    return "" if isinstance(cell, str) else _RICH_STYLES.get(cell[1], "")
