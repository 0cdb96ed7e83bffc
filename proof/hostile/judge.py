"""What must hold for every manifest, whatever is in it.

refused     in words that can be printed, with what would be right; nothing written; no traceback
taken       only if it was not meant to be refused, and then the same normal form on every surface
alike       the command line says what the fleet says; the webhook judges an object as the fleet judges that object,
            and the operator takes in what it let pass; of objects that are wrong together, the last is refused
bounded     interpreter steps of one answer, in whole: no clock is asked
afterwards  the fleet still takes an honest run and starts it
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from proof.hostile.parts import Variant
from proof.hostile.surfaces import SENT_OBJECTS_MAX, CommandLine, Driven, Hook, Told
from tests.cli.support import create

STEPS_MAX = 4_000_000
"""Calls and returns of one answer, everything included."""
TOGETHER_MAX = 1000
"""Objects that are sent to the webhook where it is all of them that count."""
_OURS = ("metadata", "apiVersion", "kind", "status")
"""What the API server judges before a webhook is asked, or takes from elsewhere."""
_PROGRAM = "import sys; from tenure.cli.main import kubectl_runs; sys.exit(kubectl_runs())"


class Finding(Struct, frozen=True):
    """Something that must not be."""

    id: str
    """A variant's, or its class's where it took all of them."""
    where: str
    what: str


class Result(Struct):
    """Of one class."""

    count: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    reviews: int = 0
    """Calls about one object each that were made to the webhook."""
    raw: int = 0
    """Texts of which no object can be made: each went into a review byte for byte."""
    passed: int = 0
    """Manifests that the fleet refused and the webhook let pass: not for their objects, see ``unlike_the_fleet``."""
    edits_refused: Counter[str] = field(default_factory=Counter)
    edits_taken: Counter[str] = field(default_factory=Counter)
    updates: int = 0
    """Calls to the webhook about an object that was there before."""
    steps: int = 0
    findings: list[Finding] = field(default_factory=list)


class Bench:
    """The three surfaces side by side, all beginning with the same fleet."""

    def __init__(self, folder: Path) -> None:
        self.cli, self.fleet = CommandLine(_fleet(folder / "cli")), Driven(_fleet(folder / "fleet"))
        self.hook = Hook(_fleet(folder / "hook"))
        self.desk = CommandLine(_fleet(folder / "desk"))
        """Where the command line edits, and ``behind`` it is who made its honest runs start."""
        self.behind = Driven(self.desk.fleet)
        self._shown: list[tuple[str, str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fleet.close()
        self.hook.operator.close()
        self.behind.close()

    def judge(self, name: str, variant: Variant, result: Result) -> list[tuple[str, Told]]:
        """One manifest on all three; what each answered."""
        result.count += 1
        hooked = self._hooked(name, variant, result)
        cli = self.watched(name, "command line", lambda: self.cli.ask(variant.text), result) or Told(fault="no answer")
        fleet = self.watched(name, "fleet", lambda: self.fleet.ask(variant.text), result) or Told(fault="no answer")
        for where, why in (("cli", cli.why), ("fleet", fleet.why), ("hook", any(told.why for told in hooked))):
            (result.refused if why else result.taken)[where] += 1
        result.passed += bool(fleet.why) and not any(told.why for told in hooked)
        faults = [("command line", cli.fault), ("fleet", fleet.fault), *(("webhook", told.fault) for told in hooked)]
        faults += [("command line", unlike(cli, fleet)), ("fleet", wrongly_taken(variant, fleet))]
        faults += [("webhook", other_form(told, fleet)) for told in hooked]
        faults += [("webhook", let_together(hooked))] if variant.together else []
        result.findings += [Finding(name, where, what) for where, what in faults if what]
        self.fleet.forget(fleet)
        self._shown += [(name, key.removeprefix("Run/")) for key in cli.taken if key.startswith("Run/")]
        return [("command line", cli), ("fleet", fleet), *(("webhook", told) for told in hooked)]

    def _hooked(self, name: str, variant: Variant, result: Result) -> list[Told]:
        """One object after the other; what was let pass is there when the next is asked about."""
        reviews = self.hook.reviews(variant.text, most=TOGETHER_MAX if variant.together else SENT_OBJECTS_MAX)
        result.reviews += len(reviews)
        result.raw += reviews[0].tree is None
        answers: list[Told] = []
        for sent in reviews:
            judged = self.hook.operator.ask_tree(sent.tree) if sent.ours else None
            told = self.watched(name, "webhook", partial(self.hook.ask, sent), result) or Told(fault="no answer")
            fault = unlike_the_fleet(told, judged) or (self.hook.operator.take(told.objects) if told.objects else "")
            answers.append(replace(told, fault=told.fault or fault))
        self.hook.operator.forget(*answers)
        return answers

    def close_class(self, name: str, result: Result) -> None:
        """What was taken can be shown, and the fleet goes on."""
        shown = [(each, self.cli.show(f"rai/{key}")) for each, key in self._shown[:20]]
        self._shown = []
        result.findings += [Finding(each, "command line", fault) for each, fault in shown if fault]
        for where, fleet in (("command line", self.behind), ("fleet", self.fleet), ("webhook", self.hook.operator)):
            if fault := fleet.audit():
                result.findings.append(Finding(name, where, fault))
        if fault := self.fleet.serve():
            result.findings.append(Finding(name, "fleet", fault))

    def in_a_process(self, name: str, variant: Variant, result: Result) -> None:
        """The same as a person sees it: a process of its own, its exit code and its words."""
        env = {**os.environ, "TENURE_LOCAL": str(self.cli.fleet)}
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, "submit", "-f", "-", "-n", "rai", "--dry-run=server"],
            input=variant.text, capture_output=True, env=env, check=False,
        )  # fmt: skip
        words = done.stderr.decode("utf-8", "replace")
        if done.returncode not in ((2,) if variant.bad else (0, 2)) or "Traceback" in words:
            result.findings.append(Finding(name, "process", f"exit code {done.returncode}: {words[-300:]}"))

    def watched(self, name: str, where: str, work: Callable[[], Any], result: Result) -> Any:
        """Do it, count its steps, and take whatever is raised for a fault."""
        answer = None
        try:
            answer, count = counted(work)
        except Exception as error:
            what = f"a traceback: {type(error).__name__}: {str(error)[:200]}"
            result.findings.append(Finding(name, where, what))
            return None
        result.steps = max(result.steps, count)
        if count > STEPS_MAX:
            result.findings.append(Finding(name, where, f"{count} steps"))
        return answer


def _fleet(folder: Path) -> Path:
    folder.mkdir()
    return create(folder)


def counted(work: Callable[[], Any]) -> tuple[Any, int]:
    """The answer, and how often functions were called and left on the way to it."""
    count = 0

    def one_more(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(one_more)
    try:
        return work(), count
    finally:
        sys.setprofile(None)


def unlike(cli: Told, fleet: Told) -> str:
    if bool(cli.why) != bool(fleet.why):
        return f"the command line says {cli.why[:1] or 'yes'}, the fleet {fleet.why[:1] or 'yes'}"
    if cli.why and cli.why[: len(fleet.why)] != fleet.why:
        return f"other words than the fleet's: {cli.why[:1]}, {fleet.why[:1]}"
    return "" if cli.taken == fleet.taken else "another normal form than the fleet's"


def wrongly_taken(variant: Variant, fleet: Told) -> str:
    return "taken in, though it is wrong" if variant.bad and not fleet.why else ""


def unlike_the_fleet(hook: Told, judged: Told | None) -> str:
    """The webhook's answer to one object beside the fleet's to the same object."""
    if judged is None:
        return "" if hook.why else "taken in, though it is no Run and no Budget"
    theirs = [path for path in judged.paths if not path.startswith(_OURS)]
    if hook.why and not judged.why:
        return f"refused by the webhook alone: {hook.why[0]}"
    return f"let pass; the fleet says: {judged.why[0]}" if theirs and not hook.why else ""


def other_form(hook: Told, fleet: Told) -> str:
    both = hook.taken.keys() & fleet.taken.keys()
    return "another normal form than the fleet's" if any(hook.taken[key] != fleet.taken[key] for key in both) else ""


def let_together(hooked: list[Told]) -> str:
    """Nobody but this function knows that the last object is the wrong one: not the code that is judged."""
    *earlier, last = hooked
    if any(told.why for told in earlier):
        return "refused before anything was wrong"
    return "" if last.why else f"let pass: the last of {len(hooked)} objects, wrong with those before it"
