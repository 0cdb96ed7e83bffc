"""What the reading verbs say about a fleet on which things have happened, to people and to programs."""

import json
from pathlib import Path

import pytest
import yaml
from inline_snapshot import snapshot

from tenure.cli import output
from tenure.cli.view import StateView
from tenure.cli.words import span
from tenure.testing import Fleet, budget, namespace, node, run
from tenure.units import DAY, HOUR, MINUTE, SECOND
from tests.cli.support import call, still

READING = {
    "list": ["list", "-A"],
    "describe": ["describe", "rai/a-train"],
    "explain": ["explain", "rai/e-giant"],
    "history": ["explain", "rai/b-flaky", "--history"],
    "who-pays": ["who-pays", "rai/c-eval"],
    "leases": ["leases"],
    "pods": ["pods", "-A"],
    "nodes": ["nodes"],
    "slots": ["nodes", "--slots"],
    "budgets list": ["budgets", "list"],
    "budgets usage": ["budgets", "usage"],
    "budgets usage --by": ["budgets", "usage", "--by", "run"],
    "budgets lent": ["budgets", "lent", "org:ai:vision"],
    "sponsors list": ["sponsors", "list", "rai/c-eval"],
    "chargeback": ["chargeback", "--by", "run", "--since", "1d"],
}


def test_list_says_what_became_of_every_run(past: Path) -> None:
    assert still(call("runs", "list", "-A", fleet=past).out) == snapshot("""\
NAMESPACE NAME PHASE GPUS OWNER AGE WHY
rai a-train Completed 0/8 org:ai:rai AGE 2 pods succeeded.
rai b-flaky Completed 0/2 org:ai:rai AGE 1 pod succeeded.
rai c-eval Completed 0/8 org:ai:rai AGE 1 pod succeeded.
rai d-later Completed 0/12 org:ai:rai AGE 2 pods succeeded.
rai e-giant Blocked 0/64 org:ai:rai AGE rai/west allows 14 GPUs at once; 14 are in use and 64 were asked: 64 too many.
""")


def test_every_length_of_time_is_an_age_to_who_holds_text_against_text() -> None:
    lengths = [number * unit for unit in (SECOND, MINUTE, HOUR, DAY) for number in (0, 1, 59, 60, 61, 119, 7199)]
    assert {still(f"(in {span(length)})") for length in lengths} == {"(in AGE)"}


def test_list_shows_one_namespace_and_says_where_the_others_are(past: Path) -> None:
    done = call("runs", "list", fleet=past)
    assert (done.code, done.out) == (0, "")
    assert done.err == "no runs in namespace default; 5 runs in all namespaces: kubectl-runs list -A\n"
    assert len(call("runs", "list", "-n", "rai", fleet=past).out.splitlines()) == 6


def test_a_namespace_whose_name_begins_like_anothers_is_another() -> None:
    fleet = Fleet(node("n0"), budget("a"))
    for space in ("lab", "labs", "la"):
        fleet.apply(namespace(space), run("train", 1, owner="org:a", namespace=space))
    view = StateView(fleet.state, now=fleet.now)
    assert [line.key for line in view.lines("lab")] == ["lab/train"]
    assert [line.key for line in view.lines()] == ["la/train", "lab/train", "labs/train"]
    assert view.lines("nowhere") == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--phase", "Completed"], "a-train b-flaky c-eval d-later"),
        (["--phase", "pending"], "e-giant"),
        (["--phase", "blocked"], "e-giant"),
        (["--phase", "stopping"], ""),
        (["--sort", "oldest"], "a-train b-flaky c-eval d-later e-giant"),
        (["--phase", "pending", "--phase", "failed"], "e-giant"),
        (["--owner", "org:ai"], "a-train b-flaky c-eval d-later e-giant"),
        (["--owner", "org:a"], ""),
        (["--sort", "gpus"], "e-giant d-later a-train c-eval b-flaky"),
    ],
)
def test_list_can_be_narrowed_and_sorted(past: Path, words: list[str], names: str) -> None:
    done = call("runs", "list", "-n", "rai", *words, "-o", "name", fleet=past)
    assert done.out.split() == [f"rai/{name}" for name in names.split()]


def test_describe_has_everything_on_one_screen(past: Path) -> None:
    assert still(call("runs", "describe", "rai/a-train", fleet=past).out) == snapshot("""\
Run: rai/a-train
Owner: org:ai:rai
Phase: Completed
Why: 2 pods succeeded.
GPUs: 0 of 8 H100 (pods of 4)
Attempt: a1 (0 of 0 restarts used)
Created: TIME (AGE ago)
Started: TIME (AGE ago)
Expected: AGE
Driven: no: nothing starts or stops until tenure up FLEET

Conditions
TYPE STATUS REASON SINCE MESSAGE
Admitted True Admitted TIME 8 GPUs on 1 node, paid by rai/west (8 owned).
Completed True Completed TIME 2 pods succeeded.
Running False Completed TIME 2 pods succeeded.
Scheduled True Started TIME 2 pods bound: it runs.

Who pays
PAYER CLASS ENVELOPE GPUS GPU-HOURS SHARE
org:ai:rai owned rai/west 0 N.NN 100%

Leases: 0 open, 1 closed
RUN NODE GPUS ROLE PAID-BY START END CLOSED
rai/a-train b-0 0-7 Active rai/west TIME TIME Completed

Pods
none now

Events
AT AGO EVENT REASON MESSAGE
TIME AGE Admitted Admitted 8 GPUs on 1 node, paid by rai/west (8 owned).
TIME AGE Started Started 2 pods bound: it runs.
TIME AGE Completed Completed 2 pods succeeded.
""")


def test_who_pays_splits_by_payer_and_class(past: Path) -> None:
    assert still(call("runs", "who-pays", "rai/c-eval", fleet=past).out) == snapshot("""\
Run/rai/c-eval (Completed), of org:ai:rai, since TIME (AGE ago)
N.NN GPU-hours: N.NN owned (50%), N.NN borrowed (50%); 1 attempt
PAYER CLASS ENVELOPE GPUS GPU-HOURS SHARE
org:ai:rai owned rai/west 0 N.NN 50%
org:ai:vision borrowed vision/west 0 N.NN 50%
TOTAL - - 0 N.NN 100%
""")


def test_who_pays_for_a_run_that_never_held_a_gpu(past: Path) -> None:
    done = call("runs", "who-pays", "rai/e-giant", fleet=past)
    assert done.out == "Run/rai/e-giant has not held a GPU yet: nobody has paid anything.\n"


def test_explain_shows_the_whole_walk_of_a_run_that_waits(past: Path) -> None:
    assert still(call("runs", "explain", "rai/e-giant", fleet=past).out) == snapshot("""\
Run/rai/e-giant waits for a driver (tenure up FLEET); if it were driven now, it can never start as things are
Why: rai/west allows 14 GPUs at once; 0 are in use and 64 were asked: 50 too many. [ConcurrencyCapExceeded]
Helps: Waiting does not help: ask for less, or have the limit raised.
Decision: computed now

What else could be asked for
KIND START STARTS-IN CONFIDENCE GPUS GPU-HOURS BORROWED REQUEST
narrower TIME now now 8 - 0 8 GPUs instead of 64

Who could pay: 1 envelope visited
TIER RELATION ENVELOPE OWNER CLASS OFFERED TAKEN WHY NOT MORE
1 owner rai/west org:ai:rai owned 14 0 rai/west allows 14 GPUs at once; 0 are in use and 64 were asked: 50 too many.

Where it could go
0 of 1 place fits: 1 not paid in full (at most 14 of 64 GPUs).
PLACE FREE OWNED SHARED BORROWED DOMAINS OUTCOME
west/lab 24 14 0 0 - money for 14 of 64 GPUs
""")


def test_explain_shows_the_recorded_decision_of_a_run_that_started(past: Path) -> None:
    assert still(call("runs", "explain", "rai/c-eval", fleet=past).out) == snapshot("""\
Run/rai/c-eval is over: it completed
GPUs: 8 in west/lab/A
Paid by: rai/west (4 owned, org:ai:rai), vision/west (4 borrowed, org:ai:vision)
Decision: recorded in entry 6, TIME (AGE ago), plan HASH
Now: Completed: 1 pod succeeded.

Who could pay: 2 envelopes visited; 8 GPUs were taken
TIER RELATION ENVELOPE OWNER CLASS OFFERED TAKEN WHY NOT MORE
1 owner rai/west org:ai:rai owned 4 4 rai/west allows 14 GPUs at once; 10 are in use and 8 were asked: 4 too many.
4 sponsor vision/west org:ai:vision borrowed 4 4 -

Where it could go
1 of 1 place fits.
PLACE FREE OWNED SHARED BORROWED DOMAINS OUTCOME
west/lab 14 4 0 4 1 fits
""")


def test_explain_shows_one_half_when_asked(past: Path) -> None:
    cover = call("runs", "explain", "rai/e-giant", "--cover", fleet=past).out
    place = call("runs", "explain", "rai/e-giant", "--placement", fleet=past).out
    assert "Who could pay" in cover
    assert "Where it could go" not in cover
    assert "Where it could go" in place
    assert "Who could pay" not in place


def test_the_history_of_decisions_tells_each_attempt(past: Path) -> None:
    rows = call("runs", "explain", "rai/b-flaky", "--history", "-o", "json", fleet=past).json["decisions"]
    outcomes = [one["verdict"]["outcome"] for one in rows]
    assert [one for one in outcomes if one != "wait"] == ["start", "start"]  # its place may be promised in between


def test_nodes_are_listed_with_their_room(past: Path) -> None:
    assert still(call("runs", "nodes", fleet=past).out) == snapshot("""\
NAME STATE TYPE GPUS HELD FREE REGION CLUSTER DOMAIN HELD-BY
a-0 Ready H100 8 0 8 west lab A -
a-1 Ready H100 8 0 8 west lab A -
b-0 Ready H100 8 0 8 west lab B -
3 machines, 24 GPUs: 0 held, 24 free
""")


def test_slots_count_the_gangs_that_fit(past: Path) -> None:
    assert call("runs", "nodes", "--slots", fleet=past).out == snapshot("""\
TYPE  REGION  CLUSTER  DOMAIN  FREE   1  2  4  8  16
H100  west    lab      A         16  16  8  4  2   1
H100  west    lab      B          8   8  4  2  1   0
""")


def test_budgets_are_listed_and_their_use_is_shown(past: Path) -> None:
    assert still(call("runs", "budgets", "list", fleet=past).out) == snapshot("""\
NAME OWNER ENVELOPES GPUS CAPS AGE PARENTS
rai org:ai:rai 1 14 0 AGE -
vision org:ai:vision 1 16 0 AGE -
""")
    assert still(call("runs", "budgets", "usage", "-o", "wide", fleet=past).out) == snapshot("""\
ENVELOPE OWNER TYPE LIMIT USED FREE SPARE LENT HOURS-USED COMMITTED LEFT OF EXHAUSTS
rai/west org:ai:rai H100 14 0 14 0 0 N.NN 0 N.NN 1000 -
vision/west org:ai:vision H100 16 0 16 0 0 N.NN 0 - - -
""")


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_every_reading_verb_answers_programs_in_json_and_yaml_alike(past: Path, words: list[str]) -> None:
    as_json, as_yaml = (call("runs", *words, "-o", form, fleet=past) for form in ("json", "yaml"))
    assert (as_json.code, as_yaml.code) == (0, 0)
    assert isinstance(as_json.json, dict)
    assert _shape(yaml.safe_load(as_yaml.out)) == _shape(as_json.json)


def _shape(value: object) -> object:
    """The keys of a tree and nothing else: instants and amounts grow while one looks."""
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    return [_shape(item) for item in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("words", READING.values(), ids=READING)
def test_a_table_has_blanks_inside_a_cell_only_in_the_last_column(
    past: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[output.Table | str] = []
    monkeypatch.setattr(output, "draw", lambda part, **_: drawn.append(part))
    assert call("runs", *words, fleet=past).code == 0
    tables = [part for part in drawn if isinstance(part, output.Table)]
    assert tables
    for table in tables:
        for row in [[column.name for column in table.columns], *table.rows]:
            texts = [cell if isinstance(cell, str) else cell[0] for cell in row]
            assert not any(" " in text for text in texts[:-1]), texts


def test_no_pipe_gets_colour_or_hints(past: Path) -> None:
    for words in READING.values():
        done = call("runs", *words, fleet=past)
        assert "\x1b" not in done.out + done.err
        assert "next:" not in done.err


def test_listed_objects_can_be_handed_in_again_and_change_nothing(used: Path) -> None:
    for verb in (["list", "-A"], ["budgets", "list"]):
        text = call("runs", *verb, "-o", "json", fleet=used).out
        done = call("runs", "submit", "-f", "-", "-o", "json", fleet=used, stdin=text)
        assert done.code == 0, done.err
        assert {one["change"] for one in done.json["objects"]} == {"unchanged"}


def test_json_is_whole_api_objects(past: Path) -> None:
    items = call("runs", "list", "-n", "rai", "-o", "json", fleet=past).json["items"]
    assert [(item["kind"], item["metadata"]["name"], item["status"]["phase"]) for item in items][0::4] == [
        ("Run", "a-train", "Completed"),
        ("Run", "e-giant", "Pending"),
    ]
    lease = call("runs", "leases", "--run", "rai/d-later", "-o", "json", fleet=past).json["items"][0]
    assert lease["apiVersion"] == "rq.davidlangworthy.io/v1"
    assert lease["status"]["closureReason"] == "Completed"


def test_names_are_what_the_next_command_takes(past: Path) -> None:
    for name in call("runs", "list", "-A", "-o", "name", fleet=past).out.split():
        assert call("runs", "describe", name, "-o", "name", fleet=past).out == f"{name}\n"


def test_every_answer_agrees_about_what_was_used(past: Path) -> None:
    """By run, by node, by owner, by envelope, by day, and by payer: exactly the same microseconds (I10)."""
    sums = {
        by: sum(
            one["gpuMicroseconds"]
            for one in call("runs", "budgets", "usage", "--by", by, "-o", "json", fleet=past).json["usage"]
        )
        for by in ("run", "node", "owner", "envelope", "payer", "day")
    }
    shares = [
        share
        for run in ("a-train", "b-flaky", "c-eval", "d-later")
        for life in call("runs", "who-pays", f"rai/{run}", "-o", "json", fleet=past).json["incarnations"]
        for share in life["payers"]
    ]
    assert set(sums.values()) == {sum(share["gpuMicroseconds"] for share in shares)}
    assert sums["run"] > 0


def test_sponsors_are_those_who_lent(past: Path) -> None:
    done = call("runs", "budgets", "usage", "--by", "sponsor", "-o", "name", fleet=past)
    assert done.out == "org:ai:vision\n"


def test_wide_json_carries_no_rounding(past: Path) -> None:
    used = call("runs", "budgets", "usage", "--by", "run", "-o", "json", fleet=past).json["usage"]
    for one in used:
        assert one["gpuHours"] == one["gpuMicroseconds"] / 3_600_000_000


def test_an_unprintable_character_stays_valid_json(past: Path) -> None:
    from tenure.cli.output import to_json

    text = to_json({"name": "a\x1b[31m\x9b\u202eb\n"})
    assert json.loads(text) == {"name": "a\x1b[31m\x9b\u202eb\n"}
    assert text.isascii()
