"""Scenarios with a crash before, during and after every write; the end is the same, to the letter.

    python -m proof crashes                       the daily thousand, spread over all scenarios, writes and points
    python -m proof crashes --all                 every schedule, a hundred thousand: hours (--part K/N: a part)
    python -m proof crashes --count               how many there are
    python -m proof crashes --scenario NAME       every schedule of one scenario
    python -m proof crashes --scenario NAME --write 6 --point before-commit --recover same      one of them again
    python -m proof crashes --shown               which rule of the SPEC each scenario shows

``trap`` knows what a write is and where a process may die, ``world`` what no crash touches, ``life`` is one process,
``play`` a schedule, ``judge`` what came of it, ``schedules`` which of them there are.
"""

from proof.crashes.command import main

__all__ = ["main"]
