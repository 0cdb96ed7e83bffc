"""What came of opening a damaged store: everything, a refusal by its code, or the one thing that must not be.

A ledger is examined and verified as an auditor does (read only), then opened and read as the fleet does. When both find
nothing wrong, its answers must be the right ones, and one more entry must go in and stay. When only the full check
finds something, the ledger is asked all the same: an answer may be refused, and where one is wrong, whoever drives must
be refused. The question is always the same: is every acknowledged entry there, byte for byte, or does somebody say why
not?
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from proof.damage.originals import IMAGE, LEDGER, Files, Original, commit_of, written
from tenure.api.ledger_objects import LedgerHeadSpec
from tenure.custodian import CustodianRefused, open_custodian
from tenure.engine import Apply, dump
from tenure.kube.archive import Archive
from tenure.kube.journal import open_journal, take_all
from tenure.kube.refusals import StoreRefused
from tenure.ledger import Ledger, LedgerRefused
from tenure.ledger.verify import Report
from tenure.shell.home import Home
from tenure.shell.ledger_store import LedgerStore
from tenure.shell.simulated import SimulatedExecutor
from tenure.testing.builders import run
from tests.ledger.support import append

ANCHOR = f"disk2/{LEDGER}.anchor"
"""Of a journal."""
Answers = tuple[Any, ...]


class Outcome(Struct, frozen=True):
    """``whole``: all there, maybe with what was never acknowledged (``tail``); ``refused`` and ``found`` (by the full
    check; whatever is answered is right) say why in ``why``; ``drivers only`` is found and refused to whoever drives,
    and a reader is given a wrong answer; ``lost`` is silence."""

    verdict: str
    why: str = ""
    words: str = ""
    """Of a refusal: its sentence and the next step, as people are told."""


WHOLE, TAIL, ROLLED = Outcome("whole"), Outcome("tail"), Outcome("as its anchor")


def judge(files: Files, whole: Original, *, floor: int, folder: Path) -> Outcome:
    """Put the files on disk, use them, and clear up."""
    try:
        if whole.name == "open":
            return _open(files, folder, whole, floor)
        written(files, folder)
        return _JUDGES.get(whole.name, _ledger)(folder, whole, floor)
    except (LedgerRefused, StoreRefused) as refusal:
        return _refused(refusal)
    except Exception as error:
        return Outcome("lost", f"a traceback: {type(error).__name__}: {str(error)[:200]}")
    finally:
        shutil.rmtree(folder)


def _refused(refusal: Any) -> Outcome:
    """A refusal counts only when it speaks."""
    if not (refusal.sentence and refusal.next_step and refusal.sentence.isprintable()):
        return Outcome("lost", f"a refusal without words that can be shown: {refusal.code}")
    return Outcome("refused", str(refusal.code), f"{refusal.sentence}\n{refusal.next_step}")


def _compared(found: list[str], whole: Original, floor: int) -> Outcome:
    """The chain that was read, beside the one that was written."""
    written_once = [*whole.acknowledged, *whole.unsaid]
    if found != written_once[: len(found)]:
        return Outcome("lost", "it has other entries than were written")
    if len(found) < floor:
        return Outcome("lost", f"it has {len(found)} of {floor} entries and looks fine")
    if len(found) < len(whole.acknowledged):
        return ROLLED
    return TAIL if len(found) > len(whole.acknowledged) else WHOLE


def _ledger(folder: Path, whole: Original, floor: int) -> Outcome:
    path = folder / LEDGER
    with Ledger.examine(path) as auditor:
        report = auditor.verify()
        refusal = auditor.refusal
        said = _answers(auditor) if report.ok and refusal is None else None
    with Ledger.open(path) as ledger:
        found = [link.hash for link in ledger.links()]
        outcome = _compared(found, whole, floor)
        image = ledger.snapshot()
        if image is not None and image.body != IMAGE:
            return Outcome("lost", "an image that nobody saved")
        if outcome.verdict == "lost" or refusal is not None:
            return outcome  # an auditor who was refused does not write, and may see less than the writer mends
        right = _right(ledger, folder)
        if not report.ok:
            outcome = _found(ledger, report, right)
            _try_to_append(ledger)
            return outcome
        if said != right:
            return Outcome("lost", "the full check found nothing and an answer is wrong")
        added = append(ledger)
    with Ledger.open(path) as again:
        if [link.hash for link in again.links()] != found + added:
            return Outcome("lost", "an entry that was acknowledged after the damage is not there")
    return outcome


def _found(ledger: Ledger, report: Report, right: Answers) -> Outcome:
    """What the full check found, and whether anybody else would have noticed."""
    why = "+".join(sorted({each.check for each in report.findings}))
    misled = any(said not in (None, true) for said, true in zip(_answers(ledger), right, strict=True))
    if misled and _drives(ledger, right):
        return Outcome("lost", f"the full check finds {why}, and a driver starts on wrong answers")
    return Outcome("drivers only" if misled else "found", why)


def _drives(ledger: Ledger, right: Answers) -> bool:
    """Whether a driver would start on it, knowing from the entries which leases are open."""
    _, held, *_ = right
    try:
        ledger.attest([row.lease for row in held], at=ledger.head.seq)
    except LedgerRefused:
        return False
    return True


def _try_to_append(ledger: Ledger) -> None:
    """The fleet goes on until somebody looks: it may be refused, and may not fall over."""
    try:
        append(ledger)
    except LedgerRefused as refusal:
        if refusal.unknown:
            raise


def _open(files: Files, folder: Path, whole: Original, floor: int) -> Outcome:
    """Damaged while a process has it open: whatever that one still acknowledges must be there afterwards, too."""
    written(whole.files, folder)
    path, said = folder / LEDGER, list(whole.acknowledged)
    with Ledger.open(path) as ledger:
        for name in whole.files:
            _put(folder / name, files.get(name))
        try:
            for _ in range(3):
                said += append(ledger)
        except LedgerRefused:
            pass
    with Ledger.open(path) as again:
        found = [link.hash for link in again.links()]
    if len(said) > len(whole.acknowledged):
        return WHOLE if found == said else Outcome("lost", f"{len(found)} entries of {len(said)} acknowledged ones")
    return _compared(found, whole, floor)


def _put(path: Path, raw: bytes | None) -> None:
    """Into the same file, as a failing disk does; or away with it."""
    if raw is None:
        path.unlink(missing_ok=True)
    elif path.read_bytes() != raw:
        with path.open("r+b") as file:
            file.truncate(len(raw))
            file.write(raw)


def _answers(ledger: Ledger) -> Answers:
    """What people ask; None is a refusal."""
    return tuple(_asked(partial(ask, ledger)) for ask in QUESTIONS)


def _asked(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except LedgerRefused:
        return None


QUESTIONS: tuple[Callable[[Ledger], Any], ...] = (
    lambda ledger: ledger.leases(),
    lambda ledger: ledger.leases(open_only=True),
    lambda ledger: ledger.leases(at=5_000_000),
    lambda ledger: ledger.leases(node="n1"),
    lambda ledger: ledger.usage(by="node", since=0, until=10**9),
    lambda ledger: ledger.notes(),
    lambda ledger: ledger.notes("Run/rai/train"),
    lambda ledger: ledger.decisions("rai", "train"),
    lambda ledger: ledger.attempts("rai", "train"),
)
_RIGHT: dict[str, Answers] = {}


def _right(ledger: Ledger, folder: Path) -> Answers:
    """The answers of a new ledger that was given the same entries and nothing else."""
    end = ledger.head.hash
    if end not in _RIGHT:
        (folder / "right").mkdir()
        with Ledger.create(folder / "right" / LEDGER, fleet=ledger.fleet) as fresh:
            with fresh.write() as tx:
                for link in ledger.links():
                    tx.take(link.body)
            _RIGHT[end] = _answers(fresh)
    return _RIGHT[end]


def _fleet(folder: Path, whole: Original, floor: int) -> Outcome:
    """As the driver starts: the state that it was, or a refusal; then an honest run is decided on."""
    with Ledger.open(folder / LEDGER) as ledger:
        outcome = _compared([link.hash for link in ledger.links()], whole, floor)
        home = Home(LedgerStore(ledger), SimulatedExecutor())
        if outcome is WHOLE and dump(home.state) != whole.state:
            return Outcome("lost", "every entry is there, and the state is another")
        if outcome is not WHOLE:
            return outcome
        ledger.attest(home.state.leases.values(), at=home.seq)
        now = home.state.now
        home.handle(Apply((run("after", 1, owner="org:west"),)), now=now)
        home.drive(now=now)
        report = ledger.verify()
        return outcome if report.ok else _found(ledger, report, _right(ledger, folder))


def _journal(folder: Path, whole: Original, floor: int) -> Outcome:
    """As an operator starts: the API server knows the head and every entry; its own disk may know less, never else."""
    last = whole.lines[-1]
    head = LedgerHeadSpec(fleet="lab", seq=last.entry.seq, hash=last.hash, at=last.entry.at)
    fill: Callable[[Ledger], None] = lambda journal: take_all(journal, whole.lines)  # noqa: E731
    with open_journal(folder / LEDGER, anchor=folder / ANCHOR, head=head, fill=fill) as journal:
        known = [link.hash for link in journal.links()]
        if known != list(whole.acknowledged)[: len(known)]:
            return Outcome("lost", "the journal has other entries than the ledger")
        take_all(journal, whole.lines[len(known) :])
        journal.attest()
        report = journal.verify()
        outcome = _compared([link.hash for link in journal.links()], whole, len(whole.acknowledged))
        return _found(journal, report, _right(journal, folder)) if outcome is WHOLE and not report.ok else outcome


def _archive(folder: Path, whole: Original, floor: int) -> Outcome:
    archive = Archive(folder)
    found = [line.hash for line in archive.lines(after=0, until=floor)]
    archive.verify(until=floor, digest=whole.acknowledged[-1])
    return _compared(found, whole, floor)


def _custodian(folder: Path, whole: Original, floor: int) -> Outcome:
    """As the fleet asks: the draws that were, the same answers; no answer twice; and the next one in turn."""
    keeper = open_custodian(folder)
    if isinstance(keeper, CustodianRefused):
        return _refused(keeper)
    history = keeper.history()
    if isinstance(history, CustodianRefused):
        return _refused(history)
    if any(each.commit != commit_of(each.index) for each in history):
        return Outcome("lost", "its history has another commit than was revealed for")
    due = keeper.reveal(floor + 1, commit=commit_of(floor + 1))
    if isinstance(due, CustodianRefused):
        return _refused(due)
    for index, value in enumerate(whole.acknowledged, 1):
        again = keeper.reveal(index, commit=commit_of(index))
        other = keeper.reveal(index, commit=commit_of(999))
        if isinstance(again, CustodianRefused) or again.value != value or not isinstance(other, CustodianRefused):
            return Outcome("lost", f"c[{index}] is not what was revealed, or is revealed for another commit")
    return WHOLE


_JUDGES: dict[str, Callable[[Path, Original, int], Outcome]] = {
    "fleet": _fleet,
    "journal": _journal,
    "archive": _archive,
    "custodian": _custodian,
}
