"""The same programs with external sources, run by the real DALI 1.53 on the CPU and by dali_like.

In this order: what is delivered; which SampleInfo it was made with, and where epochs end; several sources; what wrong input
raises; where dali_like differs on purpose; the methods of batches and tensors; the programs of DALI's tutorial on parallel
external sources. Sources make single samples throughout.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("nvidia.dali")

from dali_like.errors import WorkerDiedError
from dali_like.types import SampleInfo
from parity.conftest import END, OURS, RESET, Library, copied, error_of, play, values

pytestmark = pytest.mark.peers

Source = Callable[[SampleInfo], Any]


# What is delivered


class Setting(NamedTuple):
    """What the delivery of batches may depend on, and must not."""

    batch_size: int
    workers: int
    pipeline_depth: int
    source_depth: int
    num_outputs: int | None
    ragged: bool


#: Any two values of any two columns meet in some row.
SETTINGS = [
    Setting(1, 1, 1, 1, 1, True),
    Setting(1, 2, 2, 2, None, False),
    Setting(1, 3, 3, 2, 2, False),
    Setting(2, 1, 1, 2, 2, True),
    Setting(2, 2, 2, 1, 1, False),
    Setting(2, 3, 3, 2, None, False),
    Setting(5, 1, 3, 2, 1, False),
    Setting(5, 2, 1, 1, None, False),
    Setting(5, 3, 2, 1, 2, True),
    Setting(16, 1, 2, 2, None, True),
    Setting(16, 2, 3, 1, 2, True),
    Setting(16, 3, 1, 1, 1, False),
    Setting(33, 1, 3, 1, None, True),
    Setting(33, 2, 1, 2, 1, False),
    Setting(33, 3, 2, 2, 2, False),
]


def random_source(num_outputs: int | None, ragged: bool, iterations: int) -> Source:
    """A source whose every sample differs from every other, in every epoch."""

    def source(info: SampleInfo) -> Any:
        if info.iteration >= iterations:
            raise StopIteration
        random = np.random.default_rng([info.epoch_idx, info.idx_in_epoch])
        height = int(random.integers(0, 9)) if ragged else 3
        outputs = random.integers(0, 256, (height, 5), np.uint8), np.array(random.standard_normal(), np.float32)
        return outputs[0] if num_outputs is None else outputs[:num_outputs]

    return source


def deliver(library: Library, setting: Setting, way: str, epochs: int = 3) -> list[Any]:
    """All batches of some epochs of three iterations, and what further runs say."""
    size, workers, depth, source_depth, num_outputs, ragged = setting
    with library.source_pipeline(
        random_source(num_outputs, ragged, iterations=3),
        way,
        num_outputs=num_outputs,
        batch_size=size,
        workers=workers,
        prefetch_queue_depth=depth,
        source_options={} if way == "serial" else {"prefetch_queue_depth": source_depth},
    ) as pipe:
        return play(pipe, (5, RESET) * epochs)


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: "-".join(map(str, setting)))
def test_batches_are_the_same_bit_for_bit(dali: Library, setting: Setting, way: str) -> None:
    theirs = deliver(dali, setting, way)

    assert deliver(OURS, setting, way) == theirs
    assert [len(run) for run in theirs if run != END] == [setting.num_outputs or 1] * 9


@pytest.mark.parametrize("setting", [SETTINGS[1], SETTINGS[8]], ids=lambda setting: "-".join(map(str, setting)))
def test_batches_of_spawned_workers_are_the_same(dali: Library, setting: Setting) -> None:
    assert deliver(OURS, setting, "spawn") == deliver(dali, setting, "spawn")


#: One array each of what samples may be, as long as both libraries take it in every way.
ARRAYS: dict[str, NDArray[Any]] = {
    **{
        np.dtype(kind).name: np.array([[np.iinfo(kind).min, 1, np.iinfo(kind).max]], kind)
        for kind in (np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64)
    },
    **{
        np.dtype(kind).name: np.array([np.nan, -np.inf, -0.0, np.finfo(kind).tiny, np.finfo(kind).max], kind)
        for kind in (np.float16, np.float32, np.float64)
    },
    "bool": np.array([True, False]),
    "a scalar": np.array(7, np.int16),
    "no elements": np.zeros((0,), np.float32),
    "no rows": np.zeros((0, 4), np.float32),
    "no columns": np.zeros((4, 0), np.float32),
    "twelve dimensions": np.arange(2**12, dtype=np.int32).reshape((2,) * 12),
    "larger than a slot's first megabyte": np.arange(1 << 19, dtype=np.float32),
    "read-only": np.frombuffer(b"bytes of a file", np.uint8),
    "of a subclass": np.arange(6.0).reshape(2, 3).view(np.matrix),
}


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_samples_of_every_kind_arrive_the_same(dali: Library, array: NDArray[Any], way: str) -> None:
    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: array, way) as pipe:
            return play(pipe, [2])

    assert program(OURS) == program(dali)


@pytest.mark.parametrize("layout", ["fortran", "every other", "backwards", "broadcast"])
def test_samples_with_strides_arrive_the_same_from_workers(dali: Library, layout: str) -> None:
    numbers = np.arange(24).reshape(4, 6)
    array = {
        "fortran": np.asfortranarray(numbers),
        "every other": numbers[::2, ::3],
        "backwards": numbers[::-1, ::-1],
        "broadcast": np.broadcast_to(numbers[0], (3, 6)),
    }[layout]

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: array, "fork") as pipe:
            return play(pipe, [2])

    assert program(OURS) == program(dali)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_samples_may_be_tensors_of_the_library(dali: Library, way: str) -> None:
    def program(library: Library) -> list[Any]:
        def source(info: SampleInfo) -> Any:
            return library.tensors.TensorCPU(np.int32([[info.idx_in_epoch, 5]]))

        with library.source_pipeline(source, way) as pipe:
            return play(pipe, [2])

    assert program(OURS) == program(dali)


def test_sizes_that_change_a_hundredfold_arrive_the_same(dali: Library) -> None:
    def source(info: SampleInfo) -> Any:
        length = (17, 1_700_000, 170, 1)[(info.idx_in_epoch + info.iteration) % 4]
        return np.full(length, info.idx_in_epoch, np.uint8)

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, "fork", batch_size=3) as pipe:
            return play(pipe, [7])

    assert program(OURS) == program(dali)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_declared_types_dimensions_and_layouts_arrive_the_same(dali: Library, way: str) -> None:
    def program(library: Library) -> list[Any]:
        options = {
            "dtype": [library.types.UINT8, library.types.INT32],
            "ndim": [3, 1],
            "layout": ["HWC"],
        }
        with library.source_pipeline(
            lambda info: (np.full((2, 3, 1), info.idx_in_epoch, np.uint8), np.int32([info.iteration])),
            way,
            num_outputs=2,
            source_options=options,
        ) as pipe:
            return play(pipe, [2])

    assert program(OURS) == program(dali)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_outputs_may_be_left_out_repeated_and_turned_round(dali: Library, way: str) -> None:
    def source(info: SampleInfo) -> Any:
        return [np.int32([info.idx_in_epoch, output]) for output in range(3)]

    def program(library: Library) -> list[Any]:
        def define() -> Any:
            nodes = library.fn.external_source(source=source, num_outputs=3, batch=False, parallel=way != "serial")
            return nodes[2], nodes[0], nodes[2]

        with library.pipeline(define, way) as pipe, pytest.warns(Warning, match="3 outputs"):  # of which one is not used
            return play(pipe, [2])

    assert program(OURS) == program(dali)


def function(info: SampleInfo) -> Any:
    return np.int32([info.idx_in_epoch, 1])


class Callables:
    """Callables of every kind that DALI takes."""

    def __call__(self, info: SampleInfo) -> Any:
        return np.int32([info.idx_in_epoch, 2])

    def method(self, info: SampleInfo) -> Any:
        return np.int32([info.idx_in_epoch, 3])

    @classmethod
    def of_the_class(cls, info: SampleInfo) -> Any:
        return np.int32([info.idx_in_epoch, 4])

    @staticmethod
    def of_nobody(info: SampleInfo) -> Any:
        return np.int32([info.idx_in_epoch, 5])


@functools.wraps(function)
def wrapper(*args: Any) -> Any:
    return function(*args)


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize(
    "source",
    [function, Callables(), Callables().method, Callables.of_the_class, Callables.of_nobody, wrapper],
    ids=["function", "object", "method", "class method", "static method", "decorated function"],
)
def test_callables_of_every_kind_deliver_the_same(dali: Library, source: Source, way: str) -> None:
    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, way) as pipe:
            return play(pipe, [2])

    assert program(OURS) == program(dali)


def test_serial_sources_need_not_take_an_argument(dali: Library) -> None:
    def program(library: Library) -> list[Any]:
        calls = iter(range(1000))
        with library.source_pipeline(lambda: np.int32([next(calls)])) as pipe:
            return play(pipe, [3])

    assert program(OURS) == program(dali)


# Which SampleInfo samples are made with, and where epochs end

#: When sources say that the epoch has ended; batches have four samples.
ENDINGS: dict[str, Callable[[SampleInfo], bool]] = {
    "by iteration": lambda info: info.iteration >= 3,
    "by sample, in the middle of a batch": lambda info: info.idx_in_epoch >= 7,
    "by sample, at the start of a batch": lambda info: info.idx_in_epoch >= 8,
    "by sample, at the end of a batch": lambda info: info.idx_in_epoch >= 11,
    "by place in the batch": lambda info: info.iteration >= 2 and info.idx_in_batch >= 2,
    "at once": lambda info: True,
    "later in every epoch, at first at once": lambda info: info.idx_in_epoch >= 5 * info.epoch_idx,
    "earlier in every epoch": lambda info: info.idx_in_epoch >= 13 - 5 * info.epoch_idx,
}

#: How far ahead sources are asked: way, the pipeline's depth, the source's depth.
AHEAD = [("serial", 1, None), ("serial", 3, None), ("fork", 1, 1), ("fork", 2, 2), ("fork", 3, 1)]


def log_infos(
    library: Library,
    ends: Callable[[SampleInfo], bool],
    steps: Sequence[int | str],
    way: str,
    depth: int,
    source_depth: int | None,
) -> list[Any]:
    """The infos that the delivered samples were made with."""

    def source(info: SampleInfo) -> Any:
        if ends(info):
            raise StopIteration
        return np.int64([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])

    source_options = {} if source_depth is None else {"prefetch_queue_depth": source_depth}
    with library.source_pipeline(source, way, prefetch_queue_depth=depth, source_options=source_options) as pipe:
        return play(pipe, steps, values)


@pytest.mark.parametrize(("way", "depth", "source_depth"), AHEAD)
@pytest.mark.parametrize("ends", ENDINGS.values(), ids=ENDINGS)
def test_epochs_have_the_same_samples_and_ends(
    dali: Library, ends: Callable[[SampleInfo], bool], way: str, depth: int, source_depth: int | None
) -> None:
    steps = (6, RESET, 6, RESET, RESET, 6, RESET)

    theirs = log_infos(dali, ends, steps, way, depth, source_depth)

    assert log_infos(OURS, ends, steps, way, depth, source_depth) == theirs
    assert theirs.count(END) >= 3


def test_spawned_workers_are_told_the_same(dali: Library) -> None:
    ends = ENDINGS["later in every epoch, at first at once"]

    assert log_infos(OURS, ends, (2, RESET, 3, RESET, 4), "spawn", 2, 1) == log_infos(
        dali, ends, (2, RESET, 3, RESET, 4), "spawn", 2, 1
    )


@pytest.mark.parametrize(("way", "depth", "source_depth"), AHEAD)
def test_reset_before_the_first_run_changes_nothing(dali: Library, way: str, depth: int, source_depth: int | None) -> None:
    ends, steps = ENDINGS["by iteration"], (RESET, RESET, 5, RESET, 1)

    assert log_infos(OURS, ends, steps, way, depth, source_depth) == log_infos(dali, ends, steps, way, depth, source_depth)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_what_fails_beyond_the_end_of_the_epoch_is_not_raised(dali: Library, way: str) -> None:
    items = [np.int32([i]) for i in range(7)]

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == len(items):
            raise StopIteration
        return items[info.idx_in_epoch]

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, way, workers=1, prefetch_queue_depth=3) as pipe:
            return play(pipe, (4, RESET, 4))

    assert program(OURS) == program(dali)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    lengths=st.lists(st.integers(0, 14), min_size=1, max_size=4),
    surplus=st.integers(0, 2),
    batch_size=st.integers(1, 6),
    workers=st.integers(1, 3),
    depths=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    parallel=st.booleans(),
)
def test_epochs_of_any_length_are_the_same(
    dali: Library, lengths: list[int], surplus: int, batch_size: int, workers: int, depths: tuple[int, int], parallel: bool
) -> None:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= lengths[min(info.epoch_idx, len(lengths) - 1)]:
            raise StopIteration
        return np.int64([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])

    def program(library: Library) -> list[Any]:
        steps = [step for length in lengths for step in (length // batch_size + 1 + surplus, RESET)]
        with library.source_pipeline(
            source,
            "fork" if parallel else "serial",
            batch_size=batch_size,
            workers=workers,
            prefetch_queue_depth=depths[0],
            source_options={"prefetch_queue_depth": depths[1]} if parallel else {},
        ) as pipe:
            return play(pipe, steps, values)

    assert program(OURS) == program(dali)


# Several sources


def tagged(tag: int, length: int) -> Source:
    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch >= length:
            raise StopIteration
        return np.int64([tag, info.idx_in_epoch, info.epoch_idx])

    return source


@pytest.mark.parametrize(
    "ways",
    [("serial", "serial"), ("fork", "fork"), ("serial", "fork"), ("fork", "serial"), ("fork", "serial", "fork")],
    ids=" and ".join,
)
@pytest.mark.parametrize("lengths", [(8, 8, 8), (6, 12, 9), (12, 6, 9), (0, 5, 5), (8, 9, 10)], ids=str)
def test_sources_advance_and_end_together(dali: Library, ways: tuple[str, ...], lengths: tuple[int, ...]) -> None:
    """Where lengths differ, the shortest ends the epoch, and the next one begins aligned."""

    def program(library: Library) -> list[Any]:
        def define() -> Any:
            return tuple(
                library.fn.external_source(
                    source=tagged(tag, length), batch=False, parallel=way != "serial", name=f"source_{tag}"
                )
                for tag, (way, length) in enumerate(zip(ways, lengths, strict=False))
            )

        with library.pipeline(define, "fork" if "fork" in ways else "serial", batch_size=3) as pipe:
            return play(pipe, (5, RESET, 2, 3, RESET, 5), values)

    assert program(OURS) == program(dali)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_sources_of_one_pipeline_may_share_a_callable(dali: Library, way: str) -> None:
    source = tagged(1, 9)

    def program(library: Library) -> list[Any]:
        def define() -> Any:
            return tuple(library.fn.external_source(source=source, batch=False, parallel=way != "serial") for _ in range(2))

        with library.pipeline(define, way) as pipe:
            return play(pipe, (4, RESET, 4), values)

    assert program(OURS) == program(dali)


def test_pipelines_run_side_by_side(dali: Library) -> None:
    def program(library: Library) -> list[Any]:
        with (
            library.source_pipeline(tagged(1, 9), "fork") as one,
            library.source_pipeline(tagged(2, 13), "fork") as two,
        ):
            return [play(pipe, steps, values) for steps in ((2,), (2, RESET), (2,)) for pipe in (one, two)]

    assert program(OURS) == program(dali)


# What wrong input raises


def assert_raises_the_same(program: Callable[[Library], object], dali: Library, expected: type[Exception]) -> None:
    """DALI raises this builtin class; an `except` clause for it must go on working."""
    theirs = error_of(program, dali)
    ours = error_of(program, OURS)

    assert type(theirs) is expected
    assert isinstance(ours, expected), f"{type(ours).__mro__}: {ours}"


class Returned(NamedTuple):
    """What a source returns that cannot be delivered, and what DALI raises then: serially, and in workers."""

    make: Source
    serial: type[Exception]
    parallel: type[Exception]
    num_outputs: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  # never changed


ONE = np.zeros(1, np.float32)

RETURNED = {
    "None": Returned(lambda info: None, RuntimeError, TypeError),
    "None in one sample": Returned(lambda info: None if info.idx_in_epoch == 3 else ONE, RuntimeError, TypeError),
    "a list of numbers": Returned(lambda info: [1, 2], RuntimeError, TypeError),
    "bytes": Returned(lambda info: b"x", RuntimeError, TypeError),
    "a string": Returned(lambda info: "x", RuntimeError, TypeError),
    "a dictionary": Returned(lambda info: {"x": ONE}, RuntimeError, TypeError),
    "an object": Returned(lambda info: object(), RuntimeError, TypeError),
    "a tuple": Returned(lambda info: (ONE, ONE), RuntimeError, RuntimeError),
    "objects": Returned(lambda info: np.array([{}]), RuntimeError, RuntimeError),
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
def test_what_cannot_be_delivered_raises_what_dali_raises(dali: Library, returned: Returned, way: str) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(
            returned.make, way, num_outputs=returned.num_outputs, source_options=returned.options
        ) as pipe:
            play(pipe, [3])

    assert_raises_the_same(program, dali, returned.serial if way == "serial" else returned.parallel)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_another_dtype_than_declared_raises_what_dali_raises(dali: Library, way: str) -> None:
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
def test_what_cannot_be_a_source_raises_what_dali_raises(dali: Library, source: Any, way: str) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(source, way) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, TypeError)


class Argument(NamedTuple):
    """An argument with a value that is not allowed, and what DALI raises for it."""

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
    "an unknown start method": Argument({"way": "thread"}, ValueError),
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
def test_wrong_arguments_raise_what_dali_raises(dali: Library, argument: Argument) -> None:
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
def test_what_cannot_be_outputs_raises_what_dali_raises(dali: Library, outputs: Callable[[Any], Any]) -> None:
    def program(library: Library) -> None:
        with library.pipeline(lambda: outputs(library.fn.external_source(source=function, batch=False))) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, TypeError)


def test_variable_keywords_of_a_pipelines_function_raise_what_dali_raises(dali: Library) -> None:
    def program(library: Library) -> None:
        def define(**options: Any) -> Any:
            return library.fn.external_source(source=function, batch=False)

        with library.pipeline(define):
            pass

    assert_raises_the_same(program, dali, TypeError)


# DALI's destructor does not expect that its constructor has failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_unknown_arguments_of_pipeline_def_raise_what_dali_raises(dali: Library) -> None:
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
def test_sources_that_cannot_travel_to_spawned_workers_raise_what_dali_raises(
    dali: Library, source: Source, expected: type[Exception]
) -> None:
    def program(library: Library) -> None:
        with library.source_pipeline(source, "spawn", workers=1) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, expected)


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("kind", [ValueError, KeyError, FileNotFoundError, ZeroDivisionError, AssertionError])
def test_what_callbacks_raise_keeps_its_type(dali: Library, kind: type[Exception], way: str) -> None:
    def source(info: SampleInfo) -> Any:
        raise kind("of the user's")

    def program(library: Library) -> None:
        with library.source_pipeline(source, way) as pipe:
            pipe.run()

    assert_raises_the_same(program, dali, kind)


# Where dali_like differs on purpose. Each test shows what DALI does, too, so that it tells when a reason has gone


def test_a_batch_that_is_held_is_not_overwritten(dali: Library) -> None:
    """DALI 1.53 hands out the workers' slot itself where a batch is contiguous there, and fills it again: a known bug."""

    def hold(library: Library) -> list[int]:
        with library.source_pipeline(lambda info: np.int32([info.idx_in_epoch]), "fork", batch_size=1, workers=1) as pipe:
            held = [pipe.run()[0] for _ in range(6)]
            return [int(batch.as_array()[0, 0]) for batch in held]

    assert hold(OURS) == [0, 1, 2, 3, 4, 5]
    assert hold(dali) != [0, 1, 2, 3, 4, 5]


def fails_in_iteration_2(info: SampleInfo) -> Any:
    if info.iteration == 2 and info.idx_in_batch == 1:
        raise ValueError("of the user's")
    if info.iteration == 4:
        raise StopIteration
    return np.array(info.iteration)


@pytest.mark.parametrize(("way", "kind"), [("serial", "ValueError"), ("fork", "Exception")])
def test_the_batches_before_an_error_are_delivered(dali: Library, way: str, kind: str) -> None:
    """DALI raises an error when it comes across it, ahead of the loop, and drops the batches that are ready."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(fails_in_iteration_2, way, batch_size=2, prefetch_queue_depth=3) as pipe:
            return play(pipe, [3], values, catch=(Exception,))

    assert program(OURS) == [([0, 0],), ([1, 1],), "ValueError"]
    assert program(dali)[0] == kind


@pytest.mark.parametrize(("way", "for_ever"), [("serial", "ValueError"), ("fork", "AssertionError")])
def test_a_pipeline_goes_on_after_an_error(dali: Library, way: str, for_ever: str) -> None:
    """DALI asks a serial source for the same sample for ever, and has nothing left to wait for with workers."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(fails_in_iteration_2, way, batch_size=2, prefetch_queue_depth=1) as pipe:
            return play(pipe, (5, RESET, 1), values, catch=(Exception,))

    assert program(OURS) == [([0, 0],), ([1, 1],), "ValueError", ([3, 3],), END, ([0, 0],)]
    assert program(dali)[3:] == [for_ever] * 3


def test_what_callbacks_raise_in_workers_is_raised_itself(dali: Library) -> None:
    """DALI raises a plain `Exception`, which no `except ValueError` catches, and keeps the user's as its cause."""

    def program(library: Library) -> None:
        with library.source_pipeline(fails_in_iteration_2, "fork") as pipe:
            play(pipe, [3])

    with pytest.raises(ValueError, match="of the user's") as raised:
        program(OURS)
    assert "in fails_in_iteration_2" in str(raised.value.__cause__)
    with pytest.raises(Exception, match="of the user's") as wrapped:
        program(dali)
    assert type(wrapped.value) is Exception


class TwoArgumentsError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class UnpicklableError(Exception):
    def __reduce__(self) -> Any:
        raise pickle.PicklingError("no")


@pytest.mark.parametrize(
    ("error", "theirs"),
    [(TwoArgumentsError("this", "that"), TypeError), (UnpicklableError("that"), RuntimeError)],
    ids=["pickled, but not loaded", "not pickled"],
)
def test_exceptions_that_pickle_cannot_carry_keep_their_type(
    dali: Library, error: Exception, theirs: type[Exception]
) -> None:
    """In DALI another exception takes their place; where they cannot be pickled at all, all workers end."""

    def source(info: SampleInfo) -> Any:
        raise error

    def program(library: Library) -> None:
        with library.source_pipeline(source, "fork") as pipe:
            pipe.run()

    with pytest.raises(type(error), match="that"):
        program(OURS)
    assert type(error_of(program, dali)) is theirs


def test_a_workers_death_says_which_how_and_where(dali: Library) -> None:
    """DALI says "Worker data receiving interrupted", whatever has happened."""

    def source(info: SampleInfo) -> Any:
        if info.idx_in_epoch == 6:
            os._exit(7)
        return ONE

    def program(library: Library) -> None:
        with library.source_pipeline(source, "fork") as pipe:
            play(pipe, [3])

    with pytest.raises(WorkerDiedError, match=r"exit code 7.*idx_in_epoch 6") as raised:
        program(OURS)
    assert raised.value.exitcode == 7
    theirs = error_of(program, dali)
    assert isinstance(theirs, RuntimeError)
    assert not re.search("7|6", str(theirs))


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize(
    "sample", [(ONE, ONE + 1, ONE + 2), np.array([[0.0], [1.0]], np.float32)], ids=["too many outputs", "one array"]
)
def test_the_number_of_outputs_must_be_right(dali: Library, sample: Any, way: str) -> None:
    """DALI drops outputs that nobody asked for, and takes the rows of an array for outputs: both hide mistakes."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: sample, way, num_outputs=2, batch_size=1) as pipe:
            return play(pipe, [1], values)

    assert program(dali) == [([[0.0]], [[1.0]])]
    with pytest.raises(ValueError, match="num_outputs=2"):
        program(OURS)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_big_endian_numbers_keep_their_values(dali: Library, way: str) -> None:
    """DALI takes their bytes for little-endian ones."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: np.array([1, 2], ">i4"), way, batch_size=1) as pipe:
            return play(pipe, [1], values)

    assert program(OURS) == [([[1, 2]],)]
    assert program(dali) == [([[1 << 24, 2 << 24]],)]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_complex_numbers_are_refused(dali: Library, way: str) -> None:
    """DALI takes them for half as many floats as there are."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: np.array([1 + 2j, 3 + 4j], np.complex64), way, batch_size=1) as pipe:
            return play(pipe, [1], values)

    with pytest.raises(TypeError, match="complex64"):
        program(OURS)
    assert program(dali) == [([[1.0, 2.0]],)]


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_reset_in_the_middle_of_an_epoch_begins_the_next(dali: Library, way: str) -> None:
    """DALI ignores it without a word, although users ask for it."""

    def program(library: Library) -> list[Any]:
        source = random_source(None, False, iterations=3)

        def epoch_and_iteration(info: SampleInfo) -> Any:
            source(info)
            return np.int32([info.epoch_idx, info.iteration])

        with library.source_pipeline(epoch_and_iteration, way, batch_size=1) as pipe:
            return play(pipe, (2, RESET, 4), values)

    first, second = ([[0, 0]],), ([[0, 1]],)
    assert program(OURS) == [first, second, ([[1, 0]],), ([[1, 1]],), ([[1, 2]],), END]
    assert program(dali) == [first, second, ([[0, 2]],), END, END, END]


def with_an_option(info: SampleInfo, scale: int = 2) -> Any:
    return np.int32([info.idx_in_epoch * scale])


def times(scale: int, info: SampleInfo) -> Any:
    return np.int32([info.idx_in_epoch * scale])


def with_any_arguments(*args: Any) -> Any:
    return np.int32([args[0].idx_in_epoch * 2])


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize(
    "source",
    [functools.partial(times, 2), functools.lru_cache(functools.partial(times, 2)), with_an_option, with_any_arguments],
    ids=["partial", "lru_cache", "second argument with a default", "any number of arguments"],
)
def test_whatever_can_be_called_with_one_argument_is_a_source(dali: Library, source: Any, way: str) -> None:
    """DALI counts parameters instead, those of functools.partial itself among them."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(source, way, batch_size=3) as pipe:
            return play(pipe, [1], values)

    assert program(OURS) == [([[0], [2], [4]],)]
    assert type(error_of(program, dali)) in (TypeError, RecursionError)


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("sample", [3, 2.5, True], ids=repr)
def test_numbers_are_scalars(dali: Library, sample: Any, way: str) -> None:
    """DALI refuses Python's numbers."""

    def program(library: Library) -> list[Any]:
        with library.source_pipeline(lambda info: sample, way, batch_size=1) as pipe:
            return play(pipe, [1], values)

    assert program(OURS) == [([sample],)]
    assert type(error_of(program, dali)) is (RuntimeError if way == "serial" else TypeError)


def test_numpys_scalars_come_from_workers_as_well(dali: Library) -> None:
    """DALI takes them in the main process only."""

    def program(library: Library, way: str) -> list[Any]:
        with library.source_pipeline(lambda info: np.float32(info.idx_in_epoch), way) as pipe:
            return play(pipe, [2])

    assert program(OURS, "fork") == program(dali, "serial")
    assert type(error_of(lambda library: program(library, "fork"), dali)) is TypeError


def test_samples_with_strides_may_come_from_the_main_process_as_well(dali: Library) -> None:
    """DALI takes them from workers only."""

    def program(library: Library, way: str) -> list[Any]:
        with library.source_pipeline(lambda info: np.arange(12).reshape(3, 4)[:, ::2], way) as pipe:
            return play(pipe, [2])

    assert program(OURS, "serial") == program(dali, "fork")
    assert type(error_of(lambda library: program(library, "serial"), dali)) is RuntimeError


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        pytest.param({"num_outputs": 0}, NotImplementedError, id="no outputs of a source"),
        pytest.param({"source": None}, AttributeError, id="no source"),
        pytest.param({"source": lambda info: np.array("abc")}, AssertionError, id="text"),
        pytest.param({"source": lambda info: np.zeros(1, [("x", "i4")])}, ValueError, id="records"),
    ],
)
def test_mistakes_that_dali_stumbles_over_are_explained(
    dali: Library, options: dict[str, Any], theirs: type[Exception]
) -> None:
    """DALI's errors are accidents here, and say so: "'NoneType' object has no attribute 'kind'", "stoi"."""

    def program(library: Library) -> None:
        with library.source_pipeline(**{"source": function, "way": "fork", **options}) as pipe:
            pipe.run()

    ours = error_of(program, OURS)
    assert type(ours).__module__ == "dali_like.errors"
    assert re.search("num_outputs must be|only valid when using ``source``|dtype", str(ours))
    assert type(error_of(program, dali)) is theirs


# The methods of batches and tensors

BATCHES: dict[str, tuple[Source, dict[str, Any]]] = {
    "dense": (lambda info: np.arange(6, dtype=np.float32).reshape(2, 3) + info.idx_in_epoch, {}),
    "with a layout": (lambda info: np.full((2, 3), info.idx_in_epoch, np.uint8), {"layout": "HW"}),
    "scalars": (lambda info: np.array(info.idx_in_epoch, np.int64), {}),
    "without elements": (lambda info: np.zeros((2, 0), bool), {}),
    "ragged": (lambda info: np.arange(info.idx_in_batch + 1, dtype=np.int16), {}),
    "ragged with a layout": (lambda info: np.zeros((1 + info.idx_in_batch, 2), np.float64), {"layout": "XY"}),
}

#: What can be asked of every batch.
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "shape": lambda batch: batch.shape(),
    "ndim": lambda batch: batch.ndim(),
    "layout": lambda batch: batch.layout(),
    "is_dense_tensor": lambda batch: batch.is_dense_tensor(),
    "str of the dtype": lambda batch: str(batch.dtype),
    "repr of the dtype": lambda batch: repr(batch.dtype),
    "name and value of the dtype": lambda batch: (batch.dtype.name, batch.dtype.value, int(batch.dtype)),
    "at": lambda batch: [batch.at(i).tolist() for i in range(len(batch))],
    "at is a writable array": lambda batch: (type(batch.at(0)), batch.at(0).flags.writeable, str(batch.at(0).dtype)),
    "index": lambda batch: [np.array(batch[i]).tolist() for i in range(len(batch))],
    "negative index": lambda batch: [np.array(batch[-1 - i]).tolist() for i in range(len(batch))],
    "index of NumPy's": lambda batch: np.array(batch[np.int64(2)]).tolist(),
    "iteration": lambda batch: [np.array(tensor).tolist() for tensor in batch],
    "as_cpu is the batch": lambda batch: batch.as_cpu() is batch,
    "shape of a tensor": lambda batch: [tensor.shape() for tensor in batch],
    "ndim of a tensor": lambda batch: batch[1].ndim(),
    "layout of a tensor": lambda batch: batch[1].layout(),
    "dtype of a tensor": lambda batch: str(batch[1].dtype),
    "as_cpu of a tensor": lambda batch: np.array(batch[1].as_cpu()).tolist(),
    "asarray of a tensor": lambda batch: (np.asarray(batch[1]).tolist(), np.asarray(batch[1]).flags.writeable),
    "asarray with a dtype": lambda batch: np.asarray(batch[1], dtype=np.float64).tolist(),
    "array of a tensor is a copy": lambda batch: np.shares_memory(np.array(batch[1]), batch.at(1)),
    "from_dlpack of a tensor": lambda batch: np.from_dlpack(batch[1]).tolist(),
    "DLPack device": lambda batch: tuple(map(int, batch[1].__dlpack_device__())),
}

#: What can be asked of a dense batch besides.
DENSE_QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "as_array": lambda batch: batch.as_array().tolist(),
    "as_array is a writable array": lambda batch: (batch.as_array().flags.writeable, str(batch.as_array().dtype)),
    "as_tensor": lambda batch: np.array(batch.as_tensor()).tolist(),
    "shape of as_tensor": lambda batch: (batch.as_tensor().shape(), batch.as_tensor().ndim()),
    "dtype of as_tensor": lambda batch: str(batch.as_tensor().dtype),
    "layout of as_tensor": lambda batch: batch.as_tensor().layout(),
    "from_dlpack of as_tensor": lambda batch: np.from_dlpack(batch.as_tensor()).tolist(),
}


def ask(library: Library, kind: str, question: Callable[[Any], Any]) -> Any:
    source, options = BATCHES[kind]
    with library.source_pipeline(source, source_options=options) as pipe:
        return question(pipe.run()[0])


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_answer_the_same(dali: Library, kind: str) -> None:
    questions = QUESTIONS if "ragged" in kind else {**QUESTIONS, **DENSE_QUESTIONS}

    def answers(batch: Any) -> dict[str, Any]:
        return {name: question(batch) for name, question in questions.items()}

    assert ask(OURS, kind, answers) == ask(dali, kind, answers)


@pytest.mark.parametrize("kind", ["dense", "ragged"])
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        pytest.param(lambda batch: batch[4], IndexError, id="index beyond the end"),
        pytest.param(lambda batch: batch[-5], IndexError, id="index before the start"),
        pytest.param(lambda batch: batch[1:2], TypeError, id="slice"),
        pytest.param(lambda batch: batch["1"], TypeError, id="index that is a string"),
        pytest.param(lambda batch: batch[1.0], TypeError, id="index that is a float"),
        pytest.param(lambda batch: batch.at(4), RuntimeError, id="at beyond the end"),
        pytest.param(lambda batch: len(batch[0]), TypeError, id="length of a tensor"),
    ],
)
def test_wrong_questions_raise_what_dali_raises(
    dali: Library, kind: str, question: Callable[[Any], Any], expected: type[Exception]
) -> None:
    assert_raises_the_same(lambda library: ask(library, kind, question), dali, expected)


@pytest.mark.parametrize("name", ["as_array", "as_tensor"])
def test_ragged_batches_refuse_to_be_one_array(dali: Library, name: str) -> None:
    assert_raises_the_same(lambda library: ask(library, "ragged", lambda batch: getattr(batch, name)()), dali, RuntimeError)


@pytest.mark.parametrize("kind", ["dense", "scalars", "ragged"])
def test_what_is_written_into_a_tensor_is_written_into_the_batch(dali: Library, kind: str) -> None:
    def write(batch: Any) -> Any:
        np.asarray(batch[1])[...] = 77
        return copied(batch)

    assert ask(OURS, kind, write) == ask(dali, kind, write)


def test_what_is_written_into_as_tensor_is_written_into_the_batch(dali: Library) -> None:
    def write(batch: Any) -> Any:
        np.asarray(batch.as_tensor())[2] = 77
        return copied(batch)

    assert ask(OURS, "dense", write) == ask(dali, "dense", write)


@pytest.mark.parametrize("array", [lambda batch: batch.at(0), lambda batch: batch.as_array()], ids=["at", "as_array"])
def test_arrays_of_a_batch_are_not_copies(dali: Library, array: Callable[[Any], NDArray[Any]]) -> None:
    """DALI copies for `at` and `as_array`, and has views for those who ask for tensors first."""

    def question(batch: Any) -> bool:
        return np.shares_memory(array(batch), np.asarray(batch[0]))

    assert ask(OURS, "dense", question)
    assert not ask(dali, "dense", question)


ARRAY = np.arange(12, dtype=np.int16).reshape(2, 2, 3)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda tensors: tensors.TensorCPU(ARRAY), id="tensor"),
        pytest.param(lambda tensors: tensors.TensorCPU(ARRAY, "HWC"), id="tensor with a layout"),
        pytest.param(lambda tensors: tensors.TensorCPU(ARRAY, layout="HWC"), id="tensor with a named layout"),
        pytest.param(lambda tensors: tensors.TensorListCPU(ARRAY)[1], id="batch"),
        pytest.param(lambda tensors: tensors.TensorListCPU(ARRAY, "HW")[1], id="batch with a layout"),
        pytest.param(lambda tensors: tensors.TensorListCPU([ARRAY, ARRAY])[1], id="batch of arrays"),
        pytest.param(lambda tensors: tensors.TensorListCPU([tensors.TensorCPU(ARRAY)] * 2)[1], id="batch of tensors"),
    ],
)
def test_tensors_are_made_of_the_same(dali: Library, make: Callable[[Any], Any]) -> None:
    def describe(library: Library) -> Any:
        tensor = make(library.tensors)
        return str(tensor.dtype), tensor.shape(), tensor.layout(), np.array(tensor).tolist()

    assert describe(OURS) == describe(dali)


def test_a_layout_of_another_length_raises_what_dali_raises(dali: Library) -> None:
    assert_raises_the_same(lambda library: library.tensors.TensorCPU(ARRAY, "HW"), dali, ValueError)


def test_data_types_have_the_same_names_and_values(dali: Library) -> None:
    """That of Python objects has another name in DALI, whose sources cannot return them."""

    def numbers(library: Library) -> set[tuple[str, int]]:
        kinds = library.types.DALIDataType, library.types.DALIImageType
        return {(str(member), int(member)) for kind in kinds for member in kind.__members__.values()}

    assert numbers(OURS) - {("DALIDataType.OBJECT", 24)} <= numbers(dali)


def test_data_types_are_the_same_dtypes_of_numpy(dali: Library) -> None:
    def dtypes(library: Library) -> dict[str, Any]:
        names = OURS.types.DALIDataType.__members__.keys() - {"OBJECT"}
        return {name: np.dtype(library.types.to_numpy_type(getattr(library.types, name))) for name in names}

    assert dtypes(OURS) == dtypes(dali)


@pytest.mark.parametrize("negative", [-1, -4])
def test_at_counts_from_the_end_as_well(dali: Library, negative: int) -> None:
    """DALI's `at` refuses negative indices, although ``[i]`` takes them."""

    def question(batch: Any) -> Any:
        return batch.at(negative).tolist()

    assert ask(OURS, "dense", question) == ask(dali, "dense", lambda batch: np.array(batch[negative]).tolist())
    assert type(error_of(lambda library: ask(library, "dense", question), dali)) is RuntimeError


# DALI's tutorial on parallel external sources, in sample mode

#: The largest difference between the pixels of the two decoders. Both are libjpeg-turbo, and none has been seen.
MAX_PIXEL_DIFFERENCE = 0

#: The programs of the tutorial as one file: what users have, but for the package and the folder, which are arguments, and
#: the device, since there is no GPU. Each program leaves its batches in `delivered`.
TUTORIAL = """
import importlib
import pickle
import sys

import numpy as np

package, images_dir, results = sys.argv[1:]
pipeline_def = importlib.import_module(package).pipeline_def
fn = importlib.import_module(package + ".fn")
types = importlib.import_module(package + ".types")
if package == "nvidia.dali":
    from nvidia.dali.pickling import pickle_by_value
else:
    def pickle_by_value(function):  # what is defined in the main program always travels by value
        return function

batch_size = 4


class ExternalInputCallable:
    def __init__(self, batch_size):
        self.images_dir = images_dir
        self.batch_size = batch_size
        with open(self.images_dir + "file_list.txt", "r") as f:
            file_label = [line.rstrip().split(" ") for line in f if line != ""]
            self.files, self.labels = zip(*file_label)
        self.full_iterations = len(self.files) // batch_size

    def __call__(self, sample_info):
        sample_idx = sample_info.idx_in_epoch
        if sample_info.iteration >= self.full_iterations:
            raise StopIteration()
        jpeg_filename = self.files[sample_idx]
        label = np.int32([self.labels[sample_idx]])
        with open(self.images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label


def my_callback(sample_info):
    return np.full((5, 5), sample_info.idx_in_epoch)


def create_callback(batch_size):
    with open(images_dir + "file_list.txt", "r") as f:
        file_label = [line.rstrip().split(" ") for line in f if line != ""]
        files, labels = zip(*file_label)
    full_iterations = len(files) // batch_size

    def callback(sample_info):
        sample_idx = sample_info.idx_in_epoch
        if sample_info.iteration >= full_iterations:
            raise StopIteration
        jpeg_filename = files[sample_idx]
        label = np.int32([labels[sample_idx]])
        with open(images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label

    return callback


with open(images_dir + "file_list.txt", "r") as f:
    file_label = [line.rstrip().split(" ") for line in f if line != ""]
    files, labels = zip(*file_label)
full_iterations = len(files) // batch_size


@pickle_by_value
def global_callback(sample_info):
    sample_idx = sample_info.idx_in_epoch
    if sample_info.iteration >= full_iterations:
        raise StopIteration
    jpeg_filename = files[sample_idx]
    label = np.int32([labels[sample_idx]])
    with open(images_dir + jpeg_filename, "rb") as f:
        encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
    return encoded_img, label


class DeferredCallable:
    def __init__(self, start=0, end=256 * 1024):
        self.start = start
        self.end = end
        self.buffer = None
        self.files = None

    def __getstate__(self):
        return self.__dict__.copy()

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.buffer = np.arange(self.start, self.end, dtype=np.int32).reshape((-1, 64, 64))
        self.files = [f"filename_{i}" for i in range(self.start, self.end)]

    def __call__(self, sample_info):
        if sample_info.idx_in_epoch >= self.end - self.start:
            raise StopIteration
        file_idx = int(self.files[sample_info.idx_in_epoch].split("_")[1])
        sample_from_buffer = self.buffer[sample_info.idx_in_epoch]
        return np.array(file_idx, dtype=np.int32), sample_from_buffer


class ShufflingCallable:
    def __init__(self, batch_size):
        self.images_dir = images_dir
        self.batch_size = batch_size
        with open(self.images_dir + "file_list.txt", "r") as f:
            file_label = [line.rstrip().split(" ") for line in f if line != ""]
            self.files, self.labels = zip(*file_label)
        self.full_iterations = len(self.files) // batch_size
        self.perm = None
        self.last_seen_epoch = None

    def __call__(self, sample_info):
        if sample_info.iteration >= self.full_iterations:
            raise StopIteration
        if self.last_seen_epoch != sample_info.epoch_idx:
            self.last_seen_epoch = sample_info.epoch_idx
            self.perm = np.random.default_rng(seed=42 + sample_info.epoch_idx)
            self.perm = self.perm.permutation(len(self.files))
        sample_idx = self.perm[sample_info.idx_in_epoch]
        jpeg_filename = self.files[sample_idx]
        label = np.int32([self.labels[sample_idx]])
        with open(self.images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label


@pickle_by_value
def create_sharding_callback(batch_size, shard_id=0, num_shards=1):
    with open(images_dir + "file_list.txt", "r") as f:
        file_label = [line.rstrip().split(" ") for line in f if line != ""]
        files, labels = zip(*file_label)

    dataset_size = len(files)
    shard_size = dataset_size // num_shards
    shard_offset = shard_size * shard_id
    full_iterations = shard_size // batch_size
    perm = None
    last_seen_epoch = None

    def callback(sample_info):
        nonlocal perm, last_seen_epoch
        if sample_info.iteration >= full_iterations:
            raise StopIteration
        if last_seen_epoch != sample_info.epoch_idx:
            last_seen_epoch = sample_info.epoch_idx
            perm = np.random.default_rng(seed=42 + sample_info.epoch_idx)
            perm = perm.permutation(dataset_size)
        sample_idx = perm[sample_info.idx_in_epoch + shard_offset]

        jpeg_filename = files[sample_idx]
        label = np.int32([labels[sample_idx]])
        with open(images_dir + jpeg_filename, "rb") as f:
            encoded_img = np.frombuffer(f.read(), dtype=np.uint8)
        return encoded_img, label

    return callback


@pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
def function_pipeline():
    return fn.external_source(source=my_callback, batch=False)


@pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
def callable_pipeline():
    jpegs, labels = fn.external_source(
        source=ExternalInputCallable(batch_size),
        num_outputs=2,
        batch=False,
        dtype=[types.UINT8, types.INT32],
    )
    decode = fn.decoders.image(jpegs, device="cpu")
    return decode, labels


def parallel_pipeline(source, num_workers, start_method, size=batch_size):
    @pipeline_def(
        batch_size=size,
        num_threads=2,
        device_id=None,
        py_num_workers=num_workers,
        py_start_method=start_method,
    )
    def pipeline():
        jpegs, labels = fn.external_source(
            source=source,
            num_outputs=2,
            batch=False,
            parallel=True,
            dtype=[types.UINT8, types.INT32],
        )
        decode = fn.decoders.image(jpegs, device="cpu")
        return decode, labels

    return pipeline()


@pipeline_def(
    batch_size=8,
    num_threads=2,
    device_id=None,
    py_num_workers=1,
    py_start_method="spawn",
)
def deferred_pipeline():
    idx, sample = fn.external_source(
        source=DeferredCallable(),
        num_outputs=2,
        batch=False,
        parallel=True,
        dtype=[types.INT32, types.INT32],
    )
    return idx, sample


def run(pipe, runs, epochs=1):
    batches = []
    pipe.build()
    for _ in range(epochs):
        for _ in range(runs):
            try:
                batches.append([[np.array(batch.at(i)) for i in range(len(batch))] for batch in pipe.run()])
            except StopIteration:
                batches.append("end")
        pipe.reset()
    return batches


if __name__ == "__main__":
    delivered = {
        "function": run(function_pipeline(), 2),
        "callable": run(callable_pipeline(), 6),
        "parallel callable": run(parallel_pipeline(ExternalInputCallable(batch_size), 2, "spawn"), 6),
        "closure": run(parallel_pipeline(create_callback(batch_size), 1, "spawn"), 6),
        "global function": run(parallel_pipeline(global_callback, 1, "spawn"), 6),
        "deferred set-up": run(deferred_pipeline(), 2),
        "shuffled": run(parallel_pipeline(ShufflingCallable(batch_size), 3, "fork"), 6, 3),
        "shard 0": run(parallel_pipeline(create_sharding_callback(5, 0, 2), 2, "fork", 5), 3, 2),
        "shard 1": run(parallel_pipeline(create_sharding_callback(5, 1, 2), 1, "spawn", 5), 3, 2),
    }
    with open(results, "wb") as f:
        pickle.dump(delivered, f)
"""


def write_images(folder: Path) -> None:
    """21 photographs of different sizes, as in DALI's own folder, and the list of their labels."""
    cv2 = pytest.importorskip("cv2")
    data = pytest.importorskip("skimage.data")
    photographs = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]
    lines = []
    for i in range(21):
        pixels = photographs[i % 4][10 * i : 10 * i + 90 + 3 * i, 5 * i : 5 * i + 150 - 7 * (i % 5)]
        name = f"{i:02}.jpg"
        assert cv2.imwrite(str(folder / name), pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 60 + i])
        lines.append(f"{name} {i * i}\n")
    (folder / "file_list.txt").write_text("".join(lines))


Delivered = dict[str, list[Any]]


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> tuple[Delivered, Delivered]:
    """What the programs of the tutorial deliver: with DALI, and with dali_like."""
    folder = tmp_path_factory.mktemp("tutorial")
    write_images(folder)
    program = folder / "program.py"
    program.write_text(TUTORIAL)

    def delivered(package: str) -> Delivered:
        results = folder / package
        command = [sys.executable, str(program), package, f"{folder}/", str(results)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        loaded: Delivered = pickle.loads(results.read_bytes())
        return loaded

    return delivered("nvidia.dali"), delivered("dali_like")


#: The tutorial's programs, how many batches each delivers, and how often the epoch ends.
PROGRAMS = {
    "function": (2, 0),
    "callable": (5, 1),
    "parallel callable": (5, 1),
    "closure": (5, 1),
    "global function": (5, 1),
    "deferred set-up": (2, 0),
    "shuffled": (15, 3),
    "shard 0": (4, 2),
    "shard 1": (4, 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tutorials_programs_end_their_epochs_alike(tutorial: tuple[Delivered, Delivered], name: str) -> None:
    theirs, ours = ([run == "end" for run in library[name]] for library in tutorial)

    assert ours == theirs
    assert (theirs.count(False), theirs.count(True)) == PROGRAMS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_tutorials_programs_deliver_the_same_but_for_rounding(tutorial: tuple[Delivered, Delivered], name: str) -> None:
    theirs, ours = (
        [sample for run in library[name] if run != "end" for output in run for sample in output] for library in tutorial
    )

    assert [(sample.dtype, sample.shape) for sample in ours] == [(sample.dtype, sample.shape) for sample in theirs]
    bound = [MAX_PIXEL_DIFFERENCE if sample.ndim == 3 else 0 for sample in theirs]
    difference = [int(np.abs(a.astype(int) - b).max()) for a, b in zip(theirs, ours, strict=True)]
    assert all(d <= most for d, most in zip(difference, bound, strict=True)), max(difference)


def test_the_tutorials_shards_share_no_image(tutorial: tuple[Delivered, Delivered]) -> None:
    for library in tutorial:
        labels = [
            [int(label[0]) for run in library[name] if run != "end" for label in run[1]] for name in ("shard 0", "shard 1")
        ]
        assert not set(labels[0][:10]) & set(labels[1][:10])
