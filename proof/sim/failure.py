"""A failure in words: commit, seed, step, what does not hold, the events that are enough, and how to see it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from proof.again import at_root, command
from proof.commit import describe
from proof.sim.events import Plan
from proof.sim.play import AT_THE_END, BEFORE_ALL, Played, shrink

SHRINK_SECONDS = 60.0
"""How long a test tries to leave events out before it tells what it has."""


SAID_MAX = 5
"""Sentences about one failure."""


def where(played: Played) -> str:
    """At which of its events, or after which, while time passed."""
    step, many = played.step, len(played.plan.events)
    if step == AT_THE_END:
        return "at the end"
    if step == BEFORE_ALL:
        return f"before step 1 of {many}" if many else "with no event at all"
    return f"{'after ' if played.later else ''}step {step + 1} of {many}"


def _whose(played: Played) -> str:
    plan = played.plan
    return f"seed {plan.seed}  {plan.home}  {plan.mode}  {where(played)}"


def head(played: Played) -> str:
    """What does not hold, each once."""
    sentences = list(dict.fromkeys(played.found))
    said = [f"FAILED  commit {describe()}  {_whose(played)}"]
    said += ["  " + sentence.replace("\n", "\n  ") for sentence in sentences[:SAID_MAX]]
    more = len(sentences) - SAID_MAX
    return "\n".join([*said, *([f"  ... and {more} more"] if more > 0 else [])])


def brief(played: Played, *, wild: bool = False) -> str:
    """One line, and how to see it again."""
    return f"{_whose(played)}: {played.found[0].splitlines()[0]}\n  {seed_again(played.plan, wild=wild)}"


def enough(short: Played, whole: Played, *, why: str = "") -> str:
    """How short a list got; ``why`` it might get shorter still."""
    kept, of = len(short.plan.events), len(whole.plan.events)
    if why and kept == of:
        return f"not shrunk: {why} ({of} events)"
    return f"{kept} of {of} events are enough" + (f" ({why}: fewer may be)" if why else "")


def steps(short: Played, whole: Plan) -> list[int]:
    """Which events of a plan, counted from 1, are in a list that was shortened from it."""
    kept = {id(event) for event in short.plan.events}
    return [number for number, event in enumerate(whole.events, start=1) if id(event) in kept]


def events(plan: Plan, *, most: int | None = None, width: int | None = None) -> str:
    """One line for each event."""
    lines = []
    for event in plan.events[:most]:
        text = msgspec.json.encode(event).decode()
        lines.append("    " + (text if width is None or len(text) <= width else text[: width - 3] + "..."))
    left = len(plan.events) - len(lines)
    return "\n".join([*lines, *([f"    ... and {left} more"] if left else [])])


def seed_again(plan: Plan, *, only: list[int] | None = None, wild: bool = False) -> str:
    """The command that makes the world of a seed anew; ``only`` some of its events happen."""
    options = ["--home", plan.home, "--mode", plan.mode, "--hours", plan.hours, *(["--wild"] if wild else [])]
    some = ["--only", ",".join(map(str, only))] if only is not None else []
    return command("sim", "--replay", plan.seed, *options, *some)


def file_again(file: Path) -> str:
    return command("sim", "--events", at_root(file))


def write(plan: Plan, file: Path) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))


def told(played: Played, *, seconds: float = SHRINK_SECONDS, say: Callable[[str], None] = lambda _: None) -> str:
    """All of it, for a test that fails: without a file, since nobody might find it."""
    short = shrink(played, say=say, seconds=seconds)
    return "\n".join([
        head(played),
        f"  {enough(short, played, why='it does not end' if played.endless else '')}:",
        events(short.plan),
        f"  see it again:   {seed_again(played.plan, only=steps(short, played.plan))}",
        f"  the whole seed: {seed_again(played.plan)}",
    ])  # fmt: skip


def all_told(failed: list[Played]) -> str:
    """Of several failures the first in full, and of the others how to see them."""
    more = [f"and {brief(one)}" for one in failed[1:10]]
    return "\n".join(["", told(failed[0]), *more])
