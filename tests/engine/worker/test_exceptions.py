"""Exceptions from workers arrive with the type, text, attributes and notes of the original."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dali_like.engine.worker.exceptions import SHORT_BYTES, pack_exception, unpack_exception
from dali_like.errors import WorkerError

LONG = 200_000


class TellsMore(Exception):
    """Its constructor formats the text from its argument. pickle would pass the text to the constructor."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Refused(OSError):
    """An OSError whose arguments differ from the usual ones."""

    def __init__(self, path: str, *, host: str) -> None:
        super().__init__(13, "Permission denied", path)
        self.host = host


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, *, code: int) -> None:
        super().__init__("broken")
        self.code = code


class MadeByKeyword(Exception):
    def __new__(cls, *args: Any, code: int) -> MadeByKeyword:
        return super().__new__(cls, *args)

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def arrived(error: Exception, most_bytes: float = float("inf")) -> Any:
    """Return an exception as it arrives from a worker."""
    try:
        raise error  # noqa: TRY301
    except Exception as raised:
        return unpack_exception(pack_exception(raised, most_bytes))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TellsMore(7),
        lambda: Refused("/nowhere", host="here"),
        lambda: Slotted(code=7),
        lambda: MadeByKeyword("broken", code=7),
        lambda: FileNotFoundError(2, "No such file or directory", "/nowhere"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        lambda: ExceptionGroup("several", [TellsMore(7), ExceptionGroup("more", [Refused("/nowhere", host="here")])]),
    ],
    ids=lambda make: type(make()).__name__,
)
def test_all_that_it_says_arrives(make: Callable[[], Exception]) -> None:
    error = arrived(make())

    assert type(error) is type(make())
    assert (repr(error), str(error), vars(error)) == (repr(make()), str(make()), vars(make()))
    for name in ("code", "errno", "filename", "object"):
        assert getattr(error, name, None) == getattr(make(), name, None)


def test_parts_of_a_group_arrive_as_they_were() -> None:
    refused = arrived(ExceptionGroup("several", [ValueError(1), Refused("/nowhere", host="here")])).exceptions[1]

    assert (type(refused), refused.filename, refused.host) == (Refused, "/nowhere", "here")


def test_the_object_that_lacks_an_attribute_stays_behind() -> None:
    class Dataset:
        def __reduce__(self) -> Any:
            raise AssertionError("pickled")

    try:
        Dataset().length  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as lacking:
        error = arrived(lacking)

    assert "has no attribute 'length'" in str(error)
    assert error.obj is None


def raised_with(name: str, value: Any) -> Exception:
    error = TellsMore(7)
    vars(error)[name] = value
    return error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError("x" * LONG), id="text"),
        pytest.param(raised_with("data", np.zeros(LONG)), id="array"),
        pytest.param(raised_with("data", b"x" * LONG), id="bytes"),
        pytest.param(raised_with("__notes__", ["x" * LONG] * 20), id="notes"),
        pytest.param(SaysNothing("x" * LONG), id="no text"),
    ],
)
def test_one_that_is_too_long_keeps_its_type_and_its_traceback(error: Exception) -> None:
    packed = pack_exception(error, SHORT_BYTES)

    short = unpack_exception(packed)

    assert len(packed) <= SHORT_BYTES
    assert type(short) is type(error)
    assert getattr(short, "code", None) == getattr(error, "code", None)


def test_one_that_is_too_long_shows_where_it_was_raised() -> None:
    error = arrived(ValueError("x" * LONG), SHORT_BYTES)

    assert "raise error" in "".join(traceback.format_exception(error))
    assert str(error).startswith("xxx")
    assert f"[... {LONG - 1000} letters ...]" in str(error)


def test_a_group_with_too_many_parts_arrives_as_a_worker_error_with_its_text() -> None:
    error = arrived(ExceptionGroup("several", [TellsMore(i) for i in range(10_000)]), SHORT_BYTES)

    assert type(error) is WorkerError
    assert "ExceptionGroup: several (10000 sub-exceptions)" in str(error)


def test_an_unpicklable_exception_without_a_text_arrives_with_its_class_name() -> None:
    kind = type("CannotTravel", (SaysNothing,), {"lock": threading.Lock()})

    assert "CannotTravel: <CannotTravel str() failed>" in str(arrived(kind()))
