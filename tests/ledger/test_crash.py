"""A process that dies: what it acknowledged survives, or that and the transaction that was in flight."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tenure.ledger import CREATE_POINTS, WRITE_POINTS, Ledger
from tests.ledger.support import acknowledged, append, copy, hashes, start_writer

BEFORE_COMMIT = WRITE_POINTS[: WRITE_POINTS.index("after-commit")]


def goes_on(path: Path, survivors: list[str]) -> None:
    """Whatever happened, the ledger is whole and can be written."""
    assert hashes(path, readonly=True) == survivors
    with Ledger.open(path) as ledger:
        assert ledger.verify().findings == ()
        fresh = append(ledger, 2)
    assert hashes(path) == survivors + fresh


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("point", WRITE_POINTS)
def test_a_process_killed_at_a_hook_keeps_what_it_acknowledged(path: Path, point: str, batch: int) -> None:
    Ledger.create(path, fleet="lab").close()
    # "append" points come once for each entry: die in the third transaction wherever it is.
    turn = 2 * batch + 1 if "append" in point else 3
    writer = start_writer(path, "--batch", str(batch), "--kill-at", point, "--kill-on", str(turn))
    output, _ = writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    said = acknowledged(output.splitlines(keepends=True))
    assert len(said) == 2 * batch
    found = hashes(path)
    assert found[: len(said)] == said
    assert len(found) - len(said) == (0 if point in BEFORE_COMMIT else batch)
    goes_on(path, found)


def test_a_process_killed_at_any_moment_keeps_what_it_acknowledged(path: Path) -> None:
    Ledger.create(path, fleet="lab").close()
    known: list[str] = []
    for lines_read in (1, 7, 20, 3, 50):
        with start_writer(path, "--writes", "100000") as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(lines_read)]
            writer.kill()
            lines += writer.stdout  # communicate() would pass over what readline() has read ahead
        known += acknowledged(lines)
        found = hashes(path)
        assert found[: len(known)] == known
        assert len(found) - len(known) <= 1
        known = found
    goes_on(path, known)


def test_the_files_as_they_are_at_every_hook_hold_what_was_acknowledged(path: Path, tmp_path: Path) -> None:
    said: list[str] = []
    copies: list[tuple[Path, str, list[str]]] = []

    def hook(point: str) -> None:
        folder = tmp_path / f"{len(copies):03d}-{point}"
        copies.append((copy(path, folder), point, list(said)))

    with Ledger.create(path, fleet="lab") as ledger:
        said += append(ledger, 3)
    with Ledger.open(path, hook=hook) as ledger:
        for _ in range(4):
            said += append(ledger)
    assert [point for _, point, _ in copies] == [*WRITE_POINTS] * 4
    for place, point, known in copies:
        found = hashes(place)
        assert found == said[: len(known) + (point not in BEFORE_COMMIT)], f"{place}: {point}"
        assert found[: len(known)] == known
        goes_on(place, found)


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_a_ledger_whose_creation_was_cut_short_is_there_or_can_be_created(path: Path, point: str) -> None:
    writer = start_writer(path, "--create", "--kill-at", point)
    output, _ = writer.communicate()
    assert writer.returncode == -signal.SIGKILL
    assert acknowledged(output.splitlines(keepends=True)) == []
    assert path.exists() == (point == "file-linked")
    if not path.exists():
        Ledger.create(path, fleet="lab").close()
    goes_on(path, [])


def test_a_hook_that_raises_before_the_commit_undoes_and_after_it_leaves_the_handle_in_doubt(
    path: Path,
) -> None:
    armed = ""

    def hook(point: str) -> None:
        if point == armed:
            raise KeyboardInterrupt

    ledger = Ledger.create(path, fleet="lab", hook=hook)
    armed = "before-commit"
    with pytest.raises(KeyboardInterrupt):
        append(ledger)
    armed = ""
    said = append(ledger)
    armed = "after-commit"
    with pytest.raises(KeyboardInterrupt):
        append(ledger)
    armed = ""
    with pytest.raises(Exception, match="Unconfirmed"):
        append(ledger)
    with pytest.raises(Exception, match="Unconfirmed"):
        ledger.head  # noqa: B018 -- asking is the test
    ledger.close()
    found = hashes(path)
    assert found[:1] == said
    assert len(found) == 2
    goes_on(path, found)
