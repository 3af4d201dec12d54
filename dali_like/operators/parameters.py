"""Arguments of operators: annotations, accepted values, and their conversion.

The annotation of a parameter states the type that the operator's function receives. It determines the values a user may
pass:

====================  ============================================================  =============================
annotation            accepted value                                                value passed to the function
====================  ============================================================  =============================
``int``, ``float``,   a number, True or False, a string                             the same
``bool``, ``str``
``Ints``, ``Floats``  a number, a list or tuple of them, an array                   a tuple
``Strings``           a string, or a list or tuple of them                          the string, or a tuple
``FloatArray``        a number, nested lists of them, an array                      an array of float32
an IntEnum            a member, or its number                                       the member
``np.dtype``          a `dali_like.types.DALIDataType`, a NumPy dtype, or its name  the NumPy dtype
``Literal["a"]``      one of the strings                                            the same
``X | None``          as for ``X``, or None                                         as for ``X``, or None
``PerSample[X]``      as for ``X``, or a `DataNode` with one for each sample        as for ``X``, for the sample
``PerFrame[X]``       likewise, or one for each frame: see ``fn.per_frame``         as for ``X``, for the frame
``Annotated[X, R]``   as for ``X``, if a `Rule` such as ``between(0, 1)`` allows    as for ``X``
anything else         anything                                                      the same
====================  ============================================================  =============================

An integer may be passed as a float. None for any argument counts as not given. Serialized pipelines hold no texts, and
nothing of the kind "anything else", unless the annotation says so: see `dali_like.common.saved_arguments`.
"""

from __future__ import annotations

import enum
import inspect
import math
import operator
import types as builtin_types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import flag, is_int
from dali_like.common.saved_arguments import Mark
from dali_like.errors import (
    ArgumentClashError,
    ArgumentError,
    ArgumentTypeError,
    DaliLikeError,
    SampleError,
    SampleTypeError,
)
from dali_like.graph.nodes import DataNode
from dali_like.graph.operator_interface import Array
from dali_like.types import numpy_dtype, to_dali_type

T = TypeVar("T")

_PER_SAMPLE = object()
_PER_FRAME = object()

Ints: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]
Strings: TypeAlias = str | tuple[str, ...]
FloatArray: TypeAlias = NDArray[np.float32]
#: Argument that may differ from sample to sample.
PerSample = Annotated[T, _PER_SAMPLE]
#: Argument that may differ from frame to frame of a sequence. The operator then receives single frames.
PerFrame = Annotated[T, _PER_SAMPLE, _PER_FRAME]


class Rule(NamedTuple):
    """Restriction on the values of an argument.

    Attributes:
        text: description that follows the type in messages: "from 0 to 1".
        holds: whether a converted value is allowed.
    """

    text: str
    holds: Callable[[Any], bool]


def between(least: float, most: float) -> Rule:
    """Restrict numbers to the range from `least` to `most`."""
    return Rule(f"from {least:g} to {most:g}", lambda value: all(least <= number <= most for number in _numbers(value)))


def at_least(least: float) -> Rule:
    """Restrict numbers to finite ones from `least` on."""
    return Rule(f"from {least:g} on", lambda value: all(least <= number < math.inf for number in _numbers(value)))


def above(bound: float) -> Rule:
    """Restrict numbers to finite ones greater than `bound`."""
    return Rule(f"above {bound:g}", lambda value: all(bound < number < math.inf for number in _numbers(value)))


#: Neither infinite nor NaN.
FINITE = Rule("but not infinite", lambda value: all(map(math.isfinite, _numbers(value))))
#: At least one number.
SOME = Rule("at least one of them", lambda value: len(value) > 0)
#: Numbers in ascending order.
ASCENDING = Rule("the lower one first", lambda value: list(value) == sorted(value))
#: No element occurs twice.
DISTINCT = Rule("each only once", lambda value: len(set(value)) == len(value))


def count(*counts: int) -> Rule:
    """Restrict a list to these numbers of elements."""
    *others, last = map(str, counts)
    text = f"{', '.join(others)} or {last}" if others else last
    return Rule(f"{text} of them", lambda value: len(value) in counts)


def one_of_types(names: str) -> Rule:
    """Restrict a data type to NumPy dtypes, given by names that are separated by spaces."""
    allowed = [np.dtype(name) for name in names.split()]
    return Rule(f"one of {', '.join(to_dali_type(dtype).name for dtype in allowed)}", lambda dtype: dtype in allowed)


def _numbers(value: Any) -> Sequence[float]:
    return value if isinstance(value, tuple) else (value,)


#: Marks a required argument, in place of a default.
REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument of an operator.

    Attributes:
        name: name of the argument.
        default: default for users, or REQUIRED.
        annotation: type that the function receives, without None and `PerSample`.
        optional: whether None is allowed.
        per_sample: whether a node is allowed.
        per_frame: whether a node may have a value for each frame.
        saved: whether a serialized pipeline may hold the argument; see `dali_like.common.saved_arguments`.
        rules: restrictions on values of its type.
        check: converts a value that is neither None nor a node. It raises ArgumentError with a message that continues after
            the name of the argument.
        of_sample: converts a sample of a node; raises likewise.
    """

    name: str
    default: Any
    annotation: Any
    optional: bool
    per_sample: bool
    per_frame: bool
    saved: bool
    rules: tuple[Rule, ...]
    check: Callable[[Any], Any]
    of_sample: Callable[[Array], Any]

    def convert(self, value: Any, where: str) -> Any:
        """Convert a user's value for the function.

        Raises:
            ArgumentError: the value is not allowed; the message lists allowed values.
        """
        try:
            return self._ruled(self.check(value))
        except DaliLikeError as error:
            hint = ", or a DataNode with one for each sample" if self.per_sample else ""
            node = " It cannot differ from sample to sample." if isinstance(value, DataNode) else ""
            shown = "a DataNode" if isinstance(value, DataNode) else repr(value)
            raise type(error)(f"{where}: {self.name} must be {error}{hint}, not {shown}.{node}") from None

    def convert_sample(self, array: Array) -> Any:
        """Convert one sample of a node for the function.

        Raises:
            SampleTypeError: the sample has another type.
            SampleError: the sample has a value that is not allowed.
        """
        try:
            return self._ruled(self.of_sample(array))
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

    @property
    def allowed(self) -> str:
        """Description of the allowed values."""
        what = _NOUNS.get(self.annotation, "a value")
        return (", " if "list" in what or "data" in what else " ").join([what, *[rule.text for rule in self.rules]])

    def _ruled(self, value: Any) -> Any:
        if not all(rule.holds(value) for rule in self.rules):
            raise ArgumentClashError(self.allowed)
        return value


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the keyword arguments of an operator's function."""
    hints = typing.get_type_hints(function, include_extras=True)
    signature = inspect.signature(function)
    return {
        name: make_parameter(name, hints.get(name, Any), parameter.default)
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def make_parameter(name: str, hint: Any, default: Any = REQUIRED) -> Parameter:
    """Make a parameter from its name, annotation and default."""
    optional = per_sample = per_frame = False
    rules: list[Rule] = []
    marks: list[Mark] = []
    while True:
        if typing.get_origin(hint) is Annotated:
            per_sample |= _PER_SAMPLE in hint.__metadata__
            per_frame |= _PER_FRAME in hint.__metadata__
            rules += [rule for rule in hint.__metadata__ if isinstance(rule, Rule)]
            marks += [mark for mark in hint.__metadata__ if isinstance(mark, Mark)]
            hint = hint.__origin__
        elif typing.get_origin(hint) in (typing.Union, builtin_types.UnionType) and type(None) in typing.get_args(hint):
            optional = True
            parts = [part for part in typing.get_args(hint) if part is not type(None)]
            hint = typing.Union[tuple(parts)]  # noqa: UP007  # unpacks a tuple of types
        else:
            break
    check = _check_of(hint)
    of_sample = _sample_check_of(hint, check)
    return Parameter(
        name=name,
        default=default,
        annotation=hint,
        optional=optional,
        per_sample=per_sample,
        per_frame=per_frame,
        saved=marks[0].value if marks else _is_harmless(hint),
        rules=tuple(rules),
        check=check,
        of_sample=of_sample,
    )


def _is_harmless(hint: Any) -> bool:
    """Return whether values of this type name nothing outside of the pipeline."""
    if hint in (int, float, bool, Ints, Floats, FloatArray, np.dtype[Any]) or typing.get_origin(hint) is Literal:
        return True
    return isinstance(hint, type) and issubclass(hint, enum.IntEnum)


def _check_of(hint: Any) -> Callable[[Any], Any]:
    if hint in _CHECKS:
        return _CHECKS[hint]
    if typing.get_origin(hint) is Literal:
        return _one_of(typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
        return _member_of(hint)
    return lambda value: value


def _sample_check_of(hint: Any, check: Callable[[Any], Any]) -> Callable[[Array], Any]:
    if hint in (Ints, Floats, FloatArray):
        return check
    return lambda array: check(_single(array))


def _single(array: Array) -> Any:
    if array.size != 1:
        raise ArgumentTypeError("a single value")
    return array.reshape(()).item()


def _integer(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (float, np.floating)) and float(value).is_integer()):
        return int(value)
    if not is_int(value):
        raise ArgumentTypeError("an integer")
    return operator.index(value)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        raise ArgumentTypeError("a number")
    return float(value)


def _flag(value: Any) -> bool:
    try:
        return flag("", value)
    except DaliLikeError:
        raise ArgumentTypeError("True or False") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentTypeError("a string")
    return value


def _tuple_of(check: Callable[[Any], T], what: str) -> Callable[[Any], tuple[T, ...]]:
    def convert(value: Any) -> tuple[T, ...]:
        if isinstance(value, np.ndarray):
            value = value.ravel().tolist()
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
        try:
            return tuple(check(part) for part in parts)
        except DaliLikeError as error:
            raise type(error)(f"{error}, or a list of {what}") from None

    return convert


def _texts(value: Any) -> Strings:
    return value if isinstance(value, str) else _tuple_of(_text, "strings")(value)


def _float_array(value: Any) -> FloatArray:
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError):
        raise ArgumentTypeError("a number, or an array of numbers") from None


def _data_type(value: Any) -> np.dtype[Any]:
    try:
        return numpy_dtype(to_dali_type(value))
    except DaliLikeError as error:
        raise type(error)("a data type of dali_like.types, or of NumPy") from None


def _one_of(values: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in values:
            raise ArgumentError("one of " + ", ".join(map(repr, values)))
        return str(value)

    return check


def _member_of(kind: type[enum.IntEnum]) -> Callable[[Any], enum.IntEnum]:
    def check(value: Any) -> enum.IntEnum:
        try:
            return kind(_integer(value))
        except (ValueError, DaliLikeError):
            raise ArgumentError(f"one of {', '.join(member.name for member in kind)}") from None

    return check


#: The kinds of dtypes, as in NumPy's ``dtype.kind``, whose elements are numbers of these types.
_NUMBERS: dict[Any, str] = {int: "biu", float: "biuf"}

_NOUNS: dict[Any, str] = {
    int: "an integer",
    float: "a number",
    str: "a string",
    Ints: "an integer, or a list of integers",
    Floats: "a number, or a list of numbers",
    np.dtype[Any]: "a data type of dali_like.types, or of NumPy",
}

_CHECKS: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    float: _number,
    bool: _flag,
    str: _text,
    Ints: _tuple_of(_integer, "integers"),
    Floats: _tuple_of(_number, "numbers"),
    Strings: _texts,
    FloatArray: _float_array,
    np.dtype[Any]: _data_type,
}


def to_plain(value: Any) -> Any:
    """Convert an argument to numbers, strings and lists of them; `Parameter.convert` reverses this."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, enum.IntEnum):
        return int(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
