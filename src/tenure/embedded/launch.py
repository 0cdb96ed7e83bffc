"""From a Kubernetes Pod to processes: what an embedded fleet runs, and what it refuses to.

A pure translation. Of each container it takes ``command`` and ``args``, ``env`` with ``$(VAR)`` references
expanded as Kubernetes expands them, and ``workingDir``; of the pod ``initContainers`` and
``terminationGracePeriodSeconds``. A process starts with a few variables of the daemon's own environment
(``INHERITED``), then the pod's. What only a container runtime can do and what would change the work's
behaviour (volumes, values from Secrets, hooks, restarting sidecars) is refused in words rather than left
out in silence. What has no meaning here (image, resources, ports, probes, scheduling hints) is ignored;
the guide lists it.

>>> expand("$(HOST):$(PORT) $$(HOST) $(WHO) $HOST", {"HOST": "a-00", "PORT": "29500"})
'a-00:29500 $(HOST) $(WHO) $HOST'
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tenure.api.errors import FieldError, escape
from tenure.api.formats import DNS_LABEL

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
)  # fmt: skip
"""The daemon's variables that its pods inherit. Its secrets are not among them."""
TOKEN = "TENURE_POD_TOKEN"
"""Marks a pod's processes in /proc. Not a secret."""
DEVICES = "CUDA_VISIBLE_DEVICES"
GRACE_SECONDS = 30

_REFERENCE = re.compile(r"\$(\$|\([^)]*\))")
_SURROGATE = re.compile("[\ud800-\udfff]")
_VARIABLE = re.compile(r"[!-<>-~]+")
_NO_COMMAND = "is missing: embedded fleets run commands; images are not pulled"
_REFUSED = {
    "envFrom": "values from ConfigMaps and Secrets exist only on Kubernetes; list them in env",
    "volumeMounts": "nothing is mounted; processes see this machine's files",
    "volumeDevices": "nothing is mounted; processes see this machine's files",
    "lifecycle": "hooks are not run",
}


class Container(Struct, frozen=True, kw_only=True):
    """One process to start, complete."""

    name: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str


class Launch(Struct, frozen=True, kw_only=True):
    """All that a pod's supervisor needs to know: the contents of ``spec.json``."""

    pod: str
    uid: str
    node: str = ""
    """Which of the fleet's nodes it is on: ordinals of GPUs are a node's. Empty in what earlier versions wrote."""
    token: str
    grace: float
    init: tuple[Container, ...]
    containers: tuple[Container, ...]

    @property
    def devices(self) -> str:
        """The GPUs that it was given, as CUDA is told of them; empty if CUDA is told nothing."""
        return next((one.env.get(DEVICES, "") for one in self.containers), "")


class Refused(Struct, frozen=True):
    """Why a pod cannot run as processes: every reason at once."""

    problems: tuple[str, ...]

    @property
    def message(self) -> str:
        return "; ".join(self.problems)


def read_launch(
    manifest: Mapping[str, Any], *, pod: str, token: str, scratch: str, environ: Mapping[str, str]
) -> Launch | Refused:
    """Translate a Pod object, or say why it cannot be done. ``scratch`` is where it works by default."""
    reader = _Reader(token=token, scratch=scratch, environ=environ)
    spec = reader.mapping(manifest.get("spec"), "spec")
    init = reader.containers(spec, "initContainers")
    containers = reader.containers(spec, "containers")
    grace = reader.grace(spec)
    if not containers and not reader.problems:
        reader.problems.append("spec.containers is empty: there is nothing to run")
    if reader.problems:
        return Refused(tuple(reader.problems))
    uid = str(reader.mapping(manifest.get("metadata"), "metadata").get("uid") or "")
    node = str(spec.get("nodeName") or "")
    return Launch(pod=pod, uid=uid, node=node, token=token, grace=grace, init=init, containers=containers)


def check_template(name: str, template: Mapping[str, Any] | None) -> list[FieldError]:
    """What keeps a run's pods from ever running as processes, to be said before it is taken: each try would fail."""
    read = read_launch(template or {}, pod=name, token="", scratch="/", environ={})
    problems = read.problems if isinstance(read, Refused) else ()
    return [_field_error(name, *text.partition(" ")[::2]) for text in problems]


def _field_error(name: str, path: str, problem: str) -> FieldError:
    fix = "name the program and its arguments" if path.endswith(".command") else "mend it, or submit it to a cluster"
    return FieldError(
        object=name,
        path=f"spec.template.{escape(path)}",
        problem=escape(problem.removeprefix("is "), limit=200),
        fix=fix,
    )


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as Kubernetes does: ``$$`` is a dollar, an unknown name stays as it is written."""

    def value(match: re.Match[str]) -> str:
        inner = match.group(1)
        return "$" if inner == "$" else env.get(inner[1:-1], match.group(0))

    return _REFERENCE.sub(value, text)


class _Reader:
    """Walks one manifest and collects what is wrong with it."""

    def __init__(self, *, token: str, scratch: str, environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self._token = token
        self._scratch = scratch
        self._inherited = {name: environ[name] for name in INHERITED if name in environ}
        self._names: set[str] = set()

    def containers(self, spec: Mapping[str, Any], field: str) -> tuple[Container, ...]:
        items = self.sequence(spec.get(field), f"spec.{field}")
        return tuple(self._container(item, f"spec.{field}[{index}]") for index, item in enumerate(items))

    def grace(self, spec: Mapping[str, Any]) -> float:
        value = spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            self._problem("spec.terminationGracePeriodSeconds", "must be a number of seconds")
            return 0.0
        return float(value)

    def mapping(self, value: Any, path: str) -> Mapping[str, Any]:
        if value is None or isinstance(value, dict):
            return value or {}
        self._problem(path, "must be a mapping")
        return {}

    def sequence(self, value: Any, path: str) -> list[Any]:
        if value is None or isinstance(value, list | tuple):
            return list(value or ())
        self._problem(path, "must be a list")
        return []

    def _container(self, tree: Any, path: str) -> Container:
        tree = self.mapping(tree, path)
        self._refuse(tree, path)
        own = self._env(tree, f"{path}.env")
        command = self._words(tree, path, "command")
        if not command:
            self._problem(f"{path}.command", _NO_COMMAND)
        argv = tuple(expand(word, own) for word in command + self._words(tree, path, "args"))
        # The pod's own values win over what is inherited, and nothing wins over the token.
        env = self._inherited | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | own | {TOKEN: self._token}
        return Container(name=self._name(tree, path), argv=argv, env=env, cwd=self._cwd(tree, path))

    def _refuse(self, tree: Mapping[str, Any], path: str) -> None:
        for field in sorted(_REFUSED.keys() & tree.keys()):
            if tree[field]:
                self._problem(f"{path}.{field}", f"is not supported by embedded fleets: {_REFUSED[field]}")
        if tree.get("restartPolicy") == "Always":
            self._problem(f"{path}.restartPolicy", "Always is not supported by embedded fleets")

    def _name(self, tree: Mapping[str, Any], path: str) -> str:
        name = tree.get("name")
        if not isinstance(name, str) or not DNS_LABEL.fullmatch(name):
            self._problem(f"{path}.name", "must be lower-case letters, digits and dashes")
            return ""
        if name in self._names:
            self._problem(f"{path}.name", f"{name} is used twice")
        self._names.add(name)
        return name

    def _env(self, tree: Mapping[str, Any], path: str) -> dict[str, str]:
        """The container's own variables; a value may refer to those listed before it."""
        env: dict[str, str] = {}
        for index, item in enumerate(self.sequence(tree.get("env"), path)):
            item, where = self.mapping(item, f"{path}[{index}]"), f"{path}[{index}]"
            name = item.get("name")
            if item.get("valueFrom") is not None:
                self._problem(f"{where}.valueFrom", "is not supported by embedded fleets: give a value")
            elif not isinstance(name, str) or not _VARIABLE.fullmatch(name):
                self._problem(f"{where}.name", "must be the name of a variable")
            else:
                env[name] = expand(self._text(item.get("value", ""), f"{where}.value"), env)
        return env

    def _words(self, tree: Mapping[str, Any], path: str, field: str) -> list[str]:
        items = self.sequence(tree.get(field), f"{path}.{field}")
        return [self._text(item, f"{path}.{field}[{index}]") for index, item in enumerate(items)]

    def _cwd(self, tree: Mapping[str, Any], path: str) -> str:
        """``workingDir``, seen from the pod's scratch folder if it is not absolute."""
        given = self._text(tree.get("workingDir") or "", f"{path}.workingDir")
        if given.startswith("/"):
            return given
        return f"{self._scratch}/{given}" if given else self._scratch

    def _text(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            self._problem(path, f"must be a string, in quotes: {str(value)[:40]!r}")
            return ""
        if "\0" in value or _SURROGATE.search(value):
            self._problem(path, "must be text without NUL characters or halves of surrogate pairs")
            return ""
        return value

    def _problem(self, path: str, problem: str) -> None:
        self.problems.append(f"{path} {problem}")
