"""Checks of values read from JSON: which values fit a schema, and the messages about the others."""

from __future__ import annotations

from typing import Any

import pytest

from dali_like.common.json_state import (
    ANYTHING,
    BOOLEAN,
    LIST,
    MAPPING,
    TEXT,
    Schema,
    check,
    field,
    integer,
    list_of,
    mapping,
    optional,
    plain,
)
from tests.conftest import without_addresses

RECORD = mapping(count=integer(), names=list_of(TEXT), state=optional(MAPPING), other=ANYTHING)
VALID = {"count": 3, "names": ["a", "b"], "state": None, "other": 1.5}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (0, integer()),
        (-1, integer(None)),
        (7, integer(0, 7)),
        (True, BOOLEAN),
        ("", TEXT),
        ((1, 2), LIST),
        ({}, MAPPING),
        (None, optional(integer())),
        ([None, 1], list_of(optional(integer()))),
        (VALID, RECORD),
        ("x", plain("x", lambda value: value == "x")),
    ],
    ids=without_addresses,
)
def test_values_that_fit_are_returned(value: Any, schema: Schema) -> None:
    assert check(value, schema, "the value", ValueError) is value


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        (-1, integer(), "the value should be an integer from 0 on, not -1"),
        (True, integer(), "the value should be an integer from 0 on, not True"),
        (1.0, integer(None), "the value should be an integer, not 1.0"),
        (8, integer(0, 7), "the value should be an integer from 0 to 7, not 8"),
        (1, BOOLEAN, "the value should be true or false, not 1"),
        (None, TEXT, "the value should be a string, not None"),
        ("ab", LIST, "the value should be a list, not 'ab'"),
        ([], MAPPING, "the value should be an object, not []"),
        ([1, "2"], list_of(integer()), "the value should be an integer from 0 on, not '2'"),
        ([], RECORD, "the value should be an object, not []"),
        ({"count": 1, "names": []}, RECORD, "the value has no 'other', 'state'"),
        (VALID | {"more": 1}, RECORD, "the value has the unknown entries 'more'"),
        (VALID | {"names": ["a", 1]}, RECORD, "the value: names should be a string, not 1"),
    ],
    ids=without_addresses,
)
def test_the_message_names_place_expectation_and_value(value: Any, schema: Schema, message: str) -> None:
    with pytest.raises(ValueError, match="the value") as caught:
        check(value, schema, "the value", ValueError)

    assert str(caught.value) == message


def test_a_field_is_returned() -> None:
    assert field(VALID, "count", integer(), "the record", ValueError) == 3


@pytest.mark.parametrize(
    ("record", "message"),
    [({}, "the record has no 'count'"), ({"count": "3"}, "the record: count should be an integer"), (5, "an object, not 5")],
)
def test_a_field_that_is_missing_or_wrong_is_refused(record: Any, message: str) -> None:
    with pytest.raises(KeyError, match=message):
        field(record, "count", integer(), "the record", KeyError)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ValueError, match="should be an integer") as caught:
        check("x" * 10_000, integer(), "the value", ValueError)

    assert len(str(caught.value)) < 300
