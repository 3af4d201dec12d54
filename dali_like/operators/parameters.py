"""Arguments of operators: annotations, accepted values, and their conversion.

The annotations are those of `dali_like.common.arguments`, and two more:

=================  ========================================================  =============================
annotation         accepted value                                            value passed to the function
=================  ========================================================  =============================
``PerSample[X]``   as for ``X``, or a `DataNode` with one for each sample    as for ``X``, for the sample
``PerFrame[X]``    likewise, or one for each frame: see ``fn.per_frame``     as for ``X``, for the frame
=================  ========================================================  =============================

None for any argument counts as not given.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np

from dali_like.common.arguments import (
    ASCENDING,
    DISTINCT,
    FINITE,
    REQUIRED,
    SOME,
    Argument,
    FloatArray,
    Floats,
    Ints,
    Rule,
    Strings,
    above,
    at_least,
    between,
    count,
    one_of_types,
    to_plain,
)
from dali_like.errors import ArgumentTypeError, DaliLikeError, SampleError, SampleTypeError
from dali_like.graph.language.nodes import DataNode
from dali_like.graph.language.operator_interface import Array

__all__ = [
    "ASCENDING",
    "DISTINCT",
    "FINITE",
    "REQUIRED",
    "SOME",
    "FloatArray",
    "Floats",
    "Ints",
    "Parameter",
    "PerFrame",
    "PerSample",
    "Rule",
    "Strings",
    "above",
    "at_least",
    "between",
    "count",
    "one_of_types",
    "parameters_of",
    "to_plain",
]

T = TypeVar("T")

_PER_SAMPLE = object()
_PER_FRAME = object()

#: Argument that may differ from sample to sample.
PerSample = Annotated[T, _PER_SAMPLE]
#: Argument that may differ from frame to frame of a sequence. The operator then receives single frames.
PerFrame = Annotated[T, _PER_SAMPLE, _PER_FRAME]


class Parameter(Argument):
    """An argument of an operator.

    Attributes:
        per_sample: whether a node is allowed.
        per_frame: whether a node may have a value for each frame.
        of_sample: converts a sample of a node, as `check` converts a value.
    """

    def __init__(self, name: str, hint: Any, default: Any = REQUIRED) -> None:
        super().__init__(name, hint, default)
        self.per_sample = _PER_SAMPLE in self.marks
        self.per_frame = _PER_FRAME in self.marks
        self.of_sample = _sample_check_of(self.annotation, self.check)

    def further(self, value: Any) -> str:
        hint = ", or a DataNode with one for each sample" if self.per_sample else ""
        if isinstance(value, DataNode):
            return f"{hint}, not a DataNode. It cannot differ from sample to sample."
        return f"{hint}, not {value!r}."

    def convert_sample(self, array: Array) -> Any:
        """Convert one sample of a node for the function.

        Raises:
            SampleTypeError: the sample has another type.
            SampleError: the sample has a value that is not allowed.
        """
        try:
            return self.ruled(self.of_sample(array))
        except DaliLikeError as error:
            kind = SampleTypeError if isinstance(error, ArgumentTypeError) else SampleError
            raise kind(
                f"the argument {self.name} must be {error}; this sample of it is of dtype {array.dtype} and shape "
                f"{array.shape}: {array!r}"
            ) from None

    def convert_samples(self, arrays: Sequence[Array]) -> list[Any]:
        """Convert samples of a node; see `convert_sample`. Single numbers of a stack are converted together."""
        kinds = _NUMBERS.get(self.annotation, "")
        if isinstance(arrays, np.ndarray) and arrays.size == len(arrays) and arrays.dtype.kind in kinds and not self.rules:
            return [*map(self.annotation, arrays.reshape(-1).tolist())]
        return [self.convert_sample(np.asarray(array)) for array in arrays]


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the keyword arguments of an operator's function."""
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    return {
        name: Parameter(name, hints.get(name, Any), parameter.default)
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _sample_check_of(hint: Any, check: Callable[[Any], Any]) -> Callable[[Array], Any]:
    if hint in (Ints, Floats, FloatArray):
        return check
    return lambda array: check(_single(array))


def _single(array: Array) -> Any:
    if array.size != 1:
        raise ArgumentTypeError("a single value")
    return array.reshape(()).item()


#: The kinds of dtypes, as in NumPy's ``dtype.kind``, whose elements are numbers of these types.
_NUMBERS: dict[Any, str] = {int: "biu", float: "biuf"}
