"""24 classes of hostile manifests x 50 on the command line, the fleet and the webhook; and the bugs they found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proof import hostile
from proof.damage import workplace
from proof.hostile.classes import CLASSES, VARIANTS, variant
from proof.hostile.judge import STEPS_MAX, Bench, Result
from proof.hostile.parts import Variant, put, run
from proof.hostile.surfaces import Told
from tenure.api.decode import read, read_tree
from tenure.api.meta import GROUP
from tenure.api.text import TEXT_BYTES_MAX
from tenure.kube.review import Review, answer
from tests.cli.support import call, create


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with workplace() as folder, Bench(folder) as bench:
        yield bench


@pytest.mark.parametrize("name", CLASSES)
def test_hostile_manifests_are_refused_in_words_or_valid_everywhere(name: str, bench: Bench) -> None:
    result = hostile.run(bench, name, VARIANTS)
    assert [(each.id, each.where, each.what) for each in result.findings] == []
    assert result.count == VARIANTS
    assert 0 < result.steps < STEPS_MAX
    assert result.refused["fleet"] or name == "privileges", "there is something wrong with most of them"


def test_a_process_says_the_same(bench: Bench) -> None:
    """One of every fourth class as people call it; ``python -m proof hostile`` has one of each."""
    result = Result()
    for name in list(CLASSES)[::4]:
        bench.in_a_process(f"{name}:0", variant(name, 0), result)
    assert result.findings == []


def test_there_are_24_classes_and_their_texts_do_not_change() -> None:
    assert len(CLASSES) == 24
    for name in CLASSES:
        assert variant(name, 7) == variant(name, 7)
        assert len({variant(name, number).text for number in range(VARIANTS)}) > VARIANTS // 2


def test_a_surface_that_fell_over_would_be_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: each kind of fault is planted, and found."""
    text = json.dumps(run("planted")).encode()

    def found(target: Any, answer: Any, text: bytes = text, *, bad: bool = False) -> set[str]:
        result = Result()
        with monkeypatch.context() as patch:
            patch.setattr(target, "ask", answer)
            bench.judge("planted:0", Variant(text, bad=bad), result)
        return {each.what.split(":")[0] for each in result.findings}

    assert "a traceback" in found(bench.hook, lambda *_: 1 / 0)
    assert "taken in, though it is wrong" in found(bench.cli, bench.cli.ask, bad=True)
    assert "the command line says yes, the fleet ('no',)" in found(bench.fleet, lambda _: Told(why=("no",)))
    refused = json.dumps(put(run("planted"), "spec.resources.totalGPUs", -1)).encode()
    trusting = lambda _, trees: [(trees[0], Told(taken={"patch": ""}))]  # noqa: E731
    assert "let pass; the fleet says" in found(bench.hook, trusting, refused, bad=True)


def test_a_failure_says_how_to_see_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile.main(["--replay", "negative:3"]) == 0
    out = capsys.readouterr().out
    assert "--- command line: refused" in out
    assert "--- webhook: refused" in out


# --- bugs that were found this way ----------------------------------------------------------------------------------

ODD_TEMPLATES: dict[str, Any] = {
    "spec.template.metadata": "abc",
    "spec.template.metadata.labels": "abc",
    "spec.template.metadata.labels.app": 5,
    "spec.template.metadata.annotations": 7,
    "spec.template.spec.containers[0].resources": "x",
    "spec.template.spec.containers[0].resources.limits": [1],
    "spec.template.spec.containers[0].resources.requests": "all",
    "spec.template.spec.tolerations": 7,
    "spec.template.spec.initContainers": ["x"],
    "spec.template.spec.initContainers ": {"a": 1},
    "spec.template.spec.initContainers  ": [{"name": "i", "resources": "x"}],
}


@pytest.mark.parametrize("path", ODD_TEMPLATES)
def test_an_odd_template_cannot_stop_the_fleet(path: str) -> None:
    """Such a Run was taken in, and making its pods then stopped the daemon or the operator: everybody's, for good."""
    tree = put(run(), path.strip(), ODD_TEMPLATES[path])
    (error,) = read_tree(tree).errors
    assert error.path.startswith(path.strip())
    assert error.fix


def test_a_template_as_kubernetes_has_it_is_taken() -> None:
    tree = put(run(), "spec.template.spec.initContainers", [{"name": "fetch", "command": ["true"], "resources": {}}])
    tree = put(tree, "spec.template.spec.tolerations", [{"operator": "Exists"}])
    tree = put(tree, "spec.template.spec.containers[0].resources", {"limits": {"memory": "1Gi"}, "requests": None})
    tree = put(tree, "spec.template.metadata", {"labels": {"a": "b"}, "annotations": None})
    assert read_tree(tree).errors == ()


def test_a_long_file_is_not_said_to_be_shorter_than_it_is(tmp_path: Path) -> None:
    """The command line stops reading after 1 MiB, and said of a file of 2 MiB that it has 1048577 bytes."""
    fleet = create(tmp_path)
    done = call("runs", "submit", "-f", "-", fleet=fleet, stdin="#" * 2 * TEXT_BYTES_MAX)
    assert "1048577" not in done.err
    assert "more than the 1048576 bytes that are read" in done.err
    (error,) = read("#" * 2 * TEXT_BYTES_MAX, source="standard input").errors
    assert error.sentence() in done.err


@pytest.mark.parametrize("conditions", [7, 1.5, "yes", {"type": "Admitted"}, [7], None])
def test_a_status_of_no_shape_does_not_stop_the_webhook(conditions: Any) -> None:
    """What was stored before may have any status: judging an update of it ended in a traceback."""
    old = {**put(run(), "spec.runtime.maxRestarts", 1), "status": {"conditions": conditions}}
    request = {"uid": "u", "operation": "UPDATE", "kind": {"group": GROUP, "version": "v1", "kind": "Run"},
               "name": "honest", "namespace": "rai", "object": run(), "oldObject": old}  # fmt: skip
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    found = answer(msgspec.convert(review, Review), patching=True)
    assert found["response"]["allowed"]
