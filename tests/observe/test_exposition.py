"""Scrapes: the text is what Prometheus reads, and serving can do nothing to who drives."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from time import monotonic
from urllib.request import urlopen

import pytest

from tenure.observe import METRICS, Metrics
from tenure.observe.exposition import Server, text
from tenure.testing import Fleet, budget, nodes, run
from tests.observe.support import parsed, told, value

SECONDS = 120


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet(*nodes("n", 1), budget("a"))
    fleet.start(run("x", 8, owner="org:a"))
    return fleet


@pytest.fixture
def metrics(fleet: Fleet) -> Metrics:
    return told(fleet)


@pytest.fixture
def server(metrics: Metrics) -> Iterator[Server]:
    server = Server(metrics, "127.0.0.1", 0, patience=0.2)
    yield server
    server.close()


def get(server: Server) -> str:
    with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=SECONDS) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def test_the_text_parses_with_the_kind_and_help_of_the_table(metrics: Metrics) -> None:
    families = {family.name: family for family in parsed(text(metrics))}
    assert len(families) >= 40
    for name, family in families.items():
        metric = METRICS.get(name) or METRICS[f"{name}_total"]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)
    assert not any("_created" in name for name in families)


def test_what_people_name_cannot_break_the_text(fleet: Fleet) -> None:
    metrics = Metrics(sources=[lambda: [("notifier_dead_letters", ('a"} 1\n# evil \\',), 3.0)]])
    assert value(parsed(text(metrics)), "notifier_dead_letters", receiver='a"} 1\n# evil \\') == 3


def test_a_scrape_gets_gauges_that_were_read_for_it(fleet: Fleet, metrics: Metrics) -> None:
    server = Server(metrics, "127.0.0.1", 0, patience=SECONDS)  # it waits for whoever reads them, however slow
    answers: list[str] = []
    thread = Thread(target=lambda: answers.append(get(server)))
    fleet.succeed("lab/x")
    thread.start()
    deadline = monotonic() + SECONDS
    while not metrics.wanted and monotonic() < deadline:
        pass
    metrics.collect(fleet.state, now=fleet.now)
    thread.join(SECONDS)
    server.close()
    assert value(parsed(answers[0]), "leases_open", role="Active") == 0
    assert not metrics.wanted


def test_a_driver_that_does_not_answer_costs_the_scrape_a_moment_and_shows_its_age(server: Server) -> None:
    first = value(parsed(get(server)), "metrics_age_seconds")
    found = parsed(get(server))
    assert value(found, "metrics_age_seconds") > first >= 0.2
    assert value(found, "leases_open", role="Active") == 1


def test_a_source_that_fails_is_left_out_and_counted(fleet: Fleet) -> None:
    def broken() -> Iterator[tuple[str, tuple[str, ...], float]]:
        yield "notifier_dead_letters", ("hook",), 1.0
        raise OSError("no such file")

    metrics = Metrics(sources=[broken])
    assert value(parsed(text(metrics)), "metrics_failures_total") == 1
    assert "notifier_dead_letters{" not in text(metrics)


def test_gauges_that_cannot_be_read_free_who_waits_for_them(metrics: Metrics) -> None:
    done = Event()
    thread = Thread(target=lambda: (metrics.ask(patience=SECONDS), done.set()))
    thread.start()
    while not metrics.wanted:
        pass
    with pytest.raises(AttributeError):
        metrics.collect(None, now=0)  # type: ignore[arg-type]  # what a bug might do
    assert done.wait(SECONDS)
    thread.join()


def test_an_address_that_is_taken_is_refused_at_once(metrics: Metrics, server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        Server(metrics, "127.0.0.1", server.port)
