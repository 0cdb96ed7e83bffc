"""Whom a mark may concern: those are named whom looking at everybody would name, and few others."""

from __future__ import annotations

from random import Random

import pytest

from tenure.engine.news import EVERYBODY, Mark, News
from tenure.engine.watch import Known
from tenure.testing import Fleet, budget, envelope, node, run
from tenure.units import FOREVER, Instant

FLAVOR, NOW = "H100", 10
NODES, FUNDS = ("n0", "n1", "n2"), (("a", "main"), ("b", "main"))


def known(luck: Random) -> Known:
    start = luck.randint(NOW, 60)
    return Known(
        marks=0,
        start=start,
        nodes=frozenset(luck.sample(NODES, luck.randint(1, 2))),
        funds=frozenset(luck.sample(FUNDS, luck.randint(1, 2))),
        paid=luck.choice((0, start)),
        rich=luck.random() < 0.3,
        hours=luck.random() < 0.3,
    )


def concerns(mark: Mark, one: Known) -> bool:
    """What ``standing`` asks of each mark, before it looks any closer."""
    if mark.number <= one.marks:
        return False
    lasts = one.start < mark.before
    if mark.fund is not None:
        return mark.fund in one.funds and (not one.rich if mark.gain else one.hours or lasts)
    return one.paid < one.start if mark.gain else mark.node in one.nodes and lasts


def happens(news: News, luck: Random) -> None:
    gain, before = luck.random() < 0.5, luck.choice((FOREVER, luck.randint(NOW, 70)))
    if luck.random() < 0.5:
        news.node(FLAVOR, luck.choice(NODES), gain=gain, before=before)
    else:
        news.fund(FLAVOR, luck.choice(FUNDS), gain=gain, before=before)


def since(news: News, one: Known) -> list[Mark]:
    """All that happened since something was found, for whoever is behind everybody."""
    last = (FOREVER, (FOREVER, "", ""))
    marks = [mark for mark in news.marks(FLAVOR, one).values() if mark.concerns(one, last)]
    assert set(news.gained(FLAVOR, one, last)) == {mark.node for mark in marks if mark.fund is None and mark.gain}
    return marks


@pytest.mark.parametrize("seed", range(60))
def test_nobody_is_passed_over_whom_a_mark_may_concern(seed: int) -> None:
    luck = Random(f"watch {seed}")
    news = News()
    runs = [f"lab/r{index}" for index in range(12)]
    for each in runs:
        news.waits(each, FLAVOR)
    named, passed = 0, 0
    for _ in range(40):
        key = luck.choice(runs)
        match luck.choice(("happens", "happens", "found", "found", "forget", "gone", "settled", "terms")):
            case "happens":
                happens(news, luck)
            case "found":
                news.found(key, known(luck))
            case "forget":
                news.forget(key)
            case "gone":
                news.gone(key)
                news.waits(key, FLAVOR)
            case "settled" if luck.random() < 0.3:
                news.settled(FLAVOR)
            case "terms":
                news.terms_changed(luck.choice(FUNDS))
        found, count = news.woken(FLAVOR, now=NOW, after=None)
        assert count == news.woken(FLAVOR, now=NOW, after=count)[1]
        assert not news.woken(FLAVOR, now=NOW, after=count)[0], "nothing has happened since"
        for each in runs:
            one = news.known(each)
            must = one is None or one.start <= NOW or any(concerns(mark, one) for mark in since(news, one))
            assert each in found or not must
            named, passed = named + (each in found), passed + (each not in found)
    assert named
    assert passed


def test_marks_of_one_thing_are_one_mark_that_says_what_all_of_them_said() -> None:
    news, rank = News(), (3, (1, "lab", "r"))
    news.waits("lab/r0", FLAVOR)
    news.found("lab/r0", Known(0, 50, frozenset({"n0"}), frozenset(), 0, rich=True, hours=False))
    for before in (Instant(60), Instant(20)):
        news.node(FLAVOR, "n0", gain=False, behind=rank if before == 60 else EVERYBODY, before=before)
    one = news.known("lab/r0")
    assert one is not None
    (mark,) = since(news, one)
    assert (mark.before, mark.behind) == (60, EVERYBODY)
    assert news.woken(FLAVOR, now=NOW, after=None)[0] == {"lab/r0"}
    news.settled(FLAVOR)
    assert not news.woken(FLAVOR, now=NOW, after=None)[0]


def test_a_flavor_that_nobody_waits_for_leaves_nothing() -> None:
    news = News()
    news.waits("lab/r0", "invented")
    news.gone("lab/r0")
    assert not news._watches
    assert news.woken("invented", now=NOW, after=None) == (set(), 0)


def test_leases_that_nobody_waits_for_are_not_kept() -> None:
    fleet = Fleet(node("n0", 8), budget("a", envelope(gpus=400)))
    for number in range(20):
        fleet.start(run(f"r{number}", 1, owner="org:a", lasts="1h"))
        fleet.succeed(f"lab/r{number}")
    assert len(fleet.state.news._opening) <= 1
    assert all(len(marks) <= 4 for marks in fleet.state.news._marks.values())
