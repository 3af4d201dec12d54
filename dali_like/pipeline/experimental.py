"""`pipeline_def` with the arguments of ``nvidia.dali.pipeline.experimental``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dali_like.pipeline import definition

__all__ = ["pipeline_def"]


def pipeline_def(
    fn: Callable[..., Any] | None = None, *, debug: bool = False, enable_conditionals: bool = False, **options: Any
) -> Any:
    """Turn a function that returns data nodes into one that returns a `Pipeline`; see `dali_like.pipeline_def`.

    Args:
        fn: the function.
        debug: without effect: the function defines the graph once.
        enable_conditionals: allow ``if``, ``and``, ``or`` and ``not`` on nodes.
        options: arguments of `Pipeline`.

    Raises:
        DefinitionError: unknown arguments.
    """
    decorate: Any = definition.pipeline_def
    return decorate(fn, enable_conditionals=enable_conditionals, **options)
