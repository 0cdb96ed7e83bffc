"""Importing ``tenure`` with a bug in it: the checkout is never touched.

The finder answers for one module only, with the same file and other text; all others are imported as ever, from their
compiled files. It has to be put in place before that module is first imported, so a process has one bug for life.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from proof.mutants.mutant import SOURCE, Mutant


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path))
        self._source = mutant.source()

    def get_code(self, fullname: str) -> CodeType:
        """From the text with the bug; the compiled file beside the real one is neither read nor written."""
        code = compile(self._source, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._loader = _Loader(mutant)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._mutant.module:
            return None
        return spec_from_file_location(name, self._mutant.path, loader=self._loader)


def plant(mutant: Mutant | None) -> None:
    """From here on this process imports the checkout's ``tenure``, with this bug (None: as it is)."""
    loaded = sorted(name for name in sys.modules if name.partition(".")[0] == "tenure")
    assert not loaded, f"too late: {loaded[0]} is imported already"
    sys.path.insert(0, str(SOURCE.parent))
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(mutant))
