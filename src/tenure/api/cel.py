"""The cross-field rules of SPEC 2 as the API server checks them: CEL, attached to places in the schemas.

Each rule says the same as a rule of ``validate`` (or ``relations``), and the tests hold the two together
case by case. What schemas and CEL cannot say is left to the webhook: whether a label's key is well formed,
whether an owner is the namespace's or has more than 32 segments, whether parents form a cycle over all
Budgets. Two rules are coarser here: windows are counted in whole seconds, and a Run counts as admitted
while its condition ``Admitted`` is true (the ledger also remembers that it once was).

A place is a path of wire names from the root of the object; ``[]`` stands for the items of a list.
"""

from __future__ import annotations

from typing import NamedTuple

Place = tuple[str, ...]


class Rule(NamedTuple):
    """One expression that must be true, and what to say if it is not."""

    name: str
    rule: str
    message: str


_GROUP_GIVEN = "has(self.locality) && has(self.locality.groupGPUs)"
_GROUP = f"({_GROUP_GIVEN} ? self.locality.groupGPUs : self.malleable.stepGPUs)"
_POD = "self.resources.gpusPerPod"
_TOTAL = "self.resources.totalGPUs"
_ADMITTED = (
    "has(oldSelf.status) && has(oldSelf.status.conditions) && "
    "oldSelf.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True')"
)


def _frozen(field: str) -> Rule:
    """A field of a Run's spec that does not change once the Run was admitted."""
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    same = f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"
    return Rule(f"{field} is fixed", f"!({_ADMITTED}) || ({same})", _fixed(field))


def _fixed(field: str) -> str:
    return f"spec.{field} cannot change once the Run was admitted"


def _true(path: str) -> str:
    """A boolean that counts as false where it, or what holds it, is absent."""
    steps = path.split(".")
    held = [".".join(steps[:count]) for count in range(2, len(steps) + 1)]
    return " && ".join([*(f"has({each})" for each in held), path])


BUDGET: dict[Place, tuple[Rule, ...]] = {
    ("spec",): (
        Rule(
            "no own parent",
            "!has(self.parents) || !(self.owner in self.parents)",
            "an owner is not its own parent",
        ),
        Rule(
            "caps name envelopes",
            # Names are listed once: to look for each among all envelopes is more than the server spends on a rule.
            "!has(self.aggregateCaps) || [self.envelopes.map(e, e.name)].all(names, "
            "self.aggregateCaps.all(c, c.envelopes.all(n, n in names)))",
            "an aggregate cap names envelopes of its own Budget only",
        ),
        Rule(
            "caps have one flavor",
            "!has(self.aggregateCaps) || self.aggregateCaps.all(c, "
            "self.envelopes.all(e, e.flavor == c.flavor || !(e.name in c.envelopes)))",
            "an aggregate cap bounds envelopes of its own flavor only",
        ),
    ),
    ("spec", "envelopes", "[]"): (
        Rule(
            "end after start",
            "!has(self.start) || !has(self.end) || self.end > self.start",
            "end must be after start",
        ),
        Rule(
            "hours fit the window",
            "!has(self.maxGPUHours) || !has(self.start) || !has(self.end) || "
            "double(self.maxGPUHours) * 3600.0 <= "
            "double(self.concurrency) * double((self.end - self.start).getSeconds())",
            "maxGPUHours is more than concurrency x the hours between start and end",
        ),
        Rule(
            "lends what it has",
            "!has(self.lending) || !has(self.lending.maxConcurrency) || "
            "self.lending.maxConcurrency <= self.concurrency",
            "lending.maxConcurrency is above the envelope's own concurrency",
        ),
        Rule(
            "lends hours it has",
            "!has(self.lending) || !has(self.lending.maxGPUHours) || !has(self.maxGPUHours) || "
            "self.lending.maxGPUHours <= self.maxGPUHours",
            "lending.maxGPUHours is above the envelope's own maxGPUHours",
        ),
    ),
    ("spec", "aggregateCaps", "[]"): (
        Rule(
            "caps bound",
            "has(self.maxConcurrency) || has(self.maxGPUHours)",
            "give maxConcurrency or maxGPUHours",
        ),
    ),
}

RUN: dict[Place, tuple[Rule, ...]] = {
    (): (
        Rule("short name", "size(self.metadata.name) <= 63", "a Run's name has at most 63 characters"),
        Rule(
            "no lease's name",
            "!self.metadata.name.matches('-a[0-9]+-g[0-9]+(-|$)')",
            "a Run's name must not look like the name of a lease (-a<number>-g<number>)",
        ),
        *map(
            _frozen,
            ("owner", "resources", "locality", "sparesPerGroup", "opportunistic", "runtime", "template"),
        ),
        Rule(
            "malleable is fixed",
            f"!({_ADMITTED}) || (has(self.spec.malleable) == has(oldSelf.spec.malleable) && "
            "(!has(self.spec.malleable) || ("
            "self.spec.malleable.minTotalGPUs == oldSelf.spec.malleable.minTotalGPUs && "
            "self.spec.malleable.maxTotalGPUs == oldSelf.spec.malleable.maxTotalGPUs && "
            "self.spec.malleable.stepGPUs == oldSelf.spec.malleable.stepGPUs)))",
            _fixed("malleable, except desiredTotalGPUs,"),
        ),
        Rule(
            "allowBorrow is fixed",
            f"!({_ADMITTED}) || ({_true('self.spec.funding.allowBorrow')}) == "
            f"({_true('oldSelf.spec.funding.allowBorrow')})",
            _fixed("funding.allowBorrow"),
        ),
    ),
    ("spec",): (
        Rule(
            "total is a width",
            f"!has(self.malleable) || ({_TOTAL} >= self.malleable.minTotalGPUs && {_TOTAL} <= "
            f"self.malleable.maxTotalGPUs && "
            f"({_TOTAL} - self.malleable.minTotalGPUs) % self.malleable.stepGPUs == 0)",
            "totalGPUs must be minTotalGPUs plus whole steps, and at most maxTotalGPUs",
        ),
        Rule(
            "min is whole groups",
            f"!has(self.malleable) || self.malleable.minTotalGPUs % {_GROUP} == 0",
            "minTotalGPUs must be a multiple of groupGPUs (of stepGPUs if there is no groupGPUs)",
        ),
        Rule(
            "step is whole groups",
            f"!has(self.malleable) || self.malleable.stepGPUs % {_GROUP} == 0",
            "stepGPUs must be a multiple of groupGPUs",
        ),
        Rule(
            "spares need groups",
            f"!has(self.sparesPerGroup) || self.sparesPerGroup == 0 || has(self.malleable) || ({_GROUP_GIVEN})",
            "sparesPerGroup needs locality.groupGPUs, or a malleable step",
        ),
        Rule(
            "pods divide the run",
            f"!has({_POD}) || has(self.malleable) || ({_GROUP_GIVEN}) || {_TOTAL} % {_POD} == 0",
            "gpusPerPod must divide totalGPUs",
        ),
        Rule(
            "pods divide fixed groups",
            f"!has({_POD}) || has(self.malleable) || !({_GROUP_GIVEN}) || "
            f"(({_TOTAL} < self.locality.groupGPUs || self.locality.groupGPUs % {_POD} == 0) && "
            f"({_TOTAL} % self.locality.groupGPUs) % {_POD} == 0)",
            "gpusPerPod must divide every group, the smaller last one too",
        ),
        Rule(
            "pods divide malleable groups",
            f"!has({_POD}) || !has(self.malleable) || {_GROUP} % {_POD} == 0",
            "gpusPerPod must divide the group size",
        ),
    ),
    ("spec", "malleable"): (
        Rule(
            "min up to max",
            "self.minTotalGPUs <= self.maxTotalGPUs",
            "maxTotalGPUs must not be below minTotalGPUs",
        ),
        Rule(
            "max is on the grid",
            "(self.maxTotalGPUs - self.minTotalGPUs) % self.stepGPUs == 0",
            "maxTotalGPUs must be minTotalGPUs plus whole steps",
        ),
        Rule(
            "desired is a width",
            "!has(self.desiredTotalGPUs) || (self.desiredTotalGPUs >= self.minTotalGPUs && "
            "self.desiredTotalGPUs <= self.maxTotalGPUs && "
            "(self.desiredTotalGPUs - self.minTotalGPUs) % self.stepGPUs == 0)",
            "desiredTotalGPUs must be minTotalGPUs plus whole steps, and at most maxTotalGPUs",
        ),
    ),
    ("spec", "funding"): (
        Rule(
            "borrowing is allowed",
            "!has(self.maxBorrowGPUs) || (has(self.allowBorrow) && self.allowBorrow)",
            "maxBorrowGPUs needs allowBorrow: true",
        ),
    ),
    ("spec", "runtime"): tuple(
        Rule(
            f"{field} is positive",
            f"!has(self.{field}) || self.{field}.matches('[1-9]')",
            f"{field} must be longer than 0",
        )
        for field in ("expectedDuration", "checkpoint")
    ),
}

LEASE: dict[Place, tuple[Rule, ...]] = {
    (): (
        Rule(
            "ends after its start",
            "!has(self.status) || !has(self.status.endTime) || self.status.endTime >= self.spec.interval.start",
            "a lease does not end before it began",
        ),
        Rule(
            "closes once",
            f"!({_true('oldSelf.status.closed')}) || (has(self.status) && self.status == oldSelf.status)",
            "a closed lease never changes",
        ),
    ),
    ("spec",): (Rule("never changes", "self == oldSelf", "a lease's spec never changes"),),
    ("status",): tuple(
        Rule(
            f"{field} when closed",
            f"(has(self.closed) && self.closed) == has(self.{field})",
            f"a lease has a {field} when it is closed, and only then",
        )
        for field in ("endTime", "closureReason")
    ),
}

RESERVATION: dict[Place, tuple[Rule, ...]] = {
    ("spec",): (Rule("never changes", "self == oldSelf", "a reservation's spec is the promise as first made"),),
}

RULES: dict[str, dict[Place, tuple[Rule, ...]]] = {
    "Budget": BUDGET,
    "Run": RUN,
    "Lease": LEASE,
    "Reservation": RESERVATION,
}
