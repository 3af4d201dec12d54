"""The modules of dynamic mode with its functions: ``ndd.decoders``, ``ndd.random`` and the others.

They have no files of their own: their functions are made from the descriptions of the operators.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from dali_like.common.class_names import class_name
from dali_like.experimental.dynamic import random_keys
from dali_like.experimental.dynamic.epochs import reader_class
from dali_like.experimental.dynamic.invocation import call_operator
from dali_like.experimental.dynamic.values import operate
from dali_like.graph.language import math_functions
from dali_like.operators.machinery.deprecations import OF_DALI_2, OPERATORS
from dali_like.operators.machinery.description import descriptions
from dali_like.operators.machinery.functions import deprecated_function, make_class, make_function
from dali_like.operators.machinery.reader_functions import reader_descriptions

_ROOT = "dali_like.experimental.dynamic"
#: Operators that need a pipeline: they keep state between batches, or call the user's functions.
_NEED_PIPELINE = ("python_function", "torch_python_function", "jax_function", "numba_function")


def fill() -> None:
    """Add all functions to `dali_like.experimental.dynamic` and its modules."""
    for description in descriptions().values():
        *path, name = description.path.split(".")
        if name in _NEED_PIPELINE:
            continue
        _add(".".join([_ROOT, *path]), name, make_function(description, call_operator))
        *modules, cls = description.class_path.split(".")
        _add(".".join([_ROOT, "ops", *modules]), cls, make_class(description, call_operator))
    for older, current in OPERATORS.items():
        description = descriptions()[current]
        _add(_ROOT, older, deprecated_function(older, make_function(description, call_operator), description))
    for path_in_dali_2, current in OF_DALI_2.items():
        *path, name = path_in_dali_2.split(".")
        _add(".".join([_ROOT, *path]), name, make_function(descriptions()[current], call_operator))
    for description in reader_descriptions().values():
        *path, name = description.path.split(".")
        _add(".".join([_ROOT, *path]), class_name(name), reader_class(description))
    for name in math_functions.__all__:
        _add(f"{_ROOT}.math", name, _math_function(name))
    for name in ("RNG", "get_default_rng", "set_seed"):
        setattr(_module(f"{_ROOT}.random"), name, getattr(random_keys, name))


def _math_function(name: str) -> Any:
    def function(*operands: Any) -> Any:
        return operate(name, *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = getattr(math_functions, name).__doc__
    return function


def _add(module: str, name: str, member: Any) -> None:
    member.__module__ = module
    setattr(_module(module), name, member)


def _module(name: str) -> ModuleType:
    if name not in sys.modules:
        made = sys.modules[name] = ModuleType(name, f"Functions of dynamic mode; see `{_ROOT}`.")
        parent, _, own = name.rpartition(".")
        setattr(_module(parent), own, made)
    return sys.modules[name]
