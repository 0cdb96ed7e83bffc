"""How it is damaged: each case is one named change of a store's bytes, and its name is enough to make it again.

    ORIGINAL:KIND:WHERE:WHAT         rebooted:cut:fleet.db-wal:12800      finished:flip:fleet.db:4100.3

Nothing here is chosen by the clock or by luck that cannot be repeated: offsets come from the names themselves.

An old anchor vouches for as much as it says, so with one in place the store may be as old as it (``floor``) and no
older. A whole store put back together with its anchor cannot be told from one that never went on: that is why the
anchor may lie on another disk, and why a cluster's journal is also held against the API server.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import combinations, islice, zip_longest

from msgspec import Struct

from proof.damage.originals import LEDGER, Files, Original

SECTOR, PAGE, FRAME, WAL_HEADER, FRAME_HEADER = 512, 4096, 24 + 4096, 32, 24
FLIPS_MIN = 500
_SEQ = re.compile(rb"tenure-anchor/1 \S+ (\d+) ")


class Case(Struct, frozen=True, order=True):
    """One damaged image, by name."""

    original: str
    kind: str
    where: str
    what: str

    @property
    def id(self) -> str:
        return f"{self.original}:{self.kind}:{self.where}:{self.what}"

    @classmethod
    def named(cls, text: str) -> Case:
        parts = text.split(":")
        if len(parts) != 4 or parts[1] not in KINDS:
            raise ValueError(f"an image is named ORIGINAL:KIND:WHERE:WHAT with a kind of {', '.join(KINDS)}")
        return cls(*parts)


def damaged(case: Case, whole: Original) -> Files:
    """The store's files with this damage; the same bytes each time, for the same store."""
    return KINDS[case.kind].do(dict(whole.files), whole, case)


def floor(case: Case, whole: Original, files: Files) -> int:
    """How much must be there at least: all that was acknowledged, or what an old anchor in its place vouches for."""
    if case.kind != "old" or not any(name.endswith(".anchor") for name in case.where.split("+")):
        return len(whole.acknowledged)
    (anchor,) = (raw for name, raw in files.items() if name.endswith(".anchor"))
    return max(int(seq) for seq in _SEQ.findall(anchor))


def plan(wholes: dict[str, Original], count: int) -> list[Case]:
    """So many cases, spread over all kinds: each change there is, and as many flipped bits as make up the number."""
    every = (case for whole in wholes.values() for kind in KINDS.values() for case in kind.cases(whole))
    fixed, flips = list(dict.fromkeys(filter(_sensible, every))), _once(filter(_sensible, _flips(wholes)))
    if count >= len(fixed) + FLIPS_MIN:
        return fixed + list(islice(flips, count - len(fixed)))
    most = fixed + list(islice(flips, FLIPS_MIN))
    return [most[number * len(most) // count] for number in range(count)]


def _sensible(case: Case) -> bool:
    """The -shm of a process that is alive is its memory: who changes that has not damaged a disk."""
    return case.original != "open" or "-shm" not in case.where


# --- the kinds ------------------------------------------------------------------------------------------------------


def _cut(files: Files, whole: Original, case: Case) -> Files:
    return files | {case.where: files[case.where][: int(case.what)]}


def _cuts(whole: Original) -> Iterator[Case]:
    """At every sector; of files that others have like this one, at some."""
    for name, raw in whole.files.items():
        step = SECTOR if whole.name in ("rebooted", "finished", "custodian") else SECTOR * 15
        step = 61 if whole.name == "archive" else step
        for offset in {*range(0, len(raw), step), len(raw) - 1} - {-1}:
            yield Case(whole.name, "cut", name, str(offset))
    if whole.name == "custodian":
        yield from (Case(whole.name, "cut", "journal", str(line * 93)) for line in range(24))


def _flip(files: Files, whole: Original, case: Case) -> Files:
    offset, bit = (int(part) for part in case.what.split("."))
    raw = bytearray(files[case.where])
    raw[offset % len(raw)] ^= 1 << bit
    return files | {case.where: bytes(raw)}


def _zero(files: Files, whole: Original, case: Case) -> Files:
    at, raw = int(case.what), files[case.where]
    return files | {case.where: raw[:at] + bytes(min(SECTOR, len(raw) - at)) + raw[at + SECTOR :]}


def _zeros(whole: Original) -> Iterator[Case]:
    for name, raw in whole.files.items():
        step = SECTOR if len(raw) < 20_000 else SECTOR * (4 if whole.name in ("rebooted", "finished") else 30)
        yield from (Case(whole.name, "zero", name, str(at)) for at in range(0, len(raw), step))


def _stray(files: Files, whole: Original, case: Case) -> Files:
    """A sector that was meant for another place."""
    to, source = (int(part) for part in case.what.split("<"))
    raw = files[case.where]
    return files | {case.where: raw[:to] + raw[source : source + SECTOR] + raw[to + SECTOR :]}


def _strays(whole: Original) -> Iterator[Case]:
    for name, raw in whole.files.items():
        sectors = len(raw) // SECTOR
        luck = random.Random(f"stray {whole.name} {name}")
        for _ in range(min(18, sectors * (sectors - 1))):
            to, source = (SECTOR * each for each in luck.sample(range(sectors), 2))
            yield Case(whole.name, "stray", name, f"{to}<{source}")


def _frames(files: Files, whole: Original, case: Case) -> Files:
    """Frames of the WAL that changed places, came twice, or were lost."""
    verb, first, second = case.what.split("-")
    name, one, two = case.where, int(first), int(second)
    header, rest = files[name][:WAL_HEADER], files[name][WAL_HEADER:]
    frames = [rest[at : at + FRAME] for at in range(0, len(rest), FRAME)]
    match verb:
        case "swap":
            frames[one], frames[two] = frames[two], frames[one]
        case "over":
            frames[one] = frames[two]
        case "lose":
            del frames[one]
        case "payload":
            frames[one] = frames[one][:FRAME_HEADER] + frames[two][FRAME_HEADER:]
    return files | {name: header + b"".join(frames)}


def _frame_cases(whole: Original) -> Iterator[Case]:
    name = f"{LEDGER}-wal"
    count = len(whole.files.get(name, b"")) // FRAME
    luck = random.Random(f"frames {whole.name}")
    for number in range(48 if count > 2 else 0):
        one, two = luck.sample(range(count), 2)
        yield Case(whole.name, "frames", name, f"{('swap', 'over', 'lose', 'payload')[number % 4]}-{one}-{two}")


def _pages(files: Files, whole: Original, case: Case) -> Files:
    """Pages of the database that changed places, or of which one overwrote another."""
    verb, first, second = case.what.split("-")
    one, two, raw = int(first), int(second), files[case.where]
    pages = [raw[at : at + PAGE] for at in range(0, len(raw), PAGE)]
    pages[one], pages[two] = pages[two], (pages[one] if verb == "swap" else pages[two])
    return files | {case.where: b"".join(pages)}


def _page_cases(whole: Original) -> Iterator[Case]:
    count = len(whole.files.get(LEDGER, b"")) // PAGE
    luck = random.Random(f"pages {whole.name}")
    for number in range(40 if count > 2 else 0):
        one, two = luck.sample(range(count), 2)
        yield Case(whole.name, "pages", LEDGER, f"{'swap' if number % 2 else 'over'}-{one}-{two}")


def _old(files: Files, whole: Original, case: Case) -> Files:
    """Some files as they were earlier; one that was not there then is gone."""
    for name, number in zip(case.where.split("+"), case.what.split("+"), strict=True):
        files.pop(name, None)
        if name in (past := whole.past[int(number)]):
            files[name] = past[name]
    return files


def _old_cases(whole: Original) -> Iterator[Case]:
    names = [name for name in {**whole.files, **whole.past[-1]} if not name.endswith("-shm")]
    count = len(whole.past)
    for some in _some(names, most=len(names) if whole.name in ("journal", "archive", "custodian") else len(names) - 1):
        if whole.name == "archive":
            continue  # segments never change: an old copy of the folder lacks some of them, see "missing"
        yield from (Case(whole.name, "old", "+".join(some), "+".join([str(at)] * len(some))) for at in range(count))
        luck = random.Random(f"old {whole.name} {some}")
        for _ in range(6 if len(some) > 1 else 0):  # and each of another day
            yield Case(whole.name, "old", "+".join(some), "+".join(str(luck.randrange(count)) for _ in some))


def _missing(files: Files, whole: Original, case: Case) -> Files:
    return {name: raw for name, raw in files.items() if name not in case.where.split("+")}


def _missing_cases(whole: Original) -> Iterator[Case]:
    return (Case(whole.name, "missing", "+".join(some), "gone") for some in _some(list(whole.files)))


def _foreign(files: Files, whole: Original, case: Case) -> Files:
    """Files of another fleet under our names."""
    theirs = dict(zip(sorted(whole.files), (whole.foreign[name] for name in sorted(whole.foreign)), strict=True))
    return files | {name: theirs[name] for name in case.where.split("+")}


def _foreign_cases(whole: Original) -> Iterator[Case]:
    """Not all of them at once: that is another fleet's ledger, and a good one. A cluster knows its own."""
    if not whole.foreign:
        return
    vital = [name for name in whole.files if not name.endswith("-shm")]
    for some in _some(list(whole.files)):
        if whole.name in ("journal", "archive") or not set(vital) <= set(some):
            yield Case(whole.name, "foreign", "+".join(some), "theirs")


def _grown(files: Files, whole: Original, case: Case) -> Files:
    """Something was appended: zeros, as by a file system that made room, or the file's own beginning."""
    verb, size = case.what.split("-")
    raw = files[case.where]
    return files | {case.where: raw + (bytes(int(size)) if verb == "zeros" else raw[: int(size)])}


def _grown_cases(whole: Original) -> Iterator[Case]:
    for name in whole.files:
        for size in (1, SECTOR, PAGE, FRAME):
            yield from (Case(whole.name, "grown", name, f"{verb}-{size}") for verb in ("zeros", "itself"))


class Kind(Struct, frozen=True):
    """How to damage, and what there is to damage."""

    do: Callable[[Files, Original, Case], Files]
    cases: Callable[[Original], Iterator[Case]]


KINDS: dict[str, Kind] = {
    "cut": Kind(_cut, _cuts),
    "flip": Kind(_flip, lambda _: iter(())),
    "zero": Kind(_zero, _zeros),
    "stray": Kind(_stray, _strays),
    "frames": Kind(_frames, _frame_cases),
    "pages": Kind(_pages, _page_cases),
    "old": Kind(_old, _old_cases),
    "missing": Kind(_missing, _missing_cases),
    "foreign": Kind(_foreign, _foreign_cases),
    "grown": Kind(_grown, _grown_cases),
}


def _some(names: list[str], most: int | None = None) -> Iterator[tuple[str, ...]]:
    """Every choice of at least one of them."""
    return (some for size in range(1, (most or len(names)) + 1) for some in combinations(names, size))


# --- flipped bits, zone by zone -------------------------------------------------------------------------------------


def _flips(wholes: dict[str, Original]) -> Iterator[Case]:
    """For ever, one from each zone in turn."""
    streams = [_zone(whole, *zone) for whole in wholes.values() for zone in _zones(whole)]
    while True:
        for case in zip_longest(*(islice(stream, 1) for stream in streams)):
            yield from (one for one in case if one is not None)


def _once(cases: Iterator[Case]) -> Iterator[Case]:
    seen: set[Case] = set()
    return (case for case in cases if not (case in seen or seen.add(case)))  # type: ignore[func-returns-value]


def _zone(whole: Original, file: str, zone: str, places: Callable[[random.Random], int]) -> Iterator[Case]:
    luck = random.Random(f"flip {whole.name} {file} {zone}")
    while True:
        yield Case(whole.name, "flip", file, f"{places(luck)}.{luck.randrange(8)}")


def _zones(whole: Original) -> Iterator[tuple[str, str, Callable[[random.Random], int]]]:
    """The parts of a file that mean different things: header, heads of pages, payloads, ..."""
    for name, raw in whole.files.items():
        size = len(raw)
        if name == LEDGER:
            yield name, "header", lambda luck: luck.randrange(100)
            yield name, "schema", lambda luck: luck.randrange(100, PAGE)
            yield name, "heads", lambda luck, size=size: luck.randrange(0, size, PAGE) + luck.randrange(12)
            yield name, "cells", lambda luck, size=size: luck.randrange(PAGE, size)
            yield name, "anywhere", lambda luck, size=size: luck.randrange(size)
        elif name == f"{LEDGER}-wal":
            yield name, "header", lambda luck: luck.randrange(WAL_HEADER)
            yield (
                name,
                "frame heads",
                lambda luck, size=size: (
                    WAL_HEADER + luck.randrange(size // FRAME) * FRAME + luck.randrange(FRAME_HEADER)
                ),
            )
            yield name, "payloads", lambda luck, size=size: luck.randrange(WAL_HEADER, size)
        elif name.endswith(".anchor"):
            yield name, "line", lambda luck: luck.randrange(2) * PAGE + luck.randrange(170)
        else:
            yield name, "anywhere", lambda luck, size=size: luck.randrange(size)
