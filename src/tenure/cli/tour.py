"""The tour: an embedded fleet, budgets and runs that really run, in well under a minute. ``make run`` starts it.

Everything it shows is done by the commands that it prints, called as anybody would call them; the samples are those
of ``examples/tour``, copied into a folder of their own that is kept, so that one can go on from there. Only how long
they work is changed there: until the tour has shown them, however slow the machine is.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tenure.cli.local import LocalFleet
from tenure.cli.port import RunLine
from tenure.cli.terminal import HINTS, Progress, fold, paint
from tenure.cli.words import plural

SAMPLES = Path(__file__).resolve().parents[3] / "examples" / "tour"
BIN = Path(sys.executable).parent
PATIENCE = 120.0
"""Seconds after which something must be wrong."""
RUNS = ("train", "eval", "flaky", "later", "giant")
SHOWN = ("train", "eval", "flaky")
"""Those that are to be seen at work."""
SEEN = "seen"
"""A file that is there once they were."""


def main() -> int:
    if not SAMPLES.is_dir():
        print(f"error: {SAMPLES} is not there\nnext: run the tour from a checkout of the repository", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="tenure-tour-"))
    shutil.copytree(SAMPLES, folder, dirs_exist_ok=True)
    for name in SHOWN:
        _held(folder / f"{name}.yaml", until=folder / SEEN)
    try:
        return _Tour(folder).take()
    except KeyboardInterrupt:
        print(f"\nstopped; what there is so far is in {folder}")
        return 130


class _Tour:
    """One tour, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = folder / "fleet.db"
        self.begun = time.monotonic()
        self.ok = True
        path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
        self.environ = {**os.environ, "PATH": path, "TENURE_LOCAL": "fleet.db", HINTS: "off"}
        self.runs = "kubectl runs" if shutil.which("kubectl", path=path) else "kubectl-runs"
        self.told = 0

    def take(self) -> int:
        self.say("A fleet is one file. This one has four machines with eight GPUs each; pods will be processes here.")
        self.do("tenure init fleet.db --fleet fleet.yaml")
        with self.driven():
            self.submit()
            self.look()
            (self.folder / SEEN).touch()
            self.wait()
        self.afterwards()
        self.goodbye()
        return 0 if self.ok else 1

    # -- the stations --

    def submit(self) -> None:
        self.say("Budget owners grant GPUs; vision lends some of its own.")
        self.do("{runs} submit -f budgets.yaml")
        self.say("`plan` asks without doing. Exit code 0: would start, 3: would wait, 4: can never start.")
        self.do("{runs} plan -f giant.yaml", expect=4)
        self.say("Hand in two that fit; one of them will fail once. Each run is answered at once.")
        self.do("{runs} submit -f train.yaml flaky.yaml")
        self.say(
            "rai has four GPUs left. `eval` may borrow the rest; `later` may not, and waits; `giant` never starts."
        )
        self.do("{runs} submit -f eval.yaml later.yaml giant.yaml")

    def look(self) -> None:
        self.do("{runs} list -A")
        self.say(
            "Who holds which GPU, and who pays? Leases say so, and nothing else does. `eval` is paid by two teams."
        )
        self.do("{runs} leases --open")
        self.say("Why does `later` wait? The whole walk over the money, from the engine's own record.")
        self.do("{runs} explain rai/later --cover")

    def afterwards(self) -> None:
        self.do("{runs} list -A")
        self.say("What the pods wrote: real processes, with their ranks and their GPUs.")
        self.do("{runs} logs rai/train")
        self.say("Who paid for `eval`? And what is left of the budgets?")
        self.do("{runs} who-pays rai/eval")
        self.do("{runs} budgets usage")
        self.say("Every decision is in a chain of hashes that never changes. Is it whole?")
        self.do("tenure ledger verify fleet.db")

    def goodbye(self) -> None:
        took = time.monotonic() - self.begun
        self.say(f"That took {took:.0f} seconds. The fleet and its files are kept in {self.folder}. To go on:")
        for line in self._next():
            print(f"  {line}")

    def _next(self) -> Iterator[str]:
        yield f"cd {shlex.quote(str(self.folder))} && export TENURE_LOCAL=fleet.db"
        if shutil.which("kubectl-runs") is None:
            yield f'export PATH={shlex.quote(str(BIN))}:"$PATH"'
        rows = [
            ("tenure up fleet.db > up.log &", "drive the fleet; `kill %1` stops driving, work goes on"),
            (f"{self.runs} cancel rai/train && {self.runs} submit -f train.yaml", "once more"),
            (f"{self.runs} watch rai/train", "until it is over"),
            (f"{self.runs} explain rai/giant", "why it can never start"),
            (f"{self.runs} budgets usage --by owner", "who spent what"),
            (f"{self.runs} --help", "every verb; `tenure --help` for who keeps a fleet"),
        ]
        width = max(len(command) for command, _ in rows)
        yield from (f"{command:{width}}  # {what}" for command, what in rows)

    # -- how it is done --

    def say(self, text: str) -> None:
        print("\n" + "\n".join(paint(line, "info") for line in fold(text, indent=0).splitlines()), flush=True)

    def do(self, command: str, *, expect: int = 0) -> None:
        """Print a command and run it, as a shell would."""
        shown = command.format(runs=self.runs)
        print(f"{paint('$ ' + shown, 'strong')}", flush=True)
        words = shlex.split(command.format(runs="kubectl-runs"))
        code = subprocess.run(words, cwd=self.folder, env=self.environ, check=False).returncode
        if code:
            print(f"{paint(f'(exit code {code})', 'dim')}", flush=True)
        if code != expect:
            self.ok = False
            print(f"error: this should have ended with {expect}; please report it", file=sys.stderr)

    @contextmanager
    def driven(self) -> Iterator[None]:
        """A driver in the background for as long as the block lasts."""
        self.say("Something must drive it: `tenure up` lets time pass and runs the work. Here, in the background.")
        print(paint("$ tenure up fleet.db > up.log &", "strong"), flush=True)
        with (self.folder / "up.log").open("wb") as log:
            words = [str(BIN / "tenure"), "up", "fleet.db"]
            driver = subprocess.Popen(words, cwd=self.folder, env=self.environ, stdout=log, stderr=log)
        try:
            self._until(lambda: b"driving" in (self.folder / "up.log").read_bytes())
            yield
        finally:
            driver.send_signal(signal.SIGINT)
            driver.wait(timeout=30)
            self.tell()

    def _until(self, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing happened for {PATIENCE:.0f} seconds; see {self.folder / 'up.log'}")
            time.sleep(0.05)

    def wait(self) -> None:
        """Print what the driver says until nothing is left to happen."""
        self.say("Meanwhile the driver works. This is what `tenure up` prints, until nothing is left to do:")
        with LocalFleet.open(self.fleet, write=False, anchor=None) as fleet, Progress("waiting") as progress:
            follower = fleet.follow()
            deadline = time.monotonic() + PATIENCE
            while (
                busy := [line for line in follower.view().lines() if _is_busy(line)]
            ) and time.monotonic() < deadline:
                progress.close()
                self.tell()
                progress(plural(len(busy), "run") + " left", len(RUNS) - len(busy), len(RUNS))
                follower.wait(0.5)
        self.tell()
        if busy:
            self.ok = False
            print("error: some runs did not end; see up.log there", file=sys.stderr)

    def tell(self) -> None:
        """What the driver has said since the last time."""
        text = (self.folder / "up.log").read_text()
        end = text.rfind("\n") + 1
        for line in text[self.told : end].splitlines():
            print(fold(f"  {line}", indent=41))
        self.told = end
        sys.stdout.flush()


def _held(sample: Path, *, until: Path) -> None:
    """Have a sample work until a file is there, instead of some seconds."""
    seen = f'until test -e "{until}"; do sleep 0.1; done'
    sample.write_text(re.sub(r"sleep \d+", lambda _: seen, sample.read_text()))


def _is_busy(line: RunLine) -> bool:
    """Whether something will still happen to it by itself."""
    return not line.over and not line.blocked


if __name__ == "__main__":
    sys.exit(main())
