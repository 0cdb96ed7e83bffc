"""Helpers for tests of Tenure and of what is built on it: objects in few words, and a fleet with a clock in hand."""

from tenure.testing.builders import (
    FENCE,
    FLAVOR,
    START,
    TEMPLATE,
    at,
    budget,
    cap,
    elastic,
    envelope,
    namespace,
    node,
    nodes,
    run,
)
from tenure.testing.fleet import End, Fleet, env

__all__ = [
    "FENCE",
    "FLAVOR",
    "START",
    "TEMPLATE",
    "End",
    "Fleet",
    "at",
    "budget",
    "cap",
    "elastic",
    "env",
    "envelope",
    "namespace",
    "node",
    "nodes",
    "run",
]
