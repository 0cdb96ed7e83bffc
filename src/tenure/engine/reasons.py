"""Every reason, once: its code, how decisive it is, whether waiting helps, and its sentence.

A reason travels as ``facts.Reason(code, data)``; people read ``sentence(reason)``. Docs are generated from this table.
Lower precedence is more decisive: when several reasons apply, the headline is the one with the lowest.

>>> sentence(Reason(code="ConcurrencyCapExceeded", data={"envelope": "rai/west", "limit": 128, "used": 120, "asked": 16, "short": 8}))
'rai/west allows 128 GPUs at once; 120 are in use and 16 were asked: 8 too many.'
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from tenure.facts import Reason


class Rule(Struct, frozen=True):
    code: str
    precedence: int
    waiting_helps: bool
    template: str
    remedy: str

    @property
    def pattern(self) -> str:
        """The sentence with ``{names}`` where its numbers go."""
        return self.template.format_map(_Names())


def _rules(*rows: tuple[str, bool, str, str]) -> dict[str, Rule]:
    return {code: Rule(code, rank, helps, text, remedy) for rank, (code, helps, text, remedy) in enumerate(rows)}


RULES: dict[str, Rule] = _rules(
    # Cover: who pays (SPEC 4), in the order of the headline.
    ("InvalidRequest", False, "The request is not valid: {problem}.", "Correct the Run and submit it again."),
    ("BorrowLimit", True, "The run may borrow {limit:GPU} and borrows {held}; {asked:more were} needed: {short} too many.",
     "Raise funding.maxBorrowGPUs, or wait for money of the owner's own."),
    ("AggregateCapExceeded", True, "The cap {envelope} has room for {room:GPU} of this claim; {asked:were} asked: {short} too many.",
     "Wait for other work under the cap to end, or ask its budget owner to raise it."),
    ("IntegralCapExceeded", True, "{envelope} has {hours:GPU-hour} left, enough for {room:GPU} for {period}; {asked:were} asked: {short} too many.",
     "Declare a shorter expectedDuration, ask for fewer GPUs, or ask the budget owner for hours."),
    ("LendingCapExceeded", True, "{envelope} may lend {room:more GPU} for this claim; {asked:were} asked: {short} too many.",
     "Wait for other borrowers to finish, or name another sponsor."),
    ("ConcurrencyCapExceeded", True, "{envelope} allows {limit:GPU} at once; {used:are} in use and {asked:were} asked: {short} too many.",
     "Wait for work paid by this envelope to end, or borrow from a sponsor."),
    ("ACLDenied", False, "{envelope} does not lend to {owner}.", "Ask its budget owner to add you to lending.to."),
    ("SharingOptOut", False, "{envelope} does not share with its family.", "List its owner as a sponsor, if it lends to you."),
    ("WindowClosed", True, "{envelope} is open {window}, which does not cover {needed}.",
     "Wait for the window to open, or declare an expectedDuration that ends inside it."),
    ("NoEnvelope", False, "No envelope can pay for {asked} {flavor} {asked:=GPU} of {owner} here.",
     "Ask a budget owner for an envelope of this flavor whose selector matches the place, or sponsors to borrow from."),
    # Pack: where it runs (SPEC 5).
    ("NoNodes", False, "No node has {flavor} GPUs where this run may go.", "Check gpuType and locality.selector against `kubectl runs nodes`."),
    ("TooLarge", False, "Even an empty fleet could not hold {shape}: {where} came closest, with room for {room:GPU}.",
     "Ask for fewer GPUs, smaller groups, or allow more domains."),
    ("PayersApart", False, "There is room for {shape}, but nowhere may the same envelopes pay for all of a group.",
     "Use smaller groups, or ask for an envelope whose selector covers the whole domain."),
    ("NoCapacity", True, "{where} has {free:free GPU} of the {need} that {need:=are} needed.", "Wait for running work to end."),
    ("Fragmented", True, "{where} has {free:free GPU} for the {need} needed, but not as {shape}: a domain has room for at most {largest:GPU} of that.",
     "Wait, or use smaller groups or pods."),
    ("SpreadForbidden", True, "No single domain has room for {need:GPU}; {where} came closest with {largest} free.",
     "Wait, or set locality.allowCrossGroupSpread."),
    ("Protected", True, "There is room now, but to start would delay {run}, which is reserved for {at}.",
     "Declare an expectedDuration that ends before then, or wait for its own reservation."),
    ("NoMoneyInSight", True, "Nobody can pay for {short:GPU} of this run, now or at any time that is known: others hold the money, or were promised it before.",
     "Ask a budget owner for money, or name a sponsor who lends."),
    ("NoStartInSight", True, "Nothing that is known to end frees enough, and to cut others would not make it fit.", "Wait for running work to end, or for machines to come back."),
    ("CutsNobody", True, "Nothing that is known to end frees enough, and nobody is cut for this run: it was cut itself, or is opportunistic.",
     "Wait for running work to end."),
    # The life of a run (SPEC 6, 9).
    ("Backoff", True, "The last start failed; the next try is at {at}.", "Look at `kubectl runs logs`."),
    ("StartFailed", True, "{pod} could not be started on {node}: {detail}", "Look at `kubectl runs logs`; it is tried again."),
    ("WorkloadFailed", False, "{pod} failed with exit code {code}.", "Look at `kubectl runs logs`."),
    ("PodLost", False, "{pod} was lost: {detail}", "Look at `kubectl runs logs`."),
    ("NodeFailure", True, "Node {node} failed under the run.", "Give the run spares, or a checkpoint window in which it may be requeued."),
    ("Swapped", False, "Rank {rank} moved from {old} to {new}: the world size is unchanged.", ""),
    ("Grown", False, "Grown by {gpus:GPU} to {width}.", ""),
    ("ShrunkByOwner", False, "Shrunk to {width:GPU}, as desired.", ""),
    ("ShrunkByFailure", False, "Node {node} failed and nothing could take over: {groups:group} given up.", "It grows again when machines and money allow."),
    ("ReclaimedBySpare", True, "The spare on {node} that it ran on was needed.", "Opportunistic work gives way at once; ask for onPreemption: Requeue."),
    ("SpareDropped", False, "{gpus:GPU} of spare on {node} given up {subject:for}.", "Spares are topped up again when capacity returns."),
    ("ShrunkByResolver", False, "Shrunk by resolver: {groups:group} ({gpus:GPU}) given up {subject:for}.", "It grows again when machines and money allow."),
    ("CutOverstayed", True, "It started ahead of older runs and was to be over by {until}: it gave way {subject:for}.",
     "Declare an expectedDuration that lasts; ask for onPreemption: Requeue to be queued again."),
    ("CutByLottery", True, "Drawn by lot {subject:to make room for}; the seed is {seed}.",
     "`kubectl runs verify` checks the draw; ask for onPreemption: Requeue to be queued again."),
    ("CheckpointExpired", False, "The run could not be placed again within its checkpoint window of {window}.", "Submit it again."),
    ("Canceled", False, "The run was deleted.", ""),
    ("Completed", False, "{pods:pod} succeeded.", ""),
    ("Started", False, "{pods:pod} bound: it runs.", ""),
    ("Admitted", False, "{gpus:GPU} on {nodes:node}, paid by {payers}.", ""),
    # Draws (SPEC 8).
    ("NoCustodian", True, "{subject} needs a draw, and no custodian has published a chain: nobody is cut.",
     "Make a chain with `tenure custodian init FOLDER`, and drive the fleet with `tenure up --custodian FOLDER`."),
    ("DrawFrozen", True, "{tokens:run} in the draw for {subject}: it waits for the reveals of {beacons}.", "`kubectl runs verify` checks the draw afterwards."),
    ("DrawWaits", True, "The draw for {subject} waits for its reveals; there is one draw at a time.", "See to the custodians: `tenure custodian status`."),
    # An operator asks for room (SPEC 8).
    ("NotWaiting", False, "{run} does not wait: it is {phase}.", "Only a run that waits needs room."),
    ("NoReservation", False, "{run} was promised no start, and nobody is cut for such a run: all places are taken, no start is known, or what it asks for can never be.",
     "See `kubectl runs explain`."),
    ("MadeAlready", True, "Room for {run} is being made already: it starts when what gives way has left.", "Wait for it, with `kubectl runs watch`."),
    ("CutBefore", True, "{run} was itself cut and queued again: it starts when machines are free, and nobody is cut for it.", "Wait for running work to end."),
    ("MoneyFirst", True, "Cuts free machines, never money: nobody can pay for {short:GPU} of {run} now.",
     "Find money first: see `kubectl runs explain` and `kubectl runs budgets usage`."),
    ("NothingIsEnough", True, "Even if everything gave way that may, {run} would not fit: nobody is cut.",
     "Wait: work that has just started, and what older reservations hold, gives way to nobody."),
    # Reservations (SPEC 7).
    ("Reserved", False, "To start at {at} on {where}: {confidence}.", ""),
    ("MovedEarlier", False, "The start moved from {old} to {new}.", ""),
    ("MovedLater", False, "The start moved from {old} to {new}: {why}.", ""),
    ("Countdown", False, "{run} starts in {left}.", ""),
    ("Activated", False, "The start of {run} is due: what it needs on {where} is held for it.", ""),
    ("Released", False, "It started {when}.", ""),
    ("EndsLate", True, "{run} was to end at {until} and has a moment more.", "Wait a moment."),
    ("Bounded", True, "{run} declares no end and was let past starts that are promised from {at} on: from then on it is the first to go.",
     "Declare an expectedDuration, or save your work before then."),
    ("DemandChanged", False, "The run asks for something else now: it is planned anew.", ""),
    # Nodes (SPEC 5).
    ("MissingLabel", False, "Node {node} has GPUs but lacks the label {label}: it takes no work.", "Label the node."),
    ("BadCount", False, "Node {node} offers {count} GPUs, which is no count: it takes no work.", "Repair the node's device plugin."),
    ("Overcommitted", False, "Node {node} offers {count:GPU}, and leases hold ordinals beyond them.", "Repair the node, or cancel what runs on it."),
    # Budgets (SPEC 3).
    ("OverBudget", False, "{envelope} pays for {used:GPU} and allows {limit}.",
     "Raise the limit, or let the work end."),
    ("Lowered", False, "{envelope} pays for {used:GPU} and now allows {limit}: what is too much gives way at {at}.",
     "Raise the limit before then, or let the work end."),
    ("HandedOver", False, "{gpus:GPU} that {envelope} can no longer pay for {gpus:=are} paid by {payers} from now on.", ""),
    ("HoursNotice", False, "{envelope} has used {percent} % of its {limit:GPU-hour}.", "See `kubectl runs budgets usage`."),
    ("ExhaustsSoon", False, "{envelope} will have {done} at {at}.", "Ask for hours, or let the work end."),
    ("Exhausted", False, "{envelope} has spent its {limit:GPU-hour}: it admits nothing more.", "Ask the budget owner for hours."),
    ("LendingNotice", False, "{envelope} has lent {percent} % of the {limit:GPU-hour} that it may lend.", "See `kubectl runs budgets lent`."),
    ("LendingExhaustsSoon", False, "{envelope} will have lent its {limit:GPU-hour} at {at}: what it lends ends then.", "Raise lending.maxGPUHours, or name another sponsor."),
    ("LendingExhausted", False, "{envelope} has lent its {limit:GPU-hour}: it lends nothing more, and what it has lent ends.", "Name another sponsor."),
    ("WindowOver", False, "The window of {envelope} is over: it admits nothing more.", "Ask the budget owner for a new window."),
)  # fmt: skip


OF_ONE: dict[str, str] = {"NoEnvelope": "{envelope} is granted for other places than where this run may go."}
"""What a reason says of one envelope among those that were visited, where that is something else."""

CAUSES: dict[str, str] = {
    "node-closed": "node {node} takes no work now",
    "leaving": "{run} was told to leave {node} and has not left yet",
    "overstays": "{run} overstays the end it declared",
    "swapped": "{run} moved to {node} when its node failed",
    "ends-later": "{run} on {node} started later than it was to, and ends at {at}",
    "starting": "{run} on {node} is still being started, and cannot give way yet",
    "went-first": "{run}, which went first, has {node} now",
    "unpaid": "{envelope} cannot pay any more",
    "lowered": "{envelope} allows {limit:GPU} now",
    "too-young": "who would give way has not run for long enough yet",
    "drawn-too-little": "the draw freed too little",
    "others-first": "runs that were promised a start earlier are planned otherwise now",
}
"""Why a start moved later: the last words of ``MovedLater``."""

_SINGULAR = {"are": "is", "were": "was"}


class _Word:
    """A value in a sentence. What stands after a colon is counted by it, ``{nodes:node}``: 1 node, 2 nodes, and
    ``{asked:were}``: 1 was, 2 were; with ``=`` the number itself is left out."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __format__(self, words: str) -> str:
        if not words:
            return str(self.value)
        *before, last = words.removeprefix("=").split()
        if self.value == 1:
            last = _SINGULAR.get(last, last)
        elif last not in _SINGULAR:
            last += "s"
        return " ".join([*([] if words[0] == "=" else [str(self.value)]), *before, last])


class _Subject(_Word):
    """For whom others give way: a reservation, or a budget that is short of money. ``{subject:for}`` is put in the words
    that suit it."""

    def __format__(self, words: str) -> str:
        name = str(self.value)
        if not words or not name.startswith("Budget/"):
            return " ".join(part for part in (words, name) if part)
        whom = "all that is lent" if name.endswith("/lending") else "all its runs"
        return f"because {name} can no longer pay for {whom}"


def for_whom(subject: str) -> str:
    """For whom, or why, others gave way.

    >>> for_whom("Reservation/rai/train-1"), for_whom("Budget/rai/west")
    ('for Reservation/rai/train-1', 'because Budget/rai/west can no longer pay for all its runs')
    """
    return format(_Subject(subject), "for")


class _Words(dict[str, _Word]):
    """A sentence with a number missing is still a sentence."""

    def __init__(self, data: Mapping[str, object]) -> None:
        super().__init__((key, _Subject(value) if key == "subject" else _Word(value)) for key, value in data.items())

    def __missing__(self, key: str) -> _Word:
        return _Word("?")


class _Names(dict[str, _Word]):
    """A sentence with the names of what is to be filled in."""

    def __missing__(self, key: str) -> _Word:
        return _Subject(f"{{{key}}}") if key == "subject" else _Word(f"{{{key}}}")


def because(cause: str, **data: int | str) -> str:
    """Why a start moved later, in words.

    >>> because("went-first", run="rai/train", node="a-1")
    'rai/train, which went first, has a-1 now'
    """
    return CAUSES[cause].format_map(_Words(data))


def sentence(reason: Reason) -> str:
    of_one = OF_ONE.get(reason.code, "") if "envelope" in reason.data else ""
    return _said(of_one or RULES[reason.code].template, tuple(reason.data.items()))


@lru_cache(maxsize=1024)  # one reason is told in several places
def _said(template: str, data: tuple[tuple[str, int | str], ...]) -> str:
    return template.format_map(_Words(dict(data)))


def remedy(reason: Reason, *, never: bool = False) -> str:
    """What helps. Waiting is no advice for what can never start."""
    rule = RULES[reason.code]
    return (
        "Waiting does not help: ask for less, or have the limit raised."
        if never and rule.waiting_helps
        else rule.remedy
    )


def is_money(reason: Reason) -> bool:
    """Whether somebody lacks money: one of the denials of SPEC 4."""
    return RULES[reason.code].precedence <= RULES["NoEnvelope"].precedence


def is_machines(code: str) -> bool:
    """Whether machines are short that may come free, or are promised to others."""
    rule = RULES.get(code)
    return rule is not None and RULES["TooLarge"].precedence < rule.precedence <= RULES["Protected"].precedence


def headline(reasons: Iterable[Reason]) -> Reason | None:
    """The most decisive of several; of equals the one that was least short, then the first."""

    def rank(reason: Reason) -> tuple[int, int]:
        short = reason.data.get("short", 0)
        return RULES[reason.code].precedence, short if isinstance(short, int) else 0

    return min(reasons, key=rank, default=None)


def reasons_page() -> str:
    """The reference page of all reasons."""
    lines = [
        "<!-- Written by `make generate` from src/tenure/engine/reasons.py; edit the table there. -->",
        "",
        "# Reasons",
        "",
        "Every reason that a condition, an event or `kubectl runs explain` can give, the most decisive first. Words in braces are",
        "filled with names and numbers. *Waiting helps* says whether the run may start by itself later.",
        "",
    ]
    for rule in RULES.values():
        lines += [f"## {rule.code}", "", rule.pattern, ""]
        if rule.code == "MovedLater":
            lines += ["Why is one of:", "", *(f"- {text.format_map(_Names())}" for text in CAUSES.values()), ""]
        helps = "Waiting helps." if rule.waiting_helps else ""
        lines += [" ".join(text for text in (helps, rule.remedy) if text), ""] if helps or rule.remedy else []
    return "\n".join(lines)
