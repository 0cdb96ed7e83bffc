"""Dashboards, as data: what each picture shows, and by which expression. ``tools/grafana.py`` writes them for Grafana.

Expressions are written plainly; ``scoped`` narrows each metric in them to the installation that the reader has chosen.
Like the rules they are put, every one, to a real Prometheus that scrapes a live operator, and must have an answer.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from tenure.observe.rules import RECORDINGS
from tenure.observe.table import METRICS

Kind = Literal["timeseries", "stacked", "stat", "name", "bars", "table"]
WINDOW = "$__rate_interval"


class Query(Struct, frozen=True):
    expr: str
    legend: str = ""


class Panel(Struct, frozen=True):
    """One picture. Widths add up to 24 in a row."""

    title: str
    kind: Kind
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 12
    about: str = ""


class Dashboard(Struct, frozen=True):
    name: str
    title: str
    about: str
    """What it is for, in a sentence or two; the guide says the same."""
    panels: tuple[Panel, ...]


def _q(expr: str, legend: str = "") -> Query:
    return Query(expr, legend)


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}[{WINDOW}])) * 3600"


def _quantile(part: str, histogram: str, where: str = "", by: str = "") -> str:
    return f"histogram_quantile({part}, sum by ({f'{by}, ' if by else ''}le) (rate({histogram}_bucket{where}[1h])))"


FLEET = Dashboard("fleet", "Tenure: fleet map", "Which GPUs there are, who is on them, and whether what is free is of "
                  "use: the first look when somebody asks for room.", (
    Panel("GPUs that take work", "stat", (_q("sum by (flavor) (tenure:gpus_capacity:sum)", "{{flavor}}"),), width=6),
    Panel("Held by runs and their spares", "stat", (_q("sum by (flavor) (tenure:gpus_leased:sum)", "{{flavor}}"),),
          width=6),
    Panel("Share that is held", "stat", (_q("max by (flavor) (tenure:gpus_leased:ratio)", "{{flavor}}"),),
          "percentunit", 6),
    Panel("Machines", "stat", (_q("sum by (state) (nodes)", "{{state}}"),), width=6,
          about="Open ones take work, closed ones nothing new, quarantined ones have bad labels or counts."),
    Panel("GPUs by role", "stacked", (_q("sum by (flavor, role) (gpus_leased)", "{{flavor}} {{role}}"),),
          about="Borrowed ones sit on spares, and count there as well."),
    Panel("Capacity and use", "timeseries", (
        _q("sum by (flavor) (tenure:gpus_capacity:sum)", "{{flavor}} capacity"),
        _q("sum by (flavor) (tenure:gpus_leased:sum)", "{{flavor}} held"))),
    Panel("Gangs that fit now, by place and size", "table", (
        _q("sum by (flavor, region, cluster, size) (slots_fit)"),), width=12,
          about="How many gangs of so many GPUs, each within one domain, would find room."),
    Panel("Share of free room that is not scattered", "bars", (
        _q("min by (flavor, size) (tenure:slots_fit:ratio)", "{{flavor}} x{{size}}"),), "percentunit",
          about="1: what is free lies together. Less: it is scattered over domains."),
    Panel("Free GPUs by place", "stacked", (
        _q('sum by (flavor, region, cluster) (slots_fit{size="1"})', "{{flavor}} {{region}}/{{cluster}}"),), width=8),
    Panel("Runs by phase", "stacked", (_q("sum by (phase) (runs)", "{{phase}}"),), width=8),
    Panel("Open leases", "stacked", (_q("sum by (role) (leases_open)", "{{role}}"),), width=8),
))  # fmt: skip

QUEUE = Dashboard("queue", "Tenure: queue and forecasts", "Who waits, for how long, when the next start is planned, "
                  "and how good such plans have been.", (
    Panel("Runs that wait", "stat", (_q("sum(tenure:run_queue_depth:sum)"),), width=6),
    Panel("Longest wait", "stat", (_q("max(tenure:run_queue_age_seconds:max)"),), "s", 6),
    Panel("Starts later than promised, today", "stat", (_q("max(tenure:late_starts:ratio1d)"),), "percentunit", 6),
    Panel("Reservations", "stat", (_q("sum by (state) (reservation_backlog)", "{{state}}"),), width=6),
    Panel("Queue by flavor", "timeseries", (_q("sum by (flavor) (run_queue_depth)", "{{flavor}}"),)),
    Panel("Longest wait by flavor", "timeseries", (_q("max by (flavor) (run_queue_age_seconds)", "{{flavor}}"),), "s"),
    Panel("Time to planned starts", "timeseries", (
        _q("min by (flavor, which) (reservation_countdown_seconds)", "{{flavor}} {{which}}"),), "s",
          about="To the next and to the last planned start; 0 if it is overdue."),
    Panel("Decisions about waiting runs, an hour", "timeseries", (
        _q("sum by (result) (tenure:run_admissions:rate5m) * 3600", "{{result}}"),)),
    Panel("From submission to admission", "timeseries", (
        _q(_quantile("0.5", "run_admission_latency_seconds"), "half of them within"),
        _q("max(tenure:run_admission_latency_seconds:p90_1h)", "nine in ten within")), "s"),
    Panel("Error of forecasts", "timeseries", (
        _q("max(tenure:forecast_error_seconds:p90_1d)", "against the promise"),
        _q(_quantile("0.9", "forecast_error_seconds", '{against="plan"}'), "against the last plan")), "s",
          about="Nine in ten starts were no further away than this."),
    Panel("Starts against their promise, an hour", "stacked", (
        _q(_rate('forecast_error_seconds_count{against="promise"}', "direction"), "{{direction}}"),)),
    Panel("What became of reservations, an hour", "timeseries", (
        _q(_rate("reservation_events_total", "event"), "{{event}}"),)),
))  # fmt: skip

BUDGETS = Dashboard("budgets", "Tenure: budgets and lending", "What each envelope may spend, has spent and has lent, "
                    "and which run out soon: for budget owners and whoever grants them.", (
    Panel("Run out first", "table", (
        _q("bottomk(20, min by (budget, envelope, flavor) (budget_exhausts_seconds))"),), "s",
          about="Time until hours or window end at the present rate; what does not run out is not here."),
    Panel("Over their limit", "table", (
        _q("bottomk(20, min by (budget, envelope, flavor) (budget_gpus_headroom))"),),
          about="GPUs that an envelope may still pay for; negative if a limit was lowered below use."),
    Panel("GPUs paid for", "stacked", (
        _q("topk(20, sum by (budget, envelope) (budget_gpus_used))", "{{budget}}/{{envelope}}"),)),
    Panel("Share of concurrency in use", "bars", (
        _q("topk(20, max by (budget, envelope) (tenure:budget_gpus_used:ratio))", "{{budget}}/{{envelope}}"),),
          "percentunit"),
    Panel("Share of hours used", "bars", (
        _q("topk(20, max by (budget, envelope) (tenure:budget_gpu_hours_used:ratio))", "{{budget}}/{{envelope}}"),),
          "percentunit"),
    Panel("GPU-hours: used, committed, left", "table", (
        _q("sum by (budget, envelope) (budget_gpu_hours_used)", "used"),
        _q("sum by (budget, envelope) (budget_gpu_hours_committed)", "committed"),
        _q("sum by (budget, envelope) (budget_gpu_hours_headroom)", "left"))),
    Panel("Aggregate caps", "table", (
        _q("sum by (budget, cap) (budget_cap_gpus_used)", "GPUs"),
        _q("sum by (budget, cap) (budget_cap_gpus_limit)", "GPUs at most"),
        _q("sum by (budget, cap) (budget_cap_gpu_hours_used)", "hours"),
        _q("sum by (budget, cap) (budget_cap_gpu_hours_limit)", "hours at most"))),
    Panel("Borrowed now", "stacked", (
        _q("sum by (sponsor, owner) (borrowed_gpus_current)", "{{sponsor}} for {{owner}}"),)),
    Panel("GPU-hours lent", "timeseries", (
        _q("topk(20, sum by (budget, envelope) (borrowed_gpu_hours_total))", "{{budget}}/{{envelope}}"),)),
    Panel("Sponsors asked, and in vain, an hour", "timeseries", (
        _q(_rate("borrowing_attempts_total"), "asked"),
        _q(_rate("borrowing_denied_total", "reason"), "{{reason}}"))),
    Panel("Notices about budgets, an hour", "timeseries", (_q(_rate("budget_notices_total", "reason"), "{{reason}}"),)),
))  # fmt: skip

RESOLVER = Dashboard("resolver", "Tenure: resolver audit", "Who had to give way, how often, by which step, and "
                     "whether a draw waits. Each cut is in the ledger too: `kubectl runs verify` checks one.", (
    Panel("Draws that wait for a reveal", "stat", (_q("sum(resolver_draws_waiting)"),), width=6),
    Panel("Draws", "stat", (_q("sum(increase(resolver_draws_total[1d]))"),), width=6, about="In a day."),
    Panel("GPUs cut", "stat", (_q("sum by (kind) (increase(resolver_cut_gpus_total[1d]))", "{{kind}}"),), width=12,
          about="In a day, as applied."),
    Panel("Why the resolver ran, an hour", "timeseries", (_q(_rate("resolver_runs_total", "trigger"), "{{trigger}}"),)),
    Panel("Cuts by step, an hour", "stacked", (_q(_rate("resolver_cuts_total", "kind"), "{{kind}}"),),
          about="In the order in which they are tried: reclaim, overstay, spares, shrink, lottery."),
    Panel("GPUs cut by step, an hour", "stacked", (_q(_rate("resolver_cut_gpus_total", "kind"), "{{kind}}"),)),
    Panel("Leases closed, an hour", "stacked", (_q(_rate("leases_closed_total", "reason"), "{{reason}}"),)),
))  # fmt: skip

SPARES = Dashboard("spares", "Tenure: spares and failures", "What stands by for failures, who uses it meanwhile, "
                   "what has failed, and how elastic runs breathe.", (
    Panel("GPUs of hot spare", "timeseries", (
        _q("sum by (flavor) (spare_gpus_allocated)", "{{flavor}} spare"),
        _q("sum by (flavor) (spare_gpus_active)", "{{flavor}} lent to opportunistic work"))),
    Panel("Pods replaced after a failure, an hour", "timeseries", (
        _q(_rate("spare_swaps_total", "onto"), "onto {{onto}}"),)),
    Panel("Opportunistic runs that gave way, an hour", "timeseries", (_q(_rate("filler_preemptions_total")),)),
    Panel("How runs ended, an hour", "stacked", (_q(_rate("runs_ended_total", "result"), "{{result}}"),)),
    Panel("Why leases were opened, an hour", "stacked", (_q(_rate("leases_opened_total", "reason"), "{{reason}}"),)),
    Panel("Machines that take nothing", "timeseries", (_q('sum by (state) (nodes{state!="open"})', "{{state}}"),)),
    Panel("Width of elastic runs", "timeseries", (
        _q("sum by (flavor, which) (elastic_width_gpus)", "{{flavor}} {{which}}"),)),
    Panel("Steps of elastic runs, an hour", "timeseries", (
        _q(_rate("elastic_grows_total"), "up"),
        _q(_rate("elastic_shrinks_total", "cause"), "down, by {{cause}}"))),
))  # fmt: skip

CONTROLLER = Dashboard("controller", "Tenure: controller health", "Whether the driver or the operators decide, how "
                       "fast, and how they get on with the ledger, the API server and receivers of notifications.", (
    Panel("Ready", "stat", (_q("min by (instance) (controller_ready)", "{{instance}}"),), "bool_yes_no", 6),
    Panel("Leads", "stat", (_q("max by (instance) (controller_leading)", "{{instance}}"),), "bool_yes_no", 6),
    Panel("Version", "name", (_q("max by (instance, version) (tenure_build_info)", "{{version}}"),), width=6),
    Panel("Entry", "stat", (_q("max(ledger_head)"),), width=6),
    Panel("Decisions take", "timeseries", (
        _q(_quantile("0.5", "decision_seconds"), "half of them"),
        _q("max(tenure:decision_seconds:p99_5m)", "99 in 100")), "s"),
    Panel("Commits take", "timeseries", (
        _q(_quantile("0.5", "ledger_commit_seconds"), "half of them"),
        _q("max(tenure:ledger_commit_seconds:p99_5m)", "99 in 100")), "s"),
    Panel("Entries, an hour", "timeseries", (_q(_rate("ledger_entries_total", "instance"), "{{instance}}"),)),
    Panel("Commits that failed, an hour", "timeseries", (_q(_rate("ledger_refusals_total", "why"), "{{why}}"),),
          about="Outrun: another operator was faster, which is no trouble. Refused: nothing is admitted."),
    Panel("Entries are taken in after", "timeseries", (_q("max(tenure:watch_lag_seconds:p99_5m)", "99 in 100"),), "s"),
    Panel("Silence of watches", "timeseries", (_q("max by (kind) (watch_silence_seconds)", "{{kind}}"),), "s"),
    Panel("Objects known", "timeseries", (_q("max by (kind) (watch_objects)", "{{kind}}"),)),
    Panel("Lists, an hour", "timeseries", (_q(_rate("watch_lists_total", "kind"), "{{kind}}"),),
          about="Times that everything had to be read: at the start, and when a watch cannot be resumed."),
    Panel("Writes to the API server, an hour", "timeseries", (_q(_rate("api_writes_total", "result"), "{{result}}"),)),
    Panel("Writes that wait", "timeseries", (_q("max by (instance) (api_writes_waiting)", "{{instance}}"),)),
    Panel("Objects that were not taken in", "timeseries", (_q("max by (kind) (objects_refused)", "{{kind}}"),)),
    Panel("Events left out, an hour", "timeseries", (_q(_rate("kube_events_left_out_total")),)),
    Panel("Notifications that wait, and that were refused", "timeseries", (
        _q("max by (receiver) (notifier_outbox_events)", "{{receiver}} waiting"),
        _q("max by (receiver) (notifier_dead_letters)", "{{receiver}} refused"))),
    Panel("Age of gauges; metrics left out", "timeseries", (
        _q("max(metrics_age_seconds)", "age in seconds"), _q("max(metrics_series_dropped)", "series dropped"),
        _q(_rate("metrics_failures_total"), "failures an hour"))),
))  # fmt: skip

DASHBOARDS: tuple[Dashboard, ...] = (FLEET, QUEUE, BUDGETS, RESOLVER, SPARES, CONTROLLER)

_NAMES = {*METRICS, *(one.name for one in RECORDINGS)}
_WORD = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<where>\{[^}]*\})?")


def metric_of(word: str) -> str | None:
    """The metric or recording that a word of an expression names; None if it is another word.

    >>> metric_of("decision_seconds_bucket"), metric_of("sum")
    ('decision_seconds', None)
    """
    for name in (word, *(word.removesuffix(end) for end in ("_bucket", "_count", "_sum"))):
        if name in _NAMES:
            return name
    return None


def scoped(expr: str, where: str = 'job=~"$job"') -> str:
    """An expression, narrowed to the installation that was chosen.

    >>> scoped('sum by (flavor) (gpus_leased{role="Spare"}) / sum by (flavor) (gpus_capacity)')
    'sum by (flavor) (gpus_leased{job=~"$job",role="Spare"}) / sum by (flavor) (gpus_capacity{job=~"$job"})'
    """

    def narrowed(found: re.Match[str]) -> str:
        if metric_of(found["name"]) is None:
            return found[0]
        rest = (found["where"] or "{}")[1:-1]
        return f"{found['name']}{{{where}{',' if rest else ''}{rest}}}"

    return _WORD.sub(narrowed, expr)
