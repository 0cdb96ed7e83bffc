"""An event is a CloudEvent, says what the note said, and can hurt nobody who reads it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tenure.notify import KINDS
from tenure.notify.event import OPENING, body
from tests.notify.support import NOW, letter

SOURCE = Path(__file__).parents[2] / "src" / "tenure"
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "notifications.md"
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def test_an_event_has_the_attributes_of_cloudevents_1_0() -> None:
    assert json.loads(body(letter(), fleet="lab")) == {
        "specversion": "1.0",
        "id": "lab.7.2.9f86d081",
        "source": "/tenure/fleets/lab",
        "type": "io.davidlangworthy.rq.Started",
        "subject": "Run/rai/train",
        "time": "2025-11-01T00:00:00Z",
        "datacontenttype": "application/json",
        "partitionkey": "Run/rai/train",
        "sequence": "0000000000000007.000002",
        "data": {
            "kind": "Started", "object": "Run/rai/train", "reason": "Bound", "message": "Every pod is bound.",
            "entry": 7, "owner": "org:ai:rai",
        },
    }  # fmt: skip


def test_an_object_of_nobody_has_no_owner_in_its_event() -> None:
    assert "owner" not in json.loads(body(letter(object="Node/n1", owner=""), fleet="lab"))["data"]


def test_sequences_sort_as_text_in_the_order_of_the_ledger() -> None:
    places = [(1, 0), (1, 2), (1, 10), (2, 0), (10, 0), (999_999, 5)]
    found = [json.loads(body(letter(seq=seq, idx=idx), fleet="lab"))["sequence"] for seq, idx in places]
    assert found == sorted(found)


def test_control_characters_are_escaped_and_an_event_stays_one_line() -> None:
    hostile = 'x\x1b[2J\r\n\x00\x7f\x85\u2028\u202e"\\ é'
    event = body(letter(message=hostile, object=f"Run/rai/{hostile}", kind=f"Started{hostile}"), fleet="lab")
    assert all(0x20 <= byte < 0x7F for byte in event)
    assert json.loads(event)["data"]["message"] == hostile
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u202e]", json.loads(event)["subject"] + json.loads(event)["type"])


@given(kind=ANY_TEXT, about=ANY_TEXT, reason=ANY_TEXT, message=ANY_TEXT, owner=ANY_TEXT)
def test_whatever_a_note_says_comes_through_unchanged(
    kind: str, about: str, reason: str, message: str, owner: str
) -> None:
    event = body(letter(kind=kind, object=about, reason=reason, message=message, owner=owner), fleet="lab")
    data = json.loads(event)["data"]
    assert event.startswith(OPENING)
    assert all(0x20 <= byte < 0x7F for byte in event)
    assert (data["kind"], data["object"], data["reason"], data["message"]) == (kind, about, reason, message)
    assert data.get("owner", "") == owner


def test_the_same_note_gives_the_same_bytes() -> None:
    assert body(letter(), fleet="lab") == body(letter(), fleet="lab")
    assert body(letter(at=NOW + 1), fleet="lab") != body(letter(), fleet="lab")


def test_every_kind_of_note_that_the_code_makes_is_known_and_documented() -> None:
    made = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                made |= kinds_of(node)
    assert {"Started", "Failed", "BudgetNotice", "Accepted"} <= made
    assert made <= set(KINDS), "give the kind a line in tenure.notify.event.KINDS, and in docs/guide/notifications.md"
    assert re.findall(
        r"^\| `(\w+)` \|", GUIDE.read_text().split("## Which events")[1].split("\n## ")[0], re.MULTILINE
    ) == [*KINDS]


def kinds_of(call: ast.Call) -> set[str]:
    """The constants that a call of ``turn.note(kind, ...)`` or ``Noted(kind=...)`` may have as its kind."""
    name = ast.unparse(call.func)
    if name.endswith(".note") and call.args:
        kind = call.args[0]
    elif name == "Noted":
        kind = next((keyword.value for keyword in call.keywords if keyword.arg == "kind"), call.func)
    else:
        return set()
    values = [kind.body, kind.orelse] if isinstance(kind, ast.IfExp) else [kind]
    return {value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)}
