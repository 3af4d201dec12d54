"""Names of a package that are imported when they are first asked for: who needs one of them need not have them all.

Spawned workers ask for modules, and importing those imports their package.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def importer(package: str, places: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package or module.

    Args:
        package: its name.
        places: by module, in full, the names that are there. Modules of the package are attributes of it, too.
    """
    where = {name: module for module, names in places.items() for name in names}
    modules = {module.rpartition(".")[2]: module for module in places if module.startswith(f"{package}.")}

    def get(name: str) -> Any:
        if name in where:
            value = getattr(importlib.import_module(where[name]), name)
        elif name in modules:
            value = importlib.import_module(modules[name])
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where})

    return get, names
