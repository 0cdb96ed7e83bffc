"""YAML by lines and YAML by events: the same trees and the same refusals, or the lines decline."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.api import yaml_events, yaml_lines
from tenure.api.text import Meter, Refused
from tenure.api.yaml_parts import NOTHING, Declined, taken_apart
from tenure.api.yaml_write import write_yaml
from tests.api.builders import ALL, BUDGET, RUN, changed

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("tests/scenarios/*.yaml")])
SCRIPT = "set -e\nif true; then\n  python train.py\nfi\n\necho done\n"
MANIFESTS = [write_yaml(ALL[kind]) for kind in sorted(ALL)] + [
    write_yaml(changed(RUN, {"spec.template.spec.containers[0].command": ["sh", "-c", SCRIPT]}))
]


def outcome(reader: Any, text: str, room: int = 30_000) -> tuple[str, object]:
    """All that can be seen of a reader: its trees (with their types), and what it refused or how much room it left."""
    meter, trees = Meter(room), []
    try:
        trees.extend(reader.read_documents(text, meter))
    except Refused as refused:
        return repr(trees), (refused.where, refused.problem, refused.fix)
    return repr(trees), meter.left


def agree(text: str, room: int = 30_000) -> None:
    assert outcome(yaml_lines, text, room) == outcome(yaml_events, text, room)


@pytest.fixture
def events_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that went to the events."""
    seen: list[str] = []
    read = yaml_events.read_documents

    def watched(text: str, *rest: Any) -> Any:
        seen.append(text)
        return read(text, *rest)

    monkeypatch.setattr(yaml_events, "read_documents", watched)
    return seen


# --- the same ------------------------------------------------------------------------------------------------------

WORDS = """a|b c|a #b|a# b|# c|1|-1|0x1F|1e3|~|true|no|12:30|''|""|'a b'|"a: b"|'it''s'|"\\n"|a:|a: b|a:b
- a|- - a|-|? a|: a|&x a|*x|!t a|[a, b]|[]|{}|{a: b}|{a: [b, {c: 1}]}|{a: b, a: c}|{'a':1}|{a:b}|{a}|[a|a]|[a: b]
[ a , b ]|[a,]|[-]|{a: org:ai:*}|[a - b, c  d]|{a b: c}|[a] # c|{a: "x #y"}|[a #b]|{1: a}|{true: a}|<<|{<<: a}|%|@a
.inf|1e999|$HOME|=|/bin/sh -c|é|- a: 1|'a|"a""".replace("\n", "|").split("|")
HEADERS = ["|", "|-", ">", ">-", "|+", "|2"]
LONG = ["9" * 401, "x" * 1100, f"{{{'x' * 1100}: a}}"]
VALUES = st.sampled_from([*WORDS, *HEADERS, *LONG, "\t", "a\tb", "a\xa0", "\u2028"])
KEYS = st.sampled_from(["a", "b", "c", "'d'", '"e"', "f g", "1", "true", "<<", "x.y/z", "ü", "k" * 1100])
ITEMS = st.one_of(
    VALUES,
    st.builds("{}: {}".format, KEYS, VALUES),
    st.builds("{}:".format, KEYS),
    st.builds("- {}".format, VALUES),
    st.builds("- {}: {}".format, KEYS, VALUES),
    st.builds("- {}:".format, KEYS),
)
INDENTS = st.sampled_from(["", "", "", "  ", "  ", "    ", " ", "   ", "      "])
TAILS = st.sampled_from(["", "", "", "", " ", "  # c", " #c"])
INDENTED = st.builds("{}{}{}".format, INDENTS, ITEMS, TAILS)
MARKS = st.sampled_from(["---", "--- ", "--- a", "---a", "", "# c", "# c\t", "  ", "...", "%YAML 1.1"])
LINES = st.one_of(INDENTED, INDENTED, INDENTED, MARKS)
BREAKS = st.sampled_from(["\n", "\n", "\n", "\n", "\r\n", "\r"])
ROOM = st.sampled_from([30_000, 30_000, 2, 4, 8])


@settings(max_examples=600)
@given(st.lists(LINES, max_size=9), BREAKS, st.sampled_from(["", "\n", "\n\n"]), ROOM)
def test_lines_and_events_agree_on_anything(lines: list[str], between: str, end: str, room: int) -> None:
    agree(between.join(lines) + end, room)


@settings(max_examples=300)
@given(
    st.sampled_from(["a: ", "- ", "- a: ", "a:\n  b: ", "a:\n- ", "a:\n- b:\n  - "]),
    st.sampled_from(["|", "|", "|-", ">", ">-"]),
    st.lists(
        st.builds(
            lambda indent, text: " " * indent + text,
            st.sampled_from([2, 4, 4, 4, 4, 5, 0]),
            st.sampled_from(["x", "y z", "# c", "- q", "k: v", " x", "\tx", "x ", "", "", "'q"]),
        ),
        max_size=6,
    ),
    st.sampled_from(["", "\n", "\n", "\n\n", "\n  ", "\n---\nz: 1\n", "\nz: 1"]),
)
def test_lines_and_events_agree_on_texts_of_several_lines(head: str, header: str, lines: list[str], end: str) -> None:
    agree("\n".join([head + header, *lines]) + end)


@settings(max_examples=300)
@given(st.data())
def test_lines_and_events_agree_on_manifests_with_something_wrong(data: Any) -> None:
    text = "---\n".join(data.draw(st.lists(st.sampled_from(MANIFESTS), min_size=1, max_size=3)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        put = data.draw(
            st.one_of(VALUES, st.sampled_from([*" \n:-#[]{},'\"&*!|>%@`?\t", "\n---\n", ": ", "\n  ", "\n...\n"]))
        )
        text = text[:at] + put + text[at + data.draw(st.integers(0, 3)) :]  # fmt: skip
    agree(text)


# --- what the lines read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_written_in_this_repository_is_read_by_lines(path: Path, events_read: list[str]) -> None:
    read = outcome(yaml_lines, path.read_text())
    assert events_read == []
    assert read == outcome(yaml_events, path.read_text())


def test_what_we_write_is_read_by_lines(events_read: list[str]) -> None:
    text = "---\n".join(MANIFESTS)
    read = outcome(yaml_lines, text)
    assert events_read == []
    assert read == outcome(yaml_lines, text.replace("\n", "\r\n"))
    assert events_read == []


def test_trees_share_nothing_that_can_be_changed() -> None:
    line = "selector: {region: us-west, zones: [a]}"
    first, second = yaml_lines.read_documents(f"{line}\n---\n{line}\n", Meter())
    assert first == second
    first["selector"]["zones"].append("b")
    assert second == {"selector": {"region": "us-west", "zones": ["a"]}}


@pytest.mark.parametrize("line", ["", "   ", "# c", "  # c\t"])
def test_a_line_may_say_nothing(line: str) -> None:
    assert taken_apart(line) == NOTHING


@pytest.mark.parametrize(
    "line", ["a:\tb", "a: b: c", "a: *x", "a: 'b", "1: a", "- - a", "? a", "---a", "a: @b", "-", "- "]
)
def test_a_line_that_is_not_understood_is_declined(line: str) -> None:
    with pytest.raises(Declined):
        taken_apart(line)


# --- what they decline ---------------------------------------------------------------------------------------------

PLAIN, FOLDED = "kind: Run\n", "kind: 'R\n  un'\n"


def test_only_what_is_declined_goes_to_the_events(events_read: list[str]) -> None:
    text = "---\n".join([PLAIN, FOLDED] * 2)
    assert len(list(yaml_lines.read_documents(text, Meter()))) == 4
    assert events_read == [f"---\n{FOLDED}...\n", f"---\n{FOLDED}"]


def test_declined_documents_in_a_row_go_together_in_growing_numbers(events_read: list[str]) -> None:
    text = "---\n".join([FOLDED] * 1_000 + [PLAIN] * 1_000)
    assert len(list(yaml_lines.read_documents(text, Meter()))) == 2_000
    assert len(events_read) < 15
    assert events_read[-1].count(PLAIN) < 256


@pytest.mark.parametrize("first", [PLAIN, FOLDED])
@pytest.mark.parametrize(
    "last", ["a: 'b", "a: 1\na: 2\n", "a: .nan\n", "a: [b\n---\nc: 1\n", "a: &x b\n", "a: 1\n b: 2\n"]
)
def test_a_place_is_that_in_the_whole_text(first: str, last: str) -> None:
    agree("---\n".join([first] * 5 + [last, PLAIN]))


@pytest.mark.parametrize("document", ["", PLAIN, FOLDED, "null\n", "a: 1\n\n# c\n"])
@pytest.mark.parametrize("count", [9_999, 10_000, 10_001, 10_002])
@pytest.mark.parametrize("end", ["\n", ""])
def test_ten_thousand_documents_are_enough(document: str, count: int, end: str) -> None:
    agree("---\n".join([document] * count).rstrip("\n") + end, room=100_000)


@pytest.mark.parametrize("line", ["", "# c", "  ", "a: 1\n---", "\t"])
def test_a_long_beginning_without_meaning_is_no_document(line: str) -> None:
    agree(f"{line}\n" * 20_000 + "---\na: 1\n", room=10_000)
    agree(f"{line}\n" * 20_000, room=10_000)


def test_the_meter_runs_alike() -> None:
    text = "---\n".join([write_yaml(BUDGET)] * 4)
    for room in range(0, 260, 3):
        agree(text, room)


def test_too_many_values_are_not_read_twice(events_read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(yaml_lines, "taken_apart", lambda line: seen.append(line) or NOTHING)
    text = "".join(f"k{number}: v\n" for number in range(40_000))
    assert "more than 30000 keys and values" in str(outcome(yaml_lines, text))
    assert (seen, events_read) == ([], [text])
