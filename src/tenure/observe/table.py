"""Every metric, once: its name, kind, labels and help. What is served and what is documented both come from here.

Names are a promise: dashboards and alerts are written against them. No label holds what a tenant may invent at will:
values are words of this table, or names of flavors, budgets, envelopes, caps, sponsors and receivers that an
administrator has set up (``gauges`` folds what is beyond that into ``other``).
"""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

from msgspec import Struct

from tenure.api.lease import OpenReason, Role
from tenure.facts import CutKind, Trigger

Kind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]

OTHER = "other"
"""The value of a label for everything that has no series of its own."""
SERIES_MAX = 1000
"""Series of one metric. Where a tenant has a say in labels the smallest are added up as ``other``; where only
administrators have, the last are left out, and ``metrics_series_dropped`` says so."""
AWAY: tuple[float, ...] = (1, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400, 259200)
"""Seconds, from what nobody notices to days."""
QUICK: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
"""Seconds, of what a machine does."""

CONFIDENCES = ("projected", "window-aligned", "conservative")
CLOSURES = (
    "Completed", "Fail", "NodeFailure", "Swap", "Shrink", "DropSpare", "Overstay", "RandomPreempt", "ReclaimedBySpare",
    "Refund", "Canceled",
)  # fmt: skip
PHASES = ("Pending", "Starting", "Running", "Stopping", "Completed", "Failed")
_ENVELOPE: dict[str, Labels] = {"budget": (), "envelope": (), "flavor": ()}
_CAP: dict[str, Labels] = {"budget": (), "cap": (), "flavor": ()}
_SLOT: dict[str, Labels] = {"flavor": (), "region": (), "cluster": (), "size": ()}


class Metric(Struct, frozen=True):
    """``labels`` gives each label the values it may have; none are listed where they are names from the fleet."""

    name: str
    kind: Kind
    help: str
    labels: dict[str, Labels] = {}
    buckets: tuple[float, ...] = ()
    read: bool = False
    """A counter that is kept elsewhere and read when a scrape comes."""
    cluster: bool = False
    """Only an operator has it: it is about talking to an API server."""

    def all_series(self) -> list[Labels]:
        """Every combination of labels, if they are known in advance: such series are there from the first scrape."""
        return list(product(*self.labels.values())) if all(self.labels.values()) else []


METRICS: dict[str, Metric] = {metric.name: metric for metric in (
    # Forecasts and reservations (SPEC 7).
    Metric("forecast_error_seconds", "histogram", "How far the real start of a run was from the one it had: "
           "against its first promise, or against its last plan; exact is less than a minute off.",
           {"against": ("promise", "plan"), "confidence": CONFIDENCES, "direction": ("early", "exact", "late")}, AWAY),
    Metric("reservation_backlog", "gauge", "Reservations that are neither Released nor Canceled.",
           {"state": ("Pending", "Blocked", "Active")}),
    Metric("reservation_countdown_seconds", "gauge", "Time until the next and the last of the planned starts; 0 if it "
           "is overdue, absent if none is planned.", {"flavor": (), "which": ("next", "last")}),
    Metric("reservation_events_total", "counter", "What became of reservations.",
           {"event": ("made", "earlier", "later", "blocked", "activated", "released", "canceled")}),
    # Runs.
    Metric("run_admissions_total", "counter", "Decisions about waiting runs: it got its GPUs and its payers, or it "
           "waits for a reason that is new.", {"result": ("success", "failure")}),
    Metric("run_admission_latency_seconds", "histogram", "From the submission of a run to its first admission.",
           {}, AWAY),
    Metric("run_queue_depth", "gauge", "Runs that wait.", {"flavor": ()}),
    Metric("run_queue_age_seconds", "gauge", "How long the oldest of them has waited.", {"flavor": ()}),
    Metric("runs", "gauge", "Runs by where they are in their life.", {"phase": PHASES}),
    Metric("runs_ended_total", "counter", "Runs that ended.", {"result": ("completed", "failed", "deleted")}),
    # Leases and machines.
    Metric("leases_open", "gauge", "Open leases.", {"role": get_args(Role)}),
    Metric("leases_opened_total", "counter", "Leases that were opened.", {"reason": get_args(OpenReason)}),
    Metric("leases_closed_total", "counter", "Leases that were closed; a draw's seed is left out of the reason.",
           {"reason": CLOSURES}),
    Metric("gpus_leased", "gauge", "GPUs in open leases. Borrowed ones sit on spares, and count there as well.",
           {"flavor": (), "role": get_args(Role)}),
    Metric("gpus_capacity", "gauge", "GPUs of nodes that take work.", {"flavor": ()}),
    Metric("nodes", "gauge", "Nodes: that take work, that take nothing new, and with bad labels or counts.",
           {"state": ("open", "closed", "quarantined")}),
    Metric("slots_fit", "gauge", "Gangs of this many GPUs, each within one domain, that fit now.", _SLOT),
    Metric("slots_ideal", "gauge", "Those that would fit if the free GPUs of a domain were not scattered.", _SLOT),
    # The resolver and draws (SPEC 8).
    Metric("resolver_runs_total", "counter", "Times that the resolver decided who gives way.",
           {"trigger": get_args(Trigger)}),
    Metric("resolver_cuts_total", "counter", "What gave way, as applied.", {"kind": get_args(CutKind)}),
    Metric("resolver_cut_gpus_total", "counter", "GPUs of what gave way.", {"kind": get_args(CutKind)}),
    Metric("resolver_draws_total", "counter", "Draws that were decided."),
    Metric("resolver_draws_waiting", "gauge", "Draws that are frozen and wait for their custodians' reveals."),
    # Spares, fill, elastic runs (SPEC 9, 10).
    Metric("spare_gpus_allocated", "gauge", "GPUs of hot spare.", {"flavor": ()}),
    Metric("spare_gpus_active", "gauge", "Of those, GPUs on which opportunistic work runs.", {"flavor": ()}),
    Metric("spare_swaps_total", "counter", "Pods lost with their node whose rank others took over: on spares of the "
           "group, or on free GPUs.", {"onto": ("spare", "free")}),
    Metric("filler_preemptions_total", "counter", "Opportunistic runs that gave way because a spare was needed."),
    Metric("elastic_grows_total", "counter", "Steps up of elastic runs."),
    Metric("elastic_shrinks_total", "counter", "Steps down of elastic runs, and who wanted them.",
           {"cause": ("owner", "failure", "resolver")}),
    Metric("elastic_width_gpus", "gauge", "Width of all running elastic runs together: the least they may have, what "
           "they have, what they want.", {"flavor": (), "which": ("min", "allocated", "desired")}),
    # Borrowing (SPEC 4).
    Metric("borrowing_attempts_total", "counter", "Decisions about a run in which sponsors were asked."),
    Metric("borrowing_denied_total", "counter", "Of those, the ones in which no sponsor gave anything to a run that "
           "has to wait.", {"reason": ()}),
    Metric("borrowed_gpus_current", "gauge", "GPUs of open leases that a sponsor pays for another owner.",
           {"sponsor": (), "owner": ()}),
    Metric("borrowed_gpu_hours_total", "counter", "GPU-hours that an envelope has lent, in the window in force.",
           _ENVELOPE, read=True),
    # Budgets (SPEC 3).
    Metric("budget_gpus_used", "gauge", "GPUs that an envelope pays for.", _ENVELOPE),
    Metric("budget_gpus_limit", "gauge", "GPUs that it may pay for at one instant.", _ENVELOPE),
    Metric("budget_gpus_headroom", "gauge", "The difference; negative if a limit was lowered below use.", _ENVELOPE),
    Metric("budget_gpu_hours_used", "gauge", "GPU-hours used in the window in force.", _ENVELOPE),
    Metric("budget_gpu_hours_committed", "gauge", "GPU-hours that running claims with a declared end may still use.",
           _ENVELOPE),
    Metric("budget_gpu_hours_limit", "gauge", "GPU-hours of the window; absent if they are not limited.", _ENVELOPE),
    Metric("budget_gpu_hours_headroom", "gauge", "Limit less used and committed, and never less than 0; absent if "
           "they are not limited.", _ENVELOPE),
    Metric("budget_exhausts_seconds", "gauge", "Time until its hours or its window run out at the present rate; absent "
           "if they do not, or if nothing runs.", _ENVELOPE),
    Metric("budget_notices_total", "counter", "Notices about budgets.", {"reason": ()}),
    Metric("budget_cap_gpus_used", "gauge", "GPUs that the envelopes of an aggregate cap pay for.", _CAP),
    Metric("budget_cap_gpus_limit", "gauge", "GPUs that they may pay for together; absent if not limited.", _CAP),
    Metric("budget_cap_gpu_hours_used", "gauge", "GPU-hours that they have used.", _CAP),
    Metric("budget_cap_gpu_hours_limit", "gauge", "GPU-hours that they may use; absent if not limited.", _CAP),
    # The machinery.
    Metric("ledger_entries_total", "counter", "Entries taken in, whoever wrote them."),
    Metric("ledger_head", "gauge", "The number of the last entry that was taken in."),
    Metric("ledger_commit_seconds", "histogram", "Time that it took to make a decision durable.", {}, QUICK),
    Metric("decision_seconds", "histogram", "Time from the begin of a transaction to its commit: what deciding took.",
           {}, QUICK),
    Metric("watch_lag_seconds", "histogram", "From the instant at which an entry was decided to when the driver took "
           "it in.", {}, QUICK),
    Metric("ledger_refusals_total", "counter", "Decisions that could not be committed: another operator was faster "
           "(outrun), which is no trouble, or the ledger refused.", {"why": ("outrun", "refused")}),
    Metric("notifier_outbox_events", "gauge", "Events that a receiver has not been offered yet, up to 10,000.",
           {"receiver": ()}),
    Metric("notifier_delay_seconds", "gauge", "How long ago the oldest event was decided that a receiver has not taken;"
           " 0 if it has taken all.", {"receiver": ()}),
    Metric("notifier_dead_letters", "gauge", "Events that a receiver refused for good.", {"receiver": ()}),
    Metric("controller_ready", "gauge", "1 if everything was read and the ledger can be written; else 0: nothing is "
           "admitted, and what runs goes on."),
    Metric("metrics_age_seconds", "gauge", "How long ago the gauges were read: a driver that is stuck answers late."),
    Metric("metrics_failures_total", "counter", "Times that a part of the metrics could not be read and was left out."),
    Metric("metrics_series_dropped", "gauge", f"Series that are left out because their metric has more than "
           f"{SERIES_MAX:,}."),
    Metric("tenure_build_info", "gauge", "Always 1; its label says what runs.", {"version": ()}),
    # Talking to an API server.
    Metric("controller_leading", "gauge", "1 for the operator that decides. The others show none of the gauges that "
           "are read from the state.", cluster=True),
    Metric("watch_silence_seconds", "gauge", "How long the API server has told nothing about objects of a kind, not "
           "even that there is nothing to tell.", {"kind": ()}, cluster=True),
    Metric("watch_objects", "gauge", "Objects of a kind that are known and kept.", {"kind": ()}, cluster=True),
    Metric("watch_lists_total", "counter", "Times that all objects of a kind had to be read.", {"kind": ()}, read=True,
           cluster=True),
    Metric("api_writes_total", "counter", "Writes to the API server, ledger entries apart, that succeeded, or were "
           "refused for good.", {"result": ("done", "refused")}, read=True, cluster=True),
    Metric("api_writes_waiting", "gauge", "Writes that wait for their turn or to be tried again.", cluster=True),
    Metric("objects_refused", "gauge", "Objects that were not taken in because they make no sense as they are; each "
           "says why in its status.", {"kind": ()}, cluster=True),
    Metric("kube_events_left_out_total", "counter", "Events for which there was no room; the ledger has them all.",
           read=True, cluster=True),
)}  # fmt: skip
