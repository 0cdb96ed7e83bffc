"""Completions: what could stand where the cursor is. Shells ask the program itself: what they offer is what there is.

A shell's script (``shells.py``) calls the program with ``_TENURE_COMPLETE`` in the environment; kubectl calls
``kubectl_complete-runs``. Commands, options and choices come from the command tree, by click. Names come from the fleet
that the line chooses, by what a parameter is called in help: a RUN is completed with runs, an OWNER with owners.
Somebody waits at a prompt: it is quick, reads only, asks a cluster for little, and is silent when something is wrong.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete

from tenure.cli.lazy import COMPLETES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tenure.cli.lazy import Root
    from tenure.cli.session import Session

SECONDS = 2.0
"""How long somebody at a prompt is kept waiting, at most."""
PATIENCE = "TENURE_COMPLETION_SECONDS"
_FILES = ("FILE", "FLEET.YAML", "NOTIFY.YAML", "LEDGER", "CSV", "HTML", "RECORD", "FLEET")
_FOLDERS = ("FOLDER", "DIR")
_NAMED = {"namespace": "NAMESPACE", "context": "CONTEXT", "envelope": "ENVELOPE", "budget": "BUDGET", "node": "NODE"}
"""Options whose value is only called NAME, by the option."""


class Named(click.types.StringParamType):
    """A text that is the name of something."""

    def __init__(self, what: str) -> None:
        self.what = what

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return list(_named(self.what, ctx, incomplete))


def teach(command: click.Command) -> None:
    """Have the parameters of a command, and of those below it, know what they name."""
    for param in command.params:
        if (what := named_by(param)) is not None:
            param.type = Named(what)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            teach(below)


def named_by(param: click.Parameter) -> str | None:
    """What a parameter is the name of: RUN, OWNER, NODE, ...; FILE and FOLDER too. None: of nothing that is known."""
    if isinstance(param.type, click.Choice | click.Path | click.types.IntParamType):
        return None
    words = re.findall(r"[A-Z]+(?:\.[A-Z]+)*", param.metavar or "")
    if words == ["NAME"]:
        words = [_NAMED.get(param.name or "", "")]
    if any(word in _FILES for word in words):
        return "FILE"
    if any(word in _FOLDERS for word in words):
        return "FOLDER"
    return next(("|".join(words) for word in words if word in _SOURCES), None)


# --- asking the program ---------------------------------------------------------------------------------------------


def answer(program: Root, name: str, words: Sequence[str]) -> int:
    """What the shell that ``_TENURE_COMPLETE`` names is told. ``words``: what was called with, the current one last."""
    shell = os.environ[COMPLETES]
    if shell == "bash":
        words = _bash_words()
    *before, current = words or [""]
    rows = candidates(program, name, before, current)
    print("\n".join(_told(shell, rows, current)))
    return 0


def kubectl(program: Root, name: str, words: Sequence[str]) -> int:
    """What kubectl is told, in the form that it expects: candidates, each with its description, and a number."""
    *before, current = words or [""]
    rows = candidates(program, name, before, current)
    kind = _kind(rows)
    for item in [] if kind else rows:
        print(f"{_start(current)}{item.value}\t{item.help}" if item.help else f"{_start(current)}{item.value}")
    print({"": ":4", "file": ":0", "dir": ":16"}[kind])
    return 0


def candidates(program: Root, name: str, before: Sequence[str], current: str) -> list[CompletionItem]:
    """What could stand in the place of the current word; nothing if something is wrong."""
    found: list[CompletionItem] = []
    with _silence():
        teach(program)
        program.teach = teach
        found = ShellComplete(program, {}, name, COMPLETES).get_completions(list(before), current)
    return sorted(found, key=lambda item: item.value.startswith("-"))


def _told(shell: str, rows: list[CompletionItem], current: str) -> Iterator[str]:
    """First what kind of thing it is (nothing, ``file`` or ``dir``), then a candidate a line."""
    kind = _kind(rows)
    yield kind
    for item in [] if kind else rows:
        if shell == "bash":
            yield item.value[_cut(current) :] if item.value.startswith(current) else item.value
        else:
            shown = f"{_start(current)}{item.value}"
            yield f"{shown}\t{' '.join((item.help or '').split())}"


def _kind(rows: list[CompletionItem]) -> str:
    return next((item.type for item in rows if item.type in ("file", "dir")), "")


def _start(current: str) -> str:
    """Of ``--output=js`` click completes what follows the sign; all shells but bash replace the whole word."""
    option, sign, _ = current.partition("=")
    return f"{option}{sign}" if sign and option.startswith("-") else ""


def _bash_words() -> list[str]:
    """The words before the cursor. Bash splits at colons and signs too; an owner is full of colons, so the line is read
    here, as a shell would read it."""
    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT") or 1 << 16)]
    words, word, quote, started = list[str](), "", "", False
    for char in line:
        if quote:
            quote, word = ("", word) if char == quote else (quote, word + char)
        elif char in "'\"":
            quote, started = char, True
        elif char.isspace():
            if word or started:
                words.append(word)
            word, started = "", False
        else:
            word += char
    return [*words[1:], word]


def _cut(current: str) -> int:
    """Where bash's own word begins within ours: after the last character at which it splits."""
    breaks = os.environ.get("COMP_WORDBREAKS", "") or " :="
    return max((current.rfind(char) + 1 for char in breaks if char in ":=@"), default=0)


@contextmanager
def _silence() -> Iterator[None]:
    """No word on standard error, and no waiting for ever."""
    import signal

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get(PATIENCE) or SECONDS))
    try:
        with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
            yield
    except Exception:
        return  # there is nobody to tell: a prompt is no place for errors
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- names ----------------------------------------------------------------------------------------------------------

Row = tuple[str, str]
"""A name, and what to say beside it."""


def _named(what: str, ctx: click.Context, incomplete: str) -> Iterator[CompletionItem]:
    if what in ("FILE", "FOLDER"):
        yield CompletionItem(incomplete, type="file" if what == "FILE" else "dir")
        return
    session = _session(ctx)
    taken = {one for value in ctx.params.values() if isinstance(value, tuple) for one in value}
    for word in what.split("|"):
        for name, said in _SOURCES[word](session, incomplete) if word in _SOURCES else ():
            if name.startswith(incomplete) and name not in taken:
                yield CompletionItem(name, help=said)


def _session(ctx: click.Context) -> Session:
    """The choices that were typed so far, as the verb would take them."""
    from tenure.cli.session import Session

    given: dict[str, Any] = {}
    at: click.Context | None = ctx
    while at is not None:
        for name in ("local", "anchor", "kubeconfig", "context", "namespace"):
            if given.get(name) is None and at.params.get(name) is not None:
                given[name] = at.params[name]
        typed = {name for name in ("kubeconfig", "context") if at.params.get(name) is not None}
        at = at.parent
        if typed:
            given["local"] = None
    return Session(**given)


def _runs(session: Session, incomplete: str) -> Iterable[Row]:
    """Runs of the namespace by name; with a slash, or where that has none, those of all by namespace and name."""
    asked, slash, _ = incomplete.partition("/")
    place = session.place
    rows = _asked(session).runs(asked if slash else place)
    if slash:
        return [(f"{space}/{name}", phase) for space, name, phase in rows]
    here = [(name, phase) for _, name, phase in rows]
    return here or [(f"{space}/{name}", phase) for space, name, phase in _asked(session).runs(None)]


def _asked(session: Session) -> Any:
    """Where names are found: the state of an embedded fleet, or a cluster's objects."""
    if session.local is not None:
        from tenure.cli.naming import LocalNames

        return LocalNames(session)
    from tenure.cli.naming import ClusterNames

    return ClusterNames(session)


_SOURCES: dict[str, Callable[[Any, str], Iterable[Row]]] = {
    "RUN": _runs,
    "OWNER": lambda session, _: _asked(session).owners(),
    "BUDGET": lambda session, _: _asked(session).budgets(),
    "ENVELOPE": lambda session, _: _asked(session).envelopes(),
    "NODE": lambda session, _: _asked(session).nodes(),
    "NAMESPACE": lambda session, _: _asked(session).namespaces(),
    "CONTEXT": lambda session, _: _contexts(session),
    "CODE": lambda session, _: _codes(),
}


def _contexts(session: Session) -> Iterable[Row]:
    from tenure.cli.naming import contexts

    return contexts(session)


def _codes() -> Iterable[Row]:
    from tenure.engine.reasons import RULES

    return [(code, "") for code in sorted(RULES)]
