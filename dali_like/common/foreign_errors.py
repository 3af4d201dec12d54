"""Exceptions of foreign code, such as callbacks: read and change them, also if their classes define attributes of their own.

A class may define an attribute of exceptions as a property that raises, text that cannot be computed, or notes that are not
texts. What these functions do for an exception that is being handled must not raise another one. So they use the attributes
texts. While an exception is being handled, these functions must not raise another one. So they use the attributes
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

_Error = TypeVar("_Error", bound=BaseException)

_ATTRIBUTES: dict[str, Any] = {name: BaseException.__dict__[name] for name in ("__cause__", "__context__", "__traceback__")}
_PARTS: Any = BaseExceptionGroup.__dict__["exceptions"]
_QUALNAME: Any = type.__dict__["__qualname__"]

#: Notes that are read, of lists that may have no end.
_MOST_NOTES = 1000


def text_of(value: Any, convert: Callable[[Any], str] = str) -> str:
    """Return `str` of an object of foreign code, or a text that says that it raises."""
    try:
        return str.__str__(convert(value))  # not an object of a subclass of str
    except Exception:  # a foreign class may raise anything
        return f"<{type_name(value)} {convert.__name__}() failed>"


def repr_of(value: Any) -> str:
    """Return `repr` of an object of foreign code, or a text that says that it raises."""
    return text_of(value, repr)


def is_a(value: object, *kinds: type) -> bool:
    """Return whether an object is of one of these classes. `isinstance` would also ask its ``__class__``."""
    return issubclass(type(value), kinds)


def type_name(value: Any) -> str:
    """Return the qualified name of the class of an object."""
    return str(_QUALNAME.__get__(type(value)))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception."""
    traceback: TracebackType | None = _ATTRIBUTES["__traceback__"].__get__(error)
    return traceback


def with_traceback(error: _Error, traceback: TracebackType | None) -> _Error:
    """Set the traceback of an exception, and return the exception."""
    return BaseException.with_traceback(error, traceback)


def cause_of(error: BaseException) -> BaseException | None:
    """Return the cause of an exception."""
    cause: BaseException | None = _ATTRIBUTES["__cause__"].__get__(error)
    return cause


def causes_of(error: BaseException) -> list[BaseException]:
    """Return the cause and the context of an exception, and the parts of a group."""
    parts = _PARTS.__get__(error) if is_a(error, BaseExceptionGroup) else ()
    return [other for other in (cause_of(error), _ATTRIBUTES["__context__"].__get__(error), *parts) if other is not None]


def set_cause(error: BaseException, cause: BaseException | None) -> None:
    """Set the cause of an exception."""
    _ATTRIBUTES["__cause__"].__set__(error, cause)


def drop_context(error: BaseException) -> None:
    """Forget during which other exception this one was raised."""
    _ATTRIBUTES["__context__"].__set__(error, None)


def notes_of(error: BaseException) -> list[str]:
    """Return the notes of an exception as tracebacks show them: notes that are not text by their `str`."""
    try:
        notes = getattr(error, "__notes__", None)
        if notes is None:
            return []
        if not is_a(notes, list, tuple):
            return [repr_of(notes)]
        return [text_of(note) for note in itertools.islice(notes, _MOST_NOTES)]
    except Exception:  # a property, or a class of lists
        return []


def set_notes(error: BaseException, notes: list[str]) -> None:
    """Set the notes of an exception, even of one that cannot be changed, such as a frozen dataclass."""
    with contextlib.suppress(Exception):  # a property, which keeps its notes
        object.__setattr__(error, "__notes__", notes)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception. A note about the place where it was raised replaces the one about a source."""
    notes = notes_of(error)
    if note.startswith("raised by"):
        notes = [old for old in notes if not old.startswith("raised by external_source")]
    set_notes(error, [*notes, note])
