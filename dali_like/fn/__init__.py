"""The functional API: each function adds a node to the pipeline's graph. Names and arguments follow ``nvidia.dali.fn``.

The functions of operators are made of their descriptions in `dali_like.operators`; type checkers read them in the ``.pyi``.
"""

from __future__ import annotations

from dali_like.fn import decoders, random, reductions
from dali_like.fn._external_source import external_source
from dali_like.operators.functions import publish_functions

__all__ = ["decoders", "external_source", "random", "reductions", *publish_functions(__name__)]  # noqa: PLE0604


def __dir__() -> list[str]:
    return __all__
