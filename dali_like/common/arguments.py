"""Arguments: the annotation of an argument is its specification, for operators, readers, sources, loaders and pipelines.

An annotation states the type that the code receives. It determines the values a user may pass:

====================  ============================================================  =============================
annotation            accepted value                                                value that the code receives
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
``Annotated[X, R]``   as for ``X``, if a `Rule` such as ``between(0, 1)`` allows    as for ``X``
``Annotated[X, C]``   what a check of `dali_like.common.checks` accepts             what the check returns
anything else         anything                                                      the same
====================  ============================================================  =============================

An integer may be passed as a float, except where a check says otherwise. Serialized pipelines hold no texts, and nothing of
the kind "anything else", unless the annotation says so: see `dali_like.common.saved_arguments`.
"""

from __future__ import annotations

import enum
import functools
import inspect
import math
import operator
import types as builtin_types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.common.checks import Check, flag, is_int
from dali_like.common.saved_arguments import Mark
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DaliLikeError
from dali_like.types import numpy_dtype, to_dali_type

T = TypeVar("T")
_F = TypeVar("_F", bound=Callable[..., Any])

Ints: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]
Strings: TypeAlias = str | tuple[str, ...]
FloatArray: TypeAlias = NDArray[np.float32]


class Rule:
    """Restriction on the values of an argument.

    Attributes:
        text: description that follows the type in messages: "from 0 to 1".
        holds: whether a converted value is allowed.
    """

    def __init__(self, text: str, holds: Callable[[Any], bool]) -> None:
        self.text = text
        self.holds = holds


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


_ANNOTATED: Any = type(Annotated[int, "mark"])
_UNIONS: Any = (type(typing.Union[int, list[int]]), builtin_types.UnionType)  # noqa: UP007  # the type of such unions is meant

#: Marks a required argument, in place of a default.
REQUIRED: Any = inspect.Parameter.empty


class Argument:
    """An argument with its specification.

    Args:
        name: name of the argument.
        hint: the annotation.
        default: default for users, or REQUIRED.

    Attributes:
        name, default: as given.
        annotation: type that the code receives, without None and marks.
        optional: whether None is allowed.
        marks: everything else that the annotation says, in its order.
        rules: restrictions on values of its type.
        whole_check: takes the place of `check` and `rules`, with messages of its own; None without one.
    """

    def __init__(self, name: str, hint: Any, default: Any = REQUIRED) -> None:
        self.name = name
        self.default = default
        self.optional = False
        self.marks: tuple[Any, ...] = ()
        while True:
            if isinstance(hint, _ANNOTATED):
                self.marks += hint.__metadata__
                hint = hint.__origin__
            elif isinstance(hint, _UNIONS) and type(None) in hint.__args__:
                self.optional = True
                parts = tuple(part for part in hint.__args__ if part is not type(None))
                hint = parts[0] if len(parts) == 1 else typing.Union[parts]  # noqa: UP007  # unpacks a tuple of types
            else:
                break
        self.annotation = hint
        self.rules = tuple(mark for mark in self.marks if isinstance(mark, Rule))
        functions = (mark for mark in self.marks if isinstance(mark, builtin_types.FunctionType))
        self.whole_check: Check | None = next(functions, None)

    # These two take longer than the rest, and many arguments need neither.

    @functools.cached_property
    def check(self) -> Callable[[Any], Any]:
        """Converts a value that is not None.

        It raises ArgumentError with a message that continues after the name of the argument.
        """
        hint = self.annotation
        if hint in _CHECKS:
            return _CHECKS[hint]
        if typing.get_origin(hint) is Literal:
            return _one_of(typing.get_args(hint))
        if isinstance(hint, type) and issubclass(hint, enum.IntEnum):
            return _member_of(hint)
        return lambda value: value

    @functools.cached_property
    def saved(self) -> bool:
        """Whether a serialized pipeline may hold the argument; see `dali_like.common.saved_arguments`."""
        said = [mark.value for mark in self.marks if isinstance(mark, Mark)]
        return said[0] if said else _is_harmless(self.annotation)

    def convert(self, value: Any, where: str = "") -> Any:
        """Convert a user's value for the code.

        Args:
            where: the function or class, for messages; empty: the message begins with the name of the argument.

        Raises:
            ArgumentError: the value is not allowed; the message lists allowed values.
        """
        if value is None and self.optional:
            return None
        if self.whole_check is not None:
            return self.whole_check(self.name, value)
        try:
            return self.ruled(self.check(value))
        except DaliLikeError as error:
            text = f"{self.name} must be {error}{self.further(value)}"
            raise type(error)(f"{where}: {text}" if where else text) from None

    def further(self, value: Any) -> str:
        """Return the end of the message about a value that is not allowed."""
        return f", not {value!r}"

    @property
    def allowed(self) -> str:
        """Description of the allowed values."""
        what = _NOUNS.get(self.annotation, "a value")
        return (", " if "list" in what or "data" in what else " ").join([what, *[rule.text for rule in self.rules]])

    def ruled(self, value: Any) -> Any:
        """Return a value of the right type, after a check of the rules.

        Raises:
            ArgumentClashError: a rule does not allow it.
        """
        if not all(rule.holds(value) for rule in self.rules):
            raise ArgumentClashError(self.allowed)
        return value


def specified_by(function: Callable[..., Any], alias: str = "Annotated") -> dict[str, Argument]:
    """Return the arguments of a function whose annotations begin with an alias of `Annotated`.

    The module of the function postpones the evaluation of annotations. Others are not evaluated: each takes ten
    microseconds, and some need imports for type checkers only.
    """
    texts = {name: text for name, text in function.__annotations__.items() if text.startswith(f"{alias}[")}
    defaults = function.__kwdefaults__ or {}
    return {
        name: Argument(name, eval(text, function.__globals__), defaults.get(name, REQUIRED)) for name, text in texts.items()
    }


def checked(function: _F) -> _F:
    """Decorate a function: its keyword arguments are checked and converted, as ``Annotated[...]`` says."""

    @functools.cache
    def specified() -> dict[str, Argument]:
        return specified_by(function)

    @functools.wraps(function)
    def converting(*args: Any, **kwargs: Any) -> Any:
        for name, argument in specified().items():
            if name in kwargs:
                kwargs[name] = argument.convert(kwargs[name])
        return function(*args, **kwargs)

    return converting  # type: ignore[return-value]


def _is_harmless(hint: Any) -> bool:
    """Return whether values of this type name nothing outside of the pipeline."""
    if hint in (int, float, bool, Ints, Floats, FloatArray, np.dtype[Any]) or typing.get_origin(hint) is Literal:
        return True
    return isinstance(hint, type) and issubclass(hint, enum.IntEnum)


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
    if value is True or value is False:  # usual, and the rest takes a microsecond
        return value
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
    """Convert an argument to numbers, strings and lists of them; `Argument.convert` reverses this."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, enum.IntEnum):
        return int(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
