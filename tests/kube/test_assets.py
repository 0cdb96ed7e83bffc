"""`make kube-assets` finds before it builds, builds once, and leaves nothing half done. The compiler is a stand-in."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tenure.testing.kube import until
from tenure.testing.kube.waiting import PATIENCE
from tools import kube_assets
from tools.kube_assets import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
NAMES = [program.name for program in PROGRAMS]
CODE = "import sys; from tools import kube_assets; kube_assets.GO_FOLDERS = (); sys.exit(kube_assets.main())"
COMPILER = """\
    #!/bin/sh
    case $1 in
    env) echo "${GO_IS:-go1.24.3}" ;;
    list) [ -z "$GO_CANNOT_LIST" ] || { echo "$GO_CANNOT_LIST" >&2; exit 1; }; echo fmt; echo main ;;
    build)
        while [ "$1" != -o ]; do shift; done
        echo "$2" >> "$BUILDS"
        echo fmt >&2
        [ -z "$GO_CANNOT_BUILD" ] || { echo "$GO_CANNOT_BUILD" >&2; exit 1; }
        printf half > "$2"
        [ -z "$GO_IS_SLOW" ] || sleep "$GO_IS_SLOW"
        [ -z "$GO_WAITS_FOR" ] || until [ -e "$GO_WAITS_FOR" ]; do sleep 0.05; done
        printf '#!/bin/sh\\n' > "$2"; chmod +x "$2" ;;
    esac
"""


class Machine:
    """A machine with a cache of its own, and a compiler that notes what it builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builds = folder / "builds"
        self.builds.touch()
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("sh", "sleep", "chmod", "nice"):
            found = next(path for path in (Path("/bin", tool), Path("/usr/bin", tool)) if path.exists())
            (self.bin / tool).symlink_to(found)
        self.environment = {"PATH": str(self.bin), "XDG_CACHE_HOME": str(folder / "cache"), "BUILDS": str(self.builds)}
        self.environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{ROOT / 'src'}"

    def with_go(self, **behaviour: str) -> "Machine":
        compiler = self.bin / "go"
        compiler.write_text(textwrap.dedent(COMPILER))
        compiler.chmod(0o755)
        self.environment |= behaviour
        return self

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", CODE, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as child:
            out, told = child.communicate(timeout=PATIENCE)
            return child.returncode, out, told

    @property
    def built(self) -> list[str]:
        return [Path(line).name.removeprefix(".") for line in self.builds.read_text().splitlines()]

    @property
    def cached(self) -> list[str]:
        """What lies in the cache, finished or not."""
        return sorted(path.name for path in self.folder.glob("cache/tenure/kube/*/bin/*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_builds_once_and_says_where(machine: Machine) -> None:
    code, out, told = machine.with_go().run()
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == NAMES
    assert all(os.access(line.split()[1], os.X_OK) for line in out.splitlines())
    assert machine.built == NAMES
    for number, program in enumerate(PROGRAMS, 1):
        assert f"[{number}/{len(PROGRAMS)}] {program.name} {program.version}" in told
    again, same, _ = machine.run()
    assert (again, same, machine.built) == (0, out, NAMES)


def test_a_folder_that_is_given_comes_first(machine: Machine) -> None:
    machine.with_go().run()
    given = machine.folder / "given"
    given.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (given / name).write_text("#!/bin/sh\n")
        (given / name).chmod(0o755)
    machine.environment["KUBEBUILDER_ASSETS"] = str(given)
    code, out, _ = machine.run("--no-build")
    folders = {line.split()[0]: Path(line.split()[1]).parent for line in out.splitlines()}
    assert code == 0
    assert {name for name, folder in folders.items() if folder == given} == {"etcd", "kube-apiserver"}
    assert set(folders) == set(NAMES)


def test_without_a_compiler_it_says_what_to_get(machine: Machine) -> None:
    code, out, told = machine.run()
    assert (code, out) == (3, "")
    assert "there is no `go`" in told
    assert "Install Go 1.24 or newer" in told
    assert "KUBEBUILDER_ASSETS" in told


@pytest.mark.parametrize(
    ("behaviour", "code", "said"),
    [
        ({"GO_IS": "go1.19.8"}, 3, "is too old (go1.19.8)"),
        ({"GO_CANNOT_LIST": "dial tcp: no such host"}, 3, "its modules are out of reach"),
        ({"GO_CANNOT_LIST": "verifying x: checksum mismatch"}, 1, "not those that go.sum pins"),
        ({"GO_CANNOT_BUILD": "x.go:1: undefined: y"}, 1, "x.go:1: undefined: y"),
    ],
    ids=str,
)
def test_what_goes_wrong_is_said_and_leaves_nothing(
    machine: Machine, behaviour: dict[str, str], code: int, said: str
) -> None:
    found, out, told = machine.with_go(**behaviour).run()
    assert (found, out, machine.cached) == (code, "", [])
    assert said in told


def test_no_build_only_looks(machine: Machine) -> None:
    code, out, told = machine.with_go().run("--no-build")
    assert (code, out, machine.built) == (3, "", [])
    assert "`make kube-assets` does it" in told


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_build_is_taken_up_again(machine: Machine, how: signal.Signals) -> None:
    machine.with_go(GO_IS_SLOW="30")
    with machine.start() as child:
        until(lambda: machine.built)
        os.killpg(child.pid, how)
        _, told = child.communicate(timeout=PATIENCE)
    assert (child.returncode, machine.cached) == (130, [])
    assert "the same command goes on" in told
    assert machine.with_go(GO_IS_SLOW="").run()[0] == 0
    assert machine.cached == sorted(NAMES)


def test_a_killed_build_is_never_taken_for_a_program(machine: Machine) -> None:
    machine.with_go(GO_IS_SLOW="30")
    with machine.start() as child:
        until(lambda: machine.built)
        os.killpg(child.pid, signal.SIGKILL)
    assert machine.run("--no-build")[0] == 3
    assert machine.with_go(GO_IS_SLOW="").run()[0] == 0
    assert machine.cached == sorted(NAMES)


def test_a_second_caller_waits_and_builds_nothing(machine: Machine) -> None:
    go = machine.folder / "go-on"
    machine.with_go(GO_WAITS_FOR=str(go))
    with machine.start() as first:
        until(lambda: machine.built)
        with machine.start() as second:
            assert second.stderr is not None
            assert any("waiting for another call" in line for line in second.stderr)
            go.touch()
            out, _ = second.communicate(timeout=PATIENCE)
        assert (second.returncode, len(out.splitlines())) == (0, len(NAMES))
        first.communicate(timeout=PATIENCE)
    assert machine.built == NAMES


def test_a_new_pin_never_meets_an_old_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = kube_assets.cache_folder()
    for module in {program.module for program in PROGRAMS}:
        (tmp_path / module).mkdir()
        for name in ("go.mod", "go.sum"):
            (tmp_path / module / name).write_bytes((kube_assets.MODULES / module / name).read_bytes())
    monkeypatch.setattr(kube_assets, "MODULES", tmp_path)
    assert kube_assets.cache_folder() == before
    with (tmp_path / "kwok" / "go.sum").open("a") as sums:
        sums.write("example.com/x v1.0.0 h1:AAAA=\n")
    assert kube_assets.cache_folder() != before


def test_all_of_kubernetes_is_of_one_release() -> None:
    text = (kube_assets.MODULES / "kubernetes" / "go.mod").read_text()
    (release,) = re.findall(r"^\s*(?:require )?k8s\.io/kubernetes v1\.(\S+)", text, re.MULTILINE)
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (k8s\.io/\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {(old == new, version) for old, new, version in replaced} == {(True, f"v0.{release}")}


def test_helm_speaks_to_that_release() -> None:
    helm, kubernetes = ((kube_assets.MODULES / name / "go.mod").read_text() for name in ("helm", "kubernetes"))
    (release,) = re.findall(r"^\s*(?:require )?k8s\.io/kubernetes v1\.(\S+)", kubernetes, re.MULTILINE)
    versions = re.findall(r"^\tk8s\.io/(?:api|apimachinery|client-go|kubectl|cli-runtime) (\S+)", helm, re.MULTILINE)
    assert versions == [f"v0.{release}"] * 5


def test_a_new_helm_rebuilds_no_control_plane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = kube_assets.cache_folder(), kube_assets.cache_folder("helm")
    for module in {program.module for program in PROGRAMS}:
        (tmp_path / module).mkdir()
        for name in ("go.mod", "go.sum"):
            (tmp_path / module / name).write_bytes((kube_assets.MODULES / module / name).read_bytes())
    monkeypatch.setattr(kube_assets, "MODULES", tmp_path)
    with (tmp_path / "helm" / "go.sum").open("a") as sums:
        sums.write("example.com/x v1.0.0 h1:AAAA=\n")
    assert kube_assets.cache_folder() == before[0]
    assert kube_assets.cache_folder("helm") != before[1]


@pytest.mark.parametrize(("ci", "code", "verdict"), [("", 0, "SKIPPED"), ("true", 1, "ERROR")])
def test_tests_without_a_control_plane_say_so(machine: Machine, ci: str, code: int, verdict: str) -> None:
    """They are left out with the reason; in CI that is a failure."""
    suite = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*suite, "tests/kube/test_kwok.py"],
        cwd=ROOT,
        env={**machine.with_go().environment, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    told = " ".join(done.stdout.split())
    assert verdict in told
    assert f"tests/kube needs a real control plane: {', '.join(NAMES[:-1])} and {NAMES[-1]}: not built yet." in told
    assert " passed" not in told
