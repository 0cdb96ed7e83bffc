"""Obtain a real Prometheus for tests: `prometheus`, which scrapes, and `promtool`, which tests rules.

    python tools/prometheus_assets.py               # what `make prometheus-assets` calls: find, or else fetch
    python tools/prometheus_assets.py --no-fetch    # find only

Each program is looked for in this order: the folder PROMETHEUS_ASSETS, when set; the cache of an earlier call; the
PATH; and else it is taken out of Debian's package `prometheus`, which is downloaded and unpacked, never installed: no
service is set up and no file of the system changes. Which mirror serves the package is the machine's affair.

The cache lies outside the repository (XDG_CACHE_HOME or ~/.cache, then tenure/prometheus). The programs appear there
together or not at all; a second caller waits for the first; an interrupted call leaves nothing behind that matters.

Exit codes: 0 both are there; 3 they cannot be had here, and the text says what to do; 130 interrupted.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

if __package__ in (None, ""):  # called by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.kube_assets import Teller, Unobtainable

PROGRAMS = ("prometheus", "promtool")
PACKAGE = "prometheus"
SECONDS = 600


def cache_folder() -> Path:
    """Where the programs are kept; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tenure" / "prometheus" / platform.machine()


def located() -> dict[str, Path]:
    """The programs that are there already, by name."""
    given = os.environ.get("PROMETHEUS_ASSETS")
    places = [given, str(cache_folder() / "bin"), os.environ.get("PATH")]
    path = os.pathsep.join(place for place in places if place)
    return {name: Path(found) for name in PROGRAMS if (found := shutil.which(name, path=path)) is not None}


def assets() -> dict[str, Path]:
    """Both programs, without fetching any; raises Unobtainable when one is not there, and says how to get it."""
    found = located()
    if lacking := [name for name in PROGRAMS if name not in found]:
        how = "`make prometheus-assets` fetches them, once" if shutil.which("apt-get") else _ADVICE
        raise Unobtainable(f"{' and '.join(lacking)}: not here yet. {how}.")
    return found


def obtain(say: Teller) -> dict[str, Path]:
    """Both programs, fetched if they must be."""
    if len(found := located()) == len(PROGRAMS):
        return found
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say.line("waiting for another call that is fetching")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if len(located()) < len(PROGRAMS):
            _fetch(folder, say)
    return assets()


def _fetch(folder: Path, say: Teller) -> None:
    """Take the programs out of the package, beside their place, and move them there when both are whole."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise Unobtainable(f"there is no `{tool}` here to fetch Debian's package `{PACKAGE}` with. {_ADVICE}.")
    for leftover in folder.glob("fetching-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder) as name:
        work = Path(name)
        say.line(f"downloading Debian's package `{PACKAGE}` (once, some 20 MB)")
        package = _downloaded(work, say)
        _call(["dpkg-deb", "--extract", str(package), "tree"], work)
        ready = work / "bin"
        ready.mkdir()
        for program in PROGRAMS:
            found = work / "tree" / "usr" / "bin" / program
            if not os.access(found, os.X_OK):
                raise Unobtainable(f"the package {package.name} has no {program}. {_ADVICE}.")
            found.rename(ready / program)
        shutil.rmtree(folder / "bin", ignore_errors=True)
        ready.rename(folder / "bin")
    say.line("done")


def _downloaded(work: Path, say: Teller) -> Path:
    """The package's file. A machine that has never read its lists reads them first, if it may."""
    for attempt in range(2):
        try:
            _call(["apt-get", "-q", "download", PACKAGE], work)
            return next(work.glob("*.deb"))
        except Unobtainable:
            if attempt or os.geteuid() != 0:
                raise
            say.line("reading the lists of packages first")
            _call(["apt-get", "-q", "update"], work)
    raise AssertionError("the last try returns or raises")


def _call(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unobtainable(f"`{' '.join(command)}` did not end in {SECONDS} s. {_ADVICE}.") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-1000:]
        raise Unobtainable(f"`{' '.join(command)}` failed: {said}\n{_ADVICE}.")


_ADVICE = (
    "Install Prometheus 2.40 or newer with its promtool so that both are on the PATH, or set PROMETHEUS_ASSETS to a "
    "folder that holds them; then run the same again"
)


def main() -> int:
    """Find or fetch, print where each program is, and answer by exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--no-fetch", action="store_true", help="find only")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        found = assets() if asked.no_fetch else obtain(Teller("prometheus-assets"))
    except Unobtainable as error:
        print(f"prometheus-assets: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("\nprometheus-assets: interrupted; the same command begins again", file=sys.stderr)
        return 130
    for name, path in found.items():
        print(f"{name:<15} {path}")
    return 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
