"""Small scope, exhaustively: two owners, two nodes of two GPUs, three runs, and every order in which things may happen.

    python -m proof scope                          all interleavings of 8 moves, as far as 10 minutes go
    python -m proof scope --depth 5                all interleavings of five moves
    python -m proof scope --after "+a +c tick"     the same, beginning where this has happened
    python -m proof scope --path "+a +c tick"      one of them, entry by entry

The engine is the real one, and so is the auditor. ``world`` has the world and its moves, ``point`` what a state of the
search is and when two are the same, ``expand`` what is checked of each, ``search`` the levels and the workers,
``replay`` one path at length.
"""

from proof.scope.command import main

__all__ = ["main"]
