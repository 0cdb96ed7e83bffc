"""Plain trees as YAML that everybody reads alike.

PyYAML leaves out the quotes wherever YAML 1.1 needs none, and ``08`` or ``1e3`` is a number to readers of
version 1.2 (this package's among them). Here every string that either version would take for something else
is quoted.

>>> print(write_yaml({"name": "08", "on": "no", "at": "2025-11-01T00:00:00Z", "gpus": [1, 2]}), end="")
name: '08'
'on': 'no'
at: '2025-11-01T00:00:00Z'
gpus:
- 1
- 2
"""

from __future__ import annotations

from typing import Any

import yaml

from tenure.api.yaml_scalars import is_plain_string

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]  # with or without libyaml, chosen when this module is imported
    """Writes no anchors, and quotes what is no plain string to us."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None if is_plain_string(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_string)


def write_yaml(tree: Any) -> str:
    """One document."""
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))
