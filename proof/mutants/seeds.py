"""The random histories that planted bugs are tried on, by name: the kind of world and the seed."""

from __future__ import annotations

STEPS = 50
CHECK_EVERY = 5
"""Steps between two counts of everything; the auditor looks at every entry."""
SEEDS = {"anything": range(6), "failing": range(8), "waiting": range(8, 18)}
"""How many histories of each kind there are."""
NAMES = tuple(f"{kind}-{seed}" for kind, seeds in SEEDS.items() for seed in seeds)
