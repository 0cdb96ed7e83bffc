"""A clean ledger in which about everything happens that may happen: the stock that mutants are bred from.

00:00  a fleet of domains A and B, five budgets, a namespace
00:00  train   two groups of 8 with 4 spares each, declared 6h, owned
00:10  loan    8 GPUs in one pod with two payers: a sibling's money and a sponsor's
00:20  elastic grows from 4 to 8, owned by the sibling
01:00  the sponsor's window is edited; a notice goes out
01:30  loan completes
02:00  the node under elastic is fenced; elastic starts again elsewhere
03:00  train is cancelled, its pods leave, it is deleted
"""

from __future__ import annotations

from tenure.api.budget import Budget
from tenure.api.core import Namespace
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.run import Funding, Run
from tenure.facts import Entry, Noted, PutBudget, PutNamespace, PutNode, Removed, Warned
from tenure.units import DAY, HOUR, MINUTE, Instant, format_time
from tests.audit.builders import (
    AI,
    FENCED,
    MM,
    NLP,
    RAI,
    SYS,
    T0,
    History,
    budget,
    cap,
    envelope,
    lease,
    lends,
    month,
    node,
    pod,
    run,
    time,
)

NOW: Instant = time("4h")
SHARED = ("nlp", NLP, "shared")
LOAN = ("vision", MM, "borrowed")
OWN_NLP = ("nlp", NLP, "owned")

TRAIN: Run = run("train", 16, group=8, spares=4, duration="6h")
LOANED: Run = run("loan", 8, funding=Funding(allow_borrow=True, max_borrow_gpus=4, sponsors=(MM,)))
ELASTIC: Run = run("elastic", 8, malleable=(4, 8, 4), per_pod=4, owner=NLP)


def vision(**window: str) -> Budget:
    lending = lends("org:ai:*", max_concurrency=8, max_gpu_hours=100)
    return budget("vision", MM, envelope(concurrency=32, lending=lending, **window), parents=["org:mm"])


def grants() -> list[Budget]:
    west = envelope(concurrency=24, max_gpu_hours=500, **month())
    ai = envelope(concurrency=8, lending=lends("org:ai:rai:*"))
    return [
        budget("sys", SYS, west, parents=[RAI], caps=[cap("all", "west", max_concurrency=24, max_gpu_hours=400)]),
        budget("nlp", NLP, envelope(concurrency=16), parents=[RAI]),
        budget("rai", RAI, envelope(concurrency=8, sharing="None"), parents=[AI]),
        budget("ai", AI, ai),
        vision(),
    ]


def rich() -> list[Entry]:
    """The ledger, clean at every entry and settled at ``NOW``."""
    history = _opened()
    _edited(history)
    _failed(history)
    _cancelled(history)
    return history.entries


def _opened() -> History:
    history = History()
    history.fleet(*(node(name) for name in ("a-0", "a-1", "a-2", "a-3", "b-0", "b-1")))
    history.budgets(*grants())
    owner = {OWNER_ANNOTATION: RAI}
    history.add(PutNamespace(object=Namespace(metadata=ObjectMeta(name="rai", annotations=owner))))
    history.started(
        TRAIN,
        [
            lease(TRAIN, "a-0:0-7", at=T0, group=0),
            lease(TRAIN, "a-1:0-3", at=T0, group=0, role="Spare"),
            lease(TRAIN, "a-2:0-7", at=T0, group=1),
            lease(TRAIN, "a-1:4-7", at=T0, group=1, role="Spare"),
        ],
        [pod(TRAIN, "a-0:0-7", rank=0, group=0), pod(TRAIN, "a-2:0-7", rank=1, group=1)],
    )
    history.at("10m").started(
        LOANED,
        [
            lease(LOANED, "b-0:0-3", at=time("10m"), paid=SHARED),
            lease(LOANED, "b-0:4-7", at=time("10m"), paid=LOAN),
        ],
        [pod(LOANED, "b-0:0-7", rank=0)],
    )
    history.at("20m").started(
        ELASTIC,
        [lease(ELASTIC, "b-1:0-3", at=time("20m"), paid=OWN_NLP)],
        [pod(ELASTIC, "b-1:0-3", rank=0)],
    )
    return history.at("30m").grow(
        "elastic",
        [lease(ELASTIC, "b-1:4-7", at=time("30m"), group=1, paid=OWN_NLP, reason="Grow")],
        [pod(ELASTIC, "b-1:4-7", rank=1, group=1)],
    )


def _edited(history: History) -> None:
    used = 24 * HOUR
    later = {"start": format_time(T0), "end": format_time(T0 + 60 * DAY)}
    history.at("1h").add(
        PutBudget(object=vision(**later)),
        Warned(budget="sys", envelope="west", mark="80", used=used),
        Noted(kind="Budget", object="Budget/sys", reason="Notice", message="said so"),
    )
    # The pods were gone half a minute before anybody told.
    history.at("90m").stop("loan", "Completed").at("91m")
    history.gone("loan", "Completed", "Completed", end=time("91m") - MINUTE // 2)


def _failed(history: History) -> None:
    history.at("2h").gone("elastic", "NodeFailure", "Pending", PutNode(object=node("b-1", taints=(FENCED,))))
    history.at("150m").started(
        ELASTIC,
        [lease(ELASTIC, "b-0:0-3", at=time("150m"), attempt=2, paid=OWN_NLP)],
        [pod(ELASTIC, "b-0:0-3", rank=0, attempt=2)],
    )


def _cancelled(history: History) -> None:
    history.at("3h").stop("train", "Canceled")
    history.at("181m").gone("train", "Canceled", "Failed")
    history.at("182m").add(Removed(kind="Run", namespace="rai", name="train"))
