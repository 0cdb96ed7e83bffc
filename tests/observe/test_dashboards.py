"""Dashboards: every picture is about metrics that exist, every metric is in a picture or a rule, and Grafana's form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tenure.observe.dashboards import DASHBOARDS, Dashboard, metric_of, scoped
from tenure.observe.rules import RECORDINGS, alerts
from tenure.observe.table import METRICS
from tools import generate

ROOT = Path(__file__).resolve().parents[2]
TOPICS = {
    "fleet": "fleet map", "queue": "queue and forecasts", "budgets": "budgets and lending",
    "resolver": "resolver audit", "spares": "spares and failures", "controller": "controller health",
}  # fmt: skip
_WORD = re.compile(r"[a-z_:]+[a-z0-9_:]*")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "deploy" / "dashboards" / f"{name}.json").read_text())
    return found


def exprs(one: Dashboard) -> list[str]:
    return [query.expr for panel in one.panels for query in panel.queries]


def test_there_is_one_for_each_topic_of_the_issue() -> None:
    assert {one.name: one.title.removeprefix("Tenure: ") for one in DASHBOARDS} == TOPICS
    assert tuple(one.name for one in DASHBOARDS) == generate.DASHBOARDS


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_the_file_shows_every_panel_with_its_expressions(one: Dashboard) -> None:
    shown = read(one.name)
    assert shown["uid"] == f"tenure-{one.name}"
    assert [panel["title"] for panel in shown["panels"]] == [panel.title for panel in one.panels]
    targets = [target for panel in shown["panels"] for target in panel["targets"]]
    assert [target["expr"] for target in targets] == [scoped(expr) for expr in exprs(one)]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}
    assert [variable["name"] for variable in shown["templating"]["list"]] == ["datasource", "job"]
    assert len({panel["id"] for panel in shown["panels"]}) == len(one.panels)


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_nothing_is_left_for_grafana_to_guess(one: Dashboard) -> None:
    shown = read(one.name)
    assert "null" not in json.dumps(shown["panels"])
    for panel in shown["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEFGH"[: len(panel["targets"])])


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_panels_stand_side_by_side_and_never_upon_one_another(one: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in read(one.name)["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_every_expression_is_narrowed_to_one_installation(one: Dashboard) -> None:
    for expr in exprs(one):
        named = [word for word in _WORD.findall(expr) if metric_of(word) is not None]
        assert named, f"{expr} is about no metric"
        assert scoped(expr).count('job=~"$job"') == len(named)


def test_every_metric_is_in_a_picture_or_a_rule() -> None:
    texts = [*(expr for one in DASHBOARDS for expr in exprs(one)), *(one.expr for one in RECORDINGS)]
    texts += [alert.quantity for alert in alerts()]
    used = {metric_of(word) for text in texts for word in _WORD.findall(text)}
    assert METRICS.keys() - used == set()


def test_every_recording_is_used() -> None:
    texts = [*(expr for one in DASHBOARDS for expr in exprs(one)), *(alert.quantity for alert in alerts())]
    texts += [one.expr for one in RECORDINGS]
    assert {one.name for one in RECORDINGS if not any(one.name in text for text in texts)} == set()


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_the_guide_says_what_each_is_for(one: Dashboard) -> None:
    guide = (ROOT / "docs" / "guide" / "metrics.md").read_text()
    assert f"deploy/dashboards/{one.name}.json" in guide
    assert one.about.split(":")[0].split(".")[0] in " ".join(guide.split())
