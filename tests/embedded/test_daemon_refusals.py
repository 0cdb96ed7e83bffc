"""A ledger that cannot be trusted or written: the driver says why and what to do, nothing is admitted, work goes on."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from tenure.embedded.driver import is_driven
from tenure.embedded.fleet import Fleet
from tenure.ledger import Code, Ledger, LedgerRefused, sidecar
from tests.embedded.drivers import DEADLINE_SECONDS, TENURE, Site, interrupt, is_running, pids
from tests.embedded.pods import alive

REFUSED = 6
Fault = Callable[[Site, Path], Callable[[], None]]
"""Does something to a ledger, and answers how to undo it."""


class Workplace(Site):
    """A fleet with one run at work, which goes on until it is released, and nobody who drives."""

    def __init__(self, folder: Path, *, trace: Path) -> None:
        super().__init__(folder)
        self._trace = trace
        self._release = trace.with_name("release")
        script = f"echo $$$$ >> {trace}; until [ -e {self._release} ]; do sleep 0.02; done"
        self.submit(self.run("working", 8, script))
        driver = self.up()
        [self.pid] = pids(trace, 1)
        self.until(lambda: self.phase("working") == "Running")
        assert interrupt(driver) == 0

    def conclude(self) -> None:
        """Whatever was wrong with the ledger, work went on; now it ends as it should, and the books are right."""
        assert is_running(self.pid)
        self._release.touch()
        self.finish()
        assert pids(self._trace, 1) == [self.pid], "it was started once"
        self.judge({row.name: "Completed" for row in self.state().runs.values()})

    def head(self) -> int:
        with Ledger.open(self.path, readonly=True) as ledger:
            return ledger.head.seq


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Workplace]:
    with closing(Workplace(tmp_path / "site", trace=tmp_path / "pids")) as site:
        yield site
        site.conclude()


def backup(site: Site, folder: Path) -> None:
    """A copy of a ledger that nobody has open."""
    Ledger.open(site.path).close()  # the last to leave puts everything into the one file
    assert not site.path.with_name("fleet.db-wal").exists()
    folder.mkdir()
    for file in (site.path, sidecar(site.path)):
        shutil.copy2(file, folder)


def put_back(file: Path, folder: Path) -> None:
    shutil.copy2(folder / file.name, file)


# --- before it begins ---------------------------------------------------------------------------------------------


def restored(site: Site, folder: Path) -> Callable[[], None]:
    """An old copy is put in the ledger's place."""
    backup(site, folder / "old")
    site.submit(site.run("later", 4, "true"))
    backup(site, folder / "new")
    put_back(site.path, folder / "old")
    return lambda: put_back(site.path, folder / "new")


def truncated(site: Site, folder: Path) -> Callable[[], None]:
    """The file lost its second half."""
    backup(site, folder / "whole")
    os.truncate(site.path, site.path.stat().st_size // 2)
    return lambda: put_back(site.path, folder / "whole")


def unanchored(site: Site, folder: Path) -> Callable[[], None]:
    """The anchor is gone."""
    backup(site, folder / "whole")
    sidecar(site.path).unlink()
    return lambda: put_back(sidecar(site.path), folder / "whole")


def rewritten(site: Site, folder: Path) -> Callable[[], None]:
    """A query table no longer says what the entries say: opening costs too little to see that."""
    backup(site, folder / "whole")
    with closing(sqlite3.connect(site.path)) as db, db:
        assert db.execute("UPDATE leases SET node = 'nowhere' WHERE end IS NULL").rowcount
    return lambda: put_back(site.path, folder / "whole")


FAULTS: dict[Fault, tuple[Code, str, str]] = {
    restored: (Code.BehindAnchor, "an old copy", "ledger accept"),
    truncated: (Code.Damaged, "is damaged", "restore the newest backup"),
    unanchored: (Code.AnchorMissing, "is missing", "Put the anchor back"),
}
damaged = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@damaged
def test_a_ledger_that_cannot_be_trusted_is_refused_with_the_reason_and_the_next_step(
    site: Workplace, tmp_path: Path, fault: Fault
) -> None:
    code, reason, remedy = FAULTS[fault]
    undo = fault(site, tmp_path)
    for readonly in (True, False):
        with pytest.raises(LedgerRefused) as caught, Fleet.open(site.path, readonly=readonly) as fleet:
            fleet.state()
        assert caught.value.code is code
        assert reason in caught.value.sentence
        assert remedy in caught.value.next_step
    undo()


@pytest.mark.parametrize("fault", [*FAULTS, rewritten], ids=lambda fault: fault.__name__)
def test_a_driver_does_not_begin_on_a_ledger_that_cannot_be_trusted(
    site: Workplace, tmp_path: Path, fault: Fault
) -> None:
    code, reason, remedy = FAULTS.get(fault, (Code.Damaged, "is not as it should be", "tenure ledger verify"))
    undo = fault(site, tmp_path)
    done = subprocess.run(
        [*TENURE, "up", str(site.path)], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == REFUSED, done.stderr
    said = " ".join(done.stderr.split())
    assert code in said
    assert reason in said
    assert remedy in said
    assert not is_driven(site.path)
    undo()


# --- while it drives ----------------------------------------------------------------------------------------------


@contextmanager
def restless(site: Workplace) -> Iterator[subprocess.Popen[bytes]]:
    """A driver that always has something to write: a run that fails and is tried again, for ever."""
    site.submit(site.run("restless", 4, "exit 1", restarts=1_000_000))
    driver = site.up()
    site.until(lambda: len(site.started()) > 3)
    yield driver
    site.cancel("restless")
    site.until(lambda: site.phase("restless") == "Gone")
    assert interrupt(driver) == 0


def goes_on(site: Workplace) -> None:
    """New attempts are made again, by the same driver."""
    before = len(site.started())
    site.until(lambda: len(site.started()) > before + 2)


def started_at_last(site: Workplace) -> Counter[str]:
    """What has started when all that was launched before the ledger was refused has come and gone."""
    site.until(lambda: not [line for _, line in alive(site.pods) if "restless" in line])
    return site.started()


def test_an_anchor_taken_away_from_a_driver_stops_admissions_until_it_is_back(site: Workplace, tmp_path: Path) -> None:
    with restless(site) as driver:
        sidecar(site.path).rename(tmp_path / "mislaid")
        site.until(lambda: "AnchorMissing" in site.errors.read_text())
        assert "Running work goes on, nothing is admitted" in site.errors.read_text()
        before = started_at_last(site)
        with pytest.raises(LedgerRefused):
            site.submit(site.run("refused", 4, "true"))
        assert is_running(site.pid)
        assert site.started() == before
        (tmp_path / "mislaid").rename(sidecar(site.path))
        goes_on(site)
        assert driver.poll() is None


def test_a_ledger_replaced_under_a_driver_stops_admissions_until_the_right_one_is_back(
    site: Workplace, tmp_path: Path
) -> None:
    """An operator restores last night's copy without asking who uses the file."""
    backup(site, tmp_path / "old")
    with restless(site) as driver:
        there = [file for suffix in ("", "-wal", "-shm") if (file := site.path.with_name(f"fleet.db{suffix}")).exists()]
        (tmp_path / "right").mkdir()
        for file in there:
            file.rename(tmp_path / "right" / file.name)
        put_back(site.path, tmp_path / "old")
        site.until(lambda: "BehindAnchor" in site.errors.read_text())
        before = started_at_last(site)
        with pytest.raises(LedgerRefused, match="an old copy"):
            site.submit(site.run("refused", 4, "true"))
        assert is_running(site.pid)
        assert site.started() == before
        for suffix in ("-wal", "-shm"):
            site.path.with_name(f"fleet.db{suffix}").unlink(missing_ok=True)
        for file in there:
            (tmp_path / "right" / file.name).rename(file)
        goes_on(site)
        assert driver.poll() is None


@pytest.mark.parametrize("most", [4096, 0], ids=["the ledger", "nothing, not even its own log"])
def test_a_driver_whose_writes_fail_goes_on_by_itself_when_they_succeed_again(site: Workplace, most: int) -> None:
    """A limit on the size of files, set on the living driver: every write beyond it fails, as on a failing disk."""
    with restless(site) as driver:
        _, hard = resource.prlimit(driver.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (most, hard))
        if most:
            site.until(lambda: "WriteFailed" in site.errors.read_text())
        stands_still(site)
        resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (hard, hard))
        goes_on(site)
        assert driver.poll() is None
        assert "Traceback" not in site.errors.read_text()


def stands_still(site: Workplace) -> None:
    """A driver that makes an attempt every 0.1 seconds makes none in a second, and what runs goes on."""
    before, since = site.head(), monotonic()
    while monotonic() < since + 1:
        if (now := site.head()) > before:  # it was just about to
            before, since = now, monotonic()
        sleep(0.05)
    assert is_running(site.pid)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of four megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"only an administrator can mount a small disk: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_on_a_full_disk_nothing_is_admitted_work_goes_on_and_space_is_all_it_takes(
    small_disk: Path, tmp_path: Path
) -> None:
    """Ledger, anchor, pods and the driver's own log are all on it."""
    with closing(Workplace(small_disk / "site", trace=tmp_path / "pids")) as site:
        with restless(site) as driver:
            ballast = small_disk / "ballast"
            fill(ballast)
            site.until(lambda: refuses(site))
            fill(ballast)
            stands_still(site)
            with pytest.raises(LedgerRefused) as caught:
                site.submit(site.run("refused", 4, "true"))
            assert caught.value.code is Code.DiskFull
            assert "Free some space" in caught.value.next_step
            ballast.unlink()
            goes_on(site)
            assert driver.poll() is None
        site.conclude()


def fill(ballast: Path) -> None:
    """Write until there is no room for a single byte."""
    with open(ballast, "ab", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def refuses(site: Site) -> bool:
    try:
        site.submit(site.run("refused", 4, "true"))
    except LedgerRefused:
        return True
    return False
