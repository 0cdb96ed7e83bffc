"""The Dockerfile, read: where tests run there is no daemon to build it. What it copies is built into a package."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

from tests.tidy.repository import ROOT

TEXT = (ROOT / "Dockerfile").read_text()


class Step(NamedTuple):
    """An instruction, and what is said to it."""

    word: str
    rest: str


def steps() -> list[Step]:
    text = re.sub(r"(?m)^#.*\n", "", TEXT).replace("\\\n", " ")
    return [Step(*re.split(r"\s+", line.strip(), maxsplit=1)) for line in text.splitlines() if line.strip()]


def stages() -> list[list[Step]]:
    found: list[list[Step]] = []
    for step in steps():
        if step.word == "FROM":
            found.append([])
        if found:
            found[-1].append(step)
    return found


def copied(stage: list[Step]) -> list[str]:
    """What comes from the checkout."""
    return [name for word, rest in stage if word == "COPY" and "--from=" not in rest for name in rest.split()[:-1]]


def test_the_base_is_an_argument_of_one_exact_version() -> None:
    first, *_ = steps()
    assert first.word == "ARG"
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+\.\d+-slim-[a-z]+", first.rest)
    froms = [step.rest for step in steps() if step.word == "FROM"]
    assert [each.split()[0] for each in froms] == ["${PYTHON_IMAGE}"] * len(froms)
    assert ":latest" not in TEXT


def test_it_runs_as_nobody_and_starts_the_program() -> None:
    *_, last = stages()
    user = [step.rest for step in last if step.word == "USER"]
    assert user == ["65532:65532"], "by number: a kubelet cannot look names up"
    after = last[[step.word for step in last].index("USER") :]
    assert not [step for step in after if step.word in ("RUN", "COPY", "ADD")]
    assert [step.rest for step in last if step.word == "ENTRYPOINT"] == ['["tenure"]']


def test_the_image_has_no_more_than_it_needs() -> None:
    """Nothing of the checkout but through the first stage, no installer, no network at run time, no secrets."""
    build, last = stages()
    assert not copied(last)
    assert [step.rest.split()[0] for step in last if step.word == "COPY"] == ["--from=build"]
    assert "uninstall -y setuptools pip" in TEXT
    assert not [step for step in steps() if step.word == "ADD"]
    assert "--require-hashes -r requirements/kube.txt" in " ".join(step.rest for step in build)
    assert not re.search(r"(?i)token|password|secret|index-url|trusted-host", TEXT)


def test_what_is_copied_is_let_through_and_is_there() -> None:
    rules = (ROOT / ".dockerignore").read_text().split("\n")
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    assert "*" in rules
    for name in copied(stages()[0]):
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, rule) for rule in let_in), f"{name} is ignored"
    assert sorted(let_in) == sorted(copied(stages()[0])), "what is not copied need not be sent"


def test_what_is_copied_is_enough_to_build(tmp_path: Path) -> None:
    for name in copied(stages()[0]):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, target)
    code = "from setuptools import build_meta; build_meta.build_wheel('out')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (scripts,) = [name for name in content.namelist() if name.endswith("entry_points.txt")]
        assert "tenure = tenure.cli.main:tenure" in content.read(scripts).decode()


def test_the_image_has_what_the_tests_had() -> None:
    """The same versions, and everything that the extras name which an operator can use."""
    kube, dev = (_pinned(name) for name in ("kube.txt", "dev.txt"))
    assert kube.items() <= dev.items()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.split(r"[^\w.-]", each)[0].lower() for name in ("kube", "metrics", "nvml") for each in extras[name]}
    assert wanted <= set(kube)


def _pinned(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    found = re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)==(\S+)(?: ; .*?)? \\\n +--hash=sha256:[0-9a-f]{64}", text)
    assert len(found) == len(re.findall(r"(?m)^[A-Za-z0-9]", text)), "each is exact, and has a hash"
    return dict(found)
