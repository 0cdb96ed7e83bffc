"""A hash chain that is long and yet quick to read anywhere.

    c[n] is random;  c[k-1] = SHA-256(c[k]);  c[0] is published;  c[1], c[2], ... are revealed in turn

Each value proves the one before it and tells nothing about the one after it. Only c[n] is needed to know
them all, but c[1] would then cost n hashes each time. So a chain of n keeps about sqrt(n) of its values,
evenly spaced, and any value is at most sqrt(n) hashes below one of them: a chain of 1,000,000 keeps 1,000
(64 kB) and finds any value in 1,000 hashes.

>>> chain = make_chain("operator", 10, last=bytes(32))
>>> chain.spacing, len(chain.kept), link(chain.value(7)) == chain.value(6)
(4, 3, True)
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import msgspec
from msgspec import Struct

from tenure.draw import CHAIN_LENGTH_MAX, H, Hex, Word, canon, link

FORMAT = "tenure-chain/1"

Link = Callable[[bytes], bytes]


class Chain(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The chain as it is stored. Everything but ``published`` is secret."""

    format: str = FORMAT
    beacon: Word
    length: int
    spacing: int
    published: Hex
    """c[0]."""
    kept: tuple[Hex, ...]
    """c[spacing], c[2 x spacing], ..., c[length]."""

    def value(self, index: int, *, link: Link = link) -> bytes:
        """c[index]; at most ``spacing`` hashes away."""
        if not 0 <= index <= self.length:
            raise ValueError(f"the chain goes from 0 to {self.length}, there is no {index}")
        place = max(0, index - 1) // self.spacing
        value = bytes.fromhex(self.kept[place])
        for _ in range(min((place + 1) * self.spacing, self.length) - index):
            value = link(value)
        return value

    def is_whole(self) -> bool:
        """Do the parts fit together? Only the first stretch is walked; the rest is the checksum's care."""
        right = self.format == FORMAT and 1 <= self.length <= CHAIN_LENGTH_MAX and self.spacing >= 1
        filled = right and len(self.kept) == -(-self.length // self.spacing)
        return filled and self.value(0).hex() == self.published


def make_chain(beacon: str, length: int, *, last: bytes) -> Chain:
    """The chain of this length that ends in ``last``: 32 bytes that nobody could guess."""
    if not 1 <= length <= CHAIN_LENGTH_MAX:
        raise ValueError(f"a chain is 1 to {CHAIN_LENGTH_MAX} long, not {length}")
    spacing = isqrt(length - 1) + 1
    kept, value = [], last
    for index in range(length, 0, -1):
        if index == length or index % spacing == 0:
            kept.append(value.hex())
        value = link(value)
    return Chain(beacon=beacon, length=length, spacing=spacing, published=value.hex(), kept=tuple(reversed(kept)))


def encode(chain: Chain) -> bytes:
    """One JSON line, closed by a checksum over the rest."""
    body = msgspec.to_builtins(chain)
    return canon({"chain": body, "check": H(canon(body)).hex()}) + b"\n"


def decode(raw: bytes) -> Chain | None:
    """The chain in a file's bytes; None if they are not one, or not whole."""
    try:
        outer = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        chain = msgspec.json.decode(outer["chain"], type=Chain)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None
    return chain if encode(chain) == raw and chain.is_whole() else None
