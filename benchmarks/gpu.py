"""What only a machine with a GPU can show: tests, and figures beside a bare copy, PyTorch and DALI.

    python -m benchmarks.gpu [--no-tests] [--seconds 5] [--out FOLDER]

It needs CuPy and PyTorch with CUDA, eight CPUs for the workers, no network, and less than eight minutes. DALI and
nvImageCodec are measured where they are installed. Each measurement has a process of its own, since workers are forked
before CUDA is used. The table comes last; what could not be measured says why.

- *copy*: batches of images, from a page-locked slot to the GPU, over and over; beside it, bare asynchronous copies of as
  many bytes from memory that CUDA has allocated. GB/s.
- *rate*: batches of 64 images of 224 x 224 x 3 made by 8 workers and handed to the GPU; each is touched by a kernel there.
- *wait*: how long the loop waits for its batch while a kernel of 10 ms runs in each step, one step behind: the median.
- *soak*: batches whose checksum is taken on the GPU and compared; how much the memory has grown from the first tenth on.
- *decode*: JPEG files decoded on the GPU.

Doubts: nobody else may use the machine. The loop's *wait* includes what Python needs to hand over a batch, and nothing of
the kernels. Rates are those of a consumer that does nothing else.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import io
import itertools
import json
import math
import resource
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
BATCH_SIZE = 64
WORKERS = 8
SHAPE = (224, 224, 3)
COPY_SIZES = (64, 128, 256, 512)
KERNEL_NS = 10_000_000
#: For everything, and for the tests alone.
DEADLINE_S = 470.0
TESTS_S = 200.0
CASE_S = 75.0

Figures = dict[str, Any]


def image(index: int) -> Any:
    """An image that is full of one number, and a label."""
    return np.full(SHAPE, index % 251, np.uint8), np.array([index], np.int32)


def of_info(info: Any) -> Any:
    """As a source of a pipeline."""
    return image(info.idx_in_epoch)


class Images:
    """As a dataset."""

    def __getitem__(self, index: int) -> Any:
        return image(index)

    def __len__(self) -> int:
        return sys.maxsize


# Systems: each makes an endless iterator of tensors of PyTorch on the GPU


def by_pipeline() -> Iterator[Any]:
    """dali_like's pipeline, with ``.gpu()``."""
    from dali_like import fn, pipeline_def  # noqa: PLC0415  # each in its own process, here and below

    return _batches_of(fn, pipeline_def, {})


def by_dali() -> Iterator[Any]:
    """DALI's pipeline, with ``.gpu()``."""
    dali = importlib.import_module("nvidia.dali")
    return _batches_of(dali.fn, dali.pipeline_def, {})


def _batches_of(fn: Any, pipeline_def: Any, options: dict[str, Any]) -> Iterator[Any]:
    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=0, py_num_workers=WORKERS, **options)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        images, labels = fn.external_source(
            of_info, num_outputs=2, batch=False, parallel=True, dtype=None, prefetch_queue_depth=2
        )
        return images.gpu(), labels

    pipe = pipeline()
    pipe.start_py_workers()
    import torch  # noqa: PLC0415  # when the workers have been forked

    while True:
        images, _ = pipe.run()
        yield torch.from_dlpack(images.as_tensor())


def by_loader() -> Iterator[Any]:
    """dali_like's DataLoader, ``pin_memory=True``."""
    from dali_like.plugin.pytorch import DataLoader  # noqa: PLC0415

    return _batches_of_loader(DataLoader)


def by_torch() -> Iterator[Any]:
    """PyTorch's DataLoader, ``pin_memory=True``."""
    from torch.utils.data import DataLoader  # noqa: PLC0415

    return _batches_of_loader(DataLoader)


def _batches_of_loader(kind: Any) -> Iterator[Any]:
    loader = kind(Images(), batch_size=BATCH_SIZE, num_workers=WORKERS, pin_memory=True)
    for images, _ in loader:
        yield images.to("cuda", non_blocking=True)


SYSTEMS: dict[str, Callable[[], Iterator[Any]]] = {
    "dali_like": by_pipeline,
    "dali_like DataLoader": by_loader,
    "torch DataLoader": by_torch,
    "DALI": by_dali,
}


# Measurements


def copy(seconds: float) -> Figures:
    """GB/s from page-locked memory to the GPU: bare, and by the copier of pipelines."""
    import cupy  # noqa: PLC0415

    from dali_like.device.copier import Copier  # noqa: PLC0415
    from dali_like.device.cuda import CudaDevice  # noqa: PLC0415
    from dali_like.device.pinned import PinnedMemory  # noqa: PLC0415
    from dali_like.workers.memory import SharedSpace  # noqa: PLC0415

    device = CudaDevice(0)
    space = SharedSpace.create()
    space.observer = PinnedMemory(device, fenced=False)
    copier = Copier(device, lambda nbytes: np.empty(nbytes, np.uint8))
    stream = cupy.cuda.Stream(non_blocking=True)
    figures: Figures = {}
    for size in COPY_SIZES:
        nbytes = size * math.prod(SHAPE)
        offset = space.take(nbytes, nbytes)
        array = space.array(offset, (size, *SHAPE), np.dtype(np.uint8))
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
    """Batches/s that arrive on the GPU."""
    batches = SYSTEMS[system]()
    total = next(batches)[:, 0, 0, 0].sum()
    import torch  # noqa: PLC0415

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
    return num_batches * BATCH_SIZE * math.prod(SHAPE) / 1e9


def wait(system: str, seconds: float) -> Figures:
    """Microseconds that the loop waits for a batch while a kernel of 10 ms runs in each step."""
    batches = SYSTEMS[system]()
    next(batches)
    import torch  # noqa: PLC0415

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
    """How many cycles PyTorch's sleeping kernel takes for 10 ms."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    begin.record()
    torch.cuda._sleep(10_000_000)
    end.record()
    torch.cuda.synchronize()
    return int(10_000_000 * (KERNEL_NS / 1e6) / begin.elapsed_time(end))


def soak(seconds: float) -> Figures:
    """Checksums of batches on the GPU, and the growth of memory."""
    batches = by_pipeline()
    first = next(batches)
    import torch  # noqa: PLC0415

    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    begin, count, early = time.perf_counter(), 1, (0, 0)
    del first
    while (elapsed := time.perf_counter() - begin) < seconds * 4:
        for batch in itertools.islice(batches, 50):
            indices = torch.arange(count * BATCH_SIZE, (count + 1) * BATCH_SIZE, device="cuda")
            expected = (indices % 251) * math.prod(SHAPE)
            wrong += (batch.sum(dim=(1, 2, 3), dtype=torch.int64) != expected).sum()
            count += 1
        del batch
        now = (_gpu_bytes_used(torch), _host_bytes_used())
        if elapsed < seconds * 0.4:
            early = now
    return {
        "batches": count,
        "wrong samples": int(wrong),
        "GPU memory grew by MiB": (now[0] - early[0]) / 2**20,
        "host memory grew by MiB": (now[1] - early[1]) / 2**20,
    }


def _host_bytes_used() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _gpu_bytes_used(torch: Any) -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def decode(seconds: float) -> Figures:
    """Images/s of JPEG files of 640 x 480, decoded on the GPU: by pipelines, and by the codec alone."""
    from dali_like import fn, pipeline_def  # noqa: PLC0415

    files = _jpegs(BATCH_SIZE)

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=WORKERS, device_id=0, py_num_workers=2)
    def pipeline() -> Any:
        encoded = fn.external_source(lambda info: files[info.idx_in_batch], batch=False, parallel=True)
        return fn.decoders.image(encoded, device="mixed")

    pipe = pipeline()
    pipe.start_py_workers()
    import cupy  # noqa: PLC0415

    decoder = importlib.import_module("nvidia.nvimgcodec").Decoder(device_id=0)
    texts = [file.tobytes() for file in files]
    return {
        "dali_like images/s": _images_per_s(pipe.run, cupy, seconds),
        "nvImageCodec alone images/s": _images_per_s(lambda: decoder.decode(texts), cupy, seconds),
    }


def _images_per_s(step: Callable[[], Any], cupy: Any, seconds: float) -> float:
    for _ in range(5):
        step()
    cupy.cuda.Device().synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        step()
        count += BATCH_SIZE
    cupy.cuda.Device().synchronize()
    return count / (time.perf_counter() - begin)


def _jpegs(count: int) -> list[Any]:
    """JPEG files of smooth random images."""
    from PIL import Image  # noqa: PLC0415

    files = []
    for seed in range(count):
        small = np.random.default_rng(seed).integers(0, 255, (12, 16, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    return files


# The whole of it

CASES: dict[str, Callable[[float], Figures]] = {
    "copy": copy,
    **{f"rate: {system}": functools.partial(rate, system) for system in SYSTEMS},
    **{f"wait: {system}": functools.partial(wait, system) for system in SYSTEMS},
    "soak": soak,
    "decode": decode,
}


def needs(case: str) -> Sequence[str]:
    """The modules that a case cannot do without."""
    extra = {"DALI": ("nvidia.dali",), "decode": ("nvidia.nvimgcodec", "PIL")}.get(case.rpartition(": ")[2], ())
    return ("cupy", "torch", *extra)


def missing(modules: Sequence[str]) -> list[str]:
    """Those modules that are not installed."""

    def is_there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ImportError:
            return False

    return [module for module in modules if not is_there(module)]


def run_case(case: str, seconds: float, timeout_s: float) -> Figures:
    """Measure in a process of its own; what went wrong is a figure, too."""
    if absent := missing(needs(case)):
        return {"not measured": f"no {', '.join(absent)} here"}
    command = [sys.executable, "-m", "benchmarks.gpu", "--case", case, "--seconds", str(seconds)]
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return {"not measured": f"not done after {timeout_s:.0f} s"}
    lines = [line for line in finished.stdout.splitlines() if line.startswith("{")]
    if finished.returncode or not lines:
        print(finished.stdout + finished.stderr, flush=True)
        last = (finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"])[-1]
        return {"not measured": last[:200]}
    figures: Figures = json.loads(lines[-1])
    return figures


def run_tests(timeout_s: float) -> str:
    """Run the tests that need a GPU; how they ended."""
    # What other libraries warn of, in whatever version they are there, is no failure of ours.
    command = [sys.executable, "-m", "pytest", "-q", "tests/gpu", "-p", "no:cacheprovider", "-W", "default"]
    try:
        finished = subprocess.run(command, cwd=REPOSITORY, timeout=timeout_s, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired as error:
        print((error.stdout or b"").decode(errors="replace"))
        return f"not done after {timeout_s:.0f} s"
    print(finished.stdout + finished.stderr, flush=True)
    return (finished.stdout.strip().splitlines() or ["nothing was said"])[-1].strip("= ")


def table(results: dict[str, Figures]) -> str:
    """The figures as a table of Markdown."""
    lines = ["| measurement | figure | value |", "| --- | --- | ---: |"]
    for case, figures in results.items():
        for name, value in figures.items():
            text = f"{value:,.3g}" if isinstance(value, float) and value < 1000 else value
            lines.append(f"| {case} | {name} | {f'{text:,.0f}' if isinstance(text, float) else text} |")
    return "\n".join(lines)


def main() -> None:
    """Run the tests and all measurements, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="measure one thing in this process, and print it as JSON")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each measurement takes, about")
    parser.add_argument("--no-tests", action="store_true", help="leave the tests out")
    parser.add_argument("--out", type=Path, help="a folder for gpu.json and gpu.md")
    given = parser.parse_args()
    if given.case:
        try:
            print(json.dumps(CASES[given.case](given.seconds)), flush=True)
        except Exception:
            traceback.print_exc()
            sys.exit(1)
        return
    begin = time.monotonic()
    results: dict[str, Figures] = {}
    if not given.no_tests:
        results["tests/gpu"] = {"result": run_tests(TESTS_S)}
    for case in CASES:
        left_s = begin + DEADLINE_S - time.monotonic()
        results[case] = (
            run_case(case, given.seconds, min(CASE_S, left_s)) if left_s > 10 else {"not measured": "no time left"}
        )
        print(f"{case}: {results[case]}", flush=True)
    text = table(results)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "gpu.json").write_text(json.dumps(results, indent=1))
        (given.out / "gpu.md").write_text(text + "\n")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
