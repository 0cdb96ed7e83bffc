"""What the lottery's tests are written in: pools, whole records as JSON has them, and ways to tamper with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from tenure.draw import VERSION, H, canon
from tenure.engine.lottery import (
    Beacon,
    Intent,
    ReservationRef,
    Result,
    Token,
    draw,
    draws,
    simulated_chain,
)

Record = dict[str, Any]
OPERATOR, AUDITOR = simulated_chain("operator", 40), simulated_chain("auditor", 40)
CHAINS = {"operator": OPERATOR, "auditor": AUDITOR, "union": simulated_chain("union", 40)}


def pool(**runs: str) -> tuple[Token, ...]:
    """``pool(a="x y", b="z")``: owner org:a has runs ns/x and ns/y, owner org:b has ns/z."""
    made = [Token(id=f"ns/{run}", owner=f"org:{o}", gpus=8) for o, names in runs.items() for run in names.split()]
    return tuple(sorted(made, key=lambda token: token.id))


def intent(tokens: tuple[Token, ...], *, index: int = 7, beacons: tuple[str, ...] = ("operator",)) -> Intent:
    return Intent(
        version=VERSION,
        reservation=ReservationRef(namespace="rai", name="train-128", uid="u-1"),
        activation=1,
        at="2025-11-01T00:15:00Z",
        ledger_head="ab" * 32,
        deficit=16,
        tokens=tokens,
        beacons=tuple(Beacon(id=name, index=index, previous=CHAINS[name][index - 1].hex()) for name in beacons),
    )


def reveals(frozen: Intent) -> dict[str, str]:
    return {beacon.id: CHAINS[beacon.id][beacon.index].hex() for beacon in frozen.beacons}


def drawn(frozen: Intent) -> Result:
    result = draw(frozen, reveals(frozen))
    assert isinstance(result, Result), result.sentence
    return result


def as_json(frozen: Intent, result: Result) -> Record:
    """The record as anybody reads it from the ledger."""
    read: Record = json.loads(msgspec.json.encode({"intent": frozen, "result": result}))
    return read


def good_record() -> Record:
    frozen = intent(pool(a="one two three", b="four", c="five six"), beacons=("operator", "auditor"))
    return as_json(frozen, drawn(frozen))


def random_intent(luck: Random) -> Intent:
    """Any pool of up to a dozen runs, any of the beacons, names beyond ASCII included."""
    letters = "abz0-é漢😀"
    owners = ["org:" + "".join(luck.choices(letters, k=3)) for _ in range(luck.randint(1, 4))]
    names = {"".join(luck.choices(letters + "/", k=luck.randint(1, 6))) for _ in range(luck.randint(0, 12))}
    tokens = tuple(Token(id=i, owner=luck.choice(owners), gpus=luck.randint(1, 64)) for i in sorted(names))
    beacons = luck.sample(sorted(CHAINS), k=luck.randint(1, 3))
    plain = intent(tokens, index=luck.randint(1, 40), beacons=tuple(beacons))
    return msgspec.structs.replace(
        plain,
        ledger_head=luck.randbytes(32).hex(),
        deficit=luck.randint(0, 999),
        activation=luck.randint(1, 9),
        reservation=ReservationRef(namespace=luck.choice(["", "rai", "漢"]), name="x", uid=str(luck.random())),
    )


def forge(record: Record) -> Record:
    """What a forger does who knows the rules: make the result fit the altered record, without asking ``draw``."""
    frozen, told = record["intent"], record["result"]["reveals"]
    commit = H(b"rq-draw/1", canon(frozen))
    seed = H(commit, *(bytes.fromhex(told[beacon["id"]]) for beacon in frozen["beacons"]))
    order = list(draws([Token(**token) for token in frozen["tokens"]], seed))
    record["result"] = {"commit": commit.hex(), "reveals": told, "seed": seed.hex(), "order": order}
    return record


def _set(*path: str | int, to: object) -> Callable[[Record], Record]:
    """Put a value at a path of the record."""

    def tamper(record: Record) -> Record:
        place: Any = record
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        return record

    return tamper


def _drop(*path: str | int) -> Callable[[Record], Record]:
    def tamper(record: Record) -> Record:
        place: Any = record
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        return record

    return tamper


def _do(change: Callable[[Record], object], *, forged: bool = False) -> Callable[[Record], Record]:
    def tamper(record: Record) -> Record:
        change(record)
        return forge(record) if forged else record

    return tamper


def _swap_reveals(record: Record) -> None:
    told = record["result"]["reveals"]
    told["operator"], told["auditor"] = told["auditor"], told["operator"]


def _double(items: list[Any]) -> None:
    items.insert(1, items[0])


TAMPERING: dict[str, tuple[Callable[[Record], Record], str]] = {
    # Somebody edits the intent after the draw.
    "another version": (_set("intent", "version", to="rq-draw/0"), "WrongVersion"),
    "the reservation of another run": (_set("intent", "reservation", "name", to="train-64"), "CommitMismatch"),
    "another object of that name": (_set("intent", "reservation", "uid", to="u-2"), "CommitMismatch"),
    "another activation": (_set("intent", "activation", to=2), "CommitMismatch"),
    "an earlier instant": (_set("intent", "at", to="2025-11-01T00:14:59Z"), "CommitMismatch"),
    "an instant that is none": (_set("intent", "at", to="yesterday"), "Malformed"),
    "another ledger": (_set("intent", "ledgerHead", to="cd" * 32), "CommitMismatch"),
    "a smaller deficit": (_set("intent", "deficit", to=8), "CommitMismatch"),
    "a run left out of the pool": (_drop("intent", "tokens", 2), "CommitMismatch"),
    "a run slipped into the pool": (
        _do(lambda record: record["intent"]["tokens"].append({"id": "ns/zzz", "owner": "org:d", "gpus": 8})),
        "CommitMismatch",
    ),
    "a run under another owner": (_set("intent", "tokens", 0, "owner", to="org:b"), "CommitMismatch"),
    "a run of another width": (_set("intent", "tokens", 0, "gpus", to=4), "CommitMismatch"),
    "a run by another name": (_set("intent", "tokens", 5, "id", to="ns/two-b"), "CommitMismatch"),
    "a pool in another order": (_do(lambda record: record["intent"]["tokens"].reverse()), "TokensUnsorted"),
    "a beacon left out": (_drop("intent", "beacons", 1), "CommitMismatch"),
    "beacons in another order": (_do(lambda record: record["intent"]["beacons"].reverse()), "CommitMismatch"),
    "another index of the chain": (_set("intent", "beacons", 0, "index", to=8), "CommitMismatch"),
    "another value before": (_set("intent", "beacons", 0, "previous", to="00" * 32), "CommitMismatch"),
    "a field that was not there": (_set("intent", "priority", to=1), "Malformed"),
    "a field gone": (_drop("intent", "activation"), "Malformed"),
    "a number as text": (_set("intent", "tokens", 0, "gpus", to="8"), "Malformed"),
    "a number as true": (_set("intent", "activation", to=True), "Malformed"),
    "a number with a fraction": (_set("intent", "deficit", to=16.0), "Malformed"),
    # Somebody edits the result.
    "the commit of another intent": (_set("result", "commit", to="00" * 32), "CommitMismatch"),
    "an older reveal": (_set("result", "reveals", "operator", to=OPERATOR[6].hex()), "WrongReveal"),
    "a reveal of one's own": (_set("result", "reveals", "operator", to="11" * 32), "WrongReveal"),
    "a reveal withheld": (_drop("result", "reveals", "auditor"), "MissingReveal"),
    "a reveal nobody asked for": (_set("result", "reveals", "friend", to="11" * 32), "UnknownBeacon"),
    "a reveal spelled in capitals": (
        _set("result", "reveals", "operator", to=OPERATOR[7].hex().upper()), "Malformed"),
    "a reveal that is too short": (_set("result", "reveals", "operator", to="11" * 31), "Malformed"),
    "a reveal that is no hex": (_set("result", "reveals", "operator", to="z" * 64), "Malformed"),
    "reveals swapped between beacons": (_do(_swap_reveals), "WrongReveal"),
    "a seed that was chosen": (_set("result", "seed", to="11" * 32), "SeedMismatch"),
    "victims exchanged": (_do(lambda record: record["result"]["order"].reverse()), "OrderMismatch"),
    "a victim spared": (_drop("result", "order", 0), "OrderIncomplete"),
    "a victim put last": (
        _do(lambda record: record["result"]["order"].append(record["result"]["order"].pop(0))), "OrderMismatch"),
    "a victim named twice": (_do(lambda record: _double(record["result"]["order"])), "OrderTwice"),
    "a victim from outside the pool": (
        _do(lambda record: record["result"]["order"].append("ns/stranger")), "OrderStranger"),
    "a remark in the result": (_set("result", "note", to="approved"), "Malformed"),
    "no order at all": (_drop("result", "order"), "Malformed"),
    "no result": (_drop("result"), "Malformed"),
    "a third part": (_set("approval", to={}), "Malformed"),
    # A forger who makes the result fit the altered record.
    "a reveal of one's own, forged": (
        _do(_set("result", "reveals", "operator", to="11" * 32), forged=True), "WrongReveal"),
    "an older reveal, forged": (
        _do(_set("result", "reveals", "operator", to=OPERATOR[6].hex()), forged=True), "WrongReveal"),
    "a pool in another order, forged": (
        _do(lambda record: record["intent"]["tokens"].reverse(), forged=True), "TokensUnsorted"),
    "a run with two tokens, forged": (
        _do(lambda record: _double(record["intent"]["tokens"]), forged=True), "TokenTwice"),
    "a beacon that counts twice, forged": (
        _do(lambda record: _double(record["intent"]["beacons"]), forged=True), "BeaconTwice"),
    "no beacon, forged": (
        _do(lambda record: (record["intent"]["beacons"].clear(), record["result"]["reveals"].clear()), forged=True),
        "NoBeacon",
    ),
    "another version, forged": (_do(_set("intent", "version", to="rq-draw/0"), forged=True), "WrongVersion"),
}  # fmt: skip
"""What somebody might do to a record, each with the code of the finding that names it."""
