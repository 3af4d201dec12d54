"""Errors after wrong input of external sources: of the real DALI 1.53, and of dali_like."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from dali_like.types import SampleInfo
from tests.parity.conftest import END, OURS, Library, error_of, play, values
from tests.parity.samples import ONE, Source, assert_raises_the_same, function

pytestmark = pytest.mark.peers


class Returned(NamedTuple):
    """A result of a source that cannot be delivered, and DALI's exception then: serially, and in workers.

    None: DALI's workers crash, and its main process sometimes waits for them forever.
    """

    make: Source
    serial: type[Exception]
    parallel: type[Exception] | None
    num_outputs: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed


RETURNED = {
    "None": Returned(lambda info: None, RuntimeError, TypeError),
    "None in one sample": Returned(lambda info: None if info.idx_in_epoch == 3 else ONE, RuntimeError, TypeError),
    "a list of numbers": Returned(lambda info: [1, 2], RuntimeError, TypeError),
    "bytes": Returned(lambda info: b"x", RuntimeError, TypeError),
    "a string": Returned(lambda info: "x", RuntimeError, TypeError),
    "a dictionary": Returned(lambda info: {"x": ONE}, RuntimeError, TypeError),
    "an object": Returned(lambda info: object(), RuntimeError, TypeError),
    "a tuple": Returned(lambda info: (ONE, ONE), RuntimeError, RuntimeError),
    "objects": Returned(lambda info: np.array([{}]), RuntimeError, None),
    "long doubles": Returned(lambda info: np.zeros(2, np.longdouble), RuntimeError, RuntimeError),
    "dates": Returned(lambda info: np.array(["2020-02-02"], "M8[D]"), ValueError, ValueError),
    "None among the outputs": Returned(lambda info: (ONE, None), RuntimeError, TypeError, 2),
    "no outputs": Returned(lambda info: (), IndexError, IndexError, 2),
    "too few outputs": Returned(lambda info: (ONE,), IndexError, IndexError, 2),
    "None for the outputs": Returned(lambda info: None, TypeError, TypeError, 2),
    "two dtypes in a batch": Returned(
        lambda info: np.zeros(1, (np.float32, np.int32)[info.idx_in_batch % 2]), RuntimeError, RuntimeError
    ),
    "two dtypes in two batches": Returned(
        lambda info: np.zeros(1, (np.float32, np.int32)[info.iteration % 2]), RuntimeError, RuntimeError
    ),
    "two dimensionalities in a batch": Returned(
        lambda info: np.zeros((1,) * (1 + info.idx_in_batch % 2)), RuntimeError, RuntimeError
    ),
    "two dimensionalities in two batches": Returned(
        lambda info: np.zeros((1,) * (1 + info.iteration % 2)), RuntimeError, RuntimeError
    ),
    "another number of dimensions than declared": Returned(lambda info: ONE, RuntimeError, RuntimeError, None, {"ndim": 2}),
    "fewer dimensions than the layout": Returned(lambda info: ONE, RuntimeError, RuntimeError, None, {"layout": "HW"}),
}


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED)
def test_values_that_cannot_be_delivered_raise_as_in_dali(dali: Library, returned: Returned, way: str) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(
            returned.make, way, num_outputs=returned.num_outputs, source_options=returned.options
        ) as pipe:
            play(pipe, [3])

    expected = returned.serial if way == "serial" else returned.parallel
    if expected is None:
        assert isinstance(error_of(program, OURS), returned.serial)
    else:
        assert_raises_the_same(program, dali, expected)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_undeclared_dtype_raises_as_in_dali(dali: Library, way: str) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(lambda info: ONE, way, source_options={"dtype": library.types.UINT8}) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, RuntimeError)


def takes_two(info: SampleInfo, other: Any) -> Any:
    return ONE


def takes_a_keyword(info: SampleInfo, *, other: Any) -> Any:
    return ONE


def generates(info: SampleInfo) -> Any:
    yield ONE


@pytest.mark.parametrize(
    ("source", "way"),
    [
        pytest.param(lambda: ONE, "fork", id="without an argument, parallel"),
        pytest.param(takes_two, "serial", id="with two arguments"),
        pytest.param(takes_two, "fork", id="with two arguments, parallel"),
        pytest.param(takes_a_keyword, "fork", id="with a keyword that must be given"),
        pytest.param(generates, "fork", id="generator function, parallel"),
        pytest.param(iter([ONE]), "fork", id="iterator, parallel"),
        pytest.param([ONE], "fork", id="list, parallel"),
        pytest.param(7, "serial", id="number"),
        pytest.param(7, "fork", id="number, parallel"),
    ],
)
def test_invalid_source_raises_as_in_dali(dali: Library, source: Any, way: str) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(source, way) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, TypeError)


class Argument(NamedTuple):
    """An argument with a value that is not allowed, and DALI's exception for it."""

    options: dict[str, Any]
    expected: type[Exception]
    way: str = "fork"


ARGUMENTS = {
    "batch size 0": Argument({"batch_size": 0}, ValueError),
    "batch size -1": Argument({"batch_size": -1}, ValueError),
    "no batch size": Argument({"batch_size": None}, ValueError),
    "batch size 1.5": Argument({"batch_size": 1.5}, TypeError),
    "0 threads": Argument({"num_threads": 0}, ValueError),
    "-1 threads": Argument({"num_threads": -1}, ValueError),
    "1.5 threads": Argument({"num_threads": 1.5}, TypeError),
    "0 workers": Argument({"workers": 0}, RuntimeError),
    "-1 workers": Argument({"workers": -1}, RuntimeError),
    "1.5 workers": Argument({"workers": 1.5}, RuntimeError),
    "None workers": Argument({"workers": None}, RuntimeError),
    "an unknown start method": Argument({"way": "threads"}, ValueError),
    "pipeline depth 0": Argument({"prefetch_queue_depth": 0}, ValueError),
    "pipeline depth 1.5": Argument({"prefetch_queue_depth": 1.5}, TypeError),
    "no pipeline depth": Argument({"prefetch_queue_depth": None}, TypeError),
    "1.5 outputs": Argument({"num_outputs": 1.5}, TypeError),
    "source depth 0": Argument({"source_options": {"prefetch_queue_depth": 0}}, ValueError),
    "source depth -1": Argument({"source_options": {"prefetch_queue_depth": -1}}, ValueError),
    "source depth 1.5": Argument({"source_options": {"prefetch_queue_depth": 1.5}}, TypeError),
    "source depth without workers": Argument({"source_options": {"prefetch_queue_depth": 1}}, ValueError, "serial"),
    "an unknown device": Argument({"source_options": {"device": "tpu"}}, RuntimeError),
    "-1 dimensions": Argument({"source_options": {"ndim": -1}}, RuntimeError),
    "dimensions that are a word": Argument({"source_options": {"ndim": "two"}}, ValueError),
    "a layout that contradicts the dimensions": Argument({"source_options": {"ndim": 2, "layout": "H"}}, RuntimeError),
    "a layout that is a number": Argument({"source_options": {"layout": 3}}, TypeError),
    "a dtype that is an unknown name": Argument({"source_options": {"dtype": "quaternion"}}, ValueError),
    "a dtype that is an unknown number": Argument({"source_options": {"dtype": 99}}, RuntimeError),
    "a dtype that is an object": Argument({"source_options": {"dtype": object()}}, TypeError),
}


@pytest.mark.parametrize("argument", ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments_raise_as_in_dali(dali: Library, argument: Argument) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(function, **{"way": argument.way, **argument.options}) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, argument.expected)


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param(lambda node: {"image": node}, id="dictionary"),
        pytest.param(lambda node: "image", id="string"),
        pytest.param(lambda node: (node, [node]), id="nested list"),
        pytest.param(lambda node: node if node else None, id="condition on a node"),
        pytest.param(lambda node: [*node], id="iteration over a node"),
        pytest.param(len, id="length of a node"),
    ],
)
def test_invalid_outputs_raise_as_in_dali(dali: Library, outputs: Callable[[Any], Any]) -> None:
    def program(library: Library) -> None:
        with library.pipeline(lambda: outputs(library.fn.external_source(source=function, batch=False))) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, TypeError)


def test_only_dali_refuses_variable_keywords_of_a_pipelines_function(dali: Library) -> None:
    def program(library: Library) -> None:
        def define(*values: Any, **options: Any) -> Any:
            return library.fn.external_source(source=function, batch=False)

        with library.pipeline(define):
            pass

    program(OURS)
    with pytest.raises(TypeError, match="variadic keyword argument"):
        program(dali)


# DALI's destructor does not expect that its constructor has failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_unknown_arguments_of_pipeline_def_raise_as_in_dali(dali: Library) -> None:
    def program(library: Library) -> None:
        with library.pipeline(lambda: library.fn.external_source(source=function, batch=False), colour="red"):
            pass

    assert_raises_the_same(program, dali, TypeError)


class HasLock:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, info: SampleInfo) -> Any:
        return ONE


class RefusesToLoad:
    def __call__(self, info: SampleInfo) -> Any:
        return ONE

    def __setstate__(self, state: dict[str, Any]) -> None:
        raise LookupError("not here")

    def __getstate__(self) -> dict[str, Any]:
        return {"something": 1}


# DALI does not close the sockets of workers that have not come up.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize(
    ("source", "expected"), [(HasLock(), TypeError), (RefusesToLoad(), RuntimeError)], ids=["dumping", "loading"]
)
def test_sources_that_cannot_be_pickled_raise_as_in_dali(dali: Library, source: Source, expected: type[Exception]) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(source, "spawn", workers=1) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, expected)


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("kind", [ValueError, KeyError, FileNotFoundError, ZeroDivisionError, AssertionError])
def test_exceptions_of_callbacks_keep_their_type(dali: Library, kind: type[Exception], way: str) -> None:
    def source(info: SampleInfo) -> Any:
        raise kind("of the user's")

    def program(library: Library) -> None:
        with library.source_pipeline(source, way) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, kind)


def batch_of(number: int) -> list[Any]:
    if number == 2:
        raise ValueError("no such item")
    return [np.array([number])] * 4


class Items:
    """A sequence by ``__getitem__`` alone."""

    def __getitem__(self, number: int) -> list[Any]:
        if number == 4:
            raise IndexError
        return batch_of(number)


class Mapped:
    def __iter__(self) -> Any:
        return map(batch_of, range(4))


class Generated:
    def __iter__(self) -> Any:
        for number in range(4):
            yield batch_of(number)


@pytest.mark.parametrize(
    ("source", "after"),
    [(Items, ["ValueError"] * 3), (Mapped, [[[[3]] * 4], END, END]), (Generated, [END] * 3)],
    ids=["by __getitem__ alone", "map", "generator"],
)
def test_iterable_decides_about_items_after_an_exception(dali: Library, source: Callable[[], Any], after: list[Any]) -> None:
    """The interpreter's iterator over a sequence without ``__iter__`` stays at such an item."""

    def program(library: Library) -> list[Any]:
        with library.pipeline(
            lambda: library.fn.external_source(source=source(), batch=True), prefetch_queue_depth=1
        ) as pipe:
            return play(pipe, (6,), values, (ValueError,))

    assert program(OURS) == program(dali)
    assert [list(entry) if isinstance(entry, tuple) else entry for entry in program(OURS)][3:] == after
