"""What operators look at: metrics read off the state and the entries. It tells what was decided, and decides nothing
itself.

    metrics = Metrics()
    home = Home(store, watch=metrics.saw)          # counters: each entry once, when it counts
    metrics.collect(home.state, now=now)           # gauges: by whoever owns the state, when a scrape asks (`wanted`)
    Server(metrics, "127.0.0.1", 9464)             # in threads of its own; needs the extra "metrics"
"""

from tenure.observe.metrics import Metrics
from tenure.observe.table import METRICS, Metric

__all__ = ["METRICS", "Metric", "Metrics"]
