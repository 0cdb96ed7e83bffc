"""Classes that are hostile as objects: well-formed text that asks for what must not be."""

from __future__ import annotations

import json
import random
from typing import Any

from proof.hostile.parts import (
    BUDGET_NUMBERS,
    BUDGET_PARTS,
    BUDGET_WORDS,
    FREE,
    RUN_NUMBERS,
    RUN_PARTS,
    RUN_WORDS,
    Variant,
    at,
    budget,
    one,
    pick,
    put,
    run,
    said,
    size,
)

Luck = random.Random


_RUN_HOLDERS = ("spec", "spec.resources", "spec.locality", "spec.malleable", "spec.funding", "spec.runtime")
_BUDGET_HOLDERS = ("spec", "spec.envelopes[0]", "spec.envelopes[0].lending", "spec.envelopes[0].preActivation")


def unknown(luck: Luck, name: str) -> Variant:
    """Fields that nobody knows, or knows almost."""
    tree = one(luck, name)
    path = pick(luck, tree, _RUN_HOLDERS, _BUDGET_HOLDERS)
    place = at(tree, path)
    near = luck.choice(sorted(place))
    strange = [near.upper(), near + "s", f"{near} ", near[:-1], "priority", "priorityClassName", "__class__",
               "__proto__",
               "constructor", "$ref", "toString", "", "a.b", "*", "0",
               "x" * size(luck, 300_000), near.replace("GPUs", "Gpus")]  # fmt: skip
    keys = {key for key in luck.sample(strange, luck.randrange(1, 4)) if key not in place} or {"priority"}
    if luck.random() < 0.1:
        keys = {f"x{number}" for number in range(size(luck, 15_000))}
    return Variant(said(luck, put(tree, path, {**place, **dict.fromkeys(sorted(keys), 1)})))


def types(luck: Luck, name: str) -> Variant:
    """A list for a mapping, a mapping for a word, a word for a number."""
    tree = one(luck, name)
    parts, words, numbers = (
        (RUN_PARTS, RUN_WORDS, RUN_NUMBERS) if tree["kind"] == "Run" else (BUDGET_PARTS, BUDGET_WORDS, BUDGET_NUMBERS)
    )
    path = luck.choice([*parts, *words, *numbers])
    there = at(tree, path)
    if there is None:
        there = [] if path.endswith(("initContainers", "tolerations")) else {}
    wrong: list[Any] = ["x", 7, 1.5, [1], [[]], {"a": 1}, [{"a": []}], "12", {"": {}}]
    value = luck.choice([each for each in wrong if type(each) is not type(there)])
    return Variant(said(luck, put(tree, path, value)))


def booleans(luck: Luck, name: str) -> Variant:
    """true where a number belongs, which Python would take for 1; and yes and no, which YAML once took for true."""
    tree = one(luck, name)
    path = pick(luck, tree, RUN_NUMBERS, BUDGET_NUMBERS)
    text = said(luck, put(tree, path, luck.choice([True, False])))
    if luck.random() < 0.3 and tree["kind"] == "Run":
        word = luck.choice(["yes", "no", "on", "off", "Yes", "NO", "y", "'true'"])
        from proof.hostile.parts import as_yaml

        text = as_yaml(tree).replace(b"opportunistic: false", f"opportunistic: {word}".encode())
    return Variant(text)


def negative(luck: Luck, name: str) -> Variant:
    """Fewer than none."""
    tree = one(luck, name)
    path = pick(luck, tree, RUN_NUMBERS, BUDGET_NUMBERS)
    value = -luck.choice([1, 2, 7, 2**31, 2**53, 2**63, 10**30])
    return Variant(said(luck, put(tree, path, luck.choice([value, value, float(value) / 2]))))


def zero(luck: Luck, name: str) -> Variant:
    """None at all; in a few places that is what it means."""
    tree = one(luck, name)
    path = pick(luck, tree, RUN_NUMBERS, BUDGET_NUMBERS)
    value = luck.choice([0, 0, 0, -0.0, 0.0])
    may = path.endswith(("sparesPerGroup", "maxBorrowGPUs", "maxRestarts", "maxGPUHours", "maxConcurrency"))
    return Variant(said(luck, put(tree, path, value)), bad=not may)


def beyond(luck: Luck, name: str) -> Variant:
    """More than there can be: gangs of billions, numbers that fit nowhere."""
    tree = one(luck, name)
    if luck.random() < 0.35:  # possible in principle, and must cost nothing
        wide = luck.choice([10**6, 10**9, 2**53])
        spec = {**run(name)["spec"], "resources": {"gpuType": "H100", "totalGPUs": wide}, "locality": {"groupGPUs": 1}}
        spec["sparesPerGroup"] = luck.choice([0, 1, 2**53])
        spec["malleable"] = {"minTotalGPUs": 1, "maxTotalGPUs": wide, "stepGPUs": 1}
        if luck.random() < 0.5:
            del spec["malleable"]
        return Variant(said(luck, {**run(name), "spec": spec}), bad=False)
    path = pick(luck, tree, RUN_NUMBERS, BUDGET_NUMBERS)
    value = luck.choice([2**53 + 1, 2**63, 2**64, 10**40, 10 ** size(luck, 4000), 1e300, 1.5, 1e16])
    text = json.dumps(put(tree, path, "HERE"))
    spelled = luck.choice(["1e99999999", "9" * size(luck, 300_000), "1_000", "1e400", _digits(value)])
    return Variant(text.replace('"HERE"', spelled).encode())


def _digits(value: float) -> str:
    return repr(value) if isinstance(value, float) else f"1{'0' * (len(hex(value)) + 10)}"


def nan(luck: Luck, name: str) -> Variant:
    """Not a number, or one without end."""
    tree = one(luck, name)
    path = pick(luck, tree, (*RUN_NUMBERS, "spec.template.spec.x", "spec.runtime.checkpoint"), BUDGET_NUMBERS)
    text = json.dumps(put(tree, path, "HERE"))
    if luck.random() < 0.6:
        return Variant(
            text.replace('"HERE"', luck.choice(["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])).encode()
        )
    from proof.hostile.parts import as_yaml

    spelled = luck.choice([".nan", ".inf", "-.Inf", ".NaN"]).encode()
    return Variant(as_yaml(put(tree, path, "HERE")).replace(b"HERE", spelled))


def globs(luck: Luck, name: str) -> Variant:
    """Patterns that would be regular expressions, or match more than was meant."""
    bad = ["(a+)+$", "org:a*", "**", "[a-", "?", "org:**", "*:*x", "org::*", ":*", "*:", "org:*:", ".*", "^org",
           "org:ai:*|.*",
           "org:{a,b}", "org:ai:%", "~", "!org:*", "org:AI:*", "org:*,org:b", " *", "*" * size(luck, 200_000),
           "a:" * size(luck, 100_000), "(" * 500 + ")" * 500, "\\*", "org:ai:\u2217"]  # fmt: skip
    tree = put(budget(name), "spec.envelopes[0].lending.to", [luck.choice(bad)])
    if luck.random() < 0.3:
        tree = put(run(name), "spec.funding.sponsors", [luck.choice([*bad, "org:ai:*", "*"])])
    return Variant(said(luck, tree))


def cycles(luck: Luck, name: str) -> Variant:
    """Families in which somebody is their own ancestor."""
    length = size(luck, 200)
    owners = [f"org:{name}:{number}" for number in range(length)]
    trees = [
        put(put(budget(f"{name}-{number}"), "spec.owner", owner), "spec.parents", [owners[(number + 1) % length]])
        for number, owner in enumerate(owners)
    ]
    return Variant(said(luck, trees if luck.random() < 0.5 else {"kind": "List", "items": trees}))


def paths(luck: Luck, name: str) -> Variant:
    """Names that would leave their folder."""
    bad = luck.choice(["../../etc/passwd", "..", ".", "/etc/shadow", "a/../b", "a/b", "..%2f..%2fx", "C:\\x",
                       "\\\\host\\share",
                       "~root", "file:///etc/passwd", "a\\b", "-rf", "a" * 300 + "/..", ".hidden", "nul\x00x",
                       "a..b/"])  # fmt: skip
    tree = one(luck, name)
    where = (*RUN_WORDS[:4], "spec.template.spec.containers[0].name", "spec.template.spec.initContainers")
    path = pick(luck, tree, where, BUDGET_WORDS)
    value: Any = [{"name": bad}] if path.endswith("initContainers") else bad
    may = path.endswith("gpuType") or tree["kind"] == "Budget"
    return Variant(said(luck, put(tree, path, value)), bad=not may or "/" in bad or "\\" in bad)


_SHELL = ("$(touch pwned)", "`id`", "; rm -rf /", "| sh", "&& true", "{{ 7*7 }}", "{{.Values.x}}",
          "${jndi:ldap://x}", "%s%n%x",
          "%(name)s", "{0.__class__}", "' OR 1=1 --", "<script>alert(1)</script>", "$HOME", "#{7*7}", "<%= 1 %>",
          "\\", '"', "'",
          "=cmd|'/c calc'!A0", "@SUM(1)", "a\nb", "x: y", "- z", "*", "&", "!",
          "<!ENTITY x SYSTEM 'file:///'>")  # fmt: skip


def shell(luck: Luck, name: str) -> Variant:
    """What a shell, a template or a database would act on. In a command it is the tenant's own."""
    text = luck.choice(_SHELL)
    tree = one(luck, name)
    if tree["kind"] == "Run" and luck.random() < 0.5:
        return Variant(said(luck, put(tree, luck.choice(FREE), f"x {text}")), bad=False)
    path = pick(luck, tree, RUN_WORDS, BUDGET_WORDS)
    return Variant(said(luck, put(tree, path, text)))


def names(luck: Luck, name: str) -> Variant:
    """Names, labels and owners without end."""
    tree = one(luck, name)
    long = luck.choice(["a", "a-", "a.", "0"]) * (254 + size(luck, 200_000))
    path = pick(luck, tree, RUN_WORDS, BUDGET_WORDS)
    shapes = (
        lambda: put(tree, path, long),
        lambda: put(tree, "metadata.labels", {long: "x"}),
        lambda: put(tree, "metadata.labels", {"x": long}),
        lambda: put(tree, "metadata.annotations", {"rq.davidlangworthy.io/x": long * 3 + "y" * 300_000}),
        lambda: put(tree, "spec.owner", ":".join(["a"] * (200 + size(luck, 50_000)))),
        lambda: put(tree, "metadata.name", f"{name}-a1-g00-n1-0") if tree["kind"] == "Run" else put(tree, path, long),
    )  # fmt: skip
    return Variant(said(luck, luck.choice(shapes)()))


def times(luck: Luck, name: str) -> Variant:
    """Instants that never were, lengths that are none, clocks of nowhere."""
    instants = ["2025-02-30T00:00:00Z", "2025-13-01T00:00:00Z", "2025-11-01T25:00:00Z", "2025-11-01", "now",
                "tomorrow", "",
                "2025-11-01T00:00:00", "2025-11-01T00:00:00+99:99", "2025-11-01T00:00:60Z", "0000-00-00T00:00:00Z",
                "99999-01-01T00:00:00Z", "-2025-11-01T00:00:00Z", "1698796800", "2025-11-01T00:00:00 Europe/Berlin",
                "2025-11-01 00:00:00", "2025-W44-6T00:00:00Z", "\u0662\u0660\u0662\u0665-11-01T00:00:00Z",
                "2025-11-01T00:00:00." + "1" * size(luck, 300_000) + "Z", "2025-11-01t00:00:00z"]  # fmt: skip
    lengths = ["", "6", "6 h", "6hours", "-6h", "1e3h", "h",
               "6h6h6h" * size(luck, 9000), "9" * size(luck, 300_000) + "h", "P1D",
               "6\u0068\u200b", "0.5.5h", "inf", "1:30", "0s", "\u0666h", "6H", "1h-30m", "NaN"]  # fmt: skip
    if luck.random() < 0.5:
        field = luck.choice(["start", "end"])
        chosen = luck.choice(instants)
        tree = put(budget(name), f"spec.envelopes[0].{field}", chosen)
        return Variant(said(luck, tree), bad=not chosen.endswith("t00:00:00z"))
    return Variant(
        said(
            luck,
            put(run(name), f"spec.runtime.{luck.choice(['expectedDuration', 'checkpoint'])}", luck.choice(lengths)),
        )
    )


def privileges(luck: Luck, name: str) -> Variant:
    """A template that asks for what the scheduler gives, or for the whole machine."""
    main = "spec.template.spec.containers[0]"
    asks: dict[str, Any] = {
        "spec.template.spec.nodeName": "a-1",
        "spec.template.spec.hostNetwork": True,
        "spec.template.spec.hostPID": True,
        "spec.template.spec.schedulerName": "mine",
        "spec.template.spec.restartPolicy": "Always",
        "spec.template.spec.volumes": [{"name": "x", "hostPath": {"path": "/dev"}}],
        "spec.template.spec.serviceAccountName": "admin",
        "spec.template.spec.priorityClassName": "system-node-critical",
        "spec.template.metadata.labels": {"rq.davidlangworthy.io/run": "other", "rq.davidlangworthy.io/group": "9"},
        "spec.template.metadata.annotations": {"rq.davidlangworthy.io/fleet": "mine"},
        "spec.template.metadata.name": "other",
        "spec.template.metadata.namespace": "kube-system",
        "spec.template.spec.hostname": "gpu-0",
        "spec.template.spec.tolerations": [{"operator": "Exists"}],
        "spec.template.spec.resourceClaims": [{"name": "gpu"}],
        f"{main}.securityContext": {"privileged": True},
        f"{main}.env": [{"name": key, "value": "all"} for key in
                        ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "TENURE_RUN", "LD_PRELOAD", "MASTER_ADDR")],
        f"{main}.resources": {"limits": {"nvidia.com/gpu": "64"}, "requests": {"nvidia.com/gpu": "0"}},
        "spec.template.spec.initContainers": [
            {"name": "i", "command": ["true"], "resources": {"limits": {"nvidia.com/gpu": 8}}}],
    }  # fmt: skip
    tree = run(name)
    for path in luck.sample(sorted(asks), luck.randrange(1, 6)):
        tree = put(tree, path, asks[path])
    return Variant(said(luck, tree), bad=False)


_OTHERS = ("org:ai", "org", "org:ai:raix", "org:mm", "org:ai:vision", "org:ai:rai2:sys")


def spoofing(luck: Luck, name: str) -> Variant:
    """Somebody else's money, or the scheduler's own words."""
    tree = run(name)
    bad = (
        lambda: put(tree, "spec.owner", luck.choice(_OTHERS)),
        lambda: put(tree, "spec.funding", {"allowBorrow": False, "maxBorrowGPUs": 1}),
        lambda: {**tree, "kind": "Lease"},
        lambda: {**tree, "kind": "Reservation"},
        lambda: put(tree, "spec.paidByEnvelope", "west"),
        lambda: put(tree, "spec.resources.paidByBudget", "rai"),
        lambda: put(tree, "metadata.ownerReferences", "me"),
        lambda: put(budget(name), "spec.owner", "*"),
        lambda: put(tree, "metadata.managedFields", [{"manager": "tenure"}]),
    )  # fmt: skip
    fine = (
        lambda: put(tree, "status", {"phase": "Completed"}),
        lambda: put(tree, "metadata.uid", "11111111-2222-3333-4444-555555555555"),
        lambda: put(tree, "metadata.creationTimestamp", "1999-01-01T00:00:00Z"),
        lambda: put(tree, "metadata.annotations", {"rq.davidlangworthy.io/owner": "org:mm"}),
        lambda: put(tree, "metadata.annotations", {"rq.davidlangworthy.io/resolve": "now"}),
        lambda: put(tree, "metadata.labels", {"rq.davidlangworthy.io/run": "other"}),
        lambda: put(tree, "metadata.generation", 99),
        lambda: put(tree, "metadata.finalizers", ["rq.davidlangworthy.io/leases"]),
    )
    if luck.random() < 0.55:
        return Variant(said(luck, luck.choice(bad)()))
    return Variant(said(luck, luck.choice(fine)()), bad=False)
