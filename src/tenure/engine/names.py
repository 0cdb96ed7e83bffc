"""Identities made from what is known, so that the same history gives the same ids."""

from __future__ import annotations

import hashlib


def object_uid(*parts: str) -> str:
    """A uid in the usual form, made from the parts.

    >>> object_uid("fleet", "Run/rai/train", "0")
    'f8811318-0b91-50a5-a13d-7ac47050901c'
    """
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], "5" + digest[13:16], "a" + digest[17:20], digest[20:32]))
