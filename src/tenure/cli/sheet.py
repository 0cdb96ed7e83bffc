"""CSV for spreadsheets: RFC 4180 quoting, one line end, and no cell that a spreadsheet would run.

A text that begins with ``=``, ``+``, ``-`` or ``@`` is a formula to a spreadsheet, whoever wrote it. Owners may begin
with ``-``, and what a tenant names today somebody opens next month. So such a text gets an apostrophe in front, which
spreadsheets take for "this is text". Numbers are ours and stay numbers.

>>> print(text(("payer", "gpuHours"), [("org:ai", 8), ("-2+3:cmd", Decimal("0.5")), ("a, b", -1)]).rstrip())
payer,gpuHours
org:ai,8
'-2+3:cmd,0.5
"a, b",-1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from tenure.cli.words import safe

Value = str | int | Decimal | None
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The last four are the same signs in full width, which some spreadsheets take for them."""


def text(header: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """A whole sheet. None is an empty cell."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue()


def cell(value: Value) -> str:
    """One cell: text that cannot steer a terminal or a spreadsheet, or a number without an exponent."""
    if value is None:
        return ""
    if isinstance(value, str):
        shown = safe(value)
        return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
    return format(value, "f") if isinstance(value, Decimal) else str(value)
