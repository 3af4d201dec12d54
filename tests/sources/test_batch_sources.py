"""Sources of batches: their arguments, allowed results, and refused results with their messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dali_like import Pipeline, errors, fn
from dali_like.tensors import TensorListCPU
from dali_like.types import OBJECT, BatchInfo, DALIDataType
from tests.batches import (
    BATCH_SIZE,
    END,
    batch_of,
    batch_source,
    batches_in,
    epoch_of,
    numbers_in,
    outcome,
    outcomes,
    pipeline_of,
)
from tests.conftest import in_both_places, wait_until
from tests.internals import space_of

MIB = 1 << 20

MakePipeline = Callable[..., Pipeline]


def ending(make: Callable[[int], Any], length: int) -> Callable[[int], Any]:
    """A source of epochs of some batches."""

    def source(number: int) -> Any:
        if number >= length:
            raise StopIteration
        return make(number)

    return source


# Arguments of the callable


def test_callable_is_told_the_number_of_the_batch(way: str) -> None:
    def source(number: int) -> Any:
        if number == 3:
            raise StopIteration
        assert type(number) is int
        return [np.array(number)] * BATCH_SIZE

    with pipeline_of((source, {}), way=way) as pipe:
        assert outcomes(pipe, 8, lambda outputs: numbers_in(outputs[0])[0]) == 2 * [0, 1, 2, END]


def test_callable_is_told_batch_and_epoch(way: str) -> None:
    def source(info: BatchInfo) -> Any:
        if info.iteration == 2:
            raise StopIteration
        assert type(info) is BatchInfo
        return [np.array(info)] * 2

    with pipeline_of((source, {"batch_info": True}), way=way) as pipe:
        seen = outcomes(pipe, 6, lambda outputs: outputs[0].at(1).tolist())

    assert seen == [[0, 0], [1, 0], END, [0, 1], [1, 1], END]


def test_callable_without_argument_is_called_once_a_batch() -> None:
    numbers = iter(range(5))

    with pipeline_of((lambda: batch_of(next(numbers)), {}), way="serial") as pipe:
        assert outcomes(pipe, 6) == epoch_of(5)


def test_callable_without_argument_loses_no_batch_when_batches_grow() -> None:
    numbers = iter(range(6))

    def source() -> list[NDArray[Any]]:
        number = next(numbers)
        return [np.full(MIB if number in (3, 4) else 10 + i, 100 * number + i) for i in range(BATCH_SIZE)]

    with pipeline_of((source, {}), way="serial") as pipe:
        assert outcomes(pipe, 7) == epoch_of(6)


def test_random_numbers_belong_to_the_batch(way: str) -> None:
    def source(info: BatchInfo) -> Any:
        return info.rng().integers(1000, size=(BATCH_SIZE, 2)) if info.iteration < 5 else ending(batch_of, 0)(0)

    with pipeline_of((source, {"batch_info": True}), way=way, seed=7) as pipe:
        seen = outcomes(pipe, 12, lambda outputs: outputs[0].as_array().tolist())
    with pipeline_of((source, {"batch_info": True}), way="serial", seed=7) as pipe:
        assert seen == outcomes(pipe, 12, lambda outputs: outputs[0].as_array().tolist())
    assert len({str(entry) for entry in seen}) == 11


def test_coroutine_function_makes_batches(way: str) -> None:
    async def source(number: int) -> Any:
        await asyncio.sleep(0)
        if number == 3:
            raise StopIteration
        return batch_of(number)

    with pipeline_of((source, {}), way=way) as pipe:
        assert outcomes(pipe, 8) == 2 * epoch_of(3)


def test_batches_are_made_by_all_workers(start_method: str, tmp_path: Path) -> None:
    """Each waits for the other."""

    def source(number: int) -> Any:
        (tmp_path / str(os.getpid())).touch()
        wait_for = 2 if number else 0  # the first batch is made alone: it shows the shapes of the others
        while len(os.listdir(tmp_path)) < wait_for:
            time.sleep(0.001)
        return batch_of(number)

    with pipeline_of((ending(source, 6), {}), way=start_method) as pipe:
        assert outcomes(pipe, 7) == epoch_of(6)


@pytest.mark.parametrize("depth", [1, 3])
def test_batches_are_made_ahead_by_both_depths(depth: int, tmp_path: Path) -> None:
    def source(number: int) -> Any:
        (tmp_path / str(number)).touch()
        return batch_of(number)

    with pipeline_of((source, {"prefetch_queue_depth": 2}), prefetch_queue_depth=depth) as pipe:
        pipe.run()
        wait_until(lambda: len(os.listdir(tmp_path)) >= depth + 3, "the batches ahead")
        assert sorted(map(int, os.listdir(tmp_path))) == list(range(depth + 3))


# Allowed batches


class WithArray:
    """Something that NumPy can make an array of."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self.array


class WithDLPack:
    """Something that exchanges tensors."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


#: Stands for an array of samples as a whole.
WHOLE: dict[str, Callable[[NDArray[Any]], Any]] = {
    "array": lambda array: array,
    "in Fortran's order": np.asfortranarray,
    "every other row": lambda array: array.repeat(2, axis=0)[::2],
    "backwards": lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": read_only,
    "big-endian": lambda array: array.astype(">i8"),
    "with __array__": WithArray,
    "with DLPack": WithDLPack,
}

#: And as something with samples in it.
OF_SAMPLES: dict[str, Callable[[NDArray[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "TensorListCPU": TensorListCPU,
    "TensorListCPU of samples": lambda array: TensorListCPU(list(array)),
    "list of TensorCPU": lambda array: list(TensorListCPU(array)),
    "list of columns": lambda array: list(np.asfortranarray(array)),
    "list of what NumPy can read": lambda array: [WithArray(sample) for sample in array],
    "list of both": lambda array: [array[0], *map(WithArray, array[1:])],
}


@pytest.mark.parametrize("form", {**WHOLE, **OF_SAMPLES})
@in_both_places
def test_batch_may_be(form: str, way: str) -> None:
    make = (WHOLE | OF_SAMPLES)[form]

    with pipeline_of((ending(lambda number: make(batch_of(number)), 4), {}), way=way) as pipe:
        batches = [outputs[0] for outputs in pipe]

    assert [batches_in([batch]) for batch in batches] == [0, 1, 2, 3]
    assert {(batch.dtype, tuple(batch.shape())) for batch in batches} == {(DALIDataType.INT64, ((3,),) * 4)}


@pytest.mark.parametrize("form", WHOLE)
@in_both_places
def test_array_stays_one_array(form: str, way: str) -> None:
    """From the first batch on, before the schema is known."""
    sizes = [3, 4, 1, 4]

    with pipeline_of((ending(lambda number: WHOLE[form](batch_of(number, sizes[number])), 4), {}), way=way) as pipe:
        space = space_of(pipe)
        for number, (batch,) in enumerate(pipe):
            assert batch.is_dense_tensor()
            array = batch.as_array()
            np.testing.assert_array_equal(array, batch_of(number, sizes[number]), strict=True)
            assert array.flags.c_contiguous
            address = array.__array_interface__["data"][0]
            assert space.address <= address < space.address + space.size  # no copy has been made of it


@pytest.mark.parametrize("form", ["list", "list of numbers", "list of NumPy's numbers", "array", "tuple of both"])
@in_both_places
def test_samples_may_be_scalars(form: str, way: str) -> None:
    make: dict[str, Callable[[list[int]], Any]] = {
        "list": lambda numbers: [np.array(number) for number in numbers],
        "list of numbers": list,
        "list of NumPy's numbers": lambda numbers: list(np.array(numbers)),
        "array": np.array,
        "tuple of both": lambda numbers: (numbers[0], *np.array(numbers[1:])),
    }

    with pipeline_of((ending(lambda number: make[form](batch_of(number)[:, 0].tolist()), 3), {}), way=way) as pipe:
        batches = [outputs[0] for outputs in pipe]

    assert [batches_in([batch]) for batch in batches] == [0, 1, 2]
    assert all(batch.shape() == [()] * 4 for batch in batches)


@in_both_places
def test_samples_may_have_different_shapes(way: str) -> None:
    def source(number: int) -> Any:
        return [np.full((number + i, 2), 100 * number + i) for i in range(1, BATCH_SIZE)]

    with pipeline_of((ending(source, 4), {}), way=way) as pipe:
        for number, (batch,) in enumerate(pipe):
            assert batch.shape() == [(number + i, 2) for i in range(1, BATCH_SIZE)]
            assert numbers_in(batch) == [100 * number + i for i in range(1, BATCH_SIZE)]


@pytest.mark.parametrize("form", ["list", "array", "TensorListCPU"])
@in_both_places
def test_batch_may_have_any_size_up_to_the_largest(form: str, way: str) -> None:
    sizes = [0, 3, 4, 0, 1, 4, 2, 0]
    make: dict[str, Callable[[NDArray[Any]], Any]] = {"list": list, "array": np.asarray, "TensorListCPU": TensorListCPU}

    with pipeline_of((ending(lambda i: make[form](batch_of(i, sizes[i])), len(sizes)), {}), way=way) as pipe:
        seen = [outputs[0] for outputs in pipe]

    assert [len(batch) for batch in seen] == sizes
    assert [numbers_in(batch) for batch in seen] == [batch_of(i, size)[:, 0].tolist() for i, size in enumerate(sizes)]
    assert {batch.dtype for batch in seen[1:]} == {DALIDataType.INT64}


@in_both_places
def test_all_batches_may_be_empty(way: str) -> None:
    with pipeline_of((ending(lambda number: [], 5), {}), way=way) as pipe:
        assert [len(outputs[0]) for outputs in pipe] == [0] * 5
        pipe.reset()
        assert len(pipe.run()[0]) == 0


@in_both_places
def test_empty_batches_pass_through_operators(way: str) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    jpeg = np.frombuffer(simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8)), np.uint8)
    pipe = Pipeline(BATCH_SIZE, 2, py_num_workers=1)
    encoded = fn.external_source(lambda number: [jpeg] * (number % 3), batch=True, parallel=way != "serial")
    pipe.set_outputs(fn.decoders.image(encoded))

    with contextlib.closing(pipe):
        assert [pipe.run()[0].shape() for _ in range(4)] == [[(8, 8, 3)] * (i % 3) for i in range(4)]


@in_both_places
def test_samples_may_be_without_elements(way: str) -> None:
    shapes = [(4, 0), (4, 0, 3), (4, 3, 0)]

    def outputs_of(number: int) -> Any:
        return [np.zeros(shape, np.float32) for shape in shapes]

    with pipeline_of((ending(outputs_of, 3), {"num_outputs": 3}), way=way) as pipe:
        for outputs in pipe:
            assert [output.as_array().shape for output in outputs] == shapes


@in_both_places
def test_batch_of_objects(way: str) -> None:
    def source(number: int) -> Any:
        objects = [{"number": number}, None, "text", number]
        return np.array(objects, object) if number % 2 else objects

    with pipeline_of((ending(source, 4), {"dtype": OBJECT}), way=way) as pipe:
        assert [outputs[0] for outputs in pipe] == [[{"number": i}, None, "text", i] for i in range(4)]


@pytest.mark.parametrize("container", [tuple, list])
@pytest.mark.parametrize("num_outputs", [1, 2, 3])
@in_both_places
def test_outputs_are_batches_each_in_its_own_form(num_outputs: int, container: Callable[..., Any], way: str) -> None:
    schemas: list[Callable[[NDArray[Any]], Any]] = [np.asarray, list, TensorListCPU]

    def source(number: int) -> Any:
        return container(schemas[(number + j) % 3](batch_of(number)) for j in range(num_outputs))

    with pipeline_of((ending(source, 7), {"num_outputs": num_outputs}), way=way) as pipe:
        assert len(pipe.run()) == num_outputs
        assert outcomes(pipe, 7) == epoch_of(7)[1:]


def test_each_output_has_rows_of_its_own() -> None:
    """One of them changes its shape while the other does not."""

    def source(number: int) -> Any:
        return batch_of(number), batch_of(number, width=number % 3 + 1)

    with pipeline_of((ending(source, 9), {"num_outputs": 2})) as pipe:
        seen = [([output.as_array().shape[1] for output in outputs], batches_in(outputs)) for outputs in pipe]

    assert seen == [([3, i % 3 + 1], i) for i in range(9)]


#: The samples of a batch: how many there are, their lengths in turn, and the form of the batch.
one_batch = st.tuples(
    st.integers(0, 5), st.lists(st.sampled_from([0, 1, 3, 1000]), min_size=1, max_size=3), st.sampled_from(["list", "array"])
)


@pytest.mark.parametrize("way", ["serial", "fork"])
@given(batches=st.lists(st.tuples(one_batch, one_batch), min_size=1, max_size=12))
@settings(max_examples=15, deadline=None)
def test_any_sequence_of_batches(way: str, batches: list[Any]) -> None:
    def make(number: int, output: int) -> Any:
        (size, _, _), (_, lengths, form) = batches[number][0], batches[number][output]
        if form == "array":
            return np.full((size, lengths[0]), 10 * number + output, np.uint16)
        return [np.full(lengths[i % len(lengths)], 10 * number + output, np.uint16) for i in range(size)]

    source = ending(lambda number: (make(number, 0), make(number, 1)), len(batches))
    with pipeline_of((source, {"num_outputs": 2}), way=way, batch_size=5) as pipe:
        seen = list(pipe)

    assert len(seen) == len(batches)
    for number, outputs in enumerate(seen):
        for j, output in enumerate(outputs):
            expected = make(number, j)
            assert len(output) == len(expected)
            for got, sample in zip(output, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(got), sample, strict=True)


# Room


@pytest.mark.parametrize("form", ["array", "list"])
@in_both_places
def test_batches_may_grow(form: str, way: str) -> None:
    widths = [10, 10, MIB // 4, 10, MIB, 20]
    make = {"array": np.asarray, "list": list}[form]

    with pipeline_of((ending(lambda i: make(batch_of(i, width=widths[i])), 6), {}), way=way) as pipe:
        seen = [(batches_in(outputs), outputs[0].at(0).size) for outputs in pipe]

    assert seen == list(enumerate(widths))


@in_both_places
def test_batches_that_are_held_do_not_change(way: str) -> None:
    def source(number: int) -> Any:
        batch = batch_of(number, number % BATCH_SIZE + 1, width=number % 3 + 1)
        return batch if number % 4 else list(batch)

    with pipeline_of((ending(source, 60), {}), way=way) as pipe:
        held = [pipe.run() for _ in range(60)]

    assert [(batches_in(outputs), len(outputs[0])) for outputs in held] == [(i, i % BATCH_SIZE + 1) for i in range(60)]


@pytest.mark.parametrize("way", ["serial", "fork"])  # worker threads would share the array
def test_source_may_use_its_array_again(way: str) -> None:
    array = np.zeros((BATCH_SIZE, 1000), np.int64)

    def source(number: int) -> Any:
        array[:] = batch_of(number)[:, :1]
        return array if number % 2 else list(array)

    with pipeline_of((ending(source, 6), {}), way=way, prefetch_queue_depth=4) as pipe:
        held = list(pipe)

    assert [batches_in(outputs) for outputs in held] == list(range(6))


@in_both_places
def test_want_of_memory_costs_nothing_but_an_error(way: str) -> None:
    calls = []

    def source(number: int) -> Any:
        calls.append(number)
        return [np.full(MIB // 8 + i, 100 * number + i) for i in range(BATCH_SIZE)]

    with pipeline_of((source, {}), way=way, max_held_bytes=24 * MIB) as pipe:
        held, seen = [], []
        while len(seen) < 20:
            try:
                held.append(pipe.run())
                seen.append(batches_in(held[-1]))
            except errors.OutOfMemoryError:
                held.clear()

    assert seen == list(range(20))
    assert way != "serial" or calls == sorted(set(calls))  # samples that found no memory are not made again


# Refused results


class Wrong(NamedTuple):
    """A result of a source, and the exception that follows: its class, a builtin base, and words of its message."""

    batch: Callable[[], Any]
    error: type[Exception]
    builtin: type[Exception]
    words: Sequence[str]


async def coroutine() -> None:
    pass


class OnGpu:
    """As PyTorch's tensors say where they are."""

    is_cuda = True


GOOD = batch_of(0)
REFUSED = {
    "too large array": Wrong(
        lambda: np.zeros((5, 3)), errors.BatchSizeError, RuntimeError, ("batch_size <= 4, actual: 5", "first dimension")
    ),
    "too large list": Wrong(lambda: [GOOD[0]] * 7, errors.BatchSizeError, RuntimeError, ("batch_size <= 4, actual: 7",)),
    "array without dimensions": Wrong(
        lambda: np.array(3), errors.SampleTypeError, TypeError, ("shape ()", "counts the samples", "batch=False")
    ),
    "number": Wrong(lambda: 3, errors.SampleTypeError, TypeError, ("an int", "counts the samples", "batch=False")),
    "nothing": Wrong(lambda: None, errors.SampleTypeError, TypeError, ("None", "return")),
    "nothing as a sample": Wrong(lambda: [*GOOD[:2], None], errors.SampleTypeError, TypeError, ("None", "return")),
    "string": Wrong(lambda: "text", errors.SampleTypeError, TypeError, ("str", "np.frombuffer")),
    "bytes": Wrong(lambda: b"abc", errors.SampleTypeError, TypeError, ("bytes", "np.frombuffer")),
    "dictionary": Wrong(lambda: {"a": GOOD}, errors.SampleTypeError, TypeError, ("dict",)),
    "set": Wrong(lambda: {1, 2}, errors.SampleTypeError, TypeError, ("set", "not an array")),
    "generator": Wrong(
        lambda: (sample for sample in GOOD), errors.SampleTypeError, TypeError, ("generator", "not an array")
    ),
    "coroutine": Wrong(coroutine, errors.SampleTypeError, TypeError, ("coroutine", "async def")),
    "coroutine as a sample": Wrong(lambda: [coroutine()], errors.SampleTypeError, TypeError, ("coroutine", "async def")),
    "lists as samples": Wrong(
        GOOD.tolist, errors.SampleTypeError, TypeError, ("returned a list", "np.array()", "num_outputs=")
    ),
    "objects": Wrong(lambda: GOOD.astype(object), errors.SampleDtypeError, ValueError, ("dtype object", "tensors cannot")),
    "objects as samples": Wrong(lambda: [GOOD[0].astype(object)], errors.SampleDtypeError, ValueError, ("dtype object",)),
    "complex numbers": Wrong(lambda: GOOD * 1j, errors.SampleDtypeError, ValueError, ("complex128", "tensors cannot")),
    "dates": Wrong(lambda: np.zeros((4, 2), "M8[s]"), errors.SampleDtypeError, ValueError, ("datetime64",)),
    "strings": Wrong(lambda: np.array(["a", "b"]), errors.SampleDtypeError, ValueError, ("<U1",)),
    "records": Wrong(lambda: np.zeros(4, "i4,f4"), errors.SampleDtypeError, ValueError, ("f0",)),
    "too many dimensions": Wrong(
        lambda: np.zeros((4, *(1,) * 13)), errors.SampleTypeError, TypeError, ("14 dimensions", "at most 13")
    ),
    "samples of too many dimensions": Wrong(
        lambda: [np.zeros((1,) * 13)] * 4, errors.SampleTypeError, TypeError, ("13 dimensions", "at most 12")
    ),
    "on a GPU": Wrong(OnGpu, errors.SampleTypeError, TypeError, ("GPU", ".gpu()")),
    "samples on a GPU": Wrong(lambda: [OnGpu()], errors.SampleTypeError, TypeError, ("GPU", ".gpu()")),
    "another dtype": Wrong(lambda: GOOD.astype(float), errors.DtypeMismatchError, RuntimeError, ("float64", "int64")),
    "another dtype in a list": Wrong(
        lambda: [GOOD[0], GOOD[1].astype(float)], errors.DtypeMismatchError, RuntimeError, ("float64", "int64")
    ),
    "another number of dimensions": Wrong(
        lambda: GOOD[..., None], errors.NdimMismatchError, RuntimeError, ("2 dimensions", "had 1")
    ),
    "another number of dimensions in a list": Wrong(
        lambda: [GOOD[0], GOOD[1, 0]], errors.NdimMismatchError, RuntimeError, ("0 dimensions", "had 1")
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@in_both_places
def test_wrong_batch_is_an_error_and_all_others_are_right(case: str, way: str) -> None:
    def source(number: int) -> Any:
        return REFUSED[case].batch() if number == 2 else batch_of(number)

    with pipeline_of((ending(source, 5), {"name": "batches"}), way=way) as pipe:
        assert outcomes(pipe, 2) == [0, 1]
        with pytest.raises(REFUSED[case].error) as caught:
            pipe.run()
        assert outcomes(pipe, 3) == [3, 4, END]

    error = caught.value
    assert type(error) is REFUSED[case].error
    assert isinstance(error, REFUSED[case].builtin)
    assert "'batches'" in str(error)
    assert all(word in str(error) for word in REFUSED[case].words), str(error)
    assert "iteration 2 in epoch 0" in "".join(error.__notes__)


def differs_within(case: str) -> bool:
    """Whether a batch is wrong though nothing is known of it yet."""
    return not case.startswith("another") or case.endswith("in a list")


@pytest.mark.parametrize("case", list(filter(differs_within, REFUSED)))
@in_both_places
def test_first_batch_may_be_wrong(case: str, way: str) -> None:
    def source(number: int) -> Any:
        return batch_of(number) if number else REFUSED[case].batch()

    with pipeline_of((ending(source, 4), {}), way=way) as pipe:
        assert outcomes(pipe, 5) == [REFUSED[case].error.__name__, 1, 2, 3, END]


REFUSED_OUTPUTS = {
    "one array": Wrong(
        lambda: GOOD, errors.OutputCountError, IndexError, ("shape (4, 3)", "num_outputs=2", "batches, one for each output")
    ),
    "one too few": Wrong(lambda: (GOOD,), errors.OutputCountError, IndexError, ("returned 1 outputs", "num_outputs=1")),
    "one too many": Wrong(lambda: (GOOD,) * 3, errors.OutputCountError, ValueError, ("returned 3 outputs", "num_outputs=3")),
    "nothing": Wrong(lambda: None, errors.SampleTypeError, TypeError, ("None", "ends without a return")),
    "coroutine": Wrong(coroutine, errors.SampleTypeError, TypeError, ("coroutine", "async def")),
    "different sizes": Wrong(
        lambda: (GOOD, list(GOOD[:3])), errors.BatchSizeError, RuntimeError, ("Batch size clash", "[4, 3]")
    ),
    "one empty": Wrong(lambda: (GOOD, []), errors.BatchSizeError, RuntimeError, ("Batch size clash", "[4, 0]")),
    "second too large": Wrong(
        lambda: (GOOD, [GOOD[0]] * 5), errors.BatchSizeError, RuntimeError, ("batch_size <= 4, actual: 5",)
    ),
    "second a number": Wrong(lambda: (GOOD, 7), errors.SampleTypeError, TypeError, ("an int", "output 1")),
    "second of another dtype": Wrong(
        lambda: (GOOD, GOOD.astype("f4")), errors.DtypeMismatchError, RuntimeError, ("output 1", "float32", "int64")
    ),
}


@pytest.mark.parametrize("case", REFUSED_OUTPUTS)
@in_both_places
def test_wrong_outputs_are_an_error_and_all_others_are_right(case: str, way: str) -> None:
    def source(number: int) -> Any:
        return REFUSED_OUTPUTS[case].batch() if number == 2 else (batch_of(number), list(batch_of(number)))

    with pipeline_of((ending(source, 5), {"num_outputs": 2}), way=way) as pipe:
        assert outcomes(pipe, 2) == [0, 1]
        with pytest.raises(REFUSED_OUTPUTS[case].error) as caught:
            pipe.run()
        assert outcomes(pipe, 3) == [3, 4, END]

    assert isinstance(caught.value, REFUSED_OUTPUTS[case].builtin)
    assert all(word in str(caught.value) for word in REFUSED_OUTPUTS[case].words), str(caught.value)


@in_both_places
def test_declared_types_are_those_of_samples(way: str) -> None:
    schemas: list[Callable[[NDArray[Any]], Any]] = [np.asarray, list]

    for form in schemas:
        for options in ({"dtype": np.float32}, {"ndim": 2}, {"layout": "XY"}):
            with pipeline_of((ending(lambda i, form=form: form(batch_of(i)), 3), options), way=way) as pipe:
                name = "DtypeMismatchError" if "dtype" in options else "NdimMismatchError"
                assert outcomes(pipe, 4) == [name] * 3 + [END]
        with pipeline_of(
            (ending(lambda i, form=form: form(batch_of(i)), 3), {"layout": "X", "dtype": "i8"}), way=way
        ) as pipe:
            assert {outputs[0].layout() for outputs in pipe} == {"X"}


# Ends and errors


@pytest.mark.parametrize("length", [0, 1, 3])
def test_stop_iteration_ends_the_epoch(length: int, way: str) -> None:
    with pipeline_of((ending(batch_of, length), {}), way=way) as pipe:
        assert outcomes(pipe, 3 * length + 3) == 3 * epoch_of(length)


@in_both_places
def test_size_ends_the_epoch(way: str) -> None:
    with pipeline_of((batch_source, {"size": 3}), way=way) as pipe:
        assert len(pipe) == 3
        assert outcomes(pipe, 8) == 2 * epoch_of(3)


@in_both_places
def test_exception_costs_its_batch(way: str) -> None:
    def source(number: int) -> Any:
        if number in (0, 2):
            raise LookupError(f"no batch {number}")
        return batch_of(number)

    with pipeline_of((ending(source, 4), {}), way=way, prefetch_queue_depth=3) as pipe:
        assert outcomes(pipe, 10) == 2 * ["LookupError", 1, "LookupError", 3, END]


@in_both_places
def test_exception_at_the_end_of_another_source_is_dropped(way: str) -> None:
    def source(number: int) -> Any:
        if number >= 3:
            raise LookupError(f"no batch {number}")
        return batch_of(number)

    with pipeline_of((source, {}), (ending(batch_of, 3), {}), way=way) as pipe:
        assert outcomes(pipe, 8) == 2 * epoch_of(3)


def failing(*numbers: int) -> Callable[[int], Any]:
    """Two outputs. In some batches the first output is valid, though different, and the second is not."""

    def source(number: int) -> Any:
        if number in numbers:
            return [np.full(7, -number)] * BATCH_SIZE, [None] * BATCH_SIZE
        return batch_of(number), batch_of(number)

    return ending(source, 6)


@in_both_places
def test_skipping_takes_the_next_batch_that_succeeds(way: str) -> None:
    options = {"num_outputs": 2, "on_error": "skip"}

    with pipeline_of((failing(2, 3), options), way=way) as pipe:
        assert outcomes(pipe, 7) == [0, 1, 4, 4, 4, 5, END]
        assert pipe.statistics().replaced_samples == 2


@in_both_places
def test_skipping_beyond_the_end_finds_nothing(way: str) -> None:
    with pipeline_of((failing(4, 5), {"num_outputs": 2, "on_error": "skip"}), way=way) as pipe:
        assert outcomes(pipe, 7) == [0, 1, 2, 3, "SampleTypeError", "SampleTypeError", END]


@pytest.mark.parametrize("form", ["array", "list"])
@in_both_places
def test_the_whole_replacement_of_a_batch_is_delivered(form: str, way: str) -> None:
    """The whole replacement, and nothing of the batch that it replaces."""

    def replacement(info: BatchInfo, error: Exception) -> Any:
        assert isinstance(error, errors.SampleTypeError)
        batch = batch_of(info.iteration)
        return batch, batch if form == "array" else list(batch)

    options = {"num_outputs": 2, "on_error": replacement}
    with pipeline_of((failing(0, 3, 4), options), way=way) as pipe:
        assert outcomes(pipe, 7) == epoch_of(6)


@in_both_places
def test_replacement_may_be_smaller(way: str) -> None:
    options = {"num_outputs": 2, "on_error": lambda info, error: (batch_of(info.iteration, 2), batch_of(info.iteration, 2))}

    with pipeline_of((failing(3), options), way=way) as pipe:
        seen = outcomes(pipe, 6, lambda outputs: [batches_in(outputs), len(outputs[0])])

    assert seen == [[i, 2 if i == 3 else 4] for i in range(6)]


@in_both_places
def test_replacement_may_need_more_room(way: str) -> None:
    def replacement(info: BatchInfo, error: Exception) -> Any:
        return [[np.full(MIB // 2 + i, 100 * info.iteration + i) for i in range(BATCH_SIZE)]] * 2

    with pipeline_of((failing(3, 4), {"num_outputs": 2, "on_error": replacement}), way=way) as pipe:
        assert outcomes(pipe, 7) == epoch_of(6)


@in_both_places
def test_replacement_must_be_right_too(way: str) -> None:
    options = {"num_outputs": 2, "on_error": lambda info, error: (batch_of(3), batch_of(3, 2)), "name": "batches"}

    with pipeline_of((failing(3), options), way=way) as pipe:
        assert outcomes(pipe, 3) == [0, 1, 2]
        with pytest.raises(errors.BatchSizeError, match=r"on_error of .*'batches'"):
            pipe.run()
        assert outcome(pipe) == 4
