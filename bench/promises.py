"""All promises, by name, in the order in which they are measured and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bench import (
    admission,
    commits,
    earliest,
    exact,
    history,
    instructions,
    mix,
    reforecast,
    refusals,
    resolver,
    scan,
    startup,
)
from bench.kube import admit as kube_admit
from bench.kube import gang as kube_gang
from bench.kube import listing as kube_listing
from bench.kube import memory as kube_memory
from bench.kube import queue as kube_queue
from bench.result import Row, Scale


class Bench(Protocol):
    """A module that measures one promise; its docstring begins with the promise."""

    NAME: str
    __doc__: str | None

    def run(self, scale: Scale, folder: Path) -> list[Row]:
        """Measure, with files only in ``folder``."""
        ...


BENCHES: dict[str, Bench] = {
    bench.NAME: bench
    for bench in (
        admission,
        scan,
        history,
        exact,
        commits,
        startup,
        refusals,
        earliest,
        reforecast,
        resolver,
        mix,
        kube_admit,
        kube_gang,
        kube_memory,
        kube_listing,
        kube_queue,
    )
}
ALL: dict[str, Bench] = BENCHES | {instructions.NAME: instructions}
"""With what is measured only when asked for."""
