"""Policy: the knobs of SPEC 14, with their defaults.

One file; unknown keys are errors; recorded in the ledger.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tenure.api.meta import Duration, LabelKey, Record, Slack, says

Percent = Annotated[int, Meta(ge=1, le=100)]
Depth = Annotated[int, Meta(ge=1, le=1024)]


class Policy(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Written out whole: a ledger entry must not depend on the defaults of a later release."""

    activation_lead: Annotated[
        Duration,
        says("The notice that others get before cuts; nobody can be drawn before it has run for this long."),
    ] = "15m"
    budget_grace: Annotated[
        Duration,
        says("Notice before hours or a window run out, and the time left after a limit was lowered."),
    ] = "15m"
    on_budget_shortage: Annotated[
        Literal["Resolve", "Coast"],
        says(
            "Resolve: work that is out of money gives way. Coast: it runs on, reported as over budget, and nothing "
            "more is admitted."
        ),
    ] = "Resolve"
    lookahead: Annotated[
        Duration, says("A Run that declares no duration needs budget hours for this long to start.")
    ] = "1h"
    grow_interval: Annotated[Duration, says("A malleable Run grows one step in this time; longer than 0.")] = "1m"
    patience: Annotated[
        Duration,
        says(
            "A Run for which nothing known frees enough within this time of the making of its promise gets a "
            "conservative start: after the notice of `activationLead` others give way. Who declares no end may pass a "
            "promise that is further off than this, and goes first from then on."
        ),
    ] = "24h"
    promise_depth: Annotated[
        Depth,
        says("How many waiting Runs hold a promised start, per flavor and cluster; all others have an estimate."),
    ] = 64
    promise_slack: Annotated[
        Slack,
        says(
            "Per cent of the wait by which a promise may be later than its planned start (`promisedBy`): room for "
            "those who are let past."
        ),
    ] = "0%"
    unready_is_failure: Annotated[
        bool, says("True: a node unready for `unreadyDebounce` has failed, at the risk of two live copies.")
    ] = False
    unready_debounce: Annotated[Duration, says("How long a node must be unready to have failed.")] = "5m"
    notices: Annotated[
        tuple[Percent, ...],
        Meta(max_length=100),
        says(
            "Per cent of the hours of an envelope, of what it lends, or of a cap at which notice goes out, each once."
        ),
    ] = (80, 90, 100)
    retry_backoff: Annotated[
        Duration, says("The wait after a start that failed, doubling with each; longer than 0.")
    ] = "1s"
    retry_backoff_max: Annotated[Duration, says("The longest such wait; not below `retryBackoff`.")] = "10m"
    bind_delay: Annotated[Duration, says("Simulated pods: time from the start of a pod until it is bound.")] = "0s"
    stop_delay: Annotated[Duration, says("Simulated pods: time from the stop of a pod until it is gone.")] = "0s"
    draw_secret: Annotated[str, says("Simulator only: the secret that the custodian's hash chain is made from.")] = ""
    topology_labels: Annotated[
        dict[str, LabelKey],
        Meta(max_length=5),
        says(
            "Node label keys to read instead of the defaults, by what they tell: `region`, `cluster`, "
            "`domain`, `rack`, `flavor`."
        ),
    ] = {}
    gpu_resource: Annotated[LabelKey, says("The resource that counts a node's GPUs.")] = "nvidia.com/gpu"
