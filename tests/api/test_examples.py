"""The samples under examples/ are good, and together they show what they say."""

from pathlib import Path

import msgspec
import pytest

from tenure.api.budget import Budget
from tenure.api.core import Namespace
from tenure.api.decode import read
from tenure.api.relations import check_family, check_owner
from tenure.api.run import Run
from tests.api.apiserver import refusals

EXAMPLES = sorted((Path(__file__).parent.parent.parent / "examples").glob("[0-9][0-9]-*.yaml"))


def test_there_are_samples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_sample_is_good(path: Path) -> None:
    reading = read(path.read_bytes(), source=path.name)
    assert reading.errors == ()
    assert reading.objects


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_api_server_would_take_it_too(path: Path) -> None:
    ours = [obj for obj in read(path.read_bytes()).objects if isinstance(obj, Budget | Run)]
    for obj in ours:
        tree = msgspec.json.decode(msgspec.json.encode(obj))
        assert refusals({"kind": obj.kind, **tree}) == []


def test_the_samples_fit_together() -> None:
    objects = [obj for path in EXAMPLES for obj in read(path.read_bytes()).objects]
    namespaces = {obj.metadata.name: obj for obj in objects if isinstance(obj, Namespace)}
    assert check_family([obj for obj in objects if isinstance(obj, Budget)]) == []
    runs = [obj for obj in objects if isinstance(obj, Run)]
    assert len(runs) >= 4
    for run in runs:
        assert check_owner(run, namespaces[run.metadata.namespace]) == []
