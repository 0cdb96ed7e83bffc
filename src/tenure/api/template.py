"""The pod template: free-form as Kubernetes has it, checked as far as Tenure itself reads it.

At least one container; commands, arguments and environment are strings, because an executor will hand them
to a process. Labels, resources, init containers and tolerations have the shape that Kubernetes gives them, because
pods are made by adding to them: one odd template must not stop whoever makes everybody's pods. Everything else is
passed on as it is. A name and an image are not demanded here: the embedded
fleet needs neither, and Kubernetes asks for them itself."""

from __future__ import annotations

from typing import Any

from tenure.api.errors import Faults, Path, show
from tenure.api.formats import DNS_LABEL

CONTAINER_COUNT_MAX = 64
ENV_COUNT_MAX = 4096
GRACE_SECONDS_MAX = 2**31 - 1


def check_template(template: dict[str, Any], at: Path, faults: Faults, *, containers_required: bool) -> None:
    _check_metadata(template.get("metadata"), (*at, "metadata"), faults)
    spec = template.get("spec")
    if spec is None and not containers_required:
        return
    if not isinstance(spec, dict):
        value = "" if spec is None else show(spec)
        faults.add((*at, "spec"), "a template without a container", "give spec.containers", value=value)
        return
    _check_grace(spec, (*at, "spec"), faults)
    _check_list(spec.get("tolerations"), (*at, "spec", "tolerations"), "a list of tolerations", faults)
    containers, before = spec.get("containers"), spec.get("initContainers")
    names: set[str] = set()
    here = (*at, "spec", "containers")
    if containers is None and not containers_required:
        pass
    elif not isinstance(containers, list) or not containers:
        value = "" if containers is None else show(containers)
        faults.add(here, "a template without a container", "give a list of at least one container", value=value)
    else:
        _check_containers(containers, names, here, faults)
    _check_list(before, (*at, "spec", "initContainers"), "a list of containers", faults)
    if isinstance(before, list):
        _check_containers(before, names, (*at, "spec", "initContainers"), faults)


def _check_metadata(metadata: Any, at: Path, faults: Faults) -> None:
    if not _check_mapping(metadata, at, faults):
        return
    for field in ("labels", "annotations"):
        given = metadata.get(field)
        for key, value in given.items() if _check_mapping(given, (*at, field), faults) else ():
            if not isinstance(value, str):
                faults.add((*at, field, key), "not a string", "put it in quotes", value=show(value))


def _check_resources(resources: Any, at: Path, faults: Faults) -> None:
    if _check_mapping(resources, at, faults):
        for field in ("limits", "requests"):
            _check_mapping(resources.get(field), (*at, field), faults)


def _check_mapping(value: Any, at: Path, faults: Faults) -> bool:
    """Whether there is a mapping; what is absent is no fault."""
    if value is not None and not isinstance(value, dict):
        faults.add(at, "not a mapping", "write one as Kubernetes has it, or leave it out", value=show(value))
    return isinstance(value, dict)


def _check_list(value: Any, at: Path, what: str, faults: Faults) -> None:
    """What is absent is no fault."""
    if value is not None and not isinstance(value, list):
        faults.add(at, f"not {what}", "write one as Kubernetes has it, or leave it out", value=show(value))


def _check_containers(containers: list[Any], names: set[str], at: Path, faults: Faults) -> None:
    if len(containers) > CONTAINER_COUNT_MAX:
        fix = f"give at most {CONTAINER_COUNT_MAX}"
        faults.add(at, f"{len(containers)} containers", fix, value=show(containers))
        return
    for index, container in enumerate(containers):
        here = (*at, index)
        if not isinstance(container, dict):
            faults.add(here, "not a container", "write a mapping with name, image and command", value=show(container))
            continue
        _check_name(container, names, here, faults)
        _check_strings(container, ("image", "workingDir"), here, faults)
        for field in ("command", "args"):
            _check_string_list(container.get(field), (*here, field), faults)
        _check_env(container.get("env"), (*here, "env"), faults)
        _check_resources(container.get("resources"), (*here, "resources"), faults)


def _check_name(container: dict[str, Any], names: set[str], at: Path, faults: Faults) -> None:
    name = container.get("name")
    if name is None:
        return
    if not isinstance(name, str) or not DNS_LABEL.fullmatch(name):
        fix = "write up to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit"
        faults.add((*at, "name"), "not a container's name", fix, value=show(name))
    elif name in names:
        faults.add((*at, "name"), "the name of another container", "give each its own name", value=show(name))
    else:
        names.add(name)


def _check_strings(container: dict[str, Any], fields: tuple[str, ...], at: Path, faults: Faults) -> None:
    for field in fields:
        value = container.get(field)
        if value is not None and (not isinstance(value, str) or not value):
            faults.add((*at, field), "not a string with something in it", "write one", value=show(value))


def _check_string_list(values: Any, at: Path, faults: Faults) -> None:
    if values is None:
        return
    if not isinstance(values, list):
        faults.add(at, "not a list", 'write a list of strings, such as ["python", "train.py"]', value=show(values))
        return
    for index, value in enumerate(values):
        if not isinstance(value, str):
            faults.add((*at, index), "not a string", "put it in quotes", value=show(value))


def _check_env(env: Any, at: Path, faults: Faults) -> None:
    if env is None:
        return
    if not isinstance(env, list) or len(env) > ENV_COUNT_MAX:
        fix = f"write a list of at most {ENV_COUNT_MAX} mappings with name and value"
        faults.add(at, "not a list of variables", fix, value=show(env))
        return
    for index, each in enumerate(env):
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or not name or "=" in name:
            fix = "write a mapping with name and value; a name has no = in it"
            faults.add((*at, index), "not a variable with a name", fix, value=show(each))
        elif not isinstance(each.get("value", ""), str):
            faults.add((*at, index, "value"), "not a string", "put it in quotes", value=show(each["value"]))


def _check_grace(spec: dict[str, Any], at: Path, faults: Faults) -> None:
    seconds = spec.get("terminationGracePeriodSeconds")
    if seconds is None:
        return
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 <= seconds <= GRACE_SECONDS_MAX:
        fix = f"write a whole number from 0 to {GRACE_SECONDS_MAX}"
        faults.add((*at, "terminationGracePeriodSeconds"), "not a number of seconds", fix, value=show(seconds))
