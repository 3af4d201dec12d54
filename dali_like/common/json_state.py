"""Checks of values read from JSON: saved states, checkpoints, serialized pipelines.

A `Schema` describes one value; `mapping` and `list_of` combine schemas. `check` and `field` raise the caller's exception for
the first value that does not fit. The message names the place, the expected form and the value.

>>> point = mapping(x=integer(), label=optional(TEXT))
>>> check({"x": 1, "label": None}, point, "the point", ValueError)
{'x': 1, 'label': None}
>>> check({"x": -1, "label": None}, point, "the point", ValueError)
Traceback (most recent call last):
ValueError: the point: x should be an integer from 0 on, not -1
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: Larger numbers of elements, positions and epochs are damage.
MOST = 1 << 48

#: Return the first problem of a value, given the value and its place for the message; None if it fits.
Schema = Callable[[Any, str], str | None]


def check(value: Any, schema: Schema, where: str, error: Callable[[str], Exception]) -> Any:
    """Return the value.

    Args:
        value: the value read from JSON.
        schema: its expected form.
        where: its place, for the message.
        error: makes the exception from the message.
    """
    if (problem := schema(value, where)) is not None:
        raise error(problem)
    return value


def field(record: Any, key: str, schema: Schema, where: str, error: Callable[[str], Exception]) -> Any:
    """Return the value under one key of a mapping; see `check`."""
    check(record, MAPPING, where, error)
    if key not in record:
        raise error(f"{where} has no {key!r}")
    return check(record[key], schema, f"{where}: {key}", error)


def plain(expected: str, fits: Callable[[Any], bool]) -> Schema:
    """Make a schema from a predicate and its description."""
    return lambda value, where: None if fits(value) else f"{where} should be {expected}, not {value!r:.200}"


def integer(least: int | None = 0, most: int | None = None) -> Schema:
    """Accept integers in a range, bounds included. Booleans are not integers here."""
    bounds = "" if least is None else f" from {least} on" if most is None else f" from {least} to {most}"

    def fits(value: Any) -> bool:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return is_integer and (least is None or value >= least) and (most is None or value <= most)

    return plain(f"an integer{bounds}", fits)


def optional(schema: Schema) -> Schema:
    """Accept null as well."""
    return lambda value, where: None if value is None else schema(value, where)


def list_of(schema: Schema) -> Schema:
    """Accept lists whose items all fit. A state that was never written to JSON may have tuples in their place."""

    def problem(value: Any, where: str) -> str | None:
        found = LIST(value, where)
        return found or next(filter(None, (schema(item, where) for item in value)), None)

    return problem


def mapping(**schemas: Schema) -> Schema:
    """Accept objects with exactly these keys, whose values all fit."""

    def problem(value: Any, where: str) -> str | None:
        if (found := MAPPING(value, where)) is not None:
            return found
        if missing := sorted(schemas.keys() - value.keys()):
            return f"{where} has no {', '.join(map(repr, missing))}"
        if unknown := sorted(map(repr, value.keys() - schemas.keys())):
            return f"{where} has the unknown entries {', '.join(unknown)}"
        return next(filter(None, (schema(value[key], f"{where}: {key}") for key, schema in schemas.items())), None)

    return problem


ANYTHING: Schema = plain("anything", lambda value: True)
BOOLEAN: Schema = plain("true or false", lambda value: isinstance(value, bool))
TEXT: Schema = plain("a string", lambda value: isinstance(value, str))
LIST: Schema = plain("a list", lambda value: isinstance(value, (list, tuple)))
MAPPING: Schema = plain("an object", lambda value: isinstance(value, Mapping))
