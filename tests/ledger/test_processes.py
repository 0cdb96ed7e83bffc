"""Several processes, one ledger."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tenure.ledger import Code, Ledger, LedgerRefused, sidecar
from tests.ledger.support import acknowledged, append, hashes, start_writer

WRITES = 40


def started_together(path: Path, *writers: tuple[str, ...]) -> list[subprocess.Popen[str]]:
    """Processes that have loaded everything and now begin at the same time."""
    processes = []
    for number, arguments in enumerate(writers):
        common = ("--wait", "--name", f"w{number}", "--writes", str(WRITES))
        processes.append(start_writer(path, *common, *arguments))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return processes


def test_two_processes_append_to_one_chain(path: Path) -> None:
    Ledger.create(path, fleet="lab").close()
    first, second = started_together(path, ("--batch", "3"), ("--batch", "1"))
    said = {line.split()[2]: line.split()[1] for line in [*_lines(first), *_lines(second)]}
    found = hashes(path)
    assert said == {digest: str(seq) for seq, digest in enumerate(found, start=1)}
    assert len(found) == WRITES * 4
    with Ledger.open(path) as ledger:
        assert ledger.verify().findings == ()
        mine = {
            name: [note.message for note in ledger.notes() if note.message.startswith(name)] for name in ("w0", "w1")
        }
    assert mine["w0"] == [f"w0 {number}.{part}" for number in range(WRITES) for part in range(3)]
    assert mine["w1"] == [f"w1 {number}.0" for number in range(WRITES)]
    newest = max(int(line.split()[2]) for line in sidecar(path).read_text().splitlines())
    assert newest == WRITES * 4, "the anchor never moved backwards"


def test_a_reader_beside_writers_is_never_refused_and_never_goes_back(path: Path) -> None:
    Ledger.create(path, fleet="lab").close()
    writers = started_together(path, (), ())
    seen: list[str] = []
    working = True
    while working:
        working = any(writer.poll() is None for writer in writers)
        found = hashes(path, readonly=True)
        assert found[: len(seen)] == seen
        seen = found
    said = [digest for writer in writers for digest in acknowledged(_lines(writer))]
    assert sorted(said) == sorted(hashes(path))


def test_of_many_creators_one_succeeds(path: Path) -> None:
    processes = started_together(path, *[("--create", "--writes", "0")] * 3)
    for process in processes:
        process.communicate()
    assert sorted(process.returncode for process in processes) == [0, 1, 1]
    assert hashes(path) == []


def test_a_writer_that_holds_on_makes_others_busy(path: Path, ledger: Ledger) -> None:
    with Ledger.open(path, busy_timeout=0) as other, ledger.write() as tx:
        tx.append(at=1, cause="slow", facts=[])
        with pytest.raises(LedgerRefused) as caught:
            append(other)
        assert caught.value.code is Code.Busy
        assert other.head.seq == 0, "reading goes on meanwhile"
    with Ledger.open(path, busy_timeout=0) as other:
        append(other)


def _lines(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate()
    assert process.returncode == 0
    return output.splitlines(keepends=True)
