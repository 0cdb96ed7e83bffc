"""The invariants of SPEC 13 by number and name, what each says, and how it is checked.

The names are used alike in violations, tests and documents. ``docs/reference/invariants.md`` is
``invariants_markdown()``. What is not checked in this release is listed as such, with the reason.
"""

from __future__ import annotations

from textwrap import fill

from msgspec import Struct


class Invariant(Struct, frozen=True, kw_only=True):
    """One rule that holds at all times."""

    number: int
    name: str
    says: str
    checked: bool = True
    how: str
    """What is compared with what; for a rule that is not checked yet, why."""


CAPACITY = Invariant(
    number=1,
    name="I1-capacity",
    says="GPUs in open Active and Spare leases on a node never exceed its capacity; Borrowed leases never "
    "exceed the spares they sit on.",
    how="After every entry, each GPU ordinal that it touched has at most one Active or Spare holder and at "
    "most one Borrowed one, which sits on a Spare. At opening, ordinals lie below the node's capacity. On "
    "a settled world a failed or deleted node holds no lease.",
)
LIMITS = Invariant(
    number=2,
    name="I2-limits",
    says="Per envelope, aggregate cap and lending sub-cap: used concurrency and GPU-hours are within limits "
    "at every instant, except where a limit was lowered below use, and then only until the resolver has run, "
    "or under Coast.",
    how="Concurrency after every entry; GPU-hours and the end of the window at the exact instant of the "
    "crossing, also between entries. What is above a limit must be asked to end, or be handed to another payer, "
    "within one minute after the crossing (a driver acts on a real clock, a little late), and after a limit was "
    "lowered (or its Budget or envelope removed) within `budgetGrace` and a minute; until then GPUs may only fall, "
    "and what was asked to end is charged until its pods are gone. Not due: while a draw waits for its reveals, or "
    "cannot be made, as was announced, because no custodian has published a chain; for "
    "a run that could not be drawn yet, until it has run for `activationLead`; for a lowered lending cap. Under "
    "Coast a notice that it has run out (`exhausted`, `window`, `lending`), recorded by then, excuses it, and a "
    "lowered limit needs none. A claim opens only where its declared time, or one look-ahead, is left after what "
    "is used and committed. `maxBorrowGPUs` per run.",
)
PODS = Invariant(
    number=3,
    name="I3-pods-and-leases",
    says="Every pod has open leases for exactly its GPUs; every open Active lease has a pod; terminal runs "
    "have neither.",
    how="After every entry, each ordinal of a live pod is held by a lease of the same run, attempt and "
    "group, and by one pod only. Work that gave way to the owner of a spare is asked to leave, and nobody is "
    "bound on its GPUs before it has left; terminal and deleted runs hold no lease and no live pod. At the end, of "
    "runs that no entry touched for two minutes, every open Active or Borrowed lease has a pod on each of its "
    "ordinals, and terminal runs keep no pod at all.",
)
GANG = Invariant(
    number=4,
    name="I4-whole-gang",
    says="A gang is whole: a running fixed run holds exactly its width; a malleable one a legal width.",
    how="After every entry that touches it, a Starting or Running run holds all its groups in full, of one "
    "attempt, with the spares of each group when it starts; it is Running only when every pod is bound; a "
    "Pending run holds nothing; a terminal run stays terminal. Groups that were told to leave count no more. "
    "A malleable run grows by one step, not above what is desired, not twice within `growInterval`, and under "
    "group indexes that its attempt never had.",
)
IMMUTABLE = Invariant(
    number=5,
    name="I5-immutable",
    says="A lease's spec never changes; it closes once; its interval is not negative; the hash chain verifies.",
    how="A lease name opens once, for ever, at the instant of its entry, is told to end once, and closes once, with a "
    "known reason, between its start and the instant of the entry. The spec of an admitted run keeps all but "
    "its three free fields. Entries: dense numbers, time that never runs back, and (from raw bodies) the "
    "hash of the entry before.",
)
PAYER = Invariant(
    number=6,
    name="I6-payer-eligible",
    says="Payer's flavor, selector, window (or `allowAdmission`) and ACL matched at the moment of opening.",
    how="At each opening: the envelope exists and belongs to the payer; its flavor and selector match the "
    "node; its window is open and lasts as long as the declared duration; owned is the run's owner, "
    "shared is a sibling or parent with `sharing: Family`, borrowed needs `allowBorrow`, a sponsor, "
    "ancestor or cousin, and the lender's ACL. A lease that goes on in the place of another with the same payer "
    "(`Swap`, `Refund`) spends nothing new and is not asked again; a spare that takes over keeps its payer.",
)
DOMAIN = Invariant(
    number=7,
    name="I7-domain-and-ranks",
    says="Each group lies in one domain; ranks are unique, and dense for fixed runs.",
    how="What opens for a group lies in a domain (region, cluster, fabric domain) in which the group is, as nodes are "
    "labelled then, and a new group in one; a run stays in its cluster, and in its domain without "
    "`allowCrossGroupSpread`. Who relabels a node takes along what is on it. Nothing "
    "opens on a cordoned, unready, tainted, failed or unlabelled node, or outside `locality.selector`. "
    "Ranks of an attempt's pods; a rank stays with its group.",
)
RESERVATION = Invariant(
    number=8,
    name="I8-reservation-not-delayed",
    says="No entry that opens a lease by `Start` or `Grow` makes a promise untenable that was tenable before it; and a "
    "promise is moved later or Blocked only by an entry before which it was untenable, or which changes a node, a "
    "budget, the policy, the run itself or an end that an operator moved.",
    how="A promise is what a Pending or Active reservation says. It is tenable if, 30 s after its bound (after now, "
    "once that is past), each of its nodes, envelopes, aggregate caps and lending caps holds the GPUs of leases "
    "that are still there, and of all promises that are on then; and if each of its accounts of hours holds what "
    "was used, what declared leases will still use, and what all promises will. A lease is there until its "
    "declared end (counted from the binding), until the bound of a run that was let past distant promises, or "
    "until its payer's hours or window run out; who was asked to end is gone, and so is backfill that overstays; "
    "who is past its end otherwise, or has none, stays for ever. Not counted are the runs that it, or a "
    "`conservative` one before it, names, unless they left the queue since it was made or will not have run for "
    "`activationLead`. After each entry that touches a promise which was tenable just before: it is tenable "
    "still, if somebody was let in, or promised something, on one of its pots; and its bound is no later, and it "
    "is not Blocked. A change of its node, of a Budget, of the policy or of its run clears the entry, and so does "
    "what the entry did to leases, if that broke it by itself (a slot that a failure takes, money handed over or "
    "lasting longer, an end that is moved). A later start has a reason in its record. A promise as first made "
    "never changes, a run has one reservation, and one that is over stays over. On a settled world none is "
    "Pending past its bound.",
)
CUT = Invariant(
    number=9,
    name="I9-cut-recomputable",
    says="Every cut has a resolution record from which the same cut can be recomputed.",
    how="A lease that is to end `DropSpare`, `Overstay` or `RandomPreempt` is named by a resolution record in the same "
    "entry; so is one that ends `Shrink`, unless its run was wider than desired or lost a node in that entry, and "
    "`ReclaimedBySpare`, unless a spare takes over there. What a record names ends so in its entry; steps come in the "
    "order of SPEC 8; only spares are dropped; a drawn or overstayed run ends whole. A lottery is drawn again: its "
    "intent is the one that an earlier entry froze, its beacons are the published chains, each at its next value; "
    "commit, seed and order follow, the closures name the seed, and the runs cut are the beginning of the order. One "
    "freeze and one resolution for each subject and activation. Each token is a run of that owner with so many Active "
    "GPUs in scope; a run that could have been drawn and was not in the pool no longer holds what it held in "
    "scope. That no shorter beginning of the order would have done is not checked: it takes the planner.",
)
SUMS = Invariant(
    number=10,
    name="I10-sums-agree",
    says="The sum over payers of GPU-time equals the sum over nodes equals the sum over runs, exactly, and "
    "what was spent stays spent: editing a budget never changes charges already accrued.",
    how="Three sums kept apart at every check, and recounted from scratch over the whole ledger; all charges "
    "of a Budget before and after each edit; the use that a notice states; the payers that a decision "
    "names against the leases it opens.",
)
SETTLED = Invariant(
    number=11,
    name="I11-settled",
    says="On a settled world one more pass writes nothing.",
    how="The shells' tests run one more pass and hand what it wrote to `settled_pass_wrote`.",
)
LIVENESS = Invariant(
    number=12,
    name="I12-liveness",
    says="When faults stop, every feasible pending run starts; no run is cut before it has run for `activationLead`.",
    how="The second half: a lease that ends `RandomPreempt` belongs to a run that had been Running for "
    "`activationLead`, and so does every token of a draw; a reservation of a run that was requeued after a cut cuts "
    "nobody. The first half is no property of a ledger: it is shown by the simulation tests.",
)

INVARIANTS: tuple[Invariant, ...] = (
    CAPACITY, LIMITS, PODS, GANG, IMMUTABLE, PAYER, DOMAIN, RESERVATION, CUT, SUMS, SETTLED, LIVENESS,
)  # fmt: skip


def invariants_markdown() -> str:
    """The reference page, generated so that it cannot differ from what is checked."""
    intro = (
        "What holds at every instant, whatever happens. One checker, `tenure.audit`, reads the ledger and "
        "shares no code with the engine that wrote it; every test tier runs it. A violation carries the name "
        "below, the instant, the object, and what was expected and found."
    )
    note = "<!-- Generated from src/tenure/audit/invariants.py by `make generate`; do not edit. -->"
    head = f"# Invariants\n\n{note}\n\n{_wrapped(intro)}\n"
    return head + "".join(_section(invariant) for invariant in INVARIANTS)


def _section(invariant: Invariant) -> str:
    label = "Checked." if invariant.checked else "Not checked in this release."
    return f"\n## {invariant.name}\n\n{_wrapped(invariant.says)}\n\n{_wrapped(f'**{label}** {invariant.how}')}\n"


def _wrapped(text: str) -> str:
    return fill(text, width=110, break_long_words=False, break_on_hyphens=False)
