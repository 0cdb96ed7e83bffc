"""Completions, asked for as shells do it: what they offer is what the program and the fleet have."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from tenure.cli.completing import COMPLETES, PATIENCE, candidates, named_by
from tenure.cli.main import RUNS, runs
from tenure.cli.reference import commands
from tenure.cli.shells import SCRIPTS
from tests.cli.support import BIN, SECONDS, call

LINES = {
    "kubectl-runs de": ["describe"],
    "kubectl-runs describe ": ["a-train", "b-flaky", "c-eval", "d-later", "e-giant"],
    "kubectl-runs describe b": ["b-flaky"],
    "kubectl-runs describe rai/a": ["rai/a-train"],
    "kubectl-runs cancel a-train b": ["b-flaky"],
    "kubectl-runs list --output=j": ["json"],
    "kubectl-runs list -o y": ["yaml"],
    "kubectl-runs budgets us": ["usage"],
    "kubectl-runs budgets usage vi": ["vision"],
    "kubectl-runs leases --node b": ["b-0"],
    "kubectl-runs leases --run d": ["d-later"],
    "kubectl-runs list --owner org:ai:v": ["org:ai:vision"],
    "kubectl-runs sponsors add a-train org:ai:v": ["org:ai:vision"],
    "kubectl-runs -n r": ["rai"],
    "kubectl-runs nope ": [],
}
"""What is typed, and what may follow; in namespace rai."""
PATIENT = {PATIENCE: str(SECONDS)}
"""Who types gets nothing after two seconds; these tests are about what there is to get."""


def shell(name: str) -> str:
    """A shell, which `make shells` installs; bash is everywhere that make is."""
    found = shutil.which(name)
    if found is not None:
        return found
    why = f"{name} is not installed: `make shells` installs it where it can"
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def ask(program: str, script: str, line: str, past: Path, **env: str) -> list[str]:
    """Whatever a shell prints that sourced our script and was asked about a line."""
    variables = {"TENURE_LOCAL": str(past), "TENURE_NAMESPACE": "rai", "LINE": line, "PATH": _path(), **PATIENT, **env}
    done = subprocess.run(
        [shell(program), *{"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[program], "-c", script],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    return sorted(done.stdout.split("\n")[:-1])


def _path() -> str:
    return f"{BIN}{os.pathsep}{os.environ['PATH']}"


BASH = """
source <(kubectl-runs completion bash)
COMP_LINE=$LINE COMP_POINT=${#LINE}
_kubectl_runs_complete kubectl-runs
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
compadd() { local name=$@[-1]; print -rl -- "${(@P)name}" }
_files() { print -r -- files $@ }
source <(kubectl-runs completion zsh)
words=("${(@s: :)LINE}"); CURRENT=$#words
_kubectl_runs_complete || true
"""
FISH = """
kubectl-runs completion fish | source
complete -C "$LINE" | string replace --regex '\\t.*' ''
true
"""


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_bash_completes(line: str, expected: list[str], past: Path) -> None:
    """Bash replaces what follows the last colon or sign, so it is told no more than that."""
    word = line.rpartition(" ")[2]
    cut = max(word.rfind(":"), word.rfind("=")) + 1
    assert ask("bash", BASH, line, past) == [one[cut:] if one.startswith(word) else one for one in expected]


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_zsh_completes(line: str, expected: list[str], past: Path) -> None:
    assert ask("zsh", ZSH, line, past) == _whole(line, expected)


@pytest.mark.parametrize(("line", "expected"), LINES.items())
def test_fish_completes(line: str, expected: list[str], past: Path) -> None:
    assert ask("fish", FISH, line, past) == _whole(line, expected)


def _whole(line: str, expected: list[str]) -> list[str]:
    option, sign, _ = line.rpartition(" ")[2].partition("=")
    return [f"{option}={one}" for one in expected] if sign else expected


def test_files_are_left_to_the_shell(past: Path) -> None:
    assert ask("zsh", ZSH, "kubectl-runs submit -f ", past) == ["files"]
    assert ask("zsh", ZSH, "kubectl-runs list --archive ", past) == ["files -/"]
    traced = "compopt() { echo compopt $*; }" + BASH
    assert ask("bash", traced, "kubectl-runs submit -f ", past) == ["compopt -o default"]
    assert ask("bash", traced, "kubectl-runs list --archive ", past) == ["compopt -o dirnames"]


def test_tenure_completes_too(past: Path) -> None:
    script = BASH.replace("kubectl-runs", "tenure").replace("kubectl_runs", "tenure")
    assert ask("bash", script, "tenure ledger ve", past) == ["verify"]
    assert ask("bash", script, "tenure explain-code OverB", past) == ["OverBudget"]


def test_kubectl_is_answered_in_its_own_form(past: Path) -> None:
    def told(*words: str) -> list[str]:
        env = {**os.environ, "TENURE_LOCAL": str(past), "TENURE_NAMESPACE": "rai", **PATIENT}
        done = subprocess.run(
            [BIN / "kubectl_complete-runs", *words], env=env, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert told("describe", "a") == ["a-train\tCompleted", ":4"]
    assert told("aud") == ["audit\tCheck the whole ledger against the invariants.", ":4"]
    assert told("list", "--output=ya") == ["--output=yaml", ":4"]
    assert told("submit", "-f", "") == [":0"]
    assert told("list", "--archive", "") == [":16"]


@pytest.mark.parametrize("env", [{"TENURE_LOCAL": "/nowhere/fleet.db"}, {"TENURE_LOCAL": "", "KUBECONFIG": "/nowhere"}])
def test_what_is_wrong_is_not_said_at_a_prompt(env: dict[str, str], past: Path) -> None:
    assert ask("bash", BASH, "kubectl-runs describe ", past, **env) == []


def test_nobody_is_kept_waiting(past: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.cli.completing.SECONDS", 0.05)
    monkeypatch.setattr("tenure.cli.naming.LocalNames.runs", lambda self, namespace: time.sleep(60))
    monkeypatch.setenv("TENURE_LOCAL", str(past))
    assert candidates(runs, "kubectl-runs", ["describe"], "") == []


def test_the_verbs_are_offered_without_importing_one() -> None:
    code = (
        "import os, sys; os.environ['_TENURE_COMPLETE'] = 'zsh'; from tenure.cli.main import runs; "
        "runs.main([''], standalone_mode=False); print('@', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    offered, _, loaded = done.stdout.partition("@")
    assert [row.partition("\t")[0] for row in offered.split("\n")[1:-1]] == list(RUNS)
    assert not [
        name for name in loaded.split() if name.startswith(("tenure.cli.runs.", "tenure.engine", "tenure.ledger"))
    ]


def test_every_parameter_that_names_something_is_completed() -> None:
    """By what it is called in help: a new RUN or OWNER is completed without a line about it."""
    found: dict[str, set[str]] = {}
    for name, command in commands():
        for param in command.params:
            if (what := named_by(param)) is not None:
                found.setdefault(what, set()).add(name)
            elif re.search(r"\b(RUN|OWNER|BUDGET|NODE)\b", param.metavar or ""):
                assert isinstance(param.type, click.Choice), (name, param.name)
    assert {"RUN", "OWNER", "BUDGET", "NODE", "NAMESPACE", "CONTEXT", "FILE"} <= set(found)
    assert {f"kubectl runs {verb}" for verb in ("describe", "explain", "cancel", "logs", "watch", "who-pays")} <= found[
        "RUN"
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_says_how_it_is_installed(name: str) -> None:
    done = call("runs", "completion", name)
    assert (done.code, done.err) == (0, "")
    assert f"kubectl-runs completion {name}" in done.out
    assert COMPLETES in done.out
