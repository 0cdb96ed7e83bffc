"""What a release is made of: a CycloneDX document of the packages that are pinned in requirements/kube.txt.

The pins are the whole truth: they name each package exactly, and for whose sake it is there. So the document follows
from the checkout alone, and two people who build the same one get the same bytes. Hashes are in the pins, one for each
file that an index may serve; a document names packages.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "requirements" / "kube.txt"
OURS = "tenure"
BUILD_ONLY = {"setuptools"}
"""What builds a release and is in none."""
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)([^\n]*)\n((?:[ ]+[^\n]*\n)*)", re.MULTILINE)
_NAMESPACE = uuid.UUID("6f0ea5a0-4b0e-5d0c-9a53-7d1f5f5a8f10")


class Pin(NamedTuple):
    """A package, and the packages that want it."""

    name: str
    version: str
    wanted_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """How the world names it.

        >>> Pin("markdown-it-py", "4.3.0", ()).purl
        'pkg:pypi/markdown-it-py@4.3.0'
        """
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"


def pins(text: str | None = None) -> list[Pin]:
    """What is pinned, but for what only builds."""
    source = PINS.read_text() if text is None else text
    found = [Pin(each[1], each[2], _wanted_by(each[4])) for each in _PIN.finditer(source)]
    return [each for each in found if each.name not in BUILD_ONLY]


def _wanted_by(block: str) -> tuple[str, ...]:
    """Of the comment that begins ``# via``: the packages, ours by the name of the project."""
    _, _, told = block.partition("# via")
    names = [name for name in re.findall(r"[^\s#,]+(?: \([^)]*\))?", told) if not name.startswith(("-c", "-r"))]
    return tuple(sorted({name.split(" ")[0] for name in names if not name.startswith("requirements/")}))


def with_needs(names: Iterable[str]) -> set[str]:
    """These packages, and all that they want in turn."""
    found, todo = set(names), list(names)
    while todo:
        name = todo.pop()
        new = [each.name for each in pins() if name in each.wanted_by and each.name not in found]
        found.update(new)
        todo += new
    return found


def document(version: str) -> dict[str, Any]:
    """The CycloneDX document of one version."""
    found = pins()
    ours = {"type": "application", "bom-ref": f"pkg:pypi/{OURS}@{version}", "name": OURS, "version": version,
            "purl": f"pkg:pypi/{OURS}@{version}", "licenses": [{"license": {"id": "Apache-2.0"}}]}  # fmt: skip
    components = [
        {"type": "library", "bom-ref": each.purl, "name": each.name, "version": each.version, "purl": each.purl}
        for each in found
    ]
    named = {OURS: ours["bom-ref"], **{each.name: each.purl for each in found}}
    wants: dict[str, list[str]] = {name: [] for name in named}
    for each in found:
        for who in each.wanted_by:
            wants[who].append(each.purl)
    content = json.dumps([named, wants], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}",
        "version": 1,
        "metadata": {"component": ours},
        "components": components,
        "dependencies": [{"ref": named[name], "dependsOn": sorted(wants[name])} for name in sorted(named)],
    }


def text(version: str) -> str:
    return json.dumps(document(version), indent=2) + "\n"
