"""The planted bugs, by the part of Tenure they are in."""

from __future__ import annotations

from proof.mutants.bugs import clusters, lives, machines, money, promises, queue, shells
from proof.mutants.mutant import Mutant

PARTS: dict[str, tuple[Mutant, ...]] = {
    "Money": money.MUTANTS,
    "Machines": machines.MUTANTS,
    "Lives of runs": lives.MUTANTS,
    "The queue": queue.MUTANTS,
    "Promises, cuts and draws": promises.MUTANTS,
    "Outside the engine": shells.MUTANTS,
    "Between the engine and an API server": clusters.MUTANTS,
}
MUTANTS: tuple[Mutant, ...] = tuple(mutant for part in PARTS.values() for mutant in part)
