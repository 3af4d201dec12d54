"""The functional API: each function adds a node to the pipeline's graph. Names and arguments follow ``nvidia.dali.fn``.

Operator functions are made from their descriptions in `dali_like.operators`; type checkers read the ``.pyi`` files.
"""

from __future__ import annotations

from dali_like.fn._cache import cache  # noqa: F401
from dali_like.fn._external_source import external_source  # noqa: F401
from dali_like.fn._lazy_operators import lazy_operators

__getattr__, __dir__ = lazy_operators(
    __name__,
    "cache",
    "decoders",
    "experimental",
    "external_source",
    "io",
    "noise",
    "random",
    "readers",
    "reductions",
    "segmentation",
    "transforms",
)
