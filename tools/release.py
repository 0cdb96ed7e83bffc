"""Make a release: first the checkout, then, from a commit of it, the files.

    make release VERSION=0.2.0    # the version in all files, CHANGELOG.md from changes/; look at it, commit, tag v0.2.0
    make dist                     # dist/: package, source, plugin for all systems, chart, SBOM, notes, checksums

Nothing is uploaded and nothing is tagged: where a release goes is up to whoever makes it. The files come from the
commit, not from what lies about in the checkout, and from pinned packages; the same commit gives the same files.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import plugin, sbom

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("added", "changed", "fixed", "removed", "security")
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?")
SUMS = "SHA256SUMS"


class Refused(Exception):
    """Nothing was done; the text says why, and what to do."""


# ---- the checkout ----


def cut(root: Path, version: str, *, date: str) -> None:
    """Write a version everywhere it is said, and move the notes of changes/ into CHANGELOG.md."""
    if not VERSION.fullmatch(version):
        raise Refused(f"{version!r} is no version: write make release VERSION=0.2.0")
    notes = fragments(root)
    if not notes:
        raise Refused("there is nothing to release: changes/ holds no notes")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    if f"## {version}" in text:
        raise Refused(f"CHANGELOG.md has {version} already")
    _replace(root / "pyproject.toml", r'(?m)^version = "[^"]+"$', f'version = "{version}"')
    _replace(root / "src" / "tenure" / "__init__.py", r'(?m)^__version__ = "[^"]+"$', f'__version__ = "{version}"')
    changelog.write_text(_with_section(text, section(version, date, notes)))
    for path in notes:
        path.unlink()


def fragments(root: Path) -> dict[Path, tuple[str, str]]:
    """The notes that are not released yet: (kind, text) by file, in the order of their names."""
    found = {}
    for path in sorted((root / "changes").glob("*.md")):
        kind = path.name.split(".")[-2]
        if kind not in KINDS:
            raise Refused(f"changes/{path.name}: the kind is one of {', '.join(KINDS)}")
        found[path] = kind, " ".join(path.read_text().split())
    return found


def section(version: str, date: str, notes: dict[Path, tuple[str, str]]) -> str:
    """One version's part of CHANGELOG.md."""
    lines = [f"## {version} ({date})", ""]
    for kind in KINDS:
        if told := [text for each, text in notes.values() if each == kind]:
            lines += [f"### {kind.capitalize()}", "", *(f"- {text}" for text in told), ""]
    return "\n".join(lines)


def _with_section(changelog: str, new: str) -> str:
    """What stood under Unreleased was released now: it goes below the new heading's notes."""
    head, found, rest = changelog.partition("## Unreleased\n")
    if not found:
        raise Refused("CHANGELOG.md has no heading `## Unreleased`")
    old, following, earlier = rest.partition("\n## ")
    kept = f"\n{old.strip()}\n" if old.strip() else ""
    return f"{head}## Unreleased\n\n{new}{kept}{following}{earlier}"


def _replace(path: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, path.read_text())
    if count != 1:
        raise Refused(f"{path.name} says its version {count} times, not once")
    path.write_text(text)


def notes_of(changelog: str, version: str) -> str:
    """A version's part of CHANGELOG.md, for whoever announces it; the unreleased notes if it is not there yet."""
    found = re.search(rf"(?ms)^## {re.escape(version)} .*?(?=^## |\Z)", changelog)
    return found[0].strip() + "\n" if found else ""


# ---- the files ----


def build(
    into: Path,
    helm: Path,
    *,
    url: str,
    systems: tuple[plugin.System, ...] = plugin.SYSTEMS,
    pythons: tuple[str, ...] = plugin.PYTHONS,
    dirty: bool = False,
) -> list[Path]:
    """All files of a release. Returns them in the order of the list of checksums."""
    version = plugin.version()
    if not dirty and (changed := _git("status", "--porcelain").strip()):
        raise Refused(f"the checkout has changes that are not committed; commit them, or say --dirty:\n{changed}")
    if into.exists():
        shutil.rmtree(into)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"tenure-{version}"
        _source(into / f"tenure-{version}.tar.gz", source)
        _wheel(source, into)
        _chart(helm, source, into)
        plugin.write(into, systems, url=url, pythons=pythons, source=source)
    (into / f"tenure-{version}.cdx.json").write_text(sbom.text(version))
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(), version)
    (into / "NOTES.md").write_text(notes or section(version, "not released", fragments(ROOT)))
    return _sums(into)


def _source(archive: Path, folder: Path) -> None:
    """The commit as an archive, and unpacked."""
    plain = subprocess.run(
        ["git", "archive", f"--prefix={folder.name}/", "HEAD"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    archive.write_bytes(gzip.compress(plain, mtime=0))
    subprocess.run(["tar", "--extract", "--file", str(archive.resolve())], cwd=folder.parent, check=True)


def _wheel(source: Path, into: Path) -> None:
    """The wheel, by the pinned setuptools, in a process of its own."""
    code = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    stamp = {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct").strip()}
    done = subprocess.run(
        [sys.executable, "-c", code, str(into.resolve())], cwd=source, env={**os.environ, **stamp},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refused(f"the wheel cannot be built:\n{done.stderr[-2000:]}")


def _chart(helm: Path, source: Path, into: Path) -> None:
    done = subprocess.run(
        [str(helm), "package", str(source / "deploy" / "chart"), f"--destination={into}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Refused(f"helm cannot package the chart:\n{done.stderr}")
    (only,) = into.glob("tenure-*.tgz")
    only.rename(into / f"tenure-chart-{plugin.version()}.tgz")


def _sums(into: Path) -> list[Path]:
    """Write the list of checksums, as `sha256sum --check` reads it."""
    files = sorted(path for path in into.iterdir() if path.name != SUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (into / SUMS).write_text("".join(lines))
    return [*files, into / SUMS]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str] | None = None) -> int:
    """Exit 0; 1 with a word when refused."""
    parser = argparse.ArgumentParser(prog="tools.release", description=(__doc__ or "").split("\n\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    first = verbs.add_parser("cut", help="the version in all files, CHANGELOG.md from changes/")
    first.add_argument("version")
    first.add_argument("--date", default=dt.datetime.now(dt.UTC).date().isoformat())
    second = verbs.add_parser("build", help="the files, from the commit")
    second.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    second.add_argument("--url", default="https://example.com/tenure", help="where the archives will lie, for krew")
    second.add_argument("--here", action="store_true", help="the plugin for this machine alone")
    second.add_argument("--dirty", action="store_true", help="build although the checkout has changes")
    asked = parser.parse_args(arguments)
    try:
        if asked.verb == "cut":
            cut(ROOT, asked.version, date=asked.date)
            subprocess.run([sys.executable, str(ROOT / "tools" / "generate.py")], cwd=ROOT, check=True)
            print(f"now read CHANGELOG.md, commit, and: git tag v{asked.version} && make dist")
            return 0
        from tools.kube_assets import assets

        helm = assets()["helm"]
        systems = (plugin.here(),) if asked.here else plugin.SYSTEMS
        for path in build(asked.into, helm, url=asked.url, systems=systems, dirty=asked.dirty):
            print(f"{path.stat().st_size:>12,}  {path}")
    except (Refused, plugin.Unobtainable) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
