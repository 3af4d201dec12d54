"""The object API: operators that are made first, and called to add nodes. The names follow ``nvidia.dali.ops``.

The classes of operators are made of their descriptions in `dali_like.operators`; type checkers read them in the ``.pyi``.
"""

from __future__ import annotations

from dali_like.fn._lazy_operators import lazy_operators
from dali_like.ops import decoders, random, reductions  # noqa: F401
from dali_like.ops._compose import Compose  # noqa: F401
from dali_like.ops._external_source import ExternalSource  # noqa: F401

__getattr__, __dir__ = lazy_operators(__name__, "Compose", "ExternalSource", "decoders", "random", "reductions")
