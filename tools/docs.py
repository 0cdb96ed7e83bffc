"""Build the documentation's site, strictly. ``make docs``.

    python -m tools.docs            into build/site; exit 1 if anything is broken

Pages are Markdown under ``docs``, as they are read in the repository. The order of the navigation stands here; a page
that is not named is put at the end of its section, so that none is forgotten. Three things must hold: the generated
pages are fresh, the generator (Zensical, which reads ``mkdocs.yml``) has nothing to complain about, and every link,
picture and anchor in what it built leads somewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
CONFIG = ROOT / ".mkdocs.yml"
"""Written anew each time: it must stand in the folder above the pages."""
SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("start.md",),
    "How to": ("howto/researchers.md", "howto/budget-owners.md", "howto/operators.md"),
    "Concepts": (
        "concepts/budgets.md", "concepts/runs.md", "concepts/leases.md", "concepts/ledger.md",
        "concepts/reservations.md", "concepts/lottery.md",
    ),
    "Guides": ("guide/cli.md", "guide/kubernetes.md", "guide/reservations.md", "guide/oversubscription.md"),
    "Operate": ("operate/install.md", "operate/runbook.md", "operate/security.md"),
    "Migrate": ("migrate/kueue.md", "migrate/slurm.md"),
    "Reference": (
        "reference/api.md", "reference/cli.md", "reference/reasons.md", "reference/policy.md", "reference/metrics.md",
        "reference/invariants.md", "reference/examples.md",
    ),
    "Inside": ("performance.md", "develop/control-plane.md", "design/reservations.md", "decisions/README.md"),
}  # fmt: skip
"""Sections in their order, and which pages come first in each."""
FOLDERS = {
    "howto": "How to", "concepts": "Concepts", "guide": "Guides", "operate": "Operate", "migrate": "Migrate",
    "reference": "Reference", "design": "Inside", "decisions": "Inside", "develop": "Inside",
}  # fmt: skip
"""Where a page goes that is named nowhere."""
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def title(page: Path) -> str:
    """A page's own heading, as plain text."""
    found = _TITLE.search(page.read_text())
    return re.sub(r"[`*]", "", found[1]) if found else page.stem


def navigation(docs: Path = DOCS) -> list[Any]:
    """The whole navigation: every page once."""
    pages = {str(page.relative_to(docs)): page for page in sorted(docs.rglob("*.md"))}
    sections = {name: [one for one in first if one in pages] for name, first in SECTIONS.items()}
    placed = {"index.md", *(one for first in sections.values() for one in first)}
    for name in pages:
        if name not in placed:
            sections[FOLDERS.get(name.partition("/")[0], "Inside")].append(name)
    home: list[Any] = [{"Tenure": "index.md"}] if "index.md" in pages else []
    return home + [
        {section: [{title(pages[one]): one} for one in names]} for section, names in sections.items() if names
    ]


def configuration(docs: Path = DOCS, site: Path = SITE) -> dict[str, Any]:
    """What ``mkdocs.yml`` says."""
    return {
        "site_name": "Tenure",
        "site_description": "Who holds which GPU, until when, and who pays.",
        "docs_dir": os.path.relpath(docs, ROOT),
        "site_dir": os.path.relpath(site, ROOT),
        "use_directory_urls": False,  # pages can be read from the disk, without a server
        "theme": {"name": "material", "font": False, "features": ["navigation.indexes", "content.code.copy"]},
        "markdown_extensions": ["tables", "fenced_code", "attr_list", {"toc": {"permalink": True}}],
        "nav": navigation(docs),
    }


# --- what was built -------------------------------------------------------------------------------------------------


class _Reader(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag not in ("link", "base"):
                self.links.append(value)


def broken(site: Path = SITE) -> Iterator[str]:
    """Every link, picture and anchor that leads nowhere. What is on other servers is not asked."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in sorted(set(page.links)):
            where = urlsplit(link)
            if where.scheme or where.netloc or link.startswith("//"):
                continue
            target = (path.parent / unquote(where.path)).resolve() if where.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or site.resolve() not in target.parents:
                yield f"{path.relative_to(site.resolve())}: {link} leads nowhere"
            elif where.fragment and target in pages and unquote(where.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site.resolve())}: {link}: there is no such anchor"


def _read(path: Path) -> _Reader:
    reader = _Reader()
    reader.feed(path.read_text())
    return reader


def main() -> int:
    """Exit 0 if the site was built and nothing is broken."""
    from tools.generate import stale

    if old := stale():
        print("\n".join(f"stale: {path}" for path, _ in old), file=sys.stderr)
        print("run `make generate` first", file=sys.stderr)
        return 1
    CONFIG.write_text(yaml.safe_dump(configuration(), sort_keys=False, allow_unicode=True))
    program = ROOT / ".venv-docs" / "bin" / "zensical"
    command = [os.environ.get("ZENSICAL") or str(program), "build", "--strict", "--clean", "-f", str(CONFIG)]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, check=False).returncode:
        return 1
    found = list(broken())
    for one in found:
        print(one, file=sys.stderr)
    pages = sum(1 for _ in SITE.rglob("*.html"))
    print(
        f"{pages} pages in {SITE.relative_to(ROOT)}, {len(found)} broken links" + ("" if found else ": open index.html")
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
