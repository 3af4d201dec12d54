"""Sources: allowed sources and samples; batches arrive as the callable returned them, with any shapes.

Callables are made in functions, as users make them in notebooks, so that spawned workers get them by value. What a batch
should be is always computed here, by calling the source for each of its samples.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like import Pipeline, errors, fn, pipeline_def
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.types import NO_TYPE, STRING, DALIDataType, SampleInfo, to_dali_type, to_numpy_type
from tests.conftest import WAYS, in_both_places, in_processes, wait_until
from tests.internals import space_of

MakePipeline = Callable[..., Pipeline]


def expected_samples(source: Callable[[SampleInfo], Any], iteration: int, batch_size: int = 4) -> list[NDArray[Any]]:
    """The expected samples of a batch of the first epoch."""
    infos = [SampleInfo(iteration * batch_size + i, i, iteration, 0) for i in range(batch_size)]
    return [np.array(source(info)) for info in infos]


def assert_samples(batch: TensorListCPU, expected: Sequence[NDArray[Any]]) -> None:
    """Values, shapes and dtypes, of each sample and of the whole."""
    assert batch.shape() == [sample.shape for sample in expected]
    assert len(batch) == len(expected)
    for got, sample in zip(batch, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(got), sample, strict=True)
    if batch.is_dense_tensor():
        np.testing.assert_array_equal(batch.as_array(), np.stack(expected), strict=True)


def assert_epoch(pipe: Pipeline, source: Callable[[SampleInfo], Any], iterations: int, batch_size: int = 4) -> None:
    """The first batches of a pipeline with one output are the batches of its source."""
    for iteration in range(iterations):
        (batch,) = pipe.run()
        assert_samples(batch, expected_samples(source, iteration, batch_size))


def address_of(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def lies_in_shared_memory(array: NDArray[Any], pipe: Pipeline) -> bool:
    space = space_of(pipe)
    assert space is not None
    return space.address <= address_of(array) and address_of(array) + array.nbytes <= space.address + space.size


# Kinds of sources


def make_callables() -> dict[str, Callable[[SampleInfo], NDArray[Any]]]:
    """One callable of each kind; all of them make different samples."""
    offset = 30

    def function(info: SampleInfo) -> NDArray[Any]:
        return np.array([10, info.idx_in_epoch])

    def closure(info: SampleInfo) -> NDArray[Any]:
        return np.array([offset, info.idx_in_epoch])

    def with_default(info: SampleInfo, value: int = 40) -> NDArray[Any]:
        return np.array([value, info.idx_in_epoch])

    def two_arguments(value: int, info: SampleInfo) -> NDArray[Any]:
        return np.array([value, info.idx_in_epoch])

    @functools.wraps(function)
    def wrapping(*args: Any, **kwargs: Any) -> NDArray[Any]:
        return function(*args, **kwargs) + 50

    class Samples:
        def __init__(self, value: int) -> None:
            self.value = value

        def __call__(self, info: SampleInfo) -> NDArray[Any]:
            return np.array([self.value, info.idx_in_epoch])

        def method(self, info: SampleInfo) -> NDArray[Any]:
            return np.array([self.value + 1, info.idx_in_epoch])

        @staticmethod
        def of_class(info: SampleInfo) -> NDArray[Any]:
            return np.array([70, info.idx_in_epoch])

        @classmethod
        def with_class(cls, info: SampleInfo) -> NDArray[Any]:
            return cls(80)(info)

    return {
        "function": function,
        "lambda": lambda info: np.array([20, info.idx_in_epoch]),
        "closure": closure,
        "decorated function": wrapping,
        "callable object": Samples(60),
        "bound method": Samples(64).method,
        "static method": Samples.of_class,
        "class method": Samples.with_class,
        "partial with a value": functools.partial(two_arguments, 90),
        "partial with a keyword": functools.partial(with_default, value=91),
        "partial of an object": functools.partial(Samples(92)),
    }


@pytest.mark.parametrize("kind", make_callables())
@pytest.mark.parametrize("way", WAYS)  # they are pickled
def test_any_callable_may_be_a_source(kind: str, way: str, make_pipeline: MakePipeline) -> None:
    source = make_callables()[kind]

    pipe = make_pipeline(source, way)

    assert_epoch(pipe, source, 3)


def test_callable_of_a_module_is_imported_by_spawned_workers(
    way: str, make_pipeline: MakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_with_source.py").write_text("import numpy\ndef source(info): return numpy.array(info)\n")
    monkeypatch.syspath_prepend(tmp_path)
    import module_with_source

    pipe = make_pipeline(module_with_source.source, way)

    assert_epoch(pipe, module_with_source.source, 2)
    del sys.modules["module_with_source"]


@pytest.mark.parametrize("container", [tuple, list])
@pytest.mark.parametrize("num_outputs", [1, 2, 3])
@in_both_places
def test_source_with_several_outputs(
    num_outputs: int, container: Callable[..., Any], way: str, make_pipeline: MakePipeline
) -> None:
    def source(info: SampleInfo) -> Any:
        return container(np.full(j + 1, 10 * info.idx_in_epoch + j, np.int16) for j in range(num_outputs))

    pipe = make_pipeline(source, way, num_outputs=num_outputs)

    for iteration in range(3):
        outputs = pipe.run()
        assert len(outputs) == num_outputs
        for j, batch in enumerate(outputs):
            assert_samples(batch, expected_samples(lambda info, j=j: source(info)[j], iteration))


def test_source_without_argument_is_called_once_a_sample(make_pipeline: MakePipeline) -> None:
    counter = itertools.count()
    pipe = make_pipeline(lambda: np.array(next(counter)), "serial")

    batches = [pipe.run()[0].as_array().tolist() for _ in range(5)]

    assert batches == [list(range(start, start + 4)) for start in range(0, 20, 4)]


def test_bound_method_without_argument(make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(iter([np.arange(2)] * 8).__next__, "serial")

    for _ in range(2):
        assert_samples(pipe.run()[0], [np.arange(2)] * 4)
    with pytest.raises(StopIteration):
        pipe.run()


def test_source_without_argument_loses_no_sample_when_samples_grow(make_pipeline: MakePipeline) -> None:
    numbers = iter(range(24))

    def source() -> NDArray[Any]:
        number = next(numbers)
        return np.full(1 if number < 9 else 3 << 20, number, np.uint8)

    pipe = make_pipeline(source, "serial")

    firsts = [int(np.asarray(sample)[0]) for (batch,) in pipe for sample in batch]

    assert firsts == list(range(24))


# Kinds of samples


def test_every_data_type(way: str, make_pipeline: MakePipeline) -> None:
    dtypes = [np.dtype(to_numpy_type(dtype)) for dtype in DALIDataType if NO_TYPE < dtype < STRING]

    def source(info: SampleInfo) -> list[NDArray[Any]]:
        random = np.random.default_rng(info.idx_in_epoch)
        samples = [np.frombuffer(random.bytes(6 * dtype.itemsize), dtype).copy() for dtype in dtypes if dtype.kind != "b"]
        return [*samples, random.integers(0, 2, 6).astype(bool)]  # bool is the last of them

    pipe = make_pipeline(source, way, num_outputs=len(dtypes))

    for iteration in range(3):
        outputs = pipe.run()
        assert [batch.dtype for batch in outputs] == [to_dali_type(dtype) for dtype in dtypes]
        for j, batch in enumerate(outputs):
            assert_samples(batch, expected_samples(lambda info, j=j: source(info)[j], iteration))


def make_samples() -> dict[str, Callable[[SampleInfo], Any]]:
    """Sources of everything that counts as an array."""

    class WithArrayInterface:
        def __init__(self, array: NDArray[Any]) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    class WithDLPack:
        def __init__(self, array: NDArray[Any]) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    class Subclass(np.ndarray):  # type: ignore[type-arg]
        pass

    def number(info: SampleInfo) -> NDArray[Any]:
        return np.arange(24, dtype=np.float32).reshape(4, 6) + info.idx_in_epoch

    def read_only(info: SampleInfo) -> NDArray[Any]:
        array = number(info)
        array.flags.writeable = False
        return array

    return {
        "0-d array": lambda info: np.array(info.idx_in_epoch, np.int16),
        "no elements": lambda info: np.zeros((0,), np.int32),
        "no elements in the middle": lambda info: np.zeros((3, 0, 2), np.uint8),
        "12 dimensions": lambda info: np.full((1,) * 11 + (2,), info.idx_in_epoch),
        "NumPy scalar": lambda info: np.float16(info.idx_in_epoch),
        "NumPy bool": lambda info: np.bool_(info.idx_in_epoch % 2),
        "NumPy long long": lambda info: np.longlong(info.idx_in_epoch),
        "int": lambda info: info.idx_in_epoch,
        "negative int": lambda info: -info.idx_in_epoch,
        "float": lambda info: info.idx_in_epoch / 3,
        "bool": lambda info: info.idx_in_epoch % 3 == 0,
        "every other column": lambda info: number(info)[:, ::2],
        "transposed": lambda info: number(info).T,
        "in Fortran's order": lambda info: np.asfortranarray(number(info)),
        "backwards": lambda info: number(info)[::-1, ::-1],
        "broadcast": lambda info: np.broadcast_to(np.float64(info.idx_in_epoch), (3, 5)),
        "read-only": read_only,
        "from bytes": lambda info: np.frombuffer(bytes([info.idx_in_epoch] * 5), np.uint8),
        "subclass": lambda info: number(info).view(Subclass),
        "array interface": lambda info: WithArrayInterface(number(info)),
        "DLPack": lambda info: WithDLPack(number(info)),
        "TensorCPU": lambda info: TensorCPU(number(info)),
    }


def as_native(sample: Any) -> NDArray[Any]:
    return np.from_dlpack(sample) if type(sample).__name__ == "WithDLPack" else np.asarray(sample)


@pytest.mark.parametrize("kind", make_samples())
@in_both_places
def test_anything_like_an_array_may_be_a_sample(kind: str, way: str, make_pipeline: MakePipeline) -> None:
    source = make_samples()[kind]

    pipe = make_pipeline(source, way)

    assert_epoch(pipe, lambda info: as_native(source(info)), 3)


@pytest.mark.parametrize("dtype", [">u2", ">f8"])
@in_both_places
def test_big_endian_samples_are_converted(dtype: str, way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.array([[1, 2], [300, info.idx_in_epoch]], dtype), way)

    for iteration in range(3):
        (batch,) = pipe.run()
        native = np.dtype(dtype).newbyteorder("=")
        assert_samples(batch, [np.array([[1, 2], [300, iteration * 4 + i]], native) for i in range(4)])


def test_kinds_of_samples_may_be_mixed_in_a_batch(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> Any:
        value = np.full((2, 2), info.idx_in_epoch, np.int32)
        return [value, value.astype(">i4"), TensorCPU(value), np.asfortranarray(value)][info.idx_in_epoch % 4]

    pipe = make_pipeline(source, way)

    assert_epoch(pipe, lambda info: np.full((2, 2), info.idx_in_epoch, np.int32), 3)


@in_processes  # threads share it
def test_source_may_overwrite_the_array_it_has_returned(way: str, make_pipeline: MakePipeline) -> None:
    class SameArray:
        def __init__(self) -> None:
            self.array = np.zeros(3, np.int64)

        def __call__(self, info: SampleInfo) -> NDArray[Any]:
            self.array[:] = info.idx_in_epoch
            return self.array

    pipe = make_pipeline(SameArray(), way)

    assert_epoch(pipe, lambda info: np.full(3, info.idx_in_epoch, np.int64), 3)


# Where batches lie


def test_dense_batch_is_one_view_of_shared_memory(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.full((5, 3), info.idx_in_epoch, np.float32), way)
    pipe.run()  # shows the shapes of samples

    for _ in range(3):
        (batch,) = pipe.run()
        array = batch.as_array()
        assert lies_in_shared_memory(array, pipe)
        assert batch.as_array() is array
        assert array.flags.c_contiguous
        for view in (
            batch.at(2),
            np.asarray(batch),
            np.asarray(batch[2]),
            np.asarray(batch.as_tensor()),
            np.from_dlpack(batch[2]),
        ):
            assert np.shares_memory(view, array)


def test_samples_of_the_first_batch_are_views_of_shared_memory(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.full((5, 3), info.idx_in_epoch, np.float32), way)

    (batch,) = pipe.run()

    assert all(lies_in_shared_memory(batch.at(i), pipe) for i in range(4))


def test_ragged_samples_are_views_of_shared_memory(way: str, make_pipeline: MakePipeline) -> None:
    pipe = make_pipeline(lambda info: np.full(info.idx_in_epoch % 7 + 1, info.idx_in_epoch), way)

    for _ in range(4):
        (batch,) = pipe.run()
        samples = [batch.at(i) for i in range(4)]
        assert all(lies_in_shared_memory(sample, pipe) for sample in samples)
        assert all(np.shares_memory(sample, np.asarray(tensor)) for sample, tensor in zip(samples, batch, strict=True))
        assert not any(np.shares_memory(one, other) for one, other in itertools.combinations(samples, 2))


# Shapes


@in_both_places
def test_ragged_samples_of_any_strides(way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> NDArray[Any]:
        array = np.arange(24 + 24 * info.idx_in_epoch, dtype=np.int16).reshape(2, 3, -1)
        views = (
            array.T,
            array[::-1, 1:],
            np.asfortranarray(array),
            array[:, :0],
            np.broadcast_to(array[:, :1], array.shape),
        )
        return views[info.idx_in_epoch % 5]

    assert_epoch(make_pipeline(source, way), source, iterations=5)


@pytest.mark.parametrize("batch_size", [1, 2, 15, 16, 17, 33, 250])
@in_both_places
def test_batch_sizes_with_dense_and_ragged_outputs(batch_size: int, way: str, make_pipeline: MakePipeline) -> None:
    def source(info: SampleInfo) -> tuple[NDArray[Any], ...]:
        random = np.random.default_rng(info.idx_in_epoch)
        ragged = random.integers(0, 256, (random.integers(0, 9), 3), np.uint8)
        return ragged, np.array(info), np.float32(random.random())

    pipe = make_pipeline(source, way, num_outputs=3, batch_size=batch_size)

    for iteration in range(4):
        for j, batch in enumerate(pipe.run()):
            assert_samples(batch, expected_samples(lambda info, j=j: source(info)[j], iteration, batch_size))


RAGGED_SIZES = {
    "random": (50, 50, 50, 50, 50),
    "growing": (1, 1 << 10, 1 << 16, 1 << 21, 1 << 10),
    "large at once, then small": (1 << 22, 1, 1, 1 << 21, 1),
    "far too large later": (10, 10, 1 << 23, 10, 1 << 24),
}


@pytest.mark.parametrize("case", RAGGED_SIZES)
@in_both_places
def test_ragged_samples_of_any_size(case: str, way: str, make_pipeline: MakePipeline) -> None:
    largest = RAGGED_SIZES[case]

    def source(info: SampleInfo) -> NDArray[Any]:
        size = np.random.default_rng(info.idx_in_epoch).integers(0, largest[info.iteration])
        return np.arange(info.idx_in_epoch, info.idx_in_epoch + size).astype(np.uint8)

    def ending(info: SampleInfo) -> NDArray[Any]:
        if info.iteration >= len(largest):
            raise StopIteration
        return source(info)

    pipe = make_pipeline(ending, way)

    assert_epoch(pipe, source, len(largest))


@pytest.mark.parametrize("iteration", [0, 2])
@in_both_places
def test_one_huge_sample_among_tiny_ones(iteration: int, way: str, make_pipeline: MakePipeline) -> None:
    huge = iteration * 4 + 1

    def source(info: SampleInfo) -> NDArray[Any]:
        return np.full(50_000_000 if info.idx_in_epoch == huge else 3, info.idx_in_epoch, np.uint8)

    pipe = make_pipeline(source, way)

    assert_epoch(pipe, source, 4)


SHAPE_PATTERNS = {
    "one shape": "aaaaaa",
    "a new shape once": "aaabbbbbb",
    "the first is another": "abbbbbb",
    "two in turn": "abababababab",
    "one strays": "aaaabaaaaaaaaaaaab",
    "a new shape each time": "abcdefg",
    "long runs": "aaaaaaaaaaaabbbbbbbbbbbbcccccccccccc",
}


@pytest.mark.parametrize("pattern", SHAPE_PATTERNS)
@in_both_places
def test_shape_that_changes_between_batches(pattern: str, way: str, make_pipeline: MakePipeline) -> None:
    shapes = [(ord(letter) - ord("a") + 1, 3) for letter in SHAPE_PATTERNS[pattern]]

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration >= len(shapes):
            raise StopIteration
        return np.full(shapes[info.iteration], info.idx_in_epoch, np.int32)

    pipe = make_pipeline(source, way)

    assert_epoch(pipe, source, len(shapes))


one_shape = st.tuples(st.integers(0, 40), st.sampled_from([1, 3, 1000]))
shapes_of_batch = st.one_of(one_shape.map(lambda shape: [shape]), st.lists(one_shape, min_size=1, max_size=6))


@pytest.mark.parametrize("way", ["serial", "fork"])
@given(
    dense=st.lists(one_shape.map(lambda shape: [shape]), min_size=1, max_size=12),
    ragged=st.lists(shapes_of_batch, min_size=1, max_size=12),
    batch_size=st.integers(1, 20),
)
@settings(max_examples=15, deadline=None)
def test_any_sequence_of_shapes(way: str, dense: list[Any], ragged: list[Any], batch_size: int) -> None:
    iterations = max(len(dense), len(ragged))

    def source(info: SampleInfo) -> tuple[NDArray[Any], ...]:
        if info.iteration >= iterations:
            raise StopIteration
        shapes = [shapes[info.iteration % len(shapes)] for shapes in (dense, ragged)]
        return tuple(np.full(shape[info.idx_in_batch % len(shape)], info.idx_in_epoch, np.uint16) for shape in shapes)

    @pipeline_def(batch_size=batch_size, py_num_workers=2)
    def pipeline() -> Any:
        return fn.external_source(source=source, num_outputs=2, batch=False, parallel=way != "serial")

    with contextlib.closing(pipeline()) as pipe:
        for iteration in range(iterations):
            for j, batch in enumerate(pipe.run()):
                assert_samples(batch, expected_samples(lambda info, j=j: source(info)[j], iteration, batch_size))
        with pytest.raises(StopIteration):
            pipe.run()


# Several sources


def test_parallel_sources_share_the_workers(start_method: str) -> None:
    def one(info: SampleInfo) -> NDArray[Any]:
        return np.array(os.getpid())

    def other(info: SampleInfo) -> NDArray[Any]:
        return np.array([os.getpid(), info.idx_in_epoch])

    @pipeline_def(batch_size=16, py_num_workers=2, py_start_method=start_method)
    def pipeline() -> Any:
        return [fn.external_source(source=source, batch=False, parallel=True) for source in (one, other)]

    with contextlib.closing(pipeline()) as pipe:
        seen = set()
        for _ in range(5):
            first, second = pipe.run()
            seen |= set(first.as_array().tolist()) | set(second.as_array()[:, 0].tolist())
        pids = wait_until(lambda: len(pipe.py_worker_pids) == 2 and pipe.py_worker_pids, "the start of both workers")

    assert seen <= set(pids)


def test_parallel_and_serial_sources_advance_together(start_method: str) -> None:
    pids: list[int] = []

    def serial(info: SampleInfo) -> NDArray[Any]:
        pids.append(os.getpid())
        return np.array(info)

    def parallel(info: SampleInfo) -> NDArray[Any]:
        return np.array(info)

    def ragged(info: SampleInfo) -> NDArray[Any]:
        return np.array([*info, *range(info.idx_in_epoch % 3)])

    @pipeline_def(batch_size=3, py_num_workers=2, py_start_method=start_method)
    def pipeline() -> Any:
        return [
            fn.external_source(source=ragged, batch=False, parallel=True, prefetch_queue_depth=3),
            fn.external_source(source=serial, batch=False),
            fn.external_source(source=parallel, batch=False, parallel=True),
        ]

    with contextlib.closing(pipeline()) as pipe:
        for iteration in range(6):
            outputs = pipe.run()
            for source, batch in zip((ragged, parallel, parallel), outputs, strict=True):
                assert_samples(batch, expected_samples(source, iteration, 3))

    assert set(pids) == {os.getpid()}


def test_same_source_object_twice(way: str) -> None:
    class Source:
        def __call__(self, info: SampleInfo) -> NDArray[Any]:
            return np.array(info)

    source = Source()
    method = {} if way == "serial" else {"py_start_method": way}

    @pipeline_def(batch_size=4, py_num_workers=2, **method)
    def pipeline() -> Any:
        return [fn.external_source(source=source, batch=False, parallel=way != "serial") for _ in range(2)]

    with contextlib.closing(pipeline()) as pipe:
        for iteration in range(3):
            first, second = pipe.run()
            assert_samples(first, expected_samples(source, iteration))
            assert_samples(second, expected_samples(source, iteration))
            assert not np.shares_memory(first.at(0), second.at(0))


# The last test, since torch makes all that follow slower


def test_torch_tensors(way: str, make_pipeline: MakePipeline) -> None:
    torch = pytest.importorskip("torch")

    def source(info: SampleInfo) -> Any:
        import torch

        return torch.arange(6, dtype=torch.int16).reshape(2, 3).T + info.idx_in_epoch

    pipe = make_pipeline(source, way, workers=1)

    for iteration in range(3):
        expected = [torch.arange(6, dtype=torch.int16).reshape(2, 3).T.numpy() + iteration * 4 + i for i in range(4)]
        assert_samples(pipe.run()[0], expected)


def test_first_batch_fixes_the_data_type_even_if_another_one_is_made_before(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    """While the first batch is still in the making, the second one is complete, and of another type."""
    made = tmp_path / "made"

    def source(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 1 and info.idx_in_batch == 1:
            made.touch()
        if info.iteration == 0 and info.idx_in_batch == 1:
            wait_until(made.exists, "the second batch")
        return np.zeros(3, np.float32 if info.iteration == 1 else np.int64)

    pipe = make_pipeline(source, "fork", batch_size=2)

    assert pipe.run()[0].dtype is DALIDataType.INT64
    with pytest.raises(errors.DtypeMismatchError, match="float32 in output 0, which was int64 in"):
        pipe.run()
    assert [pipe.run()[0].dtype for _ in range(3)] == [DALIDataType.INT64] * 3
