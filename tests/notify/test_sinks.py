"""Files and standard output: whole lines, durable before they count, mended after a crash."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from tenure.ledger import Ledger
from tenure.notify.event import body
from tenure.notify.progress import Away, Delivered
from tenure.notify.sinks import FileSink, StdoutSink
from tests.notify.support import NOW, courier, letter, receiver, rounds, tell, to_file

ONE, TWO, THREE = (body(letter(seq=number), fleet="lab") for number in (1, 2, 3))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def messages(file: Path) -> list[str]:
    """What each line says; every line must be an event."""
    return [json.loads(line)["data"]["message"] for line in file.read_bytes().split(b"\n")[:-1]]


def test_a_file_gets_a_line_for_each_event(ledger: Ledger, file: Path) -> None:
    tell(ledger, "a1", "b1")
    man = courier(ledger, receiver(to=to_file(file)))
    man.turn(NOW)
    tell(ledger, "a2")
    man.turn(NOW)
    assert messages(file) == ["a1", "b1", "a2"]
    assert file.read_bytes().endswith(b"\n")


def test_a_batch_is_synced_once_and_before_it_counts(
    ledger: Ledger, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(ledger, *(f"a{number}" for number in range(100)))
    seen: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    man = courier(ledger, receiver(to=to_file(file)))
    save = man.outbox.save
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(man.outbox, "save", lambda *a, **k: (seen.append("saved"), save(*a, **k)))
    man.turn(NOW)
    assert seen[:3] == [str(file), str(file.parent), "saved"]
    assert len(messages(file)) == 100


@pytest.mark.parametrize("cut", [1, 5, len(TWO) // 2, len(TWO)])
def test_a_line_that_a_crash_cut_short_is_cut_off(file: Path, cut: int) -> None:
    file.write_bytes(ONE + b"\n" + TWO[:cut])
    assert FileSink(file).send([TWO, THREE]) == Delivered()
    assert file.read_bytes() == ONE + b"\n" + TWO + b"\n" + THREE + b"\n"


def test_a_torn_line_that_is_the_first_one_is_cut_off_too(file: Path) -> None:
    file.write_bytes(ONE[:20])
    assert FileSink(file).send([ONE]) == Delivered()
    assert file.read_bytes() == ONE + b"\n"


def test_a_torn_line_longer_than_a_block_is_found(file: Path) -> None:
    long = body(letter(message="x" * 200_000), fleet="lab")
    file.write_bytes(ONE + b"\n" + long[:-1])
    assert FileSink(file).send([TWO]) == Delivered()
    assert file.read_bytes() == ONE + b"\n" + TWO + b"\n"


def test_somebody_elses_last_line_is_left_alone(file: Path) -> None:
    file.write_bytes(b"notes of mine")
    assert FileSink(file).send([ONE]) == Delivered()
    assert file.read_bytes() == b"notes of mine\n" + ONE + b"\n"


def test_a_full_disk_leaves_no_half_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(ONE + b"\n")
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if len(data) < 30:
            raise OSError(28, "No space left on device")
        return real(fd, data[:-20])

    monkeypatch.setattr(os, "write", write)
    assert FileSink(file).send([TWO]) == Away(why="the file cannot be written: no space left on device")
    monkeypatch.undo()
    assert file.read_bytes() == ONE + b"\n"
    assert FileSink(file).send([TWO]) == Delivered()


def test_a_file_that_cannot_be_written_keeps_its_events(ledger: Ledger, file: Path) -> None:
    tell(ledger, "a1")
    file.mkdir()
    man = courier(ledger, receiver(to=to_file(file)))
    wake = man.turn(NOW)
    assert man.progress.why == "the file cannot be opened: is a directory"
    file.rmdir()
    assert wake is not None
    rounds(man, now=wake)
    assert messages(file) == ["a1"]


def test_a_pipe_in_place_of_a_file_does_not_hang(file: Path) -> None:
    os.mkfifo(file)
    assert FileSink(file).send([ONE]) == Away(why="the file is not a regular file")


def test_a_file_that_another_process_writes_waits(file: Path) -> None:
    with file.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert FileSink(file).send([ONE]) == Away(why="the file is locked by another process")
    assert FileSink(file).send([ONE]) == Delivered()


def test_a_file_may_be_rotated(ledger: Ledger, file: Path) -> None:
    man = courier(ledger, receiver(to=to_file(file)))
    tell(ledger, "a1")
    man.turn(NOW)
    file.rename(file.with_suffix(".1"))
    tell(ledger, "a2")
    man.turn(NOW)
    assert messages(file.with_suffix(".1")) == ["a1"]
    assert messages(file) == ["a2"]


def test_standard_output_gets_a_line_for_each_event() -> None:
    reader, writer = os.pipe()
    try:
        assert StdoutSink(writer).send([ONE, TWO]) == Delivered()
        assert os.read(reader, 65536) == ONE + b"\n" + TWO + b"\n"
    finally:
        os.close(reader)
    assert StdoutSink(writer).send([THREE]) == Away(why="standard output: broken pipe")
    os.close(writer)
