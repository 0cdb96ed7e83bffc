"""docs/concepts/ledger.md: its commands are run, its tables are complete."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.ledger import Code, Ledger, sidecar
from tenure.units import parse_time
from tests.ledger.support import closed, copy, hashes, noted, opened

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "concepts" / "ledger.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MIDNIGHT = parse_time("2025-11-01T00:00:00Z")

needs_sqlite = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 command is not installed")


def run(folder: Path, containing: str) -> str:
    """Run the one block of the page that contains a phrase; what it printed."""
    [(language, text)] = [block for block in BLOCKS if containing in block[1]]
    command = ["bash", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture
def filled(path: Path) -> Path:
    with Ledger.create(path, fleet="lab") as ledger, ledger.write() as tx:
        tx.append(at=MIDNIGHT, cause="start", facts=[opened("a", start=MIDNIGHT), opened("b", start=MIDNIGHT)])
        tx.append(at=MIDNIGHT + 1, cause="note", facts=[noted("half a minute, é")])
        tx.append(at=MIDNIGHT + 30_000_000, cause="end", facts=[closed("a", end=MIDNIGHT + 30_000_000)])
    return path


def test_every_block_on_the_page_is_run_here() -> None:
    assert len(BLOCKS) == 6


@needs_sqlite
def test_the_hashes_can_be_checked_with_sha256sum(filled: Path) -> None:
    assert run(filled.parent, "sha256sum") == "every entry has its hash\n"
    raw = filled.read_bytes()
    filled.write_bytes(raw.replace(b'"cause":"note"', b'"cause":"nope"'))
    assert "check/2.json: FAILED" in run(filled.parent, "sha256sum")


@needs_sqlite
def test_the_links_can_be_checked_with_sqlite3(filled: Path) -> None:
    assert run(filled.parent, "broken links") == "0 broken links\n"
    raw = filled.read_bytes()
    found = [match.end() for match in re.finditer(rb'"prev":"', raw)]
    for at in found:
        raw = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    filled.write_bytes(raw)
    assert run(filled.parent, "broken links") == f"{len(found)} broken links\n"


@needs_sqlite
def test_the_anchor_can_be_compared_by_eye(filled: Path) -> None:
    anchor, ledger = run(filled.parent, "grep").splitlines()
    assert anchor.split()[2:] == ledger.split("|")[1:] == ["3", hashes(filled)[-1]]


@needs_sqlite
def test_who_paid_can_be_read_from_the_entries_alone(filled: Path) -> None:
    assert run(filled.parent, "opened AS") == "rai|train|[0,1]|org:ai:rai\n"


@needs_sqlite
def test_a_backup_is_a_ledger(filled: Path, tmp_path: Path) -> None:
    said = hashes(filled)
    assert run(filled.parent, "VACUUM INTO") == ""
    assert hashes(tmp_path / "backup.db", anchor=sidecar(filled)) == said


@pytest.mark.parametrize("page", ["concepts/ledger.md", "howto/operators.md"])
def test_regression_a_backup_is_for_its_owner_alone(filled: Path, page: str) -> None:
    """Everybody on the machine could read it: who ran what, and who paid."""
    if "sqlite3 -readonly" in (text := (DOCS / page).read_text("utf-8")) and shutil.which("sqlite3") is None:
        pytest.skip("the sqlite3 command is not installed")
    [command] = [line.removeprefix("$ ") for line in text.splitlines() if "VACUUM INTO" in line]
    subprocess.run(["bash", "-euc", f"umask 022; {command}"], cwd=filled.parent, check=True)
    assert stat.S_IMODE((filled.parent / "backup.db").stat().st_mode) == 0o600


def test_accepting_works_as_written(filled: Path, tmp_path: Path) -> None:
    copy(filled, tmp_path / "backup")
    with Ledger.open(filled) as ledger:
        later(ledger)
    (tmp_path / "backup" / "fleet.db").replace(filled)
    assert run(filled.parent, "accept_anchor").startswith("BehindAnchor: fleet.db ends at entry 3")
    with Ledger.open(filled) as ledger:
        [note] = ledger.notes("Ledger")
        assert note.message.startswith("accepted at entry 3; the anchor said Mark(fleet='lab', seq=4")


def later(ledger: Ledger) -> None:
    with ledger.write() as tx:
        tx.append(at=tx.head.at, cause="later", facts=[noted("later")])


def test_the_page_lists_every_code_and_no_other() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.split("## When a ledger refuses")[1], re.MULTILINE)
    assert listed == [str(code) for code in Code]
