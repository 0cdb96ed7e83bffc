"""A fleet whose entries are counted, and metrics read as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric as Exposed
from prometheus_client.parser import text_string_to_metric_families

from tenure.observe import Metrics
from tenure.observe.exposition import text
from tenure.testing import Fleet


def told(fleet: Fleet) -> Metrics:
    """Metrics that were told all entries of a fleet, and shown its state as it is now."""
    metrics = Metrics()
    for entry in fleet.entries:
        metrics.saw(entry)
    metrics.collect(fleet.state, now=fleet.now)
    return metrics


def parsed(exposition: str) -> list[Exposed]:
    return list(text_string_to_metric_families(exposition))


def values(families: Iterable[Exposed], name: str, **labels: str) -> dict[tuple[str, ...], float]:
    """The samples of one name that have these labels, by the values of their other labels."""
    return {
        tuple(value for key, value in sorted(sample.labels.items()) if key not in labels): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    }


def scrape(fleet: Fleet) -> list[Exposed]:
    return parsed(text(told(fleet)))


def value(families: Iterable[Exposed], name: str, **labels: str) -> float:
    """The one sample of a name with exactly these labels."""
    found = values(families, name, **labels)
    assert list(found) == [()], f"{name} {labels}: {found}"
    return found[()]


def nonzero(families: Iterable[Exposed], name: str) -> dict[tuple[str, ...], float]:
    return {labels: number for labels, number in values(families, name).items() if number}
