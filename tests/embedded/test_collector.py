"""The collector is put off for a block, and is as before when that is over, however it ends."""

from __future__ import annotations

import gc

import pytest

from tenure.shell.home import nothing_collected


def test_nothing_is_collected_until_the_block_is_over() -> None:
    assert gc.isenabled()
    with nothing_collected(), nothing_collected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_was_off_stays_off() -> None:
    gc.disable()
    try:
        with nothing_collected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_block_that_fails_leaves_it_as_it_was() -> None:
    with pytest.raises(ValueError, match="no"), nothing_collected():
        raise ValueError("no")
    assert gc.isenabled()
