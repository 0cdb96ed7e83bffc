"""Where the repository's files are and how to read them: shared by the tests beside this module."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tenure"
ENGINE = SOURCE / "engine"

# Only for a checkout without git (an unpacked archive): what .gitignore would have hidden.
_NOT_OURS = {".git", ".kube", ".venv", "__pycache__", "build", "dist", ".hypothesis"}
_NOT_OURS |= {".mypy_cache", ".ruff_cache", ".pytest_cache", ".import_linter_cache"}


@cache
def files() -> tuple[Path, ...]:
    """Every file that is, or is about to be, under version control; sorted."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        found = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not _NOT_OURS & set(path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in found if path.is_file()))


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """(name, text) of every file that is text."""
    pairs = []
    for path in files():
        try:
            pairs.append((name_of(path), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return tuple(pairs)


def python_files(*folders: Path) -> list[Path]:
    """The Python files below any of these folders; sorted."""
    return [path for path in files() if path.suffix == ".py" and any(map(path.is_relative_to, folders or (ROOT,)))]


def parse(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=name_of(path))


def name_of(path: Path) -> str:
    """A path as people say it: from the repository's root."""
    return path.relative_to(ROOT).as_posix()


def report(problems: list[str], advice: str) -> str:
    """The message of a failed test: what to do, then where."""
    return "\n  ".join([advice, *problems])
