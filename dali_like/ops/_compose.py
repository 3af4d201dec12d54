"""``ops.Compose``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dali_like.common.articles import kind_of
from dali_like.errors import DefinitionError


class Compose:
    """Chain of operators, as in ``nvidia.dali.ops.Compose``.

    Args:
        op_list: operators of `dali_like.ops`, or callables made of them. The first one receives the inputs of the call; each
            other one receives the results of its predecessor.

    Raises:
        DefinitionError: an element is not callable.

    >>> import numpy as np
    >>> from dali_like import Pipeline, ops, types
    >>> halve = ops.Compose([ops.Cast(dtype=types.FLOAT), ops.Reshape(shape=[2, -1])])
    >>> pipe = Pipeline(batch_size=1)
    >>> pipe.set_outputs(halve(types.Constant([1, 2, 3, 4])))
    >>> pipe.run()[0].at(0)
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    >>> pipe.close()
    """

    def __init__(self, op_list: Sequence[Callable[..., Any]]) -> None:
        for operator in op_list:
            if not callable(operator):
                raise DefinitionError(f"ops.Compose: op_list must contain callables, not {kind_of(operator)}")
        self._operators = tuple(op_list)

    def __call__(self, *inputs: Any, **arguments: Any) -> Any:
        """Add the nodes and return the results of the last operator. Keyword arguments go to the first operator."""
        results: Any = inputs
        for operator in self._operators:
            results = operator(*results, **arguments)
            results, arguments = results if isinstance(results, (list, tuple)) else (results,), {}
        return results[0] if len(results) == 1 else list(results)
