"""The engine is pure: no clock, no luck, no I/O, no logger, nothing that depends on the hash seed.

ruff (src/tenure/engine/ruff.toml) and import-linter (pyproject.toml) say the same about imports. This scan
stands by itself, so that an ignore comment or a slip in either configuration is noticed, and it adds
builtins, which neither of them sees.
"""

import ast
import tomllib
from collections.abc import Iterator

import pytest

from tests.tidy.repository import ENGINE, ROOT, name_of, parse, python_files, report

BANNED_MODULES = frozenset(
    {"asyncio", "click", "concurrent", "ctypes", "fcntl", "glob", "http", "importlib", "io", "logging"}
    | {"multiprocessing", "os", "pathlib", "platform", "random", "rich", "secrets", "select", "shutil"}
    | {"signal", "socket", "sqlite3", "subprocess", "sys", "tempfile", "threading", "time", "urllib"}
    | {"warnings", "yaml"}
)
# Modules with a pure half: only these names of theirs read the clock or a random source.
BANNED_NAMES = frozenset({"now", "utcnow", "today", "uuid1", "uuid4"})
BANNED_BUILTINS = {
    "print": "put what is worth telling into the Outcome",
    "input": "facts come in as events",
    "open": "facts come in as events",
    "id": "an address differs from run to run; use the record's own key",
    "hash": "a hash of text differs from run to run; use the record's own key, or hashlib",
    "exec": "write the code",
    "eval": "write the code",
    "__import__": "write the import at the top",
}


def impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of everything in a module that could make two runs differ."""
    hash_methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__hash__"]
    inside_hash = {id(child) for method in hash_methods for child in ast.walk(method)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    if alias.name.split(".")[0] in BANNED_MODULES:
                        yield node.lineno, f"imports {alias.name}"
            case ast.ImportFrom(module=str(module), level=0):
                if module.split(".")[0] in BANNED_MODULES:
                    yield node.lineno, f"imports {module}"
                if module in ("datetime", "uuid"):
                    for alias in node.names:
                        if alias.name in BANNED_NAMES:
                            yield node.lineno, f"imports {module}.{alias.name}"
            case ast.Call(func=ast.Attribute(attr=name)) if name in BANNED_NAMES:
                yield (
                    node.lineno,
                    f"calls {ast.unparse(node.func)}(): the clock and names come in by argument",
                )
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_BUILTINS and id(node) not in inside_hash:
                yield node.lineno, f"calls {name}(): {BANNED_BUILTINS[name]}"
            case ast.AsyncFunctionDef(name=name):
                yield node.lineno, f"async def {name}: the engine waits for nothing"


def test_the_engine_is_pure() -> None:
    found = [
        f"{name_of(path)}:{line}: {what}" for path in python_files(ENGINE) for line, what in impurities(parse(path))
    ]
    assert not found, report(
        found,
        "Take it as an argument, or return it as an effect for the shell (ARCHITECTURE.md, the engine).",
    )


def test_the_engine_hides_nothing_from_ruff() -> None:
    hidden = [
        f"{name_of(path)}:{number}"
        for path in python_files(ENGINE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "noqa" in line and ("TID251" in line or "T20" in line)
    ]
    assert not hidden, report(hidden, "Purity has no exceptions: remove the noqa and what it hides.")


def test_ruff_and_import_linter_still_guard_the_engine() -> None:
    ruff = tomllib.loads((ENGINE / "ruff.toml").read_text())
    banned = ruff["lint"]["flake8-tidy-imports"]["banned-api"]
    assert {"time", "random", "os", "logging", "uuid.uuid4", "datetime.datetime.now"} <= set(banned)
    assert all(rule["msg"].endswith(".") for rule in banned.values()), "each ban says what to do instead"

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    guarded = {
        module
        for contract in contracts
        if contract.get("source_modules") == ["tenure.engine"]
        for module in contract["forbidden_modules"]
    }
    wanted = {"asyncio", "click", "logging", "os", "random", "rich", "socket", "sqlite3", "subprocess"}
    assert guarded >= wanted | {"threading", "time", "yaml"}


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "import os.path",
        "from time import monotonic",
        "from random import Random",
        "def f():\n    import logging",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.utcnow()",
        "from uuid import uuid4",
        "print('hello')",
        "key = hash('name')",
        "sorted(rows, key=lambda row: id(row))",
        "async def f(): ...",
    ],
)
def test_an_impurity_is_found(code: str) -> None:
    assert list(impurities(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "from datetime import UTC, datetime, timedelta",
        "import hashlib\nx = hashlib.sha256(b'').hexdigest()",
        "def plan(run, *, now): return now + 1",
        "class Key:\n    def __hash__(self): return hash(self.name)",
        "from tenure.engine import time_line",
    ],
)
def test_pure_code_is_left_alone(code: str) -> None:
    assert not list(impurities(ast.parse(code)))
