"""Exceptions are read and changed past their classes."""

from __future__ import annotations

from typing import Any

import pytest

from dali_like.common.foreign_errors import add_note, cause_of, is_a, notes_of, repr_of, set_cause, text_of


def fails(*_: Any) -> Any:
    raise LookupError("odd")


def raised_with(notes: Any) -> ValueError:
    error = ValueError("bad sample")
    vars(error)["__notes__"] = notes
    return error


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        (["a", 1, b"x"], ["a", "1", "b'x'"]),
        (("a",), ["a"]),
        (7, ["7"]),
        ("text", ["'text'"]),
        (None, []),
        ([type("Odd", (), {"__str__": fails})()], ["<Odd str() failed>"]),
    ],
)
def test_notes_are_those_that_a_traceback_shows(notes: Any, expected: list[str]) -> None:
    assert notes_of(raised_with(notes)) == expected


def test_a_note_is_added_to_notes_that_are_no_texts() -> None:
    error = raised_with([1])

    add_note(error, "here")

    assert error.__notes__ == ["1", "here"]


def test_a_class_that_refuses_notes_keeps_its_own() -> None:
    error = type("Odd", (ValueError,), {"__notes__": property(lambda _: ["own"])})()

    add_note(error, "here")

    assert notes_of(error) == ["own"]


def test_a_note_about_an_operator_leaves_hints_and_replaces_the_place_of_a_source() -> None:
    error = raised_with(["hint: look", "raised by external_source 'numbers' for sample 1"])

    add_note(error, "raised by fn.resize for sample 1")

    assert error.__notes__ == ["hint: look", "raised by fn.resize for sample 1"]


def test_properties_of_the_class_do_not_matter() -> None:
    odd = {"__cause__": property(fails), "__class__": property(fails), "__str__": fails, "__repr__": fails}
    error: Any = type("Odd", (ValueError,), odd)()

    set_cause(error, KeyError(1))

    assert type(cause_of(error)) is KeyError
    assert is_a(error, ValueError)
    assert not is_a(error, KeyError)
    assert (text_of(error), repr_of(error)) == ("<Odd str() failed>", "<Odd repr() failed>")
