"""The rules of SPEC 2 as a table: what is changed in a good object, and which field is then refused.

``at`` is the path of the error, or nothing if the object is still good. ``schema`` tells whether the CRD
(types, limits and CEL) refuses it as well; what schemas cannot say is False, with the reason beside it."""

from typing import Any, NamedTuple

from tests.api.builders import ABSENT, BUDGET, FIXED, LEASE, RUN

START, END = "2025-11-01T00:00:00Z", "2025-12-01T00:00:00Z"
LIMIT = 2**53
E0, E1, E2 = "spec.envelopes[0]", "spec.envelopes[1]", "spec.envelopes[2]"
CAP = "spec.aggregateCaps[0]"


class Case(NamedTuple):
    name: str
    tree: dict[str, Any]
    changes: dict[str, Any]
    at: str = ""
    schema: bool = True


def budget(name: str, changes: dict[str, Any], at: str = "", *, schema: bool = True) -> Case:
    return Case(f"budget: {name}", BUDGET, changes, at, schema)


def run(name: str, changes: dict[str, Any], at: str = "", *, schema: bool = True) -> Case:
    return Case(f"run: {name}", RUN, changes, at, schema)


def fixed(name: str, changes: dict[str, Any], at: str = "", *, schema: bool = True) -> Case:
    return Case(f"fixed run: {name}", FIXED, changes, at, schema)


def lease(name: str, changes: dict[str, Any], at: str = "", *, schema: bool = True) -> Case:
    return Case(f"lease: {name}", LEASE, changes, at, schema)


BUDGETS = [
    budget("the sample of the SPEC", {}),
    budget("no owner", {"spec.owner": ABSENT}, "spec.owner"),
    budget("empty owner", {"spec.owner": ""}, "spec.owner"),
    budget("owner in capitals", {"spec.owner": "Org:AI"}, "spec.owner"),
    budget("owner with an empty segment", {"spec.owner": "org::ai"}, "spec.owner"),
    budget("owner with a star", {"spec.owner": "org:*"}, "spec.owner"),
    budget("owner of 253 characters", {"spec.owner": "a" * 61 + (":" + "b" * 63) * 3}),
    budget("owner of 254 characters", {"spec.owner": "a" * 62 + (":" + "b" * 63) * 3}, "spec.owner"),
    budget("segment of 64 characters", {"spec.owner": "a" * 64}, "spec.owner"),
    # A pattern cannot count segments without nesting counts, which RE2 refuses.
    budget("33 segments", {"spec.owner": ":".join("a" * 33)}, "spec.owner", schema=False),
    budget("no envelopes", {"spec.envelopes": [], "spec.aggregateCaps": []}, "spec.envelopes"),
    budget("envelopes missing", {"spec.envelopes": ABSENT}, "spec.envelopes"),
    budget("empty flavor", {f"{E2}.flavor": ""}, f"{E2}.flavor"),
    budget("empty selector", {f"{E1}.selector": {}}, f"{E1}.selector"),
    budget("no selector", {f"{E1}.selector": ABSENT}, f"{E1}.selector"),
    # The API server has no rule for the keys of a mapping.
    budget("bad selector key", {f"{E1}.selector": {"a b": "x"}}, f'{E1}.selector["a b"]', schema=False),
    budget("bad selector value", {f"{E1}.selector": {"region": "a b"}}, f"{E1}.selector.region"),
    budget("prefixed selector key", {f"{E1}.selector": {"topology.kubernetes.io/region": "x"}}),
    budget("empty selector value", {f"{E1}.selector": {"region": ""}}),
    budget("same envelope name twice", {f"{E2}.name": "west-h100", f"{E2}.flavor": "H100-80GB"}, f"{E2}.name"),
    budget("no concurrency", {f"{E1}.concurrency": 0}, f"{E1}.concurrency"),
    budget("negative concurrency", {f"{E1}.concurrency": -1}, f"{E1}.concurrency"),
    budget("concurrency of 2^53", {f"{E1}.concurrency": LIMIT}),
    budget("concurrency above 2^53", {f"{E1}.concurrency": LIMIT + 1}, f"{E1}.concurrency"),
    budget("concurrency as text", {f"{E1}.concurrency": "64"}, f"{E1}.concurrency"),
    budget("concurrency as boolean", {f"{E1}.concurrency": True}, f"{E1}.concurrency"),
    budget("concurrency as float", {f"{E1}.concurrency": 64.5}, f"{E1}.concurrency"),
    budget(
        "end at start",
        {f"{E0}.end": START, f"{E0}.maxGPUHours": ABSENT, f"{E0}.lending": ABSENT},
        f"{E0}.end",
    ),
    budget(
        "end before start",
        {f"{E0}.end": "2025-10-01T00:00:00Z", f"{E0}.maxGPUHours": 0, f"{E0}.lending": ABSENT},
        f"{E0}.end",
    ),
    budget(
        "end a second after start",
        {f"{E0}.end": "2025-11-01T00:00:01Z", f"{E0}.maxGPUHours": 0, f"{E0}.lending.maxGPUHours": 0},
    ),
    budget("window in other time zones", {f"{E0}.start": "2025-11-01T00:00:00+01:00"}),
    budget("no time at all", {f"{E0}.start": "yesterday"}, f"{E0}.start"),
    budget("30th of February", {f"{E0}.start": "2025-02-30T00:00:00Z"}, f"{E0}.start"),
    budget("negative hours", {f"{E0}.maxGPUHours": -1, f"{E0}.lending": ABSENT}, f"{E0}.maxGPUHours"),
    budget("no hours", {f"{E0}.maxGPUHours": 0, f"{E0}.lending.maxGPUHours": 0}),
    budget("all the hours of the window", {f"{E0}.maxGPUHours": 256 * 720}),
    budget("an hour more than the window has", {f"{E0}.maxGPUHours": 256 * 720 + 1}, f"{E0}.maxGPUHours"),
    budget("more hours, but no end", {f"{E0}.maxGPUHours": 256 * 720 + 1, f"{E0}.end": ABSENT}),
    budget("more hours, but no start", {f"{E0}.maxGPUHours": 256 * 720 + 1, f"{E0}.start": ABSENT}),
    budget("sharing with strangers", {f"{E0}.sharing": "Everybody"}, f"{E0}.sharing"),
    budget("sharing with nobody", {f"{E0}.sharing": "None"}),
    budget("lends more GPUs than it has", {f"{E0}.lending.maxConcurrency": 257}, f"{E0}.lending.maxConcurrency"),
    budget("lends all GPUs", {f"{E0}.lending.maxConcurrency": 256}),
    budget("lends more hours than it has", {f"{E0}.lending.maxGPUHours": 90_001}, f"{E0}.lending.maxGPUHours"),
    budget("lends all hours", {f"{E0}.lending.maxGPUHours": 90_000}),
    budget("lends hours of an unbounded envelope", {f"{E0}.maxGPUHours": ABSENT}),
    budget("lends to nobody", {f"{E0}.lending.to": []}),
    budget("pattern with a prefix", {f"{E0}.lending.to": ["org:a*"]}, f"{E0}.lending.to[0]"),
    budget("pattern with two stars", {f"{E0}.lending.to": ["org:**"]}, f"{E0}.lending.to[0]"),
    budget("pattern as a regex", {f"{E0}.lending.to": ["org:.*"]}, f"{E0}.lending.to[0]"),
    budget("pattern as a glob", {f"{E0}.lending.to": ["org:[ab]"]}, f"{E0}.lending.to[0]"),
    budget("empty pattern", {f"{E0}.lending.to": [""]}, f"{E0}.lending.to[0]"),
    budget("pattern that ends in a colon", {f"{E0}.lending.to": ["org:"]}, f"{E0}.lending.to[0]"),
    budget("patterns of every form", {f"{E0}.lending.to": ["*", "org:*:sys", "org:ai:*", "*:ai", "org"]}),
    budget("cap on an unknown envelope", {f"{CAP}.envelopes": ["west-h100", "north"]}, f"{CAP}.envelopes[1]"),
    budget("cap on another flavor", {f"{CAP}.envelopes": ["west-h100", "a100"]}, f"{CAP}.envelopes[1]"),
    budget("cap on nothing", {f"{CAP}.envelopes": []}, f"{CAP}.envelopes"),
    budget("cap lists an envelope twice", {f"{CAP}.envelopes": ["west-h100", "west-h100"]}, f"{CAP}.envelopes[1]"),
    budget("cap that bounds nothing", {f"{CAP}.maxConcurrency": ABSENT, f"{CAP}.maxGPUHours": ABSENT}, CAP),
    budget(
        "two caps of one name",
        {"spec.aggregateCaps[1]": {**BUDGET["spec"]["aggregateCaps"][0]}},
        "spec.aggregateCaps[1].name",
    ),
    budget("own parent", {"spec.parents": ["org:ai:rai:sys"]}, "spec.parents[0]"),
    budget("parent listed twice", {"spec.parents": ["org:ai", "org:ai"]}, "spec.parents[1]"),
    budget("parent that is no owner", {"spec.parents": ["org ai"]}, "spec.parents[0]"),
    budget(
        "129 envelopes",
        {
            "spec.envelopes": [{**BUDGET["spec"]["envelopes"][1], "name": f"e{i}"} for i in range(129)],
            "spec.aggregateCaps": [],
        },
        "spec.envelopes",
    ),
    budget("unknown field", {f"{E0}.priority": 1}, f"{E0}.priority"),
    # Kubernetes itself checks the names and namespaces of objects.
    budget("name in capitals", {"metadata.name": "RAI"}, "metadata.name", schema=False),
    budget("with a namespace", {"metadata.namespace": "rai"}, "metadata.namespace", schema=False),
]

RUNS = [
    run("the sample of the SPEC", {}),
    run("no GPUs", {"spec.resources.totalGPUs": 0}, "spec.resources.totalGPUs"),
    run("negative GPUs", {"spec.resources.totalGPUs": -8}, "spec.resources.totalGPUs"),
    fixed("GPUs above 2^53", {"spec.resources.totalGPUs": LIMIT + 1}, "spec.resources.totalGPUs"),
    run("GPUs as boolean", {"spec.resources.totalGPUs": True}, "spec.resources.totalGPUs"),
    run("GPUs as float", {"spec.resources.totalGPUs": 128.0}, "spec.resources.totalGPUs"),
    run("no GPU type", {"spec.resources.gpuType": ""}, "spec.resources.gpuType"),
    run("no resources", {"spec.resources": ABSENT}, "spec.resources"),
    run("empty groups", {"spec.locality.groupGPUs": 0}, "spec.locality.groupGPUs"),
    run("empty pods", {"spec.resources.gpusPerPod": 0}, "spec.resources.gpusPerPod"),
    run("empty steps", {"spec.malleable.stepGPUs": 0}, "spec.malleable.stepGPUs"),
    run("empty minimum", {"spec.malleable.minTotalGPUs": 0}, "spec.malleable.minTotalGPUs"),
    run("negative spares", {"spec.sparesPerGroup": -1}, "spec.sparesPerGroup"),
    run("min above max", {"spec.malleable.minTotalGPUs": 192}, "spec.malleable.maxTotalGPUs"),
    run("total above max", {"spec.resources.totalGPUs": 192}, "spec.resources.totalGPUs"),
    run("total below min", {"spec.resources.totalGPUs": 64}, "spec.resources.totalGPUs"),
    run("total off the grid", {"spec.resources.totalGPUs": 112}, "spec.resources.totalGPUs"),
    run("total at max", {"spec.resources.totalGPUs": 160}),
    run("total at min", {"spec.resources.totalGPUs": 96}),
    run("desired above max", {"spec.malleable.desiredTotalGPUs": 192}, "spec.malleable.desiredTotalGPUs"),
    run("desired below min", {"spec.malleable.desiredTotalGPUs": 64}, "spec.malleable.desiredTotalGPUs"),
    run("desired off the grid", {"spec.malleable.desiredTotalGPUs": 97}, "spec.malleable.desiredTotalGPUs"),
    run("no desired", {"spec.malleable.desiredTotalGPUs": ABSENT}),
    run("max off the grid", {"spec.malleable.maxTotalGPUs": 150}, "spec.malleable.maxTotalGPUs"),
    run("step not whole groups", {"spec.malleable.stepGPUs": 16}, "spec.malleable.stepGPUs"),
    run(
        "min not whole groups",
        {
            "spec.malleable.minTotalGPUs": 80,
            "spec.malleable.maxTotalGPUs": 144,
            "spec.resources.totalGPUs": 112,
            "spec.malleable.desiredTotalGPUs": 112,
        },
        "spec.malleable.minTotalGPUs",
    ),
    run("without groupGPUs the step is the group", {"spec.locality.groupGPUs": ABSENT}),
    run(
        "without groupGPUs min is whole steps",
        {
            "spec.locality.groupGPUs": ABSENT,
            "spec.malleable.stepGPUs": 64,
            "spec.resources.totalGPUs": 160,
            "spec.malleable.desiredTotalGPUs": 160,
        },
        "spec.malleable.minTotalGPUs",
    ),
    run("smaller groups than steps", {"spec.locality.groupGPUs": 16}),
    run("pods divide malleable groups", {"spec.resources.gpusPerPod": 16}),
    run("pods do not divide malleable groups", {"spec.resources.gpusPerPod": 12}, "spec.resources.gpusPerPod"),
    run("spares with a malleable step", {"spec.locality.groupGPUs": ABSENT}),
    run(
        "bound on borrowing without allowBorrow",
        {"spec.funding.allowBorrow": False},
        "spec.funding.maxBorrowGPUs",
    ),
    run(
        "bound on borrowing, allowBorrow left out",
        {"spec.funding.allowBorrow": ABSENT},
        "spec.funding.maxBorrowGPUs",
    ),
    run("borrowing without a bound", {"spec.funding.maxBorrowGPUs": ABSENT}),
    run("borrowing nothing", {"spec.funding.maxBorrowGPUs": 0}),
    run("negative bound on borrowing", {"spec.funding.maxBorrowGPUs": -1}, "spec.funding.maxBorrowGPUs"),
    run("sponsor that is no owner", {"spec.funding.sponsors": ["org:*"]}, "spec.funding.sponsors[0]"),
    run("no duration", {"spec.runtime.expectedDuration": "0s"}, "spec.runtime.expectedDuration"),
    run("no checkpoint window", {"spec.runtime.checkpoint": "0h0m"}, "spec.runtime.checkpoint"),
    run("duration in words", {"spec.runtime.expectedDuration": "six hours"}, "spec.runtime.expectedDuration"),
    run("duration as a number", {"spec.runtime.expectedDuration": 6}, "spec.runtime.expectedDuration"),
    run("negative duration", {"spec.runtime.expectedDuration": "-6h"}, "spec.runtime.expectedDuration"),
    run("duration in parts", {"spec.runtime.expectedDuration": "1d2h3m4.5s"}),
    run("other answer to preemption", {"spec.runtime.onPreemption": "Cry"}, "spec.runtime.onPreemption"),
    run("requeue", {"spec.runtime.onPreemption": "Requeue"}),
    run("negative restarts", {"spec.runtime.maxRestarts": -1}, "spec.runtime.maxRestarts"),
    run("no template", {"spec.template": ABSENT}, "spec.template"),
    run("template without spec", {"spec.template": {}}, "spec.template.spec"),
    run("template without containers", {"spec.template": {"spec": {}}}, "spec.template.spec.containers"),
    run("template with no container", {"spec.template.spec.containers": []}, "spec.template.spec.containers"),
    run(
        "command as text",
        {"spec.template.spec.containers[0].command": "sleep 1"},
        "spec.template.spec.containers[0].command",
    ),
    run(
        "number in a command",
        {"spec.template.spec.containers[0].command": ["sleep", 1]},
        "spec.template.spec.containers[0].command[1]",
    ),
    # The API server's PodTemplateSpec rules apply when the pods are made.
    run(
        "number in an environment",
        {"spec.template.spec.containers[0].env": [{"name": "A", "value": 1}]},
        "spec.template.spec.containers[0].env[0].value",
        schema=False,
    ),
    run("other fields of a template", {"spec.template.spec.volumes": [{"name": "v", "emptyDir": {}}]}),
    run("name of 63 characters", {"metadata.name": "a" * 63}),
    run("name of 64 characters", {"metadata.name": "a" * 64}, "metadata.name"),
    run("name like a lease's", {"metadata.name": "train-a1-g2"}, "metadata.name"),
    run("name like the middle of a lease's", {"metadata.name": "train-a1-g2-x"}, "metadata.name"),
    run("name that only begins like a lease's", {"metadata.name": "train-a1-g2x"}),
    # Kubernetes itself checks the characters of names.
    run("name with a path in it", {"metadata.name": "../etc"}, "metadata.name", schema=False),
    run("owner that is no owner", {"spec.owner": "org/ai"}, "spec.owner"),
    run("no owner", {"spec.owner": ABSENT}),
    run("unknown field", {"spec.priority": 10}, "spec.priority"),
    run("locality selector", {"spec.locality.selector": {}}),
    fixed("plain", {}),
    fixed("spares without groups", {"spec.sparesPerGroup": 4}, "spec.sparesPerGroup"),
    fixed("no spares, no groups", {"spec.sparesPerGroup": 0}),
    fixed("spares with groups", {"spec.sparesPerGroup": 4, "spec.locality.groupGPUs": 16}),
    fixed("pods divide the total", {"spec.resources.gpusPerPod": 8}),
    fixed("pods do not divide the total", {"spec.resources.gpusPerPod": 16}, "spec.resources.gpusPerPod"),
    fixed("pods divide the smaller last group", {"spec.locality.groupGPUs": 16, "spec.resources.gpusPerPod": 8}),
    fixed(
        "pods do not divide the smaller last group",
        {"spec.locality.groupGPUs": 16, "spec.resources.gpusPerPod": 16},
        "spec.resources.gpusPerPod",
    ),
    fixed(
        "pods do not divide the group",
        {"spec.locality.groupGPUs": 20, "spec.resources.gpusPerPod": 8},
        "spec.resources.gpusPerPod",
    ),
    fixed("one group larger than the run", {"spec.locality.groupGPUs": 48, "spec.resources.gpusPerPod": 20}),
    fixed("total that is not whole groups", {"spec.locality.groupGPUs": 32}),
]

LEASES = [
    lease("the sample of the SPEC", {}),
    lease("open", {"status": ABSENT}),
    lease("two nodes", {"spec.slice.nodes": ["a", "b"]}, "spec.slice.nodes"),
    lease("no node", {"spec.slice.nodes": []}, "spec.slice.nodes"),
    lease("no GPU", {"spec.slice.gpus": []}, "spec.slice.gpus"),
    lease("negative ordinal", {"spec.slice.gpus": [-1]}, "spec.slice.gpus[0]"),
    lease("ordinal twice", {"spec.slice.gpus": [1, 1]}, "spec.slice.gpus"),
    lease("other role", {"spec.slice.role": "Idle"}, "spec.slice.role"),
    lease("other reason", {"spec.reason": "Because"}, "spec.reason"),
    lease("closed without an end", {"status.endTime": ABSENT}, "status.endTime"),
    lease("closed without a reason", {"status.closureReason": ABSENT}, "status.closureReason"),
    lease("open with an end", {"status.closed": False, "status.closureReason": ABSENT}, "status.endTime"),
    lease("open with a reason", {"status.closed": False, "status.endTime": ABSENT}, "status.closureReason"),
    lease("ends before it began", {"status.endTime": "2025-11-01T00:00:09Z"}, "status.endTime"),
    lease("ends as it began", {"status.endTime": "2025-11-01T00:00:10Z"}),
    lease("drawn by lot", {"status.closureReason": "RandomPreempt(0123abcd)"}),
    lease("closed for no reason we know", {"status.closureReason": "Whim"}, "status.closureReason"),
]

ALL_CASES = [*BUDGETS, *RUNS, *LEASES]
