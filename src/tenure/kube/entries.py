"""Entries as objects: what is put into a ``LedgerEntry``, and what is believed of one that is read.

The entries of one commit go into one object, a line each; a large batch is compressed, and one that is larger still is
cut into parts. What is read back is checked from first principles: the bytes give the hashes, the hashes give the
chain, and the chain must end in what the object's name and whoever led us to it say.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tenure.api.ledger_objects import BODY_LENGTH_MAX, LedgerEntrySpec, entry_name
from tenure.api.meta import to_wire
from tenure.facts import Entry, decode_entry, encode_entry, entry_hash
from tenure.kube.client import Object
from tenure.kube.refusals import Code, refused
from tenure.kube.resources import LEDGER_ENTRIES

COMPRESSED_FROM = 200_000
PART_LENGTH = BODY_LENGTH_MAX - 100_000


class Line(Struct, frozen=True):
    """One entry as it is stored."""

    entry: Entry
    body: bytes
    hash: str


class Batch(Struct, frozen=True):
    """The entries of one commit."""

    lines: tuple[Line, ...]

    @property
    def first(self) -> int:
        return self.lines[0].entry.seq

    @property
    def prev(self) -> str:
        """The hash of the entry before it."""
        return self.lines[0].entry.prev

    @property
    def last(self) -> Line:
        return self.lines[-1]


def batch_of(entries: Sequence[Entry]) -> Batch:
    """What was decided in one transaction."""
    bodies = [encode_entry(entry) for entry in entries]
    return Batch(tuple(Line(entry, body, entry_hash(body)) for entry, body in zip(entries, bodies, strict=True)))


def objects_of(batch: Batch) -> list[Object]:
    """The objects that hold a batch; more than one only if it is very large."""
    whole = b"\n".join(line.body for line in batch.lines)
    if len(whole) <= COMPRESSED_FROM:
        texts, encoding = [whole.decode()], "json"
    else:
        packed = base64.b64encode(gzip.compress(whole, compresslevel=1, mtime=0)).decode()
        texts, encoding = [packed[at : at + PART_LENGTH] for at in range(0, len(packed), PART_LENGTH)], "gzip"
    last = batch.last
    return [
        LEDGER_ENTRIES.named(
            entry_name(last.entry.seq, last.hash, part),
            spec={
                "first": batch.first,
                "seq": last.entry.seq,
                "hash": last.hash,
                "prev": batch.prev,
                "at": last.entry.at,
                "part": part,
                "parts": len(texts),
                "encoding": encoding,
                "body": text,
            },
        )
        for part, text in enumerate(texts, 1)
    ]


def spec_of(item: Object) -> LedgerEntrySpec:
    """What an object says."""
    try:
        return msgspec.convert(item.get("spec"), LedgerEntrySpec)
    except msgspec.ValidationError as error:
        raise refused(Code.EntryDamaged, name=item["metadata"]["name"], why=str(error)) from error


def same(one: Object, other: Object) -> bool:
    """Whether two objects say the same, defaults written out or not."""
    return bool(to_wire(spec_of(one)) == to_wire(spec_of(other)))


def read_batch(specs: Sequence[LedgerEntrySpec]) -> Batch:
    """The entries in all parts of a batch, each checked against the one before, up to the hash it is named after."""
    head = specs[0]
    name = entry_name(head.seq, head.hash)
    lines, before = [], head.prev
    for number, body in enumerate(_text(specs, name).split(b"\n"), head.first):
        try:
            entry = decode_entry(body)
        except msgspec.MsgspecError as error:
            raise refused(Code.EntryDamaged, name=name, why=f"line {number} is no entry ({error})") from error
        if (entry.seq, entry.prev) != (number, before):
            raise refused(Code.EntryDamaged, name=name, why=f"entry {number} does not follow from the one before")
        before = entry_hash(body)
        lines.append(Line(entry, body, before))
    if (lines[-1].entry.seq, before) != (head.seq, head.hash):
        raise refused(Code.EntryDamaged, name=name, why="its entries do not have the hash that it is named after")
    return Batch(tuple(lines))


def _text(specs: Sequence[LedgerEntrySpec], name: str) -> bytes:
    text = "".join(spec.body for spec in specs)
    if specs[0].encoding == "json":
        return text.encode()
    try:
        return gzip.decompress(base64.b64decode(text, validate=True))
    except (binascii.Error, OSError, EOFError, zlib.error) as error:
        raise refused(Code.EntryDamaged, name=name, why=f"it cannot be unpacked ({error})") from error
