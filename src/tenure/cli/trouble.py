"""What goes wrong, for people: one line that says what, one that says what to do next, and an exit code.

``Trouble`` is raised by verbs where they cannot go on. Everything else that may surface at the top of a command (a
ledger's refusal, a file that is not there, a pipe that was closed, Ctrl-C, a bug) becomes the same two lines in
``describe``. Nobody sees a traceback unless they ask with TENURE_DEBUG=1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tenure.cli.exits import Exit
from tenure.cli.terminal import paint
from tenure.cli.words import safe

if TYPE_CHECKING:
    from tenure.api.errors import FieldError
    from tenure.ledger import LedgerRefused

DEBUG = "TENURE_DEBUG"


class Trouble(Exception):
    """A command cannot go on."""

    def __init__(self, *problems: str, next_step: str, exit: Exit = Exit.INVALID) -> None:  # noqa: A002 -- what it is
        super().__init__(*problems)
        self.problems = problems
        self.next_step = next_step
        self.exit = exit


def invalid(errors: Iterable[FieldError], *, next_step: str) -> Trouble:
    """Input was not valid: every error of it, one a line."""
    return Trouble(*(error.sentence() for error in errors), next_step=next_step)


def tell(trouble: Trouble) -> Exit:
    """Print the trouble and answer the exit code."""
    for problem in trouble.problems:
        _line("error", problem, "bad")
    if trouble.next_step:
        _line("next", trouble.next_step, "good")
    return trouble.exit


def _line(label: str, text: str, style: str) -> None:
    print(f"{paint(label + ':', style, stream=sys.stderr)} {safe(text)}", file=sys.stderr)


def describe(error: BaseException, *, command: str) -> Trouble:
    """What an exception means to a person; ``command`` is what was called."""
    if isinstance(error, Trouble):
        return error
    if (usage := _usage(error)) is not None:
        return Trouble(usage, next_step=f"{command} --help")
    if (refused := _refused(error)) is not None:
        return refused
    if isinstance(error, OSError) and error.filename is not None:
        problem = f"{error.filename}: {(error.strerror or 'cannot be used').lower()}"
        return Trouble(problem, next_step="check the path, and that you may use it", exit=Exit.INVALID)
    _show_where(error)
    if isinstance(error, OSError) and error.strerror:
        step = f"see to it, and try again; {DEBUG}=1 shows where it happened"
        return Trouble(f"this machine is in trouble: {error.strerror.lower()}", next_step=step, exit=Exit.UNEXPECTED)
    return _bug(error)


def _usage(error: BaseException) -> str | None:
    import click

    return error.format_message().rstrip(".") if isinstance(error, click.ClickException) else None


def _refused(error: BaseException) -> Trouble | None:
    """A ledger that said no, or a fleet that somebody else drives."""
    modules = sys.modules  # an exception's module was imported, or it could not have been raised
    ledger: Any = modules.get("tenure.ledger.refusals")
    if ledger is not None and isinstance(error, ledger.LedgerRefused):
        return _from_ledger(error)
    driver: Any = modules.get("tenure.embedded.driver")
    if driver is not None and isinstance(error, driver.DriverBusy):
        step = f"leave it to process {error.pid or '?'}, or stop that one first: two drivers are one too many"
        return Trouble(str(error), next_step=step, exit=Exit.REFUSED)
    return None


def _from_ledger(refused: LedgerRefused) -> Trouble:
    if refused.code == "NotFound":
        step = "check the path; `tenure init FILE --fleet fleet.yaml` creates a fleet"
        return Trouble(refused.sentence, next_step=step, exit=Exit.NOT_FOUND)
    if refused.code == "OlderSchema":
        step = "`tenure up FILE`, or any command that writes, upgrades it in one transaction"
        return Trouble(f"{refused.code}: {refused.sentence}", next_step=step, exit=Exit.REFUSED)
    problem = refused.sentence + (" Whether it was stored is not known." if refused.unknown else "")
    return Trouble(f"{refused.code}: {problem}", next_step=refused.next_step, exit=Exit.REFUSED)


def _show_where(error: BaseException) -> None:
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)


def _bug(error: BaseException) -> Trouble:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    step = f"this is a bug: run it again with {DEBUG}=1 and report what it prints"
    return Trouble(f"unexpected {text}", next_step=step, exit=Exit.UNEXPECTED)
