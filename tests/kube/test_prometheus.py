"""A real Prometheus scrapes a live operator with a little life in it, and every expression has an answer.

A run is admitted, one waits for its turn, one grows and gives way to another by shrinking and by lot, one loses its
machine and goes on on its spare, which chases opportunistic work away; somebody borrows and somebody is denied; a limit
is lowered below use. Then whatever stands in a dashboard or a rule is asked, as Grafana and Prometheus would.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenure.api.meta import OWNER_ANNOTATION
from tenure.kube.marks import POLICY_KEY, POLICY_NAME
from tenure.kube.resources import SYSTEM_NAMESPACE
from tenure.ledger import Ledger
from tenure.observe.dashboards import DASHBOARDS, Dashboard
from tenure.observe.rules import RECORDINGS, alerts
from tenure.observe.table import METRICS
from tenure.testing.kube import RUNS_FOR, ControlPlane, Kwok, gpu_node, until
from tenure.testing.kube.process import free_ports
from tests.kube.operating import installed
from tests.kube.test_operator_process import asked, process
from tests.kube.worlds import FLAVOR, GROUP, World, budget, run
from tests.observe.programs import prometheus_programs
from tests.observe.prometheus import Prometheus

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "alerts" / "tenure.rules.yaml"
POLICY = {"activationLead": "3s", "growInterval": "1s", "budgetGrace": "1h"}
HAPPENED = {
    'run_admissions_total{result="success"}': 8,
    'run_admissions_total{result="failure"}': 2,
    'runs_ended_total{result="completed"}': 1,
    'runs_ended_total{result="failed"}': 1,
    'resolver_runs_total{trigger="Activation"}': 1,
    'resolver_cuts_total{kind="Shrink"}': 1,
    'resolver_cuts_total{kind="Lottery"}': 1,
    "resolver_draws_total": 1,
    'leases_closed_total{reason="RandomPreempt"}': 1,
    'spare_swaps_total{onto="spare"}': 1,
    "filler_preemptions_total": 1,
    "elastic_grows_total": 1,
    "borrowing_attempts_total": 2,
    "sum(borrowing_denied_total)": 1,
    "sum(borrowed_gpus_current)": 4,
    "sum(budget_notices_total)": 1,
    'reservation_events_total{event="released"}': 1,
    'sum(forecast_error_seconds_count{against="promise"})': 1,
    "sum(ledger_commit_seconds_count)": 10,
    "sum(watch_lag_seconds_count)": 10,
    'api_writes_total{result="done"}': 20,
    'objects_refused{kind="Budget"}': 1,
}
"""What must have been counted at the least: nothing below is true because nothing has happened."""


class Life:
    """The world after all of that, and who watches it."""

    def __init__(self, plane: ControlPlane, folder: Path, prometheus: Prometheus) -> None:
        self.plane, self.folder, self.prometheus = plane, folder, prometheus

    def value(self, expr: str) -> float:
        return max((value for _, value in self.prometheus.query(expr)), default=-1.0)


@pytest.fixture(scope="module")
def life(programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Two operators, of which one leads; Prometheus scrapes both."""
    prometheus = prometheus_programs()["prometheus"]
    folder = tmp_path_factory.mktemp("life")
    notify = folder / "notify.yaml"
    notify.write_text(json.dumps({"kind": "Notify", "receivers": [{"name": "log", "file": "events.jsonl"}]}))
    ports = free_ports(3)
    targets = [f"127.0.0.1:{port}" for port in ports[:2]]
    with (
        ControlPlane.started(folder, programs) as plane,
        Kwok.started(programs["kwok"], plane.admin, folder),
    ):
        installed(plane, guarded=True)
        furnished(plane)
        leading = ["--probes", f"127.0.0.1:{ports[2]}", "--notify", str(notify)]
        with ExitStack() as running:
            running.enter_context(process(plane, folder / "a", "--elect", "--metrics", targets[0], *leading))
            until(lambda: asked(ports[2], "/readyz") == 200 and "leading" in (folder / "a" / "log").read_text())
            running.enter_context(process(plane, folder / "b", "--elect", "--metrics", targets[1]))
            watching = running.enter_context(Prometheus.started(prometheus, folder, targets=targets, rules=RULES))
            life = Life(plane, folder, watching)
            until(lambda: life.value("sum(gpus_capacity)") == 48 and life.value("count(controller_ready)") == 2)
            lived(plane)
            yield life


def furnished(plane: ControlPlane) -> None:
    """Machines in four domains, two owners with money, one without, and one that lends to nobody here."""
    text = yaml.safe_dump(POLICY)
    plane.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {POLICY_KEY: text},
                     "metadata": {"name": POLICY_NAME, "namespace": SYSTEM_NAMESPACE}}).must()  # fmt: skip
    for domain, count in {"swap": 2, "cut": 2, "queue": 1, "free": 1}.items():
        labels = {"region": "us-west", "cluster": "gpu-a", "fabric.domain": domain, "gpu.flavor": FLAVOR}
        plane.api.create_all([gpu_node(f"{domain}-{index}", 8, labels) for index in range(count)])
    lab = budget("lab", 64, maxGPUHours=1000)
    lab["spec"]["aggregateCaps"] = [
        {"name": "all", "flavor": FLAVOR, "envelopes": ["main"], "maxConcurrency": 64, "maxGPUHours": 2000}
    ]
    plane.api.create(lab).must()
    plane.api.create(budget("rich", 16, lending={"allow": True, "to": ["org:guest"]})).must()
    plane.api.create(budget("poor", 16, lending={"allow": True, "to": ["org:nobody"]})).must()


def within(domain: str, **rest: Any) -> dict[str, Any]:
    return {"locality": {"selector": {"fabric.domain": domain}, **rest}}


def lived(plane: ControlPlane) -> None:
    world = World.made(plane, "lab")
    plane.namespace("guest", **{OWNER_ANNOTATION: "org:guest"})
    guest = World(plane, "guest")

    def borrowing(name: str, sponsor: str) -> None:
        item = run(name, 4, namespace="guest", **within("free"), funding={"allowBorrow": True, "sponsors": [sponsor]})
        item["spec"]["owner"] = "org:guest"
        plane.api.create(item).must()

    borrowing("borrower", "org:rich")
    guest.is_phase("borrower", "Running")
    borrowing("denied", "org:poor")
    plane.api.patch(f"{GROUP}/budgets/rich", _limit(2)).must()
    world.submit("done", 2, **within("free"), notes={RUNS_FOR: "1s"})
    world.submit("bad", 2, **within("free"))
    world.is_phase("bad", "Running")
    world.note(world.pods("bad")[0]["metadata"]["name"], exit_code="1")
    plane.api.create(budget("odd", 8) | {"spec": {**budget("odd", 8)["spec"], "parents": ["org:even"]}}).must()
    until(lambda: plane.api.get(f"{GROUP}/budgets/odd").must().get("status"))
    plane.api.create(
        budget("even", 8) | {"spec": {**budget("even", 8)["spec"], "parents": ["org:odd"]}}
    ).must()  # a cycle

    world.submit("long", 8, **within("queue"), runtime={"expectedDuration": "1h"})
    world.is_phase("long", "Running")
    world.submit("waiter", 8, **within("queue"), runtime={"expectedDuration": "1h"})

    world.submit("guarded", 8, **within("swap", groupGPUs=8), sparesPerGroup=8)
    world.is_phase("guarded", "Running")
    world.submit("filler", 8, **within("swap"), opportunistic=True)
    world.is_phase("filler", "Running")
    (pod,) = world.pods("guarded")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    plane.api.patch(f"/api/v1/nodes/{pod['spec']['nodeName']}", {"spec": {"taints": [taint]}}).must()
    until(lambda: {one["spec"]["slice"]["role"] for one in world.open_leases("guarded")} == {"Active"})

    step = {"minTotalGPUs": 8, "maxTotalGPUs": 16, "stepGPUs": 8}
    world.submit("elastic", 8, **within("cut", groupGPUs=8), malleable=step)
    until(lambda: len(world.open_leases("elastic")) == 2)
    world.submit("urgent", 16, **within("cut"))
    world.is_phase("urgent", "Running")
    for name, phase in (("done", "Completed"), ("bad", "Failed"), ("elastic", "Failed")):
        world.is_phase(name, phase)


def _limit(gpus: int) -> dict[str, Any]:
    envelope = budget("rich", gpus, lending={"allow": True, "to": ["org:guest"]})["spec"]["envelopes"][0]
    return {"spec": {"envelopes": [envelope]}}


def answered(life: Life, exprs: dict[str, str]) -> None:
    """Ask everything until it has an answer; what never has one is named."""
    left = dict(exprs)

    def ask() -> bool:
        for name, expr in list(left.items()):
            if life.prometheus.query(expr):
                del left[name]
        return not left

    with suppress(TimeoutError):
        until(ask)
    assert not left, "no answer:\n" + "\n".join(f"{name}: {expr}" for name, expr in left.items())


def test_all_of_it_has_happened(life: Life) -> None:
    answered(life, {expr: f"{expr} >= {least}" for expr, least in HAPPENED.items()})


def test_every_metric_of_the_table_is_served_by_an_operator(life: Life) -> None:
    ends = {"histogram": "_count", "counter": "", "gauge": ""}
    answered(life, {name: f"{name}{ends[metric.kind]}" for name, metric in METRICS.items()})


@pytest.mark.parametrize("one", DASHBOARDS, ids=lambda one: one.name)
def test_every_expression_of_a_dashboard_has_an_answer(life: Life, one: Dashboard) -> None:
    shown = json.loads((ROOT / "deploy" / "dashboards" / f"{one.name}.json").read_text())
    targets = [(panel["title"], target) for panel in shown["panels"] for target in panel["targets"]]
    asked = {
        f"{title} {target['refId']}": target["expr"].replace("$job", ".+").replace("$__rate_interval", "5m")
        for title, target in targets
    }
    assert len(asked) == sum(len(panel.queries) for panel in one.panels)
    assert "$" not in "".join(asked.values())
    answered(life, asked)


def test_what_two_operators_show_adds_up_to_one_fleet(life: Life) -> None:
    """Only the leader shows the state; the other shows that it stands by."""

    def shown() -> tuple[list[float], list[float], float, float]:
        return (
            sorted(value for _, value in life.prometheus.query("controller_leading")),
            [value for _, value in life.prometheus.query("sum by (instance) (controller_ready)")],
            life.value("sum(gpus_capacity)"),  # 48 less the machine that was fenced
            life.value("count(sum by (instance) (leases_open))"),
        )

    with suppress(TimeoutError):  # a scrape that a busy machine did not answer in a second takes everything away
        until(lambda: shown() == ([0, 1], [1, 1], 40, 1))
    assert shown() == ([0, 1], [1, 1], 40, 1)


def test_the_choice_of_an_installation_has_something_to_choose(life: Life) -> None:
    assert {labels["job"] for labels, _ in until(lambda: life.prometheus.query("controller_ready"))} == {"tenure"}


def test_every_recording_rule_has_recorded_something(life: Life) -> None:
    answered(life, {one.name: one.name for one in RECORDINGS})


def test_the_quantity_of_every_alert_has_a_value(life: Life) -> None:
    answered(life, {one.name: one.quantity for one in alerts()})


def test_what_is_misspelt_has_no_answer(life: Life) -> None:
    """Nothing above is true whatever is asked."""
    assert not life.prometheus.query("sum(run_admission_total)")
    assert not life.prometheus.query('gpus_leased{role="Idle"}')


def test_prometheus_evaluates_every_rule_and_nothing_critical_is_wrong(life: Life) -> None:
    until(lambda: all(rule["health"] == "ok" for rule in life.prometheus.rules()))
    assert len(life.prometheus.rules()) == len(RECORDINGS) + len(alerts())

    def shown(which: str = "") -> set[str]:
        return {labels["alertname"] for labels, _ in life.prometheus.query(f"ALERTS{which}")}

    with suppress(TimeoutError):  # one that is only about to fire, since a scrape came late, goes again
        until(lambda: not shown('{severity="critical"}'))
    assert shown('{severity="critical"}') == set()
    until(lambda: "TenureOverBudget" in shown())  # the limit that was lowered below use


def test_what_happened_is_told_as_events_of_the_cluster(life: Life) -> None:
    """Admissions, reservations, cuts, swaps and completions, each about its run."""

    def events() -> list[dict[str, Any]]:
        found = life.plane.api.get("/apis/events.k8s.io/v1/events").must()["items"]
        return [one for one in found if one["reportingController"].startswith("rq.davidlangworthy.io")]

    def told() -> set[tuple[str, str]]:
        names = ((one["reason"], one["regarding"]) for one in events())
        return {(kind, about["name"].rpartition("-")[0] if about["kind"] == "Reservation" else about["name"])
                for kind, about in names}  # fmt: skip

    wanted = {
        ("Admitted", "borrower"), ("Started", "borrower"), ("Completed", "done"), ("Failed", "bad"),
        ("Reserved", "waiter"), ("Reserved", "urgent"), ("Activated", "urgent"), ("Released", "urgent"),
        ("Draw", "urgent"), ("Cut", "elastic"), ("Shrunk", "elastic"), ("Grown", "elastic"), ("Swapped", "guarded"),
        ("Stopping", "filler"), ("Blocked", "denied"), ("BudgetNotice", "rich"), ("Rejected", "even"),
    }  # fmt: skip
    with suppress(TimeoutError):
        until(lambda: wanted <= told())
    assert wanted - told() == set()
    drawn = next(one["regarding"] for one in events() if one["reason"] == "Draw")
    shown = life.plane.kubectl("describe", "reservation", drawn["name"], "-n", "lab").stdout
    assert "DrawFrozen" in shown or "Draw " in shown, "an Event without the uid of its object is not found by it"
    assert "Swapped" in life.plane.kubectl("describe", "run", "guarded", "-n", "lab").stdout


def test_the_log_is_json_and_tells_every_entry_with_its_hash(life: Life) -> None:
    log = life.folder / "a" / "log"
    whole = log.read_text().rpartition("\n")[0]  # the last line may be being written
    records = [json.loads(line) for line in whole.splitlines()]
    hashes = {one["entry"]: one["hash"] for one in records if "entry" in one}
    with Ledger.open(life.folder / "a" / "journal" / "journal.db", readonly=True) as ledger:
        links = {link.entry.seq: link.hash for link in ledger.links()}
    assert hashes.items() <= links.items()
    assert sorted(hashes) == list(range(min(hashes), max(hashes) + 1)), "no gap"
    told = {(one["event"], one.get("run")) for one in records}
    assert {("Admitted", "lab/urgent"), ("Swapped", "lab/guarded"), ("Cut", "lab/elastic")} <= told
    (resolved,) = [one for one in records if one["event"] == "Resolved"]
    assert {cut["kind"] for cut in resolved["cuts"]} == {"Shrink", "Lottery"}
    assert re.fullmatch("[0-9a-f]{64}", resolved["draw"]["seed"])


def test_receivers_are_told_from_the_journal(life: Life) -> None:
    file = life.folder / "events.jsonl"
    until(lambda: file.exists() and any("urgent" in line for line in file.read_text().splitlines()))
