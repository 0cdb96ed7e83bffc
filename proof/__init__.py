"""Evidence that Tenure can be trusted: whole systems with faults, crashes at every write, planted bugs, damaged files.

Each kind of evidence is a room of its own and a command, ``python -m proof NAME``; a small share of each runs with the
tests (``tests/proof``), the whole of it on demand. Nothing here is shipped, and nothing in ``src`` imports it.
"""
