"""Finds modules of the program that a fresh interpreter would not find by their names, or would find elsewhere.

Examples are test modules in pytest's mode "importlib", modules that the program loads from a file, and a package ``tests``
of which another one stands earlier on the path. Spawned workers cannot import their objects, so these travel by value. Runs
in the main process.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["is_lost"]

_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PACKAGE = __name__.partition(".")[0]


def is_lost(name: str) -> bool:
    """Return whether workers would not import the module with this name that the program has.

    Modules without a Python file count as found: they are builtin, extensions, or made by a package when it is imported.
    """
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not isinstance(file, str) or not file.endswith((".py", ".pyc")):
        return False
    if name.partition(".")[0] == _PACKAGE or file.startswith(_STANDARD_LIBRARY) or any(map(file.__contains__, _INSTALLED)):
        return False
    found = _file_of(name)
    return found is None or os.path.realpath(found) != os.path.realpath(file)


def _file_of(name: str) -> str | None:
    """Return the file that the import system finds for a module, without importing it or its packages."""
    path: Any = None
    spec: Any = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = _spec_of(".".join(parts[:count]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return str(spec.origin)


def _spec_of(name: str, path: Any) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and (spec := find(name, path)) is not None:
            return spec
    return None
