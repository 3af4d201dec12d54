"""Removal of the operators that a test or a program of the documentation has defined by `dali_like.operator`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from dali_like.operators.machinery import description
from dali_like.operators.machinery.description import descriptions


@contextlib.contextmanager
def removed_at_the_end() -> Iterator[None]:
    """Remove operators that are defined in this context. Their functions would keep the objects that they refer to alive."""
    before = set(descriptions())
    try:
        yield
    finally:
        for path in set(descriptions()) - before:
            described = description.registry.pop(path)
            for root, name in (("fn", path), ("ops", described.class_path)):
                *modules, last = name.split(".")
                module = sys.modules[".".join(("dali_like", root, *modules))]
                module.__all__.remove(last)
                delattr(module, last)
