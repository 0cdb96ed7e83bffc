"""The tour that `make run` takes: everything it prints happens, and what it proposes at the end works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.support import BIN, SECONDS


def test_the_tour_shows_real_work_and_ends_with_commands_that_work(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "tenure.cli.tour"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=2 * SECONDS, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    out = done.stdout
    assert "\x1b" not in out
    for promise in (
        "(exit code 4)",
        "Run/rai/train created: starts",
        "Run/rai/eval created: starts with 8 GPUs on 1 node, paid by rai/west (4 owned), vision/west (4 borrowed).",
        "Run/rai/later created: waits",
        "Run/rai/giant created: can never start",
        "flaky-a1-0 failed with exit code 3",
        "[train-a1-1/main] rank 1 of 2, GPUs 4,5,6,7, world of 8",
        "fleet.db is whole",
    ):
        assert promise in out
    finals = re.findall(r"^rai +(\w+) +(\w+)", out[out.rindex("list -A") :], re.MULTILINE)
    assert dict(finals) == {
        "train": "Completed", "eval": "Completed", "flaky": "Completed", "later": "Completed", "giant": "Blocked",
    }  # fmt: skip
    _proposals_work(out, tmp_path)


def _proposals_work(out: str, folder: Path) -> None:
    """Run the last lines as they are, in one shell."""
    lines = [line.strip() for line in out[out.index("To go on:") :].splitlines()[1:] if line.strip()]
    assert lines[0].startswith(f"cd {folder}")
    plugin = folder / "kubectl"
    plugin.write_text(f'#!/bin/sh\nname=$1; shift; exec "{BIN}/kubectl-$name" "$@"\n')
    plugin.chmod(0o755)
    # Between them a person takes a breath: the driver must be there before it is given work.
    breath = "until grep -q driving up.log; do sleep 0.05; done"
    script = "\n".join(
        ["set -e", *(f"{line}\n{breath}" if line.startswith("tenure up") else line for line in lines), "kill %1; wait"]
    )
    path = f"{folder}:{BIN}:{os.environ['PATH']}"
    assert shutil.which("kubectl-runs", path=path)
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * SECONDS,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Completed" in done.stdout
