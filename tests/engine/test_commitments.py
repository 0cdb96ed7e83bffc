"""What claims with a declared end may still use: exact, and kept only as long as somebody claims it."""

from __future__ import annotations

from random import Random

from tenure.engine.meters import Commitments


def test_ends_of_envelopes_that_nobody_asks_about_are_forgotten() -> None:
    """Found by ``python -m proof flood``: an envelope without a limit of hours kept every end ever declared."""
    one = Commitments()
    for until in range(10_000):
        one.open(8, until)
        one.close(8, until)
    assert not one._ends
    assert len(one._heap) <= 66
    assert (one.gpus, one.ahead(0)) == (0, 0)


def test_what_is_ahead_is_the_sum_over_open_claims() -> None:
    luck, one, now = Random(7), Commitments(), 0
    claims: list[tuple[int, int]] = []
    for _ in range(5_000):
        now += luck.randint(0, 3)
        if luck.random() < 0.5 or not claims:
            claims.append((luck.randint(1, 8), now + luck.randint(1, 60)))
            one.open(*claims[-1])
        else:
            one.close(*claims.pop(luck.randrange(len(claims))))
        if luck.random() < 0.3:
            assert one.ahead(now) == sum(gpus * (until - now) for gpus, until in claims if until > now)
