"""Every command in the documentation is run, and prints what the page says it prints.

A fenced ``console`` block holds commands (lines that begin with ``$ ``) and what they print. All blocks of a page
run in one shell, one after the other, in a folder of their own that holds a copy of ``examples/``. The output must
match line by line; ``...`` stands for anything within a line, and a line of ``...`` alone for any number of lines.
A command must end with exit code 0, and one under which nothing is written must print nothing. Nothing is left out
unless ``NOT_RUN`` says why.

A fenced ``sh`` block holds commands that take more than a shell and a folder: a cluster, mostly. ``RUN_BY`` says which
test runs those of a page. Objects in ``yaml`` blocks must be valid. Blocks in another language hold no commands.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tenure.api.decode import read

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in FIRST), *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = {
    "make run": "tests/cli/test_tour.py takes the tour",
    "make test": "would run these tests inside themselves",
    "make check": "is part of `make test`, which is what runs this",
    "make bench": "takes minutes; bench has its own tests",
    "make sim SEEDS=20": "takes a while; tests/proof plays seeds",
    "make generate": "would rewrite the checkout; another test checks that the files are fresh",
    "git clone": "needs a network",
    "pip install": "needs a package index; the tests have every extra",
    "tenure up fleet.db --metrics": "goes on for ever: tests/observe/test_up.py starts it and scrapes it",
    "tenure operator --journal journal --metrics": "goes on for ever: the tests of tests/observe scrape an operator",
    "curl -s http://127.0.0.1:9464/metrics": "goes with the line before it",
    "OTEL_EXPORTER_OTLP_ENDPOINT=": "needs a collector: the tests of tests/observe have one of their own",
    "sed 's|runbook_url: |&https://docs.example.com/|'": "changes an address; promtool tests the rules themselves",
    "helm install tenure deploy/chart": "needs a cluster and an image: tests/packaging installs the chart with helm",
    "make docs": "builds the site: CI does, and tests/docs/test_site.py looks at what it is built from",
    "kubectl run ": "needs a cluster: tests/kube/anchor/test_guide.py follows that page",
    "kubectl annotate ": "needs a cluster: tests/kube/anchor/test_guide.py follows that page",
}
_BLOCK = re.compile(r"^```console\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)")
_HEADER = re.compile(r"[A-Z][A-Z0-9%/-]*(?: +[A-Z][A-Z0-9%/-]*)+")
_MARK = "@@tenure-docs-mark@@"
SECONDS = 240


class Step(NamedTuple):
    """One command, what it should print, and where it is written."""

    command: str
    expected: str
    line: int


def steps_of(text: str) -> Iterator[Step]:
    """The commands of a page. A command may go on in the next line after a backslash."""
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start("body")) + 1
        command, expected, line = "", [], 0
        for number, row in enumerate(block["body"].splitlines(), first):
            if row.startswith("$ "):
                if command:
                    yield Step(command, "\n".join(expected), line)
                command, expected, line = row[2:], [], number
            elif not expected and _goes_on(command):
                command += "\n" + row
            elif command:
                expected.append(row)
            else:
                raise ValueError(f"line {number} is output without a command: {row!r}")
        if command:
            yield Step(command, "\n".join(expected), line)


def _goes_on(command: str) -> bool:
    """Whether the next line belongs to the command: after a backslash, or inside a here-document."""
    first, *rest = command.split("\n")
    document = _DOCUMENT.search(first)
    return command.endswith("\\") or (document is not None and document[1] not in rest)


def why_not_run(command: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


def agrees(expected: str, printed: str) -> bool:
    """Whether the output is what the page says; a column is as wide as what is in it, an age say."""
    pattern = ""
    for row in expected.splitlines():
        if row.strip() == "...":
            pattern += r"(?:.*\n)*"
        elif _HEADER.fullmatch(row):
            pattern += r" +".join(map(re.escape, row.split())) + r"[ ]*\n"
        else:
            pattern += ".*".join(re.escape(part.rstrip() if last else part) for part, last in _parts(row)) + r"[ ]*\n"
    text = printed if not printed or printed.endswith("\n") else printed + "\n"
    return re.fullmatch(pattern, text) is not None


def _parts(row: str) -> list[tuple[str, bool]]:
    parts = row.split("...")
    return [(part, index == len(parts) - 1) for index, part in enumerate(parts)]


def play(steps: list[Step], folder: Path) -> list[tuple[int, str]]:
    """Run the commands in one shell; answers (exit code, output) of each."""
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    script = folder / ".docs.sh"
    body = [f"{{ {step.command}\n}} 2>&1 </dev/null\nprintf '\\n%s %s\\n' '{_MARK}' $?\n" for step in steps]
    script.write_text("trap 'kill $(jobs -p) 2>/dev/null' EXIT\n" + "".join(body))
    done = subprocess.run(
        ["bash", str(script)], cwd=folder, env=_environment(folder), capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    found = re.findall(rf"(.*?)\n{_MARK} (\d+)\n", done.stdout, re.DOTALL)
    assert len(found) == len(steps), f"the shell stopped early: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return [(int(code), output) for output, code in found]


def _environment(folder: Path) -> dict[str, str]:
    """This environment's programs, and a kubectl that does what the real one does with plugins."""
    tools = folder / ".bin"
    tools.mkdir()
    plugin = tools / "kubectl"
    plugin.write_text('#!/bin/sh\nname=$1; shift; exec "kubectl-$name" "$@"\n')
    plugin.chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    return {**kept, "PATH": path, "HOME": str(folder), "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    steps = [step for step in steps_of(page.read_text()) if why_not_run(step.command) is None]
    for step, (code, output) in zip(steps, play(steps, tmp_path) if steps else [], strict=True):
        where = f"{page.relative_to(ROOT)}:{step.line}: $ {step.command}"
        assert code == 0, f"{where}\nended with exit code {code}:\n{output}"
        assert agrees(step.expected, output), f"{where}\nshould print:\n{step.expected}\n\nprinted:\n{output}"


# --- blocks that take more than a shell -----------------------------------------------------------------------------

_FENCE = re.compile(r"^ *```(?P<kind>[\w-]*)", re.MULTILINE)
RUN_BY = {
    "docs/concepts/ledger.md": "tests/ledger/test_docs.py",
    "docs/guide/cli.md": "tests/kube/anchor/test_pages.py",
    "docs/guide/kubernetes.md": "tests/kube/anchor/test_guide.py",
    "docs/guide/notifications.md": "tests/notify/test_up.py",
    "docs/migrate/kueue.md": "tests/kube/anchor/test_pages.py",
    "docs/operate/install.md": "tests/packaging/test_guide.py",
    "docs/operate/kubernetes-ledger.md": "tests/kube/anchor/test_pages.py",
}
"""Which test runs the ``sh`` blocks of a page."""
_WHOLE = re.compile(r"^kind: (Run|Budget|Namespace)$", re.MULTILINE)
SILENT = {"text", "yaml", "json", "python", "toml", "promql", "ini", ""}
"""Languages that hold no commands; ``python`` is run by the tests of its page, ``text`` is what something prints."""


def fences(text: str) -> list[str]:
    """The language of every block; a bare fence ends one."""
    found, inside = [], False
    for fence in _FENCE.finditer(text):
        if not inside:
            found.append(fence["kind"])
        inside = not inside
    return found


def shell_lines(text: str) -> list[str]:
    """The lines of all ``sh`` blocks."""
    found = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in found for line in block.splitlines() if line.strip()]


def _left_out() -> list[tuple[str, str]]:
    rows = [(f"{page.name}:{step.line}", step.command) for page in PAGES for step in steps_of(page.read_text())]
    for page in PAGES:
        if str(page.relative_to(ROOT)) not in RUN_BY:
            rows += [(f"{page.name}: {line[:40]}", line) for line in shell_lines(page.read_text())]
    return [(where, why) for where, command in rows if (why := why_not_run(command))]


@pytest.mark.parametrize(("where", "why"), _left_out())
def test_a_command_that_is_not_run_says_why(where: str, why: str) -> None:
    pytest.skip(f"{where}: {why}")


def test_some_page_has_commands() -> None:
    """The runner would be happy with pages that it cannot read."""
    assert sum(len(list(steps_of(page.read_text()))) for page in PAGES) > 10


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("", "", True),
        ("", "something\n", False),
        ("one\ntwo", "one\ntwo\n", True),
        ("one", "one\ntwo\n", False),
        ("one\n...", "one\ntwo\nthree\n", True),
        ("one\n...\nfour", "one\nfour\n", True),
        ("a ... c", "a b c\n", True),
        ("a ... c", "a b d\n", False),
        ("a.b", "axb\n", False),
        ("...", "", True),
        ("table   ", "table\n", True),
        ("NAME  AGE  WHY\na     ...  x", "NAME   AGE  WHY\na     1m4s  x\n", True),
        ("NAME  AGE  WHY", "NAME  AGE\n", False),
        ("NAME  AGE  WHY", "NAME  AGEWHY\n", False),
        ("a  b", "a   b\n", False),
    ],
)
def test_dots_stand_for_anything_and_nothing_else_does(expected: str, printed: str, same: bool) -> None:
    assert agrees(expected, printed) is same


def test_a_command_may_span_lines_and_is_found_with_its_output() -> None:
    text = "# Page\n\n```console\n$ echo one \\\n  two\none two\n$ true\n```\n\n```yaml\n$ no: command\n```\n"
    assert list(steps_of(text)) == [Step("echo one \\\n  two", "one two", 4), Step("true", "", 7)]


def test_a_command_may_hold_a_document() -> None:
    text = "```console\n$ cat <<'END'\none\nEND\none\n$ true\n```\n"
    assert list(steps_of(text)) == [Step("cat <<'END'\none\nEND", "one", 2), Step("true", "", 6)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_commands_is_run_by_some_test(page: Path) -> None:
    text = page.read_text()
    kinds = set(fences(text))
    assert kinds <= SILENT | {"console", "sh"}, "commands are in console blocks, or in sh blocks"
    hidden = re.findall(r"^```text\n\$ .*$", text, re.MULTILINE)
    assert not hidden, "commands are in console blocks"
    if "sh" in kinds:
        test = RUN_BY.get(str(page.relative_to(ROOT)))
        if test is not None:
            assert page.name in (ROOT / test).read_text(), f"{test} does not know of {page.name}"
        else:
            silent = [line for line in shell_lines(text) if why_not_run(line) is None]
            assert not silent, f"RUN_BY must say which test runs these, or NOT_RUN why none does: {silent}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_objects_on_a_page_are_valid(page: Path) -> None:
    """What is shown can be submitted; a part of an object, which has no ``kind``, is left to its reader."""
    for found in re.finditer(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for part in (part for part in found[1].split("\n---\n") if _WHOLE.search(part)):
            errors = read(part.encode(), source=page.name).errors
            assert not errors, f"{page.name}: {[error.sentence() for error in errors]}\n{part}"
