"""Arguments whose annotation is their specification."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from dali_like.common.arguments import REQUIRED, Argument, Ints, above, at_least, between, checked, count, specified_by
from dali_like.common.checks import or_none, positive
from dali_like.common.saved_arguments import NOT_SAVED, SAVED
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError


class Color(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("hint", "value", "converted"),
    [
        (int, 2.0, 2),
        (float, 2, 2.0),
        (bool, 1, True),
        (str, "a", "a"),
        (Ints, np.array([[1, 2]]), (1, 2)),
        (Color, 3, Color.RED),
        (np.dtype[Any], "float32", np.dtype(np.float32)),
        (Literal["a", "b"], "b", "b"),
        (int | None, None, None),
        (Annotated[float, between(0, 1)], 1, 1.0),
        (Annotated[int, positive] | None, None, None),
        (Annotated[int, positive] | None, np.uint8(2), 2),
        (Any, "anything", "anything"),
    ],
)
def test_allowed_values_are_converted_to_the_type_of_the_annotation(hint: Any, value: Any, converted: Any) -> None:
    found = Argument("size", hint).convert(value)

    assert (type(found), found) == (type(converted), converted)


@pytest.mark.parametrize(
    ("hint", "value", "error", "text"),
    [
        (int, 1.5, ArgumentTypeError, "size must be an integer, not 1.5"),
        (int, None, ArgumentTypeError, "size must be an integer, not None"),
        (bool, 2, ArgumentTypeError, "size must be True or False, not 2"),
        (Annotated[float, above(0)], 0, ArgumentClashError, "size must be a number above 0, not 0"),
        (
            Annotated[Ints, count(2)],
            [1],
            ArgumentClashError,
            "size must be an integer, or a list of integers, 2 of them, not [1]",
        ),
        (Literal["a", "b"], "c", ArgumentError, "size must be one of 'a', 'b', not 'c'"),
        (Color, 4, ArgumentError, "size must be one of RED, not 4"),
        (Annotated[int, positive], True, ArgumentTypeError, "size must be a positive integer, not True"),
    ],
)
def test_messages_about_other_values_name_the_argument_and_the_allowed_ones(
    hint: Any, value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(ArgumentError) as info:
        Argument("size", hint).convert(value)

    assert (type(info.value), str(info.value)) == (error, text)


def test_a_message_begins_with_the_owner_of_the_argument() -> None:
    with pytest.raises(ArgumentError, match=r"^fn\.crop: size must be an integer, not 'a'$"):
        Argument("size", int).convert("a", "fn.crop")


@pytest.mark.parametrize(
    ("hint", "saved"),
    [
        (int, True),
        (Color, True),
        (str, False),
        (Any, False),
        (Annotated[str, SAVED], True),
        (Annotated[int, NOT_SAVED], False),
    ],
)
def test_serialized_pipelines_hold_harmless_types_and_marked_arguments(hint: Any, saved: bool) -> None:
    assert Argument("size", hint).saved is saved


def test_arguments_have_the_names_and_defaults_of_a_function() -> None:
    def function(*, size: Annotated[int, at_least(1)] | None = None, name: Annotated[str, "a mark"], other: int = 0) -> None:
        """A function with two specified arguments."""

    found = specified_by(function)

    assert {name: (each.default, each.optional, len(each.rules)) for name, each in found.items()} == {
        "size": (None, True, 1),
        "name": (REQUIRED, False, 0),
    }


@checked
def opened(
    path: str, *, size: Annotated[int | None, or_none(positive)] = None, lead: Annotated[int, at_least(1)] = 1
) -> Any:
    return path, size, lead


def test_a_checked_function_gets_converted_values_and_its_own_defaults() -> None:
    assert opened("a", size=np.uint8(3), lead=np.int64(2)) == ("a", 3, 2)
    assert opened("a") == ("a", None, 1)


def test_a_checked_function_refuses_other_values_by_the_name_of_the_argument() -> None:
    with pytest.raises(ArgumentError, match=r"^size must be a positive integer, not 0$"):
        opened("a", size=0)
