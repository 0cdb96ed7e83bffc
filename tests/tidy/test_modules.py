"""About the modules: each opens with its theory, fits in a head, and explains its exceptions."""

import ast
import re
import tokenize
from collections.abc import Iterator
from io import StringIO

import pytest

from tests.tidy.repository import ROOT, SOURCE, name_of, parse, python_files, report

LINES_MAX = 600
_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<code>\[[a-z0-9, -]+\])?(?P<why>\s*#\s*\S.*)?")


def bare_ignores(source: str) -> Iterator[int]:
    """Lines that hold a `type: ignore` which names no error code."""
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT and (found := _IGNORE.search(token.string)) and not found["code"]:
            yield token.start[0]


def unexplained_skips(tree: ast.Module) -> Iterator[int]:
    """Lines that skip a test, or expect it to fail, and do not say why.

    `pytest.skip("why")`, and `reason=` on the marks skip, skipif and xfail, are explanations.
    """
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            named = any(keyword.arg in ("reason", "msg") and keyword.value for keyword in node.keywords)
            if name in ("pytest.skip", "pytest.xfail", "pytest.mark.skip", "unittest.skip"):
                named = named or bool(node.args)
            elif name not in ("pytest.mark.skipif", "pytest.mark.xfail"):
                continue
            if not named:
                yield node.lineno
        elif isinstance(node, ast.Attribute) and id(node) not in called:
            if ast.unparse(node) in ("pytest.mark.skip", "pytest.mark.xfail"):
                yield node.lineno


def test_every_module_opens_with_a_docstring() -> None:
    bare = [name_of(path) for path in python_files(SOURCE) if not (ast.get_docstring(parse(path)) or "").strip()]
    assert not bare, report(bare, "Open the module with its theory: what it decides, and what it may assume.")


def test_no_module_outgrows_a_head() -> None:
    folders = (SOURCE, ROOT / "bench", ROOT / "proof", ROOT / "tools")
    lengths = {name_of(path): len(path.read_text().splitlines()) for path in python_files(*folders)}
    long = [f"{name}: {lines} lines" for name, lines in lengths.items() if lines > LINES_MAX]
    assert not long, report(long, f"Split the module: one noun each, about 200 lines, never over {LINES_MAX}.")


def test_every_type_ignore_names_its_error() -> None:
    bare = [f"{name_of(path)}:{line}" for path in python_files() for line in bare_ignores(path.read_text())]
    assert not bare, report(bare, "Name the error, and why it is none: `# type: ignore[code]  # because ...`.")


def test_every_skipped_test_says_why() -> None:
    silent = [
        f"{name_of(path)}:{line}" for path in python_files(ROOT / "tests") for line in unexplained_skips(parse(path))
    ]
    assert not silent, report(silent, "Say why the test is skipped or expected to fail: reason='...'.")


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("# type: ignore", True),
        ("#type:ignore", True),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore[arg-type, misc]  # stubs are behind", False),
        ("# a type that we ignore", False),
    ],
)
def test_a_bare_type_ignore_is_found(comment: str, found: bool) -> None:
    assert bool(list(bare_ignores(f"x = 1  {comment}\n"))) is found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("@pytest.mark.skip\ndef test(): ...", True),
        ("@pytest.mark.skip()\ndef test(): ...", True),
        ("@pytest.mark.skip('no GPU here')\ndef test(): ...", False),
        ("@pytest.mark.skipif(True)\ndef test(): ...", True),
        ("@pytest.mark.skipif(True, reason='no GPU here')\ndef test(): ...", False),
        ("@pytest.mark.xfail\ndef test(): ...", True),
        ("pytest.skip()", True),
        ("pytest.skip('no GPU here')", False),
        ("pytestmark = [pytest.mark.skip]", True),
    ],
)
def test_a_silent_skip_is_found(code: str, found: bool) -> None:
    assert bool(list(unexplained_skips(ast.parse(code)))) is found
