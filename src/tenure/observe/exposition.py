"""Metrics as Prometheus reads them, and a small server for them. The only module that imports prometheus-client.

Whatever a scrape meets, it meets in a thread of its own: the worst it can do to who drives the fleet is to ask for the
gauges, which are read once for each scrape.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Exposed
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from tenure.observe.metrics import Family, Metrics

PATIENCE = 2.0
"""Seconds that a scrape waits for fresh gauges. A driver that is alive looks ten times a second."""


class Exposition(Collector):
    """What prometheus-client asks when it is scraped."""

    def __init__(self, metrics: Metrics, *, patience: float = PATIENCE) -> None:
        self._metrics = metrics
        self._patience = patience

    def describe(self) -> list[Exposed]:
        return []  # names are unique by the table; to be asked for all of it at registration would wait for nobody

    def collect(self) -> Iterator[Exposed]:
        if self._patience:
            self._metrics.ask(patience=self._patience)
        for family in self._metrics.families():
            if family.values or family.spreads:
                yield _exposed(family)


def text(metrics: Metrics) -> str:
    """What is known now, in the text format."""
    return generate_latest(_registry(metrics, patience=0)).decode()


class Server:
    """Serves scrapes until it is closed; raises OSError at once if its address cannot be had."""

    def __init__(self, metrics: Metrics, host: str, port: int, *, patience: float = PATIENCE) -> None:
        self._httpd, self._thread = start_http_server(port, host, _registry(metrics, patience=patience))

    @property
    def port(self) -> int:
        return int(self._httpd.server_port)

    def close(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()
        self._thread.join()


def _registry(metrics: Metrics, *, patience: float) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Exposition(metrics, patience=patience))
    return registry


def _exposed(family: Family) -> Exposed:
    metric = family.metric
    labels = tuple(metric.labels)
    if metric.kind == "histogram":
        spread = HistogramMetricFamily(metric.name, metric.help, labels=labels)
        for values, buckets, total in family.spreads:
            spread.add_metric(values, [(_bound(bound), float(count)) for bound, count in buckets], total)
        return spread
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    shown: CounterMetricFamily | GaugeMetricFamily = kind(metric.name, metric.help, labels=labels)
    for values, value in family.values:
        shown.add_metric(values, value)
    return shown


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))
