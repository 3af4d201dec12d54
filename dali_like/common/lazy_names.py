"""Names of a package that are imported on first access, and modules without files, whose names are.

Importing any module imports its package first. Spawned workers import many modules, so packages stay cheap to import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

#: ``__getattr__`` and ``__dir__`` of a module.
Members: TypeAlias = tuple[Callable[[str], Any], Callable[[], list[str]]]
_ModuleSpec: Any = type(__spec__)  # importing it from importlib.machinery takes as long as importing this file


def importer(package: str, places: Mapping[str, Sequence[str]]) -> Members:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package or module.

    Args:
        package: its name.
        places: full module names, each with the names that it defines. Direct submodules of the package are names, too.
    """
    where = {name: module for module, names in places.items() for name in names}
    submodules = {module.rpartition(".")[2]: module for module in places if module.rpartition(".")[0] == package}

    def get(name: str) -> Any:
        if name in where:
            value = getattr(_imported(where[name]), name)
        elif name in submodules:
            value = _imported(submodules[name])
        else:
            from dali_like.common.suggestions import with_suggestion  # packages stay cheap to import

            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text if name.startswith("_") else with_suggestion(text, name, [*where, *submodules]))
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *where})

    return get, names


def _imported(module: str) -> ModuleType:
    from dali_like.common.collector import paused_collector  # packages stay cheap to import

    with paused_collector():
        return importlib.import_module(module)


def alias(module: str, source: str, names: Sequence[str]) -> Members:
    """Return the functions ``__getattr__`` and ``__dir__`` of a module with names of another one.

    Args:
        module: its full name.
        source: the full name of the module that defines the names.
        names: the names; empty: all of the source's ``__all__``.
    """

    def get(name: str) -> Any:
        if name.startswith("_") and name not in (
            "__all__",
            "__cuda_version__",
        ):  # many tools look for special names, in every module
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        defining = _imported(source)
        known = names or defining.__all__
        if name == "__all__":
            return list(known)
        if name not in known:
            from dali_like.common.suggestions import with_suggestion  # packages stay cheap to import

            raise AttributeError(with_suggestion(f"module {module!r} has no attribute {name!r}", name, known))
        value = vars(sys.modules[module])[name] = getattr(defining, name)
        return value

    return get, lambda: list(get("__all__"))


def add_module(name: str, doc: str, members: Members) -> None:
    """Make a module that no file defines, below a package that is being imported: ``import package.name`` finds it.

    Args:
        name: its full name.
        doc: its docstring.
        members: its functions ``__getattr__`` and ``__dir__``.
    """
    module = sys.modules[name] = ModuleType(name, doc)
    package, _, last = name.rpartition(".")
    vars(module).update(__spec__=_ModuleSpec(name, None), __package__=package, __getattr__=members[0], __dir__=members[1])
    setattr(sys.modules[package], last, module)
