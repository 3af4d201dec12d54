"""Measurements, in comparison with other systems. Each runs in a separate process; see `benchmarks.gpu.__main__`."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.access import Figures
from benchmarks.gpu.systems import BATCH_SIZE, IMAGE_BYTES, SHAPE, SYSTEMS, WORKERS

COPY_SIZES = (64, 128, 256, 512)
KERNEL_NS = 10_000_000


def copy(seconds: float) -> Figures:
    """Measure GB/s from page-locked memory to the GPU: plain, and by the copier of pipelines."""
    import cupy

    from dali_like.device.copier import Copier
    from dali_like.device.cuda import CudaDevice
    from dali_like.device.pinned import PinnedMemory
    from dali_like.engine.memory.space import SharedSpace

    device = CudaDevice(0)
    space = SharedSpace.create()
    space.observer = PinnedMemory(device, fenced=False)
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    stream = cupy.cuda.Stream(non_blocking=True)
    figures: Figures = {}
    for size in COPY_SIZES:
        nbytes = size * IMAGE_BYTES
        offset, array = locked_images(space, size)
        array[:] = 1
        locked = cupy.cuda.alloc_pinned_memory(nbytes)
        target = cupy.empty(nbytes, cupy.uint8)
        several = functools.partial(_bare_copies, cupy, target.data.ptr, locked.ptr, nbytes, stream.ptr)
        rounds = [
            (_rate(several, nbytes, seconds / 10), _rate(functools.partial(_sent, copier, array), nbytes, seconds / 10))
            for _ in range(5)
        ]
        bare, ours = (statistics.median(values) for values in zip(*rounds, strict=True))
        figures[f"{size} images, bare GB/s"] = bare
        figures[f"{size} images, dali_like GB/s"] = ours
        figures[f"{size} images, ratio"] = ours / bare
        del array
        space.free(offset, nbytes)
    copier.close()
    return figures


def locked_images(space: Any, count: int) -> tuple[int, Any]:
    """Return page-locked memory for some images, and its offset in a space.

    Raises:
        RuntimeError: CUDA refuses to lock it. Copies from it would be pageable, which this benchmark does not measure.
    """
    nbytes = count * IMAGE_BYTES
    offset = space.take(nbytes, nbytes)
    if not space.observer.is_locked(space.address + offset):
        raise RuntimeError("CUDA refused to page-lock the images, so the copies would be pageable")
    return offset, space.array(offset, (count, *SHAPE), np.dtype(np.uint8))


def _bare_copies(cupy: Any, target: int, source: int, nbytes: int, stream: int, count: int) -> None:
    runtime = cupy.cuda.runtime
    for _ in range(count):
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyHostToDevice, stream)
    runtime.streamSynchronize(stream)


def _sent(copier: Any, array: Any, count: int) -> None:
    for _ in range(count):
        copier.send([array])
    copier.drop_free()


def _rate(copies: Callable[[int], None], nbytes: int, seconds: float) -> float:
    copies(4)
    count = max(8, int(seconds * 40e9 / nbytes))
    begin = time.perf_counter()
    copies(count)
    return count * nbytes / (time.perf_counter() - begin) / 1e9


def rate(system: str, seconds: float) -> Figures:
    """Measure batches per second that arrive on the GPU."""
    batches = SYSTEMS[system]()
    total = next(batches)[:, 0, 0, 0].sum()
    import torch

    for batch in itertools.islice(batches, 20):
        total += batch[:, 0, 0, 0].sum()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for batch in itertools.islice(batches, 10):
            total += batch[:, 0, 0, 0].sum()
        count += 10
        torch.cuda.synchronize()
    return {"batches/s": count / (time.perf_counter() - begin), "GB/s": _gigabytes(count) / (time.perf_counter() - begin)}


def _gigabytes(num_batches: int) -> float:
    return num_batches * BATCH_SIZE * IMAGE_BYTES / 1e9


def wait(system: str, seconds: float) -> Figures:
    """Measure the microseconds that the loop waits for a batch while each step runs a kernel of 10 ms."""
    batches = SYSTEMS[system]()
    next(batches)
    import torch

    cycles = _cycles_of_kernel(torch)
    previous, waits = torch.cuda.Event(), []
    previous.record()
    for _ in range(max(50, int(seconds * 1e9 / KERNEL_NS))):
        begin = time.perf_counter()
        batch = next(batches)
        waits.append((time.perf_counter() - begin) * 1e6)
        torch.cuda._sleep(cycles)
        batch[:, 0, 0, 0].sum()
        previous.synchronize()
        previous = torch.cuda.Event()
        previous.record()
    steady = waits[20:]
    return {
        "median us": statistics.median(steady),
        "90 % us": statistics.quantiles(steady, n=10)[-1],
        "most us": max(steady),
    }


def _cycles_of_kernel(torch: Any) -> int:
    """Return the number of cycles for which PyTorch's sleep kernel takes 10 ms."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    begin.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    torch.cuda.synchronize()
    return int(10_000_000 * (KERNEL_NS / 1e6) / begin.elapsed_time(end))


def decode(system: str, seconds: float) -> Figures:
    """Measure images per second for JPEG files of 640 x 480, decoded on the GPU."""
    files = _jpegs(BATCH_SIZE)
    step = {"dali_like": _decoding_pipeline, "DALI": _decoding_by_dali, "nvImageCodec": _decoding_by_codec}[system](files)
    import torch

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        step()
        count += BATCH_SIZE
    torch.cuda.synchronize()
    return {"images/s": count / (time.perf_counter() - begin)}


def _decoding_pipeline(files: Sequence[Any]) -> Callable[[], Any]:
    """Decode with dali_like's mixed decoder."""
    from dali_like import fn, pipeline_def

    return _decoding_by(fn, pipeline_def, files)


def _decoding_by_dali(files: Sequence[Any]) -> Callable[[], Any]:
    """Decode with DALI's mixed decoder."""
    dali = importlib.import_module("nvidia.dali")
    return _decoding_by(dali.fn, dali.pipeline_def, files)


def _decoding_by(fn: Any, pipeline_def: Any, files: Sequence[Any]) -> Callable[[], Any]:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=WORKERS, device_id=0, py_num_workers=2)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded = fn.external_source(lambda info: files[info.idx_in_batch], batch=False, parallel=True)
        return fn.decoders.image(encoded, device="mixed")

    pipe = pipeline()
    pipe.start_py_workers()
    return pipe.run  # type: ignore[no-any-return]


def _decoding_by_codec(files: Sequence[Any]) -> Callable[[], Any]:
    """Decode with the codec alone."""
    decoder = importlib.import_module("nvidia.nvimgcodec").Decoder(device_id=0)
    texts = [file.tobytes() for file in files]
    return lambda: decoder.decode(texts)


def _jpegs(count: int) -> list[Any]:
    """Return JPEG files of smooth random images."""
    from PIL import Image

    files = []
    for seed in range(count):
        small = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    return files


CASES: dict[str, Callable[[float], Figures]] = {
    "copy": copy,
    **{f"rate: {system}": functools.partial(rate, system) for system in SYSTEMS},
    **{f"wait: {system}": functools.partial(wait, system) for system in SYSTEMS},
    **{f"decode: {system}": functools.partial(decode, system) for system in ("dali_like", "nvImageCodec", "DALI")},
}


def needs(case: str) -> Sequence[str]:
    """Return the modules that a case requires."""
    what, _, system = case.partition(": ")
    modules = ["cupy", "torch"]
    if system == "DALI":
        modules.append("nvidia.dali")
    elif what == "decode":
        modules.append("nvidia.nvimgcodec")
    return [*modules, "PIL"] if what == "decode" else modules
