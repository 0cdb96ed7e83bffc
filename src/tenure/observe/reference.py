"""The reference page of all metrics, made from the table."""

from __future__ import annotations

from tenure.observe.rules import RECORDINGS, alerts
from tenure.observe.table import METRICS, SERIES_MAX, Metric

_SECTIONS = {
    "forecast_error_seconds": "Forecasts and reservations",
    "run_admissions_total": "Runs",
    "leases_open": "Leases and machines",
    "resolver_runs_total": "The resolver and draws",
    "spare_gpus_allocated": "Spares, fill and elastic runs",
    "borrowing_attempts_total": "Borrowing",
    "budget_gpus_used": "Budgets",
    "ledger_entries_total": "The machinery",
    "controller_leading": "The operator and its API server",
}
"""The first metric of each part, and what the part is about."""
_HEAD = """<!-- Written by `make generate` from src/tenure/observe/table.py; edit the table there. -->

# Metrics

What `tenure up FILE --metrics HOST:PORT` and `tenure operator --metrics HOST:PORT` serve at `/metrics`, in the text
format of Prometheus ([guide](../guide/metrics.md)). Names and labels are stable. Counters and histograms begin at 0
when the process starts; gauges are read from the state at each scrape, so that a series is gone when its object is.
Where the values of a label are not listed, they are names from the fleet; what is not known to it (a flavor that no
node and no envelope has) counts as `other`. No metric has more than {most:,} series: where there would be more, the
smallest count as `other` if tenants have a say in their labels, and else the last are left out and counted by
`metrics_series_dropped`.
"""

_RECORDED = """## Recorded

Prometheus computes these when it is given `deploy/alerts/tenure.rules.yaml`."""
_ALERTS = """## Alerts

In the same file. Each has its section in the [runbook](../operate/runbook.md)."""


def metrics_page() -> str:
    lines = _HEAD.format(most=SERIES_MAX).splitlines()
    for name, metric in METRICS.items():
        if name in _SECTIONS:
            lines += ["", f"## {_SECTIONS[name]}", "", "| name | kind | labels | what it is |", "|---|---|---|---|"]
        lines.append(f"| `{name}` | {metric.kind} | {_labels(metric)} | {metric.help} |")
    lines += ["", *_RECORDED.splitlines(), "", "| name | expression |", "|---|---|"]
    lines += [f"| `{one.name}` | `{_cell(one.expr)}` |" for one in RECORDINGS]
    lines += ["", *_ALERTS.splitlines(), "", "| name | severity | fires when | for |", "|---|---|---|---|"]
    for one in alerts():
        link = f"[{one.name}](../operate/runbook.md#{one.anchor})"
        lines.append(f"| {link} | {one.severity} | `{_cell(one.expr)}` | {one.lasting} |")
    return "\n".join(lines) + "\n"


def _cell(expr: str) -> str:
    return expr.replace("|", "\\|")


def _labels(metric: Metric) -> str:
    shown = (f"`{name}`" + (f" ({', '.join(values)})" if values else "") for name, values in metric.labels.items())
    return ", ".join(shown) or "–"
