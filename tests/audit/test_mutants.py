"""A clean ledger passes; each of many small lies in it is caught, under the right name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tenure.api.policy import Policy
from tenure.api.run import Funding, Locality, Malleable, Run
from tenure.audit import Auditor, check_all
from tenure.facts import (
    Cleared,
    Closed,
    Cut,
    Decided,
    Ending,
    Entry,
    Fact,
    Life,
    Moved,
    Opened,
    Placed,
    PutBudget,
    PutNode,
    PutPolicy,
    PutRun,
    Removed,
    Resolved,
    Seen,
    Warned,
)
from tests.audit.builders import (
    FENCED,
    MM,
    NLP,
    RAI,
    SYS,
    budget,
    cap,
    chained,
    envelope,
    lease,
    lends,
    node,
    pod,
    run,
    time,
)
from tests.audit.promises import plan, reserved
from tests.audit.rich import ELASTIC, LOANED, NOW, OWN_NLP, SHARED, TRAIN, grants, rich

Mutation = Callable[[list[Entry]], list[Entry]]
replace = msgspec.structs.replace


# --- how to lie ---------------------------------------------------------------------------------------------


def change(where: Callable[[Any], bool], how: Callable[[Any], Fact | None]) -> Mutation:
    """Change the first fact that answers to ``where``; None drops it."""

    def mutate(entries: list[Entry]) -> list[Entry]:
        for index, entry in enumerate(entries):
            for place, fact in enumerate(entry.facts):
                if where(fact):
                    new = how(fact)
                    facts = (*entry.facts[:place], *([] if new is None else [new]), *entry.facts[place + 1 :])
                    return [*entries[:index], replace(entry, facts=facts), *entries[index + 1 :]]
        raise AssertionError("nothing to change: the mutation is out of date")

    return mutate


def insert(offset: str, *facts: Fact) -> Mutation:
    """An entry of its own, after all that happened at that instant."""

    def mutate(entries: list[Entry]) -> list[Entry]:
        at = time(offset)
        before = [entry for entry in entries if entry.at <= at]
        new = Entry(seq=0, at=at, cause="mutant", facts=facts, prev="")
        mixed = [*before, new, *entries[len(before) :]]
        return [replace(entry, seq=number) for number, entry in enumerate(mixed, start=1)]

    return mutate


def opened(run_name: str, role: str = "Active") -> Callable[[Any], bool]:
    return lambda fact: isinstance(fact, Opened) and fact.lease.run == run_name and fact.lease.role == role


def with_lease(run_name: str, **changes: Any) -> Mutation:
    return change(opened(run_name), lambda fact: Opened(lease=replace(fact.lease, **changes)))


def with_spare(**changes: Any) -> Mutation:
    return change(opened("train", "Spare"), lambda fact: Opened(lease=replace(fact.lease, **changes)))


def a(kind: type, **values: Any) -> Callable[[Any], bool]:
    return lambda fact: isinstance(fact, kind) and all(getattr(fact, key) == value for key, value in values.items())


def moved_to(phase: str) -> Callable[[Any], bool]:
    return lambda fact: isinstance(fact, Moved) and fact.life.phase == phase


def into(phase: Any) -> Callable[[Moved], Moved]:
    return lambda fact: replace(fact, life=replace(fact.life, phase=phase))


def put(kind: type[Any], name: str) -> Callable[[Any], bool]:
    return lambda fact: isinstance(fact, kind) and fact.object.metadata.name == name


def with_node(name: str, **other: Any) -> Mutation:
    return change(put(PutNode, name), lambda fact: PutNode(object=node(name, **other)))


def with_budget(name: str, **changes: Any) -> Mutation:
    """Another spec for one of the budgets, from the beginning."""
    return change(put(PutBudget, name), lambda fact: PutBudget(object=respec(fact.object, **changes)))


def with_envelope(name: str, **changes: Any) -> Mutation:
    (old,) = next(item for item in grants() if item.metadata.name == name).spec.envelopes
    return with_budget(name, envelopes=(replace(old, **changes),))


def with_lending(**changes: Any) -> Mutation:
    return with_envelope("vision", lending=replace(lends("org:ai:*"), **changes))


def with_run(run_name: str, **changes: Any) -> Mutation:
    return change(put(PutRun, run_name), lambda fact: PutRun(object=respec(fact.object, **changes)))


def with_size(of: Run, **changes: Any) -> Mutation:
    return with_run(of.metadata.name, resources=replace(of.spec.resources, **changes))


def with_range(low: int, high: int) -> Mutation:
    legal = Malleable(min_total_gpus=low, max_total_gpus=high, step_gpus=4)
    return with_run("elastic", malleable=legal)


def respec(thing: Any, **changes: Any) -> Any:
    return replace(thing, spec=replace(thing.spec, **changes))


def with_fact(kind: type, **changes: Any) -> Mutation:
    """Change the first fact of a kind."""
    return change(a(kind), lambda fact: replace(fact, **changes))


def with_pod(**changes: Any) -> Mutation:
    return change(a(Placed), lambda fact: Placed(pod=replace(fact.pod, **changes)))


def with_rank(rank: int) -> Mutation:
    """Give the second pod of train another rank."""
    is_second = lambda fact: isinstance(fact, Placed) and fact.pod.rank == 1  # noqa: E731
    return change(is_second, lambda fact: Placed(pod=replace(fact.pod, rank=rank)))


def without(where: Callable[[Any], bool]) -> Mutation:
    return change(where, lambda fact: None)


def numbered(number: int, **changes: Any) -> Mutation:
    return lambda entries: [replace(entry, **changes) if entry.seq == number else entry for entry in entries]


def opens(name_of: Run, where: str, offset: str, **other: Any) -> Opened:
    return Opened(lease=lease(name_of, where, at=time(offset), **other))


def closes(name: str, offset: str, reason: str = "Fail") -> Closed:
    return Closed(namespace="rai", leases=(name,), end=time(offset), reason=reason)


def cut(name: str) -> Ending:
    return Ending(namespace="rai", run="train", leases=(name,), reason="RandomPreempt(9f)")


def revived(offset: str, phase: Any) -> Mutation:
    """A run that is over moves once more."""
    life = Life(phase=phase, attempt=1, admitted=True)
    return insert(offset, Moved(namespace="rai", run="loan", life=life))


GUEST = run("guest", 4, owner=NLP)
OLDEST, LATEST = run("a-oldest", 8), run("z-latest", 4)
TRAIN_LEASE, TRAIN_SPARE = "train-a1-g0-a-0-Active-sys-0", "train-a1-g0-a-1-Spare-sys-0"
SHARED_LEASE = "loan-a1-g0-b-0-Active-nlp-0"

MUTANTS: dict[str, dict[str, Mutation]] = {
    "I1-capacity": {
        "two runs on one GPU": with_lease("loan", node="a-0", domain="A"),
        "a spare on an active GPU": with_spare(node="a-0"),
        "one GPU named twice": with_lease("train", gpus=(0, 0, 1, 2, 3, 4, 5, 6)),
        "a GPU beyond the node": with_lease("train", gpus=(1, 2, 3, 4, 5, 6, 7, 8)),
        "a smaller node": with_node("a-2", gpus=4),
        "no GPUs at all": with_lease("train", gpus=()),
        "a negative GPU": with_lease("train", gpus=(-1, 1, 2, 3, 4, 5, 6, 7)),
        "a node that is not there": with_lease("train", node="a-9"),
        "opportunistic work on no spare": insert(
            "40m", PutRun(object=GUEST), opens(GUEST, "a-3:0-3", "40m", role="Borrowed", paid=OWN_NLP)
        ),
        "two guests on one spare": insert(
            "40m",
            PutRun(object=GUEST),
            opens(GUEST, "a-1:0-3", "40m", role="Borrowed", paid=OWN_NLP),
            opens(GUEST, "a-1:0-3", "40m", role="Borrowed", paid=OWN_NLP, group=1),
        ),
        "a spare that ends under its guest": insert(
            "40m",
            PutRun(object=GUEST),
            opens(GUEST, "a-1:0-3", "40m", role="Borrowed", paid=OWN_NLP),
            closes(TRAIN_SPARE, "40m", "DropSpare"),
        ),
        "work left on a fenced node": insert("200m", PutNode(object=node("b-0", taints=(FENCED,)))),
        "work left on a deleted node": insert("200m", Removed(kind="Node", name="b-0")),
    },
    "I2-limits": {
        "less concurrency than used": with_envelope("sys", concurrency=23),
        "fewer hours than promised": with_envelope("sys", max_gpu_hours=143),
        "fewer hours than used": with_envelope("nlp", max_gpu_hours=20),
        "less than one look-ahead": with_envelope("nlp", max_gpu_hours=3),
        "fewer lendable GPUs than lent": with_lending(max_concurrency=3),
        "fewer lendable hours than lent": with_lending(max_gpu_hours=3),
        "a cap below the GPUs of its envelopes": with_budget(
            "sys", aggregate_caps=(cap("all", "west", max_concurrency=20),)
        ),
        "a cap below the hours of its envelopes": with_budget(
            "sys", aggregate_caps=(cap("all", "west", max_gpu_hours=100),)
        ),
        "a window that ends under a run": with_envelope("nlp", end="2025-11-01T03:00:00Z"),
        "more borrowed than maxBorrowGPUs": with_run(
            "loan", funding=Funding(allow_borrow=True, max_borrow_gpus=3, sponsors=(MM,))
        ),
        "more work while a lowered limit is exceeded": insert(
            "40m",
            PutBudget(object=budget("nlp", NLP, envelope(concurrency=8), parents=[RAI])),
            PutRun(object=GUEST),
            opens(GUEST, "a-3:0-3", "40m", paid=OWN_NLP),
        ),
    },
    "I3-pods-and-leases": {
        "a pod without a lease": insert("40m", Placed(pod=pod(TRAIN, "a-3:0-7", rank=2))),
        "a pod on another run's GPUs": with_pod(node="b-0"),
        "a pod of another group": with_pod(group=1),
        "a pod of another attempt": with_pod(attempt=2),
        "a pod wider than its leases": with_pod(gpus=tuple(range(9))),
        "a pod narrower than its leases": with_pod(gpus=tuple(range(7))),
        "a pod without GPUs": with_pod(gpus=()),
        "a pod on a spare": with_pod(node="a-1"),
        "a pod for no run": with_pod(run="ghost"),
        "a pod placed twice": insert("40m", Placed(pod=pod(TRAIN, "a-0:0-7", rank=0))),
        "a pod that nobody placed": insert("40m", Seen(namespace="rai", pod="ghost", phase="Bound")),
        "a pod of another width than gpusPerPod": with_size(ELASTIC, gpus_per_pod=2),
        "a lease that outlives its pod": insert("3h", Seen(namespace="rai", pod="elastic-a2-0", phase="Gone")),
        "a lease that closes under its pod": insert("40m", closes(TRAIN_LEASE, "40m")),
        "a terminal run with leases": change(moved_to("Stopping"), into("Completed")),
        "a terminal run that keeps pods": without(a(Cleared)),
        "a deleted run with leases": insert("40m", Removed(kind="Run", namespace="rai", name="train")),
        "a run that never stops stopping": without(moved_to("Completed")),
    },
    "I4-whole-gang": {
        "a lease too few": without(opened("train")),
        "a lease too many": insert("40m", opens(TRAIN, "a-3:0-7", "40m", group=1)),
        "a lease of another attempt": with_lease("train", attempt=2),
        "a group without its spares": without(opened("train", "Spare")),
        "more spares than asked for": insert("40m", opens(TRAIN, "a-3:0-3", "40m", role="Spare")),
        "a lopsided group": with_lease("train", group=1),
        "an illegal width": with_lease("elastic", gpus=(0, 1, 2)),
        "a width above the maximum": with_range(4, 4),
        "a width below the minimum": with_range(8, 8),
        "a run of another size": with_size(LOANED, total_gpus=7),
        "running before it is bound": without(a(Seen, phase="Bound")),
        "a pending run that holds leases": change(moved_to("Starting"), into("Pending")),
        "a stopping run that opens leases": insert("3h", opens(TRAIN, "a-3:0-7", "3h")),
        "a completed run that moves on": revived("2h", "Pending"),
    },
    "I5-immutable": {
        "a lease that opens twice": insert("40m", opens(TRAIN, "a-0:0-7", "40m")),
        "a name that is used again": insert("2h", opens(LOANED, "b-0:0-3", "2h", paid=SHARED)),
        "a lease that closes twice": insert("2h", closes(SHARED_LEASE, "2h")),
        "a lease that closes twice at once": change(
            a(Closed), lambda fact: replace(fact, leases=(*fact.leases, fact.leases[0]))
        ),
        "an end of what nobody opened": insert("2h", closes("ghost", "2h")),
        "an end before the start": with_fact(Closed, end=time("9m")),
        "an end in the future": with_fact(Closed, end=time("92m")),
        "an end without a reason": with_fact(Closed, reason=""),
        "an unheard-of reason": with_fact(Closed, reason="Boredom"),
        "another reason than was decided": with_fact(Closed, reason="Fail"),
        "a stop of what is not open": with_fact(Ending, leases=("ghost",)),
        "a stop that is decided twice": insert(
            "3h", Ending(namespace="rai", run="train", leases=(TRAIN_LEASE,), reason="Fail")
        ),
        "a start before the entry": with_lease("loan", start=time("9m")),
        "another incarnation of the run": with_lease("loan", uid="uid-other"),
        "a lease for no run": with_lease("loan", run="ghost"),
        "an admitted run that changes its mind": insert("40m", PutRun(object=respec(TRAIN, spares_per_group=2))),
        "a time that is none": with_envelope("nlp", end="soon"),
        "a missing entry": lambda entries: [entry for entry in entries if entry.seq != 4],
        "an entry twice": lambda entries: [*entries[:4], entries[3], *entries[4:]],
        "time that runs back": numbered(8, at=time("5m")),
    },
    "I6-payer-eligible": {
        "an owner who is not the run's": with_lease("train", owner=NLP),
        "a payer who is not the budget's owner": with_lease("train", payer=RAI),
        "an envelope that nobody granted": with_lease("train", envelope="east"),
        "a budget that nobody granted": with_lease("train", budget="ghost"),
        "money for another flavor": with_envelope("sys", flavor="A100"),
        "a node of another flavor": with_node("a-0", labels={"gpu.flavor": "A100"}),
        "a run of another flavor": with_size(TRAIN, gpu_type="A100"),
        "money for another region": with_envelope("sys", selector={"region": "us-east"}),
        "a window not yet open": with_envelope("sys", start="2025-11-01T00:00:01Z"),
        "a window already closed": with_envelope("sys", start=None, end="2025-11-01T00:00:00Z"),
        "a window shorter than declared": with_envelope("sys", end="2025-11-01T05:00:00Z"),
        "a declared end that is hidden": with_lease("train", until=None),
        "a declared end that is later": with_lease("train", until=time("7h")),
        "owned by somebody else": with_lease("loan", funding="owned"),
        "shared by a stranger": with_lease("loan", budget="vision", payer=MM),
        "shared by who does not share": with_lease("loan", budget="rai", payer=RAI),
        "borrowed without allowBorrow": with_run("loan", funding=Funding(sponsors=(MM,))),
        "borrowed without sponsors": with_run("loan", funding=Funding(allow_borrow=True)),
        "borrowed from an unlisted stranger": with_run("loan", funding=Funding(allow_borrow=True, sponsors=("org:x",))),
        "borrowed outside the ACL": with_lending(to=("org:ai:rai",)),
        "borrowed where lending is off": with_lending(allow=False),
        "borrowed from who lends to nobody": with_envelope("vision", lending=None),
    },
    "I7-domain-and-ranks": {
        "a group over two domains": with_spare(node="b-1", domain="B"),
        "a run over two clusters": with_node("a-2", labels={"cluster": "gpu-b"}),
        "a cordoned node": with_node("a-0", cordoned=True),
        "an unready node": with_node("a-0", ready="False"),
        "a tainted node": with_node("a-0", taints=(FENCED,)),
        "a node without a domain": with_node("a-0", labels={"fabric.domain": ""}),
        "a domain that is not the node's": with_lease("train", domain="B"),
        "a node outside locality.selector": with_run(
            "train", locality=Locality(group_gpus=8, selector={"region": "us-east"})
        ),
        "one rank twice": with_rank(0),
        "a gap in the ranks": with_rank(2),
    },
    "I8-reservation-not-delayed": {
        "a start in an older run's slice": insert("5m", PutRun(object=OLDEST), reserved(plan("1h", "b-0:8"), OLDEST)),
        "a step into a slice": insert("25m", PutRun(object=LATEST), reserved(plan("1h", "b-1:4"), LATEST)),
        "headroom that an older run will need": insert(
            "5m", PutRun(object=OLDEST), reserved(plan("1h", "a-3:8", budget="vision"), OLDEST)
        ),
        "a start that is moved for no reason": lambda entries: insert(
            "35m", reserved(plan("9h", "a-3:4"), LATEST, promise=plan("5h", "a-3:4"))
        )(insert("35m", PutRun(object=LATEST), reserved(plan("5h", "a-3:4"), LATEST))(entries)),
        "a reservation that comes back": lambda entries: insert("36m", reserved(plan("5h", "a-3:4"), LATEST))(
            insert("35m", PutRun(object=LATEST), reserved(plan("5h", "a-3:4"), LATEST, state="Released"))(entries)
        ),
        "a start that is forgotten": insert("35m", PutRun(object=LATEST), reserved(plan("1h", "a-3:4"), LATEST)),
    },
    "I9-cut-recomputable": {
        "a lottery without a record": insert("100m", cut(TRAIN_LEASE)),
        "a spare that is dropped without a record": insert("40m", closes(TRAIN_SPARE, "40m", "DropSpare")),
        "a shrinking that nobody wished for": insert(
            "40m", Ending(namespace="rai", run="elastic", leases=("elastic-a1-g1-b-1-Active-nlp-4",), reason="Shrink")
        ),
        "a record of a cut that never was": insert(
            "40m",
            Resolved(
                trigger="Shortage",
                subject="Budget/sys/west",
                activation=1,
                cuts=(Cut(kind="DropSpare", run="rai/train", owner=SYS, gpus=4, leases=(TRAIN_SPARE.split("/")[-1],)),),
            ),
        ),
    },
    "I10-sums-agree": {
        "a notice that misstates the use": change(a(Warned), lambda fact: replace(fact, used=fact.used + 1)),
        "a decision that names other payers": change(
            a(Decided),
            lambda fact: replace(fact, verdict=replace(fact.verdict, segments=fact.verdict.segments[1:])),
        ),
    },
    "I12-liveness": {
        "a cut before the lead is over": insert("14m29s", cut(TRAIN_LEASE)),
        "a cut before a longer lead is over": insert(
            "95m", PutPolicy(policy=Policy(activation_lead="3h")), cut(TRAIN_LEASE)
        ),
        "a cut of what has stopped running": insert("3h", cut(TRAIN_LEASE)),
    },
}
ROWS = [(invariant, name, mutate) for invariant, rows in MUTANTS.items() for name, mutate in rows.items()]


# --- and how it is caught -----------------------------------------------------------------------------------


def test_the_clean_ledger_passes_at_every_entry() -> None:
    auditor = Auditor()
    for entry in rich():
        assert auditor.feed(entry) == []
        assert auditor.check(entry.at, settled=True) == []
    assert auditor.check(NOW, settled=True) == []
    assert auditor.recheck(rich(), now=NOW) == []


@pytest.mark.parametrize(("invariant", "mutate"), [(row[0], row[2]) for row in ROWS], ids=[row[1] for row in ROWS])
def test_a_lie_is_caught_under_its_name(invariant: str, mutate: Mutation) -> None:
    found = check_all(mutate(rich()), now=NOW, settled=True)
    assert invariant in {violation.invariant for violation in found}, [item.sentence() for item in found]


def test_a_violation_found_while_reading_carries_the_instant_of_its_entry() -> None:
    found = check_all(insert("40m", closes("ghost", "40m"))(rich()), now=NOW)
    assert [(item.invariant, item.at, item.object) for item in found] == [
        ("I5-immutable", time("40m"), "Lease/rai/ghost")
    ]


def test_the_stored_chain_passes() -> None:
    auditor = Auditor()
    assert [violation for body in chained(rich()) for violation in auditor.feed_raw(body)] == []


CHAIN_LIES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "one byte of an entry": lambda bodies: [bodies[0].replace(b"by hand", b"by hind"), *bodies[1:]],
    "an entry that is missing": lambda bodies: [*bodies[:3], *bodies[4:]],
    "two entries exchanged": lambda bodies: [*bodies[:3], bodies[4], bodies[3], *bodies[5:]],
    "an entry that is garbage": lambda bodies: [*bodies[:3], b"{", *bodies[4:]],
    "a beginning that is cut off": lambda bodies: bodies[1:],
}


@pytest.mark.parametrize("lie", CHAIN_LIES.values(), ids=CHAIN_LIES.keys())
def test_a_broken_chain_is_caught(lie: Callable[[list[bytes]], list[bytes]]) -> None:
    auditor = Auditor()
    found = [violation for body in lie(chained(rich())) for violation in auditor.feed_raw(body)]
    assert "I5-immutable" in {violation.invariant for violation in found}
