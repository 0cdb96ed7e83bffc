"""A copy of a ledger: it takes the other's entries byte for byte, in order, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tests.ledger.support import append


def test_a_copy_is_the_same_ledger(ledger: Ledger, tmp_path: Path) -> None:
    append(ledger, 5)
    with Ledger.create(tmp_path / "copy.db", fleet="lab") as copy:
        with copy.write() as tx:
            taken = [tx.take(link.body) for link in ledger.links()]
        assert taken == list(ledger.entries()) == list(copy.entries())
        assert (copy.head, list(copy.export())) == (ledger.head, list(ledger.export()))
        assert copy.leases() == ledger.leases()
        assert copy.verify().ok


def test_a_copy_takes_only_what_follows(ledger: Ledger, tmp_path: Path) -> None:
    append(ledger, 3)
    first, second, third = (link.body for link in ledger.links())
    wrong = {
        "does not follow": second.replace(b'"prev":"', b'"prev":"0'),
        "its number is 3": third,
        "its number is 1": first,
        "could not be read back": second[:-5],
    }
    with Ledger.create(tmp_path / "copy.db", fleet="lab") as copy:
        with copy.write() as tx:
            tx.take(first)
        for why, body in wrong.items():
            with pytest.raises(ValueError, match=why), copy.write() as tx:
                tx.take(body)
        assert copy.head.seq == 1


def test_the_head_can_be_asked_as_it_was(ledger: Ledger) -> None:
    written = append(ledger, 3)
    heads = [ledger.head_at(seq) for seq in (1, 2, 3)]
    assert [head.hash for head in heads if head is not None] == written
    assert heads[2] == ledger.head
    start = ledger.head_at(0)
    assert start is not None
    assert (start.seq, ledger.head_at(4)) == (0, None)
