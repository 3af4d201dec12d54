"""The object API: operators are objects, and calling one adds nodes. Names follow ``nvidia.dali.ops``.

Operator classes are made from their descriptions in `dali_like.operators`; type checkers read the ``.pyi`` files.
"""

from __future__ import annotations

from dali_like.fn._lazy_operators import lazy_operators
from dali_like.ops._compose import Compose  # noqa: F401
from dali_like.ops._external_source import ExternalSource  # noqa: F401
from dali_like.ops._registry import cpu_ops, gpu_ops, mixed_ops  # noqa: F401

_OWN = (
    "Compose",
    "ExternalSource",
    "cpu_ops",
    "decoders",
    "experimental",
    "gpu_ops",
    "io",
    "mixed_ops",
    "noise",
    "random",
    "readers",
    "reductions",
    "segmentation",
    "transforms",
)

__getattr__, __dir__ = lazy_operators(__name__, *_OWN)
