"""About the files as a whole: nothing in them belongs to one machine, and a newcomer finds the way in."""

import os
import re
import subprocess
import sys
import tomllib

import pytest

from tests.tidy.repository import ROOT, SOURCE, name_of, python_files, report, texts

# Put together from pieces, so that this file does not name what it forbids.
REGISTRY_HOSTS = tuple(
    ".".join(pieces)
    for pieces in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("conda", "anaconda", "org"),
    ]
)
MACHINE_FOLDERS = ("work", "root", "farm", "opt/" + "wheels")
_MACHINE_PATH = re.compile(rf"(?<![\w.~$}}/-])/(?:{'|'.join(MACHINE_FOLDERS)})(?![\w-])")
_TARGET = re.compile(r"^(?P<name>[A-Za-z0-9][\w./-]*):(?!=)(?P<rest>.*)$", re.MULTILINE)
_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9][\w.-]*)==\S+(?: ; .*?)? \\\n(?P<hashes>(?: +--hash=sha256:[0-9a-f]{64}.*\n)+)",
    re.MULTILINE,
)


def machine_paths(text: str) -> list[int]:
    """Lines that name a folder which exists on one machine only."""
    return [number for number, line in enumerate(text.splitlines(), 1) if _MACHINE_PATH.search(line)]


def test_no_file_names_a_package_registry() -> None:
    found = [
        f"{name}:{number}: {host}"
        for name, text in texts()
        for host in REGISTRY_HOSTS
        if host in text
        for number, line in enumerate(text.splitlines(), 1)
        if host in line
    ]
    assert not found, report(
        found,
        "Remove the host. Packages are installed by name; which index serves them is the machine's affair.",
    )


def test_no_file_names_a_folder_of_one_machine() -> None:
    found = [f"{name}:{number}" for name, text in texts() for number in machine_paths(text)]
    assert not found, report(found, "Say the path relative to the repository, or take it from a variable.")


@pytest.mark.parametrize("folder", MACHINE_FOLDERS)
def test_a_machine_path_is_found(folder: str) -> None:
    assert machine_paths(f"see /{folder}/main/README.md") == [1]
    assert machine_paths(f"dir: '/{folder}'") == [1]
    assert not machine_paths(f"see docs/{folder}/x, $HOME/{folder} and https://example.com/{folder}s")


def test_every_make_target_has_a_help_line() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {found["name"]: found["rest"] for found in _TARGET.finditer(makefile)}
    assert {"run", "check", "test", "generate", "bench", "clean"} <= set(targets)
    silent = [name for name, rest in targets.items() if not re.search(r"## \S", rest)]
    assert not silent, report(silent, "Give the target its help line: `name: needs ## what it does`.")

    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    missing = [name for name in targets if f"make {name} " not in shown]
    assert not missing, report(missing, "`make help` does not print these targets; see its awk line.")


def test_ci_runs_what_everybody_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK), "chmod +x .ci/run"
    assert "make test" in script.read_text(), ".ci/run must call `make test`, so that green means the same everywhere"


def test_every_dependency_is_pinned_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "run.txt": project["dependencies"] + extras["nvml"],
        "dev.txt": project["dependencies"] + extras["nvml"] + extras["dev"],
    }
    for name, requirements in wanted.items():
        text = (ROOT / "requirements" / name).read_text()
        pinned = {found["name"].lower() for found in _PIN.finditer(text)}
        entries = {line.split("==")[0].lower() for line in text.splitlines() if re.match(r"[A-Za-z0-9]", line)}
        assert entries == pinned, f"requirements/{name}: not an exact version with hashes: {entries - pinned}"
        asked = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in requirements}
        assert asked <= pinned, f"requirements/{name} lacks {asked - pinned}: run `make pins`"
        options = [line for line in text.splitlines() if line.startswith("-")]
        assert not options, report(options, f"requirements/{name} must hold pins only, no index options.")


def test_both_sets_of_pins_agree() -> None:
    run, dev = ((ROOT / "requirements" / name).read_text() for name in ("run.txt", "dev.txt"))
    differing = [pin[0].split(" ")[0] for pin in _PIN.finditer(run) if pin[0].split("\\")[0] not in dev]
    assert not differing, report(differing, "run.txt and dev.txt pin different versions: run `make pins`.")


def test_no_lock_file_records_an_index() -> None:
    locks = [name for name, _ in texts() if name.rsplit("/", 1)[-1] in ("uv.lock", "poetry.lock", "Pipfile.lock")]
    assert not locks, report(locks, "Lock files name index hosts; pins live in requirements/ (`make pins`).")


def test_the_version_is_said_once_and_costs_no_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    code = "import sys; had = {*sys.modules}; import tenure; print(tenure.__version__, *{*sys.modules} - had)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [project["version"], "tenure"], (
        "src/tenure/__init__.py must hold pyproject's version and import nothing"
    )


def test_every_package_has_an_init() -> None:
    folders = {path.parent for path in python_files(SOURCE)}
    bare = [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()]
    assert not bare, report(bare, "Add an __init__.py with a docstring: without it the folder is not installed.")
