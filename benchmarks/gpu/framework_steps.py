"""Steps with JAX and PyTorch: batches that are dropped while kernels still read them, and captured graphs."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.access import Figures, Gpu, StepSkipped, check
from benchmarks.gpu.memory_steps import BATCH_SIZE, SAMPLE_SHAPE, expected_numbers, number, numbers, open_gate
from dali_like import fn, pipeline_def

#: Batches after a drop. Without protection, one of them overwrites the dropped memory.
LATER = 12
DELAY_S = 0.2
#: Images of a batch of `loader`, and their shape.
LOADER_IMAGES, LOADER_SHAPE = 256, (224, 224, 3)
LOADER_WORKERS = 8
ROUNDS = 5
JIT_BATCHES = 20


def jax_drops(gpu: Gpu, seconds: float) -> Figures:
    """Pass batches to a jitted function of 200 ms, and drop each batch at once."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    if jax.default_backend() != gpu.jax_platform:
        raise StepSkipped(f"JAX uses the platform {jax.default_backend()}: it is installed without CUDA")
    plugin = importlib.import_module("dali_like.plugin.jax")
    work = jax.jit(_slow_mean(jax))
    rounds = _rounds_for(jax, work, DELAY_S)
    means = []
    with contextlib.closing(_jax_pipeline(gpu)) as pipe:
        for batch in plugin.DALIGenericIterator([pipe], ["numbers"]):
            means.append(work(batch["numbers"], rounds))
            del batch
            if len(means) == JIT_BATCHES:
                break
        found = [np.asarray(mean).round().astype(int).tolist() for mean in means]
    for iteration, values in enumerate(found):
        check(values == expected_numbers(iteration), f"batch {iteration} was overwritten while a jitted function read it")
    return {"batches": len(found), "rounds of the function": int(rounds)}


def _slow_mean(jax: Any) -> Callable[[Any, Any], Any]:
    """Return a function that multiplies matrices for a while, and then reads the batch."""
    jnp = jax.numpy

    def slow_mean(batch: Any, rounds: Any) -> Any:
        matrix = jnp.full((1024, 1024), 1 / 1024, jnp.float32)
        product = jax.lax.fori_loop(0, rounds, lambda _, x: x @ matrix, matrix)
        # The product of these matrices is the matrix itself, so the factor is one.
        return batch.astype(jnp.float32).mean(axis=(1, 2)) * product.mean() * 1024

    return slow_mean


def _rounds_for(jax: Any, work: Any, seconds: float) -> int:
    """Return how many rounds of the function take this time."""
    batch = jax.numpy.ones((BATCH_SIZE, *SAMPLE_SHAPE), jax.numpy.int32)
    rounds = 8
    while True:
        work(batch, rounds).block_until_ready()
        begin = time.perf_counter()
        work(batch, rounds).block_until_ready()
        taken = time.perf_counter() - begin
        if taken > seconds / 2:
            return max(1, round(rounds * seconds / taken))
        rounds *= 2


def _jax_pipeline(gpu: Gpu) -> Any:
    device_id = 0 if gpu.jax_platform == "gpu" else None

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=2, device_id=device_id)
    def pipeline() -> Any:
        node = fn.external_source(number, batch=False)
        return node if device_id is None else node.gpu()

    return pipeline()


def torch_drops(gpu: Gpu, seconds: float) -> Figures:
    """Drop batches while kernels still wait to read them, on PyTorch's default, side and autograd streams."""
    torch = _torch_with_cuda()
    side = torch.cuda.Stream()
    streams = {"default": torch.cuda.default_stream(), "side": side}
    for stream in streams.values():  # load the kernels: loading may wait for the GPU, and so for a shut gate
        with torch.cuda.stream(stream):
            _drop_before_reading(gpu, torch, "warm-up", None)
            _drop_in_backward(gpu, torch, "warm-up", None)
    for name, stream in streams.items():
        with torch.cuda.stream(stream):
            _drop_before_reading(gpu, torch, name, stream.cuda_stream)
            _drop_in_backward(gpu, torch, name, stream.cuda_stream)
    _keep_for_another_stream(gpu, torch, side)
    return {"record_stream protects dropped batches": _record_stream_protects(gpu, torch, side)}


def _torch_with_cuda() -> Any:
    torch = importlib.import_module("torch")
    if not torch.cuda.is_available():
        raise StepSkipped("this PyTorch has no CUDA, or does not find the GPU")
    return torch


def _drop_before_reading(gpu: Gpu, torch: Any, name: str, handle: int | None) -> None:
    batches = numbers(4 + LATER)
    for _ in range(3):
        next(batches)
    batch = next(batches)
    tensor = torch.from_dlpack(batch.as_tensor())
    gate = None if handle is None else gpu.gate(handle)
    copies = [tensor.clone()]
    del batch, tensor
    for batch in batches:
        copies.append(torch.from_dlpack(batch.as_tensor()).clone())
        del batch
    open_gate(gate)
    _check_copies(copies, first=3, reason=f"a batch dropped on the {name} stream was overwritten")


def _check_copies(copies: list[Any], *, first: int, reason: str) -> None:
    for i, copy in enumerate(copies):
        found = copy.amin(dim=(1, 2)).tolist(), copy.amax(dim=(1, 2)).tolist()
        check(found == (expected_numbers(first + i),) * 2, reason)


def _drop_in_backward(gpu: Gpu, torch: Any, name: str, handle: int | None) -> None:
    """Let autograd's thread drop the last reference to a batch, whose reading waits behind the gate."""
    batches = numbers(4 + LATER)
    for _ in range(3):
        next(batches)
    weights = torch.ones((BATCH_SIZE, *SAMPLE_SHAPE), device=gpu.torch_device, requires_grad=True)
    batch = next(batches)
    product = weights * torch.from_dlpack(batch.as_tensor()).view(torch.int32)
    del batch
    gate = None if handle is None else gpu.gate(handle)
    product.sum().backward()
    del product
    for batch in batches:
        del batch
    open_gate(gate)
    _check_copies([weights.grad], first=3, reason=f"a batch dropped in backward, on the {name} stream, was overwritten")


def _keep_for_another_stream(gpu: Gpu, torch: Any, side: Any) -> None:
    """Follow the rule for other streams: keep the batch until their work has ended."""
    batches = numbers(4 + LATER)
    batch = next(batches)
    gate = gpu.gate(side.cuda_stream)
    tensor = torch.from_dlpack(batch.as_tensor())
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy = tensor.clone()
    for later in batches:
        del later
    open_gate(gate)
    _check_copies([copy], first=0, reason="a batch that was kept was overwritten")
    del batch, tensor


def _record_stream_protects(gpu: Gpu, torch: Any, side: Any) -> bool:
    """Return whether ``record_stream`` protects a batch. PyTorch ignores memory that its allocator did not make."""
    batches = numbers(4 + LATER)
    batch = next(batches)
    gate = gpu.gate(side.cuda_stream)
    tensor = torch.from_dlpack(batch.as_tensor())
    with torch.cuda.stream(side):
        copy = tensor.clone()
    tensor.record_stream(side)
    del batch, tensor
    for later in batches:
        del later
    open_gate(gate)
    return bool(copy.amax(dim=(1, 2)).tolist() == expected_numbers(0))


def capture(gpu: Gpu, seconds: float) -> Figures:
    """Capture a graph, in both modes of errors, while a pipeline runs in another thread and a batch is dropped."""
    torch = _torch_with_cuda()
    for mode in ("thread_local", "global"):
        _capture(gpu, torch, mode)
    return {"modes": 2}


def _capture(gpu: Gpu, torch: Any, mode: str) -> None:
    batches = numbers(64)
    for _ in range(8):
        next(batches)
    dropped = next(batches)
    static = torch.zeros((BATCH_SIZE, *SAMPLE_SHAPE), dtype=torch.int32, device=gpu.torch_device)
    static.sum(dim=(1, 2)) + 0  # loads the kernels, which is not allowed later
    other = numbers(sys.maxsize)
    for _ in range(8):
        next(other)
    failures: list[BaseException] = []
    graph, stop = torch.cuda.CUDAGraph(), threading.Event()
    advancing = threading.Thread(target=_advance, args=(other, stop, failures))
    torch.cuda.synchronize()
    advancing.start()
    try:
        with torch.cuda.graph(graph, capture_error_mode=mode):
            del dropped
            total = static.sum(dim=(1, 2))
            for _ in range(100):
                total = total + 0
    except RuntimeError as error:
        check(False, f"capture in the mode {mode} failed: {str(error).splitlines()[0]}")
    finally:
        stop.set()
        advancing.join()
    check(not failures, f"a pipeline in another thread failed during capture in the mode {mode}: {failures[:1]}")
    for iteration, batch in zip(range(9, 30), batches, strict=False):
        static.copy_(torch.from_dlpack(batch.as_tensor()))
        del batch
        graph.replay()
        expected = [value * int(np.prod(SAMPLE_SHAPE)) for value in expected_numbers(iteration)]
        check(total.tolist() == expected, f"a graph captured in the mode {mode} gives wrong sums")


def _advance(batches: Any, stop: threading.Event, failures: list[BaseException]) -> None:
    try:
        while not stop.is_set():
            next(batches)
    except BaseException as error:  # becomes the reason of the verdict
        failures.append(error)


class _SameImage:
    """A dataset that costs its workers one copy of an image."""

    def __init__(self, length: int) -> None:
        self._image = np.ones(LOADER_SHAPE, np.uint8)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._image


def loader(gpu: Gpu, seconds: float) -> Figures:
    """Measure GB/s of a loop over PyTorch's loader with ``device=``, in turns with bare copies of the same bytes, and with
    ``pin_memory=True`` and ``.to(non_blocking=True)``, by this library's loader and by PyTorch's.
    """
    torch = importlib.import_module("torch")
    plugin = importlib.import_module("dali_like.plugin.pytorch")
    nbytes = LOADER_IMAGES * int(np.prod(LOADER_SHAPE))
    count = max(20, int(seconds * 10e9 / nbytes))
    options = {"batch_size": LOADER_IMAGES, "num_workers": LOADER_WORKERS, "persistent_workers": True}
    dataset = _SameImage(LOADER_IMAGES * count)
    ahead = plugin.DataLoader(dataset, device=0, **options)
    pinned = plugin.DataLoader(dataset, pin_memory=True, **options)
    theirs = torch.utils.data.DataLoader(dataset, pin_memory=True, **options)
    iter(pinned), iter(theirs)  # their workers are forked before CUDA is in use
    source = torch.ones(nbytes, dtype=torch.uint8)
    iter(ahead)
    if gpu.torch_device != "cpu":
        source = source.pin_memory()
    target = torch.empty(nbytes, dtype=torch.uint8, device=gpu.torch_device)
    ways: dict[str, Callable[[], Any]] = {
        "bare": lambda: [target.copy_(source, non_blocking=True) for _ in range(count)],
        "dali_like device=": lambda: [len(batch) for batch in ahead],
        "dali_like pin_memory": lambda: [len(batch.to(gpu.torch_device, non_blocking=True)) for batch in pinned],
        "PyTorch pin_memory": lambda: [len(batch.to(gpu.torch_device, non_blocking=True)) for batch in theirs],
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for measured in range(ROUNDS + 1):
        for way, run in ways.items():
            begin = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if measured:  # the first round pages memory in, and locks it
                rates[way].append(count * nbytes / (time.perf_counter() - begin) / 1e9)
    figures: Figures = {f"{way}, GB/s": float(np.median(rate)) for way, rate in rates.items()}
    ratio = figures["ratio"] = figures["dali_like device=, GB/s"] / figures["bare, GB/s"]
    check(ratio >= gpu.least_loader_ratio, f"the loop has {ratio:.2f} of the rate of bare copies: {figures}")
    return figures
