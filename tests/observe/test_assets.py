"""`make prometheus-assets` finds before it fetches, fetches once, installs nothing, and leaves nothing half done."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tenure.testing.kube import until
from tenure.testing.kube.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
APT = """\
    #!/bin/sh
    echo "$*" >> "$CALLS"
    case " $* " in
    *" update "*) [ -z "$APT_CANNOT_UPDATE" ] || { echo "$APT_CANNOT_UPDATE" >&2; exit 100; }; touch "$LISTS" ;;
    *" download "*)
        [ -z "$APT_HAS_NO_LISTS" ] || [ -e "$LISTS" ] || { echo "Unable to locate package prometheus" >&2; exit 100; }
        [ -z "$APT_IS_SLOW" ] || sleep "$APT_IS_SLOW"
        [ -z "$APT_WAITS_FOR" ] || until [ -e "$APT_WAITS_FOR" ]; do sleep 0.05; done
        echo package > prometheus_1_all.deb ;;
    esac
"""
DPKG = """\
    #!/bin/sh
    mkdir -p "$3/usr/bin"
    for name in prometheus ${PACKAGE_LACKS:-promtool}; do
        printf '#!/bin/sh\\n' > "$3/usr/bin/$name"
        chmod +x "$3/usr/bin/$name"
    done
"""


class Machine:
    """A machine with a cache of its own, and a package manager that notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"
        self.calls.touch()
        self.bin = folder / "bin"
        self.bin.mkdir()
        for tool in ("sh", "sleep", "chmod", "mkdir", "touch"):
            found = next(path for path in (Path("/bin", tool), Path("/usr/bin", tool)) if path.exists())
            (self.bin / tool).symlink_to(found)
        self.environment = {
            "PATH": str(self.bin), "XDG_CACHE_HOME": str(folder / "cache"), "CALLS": str(self.calls),
            "LISTS": str(folder / "lists"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        }  # fmt: skip

    def program(self, name: str, text: str = "#!/bin/sh\n", *, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(0o755)

    def with_apt(self, **behaviour: str) -> "Machine":
        self.program("apt-get", APT)
        self.program("dpkg-deb", DPKG)
        self.environment |= behaviour
        return self

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "tools" / "prometheus_assets.py"), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        with self.start(*arguments) as child:
            out, told = child.communicate(timeout=PATIENCE)
            return child.returncode, out, told

    @property
    def asked(self) -> list[str]:
        return [line.split()[1] for line in self.calls.read_text().splitlines()]

    @property
    def cached(self) -> list[str]:
        """What lies in the cache, finished or not."""
        found = self.folder.glob("cache/tenure/prometheus/*/*")
        return sorted(path.name for path in found if path.name != "lock")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def names(out: str) -> list[str]:
    assert all(os.access(line.split()[1], os.X_OK) for line in out.splitlines())
    return [line.split()[0] for line in out.splitlines()]


def test_it_fetches_once_and_says_where(machine: Machine) -> None:
    code, out, told = machine.with_apt().run()
    assert (code, names(out), machine.asked) == (0, ["prometheus", "promtool"], ["download"])
    assert "downloading Debian's package" in told
    assert machine.run()[:2] == (0, out)
    assert (machine.asked, machine.cached) == (["download"], ["bin"])


def test_programs_of_the_machine_are_used_as_they_are(machine: Machine) -> None:
    for name in ("prometheus", "promtool"):
        machine.program(name)
    code, out, _ = machine.with_apt().run()
    assert (code, names(out), machine.asked, machine.cached) == (0, ["prometheus", "promtool"], [], [])


def test_a_folder_that_is_given_comes_first(machine: Machine) -> None:
    machine.with_apt().run()
    machine.program("promtool", folder=machine.folder / "given")
    machine.environment["PROMETHEUS_ASSETS"] = str(machine.folder / "given")
    code, out, _ = machine.run("--no-fetch")
    folders = {line.split()[0]: Path(line.split()[1]).parent.name for line in out.splitlines()}
    assert (code, folders) == (0, {"prometheus": "bin", "promtool": "given"})


def test_no_fetch_only_looks(machine: Machine) -> None:
    code, out, told = machine.with_apt().run("--no-fetch")
    assert (code, out, machine.asked) == (3, "", [])
    assert "`make prometheus-assets` fetches them" in told


def test_a_machine_that_has_no_lists_reads_them_first_if_it_may(machine: Machine) -> None:
    code, out, told = machine.with_apt(APT_HAS_NO_LISTS="1").run()
    if os.geteuid() == 0:
        assert (code, names(out)) == (0, ["prometheus", "promtool"])
        assert machine.asked == ["download", "update", "download"]
    else:
        assert (code, machine.asked) == (3, ["download"])
        assert "Unable to locate package" in told


def test_without_a_package_manager_it_says_what_to_get(machine: Machine) -> None:
    code, out, told = machine.run()
    assert (code, out) == (3, "")
    assert "there is no `apt-get`" in told
    assert "PROMETHEUS_ASSETS" in told


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ({"APT_HAS_NO_LISTS": "1", "APT_CANNOT_UPDATE": "Temporary failure resolving"}, "failed:"),
        ({"PACKAGE_LACKS": "prometheus"}, "has no promtool"),
    ],
    ids=["no network", "another package"],
)
def test_what_goes_wrong_is_said_and_leaves_nothing(machine: Machine, behaviour: dict[str, str], said: str) -> None:
    code, out, told = machine.with_apt(**behaviour).run()
    assert (code, out, machine.cached) == (3, "", [])
    assert said in told


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_one_that_was_interrupted_or_killed_begins_again(machine: Machine, how: signal.Signals, code: int) -> None:
    machine.with_apt(APT_IS_SLOW="30")
    with machine.start() as child:
        until(lambda: machine.asked)
        os.killpg(child.pid, how)
        child.communicate(timeout=PATIENCE)
    assert child.returncode == code
    assert "bin" not in machine.cached
    assert machine.with_apt(APT_IS_SLOW="").run()[0] == 0
    assert machine.cached == ["bin"]


def test_a_second_caller_waits_and_fetches_nothing(machine: Machine) -> None:
    go = machine.folder / "go-on"
    machine.with_apt(APT_WAITS_FOR=str(go))
    with machine.start() as first:
        until(lambda: machine.asked)
        with machine.start() as second:
            assert second.stderr is not None
            assert any("waiting for another call" in line for line in second.stderr)
            go.touch()
            second.communicate(timeout=PATIENCE)
        assert second.returncode == 0
        first.communicate(timeout=PATIENCE)
    assert machine.asked == ["download"]


@pytest.mark.parametrize(("ci", "code", "verdict"), [("", 0, "SKIPPED"), ("true", 1, "ERROR")])
def test_tests_without_a_prometheus_say_so(machine: Machine, ci: str, code: int, verdict: str) -> None:
    """They are left out with the reason; in CI that is a failure."""
    suite = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*suite, "tests/observe/test_rules.py", "-k", "promtool"],
        cwd=ROOT,
        env={**machine.environment, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    told = " ".join(done.stdout.split())
    assert verdict in told
    assert "these tests need a real Prometheus: prometheus and promtool: not here yet." in told
    assert " passed" not in told
