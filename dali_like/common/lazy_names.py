"""Names of a package that are imported on first access.

Importing any module imports its package first. Spawned workers import many modules, so packages stay cheap to import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def importer(package: str, places: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package or module.

    Args:
        package: its name.
        places: full module names, each with the names that it defines. Direct submodules of the package are names, too.
    """
    where = {name: module for module, names in places.items() for name in names}
    submodules = {module.rpartition(".")[2]: module for module in places if module.rpartition(".")[0] == package}

    def get(name: str) -> Any:
        if name in where:
            value = getattr(importlib.import_module(where[name]), name)
        elif name in submodules:
            value = importlib.import_module(submodules[name])
        else:
            from dali_like.common.suggestions import with_suggestion  # noqa: PLC0415  # packages stay cheap to import

            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text if name.startswith("_") else with_suggestion(text, name, [*where, *submodules]))
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where})

    return get, names
