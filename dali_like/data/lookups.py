"""Finds out whether a dataset only looks up its samples. Such a dataset draws no random numbers.

Sequences of Python and arrays look up, and so do classes whose method is no more than one of these::

    def __getitem__(self, index):
        return self.texts[index]

    def __getitem__(self, index):
        return self.texts[index], self.labels[index]

    def __getitem__(self, index):
        return {"text": self.texts[index], "label": self.labels[index]}

Such a method is recognized by its bytecode, which must equal that of the same method compiled here. Anything else may run
code of the program, and counts as a computation.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Collection
from typing import Any

import numpy as np

__all__ = ["looks_up"]

#: The types of sequences that run no code of the program when an int selects an item.
_SEQUENCES = (list, tuple, range, str, bytes, np.ndarray)

#: The attributes that decide about the effect of a function, except for its names and its constants, which are keys.
_DECISIVE = ("co_code", "co_exceptiontable", "co_argcount", "co_kwonlyargcount", "co_nlocals", "co_freevars", "co_cellvars")


def looks_up(dataset: Any, tensor_types: Collection[type] = ()) -> bool:
    """Return whether ``dataset[index]`` runs no code of the program, given an int.

    Args:
        tensor_types: further types that a lookup may go to.

    >>> looks_up(["a", "b"]), looks_up({"a": 1})
    (True, False)
    """
    kind, sequences = type(dataset), {*_SEQUENCES, *tensor_types}
    if kind in sequences:
        return True
    method = getattr(kind, "__getitem__", None)
    getattribute: Any = kind.__getattribute__
    if type(method) is not types.FunctionType or getattribute is not object.__getattribute__:
        return False
    names, attributes = method.__code__.co_names, getattr(dataset, "__dict__", {})
    return (
        any(_is_alike(method.__code__, template) for template in _templates(len(names)))
        # An attribute of the class could be a property.
        and all(type(attributes.get(name)) in sequences and not hasattr(kind, name) for name in names)
    )


def _is_alike(code: types.CodeType, template: types.CodeType) -> bool:
    are_texts = all(type(text) in (str, type(None)) for const in code.co_consts for text in _items_of(const))
    return are_texts and all(getattr(code, name) == getattr(template, name) for name in _DECISIVE)


def _items_of(constant: Any) -> tuple[Any, ...]:
    return constant if type(constant) is tuple else (constant,)


@functools.cache
def _templates(num_names: int) -> tuple[types.CodeType, ...]:
    """Return the code of each method that looks up one item in each of ``num_names`` attributes."""
    items = [f"self.a{number}[index]" for number in range(num_names)]
    results = [f"({', '.join(items)},)", items[0]] if num_names == 1 else [", ".join(items) or "()"]
    if items:
        results.append("{" + ", ".join(f"'{number}': {item}" for number, item in enumerate(items)) + "}")
    found = []
    for result in results:
        scope: dict[str, Any] = {}
        exec(f"def get(self, index): return {result}", scope)  # the text is of this module
        found.append(scope["get"].__code__)
    return tuple(found)
