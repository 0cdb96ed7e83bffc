"""Whatever is typed is answered: random trees and texts never raise; good objects survive the round trip."""

import json
from typing import Any

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.api.compile import shape_of
from tenure.api.decode import KINDS, read, read_policy, read_tree
from tenure.api.defaults import default
from tenure.api.errors import Faults
from tenure.api.formats import FORMATS
from tenure.api.meta import to_wire
from tenure.api.quick import quick
from tenure.api.shape import BAD, Object, Optional, Sequence
from tenure.api.validate import validate
from tenure.api.yaml_write import write_yaml
from tests.api.apiserver import refusals
from tests.api.builders import ALL, EVERY_KIND

WORD = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True)
NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
OWNER = st.lists(st.text("abc-0", min_size=1, max_size=4), min_size=1, max_size=4).map(":".join)
LABELS = st.dictionaries(WORD, WORD, max_size=3)
AMOUNT = st.integers(0, 2**53)

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["Run", "Family", "2025-11-01T00:00:00Z", "1h", "org:ai", "*", "\x1b", "\ud800", "9" * 300]),
    st.binary(max_size=3),
    st.dates(),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=6), LEAVES), inner, max_size=4),
    ),
    max_leaves=12,
)


@st.composite
def envelopes(draw: Any, name: str) -> dict[str, Any]:
    concurrency = draw(st.integers(1, 10**6))
    tree: dict[str, Any] = {
        "name": name,
        "flavor": draw(st.sampled_from(["H100", "A100"])),
        "selector": {"region": draw(WORD), **draw(LABELS)},
        "concurrency": concurrency,
        "sharing": draw(st.sampled_from(["Family", "None"])),
    }
    if draw(st.booleans()):
        tree["maxGPUHours"] = draw(AMOUNT)
    elif draw(st.booleans()):
        tree |= {
            "start": "2025-11-01T00:00:00Z",
            "end": "2025-11-01T10:00:00Z",
            "maxGPUHours": concurrency * 10,
        }
    if draw(st.booleans()):
        tree["lending"] = {"allow": draw(st.booleans()), "to": [draw(OWNER) + ":*"], "maxConcurrency": 1}
    return tree


@st.composite
def budgets(draw: Any) -> dict[str, Any]:
    names = draw(st.lists(WORD, min_size=1, max_size=4, unique=True))
    spec: dict[str, Any] = {"owner": draw(OWNER), "envelopes": [draw(envelopes(name)) for name in names]}
    spec["parents"] = [owner for owner in draw(st.lists(OWNER, max_size=3, unique=True)) if owner != spec["owner"]]
    first = spec["envelopes"][0]
    if draw(st.booleans()):
        cap = {
            "name": "c",
            "flavor": first["flavor"],
            "envelopes": [first["name"]],
            "maxGPUHours": draw(AMOUNT),
        }
        spec["aggregateCaps"] = [cap]
    return {**ALL["Budget"], "metadata": {"name": draw(NAME), "labels": draw(LABELS)}, "spec": spec}


@st.composite
def runs(draw: Any) -> dict[str, Any]:
    pod, pods, groups = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    group = pod * pods
    spec: dict[str, Any] = {
        "resources": {"gpuType": draw(WORD), "totalGPUs": group * groups},
        "template": {"spec": {"containers": [{"name": "main", "args": draw(st.lists(NAME, max_size=2))}]}},
    }
    if draw(st.booleans()):
        spec["owner"] = draw(OWNER)
    if draw(st.booleans()):
        spec["resources"]["gpusPerPod"] = pod
        spec["locality"] = {"groupGPUs": group, "selector": draw(LABELS)}
        spec["sparesPerGroup"] = draw(st.integers(0, 4))
    if draw(st.booleans()):
        spec["malleable"] = {"minTotalGPUs": group, "maxTotalGPUs": group * groups, "stepGPUs": group}
    if draw(st.booleans()):
        spec["funding"] = {"allowBorrow": True, "maxBorrowGPUs": draw(AMOUNT), "sponsors": [draw(OWNER)]}
    return {**ALL["Run"], "metadata": {"name": draw(NAME), "namespace": draw(NAME)}, "spec": spec}


GOOD = st.one_of(budgets(), runs(), st.sampled_from([ALL[kind] for kind in sorted(ALL)]))


@given(GOOD)
def test_a_good_object_survives_the_round_trip(tree: dict[str, Any]) -> None:
    reading = read_tree(tree, kinds=EVERY_KIND)
    assert reading.errors == ()
    (obj,) = reading.objects
    assert validate(obj) == []
    wire = {**to_wire(obj), "kind": obj.kind}
    assert read_tree(wire, kinds=EVERY_KIND) == reading
    assert read(json.dumps(wire), kinds=EVERY_KIND) == reading
    assert read(write_yaml(wire), kinds=EVERY_KIND) == reading


@given(GOOD)
def test_a_good_object_is_what_msgspec_reads_and_stays_good_with_its_defaults(tree: dict[str, Any]) -> None:
    (obj,) = read_tree(tree, kinds=EVERY_KIND).objects
    assert obj == msgspec.convert(tree, KINDS[tree["kind"]])
    filled = default(obj, namespace=None)
    assert validate(filled) == []
    assert default(filled, namespace=None) == filled


@given(st.one_of(budgets(), runs()))
def test_the_api_server_takes_what_we_take(tree: dict[str, Any]) -> None:
    assert refusals(tree) == []


@given(st.sampled_from(sorted(FORMATS)), st.data())
def test_no_grammar_has_a_place_for_what_is_unsafe_to_print(name: str, data: Any) -> None:
    form = FORMATS[name]
    good = data.draw(
        st.sampled_from(["a", "org:ai", "org:*", "2025-11-01T00:00:00Z", "1h30m", "a.b/c", "8", "Completed"])
    )
    at = data.draw(st.integers(0, len(good)))
    bad = good[:at] + data.draw(st.sampled_from("\x00\n\t\r\x1b\x7f\x85\u2028\u202e\ufeff\ud800")) + good[at:]
    assert form.test is None or not form.accepts(bad)


def places(shape: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a type, list items as 0."""
    if isinstance(shape, Optional):
        return places(shape.inner, at)
    if isinstance(shape, Sequence):
        return [at, *places(shape.item, (*at, 0))]
    if isinstance(shape, Object):
        return [at, *(place for field in shape.fields for place in places(field.shape, (*at, field.wire)))]
    return [at]


PLACES = {kind: places(shape_of(cls)) for kind, cls in KINDS.items()}


@st.composite
def mutants(draw: Any) -> dict[str, Any]:
    """A good object with anything at some places."""
    kind = draw(st.sampled_from(sorted(ALL)))
    tree: Any = json.loads(json.dumps(ALL[kind]))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(PLACES[kind][1:]))
        here = tree
        for step in parents:
            if isinstance(here, dict):
                here = here.setdefault(step, {})
            elif isinstance(here, list) and here and step == 0:
                here = here[0]
        if isinstance(here, dict):
            here[last] = draw(TREES)
        elif isinstance(here, list):
            here.append(draw(TREES))
    return tree


@settings(max_examples=300)
@given(mutants(), st.booleans())
def test_a_mutant_is_read_or_refused_and_never_raises(tree: dict[str, Any], simulated: bool) -> None:
    reading = read_tree(tree, kinds=EVERY_KIND, simulated=simulated)
    assert bool(reading.objects) is not bool(reading.errors)
    for obj in reading.objects:
        assert validate(obj, simulated=simulated) == []
        msgspec.json.encode(obj)  # what was read can be stored
    for error in reading.errors:
        assert error.sentence().isprintable()


@settings(max_examples=300)
@given(mutants())
def test_what_is_quickly_found_right_is_right(tree: dict[str, Any]) -> None:
    for cls in KINDS.values():
        faults = Faults("it")
        taken, told = quick(cls)(tree), shape_of(cls).read(tree, (), faults)
        assert taken is BAD or (taken == told and not faults.errors)


@given(GOOD)
def test_what_is_right_is_quickly_found_right(tree: dict[str, Any]) -> None:
    assert quick(KINDS[tree["kind"]])(json.loads(json.dumps(tree))) == read_tree(tree, kinds=EVERY_KIND).objects[0]


@given(TREES)
def test_a_random_tree_never_raises(tree: Any) -> None:
    assert read_tree(tree).objects == ()
    read_policy(tree if not isinstance(tree, str | bytes) else {"x": tree})


@given(st.one_of(st.text(), st.binary(), st.text("{}[],:\"'&*!<-?|> \nabc01~%@`", max_size=60)))
def test_a_random_text_never_raises(text: str | bytes) -> None:
    reading = read(text)
    assert reading.objects == ()
    assert reading.errors
    read_policy(text)


@given(st.data())
def test_a_good_text_with_a_bite_taken_out_never_raises(data: Any) -> None:
    text = data.draw(st.sampled_from([json.dumps, yaml.safe_dump]))(ALL[data.draw(st.sampled_from(sorted(ALL)))])
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    reading = read(text[:start] + data.draw(st.text(max_size=3)) + text[end:], kinds=EVERY_KIND)
    assert bool(reading.objects) is not bool(reading.errors)
