"""`pipeline_def`: makes pipelines of functions."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, overload

from dali_like.errors import ArgumentError, DefinitionError
from dali_like.pipeline import Pipeline

__all__ = ["pipeline_def"]

_P = ParamSpec("_P")

_PIPELINE_ARGUMENTS = frozenset(inspect.signature(Pipeline).parameters)


class _PipelineFactory(Generic[_P]):
    """What `pipeline_def` makes of a function: calling it makes a pipeline."""

    _is_pipeline_def = True

    def __init__(self, function: Callable[_P, Any], options: dict[str, Any]) -> None:
        parameters = inspect.signature(function).parameters
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
            raise DefinitionError(
                f"pipeline_def: {function.__qualname__} must not have **{list(parameters)[-1]}, since its keyword arguments "
                "are told apart from those of Pipeline by their names"
            )
        for name in parameters:
            if name in _PIPELINE_ARGUMENTS:
                warnings.warn(
                    f"pipeline_def: the argument `{name}` of {function.__qualname__} shadows an argument of Pipeline",
                    stacklevel=4,
                )
        self._function = function
        self._parameters = parameters
        self._options = options
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Pipeline:
        own = {name: value for name, value in kwargs.items() if name in self._parameters}
        options = {name: value for name, value in kwargs.items() if name not in self._parameters}
        unknown = sorted(set(options) - _PIPELINE_ARGUMENTS)
        if unknown:
            raise DefinitionError(
                f"{self._function.__qualname__} got unexpected arguments: {', '.join(unknown)}; neither the function nor "
                "Pipeline has them"
            )
        merged = {**self._options, **options}
        if "batch_size" not in merged:
            raise ArgumentError(f"{self._function.__qualname__}: batch_size must be given to pipeline_def or to the call")
        pipeline = Pipeline(**merged)
        pipeline.set_outputs(*_as_tuple(self._function(*args, **own)))
        return pipeline


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    if outputs is None:
        return ()
    return tuple(outputs) if isinstance(outputs, (list, tuple)) else (outputs,)


@overload
def pipeline_def(function: Callable[_P, Any], /) -> Callable[..., Pipeline]: ...


@overload
def pipeline_def(**options: Any) -> Callable[[Callable[_P, Any]], Callable[..., Pipeline]]: ...


def pipeline_def(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function that returns data nodes into one that returns a `Pipeline` with these outputs.

    With or without arguments of `Pipeline`. Calls of the decorated function take the function's own arguments, and those of
    Pipeline as keywords, which override the decorator's; the function's come first where names are the same.

    Raises:
        DefinitionError: unknown arguments, or the function has ``**kwargs``.

    >>> import numpy as np
    >>> from dali_like import fn, pipeline_def
    >>> @pipeline_def(batch_size=4)
    ... def squares():
    ...     return fn.external_source(source=lambda info: np.int32(info.idx_in_epoch**2), batch=False)
    >>> pipe = squares()
    >>> pipe.run()[0].as_array()
    array([0, 1, 4, 9], dtype=int32)
    >>> pipe.close()
    """
    unknown = sorted(set(options) - _PIPELINE_ARGUMENTS)
    if unknown:
        raise DefinitionError(f"pipeline_def got arguments that Pipeline does not have: {', '.join(unknown)}")
    if function is None:
        return lambda function: _PipelineFactory(function, options)
    return _PipelineFactory(function, options)
