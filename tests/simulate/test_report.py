"""The report: one page that stands alone, says what was found, and lets nothing from a trace into its markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tenure.api.policy import Policy
from tenure.simulate.replay import Setting
from tenure.simulate.replay_world import Machines, ample_budgets, uniform_nodes
from tenure.simulate.report import can_plot, headline, page, write_report
from tenure.simulate.report_data import Study, study, to_tree
from tenure.simulate.trace import merge, read_trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "three-teams.csv"
VOID = {"meta", "br", "img", "link"}


def make_study(lines: list[str], *, compare: tuple[str, ...] = ("fifo", "easy"), fleet: str = "2x4x8") -> Study:
    traces = [read_trace(lines, source="traces/three-teams.csv", scale=Fraction(1))]
    policy = Policy(patience="720h")
    nodes = uniform_nodes(fleet)
    assert nodes is not None
    machines = Machines(nodes, policy)
    jobs, left_out = machines.sort(merge(traces))
    owners = {job.owner for some in jobs.values() for job in some}
    setting = Setting(
        jobs=jobs, nodes=nodes, objects=ample_budgets(owners, machines), policy=policy, gpus=machines.total
    )
    return study(setting, name=fleet, traces=traces, machines=machines, left_out=left_out, compare=compare)


@pytest.fixture(scope="module")
def found() -> Study:
    return make_study(EXAMPLE.read_text().splitlines()[:80])


class Outline(HTMLParser):
    """What a page is made of; fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def svgs(text: str) -> list[ET.Element]:
    parts = text.split("<svg")[1:]
    return [ET.fromstring("<svg" + part[: part.index("</svg>") + 6]) for part in parts]


def test_the_page_stands_alone(found: Study) -> None:
    outline = Outline(page(found))
    assert not outline.tags & {"script", "link", "img", "iframe", "object"}
    loads = [value for name, value in outline.attributes if name in ("src", "href", "xlink:href", "action")]
    assert all(value.startswith("#") for value in loads), "only marks inside the page itself"
    assert "url(http" not in page(found)


def test_every_question_has_its_picture(found: Study) -> None:
    text = page(found)
    assert Outline(text).headings == [
        "79 jobs, 1 day, 64 GPUs",
        "How long did jobs wait?",
        "How full was the fleet?",
        "How long was the queue?",
        "Was there room for wide jobs?",
        "Who waited?",
        "Were promises kept?",
        "Was work thrown away?",
        "Can these numbers be trusted?",
        "How this was made",
    ]
    assert len(svgs(text)) == 5


def test_the_page_shows_the_figures_that_json_has(found: Study) -> None:
    text = page(found)
    for one in found.summaries:
        assert f"{one.wait_hours.mean:.1f} hours" in text or f"{one.wait_hours.mean * 60:.0f} minutes" in text
        assert f"{one.utilisation:.1%}" in text
    assert f"read all {found.tenure.audit.entries:,} of them" in text
    assert "It found 0 violations." in text


def test_the_same_study_gives_the_same_bytes(found: Study) -> None:
    assert page(found) == page(found)


def test_a_report_can_be_made_from_the_json_alone(found: Study) -> None:
    again = msgspec.convert(msgspec.json.decode(msgspec.json.encode(to_tree(found))), Study)
    assert page(again) == page(found)


def test_without_references_the_page_speaks_of_tenure_alone() -> None:
    alone = make_study(EXAMPLE.read_text().splitlines()[:40], compare=())
    assert "would have waited" not in headline(alone)
    assert "FIFO" not in page(alone)


def test_names_from_a_trace_cannot_become_markup() -> None:
    hostile = replace(make_study(EXAMPLE.read_text().splitlines()[:20]), left_out={"<script>alert(1)</script> & co": 1})
    text = page(hostile)
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in text


def test_violations_are_shown_and_not_green() -> None:
    fine = make_study(EXAMPLE.read_text().splitlines()[:20])
    audit = replace(fine.tenure.audit, violations=1, examples=("I1-capacity at noon",))
    text = page(replace(fine, tenure=replace(fine.tenure, audit=audit)))
    assert "I1-capacity at noon" in text
    assert '<div class="card bad"><div class="label">Rules broken</div><div class="value">1</div>' in text


def test_one_job_and_no_time_at_all_is_a_report_too() -> None:
    text = page(make_study(["job_id,submit_s,duration_s,gpus,owner", "a,0,60,1,x"]))
    assert "1 job, 0 days, 64 GPUs" in text
    assert len(svgs(text)) == 5


def test_a_report_replaces_an_older_one_whole(found: Study, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old" * 10**6)
    write_report(found, path)
    assert path.read_text() == page(found)
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_this_environment_can_plot() -> None:
    assert can_plot(), "matplotlib is in the dev extra"


def test_the_ratios_are_those_of_the_mean_waits(found: Study) -> None:
    mine = found.tenure.summary.wait_hours.mean
    for name, ratio in found.ratios.items():
        assert ratio == mine / found.references[name].wait_hours.mean


def test_a_report_says_whether_promises_were_kept(found: Study) -> None:
    kept = found.tenure.promises
    assert kept.made > 0
    text = page(found)
    assert "Were promises kept?" in text
    assert f"{kept.kept:,} jobs started at that instant or earlier" in text
    assert "GPU-hours were thrown away" in text
    assert to_tree(found)["tenure"]["thrown"]["runsDrawn"] == found.tenure.thrown.runs_drawn
    assert to_tree(found)["tenure"]["promises"]["errorHours"]["all"]["starts"] == kept.kept + kept.missed
