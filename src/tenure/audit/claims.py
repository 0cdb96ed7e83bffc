"""What a reservation will take from a node or an envelope, and what it was to take before (I8).

A node and an envelope are both a *pot*: it holds so many GPUs at once. A claim remembers how it came to be what it is,
since nobody is blamed for what was planned only after him.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from tenure.audit.accounts import EnvelopeKey
from tenure.audit.books import Holding, Order
from tenure.facts import Lease, Reservation, Resolved, Segment
from tenure.units import FOREVER, SECOND, Instant, Micros

Pot = tuple[str, ...]
"""("node", name) or ("envelope", budget, envelope)"""
CLAIMING = ("Pending", "Active")
Rank = tuple[int, Order]
"""Twice the turn in which a start was promised, and the run's place in the queue. Who starts without a promise comes
just after the last one that was made."""
LEAVING: Micros = 30 * SECOND
"""How long those who give way are expected to take."""


class Claim(NamedTuple):
    """What one reservation will take from one pot."""

    run: str
    order: Rank
    gpus: int
    start: Instant
    until: Instant
    written: int
    """The number of the fact that says so."""
    fact: int
    """The number of the fact since which it is claimed, and so much of it: who came before a plan took more of a pot is
    not late for that more."""
    firm: bool
    """It needs no cuts: what holds GPUs now and does not end in time was counted when it was planned."""
    active: bool
    waits: bool
    """Its start is due, and waits for others to leave: it is being made, or its record says what hinders it."""
    starts: tuple[tuple[int, Instant], ...]
    """Its planned starts, each with the fact that it was so from on."""
    sizes: tuple[tuple[int, int], ...]
    """Its GPUs, likewise."""

    @property
    def since(self) -> int:
        """The fact since which anything of the pot is claimed."""
        return self.sizes[0][0]

    @property
    def planned(self) -> int:
        """The fact by which it was planned for its start."""
        return self.starts[-1][0]

    def stages(self) -> list[Claim]:
        """The claim as it was before it took more of the pot, each time, and as it is; less what it gave up since."""
        if self.since == self.fact:
            return [self]
        sizes = [gpus for _, gpus in self.sizes]
        rises = [index for index, gpus in enumerate(sizes) if index == 0 or gpus > sizes[index - 1]]
        return [self._replace(fact=self.sizes[index][0], gpus=min(sizes[index:])) for index in rises]

    def stage_at(self, fact: int) -> Claim | None:
        """The one that stood when a fact came."""
        if self.fact < fact:
            return self
        return next((one for one in reversed(self.stages()) if one.fact < fact), None)

    def gpus_at(self, fact: int) -> int:
        """Of the GPUs that are claimed, those that were when a fact came."""
        stage = self.stage_at(fact)
        return stage.gpus if stage else 0

    def as_promised(self, fact: int) -> Claim:
        """The claim as it was when a fact came, if its start has been moved since."""
        before = self.start_at(fact)
        if self.planned < fact:
            return self
        until = self.until if self.until == FOREVER else self.until + before - self.start
        return self._replace(start=before, until=until)

    def start_at(self, fact: int) -> Instant:
        """The start that was planned when a fact came."""
        return next((start for since, start in reversed(self.starts) if since <= fact), self.start)

    def is_on(self, at: Instant, *, now: Instant) -> bool:
        """Who has not started by now will be over later: by as many times as it was to last, or, while it waits for
        others to leave, by half a minute, and as long again whenever that was not enough."""
        late, lasts = max(0, now - self.start), max(1, self.until - self.start)
        more = LEAVING << (late // LEAVING).bit_length() if self.waits else late // lasts * lasts
        return self.start <= at < self.until + more


def takes(one: Reservation) -> dict[Pot, int]:
    """What a reservation claims of each pot; only Pending and Active ones claim anything."""
    found: dict[Pot, int] = {}
    if one.state not in CLAIMING or one.plan.start is None:
        return found
    for share in one.plan.shares:
        found["node", share.node] = found.get(("node", share.node), 0) + share.gpus
    for segment in one.plan.segments:
        pot = ("envelope", *payer_of(segment))
        found[pot] = found.get(pot, 0) + segment.gpus
    return found


def pots_of(lease: Lease) -> Iterator[Pot]:
    """What sits on a spare takes from no node."""
    if lease.role != "Borrowed":
        yield "node", lease.node
    yield "envelope", lease.budget, lease.envelope


def payer_of(segment: Segment) -> EnvelopeKey:
    return segment.budget, segment.envelope


def gpus_of(one: Holding) -> int:
    return len(one.lease.gpus)


def named(pot: Pot) -> str:
    return pot[1] if pot[0] == "node" else f"{pot[1]}/{pot[2]}"


Given = tuple[Resolved, Lease]
"""A lease that was cut, and the resolution that did."""
Crowd = tuple[Claim, int, Container[str]]
"""A claim, the GPUs that are held or claimed at its start, and the leases that were counted"""


def given_up(
    pot: Pot, claim: Claim, cut: Iterable[Given], leaving: Container[str], *, then: Instant, at: Instant
) -> int:  # fmt: skip
    """GPUs of those who were cut for others than a claim's run, and in whose place it could not have started: what was
    to stay is theirs for whom it was cut; and who has to go by a shortage, just as a start has come, has yet to leave.
    """
    total = 0
    for fact, lease in cut:
        stays = claim.firm and (lease.until is None or lease.until > then)
        leaves = claim.start <= at and lease.key in leaving
        if pot in pots_of(lease) and (leaves if fact.trigger == "Shortage" else stays):
            total += len(lease.gpus)
    return total


def lost_by(needed: int, others: Iterable[Holding], room: int) -> int:
    """The fact by which so much had no room any more beside these, who are not to blame; FOREVER if it has."""
    for one in sorted(others, key=lambda one: one.fact):
        needed += gpus_of(one)
        if needed > room:
            return one.fact
    return FOREVER


def crowded(claims: list[Claim], held: list[Holding], ends: Mapping[str, Instant], *, at: Instant) -> Iterator[Crowd]:
    """At the start of each claim, the GPUs that are held or claimed then. One sweep over what comes and goes."""
    going = sorted([(ends[one.lease.key], gpus_of(one)) for one in held] + [(one.until, one.gpus) for one in claims])
    total, gone = sum(gpus_of(one) for one in held), 0
    coming = sorted(claims, key=lambda claim: (max(claim.start, at), claim.order))
    for then, group in groupby(coming, key=lambda claim: max(claim.start, at)):
        starting = list(group)
        total += sum(claim.gpus for claim in starting)
        while gone < len(going) and going[gone][0] <= then:
            total -= going[gone][1]
            gone += 1
        yield starting[-1], total, ends
