"""Prometheus rules, as data: what is worth recording, and what is worth waking somebody for.

An alert is a quantity and a limit. The quantity alone has a value while Tenure runs (a test asks a real Prometheus
for each), so an alert that is silent is silent because all is well, and not because its expression is misspelt. Each
has a section in docs/operate/runbook.md that says what it means, where to look and what to do.

Everything is kept apart by ``job``: one Prometheus may watch several installations.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

RUNBOOK = "docs/operate/runbook.md"
"""Where alerts point; ``rules_file`` may be given another place, such as a web site of yours."""

Severity = Literal["critical", "warning", "info"]


class Recording(Struct, frozen=True):
    """An expression that is computed once and used often."""

    name: str
    expr: str


class Alert(Struct, frozen=True):
    """Fires when ``quantity`` has been beyond ``limit`` for as long as ``lasting``."""

    name: str
    quantity: str
    limit: str
    """A comparison, such as ``> 0``."""
    lasting: str
    severity: Severity
    summary: str
    """For people; ``{{ $labels.x }}`` and ``{{ $value }}`` are filled in."""

    @property
    def expr(self) -> str:
        return f"{self.quantity} {self.limit}"

    @property
    def anchor(self) -> str:
        return self.name.lower()


def _quantile(part: str, histogram: str, window: str, by: str = "job", where: str = "") -> str:
    return f"histogram_quantile({part}, sum by ({by}, le) (rate({histogram}_bucket{where}[{window}])))"


def _lately(metric: str, *by: str) -> str:
    """The worst of the last three minutes: whoever hangs is killed by the kubelet after two, and may hang again."""
    return f"max by ({', '.join(('job', 'instance', *by))}) (max_over_time({metric}[3m]))"


_HERE = "count by (job) (controller_ready)"
_SEEN = "count by (job) (count_over_time(controller_ready[1d]))"
_STARTS = 'forecast_error_seconds_count{against="promise"}'
_LATE = 'forecast_error_seconds_count{against="promise",direction="late"}'

RECORDINGS: tuple[Recording, ...] = (
    Recording("tenure:gpus_capacity:sum", "sum by (job, flavor) (gpus_capacity)"),
    Recording("tenure:gpus_leased:sum", 'sum by (job, flavor) (gpus_leased{role=~"Active|Spare"})'),
    Recording("tenure:gpus_leased:ratio", "tenure:gpus_leased:sum / (tenure:gpus_capacity:sum > 0)"),
    Recording("tenure:slots_fit:ratio",
              "sum by (job, flavor, size) (slots_fit) / (sum by (job, flavor, size) (slots_ideal) > 0)"),
    Recording("tenure:run_queue_depth:sum", "sum by (job) (run_queue_depth)"),
    Recording("tenure:run_queue_age_seconds:max", "max by (job) (run_queue_age_seconds)"),
    Recording("tenure:run_admissions:rate5m", "sum by (job, result) (rate(run_admissions_total[5m]))"),
    Recording("tenure:run_admission_latency_seconds:p90_1h", _quantile("0.9", "run_admission_latency_seconds", "1h")),
    Recording("tenure:late_starts:ratio1d",
              f"sum by (job) (increase({_LATE}[1d])) / clamp_min(sum by (job) (increase({_STARTS}[1d])), 1)"),
    Recording("tenure:forecast_error_seconds:p90_1d",
              _quantile("0.9", "forecast_error_seconds", "1d", where='{against="promise"}')),
    Recording("tenure:budget_gpu_hours_used:ratio", "budget_gpu_hours_used / (budget_gpu_hours_limit > 0)"),
    Recording("tenure:budget_gpus_used:ratio", "budget_gpus_used / (budget_gpus_limit > 0)"),
    Recording("tenure:ledger_commit_seconds:p99_5m", _quantile("0.99", "ledger_commit_seconds", "5m")),
    Recording("tenure:decision_seconds:p99_5m", _quantile("0.99", "decision_seconds", "5m")),
    Recording("tenure:watch_lag_seconds:p99_5m", _quantile("0.99", "watch_lag_seconds", "5m")),
)  # fmt: skip

ALERTS: dict[str, tuple[Alert, ...]] = {
    "tenure.controller": (
        Alert("TenureAbsent", f"({_HERE} or 0 * {_SEEN} or 0 * absent_over_time(controller_ready[1d]))", "< 1", "5m",
              "critical",
              "No driver and no operator of Tenure is scraped{{ with $labels.job }} as {{ . }}{{ end }}: nothing is "
              "admitted, and what runs goes on."),
        Alert("TenureNotReady", "min by (job, instance) (controller_ready)", "< 1", "5m", "critical",
              "{{ $labels.instance }} cannot decide: something was not read, or its ledger cannot be written."),
        Alert("TenureNoLeader", "max by (job) (controller_leading)", "< 1", "2m", "critical",
              "Operators of {{ $labels.job }} run, and none leads: nothing is admitted."),
        Alert("TenureStuck", _lately("metrics_age_seconds"), "> 60", "5m", "critical",
              "{{ $labels.instance }} has not answered for {{ $value | humanizeDuration }}, perhaps again and again: "
              "its loop stands still."),
        Alert("TenureLedgerRefuses", 'sum by (job) (increase(ledger_refusals_total{why="refused"}[5m]))', "> 0", "2m",
              "critical", "The ledger of {{ $labels.job }} refuses to be written: nothing is admitted."),
        Alert("TenureWatchSilent", _lately("watch_silence_seconds", "kind"), "> 75", "5m", "warning",
              "{{ $labels.instance }} has heard nothing about {{ $labels.kind }} for "
              "{{ $value | humanizeDuration }}."),
        Alert("TenureCommitsSlow", "tenure:ledger_commit_seconds:p99_5m", "> 1", "10m", "warning",
              "One commit in a hundred takes {{ $value | humanizeDuration }} or more."),
        Alert("TenureDecisionsSlow", "tenure:decision_seconds:p99_5m", "> 5", "10m", "warning",
              "One decision in a hundred takes {{ $value | humanizeDuration }} or more."),
        Alert("TenureWatchLags", "tenure:watch_lag_seconds:p99_5m", "> 10", "10m", "warning",
              "Entries are taken in {{ $value | humanizeDuration }} after they were decided."),
        Alert("TenureWritesWait", "max by (job, instance) (api_writes_waiting)", "> 1000", "10m", "warning",
              "{{ $value }} writes wait for the API server: pods and statuses come late."),
        Alert("TenureWritesRefused", 'sum by (job) (increase(api_writes_total{result="refused"}[15m]))', "> 0", "15m",
              "warning", "The API server refuses writes of {{ $labels.job }}: its role or a policy has changed."),
        Alert("TenureNotifierBehind", "max by (job, receiver) (notifier_delay_seconds)", "> 900", "15m", "warning",
              "{{ $labels.receiver }} has not taken an event of {{ $value | humanizeDuration }} ago."),
        Alert("TenureDeadLetters", "max by (job, receiver) (notifier_dead_letters)", "> 0", "5m", "warning",
              "{{ $labels.receiver }} has refused {{ $value }} events for good."),
        Alert("TenureMetricsIncomplete",
              "max by (job) (metrics_series_dropped) + on (job) sum by (job) (increase(metrics_failures_total[15m]))",
              "> 0", "15m", "info",
              "Some metrics of {{ $labels.job }} are left out: dashboards show less than there is."),
    ),
    "tenure.fleet": (
        Alert("TenureQueueOld", "tenure:run_queue_age_seconds:max", "> 2 * 86400", "1h", "warning",
              "A run has waited for {{ $value | humanizeDuration }}."),
        Alert("TenureReservationOverdue", 'min by (job, flavor) (reservation_countdown_seconds{which="next"})', "<= 0",
              "15m", "warning", "A planned start on {{ $labels.flavor }} has passed, and its run has not started."),
        Alert("TenureStartsLate", "tenure:late_starts:ratio1d", "> 0.2", "1h", "warning",
              "{{ $value | humanizePercentage }} of today's starts were later than promised."),
        Alert("TenureDrawWaits", "max by (job) (resolver_draws_waiting)", "> 0", "10m", "warning",
              "A draw waits for a custodian's reveal: the run it is for does not start."),
        Alert("TenureNodesQuarantined", 'sum by (job) (nodes{state="quarantined"})', "> 0", "15m", "warning",
              "{{ $value }} machines take no work because of their labels or their count of GPUs."),
        Alert("TenureMachinesFail", "sum by (job) (increase(spare_swaps_total[1h]))", "> 10", "0m", "warning",
              "{{ $value | humanize }} pods lost their machine within an hour and were replaced."),
        Alert("TenureObjectsRefused", "sum by (job, kind) (objects_refused)", "> 0", "1h", "info",
              "{{ $value }} objects of kind {{ $labels.kind }} make no sense as they are, and are not taken in."),
    ),
    "tenure.budgets": (
        Alert("TenureBudgetExhausts", "min by (job, budget, envelope, flavor) (budget_exhausts_seconds)", "< 86400",
              "5m", "info",
              "{{ $labels.budget }}/{{ $labels.envelope }} runs out in {{ $value | humanizeDuration }}."),
        Alert("TenureOverBudget", "min by (job, budget, envelope, flavor) (budget_gpus_headroom)", "< 0", "30m",
              "warning", "{{ $labels.budget }}/{{ $labels.envelope }} pays for more GPUs than it may."),
    ),
}  # fmt: skip


def alerts() -> list[Alert]:
    return [one for group in ALERTS.values() for one in group]


def rules_file(runbook: str = RUNBOOK) -> dict[str, Any]:
    """All rules as Prometheus reads them."""
    recording = [{"record": one.name, "expr": one.expr} for one in RECORDINGS]
    groups = [{"name": "tenure.recording", "rules": recording}]
    groups += [{"name": name, "rules": [_alert(one, runbook) for one in group]} for name, group in ALERTS.items()]
    return {"groups": groups}


def _alert(one: Alert, runbook: str) -> dict[str, Any]:
    return {
        "alert": one.name,
        "expr": one.expr,
        "for": one.lasting,
        "labels": {"severity": one.severity},
        "annotations": {"summary": one.summary, "runbook_url": f"{runbook}#{one.anchor}"},
    }
