"""The outsider's script (docs/verify_draw.py): it agrees with the engine, shares nothing with it, and is short."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tenure.engine.lottery import check, verify
from tests.engine.lottery_records import (
    AUDITOR,
    OPERATOR,
    TAMPERING,
    Record,
    as_json,
    drawn,
    forge,
    good_record,
    random_intent,
)

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "verify_draw.py"
PAGE = ROOT / "docs" / "concepts" / "lottery.md"
PUBLISHED = {"operator": OPERATOR[0].hex(), "auditor": AUDITOR[0].hex()}


def _load() -> Any:
    spec = spec_from_file_location("verify_draw", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPTED = _load()


def script_says(record: Record, **known: str) -> list[str]:
    """What the script finds wrong. A record it cannot even read ends it with an error, which is a refusal too."""
    try:
        return list(SCRIPTED.wrong(**json.loads(json.dumps(record)), known=known))
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        return [repr(fault)]


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -I: an interpreter that knows the standard library and nothing of ours.
    command = [sys.executable, "-I", str(SCRIPT), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_it_is_short_and_needs_only_the_standard_library() -> None:
    source = SCRIPT.read_text()
    assert len(source.splitlines()) <= 30
    assert max(map(len, source.splitlines())) <= 120
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= sys.stdlib_module_names


def test_script_and_engine_agree_on_ten_thousand_draws() -> None:
    luck = Random(20251101)
    lengths = set()
    for _ in range(10_000):
        frozen = random_intent(luck)
        result = drawn(frozen)
        lengths.add(len(result.order))
        assert script_says(as_json(frozen, result)) == []
        assert verify(frozen, result) == []
    assert lengths == set(range(13))


def test_neither_accepts_the_order_of_another_draw() -> None:
    luck = Random(1)
    for _ in range(300):
        frozen, other = random_intent(luck), random_intent(luck)
        record = as_json(frozen, drawn(frozen)) | {"result": as_json(other, drawn(other))["result"]}
        assert script_says(record)
        assert check(record)


def test_the_record_that_is_tampered_with_below_is_good() -> None:
    assert check(good_record()) == []
    assert script_says(good_record()) == []
    assert len(TAMPERING) >= 20


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_refused_by_both_and_named_by_the_engine(kind: str) -> None:
    tamper, code = TAMPERING[kind]
    record = tamper(good_record())
    assert json.dumps(record) != json.dumps(good_record())
    findings = check(record)
    assert findings[0].code == code
    assert all(finding.sentence.endswith(".") for finding in findings)
    assert script_says(record)


def test_a_forged_pool_is_seen_by_whoever_knows_the_commit_in_the_ledger() -> None:
    record = good_record()
    frozen = record["result"]["commit"]
    del record["intent"]["tokens"][0]
    forge(record)
    # By itself it is a perfect record: that is why the commit goes into the ledger before the reveal.
    assert check(record) == []
    assert script_says(record) == []
    assert [finding.code for finding in check(record, frozen=frozen)] == ["NotFrozen"]
    assert script_says(record, commit=frozen) == ["frozen"]
    assert check(good_record(), frozen=frozen) == []
    assert script_says(good_record(), commit=frozen) == []


def test_a_chain_of_ones_own_is_seen_by_whoever_knows_the_published_value() -> None:
    record = good_record()
    record["intent"]["beacons"][0]["previous"] = AUDITOR[6].hex()
    record["result"]["reveals"]["operator"] = AUDITOR[7].hex()
    forge(record)
    assert check(record) == []
    assert script_says(record) == []
    assert [finding.code for finding in check(record, published=PUBLISHED)] == ["ForeignChain"]
    assert script_says(record, **PUBLISHED) == ["published"]
    assert check(good_record(), published=PUBLISHED) == []
    assert script_says(good_record(), **PUBLISHED) == []


def test_a_beacon_that_was_told_of_and_is_not_there_is_not_passed_over() -> None:
    told = {"operater": OPERATOR[0].hex()}
    assert script_says(good_record(), **told) == ["published"]
    [finding] = check(good_record(), published=told)
    assert (finding.code, finding.subject, finding.expected) == ("BeaconLeftOut", '"operater"', told["operater"])


def test_on_the_command_line_it_says_ok_and_exits_with_0(tmp_path: Path) -> None:
    text = json.dumps(good_record())
    path = tmp_path / "record.json"
    path.write_text(text)
    commit, published = good_record()["result"]["commit"], f"operator={OPERATOR[0].hex()}"
    for done in (run_script(text), run_script("", str(path)), run_script("", str(path), f"commit={commit}", published)):
        assert (done.returncode, done.stdout, done.stderr) == (0, "OK\n", "")


@pytest.mark.parametrize("kind", ["victims exchanged", "a reveal withheld", "no result", "a number as text"])
def test_on_the_command_line_it_refuses_and_exits_with_1(kind: str) -> None:
    done = run_script(json.dumps(TAMPERING[kind][0](good_record())))
    assert done.returncode == 1
    assert "OK" not in done.stdout
    assert done.stderr


def test_what_a_record_says_cannot_steer_the_terminal() -> None:
    record = good_record()
    record["result"]["\x1b[2J"] = "x"
    done = run_script(json.dumps(record))
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    assert "\x1b" not in "".join(finding.sentence for finding in check(record))


def test_the_example_in_the_docs_holds() -> None:
    page = PAGE.read_text()
    record = json.loads(re.findall(r"```json\n(\{.*?\n)```", page, re.DOTALL)[0])
    commit = record["result"]["commit"]
    published = re.findall(r"operator=([0-9a-f]{64})", page)[0]
    assert check(record, frozen=commit, published={"operator": published}) == []
    assert script_says(record, commit=commit, operator=published) == []
    assert f"commit={commit}" in page

    # The sed on the page gives rai/b to another owner.
    next(token for token in record["intent"]["tokens"] if token["id"] == "rai/b")["owner"] = "org:b"
    assert f"WRONG: {', '.join(map(ascii, script_says(record)))}\n" in page
