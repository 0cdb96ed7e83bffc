"""The notify file: what it may say, and every way to get it wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenure.notify import NotifyConfig, missing, read_notify
from tenure.notify.config import File, Http, Stdout, object_matches
from tenure.notify.file import HeaderSource, ReceiverSpec
from tenure.units import MINUTE, SECOND

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "notify.yaml"
GUIDE = ROOT / "docs" / "guide" / "notifications.md"
NO_TARGET = "receivers[0]: names none of them as its target; write exactly one of url, file, stdout"


def read(text: str, folder: Path = Path("etc")) -> NotifyConfig:
    config, errors = read_notify(text, folder=folder)
    assert errors == ()
    assert config is not None
    return config


def wrong(*receivers: str) -> list[str]:
    """The errors of a file with these receivers, without the name of the file."""
    text = "kind: Notify\nreceivers:\n" + "".join(f"- {each}\n" for each in receivers)
    config, errors = read_notify(text, folder=Path("etc"))
    assert config is None
    return [error.sentence().removeprefix("notify file: ") for error in errors]


def test_the_example_is_right() -> None:
    config = read(EXAMPLE.read_text())
    assert {type(each.to) for each in config.receivers} == {Http, File, Stdout}


def test_a_receiver_by_http_has_defaults_that_are_patient() -> None:
    [hook] = read("{kind: Notify, receivers: [{name: hook, url: 'https://hooks.example.com'}]}").receivers
    assert isinstance(hook.to, Http)
    assert (hook.to.secure, hook.to.host, hook.to.port, hook.to.target) == (True, "hooks.example.com", 443, "/")
    assert hook.to.timeout == 10 * SECOND
    assert (hook.pace.attempts, hook.pace.backoff, hook.pace.backoff_max) == (8, SECOND, 5 * MINUTE)
    assert not hook.history


@pytest.mark.parametrize(
    ("url", "host", "port", "target"),
    [
        ("http://[::1]:8080/a/b?c=d", "::1", 8080, "/a/b?c=d"),
        ("HTTP://Example.com", "example.com", 80, "/"),
        ("http://h:81?x", "h", 81, "/?x"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, target: str) -> None:
    [hook] = read(f"{{kind: Notify, receivers: [{{name: hook, url: '{url}'}}]}}").receivers
    assert isinstance(hook.to, Http)
    assert (hook.to.host, hook.to.port, hook.to.target) == (host, port, target)


def test_paths_begin_at_the_folder_of_the_file() -> None:
    near, far = read(
        "{kind: Notify, receivers: [{name: a, file: events.jsonl}, {name: b, file: /var/log/events.jsonl}]}",
        Path("etc"),
    ).receivers
    assert near.to == File(path=Path("etc/events.jsonl"))
    assert far.to == File(path=Path("/var/log/events.jsonl"))


@pytest.mark.parametrize(
    ("receiver", "error"),
    [
        ("{name: a}", NO_TARGET),
        (
            "{name: a, file: x, stdout: true}",
            "receivers[0]: names file and stdout as its target; write exactly one of url, file, stdout",
        ),
        ("{name: a, stdout: false}", NO_TARGET),
        ("{name: a, file: ''}", 'receivers[0].file is "": not the path of a file; write one such as events.jsonl'),
        ("{name: a, stdout: true, attempts: 3}", "receivers[0].attempts: means nothing without url; leave it out"),
        ("{name: a, file: x, timeout: 1s}", "receivers[0].timeout: means nothing without url; leave it out"),
        (
            "{name: a, stdout: true, kinds: [Faild]}",
            'receivers[0].kinds[0] is "Faild": there are no such events; did you mean Failed?',
        ),
        (
            "{name: a, stdout: true, objects: [run/rai/train]}",
            'receivers[0].objects[0] is "run/rai/train": there are no objects of kind run; did you mean Run?',
        ),
        (
            "{name: a, stdout: true, objects: [Run/train]}",
            (
                'receivers[0].objects[0] is "Run/train": can match nothing; '
                "the name of a Run has 3 segments, its kind included"
            ),
        ),
        (
            "{name: a, stdout: true, objects: ['Run/rai/tr*']}",
            (
                'receivers[0].objects[0] is "Run/rai/tr*": not a pattern of objects; '
                "write whole segments, * for any: Run/rai/*, Budget/rai, Node/*, or *"
            ),
        ),
        (
            "{name: a, stdout: true, owners: ['org:a*']}",
            (
                'receivers[0].owners[0] is "org:a*": not a valid owner pattern; write an owner in which whole '
                "segments may be *, such as org:ai:* or org:*:sys, or * for everyone"
            ),
        ),
        ("{name: a, stdout: true, kind: [Failed]}", "receivers[0].kind: unknown field; did you mean kinds?"),
        (
            "{name: a, stdout: true, backoff: 1h, backoffMax: 1m}",
            'receivers[0].backoffMax is "1m": shorter than backoff; make it at least as long',
        ),
        (
            "{name: a, stdout: true, backoff: 0s}",
            'receivers[0].backoff is "0s": shorter than 1ms, or longer than 1d; write one such as 10s',
        ),
        (
            "{name: a, url: 'http://h', attempts: 0}",
            "receivers[0].attempts is 0: too small; write a whole number from 1 to 100, without quotes",
        ),
        (
            "{name: a, url: 'http://h', attempts: true}",
            (
                "receivers[0].attempts is true: a boolean where a whole number belongs; "
                "write a whole number from 1 to 100, without quotes"
            ),
        ),
    ],
)  # fmt: skip
def test_an_error_names_the_field_and_what_would_be_right(receiver: str, error: str) -> None:
    assert wrong(receiver) == [error]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://h/x", "neither http nor https"),
        ("file:///etc/passwd", "neither http nor https"),
        ("hooks.example.com", "neither http nor https"),
        ("http://user:hunter2@h/", "holds a user name or password"),
        ("http:///x", "names no host"),
        ("http://h:0/", "names no port that exists"),
        (
            "http://hooks..example.com/x",
            "names no host that can be resolved: parts are up to 63 characters, with one dot between them",
        ),
        (
            f"https://{'a' * 64}.example.com/x",
            "names no host that can be resolved: parts are up to 63 characters, with one dot between them",
        ),
        ("http://h:99999/", "not a URL"),
        ("http://[::1/", "not a URL"),
        ("http://h/#frag", "has a fragment, which is never sent"),
        ("http://h/a b", "not up to 2048 printable ASCII characters"),
        ("http://hé/", "not up to 2048 printable ASCII characters"),
        ("http://h/" + "x" * 2050, "not up to 2048 printable ASCII characters"),
    ],
)
def test_a_url_that_will_not_do_is_refused_without_being_repeated(url: str, problem: str) -> None:
    [error] = wrong(f"{{name: a, url: '{url}'}}")
    assert error.startswith(f"receivers[0].url: {problem}; ")
    assert "hunter2" not in error


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        (
            "{Authorization: {value: hunter2}}",
            (
                "receivers[0].headers.Authorization.value: a secret in the file; "
                "name a variable (env) or a file (file) that holds it"
            ),
        ),
        ("{X-A: {}}", "receivers[0].headers.X-A: has 0 sources; write exactly one of value, env, file"),
        ("{X-A: {env: A, file: b}}", "receivers[0].headers.X-A: has 2 sources; write exactly one of value, env, file"),
        ("{content-type: {value: x}}", "receivers[0].headers.content-type: set by Tenure itself; leave it out"),
        ("{Ce-Id: {value: x}}", "receivers[0].headers.Ce-Id: set by Tenure itself; leave it out"),
        (
            "{'X A': {value: x}}",
            'receivers[0].headers["X A"]: not the name of a header; write one such as Authorization',
        ),
        (
            "{X-A: {env: 'A B'}}",
            'receivers[0].headers.X-A.env is "A B": not the name of a variable; write one such as PAGER_TOKEN',
        ),
        ("{X-A: {value: é}}", "receivers[0].headers.X-A.value: holds characters outside of ASCII; leave them out"),
        (
            "{X-A: {value: x}, x-a: {value: y}}",
            "receivers[0].headers: names a header twice, in different letters; keep one of them",
        ),
        (
            "{Authorization: hunter2}",
            "receivers[0].headers.Authorization: a string where a mapping belongs; write a mapping",
        ),
    ],
)
def test_headers_name_where_their_values_come_from(headers: str, error: str) -> None:
    assert wrong(f"{{name: a, url: 'http://h', headers: {headers}}}") == [error]


def test_all_errors_come_at_once() -> None:
    found = wrong(
        "{name: a, url: 'ftp://h', kinds: [Nope], backoff: x}",
        "{name: a, file: e}",
        "{name: b, file: ./e}",
        "{name: c, stdout: true}",
        "{name: d, stdout: true}",
    )
    assert [error.partition(": ")[0].partition(" is ")[0] for error in found] == [
        "receivers[0].backoff",
        "receivers[0].url",
        "receivers[0].kinds[0]",
        "receivers[1].name",
        "receivers[2]",
        "receivers[4]",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "0 documents"),
        ("kind: Notify\n---\nkind: Notify\n", "2 documents"),
        ("kind: Notify", "required and missing"),
        ("{kind: Notify, receivers: []}", "empty"),
        ("{kind: Budget, receivers: [{name: a, stdout: true}]}", "not one of the choices"),
        ("[1, 2]", "a list where a mapping belongs"),
        ("{kind: Notify, receivers: &a [*a]}", "anchor"),
        ("kind: Notify\nkind: Notify\n", "twice"),
        ("kind: Notify\nreceivers: [{name: a, stdout: yes}]", "a string where a boolean belongs"),
        ("kind: Notify\nreceivers: [{name: 'a\\x1b', stdout: true}]", "not a valid name"),
        ("{kind: Notify, receivers: [" + "{name: a, stdout: true}," * 33 + "]}", "33 items"),
        ("x" * 2_000_000, "more than the 1048576 bytes that are read"),
        ("[" * 500, "deep"),
    ],
)
def test_hostile_text_is_an_error_like_any_other(text: str, problem: str) -> None:
    config, errors = read_notify(text, folder=Path("etc"))
    assert config is None
    assert any(problem in error.sentence() for error in errors), [error.sentence() for error in errors]


def test_what_headers_refer_to_can_be_looked_for_before_the_start(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    headers = "{A: {env: IS_SET}, B: {env: NOT_SET}, C: {file: there}, D: {file: gone}}"
    config = read(f"{{kind: Notify, receivers: [{{name: a, url: 'http://h', headers: {headers}}}]}}", tmp_path)
    found = [error.path for error in missing(config, environ={"IS_SET": "1"})]
    assert found == ["receivers[0].headers.B.env", "receivers[0].headers.D.file"]


@pytest.mark.parametrize(
    ("pattern", "about", "matches"),
    [
        ("*", "Run/rai/train", True),
        ("Run/*", "Run/rai/train", True),
        ("Run/*", "Run", False),
        ("Run/*/train", "Run/rai/train", True),
        ("Run/*/train", "Run/rai/x/train", False),
        ("Run/rai/*", "Run/rai2/train", False),
        ("Run/rai/train", "Run/rai/train2", False),
        ("*/rai", "Budget/rai", True),
        ("Budget/*", "Node/rai", False),
    ],
)
def test_objects_match_by_whole_segments(pattern: str, about: str, matches: bool) -> None:
    assert object_matches(pattern, about) is matches


def test_the_guide_lists_every_field() -> None:
    text = GUIDE.read_text().split("## The file")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    fields = [*ReceiverSpec.__struct_encode_fields__, *HeaderSource.__struct_encode_fields__]
    assert sorted(listed) == sorted(fields)
