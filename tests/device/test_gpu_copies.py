"""Copies of batches to a simulated GPU: where their memory is, and when it is reused."""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def, types
from dali_like.device.copier import Copier
from dali_like.device.interface import OWN_STREAM
from dali_like.device.opening import substitute
from dali_like.errors import ClosedError, DeviceError, OutOfMemoryError
from dali_like.tensors.gpu_tensor_lists import TensorListGPU
from dali_like.testing.simulated_device import SimulatedDevice
from dali_like.types import SampleInfo
from tests.callbacks import ragged
from tests.internals import runtime_of

Gpus = list[SimulatedDevice]
BATCH = 4


def dense(info: SampleInfo) -> NDArray[Any]:
    return np.full((3, 5), info.idx_in_epoch, np.int32)


def flat(info: SampleInfo) -> NDArray[Any]:
    """Return samples whose size differs between batches, but not within a batch."""
    return np.full(info.iteration + 1, info.idx_in_epoch, np.int16)


def make(
    source: Callable[..., Any] = dense,
    *,
    outputs: Callable[[Any], Any] = lambda node: node.gpu(),
    parallel: bool = False,
    batch_size: int = BATCH,
    **options: Any,
) -> Pipeline:
    """Create a pipeline of one source; the test closes it."""

    @pipeline_def(batch_size=batch_size, num_threads=2, py_num_workers=1, **{"device_id": 0, **options})
    def pipeline() -> Any:
        return outputs(fn.external_source(source, batch=False, parallel=parallel))

    return pipeline()


def numbers_of(batch: Any) -> list[int]:
    """Return the number that fills each sample; -1 for a sample with several numbers."""
    on_cpu = batch.as_cpu()
    samples = [on_cpu.at(i) for i in range(len(on_cpu))]
    return [int(sample.flat[0]) if (sample == sample.flat[0]).all() else -1 for sample in samples]


def places_of(batch: TensorListGPU) -> list[int]:
    return [tensor.data_ptr() for tensor in batch]


def numbers_at(places: list[int]) -> list[int]:
    """Return the first number of each sample on the device now, without waiting."""
    return [int(np.frombuffer(ctypes.string_at(address, 4), np.int32)[0]) for address in places]


def expected(iteration: int, batch_size: int = BATCH) -> list[int]:
    return list(range(iteration * batch_size, (iteration + 1) * batch_size))


# Delivered batches


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("source", [dense, ragged, flat])
def test_batches_on_the_gpu_are_those_on_the_cpu(source: Any, parallel: bool, gpus: Gpus) -> None:
    with make(source, outputs=lambda node: (node.gpu(), node), parallel=parallel) as pipe:
        for i in range(10):
            on_gpu, on_cpu = pipe.run()
            assert (on_gpu.shape(), on_gpu.dtype, on_gpu.layout()) == (on_cpu.shape(), on_cpu.dtype, on_cpu.layout())
            assert numbers_of(on_gpu) == numbers_of(on_cpu) == expected(i)
    pipe.close()


def test_a_dense_batch_is_one_copy_from_locked_memory(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)

    pipe.run()
    pipe.run()  # the first batch fixes the layout of samples
    (device,) = gpus
    device.copies.clear()
    pipe.run()

    assert device.copies == [(BATCH * 3 * 5 * 4, True)]
    pipe.close()


def test_a_ragged_batch_is_packed_and_one_copy_from_locked_memory(gpus: Gpus) -> None:
    pipe = make(ragged, prefetch_queue_depth=1)

    for _ in range(3):
        pipe.run()
    (device,) = gpus
    assert len(device.copies) <= 4
    assert all(is_locked for _, is_locked in device.copies[1:])
    pipe.close()


def test_samples_that_turn_out_alike_are_one_tensor(gpus: Gpus) -> None:
    pipe = make(flat)

    (first,), (second,) = pipe.run(), pipe.run()

    assert [batch.as_tensor().shape() for batch in (first, second)] == [[BATCH, 1], [BATCH, 2]]
    assert second.as_tensor().data_ptr() == second.data_ptr() == second[0].data_ptr()
    pipe.close()


def test_results_of_operators_go_to_the_gpu_too(gpus: Gpus) -> None:
    pipe = make(ragged, outputs=lambda node: (node.shape().gpu(), node.shape(device="gpu"), node.gpu().shape()))

    with_gpu, with_device, on_cpu = pipe.run()

    assert np.array_equal(with_gpu.as_cpu().as_array(), on_cpu.as_array())
    assert np.array_equal(with_device.as_cpu().as_array(), on_cpu.as_array())
    pipe.close()


@pytest.mark.parametrize("num_threads", [1, 4], ids=["in workers", "in threads"])
def test_results_of_operators_go_to_the_gpu_from_workers_and_threads(num_threads: int, gpus: Gpus) -> None:
    @pipeline_def(batch_size=BATCH, num_threads=num_threads, device_id=0, py_num_workers=1)
    def pipeline() -> Any:
        source = fn.external_source(lambda info: dense(info)[..., np.newaxis], batch=False, parallel=True, layout="HWC")
        flipped = fn.flip(source, horizontal=1)
        return flipped.gpu(), flipped

    pipe = pipeline()
    for i in range(6):
        on_gpu, on_cpu = pipe.run()
        assert numbers_of(on_gpu) == expected(i)
        assert np.array_equal(on_gpu.as_cpu().as_array(), on_cpu.as_array())
    pipe.close()


def test_constants_go_to_the_gpu_too(gpus: Gpus) -> None:
    pipe = make(outputs=lambda node: (types.Constant([1, 2], device="gpu"), node))

    assert pipe.run()[0].as_cpu().as_array().tolist() == [[1, 2]] * BATCH
    pipe.close()


def test_device_of_a_source_is_that_of_its_nodes(gpus: Gpus) -> None:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0, py_num_workers=1)
    def pipeline() -> Any:
        node = fn.external_source(dense, batch=False, parallel=True, device="gpu")
        return node, node.cpu(), node.gpu()

    pipe = pipeline()
    a, b, c = pipe.run()
    assert [type(batch).__name__ for batch in (a, b, c)] == ["TensorListGPU", "TensorListCPU", "TensorListGPU"]
    assert numbers_of(a) == numbers_of(b) == numbers_of(c) == expected(0)
    pipe.close()


def test_an_empty_batch_arrives(gpus: Gpus) -> None:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(lambda i: [np.ones(3, np.uint8)] * (i % 2)).gpu()

    pipe = pipeline()
    assert [[len(batch) for batch in pipe.run()] for _ in range(4)] == [[0], [1], [0], [1]]
    pipe.close()


# Order and waiting


def test_copies_of_the_next_batches_are_begun_before_they_are_asked_for(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth={"cpu_size": 2, "gpu_size": 3})

    pipe.run()

    assert len(gpus[0].copies) == 4
    pipe.close()


def test_run_does_not_wait_for_the_copies(gpus: Gpus) -> None:
    pipe = make()

    pipe.run()

    assert gpus[0].num_waiting()  # nothing has waited for the copies
    pipe.close()


def test_default_stream_waits_for_the_copy(gpus: Gpus) -> None:
    pipe = make()
    (batch,) = pipe.run()
    seen: list[list[int]] = []

    gpus[0].launch(lambda: seen.append(numbers_at(places_of(batch))))
    assert not seen
    gpus[0].run(0)

    assert seen == [expected(0)]
    pipe.close()


def test_a_stream_that_run_is_given_waits_in_place_of_the_others(gpus: Gpus) -> None:
    pipe = make()
    pipe.run()
    stream = gpus[0].make_stream()
    seen: dict[str, list[int]] = {}
    waiting = gpus[0].num_waiting(0)

    (batch,) = pipe.run(stream)
    gpus[0].launch(lambda: seen.update(given=numbers_at(places_of(batch))), stream)

    assert gpus[0].num_waiting(0) == waiting
    gpus[0].run(stream)
    assert seen == {"given": expected(1)}
    pipe.close()


def test_scheduled_batches_are_waited_for_too(gpus: Gpus) -> None:
    pipe = make()
    pipe.schedule_run()
    stream = gpus[0].make_stream()

    (batch,) = pipe.share_outputs(cuda_stream=stream)
    gpus[0].run(stream)

    assert numbers_at(places_of(batch)) == expected(0)
    pipe.close()


# Memory in use by copies


@pytest.mark.parametrize("source", [dense, ragged])
def test_a_slot_is_not_used_again_before_its_copy_has_ended(source: Any, gpus: Gpus) -> None:
    pipe = make(source, prefetch_queue_depth=1)
    held = [pipe.run()[0] for _ in range(6)]  # no copy runs before the last batch is complete

    assert [numbers_of(batch) for batch in held] == [expected(i) for i in range(6)]
    pipe.close()


def test_a_slot_is_used_again_when_its_copy_has_ended(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)

    for _ in range(50):
        pipe.run()
        gpus[0].run()

    assert gpus[0].num_registrations <= 6
    pipe.close()


def test_the_process_does_not_run_ahead_of_the_gpu_without_end(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)

    for _ in range(100):
        pipe.run()

    assert gpus[0].num_registrations <= 16
    assert gpus[0].num_waiting() <= 100
    pipe.close()


def test_a_copier_keeps_a_bounded_number_of_arrays() -> None:
    copier = Copier(SimulatedDevice(), lambda nbytes: np.empty(nbytes, np.uint8))
    arrays = [np.zeros(4) for _ in range(20)]
    references = [weakref.ref(array) for array in arrays]
    while arrays:
        copier.send([arrays.pop(0)])

    assert sum(reference() is not None for reference in references) <= 8
    copier.close()


def test_slots_are_locked_once_each_and_those_of_another_shape_in_their_place(gpus: Gpus) -> None:
    pipe = make(dense)
    for _ in range(20):
        pipe.run()
        gpus[0].run()
    (device,) = gpus
    many = device.num_registrations

    for _ in range(20):
        pipe.run()
        device.run()

    assert device.num_registrations == many
    assert len(device.registered) <= many
    pipe.close()


def test_memory_of_the_gpu_is_used_again(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)
    for _ in range(10):
        pipe.run()
        gpus[0].run()
    (device,) = gpus
    free_bytes = device.free_bytes

    for _ in range(50):
        pipe.run()
        device.run()

    assert device.free_bytes == free_bytes
    pipe.close()


@pytest.mark.parametrize("order", [(0, OWN_STREAM), (OWN_STREAM, 0)], ids=["kernels first", "copies first"])
def test_memory_of_the_gpu_is_not_used_again_while_a_kernel_may_read_it(order: tuple[int, int], gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)
    seen: list[list[int]] = []

    for _ in range(12):
        (batch,) = pipe.run()
        kernel = functools.partial(lambda places: seen.append(numbers_at(places)), places_of(batch))
        gpus[0].launch(kernel)
        del batch  # while kernels that read it are still queued
    for stream in order:
        gpus[0].run(stream)

    assert seen == [expected(i) for i in range(12)]
    pipe.close()


def test_a_held_batch_keeps_its_memory_after_the_pipeline_has_been_closed(gpus: Gpus) -> None:
    pipe = make()
    (batch,) = pipe.run()
    tensor = batch.as_tensor()
    pipe.close()
    del batch

    assert (tensor.as_cpu().__array__()[:, 0, 0] == expected(0)).all()


def test_closing_waits_for_the_copies(gpus: Gpus) -> None:
    pipe = make()
    pipe.run()
    (device,) = gpus
    copier = runtime_of(pipe).copier  # otherwise it would wait on deletion
    assert device.num_waiting()

    pipe.close()

    assert copier is not None
    assert device.is_closed
    assert not device.num_waiting()
    assert not device.registered


def test_a_pipeline_that_is_dropped_while_copies_are_on_their_way_ends_them(gpus: Gpus) -> None:
    pipe = make()
    pipe.run()
    assert gpus[0].num_waiting()

    del pipe  # `gpus` checks that no page was unlocked before its copy ended


def test_another_thread_may_close_while_copies_are_on_their_way(gpus: Gpus) -> None:
    pipe = make()
    pipe.run()
    closing = threading.Thread(target=pipe.close)
    closing.start()
    closing.join()

    with pytest.raises(ClosedError):
        pipe.run()


def test_a_reset_drops_copies_that_are_on_their_way(gpus: Gpus) -> None:
    pipe = make()
    pipe.run()
    pipe.reset()

    assert [numbers_of(pipe.run()[0]) for _ in range(3)] == [expected(i) for i in range(3)]
    pipe.close()


def test_an_epoch_ends_and_the_next_begins(gpus: Gpus) -> None:
    def two_batches(info: SampleInfo) -> NDArray[Any]:
        if info.iteration == 2:
            raise StopIteration
        return dense(info)

    pipe = make(two_batches)
    for _ in range(3):
        assert [numbers_of(batch) for (batch,) in pipe] == [expected(0), expected(1)]
    pipe.close()


def test_items_prefetched_from_an_iterator_survive_a_reset(gpus: Gpus) -> None:
    @pipeline_def(batch_size=1, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(iter([[np.array([i])] for i in range(9)])).gpu()

    pipe = pipeline()
    seen = [numbers_of(pipe.run()[0])]
    pipe.reset()
    seen.append(numbers_of(pipe.run()[0]))

    assert seen == [[0], [1]]
    pipe.close()


def test_an_interrupt_amid_a_copy_costs_no_batch(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = make(prefetch_queue_depth=1)
    pipe.run()
    upload = gpus[0].upload

    def interrupt(*_: int) -> None:
        monkeypatch.setattr(gpus[0], "upload", upload)
        raise KeyboardInterrupt

    monkeypatch.setattr(gpus[0], "upload", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pipe.run()

    assert [numbers_of(pipe.run()[0]) for _ in range(3)] == [expected(i) for i in range(1, 4)]
    pipe.close()


def test_checkpoint_counts_delivered_batches_and_not_copied_ones(gpus: Gpus) -> None:
    pipe = make(enable_checkpointing=True, prefetch_queue_depth={"cpu_size": 2, "gpu_size": 4})
    for _ in range(3):
        pipe.run()

    resumed = make(checkpoint=pipe.checkpoint())

    assert numbers_of(resumed.run()[0]) == numbers_of(pipe.run()[0]) == expected(3)
    for one in (pipe, resumed):
        one.close()


@pytest.mark.parametrize("device_ids", [[0, 1], [0, 0]])
def test_two_pipelines_have_a_stream_each(device_ids: list[int], gpus: Gpus) -> None:
    pipes = [make(device_id=device_id) for device_id in device_ids]
    batches = [pipe.run()[0] for pipe in pipes]

    assert [batch.device_id() for batch in batches] == device_ids
    gpus[0].run()
    assert (gpus[0].num_waiting(), gpus[1].num_waiting() > 0) == (0, True)
    for pipe in pipes:
        pipe.close()


# Errors


def test_refused_locking_is_one_warning_and_copies_do_without() -> None:
    device = SimulatedDevice(refuses_to_lock=True)
    with substitute(lambda device_id: device):
        pipe = make(ragged, outputs=lambda node: (node.gpu(), node))
        with pytest.warns(UserWarning, match="not page-locked.*vm.max_map_count") as caught:
            batches = [pipe.run()[0] for _ in range(10)]
        assert [numbers_of(batch) for batch in batches] == [expected(i) for i in range(10)]
        pipe.close()

    assert len(caught) == 1
    assert not any(is_locked for _, is_locked in device.copies)


def test_a_copy_that_cannot_be_begun_costs_its_batch_and_no_other(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)
    assert numbers_of(pipe.run()[0]) == expected(0)

    gpus[0].fail()  # batch 1 is on the GPU already
    assert numbers_of(pipe.run()[0]) == expected(1)
    with pytest.raises(DeviceError, match="cudaErrorInvalidValue"):
        pipe.run()

    assert numbers_of(pipe.run()[0]) == expected(3)
    pipe.close()


def test_a_copy_that_fails_later_is_an_error_of_a_later_run(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)
    pipe.run()
    gpus[0].run()
    gpus[0].fail(when_carried_out=True)
    pipe.run()
    gpus[0].run()

    with pytest.raises(DeviceError, match="cudaErrorLaunchFailure"):
        pipe.run()

    assert len(pipe.run()[0]) == BATCH
    pipe.close()


def test_slots_come_back_from_copies_that_have_failed(gpus: Gpus) -> None:
    pipe = make(prefetch_queue_depth=1)
    failures = 0
    for i in range(40):
        if gpus and i % 2:
            gpus[0].fail(when_carried_out=bool(i % 4 == 1))
        try:
            pipe.run()
        except DeviceError:
            failures += 1
        gpus[0].run()

    assert failures >= 10
    assert gpus[0].num_registrations <= 12
    pipe.close()


def test_a_second_output_that_cannot_be_copied_leaves_the_first_one_time_to_end(gpus: Gpus) -> None:
    device = SimulatedDevice()
    gpus.append(device)
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    array = np.arange(8)
    device.register(array.__array_interface__["data"][0], array.nbytes)
    copies = iter([None, DeviceError("no")])
    upload = device.upload

    def upload_one(target: int, source: int, nbytes: int) -> None:
        upload(target, source, nbytes)
        if error := next(copies):
            raise error

    device.upload = upload_one  # type: ignore[method-assign]
    with pytest.raises(DeviceError):
        copier.send([array, array])

    assert not device.num_waiting()
    device.unregister(array.__array_interface__["data"][0])


def test_without_memory_on_the_gpu_the_batch_waits_for_a_later_call() -> None:
    device = SimulatedDevice(capacity_bytes=4 * 512)
    with substitute(lambda device_id: device):
        pipe = make(prefetch_queue_depth=1)
        held: list[Any] = []
        with pytest.raises(OutOfMemoryError, match=r"GPU 0.*MiB.*needed"):
            held.extend(iter(pipe))
        many = len(held)
        held.clear()

        assert numbers_of(pipe.run()[0]) == expected(many)
        pipe.close()
