"""What a Run must be beyond its shape (SPEC 2). Each function is one rule, named after it.

Groups: with a group size (``groupGPUs``, or the step of a malleable Run) the Run is cut into groups of that
size, the last of a fixed Run may be smaller. The widths of a malleable Run are the grid min, min + step,
..., max.

Values outside their limits have been reported by the shape already; the rules here pass over them.
"""

from __future__ import annotations

import re

from tenure.api.errors import Faults, Path, show
from tenure.api.formats import length_of
from tenure.api.run import Malleable, Run, RunSpec
from tenure.api.template import check_template

LEASE_SUFFIX = re.compile(r"-a[0-9]+-g[0-9]+(-|$)", re.ASCII)
"""Leases are named ``<run>-a<attempt>-g<group>-<node>-<n>``; a Run's name must not look like the end of
that.
"""


def check_run(run: Run, faults: Faults, *, simulated: bool) -> None:
    spec = run.spec
    name_is_not_a_leases(run.metadata.name, faults)
    if all(size > 0 for size in _sizes(spec)):
        if spec.malleable is not None:
            check_malleable(spec, spec.malleable, faults)
        spares_need_groups(spec, faults)
        pods_divide_groups(spec, faults)
    borrowing_is_allowed(spec, faults)
    durations_are_positive(spec, faults)
    template_has_a_container(spec, faults, simulated=simulated)


def group_size(spec: RunSpec) -> int | None:
    """The size of a group, if the Run has groups of a fixed size."""
    if spec.locality.group_gpus is not None:
        return spec.locality.group_gpus
    return spec.malleable.step_gpus if spec.malleable is not None else None


def name_is_not_a_leases(name: str, faults: Faults) -> None:
    if LEASE_SUFFIX.search(name):
        problem = "looks like the name of one of a Run's leases (-a<number>-g<number>)"
        faults.add(("metadata", "name"), problem, "choose another name", value=show(name))


def check_malleable(spec: RunSpec, width: Malleable, faults: Faults) -> None:
    at: Path = ("spec", "malleable")
    low, high, step = width.min_total_gpus, width.max_total_gpus, width.step_gpus
    if low > high:
        fix = f"write at least {show(low)}"
        faults.add((*at, "maxTotalGPUs"), f"below minTotalGPUs, which is {show(low)}", fix, value=show(high))
    elif (high - low) % step:
        fix = f"write {show(high - (high - low) % step)} or {show(high + step - (high - low) % step)}"
        problem = f"not a whole number of steps of {show(step)} above minTotalGPUs, which is {show(low)}"
        faults.add((*at, "maxTotalGPUs"), problem, fix, value=show(high))
    widths_are_multiples_of_groups(spec, width, faults)
    is_a_width(spec.resources.total_gpus, width, ("spec", "resources", "totalGPUs"), faults)
    if width.desired_total_gpus is not None:
        is_a_width(width.desired_total_gpus, width, (*at, "desiredTotalGPUs"), faults)


def widths_are_multiples_of_groups(spec: RunSpec, width: Malleable, faults: Faults) -> None:
    group = group_size(spec)
    assert group is not None
    source = (
        "locality.groupGPUs"
        if spec.locality.group_gpus is not None
        else "stepGPUs, the group size unless groupGPUs is given"
    )
    for name, value in (("minTotalGPUs", width.min_total_gpus), ("stepGPUs", width.step_gpus)):
        if value % group:
            problem = f"not a multiple of {show(group)} ({source})"
            fix = f"write a multiple of {show(group)}, or another groupGPUs"
            faults.add(("spec", "malleable", name), problem, fix, value=show(value))


def is_a_width(value: int, width: Malleable, at: Path, faults: Faults) -> None:
    low, high, step = width.min_total_gpus, width.max_total_gpus, width.step_gpus
    if not low <= value <= high:
        if low <= high:
            problem = f"outside minTotalGPUs to maxTotalGPUs, {show(low)} to {show(high)}"
            faults.add(at, problem, f"write {show(low)} to {show(high)}", value=show(value))
    elif (value - low) % step:
        below = value - (value - low) % step
        problem = f"not a whole number of steps of {show(step)} above minTotalGPUs, which is {show(low)}"
        faults.add(at, problem, f"write {show(below)} or {show(below + step)}", value=show(value))


def spares_need_groups(spec: RunSpec, faults: Faults) -> None:
    if spec.spares_per_group > 0 and group_size(spec) is None:
        fix = "give locality.groupGPUs, or leave the spares out"
        faults.add(("spec", "sparesPerGroup"), "spares without groups", fix, value=show(spec.spares_per_group))


def pods_divide_groups(spec: RunSpec, faults: Faults) -> None:
    pod = spec.resources.gpus_per_pod
    if pod is None:
        return
    for what, size in _group_sizes(spec):
        if size % pod:
            problem = f"does not divide {what}, {show(size)} GPUs"
            fix = "write a number that divides every group, or choose other groups"
            faults.add(("spec", "resources", "gpusPerPod"), problem, fix, value=show(pod))


def borrowing_is_allowed(spec: RunSpec, faults: Faults) -> None:
    funding = spec.funding
    if funding.max_borrow_gpus is not None and not funding.allow_borrow:
        fix = "set funding.allowBorrow: true, or leave it out"
        at: Path = ("spec", "funding", "maxBorrowGPUs")
        faults.add(at, "a bound on borrowing, without allowBorrow", fix, value=show(funding.max_borrow_gpus))


def durations_are_positive(spec: RunSpec, faults: Faults) -> None:
    runtime = spec.runtime
    for name, text in (("expectedDuration", runtime.expected_duration), ("checkpoint", runtime.checkpoint)):
        if text is not None and length_of(text) == 0:
            fix = "write a length such as 30m, or leave it out"
            faults.add(("spec", "runtime", name), "not longer than 0", fix, value=show(text))


def template_has_a_container(spec: RunSpec, faults: Faults, *, simulated: bool) -> None:
    if spec.template is not None:
        check_template(spec.template, ("spec", "template"), faults, containers_required=not simulated)
    elif not simulated:
        fix = "give a PodTemplateSpec: {spec: {containers: [{name: main, image: ..., command: [...]}]}}"
        faults.add(("spec", "template"), "required and missing", fix)


def _sizes(spec: RunSpec) -> list[int]:
    width = spec.malleable
    sizes: list[int | None] = [
        spec.resources.total_gpus,
        spec.resources.gpus_per_pod,
        spec.locality.group_gpus,
    ]
    if width is not None:
        sizes += [width.min_total_gpus, width.max_total_gpus, width.step_gpus, width.desired_total_gpus]
    return [size for size in sizes if size is not None]


def _group_sizes(spec: RunSpec) -> list[tuple[str, int]]:
    """Every size that a group of the Run can have, with its name."""
    total, group = spec.resources.total_gpus, group_size(spec)
    if group is None:
        # Without groups the plan cuts the Run where domains end; it can do so in whole pods if the total can.
        return [("totalGPUs", total)]
    if spec.malleable is not None:
        return [("the group size", group)]
    whole = [("the group size", group)] if total >= group else []
    rest = [("the smaller last group", total % group)] if total % group else []
    return whole + rest
