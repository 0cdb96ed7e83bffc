"""Hostile edits: a manifest once more, over honest objects of its kinds and names that are there already.

What must hold is what holds for new objects (``judge``), and: after a no all that was there is as before; after a yes
nothing has changed in a Run that was admitted but what may. Runs have started in one half of the edits, and in the
other they still wait. The webhook is told of old objects that have any status, and some no spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proof.hostile.judge import (
    TOGETHER_MAX,
    Bench,
    Finding,
    Result,
    let_together,
    other_form,
    unlike,
    unlike_the_fleet,
    wrongly_taken,
)
from proof.hostile.parts import Tree, Variant, at, budget, put, run
from proof.hostile.surfaces import ALWAYS, Driven, Sent, Told, edit
from tenure.api.decode import read_tree
from tenure.api.meta import to_wire

EVERY = 5
"""One manifest of so many is tried as an edit, too."""
EDITED_MAX = 6
"""Objects of one text that are there before it: they are alike. See ``Variant.together``."""
ADMITTED = {"phase": "Running", "conditions": [{"type": "Admitted", "status": "True"}]}
OLD: tuple[dict[str, Any], ...] = (
    {}, {"status": {"conditions": 7}}, {"status": "x"}, {"status": None}, {"status": [ADMITTED]}, {"spec": 7},
    {"status": {"conditions": [7, None, {"type": ["Admitted"], "status": {}}]}}, {"spec": {"owner": {}}, "status": 1},
    {"status": {"conditions": {"type": "Admitted"}, "phase": []}}, {"spec": None},
)  # fmt: skip
"""What may stand in an old object that somebody stored without us."""
_MAY_CHANGE = (("malleable", "desiredTotalGPUs"), ("funding", "sponsors"), ("funding", "maxBorrowGPUs"))
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")


class Pair(Struct, frozen=True):
    """A review of a manifest's, and the honest object that it is an edit of."""

    sent: Sent
    honest: Tree

    @property
    def key(self) -> tuple[str, str]:
        return self.honest["kind"], self.honest["metadata"]["name"]


def judge(bench: Bench, name: str, variant: Variant, result: Result) -> list[tuple[str, Told]]:
    """One manifest as an edit on all three; what each answered."""
    pairs = _pairs(bench, name, variant)
    number = int(name.partition(":")[2])
    admitted = number // EVERY % 2 == 0
    trees = list({pair.key: pair.honest for pair in pairs}.values())
    fleets = (("command line", bench.behind), ("fleet", bench.fleet), ("webhook", bench.hook.operator))
    faults = [(where, fleet.stand(trees, admitted=admitted)) for where, fleet in fleets]

    cli, cli_fault = _asked(bench, name, "command line", bench.behind, partial(bench.desk.ask, variant.text), result)
    ask = partial(bench.fleet.ask, variant.text, decide=admitted)
    fleet, fault = _asked(bench, name, "fleet", bench.fleet, ask, result)
    hooked = _hooked(bench, name, variant, pairs, result, number)
    cli = replace(cli, taken={} if cli.why else bench.behind.forms(fleet.taken))
    faults += [("command line", cli_fault), ("fleet", fault), *(("webhook", told.fault) for told in hooked)]
    faults += [("command line", unlike(cli, fleet)), ("fleet", wrongly_taken(variant, fleet))]
    faults += [("webhook", other_form(told, fleet)) for told in hooked]
    faults += [("webhook", let_together(hooked))] if variant.together else []
    faults += [("command line", bench.desk.show(f"rai/{key.removeprefix('Run/')}"))
               for key in cli.taken if key.startswith("Run/")]  # fmt: skip
    result.findings += [Finding(name, where, f"as an edit: {what}") for where, what in faults if what]
    for where, why in (("cli", cli.why), ("fleet", fleet.why), ("hook", any(told.why for told in hooked))):
        (result.edits_refused if why else result.edits_taken)[where] += 1
    for _, one in fleets:
        one.stand((), admitted=True)
    told = [("command line", cli), ("fleet", fleet), *(("webhook", told) for told in hooked)]
    return [(f"{where}, as an edit", each) for where, each in told]


def _pairs(bench: Bench, name: str, variant: Variant) -> list[Pair]:
    """For each object that is sent an honest one of its kind and name; of a name of ours where it has none."""
    reviews = bench.hook.reviews(variant.text, most=TOGETHER_MAX if variant.together else EDITED_MAX)
    return [Pair(sent, _honest(sent.tree or {}, name.replace(":", "-"), together=variant.together)) for sent in reviews]


def _honest(tree: Tree, otherwise: str, *, together: bool) -> Tree:
    meta = tree["metadata"] if isinstance(tree.get("metadata"), dict) else {}
    given = meta.get("name")
    usable = isinstance(given, str) and _NAME.fullmatch(given) and given not in ALWAYS
    name = given if usable and not read_tree(run(given)).errors else otherwise
    if tree.get("kind") != "Budget":
        return run(name)
    # Of those that are wrong together, owners are what they will be: nothing is left to edit but parents.
    return (
        put(put(budget(name), "spec.owner", at(tree, "spec.owner")), "spec.parents", []) if together else budget(name)
    )


def _asked(
    bench: Bench, name: str, where: str, fleet: Driven, work: Callable[[], Told], result: Result
) -> tuple[Told, str]:
    """What a surface answers, and what is wrong with that or with what is there afterwards."""
    before, image = _started(fleet), fleet.image()
    told: Told = bench.watched(name, where, work, result) or Told(fault="no answer")
    after = fleet.image()
    if told.fault:
        return told, told.fault
    if told.why:
        return told, "" if after == image else "refused, and what was there is not as before"
    return told, _changed(before, _started(fleet))


def _started(fleet: Driven) -> dict[str, tuple[str, Any]]:
    """Of each Run that was admitted: who it is, and all in it that may not change any more."""
    return {
        key: (row.run.metadata.uid, _frozen(to_wire(row.run.spec)))
        for key, row in fleet.state.runs.items() if row.life.admitted and row.pods
    }  # fmt: skip


def _frozen(spec: Tree) -> Tree:
    spec = json.loads(json.dumps(spec))
    for part, key in _MAY_CHANGE:
        (spec.get(part) or {}).pop(key, None)
    return spec


def _changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    wrong = [key for key, was in before.items() if after.get(key) != was]
    return f"Run {wrong[0]} had started, and is not what it was" if wrong else ""


def _hooked(bench: Bench, name: str, variant: Variant, pairs: list[Pair], result: Result, number: int) -> list[Told]:
    """One object after the other, each over what is stored of it by then."""
    operator = bench.hook.operator
    stored = {pair.key: pair.honest for pair in pairs}
    answers: list[Told] = []
    for turn, pair in enumerate(pairs, number // EVERY):
        row = operator.state.runs.get(f"rai/{pair.key[1]}") if pair.key[0] == "Run" else None
        said = {"status": ADMITTED} if row is not None and row.life.admitted else {}
        old = {**stored[pair.key], **said}
        sent = edit(pair.sent.tree, variant.text, old)
        odd = edit(pair.sent.tree, variant.text, {**old, **OLD[turn % len(OLD)]})
        told, fault = _answered(bench, name, sent, odd, result, same=_same(sent.tree, old))
        if not fault and told.objects:
            started = _started(operator)
            fault = operator.take(told.objects, decide=number // EVERY % 2 == 0) or _changed(
                started, _started(operator)
            )
            stored[pair.key] = sent.tree or {}
        answers.append(replace(told, fault=told.fault or fault))
    return answers


def _answered(bench: Bench, name: str, sent: Sent, odd: Sent, result: Result, *, same: bool) -> tuple[Told, str]:
    """What a webhook says to an edit, over the old object as it is and over an odd one, and one that knows nothing."""
    hook, seq = bench.hook, bench.hook.operator.home.seq
    judged = hook.operator.ask_tree(sent.tree) if sent.ours else None
    asks = (partial(hook.ask, sent), partial(hook.ask, odd), partial(hook.ask_new, sent), partial(hook.ask_new, odd))
    answers = [bench.watched(name, "webhook", ask, result) or Told(fault="no answer") for ask in asks]
    result.updates += len(asks)
    told, over_odd, *new = answers
    alone = any(one.why and not other.why for one, other in zip(new, (told, over_odd), strict=True))
    if fault := next((one.fault for one in answers if one.fault), ""):
        return told, fault
    if hook.operator.home.seq != seq:
        return told, "asked about, and written to the ledger"
    if alone:
        return told, "refused by a webhook that knows nothing, and by no other"
    if same:
        return told, f"nothing is new in its spec, and it is refused: {told.why[0]}" if told.why else ""
    if bool(told.why) != bool(over_odd.why):
        return told, "an old object of no shape changes the answer"
    return told, unlike_the_fleet(told, judged)


def _same(tree: Tree | None, old: Tree) -> bool:
    """Whether an edit leaves the spec as it is, to the letter: then nothing else in it is for the webhook to judge."""
    if tree is None or tree.get("kind") != old["kind"]:
        return False
    return json.dumps(tree.get("spec"), sort_keys=True) == json.dumps(old["spec"], sort_keys=True)
