"""A custodian on disk: reveals in turn, each value for one commit, and writes that down before it answers."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tenure.custodian import Answered, Code, Custodian, CustodianRefused, Revealed, Status, init, open_custodian
from tenure.draw import VERSION, Beacon, Intent, ReservationRef, Token, commit, link
from tenure.engine.lottery import Result, draw, verify

REVEALER = Path(__file__).with_name("revealer.py")
LAST = bytes(range(32))
ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A custodian named operator, with a chain of 20 that ends in ``LAST``."""
    made = init(tmp_path / "operator", beacon="operator", length=20, entropy=lambda size: LAST[:size])
    assert isinstance(made, Status), made
    return tmp_path / "operator"


def keeper(folder: Path) -> Custodian:
    found = open_custodian(folder)
    assert isinstance(found, Custodian), found
    return found


def value(index: int) -> str:
    """c[index] of the chain above, the long way."""
    found = LAST
    for _ in range(20 - index):
        found = link(found)
    return found.hex()


def revealed(folder: Path, index: int, commit: str) -> str:
    answer = keeper(folder).reveal(index, commit=commit)
    assert isinstance(answer, Revealed), answer
    assert (answer.beacon, answer.index, answer.commit) == ("operator", index, commit)
    return answer.value


def code(answer: object) -> Code:
    assert isinstance(answer, CustodianRefused), answer
    assert answer.sentence.endswith(".")
    assert answer.next_step.endswith(".")
    return answer.code


def position(folder: Path) -> int:
    status = keeper(folder).status()
    assert isinstance(status, Status), status
    return status.position


def intent(index: int, previous: str, *, beacon: str = "operator", deficit: int = 8) -> Intent:
    return Intent(
        version=VERSION,
        reservation=ReservationRef(namespace="rai", name="train", uid="u-1"),
        activation=1,
        at="2025-11-01T00:15:00Z",
        ledger_head="ab" * 32,
        deficit=deficit,
        tokens=(Token(id="a/x", owner="org:a", gpus=8), Token(id="b/y", owner="org:b", gpus=8)),
        beacons=(Beacon(id=beacon, index=index, previous=previous),),
    )


# --- init and status ---------------------------------------------------------------------------------------


def test_a_new_custodian_has_revealed_nothing_and_says_what_to_publish(folder: Path) -> None:
    status = keeper(folder).status()
    assert status == Status(beacon="operator", published=value(0), length=20, position=0, latest=value(0), commit=None)
    assert isinstance(status, Status)
    assert status.remaining == 20


def test_the_secret_is_readable_to_its_owner_alone(folder: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"operator": 0o700, "chain": 0o600, "journal": 0o600}


def test_two_custodians_never_have_the_same_chain(tmp_path: Path) -> None:
    made = [init(tmp_path / name, beacon=name, length=5) for name in ("one", "two")]
    published = {status.published for status in made if isinstance(status, Status)}
    assert len(published) == 2


def test_nothing_is_ever_overwritten(folder: Path) -> None:
    before = (folder / "chain").read_bytes()
    assert code(init(folder, beacon="other", length=5)) == Code.Exists
    assert (folder / "chain").read_bytes() == before


@pytest.mark.parametrize(("beacon", "length"), [("", 5), ("a b", 5), ("../x", 5), ("x\n", 5), ("ok", 0), ("ok", 10**9)])
def test_a_chain_nobody_could_use_is_not_made(tmp_path: Path, beacon: str, length: int) -> None:
    assert code(init(tmp_path / "new", beacon=beacon, length=length)) == Code.BadRequest
    assert list(tmp_path.iterdir()) == []


def test_where_no_folder_can_be_made_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert code(init(tmp_path / "file" / "new", beacon="operator", length=5)) == Code.Unavailable
    assert code(init(tmp_path / "gone" / "new", beacon="operator", length=5)) == Code.Unavailable
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# --- reveal ------------------------------------------------------------------------------------------------


def test_values_come_in_turn_and_each_hashes_to_the_one_before(folder: Path) -> None:
    values = [revealed(folder, index, ONE) for index in range(1, 21)]
    assert values == [value(index) for index in range(1, 21)]
    assert code(keeper(folder).reveal(21, commit=ONE)) == Code.Exhausted


@pytest.mark.parametrize("index", [-1, 0, 2, 20])
def test_nothing_is_revealed_out_of_turn(folder: Path, index: int) -> None:
    assert code(keeper(folder).reveal(index, commit=ONE)) == Code.OutOfTurn
    assert position(folder) == 0


def test_the_same_question_has_the_same_answer_again(folder: Path) -> None:
    first = [revealed(folder, 1, ONE), revealed(folder, 2, TWO)]
    assert [revealed(folder, 1, ONE), revealed(folder, 2, TWO)] == first
    assert position(folder) == 2


def test_a_value_is_never_revealed_for_a_second_commit(folder: Path) -> None:
    revealed(folder, 1, ONE)
    revealed(folder, 2, TWO)
    for index, other in ((1, TWO), (1, THREE), (2, ONE)):
        answer = keeper(folder).reveal(index, commit=other)
        assert code(answer) == Code.OtherCommit
    assert keeper(folder).history() == [Answered(index=1, commit=ONE), Answered(index=2, commit=TWO)]


@pytest.mark.parametrize("commit", ["", "1" * 63, "1" * 65, "A" * 64, "1" * 63 + "\n", "é" * 64])
def test_a_commit_is_64_digits_of_hex(folder: Path, commit: str) -> None:
    assert code(keeper(folder).reveal(1, commit=commit)) == Code.BadRequest
    assert position(folder) == 0


def test_the_status_tells_where_the_chain_is(folder: Path) -> None:
    revealed(folder, 1, ONE)
    revealed(folder, 2, TWO)
    status = keeper(folder).status()
    assert isinstance(status, Status)
    assert (status.position, status.latest, status.commit) == (2, value(2), TWO)
    assert (status.published, status.remaining) == (value(0), 18)


def test_history_can_be_read_in_parts(folder: Path) -> None:
    for index in range(1, 8):
        revealed(folder, index, f"{index:064x}")
    part = keeper(folder).history(first=3, count=2)
    assert part == [Answered(index=3, commit=f"{3:064x}"), Answered(index=4, commit=f"{4:064x}")]
    assert keeper(folder).history(first=8) == []


# --- answer ------------------------------------------------------------------------------------------------


def test_a_frozen_intent_is_answered_and_the_draw_holds(folder: Path) -> None:
    for index in (1, 2, 3):
        frozen = intent(index, value(index - 1), deficit=index)
        answer = keeper(folder).answer(frozen)
        assert isinstance(answer, Revealed)
        assert answer.commit == commit(frozen).hex()
        result = draw(frozen, {answer.beacon: answer.value})
        assert isinstance(result, Result)
        assert verify(frozen, result, frozen=answer.commit, published={"operator": value(0)}) == []


def test_another_intent_for_the_same_index_is_refused(folder: Path) -> None:
    first = intent(1, value(0))
    assert keeper(folder).answer(first) == keeper(folder).answer(first)
    assert code(keeper(folder).answer(intent(1, value(0), deficit=9))) == Code.OtherCommit


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (intent(1, value(0), beacon="auditor"), Code.NotAsked),
        (intent(1, "00" * 32), Code.OtherChain),
        (intent(2, value(1)), Code.OutOfTurn),
        (intent(2, "00" * 32), Code.OutOfTurn),  # the same answer: a guess at c[1] is not confirmed
        (intent(21, value(20)), Code.Exhausted),
        (intent(0, value(0)), Code.BadRequest),
        (msgspec.structs.replace(intent(1, value(0)), version="rq-draw/2"), Code.BadRequest),
        (msgspec.structs.replace(intent(1, value(0)), beacons=intent(1, value(0)).beacons * 2), Code.BadRequest),
        (msgspec.structs.replace(intent(1, value(0)), beacons=()), Code.NotAsked),
    ],
)
def test_an_intent_that_does_not_mean_this_custodian_is_refused(folder: Path, asked: Intent, why: Code) -> None:
    assert code(keeper(folder).refusal(asked)) == why
    assert code(keeper(folder).answer(asked)) == why
    assert position(folder) == 0


def test_a_custodian_says_whether_it_can_answer_and_reveals_nothing_by_that(folder: Path) -> None:
    first, other = intent(1, value(0)), intent(1, value(0), deficit=9)
    journal = (folder / "journal").read_bytes()
    assert keeper(folder).refusal(first) is None
    assert keeper(folder).refusal(other) is None, "it is not bound to the one that asked first"
    assert (position(folder), (folder / "journal").read_bytes()) == (0, journal)
    keeper(folder).answer(first)
    assert keeper(folder).refusal(first) is None
    assert code(keeper(folder).refusal(other)) == Code.OtherCommit
    for index in range(2, 21):
        revealed(folder, index, ONE)
    assert code(keeper(folder).refusal(intent(21, value(20)))) == Code.Exhausted
    (folder / "journal").unlink()
    assert code(keeper(folder).refusal(first)) == Code.Damaged


# --- crashes, races, damage --------------------------------------------------------------------------------


def test_of_many_who_ask_at_once_for_different_commits_one_is_answered(folder: Path) -> None:
    def ask(number: int) -> Revealed | CustodianRefused:
        return keeper(folder).reveal(1, commit=f"{number:064x}")

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(16)))
    won = [answer for answer in answers if isinstance(answer, Revealed)]
    lost = {answer.code for answer in answers if isinstance(answer, CustodianRefused)}
    assert (len(won), lost) == (1, {Code.OtherCommit})
    assert keeper(folder).history() == [Answered(index=1, commit=won[0].commit)]


def test_who_asks_while_another_is_answered_waits_for_its_turn(folder: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    assert isinstance(init(twin, beacon="operator", length=20, entropy=lambda size: LAST[:size]), Status)
    revealed(twin, 1, ONE)
    with ThreadPoolExecutor(1) as threads, (folder / "journal").open("r+b") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        second = threads.submit(keeper(folder).reveal, 1, commit=TWO)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        journal.write((twin / "journal").read_bytes())
        journal.close()
        assert code(second.result()) == Code.OtherCommit


def test_a_killed_process_has_written_down_all_that_it_revealed(tmp_path: Path) -> None:
    place = tmp_path / "operator"
    assert isinstance(init(place, beacon="operator", length=10_000), Status)
    for lines in (1, 5, 40):
        start = position(place) + 1
        command = [sys.executable, str(REVEALER), str(place), str(start)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.communicate()[0].splitlines(keepends=True)
        whole = [line.split() for line in said if line.endswith("\n")]
        history = keeper(place).history(first=start, count=10_000)
        assert isinstance(history, list)
        written = [[str(entry.index), entry.commit] for entry in history]
        assert written[: len(whole)] == whole
        assert len(written) - len(whole) <= 1


def _cut(journal: Path) -> None:
    os.truncate(journal, journal.stat().st_size - 5)


def _half(journal: Path) -> None:
    raw = journal.read_bytes()
    journal.write_bytes(raw[:-40] + bytes(40))


def _empty(journal: Path) -> None:
    raw = journal.read_bytes()
    journal.write_bytes(raw[: len(raw) // 2] + bytes(len(raw) // 2))


@pytest.mark.parametrize("torn", [_cut, _half, _empty])
def test_a_last_line_that_a_power_cut_left_unfinished_does_not_count(
    folder: Path, torn: Callable[[Path], None]
) -> None:
    revealed(folder, 1, ONE)
    revealed(folder, 2, TWO)
    torn(folder / "journal")
    assert keeper(folder).history() == [Answered(index=1, commit=ONE)]
    assert revealed(folder, 2, THREE) == value(2)
    assert keeper(folder).history() == [Answered(index=1, commit=ONE), Answered(index=2, commit=THREE)]


def test_a_line_that_was_acknowledged_and_cannot_be_read_stops_the_custodian(folder: Path) -> None:
    revealed(folder, 1, ONE)
    raw = bytearray((folder / "journal").read_bytes())
    raw[20] = ord("7")
    (folder / "journal").write_bytes(raw)
    assert code(keeper(folder).reveal(1, commit=ONE)) == Code.Damaged
    assert code(keeper(folder).reveal(2, commit=TWO)) == Code.Damaged
    assert code(keeper(folder).status()) == Code.Damaged


def test_the_journal_of_another_chain_is_not_taken_for_ones_own(folder: Path, tmp_path: Path) -> None:
    assert isinstance(init(tmp_path / "other", beacon="operator", length=20), Status)
    revealed(tmp_path / "other", 1, ONE)
    (tmp_path / "other" / "journal").replace(folder / "journal")
    assert code(keeper(folder).status()) == Code.Damaged


def test_a_journal_that_is_gone_is_not_taken_for_an_empty_one(folder: Path) -> None:
    revealed(folder, 1, ONE)
    (folder / "journal").unlink()
    assert code(keeper(folder).reveal(1, commit=TWO)) == Code.Damaged
    assert not (folder / "journal").exists()


def test_what_cannot_be_written_down_is_not_revealed(folder: Path) -> None:
    (folder / "journal").unlink()
    (folder / "journal").symlink_to("/dev/full")
    answer = keeper(folder).reveal(1, commit=ONE)
    assert code(answer) == Code.Unavailable
    assert value(1) not in str(answer)


def test_a_secret_that_others_may_read_is_not_used(folder: Path) -> None:
    (folder / "chain").chmod(0o640)
    assert code(open_custodian(folder)) == Code.Exposed
    (folder / "chain").chmod(0o600)
    assert revealed(folder, 1, ONE) == value(1)


@pytest.mark.parametrize("place", range(0, 400, 23))
def test_a_chain_with_a_changed_byte_is_refused(folder: Path, place: int) -> None:
    raw = bytearray((folder / "chain").read_bytes())
    raw[place % len(raw)] ^= 1
    (folder / "chain").write_bytes(raw)
    assert code(open_custodian(folder)) == Code.Damaged


def test_where_there_is_no_custodian_none_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name in ("gone", "file", "empty"):
        assert code(open_custodian(tmp_path / name)) == Code.NotFound
