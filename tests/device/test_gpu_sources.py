"""Sources and inputs whose arrays are on a simulated GPU already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.data import ComposedDataset
from dali_like.errors import (
    BatchSizeError,
    DtypeMismatchError,
    LayoutMismatchError,
    NdimMismatchError,
    OutOfMemoryError,
    SampleTypeError,
)
from dali_like.tensors import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU
from dali_like.testing.simulated_device import SimulatedArray, SimulatedDevice

Gpus = list[SimulatedDevice]
BATCH = 4


def define(source: Any, num_outputs: int | None = None, batch_size: int = BATCH, **options: Any) -> Any:
    @pipeline_def(batch_size=batch_size, num_threads=1, device_id=0)
    def pipeline() -> Any:
        nodes = fn.external_source(source, num_outputs, **{"device": "gpu", "batch": False, **options})
        return tuple(nodes) if num_outputs else nodes

    return pipeline()


def numbers_of(batch: TensorListGPU) -> list[Any]:
    return [np.asarray(sample).tolist() for sample in batch.as_cpu()]


def on_gpu(info: Any) -> SimulatedArray:
    return SimulatedArray(np.full((2,), info.idx_in_epoch, np.int32))


def test_samples_on_the_gpu_make_one_tensor(gpus: Gpus) -> None:
    with closing(define(on_gpu)) as pipe:
        for i in range(5):
            (batch,) = pipe.run()
            assert numbers_of(batch) == [[n, n] for n in range(BATCH * i, BATCH * (i + 1))]
            assert batch.as_tensor().shape() == [BATCH, 2]
        assert not gpus[0].copies  # no copy from the host


def test_samples_of_different_shapes_come_as_they_are(gpus: Gpus) -> None:
    with closing(define(lambda info: SimulatedArray(np.arange(info.idx_in_batch + 1)))) as pipe:
        assert numbers_of(pipe.run()[0]) == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("form", ["array", "list", "tensors"])
def test_batches_on_the_gpu_come_in_every_form(form: str, gpus: Gpus) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(3, 2)
    schemas: dict[str, Callable[[], Any]] = {
        "array": lambda: Sized(array),
        "list": lambda: [SimulatedArray(row) for row in array],
        "tensors": lambda: TensorListGPU(SimulatedArray(array)),
    }

    with closing(define(lambda i: schemas[form](), batch=True)) as pipe:
        assert numbers_of(pipe.run()[0]) == array.tolist()


class Sized(SimulatedArray):
    """An array with a length, like a CuPy array or a PyTorch tensor."""

    def __len__(self) -> int:
        return len(self.array)


ROW = np.zeros((3, 4), np.uint8)


@pytest.mark.parametrize(
    ("make", "is_batch"),
    [
        (lambda i: TensorListGPU(SimulatedArray([ROW] * BATCH), "HW"), True),
        (lambda i: [TensorGPU(SimulatedArray(ROW), "HW")] * BATCH, True),
        (lambda i: TensorListCPU([ROW] * BATCH, "HW"), True),
        (lambda i: [TensorCPU(ROW, "HW")] * BATCH, True),
        (lambda info: TensorGPU(SimulatedArray(ROW), "HW"), False),
    ],
    ids=["list on the GPU", "tensors on the GPU", "list on the CPU", "tensors on the CPU", "samples"],
)
@pytest.mark.parametrize("declared", [None, "WH"])
def test_layouts_of_tensors_are_those_of_the_batch(make: Any, is_batch: bool, declared: str | None, gpus: Gpus) -> None:
    with closing(define(make, batch=is_batch, layout=declared)) as pipe:
        assert [pipe.run()[0].layout() for _ in range(2)] == [declared or "HW"] * 2


def test_the_layout_stays(gpus: Gpus) -> None:
    layouts = iter(["HW", "WH"])
    with closing(define(lambda i: [TensorGPU(SimulatedArray(ROW), next(layouts))] * 2, batch=True)) as pipe:
        pipe.run()
        with pytest.raises(LayoutMismatchError, match='"HW" and got: "WH"'):
            pipe.run()


def test_elements_of_logical_shards_may_be_on_the_gpu(gpus: Gpus) -> None:
    dataset = ComposedDataset.source(range(11)).filter(lambda x: x != 5).with_options(shards=2)
    as_arrays = dataset.map(lambda x: SimulatedArray(np.full((2,), x, np.int32)))

    with closing(define(as_arrays)) as pipe:
        batches = [numbers_of(pipe.run()[0]) for _ in range(3)]
        with pytest.raises(StopIteration):
            pipe.run()

    assert [[x for x, _ in batch] for batch in batches] == [[0, 1, 2, 3], [4, 7, 6, 9], [8, 10]]


def test_one_of_two_outputs_may_be_on_the_gpu(gpus: Gpus) -> None:
    with closing(define(lambda info: (on_gpu(info), np.array(info.idx_in_batch)), 2)) as pipe:
        first, second = pipe.run()

        assert numbers_of(first) == [[n, n] for n in range(BATCH)]
        assert numbers_of(second) == list(range(BATCH))


def test_arrays_on_the_cpu_may_be_overwritten_by_the_source(gpus: Gpus) -> None:
    buffer = np.zeros(2)

    def reuse(info: Any) -> Any:
        buffer[:] = info.idx_in_epoch
        return buffer

    with closing(define(reuse)) as pipe:
        assert numbers_of(pipe.run()[0]) == [[n, n] for n in range(BATCH)]
        assert numbers_of(pipe.run()[0]) == [[n, n] for n in range(BATCH, 2 * BATCH)]


def test_a_batch_does_not_change_when_the_source_overwrites_its_arrays(gpus: Gpus) -> None:
    array = np.zeros((BATCH, 2))

    def reuse(i: int) -> Any:
        gpus[0].launch(lambda: array.fill(i))  # like a kernel of the source
        return Sized(array)

    with closing(define(reuse, batch=True)) as pipe:
        batches = [pipe.run()[0] for _ in range(3)]
        gpus[0].run(0)  # the kernels do not wait for the copies unless they must
        assert [numbers_of(batch)[0] for batch in batches] == [[0, 0], [1, 1], [2, 2]]


def test_with_no_copy_a_batch_is_the_users_memory(gpus: Gpus) -> None:
    array = Sized(np.ones((BATCH, 2)))
    with closing(define(lambda i: array, batch=True, no_copy=True)) as pipe:
        assert pipe.run()[0].data_ptr() == array.__cuda_array_interface__["data"][0]


def test_with_no_copy_an_array_with_strides_is_copied_before_the_source_overwrites_it(gpus: Gpus) -> None:
    array = np.zeros((2, BATCH))

    def reuse(i: int) -> Any:
        gpus[0].launch(lambda: array.fill(i))
        return Sized(array.T)

    with closing(define(reuse, batch=True, no_copy=True)) as pipe:
        batches = [pipe.run()[0] for _ in range(3)]
        gpus[0].run(0)
        assert [numbers_of(batch)[0] for batch in batches] == [[0, 0], [1, 1], [2, 2]]


def test_the_copy_comes_behind_the_stream_that_has_made_the_arrays(gpus: Gpus) -> None:
    array = np.zeros((BATCH, 1))
    streams: list[int] = []

    def made_elsewhere(i: int) -> Any:
        streams.append(gpus[0].make_stream())
        gpus[0].launch(lambda: array.fill(5), streams[0])
        return Sized(array)

    class First:
        @property
        def ptr(self) -> int:
            return streams[0]

    with closing(define(made_elsewhere, batch=True, cuda_stream=First(), use_copy_kernel=True)) as pipe:
        assert numbers_of(pipe.run()[0]) == [[5]] * BATCH


def test_an_epoch_ends_where_the_source_says(gpus: Gpus) -> None:
    def five(info: Any) -> Any:
        if info.idx_in_epoch == 5:
            raise StopIteration
        return on_gpu(info)

    for policy, sizes in (("drop", [4]), ("partial", [4, 1]), ("fill", [4, 4])):
        with closing(define(five, last_batch_policy=policy)) as pipe:
            assert [[len(batch) for (batch,) in pipe] for _ in range(2)] == [sizes] * 2


def test_iterables_are_walked_through(gpus: Gpus) -> None:
    def batches() -> Iterator[Any]:
        for i in range(3):
            yield [SimulatedArray(np.array([i]))] * 2

    with closing(define(batches, batch=True)) as pipe:
        assert [[numbers_of(batch) for (batch,) in pipe] for _ in range(2)] == [[[[i]] * 2 for i in range(3)]] * 2


def test_errors_of_the_source_come_at_their_turn_and_the_next_run_goes_on(gpus: Gpus) -> None:
    def second_fails(info: Any) -> Any:
        if info.iteration == 1:
            raise ZeroDivisionError("no")
        return on_gpu(info)

    with closing(define(second_fails)) as pipe:
        pipe.run()
        with pytest.raises(ZeroDivisionError) as caught:
            pipe.run()
        assert "sample 0 of iteration 1" in caught.value.__notes__[0]
        assert numbers_of(pipe.run()[0])[0] == [2 * BATCH] * 2


def test_samples_that_fail_are_replaced(gpus: Gpus) -> None:
    def odd_fail(info: Any) -> Any:
        if info.idx_in_epoch % 2:
            raise ZeroDivisionError
        return on_gpu(info)

    with closing(define(odd_fail, on_error="skip")) as pipe:
        assert numbers_of(pipe.run()[0]) == [[0, 0], [2, 2], [2, 2], [4, 4]]
        assert pipe.statistics().replaced_samples >= 2


@pytest.mark.parametrize(
    ("source", "options", "error", "words"),
    [
        (lambda info: on_gpu(info) if info[1] else np.zeros(2), {}, SampleTypeError, "CPU and on a GPU"),
        (on_gpu, {"dtype": np.float32}, DtypeMismatchError, "int32"),
        (on_gpu, {"ndim": 2}, NdimMismatchError, "1 dimensions"),
        (lambda i: [SimulatedArray(np.zeros(1))] * 5, {"batch": True}, BatchSizeError, "batch_size <= 4, actual: 5"),
        (lambda info: SimulatedArray(np.zeros(2, complex)), {}, SampleTypeError, "dtype complex128"),
        (lambda info: None, {}, SampleTypeError, "None"),
    ],
)
def test_a_sample_that_cannot_be_delivered_is_named(
    source: Any, options: dict[str, Any], error: type[Exception], words: str, gpus: Gpus
) -> None:
    with closing(define(source, **options)) as pipe, pytest.raises(error, match=words):
        pipe.run()


def test_dtypes_are_fixed_by_the_first_batch(gpus: Gpus) -> None:
    with closing(define(lambda info: SimulatedArray(np.zeros(2, "if"[info.iteration])))) as pipe:
        pipe.run()
        with pytest.raises(DtypeMismatchError, match=r"float32.*int32"):
            pipe.run()


def test_setup_and_teardown_are_called_here(gpus: Gpus) -> None:
    calls: list[str] = []
    hooks = {"worker_setup": lambda: calls.append("setup"), "worker_teardown": lambda: calls.append("teardown")}
    with closing(define(on_gpu, **hooks)) as pipe:
        pipe.run()
        assert calls == ["setup"]
    assert calls == ["setup", "teardown"]


def test_each_teardown_is_called_even_if_another_one_raises(gpus: Gpus) -> None:
    calls: list[str] = []

    def fail() -> None:
        raise ConnectionError("lost")

    async def note() -> None:
        calls.append("teardown")

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return tuple(
            fn.external_source(on_gpu, device="gpu", batch=False, worker_teardown=hook) for hook in (note, fail, note)
        )

    pipe = pipeline()
    pipe.run()

    with pytest.raises(ConnectionError, match="lost"):
        pipe.close()

    assert calls == ["teardown", "teardown"]


def test_a_batch_that_finds_no_room_waits_for_it(gpus: Gpus) -> None:
    with closing(define(on_gpu)) as pipe:
        held = [pipe.run()]
        gpus[0].capacity_bytes = 0
        with pytest.raises(OutOfMemoryError):
            held.extend(iter(pipe))
        gpus[0].capacity_bytes = 1 << 20
        held.append(pipe.run())

        assert [numbers_of(batch)[0][0] for (batch,) in held] == [BATCH * i for i in range(len(held))]


# Inputs


def input_pipeline(**options: Any) -> Any:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(name="x", device="gpu", **options)

    return pipeline()


def test_arrays_on_the_gpu_can_be_fed(gpus: Gpus) -> None:
    with closing(input_pipeline()) as pipe:
        pipe.feed_input("x", [SimulatedArray(np.array([i])) for i in range(3)])
        pipe.feed_input("x", Sized(np.array([[7], [8]])))
        pipe.feed_input("x", [np.array([9])])

        assert [numbers_of(pipe.run()[0]) for _ in range(3)] == [[[0], [1], [2]], [[7], [8]], [[9]]]


def test_layouts_of_tensors_on_the_gpu_are_taken_over(gpus: Gpus) -> None:
    with closing(input_pipeline()) as pipe:
        (batch,) = pipe.run(x=TensorListGPU(SimulatedArray(np.zeros((2, 3, 4))), "HW"))

        assert (batch.layout(), batch.shape()) == ("HW", [(3, 4)] * 2)


def test_a_batch_fed_repeatedly_is_copied_each_time(gpus: Gpus) -> None:
    with closing(input_pipeline(repeat_last=True)) as pipe:
        pipe.feed_input("x", Sized(np.ones((2, 3))))
        first, second = pipe.run()[0], pipe.run()[0]

        assert first.data_ptr() != second.data_ptr()
        assert numbers_of(first) == numbers_of(second) == [[1, 1, 1]] * 2


def test_the_stream_that_is_fed_is_waited_for(gpus: Gpus) -> None:
    array = np.zeros((2, 1))
    with closing(input_pipeline()) as pipe:
        pipe.build()
        stream = gpus[0].make_stream()
        gpus[0].launch(lambda: array.fill(3), stream)

        pipe.feed_input("x", Sized(array), cuda_stream=stream)

        assert numbers_of(pipe.run()[0]) == [[3], [3]]


def test_arrays_on_the_gpu_are_for_inputs_that_want_them_there(gpus: Gpus) -> None:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(name="x").gpu()

    with closing(pipeline()) as pipe, pytest.raises(SampleTypeError, match="GPU"):
        pipe.feed_input("x", [SimulatedArray(np.zeros(2))])
