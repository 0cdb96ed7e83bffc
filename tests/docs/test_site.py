"""What the documentation's site is built from: every page has its place, and every link leads somewhere.

`make docs` builds the site and looks at what came out; CI calls it. This is what can be said without the generator.
"""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tools.docs import DOCS, FOLDERS, ROOT, SECTIONS, broken, configuration, navigation, title

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_LINK = re.compile(r"!?\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As both the site and a repository's viewer make them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found["text"]) for found in _HEADING.finditer(text))
    return {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for found in _LINK.finditer(_CODE.sub("", page.read_text())):
        target, _, anchor = unquote(found["target"]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue  # on another server
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {found['target']} leads nowhere"
        if DOCS in page.parents and target:
            assert DOCS in file.parents, f"{page.name}: {found['target']} is not part of the site"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.name}: {found['target']}: no such heading; {sorted(anchors(file))}"


def named(parts: list[object]) -> list[str]:
    """The pages of a navigation, in its order."""
    found = []
    for part in parts:
        for value in part.values() if isinstance(part, dict) else [part]:
            found += named(value) if isinstance(value, list) else [str(value)]
    return found


def test_every_page_has_its_place_in_the_navigation() -> None:
    pages = named(navigation())
    assert sorted(pages) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert pages[0] == "index.md"
    assert set(FOLDERS.values()) <= set(SECTIONS)


def test_a_new_page_finds_its_section(tmp_path: Path) -> None:
    for name in ("index.md", "guide/new.md", "guide/cli.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# The `{name}`\n")
    assert navigation(tmp_path) == [
        {"Tenure": "index.md"},
        {"Guides": [{"The guide/cli.md": "guide/cli.md"}, {"The guide/new.md": "guide/new.md"}]},
    ]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_page_has_a_heading(page: Path) -> None:
    assert title(page) != page.stem


def test_the_generator_is_pinned_with_hashes() -> None:
    text = (ROOT / "requirements" / "docs.txt").read_text()
    pins = re.findall(r"^[A-Za-z0-9][\w.-]*==\S+.*$", text, re.MULTILINE)
    assert any(pin.startswith("zensical==") for pin in pins)
    assert len(re.findall(r"==\S+(?: ; .*?)? \\\n(?: +--hash=sha256:[0-9a-f]{64}.*\n)+", text)) == len(pins)


def test_nothing_is_loaded_from_elsewhere() -> None:
    """Pages can be read without a network: no fonts and no scripts of other servers."""
    assert configuration()["theme"]["font"] is False


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("other.html", ""),
        ("other.html#there", ""),
        ("#here", ""),
        ("https://example.com/x", ""),
        ("none.html", "leads nowhere"),
        ("other.html#nowhere", "no such anchor"),
        ("#nowhere", "no such anchor"),
        ("../outside.txt", "leads nowhere"),
    ],
)
def test_a_broken_link_is_found_in_what_was_built(link: str, problem: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.txt").write_text("")
    (site / "index.html").write_text(f'<h1 id="here">x</h1><a href="{link}">x</a><img src="picture.png">')
    (site / "other.html").write_text('<h1 id="there">x</h1>')
    (site / "picture.png").write_text("")
    found = list(broken(site))
    assert [problem in one for one in found] == ([True] if problem else [])
