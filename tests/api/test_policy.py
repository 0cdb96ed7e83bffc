"""Policy: every key of SPEC 14 with its default, unknown keys refused."""

import pytest

from tenure.api.decode import read_policy
from tenure.api.meta import to_wire
from tenure.api.policy import Policy
from tenure.api.validate import check_policy

SPEC_DEFAULTS = {
    "activationLead": "15m",
    "budgetGrace": "15m",
    "onBudgetShortage": "Resolve",
    "lookahead": "1h",
    "growInterval": "1m",
    "patience": "24h",
    "promiseDepth": 64,
    "promiseSlack": "0%",
    "unreadyIsFailure": False,
    "unreadyDebounce": "5m",
    "notices": [80, 90, 100],
    "retryBackoff": "1s",
    "retryBackoffMax": "10m",
    "bindDelay": "0s",
    "stopDelay": "0s",
    "drawSecret": "",
}


def test_the_defaults_are_those_of_the_spec() -> None:
    wire = to_wire(Policy())
    assert {key: wire[key] for key in SPEC_DEFAULTS} == SPEC_DEFAULTS
    assert set(wire) - set(SPEC_DEFAULTS) == {"topologyLabels", "gpuResource"}


def test_the_defaults_are_good() -> None:
    assert check_policy(Policy()) == []


@pytest.mark.parametrize("text", ["", "# all defaults\n", "{}", SPEC_DEFAULTS, {}])
def test_what_is_left_out_has_its_default(text: object) -> None:
    assert read_policy(text) == (Policy(), ())


def test_text_and_tree_are_read_alike() -> None:
    wanted = (Policy(activation_lead="1m", notices=(50,)), ())
    assert read_policy("activationLead: 1m\nnotices: [50]\n") == wanted
    assert read_policy(b'{"activationLead": "1m", "notices": [50]}') == wanted
    assert read_policy({"activationLead": "1m", "notices": [50]}) == wanted


@pytest.mark.parametrize(
    ("tree", "at"),
    [
        ({"activationLed": "1m"}, "activationLed"),
        ({"activationLead": "soon"}, "activationLead"),
        ({"activationLead": 15}, "activationLead"),
        ({"activationLead": "-1m"}, "activationLead"),
        ({"onBudgetShortage": "Panic"}, "onBudgetShortage"),
        ({"unreadyIsFailure": "no"}, "unreadyIsFailure"),
        ({"promiseDepth": 0}, "promiseDepth"),
        ({"promiseDepth": 1025}, "promiseDepth"),
        ({"promiseDepth": "64"}, "promiseDepth"),
        ({"promiseSlack": "51%"}, "promiseSlack"),
        ({"promiseSlack": "-1%"}, "promiseSlack"),
        ({"promiseSlack": "10"}, "promiseSlack"),
        ({"promiseSlack": 10}, "promiseSlack"),
        ({"notices": [0]}, "notices[0]"),
        ({"notices": [101]}, "notices[0]"),
        ({"notices": [True]}, "notices[0]"),
        ({"notices": [80, 80]}, "notices"),
        ({"notices": list(range(1, 102))}, "notices"),
        ({"growInterval": "0s"}, "growInterval"),
        ({"retryBackoff": "0s"}, "retryBackoff"),
        ({"retryBackoff": "1h"}, "retryBackoffMax"),
        ({"drawSecret": "x"}, "drawSecret"),
        ({"topologyLabels": {"row": "row"}}, "topologyLabels.row"),
        ({"topologyLabels": {"rack": "not a key"}}, "topologyLabels.rack"),
        ({"gpuResource": ""}, "gpuResource"),
        ([], ""),
    ],
)
def test_a_bad_key_is_refused(tree: object, at: str) -> None:
    policy, errors = read_policy(tree)
    assert [error.path for error in errors] == [at]
    assert policy == Policy()


def test_zero_delays_and_no_notices_are_fine() -> None:
    assert read_policy({"notices": [], "activationLead": "0s", "retryBackoffMax": "1s"})[1] == ()


def test_both_ends_of_depth_and_slack_are_fine() -> None:
    assert read_policy({"promiseDepth": 1, "promiseSlack": "50%"})[1] == ()
    assert read_policy({"promiseDepth": 1024, "promiseSlack": "0%"})[1] == ()


def test_the_simulator_alone_has_a_draw_secret() -> None:
    policy, errors = read_policy({"drawSecret": "x"}, simulated=True)
    assert (policy.draw_secret, errors) == ("x", ())


def test_all_errors_come_at_once_and_the_key_that_was_meant_is_guessed() -> None:
    _, errors = read_policy("activationLed: 1m\nlookahead: never\n")
    assert [error.path for error in errors] == ["activationLed", "lookahead"]
    assert errors[0].sentence() == "policy: activationLed: unknown field; did you mean activationLead?"


def test_one_policy_a_file() -> None:
    assert read_policy("{}\n---\nlookahead: 1h\n")[1][0].problem == "several documents"
