"""Classes that are hostile as text: how long, how deep, how spelled, before any of it is an object."""

from __future__ import annotations

import json
import random

from proof.hostile.parts import (
    BUDGET_WORDS,
    FREE,
    MIB,
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


def oversize(luck: Luck, name: str) -> Variant:
    """More than a mebibyte, or less of it but without end in one place."""
    over = MIB + size(luck, MIB)
    honest = as_yaml(run(name)).decode()
    shapes = (
        lambda: "a" * over,
        lambda: honest + "#" * over,
        lambda: honest + "\n" * over,
        lambda: json.dumps(put(run(name), luck.choice(FREE), "x" * over)),
        lambda: "".join(f"{honest.replace(name, f'{name}-{n}')}---\n" for n in range(over // len(honest) + 1)),
        lambda: json.dumps([{}] * (over // 3)),
        lambda: "---\n" * (MIB // 4 - size(luck, 9999)),
        lambda: json.dumps(put(run(name), "spec.funding.sponsors", ["org:a"] * (40 + size(luck, 40_000)))),
        lambda: json.dumps(put(run(name), "spec.template.spec.x", [0] * (31_000 + size(luck, 60_000)))),
        lambda: json.dumps(put(budget(name), "spec.envelopes", [{}] * (1000 + size(luck, 30_000)))),
        lambda: json.dumps(put(run(name), "metadata.labels", {f"k{n}": "v" for n in range(65 + size(luck, 9000))})),
        lambda: json.dumps([{"kind": "Namespace", "metadata": {"name": f"n{n}"}} for n in range(10_001 + over % 999)]),
        lambda: "kind: Run\n" + "x: " + "4" * (MIB - 20),
    )  # fmt: skip
    return Variant(luck.choice(shapes)().encode())


def deep(luck: Luck, name: str) -> Variant:
    """Nested further than any object needs."""
    depth = 33 + size(luck, 200_000)
    short = 33 + size(luck, 400)
    shapes = (
        lambda: "[" * depth,
        lambda: "[" * depth + "]" * depth,
        lambda: "{a: " * depth,
        lambda: '{"a":' * depth,
        lambda: '{"a":' * depth + "1" + "}" * depth,
        lambda: "- " * depth,
        lambda: "? " * depth,
        lambda: "".join(" " * level + "a:\n" for level in range(33 + size(luck, 1200))),
        lambda: json.dumps(run(name)).replace('"train"', "[" * short + "]" * short),
        lambda: json.dumps(run(name)).replace('"registry/train:1"', '{"a":' * short + "1" + "}" * short),
        lambda: "kind: List\nitems: " + "[" * short + "]" * short,
        lambda: json.dumps({"kind": "List", "items": [run(name)]}).replace('"items": [', '"items": [' + "[" * short)
        .replace("}]}", "}" + "]" * (short + 1) + "}"),
    )  # fmt: skip
    return Variant(luck.choice(shapes)().encode())


def aliases(luck: Luck, name: str) -> Variant:
    """Anchors, aliases and merge keys: bombs, circles, and such as look harmless."""
    width, rounds = 2 + size(luck, 12), 3 + size(luck, 9)
    tree = one(luck, name)
    honest = as_yaml(tree).decode()
    part = luck.choice([key for key, value in tree["spec"].items() if isinstance(value, dict | list)])
    field = luck.choice([key for key, value in tree["spec"].items() if not isinstance(value, dict | list)])
    bomb = "a0: &a0 [" + ",".join(["x"] * width) + "]\n"
    bomb += "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * width)}]\n" for n in range(1, rounds))
    maps = "b0: &b0 {" + ",".join(f"k{n}: x" for n in range(width)) + "}\n"
    maps += "".join(f"b{n}: &b{n} {{{','.join(f'k{m}: *b{n - 1}' for m in range(width))}}}\n" for n in range(1, rounds))
    shapes = (
        lambda: bomb,
        lambda: maps,
        lambda: honest + luck.choice([bomb, maps]),
        lambda: luck.choice([bomb, maps]) + honest,
        lambda: honest.replace(f"  {part}:\n", f"  {part}: &l\n", 1) + luck.choice(["status", "x", "spec"]) + ": *l\n",
        lambda: honest.replace("metadata:", "metadata: &m", 1).replace(f"  {part}:", f"  old: *m\n  {part}:", 1),
        lambda: f"x: &x\n{' ' * rounds}{luck.choice(['<<', 'y', '? z'])}: *x\n{honest}",
        lambda: f"x: &x [{'[' * rounds}*x{']' * rounds}]\n{honest}",
        lambda: honest.replace("spec:\n", f"spec:\n  <<: {{{field}: {luck.choice(['org:mm', '7', 'null'])}}}\n", 1),
        lambda: honest.replace("spec:\n", f"spec:\n  <<: [{', '.join(['{a: b}'] * width)}]\n", 1),
        lambda: honest.replace(f"  {field}: ", f"  {field}: &n ", 1) + luck.choice(["x", "status", "kind"]) + ": *n\n",
        lambda: "&a " * size(luck, 60_000) + honest,
        lambda: honest + "".join(f"k{n}: [*a, *a]\n" for n in range(size(luck, 9000))),
        lambda: honest.replace(f"  {field}: ", f"  {field}: *nobody # ", 1),
    )  # fmt: skip
    return Variant(luck.choice(shapes)().encode())


_TWICE_IN_RUN = ("metadata", "metadata.labels", *RUN_PARTS[3:9], "spec.runtime", "spec.template.spec.containers[0]")
_TWICE_IN_BUDGET = ("metadata", "spec", "spec.envelopes[0]", "spec.envelopes[0].lending", "spec.aggregateCaps[0]")


def duplicates(luck: Luck, name: str) -> Variant:
    """A key twice: which one counts is anybody's guess."""
    tree = one(luck, name)
    path = pick(luck, tree, _TWICE_IN_RUN, _TWICE_IN_BUDGET)
    while not isinstance(at(tree, path), dict):
        path = pick(luck, tree, _TWICE_IN_RUN, _TWICE_IN_BUDGET)
    key = luck.choice(sorted(at(tree, path)))
    inner, value = (
        json.dumps(at(tree, path)),
        json.dumps(luck.choice([1, "x", None, True, {}, [], at(tree, path)[key]])),
    )
    first = json.dumps(tree).replace(inner, f'{{"{key}": {value}, {inner[1:]}', 1)
    last = json.dumps(tree).replace(inner, f'{inner[:-1]}, "{key}": {value}}}', 1)
    spelled = "".join(f"\\u{ord(c):04x}" for c in key)
    top = luck.choice(["apiVersion: v1", "apiVersion: rq.davidlangworthy.io/v1", "kind: Run", "kind: Budget",
                       "kind: Lease", "spec: {}", "spec: null", "metadata: {name: other}", "metadata: {}"])  # fmt: skip
    shapes = (
        lambda: first,
        lambda: last,
        lambda: first.replace(f'"{key}"', f'"{spelled}"', 1),
        lambda: '{"kind": "Budget", ' + json.dumps(tree)[1:],
        lambda: as_yaml(tree).decode() + f"{top}\n",
        lambda: f"{top}\n" + as_yaml(tree).decode(),
        lambda: as_yaml(tree).decode().replace("metadata:\n", f"metadata:\n  name: {name}-other\n", 1),
        lambda: as_yaml(tree).decode().replace("metadata:\n", f'metadata:\n  "name": {name}\n', 1),
        lambda: "{" + '"a":{"a":1,"a":1},' * size(luck, 30_000) + '"b":1}',
    )  # fmt: skip
    return Variant(luck.choice(shapes)().encode())


def encodings(luck: Luck, name: str) -> Variant:
    """Bytes that are no UTF-8, or not all of them; and the habits of other systems, which are fine."""
    tree = one(luck, name)
    text = as_yaml(tree) if luck.random() < 0.5 else json.dumps(tree, indent=1).encode()
    cut = luck.randrange(1, len(text) - 2)
    rubbish = bytes(luck.randrange(256) for _ in range(size(luck, 4000)))
    bad = (
        lambda: text[:cut] + bytes([luck.choice([0x80, 0xC0, 0xC1, 0xF5, 0xFF])]) + text[cut:],
        lambda: text[:cut] + b"\xed\xa0\x80" + text[cut:],
        lambda: text[:cut] + b"\xc0\xaf" + text[cut:],
        lambda: text.decode().encode("utf-16"),
        lambda: text.decode().encode("utf-32"),
        lambda: b"\x00" * size(luck, 9999),
        lambda: text[:cut] + b"\x00" + text[cut:],
        lambda: b"\x1f\x8b\x08" + rubbish,
        lambda: b"\x7fELF" + rubbish,
        lambda: json.dumps(tree).encode()[: cut % 300 + 1],
        lambda: b"",
        lambda: b"\n \n",
        lambda: text.replace(b"spec:", b"\tspec:", 1) if b"spec:" in text else text[:cut],
    )  # fmt: skip
    fine = (
        lambda: text.replace(b"\n", b"\r\n"),
        lambda: b"\xef\xbb\xbf" + text,
        lambda: text + b"\n...\n",
        lambda: b"# a comment\n---\n" + text + b"---\n",
    )
    if luck.random() < 0.75:
        return Variant(luck.choice(bad)())
    return Variant(luck.choice(fine)(), bad=False)


_TAGS = ("!!python/object/apply:os.system", "!!python/name:os.system", "!!python/object/new:type", "!!python/tuple",
         "!!binary", "!!set", "!!omap", "!!timestamp", "!!float", "!!null", "!ruby/object:Gem::Installer",
         "!!js/function",
         "!local", "!<tag:yaml.org,2002:python/object/apply:subprocess.Popen>", "!!java.net.URL", "!Sub",
         "!vault")  # fmt: skip


def tags(luck: Luck, name: str) -> Variant:
    """YAML's way to have a reader build things."""
    tag = luck.choice(_TAGS)
    honest = as_yaml(one(luck, name)).decode()
    shapes = (
        lambda: f"{tag} ['touch /tmp/pwned']\n",
        lambda: honest.replace("kind: ", f"kind: {tag} ", 1),
        lambda: honest.replace("name: ", f"name: {tag} ", 1),
        lambda: honest.replace("spec:\n", f"spec: {tag}\n", 1),
        lambda: honest + f"x: {tag} ['id']\n",
        lambda: f"--- {tag}\n{honest}",
        lambda: f"%TAG ! tag:evil.example,2000:\n---\n{honest.replace('kind: ', 'kind: !x ', 1)}",
        lambda: f"? {tag} [a]\n: b\n{honest}",
    )  # fmt: skip
    return Variant(luck.choice(shapes)().encode())


def kinds(luck: Luck, name: str) -> Variant:
    """Not the group, version or kind that is asked for; lists in lists; a good object beside a bad one."""
    tree, other = one(luck, name), one(luck, f"{name}-b")
    strange: tuple[Tree | list[Tree], ...] = (
        put(
            tree,
            "apiVersion",
            luck.choice(["v1", "rq.davidlangworthy.io/v2", "batch/v1", "", "rq.davidlangworthy.io/v1 "]),
        ),
        put(
            tree, "kind", luck.choice(["run", "Runs", "RUN", "Budjet", "Pod", "Secret", "", "List", "Policy", "Fleet"])
        ),
        put(tree, "kind", luck.choice(["Lease", "Reservation", "LedgerHead", "LedgerEntry"])),
        {key: value for key, value in tree.items() if key != luck.choice(["kind", "metadata", "spec"])},
        {"kind": "List", "items": [tree, put(other, "spec.owner", "Not An Owner")]},
        {"kind": "List", "items": [tree, tree]},
        {"kind": "List", "items": [{"kind": "List", "items": [tree]}]},
        {"kind": "List", "items": {"0": tree}},
        {"kind": "List"},
        [tree, [other]],
        {"kind": "Run", "metadata": {"name": name}},
        put(tree, "apiVersion", ["v1"]),
    )
    chosen = luck.choice(strange)
    if luck.random() < 0.2:  # a stream whose last document is wrong: nothing of it counts
        count = size(luck, 60)
        good = b"---\n".join(as_yaml(run(f"{name}-{number}")) for number in range(count))
        return Variant(good + b"---\n" + as_yaml({"kind": "Budjet"}))
    complete = isinstance(chosen, dict) and chosen == tree
    return plain(luck, chosen, bad=not complete)


def controls(luck: Luck, name: str) -> Variant:
    """What steers a terminal or ends a line in a log."""
    mark = luck.choice(["\x1b[2J", "\x1b]0;owned\x07", "\x1b[31m", "\r", "\x07", "\x08" * 9, "\x00", "\x7f", "\x9b31m",
                        "\x1bP", "\x0b", "\x0c", "\x1e", "\u2028", "\u2029", "\x85"])  # fmt: skip
    tree = one(luck, name)
    path = pick(luck, tree, (*RUN_WORDS, *FREE), BUDGET_WORDS)
    shapes = (
        lambda: json.dumps(put(tree, path, f"a{mark}b")).encode(),
        lambda: json.dumps(put(tree, path, f"{at(tree, path)}{mark}")).encode(),
        lambda: json.dumps({**tree, f"x{mark}": 1}).encode(),
        lambda: json.dumps(put(tree, "spec", {**tree["spec"], f"{mark}owner": "org"})).encode(),
        lambda: json.dumps(put(tree, "kind", f"Run{mark}")).encode(),
        lambda: f"kind: Run\n{mark}".encode("utf-8", "surrogatepass"),
        lambda: f"kind: {mark}Run\nmetadata: {{name: {name}}}\n".encode("utf-8", "surrogatepass"),
        lambda: json.dumps(put(tree, "metadata.labels", {f"a{mark}": "b"})).encode(),
        lambda: json.dumps(put(tree, "metadata.annotations", {"rq.davidlangworthy.io/owner": f"org{mark}"})).encode(),
    )  # fmt: skip
    return Variant(luck.choice(shapes)(), bad=tree["kind"] == "Run" or path != "")


_ODD = ("\u202eevil", "a\u200bb", "\u2066x\u2069", "a\u200db", "\ufeffx", "tr\u0430in", "\uff41\uff42", "e\u0301",
        "\u00ad",
        "\U0001f600", "\u0131", "\u212a", "\u3000", "\u2800", "\U000e0041", "\ufffd", "\uffff", "\ud800", "\u061c",
        "\u180e",
        "\u1d2e", "\u0660\u0661", "\u216b")  # fmt: skip


def unicode(luck: Luck, name: str) -> Variant:
    """Letters that look like others, that cannot be seen, or that turn the writing round."""
    odd = luck.choice(_ODD)
    tree = one(luck, name)
    if tree["kind"] == "Run" and luck.random() < 0.35:  # in a tenant's own text much of it is fine
        changed = put(tree, luck.choice(FREE), f"x{odd}y")
        return Variant(json.dumps(changed).encode(), bad=False)
    path = pick(luck, tree, RUN_WORDS, BUDGET_WORDS)
    where = luck.choice([f"{at(tree, path)}{odd}", f"{odd}{at(tree, path)}", odd])
    return Variant(json.dumps(put(tree, path, where)).encode())
