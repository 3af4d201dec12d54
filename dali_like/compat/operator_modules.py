"""Populate ``fn`` and ``ops``, and the modules below them, with operators on first access.

Programs that use no operators, and their workers, do not import `dali_like.operators`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

from dali_like.common.lazy_names import Members, add_module, alias

#: Modules of operators below ``fn`` and ``ops``, which no file defines, with the beginnings of their docstrings.
GROUPS = {
    "decoders": "Decoding operators",
    "experimental": "Experimental operators and readers",
    "experimental.decoders": "Decoders",
    "experimental.inputs": "Inputs",
    "experimental.readers": "Readers",
    "io": "Operators that read",
    "io.file": "Operators that read files",
    "noise": "Operators that add noise",
    "random": "Random number operators",
    "readers": "Readers",
    "reductions": "Sums, means and extremes",
    "segmentation": "Operators on segmentation masks",
    "transforms": "Matrices of affine transforms",
}
#: Modules with other members than operators: the modules that define these, and their names.
OTHERS = {
    "dali_like.fn.experimental.inputs": ("dali_like.fn._video_input", ("video",)),
    "dali_like.ops.experimental.inputs": ("dali_like.ops._video_input", ("Video",)),
}
_lock = threading.RLock()


def add_modules(root: str, *own: str) -> Members:
    """Make the modules of operators below ``fn`` or ``ops``, and return ``__getattr__`` and ``__dir__`` of the root.

    Args:
        root: the full name of the root.
        own: its public names besides operators.
    """
    for group, title in GROUPS.items():
        name = f"{root}.{group}"
        add_module(name, f"{title}, as in ``{name.replace('dali_like', 'nvidia.dali')}``.", _members(name, group))
    return _operators(root, (*own, *submodules("")))


def submodules(group: str) -> list[str]:
    """Return the names of the modules in a group; "" is the root."""
    return [name.rpartition(".")[2] for name in GROUPS if name.rpartition(".")[0] == group]


def _members(name: str, group: str) -> Members:
    if name in OTHERS:
        return alias(name, *OTHERS[name])
    return _readers(name) if group.endswith("readers") else _operators(name, submodules(group))


def _operators(module_name: str, own: Sequence[str]) -> Members:
    """Return the functions of a module of operators.

    Args:
        module_name: name of the module.
        own: its names besides operators. ``__all__`` has both; it is set on first access.
    """

    def get(name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            from dali_like.operators.machinery.functions import populate  # imports all operators
            from dali_like.operators.machinery.reader_functions import add_older_names  # likewise

            module = vars(sys.modules[module_name])
            with _lock:
                if "__all__" not in module:
                    module["__all__"] = [*own, *populate(module_name)]
                    if module_name in ("dali_like.fn", "dali_like.ops"):
                        add_older_names(module_name)
        try:
            return vars(sys.modules[module_name])[name]
        except KeyError:
            raise _attribute_error(module_name, name) from None

    return get, lambda: list(get("__all__"))


def _readers(module_name: str) -> Members:
    """Return the functions of a module of readers. Users may add readers at any time."""

    def get(name: str) -> Any:
        from dali_like.operators.machinery.reader_functions import reader_member, reader_names  # all operators

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
    from dali_like.compat.missing_names import attribute_error  # only for this error

    return attribute_error(module_name, name)
