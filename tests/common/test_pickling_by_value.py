"""Functions and classes that travel by value keep the file names and lines of their code, for tracebacks."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dali_like.common.pickling_by_value import dumps_by_value
from dali_like.engine.worker.exceptions import pack_exception, unpack_exception
from dali_like.engine.worker.out_of_band import OutOfBandPickle, block_of, pickle_parts
from dali_like.sources.travel import by_value

CELL = """
def outer():
    def inner():
        return [1 / number for number in (1, 0)]
    return inner
"""


def of_a_cell() -> Any:
    """Define a function as a notebook does: in code of a file that does not exist."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, "/tmp/ipykernel_1/2.py", "exec"), names)
    return names["outer"]


def functions() -> dict[str, Any]:
    def nested() -> Any:
        def inner() -> Any:
            return lambda: (number for number in (1, 2))

        return inner

    async def coroutine() -> None:
        pass

    class Local:
        def method(self) -> Callable[[], type]:
            return lambda: type(self)

    return {
        "lambda": lambda: 1,
        "nested functions": nested,
        "coroutine function": coroutine,
        "method of a class": Local.method,
        "function of a cell": of_a_cell(),
    }


def in_an_exception(function: Any) -> Any:
    class LocalError(Exception):
        pass

    error = LocalError()
    error.function = function  # type: ignore[attr-defined]
    return unpack_exception(pack_exception(error)).function


WAYS: dict[str, Callable[[Any], Any]] = {
    "source": lambda function: pickle.loads(by_value.dumps(function)),
    "result": lambda function: OutOfBandPickle(block_of(pickle_parts(function))).load(),
    "exception": in_an_exception,
    "other": lambda function: pickle.loads(dumps_by_value(function)),
}


def places(code: types.CodeType) -> Iterator[Any]:
    """Yield file name, name and lines of a code object, and of all that are nested in it."""
    yield code.co_filename, code.co_qualname, code.co_firstlineno, list(code.co_positions())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from places(constant)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", functions())
def test_code_that_travels_keeps_its_file_names_and_lines(kind: str, way: str) -> None:
    function = functions()[kind]

    travelled = WAYS[way](function)

    assert travelled.__code__ is not function.__code__
    assert list(places(travelled.__code__)) == list(places(function.__code__))
