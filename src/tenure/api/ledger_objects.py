"""The ledger as the API server keeps it: two cluster-scoped kinds that only the scheduler writes (SPEC 1, 12).

A ``LedgerEntry`` holds the entries of one commit, their exact bytes. It is named after what it holds: the number of its
last entry and the beginning of that entry's hash. It never changes, and nothing follows from its being there. The one
``LedgerHead``, called ``head``, says which entry is the last; an entry counts from the moment that the head names it or
one that follows from it. Since each object also says what its first entry follows from, the whole chain can be walked
back from the head by name.

Both have no status: what is in them is decided, not observed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tenure.api.cel import Place, Rule
from tenure.api.crd import Column, Resource, Schema, definition
from tenure.api.meta import API_VERSION, Amount, Count, LongText, ObjectMeta, Record, Word, says

HEAD = "head"
"""The name of the one LedgerHead."""
BODY_LENGTH_MAX = 1_000_000
"""Of one object's body: etcd refuses requests of 1.5 MiB, and quotes in a string take two bytes."""

Digest = Annotated[str, Meta(extra_json_schema={"format": "text"})]
"""The SHA-256 of an entry, as 64 hexadecimal digits."""
Encoding = Literal["json", "gzip"]


class LedgerEntrySpec(Record, frozen=True, kw_only=True):
    """Immutable from the moment it is written."""

    first: Annotated[Count, says("The number of the first entry in it.")]
    seq: Annotated[Count, says("The number of the last entry in it.")]
    hash: Annotated[Digest, says("The hash of the last entry in it.")]
    prev: Annotated[Digest, says("The hash of the entry before the first one.")]
    at: Annotated[Amount, says("When the last one was decided: microseconds since 1970, UTC.")]
    part: Annotated[Count, says("Which part of the body this is, where one object cannot hold it.")] = 1
    parts: Annotated[Count, says("How many parts there are.")] = 1
    encoding: Annotated[Encoding, says("json: the body is text. gzip: it is compressed, as base64.")] = "json"
    body: Annotated[LongText, says("The entries as canonical JSON, one a line: the bytes that were hashed.")]


class LedgerEntry(Record, frozen=True, kw_only=True):
    """The entries of one commit: decisions with everything they open, close and reserve.

    Effective when the LedgerHead names it, or one that follows from it. Written by the scheduler alone.
    """

    api_version: Literal["rq.davidlangworthy.io/v1"] = API_VERSION
    kind: Literal["LedgerEntry"] = "LedgerEntry"
    metadata: ObjectMeta
    spec: LedgerEntrySpec


class Archived(Record, frozen=True, kw_only=True):
    """Up to where the ledger was moved to archive segments."""

    seq: Annotated[Amount, says("The number of the last entry in the archive.")]
    hash: Annotated[Digest, says("Its hash: what the first entry that is still here follows from.")]
    at: Annotated[Amount, says("When it was decided: microseconds since 1970, UTC.")]


class LedgerHeadSpec(Record, frozen=True, kw_only=True):
    """The end of the chain."""

    fleet: Annotated[Word, says("Which fleet's ledger this is.")]
    seq: Annotated[Amount, says("The number of the last entry; 0 before the first.")]
    hash: Annotated[Digest, says("Its hash.")]
    at: Annotated[Amount, says("When it was decided: microseconds since 1970, UTC.")]
    archived: Annotated[Archived | None, says("What is no longer kept in the API server, if anything.")] = None


class LedgerHead(Record, frozen=True, kw_only=True):
    """The end of the ledger's chain: one object, replaced by compare-and-swap; that swap is what commits a decision.

    Written by the scheduler alone.
    """

    api_version: Literal["rq.davidlangworthy.io/v1"] = API_VERSION
    kind: Literal["LedgerHead"] = "LedgerHead"
    metadata: ObjectMeta
    spec: LedgerHeadSpec


RESOURCES: dict[str, Resource] = {
    "LedgerEntry": Resource(
        cls=LedgerEntry,
        scope="Cluster",
        short_names=("rqe",),
        columns=(
            Column("First", ".spec.first", "integer"),
            Column("Last", ".spec.seq", "integer"),
            Column("Part", ".spec.part", "integer", priority=1),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        plural="ledgerentries",
        status=False,
    ),
    "LedgerHead": Resource(
        cls=LedgerHead,
        scope="Cluster",
        short_names=("rqh",),
        columns=(
            Column("Fleet", ".spec.fleet"),
            Column("Entry", ".spec.seq", "integer"),
            Column("Hash", ".spec.hash"),
            Column("Archived", ".spec.archived.seq", "integer"),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        status=False,
    ),
}

_DIGEST: Schema = {"maxLength": 64, "minLength": 64, "pattern": "^[0-9a-f]{64}$"}
EXTRA: dict[str, dict[Place, Schema]] = {
    "LedgerEntry": {
        ("spec", "hash"): _DIGEST,
        ("spec", "prev"): _DIGEST,
        ("spec", "body"): {"maxLength": BODY_LENGTH_MAX},
    },
    "LedgerHead": {
        ("spec", "hash"): _DIGEST,
        ("spec", "archived", "hash"): _DIGEST,
    },
}

RULES: dict[str, dict[Place, tuple[Rule, ...]]] = {
    "LedgerEntry": {
        (): (Rule("never changes", "self.spec == oldSelf.spec", "an entry of the ledger never changes"),),
        ("spec",): (Rule("first to last", "self.first <= self.seq", "the first entry is not after the last"),),
    },
    "LedgerHead": {
        (): (Rule("one head", f"self.metadata.name == '{HEAD}'", f"there is one LedgerHead, called {HEAD}"),),
        ("spec",): (
            Rule("one fleet", "self.fleet == oldSelf.fleet", "a ledger belongs to one fleet"),
            Rule(
                "forward",
                "self.seq > oldSelf.seq || (self.seq == oldSelf.seq && self.hash == oldSelf.hash)",
                "the head of the ledger moves forward only",
            ),
            Rule(
                "archive forward",
                "!has(oldSelf.archived) || (has(self.archived) && self.archived.seq >= oldSelf.archived.seq)",
                "what is archived stays archived",
            ),
            Rule(
                "archive behind",
                "!has(self.archived) || self.archived.seq <= self.seq",
                "only what was committed is archived",
            ),
        ),
    },
}


def manifest(kind: str) -> Schema:
    """The CustomResourceDefinition of a kind that the ledger is kept in, as plain data."""
    return definition(kind, RESOURCES[kind], RULES[kind], EXTRA[kind])


def entry_name(seq: int, digest: str, part: int = 1) -> str:
    """What the object is called whose last entry this is.

    >>> entry_name(812, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
    '000000000812-9f86d081884c7d65'
    """
    return f"{seq:012}-{digest[:16]}" + (f"-{part}" if part > 1 else "")
