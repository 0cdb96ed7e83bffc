"""How it is damaged: each case is one named change of a store's bytes, and its name is enough to make it again.

    ORIGINAL:KIND:WHERE:WHAT         rebooted:cut:fleet.db-wal:12800      finished:flip:fleet.db:4100.3

Nothing here is chosen by the clock or by luck that cannot be repeated: offsets come from the names themselves. What
changes nothing is no image, and the same bytes under two names are one (``plan``).

An old anchor vouches for as much as it says, so with one in place the store may be as old as it (``floor``) and no
older. A whole store put back together with its anchor cannot be told from one that never went on: that is why the
anchor may lie on another disk, and why a cluster's journal is also held against the API server.
"""

from __future__ import annotations

import hashlib
import random
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from itertools import combinations, count, islice

from msgspec import Struct

from proof.damage.originals import LEDGER, Files, Original

SECTOR, PAGE, FRAME, WAL_HEADER, FRAME_HEADER = 512, 4096, 24 + 4096, 32, 24
GROWN_MAX = 1 << 20
FLIPS_MIN = 1000
UNITS_A_ROUND = 16
"""A zone of so many pages or frames gets one flip more in each round."""
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
            raise ArgumentTypeError(f"an image is named ORIGINAL:KIND:WHERE:WHAT with a kind of {', '.join(KINDS)}")
        return cls(*parts)


class Unchanged(ValueError):
    """There is no such place, or what stands there is what the damage would write."""


def damaged(case: Case, whole: Original) -> Files:
    """The store's files with this damage; the same bytes each time, for the same store."""
    try:
        files = KINDS[case.kind].do(dict(whole.files), whole, case)
    except (LookupError, ValueError) as error:
        raise Unchanged(f"{case.id}: there is no such place in {whole.name}") from error
    if files == whole.files:
        raise Unchanged(f"{case.id} changes nothing: these are the bytes of {whole.name} without damage")
    return files


def floor(case: Case, whole: Original, files: Files) -> int:
    """How much must be there at least: all that was acknowledged, or what an old anchor in its place vouches for."""
    if case.kind != "old" or not any(name.endswith(".anchor") for name in case.where.split("+")):
        return len(whole.acknowledged)
    (anchor,) = (raw for name, raw in files.items() if name.endswith(".anchor"))
    return max(int(seq) for seq in _SEQ.findall(anchor))


def plan(wholes: dict[str, Original], images: int) -> list[Case]:
    """So many images that differ in their bytes: each change there is, and as many flipped bits as make up the number.

    Some bytes are an image of two stores, an empty folder for one, and are then tried with each of them: that makes
    a few more cases than images. With fewer images than there are changes, it is some of all of them.
    """
    tried = _Tried(wholes)
    every = (case for whole in wholes.values() for kind in KINDS.values() for case in kind.cases(whole))
    fixed = [case for case in every if tried.new(case)]
    flips = filter(tried.new, _flips(wholes))
    if len(tried.images) + FLIPS_MIN <= images:
        while len(tried.images) < images:
            fixed.append(next(flips))
        return fixed
    fixed += islice(flips, FLIPS_MIN)
    tried.images.clear()
    most = list(filter(tried.first, fixed))
    return [most[number * len(most) // images] for number in range(images)]


class _Tried:
    """Which bytes were planned for already. Whole stores count as such: no damage may end in one of them."""

    def __init__(self, wholes: dict[str, Original]) -> None:
        self._wholes = wholes
        self._known = {id(raw): _digest(raw) for whole in wholes.values() for raw in whole.files.values()}
        self.images: set[bytes] = set()
        self._cases = {(_reader(whole.name), self._image(whole.files)) for whole in wholes.values()}

    def new(self, case: Case) -> bool:
        """Whether these bytes were not given to the same reader yet."""
        if not _sensible(case):
            return False
        try:
            image = self.image(case)
        except Unchanged:
            return False
        if (_reader(case.original), image) in self._cases:
            return False
        self._cases.add((_reader(case.original), image))
        self.images.add(image)
        return True

    def first(self, case: Case) -> bool:
        """Whether nobody at all was given these bytes since ``images`` was cleared."""
        image, before = self.image(case), len(self.images)
        self.images.add(image)
        return len(self.images) > before

    def image(self, case: Case) -> bytes:
        return self._image(damaged(case, self._wholes[case.original]))

    def _image(self, files: Files) -> bytes:
        """What stands for all the bytes of a store and the names they are under."""
        parts = (
            f"{name}\0".encode() + (self._known.get(id(raw)) or _digest(raw)) for name, raw in sorted(files.items())
        )
        return _digest(b"".join(parts))


def different(cases: list[Case], wholes: dict[str, Original]) -> int:
    """How many images there are among these cases, by their bytes."""
    tried = _Tried(wholes)
    return len({tried.image(case) for case in cases})


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


def _reader(original: str) -> str:
    """Who is given the files: a ledger's four states are read in the same way."""
    return "ledger" if original in ("running", "rebooted", "finished", "unsaid") else original


def _sensible(case: Case) -> bool:
    """The -shm of a process that is alive is its memory: who changes that has not damaged a disk."""
    return case.original != "open" or "-shm" not in case.where


# --- the kinds ------------------------------------------------------------------------------------------------------


def _place(text: str, room: int) -> int:
    """An offset in a file, or another number below ``room``: in plain digits."""
    if not text.isdecimal() or not int(text) < room:
        raise IndexError(text)
    return int(text)


def _cut(files: Files, whole: Original, case: Case) -> Files:
    raw = files[case.where]
    return files | {case.where: raw[: _place(case.what, len(raw))]}


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
    offset, bit = case.what.split(".")
    raw = bytearray(files[case.where])
    raw[_place(offset, len(raw))] ^= 1 << _place(bit, 8)
    return files | {case.where: bytes(raw)}


def _zero(files: Files, whole: Original, case: Case) -> Files:
    raw = files[case.where]
    at = _place(case.what, len(raw))
    return files | {case.where: raw[:at] + bytes(min(SECTOR, len(raw) - at)) + raw[at + SECTOR :]}


def _zeros(whole: Original) -> Iterator[Case]:
    for name, raw in whole.files.items():
        step = SECTOR if len(raw) < 20_000 else SECTOR * (4 if whole.name in ("rebooted", "finished") else 30)
        yield from (Case(whole.name, "zero", name, str(at)) for at in range(0, len(raw), step))


def _stray(files: Files, whole: Original, case: Case) -> Files:
    """A sector that was meant for another place."""
    raw = files[case.where]
    to, source = (_place(part, len(raw)) for part in case.what.split("<"))
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
    name = case.where
    header, rest = files[name][:WAL_HEADER], files[name][WAL_HEADER:]
    frames = [rest[at : at + FRAME] for at in range(0, len(rest), FRAME)]
    one, two = (_place(each, len(frames)) for each in (first, second))
    match verb:
        case "swap":
            frames[one], frames[two] = frames[two], frames[one]
        case "over":
            frames[one] = frames[two]
        case "lose":
            del frames[one]
        case "payload":
            frames[one] = frames[one][:FRAME_HEADER] + frames[two][FRAME_HEADER:]
        case _:
            raise LookupError(verb)
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
    raw = files[case.where]
    pages = [raw[at : at + PAGE] for at in range(0, len(raw), PAGE)]
    one, two = (_place(each, len(pages)) for each in (first, second))
    pages[one], pages[two] = pages[two], {"swap": pages[one], "over": pages[two]}[verb]
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
        if name in (past := whole.past[_place(number, len(whole.past))]):
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
    raw, more = files[case.where], _place(size, GROWN_MAX)
    return files | {case.where: raw + {"zeros": bytes(more), "itself": raw[:more]}[verb]}


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
    """For ever, round by round some from each zone: more where there are more pages or frames, so that all are hit."""
    zones = [(whole, *zone) for whole in wholes.values() for zone in _zones(whole)]
    for turn in count():
        for whole, file, zone, unit, part in zones:
            size = len(whole.files[file])
            units = range(part.start, size, unit)
            share = 1 + len(units) // UNITS_A_ROUND
            first = len(units) // 2 if zone in ("cells", "payloads") else 0  # while heads begin at the beginning
            for number in range(first + turn * share, first + (turn + 1) * share):
                luck = random.Random(f"flip {whole.name} {file} {zone} {number}")
                start = units[number % len(units)]
                offset = start + luck.randrange(min(len(part), size - start))
                yield Case(whole.name, "flip", file, f"{offset}.{luck.randrange(8)}")


def _zones(whole: Original) -> Iterator[tuple[str, str, int, range]]:
    """The parts of a file that mean different things: header, heads of pages, payloads, ...

    A zone has a name, comes again after so many bytes (``unit``), and is that part of each unit.
    """
    for name, raw in whole.files.items():
        size = len(raw)
        if name == LEDGER:
            yield name, "header", size, range(100)
            yield name, "schema", size, range(100, PAGE)
            yield name, "heads", PAGE, range(12)
            yield name, "cells", PAGE, range(12, PAGE)
        elif name == f"{LEDGER}-wal":
            yield name, "header", size, range(WAL_HEADER)
            yield name, "frame heads", FRAME, range(WAL_HEADER, WAL_HEADER + FRAME_HEADER)
            yield name, "payloads", FRAME, range(WAL_HEADER + FRAME_HEADER, WAL_HEADER + FRAME)
        elif name.endswith(".anchor"):
            yield name, "lines", PAGE, range(170)
        elif name.endswith("-shm"):
            yield name, "anywhere", PAGE, range(PAGE)
        else:
            yield name, "anywhere", size, range(size)
