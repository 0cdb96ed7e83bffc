"""``python -m proof NAME [options]``: one kind of evidence; on a failure it says how to see it again."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from proof import stops

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
    asked = not argv or argv[0] in ("-h", "--help")
    if asked or argv[0] not in ROOMS:
        out = sys.stdout if asked else sys.stderr
        if not asked:
            print(f"there is no {argv[0]!r}; these there are:\n", file=out)
        print("usage: python -m proof NAME [options]\n", file=out)
        for name, says in ROOMS.items():
            print(f"  {name:<8} {says}", file=out)
        print("\npython -m proof NAME --help tells the options of one.", file=out)
        return 0 if asked else 2
    code: int = import_module(f"proof.{argv[0]}").main(argv[1:])
    return code


def run(argv: list[str]) -> int:
    """The same as a process: who is stopped says so in one line, and who is no longer listened to is silent."""
    stops.listen()
    try:
        try:
            return main(argv)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt as stop:
        number = stops.number(stop)
        print(f"\nstopped ({number.name})", file=sys.stderr)
        return 128 + number
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
