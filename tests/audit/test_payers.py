"""I6: who may pay for whom, at the moment a lease opens."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.api.budget import Budget, Envelope, PreActivation
from tenure.api.core import Namespace
from tenure.api.meta import OWNER_ANNOTATION, ObjectMeta
from tenure.api.run import Funding
from tenure.audit import check_all
from tenure.audit.kinship import owner_matches
from tenure.facts import PutBudget, PutNamespace, Removed
from tests.audit.builders import SYS, T0, History, budget, envelope, lease, lends, node, pod, run

# owner            parents        Budgets of the whole family; who has none declares no parents.
FAMILY: dict[str, tuple[str, ...]] = {
    SYS: ("org:ai:rai",),
    "org:ai:rai:nlp": ("org:ai:rai",),
    "org:ai:rai": ("org:ai",),
    "org:ai:mm": ("org:ai",),
    "org:ai:mm:vis": ("org:ai:mm",),
    "org:ai": ("org",),
    "org": (),
    "org:hw": ("org",),
    "org:hw:lab": ("org:hw",),
    "far": (),
}
SPONSORED = Funding(allow_borrow=True, sponsors=("far", "org:ai:rai:nlp"))


def family(**other: Any) -> list[Budget]:
    """A Budget for each of the family, named after its owner, that shares and lends to everybody."""
    west = envelope(**{"lending": lends("*"), **other})
    return [budget(owner.replace(":", "-"), owner, west, parents=parents) for owner, parents in FAMILY.items()]


def faults(history: History) -> list[str]:
    found = check_all(history.entries, now=history.now, settled=True)
    return [item.sentence() for item in found if item.invariant == "I6-payer-eligible"]


def paid_by(owner: str, funding: str, *, terms: Funding = SPONSORED, **other: Any) -> list[str]:
    history = History().fleet(node("a-0")).budgets(*family(**other))
    job = run("job", 8, funding=terms)
    paid = (owner.replace(":", "-"), owner, funding)
    return faults(history.started(job, [lease(job, "a-0:0-7", at=T0, paid=paid)], [pod(job, "a-0:0-7", rank=0)]))


@pytest.mark.parametrize(
    ("payer", "owned", "shared", "borrowed"),
    [
        # payer             owned  shared borrowed
        (SYS, True, False, False),
        ("org:ai:rai:nlp", False, True, True),  # a sibling; also a listed sponsor
        ("org:ai:rai", False, True, False),  # a parent lends to no one it shares with
        ("org:ai", False, False, True),  # an ancestor above the parents
        ("org", False, False, True),  # a higher one
        ("org:ai:mm:vis", False, False, True),  # a cousin
        ("org:ai:mm", False, False, False),  # an aunt is not searched
        ("org:hw:lab", False, False, False),  # a second cousin is a stranger
        ("far", False, False, True),  # a listed sponsor
    ],
)
def test_who_may_pay_and_as_what(payer: str, owned: bool, shared: bool, borrowed: bool) -> None:
    found = {funding: paid_by(payer, funding) == [] for funding in ("owned", "shared", "borrowed")}
    assert found == {"owned": owned, "shared": shared, "borrowed": borrowed}


def test_a_sibling_that_opted_out_of_sharing_may_still_lend_as_a_sponsor() -> None:
    assert paid_by("org:ai:rai:nlp", "shared", sharing="None") != []
    assert paid_by("org:ai:rai:nlp", "borrowed", sharing="None") == []


def test_kin_lend_only_to_a_run_that_lists_some_sponsor() -> None:
    assert paid_by("org:ai", "borrowed", terms=Funding(allow_borrow=True)) != []
    assert paid_by("org:ai", "borrowed", terms=Funding(allow_borrow=True, sponsors=("other",))) == []


@pytest.mark.parametrize(
    ("pattern", "owner", "matches"),
    [
        ("*", "a", True),
        ("*", "a:b:c", True),
        ("a", "a", True),
        ("a", "a:b", False),
        ("a:*", "a", False),
        ("a:*", "a:b", True),
        ("a:*", "a:b:c", True),
        ("a:*", "ab:c", False),
        ("a:*:c", "a:b:c", True),
        ("a:*:c", "a:c", False),
        ("a:*:c", "a:b:b:c", False),
        ("a:*:c:*", "a:b:c", False),
        ("a:*:c:*", "a:b:c:d:e", True),
        ("*:c", "b:c", True),
        ("*:c", "a:b:c", False),
        ("a.c", "abc", False),
    ],
)
def test_an_acl_matches_whole_owners_segment_by_segment(pattern: str, owner: str, matches: bool) -> None:
    assert owner_matches(pattern, owner) is matches


def test_budgets_of_one_owner_declare_parents_together() -> None:
    more = budget("more", SYS, parents=["org:hw"])
    job = run("job", 8)
    shared = lease(job, "a-0:0-7", at=T0, paid=("org-hw", "org:hw", "shared"))
    history = History().fleet(node("a-0")).budgets(*family())
    alone = faults(history.started(job, [shared], [pod(job, "a-0:0-7", rank=0)]))
    together = History().fleet(node("a-0")).budgets(*family(), more)
    assert alone != []
    assert faults(together.started(job, [shared], [pod(job, "a-0:0-7", rank=0)])) == []


def test_the_family_of_a_removed_budget_is_forgotten() -> None:
    job = run("job", 8)
    history = History().fleet(node("a-0")).budgets(*family()).add(Removed(kind="Budget", name=SYS.replace(":", "-")))
    shared = lease(job, "a-0:0-7", at=T0, paid=("org-ai-rai", "org:ai:rai", "shared"))
    assert faults(history.started(job, [shared], [pod(job, "a-0:0-7", rank=0)])) != []


def test_a_run_without_an_owner_has_the_one_of_its_namespace() -> None:
    job = run("job", 8, owner="")
    mine = lease(run("job", 8), "a-0:0-7", at=T0)
    history = History().fleet(node("a-0")).budgets(budget("sys", SYS))
    assert faults(history.started(job, [mine], [pod(job, "a-0:0-7", rank=0)])) != []
    named = Namespace(metadata=ObjectMeta(name="rai", annotations={OWNER_ANNOTATION: SYS}))
    history = History().fleet(node("a-0")).budgets(budget("sys", SYS)).add(PutNamespace(object=named))
    assert faults(history.started(job, [mine], [pod(job, "a-0:0-7", rank=0)])) == []


def opened_at(offset: str, grant: Envelope, **other: Any) -> list[str]:
    job = run("job", 8, **other)
    history = History().fleet(node("a-0")).budgets(budget("sys", SYS, grant)).at(offset)
    return faults(history.started(job, [lease(job, "a-0:0-7", at=history.now)], [pod(job, "a-0:0-7", rank=0)]))


WINDOW = {"start": "2025-11-01T01:00:00Z", "end": "2025-11-01T09:00:00Z"}


@pytest.mark.parametrize(
    ("offset", "duration", "open_now"),
    [
        ("59m59s", None, False),
        ("1h", None, True),
        ("8h59m", None, True),
        ("9h", None, False),
        ("3h", "6h", True),
        ("3h", "6h1s", False),
    ],
)
def test_the_window_is_half_open_and_lasts_as_long_as_declared(
    offset: str, duration: str | None, open_now: bool
) -> None:
    assert (opened_at(offset, envelope(**WINDOW), duration=duration) == []) is open_now


def test_allow_admission_opens_the_window_early() -> None:
    early = PreActivation(allow_admission=True)
    assert opened_at("0s", envelope(pre_activation=early, **WINDOW)) == []
    assert opened_at("9h", envelope(pre_activation=early, **WINDOW)) != []


def test_a_budget_is_judged_as_it_stood_when_the_lease_opened() -> None:
    job = run("job", 8)
    history = History().fleet(node("a-0")).budgets(budget("sys", SYS))
    history.started(job, [lease(job, "a-0:0-7", at=T0)], [pod(job, "a-0:0-7", rank=0)])
    history.at("1h").add(PutBudget(object=budget("sys", SYS, envelope(selector={"region": "us-east"}))))
    assert faults(history) == []
