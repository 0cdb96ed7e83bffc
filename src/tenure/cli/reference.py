"""The reference page of the command line, written from the real command tree: what no command has is on no page.

``make generate`` puts it under ``docs/reference``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from tenure.cli.completing import PATIENCE
from tenure.cli.exits import MEANINGS
from tenure.cli.lazy import LazyGroup
from tenure.cli.main import runs, server
from tenure.cli.server.logged import LOG_FORMAT
from tenure.cli.session import ANCHOR_VARIABLE, LOCAL_VARIABLE, NAMESPACE_VARIABLE
from tenure.cli.terminal import HINTS
from tenure.cli.trouble import DEBUG

_INTRO = """<!-- Written by `make generate` from src/tenure/cli; edit the commands there. -->

# The command line

Two programs: `kubectl runs` for everyone who uses a fleet (installed as `kubectl-runs`, so that kubectl finds it; it
works without kubectl under that name), and `tenure` for who keeps one. The guide is [here](../guide/cli.md).

A table is for people and may change; `-o json` and `-o yaml` are for programs: API objects, or the records that each
command names. `-o name` prints what the next command takes. In a pipe a table is plain text, with blanks inside a cell
only in the last column. What to do next is said on a terminal only.
"""
_ENVIRONMENT = {
    LOCAL_VARIABLE: "The embedded fleet to use, as with `--local`.",
    NAMESPACE_VARIABLE: "The namespace, as with `-n`.",
    ANCHOR_VARIABLE: "Where the ledger's anchor is, as with `--anchor`.",
    HINTS: "`off`: no lines that say what to do next.",
    LOG_FORMAT: "`json`: `tenure up` and `tenure operator` write one JSON record a line.",
    PATIENCE: "How many seconds completion at a prompt may take; 2 if left out.",
    DEBUG: "`1`: a bug shows its traceback.",
    "NO_COLOR": "Set to anything: no colour.",
    "COLUMNS": "The width of the terminal, if it should be another.",
}
_SENTENCE = re.compile(r"\s*\n\s*")


def cli_page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that can be called, by its full name, in the order of the help."""
    for name, root in (("kubectl runs", runs), ("tenure", server)):
        yield from _below(name, root)


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            assert found is not None
            yield from _below(f"{name} {verb}", found)


def _lines() -> Iterator[str]:
    yield _INTRO
    yield "## Exit codes\n"
    yield from _table(("code", "meaning"), [(str(int(code)), text) for code, text in MEANINGS.items()])
    yield "## Environment\n"
    yield from _table(("variable", "meaning"), [(f"`{name}`", text) for name, text in _ENVIRONMENT.items()])
    for name, command in commands():
        yield from _command(name, command)


def _command(name: str, command: click.Command) -> Iterator[str]:
    root = name in ("kubectl runs", "tenure")
    yield f"{'##' if root else '###'} {name}\n"
    pieces = " ".join(command.collect_usage_pieces(click.Context(command, info_name=name)))
    yield f"```text\n{name} {pieces}\n```\n"
    yield from _paragraphs(inspect.cleandoc(command.help or ""))
    if isinstance(command, click.Group):
        yield from _table(("command", "what it does"), _verbs(name, command))
    options = [param for param in command.params if isinstance(param, click.Option)]
    if options:
        yield from _table(("option", "meaning"), [(_flags(one), _meaning(one)) for one in options])


def _verbs(name: str, group: click.Group) -> list[tuple[str, str]]:
    context = click.Context(group)
    shorts = {verb: one.short for verb, one in group.verbs.items()} if isinstance(group, LazyGroup) else {}
    rows = []
    for verb in group.list_commands(context):
        found = group.get_command(context, verb)
        assert found is not None
        anchor = f"{name}-{verb}".replace(" ", "-")
        rows.append((f"[`{verb}`](#{anchor})", shorts.get(verb) or found.get_short_help_str(limit=100)))
    return rows


def _paragraphs(text: str) -> Iterator[str]:
    """Help as Markdown: what click must not wrap (after its ``\\b``) is a code block."""
    for block in text.split("\n\n"):
        if block.startswith("\b"):
            yield f"```text\n{block.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        else:
            yield _escaped(_SENTENCE.sub(" ", block)) + "\n"


def _flags(option: click.Option) -> str:
    names = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} `{'|'.join(map(str, option.type.choices))}`"
    return f"{names} `{option.metavar or (option.type.name or '').upper()}`"


def _meaning(option: click.Option) -> str:
    text = _escaped(option.help or "")
    if option.envvar:
        text += f" From `{option.envvar}` if left out."
    if isinstance(option.default, str | int) and not option.is_flag and option.show_default:
        text += f" Default: `{option.default}`."
    return text + (" May be repeated." if option.multiple and "repeated" not in text else "")


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[")


def _in_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {heads[0]} | {heads[1]} |"
    yield "|---|---|"
    yield from (f"| {_in_cell(left)} | {_in_cell(right)} |" for left, right in rows)
    yield ""
