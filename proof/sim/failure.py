"""A failure in words: commit, seed, step, what does not hold, the events that are enough, and how to see it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from proof.again import at_root, command
from proof.commit import describe
from proof.sim.events import Plan
from proof.sim.play import AT_THE_END, Played, shrink

SHRINK_SECONDS = 60.0
"""How long a test tries to leave events out before it tells what it has."""


def head(played: Played) -> str:
    plan, step = played.plan, played.step
    where = "at the end" if step == AT_THE_END else f"step {step + 1} of {len(plan.events)}"
    said = [f"FAILED  commit {describe()}  seed {plan.seed}  {plan.home}  {plan.mode}  {where}"]
    said += ["  " + sentence.replace("\n", "\n  ") for sentence in played.found[:5]]
    return "\n".join(said)


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
        f"  {len(short.plan.events)} of {len(played.plan.events)} events are enough:",
        events(short.plan),
        f"  see it again:   {seed_again(played.plan, only=steps(short, played.plan))}",
        f"  the whole seed: {seed_again(played.plan)}",
    ])  # fmt: skip


def all_told(failed: list[Played]) -> str:
    """Of several failures the first in full, and of the others how to see them."""
    more = [
        f"and seed {one.plan.seed}: {one.found[0].splitlines()[0]}\n  {seed_again(one.plan)}" for one in failed[1:10]
    ]
    return "\n".join(["", told(failed[0]), *more])
