"""A full disk, a failed write, a file that may not be written: refused in words, and nothing half stored."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenure.facts import Noted
from tenure.ledger import Code, Ledger, LedgerRefused, refusals, sidecar
from tests.ledger.support import append, copy, hashes, noted

BULKY = [noted("x" * 200_000)]


def write_together(ledger: Ledger, *entries: list[Noted]) -> None:
    with ledger.write() as tx:
        for facts in entries:
            tx.append(at=tx.head.at, cause="test", facts=facts)


def test_a_full_disk_refuses_the_transaction_and_keeps_the_rest(path: Path, ledger: Ledger) -> None:
    said = append(ledger, 3)
    # SQLite's own bound on the file's size answers as a full disk does; only the connection can set it.
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages + 5}")
    with pytest.raises(LedgerRefused) as caught:
        write_together(ledger, [noted("small")], BULKY)
    assert caught.value.code is Code.DiskFull
    assert not caught.value.unknown
    assert [link.hash for link in ledger.links()] == said
    said += append(ledger, 1)  # something small still fits
    ledger._db.execute("PRAGMA max_page_count = 1000000")
    write_together(ledger, BULKY)
    assert hashes(path) == [*said, ledger.head.hash]


@pytest.mark.parametrize(("free", "code"), [(8, Code.DiskFull), (1 << 20, Code.WriteFailed)])
def test_a_failed_write_where_no_room_is_left_is_for_want_of_room(
    path: Path, monkeypatch: pytest.MonkeyPatch, free: int, code: Code
) -> None:
    """A full tmpfs, on which SQLite's shared memory does not fit, is an I/O error to it."""
    disk = os.statvfs(path.parent)
    monkeypatch.setattr(refusals.os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=disk.f_frsize))
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(LedgerRefused) as caught, refusals.translated(path):
        raise error
    assert caught.value.code is code


SCRIPT = """
import json, os, resource, signal, sys
from tenure.facts import Noted
from tenure.ledger import Ledger, LedgerRefused

def write(ledger, size):
    with ledger.write() as tx:
        fact = Noted(kind="Normal", object="x", reason="x", message="x" * size)
        tx.append(at=tx.head.at + 1, cause="test", facts=[fact])
    return tx.head.hash

def attempt(work):
    try:
        return {"done": work()}
    except LedgerRefused as refusal:
        return {"code": refusal.code, "unknown": refusal.unknown}

path, results = sys.argv[1], {}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
ledger = Ledger.create(path, fleet="lab")
results["said"] = [write(ledger, 10) for _ in range(3)]
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path + "-wal") + 3000, hard))
results["refused"] = attempt(lambda: write(ledger, 50_000))
results["after"] = attempt(lambda: write(ledger, 10))
results["asked"] = attempt(lambda: ledger.head.seq)
ledger.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
with Ledger.open(path) as ledger:
    results["found"] = [link.hash for link in ledger.links()]
    results["again"] = attempt(lambda: write(ledger, 50_000))
    results["findings"] = len(ledger.verify().findings)
print(json.dumps(results))
"""


def test_a_write_that_the_system_cuts_short_leaves_the_handle_in_doubt_and_the_ledger_whole(
    path: Path,
) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], capture_output=True, text=True, check=True)
    results = json.loads(done.stdout)
    assert results["refused"] == {"code": "WriteFailed", "unknown": True}
    assert results["after"] == {"code": "Unconfirmed", "unknown": False}
    assert results["asked"] == {"code": "Unconfirmed", "unknown": False}
    assert results["found"] == results["said"]
    assert hashes(path) == [*results["said"], results["again"]["done"]]
    assert results["findings"] == 0


def test_an_anchor_that_fails_after_the_commit_leaves_the_outcome_to_the_next_opening(path: Path) -> None:
    def lose_anchor(point: str) -> None:
        if point == "after-commit" and broken:
            sidecar(path).rename(path.with_name("mislaid"))

    broken = False
    ledger = Ledger.create(path, fleet="lab", hook=lose_anchor)
    said = append(ledger, 2)
    broken = True
    with pytest.raises(LedgerRefused) as caught:
        append(ledger)
    assert caught.value.code is Code.AnchorMissing
    assert caught.value.unknown, "the entry is committed, but was not acknowledged"
    with pytest.raises(LedgerRefused, match="Unconfirmed"):
        append(ledger)
    ledger.close()
    path.with_name("mislaid").rename(sidecar(path))
    found = hashes(path)
    assert found[:2] == said
    assert len(found) == 3


def test_a_ledger_opened_for_reading_is_not_written(path: Path, ledger: Ledger) -> None:
    said = append(ledger, 2)
    with Ledger.open(path, readonly=True) as reader:
        assert reader.readonly
        assert [link.hash for link in reader.links()] == said
        with pytest.raises(LedgerRefused) as caught, reader.write():
            pass
    assert caught.value.code is Code.ReadOnly


def test_a_reader_recovers_what_a_crash_left_in_the_wal(path: Path, tmp_path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        said = append(ledger, 5)
        crashed = copy(path, tmp_path / "crashed")
    assert hashes(crashed, readonly=True) == said


READ_ONLY_FOLDER = """
import os, sys
from tenure.ledger import Ledger
import tenure.ledger.verify
if os.geteuid() == 0:
    os.seteuid(65534)  # permissions say nothing to root
with Ledger.open(sys.argv[1], readonly=True) as ledger:
    print(len(list(ledger.entries())), len(ledger.verify().findings))
"""


def test_an_archive_on_a_medium_that_cannot_be_written_is_read(path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        append(ledger, 4)
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        archive = copy(path, folder)
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555)
        command = [sys.executable, "-c", READ_ONLY_FOLDER, str(archive)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == ("4 0\n", "")
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "code"),
    [("nothing.db", Code.NotFound), ("no/such/folder.db", Code.NotFound), ("", Code.CannotOpen)],
)
def test_what_cannot_be_opened_is_refused(tmp_path: Path, name: str, code: Code) -> None:
    with pytest.raises(LedgerRefused) as caught:
        Ledger.open(tmp_path / name)
    assert caught.value.code is code


def test_a_ledger_is_not_created_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerRefused) as caught:
        Ledger.create(tmp_path / "no" / "fleet.db", fleet="lab")
    assert caught.value.code is Code.CannotOpen
    assert os.listdir(tmp_path) == []


def test_a_ledger_may_have_any_name_a_file_may_have(tmp_path: Path) -> None:
    path = tmp_path / "50% of my fleet? #1 é&mode=memory"
    with Ledger.create(path, fleet="lab") as ledger:
        said = append(ledger, 2)
    assert hashes(path) == said
    assert path.exists()
