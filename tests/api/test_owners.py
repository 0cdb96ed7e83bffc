"""Owners and ACL patterns: whole owners, segment by segment, never a regex."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.api.owners import is_below, is_owner, is_pattern, matches

SEGMENT = st.text("abc-0", min_size=1, max_size=4)
OWNER = st.lists(SEGMENT, min_size=1, max_size=5).map(":".join)
PATTERN = st.lists(st.one_of(SEGMENT, st.just("*")), min_size=1, max_size=5).map(":".join)


@pytest.mark.parametrize(
    ("pattern", "owner", "answer"),
    [
        ("org:ai:*", "org:ai:rai", True),
        ("org:ai:*", "org:ai:rai:sys", True),
        ("org:ai:*", "org:ai", False),
        ("org:ai:*", "org:aix:y", False),
        ("org:ai:*", "org:aix", False),
        ("org:ai:*", "xorg:ai:y", False),
        ("*", "org", True),
        ("*", "org:ai:rai", True),
        ("org:*:sys", "org:ai:sys", True),
        ("org:*:sys", "org:sys", False),
        ("org:*:sys", "org:ai:rai:sys", False),
        ("org:*:sys", "org:ai:sys:x", False),
        ("org:*:*", "org:ai:rai", True),
        ("org:*:*", "org:ai:rai:sys", True),
        ("org:*:*", "org:ai", False),
        ("*:*", "org", False),
        ("*:*", "org:ai", True),
        ("*:ai", "org:ai", True),
        ("*:ai", "org:x:ai", False),
        ("org:ai", "org:ai", True),
        ("org:ai", "org:ai:rai", False),
        ("org:ai", "org", False),
        # Malformed: nobody is let in by a typing error, and no character means anything but itself.
        ("org:a*", "org:ai", False),
        ("org:.*", "org:ai", False),
        ("org:?i", "org:ai", False),
        ("org:[a-z]i", "org:ai", False),
        ("org:**", "org:ai", False),
        ("", "org", False),
        ("*", "", False),
        ("*", "Org", False),
        ("*", "org:*", False),
        ("org:ai\n", "org:ai", False),
        ("org:*", "org:ai\n", False),
    ],
)
def test_pattern_matches(pattern: str, owner: str, answer: bool) -> None:
    assert matches(pattern, owner) is answer


@pytest.mark.parametrize(
    ("text", "owner", "pattern"),
    [
        ("org", True, True),
        ("org:ai:rai-2", True, True),
        ("-", True, True),
        ("org:*", False, True),
        ("*", False, True),
        ("", False, False),
        (":", False, False),
        ("org:", False, False),
        (":org", False, False),
        ("org::ai", False, False),
        ("Org", False, False),
        ("org.ai", False, False),
        ("org:ai ", False, False),
        ("orgé", False, False),
        ("org:a*", False, False),
        ("a" * 63, True, True),
        ("a" * 64, False, False),
        (":".join("a" * 32), True, True),
        (":".join("a" * 33), False, False),
        (":".join(["a" * 63] * 3 + ["a" * 61]), True, True),
        (":".join(["a" * 63] * 4), False, False),
    ],
)
def test_grammar(text: str, owner: bool, pattern: bool) -> None:
    assert (is_owner(text), is_pattern(text)) == (owner, pattern)


@pytest.mark.parametrize(
    ("owner", "ancestor", "answer"),
    [
        ("org:ai", "org", True),
        ("org:ai:rai", "org", True),
        ("org", "org", False),
        ("org", "org:ai", False),
        ("orgx:ai", "org", False),
        ("org:aix", "org:ai", False),
        ("org:ai", "", False),
    ],
)
def test_below_is_by_segments(owner: str, ancestor: str, answer: bool) -> None:
    assert is_below(owner, ancestor) is answer


@given(OWNER, OWNER)
def test_a_final_star_is_everything_below(owner: str, ancestor: str) -> None:
    assert matches(f"{ancestor}:*", owner) is is_below(owner, ancestor)


@given(OWNER, OWNER)
def test_an_owner_as_pattern_is_itself_alone(one: str, other: str) -> None:
    assert matches(one, other) is (one == other)


@given(PATTERN, OWNER)
def test_matching_agrees_with_the_definition(pattern: str, owner: str) -> None:
    """The rule of SPEC 2 spelled out, one segment at a time."""

    def walk(wanted: list[str], given_: list[str]) -> bool:
        if not wanted or not given_:
            return not wanted and not given_
        if wanted == ["*"]:
            return True
        return wanted[0] in ("*", given_[0]) and walk(wanted[1:], given_[1:])

    assert matches(pattern, owner) is walk(pattern.split(":"), owner.split(":"))


@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_that_is_typed_raises_or_matches_by_accident(pattern: str, owner: str) -> None:
    if matches(pattern, owner):
        assert is_pattern(pattern)
        assert is_owner(owner)
