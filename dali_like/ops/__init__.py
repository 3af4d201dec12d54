"""The object API: operators are objects, and calling one adds nodes. Names follow ``nvidia.dali.ops``.

Operator classes are made from their descriptions in `dali_like.operators`; type checkers read stubs made from these.
"""

from __future__ import annotations

from typing import Any

from dali_like.compat.operator_modules import add_modules
from dali_like.ops._compose import Compose as Compose
from dali_like.ops._external_source import ExternalSource as ExternalSource
from dali_like.ops._registry import cpu_ops as cpu_ops
from dali_like.ops._registry import gpu_ops as gpu_ops
from dali_like.ops._registry import mixed_ops as mixed_ops

_member, __dir__ = add_modules(__name__, "Compose", "ExternalSource", "cpu_ops", "gpu_ops", "mixed_ops")


def __getattr__(name: str) -> Any:  # a definition, for type checkers without stubs
    return _member(name)
