"""The public surface: the names of each public module, and the signatures of its functions and classes.

``python -m tests.project.public_surface`` writes it to ``public_surface.txt``, which `test_public_surface` compares: a
change of a public name or signature shows in the diff of a commit. Operators stand there by name; `tests/operators` has
their arguments. Modules that need PyTorch or JAX are left out.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".txt")
_GROUPS = (
    *("decoders", "experimental", "experimental.decoders", "experimental.inputs", "experimental.readers", "io", "io.file"),
    *("noise", "random", "readers", "reductions", "segmentation", "transforms"),
)
OPERATOR_MODULES = [".".join(filter(None, (root, group))) for root in ("fn", "ops") for group in ("", *_GROUPS)]
MODULES = [
    *("", "auto_aug", "auto_aug.augmentations", "auto_aug.auto_augment", "auto_aug.core", "auto_aug.rand_augment"),
    *(
        "auto_aug.trivial_augment",
        "backend",
        "backend_impl",
        "data",
        "data.samplers",
        "data.transforms",
        "data_node",
        "errors",
    ),
    *("experimental", "experimental.dynamic", "external_source", "math", "pickling", "pipeline", "plugin"),
    *("plugin.base_iterator", "plugin.numba.experimental", "plugin.numba.fn.experimental", "plugin.numpy", "plugin_manager"),
    *("readers", "remote", "tensors", "testing", "tfrecord", "types"),
]


def surface() -> Iterator[str]:
    """Yield the lines: each module, then its names with their signatures."""
    for name in MODULES:
        module = importlib.import_module(f"dali_like.{name}".rstrip("."))
        yield module.__name__
        for member in _names(module):
            value = getattr(module, member)
            yield from (f"    {line}" for line in _described(member, value))
    for name in OPERATOR_MODULES:
        module = importlib.import_module(f"dali_like.{name}")
        yield f"{module.__name__}: {' '.join(_names(module))}"


def _names(module: Any) -> list[str]:
    """Return the names of ``__all__``, or without it the names that the package defines."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [name for name in dir(module) if _is_public_part(getattr(module, name))]
    return sorted(name for name in names if not name.startswith("_"))


def _is_public_part(value: Any) -> bool:
    place = str(getattr(value, "__module__", ""))
    return place.startswith("dali_like") and not place.startswith("dali_like.common")


def _described(name: str, value: Any) -> Iterator[str]:
    if inspect.ismodule(value) or not callable(value):
        yield name
        return
    yield name + _signature(value)
    if isinstance(value, type) and value.__module__.startswith("dali_like."):
        for member in sorted(vars(value)):
            if not member.startswith("_"):
                yield f"    {member}" + (_signature(getattr(value, member)) if callable(getattr(value, member)) else "")


def _signature(value: Any) -> str:
    if isinstance(value, type) and issubclass(value, BaseException | enum.Enum):
        return ""  # Python's own, which differ by version
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):  # of C code
        return ""
    return re.sub(r" at 0x[0-9a-f]+|<built-in function (\w+)>", r"\1", text)


if __name__ == "__main__":
    FILE.write_text("\n".join(surface()) + "\n", "utf-8")
