"""The examples in help are commands that exist, with options that they have."""

import inspect
import shlex
from collections.abc import Iterator

import click
import pytest

from tenure.cli.main import runs, server
from tenure.cli.reference import commands


def examples() -> Iterator[tuple[str, str]]:
    """What stands after click's ``\\b`` in a help text: (command, line)."""
    for name, command in commands():
        for block in inspect.cleandoc(command.help or "").split("\n\n"):
            if block.startswith("\b"):
                yield from ((name, line.strip()) for line in block.splitlines()[1:] if line.strip())


EXAMPLES = sorted(set(examples()))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 30


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_is_a_command(name: str, line: str) -> None:
    if line.startswith("source <("):
        line = line.removeprefix("source <(").removesuffix(")")
    words = shlex.split(line, comments=True)
    for mark in ("|", ">", "&&"):
        words = words[: words.index(mark)] if mark in words else words
    root: click.Group = server
    if words[:2] == ["kubectl", "runs"] or words[:1] == ["kubectl-runs"]:
        root, words = runs, words[2 if words[0] == "kubectl" else 1 :]
    else:
        assert words.pop(0) == "tenure", line
    command: click.Command = root
    context = click.Context(root, info_name=name)
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    command.make_context(line, words, parent=context)  # raises UsageError
