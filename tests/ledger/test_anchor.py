"""The anchor: an end that went missing is noticed, whatever made it go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.ledger import Code, Ledger, LedgerRefused, sidecar
from tests.ledger.support import append, companion, copy, hashes, noted, outcome

SLOT = 4096


@pytest.fixture
def written(path: Path) -> list[str]:
    """A closed ledger of six entries."""
    with Ledger.create(path, fleet="lab") as ledger:
        return append(ledger, 6)


def refusal(path: Path, **options: object) -> LedgerRefused:
    with pytest.raises(LedgerRefused) as caught:
        Ledger.open(path, **options).close()  # type: ignore[arg-type]
    return caught.value


def slots(path: Path) -> list[list[str]]:
    """The two lines of an anchor, oldest first."""
    lines = companion(path, ".anchor").read_text().splitlines()
    return sorted((line.split() for line in lines), key=lambda words: int(words[2]))


def spoil(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)


def slot_of(path: Path, seq: int) -> int:
    """The offset of the slot that holds an entry's number."""
    return next(
        n * SLOT for n in (0, 1) if f" {seq} ".encode() in companion(path, ".anchor").read_bytes()[n * SLOT :][:SLOT]
    )


def test_the_anchor_says_in_plain_text_how_far_the_ledger_has_come(path: Path, written: list[str]) -> None:
    assert sidecar(path) == companion(path, ".anchor")
    older, newer = slots(path)
    assert older[:4] == ["tenure-anchor/1", "lab", "5", written[4]]
    assert newer[:4] == ["tenure-anchor/1", "lab", "6", written[5]]


def test_whoever_may_not_write_the_ledger_may_not_lock_its_anchor(path: Path, written: list[str]) -> None:
    assert companion(path, ".anchor").stat().st_mode & 0o777 == 0o600
    companion(path, ".anchor").unlink()
    with Ledger.examine(path) as ledger:
        ledger.accept_anchor()
    assert companion(path, ".anchor").stat().st_mode & 0o777 == 0o600


def test_an_anchor_keeps_the_mode_that_it_was_given(path: Path, written: list[str]) -> None:
    companion(path, ".anchor").chmod(0o660)
    with Ledger.open(path) as ledger:
        append(ledger, 1)
    assert companion(path, ".anchor").stat().st_mode & 0o777 == 0o660


def test_an_old_copy_put_back_is_refused_with_the_numbers(path: Path, tmp_path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        append(ledger, 3)
    copy(path, tmp_path / "backup")
    with Ledger.open(path) as ledger:
        append(ledger, 4)
    (tmp_path / "backup" / "fleet.db").replace(path)
    said = refusal(path)
    assert said.code is Code.BehindAnchor
    assert "ends at entry 3" in said.sentence
    assert "has seen entry 7" in said.sentence
    assert "at least 4 acknowledged entries are missing" in said.sentence


def test_reading_only_is_refused_just_the_same(path: Path, written: list[str]) -> None:
    sidecar(path).unlink()
    assert refusal(path, readonly=True).code is Code.AnchorMissing


def test_a_history_that_was_rewritten_is_refused(path: Path, tmp_path: Path, written: list[str]) -> None:
    fork = copy(path, tmp_path / "fork")
    with Ledger.open(fork) as ledger, ledger.write() as tx:
        for number in range(5):
            tx.append(at=tx.head.at, cause=f"another history {number}", facts=[])
    with Ledger.open(path) as ledger:
        append(ledger, 2)
    fork.replace(path)  # longer than the anchor has seen, and a whole chain, but not this one
    said = refusal(path)
    assert said.code is Code.AnchorMismatch
    assert "different entries 8" in said.sentence


def test_the_anchor_of_another_fleet_is_refused(path: Path, tmp_path: Path, written: list[str]) -> None:
    Ledger.create(tmp_path / "other.db", fleet="other").close()
    said = refusal(path, anchor=tmp_path / "other.db.anchor")
    assert said.code is Code.AnchorMismatch
    assert "fleet other" in said.sentence


def test_an_anchor_may_be_kept_elsewhere_and_must_then_be_named(path: Path, tmp_path: Path) -> None:
    (tmp_path / "disk2").mkdir()
    anchor = tmp_path / "disk2" / "lab.anchor"
    with Ledger.create(path, fleet="lab", anchor=anchor) as ledger:
        written = append(ledger, 2)
    assert not sidecar(path).exists()
    assert hashes(path, anchor=anchor) == written
    said = refusal(path)
    assert said.code is Code.AnchorMissing
    assert str(sidecar(path)) in said.sentence


def test_an_anchor_that_is_behind_rolls_forward(path: Path, tmp_path: Path, written: list[str]) -> None:
    old = sidecar(path).read_bytes()
    with Ledger.open(path) as ledger:
        written += append(ledger, 5)
    sidecar(path).write_bytes(old)  # as after a crash between a commit and its anchor
    assert hashes(path, readonly=True) == written
    assert slots(path)[1][2] == "6", "a reader moves nothing"
    assert hashes(path) == written
    assert slots(path)[1][2] == "11"


@pytest.mark.parametrize("restored", ["after somebody has taken it in", "before"])
def test_who_takes_in_what_another_could_not_anchor_anchors_it(path: Path, tmp_path: Path, restored: str) -> None:
    """An entry counts, and its writer dies before the anchor moves. Once somebody else who has the ledger open has
    taken it in, and may have acted on it, an old copy without it is refused; until then nobody knows of it."""

    def dies(point: str) -> None:
        if point == "before-anchor":
            raise RuntimeError("no more")

    with Ledger.create(path, fleet="lab") as ledger:
        written = append(ledger, 3)
        copy(path, tmp_path / "backup")
        with Ledger.open(path, hook=dies) as other, pytest.raises(RuntimeError, match="no more"):
            append(other, 1)
        if restored.startswith("after"):
            with ledger.write() as tx:
                assert [entry.seq for entry in tx.since(3)] == [4]
    for suffix in ("", "-wal"):
        companion(tmp_path / "backup" / "fleet.db", suffix).replace(companion(path, suffix))
    assert outcome(path) == (Code.BehindAnchor if restored.startswith("after") else written)


def test_what_lies_between_anchor_and_head_must_be_whole(path: Path, written: list[str]) -> None:
    old = sidecar(path).read_bytes()
    with Ledger.open(path) as ledger:
        append(ledger, 5)
    sidecar(path).write_bytes(old)
    raw = path.read_bytes()
    assert raw.count(b'"cause":"step 9"') == 1
    path.write_bytes(raw.replace(b'"cause":"step 9"', b'"cause":"step X"'))
    said = refusal(path)
    assert said.code is Code.ChainBroken
    assert "at entry 9" in said.sentence


def test_a_torn_write_of_the_anchor_costs_nothing(path: Path, written: list[str]) -> None:
    spoil(sidecar(path), slot_of(path, 6) + 20)  # the newer slot: entry 6 is committed, its anchor half written
    assert hashes(path) == written
    assert [words[2] for words in slots(path)] == ["5", "6"], "and the slot is good again"


def test_a_damaged_slot_beside_an_anchor_at_the_head_is_refused(path: Path, written: list[str]) -> None:
    spoil(sidecar(path), slot_of(path, 5) + 20)
    said = refusal(path)
    assert said.code is Code.AnchorDamaged
    assert "ends at entry 6" in said.sentence


@pytest.mark.parametrize("content", [b"", b"\0" * 2 * SLOT, b"some other file\n", b"x" * 2 * SLOT])
def test_an_anchor_without_a_good_slot_is_refused(path: Path, written: list[str], content: bytes) -> None:
    sidecar(path).write_bytes(content)
    assert refusal(path).code is Code.AnchorDamaged


def test_no_flipped_bit_of_the_anchor_goes_unnoticed_or_costs_an_entry(path: Path, written: list[str]) -> None:
    good = sidecar(path).read_bytes()
    seen = set()
    for offset in [*range(240), *range(SLOT, SLOT + 240), SLOT - 1, 2 * SLOT - 1]:
        sidecar(path).write_bytes(good)
        spoil(sidecar(path), offset)
        came = outcome(path)
        assert came in (written, Code.AnchorDamaged)
        seen.add(str(came))
    assert len(seen) == 2, "both slots were hit"


def test_a_deleted_anchor_stops_the_next_write_of_an_open_ledger(path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        append(ledger, 1)
        sidecar(path).unlink()
        with pytest.raises(LedgerRefused) as caught:
            append(ledger, 1)
        assert caught.value.code is Code.AnchorMissing
        assert not caught.value.unknown
        assert ledger.head.seq == 1


def test_a_restored_copy_stops_the_next_write_of_an_open_ledger(path: Path, tmp_path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        append(ledger, 1)
        copy(path, tmp_path / "backup")
        append(ledger, 3)
        (tmp_path / "backup" / "fleet.db").replace(path)
        with pytest.raises(LedgerRefused) as caught:
            append(ledger, 1)
        assert caught.value.code is Code.Replaced


# --- accepting ------------------------------------------------------------------------------------


def test_a_person_may_accept_a_ledger_whose_end_is_gone(path: Path, tmp_path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        kept = append(ledger, 3)
    copy(path, tmp_path / "backup")
    with Ledger.open(path) as ledger:
        append(ledger, 4)
    (tmp_path / "backup" / "fleet.db").replace(path)
    with Ledger.examine(path) as ledger:
        assert ledger.refusal is not None
        assert ledger.refusal.code is Code.BehindAnchor
        assert [finding.check for finding in ledger.verify().findings] == ["anchor"]
        accepted = ledger.accept_anchor()
        assert ledger.refusal is None
    assert accepted.before is not None
    assert (accepted.before.seq, accepted.after.seq, accepted.after.hash) == (7, 3, kept[-1])
    with Ledger.open(path) as ledger, ledger.write() as tx:
        assert tx.head.seq == 3
        tx.append(at=tx.head.at, cause="accept", facts=[noted("entries 4 to 7 were lost", about="Ledger")])
    assert len(hashes(path)) == 4


def test_accepting_replaces_a_missing_or_damaged_anchor(path: Path, written: list[str]) -> None:
    for harm in (lambda: sidecar(path).unlink(), lambda: sidecar(path).write_bytes(b"\0" * 2 * SLOT)):
        harm()
        with Ledger.examine(path) as ledger:
            accepted = ledger.accept_anchor()
        assert accepted.before is None
        assert hashes(path) == written


def test_accepting_checks_the_whole_chain_first(path: Path, written: list[str]) -> None:
    sidecar(path).unlink()
    path.write_bytes(path.read_bytes().replace(b'"cause":"step 2"', b'"cause":"step X"'))
    with Ledger.examine(path) as ledger:
        with pytest.raises(LedgerRefused) as caught:
            ledger.accept_anchor()
        assert caught.value.code is Code.ChainBroken
    assert not sidecar(path).exists()


def test_accepting_never_overwrites_what_is_not_this_ledgers_anchor(
    path: Path, tmp_path: Path, written: list[str]
) -> None:
    Ledger.create(tmp_path / "other.db", fleet="other").close()
    (tmp_path / "thesis.txt").write_text("years of work")
    for foreign, code in (("other.db.anchor", Code.AnchorMismatch), ("thesis.txt", Code.AnchorDamaged)):
        before = (tmp_path / foreign).read_bytes()
        with Ledger.examine(path, anchor=tmp_path / foreign) as ledger:
            with pytest.raises(LedgerRefused) as caught:
                ledger.accept_anchor()
            assert caught.value.code is code
        assert (tmp_path / foreign).read_bytes() == before


# --- creating -------------------------------------------------------------------------------------


def create_refused(path: Path) -> LedgerRefused:
    with pytest.raises(LedgerRefused) as caught:
        Ledger.create(path, fleet="lab").close()
    return caught.value


def test_a_ledger_is_never_created_over_another(path: Path, written: list[str]) -> None:
    assert create_refused(path).code is Code.Exists
    assert hashes(path) == written


def test_a_lost_ledger_is_not_replaced_by_an_empty_one(path: Path, written: list[str]) -> None:
    path.unlink()
    said = create_refused(path)
    assert said.code is Code.AnchorInUse
    assert "had reached entry 6" in said.sentence
    assert not path.exists()


def test_a_leftover_journal_is_not_replayed_into_a_new_ledger(path: Path, tmp_path: Path) -> None:
    with Ledger.create(path, fleet="lab") as ledger:
        append(ledger, 3)
        crashed = copy(path, tmp_path / "crashed")
    crashed.unlink()
    sidecar(crashed).unlink()
    assert create_refused(crashed).code is Code.Leftover


def test_an_unused_anchor_is_no_obstacle(path: Path) -> None:
    Ledger.create(path, fleet="earlier").close()
    path.unlink()
    Ledger.create(path, fleet="lab").close()
    assert hashes(path) == []


@pytest.mark.parametrize("fleet", ["", "a b", "x" * 129, "new\nline", "é"])
def test_a_fleet_id_is_one_plain_word(path: Path, fleet: str) -> None:
    with pytest.raises(ValueError, match="fleet id"):
        Ledger.create(path, fleet=fleet)
    assert not path.exists()
