"""Planted bugs: what a tired engineer might have written, and which of the tests see it.

python -m proof mutants                 every bug against every scenario, every world and the tests of its area
python -m proof mutants --only NAME     one of them, with all that saw it in its own words
python -m proof mutants --quick         each bug against the killer that was quickest the last time (what CI runs)
python -m proof mutants --docs          the page docs/develop/proof-mutants.md from the results that are kept
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    from proof.mutants.command import main as command

    return command(argv)
