"""`SampleInfo.empty`: samples computed in the memory of their batch.

No use of this memory changes a batch. Outside of a callback, `empty` returns ordinary arrays, so that these tests compute
the expected batches by calling the source. If a callback returns the array that it got, nothing is copied: the delivered
array has the same address.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.errors import ArgumentError, DtypeMismatchError
from dali_like.types import SampleInfo
from tests.conftest import in_both_places

MakePipeline = Callable[..., Pipeline]

BATCH_SIZE = 4
#: The first batch shows the schema of samples; from the third batch on, they have rows.
ITERATIONS = 5


def address_of(array: Any) -> int:
    return int(np.asarray(array).__array_interface__["data"][0])


def filled(info: SampleInfo, shape: Any, dtype: Any = np.int64, output: int = 0) -> NDArray[Any]:
    """Return lent memory, filled with values that differ between elements and between samples."""
    array = info.empty(shape, dtype, output)
    array[...] = 100 * info.idx_in_epoch + np.arange(array.size).reshape(array.shape) + 7 * output
    return array


def assert_batches(pipe: Pipeline, source: Callable[[SampleInfo], Any], iterations: int = ITERATIONS) -> None:
    """Check that the next batches, from the first on, equal samples computed outside of a pipeline."""
    for iteration in range(iterations):
        outputs = pipe.run()
        for i in range(BATCH_SIZE):
            sample = source(SampleInfo(BATCH_SIZE * iteration + i, i, iteration, 0))
            expected = sample if isinstance(sample, tuple) else (sample,)
            for output, array in zip(outputs, expected, strict=True):
                np.testing.assert_array_equal(output.at(i), array, strict=True)


# All ways give equal batches


def dense(info: SampleInfo) -> NDArray[Any]:
    return filled(info, (5, 3))


def ragged(info: SampleInfo) -> NDArray[Any]:
    return filled(info, (info.idx_in_epoch % 4 + 1, 3))


def changing(info: SampleInfo) -> NDArray[Any]:
    return filled(info, info.iteration // 3 + 1)


def scalar(info: SampleInfo) -> NDArray[Any]:
    return filled(info, (), np.float32)


def empty(info: SampleInfo) -> NDArray[Any]:
    return filled(info, (0, 3))


def several(info: SampleInfo) -> Any:
    shapes: list[Any] = [(3, 2), info.idx_in_epoch % 3, (), 4]
    return tuple(filled(info, shape, output=output) for output, shape in enumerate(shapes))


@pytest.mark.parametrize("source", [dense, ragged, changing, scalar, empty, several])
@in_both_places
def test_samples_written_in_place_arrive(source: Any, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(source, way, num_outputs=4 if source is several else None)

    assert_batches(pipe, source, iterations=12)


@pytest.mark.parametrize("dtype", [np.uint8, np.dtype("int16"), "float64", bool, types.FLOAT16, types.UINT32], ids=str)
def test_any_data_type(dtype: Any, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return filled(info, (2, 2), dtype)

    assert_batches(make_pipeline(source, "serial"), source)


@pytest.mark.parametrize("shape", [4, np.int64(4), (4,), [4], np.array([4]), range(4, 5), (np.uint8(4),)], ids=repr)
def test_any_way_to_say_a_shape(shape: Any, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: filled(info, shape), "serial")

    assert_batches(pipe, lambda info: filled(info, (4,)))


@pytest.mark.parametrize("dtype", [np.int64, np.float32, complex], ids=["as rows", "as no row", "as no tensor"])
def test_a_shape_may_be_something_that_can_be_gone_through_once(dtype: Any, make_pipeline: MakePipeline) -> None:
    shapes = []

    def source(info: SampleInfo) -> Any:
        shapes.extend(info.empty(iter((5, 3)), dtype).shape for _ in range(2))
        return np.zeros((5, 3), np.int64)

    pipe = make_pipeline(source, "serial")
    for _ in range(ITERATIONS):
        pipe.run()

    assert set(shapes) == {(5, 3)}


def test_bytes_are_the_default(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        array = info.empty(3)
        array[:] = info.idx_in_epoch
        return array

    pipe = make_pipeline(source, "serial")

    assert pipe.run()[0].dtype is types.UINT8
    assert pipe.run()[0].as_array().tolist() == [[i] * 3 for i in range(4, 8)]


# Nothing is copied


@pytest.mark.parametrize("source", [dense, ragged, changing, scalar])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_memory_lent_to_a_callback_is_the_memory_of_the_batch(source: Any, way: str, make_pipeline: MakePipeline) -> None:
    def with_address(info: SampleInfo) -> Any:
        array = source(info)
        return array, np.array(address_of(array))

    pipe = make_pipeline(with_address, way, num_outputs=2)

    for _ in range(ITERATIONS):
        batch, addresses = pipe.run()  # forked workers map the memory at the same address
        assert [address_of(batch.at(i)) for i in range(BATCH_SIZE)] == addresses.as_array().tolist()


def test_several_outputs_are_not_copied(make_pipeline: MakePipeline) -> None:
    def with_addresses(info: SampleInfo) -> Any:
        arrays = several(info)
        return *arrays, np.array([address_of(array) for array in arrays])

    pipe = make_pipeline(with_addresses, "serial", num_outputs=5)

    for _ in range(ITERATIONS):
        *batches, addresses = pipe.run()
        for j, batch in enumerate(batches):
            assert [address_of(batch.at(i)) for i in range(BATCH_SIZE)] == addresses.as_array()[:, j].tolist()


#: Forms of a lent array of shape (5, 3) that lie at the same address without gaps.
WHOLE = {
    "itself": lambda array: array,
    "a view": lambda array: array[...],
    "its beginning": lambda array: array[:2],
    "another shape": lambda array: array.reshape(3, 5),
    "no shape": lambda array: array.ravel(),
    "more dimensions": lambda array: array[:, None],
}


@pytest.mark.parametrize("form", ["a view", "its beginning", "another shape"])
def test_nothing_is_copied_of_another_form_of_it(form: str, make_pipeline: MakePipeline) -> None:
    change = WHOLE[form]

    def source(info: SampleInfo) -> Any:
        array = dense(info)
        return change(array) if info.iteration >= 3 else array, np.array(address_of(array))

    pipe = make_pipeline(source, "serial", num_outputs=2)

    for _ in range(6):
        batch, addresses = pipe.run()
        assert [address_of(batch.at(i)) for i in range(BATCH_SIZE)] == addresses.as_array().tolist()


def test_coroutines_copy_nothing(make_pipeline: MakePipeline) -> None:
    async def source(info: SampleInfo) -> Any:
        array = info.empty((5, 3), np.int64)
        await asyncio.sleep(0)
        array[...] = info.idx_in_epoch
        return array, np.array(address_of(array))

    pipe = make_pipeline(source, "serial", num_outputs=2)

    for iteration in range(ITERATIONS):
        batch, addresses = pipe.run()
        assert [address_of(batch.at(i)) for i in range(BATCH_SIZE)] == addresses.as_array().tolist()
        assert [batch.at(i).min() for i in range(BATCH_SIZE)] == [4 * iteration + i for i in range(BATCH_SIZE)]


# Other uses of lent memory


FORMS: dict[str, Callable[[NDArray[Any]], Any]] = {
    **WHOLE,
    "its end": lambda array: array[1:],
    "every other row": lambda array: array[::2],
    "a column": lambda array: array[:, 1],
    "backwards": lambda array: array[::-1, ::-1],
    "transposed": lambda array: array.T,
    "one element": lambda array: array[2, 1],
    "broadcast": lambda array: np.broadcast_to(array[0], (5, 3)),
    "other bytes": lambda array: array.view(np.uint8),
    "something that can be an array": memoryview,
    "a copy": lambda array: array.copy(),
    "something else": lambda array: np.full((5, 3), 3),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_any_part_of_it_may_be_returned(form: str, way: str, make_pipeline: MakePipeline) -> None:
    change = np.asarray if form == "something that can be an array" else FORMS[form]

    def source(info: SampleInfo) -> Any:
        return change(dense(info))

    assert_batches(make_pipeline(source, way), source)


SAME_TYPE = sorted(set(FORMS) - {"other bytes", "something that can be an array", "a column", "one element"})


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_any_part_of_it_may_be_returned_where_rows_are_for_the_whole(way: str, make_pipeline: MakePipeline) -> None:
    changes = [FORMS[form] for form in SAME_TYPE if form not in ("no shape", "more dimensions")]

    def source(info: SampleInfo) -> Any:
        array = dense(info)
        return array if info.iteration < 3 else changes[info.idx_in_epoch % len(changes)](array)

    assert_batches(make_pipeline(source, way), source, iterations=3 + len(changes))


def swapped(info: SampleInfo, size: int) -> Any:
    first, second = filled(info, size), filled(info, size, output=1)
    return second, first


def for_another_output(info: SampleInfo, size: int) -> Any:
    array = filled(info, size)
    return np.arange(3), array


def for_an_earlier_output(info: SampleInfo, size: int) -> Any:
    array = filled(info, size, output=1)
    return array, np.arange(3)


def for_both_outputs(info: SampleInfo, size: int) -> Any:
    array = filled(info, size)
    return array, array[::-1]


def in_a_circle(info: SampleInfo, size: int) -> Any:
    arrays = [filled(info, size, output=output) for output in range(3)]
    return arrays[2], arrays[0], arrays[1]


@pytest.mark.parametrize("container", [tuple, list])
@pytest.mark.parametrize(
    "source", [swapped, for_another_output, for_an_earlier_output, for_both_outputs, in_a_circle], ids=lambda s: s.__name__
)
@pytest.mark.parametrize("size", [3, 300])
@pytest.mark.parametrize("way", ["serial", "fork"])
def test_an_empty_row_may_be_returned_as_another_output(
    source: Any, container: Any, size: int, way: str, make_pipeline: MakePipeline
) -> None:
    pipe = make_pipeline(lambda info: container(source(info, size)), way, num_outputs=3 if source is in_a_circle else 2)

    assert_batches(pipe, partial(source, size=size))


def test_an_empty_row_may_also_be_in_an_object(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        array = filled(info, 3)
        return np.arange(3), {"array": array}

    pipe = make_pipeline(source, "serial", num_outputs=2, source_options={"dtype": [None, types.OBJECT]})

    for iteration in range(ITERATIONS):
        _, things = pipe.run()
        for i, thing in enumerate(things):
            np.testing.assert_array_equal(thing["array"], 100 * (4 * iteration + i) + np.arange(3))


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_asked_twice_it_is_other_memory(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        draft = filled(info, (5, 3))
        final = info.empty((5, 3), np.int64)
        final[...] = 0
        final += draft[::-1]
        return final

    assert_batches(make_pipeline(source, way), source)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_memory_that_was_only_asked_for_is_not_missed(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        filled(info, (100, 100))
        return np.array(info.idx_in_epoch) if info.idx_in_epoch % 3 else filled(info, ())

    assert_batches(make_pipeline(source, way), source)


def test_shapes_that_vary_about_that_of_the_rows(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        asked = filled(info, (info.idx_in_epoch % 3 + 4, 3))
        return asked[: info.idx_in_epoch % 4 + 2] if info.iteration > 2 else dense(info)

    assert_batches(make_pipeline(source, way), source, iterations=20)


@pytest.mark.parametrize("way", ["serial", "fork"])
def test_an_array_kept_from_an_earlier_sample_is_copied(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        # Samples of the same task, whose other samples lie elsewhere.
        if info.idx_in_batch % 2:
            return kept[-1] + 0 if not kept else kept[-1]
        kept.append(filled(info, (5, 3)))
        return kept[-1]

    kept: list[NDArray[Any]] = []
    pipe = make_pipeline(source, way, workers=1)

    for iteration in range(ITERATIONS):
        (batch,) = pipe.run()
        for i in range(BATCH_SIZE):
            number = 4 * iteration + i // 2 * 2
            np.testing.assert_array_equal(batch.at(i).ravel(), 100 * number + np.arange(15))


def test_batches_that_are_held_stay_as_they_were(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(ragged, way)

    held = [pipe.run()[0] for _ in range(20)]
    pipe.close()

    for iteration, batch in enumerate(held):
        for i in range(BATCH_SIZE):
            np.testing.assert_array_equal(batch.at(i), ragged(SampleInfo(4 * iteration + i, i, iteration, 0)))


# Errors


@pytest.mark.parametrize("on_error", ["skip", lambda info, error: filled(info, (5, 3))], ids=["skip", "callable"])
def test_memory_written_by_a_failed_sample_is_overwritten(on_error: Any, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        array = dense(info)
        if info.idx_in_epoch % 4 == 1:
            array[...] = -1
            raise ValueError("half done")
        return array

    pipe = make_pipeline(source, way, source_options={"on_error": on_error})

    for iteration in range(ITERATIONS):
        (batch,) = pipe.run()
        numbers = [4 * iteration + i for i in range(BATCH_SIZE)]
        numbers[1] += on_error == "skip"
        for i, number in enumerate(numbers):
            np.testing.assert_array_equal(batch.at(i).ravel(), 100 * number + np.arange(15))


def test_an_error_costs_its_batch_and_no_other(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        array = dense(info)
        if info.iteration == 2 and info.idx_in_batch == 3:
            raise ValueError("half done")
        return array

    pipe = make_pipeline(source, way)

    assert_batches(pipe, source, iterations=2)
    with pytest.raises(ValueError, match="half done"):
        pipe.run()
    assert pipe.run()[0].at(0).ravel().tolist() == list(range(1200, 1215))


def test_memory_of_the_wrong_type_is_a_sample_of_the_wrong_type(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return filled(info, (5, 3), np.int64 if info.iteration != 3 else np.float64)

    pipe = make_pipeline(source, way)

    assert_batches(pipe, dense, iterations=3)
    with pytest.raises(DtypeMismatchError, match="float64"):
        pipe.run()
    assert pipe.run()[0].at(0)[0, 0] == 1600


WRONG_SHAPES: dict[str, tuple[Any, type[Exception]]] = {
    "negative": (-1, ArgumentError),
    "partly negative": ((3, -3), ArgumentError),
    "far too large": (1 << 62, MemoryError),
    "not whole": (2.5, TypeError),
    "text": ("33", TypeError),
    "nothing": (None, TypeError),
}


@pytest.mark.parametrize("case", WRONG_SHAPES)
def test_wrong_shapes_are_errors_and_cost_no_other_sample(case: str, make_pipeline: MakePipeline) -> None:
    shape, kind = WRONG_SHAPES[case]
    errors = []

    def source(info: SampleInfo) -> Any:
        if info.idx_in_batch == 2:
            try:
                info.empty(shape)
            except kind as error:
                errors.append(error)
        return ragged(info)

    assert_batches(make_pipeline(source, "serial"), ragged)
    assert len(errors) >= ITERATIONS


@pytest.mark.parametrize("dtype", [object, "U3", complex, ">i4", "M8[s]"])
def test_types_that_tensors_cannot_have_are_arrays_like_any_other(dtype: Any, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        assert info.empty((2, 3), dtype).dtype == np.dtype(dtype)
        return dense(info)

    assert_batches(make_pipeline(source, "serial"), dense)


# Memory of other samples


def test_outside_of_a_callback_it_is_an_array_like_any_other() -> None:
    array = SampleInfo(0, 0, 0, 0).empty((2, 3), np.float32)

    assert (array.shape, array.dtype, array.flags.owndata) == ((2, 3), np.float32, True)


@pytest.mark.parametrize("change", [{"idx_in_epoch": 99}, {"idx_in_batch": 1}, {"iteration": 9}, {"epoch_idx": 2}])
def test_for_another_sample_it_is_an_array_like_any_other(change: dict[str, int], make_pipeline: MakePipeline) -> None:
    owned = []

    def source(info: SampleInfo) -> Any:
        if info.idx_in_batch == 0:
            owned.append(info._replace(**change).empty((5, 3), np.int64).flags.owndata)
        return dense(info)

    assert_batches(make_pipeline(source, "serial"), dense)
    assert all(owned)


def test_for_an_output_that_is_not_there_it_is_an_array_like_any_other(make_pipeline: MakePipeline) -> None:
    owned = []

    def source(info: SampleInfo) -> Any:
        owned.extend(info.empty((5, 3), np.int64, output=output).flags.owndata for output in (1, -1, 5))
        return dense(info)

    assert_batches(make_pipeline(source, "serial"), dense)
    assert all(owned)


def test_when_the_batch_is_done_it_is_an_array_like_any_other(make_pipeline: MakePipeline) -> None:
    contexts = []

    def source(info: SampleInfo) -> Any:
        contexts.append((info, contextvars.copy_context()))
        return np.full((5, 3), info.idx_in_epoch)

    pipe = make_pipeline(source, "serial")
    for _ in range(2):  # the first batch has no rows
        (batch,) = pipe.run()
        info, context = contexts[-1]

        late = context.run(info.empty, (5, 3), np.int64)
        before = batch.at(3).copy()
        late[...] = -1

        assert late.flags.owndata
        assert (batch.at(3) == before).all()


# Samples that grow


@pytest.mark.parametrize("way", ["serial", "fork"])
@pytest.mark.parametrize("grown", [9, 8, 11])
def test_samples_that_outgrow_their_slot(grown: int, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        return filled(info, (400_000 if info.idx_in_epoch >= grown else 3, 2)), filled(info, info.idx_in_epoch % 3, output=1)

    pipe = make_pipeline(source, way, num_outputs=2)

    assert_batches(pipe, source)


def test_a_serial_callback_is_not_asked_again_when_samples_grow(make_pipeline: MakePipeline) -> None:
    asked = []

    def source(info: SampleInfo) -> Any:
        asked.append(info.idx_in_epoch)
        size = 3 if info.idx_in_epoch < 9 else 400_000 * (info.idx_in_epoch % 3 + 1)
        return filled(info, size), filled(info, 2, output=1)[::-1]

    pipe = make_pipeline(source, "serial", num_outputs=2)
    delivered = [
        [np.array(output.at(i)) for output in outputs for i in range(4)] for outputs in (pipe.run() for _ in range(5))
    ]

    assert sorted(set(asked)) == asked
    for iteration, batch in enumerate(delivered):
        for i in range(BATCH_SIZE):
            for array, expected in zip(
                (batch[i], batch[4 + i]), source(SampleInfo(4 * iteration + i, i, iteration, 0)), strict=True
            ):
                np.testing.assert_array_equal(array, expected)


# Threads


@contextmanager
def busy_switching() -> Iterator[None]:
    """Switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_threads_of_coroutines_get_memory_of_their_own(make_pipeline: MakePipeline) -> None:
    def make(info: SampleInfo) -> Any:
        return filled(info, info.idx_in_epoch % 50 + 1, np.int64)

    async def source(info: SampleInfo) -> Any:
        return await asyncio.to_thread(make, info)

    pipe = make_pipeline(source, "serial", batch_size=64)
    with busy_switching():
        for iteration in range(20):
            (batch,) = pipe.run()
            for i in range(64):
                np.testing.assert_array_equal(batch.at(i), make(SampleInfo(64 * iteration + i, i, iteration, 0)))


def test_a_thread_without_the_context_gets_an_array_like_any_other(make_pipeline: MakePipeline) -> None:
    with ThreadPoolExecutor(1) as threads:
        pipe = make_pipeline(lambda info: threads.submit(dense, info).result(), "serial")

        assert_batches(pipe, dense)


def test_two_threads_that_ask_for_one_sample_do_not_get_the_same(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        barrier = threading.Barrier(2)

        def ask() -> int:
            barrier.wait()
            return address_of(arrays.append(info.empty((5, 3), np.int64)) or arrays[-1])

        arrays: list[NDArray[Any]] = []
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(contextvars.copy_context().run, ask) for _ in range(2)]
        assert asked[0].result() != asked[1].result()
        return dense(info)

    assert_batches(make_pipeline(source, "serial"), dense)


class Extent:
    """An extent of a shape at which two threads wait for each other."""

    def __init__(self, extent: int, barrier: threading.Barrier) -> None:
        self._extent = extent
        self._barrier = barrier
        self._has_met = False

    def __index__(self) -> int:
        if not self._has_met:
            self._has_met = True
            self._barrier.wait()
        return self._extent


def test_two_threads_that_ask_at_the_same_moment_do_not_get_the_same(make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        barrier = threading.Barrier(2)
        with ThreadPoolExecutor(2) as threads:
            asked = [
                threads.submit(contextvars.copy_context().run, info.empty, (Extent(5, barrier), 3), np.int64)
                for _ in range(2)
            ]
        first, second = (future.result() for future in asked)
        assert not np.shares_memory(first, second)
        return first

    pipe = make_pipeline(source, "serial")

    for _ in range(ITERATIONS):
        pipe.run()


# Random uses of lent memory

#: Variants of an array of one dimension that a callback may return.
VARIANTS: list[Callable[[NDArray[Any]], Any]] = [
    lambda array: array,
    lambda array: array[...],
    lambda array: array[::-1],
    lambda array: array[1:],
    lambda array: np.broadcast_to(array[:1], array.shape if array.size else (0,)),
    lambda array: array.copy(),
    lambda array: array + 1,
    lambda array: array.view(np.ndarray),
]


class Part(NamedTuple):
    """One output of a sample: a variant of an array lent for some output, or another array."""

    variant: int
    of: int
    extent: int
    is_own: bool


@st.composite
def samples(draw: st.DrawFn) -> tuple[list[list[Part]], int | None]:
    """The outputs that a callback returns, sample by sample in turn, and the output that holds objects."""
    num_outputs = draw(st.integers(1, 3))
    extents = draw(st.sampled_from([[4], [4, 3], [4, 0, 6]]))
    part = st.builds(
        Part,
        st.integers(0, len(VARIANTS) - 1),
        st.integers(0, num_outputs - 1),
        st.sampled_from(extents),
        st.integers(0, 3).map(lambda n: not n),
    )
    some = draw(st.lists(st.lists(part, min_size=num_outputs, max_size=num_outputs), min_size=1, max_size=3))
    return some, draw(st.sampled_from([None, None, *range(num_outputs)]))


@hypothesis.settings(max_examples=80)
@hypothesis.given(samples())
def test_lent_memory_gives_the_same_batch_as_arrays_of_the_callback(plan: tuple[list[list[Part]], int | None]) -> None:
    parts, of_objects = plan
    num_outputs = len(parts[0])

    def source(info: SampleInfo) -> Any:
        mine = parts[info.idx_in_epoch % len(parts)]
        lent = [filled(info, part.extent, output=output) for output, part in enumerate(mine)]
        arrays = [np.arange(4) if part.is_own else VARIANTS[part.variant](lent[part.of]) for part in mine]
        return tuple([array] if output == of_objects else np.asarray(array) for output, array in enumerate(arrays))

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=1)
    def pipeline() -> Any:
        dtypes = [types.OBJECT if output == of_objects else types.INT64 for output in range(num_outputs)]
        return tuple(fn.external_source(source, num_outputs=num_outputs, batch=False, dtype=dtypes))

    with pipeline() as pipe:
        held = [pipe.run() for _ in range(ITERATIONS)]
    for iteration, outputs in enumerate(held):
        for i in range(BATCH_SIZE):
            expected = source(SampleInfo(BATCH_SIZE * iteration + i, i, iteration, 0))
            for output, (batch, value) in enumerate(zip(outputs, expected, strict=True)):
                got = list(batch)[i] if output == of_objects else batch.at(i)
                np.testing.assert_array_equal(got, value)


# Deaths of workers


def test_a_sample_that_was_half_made_is_made_again(start_method: str, tmp_path: Path, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        array = dense(info)
        if info.idx_in_epoch == 9 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            array[:2] = -1
            os._exit(1)
        return array

    pipe = make_pipeline(source, start_method)

    assert_batches(pipe, dense)
    assert pipe.statistics().worker_restarts == 1
