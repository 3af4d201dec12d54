"""Steps about memory: address space, page-locking, copies, checksums, and arrays of the user's on the GPU."""

from __future__ import annotations

import contextlib
import gc
import itertools
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.access import Figures, Gate, Gpu, check
from dali_like import Pipeline, fn, pipeline_def
from dali_like.device.copier import Copier
from dali_like.device.opening import open_device
from dali_like.device.pinned import PinnedMemory
from dali_like.engine.memory.space import SharedSpace
from dali_like.tensors import TensorGPU

MIB = 1 << 20
REGISTERED_MIB = (1, 16, 256, 1024)
KERNEL_S = 2.0
LOCKED_BYTES = 64 << 10
NUM_BATCHES = 100_000
MOST_GROWTH_MIB = 64.0
BATCH_SIZE = 16
#: Batches that `numbers` locks memory for.
LOCKED_BATCHES = 32
SAMPLE_SHAPE = (64, 64)


def start(gpu: Gpu, seconds: float) -> Figures:
    """Map four shared spaces, then initialize CUDA, which reserves address space as well."""
    spaces = [SharedSpace.create() for _ in range(4)]
    check(int(gpu.cupy.zeros(1)[0]) == 0, "cupy.zeros(1) is not zero")
    return {"address space of each, GiB": spaces[-1].size / 2**30}


def registration(gpu: Gpu, seconds: float) -> Figures:
    """Page-lock and unlock extents of several sizes, while the GPU is idle and behind a kernel of two seconds.

    NVIDIA's kernel module does not look at ``ulimit -l``, so it is set to 64 KiB here.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limit = LOCKED_BYTES if hard == resource.RLIM_INFINITY else min(LOCKED_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, hard))
    device = open_device(0)
    space = SharedSpace.create(limit_bytes=4 * max(REGISTERED_MIB) * MIB)
    figures: Figures = {}
    for size_mib in REGISTERED_MIB:
        offset = space.take(size_mib * MIB, size_mib * MIB)
        space.array(offset, (size_mib * MIB,), np.dtype(np.uint8))[:] = 1
        for kernel_s in (0.0, KERNEL_S):
            gpu.synchronize()
            if kernel_s:
                gpu.delay(kernel_s)
            # The second time shows that the first unlocking has succeeded: CUDA refuses to lock pages twice.
            times = [_lock_and_unlock(device, space.address + offset, size_mib * MIB) for _ in range(2)]
            where = "behind a kernel" if kernel_s else "idle"
            figures[f"{size_mib} MiB {where}, lock ms"], figures[f"{size_mib} MiB {where}, unlock ms"] = times[0]
        space.free(offset, size_mib * MIB)
    gpu.synchronize()
    return figures


def _lock_and_unlock(device: Any, address: int, nbytes: int) -> tuple[float, float]:
    begin = time.perf_counter()
    device.register(address, nbytes)
    locked = time.perf_counter()
    is_unlocked = device.unregister(address)
    unlocked = time.perf_counter()
    check(is_unlocked, f"CUDA refuses to unlock {nbytes // MIB} MiB")
    return (locked - begin) * 1e3, (unlocked - locked) * 1e3


def checksums(gpu: Gpu, seconds: float, num_batches: int = NUM_BATCHES) -> Figures:
    """Compare checksums of many batches on the GPU, and measure the growth of memory after the first tenth."""
    pipe = _numbers_pipeline(py_num_workers=4, py_start_method="fork")
    with contextlib.closing(pipe):
        pipe.start_py_workers()
        import torch  # initializes CUDA, so after the fork

        device = gpu.torch_device
        wrong, offsets = torch.zeros((), dtype=torch.int64, device=device), torch.arange(BATCH_SIZE, device=device)
        begin, early = time.perf_counter(), (0.0, 0.0)
        for iteration in itertools.count():
            if iteration == num_batches // 10:
                early = _used_mib(torch, device)
            if iteration == num_batches or (time.perf_counter() - begin > seconds and iteration > num_batches // 10):
                break
            numbers = torch.from_dlpack(pipe.run()[0].as_tensor())
            expected = ((offsets + iteration * BATCH_SIZE) % 251) * np.prod(SAMPLE_SHAPE)
            wrong += (numbers.sum(dim=(1, 2), dtype=torch.int64) != expected).sum()
            del numbers
        late = _used_mib(torch, device)
        check(int(wrong) == 0, f"{int(wrong)} of {iteration * BATCH_SIZE} samples have wrong checksums")
    growth = [after - before for before, after in zip(early, late, strict=True)]
    check(max(growth) < MOST_GROWTH_MIB, f"memory grew by {growth[0]:.0f} MiB on the GPU, {growth[1]:.0f} MiB on the host")
    return {
        "batches": iteration,
        "batches/s": iteration / (time.perf_counter() - begin),
        "GPU memory grew by MiB": growth[0],
        "host memory, page-locked and not, grew by MiB": growth[1],
    }


def _used_mib(torch: Any, device: str) -> tuple[float, float]:
    """Return the used memory of the GPU, and the resident memory of this process."""
    gc.collect()
    on_gpu = 0
    if device == "cuda":
        free, total = torch.cuda.mem_get_info()
        on_gpu = total - free
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return on_gpu / MIB, resident / MIB


def shut_gate(gpu: Gpu, seconds: float) -> Figures:
    """Begin copies behind a shut gate: the calls must return at once, and the copies must be right afterwards."""
    device = open_device(0)
    space = SharedSpace.create()
    pinned = PinnedMemory(device, fenced=False)
    space.observer = pinned
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    nbytes = 16 * MIB
    offset = space.take(nbytes, nbytes)
    array = space.array(offset, (nbytes,), np.dtype(np.uint8))
    array[:] = 7
    for _ in range(8):
        copier.send([array])
    copier.drop_free()
    gate = gpu.gate(device.stream)
    times_us, sent = [], []
    for _ in range(5):
        begin = time.perf_counter()
        sent.append(copier.send([array])[0])
        times_us.append((time.perf_counter() - begin) * 1e6)
    check(gate.is_shut, "the copies waited until the gate opened by itself: the memory is not page-locked")
    gate.open()
    on_host = np.asarray(sent[-1].to_host())  # type: ignore[union-attr]  # a dense batch
    check(bool((on_host == 7).all()), "the copy differs from the original")
    copier.close()
    median_us = statistics.median(times_us)
    check(median_us < gpu.most_copy_us, f"a call that begins a copy takes {median_us:.0f} us")
    return {"median us": median_us, "most us": max(times_us)}


def arrays(gpu: Gpu, seconds: float) -> Figures:
    """Take in arrays of the user's on the GPU: strided, reversed and used without a copy, and overwrite them at once."""
    cupy = gpu.cupy
    views: dict[str, Callable[[Any], Any]] = {
        "dense": lambda x: x,
        "transposed": lambda x: x.T,
        "strided": lambda x: x[::3, ::2],
        "reversed": lambda x: x[::-1, ::-1],
        "broadcast": lambda x: cupy.broadcast_to(x[:1], x.shape),
    }
    for name, view in views.items():
        for is_gated in (False, True):  # first load the kernels: loading may wait for the GPU, and so for a shut gate
            _check_tensor(gpu, name, view, is_gated=is_gated)
        for no_copy in (False, True):
            _check_source(gpu, f"{name}, no_copy={no_copy}", view, no_copy=no_copy)
    return {"kinds of arrays": len(views)}


def open_gate(gate: Gate | None) -> None:
    """Open a gate, if there is one.

    Raises:
        StepFailed: it has opened by itself.
    """
    if gate is not None:
        check(gate.is_shut, "the gate opened by itself, so nothing was tested: a call has waited for the GPU")
        gate.open()


def _check_tensor(gpu: Gpu, name: str, view: Callable[[Any], Any], *, is_gated: bool) -> None:
    """Overwrite an array on the user's stream, while its copy still waits behind a gate on that stream."""
    x = _matrix(gpu.cupy, 0)
    expected = view(x).get()
    gpu.synchronize()
    gate = gpu.gate() if is_gated else None
    tensor = TensorGPU(view(x))
    if not _is_view(tensor, x):
        x[:] = -1
    open_gate(gate)
    check(np.array_equal(np.asarray(tensor.as_cpu()), expected), f"TensorGPU of an array that is {name} has later values")


def _is_view(tensor: TensorGPU, array: Any) -> bool:
    """Whether a tensor lies in the memory of an array."""
    begin = int(array.data.ptr)
    return begin <= tensor.data_ptr() < begin + int(array.nbytes)


def _check_source(gpu: Gpu, name: str, view: Callable[[Any], Any], *, no_copy: bool) -> None:
    made: list[Any] = []

    def source(info: Any) -> Any:
        made.append(_matrix(gpu.cupy, info.idx_in_epoch))
        return view(made[-1])

    @pipeline_def(batch_size=2, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(source, batch=False, device="gpu", no_copy=no_copy)

    with contextlib.closing(pipeline()) as pipe:
        for i in range(4):
            (batch,) = pipe.run()
            if not no_copy:
                for array in made[2 * i : 2 * i + 2]:
                    array[:] = -1
                gpu.synchronize()
            for j, sample in enumerate(batch.as_cpu()):
                expected = view(_matrix(gpu.cupy, 2 * i + j)).get()
                check(np.array_equal(np.asarray(sample), expected), f"samples are wrong: {name}")


def _matrix(cupy: Any, first: int) -> Any:
    return cupy.arange(first, first + 48 * 36, dtype=cupy.float32).reshape(48, 36)


def number(info: Any) -> Any:
    """Return the sample of `checksums`."""
    return np.full(SAMPLE_SHAPE, info.idx_in_epoch % 251, np.int32)


def _numbers_pipeline(**options: Any) -> Pipeline:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=0, **options)
    def pipeline() -> Any:
        return fn.external_source(number, batch=False, parallel=True, prefetch_queue_depth=2).gpu()

    return pipeline()


def numbers(num_batches: int) -> Iterator[Any]:
    """Iterate over batches of `number` on the GPU, made in this process.

    Each starts with ``run``, as a program does that holds no other batch. The memory for batches is locked at the beginning,
    because locking may wait for the GPU, and so for a shut gate.
    """

    def source(info: Any) -> Any:
        return np.full(SAMPLE_SHAPE, (info.idx_in_epoch - LOCKED_BATCHES * BATCH_SIZE) % 251, np.int32)

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=0)
    def pipeline() -> Any:
        node = fn.external_source(source, batch=False)
        return node.gpu(), node

    with contextlib.closing(pipeline()) as pipe:
        held = [pipe.run()[1] for _ in range(LOCKED_BATCHES)]
        del held
        for _ in range(num_batches):
            yield pipe.run()[0]


def expected_numbers(iteration: int) -> list[int]:
    """Return the numbers that fill the samples of a batch of `numbers`."""
    return [index % 251 for index in range(iteration * BATCH_SIZE, (iteration + 1) * BATCH_SIZE)]
