"""24 classes of hostile manifests x 50 on the command line, the fleet and the webhook; and the bugs they found."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proof import hostile
from proof.again import command
from proof.commit import describe
from proof.damage import workplace
from proof.hostile import classes, edits
from proof.hostile.classes import CLASSES, VARIANTS, variant
from proof.hostile.judge import STEPS_MAX, Bench, Finding, Result
from proof.hostile.parts import Variant, put, run, said
from proof.hostile.surfaces import Told
from tenure.api.decode import read, read_tree
from tenure.api.meta import GROUP
from tenure.api.text import TEXT_BYTES_MAX
from tenure.engine import Delete, intake
from tenure.kube.review import Review, answer
from tests.cli.support import call, create

NEVER_LET_PASS = ("negative", "globs", "unknown", "cycles", "nan", "deep", "tags")
"""Classes in which every variant is wrong as an object, whatever text it came in."""


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with workplace() as folder, Bench(folder) as bench:
        yield bench


@pytest.mark.parametrize("name", CLASSES)
def test_hostile_manifests_are_refused_in_words_or_valid_everywhere(name: str, bench: Bench) -> None:
    result = hostile.run(bench, name, VARIANTS)
    assert [(each.id, each.where, each.what) for each in result.findings] == []
    assert result.count == VARIANTS
    for surface in ("cli", "fleet", "hook"):
        assert result.refused[surface] + result.taken[surface] == VARIANTS, surface
        assert result.edits_refused[surface] + result.edits_taken[surface] == VARIANTS // edits.EVERY > 0, surface
    assert result.updates >= VARIANTS // edits.EVERY
    assert result.edits_refused["fleet"], "also of those edits that would do as new objects some come too late"
    assert result.reviews >= VARIANTS
    assert result.raw < VARIANTS or name == "tags", "most are objects to somebody"
    assert result.refused["hook"] == VARIANTS or name not in NEVER_LET_PASS
    assert 0 < result.steps < STEPS_MAX
    assert result.refused["fleet"] or name == "privileges", "there is something wrong with most of them"


def test_a_process_says_the_same(bench: Bench) -> None:
    """One of every fourth class as people call it; ``python -m proof hostile`` has one of each."""
    result = Result()
    for name in list(CLASSES)[::4]:
        bench.in_a_process(f"{name}:0", variant(name, 0), result)
    assert result.findings == []


def test_there_are_24_classes_of_50_texts_that_do_not_change_and_differ_in_more_than_their_names() -> None:
    assert len(CLASSES) == 24
    assert VARIANTS == 50
    for name in CLASSES:
        texts = [variant(name, number).text for number in range(VARIANTS)]
        assert len({text.replace(f"{name}-{number}".encode(), b"") for number, text in enumerate(texts)}) == VARIANTS
        assert variant(name, 7).text == texts[7]


def test_a_plain_text_differs_by_what_it_says() -> None:
    """The same object as JSON and as YAML is one variant, not two."""
    tree = run("a-1")
    ways = {said(random.Random(number), tree) for number in range(20)}
    assert len(ways) == 3
    assert len({Variant(text, tree=tree).less("a-1") for text in ways}) == 1
    assert Variant(b"", tree=run("b-1")).less("b-1") == Variant(b"", tree=tree).less("a-1")
    assert Variant(b"x b-1").less("b-1") == Variant(b"x a-1").less("a-1") != Variant(b"y a-1").less("a-1")


def test_a_class_that_has_no_more_variants_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(CLASSES, "zero", lambda luck, name: Variant(str(luck.randrange(5)).encode()))
    monkeypatch.setitem(classes._chosen, "zero", [])
    monkeypatch.setitem(classes._had, "zero", set())
    assert len({variant("zero", number).text for number in range(5)}) == 5
    with pytest.raises(SystemExit) as ended:
        hostile.main(["--class", "zero", "--variants", "6"])
    assert ended.value.code == 2
    assert "zero has 5 different variants and no more" in capsys.readouterr().err


def test_the_closing_object_of_a_cycle_is_refused_by_the_webhook(bench: Bench) -> None:
    """Each object was asked about alone, so no cycle ever reached the webhook, and all of them were taken."""
    lengths = []
    for number in range(12):
        tried, result = variant("cycles", number), Result()
        answers = [told for where, told in bench.judge(f"cycles:{number}", tried, result) if where == "webhook"]
        assert result.findings == []
        assert [bool(told.why) for told in answers] == [False] * (len(answers) - 1) + [True]
        assert ("the owner is its own parent" if len(answers) == 1 else "a cycle of parents") in answers[-1].why[0]
        lengths.append(len(answers))
    assert max(lengths) > 40, "also long ones, to the end"
    assert bench.hook.operator.state.budgets.keys() == bench.fleet.state.budgets.keys() == {"rai", "vision"}


def test_a_text_that_is_no_object_reaches_the_webhook_as_it_is(bench: Bench) -> None:
    """Such texts were left out: the webhook had judged 1,148 of 1,200."""
    for text in (b"\x00\xff", b"[" * 5000, b"", b"a: &a [*a]"):
        (sent,) = bench.hook.reviews(text)
        assert sent.tree is None
        assert b'"object": ' + text in sent.body
        assert bench.hook.ask(sent).why == ("not an AdmissionReview\n",)
    (lease,) = bench.hook.reviews(json.dumps({**run(), "kind": "Lease"}).encode())
    assert not lease.ours
    assert "not the kind that the request is about" in bench.hook.ask(lease).why[0]


def test_a_surface_that_fell_over_would_be_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: each kind of fault is planted, and found."""
    text = json.dumps(run("planted")).encode()

    def found(target: Any, answer: Any, text: bytes = text, *, bad: bool = False) -> set[str]:
        result = Result()
        with monkeypatch.context() as patch:
            patch.setattr(target, "ask", answer)
            bench.judge("planted:0", Variant(text, bad=bad), result)
        return {each.what.split(":")[0] for each in result.findings}

    assert "a traceback" in found(bench.hook, lambda _: 1 / 0)
    assert "taken in, though it is wrong" in found(bench.cli, bench.cli.ask, bad=True)
    assert "the command line says yes, the fleet ('no',)" in found(bench.fleet, lambda _: Told(why=("no",)))
    refused = json.dumps(put(run("planted"), "spec.resources.totalGPUs", -1)).encode()
    trusting = lambda _: Told(taken={"patch": ""})  # noqa: E731
    assert "let pass; the fleet says" in found(bench.hook, trusting, refused, bad=True)
    assert "taken in, though it is no Run and no Budget" in found(bench.hook, trusting, b"[", bad=True)
    unread = lambda _: Told(objects=read(json.dumps(put(run(), "spec.owner", "org:mm"))).objects)  # noqa: E731
    assert "let pass, and the operator says" in found(bench.hook, unread)


def test_a_webhook_that_saw_no_cycle_would_be_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "check_family", lambda _: [])
    result = Result()
    bench.judge("cycles:1", variant("cycles", 1), result)
    assert any(each.what.startswith("let pass: the last of ") for each in result.findings)


def test_edits_are_tried_over_runs_that_started_and_over_runs_that_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template that asks for more is good as long as the Run has not started; afterwards nobody takes it."""
    bodies: list[dict[str, Any]] = []
    judged = type(bench.hook._webhook)._judged

    def heard(self: Any, body: bytes, *, patching: bool) -> Any:
        bodies.append(json.loads(body))
        return judged(self, body, patching=patching)

    monkeypatch.setattr(type(bench.hook._webhook), "_judged", heard)
    for number, why in ((0, "cannot change once the Run was admitted"), (5, "")):
        result = Result()
        answers = edits.judge(bench, f"privileges:{number}", variant("privileges", number), result)
        assert result.findings == []
        assert [where for where, _ in answers] == [
            f"{where}, as an edit" for where in ("command line", "fleet", "webhook")
        ]
        assert all(why in told.why[0] if why else not told.why for _, told in answers)
    asked = [body["request"] for body in bodies]
    assert {each["operation"] for each in asked} == {"UPDATE"}
    assert all(
        each["oldObject"]["metadata"]["name"] == each["name"] == each["object"]["metadata"]["name"] for each in asked
    )
    assert any(each["oldObject"].get("status") == edits.ADMITTED for each in asked)


def test_a_cycle_by_edit_is_refused_at_its_last_parent(bench: Bench) -> None:
    number = next(number for number in range(0, VARIANTS, edits.EVERY) if b"-1" in variant("cycles", number).text)
    result = Result()
    answers = edits.judge(bench, f"cycles:{number}", variant("cycles", number), result)
    assert result.findings == []
    assert all("a cycle of parents" in told.why[0] for where, told in answers if not where.startswith("webhook"))
    hooked = [told for where, told in answers if where.startswith("webhook")]
    assert [bool(told.why) for told in hooked] == [False] * (len(hooked) - 1) + [True]
    assert len(hooked) > 1


@pytest.fixture
def spoiled_bench() -> Iterator[Bench]:
    with workplace() as folder, Bench(folder) as bench:
        yield bench


def test_a_surface_that_spoils_what_was_there_would_be_seen(
    spoiled_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge of edits itself: each kind of fault is planted, and found."""
    bench = spoiled_bench

    def found() -> set[str]:
        result = Result()
        edits.judge(bench, "privileges:0", variant("privileges", 0), result)
        return {f"{each.where}: {each.what.removeprefix('as an edit: ').split(':')[0]}" for each in result.findings}

    assert found() == set()
    with monkeypatch.context() as patch:
        patch.setattr(intake, "check_update", lambda *_, **__: [])
        assert {
            "command line: Run rai/privileges-0 had started, and is not what it was",
            "fleet: Run rai/privileges-0 had started, and is not what it was",
            "webhook: refused by a webhook that knows nothing, and by no other",
        } <= found()
        assert bench.fleet.audit(), "the auditor sees it as well"
    with monkeypatch.context() as patch:

        def spoiled(text: bytes, **_: Any) -> Told:
            bench.fleet.home.handle(Delete(kind="Run", namespace="rai", name="privileges-0"), now=bench.fleet.now)
            return Told(why=("no",))

        patch.setattr(bench.fleet, "ask", spoiled)
        assert "fleet: refused, and what was there is not as before" in found()
    with monkeypatch.context() as patch:
        patch.setattr(bench.hook, "ask", lambda _: 1 / 0)
        assert "webhook: a traceback" in found()
    with monkeypatch.context() as patch:
        patch.setattr(bench.behind, "stand", lambda *_, **__: "the honest objects are not there")
        assert "command line: the honest objects are not there" in found()
    assert found() == set()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--variants", "0"], "a whole number from 1 on"),
        (["--variants", "-3"], "a whole number from 1 on"),
        (["--variants", "1e3"], "a whole number from 1 on"),
        (["--class", "nonsense"], "invalid choice: 'nonsense'"),
        (["--replay", "nonsense:1"], "a manifest is named CLASS:NUMBER"),
        (["--replay", "zero:-1"], "a manifest is named CLASS:NUMBER"),
        (["--replay", "zero:999999999"], "a manifest is named CLASS:NUMBER"),
        (["--replay", "zero:1", "--class", "zero"], "write one of them"),
    ],
)
def test_nothing_tried_is_no_success(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        hostile.main(words)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hostile.main(["--replay", "negative:3", "--no-processes"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"commit {describe()}\n")
    assert "--- command line: refused" in out
    assert "--- webhook: refused" in out
    monkeypatch.setattr(hostile.Bench, "close_class", lambda _, name, result: result.findings.append(
        Finding(name, "fleet", "planted")))  # fmt: skip
    monkeypatch.setattr("proof.hostile.judge.wrongly_taken", lambda *_: "planted")
    monkeypatch.setattr(hostile, "SAID_EVERY", 1)
    assert hostile.main(["--class", "zero", "--variants", "2", "--no-processes"]) == 1
    out, err = capsys.readouterr()
    assert err == "1 of 2 manifests\n2 of 2 manifests\n"
    assert f"at commit {describe()}, again: {command('hostile', '--replay', 'zero:1')}\n" in out
    assert f"at commit {describe()}, again: {command('hostile', '--class', 'zero', '--variants', 2)}\n" in out
    assert out.endswith("3 faults in 2 manifests.\n")


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


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (run(), put(run(), "spec.sparesPerGroup", False), "spec.sparesPerGroup"),
        (run(), put(run(), "spec.opportunistic", 0), "spec.opportunistic"),
        (run(), {**run(), "kind": "Lease"}, "not the kind that the request is about"),
        ({**run(), "spec": None}, {**run(), "spec": None}, "spec"),
    ],
)
def test_an_edit_that_only_seems_to_leave_the_spec_is_judged(old: Any, new: Any, why: str) -> None:
    """False for 0, another kind, and no spec over none were let pass: to Python the two specs were equal."""
    request = {"uid": "u", "operation": "UPDATE", "kind": {"group": GROUP, "version": "v1", "kind": "Run"},
               "name": "honest", "namespace": "rai", "object": new, "oldObject": old}  # fmt: skip
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    found = answer(msgspec.convert(review, Review), patching=True)["response"]
    assert not found["allowed"]
    assert why in found["status"]["message"]
    same = {**request, "object": put(run(), "metadata.labels", {"a": "b"}), "oldObject": run()}
    again = answer(msgspec.convert({**review, "request": same}, Review), patching=True)
    assert again["response"]["allowed"]


def test_a_run_whose_name_is_still_to_be_generated_is_no_edit_of_another(bench: Bench) -> None:
    """It was judged as train-0 for train-: with a Run of that very name at work, no other could be submitted."""
    operator = bench.hook.operator
    there = operator.ask(json.dumps(run("train-0")).encode())
    assert operator.state.runs["rai/train-0"].life.admitted
    wider = put(run("train-0"), "spec.template.spec.containers[0].image", "registry/train:2")
    (edit,) = bench.hook.reviews(json.dumps(wider).encode())
    assert "cannot change once the Run was admitted" in bench.hook.ask(edit).why[0]
    nameless = put(wider, "metadata", {"generateName": "train-", "namespace": "rai"})
    (another,) = bench.hook.reviews(json.dumps(nameless).encode())
    assert bench.hook.ask(another).why == ()
    operator.forget(there)


def test_who_stops_it_within_a_command_is_heard(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line under trial took Ctrl-C for its own, and the trial went on with a fault."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tenure.cli.lazy.Root.invoke", stopped)
    with pytest.raises(KeyboardInterrupt):
        bench.cli.ask(json.dumps(run("stopped")).encode())
