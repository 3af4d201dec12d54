"""`dali_like.operator`: operators of the user's."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, overload

from dali_like.common.stability import unstable
from dali_like.common.suggestions import list_unknown
from dali_like.errors import DefinitionError
from dali_like.operators.machinery.description import Description, describe, register
from dali_like.operators.machinery.functions import make_class, make_function

#: The options for users. The others are for DALI's own operators.
_OPTIONS = (
    *("module", "name", "layouts", "min_inputs", "num_outputs", "output_layout", "check", "random", "per_sample", "strided"),
    *("in_order", "preserve"),
)
#: Name of the first parameter of a function that wants the `OperatorCall`.
_CALL = "call"


@overload
def operator(function: Callable[..., Any], /) -> Callable[..., Any]: ...


@overload
def operator(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


@unstable("dali_like.operator()")
def operator(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make an operator from a function of one sample: ``fn.name`` and ``ops.Name``.

    The positional parameters of the function are its inputs, which are arrays. Inputs with a default are optional, and
    ``*inputs`` accepts any number. Keyword-only parameters are arguments. Their annotations determine the allowed values,
    see `dali_like.operators.parameters`; `PerSample[...]` also allows nodes. If the first parameter is named ``call``, it
    gets the `dali_like.graph.language.operator_interface.OperatorCall`: layouts, random numbers, and memory for the result.

    The operator runs in the workers behind a parallel source, otherwise in threads. It must be a pure function of its
    sample. Spawned workers get the function by value.

    Args:
        function: the function. It returns an array, or a tuple of arrays if there are several outputs.
        options: any of

            - name: name of the operator. Default: the name of the function. The class in ``ops`` has it in CamelCase.
            - module: submodule of ``fn`` and ``ops``, made if needed. Default: none.
            - layouts: allowed layouts of the first input, separated by spaces. Default: any.
            - min_inputs: minimum number of inputs. Default: those without a default.
            - num_outputs: number of outputs, or a function of the arguments that returns it. Default: 1.
            - output_layout: layout of the outputs, or a function of the first input's layout and the arguments. Default: the
              layout of the first input.
            - check: function of the arguments; raises `ArgumentError` if they contradict each other.
            - random: True: the function uses ``call.rng()``, and the operator has the argument `seed`.
            - per_sample: False: the function gets lists of all samples of a batch.
            - strided: True: inputs need not be contiguous.
            - in_order: True: one batch at a time, in their order, in the main process.
            - preserve: True: the operator runs even if its outputs are unused.

    Returns:
        The function in ``fn``, which adds the operator to a pipeline.

    Raises:
        DefinitionError: an option is unknown, or the library has an operator with this name.

    >>> import numpy as np
    >>> import dali_like
    >>> from dali_like import fn, pipeline_def
    >>> @dali_like.operator
    ... def doubled(data, *, plus: int = 0):
    ...     return data * 2 + plus
    >>> @pipeline_def(batch_size=2, num_threads=1)
    ... def pipeline():
    ...     return fn.doubled(fn.external_source(lambda info: np.int32([info.idx_in_epoch]), batch=False), plus=1)
    >>> pipe = pipeline()
    >>> pipe.run()[0].as_array().tolist()
    [[1], [3]]
    >>> pipe.close()
    """
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise DefinitionError(f"operator got unexpected options: {list_unknown(unknown, _OPTIONS)}")
    if function is None:
        return lambda given: _define(given, options)
    return _define(function, options)


def _define(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    # Resolved here: in a worker, the function does not have all names that its annotations refer to.
    description = _described(function, typing.get_type_hints(function, include_extras=True), options)
    register(description)
    made = make_function(description)
    _add("dali_like.fn", description.path, made)
    _add("dali_like.ops", description.class_path, make_class(description))
    return made


def _described(function: Callable[..., Any], hints: dict[str, Any], options: Mapping[str, Any]) -> Description:
    """Return the description of a user's function with resolved annotations. Workers call this again."""
    function.__annotations__ = hints
    return describe(_with_call(function), **options, travels=(_described, function, hints, dict(options)))


def _with_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose first parameter is the OperatorCall."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == _CALL and parameters[0].kind is not inspect.Parameter.KEYWORD_ONLY:
        return function
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        raise DefinitionError(f"{function.__qualname__}: name the arguments of an operator, instead of **kwargs")

    @functools.wraps(function)
    def without_call(_: Any, *inputs: Any, **arguments: Any) -> Any:
        return function(*inputs, **arguments)

    first = inspect.Parameter(_CALL, inspect.Parameter.POSITIONAL_ONLY)
    inputs = [
        parameter.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        else parameter
        for parameter in parameters
    ]
    vars(without_call)["__signature__"] = signature.replace(parameters=[first, *inputs])
    return without_call


def _add(root: str, path: str, member: Any) -> None:
    """Add a function or class to ``fn`` or ``ops``, or to a submodule of it."""
    *modules, name = path.split(".")
    __import__(root)
    parent = sys.modules[root]
    for part in modules:
        full = f"{parent.__name__}.{part}"
        if full not in sys.modules and not hasattr(parent, part):
            made = types.ModuleType(full, "Operators of the program.")
            vars(made)["__all__"] = []
            sys.modules[full] = made
            setattr(parent, part, made)
        parent = getattr(parent, part)
    names = parent.__all__  # populates the module, which must not replace the member later
    if name not in names:
        names.append(name)
    member.__module__ = parent.__name__
    setattr(parent, name, member)
