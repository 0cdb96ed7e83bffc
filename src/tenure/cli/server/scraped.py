"""`tenure up --metrics` and `tenure operator --metrics`: where metrics are served, and that they are.

An address that makes no sense is refused before anything begins. One that cannot be had (another process listens
there) is said, and driving goes on without it: a fleet does not stand still for its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct

from tenure.cli.terminal import say
from tenure.cli.trouble import Trouble
from tenure.observe import Metrics

if TYPE_CHECKING:
    from tenure.observe.metrics import Source

LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])?:)?(?P<port>[0-9]{1,5})", re.ASCII)


class Scraped(Struct, frozen=True):
    """An address at which metrics are served."""

    host: str
    port: int

    @contextmanager
    def serving(self, *sources: Source, say: Callable[[str], None] = say) -> Iterator[Metrics | None]:
        """Serve meanwhile; None if the address cannot be had, which is said."""
        from tenure.observe.exposition import Server  # imports prometheus-client

        metrics = Metrics(sources=sources)
        try:
            server = Server(metrics, self.host, self.port)
        except OSError as error:
            why = (error.strerror or "it cannot be had").lower()
            say(f"no metrics are served: {self.host} port {self.port}: {why}. Driving goes on without them.")
            yield None
            return
        shown = f"[{self.host}]" if ":" in self.host else self.host
        say(f"metrics are served at http://{shown}:{server.port}/metrics")
        try:
            yield metrics
        finally:
            server.close()


def read_address(text: str) -> Scraped:
    """``[HOST:]PORT``; port 0 is any that is free.

    >>> read_address("9464"), read_address("[::1]:9464")
    (Scraped(host='127.0.0.1', port=9464), Scraped(host='::1', port=9464))
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        step = "write --metrics 9464, or --metrics 0.0.0.0:9464 to serve other machines too"
        raise Trouble(f"--metrics {text[:80]!r} is no [HOST:]PORT", next_step=step)
    if find_spec("prometheus_client") is None:
        step = "pip install '.[metrics]' in a clone of Tenure, or leave --metrics out"
        raise Trouble("--metrics needs prometheus-client, which is not installed", next_step=step)
    return Scraped((found["host"] or LOOPBACK).strip("[]"), int(found["port"]))
