"""What is asked of a fleet: batches of runs in mixed sizes, some of which can start and some cannot.

The same requests are made of every fleet, so a larger one gets no easier and no harder questions; every fleet must
give the same answers, and that is checked. Sizes are those of real traces: mostly 1, 2, 4 and 8 GPUs, now and then 16,
32 or 64, with and without groups, pods of 8, spares, declared durations and borrowed money. One third cannot start:

    money      more than the envelopes allow, or than their hours, or than the loan
    machines   more than a domain, a group or a node could ever hold
    holes      free GPUs enough, but not in one piece

A batch is what a driver commits together under load. What it starts fits even the smallest fleet's holes.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any, Literal

from msgspec import Struct

from bench.fleet import FAMILIES, make_run
from tenure.api.run import Funding, Run

Answer = Literal["start", "wait", "never"]
ANSWERS: tuple[Answer, ...] = ("start", "wait", "never")


class Ask(Struct, frozen=True):
    """One request, and the answer that is expected."""

    run: Run
    answer: Answer


class Kind(Struct, frozen=True):
    """A sort of request: who asks (``""``: each family member in turn) and for what."""

    gpus: int
    answer: Answer = "start"
    owner: str = ""
    options: dict[str, Any] = {}


_LOAN = Funding(allow_borrow=True, sponsors=("org:f0",))
_SMALL_LOAN = Funding(allow_borrow=True, max_borrow_gpus=8, sponsors=("org:f0",))

TINY = (
    *(Kind(1) for _ in range(4)), Kind(1, options={"duration": "2h"}),
    *(Kind(2) for _ in range(2)), Kind(2, options={"duration": "30m"}),
    Kind(4), Kind(4, options={"duration": "8h"}),
)  # fmt: skip
MIXES: tuple[tuple[Kind, ...], ...] = (
    (
        *TINY, Kind(8, options={"pod": 8}), Kind(8, options={"pod": 8, "duration": "12h"}), Kind(8, owner=":junior"),
        Kind(16, options={"group": 8, "pod": 8}), Kind(16, options={"group": 8, "spares": 1}),
    ),
    (*TINY, Kind(32, options={"group": 16, "spares": 2, "duration": "24h"}), Kind(16, options={"pod": 8})),
    (*TINY, Kind(64, options={"group": 32, "pod": 8, "duration": "48h"})),
    (
        *TINY, Kind(40, owner="org:poor", options={"funding": _LOAN}), Kind(8, owner=":junior"),
        Kind(8, options={"group": 8, "pod": 8, "spares": 1}),
    ),
)  # fmt: skip
"""What can start, one row a batch."""

HOPELESS: tuple[Kind, ...] = (
    Kind(64, "never", owner="org:poor"),
    Kind(48, "never", owner="org:poor", options={"funding": _SMALL_LOAN}),
    Kind(8, "never", owner="org:spent", options={"duration": "10h"}),
    Kind(256, "never", options={"spread": False}),
    Kind(512, "never", options={"group": 256}),
    Kind(64, "never", options={"pod": 16}),
    Kind(8, "never", options={"flavor": "unheard-of"}),
    Kind(96, "wait", options={"spread": False}),
    Kind(80, "wait", options={"group": 80}),
    Kind(64, "wait", options={"group": 64, "pod": 8, "spares": 1}),
)
"""What cannot, now or ever; in every batch."""


def batch(number: int, *, answers: Collection[Answer] = ANSWERS) -> list[Ask]:
    """The batch of this number (or those in it with such answers): always the same, in a shuffled order."""
    kinds = [*MIXES[number % len(MIXES)], *HOPELESS]
    Random(number).shuffle(kinds)
    asks = [_ask(kind, f"b{number % 100_000:05d}-{index:02d}", number + index) for index, kind in enumerate(kinds)]
    return [ask for ask in asks if ask.answer in answers]


def _ask(kind: Kind, name: str, turn: int) -> Ask:
    owner, namespace = _who(kind.owner, turn)
    return Ask(make_run(name, owner=owner, namespace=namespace, gpus=kind.gpus, **kind.options), kind.answer)


def _who(owner: str, turn: int) -> tuple[str, str]:
    if owner.startswith("org:"):
        return owner, "lone"
    family = turn % FAMILIES
    member = owner or ("", ":a", ":b", ":c")[turn // FAMILIES % 4]
    return f"org:f{family}{member}", f"f{family}"
