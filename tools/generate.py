"""Write the files that are made from the code: CRDs, the chart's, dashboards, rules, reference. ``make generate``.

    python tools/generate.py            write what changed
    python tools/generate.py --check    write nothing; exit 1 if a file is stale

To add a file, append its path and the function that makes its text to ``FILES``. A function is only called
when the files are made, so it may import what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("Budget", "Run", "Reservation", "Lease")
LEDGER_KINDS = {"LedgerEntry": "ledgerentries", "LedgerHead": "ledgerheads"}
DASHBOARDS = ("fleet", "queue", "budgets", "resolver", "spares", "controller")
_YAML_HEADER = "# Written by `make generate` from src/tenure/api; edit the types there.\n"


def examples_reference() -> str:
    """The files of ``examples``, as they are: the site has no folder of its own for them."""
    intro = (
        "<!-- Written by `make generate` from the folder `examples`; edit the files there. -->\n\n# Examples\n\n"
        "The files of the folder `examples`, which these pages and the tests use."
    )
    parts = [intro]
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        name = str(path.relative_to(ROOT / "examples"))
        parts.append(f"## {name}\n\n```yaml\n{path.read_text().strip()}\n```")
    return "\n\n".join(parts) + "\n"


def crd(kind: str) -> str:
    """One CustomResourceDefinition as YAML."""
    import yaml

    from tenure.api.crd import manifest

    return _YAML_HEADER + yaml.safe_dump(manifest(kind), sort_keys=False, width=110)


def ledger_crd(kind: str) -> str:
    """The same of a kind in which the ledger is kept."""
    import yaml

    from tenure.api.ledger_objects import manifest

    return _YAML_HEADER + yaml.safe_dump(manifest(kind), sort_keys=False, width=110)


def api_reference() -> str:
    from tenure.api.reference import api_page

    return api_page()


def policy_reference() -> str:
    from tenure.api.reference import policy_page

    return policy_page()


def cli_reference() -> str:
    from tenure.cli.reference import cli_page

    return cli_page()


def invariants_reference() -> str:
    from tenure.audit import invariants_markdown

    return invariants_markdown()


def reasons_reference() -> str:
    from tenure.engine.reasons import reasons_page

    return reasons_page()


def metrics_reference() -> str:
    from tenure.observe.reference import metrics_page

    return metrics_page()


def packaged(name: str) -> str:
    """A file of the chart or of the Kustomize base."""
    sys.path.insert(0, str(ROOT))
    from tools import packaged

    text: str = getattr(packaged, name)()
    return text


def dashboard(name: str) -> str:
    """One dashboard as JSON."""
    from tenure.observe.dashboards import DASHBOARDS
    from tools.grafana import written

    return written(next(one for one in DASHBOARDS if one.name == name))


def rules() -> str:
    """Recording and alerting rules as YAML."""
    import yaml

    from tenure.observe.rules import rules_file

    head = "# Written by `make generate` from src/tenure/observe/rules.py; edit the rules there.\n"
    return head + yaml.safe_dump(rules_file(), sort_keys=False, width=110)


FILES: list[tuple[str, Callable[[], str]]] = [
    ("docs/reference/examples.md", examples_reference),
    *((f"deploy/crds/{kind.lower()}s.yaml", partial(crd, kind)) for kind in KINDS),
    *((f"deploy/crds/{plural}.yaml", partial(ledger_crd, kind)) for kind, plural in LEDGER_KINDS.items()),
    ("deploy/chart/Chart.yaml", partial(packaged, "chart_manifest")),
    ("deploy/chart/files/install.yaml", partial(packaged, "chart_objects")),
    ("deploy/chart/files/webhooks.yaml", partial(packaged, "chart_webhooks")),
    ("deploy/kustomize/base/install.yaml", partial(packaged, "kustomize_objects")),
    *((f"deploy/dashboards/{name}.json", partial(dashboard, name)) for name in DASHBOARDS),
    ("deploy/alerts/tenure.rules.yaml", rules),
    ("docs/reference/api.md", api_reference),
    ("docs/reference/policy.md", policy_reference),
    ("docs/reference/cli.md", cli_reference),
    ("docs/reference/invariants.md", invariants_reference),
    ("docs/reference/reasons.md", reasons_reference),
    ("docs/reference/metrics.md", metrics_reference),
]


def stale(root: Path = ROOT) -> list[tuple[str, str]]:
    """The files that are not what they should be, with the text that they should have."""
    wanted = ((path, make()) for path, make in FILES)
    return [(path, text) for path, text in wanted if _text_of(root / path) != text]


def write(changes: list[tuple[str, str]], root: Path = ROOT) -> None:
    for path, text in changes:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def main(arguments: list[str]) -> int:
    """Exit 0 if all is fresh (now), 1 if ``--check`` found something stale, 2 for a wrong argument."""
    if arguments not in ([], ["--check"]):
        print("usage: tools/generate.py [--check]", file=sys.stderr)
        return 2
    changes = stale()
    for path, _ in changes:
        print(f"{'stale' if arguments else 'wrote'} {path}")
    if arguments:
        if changes:
            print("run `make generate` and commit what it writes", file=sys.stderr)
        return 1 if changes else 0
    write(changes)
    print(f"{len(FILES)} generated files are fresh")
    return 0


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for `tools`: it is called by its path
    sys.exit(main(sys.argv[1:]))
