"""The functional API: each function adds a node to the pipeline's graph. Names and arguments follow ``nvidia.dali.fn``.

Operator functions are made from their descriptions in `dali_like.operators`; type checkers read stubs made from these.
"""

from __future__ import annotations

from typing import Any

from dali_like.compat.operator_modules import add_modules
from dali_like.fn._cache import cache as cache
from dali_like.fn._external_source import external_source as external_source

_member, __dir__ = add_modules(__name__, "cache", "external_source")


def __getattr__(name: str) -> Any:  # a definition, for type checkers without stubs
    return _member(name)
