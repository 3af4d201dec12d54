"""Recognize names that are missing in a spawned worker, but present in the main process.

Spawned workers import the main module of the program only if it has a top-level ``if __name__ == "__main__"``, and then
without the code under it. Variables of the rest, and what it adds to other modules and classes, are missing there. Runs in
the main process, for exceptions of workers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from dali_like.common.foreign_errors import is_a, text_of

_OF_MODULE = r"module '([\w.]+)' has no attribute '(\w+)'"
_OF_PICKLE = r"Can't get attribute '(\w+)' on <module '([\w.]+)'"
_OF_MAIN = r"name '(\w+)' is not defined"
_OF_CLASS = r"(?:type object )?'(\w+)'(?: object)? has no attribute '(\w+)'"


def patched_name(error: BaseException) -> str | None:
    """Return the name that an AttributeError or NameError of a worker misses, if this process has it; otherwise None."""
    text = text_of(error)
    if is_a(error, NameError) and (match := re.fullmatch(_OF_MAIN, text)):
        return f"__main__.{match[1]}" if _has(sys.modules["__main__"], match[1]) else None
    if not is_a(error, AttributeError):
        return None
    if match := re.match(_OF_MODULE, text):
        module, name = match.groups()
    elif match := re.match(_OF_PICKLE, text):
        name, module = match.groups()
    else:
        match = re.match(_OF_CLASS, text)
        return None if match is None else next(_of_classes(*match.groups()), None)
    return f"{module}.{name}" if _has(sys.modules.get(module), name) else None


def _of_classes(kind: str, name: str) -> Iterator[str]:
    for module in list(sys.modules.values()):
        found: Any = vars(module).get(kind) if isinstance(module, ModuleType) else None
        if isinstance(found, type) and _has(found, name):
            yield f"{found.__module__}.{kind}.{name}"


def _has(owner: Any, name: str) -> bool:
    try:
        return hasattr(owner, name)
    except Exception:  # `__getattr__` of a module or metaclass raises
        return False


def advice(error: BaseException) -> str | None:
    """Return advice for such an error of a spawned worker; None if this process has no such name either."""
    name = patched_name(error)
    if name is None:
        return None
    return (
        f"The program has {name}, and spawned workers do not. They import the main module only if it has a top-level "
        '`if __name__ == "__main__":`, without the code under it. Define the name above such a line, in a module that the '
        "source imports, or in worker_setup (worker_init_fn of a DataLoader); or start workers by fork"
    )
