"""A small fleet made by the command line itself, and ways to call commands as people and programs do."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from tenure.cli.main import runs, server

BIN = Path(sys.executable).parent
SECONDS = 120
CO_FUNDED = Path(__file__).resolve().parents[2] / "examples" / "scenarios" / "co-funded-run.yaml"

FLEET = """
kind: Fleet
metadata: {name: test}
policy: {retryBackoff: 100ms}
nodes:
- {name: "a-{i}", count: 2, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: A, gpu.flavor: H100}}
- {name: b-0, gpus: 8, labels: {region: west, cluster: lab, fabric.domain: B, gpu.flavor: H100}}
"""
BUDGETS = """
kind: Namespace
metadata: {name: rai, annotations: {rq.davidlangworthy.io/owner: "org:ai:rai"}}
---
kind: Budget
metadata: {name: rai}
spec:
  owner: org:ai:rai
  envelopes: [{name: west, flavor: H100, selector: {region: west}, concurrency: 14, maxGPUHours: 1000}]
---
kind: Budget
metadata: {name: vision}
spec:
  owner: org:ai:vision
  envelopes:
  - name: west
    flavor: H100
    selector: {region: west}
    concurrency: 16
    lending: {allow: true, to: ["org:ai:*"], maxConcurrency: 8}
"""


def run_yaml(name: str, gpus: int, script: str, **spec: Any) -> str:
    """A Run in namespace rai whose pods run a shell script."""
    container = {"name": "main", "command": ["sh", "-c", script]}
    resources = {"gpuType": "H100", "totalGPUs": gpus, **spec.pop("resources", {})}
    body = {"resources": resources, "template": {"spec": {"containers": [container]}}, **spec}
    return json.dumps({"kind": "Run", "metadata": {"name": name, "namespace": "rai"}, "spec": body})


def history() -> list[str]:
    """Five runs: two that fit, one that borrows, one that waits for them, one that can never start."""
    flaky = 'echo "attempt $TENURE_ATTEMPT"; test "$TENURE_ATTEMPT" -gt 1 || exit 3'
    borrow = {"allowBorrow": True, "sponsors": ["org:ai:vision"]}
    return [
        run_yaml("a-train", 8, 'echo "rank $NODE_RANK gpus $CUDA_VISIBLE_DEVICES"; sleep 0.3; echo done',
                 resources={"gpusPerPod": 4}, runtime={"expectedDuration": "1m"}),
        run_yaml("b-flaky", 2, flaky, runtime={"maxRestarts": 1}),
        run_yaml("c-eval", 8, "sleep 0.2", funding=borrow),
        run_yaml("d-later", 12, "true"),
        run_yaml("e-giant", 64, "true"),
    ]  # fmt: skip


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, f"it ended with {self.code}, and said: {self.err}"
        return json.loads(self.out)


def call(*words: str, fleet: Path | None = None, stdin: str | bytes | None = None, **env: str) -> Done:
    """A command in this process: the first word is the program."""
    program = {"runs": runs, "tenure": server}[words[0]]
    variables = {"TENURE_LOCAL": str(fleet) if fleet else None, **env}
    result = CliRunner(env=variables).invoke(program, list(words[1:]), input=stdin)
    return Done(result.exit_code, result.stdout, result.stderr)


def spawn(*words: str, fleet: Path | None = None, **options: Any) -> "subprocess.Popen[str]":
    """A command as a process of its own."""
    program = {"runs": "kubectl-runs", "tenure": "tenure"}[words[0]]
    env = {**os.environ, **({"TENURE_LOCAL": str(fleet)} if fleet else {}), **options.pop("env", {})}
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([str(BIN / program), *words[1:]], env=env, **settings)


def finish(process: "subprocess.Popen[str]") -> Done:
    """How a process ended. One that does not is ended here: nobody else's test is to be blamed for it."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Done(process.returncode, out, err)


@contextmanager
def driven(fleet: Path) -> Iterator["subprocess.Popen[str]"]:
    """Somebody drives the fleet while the block lasts."""
    process = spawn("tenure", "up", str(fleet))
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("driving")
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        finish(process)


def until_idle(fleet: Path) -> Done:
    done = finish(spawn("tenure", "up", str(fleet), "--until-idle"))
    assert done.code == 0, done
    return done


def create(folder: Path) -> Path:
    """A fleet with budgets and nothing to do."""
    fleet = folder / "fleet.db"
    (folder / "fleet.yaml").write_text(FLEET)
    assert call("tenure", "init", str(fleet), "--fleet", str(folder / "fleet.yaml")).code == 0
    assert submit(fleet, BUDGETS).code == 0
    return fleet


def submit(fleet: Path, *documents: str) -> Done:
    return call("runs", "submit", "-f", "-", fleet=fleet, stdin="\n---\n".join(documents))


def copy(fleet: Path, folder: Path) -> Path:
    """The same fleet somewhere else, with its anchor, its pods' folders and all."""
    for path in fleet.parent.glob(fleet.name + "*"):
        if path.is_dir():
            shutil.copytree(path, folder / path.name, copy_function=shutil.copy, ignore=shutil.ignore_patterns("lock"))
        else:
            shutil.copy(path, folder)
    return folder / fleet.name


def still(text: str) -> str:
    """The text with everything taken out that is different each time: hashes first, which may read like an age."""
    text = re.sub(r"\S*/fleet\.db", "FLEET", text)
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "HASH", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text)
    text = re.sub(r"(?<![:\d])(?:[A-Z][a-z]{2} \d{1,2} )?\d\d:\d\d\b(?!:)", "CLOCK", text)
    text = re.sub(r"\b(\d+(ms|[dhms])){1,3}\b", "AGE", text)
    text = re.sub(r"\b\d+\.\d{2,4}\b", "N.NN", text)
    return re.sub(r" +", " ", text)
