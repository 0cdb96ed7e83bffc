"""The order of waiting runs: by age, that is since when they ask for what they ask for."""

from __future__ import annotations

from tenure.units import Instant

Age = tuple[Instant, str, str]
"""(since when, namespace, name)"""
Rank = tuple[int, Age]
"""(the number of a promise, or beyond all; the age)"""
