"""`tenure explain-code`: what a code means, wherever it was met."""

from __future__ import annotations

from typing import Any

import click

from tenure.cli.exits import Exit
from tenure.cli.output import Cell, Format, Table, columns, fields, show
from tenure.cli.session import output
from tenure.cli.trouble import Trouble
from tenure.engine.reasons import RULES, Rule


@click.command("explain-code", short_help="Say what a reason's code means.")
@click.argument("code", required=False, metavar="[CODE]")
@output("table", "json", "yaml", "name")
def command(code: str | None, output: Format) -> Exit:
    """Say what a reason's code means, whether waiting helps, and what to do; without CODE, list them all.

    JSON: {"code", "sentence", "waitingHelps", "remedy", "precedence"}, or {"codes": [...]}. The sentence has
    {names} where its numbers go.
    """
    if code is None:
        _list(output)
        return Exit.OK
    rule = _find(code)
    show(
        output,
        tables=lambda: [fields(_facts(rule))],
        data=lambda: _record(rule),
        names=lambda: [rule.code],
        hint="kubectl runs explain RUN shows it with its numbers",
    )
    return Exit.OK


def _find(code: str) -> Rule:
    known = {name.lower(): rule for name, rule in RULES.items()}
    if code.lower() not in known:
        from tenure.api.tree import nearest

        like = nearest(code, tuple(RULES))
        step = f"did you mean {like}?" if like else "tenure explain-code lists them all"
        raise Trouble(f"there is no reason {code!r}", next_step=step, exit=Exit.NOT_FOUND)
    return known[code.lower()]


def _facts(rule: Rule) -> list[tuple[str, str]]:
    return [
        ("Code", rule.code),
        ("Says", rule.pattern),
        ("Waiting helps", "yes" if rule.waiting_helps else "no"),
        ("What to do", rule.remedy),
    ]


def _record(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code, "sentence": rule.pattern, "waitingHelps": rule.waiting_helps, "remedy": rule.remedy,
        "precedence": rule.precedence,
    }  # fmt: skip


def _list(output: Format) -> None:
    rows: list[list[Cell]] = [
        [rule.code, "yes" if rule.waiting_helps else "no", rule.pattern] for rule in RULES.values()
    ]
    show(
        output,
        tables=lambda: [Table(columns("CODE", "WAITING-HELPS", "SAYS"), rows)],
        data=lambda: {"codes": [_record(rule) for rule in RULES.values()]},
        names=lambda: RULES,
        hint="tenure explain-code NoCapacity",
    )
