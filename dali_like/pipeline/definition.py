"""`pipeline_def`: turns functions into factories of pipelines."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar, overload

from dali_like.common.extras import optional
from dali_like.common.notices import warn
from dali_like.common.suggestions import list_unknown
from dali_like.common.tracebacks import user_frames_first
from dali_like.errors import ArgumentError, DefinitionError
from dali_like.graph.language.conditions import in_scope
from dali_like.graph.language.nodes import contains_node
from dali_like.pipeline.pipeline import Pipeline

__all__ = ["do_not_convert", "pipeline_def"]

_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])

_PIPELINE_ARGUMENTS = frozenset(inspect.signature(Pipeline).parameters)
#: What users do with a pipeline. A function decorated with `pipeline_def` answers them with an explanation.
_PIPELINE_METHODS = tuple(
    name for name, value in vars(Pipeline).items() if inspect.isfunction(value) and not name.startswith("_")
)
#: The attribute that marks functions that are not converted.
UNCONVERTED = "_dali_like_do_not_convert"
#: Further arguments of the decorator, which its calls may override.
_SWITCHES = frozenset({"debug", "enable_conditionals"})


@overload
def pipeline_def(fn: Callable[_P, Any]) -> Callable[..., Pipeline]: ...


@overload
def pipeline_def(
    *, enable_conditionals: bool = False, debug: bool = False, **options: Any
) -> Callable[[Callable[_P, Any]], Callable[..., Pipeline]]: ...


def pipeline_def(
    fn: Callable[..., Any] | None = None, *, enable_conditionals: bool = False, debug: bool = False, **options: Any
) -> Any:
    """Turn a function that returns data nodes into one that returns a `Pipeline` with these outputs.

    The decorator may be used with or without arguments of `Pipeline`. A call of the decorated function takes the function's
    own arguments, and arguments of Pipeline as keywords, which override the decorator's. If an argument of both has the same
    name, the function gets it. A function with ``**kwargs`` also gets the keywords that Pipeline does not have. While the
    function runs, `Pipeline.current` is the pipeline that it defines.

    Args:
        fn: the function. It returns one output, or a tuple of outputs; a list without nodes is a constant.
        enable_conditionals: allow ``if``, ``and``, ``or`` and ``not`` on nodes: each sample takes its own branch. The
            function and the functions that it calls are converted with AutoGraph (``pip install "diastatic-malt>=2.15.3"``).
        debug: run the function for each batch, in the calling thread. Each operator is computed before its function
            returns, so ``print(node)``, ``node.get()`` and a debugger show the batch. Each run must call the same operators
            in the same order; see docs/how-to/debug-a-pipeline.md.
        options: arguments of `Pipeline`.

    Raises:
        DefinitionError: unknown arguments.
        MissingExtraError: `enable_conditionals` needs a package that is not installed.

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
        raise DefinitionError(
            f"pipeline_def got arguments that Pipeline does not have: {list_unknown(unknown, _PIPELINE_ARGUMENTS)}"
        )
    if fn is None:
        return lambda function: _make_factory(function, options, enable_conditionals, debug)
    return _make_factory(fn, options, enable_conditionals, debug)


def do_not_convert(func: _F | None = None) -> Any:
    """Mark a function as one that conditional execution does not convert, and return it.

    Raises:
        ArgumentError: `func` is already decorated with `pipeline_def`.
    """
    if func is None:
        return do_not_convert
    if getattr(func, "_is_pipeline_def", False):
        raise ArgumentError("Pipeline definition cannot be marked with @do_not_convert.")
    if hasattr(func, "__dict__"):  # builtin functions are never converted
        setattr(func, UNCONVERTED, True)
    return func


def _call_converted(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    optional("malt", "pipeline_def(enable_conditionals=True)", "conditionals")
    from dali_like.pipeline.autograph import converted_call  # needs an extra

    return converted_call(function, args, kwargs)


def _make_factory(
    function: Callable[..., Any], options: dict[str, Any], enable_conditionals: bool, debug: bool
) -> Callable[..., Pipeline]:
    parameters = inspect.signature(function).parameters
    name = getattr(function, "__qualname__", repr(function))
    takes_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in parameters:
        if key in _PIPELINE_ARGUMENTS:
            warn(f"pipeline_def: the argument `{key}` of {name} shadows an argument of Pipeline", UserWarning)

    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = {key for key, parameter in parameters.items() if parameter.kind not in variadic}

    @user_frames_first
    @functools.wraps(function)
    def make_pipeline(*args: Any, **kwargs: Any) -> Pipeline:
        own = {key: value for key, value in kwargs.items() if key in named}
        others = {key: value for key, value in kwargs.items() if key not in own and key not in _SWITCHES}
        unknown = sorted(set(others) - _PIPELINE_ARGUMENTS)
        if takes_others:
            own |= {key: others.pop(key) for key in unknown}
        elif unknown:
            raise DefinitionError(
                f"{name} got unexpected arguments: {list_unknown(unknown, [*parameters, *_PIPELINE_ARGUMENTS])}; neither "
                "the function nor Pipeline has them"
            )
        converts = kwargs.get("enable_conditionals", enable_conditionals)

        def define() -> tuple[Any, ...]:
            outputs = _call_converted(function, args, own) if converts else function(*args, **own)
            if outputs is None:
                return ()
            if isinstance(outputs, tuple) or contains_node(outputs):
                return tuple(outputs)
            return (outputs,)

        if kwargs.get("debug", debug):
            from dali_like.pipeline.debugging import DebugPipeline  # few programs need it

            return DebugPipeline(define, **{**options, **others})
        pipeline = Pipeline(**{**options, **others})
        with pipeline, in_scope(()):
            outputs = define()
        pipeline.set_outputs(*outputs)
        return pipeline

    vars(make_pipeline)["_is_pipeline_def"] = True
    for method in _PIPELINE_METHODS:
        vars(make_pipeline).setdefault(method, _Uncalled(make_pipeline.__name__, method))
    return make_pipeline


def uncalled_text(function: Any) -> str:
    """Return the message for a decorated function that is used like the pipeline that it makes; "" for other objects."""
    if not getattr(function, "_is_pipeline_def", False):
        return ""
    name = function.__name__
    return f"{name} is a function that makes a pipeline, not a pipeline: call it, {name}()"


class _Uncalled(NamedTuple):
    """Stands for a method of the pipeline that a decorated function makes. Python would only miss the attribute."""

    function: str
    method: str

    @user_frames_first
    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        name = self.function
        raise DefinitionError(
            f"{name} is a function that makes a pipeline, not a pipeline: call it first, pipe = {name}(), then "
            f"pipe.{self.method}(...)"
        )
