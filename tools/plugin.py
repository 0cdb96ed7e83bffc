"""`kubectl runs` as one file that needs nothing but Python, its archives, and the manifest by which krew installs it.

    python tools/plugin.py --into dist                            # for this machine
    python tools/plugin.py --into dist --all --url https://...    # for every system; what `make release` does
    python tools/plugin.py --fetch                                # only fetch what the build needs (once; kept)

The file is a zip that Python runs: a small beginning (tools/bootstrap.py), the pure packages, and for each version of
Python those that are compiled. Packages are the pinned ones, by hash. The same checkout gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # called by its path, as make does

from tools import sbom  # noqa: E402

PINS = sbom.PINS
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NEEDED = ("aiohttp", "click", "msgspec", "pyyaml", "rich")
"""What `kubectl runs` imports. Operators and daemons take more, which no plugin carries."""
NAME = "kubectl-runs"
SHEBANG = b"#!/usr/bin/env python3\n"
LONG_AGO = (1980, 1, 1, 0, 0, 0)
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(==\S+)[^\n]*\\\n((?: +--hash=sha256:[0-9a-f]{64}.*\n)+)", re.MULTILINE)
_SOURCES = {".pyi", ".pyx", ".pxd", ".pxi", ".c", ".h"}
"""What compiled modules were made from, and types: nothing of it is imported."""
_UNUSED = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", ".lock", "uv_cache.json"}
"""Who installed a package, and when."""


class System(NamedTuple):
    """An operating system and processor, as krew, uv and pip name them."""

    os: str
    arch: str
    uv: str
    pip: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.os}-{self.arch}"


def _linux(arch: str, machine: str) -> System:
    tags = tuple(f"{tag}_{machine}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014"))
    return System("linux", arch, f"{machine}-manylinux_2_28", tags)


SYSTEMS = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    System("darwin", "amd64", "x86_64-apple-darwin", ("macosx_10_13_x86_64", "macosx_10_9_x86_64")),
    System("darwin", "arm64", "aarch64-apple-darwin", ("macosx_11_0_arm64",)),
)


class Unobtainable(Exception):
    """A package cannot be had here; the text says what was tried."""


def here() -> System:
    """This machine's; raises Unobtainable where no build is for it."""
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    for each in SYSTEMS:
        if (each.os, each.arch) == (platform.system().lower(), arch):
            return each
    raise Unobtainable(f"no plugin is built for {platform.system()} on {platform.machine()}")


# ---- the packages ----


def pins() -> str:
    """The pins of what the plugin needs, for every version of Python alike."""
    names = sbom.with_needs(NEEDED)
    found = [match for match in _PIN.finditer(PINS.read_text()) if match[1] in names]
    return "".join(f"{name}{version} \\\n{hashes}" for name, version, hashes in (match.groups() for match in found))


def cache_folder(system: System, python: str) -> Path:
    """Where the packages are kept once they were fetched, by what is pinned."""
    digest = hashlib.sha256(pins().encode()).hexdigest()[:12]
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tenure" / "packages" / digest / f"{system.name}-{python}"


def fetch(system: System, python: str) -> Path:
    """The packages for one system and Python, fetched if they are not there; whole or not at all."""
    folder = cache_folder(system, python)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"==> fetching packages for {system.name}, Python {python}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        wanted, target = Path(work) / "pins.txt", Path(work) / "packages"
        wanted.write_text(pins())
        done = subprocess.run(
            [*_installer(system, python), f"--target={target}", f"--requirement={wanted}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Unobtainable(f"packages for {system.name} and Python {python}:\n{done.stderr[-2000:]}")
        try:
            target.rename(folder)
        except OSError:
            assert folder.is_dir(), folder  # another call was faster
    return folder


def _installer(system: System, python: str) -> list[str]:
    strict = ["--only-binary=:all:", "--no-deps", "--require-hashes"]
    if uv := shutil.which("uv"):
        return [
            uv,
            "pip",
            "install",
            "--quiet",
            *strict,
            f"--python-platform={system.uv}",
            f"--python-version={python}",
        ]
    tags = [f"--platform={tag}" for tag in system.pip]
    kinds = ["--implementation=cp", *(f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none"))]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    return [*pip, *strict, *tags, *kinds, f"--python-version={python}"]


# ---- the file ----


def build(system: System, pythons: tuple[str, ...] = PYTHONS, *, source: Path = ROOT) -> bytes:
    """The single file for one system, of the code in ``source``."""
    trees = {python: dict(_files(fetch(system, python))) for python in pythons}
    everywhere = _common(trees)
    everywhere |= {f"tenure/{name}": data for name, data in _files(source / "src" / "tenure")}
    parts = {"any.zip": _zipped(everywhere)}
    for python, tree in trees.items():
        parts[f"{python}.zip"] = _zipped({name: data for name, data in tree.items() if name not in everywhere})
    return SHEBANG + _zipped({"__main__.py": beginning(system, pythons, parts), **parts}, packed=False)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith("bin/") and "__pycache__" not in name and path.name not in _UNUSED:
            if path.suffix not in _SOURCES:
                yield name, path.read_bytes()


def _common(trees: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
    """What is the same for every Python."""
    first, *others = trees.values()
    return {name: data for name, data in first.items() if all(tree.get(name) == data for tree in others)}


def beginning(system: System, pythons: tuple[str, ...], parts: Mapping[str, bytes]) -> bytes:
    """What runs first, told what it is part of."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts.values()))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    programs = " ".join(f"{name}={place.removeprefix('tenure.cli.main:')}" for name, place in scripts.items())
    facts = {
        "BUILD": digest.hexdigest()[:16],
        "SYSTEM": system.name,
        "VERSION": version(),
        "PYTHONS": " ".join(pythons),
        "PROGRAMS": programs,
    }
    text = (ROOT / "tools" / "bootstrap.py").read_text()
    for name, value in facts.items():
        text = text.replace(f"@{name}@", value)
    return text.encode()


def _zipped(files: Mapping[str, bytes], *, packed: bool = True) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = 0o644 << 16
            entry.compress_type = archive.compression
            archive.writestr(entry, files[name])
    return out.getvalue()


def archive(program: bytes) -> bytes:
    """The archive that krew unpacks: the program and the licence."""
    out = io.BytesIO()
    packed = gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="")
    with packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, mode, data in ((NAME, 0o755, program), ("LICENSE", 0o644, (ROOT / "LICENSE").read_bytes())):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


# ---- the manifest ----


def version() -> str:
    from tenure import __version__

    return __version__


def archive_name(system: System) -> str:
    return f"{NAME}-v{version()}-{system.name}.tar.gz"


def manifest(digests: Mapping[System, str], url: str) -> dict[str, Any]:
    """krew's manifest, for the archives with these SHA-256 sums; ``url`` is the folder in which they lie."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "runs"},
        "spec": {
            "version": f"v{version()}",
            "shortDescription": "Who holds which GPU, until when, and who pays",
            "description": "Submit GPU runs to Tenure, see why they wait and when they start, who holds which GPU, "
            "and who pays.\nIt speaks to a cluster with Tenure installed, or to an embedded fleet (--local FILE).\n",
            "caveats": f"It needs Python {PYTHONS[0]} to {PYTHONS[-1]} as python3, and nothing else.\n"
            "In a cluster most verbs take the ClusterRole tenure-auditor.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": each.os, "arch": each.arch}},
                    "uri": f"{url.rstrip('/')}/{archive_name(each)}",
                    "sha256": digest,
                    "bin": NAME,
                    "files": [{"from": name, "to": "."} for name in (NAME, "LICENSE")],
                }
                for each, digest in digests.items()
            ],
        },
    }


def write(
    folder: Path, systems: tuple[System, ...], *, url: str, pythons: tuple[str, ...] = PYTHONS, source: Path = ROOT
) -> list[Path]:
    """Write the archives and the manifest, and the bare program for this machine."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    digests, written = {}, []
    for each in systems:
        program = build(each, pythons, source=source)
        packed = archive(program)
        digests[each] = hashlib.sha256(packed).hexdigest()
        (folder / archive_name(each)).write_bytes(packed)
        written.append(folder / archive_name(each))
        if len(systems) == 1 or each == here():
            (folder / NAME).write_bytes(program)
            (folder / NAME).chmod(0o755)
            written.append(folder / NAME)
    text = yaml.safe_dump(manifest(digests, url), sort_keys=False, width=110)
    (folder / "runs.yaml").write_text(text)
    return [*written, folder / "runs.yaml"]


def main() -> int:
    """Exit 0, or 3 if packages cannot be had here."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--all", action="store_true", help="for every system, not for this machine alone")
    parser.add_argument("--url", default="https://example.com/tenure", help="where the archives will lie")
    parser.add_argument("--fetch", action="store_true", help="only fetch the packages for this machine and this Python")
    asked = parser.parse_args()
    try:
        if asked.fetch:
            fetch(here(), ".".join(platform.python_version_tuple()[:2]))
            return 0
        for path in write(asked.into, SYSTEMS if asked.all else (here(),), url=asked.url):
            print(f"{path}  {path.stat().st_size:,} bytes")
    except Unobtainable as error:
        print(f"plugin: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
