"""A cluster to try things on, by hand: `make kube-up`, `make kube-down`.

The same control plane as the tests have (src/tenure/testing/kube), with KWOK nodes that have GPUs and topology
labels, with Tenure installed, and with the operator running as its own service account. It lives in .kube/ of the
checkout (kubeconfig, logs, data) until it is taken down; nothing of it survives that.

What this checkout cannot do is said and left out: where there is no `tenure install --kube` the CRDs alone are
applied, and where there is no `tenure operator` none is started.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

import yaml

from tenure.testing.kube import ControlPlane, Kwok, NotStarted, Refused, gpu_nodes
from tenure.testing.kube.process import Program, free_ports
from tools.kube_assets import BuildFailed, Teller, Unobtainable, obtain

ROOT = Path(__file__).resolve().parent.parent
SYSTEM, ACCOUNT = "tenure-system", "tenure-operator"
STOP_SECONDS = 10.0
READY_SECONDS = 60.0


# ---- up ----


def up(folder: Path, nodes: int, gpus: int) -> None:
    """Start everything; what was started is stopped again when something fails."""
    if running(folder):
        print(f"It is up already. To start afresh: make kube-down, then make kube-up.\n{_how_to_use(folder)}")
        return
    down(folder)
    programs = obtain(Teller())
    folder.mkdir(parents=True)
    plane = ControlPlane(folder / "plane", programs, outlive=True)
    started: list[Program] = []
    try:
        _tell("starting etcd and kube-apiserver")
        plane.start()
        started += [plane.etcd, plane.apiserver, plane.controllers]
        _remember(folder, started)
        kwok = Kwok(programs["kwok"], plane.admin, plane.folder, outlive=True)
        kwok.process.start()
        started.append(kwok.process)
        _remember(folder, started)
        _tell(f"registering {nodes} nodes of {gpus} GPUs")
        plane.api.create_all(gpu_nodes(nodes, gpus=gpus))
        shutil.copy(plane.admin, folder / "kubeconfig")
        (folder / "env").write_text(_settings(folder, plane))
        _install(plane)
        if operator := _operator(folder, plane):
            started.append(operator)
            _remember(folder, started)
    except BaseException:
        for program in reversed(started[3:]):
            program.stop()
        plane.stop()
        print(f"kube-up: not started; the logs are in {folder / 'plane'}", file=sys.stderr)
        raise
    plane.api.close()
    print(_how_to_use(folder))


def _install(plane: ControlPlane) -> None:
    """Tenure's objects, by its own command; or the kinds alone, where that command does not exist yet."""
    if _has("install"):
        _tell("tenure install --kube")
        for words in (["install", "--kube"], ["install", "--kube", "--taint-nodes"]):
            done = subprocess.run(
                [*_tenure(), *words], env=_environment(plane.admin), capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise NotStarted(f"`tenure {' '.join(words)}` ended with exit code {done.returncode}: {done.stderr}")
        return
    _tell("applying deploy/crds alone: this checkout has no `tenure install`")
    for path in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        plane.api.apply(yaml.safe_load(path.read_text())).must()


def _operator(folder: Path, plane: ControlPlane) -> Program | None:
    """The operator at work, with its own rights and not the administrator's."""
    if not _has("operator"):
        _tell("no operator is started: this checkout has no `tenure operator`")
        return None
    _tell(f"tenure operator, as {SYSTEM}/{ACCOUNT}")
    plane.namespace(SYSTEM)
    (port,) = free_ports(1)
    command = [
        *_tenure(),
        "operator",
        f"--journal={folder / 'operator'}",
        f"--probes=127.0.0.1:{port}",
        "--log-format=console",
    ]
    environment = _environment(plane.service_account(SYSTEM, ACCOUNT))
    log = plane.folder / "tenure-operator.log"
    operator = Program("tenure-operator", command, log, outlive=True, environment=environment)
    operator.start()
    try:
        operator.wait(lambda: _ready(f"http://127.0.0.1:{port}/readyz"), READY_SECONDS)
    except BaseException:
        operator.stop()
        raise
    return operator


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _has(verb: str) -> bool:
    """Whether `tenure` knows a verb."""
    done = subprocess.run([*_tenure(), verb, "--help"], env=_environment(None), capture_output=True, check=False)
    return done.returncode == 0


def _tenure() -> list[str]:
    return [sys.executable, "-c", "import sys; from tenure.cli.main import tenure; sys.exit(tenure())"]


def _environment(config: Path | None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **({"KUBECONFIG": str(config)} if config else {})}


def _settings(folder: Path, plane: ControlPlane) -> str:
    """What a shell needs to talk to the cluster: the kubeconfig, the real kubectl, and `kubectl runs`."""
    folders = [str(plane.programs["kubectl"].parent), str(Path(sys.executable).parent)]
    return f'export KUBECONFIG="{folder / "kubeconfig"}"\nexport PATH="{":".join(folders)}:$PATH"\n'


def _how_to_use(folder: Path) -> str:
    return (
        f"kubeconfig  {folder / 'kubeconfig'}\n"
        f"logs        {folder / 'plane'}/*.log\n"
        f"next        source {folder / 'env'}; kubectl get nodes -L fabric.domain,rack\n"
        "stop        make kube-down"
    )


# ---- down ----


def down(folder: Path) -> None:
    """Stop what `up` started, and remove its folder. A folder that is not of `up` is left alone."""
    if folder.exists() and not (folder / "plane").exists():
        raise NotStarted(f"{folder} is there and holds no cluster; it is left as it is")
    found = running(folder)
    for name, pid in reversed(found):
        _tell(f"stopping {name}")
        _end(pid)
    shutil.rmtree(folder, ignore_errors=True)


def running(folder: Path) -> list[tuple[str, int]]:
    """The processes of `up` that are still there, in the order of their start."""
    try:
        kept: list[dict[str, Any]] = json.loads(_state(folder).read_text())
    except (OSError, ValueError):
        return []
    return [(each["name"], each["pid"]) for each in kept if _born(each["pid"]) == each["born"]]


def _state(folder: Path) -> Path:
    return folder / "processes.json"


def _remember(folder: Path, programs: list[Program]) -> None:
    kept = [{"name": each.name, "pid": each.pid, "born": _born(each.pid)} for each in programs]
    unfinished = _state(folder).with_suffix(".new")
    unfinished.write_text(json.dumps(kept))
    unfinished.rename(_state(folder))


def _born(pid: int) -> str | None:
    """When a process began, in ticks since boot: a number that comes again is not the same process."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else words[19]


def _end(pid: int) -> None:
    born, deadline = _born(pid), time.monotonic() + STOP_SECONDS
    os.kill(pid, signal.SIGTERM)
    while _born(pid) == born:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.05)


def _tell(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Up or down, as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--folder", type=Path, default=ROOT / ".kube", help="where it lives (default: %(default)s)")
    verbs = parser.add_subparsers(dest="verb", required=True)
    starting = verbs.add_parser("up", help="start the cluster")
    starting.add_argument("--nodes", type=int, default=16, help="how many nodes (default %(default)s)")
    starting.add_argument("--gpus", type=int, default=8, help="GPUs of each (default %(default)s)")
    verbs.add_parser("down", help="stop it, and remove what it kept")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if asked.verb == "down":
            down(asked.folder)
        else:
            up(asked.folder, asked.nodes, asked.gpus)
    except Unobtainable as error:
        print(f"kube-up: {error}", file=sys.stderr)
        return 3
    except (BuildFailed, NotStarted, Refused) as error:
        print(f"kube-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
