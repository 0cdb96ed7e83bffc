"""The notify file: receivers as people write them, read with every error at once, each naming its field.

    kind: Notify
    receivers:
    - name: pager
      url: https://hooks.example.com/tenure
      headers: {Authorization: {env: PAGER_TOKEN, prefix: "Bearer "}}
      kinds: [Failed, BudgetNotice]
      owners: ["org:ai:*"]
    - {name: archive, file: events.jsonl, history: true}
    - {name: console, stdout: true, objects: ["Run/rai/*"]}

A secret never stands in the file: a header names an environment variable or a file, which is read anew for each event,
so that a token can be changed while the daemon runs. Paths are relative to the folder of the file that names them. What
could only ever be silence (an unknown kind of event, a pattern that matches nothing) is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta, field
from msgspec.structs import replace

from tenure.api.compile import shape_of
from tenure.api.errors import Faults, FieldError, escape, show
from tenure.api.errors import Path as FieldPath
from tenure.api.meta import Duration, Name, OwnerPattern, Record, says
from tenure.api.shape import BAD
from tenure.api.text import parse
from tenure.api.tree import nearest
from tenure.notify.config import File, Header, Http, NotifyConfig, Receiver, Stdout
from tenure.notify.event import KINDS, OBJECTS
from tenure.notify.progress import Pace
from tenure.units import DAY, Micros, parse_duration

RECEIVER_COUNT_MAX: Final = 32
URL_LENGTH_MAX: Final = 2048
_TARGETS = ("url", "file", "stdout")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._:-]{1,253}", re.ASCII)
_OURS = frozenset(
    {"connection", "content-length", "content-type", "expect", "host", "transfer-encoding", "upgrade", "user-agent"}
)
_MAY_BE_SECRET = re.compile(r"receivers\[\d+\]\.(headers|url)")
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie"})


class HeaderSource(Record, frozen=True, kw_only=True):
    """Where the value of a header comes from."""

    value: Annotated[str | None, says("The value itself; not for secrets.")] = None
    env: Annotated[str | None, says("The environment variable that holds it.")] = None
    file: Annotated[str | None, says("The file that holds it, on its first line.")] = None
    prefix: Annotated[str, says("What stands before it, such as `Bearer `.")] = ""


class ReceiverSpec(Record, frozen=True, kw_only=True):
    """One receiver."""

    name: Annotated[Name, says("Its name. What it has received is kept under it.")]
    url: Annotated[str | None, says("Where to POST each event, http or https.")] = None
    file: Annotated[str | None, says("A file that gets a line for each event.")] = None
    stdout: Annotated[bool, says("true: standard output gets a line for each event.")] = False
    headers: Annotated[dict[str, HeaderSource], Meta(max_length=16), says("Headers to send along, by name.")] = field(
        default_factory=dict
    )
    kinds: Annotated[tuple[str, ...], Meta(max_length=64), says("Only events of these kinds.")] = ()
    objects: Annotated[
        tuple[str, ...], Meta(max_length=64), says("Only events about these objects, such as Run/rai/*.")
    ] = ()
    owners: Annotated[
        tuple[OwnerPattern, ...], Meta(max_length=64), says("Only events about objects of these owners.")
    ] = ()
    history: Annotated[
        bool, says("true: begin with the first note of the ledger, not with the first after this receiver was named.")
    ] = False
    timeout: Annotated[Duration, says("How long a POST may take, until its answer is there.")] = "10s"
    attempts: Annotated[
        int, Meta(ge=1, le=100), says("Refusals (4xx) of an event after which it is a dead letter.")
    ] = 8
    backoff: Annotated[Duration, says("The wait after the first failure; doubles with each further one.")] = "1s"
    backoff_max: Annotated[Duration, says("The longest such wait.")] = "5m"


class NotifyFile(Record, frozen=True, kw_only=True):
    """The file."""

    api_version: Annotated[Literal["rq.davidlangworthy.io/v1"], says("May be left out.")] = "rq.davidlangworthy.io/v1"
    kind: Annotated[Literal["Notify"], says("Notify.")]
    receivers: Annotated[
        tuple[ReceiverSpec, ...], Meta(min_length=1, max_length=RECEIVER_COUNT_MAX), says("Who is told.")
    ]


def read_notify(
    text: str | bytes, *, source: str = "notify file", folder: Path
) -> tuple[NotifyConfig | None, tuple[FieldError, ...]]:
    """The receivers that a file names, or every error in it. Relative paths begin at ``folder``."""
    parsed = parse(text, source=source)
    if parsed.errors:
        return None, parsed.errors
    faults = Faults(escape(source))
    if len(parsed.trees) != 1:
        faults.add((), f"{len(parsed.trees)} documents", "write one, of kind Notify")
        return None, tuple(faults.errors)
    file = shape_of(NotifyFile).read(parsed.trees[0], (), faults)
    faults.errors[:] = map(_discreet, faults.errors)
    if file is BAD:
        return None, tuple(faults.errors)
    assert isinstance(file, NotifyFile)
    receivers = [
        _receiver(spec, ("receivers", index), folder=folder, faults=faults) for index, spec in enumerate(file.receivers)
    ]
    _check_distinct(file.receivers, receivers, faults)
    if faults.errors:
        return None, tuple(faults.errors)
    return NotifyConfig(receivers=tuple(each for each in receivers if each is not None)), ()


def missing(config: NotifyConfig, *, environ: Mapping[str, str], source: str = "notify file") -> list[FieldError]:
    """Variables and files that headers refer to and that are not there now: worth knowing before the start."""
    faults = Faults(escape(source))
    for index, receiver in enumerate(config.receivers):
        for header in receiver.to.headers if isinstance(receiver.to, Http) else ():
            at: FieldPath = ("receivers", index, "headers", header.name)
            if header.env is not None and header.env not in environ:
                faults.add((*at, "env"), "the variable is not set", "export it", value=show(header.env))
            elif header.file is not None and not header.file.is_file():
                faults.add((*at, "file"), "there is no such file", "create it", value=show(str(header.file)))
    return faults.errors


def _discreet(error: FieldError) -> FieldError:
    """Errors are printed and logged: what stands where a secret may stand is not repeated."""
    return replace(error, value="") if _MAY_BE_SECRET.match(error.path) else error


def _receiver(spec: ReceiverSpec, at: FieldPath, *, folder: Path, faults: Faults) -> Receiver | None:
    before = len(faults.errors)
    to = _target(spec, at, folder=folder, faults=faults)
    _check_kinds(spec, at, faults)
    for index, pattern in enumerate(spec.objects):
        _check_object(pattern, (*at, "objects", index), faults)
    backoff, backoff_max = (_length(text, (*at, name), faults) for name, text in _waits(spec))
    if 0 < backoff_max < backoff:
        faults.add(
            (*at, "backoffMax"), "shorter than backoff", "make it at least as long", value=show(spec.backoff_max)
        )
    if to is None or len(faults.errors) > before:
        return None
    pace = Pace(attempts=spec.attempts, backoff=backoff, backoff_max=backoff_max, isolates=isinstance(to, Http))
    return Receiver(
        name=spec.name,
        to=to,
        pace=pace,
        kinds=spec.kinds,
        objects=spec.objects,
        owners=spec.owners,
        history=spec.history,
    )


def _waits(spec: ReceiverSpec) -> tuple[tuple[str, str], ...]:
    return ("backoff", spec.backoff), ("backoffMax", spec.backoff_max)


def _length(text: str, at: FieldPath, faults: Faults) -> Micros:
    """A duration of a millisecond to a day; 0 where it is none, which the shape has reported already."""
    try:
        length = parse_duration(text)
    except ValueError:
        return 0
    if not 1000 <= length <= DAY:
        faults.add(at, "shorter than 1ms, or longer than 1d", "write one such as 10s", value=show(text))
    return length


def _target(spec: ReceiverSpec, at: FieldPath, *, folder: Path, faults: Faults) -> Http | File | Stdout | None:
    said = [name for name in _TARGETS if getattr(spec, name) not in (None, False)]
    if len(said) != 1:
        given = " and ".join(said) or "none of them"
        faults.add(at, f"names {given} as its target", f"write exactly one of {', '.join(_TARGETS)}")
        return None
    if spec.url is not None:
        return _http(spec, spec.url, at, folder=folder, faults=faults)
    for name, unused in (
        ("headers", spec.headers),
        ("timeout", spec.timeout != "10s"),
        ("attempts", spec.attempts != 8),
    ):
        if unused:
            faults.add((*at, name), "means nothing without url", "leave it out")
    return Stdout() if spec.file is None else _file(spec.file, (*at, "file"), folder=folder, faults=faults)


def _file(name: str, at: FieldPath, *, folder: Path, faults: Faults) -> File | None:
    if not name or name.endswith("/"):
        faults.add(at, "not the path of a file", "write one such as events.jsonl", value=show(name))
        return None
    return File(path=folder / name)


def _http(spec: ReceiverSpec, url: str, at: FieldPath, *, folder: Path, faults: Faults) -> Http | None:
    parts = _url(url, (*at, "url"), faults)
    timeout = _length(spec.timeout, (*at, "timeout"), faults)
    headers = [
        _header(name, each, (*at, "headers", name), folder=folder, faults=faults)
        for name, each in sorted(spec.headers.items())
    ]
    if len({name.lower() for name in spec.headers}) < len(spec.headers):
        faults.add((*at, "headers"), "names a header twice, in different letters", "keep one of them")
    if parts is None:
        return None
    secure = parts.scheme == "https"
    return Http(
        secure=secure,
        host=parts.hostname or "",
        port=parts.port or (443 if secure else 80),
        target=(parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        headers=tuple(headers),
        timeout=timeout,
    )


def _url(url: str, at: FieldPath, faults: Faults) -> SplitResult | None:
    """The parts of a URL. What is wrong is said without repeating it: it may hold a secret."""
    problem, fix = "", "write one such as https://hooks.example.com/tenure"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        faults.add(at, "not a URL", fix)
        return None
    if parts.scheme not in ("http", "https"):
        problem = "neither http nor https"
    elif parts.username is not None or parts.password is not None:
        problem, fix = "holds a user name or password", "send them in a header, from a variable or a file"
    elif not parts.hostname or port == 0:
        problem = "names no host" if not parts.hostname else "names no port that exists"
    elif not url.isascii() or not url.isprintable() or " " in url or len(url) > URL_LENGTH_MAX:
        problem, fix = (
            f"not up to {URL_LENGTH_MAX} printable ASCII characters",
            "percent-encode what is not, and host names as xn--",
        )
    elif not _can_be_resolved(parts.hostname):
        problem = "names no host that can be resolved: parts are up to 63 characters, with one dot between them"
    elif parts.fragment:
        problem, fix = "has a fragment, which is never sent", "leave out what comes after #"
    if problem:
        faults.add(at, problem, fix)
    return None if problem else parts


def _can_be_resolved(host: str) -> bool:
    """Whether a resolver would be asked at all."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _header(name: str, source: HeaderSource, at: FieldPath, *, folder: Path, faults: Faults) -> Header:
    said = [key for key in ("value", "env", "file") if getattr(source, key) is not None]
    if not _TOKEN.fullmatch(name):
        faults.add(at, "not the name of a header", "write one such as Authorization")
    elif name.lower() in _OURS or name.lower().startswith("ce-"):
        faults.add(at, "set by Tenure itself", "leave it out")
    if len(said) != 1:
        faults.add(at, f"has {len(said)} sources", "write exactly one of value, env, file")
    elif source.value is not None and name.lower() in _SECRET:
        faults.add((*at, "value"), "a secret in the file", "name a variable (env) or a file (file) that holds it")
    if source.env is not None and not _VARIABLE.fullmatch(source.env):
        faults.add((*at, "env"), "not the name of a variable", "write one such as PAGER_TOKEN", value=show(source.env))
    for key, text in (("value", source.value or ""), ("prefix", source.prefix)):
        if not text.isascii():
            faults.add((*at, key), "holds characters outside of ASCII", "leave them out")
    file = None if source.file is None else folder / source.file
    return Header(name=name, prefix=source.prefix, value=source.value, env=source.env, file=file)


def _check_kinds(spec: ReceiverSpec, at: FieldPath, faults: Faults) -> None:
    for index, kind in enumerate(spec.kinds):
        if kind not in KINDS:
            like = nearest(kind, tuple(KINDS))
            fix = f"did you mean {like}?" if like else f"write one of {', '.join(sorted(KINDS))}"
            faults.add((*at, "kinds", index), "there are no such events", fix, value=show(kind))


def _check_object(pattern: str, at: FieldPath, faults: Faults) -> None:
    """A pattern that can match nothing would be silence, found out too late."""
    segments = pattern.split("/")
    kind = segments[0]
    problem, fix = "", "write whole segments, * for any: Run/rai/*, Budget/rai, Node/*, or *"
    if len(segments) > 8 or not all(each == "*" or _SEGMENT.fullmatch(each) for each in segments):
        problem = "not a pattern of objects"
    elif kind != "*" and kind not in OBJECTS:
        problem = f"there are no objects of kind {escape(kind)}"
        fix = f"did you mean {like}?" if (like := nearest(kind, tuple(OBJECTS))) else fix
    elif not any(_may_match(segments, OBJECTS[each]) for each in OBJECTS if kind in ("*", each)):
        problem, fix = (
            "can match nothing",
            f"the name of a {kind} has {OBJECTS.get(kind, 3)} segments, its kind included",
        )
    if problem:
        faults.add(at, problem, fix, value=show(pattern))


def _may_match(segments: list[str], length: int) -> bool:
    return len(segments) == length or (segments[-1] == "*" and len(segments) < length)


def _check_distinct(specs: tuple[ReceiverSpec, ...], receivers: list[Receiver | None], faults: Faults) -> None:
    names: set[Any] = set()
    targets: set[Any] = set()
    for index, (spec, receiver) in enumerate(zip(specs, receivers, strict=True)):
        if spec.name in names:
            faults.add(
                ("receivers", index, "name"), "another receiver has this name", "choose another", value=show(spec.name)
            )
        names.add(spec.name)
        if receiver is None or isinstance(receiver.to, Http):
            continue
        if receiver.to in targets:
            faults.add(("receivers", index), "another receiver writes to the same place", "make it one receiver")
        targets.add(receiver.to)
