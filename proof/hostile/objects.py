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
    Tree,
    Variant,
    as_yaml,
    at,
    budget,
    one,
    pick,
    plain,
    put,
    run,
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
    return plain(luck, put(tree, path, {**place, **dict.fromkeys(sorted(keys), 1)}))


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
    return plain(luck, put(tree, path, value))


def booleans(luck: Luck, name: str) -> Variant:
    """true where a number belongs, which Python would take for 1; and yes and no, which YAML once took for true."""
    tree = one(luck, name)
    if luck.random() < 0.3 and tree["kind"] == "Run":
        word = luck.choice(["yes", "no", "on", "off", "Yes", "NO", "y", "'true'"])
        flag = luck.choice(["opportunistic: false", "allowBorrow: true", "allowCrossGroupSpread: true"])
        return Variant(as_yaml(tree).replace(flag.encode(), f"{flag.split()[0]} {word}".encode()))
    for path in _places(luck, tree):
        tree = put(tree, path, luck.choice([True, False]))
    return plain(luck, tree)


def _places(luck: Luck, tree: Tree) -> list[str]:
    """One to three of the places for numbers."""
    numbers = RUN_NUMBERS if tree["kind"] == "Run" else BUDGET_NUMBERS
    return luck.sample(numbers, luck.randrange(1, 4))


def negative(luck: Luck, name: str) -> Variant:
    """Fewer than none."""
    tree = one(luck, name)
    path = pick(luck, tree, RUN_NUMBERS, BUDGET_NUMBERS)
    value = -luck.choice([1, 2, 7, 2**31, 2**53, 2**63, 10**30])
    return plain(luck, put(tree, path, luck.choice([value, value, float(value) / 2])))


def zero(luck: Luck, name: str) -> Variant:
    """None at all; in a few places that is what it means."""
    tree = one(luck, name)
    paths = _places(luck, tree)
    for path in paths:
        tree = put(tree, path, luck.choice([0, 0, 0, -0.0, 0.0]))
    free = ("sparesPerGroup", "maxBorrowGPUs", "maxRestarts", "maxGPUHours", "maxConcurrency")
    return plain(luck, tree, bad=not all(path.endswith(free) for path in paths))


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
        return plain(luck, {**run(name), "spec": spec}, bad=False)
    path = pick(luck, tree, RUN_NUMBERS, BUDGET_NUMBERS)
    value = luck.choice([2**53 + 1, 2**63, 2**64, 10**40, 10 ** size(luck, 4000), 1e300, 1.5, 1e16])
    text = json.dumps(put(tree, path, "HERE"))
    spelled = luck.choice(["1e99999999", "9" * (16 + size(luck, 300_000)), "1_000", "1e400", _digits(value)])
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
    spelled = luck.choice([".nan", ".inf", "-.Inf", ".NaN"]).encode()
    return Variant(as_yaml(put(tree, path, "HERE")).replace(b"HERE", spelled))


def globs(luck: Luck, name: str) -> Variant:
    """Patterns that would be regular expressions, or match more than was meant."""
    bad = ["(a+)+$", "org:a*", "**", "[a-", "?", "org:**", "*:*x", "org::*", ":*", "*:", "org:*:", ".*", "^org",
           "org:ai:*|.*",
           "org:{a,b}", "org:ai:%", "~", "!org:*", "org:AI:*", "org:*,org:b", " *", "*" * size(luck, 200_000),
           "a:" * size(luck, 100_000), "(" * 500 + ")" * 500, "\\*", "org:ai:\u2217"]  # fmt: skip
    tree = put(budget(name), "spec.envelopes[0].lending.to", luck.sample(bad, luck.randrange(1, 4)))
    if luck.random() < 0.3:
        tree = put(run(name), "spec.funding.sponsors", [luck.choice([*bad, "org:ai:*", "*"])])
    return plain(luck, tree)


def cycles(luck: Luck, name: str) -> Variant:
    """Families in which somebody is their own ancestor: rings of any length, in any order, with honest relatives.

    Each object is good as long as one of the ring is missing, whichever comes last."""
    length = size(luck, 200) - luck.randrange(2)
    owners = [f"org:{name}:{number}" for number in range(length)]
    trees = []
    for number, owner in enumerate(owners):
        parents = [
            owners[(number + 1) % length],
            *luck.sample(["org:x", "org:y", "org:z:z"], luck.choice([0, 0, 1, 2])),
        ]
        luck.shuffle(parents)
        trees.append(put(put(budget(f"{name}-{number}"), "spec.owner", owner), "spec.parents", parents))
    if luck.random() < 0.5:
        luck.shuffle(trees)
    for number in range(luck.choice([0, 0, 1, 3])):  # below the ring, and no part of it
        child = put(budget(f"{name}-child{number}"), "spec.parents", [luck.choice(owners)])
        trees.insert(luck.randrange(len(trees)), put(child, "spec.owner", f"org:{name}:child{number}"))
    if luck.random() < 0.3:
        return Variant(b"---\n".join(map(as_yaml, trees)), together=True)
    return plain(luck, trees if luck.random() < 0.5 else {"kind": "List", "items": trees}, together=True)


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
    return plain(luck, put(tree, path, value), bad=not may or "/" in bad or "\\" in bad)


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
        return plain(luck, put(tree, luck.choice(FREE), f"x {text}"), bad=False)
    path = pick(luck, tree, RUN_WORDS, BUDGET_WORDS)
    return plain(luck, put(tree, path, text))


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
    return plain(luck, luck.choice(shapes)())


def times(luck: Luck, name: str) -> Variant:
    """Instants that never were, lengths that are none, clocks of nowhere."""
    instants = ["2025-02-30T00:00:00Z", "2025-13-01T00:00:00Z", "2025-11-01T25:00:00Z", "2025-11-01", "now",
                "tomorrow", "",
                "2025-11-01T00:00:00", "2025-11-01T00:00:00+99:99", "2025-11-01T00:00:60Z", "0000-00-00T00:00:00Z",
                "99999-01-01T00:00:00Z", "-2025-11-01T00:00:00Z", "1698796800", "2025-11-01T00:00:00 Europe/Berlin",
                "2025-11-01 00:00:00", "2025-W44-6T00:00:00Z", "\u0662\u0660\u0662\u0665-11-01T00:00:00Z",
                "2025-11-01T00:00:00." + "1" * size(luck, 300_000) + "Z", "2025-11-01t00:00:00z"]  # fmt: skip
    lengths = ["", "6", "6 h", "6hours", "-6h", "1e3h", "h",
               "6h6h6h" * size(luck, 9000), "9" * (7 + size(luck, 300_000)) + "h", "P1D",
               "6\u0068\u200b", "0.5.5h", "inf", "1:30", "0s", "\u0666h", "6H", "1h-30m", "NaN"]  # fmt: skip
    if luck.random() < 0.5:
        field = luck.choice(["start", "end"])
        chosen = luck.choice(instants)
        tree = put(budget(name), f"spec.envelopes[0].{field}", chosen)
        return plain(luck, tree, bad=not chosen.endswith("t00:00:00z"))
    field, chosen = luck.choice(["expectedDuration", "checkpoint"]), luck.choice(lengths)
    may = chosen.startswith("6h6h")  # a long way to say how long, and none of the text is wrong
    return plain(luck, put(run(name), f"spec.runtime.{field}", chosen), bad=not may)


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
    return plain(luck, tree, bad=False)


_OTHERS = ("org:ai", "org", "org:ai:raix", "org:mm", "org:ai:vision", "org:ai:rai2:sys")
_CLAIMS: tuple[tuple[str, Any], ...] = (
    *(("spec.owner", owner) for owner in _OTHERS),
    ("spec.funding", {"allowBorrow": False, "maxBorrowGPUs": 1}),
    ("kind", "Lease"),
    ("kind", "Reservation"),
    ("spec.paidByEnvelope", "west"),
    ("spec.resources.paidByBudget", "rai"),
    ("metadata.ownerReferences", "me"),
    ("metadata.managedFields", [{"manager": "tenure"}]),
)
"""Never right."""
_WORDS: tuple[tuple[str, Any], ...] = (
    ("status", {"phase": "Completed"}),
    ("metadata.uid", "11111111-2222-3333-4444-555555555555"),
    ("metadata.creationTimestamp", "1999-01-01T00:00:00Z"),
    ("metadata.annotations", {"rq.davidlangworthy.io/owner": "org:mm"}),
    ("metadata.annotations", {"rq.davidlangworthy.io/resolve": "now"}),
    ("metadata.labels", {"rq.davidlangworthy.io/run": "other"}),
    ("metadata.generation", 99),
    ("metadata.finalizers", ["rq.davidlangworthy.io/leases"]),
)
"""Not listened to."""


def spoofing(luck: Luck, name: str) -> Variant:
    """Somebody else's money, or the scheduler's own words: one claim, some words, or both."""
    bad = luck.random() < 0.55
    if bad and luck.random() < 0.1:
        return plain(luck, put(budget(name), "spec.owner", luck.choice(["*", "org:*", "org:ai:**", "org:x,org:ai"])))
    tree = run(name)
    for path, value in luck.sample(_WORDS, luck.randrange(3) if bad else luck.randrange(1, 5)):
        tree = put(tree, path, value)
    return plain(luck, put(tree, *luck.choice(_CLAIMS)) if bad else tree, bad=bad)
