"""Command groups that know their verbs by name and import one only when it is called.

The short help stands in the table as well, so that ``--help`` imports nothing either; a test holds the two
together. The outermost group also catches everything that goes wrong (``trouble.py``) and turns it into two lines
and an exit code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from tenure.cli.exits import Exit

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETES = "_TENURE_COMPLETE"
"""Set by a shell that asks what could come next."""


class Verb(Struct, frozen=True):
    """Where a verb is, and what it does in one line."""

    module: str
    short: str


class LazyGroup(click.Group):
    """A group whose verbs are imported when they are called. Each module holds its command as ``command``."""

    def __init__(self, *args: Any, verbs: Mapping[str, Verb] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = dict(verbs or {})
        self.teach: Callable[[click.Command], None] | None = None
        """What completions do to a verb before they ask it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: by what people do first, not by the alphabet."""
        return [*self.verbs, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        command = import_module(verb.module).command
        assert isinstance(command, click.Command)
        if self.teach is not None:
            self.teach(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.list_commands(ctx):
            from tenure.api.tree import nearest

            like = nearest(name, tuple(self.list_commands(ctx)))
            known = f"did you mean {like}?" if like else f"there are {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"there is no command {name!r}: {known}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs by the table, so that none is imported; options by click."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        rows = [(name, verb.short) for name, verb in self.verbs.items()]
        rows += [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        return [CompletionItem(name, help=short) for name, short in rows if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, verb.short) for name, verb in self.verbs.items()]
        rows += [(name, command.get_short_help_str()) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Root(LazyGroup):
    """A whole program: the outermost group, where nothing gets past."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and leave with its exit code; without ``standalone_mode``, answer the code."""
        _open_streams()
        name = prog_name or self.name or ""
        words = list(sys.argv[1:] if args is None else args)
        if COMPLETES in os.environ:
            from tenure.cli.completing import answer

            code = answer(self, name, words)
        else:
            code = self._guarded(words, name, extra)
        if standalone_mode:
            sys.exit(code)
        return code

    def _guarded(self, args: list[str], prog_name: str, extra: dict[str, Any]) -> int:
        try:
            with self.make_context(prog_name, args, **extra) as context:
                result = self.invoke(context)
            sys.stdout.flush()
            return int(result) if isinstance(result, int) else Exit.OK
        except click.exceptions.Exit as done:
            return done.exit_code
        except BrokenPipeError:
            return _silenced()
        except click.exceptions.NoArgsIsHelpError as asked:
            print(asked.format_message())
            return Exit.OK
        except (KeyboardInterrupt, click.Abort):
            print("\nstopped", file=sys.stderr)
            return Exit.INTERRUPTED
        except Exception as error:
            return self._told(error, prog_name)

    @staticmethod
    def _told(error: Exception, prog_name: str) -> int:
        from tenure.cli.trouble import describe, tell

        context = getattr(error, "ctx", None)
        try:
            sys.stdout.flush()
            return tell(describe(error, command=context.command_path if context else prog_name))
        except BrokenPipeError:
            return _silenced()


def _open_streams() -> None:
    """A program that is started without its standard streams still has nothing to read, and somewhere to write."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 -- for the rest of this process


def _silenced() -> int:
    """Whoever read the output has gone: there is nobody to complain to, not even at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            continue  # not a real file: a test's, or closed
    return Exit.PIPE_CLOSED
