"""Rules are what promtool accepts, each alert is shown silent and firing, and each has its section in the runbook."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tenure.kube.operator import SILENCE_SECONDS
from tenure.observe.dashboards import metric_of
from tenure.observe.rules import RECORDINGS, RUNBOOK, Alert, alerts, rules_file
from tests.observe.programs import prometheus_programs

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "alerts" / "tenure.rules.yaml"
CASES = Path(__file__).with_name("rules.test.yaml")
_WORDS = re.compile(r"[a-z_:]{3,}[a-z0-9_:]*")
_LANGUAGE = {
    "sum", "max", "min", "count", "rate", "increase", "histogram_quantile", "clamp_min", "vector", "by", "on", "or",
    "le", "job", "max_over_time", "count_over_time", "absent_over_time",
}  # fmt: skip


@pytest.fixture(scope="module")
def promtool() -> Path:
    return prometheus_programs()["promtool"]


@cache
def written() -> dict[str, Any]:
    """The cases of promtool."""
    found: dict[str, Any] = yaml.load(CASES.read_text(), yaml.CSafeLoader)
    return found


def told(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    assert f"{len(RECORDINGS) + len(alerts())} rules found" in told(promtool, "check", "rules", "--lint-fatal", FILE)


def test_promtool_finds_every_alert_silent_and_firing_as_it_should(promtool: Path) -> None:
    assert "SUCCESS" in told(promtool, "test", "rules", CASES)


def test_promtool_notices_a_rule_that_is_wrong(promtool: Path, tmp_path: Path) -> None:
    """The cases would not pass whatever the rules say."""
    rules = rules_file()
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["expr"] = rule["expr"].replace("< 1", "< 0").replace("> 0", ">= 0")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    cases = written() | {"rule_files": ["rules.yaml"]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "cases.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "TenureNotReady" in done.stdout + done.stderr


def killed_after() -> int:
    """Seconds until the kubelet ends an operator that hangs, by the probes that are shipped."""
    items = yaml.load_all((ROOT / "deploy/kustomize/base/operator.yaml").read_text(), yaml.CSafeLoader)
    operator = next(item for item in items if item["kind"] == "StatefulSet")["spec"]["template"]["spec"]["containers"][
        0
    ]
    probe = operator["livenessProbe"]
    return int(SILENCE_SECONDS) + int(probe["periodSeconds"]) * int(probe["failureThreshold"])


@pytest.mark.parametrize(
    ("name", "metric"), [("TenureStuck", "metrics_age_seconds"), ("TenureWatchSilent", "watch_silence_seconds")]
)
@pytest.mark.parametrize("scrape", [15, 30])
def test_regression_an_operator_that_hangs_and_is_killed_and_hangs_again_raises_the_alert(
    promtool: Path, tmp_path: Path, name: str, metric: str, scrape: int
) -> None:
    """None was ever old enough: all began anew with each restart. One that hung once and was cured is no trouble."""
    life = f"0+{scrape}x{killed_after() // scrape - 1} stale"
    well = f"1x{3600 // scrape}"
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'

    def case(values: str, minutes: range, *samples: dict[str, Any]) -> dict[str, Any]:
        return {
            "interval": f"{scrape}s",
            "input_series": [{"series": f'{metric}{{job="t",instance="a",kind="Run"}}', "values": values}],
            "promql_expr_test": [
                {"expr": firing, "eval_time": f"{minute}m", "exp_samples": list(samples)} for minute in minutes
            ],
        }

    again = " ".join([life] * 8)
    tests = [case(again, range(8, 15), {"labels": "{}", "value": 1}), case(f"{life} {well}", range(1, 15))]
    (tmp_path / "cases.yaml").write_text(
        yaml.safe_dump({"rule_files": [str(FILE)], "evaluation_interval": "30s", "tests": tests})
    )
    assert "SUCCESS" in told(promtool, "test", "rules", tmp_path / "cases.yaml")


def cases() -> dict[str, list[bool]]:
    """For each alert, whether each case of it expects it to fire."""
    found: dict[str, list[bool]] = defaultdict(list)
    for test in written()["tests"]:
        for one in test.get("alert_rule_test", ()):
            found[one["alertname"]].append(bool(one["exp_alerts"]))
    return found


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_every_alert_is_shown_silent_and_firing(alert: Alert) -> None:
    assert set(cases()[alert.name]) == {True, False}


@pytest.mark.parametrize("name", [one.name for one in RECORDINGS])
def test_every_recording_is_tested(name: str) -> None:
    used = [alert for alert in alerts() if name in alert.quantity]
    asked = [case["expr"] for test in written()["tests"]
             for case in test.get("promql_expr_test", ())]  # fmt: skip
    later = [one.name for one in RECORDINGS if name in one.expr]
    assert used or name in asked or set(later) & set(asked)


@pytest.mark.parametrize("expr", [one.expr for one in RECORDINGS] + [one.quantity for one in alerts()])
def test_expressions_name_metrics_that_exist(expr: str) -> None:
    """Everything that is no word of the language, no label and no value is a metric of the table, or is recorded."""
    bare = re.sub(r"\{[^}]*\}|by \([^)]*\)|on \([^)]*\)|\[[^\]]*\]", " ", expr)
    words = set(_WORDS.findall(bare)) - _LANGUAGE
    assert words
    assert {word for word in words if metric_of(word) is None} == set()


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", (ROOT / RUNBOOK).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_every_alert_has_a_section_in_the_runbook(alert: Alert) -> None:
    text = sections()[alert.name]
    for part in ("**Means.**", "**Look.**", "**Do.**"):
        assert part in text, f"{alert.name} does not say {part}"
    rule: dict[str, Any] = next(
        rule for group in rules_file()["groups"] for rule in group["rules"] if rule.get("alert") == alert.name
    )
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{alert.name.lower()}"
    for word in re.findall(r"`([a-z_]+)(?:\{[^`]*\})?`", text):
        if not word.startswith(("apiserver_", "etcd_")) and word.endswith(
            ("_total", "_seconds", "_waiting", "_ready", "_leading", "_events", "_refused")
        ):
            assert metric_of(word) is not None, f"{word} is no metric"


def test_the_runbook_names_commands_that_exist() -> None:
    from tenure.cli.main import runs, server

    text = (ROOT / RUNBOOK).read_text()
    found = re.findall(r"(kubectl runs|tenure) ((?:[a-z][a-z-]+ ?)+)", " ".join(text.split()))
    assert len(found) > 25
    for program, words in found:
        group: Any = runs if program == "kubectl runs" else server
        context = click.Context(group)
        for word in words.split():
            if not isinstance(group, click.Group):
                break
            group = group.get_command(context, word)
            assert group is not None, f"{program} {words}"


def test_the_runbook_speaks_of_no_alert_that_is_gone() -> None:
    assert {name for name in sections() if name.startswith("Tenure")} == {alert.name for alert in alerts()}


def test_runbooks_may_be_elsewhere() -> None:
    rules = rules_file("https://wiki.example.com/tenure")["groups"][1]["rules"]
    assert rules[0]["annotations"]["runbook_url"] == "https://wiki.example.com/tenure#tenureabsent"
