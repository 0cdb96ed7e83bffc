"""From text to objects: whole or not at all, errors all at once, each with its field, value and remedy."""

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
import yaml

from tenure.api.decode import KINDS, read, read_tree
from tenure.api.errors import FieldError, escape, path_text, show
from tests.api.builders import ABSENT, ALL, BUDGET, EVERY_KIND, FIXED, NODE, RUN, changed


def errors_of(tree: object, **options: Any) -> list[tuple[str, str]]:
    return [(error.path, error.problem) for error in read_tree(tree, **options).errors]


@pytest.mark.parametrize("kind", sorted(EVERY_KIND))
def test_yaml_and_json_give_the_same_object(kind: str) -> None:
    from_json = read(json.dumps(ALL[kind]), kinds=EVERY_KIND)
    from_yaml = read(yaml.safe_dump(ALL[kind]), kinds=EVERY_KIND)
    assert from_json == from_yaml == read_tree(ALL[kind], kinds=EVERY_KIND)
    assert from_json.errors == ()


@pytest.mark.parametrize("kind", sorted(EVERY_KIND))
def test_reading_gives_what_msgspec_would(kind: str) -> None:
    (obj,) = read_tree(ALL[kind], kinds=EVERY_KIND).objects
    assert obj == msgspec.convert(ALL[kind], KINDS[kind])


def test_times_need_no_quotes() -> None:
    (budget,) = read(yaml.safe_dump(BUDGET).replace("'2025-11-01T00:00:00Z'", "2025-11-01T00:00:00Z")).objects
    assert budget.spec.envelopes[0].start == "2025-11-01T00:00:00Z"


def test_several_objects_are_taken_in_order() -> None:
    text = "\n---\n".join(json.dumps(each) for each in (BUDGET, NODE, FIXED))
    assert [obj.kind for obj in read(text).objects] == ["Budget", "Node", "Run"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda items: json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}),
        lambda items: yaml.safe_dump({"kind": "List", "items": items}),
        json.dumps,
    ],
)
def test_lists_are_taken_apart(wrap: Any) -> None:
    assert [obj.kind for obj in read(wrap([BUDGET, FIXED])).objects] == ["Budget", "Run"]


def test_one_bad_object_leaves_none() -> None:
    bad = changed(RUN, {"spec.resources.totalGPUs": 0})
    reading = read("\n---\n".join(json.dumps(each) for each in (BUDGET, bad, FIXED)))
    assert reading.objects == ()
    assert {error.object for error in reading.errors} == {"Run/rai/train-128"}


def test_every_object_has_its_errors_listed() -> None:
    bad_run = changed(FIXED, {"spec.owner": "Org"})
    bad_budget = changed(BUDGET, {"spec.parents": ["", "x y"]})
    reading = read_tree([bad_run, bad_budget, {"kind": "Pod"}, 7])
    assert [(error.object, error.path) for error in reading.errors] == [
        ("Run/rai/plain", "spec.owner"),
        ("Budget/rai-sys", "spec.parents[0]"),
        ("Budget/rai-sys", "spec.parents[1]"),
        ("<input>, item 3", "kind"),
        ("<input>, item 4", ""),
    ]


def test_the_same_object_twice_is_refused() -> None:
    unnamed = changed(FIXED, {"metadata.namespace": ABSENT})
    spelled = changed(FIXED, {"metadata.namespace": "default"})
    (error,) = read_tree([unnamed, spelled]).errors
    assert error.sentence() == ("Run/default/plain: the same object as <input>, item 1; keep one of them")
    assert read_tree([FIXED, unnamed]).errors == ()


def test_two_long_names_that_differ_in_the_middle_are_two_objects() -> None:
    names = [f"{'a' * 60}{middle}{'a' * 60}" for middle in "bc"]
    assert len(read_tree([changed(BUDGET, {"metadata.name": name}) for name in names]).objects) == 2


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"metadata": {"name": "x"}}, ("kind", "required and missing")),
        ({"kind": "Rum"}, ("kind", "unknown kind")),
        ({"kind": 7}, ("kind", "not a string")),
        ({"kind": ["Run"]}, ("kind", "not a string")),
        ({"kind": "Lease"}, ("kind", "written by the scheduler, not by people")),
        ({"kind": "Reservation"}, ("kind", "written by the scheduler, not by people")),
        ({"kind": "List"}, ("items", "a List without a list of items")),
        ({"kind": "List", "items": [], "itms": []}, ("itms", "unknown field")),
        ({"kind": "List", "items": [{"kind": "List", "items": []}]}, ("kind", "unknown kind")),
        ("Run", ("", "not an object")),
        (None, ("", "not an object")),
        ([], ("", "empty: there is no object in it")),
        ({**FIXED, "apiVersion": "v1"}, ("apiVersion", "not one of the choices")),
        ({**NODE, "apiVersion": "v2"}, ("apiVersion", "not one of the choices")),
        ({**FIXED, "metadata": None}, ("metadata", "null where a mapping belongs")),
        ({**FIXED, "spec": []}, ("spec", "a list where a mapping belongs")),
        (changed(FIXED, {"metadata.name": ABSENT}), ("metadata.name", "required and missing")),
        (changed(FIXED, {"metadata.name": 7}), ("metadata.name", "a whole number where a string belongs")),
        (changed(FIXED, {"spec.locality": None}), ("spec.locality", "null where a mapping belongs")),
    ],
)
def test_what_is_no_object_is_refused(tree: object, problem: tuple[str, str]) -> None:
    assert errors_of(tree) == [problem]


def test_null_means_absent_where_a_field_may_be() -> None:
    (run,) = read_tree(changed(FIXED, {"spec.malleable": None, "spec.resources.gpusPerPod": None})).objects
    assert run.spec.malleable is None


def test_a_default_that_is_spelled_out_is_right() -> None:
    tree = changed(FIXED, {"spec.owner": "", "metadata.namespace": "", "metadata.uid": ""})
    assert read_tree(tree).errors == ()


@pytest.mark.parametrize(
    ("field", "guess"),
    [
        ("spec.resources.totalGpus", "did you mean totalGPUs?"),
        ("spec.resources.total_gpus", "did you mean totalGPUs?"),
        ("spec.malleable.minTotalGPU", "did you mean minTotalGPUs?"),
        ("spec.tempalte", "did you mean template?"),
        ("spec.resources.zzz", "the fields here are gpuType, gpusPerPod, totalGPUs"),
    ],
)
def test_the_field_that_was_meant_is_guessed(field: str, guess: str) -> None:
    (error,) = [error for error in read_tree(changed(RUN, {field: 1})).errors if error.path == field]
    assert (error.problem, error.fix) == ("unknown field", guess)


@pytest.mark.parametrize(
    ("value", "problem", "fix"),
    [
        (7, "a whole number where a string belongs", 'put it in quotes ("7")'),
        (True, "a boolean where a string belongs", 'put it in quotes ("true")'),
        ([], "a list where a string belongs", "write up to 63"),
        ("", "empty", "write up to 63"),
        ("a\nb", "holds a control character", "write up to 63"),
        ("x" * 64, "longer than 63 characters", "write up to 63"),
    ],
)
def test_a_string_field_says_what_would_be_right(value: object, problem: str, fix: str) -> None:
    (error,) = read_tree(changed(FIXED, {"spec.resources.gpuType": value})).errors
    assert error.problem == problem
    assert error.fix.startswith(fix)


def test_at_most_a_hundred_errors_are_listed() -> None:
    parents = [f"Bad {i}" for i in range(16)]
    bad = [changed(BUDGET, {"metadata.name": f"b{i}", "spec.parents": parents}) for i in range(50)]
    reading = read_tree(bad)
    assert len(reading.errors) == 101
    assert "the rest was not read" in reading.errors[-1].problem


def test_more_objects_than_a_file_may_hold_are_refused() -> None:
    many = [{"kind": "Namespace", "metadata": {"name": f"n{i}"}} for i in range(10_001)]
    assert errors_of(many) == [("", "more than 10000 objects")]
    assert len(read_tree(many[:-1]).objects) == 10_000


def test_a_file_of_many_good_documents_is_read_whole() -> None:
    """The limit on values is for what turns out bad: an honest file may hold as much as fits."""
    text = "\n---\n".join(yaml.safe_dump(changed(RUN, {"metadata.name": f"r{i}"})) for i in range(600))
    reading = read(text)
    assert len(reading.objects) == 600


def test_what_is_shown_is_short_and_harmless() -> None:
    hostile = "\x1b[2J\u202e" + "A" * 500_000 + '"\n'
    tree = changed(FIXED, {"spec.owner": hostile, "metadata.name": hostile, f"spec.{'k' * 300}": 1})
    for error in read_tree({**tree, hostile: 1}).errors:
        sentence = error.sentence()
        assert len(sentence) < 700
        assert sentence.isprintable()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (12, "12"),
        (1.5, "1.5"),
        ("a", '"a"'),
        ('a"b', '"a\\"b"'),
        ("\x07", '"\\x07"'),
        ("\u2028", '"\\u2028"'),
        ([], "[]"),
        ([1, 2], "a list of 2"),
        ({"a": 1}, "a mapping of 1"),
        (object(), "a object"),
    ],
)
def test_values_are_shown_for_people(value: object, shown: str) -> None:
    assert show(value) == shown


def test_an_integer_that_python_will_not_spell_is_measured() -> None:
    assert show(10**5000) == "an integer of 16610 bits"


def test_paths_are_spelled_as_the_file_spells_them() -> None:
    assert path_text(("a", 0, "b-c", "x.y/z", "")) == 'a[0].b-c["x.y/z"][""]'
    assert escape("\x00" * 3) == "\\x00\\x00\\x00"


def test_a_sentence_leaves_out_what_there_is_not() -> None:
    error = FieldError(object="Run/a/b", path="", problem="bad", fix="mend it")
    assert error.sentence() == "Run/a/b: bad; mend it"


def test_reading_imports_the_yaml_parser_only_for_what_the_lines_do_not_say() -> None:
    code = (
        "import sys; from tenure.api.decode import read; "
        'assert read(\'{"kind": "Namespace", "metadata": {"name": "a"}}\').objects; '
        "assert 'yaml' not in sys.modules; assert 'difflib' not in sys.modules; "
        "assert read('kind: Namespace\\nmetadata: {name: a}').objects; assert 'yaml' not in sys.modules; "
        "assert read('kind: Namespace\\nmetadata: {\\nname: a}').objects; assert 'yaml' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
