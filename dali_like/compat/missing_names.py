"""Functions of DALI, and why some do not exist here.

The file ``dali_functions.txt`` lists them. It is read for the error at the access of a missing name, and for the page of the
documentation.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from dali_like.common.suggestions import with_suggestion

__all__ = ["Missing", "attribute_error", "dali_functions"]

_WRITE = "write it as a function of one sample, with the decorator dali_like.operator or fn.python_function"


class Missing(NamedTuple):
    """Why a function of DALI does not exist here.

    Attributes:
        reason: "internal" (no part of DALI's documentation), "deprecated alias", or "GPU only".
        alternative: the remedy, without a full stop.
    """

    reason: str
    alternative: str


@functools.cache
def dali_functions() -> Mapping[str, Missing | None]:
    """Return the functions of ``nvidia.dali.fn`` by name; None for functions that exist here."""
    text = Path(__file__).with_name("dali_functions.txt").read_text(encoding="utf-8")
    rows = (line.partition(": ") for line in text.splitlines() if not line.startswith("#"))
    return {name: Missing(*why.split("; ", 1)) if why else None for name, _, why in rows}


def _alternatives() -> dict[str, str]:
    """Return the alternatives of missing functions and of missing modules, by plain names; see `_plain`."""
    found: dict[str, str] = {}
    for path, missing in dali_functions().items():
        if missing is not None:
            found[_plain(path)] = missing.alternative
            found.setdefault(_plain(path.rpartition(".")[0]), missing.alternative)
    return found


def _plain(path: str) -> str:
    """Return a form that functions of ``fn`` and classes of ``ops`` share."""
    return path.replace("_", "").lower()


def attribute_error(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module of ``fn`` or ``ops`` lacks.

    Args:
        module: full name of the module.
        name: the missing name.
    """
    text = f"module {module!r} has no attribute {name!r}"
    path = ".".join((*module.split(".")[2:], name))
    if alternative := _alternatives().get(_plain(path)):
        text += f": DALI has {path}, dali_like has not. Instead, {alternative}"
    elif (suggestion := with_suggestion(text, name, getattr(sys.modules[module], "__all__", ()))) != text:
        text = suggestion
    else:
        text += f". See dir({module.removeprefix('dali_like.')}), or {_WRITE}"
    return AttributeError(text, name=name)  # Python's own guess would follow if there were no name here
