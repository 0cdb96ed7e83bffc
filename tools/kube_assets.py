"""Obtain what tests need of Kubernetes: etcd, kube-apiserver with its controllers, kubectl, KWOK, and helm.

    python tools/kube_assets.py               # what `make kube-assets` calls: find, or else build
    python tools/kube_assets.py --no-build    # find only

Each program is looked for in this order: the folder KUBEBUILDER_ASSETS, when set; the cache of an earlier
call; and else it is built with the `go` of this machine. The modules under tools/kube pin the releases and,
by go.sum, every byte that is compiled; which proxy serves them is the machine's affair.

The cache lies outside the repository (XDG_CACHE_HOME or ~/.cache, then tenure/kube) and is keyed by the pins,
so a new pin never meets an old program. helm has a folder of its own: a new one rebuilds no control plane. A program
appears there whole or not at all; a second caller waits for the first; an interrupted build goes on where it was, since
Go keeps what is compiled.

Exit codes: 0 all are there; 3 they cannot be had here (no go, too old a go, modules out of reach), and the text
says what to do; 1 the build itself failed; 130 interrupted.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

MODULES = Path(__file__).resolve().parent / "kube"
GO_MIN = (1, 24)
# Where the archive of go.dev and distributions put it, for shells whose PATH does not say so.
GO_FOLDERS = ("/usr/local/go/bin", "/usr/lib/go/bin", "/usr/lib/go-1.24/bin")
FLAGS = ("-trimpath", "-buildvcs=false")
STEP_SECONDS = 15.0


class Program(NamedTuple):
    """A program, the module under tools/kube that pins it, and its main package."""

    name: str
    module: str
    package: str
    pin: str
    """The module of which the version is the program's."""

    @property
    def version(self) -> str:
        return self.pinned(self.pin)

    def pinned(self, module: str) -> str:
        """The version of a module that the program is built from."""
        text = (MODULES / self.module / "go.mod").read_text()
        found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
        assert found, f"tools/kube/{self.module}/go.mod does not pin {module}"
        return found[1]


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes"),
    Program(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "k8s.io/kubernetes",
    ),
    Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "sigs.k8s.io/kwok"),
    Program("helm", "helm", "helm.sh/helm/v4/cmd/helm", "helm.sh/helm/v4"),
)
PACKAGING = ("helm",)
"""Those that are no part of a control plane."""


class Unobtainable(Exception):
    """The programs cannot be had on this machine as it is; the text says what is missing and how to get it."""


class BuildFailed(Exception):
    """Everything was there, and the compiler said no."""


# ---- where the programs are ----


def cache_folder(name: str = "kube-apiserver") -> Path:
    """The folder of a program, and of those that are built with it, as pinned now; it need not exist."""
    together = [each for each in PROGRAMS if (each.name in PACKAGING) == (name in PACKAGING)]
    digest = hashlib.sha256(repr((FLAGS, platform.system(), platform.machine())).encode())
    for program in together:
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / program.module / file).read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    first = next(each for each in together if each.name in ("kube-apiserver", *PACKAGING))
    release = f"{first.name}-{first.version}" if name in PACKAGING else first.version
    return Path(base) / "tenure" / "kube" / f"{release}-{digest.hexdigest()[:12]}" / "bin"


def located() -> dict[str, Path]:
    """The programs that are there already, by name: from KUBEBUILDER_ASSETS first, then from the cache."""
    given = os.environ.get("KUBEBUILDER_ASSETS")
    found = {}
    for program in PROGRAMS:
        for folder in [*([Path(given)] if given else []), cache_folder(program.name)]:
            if os.access(folder / program.name, os.X_OK):
                found[program.name] = folder / program.name
                break
    return found


def missing(found: dict[str, Path]) -> list[str]:
    return [program.name for program in PROGRAMS if program.name not in found]


def assets() -> dict[str, Path]:
    """All programs, without building any; raises Unobtainable when one is not there, and says how to get it."""
    found = located()
    if lacking := missing(found):
        go = _find_go(_and(lacking))
        raise Unobtainable(f"{_and(lacking)}: not built yet. `make kube-assets` does it, once, with {go}.")
    return found


# ---- building what is not there ----


def obtain(say: Teller) -> dict[str, Path]:
    """All programs, built where they must be."""
    if not missing(found := located()):
        return found
    folders = {cache_folder(program.name) for program in PROGRAMS}
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    with _alone(cache_folder().parent / "lock", say):
        for leftover in (each for folder in folders for each in folder.glob(".*")):
            leftover.unlink()
        _build_all([program for program in PROGRAMS if program.name not in located()], say)
    return assets()


def _build_all(todo: list[Program], say: Teller) -> None:
    if not todo:
        return  # who held the lock has built them
    names = _and([each.name for each in todo])
    go = _find_go(names)
    say.line(f"building {names} with {go} (once; minutes on two cores)")
    for number, program in enumerate(todo, 1):
        topic = f"[{number}/{len(todo)}] {program.name} {program.version}"
        _build(program, go, cache_folder(program.name), say.about(topic))


def _build(program: Program, go: str, folder: Path, say: Teller) -> None:
    """One program, compiled beside its place and moved there when it is whole."""
    module = MODULES / program.module
    say.line("reading its modules")
    packages = _listed(program, go, module)
    unfinished = folder / f".{program.name}"
    polite = [nice, "-n", "5"] if (nice := shutil.which("nice")) else []
    command = [*polite, go, "build", "-v", *FLAGS, "-ldflags", _stamp(program), "-o", str(unfinished), program.package]
    with tempfile.TemporaryFile("w+") as rest:
        child = subprocess.Popen(command, cwd=module, env=_environment(), stderr=subprocess.PIPE, text=True)
        assert child.stderr
        try:
            _follow(child.stderr, packages, rest, say)
            code = child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            unfinished.unlink(missing_ok=True)
            raise
        if code:
            rest.seek(0)
            raise BuildFailed(f"building {program.name} failed:\n{rest.read()[-4000:]}")
    unfinished.rename(folder / program.name)
    say.line("done")


def _follow(lines: IO[str], packages: int, rest: IO[str], say: Teller) -> None:
    """Count the packages that `go build -v` names; keep what it says besides."""
    compiled = 0
    for line in lines:
        if " " in line.strip() or line.startswith("#"):
            rest.write(line)
        else:
            compiled += 1
            say.progress(f"{compiled:,} of at most {packages:,} packages compiled")
    say.progress(f"{compiled:,} packages compiled, the rest was kept from before", last=True)


def _listed(program: Program, go: str, module: Path) -> int:
    """How many packages the program has; fetches the modules that hold them."""
    done = subprocess.run(
        [go, "list", "-deps", program.package],
        cwd=module,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return len(done.stdout.splitlines())
    said = "\n".join(line for line in done.stderr.splitlines() if "downloading" not in line)[-2000:]
    if "checksum mismatch" in said or "SECURITY ERROR" in said:
        raise BuildFailed(f"the modules of {program.name} are not those that go.sum pins:\n{said}")
    raise Unobtainable(
        f"{program.name} cannot be built: its modules are out of reach. go said:\n{said}\n"
        "Set GOPROXY to a module proxy that this machine reaches, or KUBEBUILDER_ASSETS to a folder that holds "
        f"{_and([each.name for each in PROGRAMS])}."
    )


def _stamp(program: Program) -> str:
    """What the linker writes into a program, so that it knows its own version and that of Kubernetes."""
    if program.name == "helm":
        return _stamp_helm(program)
    if program.module != "kubernetes":
        return "-s -w"
    place = "k8s.io/component-base/version"
    major, minor, _ = program.version.removeprefix("v").split(".", 2)
    facts = {"gitVersion": program.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s -w", *(f"-X {place}.{name}={value}" for name, value in facts.items())])


def _stamp_helm(program: Program) -> str:
    """Without these helm believes in a Kubernetes of 2020, and refuses charts that want a newer one."""
    minor = program.pinned("k8s.io/client-go").split(".")[1]
    release = {"Major": "1", "Minor": minor}
    facts = {"internal/version.version": program.version}
    for place in (
        "internal/version.kubeClientVersion",
        "pkg/chart/common.k8sVersion",
        "pkg/chart/v2/lint/rules.k8sVersion",
    ):
        facts |= {f"{place}{part}": value for part, value in release.items()}
    return " ".join(["-s -w", *(f"-X {program.pin}/{name}={value}" for name, value in facts.items())])


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def _find_go(wanted: str) -> str:
    """The `go` to build with; raises Unobtainable when there is none, or none new enough."""
    places = os.pathsep.join([os.environ.get("PATH", ""), *GO_FOLDERS])
    go = shutil.which("go", path=places)
    least = ".".join(map(str, GO_MIN))
    advice = (
        f"Install Go {least} or newer (its archive unpacked to /usr/local/go is found by itself), or set "
        f"KUBEBUILDER_ASSETS to a folder that holds {_and([each.name for each in PROGRAMS])}; then run the same again."
    )
    if go is None:
        raise Unobtainable(f"{wanted}: neither in KUBEBUILDER_ASSETS nor in the cache, and there is no `go`.\n{advice}")
    version = subprocess.run(
        [go, "env", "GOVERSION"], cwd=MODULES / "etcd", env=_environment(), capture_output=True, text=True, check=False
    )
    found = re.match(r"go(\d+)\.(\d+)", version.stdout)
    if found is None or (int(found[1]), int(found[2])) < GO_MIN:
        said = version.stdout.strip() or version.stderr.strip()
        raise Unobtainable(f"{wanted}: {go} is too old ({said}), Go {least} is the least that builds them.\n{advice}")
    return go


@contextmanager
def _alone(path: Path, say: Teller) -> Iterator[None]:
    """One builder at a time; the lock goes with the process, whatever ends it."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say.line("waiting for another call that is building")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- talking ----


class Teller:
    """Says how it goes on standard error: one line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, topic: str = "kube-assets") -> None:
        self.topic = topic
        self.began = self.told = time.monotonic()
        self.live = sys.stderr.isatty()

    def about(self, topic: str) -> Teller:
        return Teller(topic)

    def line(self, text: str) -> None:
        print(f"{self._clear()}==> {self.topic}: {text}{self._elapsed()}", file=sys.stderr, flush=True)

    def progress(self, text: str, *, last: bool = False) -> None:
        now = time.monotonic()
        if self.live and not last:
            if now - self.told > 0.2:
                self.told = now
                print(f"{self._clear()}==> {self.topic}: {text}{self._elapsed()}", end="", file=sys.stderr, flush=True)
        elif last or now - self.told > STEP_SECONDS:
            self.told = now
            self.line(text)

    def _clear(self) -> str:
        return "\r\033[K" if self.live else ""

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self.began)
        return f" ({seconds // 60}m{seconds % 60:02d}s)" if seconds else ""


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def main() -> int:
    """Find or build, print where each program is, and answer by exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--no-build", action="store_true", help="find only")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        found = assets() if asked.no_build else obtain(Teller())
    except Unobtainable as error:
        print(f"kube-assets: {error}", file=sys.stderr)
        return 3
    except BuildFailed as error:
        print(f"kube-assets: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nkube-assets: interrupted; what is compiled is kept, the same command goes on from there", file=sys.stderr
        )
        return 130
    for name, path in found.items():
        print(f"{name:<15} {path}")
    return 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
