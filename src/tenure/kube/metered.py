"""How an operator gets on with its API server, as numbers: read by who serves them, from what is counted anyway."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tenure.kube.intake import KINDS
from tenure.observe.gauges import Sample

if TYPE_CHECKING:
    from tenure.kube.operator import Operator


def dealings(operator: Operator, clock: Callable[[], float] = time.monotonic) -> Callable[[], list[Sample]]:
    """Watches, writes, refusals and Events of an operator. What was not begun yet is left out."""

    def read() -> Iterator[Sample]:
        yield "controller_leading", (), float(operator.leading())
        for kind, cache in operator.caches.items():
            yield "watch_silence_seconds", (kind,), max(0.0, clock() - cache.progress)
            yield "watch_objects", (kind,), len(cache)
            yield "watch_lists_total", (kind,), cache.lists
        yield "api_writes_total", ("done",), operator.desk.done
        yield "api_writes_total", ("refused",), operator.desk.refused
        yield "api_writes_waiting", (), operator.desk.waiting
        if operator.begun:
            kinds = Counter(kind for kind, _ in list(operator.intake.refused))
            yield from (("objects_refused", (kind,), kinds[kind]) for kind in KINDS if kind != "Pod")
            yield "kube_events_left_out_total", (), operator.tidings.left_out

    return lambda: list(read())
