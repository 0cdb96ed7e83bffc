"""``python -m proof NAME [options]``: one kind of evidence; on a failure it says how to see it again."""

from __future__ import annotations

import sys
from importlib import import_module

ROOMS = {
    "sim": "whole systems in virtual time, with faults of API, store, nodes and clock (make sim)",
    "crashes": "scenarios with a crash before, during and after every write",
    "mutants": "planted bugs, and which tests see them",
    "damage": "damaged images of the ledger",
    "hostile": "hostile manifests on the command line, the embedded fleet and the webhook",
    "flood": "one tenant with 100,000 pending runs; a day of churn",
    "scope": "a small world, all its interleavings",
}


def main(argv: list[str]) -> int:
    if not argv or argv[0] not in ROOMS:
        print("usage: python -m proof NAME [options]\n", file=sys.stderr if argv else sys.stdout)
        for name, says in ROOMS.items():
            print(f"  {name:<8} {says}", file=sys.stderr if argv else sys.stdout)
        return 2 if argv else 0
    code: int = import_module(f"proof.{argv[0]}").main(argv[1:])
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
