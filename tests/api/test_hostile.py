"""Hostile input, by class: a clear error, no traceback, nothing kept, and bounded work.

Seconds are not asserted (``bench`` measures them). Work is bounded twice: the steps of the interpreter are counted,
and the time is compared with that of the parser's events of an honest file of the same size in the same process."""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from bench.measure import still
from bench.refusals import TEXTS
from tenure.api.decode import read, read_policy, read_tree
from tenure.api.text import TEXT_BYTES_MAX, Meter
from tenure.api.yaml_events import read_documents
from tests.api.builders import BUDGET, FIXED, RUN, changed

MIB = 1024 * 1024
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


def run_json(changes: dict[str, Any]) -> str:
    return json.dumps(changed(FIXED, changes))


HOSTILE: dict[str, Callable[[], str | bytes]] = {
    "oversize": lambda: "a" * (100 * MIB),
    "oversize bytes": lambda: b"\x00" * (100 * MIB),
    "oversize by characters of four bytes": lambda: "\U0001f600" * (MIB // 2),
    "deep YAML flow": lambda: "[" * MIB,
    "deep YAML mappings": lambda: "{a: " * (MIB // 4),
    "deep YAML block": lambda: "".join(" " * depth + "a:\n" for depth in range(1400)),
    "deep YAML block on one line": lambda: "- " * (MIB // 2),
    "deep YAML keys": lambda: "? " * (MIB // 2),
    "deep JSON": lambda: '{"a":' * (MIB // 5),
    "deep JSON, closed": lambda: "[" * 500_000 + "]" * 500_000,
    "deep JSON in a template": lambda: run_json({}).replace('"main"', "[" * 20_000 + "]" * 20_000),
    "aliases": lambda: LAUGHS,
    "an alias of itself": lambda: "kind: Run\nmetadata: &m\n  name: x\n  labels: *m\n",
    "many anchors": lambda: "&a " * (MIB // 3),
    "many tags": lambda: "!" * MIB,
    "duplicate keys in YAML": lambda: "kind: Run\nkind: Budget\n",
    "duplicate keys in JSON": lambda: '{"kind": "Run", "kind": "Budget"}',
    "a thousand duplicate keys": lambda: "{" + '"a":{"a":1,"a":1},' * 39_000 + '"b":1}',
    "wrong types": lambda: json.dumps({"kind": "Run", "metadata": [], "spec": "x", "status": 1}),
    "boolean for integer": lambda: run_json({"spec.resources.totalGPUs": True}),
    "negative": lambda: run_json({"spec.resources.totalGPUs": -1}),
    "zero": lambda: run_json({"spec.resources.totalGPUs": 0}),
    "beyond limits": lambda: run_json({"spec.resources.totalGPUs": 2**53 + 1}),
    "far beyond limits": lambda: run_json({"spec.resources.totalGPUs": 10**4000}),
    "a million digits": lambda: run_json({}).replace("40", "4" * (MIB - 1000)),
    "a million digits in YAML": lambda: "a: " + "4" * (MIB - 10),
    "a large exponent": lambda: "a: 1e" + "9" * (MIB - 10),
    "NaN": lambda: run_json({"spec.resources.totalGPUs": float("nan")}),
    "infinity": lambda: run_json({"spec.template.spec.x": float("inf")}),
    "NaN in YAML": lambda: yaml.safe_dump(changed(FIXED, {"spec.template.spec.x": float("nan")})),
    "control characters": lambda: run_json({"spec.template.spec.containers[0].name": "\x1b[2J"}),
    "raw control characters": lambda: "kind: Run\n\x1b[2J",
    "control characters in a key": lambda: run_json({"spec.template": {"\x07": 1}}),
    "control characters in a field's name": lambda: run_json({"spec.\x1b[31m": 1}),
    "half a surrogate pair": lambda: '{"kind": "Run", "metadata": {"name": "\\ud800"}}',
    "invalid UTF-8": lambda: b"kind: \xc3\x28",
    "null bytes": lambda: b"\x00" * 1000,
    "a byte order mark": lambda: "\ufeffkind: Run",
    "bad globs": lambda: json.dumps(
        changed(BUDGET, {"spec.envelopes[0].lending.to": ["(a+)+$", "org:a*", "**", "[a-", "?"]})
    ),
    "a long glob": lambda: json.dumps(changed(BUDGET, {"spec.envelopes[0].lending.to": ["*:" * 200_000]})),
    "unknown fields": lambda: run_json({f"spec.x{i}": 1 for i in range(20_000)}),
    "unknown fields before the name": lambda: json.dumps(
        {"kind": "Namespace", "metadata": {**{f"x{i}": 1 for i in range(100)}, "name": "a"}}
    ),
    "cycles": lambda: json.dumps(changed(BUDGET, {"spec.parents": ["org:ai:rai:sys"]})),
    "a long name": lambda: run_json({"metadata.name": "a-" * 400_000}),
    "a long owner": lambda: run_json({"spec.owner": "a:" * 400_000}),
    "a long duration": lambda: run_json({"spec.runtime": {"checkpoint": "1" * 900_000}}),
    "a long duration of parts": lambda: run_json({"spec.runtime": {"checkpoint": "1h" * 400_000}}),
    "a long time": lambda: json.dumps(
        changed(BUDGET, {"spec.envelopes[0].start": "2025-11-01T00:00:00." + "1" * 900_000})
    ),
    "many labels": lambda: run_json({"metadata.labels": {f"k{i}": "x" for i in range(40_000)}}),
    "many envelopes": lambda: json.dumps(changed(BUDGET, {"spec.envelopes": [{}] * 30_000})),
    "many values in a template": lambda: run_json({"spec.template.spec.x": [0] * 70_000}),
    "many bad values in a template": lambda: run_json({"spec.template.spec.x": ["\x1b"] * 25_000}),
    "many containers": lambda: run_json({"spec.template.spec.containers": [{}] * 20_000}),
    "a list of scalars": lambda: "- a\n" * (MIB // 4),
    "a flow list of scalars": lambda: "[" + "a," * (MIB // 2 - 2) + "]",
    "a mapping of scalars": lambda: "".join(f"k{i}: b\n" for i in range(80_000)),
    "many documents": lambda: "---\n" * (MIB // 4),
    "many commas": lambda: "[" + "," * (MIB - 2),
    "many numbers": lambda: "[" + "1," * (MIB // 2 - 2) + "1]",
    "many empty objects": lambda: "[" + "{}," * 79_000 + "{}]",
    "many floats": lambda: "[" + "1.5," * 79_000 + "1]",
    "many strings": lambda: "[" + '"",' * 79_000 + '""]',
    "many quotes": lambda: '"' * MIB,
    "an unfinished string": lambda: '{"a":"' + '\\"' * (MIB // 2 - 10),
    "many bad objects": lambda: "---\n".join(["{kind: Run}\n"] * 50_000),
    "JSON that ends too early": lambda: '{"a": 1,' + '"a":"",' * 79_000,
    "JSON that goes wrong early": lambda: '{"a": b,' + '"c":"",' * 79_000,
    "only line breaks": lambda: "\n" * MIB,
    "only a comment": lambda: "#" * MIB,
    "only blanks": lambda: " " * MIB,
    "tabs": lambda: "a:\n" + "\t" * (MIB - 4),
    "nothing": lambda: "",
    "a directive": lambda: "%" * MIB,
    "colons": lambda: ": " * (MIB // 2),
    "a folded text": lambda: "a: >\n" + " x\n\n" * (MIB // 4 - 5),
    "a text of one line": lambda: "a" * MIB,
}  # fmt: skip


@pytest.fixture(scope="module")
def honest_seconds() -> float:
    """How long the YAML of an honest file of about a mebibyte takes, from events, before anything is checked."""
    texts = [yaml.dump(changed(RUN, {"metadata.name": f"r{i}"}), Dumper=_dumper()) for i in range(1200)]
    text = "---\n".join(texts)
    assert 0.7 * MIB < len(text) <= MIB
    assert len(read(text).objects) == 1200
    best, trees = timed(lambda: list(read_documents(text, Meter(TEXT_BYTES_MAX))))
    assert len(trees) == 1200
    return best


def _dumper() -> Any:
    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    seconds, answer = [], None
    with still():  # or else the collector looks at all that pytest holds
        for _ in range(3):
            began = time.process_time()
            answer = work()
            seconds.append(time.process_time() - began)
    return min(seconds), answer


def steps(work: Callable[[], Any]) -> int:
    """How often functions are called and left."""
    count = 0

    def one_more(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(one_more)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_input_gives_a_clear_error_at_a_bounded_price(name: str, honest_seconds: float) -> None:
    text = HOSTILE[name]()
    seconds, reading = timed(lambda: read(text))
    assert reading.objects == ()
    assert 0 < len(reading.errors) <= 101
    for error in reading.errors:
        assert error.problem
        assert error.fix
        assert error.sentence().isprintable()
        assert len(error.sentence()) < 700
    assert seconds < honest_seconds, f"{seconds / honest_seconds:.1f}x of an honest file"


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_input_takes_few_steps(name: str) -> None:
    text = HOSTILE[name]()
    assert steps(lambda: read(text)) < 1_500_000


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_long_file_takes_few_steps_wherever_its_fault_is(name: str) -> None:
    text = TEXTS[name]()
    assert len(text) <= TEXT_BYTES_MAX
    assert len(read(text).errors) == 1
    assert steps(lambda: read(text)) < 1_750_000


@pytest.mark.parametrize("name", ["runs, the last wrong", "budgets, the last wrong"])
def test_finding_the_fault_at_the_end_takes_less_than_the_events_of_the_parser_alone(name: str) -> None:
    text = TEXTS[name]()
    seconds, _ = timed(lambda: read(text))
    events, _ = timed(lambda: list(read_documents(text, Meter(TEXT_BYTES_MAX))))
    assert seconds < events, f"{seconds / events:.2f}x"


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_policy_is_no_way_in_either(name: str) -> None:
    policy, errors = read_policy(HOSTILE[name]())
    assert errors or policy == type(policy)()


def test_a_tree_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {"x": 1}
    loop["self"] = [loop, loop]
    reading = read_tree(changed(FIXED, {"spec.template.spec": loop}))
    assert {error.problem for error in reading.errors} & {
        "nested more than 32 deep",
        "more than 30000 values",
    }


def test_a_tree_of_odd_python_values_is_refused() -> None:
    odd = [object(), {1: 2}, (1,), b"x", {3, 4}, 1j]
    paths = [error.path for error in read_tree(changed(FIXED, {"spec.template.spec.x": odd})).errors]
    assert sorted(paths) == [f"spec.template.spec.x[{i}]" + (".1" if i == 1 else "") for i in (0, 1, 3, 4, 5)]


def test_line_breaks_and_tabs_are_fine_in_a_command_and_nothing_else_is() -> None:
    script = "set -e\n\tpython train.py\n"
    tree = changed(FIXED, {"spec.template.spec.containers[0].command": ["sh", "-c", script]})
    (run,) = read_tree(tree).objects
    assert run.spec.template["spec"]["containers"][0]["command"][2] == script
    for bad in ("\r", "\x00", "\x1b", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800"):
        tree = changed(FIXED, {"spec.template.spec.containers[0].command": ["sh", f"a{bad}b"]})
        (error,) = read_tree(tree).errors
        assert error.problem == "holds a control character"
    assert read_tree(changed(FIXED, {"spec.resources.gpuType": "a\tb"})).errors
