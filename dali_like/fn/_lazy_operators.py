"""Populate the modules of ``fn`` and ``ops`` with operators on first access.

Programs that use no operators, and their workers, do not import `dali_like.operators`.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.RLock()


def lazy_operators(module_name: str, *own: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` for a module of ``fn`` or ``ops``.

    Args:
        module_name: name of the module.
        own: its names besides operators. ``__all__`` has both; it is set on first access. Those that the module does not
            define are its submodules, imported on first access.
    """
    module = vars(sys.modules[module_name])

    def get(name: str) -> Any:
        if name in own:
            return importlib.import_module(f"{module_name}.{name}")
        if name == "__all__" or not name.startswith("_"):
            _populate(module_name, own)
        try:
            return module[name]
        except KeyError:
            raise _attribute_error(module_name, name) from None

    def names() -> list[str]:
        return list(get("__all__"))

    return get, names


def lazy_readers(module_name: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` for a module of readers. Users may add readers at any time."""

    def get(name: str) -> Any:
        from dali_like.operators.reader_functions import reader_member, reader_names  # noqa: PLC0415  # all operators

        if name == "__all__":
            return reader_names(module_name)
        found = None if name.startswith("_") else reader_member(module_name, name)
        if found is None:
            raise _attribute_error(module_name, name)
        return found

    return get, lambda: list(get("__all__"))


def _attribute_error(module_name: str, name: str) -> AttributeError:
    if name.startswith("_"):
        return AttributeError(f"module {module_name!r} has no attribute {name!r}")
    from dali_like.operators.missing_names import attribute_error  # noqa: PLC0415  # only for this error

    return attribute_error(module_name, name)


def _populate(module_name: str, own: tuple[str, ...]) -> None:
    from dali_like.operators.functions import populate  # noqa: PLC0415  # imports all operators
    from dali_like.operators.reader_functions import add_older_names  # noqa: PLC0415  # likewise

    module = vars(sys.modules[module_name])
    with _lock:
        if "__all__" not in module:
            module["__all__"] = [*own, *populate(module_name)]
            if module_name in ("dali_like.fn", "dali_like.ops"):
                add_older_names(module_name)
