"""Fills the modules of ``fn`` and ``ops`` with what is made of the descriptions of operators, when it is first asked for.

Programs without operators, and the workers of such programs, need not import them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.RLock()


def lazy_operators(module_name: str, *own: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a module of ``fn`` or ``ops``.

    Args:
        module_name: which.
        own: what it has besides operators. ``__all__``, which is made with these, has both.
    """
    module = vars(sys.modules[module_name])

    def get(name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            _populate(module_name, own)
        try:
            return module[name]
        except KeyError:
            raise AttributeError(f"module {module_name!r} has no attribute {name!r}") from None

    def names() -> list[str]:
        return list(get("__all__"))

    return get, names


def _populate(module_name: str, own: tuple[str, ...]) -> None:
    from dali_like.operators.functions import populate  # noqa: PLC0415  # with all operators

    module = vars(sys.modules[module_name])
    with _lock:
        if "__all__" not in module:
            module["__all__"] = [*own, *populate(module_name)]
