"""About the commands as a whole: their help, their options, their reference page, and what calling one costs."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tenure.cli.exits import MEANINGS, Exit
from tenure.cli.lazy import LazyGroup
from tenure.cli.main import RUNS, SERVER, runs, server
from tenure.cli.reference import cli_page, commands
from tests.cli.support import BIN, call

ROOT = Path(__file__).resolve().parents[2]
READERS = (
    "list", "reservations", "leases", "pods", "nodes", "who-pays", "budgets list", "budgets usage", "budgets lent",
    "sponsors list",
)  # fmt: skip
HEAVY = (
    "aiohttp",
    "ssl",
    "yaml",
    "rich",
    "asyncio",
    "json",
    "traceback",
    "unittest",
    "tenure.api.decode",
    "tenure.embedded.process",
)
TREE = dict(commands())


@pytest.mark.parametrize("name", TREE)
def test_every_command_has_help_and_every_option_too(name: str) -> None:
    command = TREE[name]
    assert command.help
    assert command.short_help or command in (runs, server)
    assert all(param.help for param in command.params if isinstance(param, click.Option))


@pytest.mark.parametrize("group", [runs, server], ids=lambda group: group.name)
def test_the_table_of_verbs_tells_what_the_verbs_tell(group: LazyGroup) -> None:
    context = click.Context(group)
    for name, verb in group.verbs.items():
        command = group.get_command(context, name)
        assert command is not None
        assert (command.name, command.short_help) == (name, verb.short)


def test_help_imports_no_verb() -> None:
    program = "from tenure.cli.main import runs; runs.main(['--help'], standalone_mode=False)"
    code = f"import sys; {program}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not [name for name in loaded if name.startswith(("tenure.cli.runs.", "tenure.engine", "tenure.ledger"))]


@pytest.mark.parametrize("name", READERS)
def test_every_reading_verb_has_every_form(name: str) -> None:
    (option,) = [param for param in TREE[f"kubectl runs {name}"].params if param.name == "output"]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == ("table", "wide", "json", "yaml", "name")


def test_every_verb_chooses_its_fleet_before_or_after_the_verb(past: Path) -> None:
    before = call("runs", "--local", str(past), "-n", "rai", "list", "-o", "name")
    after = call("runs", "list", "-o", "name", "--local", str(past), "-n", "rai")
    assert before == after
    assert before.out
    for name, command in TREE.items():
        if (
            name.startswith("kubectl runs ")
            and not isinstance(command, click.Group)
            and name.split()[-1] not in ("version", "verify", "completion")
        ):
            assert {"local", "anchor"} <= {param.name for param in command.params}, name


def test_what_is_typed_counts_more_than_the_environment(past: Path, fresh: Path) -> None:
    assert call("runs", "--local", str(past), "list", "-A", "-o", "name", fleet=fresh).out
    assert call("runs", "list", "-A", "-o", "name", fleet=fresh).out == ""


def test_the_reference_page_is_fresh_and_names_every_command_and_exit_code() -> None:
    page = (ROOT / "docs/reference/cli.md").read_text()
    assert page == cli_page(), "run `make generate`"
    assert all(f"# {name}\n" in page for name in TREE)
    assert all(f"| {int(code)} |" in page for code in Exit)
    assert set(MEANINGS) == set(Exit)


def test_verbs_are_where_the_tables_say() -> None:
    folder = ROOT / "src/tenure/cli"
    files = {f"tenure.cli.{path.parent.name}.{path.stem}" for path in folder.glob("*/*.py")}
    assert {verb.module for verb in (RUNS | SERVER).values()} <= files


def test_listing_runs_imports_only_what_it_needs(past: Path) -> None:
    """Start-up is bounded by what is imported: a module on the way costs every call."""
    code = (
        "import sys; from tenure.cli.main import runs; "
        f"runs.main(['--local', {str(past)!r}, 'list', '-A'], standalone_mode=False); print('@', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split("@")[1].split()
    assert "tenure.cli.runs.list" in loaded
    assert not [name for name in HEAVY if name in loaded]
    assert len([name for name in loaded if name not in sys.builtin_module_names]) < 258, (
        "what is built in costs nothing"
    )


def test_the_programs_are_installed() -> None:
    for program in ("kubectl-runs", "tenure"):
        done = subprocess.run([BIN / program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.split()[-1] == call("runs", "version", "-o", "json").json["version"]


def test_a_program_without_a_verb_shows_its_help() -> None:
    for program in ("runs", "tenure"):
        done = call(program)
        assert (done.code, done.err) == (0, "")
        assert "Commands:" in done.out
