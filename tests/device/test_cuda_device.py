"""`CudaDevice`, with a stand-in for CuPy."""

from __future__ import annotations

import ctypes
import functools
import gc
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dali_like import fn, pipeline_def
from dali_like.device.copier import Copier
from dali_like.device.cuda import CudaDevice
from dali_like.device.opening import substitute
from dali_like.device.pinned import PinnedMemory
from dali_like.errors import ArgumentTypeError, DeviceError, MissingExtraError, OutOfMemoryError
from dali_like.tensors import TensorGPU
from tests import nvimgcodec_stand_in
from tests.callbacks import ragged
from tests.cupy_stand_in import CAPTURE_UNSUPPORTED, GLOBAL, Array, CompileException, CUDADriverError, CupyStandIn
from tests.internals import pending_of, runtime_of, short_calls_of
from tests.nvimgcodec_stand_in import ColorSpec, DecodeParams

BATCH = 4


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[CupyStandIn]:
    module = CupyStandIn()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr("dali_like.device.cuda.driver", lambda: module.driver)
    with substitute(CudaDevice):
        yield module
    gc.collect()
    assert not module.libcuda.registered
    assert not module.libcuda.is_invalid


def number(info: Any) -> Any:
    return np.full((3, 5), info.idx_in_epoch, np.int32)


def make(source: Any = number, **options: Any) -> Any:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        node = fn.external_source(source, batch=False, **options)
        return node.gpu(), node.cpu()

    return pipeline()


@pytest.mark.parametrize("source", [number, ragged])
def test_batches_are_copied(source: Any, cupy: CupyStandIn) -> None:
    with closing(make(source)) as pipe:
        for _ in range(30):
            on_gpu, on_cpu = pipe.run()
            for copied, original in zip(on_gpu.as_cpu(), on_cpu, strict=True):
                assert np.array_equal(copied, original)
        assert cupy.libcuda.registered


def test_the_default_stream_waits_for_the_copy(cupy: CupyStandIn) -> None:
    with closing(make()) as pipe:
        on_gpu, on_cpu = pipe.run()
        assert np.array_equal(np.from_dlpack(on_gpu.as_tensor()), on_cpu.as_array())
        assert np.array_equal(on_gpu.as_array(), on_cpu.as_array())

        on_gpu.set_origin(str)
        assert (on_gpu[1].source_info(), on_gpu.as_cpu()[-1].source_info()) == ("1", str(len(on_gpu) - 1))
        assert on_gpu.as_tensor().__cuda_array_interface__["data"][0] == on_gpu.data_ptr()


def test_buffers_wait_for_the_users_kernels(cupy: CupyStandIn) -> None:
    seen: list[int] = []

    def look(address: int) -> None:
        seen.append(ctypes.c_int32.from_address(address).value)

    with closing(make()) as pipe:
        for _ in range(12):
            on_gpu, _ = pipe.run()
            cupy.launch(functools.partial(look, on_gpu.data_ptr()))
            del on_gpu
        cupy.run(runtime_of(pipe).device.stream)
        cupy.run()

    assert seen == list(range(0, 48, 4))


BASE = np.arange(24, dtype=np.float32).reshape(4, 6)


class OnGpu:
    """An array of the user's on the GPU, by the CUDA Array Interface."""

    def __init__(self, array: Any, stream: int | None = None, **more: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "stream": stream, **more}

    def __len__(self) -> int:
        return len(self.array)


@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize(
    "array", [BASE, BASE[:, ::2], BASE[::-1], BASE.T], ids=["contiguous", "strided", "reversed", "transposed"]
)
def test_arrays_on_the_gpu_are_taken_in(
    array: Any, by_kernel: bool, cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    @pipeline_def(batch_size=6, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(lambda i: OnGpu(array, stream=0), device="gpu", use_copy_kernel=by_kernel)

    kernels: list[Array] = []
    add = cupy.add
    monkeypatch.setattr(cupy, "add", lambda *args, **options: kernels.append(args[0]) or add(*args, **options))

    with closing(pipeline()) as pipe:
        assert np.array_equal(pipe.run()[0].as_cpu().as_array().reshape(array.shape), array)
    assert bool(kernels) == (by_kernel and array is BASE)


def test_an_array_on_a_gpu_can_be_wrapped(cupy: CupyStandIn) -> None:
    array = np.arange(6)
    by_dlpack = Array(cupy, array, None)

    tensor = TensorGPU(by_dlpack)
    assert np.array_equal(tensor.as_cpu(), array)
    assert tensor.__dlpack_device__() == (2, 0)
    with pytest.raises(ArgumentTypeError, match="not an array on a GPU"):
        TensorGPU(object())


def test_arrays_on_another_gpu_are_refused(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = Array(cupy, np.arange(6), None, device=1)
    monkeypatch.setattr(cupy, "from_dlpack", lambda value: value)
    with pytest.raises(ArgumentTypeError, match="an array on GPU 1 was given to a pipeline with device_id=0"):
        CudaDevice(0).adopt(elsewhere)


@pytest.mark.parametrize("is_gray", [False, True])
@pytest.mark.parametrize("is_upright", [False, True])
def test_images_are_decoded_by_one_codec_in_the_order_of_the_devices_stream(
    is_gray: bool, is_upright: bool, cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", nvimgcodec_stand_in)
    monkeypatch.setattr(nvimgcodec_stand_in.Decoder, "made", [], raising=False)
    device = CudaDevice(1)

    for _ in range(2):
        assert device.decode_images([b"one", b"two"], is_gray=is_gray, is_upright=is_upright) == [None, None]

    (decoder,) = nvimgcodec_stand_in.Decoder.made
    params = DecodeParams(apply_exif_orientation=is_upright, color_spec=ColorSpec.GRAY if is_gray else ColorSpec.SRGB)
    assert decoder.device_id == 1
    assert decoder.asked == [([b"one", b"two"], params, device.stream)] * 2


def test_a_codec_that_cannot_be_used_is_named(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> Any:
        raise RuntimeError("CUDA driver version is insufficient")

    monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", SimpleNamespace(Decoder=refuse, ColorSpec=ColorSpec))
    with pytest.raises(DeviceError, match="GPU 0: nvImageCodec has failed: CUDA driver version is insufficient"):
        CudaDevice(0).decode_images([b"one"], is_gray=False, is_upright=False)


def test_memory_needed_and_free_is_named(cupy: CupyStandIn) -> None:
    cupy.libcuda.limit = 1 << 20
    with pytest.raises(OutOfMemoryError, match=r"needs 2\.0 MiB of memory on GPU 0, which has 1\.0 MiB free of 2\.0 MiB"):
        CudaDevice(0).allocate(2 << 20)


def test_a_gpu_that_cannot_be_used_is_named(cupy: CupyStandIn) -> None:
    with pytest.raises(DeviceError, match=r"GPU 7 cannot be used: CUDA_ERROR_INVALID_DEVICE \(101\)"):
        CudaDevice(7)


def test_without_cupy_the_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingExtraError, match=r"needs cupy: pip install 'cupy-cuda13x.* or pip install 'cupy-cuda12x"):
        CudaDevice(0)


def test_refused_pages_are_no_error(cupy: CupyStandIn) -> None:
    cupy.libcuda.refuses = 2
    with closing(make()) as pipe, pytest.warns(UserWarning, match="CUDA_ERROR_OUT_OF_MEMORY"):
        pipe.run()


def test_a_gpu_that_fails_is_an_error_and_not_a_hang(cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    copier.send([np.ones(3)])
    (flight,) = pending_of(copier)
    cupy.libcuda.failed[flight.fence.events[0].handle.value] = 719  # type: ignore[attr-defined]

    with pytest.raises(DeviceError, match="failed before the end of a copy"):
        copier.settle()
    copier.close()


def test_current_streams_are_in_use(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CudaDevice(0)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    torch = SimpleNamespace(
        cuda=SimpleNamespace(
            is_initialized=lambda: True,
            current_stream=lambda device_id: SimpleNamespace(cuda_stream=streams[0].ptr),
        )
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    with streams[1]:
        cupy.launch(lambda: None, device.stream)
        device.hold(device.record(), None)

    assert [cupy.num_waiting(stream.ptr) for stream in streams] == [1, 1]
    assert cupy.num_waiting(0) == 1


def test_the_devices_own_stream_is_in_use(cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    cupy.launch(lambda: None, device.stream)

    fence = device.fence()

    assert not fence.passed()
    device.close()
    assert fence.passed()


def test_arrays_are_taken_in_behind_the_stream_that_they_name(cupy: CupyStandIn) -> None:
    device, stream, array = CudaDevice(0), cupy.cuda.Stream(non_blocking=True), np.zeros(3)
    cupy.launch(lambda: array.fill(7), stream.ptr)

    device.adopt(OnGpu(array, stream.ptr))
    device.close()  # waits for its own stream

    assert array.tolist() == [7, 7, 7]


def test_a_finalizer_amid_an_allocation_sees_the_users_stream(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CudaDevice(0)
    users = cupy.cuda.Stream(non_blocking=True)
    cupy.launch(lambda: None, users.ptr)
    fences: list[Any] = []
    alloc = cupy.cuda.alloc
    monkeypatch.setattr(cupy.cuda, "alloc", lambda size: fences.append(device.fence()) or alloc(size))

    with users:
        device.allocate(512)

    assert not fences[0].passed()
    users.synchronize()
    assert fences[0].passed()


def test_fences_that_cannot_be_made_wait_for_everything(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    device = CudaDevice(0)
    done: list[bool] = []
    cupy.launch(lambda: done.append(True))
    monkeypatch.setattr(cupy.libcuda, "cuEventRecord", lambda event, stream: 2)

    assert device.fence().passed()
    assert done


def test_at_the_end_of_the_interpreter_nothing_is_raised(cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    pinned = PinnedMemory(device, fenced=True)
    pinned.made(4096, 4096)
    cupy.libcuda.registered.clear()

    pinned.freed(4096)
    device.close()


def test_copies_are_timed_by_events(cupy: CupyStandIn) -> None:
    with closing(make()) as pipe:
        with pipe.trace() as trace:
            for _ in range(3):
                pipe.run()
        copies = [span for span in trace.records.spans if span.name == "to the GPU"]
    assert len(copies) >= 3
    ends = [end_ns for copy in copies for end_ns in (copy.begin_ns, copy.end_ns)]
    assert ends == sorted(ends)


def test_a_copy_on_a_gpu_that_has_failed_ends_where_times_are_counted_from(cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    begin_ns = time.monotonic_ns()
    stamp = device.stamp()
    end_ns = time.monotonic_ns()
    # Private: finds the event that the stand-in makes fail
    cupy.libcuda.failed[stamp._event.handle.value] = 700  # type: ignore[index]
    stamp.wait()
    time_ns = stamp.time_ns()
    assert time_ns is not None
    assert begin_ns <= time_ns <= end_ns


# Contexts


def test_a_process_that_works_on_another_gpu_leaves_the_first_one_alone(cupy: CupyStandIn) -> None:
    device = CudaDevice(1)
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    (sent,) = copier.send([np.arange(6)])
    copier.take_in([OnGpu(BASE.T)], is_dense=True, stream=None, copies=True, by_kernel=False)
    device.register(4096, 4096)
    device.unregister(4096)
    device.stamp().wait()
    del sent
    copier.close()
    device.close()

    assert cupy.libcuda.contexts == {1}
    assert cupy.libcuda.device == 0
    assert cupy.libcuda.thread.mode == GLOBAL


def interrupt_after(name: str, cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    call = getattr(short_calls_of(cupy.driver), name)

    def interrupted(argument: Any) -> Any:
        monkeypatch.setattr(short_calls_of(cupy.driver), name, call)
        status = call(argument)
        signal.raise_signal(signal.SIGINT)
        return status

    monkeypatch.setattr(short_calls_of(cupy.driver), name, interrupted)


@pytest.mark.parametrize("name", ["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode"])
def test_an_interrupt_leaves_the_threads_gpu_and_mode_as_they_were(
    name: str, cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice(1)
    interrupt_after(name, cupy, monkeypatch)

    with pytest.raises(KeyboardInterrupt):
        device.record()

    assert cupy.libcuda.thread.contexts == []
    assert cupy.libcuda.thread.mode == GLOBAL


def test_a_context_that_cannot_be_used_leaves_the_thread_as_it_was(
    cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice(1)
    monkeypatch.setattr(short_calls_of(cupy.driver), "cuCtxPushCurrent_v2", lambda context: 709)

    with pytest.raises(DeviceError, match="cannot be used"):
        device.record()

    assert cupy.libcuda.thread.mode == GLOBAL
    monkeypatch.undo()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_runtime_that_ignores_contexts_is_refused(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda, "Stream", lambda non_blocking: SimpleNamespace(device_id=0))
    with pytest.raises(DeviceError, match=r"uses GPU 0.*device_id=0"):
        CudaDevice(1)


def test_each_gpu_has_its_own_current_stream_of_cupy(cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = CudaDevice(0), CudaDevice(1)
    users = cupy.cuda.Stream(non_blocking=True)
    cupy.launch(lambda: None, users.ptr)
    fences: list[Any] = []
    alloc = cupy.cuda.alloc
    monkeypatch.setattr(cupy.cuda, "alloc", lambda size: fences.append(first.fence()) or alloc(size))

    with users:  # of the first GPU; a finalizer there runs amid an allocation on the second
        second.allocate(512)

    assert not fences[0].passed()


def test_memory_that_cupy_keeps_for_the_stream_is_freed_with_the_device(cupy: CupyStandIn) -> None:
    device = CudaDevice(1)
    device.close()

    assert cupy.freed_streams == [device.stream]


# Errors


@pytest.mark.parametrize("status", [1, 201, 400, 900, 906, 907, 908, 999])
def test_an_error_that_says_nothing_of_the_work_keeps_its_memory(status: int, cupy: CupyStandIn) -> None:
    fence: Any = CudaDevice(0).record()
    cupy.libcuda.failed[fence.events[0].handle.value] = status

    assert not fence.passed()
    assert fence.error is None


@pytest.mark.parametrize("status", [4, 214, 700, 709, 710, 719, 911])
def test_a_fatal_error_ends_the_wait_for_the_work(status: int, cupy: CupyStandIn) -> None:
    fence: Any = CudaDevice(0).record()
    cupy.libcuda.failed[fence.events[0].handle.value] = status

    assert fence.passed()
    assert isinstance(fence.error, DeviceError)


def test_errors_of_allocations_are_errors_of_this_library(cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    cupy.alloc_status = 2  # of an allocator without a pool
    with pytest.raises(OutOfMemoryError, match="on GPU 0"):
        device.allocate(512)
    cupy.alloc_status = 700
    with pytest.raises(DeviceError, match="GPU 0: memory cannot be allocated: cudaError700"):
        device.allocate(512)


@pytest.mark.parametrize("error", [CUDADriverError("CUDA_ERROR_LAUNCH_FAILED"), CompileException("no headers")])
def test_errors_of_kernels_are_errors_of_this_library(error: Exception, cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    cupy.launch_error = error
    with pytest.raises(DeviceError, match="GPU 0: a kernel that copies could not be launched"):
        device.gather(device.allocate(512).address, device.adopt(OnGpu(BASE.T)))


def test_masked_arrays_are_refused(cupy: CupyStandIn) -> None:
    with pytest.raises(ArgumentTypeError, match="masked"):
        CudaDevice(0).adopt(OnGpu(BASE, mask=BASE))


# Waiting


def test_waiting_for_copies_does_not_keep_a_core_busy(cupy: CupyStandIn) -> None:
    device = CudaDevice(0)
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    for _ in range(12):
        copier.send([np.ones(3)])
    copier.close()
    cupy.launch(lambda: None, device.stream)
    device.stamp().wait()
    cupy.launch(lambda: None, device.stream)
    device.close()

    assert cupy.num_waiting(device.stream) == 0
    assert cupy.libcuda.spun == 0


# Capture of graphs


@pytest.fixture
def capturing(cupy: CupyStandIn) -> Iterator[Any]:
    """The user's current stream, which captures a graph in the global mode, and may block the default stream."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        cupy.libcuda.capturing.add(stream.ptr)
        yield stream
    assert cupy.libcuda.capturing == {stream.ptr}
    assert not cupy.libcuda.is_invalid


@pytest.mark.parametrize("blocks_default_stream", [False, True])
def test_batches_arrive_during_a_capture_and_leave_it_valid(
    blocks_default_stream: bool, cupy: CupyStandIn, capturing: Any
) -> None:
    if blocks_default_stream:
        cupy.libcuda.blocking_streams.add(capturing.ptr)
    with closing(make(ragged)) as pipe:
        for _ in range(12):
            on_gpu, on_cpu = pipe.run()  # CUDA refuses to let the stream wait, so `run` waits for the copy
            for tensor, original in zip(on_gpu, on_cpu, strict=True):
                expected = np.asarray(original).tobytes()
                assert ctypes.string_at(tensor.data_ptr(), len(expected)) == expected
            del on_gpu, on_cpu, tensor, original


def test_fences_leave_out_streams_that_capture(cupy: CupyStandIn, capturing: Any) -> None:
    device = CudaDevice(0)
    cupy.launch(lambda: None, device.stream)
    fence = device.fence()
    assert not fence.passed()
    device.hold(fence)

    cupy.run(device.stream)
    assert fence.passed()


def test_arrays_are_not_taken_from_a_stream_that_captures(cupy: CupyStandIn, capturing: Any) -> None:
    device = CudaDevice(0)
    with pytest.raises(DeviceError, match=r"captures a CUDA graph.*before or after the capture"):
        device.fence_of(None)
    with pytest.raises(DeviceError, match="captures a CUDA graph"):
        device.adopt(OnGpu(BASE, capturing.ptr))
    with pytest.raises(DeviceError, match="captures a CUDA graph"):
        device.adopt(Array(cupy, BASE, None))


def test_memory_is_locked_and_unlocked_during_a_capture(cupy: CupyStandIn, capturing: Any) -> None:
    device = CudaDevice(0)
    device.register(4096, 4096)

    assert device.unregister(4096)


def test_a_fence_that_cannot_be_made_during_a_capture_passes_after_it(
    cupy: CupyStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice(0)
    cupy.launch(lambda: None, device.stream)
    with monkeypatch.context() as context:
        context.setattr(cupy.libcuda, "cuEventRecord", lambda event, stream: 2)
        context.setattr(cupy.libcuda, "cuCtxSynchronize", lambda: CAPTURE_UNSUPPORTED)
        fence = device.fence()
        assert not fence.passed()
        with pytest.raises(DeviceError):
            device.hold(fence)

    device.hold(fence)
    assert fence.passed()
    assert not cupy.num_waiting(device.stream)
