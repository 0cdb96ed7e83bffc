"""Which home a command speaks to: an embedded fleet or a cluster; what is typed counts more than the environment."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tenure.cli.session import Session
from tenure.cli.trouble import Trouble
from tests.cli.support import call


def kubeconfig(folder: Path, **context: str) -> Path:
    """A cluster that nobody will answer for."""
    path = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "lab",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_without_any_home_both_ways_to_name_one_are_told(tmp_path: Path) -> None:
    done = call("runs", "list", HOME=str(tmp_path), KUBECONFIG="")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: no fleet was chosen, and no cluster: There is no kubeconfig at ")
    assert "--local FILE" in done.err
    assert "--kubeconfig FILE" in done.err


def test_an_embedded_fleet_that_the_environment_names_counts_more_than_its_kubeconfig(
    past: Path, tmp_path: Path
) -> None:
    assert call("runs", "list", "-A", "-o", "name", fleet=past, KUBECONFIG=str(kubeconfig(tmp_path))).out


def test_a_cluster_that_is_typed_counts_more_than_the_environment(past: Path, tmp_path: Path) -> None:
    config = kubeconfig(tmp_path)
    for flags in (["--kubeconfig", str(config)], ["--context", "lab"]):
        for words in ([*flags, "list"], ["list", *flags]):
            done = call("runs", *words, fleet=past, KUBECONFIG=str(config), TENURE_CACHE=str(tmp_path))
            assert (done.code, done.out) == (6, "")
            assert done.err.startswith("error: the API server cannot be reached: ")


def test_both_homes_cannot_be_meant(past: Path, tmp_path: Path) -> None:
    for words in (["--local", str(past), "list", "--context", "lab"], ["--context", "x", "list", "--local", str(past)]):
        done = call("runs", *words)
        assert (done.code, done.out) == (2, "")
        assert "--local names an embedded fleet, --kubeconfig and --context name a cluster" in done.err


def test_a_context_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    done = call("runs", "list", "--kubeconfig", str(kubeconfig(tmp_path)), "--context", "nope")
    assert (done.code, done.out) == (5, "")
    assert "has no context 'nope'" in done.err


def test_a_cluster_has_the_namespace_of_its_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = kubeconfig(tmp_path, namespace="rai")
    assert Session(kubeconfig=config).place == "rai"
    assert Session(kubeconfig=config, namespace="vis").place == "vis"
    assert Session(local=tmp_path).place == "default"
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert Session().place == "rai"


def test_the_next_command_names_the_same_cluster(tmp_path: Path) -> None:
    done = call("runs", "--context", "lab", "describe", "a/b/c", KUBECONFIG=str(kubeconfig(tmp_path)))
    assert done.code != 0
    session = Session(program="kubectl runs", context="lab", flags=("--context", "lab"))
    assert session.command("list") == "kubectl runs --context lab list"


def test_an_embedded_fleet_needs_nothing_of_kubernetes(past: Path) -> None:
    """Neither loaded, nor even installed."""
    hide = "import sys; sys.modules.update(dict.fromkeys(['aiohttp', 'cryptography', 'asyncio']));"
    code = f"{hide} from tenure.cli.main import runs; runs.main(['list', '-A', '--local', {str(past)!r}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "a-train" in done.stdout


def test_a_cluster_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    hide = "import sys; sys.modules['aiohttp'] = None;"
    flags = ["list", "--kubeconfig", str(kubeconfig(tmp_path))]
    code = f"{hide} from tenure.cli.main import runs; runs.main({flags!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: no embedded fleet was chosen, and the extra for Kubernetes is not installed (aiohttp)"
    )


def test_trouble_of_a_context_is_trouble(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="no context"):
        Session(kubeconfig=kubeconfig(tmp_path), context="nope").fleet()
