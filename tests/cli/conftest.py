"""The fleets that the tests of the command line look at."""

from pathlib import Path

import pytest

from tests.cli import support


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def nobody_at_home(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who chooses neither a fleet nor a cluster has none: not that of a developer's own ~/.kube/config."""
    monkeypatch.setenv("HOME", str(empty))


@pytest.fixture(scope="session")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet on which things have happened; to be read only."""
    fleet = support.create(tmp_path_factory.mktemp("past"))
    assert support.submit(fleet, *support.history()).code == 0
    support.until_idle(fleet)
    return fleet


@pytest.fixture(scope="session")
def funded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of the worked example of the guide: a run with four payers, over midnight; to be read only."""
    ledger = tmp_path_factory.mktemp("funded") / "fleet.db"
    done = support.call("tenure", "scenario", str(support.CO_FUNDED), "--keep", str(ledger))
    assert done.code == 0, done.err
    return ledger


@pytest.fixture
def used(past: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return support.copy(past, tmp_path)


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A fleet with budgets and nothing to do."""
    return support.create(tmp_path)
