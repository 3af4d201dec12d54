"""The object API: operators that are made first, and called to add nodes. The names follow ``nvidia.dali.ops``.

The classes of operators are made of their descriptions in `dali_like.operators`; type checkers read them in the ``.pyi``.
"""

from __future__ import annotations

from dali_like.operators.functions import publish_classes
from dali_like.ops import decoders, random, reductions
from dali_like.ops._external_source import ExternalSource

__all__ = ["ExternalSource", "decoders", "random", "reductions", *publish_classes(__name__)]  # noqa: PLE0604


def __dir__() -> list[str]:
    return __all__
