"""Batches of external sources, from the real DALI 1.53 on the CPU and from dali_like. Sources make single samples here."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("nvidia.dali")

from dali_like.types import SampleInfo
from tests.parity.conftest import END, OURS, RESET, Library, play
from tests.parity.samples import Source, function, random_source

pytestmark = pytest.mark.peers


class Setting(NamedTuple):
    """Properties of batches that the response may depend on, and others that it must not depend on."""

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


def deliver(library: Library, setting: Setting, way: str, epochs: int = 3) -> list[Any]:
    """All batches of some epochs of three iterations, and the results of further runs."""
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


#: One array of each kind that samples may be, as long as both libraries take it in every way.
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

        with library.pipeline(define, way) as pipe, pytest.warns(Warning, match="3 outputs"):  # the pipeline uses two
            return play(pipe, [2])

    assert program(OURS) == program(dali)


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


@pytest.mark.parametrize(
    "options",
    [
        {"ndim": np.int64(1)},
        {"ndim": np.int8(1)},
        {"no_copy": 1},
        {"batch": np.True_},
        {"parallel": np.False_},
        {"parallel": 0},
    ],
    ids=str,
)
def test_numbers_and_truth_values_of_numpy_are_as_good_as_those_of_python(dali: Library, options: dict[str, Any]) -> None:
    def program(library: Library) -> Any:
        def define() -> Any:
            return library.fn.external_source(lambda: [np.arange(3)] * 4, **options)

        with library.pipeline(define) as pipe:
            return play(pipe, [1])

    assert program(OURS) == program(dali)
