"""A custodian's hash chain: every value is there, in order, and none costs more than the square root."""

from __future__ import annotations

import pytest

from tenure.custodian import make_chain
from tenure.draw import CHAIN_LENGTH_MAX, link

LAST = bytes(range(32))


def counted(index: int, length: int) -> int:
    """How many hashes it takes to find a value."""
    steps: list[bytes] = []

    def step(value: bytes) -> bytes:
        steps.append(value)
        return link(value)

    make_chain("operator", length, last=LAST).value(index, link=step)
    return len(steps)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 15, 16, 17, 100])
def test_every_value_hashes_to_the_one_before_it_down_to_the_published_one(length: int) -> None:
    chain = make_chain("operator", length, last=LAST)
    assert chain.value(length) == LAST
    assert all(link(chain.value(index)) == chain.value(index - 1) for index in range(1, length + 1))
    assert chain.value(0).hex() == chain.published


def test_a_value_costs_the_square_root_of_the_length_and_so_does_the_store() -> None:
    length = 40_000
    chain = make_chain("operator", length, last=LAST)
    assert (chain.spacing, len(chain.kept)) == (200, 200)
    assert max(counted(index, length) for index in (1, 2, 200, 201, 19_999, 39_801, 40_000)) <= 200


@pytest.mark.parametrize("index", [-1, 11])
def test_beyond_its_ends_a_chain_has_no_value(index: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 10"):
        make_chain("operator", 10, last=LAST).value(index)


@pytest.mark.parametrize("length", [-1, 0, CHAIN_LENGTH_MAX + 1])
def test_a_chain_of_no_length_or_without_end_is_not_made(length: int) -> None:
    with pytest.raises(ValueError, match="long"):
        make_chain("operator", length, last=LAST)
