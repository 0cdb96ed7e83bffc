"""Whole systems in virtual time, with faults in between: a seed is a world, and a failure is a short list of events.

``python -m proof sim --seeds 100`` plays a hundred of them; ``docs/develop/proof-sim.md`` tells how to read it.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """The command; its parts are imported when it is used, so that workers and tests need not."""
    from proof.sim.command import main as run

    return run(argv)
