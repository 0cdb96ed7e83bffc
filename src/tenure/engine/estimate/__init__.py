"""When will those who wait start, as far as anybody can know: the answer for people, read by no decision (SPEC 7).

    history = History(completed runs from the ledger)
    correction = Correction.learn(first bands of the last runs, and their real starts)
    bands = estimate(pool, running, promised, waiting, history, now, correction=correction)

``ratios`` knows how long runs really take, ``play`` plays one queue once, ``replay`` plays it many times and reads the
bands off, ``coverage`` corrects them by how often they held, ``world`` has the records. Plain data in, plain data out:
no module of the engine outside this room imports it (an import contract), and it imports none of them.
"""

from tenure.engine.estimate.coverage import Correction, Coverage, Past
from tenure.engine.estimate.ratios import Completed, History
from tenure.engine.estimate.replay import estimate
from tenure.engine.estimate.world import Band, Pool, Promised, Running, Waiting

__all__ = [
    "Band",
    "Completed",
    "Correction",
    "Coverage",
    "History",
    "Past",
    "Pool",
    "Promised",
    "Running",
    "Waiting",
    "estimate",
]
