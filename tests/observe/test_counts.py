"""Counters and histograms: what a fleet did is what they say, each thing once."""

from __future__ import annotations

from tenure.api.policy import Policy
from tenure.audit.checks_limits import LATE
from tenure.engine import dump, load
from tenure.observe import METRICS, Metrics
from tenure.observe.exposition import text
from tenure.testing import Fleet, budget, elastic, envelope, nodes, run
from tenure.units import SECOND, Micros
from tests.observe.support import Exposed, nonzero, parsed, scrape, told, value, values

FAR = Policy(patience="1000h")


def waiting(**policy: str) -> Fleet:
    """``long`` holds the fleet for two hours by its own word, and ``wide`` was promised what follows."""
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=Policy(**{"patience": "1000h", **policy}))  # type: ignore[arg-type]  # keys of the policy
    fleet.start(run("long", 16, owner="org:a", lasts="2h"))
    fleet.apply(run("wide", 16, owner="org:b", lasts="1h"))
    return fleet


# --- forecast error -------------------------------------------------------------------------------------------------


def test_a_start_that_comes_early_is_measured_against_its_promise_and_its_last_plan() -> None:
    fleet = waiting()
    fleet.later("30m")
    fleet.succeed("lab/long")
    assert fleet.state.runs["lab/wide"].life.phase == "Starting"
    seen = scrape(fleet)
    early = {"confidence": "projected", "direction": "early"}
    assert value(seen, "forecast_error_seconds_sum", against="promise", **early) == 90 * 60
    assert value(seen, "forecast_error_seconds_count", against="promise", **early) == 1
    assert sum(values(seen, "forecast_error_seconds_count", against="promise").values()) == 1
    assert sum(values(seen, "forecast_error_seconds_count", against="plan").values()) == 1


def overstayed(by: Micros) -> list[Exposed]:
    """A start that came so much later than promised."""
    fleet = waiting()
    fleet.later("2h")  # long overstays: nobody is cut for a moment
    fleet.now += by
    fleet.succeed("lab/long")
    return scrape(fleet)


def test_a_start_that_is_kept_to_the_minute_is_exact_and_a_late_one_late() -> None:
    """On a real clock each comes a moment late: all were, and the alert of late starts never ended."""
    late = {"against": "promise", "confidence": "projected", "direction": "late"}
    seen = overstayed(by=2 * LATE)
    assert value(seen, "forecast_error_seconds_sum", **late) == 120
    assert value(seen, "forecast_error_seconds_bucket", le="300.0", **late) == 1
    assert value(seen, "forecast_error_seconds_bucket", le="60.0", **late) == 0

    for moment in (100, LATE):
        seen = overstayed(by=moment)
        assert value(seen, "forecast_error_seconds_sum", **{**late, "direction": "exact"}) == moment / SECOND
        assert value(seen, "forecast_error_seconds_count", **late) == 0

    fleet = waiting()
    fleet.later("1h59m")
    fleet.now += 60_000_000
    fleet.report("Succeeded", *(pod.key for pod in fleet.pods("lab/long")), code=0)
    assert value(scrape(fleet), "forecast_error_seconds_count", **{**late, "direction": "exact"}) == 1


def test_a_run_that_never_waited_and_one_that_was_canceled_make_no_error() -> None:
    fleet = waiting()
    fleet.delete("Run", "lab/wide")
    seen = scrape(fleet)
    assert nonzero(seen, "forecast_error_seconds_count") == {}
    assert nonzero(seen, "reservation_events_total") == {("made",): 1, ("canceled",): 1}


def test_the_first_promise_is_measured_by_what_it_rested_on_also_after_a_restart() -> None:
    fleet = waiting(patience="1m")  # nothing is known to end within a minute: cuts are announced
    assert fleet.state.reservations["lab/wide"].confidence == "conservative"
    fleet.later("5m")
    seen = len(fleet.entries)
    metrics = Metrics()
    metrics.begin(load(dump(fleet.state)), head=seen)
    fleet.succeed("lab/long")
    for entry in fleet.entries[seen:]:
        metrics.saw(entry)
    found = parsed(text(metrics))
    early = {"confidence": "conservative", "direction": "early"}
    assert value(found, "forecast_error_seconds_sum", against="promise", **early) == 10 * 60
    assert value(found, "ledger_head") == len(fleet.entries)


# --- admissions, leases, ends ---------------------------------------------------------------------------------------


def test_admissions_count_starts_and_reasons_to_wait_and_latency_is_from_submission_to_the_first() -> None:
    fleet = waiting()
    fleet.later("30m")
    fleet.succeed("lab/long")
    seen = scrape(fleet)
    assert nonzero(seen, "run_admissions_total") == {("success",): 2, ("failure",): 1}
    assert value(seen, "run_admission_latency_seconds_count") == 2
    assert value(seen, "run_admission_latency_seconds_sum") == 30 * 60
    assert nonzero(seen, "leases_opened_total") == {("Start",): 4}
    assert nonzero(seen, "leases_closed_total") == {("Completed",): 2}
    assert nonzero(seen, "runs_ended_total") == {("completed",): 1}
    assert value(seen, "ledger_entries_total") == len(fleet.entries)


def test_a_start_that_is_due_and_hindered_is_no_other_admission_and_no_other_start() -> None:
    """For half a minute `long` may end; then nobody can draw who gives way."""
    fleet = waiting()
    fleet.later("2h1m")
    assert [note.reason for note in fleet.notes("Waiting")] == ["NoCapacity", "EndsLate", "NoCustodian"]
    seen = scrape(fleet)
    assert nonzero(seen, "run_admissions_total") == {("success",): 1, ("failure",): 1}
    assert nonzero(seen, "reservation_events_total") == {("made",): 1}


def test_a_retry_is_an_admission_and_no_second_latency() -> None:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 8, owner="org:a", restarts=1))
    fleet.fail("lab/x")
    fleet.leave("lab/x")
    fleet.later("1m")
    seen = scrape(fleet)
    assert value(seen, "run_admissions_total", result="success") == 2
    assert value(seen, "run_admission_latency_seconds_count") == 1


# --- the resolver, spares, elastic runs -----------------------------------------------------------------------------


def test_a_lottery_counts_what_was_cut_and_leaves_the_seed_out_of_the_label() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"), budget("b"), policy=Policy(patience="1m"), secret="x")
    fleet.start(run("one", 8, owner="org:a"), run("two", 8, owner="org:a"))
    fleet.later("20m")
    fleet.apply(run("wide", 8, owner="org:b"))
    fleet.later("20m")
    for key in ("lab/one", "lab/two"):
        fleet.leave(key)
    assert fleet.phase("lab/wide") != "Gone"
    seen = scrape(fleet)
    assert nonzero(seen, "resolver_runs_total") == {("Activation",): 1}
    assert nonzero(seen, "resolver_cuts_total") == {("Lottery",): 1}
    assert nonzero(seen, "resolver_cut_gpus_total") == {("Lottery",): 8}
    assert value(seen, "resolver_draws_total") == 1
    assert value(seen, "resolver_draws_waiting") == 0
    assert nonzero(seen, "leases_closed_total") == {("RandomPreempt",): 1}


def test_swaps_are_told_apart_by_what_they_were_onto_and_fillers_are_counted_by_run() -> None:
    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8, spares=8))
    fleet.start(run("fill", 8, owner="org:a", opportunistic=True))
    assert fleet.leases("lab/fill")[0].role == "Borrowed"
    fleet.fence("n0")
    seen = scrape(fleet)
    assert nonzero(seen, "spare_swaps_total") == {("spare",): 1}
    assert value(seen, "filler_preemptions_total") == 1

    fleet = Fleet(*nodes("n", 2), budget("a"))
    fleet.start(run("x", 8, owner="org:a", group=8))
    fleet.fence("n0")
    assert nonzero(scrape(fleet), "spare_swaps_total") == {("free",): 1}


def test_steps_of_elastic_runs_are_counted_by_who_wanted_them() -> None:
    fleet = Fleet(*nodes("n", 3), budget("a"))
    fleet.start(run("x", 8, owner="org:a", elastic=elastic(8, 24, 8, desired=24)))
    fleet.later("5m")
    fleet.bind("lab/x")
    fleet.resize("lab/x", 8)
    fleet.leave("lab/x")
    seen = scrape(fleet)
    assert value(seen, "elastic_grows_total") == 2
    assert nonzero(seen, "elastic_shrinks_total") == {("owner",): 1}


# --- borrowing ------------------------------------------------------------------------------------------------------


def test_sponsors_that_are_asked_are_attempts_and_denials_carry_the_most_decisive_reason() -> None:
    lender = budget("b", envelope("main", 8, lends_to=["org:c"]), owner="org:b")
    fleet = Fleet(*nodes("n", 2), lender, budget("c", envelope("main", 1), owner="org:c"))
    fleet.apply(run("own", 1, owner="org:c"))
    assert value(scrape(fleet), "borrowing_attempts_total") == 0
    fleet.apply(run("denied", 8, owner="org:d", sponsors=["org:b"]))
    fleet.apply(run("lent", 4, owner="org:c", sponsors=["org:b"]))
    seen = scrape(fleet)
    assert value(seen, "borrowing_attempts_total") == 2
    assert nonzero(seen, "borrowing_denied_total") == {("ACLDenied",): 1}
    assert nonzero(seen, "borrowed_gpus_current") == {("org:c", "org:b"): 4}


# --- the table ------------------------------------------------------------------------------------------------------


def test_every_metric_of_the_table_is_served_or_says_that_nothing_has_happened_yet() -> None:
    fleet = waiting()
    served = {family.metric.name for family in told(fleet).families()}
    assert served == set(METRICS)
    shown = {family.name for family in scrape(fleet)}
    assert {"forecast_error_seconds", "run_admissions", "leases_open", "borrowing_attempts"} <= shown
