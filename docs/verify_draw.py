"""Checks an rq-draw/1 record: verify_draw.py [FILE [commit=<in the ledger>] [BEACON=<its published c[0]> ...]]"""
import functools, json, sys
from hashlib import sha256

def H(*parts):
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()

def wrong(intent, result, known, cuts=None):  # what was cut is the beginning of the order
    tokens, beacons, order = intent["tokens"], intent["beacons"], []
    commit = H(b"rq-draw/1", json.dumps(intent, sort_keys=True, separators=(",", ":")).encode())
    reveals = {beacon["id"]: bytes.fromhex(result["reveals"].get(beacon["id"], "")) for beacon in beacons}
    seed = H(commit, *reveals.values())
    numbers = (int.from_bytes(sha256(seed + count.to_bytes(8, "big")).digest(), "big") for count in range(2**64))
    below = lambda n: next(x for x in numbers if x < 2**256 - 2**256 % n) % n
    left = {token["owner"]: sorted(t["id"] for t in tokens if t["owner"] == token["owner"]) for token in tokens}
    while left := {owner: ids for owner, ids in left.items() if ids}:
        ids = left[sorted(left)[below(len(left))]]
        order.append(ids.pop(below(len(ids))))
    right = {"commit": commit.hex(), "reveals": {name: value.hex() for name, value in reveals.items()},
             "seed": seed.hex(), "order": order}
    down = lambda name, n: functools.reduce(lambda c, _: sha256(c).digest(), range(n), reveals[name]).hex()
    checks = {key: result.get(key) == right.get(key) for key in {**right, **result}} | {
        "version": intent["version"] == "rq-draw/1", "frozen": commit.hex() == known.pop("commit", commit.hex()),
        "tokens": [t["id"] for t in tokens] == sorted(set(order)), "beacons": 0 < len(reveals) == len(beacons),
        "previous": all(down(beacon["id"], 1) == beacon["previous"] for beacon in beacons),
        "published": known == {b["id"]: down(b["id"], b["index"]) for b in beacons if b["id"] in known}}
    return [name for name, holds in checks.items() if not holds]
if __name__ == "__main__":
    found = wrong(**json.load(open(sys.argv[1] if sys.argv[1:] else 0)), known=dict(x.split("=") for x in sys.argv[2:]))
    sys.exit("WRONG: " + ", ".join(map(ascii, found)) if found else print("OK"))
