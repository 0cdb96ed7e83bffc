"""YAML and JSON: read alike, without the traps of either."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.api.text import parse
from tenure.api.yaml_write import write_yaml


def only(text: str | bytes) -> object:
    parsed = parse(text)
    assert parsed.errors == ()
    (tree,) = parsed.trees
    return tree


def refusal(text: str | bytes) -> tuple[str, str]:
    parsed = parse(text, source="file.yaml")
    assert parsed.trees == ()
    (error,) = parsed.errors
    assert error.object == "file.yaml"
    return error.path, error.problem


@pytest.mark.parametrize(
    ("written", "read"),
    [
        # YAML 1.1 has these as booleans, sexagesimals, timestamps, octals; the core schema of 1.2 has not.
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("Off", "Off"),
        ("y", "y"),
        ("12:30:45", "12:30:45"),
        ("2025-11-01", "2025-11-01"),
        ("2025-11-01T00:00:00Z", "2025-11-01T00:00:00Z"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("010", 10),
        ("0o10", 8),
        ("0x10", 16),
        ("+7", 7),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.", "-."),
        ("-", None),  # an empty item of a list, see below
        ("true", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("null", None),
        ("~", None),
        ("", None),
        ('"1"', "1"),
        ("'true'", "true"),
        ("|\n  two\n  lines\n", "two\nlines\n"),
        ("=", "="),
        ("0x", "0x"),
        ("1e", "1e"),
        ("\u0661", "\u0661"),  # a digit, but not ours
    ],
)
def test_a_scalar_is_what_it_looks_like(written: str, read: object) -> None:
    if written == "-":
        assert only("a:\n-") == {"a": [None]}
        return
    tree = only(f"a: {written}")
    assert tree == {"a": read}
    assert type(tree["a"]) is type(read)  # type: ignore[index]  # a mapping, as the line above shows


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("a: &x 1\nb: *x", "line 1, column 4", "a YAML anchor"),
        ("a: *x", "line 1, column 4", "a YAML alias"),
        ("&a [*a]", "line 1, column 1", "a YAML anchor"),
        ("a: !!python/object:os.system x", "line 1, column 4", "a YAML tag"),
        ("a: !!str 1", "line 1, column 4", "a YAML tag"),
        ("a: !x {}", "line 1, column 4", "a YAML tag"),
        ("<<: {a: 1}\nb: 2", "line 1, column 1", "a YAML merge key"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1", "a appears twice"),
        ("x:\n- b: {c: 1, c: 2}", "line 2, column 13", "x[0].b.c appears twice"),
        ("1: a", "line 1, column 1", "a key that is not a string"),
        ("true: a", "line 1, column 1", "a key that is not a string"),
        ("null: a", "line 1, column 1", "a key that is not a string"),
        ("[a]: b", "line 1, column 1", "a key that is not a string"),
        ("? {a: 1}\n: b", "line 1, column 3", "a key that is not a string"),
        ("a: .nan", "line 1, column 4", ".nan is not a finite number"),
        ("a: -.INF", "line 1, column 4", "-.INF is not a finite number"),
        ("a: 1e999", "line 1, column 4", "1e999 is not a finite number"),
        ("a: " + "9" * 401, "line 1, column 4", "a number of more than 400 digits"),
        ('{"a": NaN}', "", "NaN is not a finite number"),
        ('{"a": -Infinity}', "", "-Infinity is not a finite number"),
        ('{"a": 1e999}', "", "1e999 is too large a number"),
        ('{"a": ' + "9" * 5000 + "}", "", "holds a number of more than 4300 digits"),
        (
            '{"a": [{"b": 1, "c": 2, "b": 3}]}',
            "a[0]",
            'the key "b" appears twice in the object with the keys b, c',
        ),
        ("a: [1", "line 2, column 1", "neither YAML nor JSON: while parsing a flow sequence did not find"),
        (
            "a: b: c",
            "line 1, column 5",
            "neither YAML nor JSON: mapping values are not allowed in this context",
        ),
        ('{"a": ' + '"b' * 3000, "line 1, column", "neither YAML nor JSON"),
        ("a:\tb\n\tc: d", "line 2, column 1", "neither YAML nor JSON"),
        ("\ufeffa: 1", "line 1, column 1", "begins with a byte order mark"),
        ("a: \x1b[31m", "line 1, column 4", "holds the control character U+001B"),
        ("a: b\n\x00", "line 2, column 1", "holds the control character U+0000"),
        ("a: \ud800", "line 1, column 4", "half of a surrogate pair"),
        (b"a: \xff\xfe", "", "not UTF-8: byte 0xff at offset 3"),
        ("a: 1".encode("utf-16"), "", "not UTF-8: byte 0xff at offset 0"),
        (b"\xef\xbb\xbfa: 1", "line 1, column 1", "begins with a byte order mark"),
    ],
    ids=lambda each: ascii(each)[:40],
)
def test_what_is_refused_says_where_and_why(text: str | bytes, where: str, problem: str) -> None:
    path, said = refusal(text)
    assert path.startswith(where)
    assert said.startswith(problem)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert only('"<<": 1') == {"<<": 1}


def test_json_and_flow_yaml_are_told_apart() -> None:
    assert only('{"a": [1, 2.5, "x", null, true]}') == {"a": [1, 2.5, "x", None, True]}
    assert only("{a: [1, no, null]}") == {"a": [1, "no", None]}
    assert only('{"a": [1, 2,]}') == {"a": [1, 2]}  # a trailing comma is YAML
    assert only('{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}  # YAML has no surrogate pairs, JSON has
    assert only("[]") == []


def test_a_broken_json_file_is_called_json() -> None:
    text = json.dumps({"a": ["x" * 50] * 200})[:-1]
    path, problem = refusal(text)
    assert path.startswith("line 1, column 10")
    assert problem == "not JSON: Expecting ',' delimiter"


def test_documents_and_comments() -> None:
    assert parse("# one\na: 1\n---\n# nothing\n---\nb: 2\n...\n").trees == ({"a": 1}, {"b": 2})
    assert parse("").trees == ()
    assert parse("\n# only words\n").trees == ()


def test_json_keys_in_any_order_and_depth_below_the_limit() -> None:
    text = "[" * 32 + "]" * 32
    assert only(text) is not None
    assert only("a: " + "[" * 31 + "]" * 31) is not None
    assert refusal("[" * 33 + "]" * 33)[1] == "nested more than 32 deep"
    assert refusal("a: " + "[" * 32 + "]" * 32)[1] == "nested more than 32 deep"


def test_the_size_limit_is_in_bytes() -> None:
    mib = 1024 * 1024
    assert only("a" * mib) == "a" * mib
    assert only("é" * (mib // 2)) == "é" * (mib // 2)
    for text in ("a" * (mib + 1), b"a" * (mib + 1), "é" * (mib // 2 + 1)):
        assert refusal(text)[1] == "more than the 1048576 bytes that are read"


@pytest.mark.parametrize(
    "text", ["08", "1e3", "0o7", "no", "12:30", "~", "", "=", "<<", "- a", "a: b", "a\nb\n", " x", "#"]
)
def test_what_is_written_as_yaml_reads_back_as_the_same_string(text: str) -> None:
    assert only(write_yaml({"a": text, "b": [text]})) == {"a": text, "b": [text]}


PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=12)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    PRINTABLE,
    st.from_regex(r"[-+.0-9exo_:]{1,6}", fullmatch=True),
)


@given(st.dictionaries(PRINTABLE, st.one_of(PLAIN, st.lists(PLAIN, max_size=3)), max_size=4))
def test_yaml_written_here_is_read_here(tree: dict[str, object]) -> None:
    assert parse(write_yaml(tree)).trees == (tree,)
