"""Pipelines whose outputs are on a GPU."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dali_like import Pipeline, fn, pipeline_def
from dali_like.errors import ArgumentError, CudaForkError, OutOfMemoryError
from dali_like.tensors import TensorGPU, TensorListGPU
from dali_like.types import SampleInfo
from tests.gpu import gates

cupy: Any = gates.cuda()

BATCH = 8


def dense(info: SampleInfo) -> NDArray[Any]:
    return info.rng().integers(0, 255, (64, 48, 3), np.uint8)


def ragged(info: SampleInfo) -> NDArray[Any]:
    return info.rng().random((info.idx_in_epoch % 7 + 1, 33), np.float32)


def number(info: SampleInfo) -> NDArray[Any]:
    return np.full((256, 256), info.idx_in_epoch, np.int32)


def make(
    source: Callable[..., Any],
    outputs: Callable[[Any], Any] = lambda node: node.gpu(),
    *,
    parallel: bool = False,
    **options: Any,
) -> Pipeline:
    given = {"batch_size": BATCH, "num_threads": 2, "device_id": 0, "py_num_workers": 2, "py_start_method": "spawn"}

    @pipeline_def(**{**given, **options})
    def pipeline() -> Any:
        return outputs(fn.external_source(source, batch=False, parallel=parallel))

    return pipeline()


def expected(iteration: int) -> list[int]:
    return list(range(iteration * BATCH, (iteration + 1) * BATCH))


def numbers_of(batch: TensorListGPU) -> list[int]:
    """Return the number that fills each sample, read by a kernel on CuPy's current stream; -1 for several numbers."""
    array = cupy.asarray(batch.as_tensor()).reshape(len(batch), -1)
    least, most = array.min(axis=1).get(), array.max(axis=1).get()
    return [int(a) if a == b else -1 for a, b in zip(least, most, strict=True)]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("source", [dense, ragged])
def test_batches_on_the_gpu_are_those_on_the_cpu(source: Any, parallel: bool) -> None:
    with closing(make(source, lambda node: (node.gpu(), node), parallel=parallel)) as pipe:
        for _ in range(30):
            on_gpu, on_cpu = pipe.run()
            for copied, sample, original in zip(on_gpu.as_cpu(), on_gpu, on_cpu, strict=True):
                assert np.array_equal(copied, original)
                assert np.array_equal(cupy.asarray(sample).get(), original)
                assert np.array_equal(cupy.from_dlpack(sample).get(), original)


def test_slots_are_page_locked() -> None:
    torch = pytest.importorskip("torch")
    with closing(make(dense, lambda node: (node.gpu(), node), parallel=True)) as pipe:
        for _ in range(4):
            _, on_cpu = pipe.run()
        assert torch.from_dlpack(on_cpu.as_tensor()).is_pinned()


def test_run_waits_for_nothing_while_a_kernel_runs() -> None:
    with closing(make(number, parallel=True, py_num_workers=1)) as pipe:
        for _ in range(20):
            pipe.run()
        cupy.cuda.Device().synchronize()
        gate = gates.Gate(cupy)
        batches = [pipe.run()[0] for _ in range(2)]
        assert gate.is_shut
        gate.open()

        assert [numbers_of(batch) for batch in batches] == [expected(20), expected(21)]


def test_memory_is_not_used_again_while_a_kernel_that_reads_it_waits() -> None:
    with closing(make(number, lambda node: (node.gpu(), node))) as pipe:
        # Lock enough memory now: locking may wait for the GPU, and so for the gate.
        held = [pipe.run()[1] for _ in range(32)]
        cupy.asarray(pipe.run()[0].as_tensor()).copy()
        del held
        cupy.cuda.Device().synchronize()
        gate = gates.Gate(cupy)
        copies = []
        for _ in range(12):
            batch, _ = pipe.run()
            copies.append(cupy.asarray(batch.as_tensor()).copy())  # queued behind the gate
            del batch
        assert gate.is_shut
        gate.open()

        assert [copy[:, 0, 0].tolist() for copy in copies] == [expected(i) for i in range(33, 45)]


def test_a_stream_of_the_users_waits_for_the_batch() -> None:
    with closing(make(number)) as pipe:
        stream = cupy.cuda.Stream(non_blocking=True)
        for i in range(10):
            (batch,) = pipe.run(stream)
            with stream:
                assert numbers_of(batch) == expected(i)


def test_scheduled_batches_are_waited_for() -> None:
    with closing(make(number)) as pipe:
        stream = cupy.cuda.Stream(non_blocking=True)
        pipe.schedule_run()
        (batch,) = pipe.share_outputs(stream)
        with stream:
            assert numbers_of(batch) == expected(0)


def test_tensors_of_pytorch_share_the_memory() -> None:
    torch = pytest.importorskip("torch")
    with closing(make(number)) as pipe:
        for i in range(10):
            (batch,) = pipe.run()
            tensor = torch.from_dlpack(batch.as_tensor())
            assert tensor.device.type == "cuda"
            assert tensor.data_ptr() == batch.data_ptr()
            del batch
            assert tensor[:, 0, 0].tolist() == expected(i)


def test_tensors_of_pytorch_are_right_on_its_other_streams() -> None:
    torch = pytest.importorskip("torch")
    with closing(make(number)) as pipe:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(20):
                tensor = torch.from_dlpack(pipe.run()[0].as_tensor())
                assert tensor[:, 5, 5].tolist() == expected(i)


def test_arrays_of_jax_share_the_memory() -> None:
    jax = pytest.importorskip("jax")
    with closing(make(number)) as pipe:
        for i in range(10):
            (batch,) = pipe.run()
            array = jax.dlpack.from_dlpack(batch.as_tensor())
            total = jax.jit(lambda x: x[:, 3, 3])(array)
            del batch, array
            assert np.asarray(total).tolist() == expected(i)


def test_copies_to_an_address_and_scattered_samples() -> None:
    with closing(make(number)) as pipe:
        (batch,) = pipe.run()
        target = cupy.zeros((BATCH, 256, 256), np.int32)
        batch.copy_to_external(ctypes.c_void_p(target.data.ptr))
        assert target[:, 0, 0].tolist() == expected(0)

        listed = TensorListGPU([TensorGPU(sample) for sample in target])
        assert listed.as_tensor().as_cpu().__array__()[:, 9, 9].tolist() == expected(0)


def test_arrays_on_the_gpu_are_taken_in() -> None:
    def source(info: SampleInfo) -> Any:
        return cupy.full((256, 256), info.idx_in_epoch, cupy.int32)

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        node = fn.external_source(source, batch=False, device="gpu")
        kernel = fn.external_source(source, batch=False, device="gpu", use_copy_kernel=True)
        return node, kernel, fn.external_source(name="fed", device="gpu")

    with closing(pipeline()) as pipe:
        for i in range(10):
            fed = cupy.arange(BATCH, dtype=cupy.float32) + i
            outputs = pipe.run(fed=fed.reshape(-1, 1))
            fed[:] = -1  # queued behind the copy
            assert numbers_of(outputs[0]) == numbers_of(outputs[1]) == expected(i)
            assert outputs[2].as_cpu().as_array().ravel().tolist() == [float(i + j) for j in range(BATCH)]


def test_tensors_of_pytorch_on_the_gpu_are_taken_in() -> None:
    torch = pytest.importorskip("torch")

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0)
    def pipeline() -> Any:
        return fn.external_source(lambda i: torch.full((BATCH, 2), i, device="cuda"), device="gpu")

    with closing(pipeline()) as pipe:
        assert [numbers_of(pipe.run()[0]) for _ in range(5)] == [[i] * BATCH for i in range(5)]


def test_several_pipelines_and_closing_while_copies_are_on_their_way() -> None:
    pipes = [make(number, parallel=i % 2 == 0) for i in range(4)]
    held = [pipe.run()[0] for pipe in pipes]
    for pipe in pipes:
        pipe.run()
        pipe.close()

    assert [numbers_of(batch) for batch in held] == [expected(0)] * 4


def test_memory_needed_and_free_is_named_and_the_batch_is_not_lost() -> None:
    with closing(make(number, prefetch_queue_depth=1)) as pipe:
        held = [pipe.run()]
        pool = cupy.get_default_memory_pool()
        limit = pool.get_limit()
        pool.set_limit(size=pool.total_bytes())
        try:
            with pytest.raises(OutOfMemoryError, match=r"on GPU 0, which has .* MiB free of .* MiB"):
                held.extend(iter(pipe))
        finally:
            pool.set_limit(size=limit)
        held.append(pipe.run())

        assert [numbers_of(batch) for (batch,) in held] == [expected(i) for i in range(len(held))]


def test_memory_does_not_grow() -> None:
    with closing(make(number, parallel=True, batch_size=2)) as pipe:
        pool = cupy.get_default_memory_pool()

        def used(num_batches: int) -> tuple[int, int]:
            total = cupy.zeros((), cupy.int64)
            for _ in range(num_batches):
                total += cupy.asarray(pipe.run()[0].as_tensor())[0, 0, 0]
            cupy.cuda.Device().synchronize()
            gc.collect()
            return pool.total_bytes(), psutil.Process().memory_info().rss

        used(200)
        gpu_bytes, host_bytes = used(200)
        gpu_bytes_later, host_bytes_later = used(2000)

        assert gpu_bytes_later <= gpu_bytes
        assert host_bytes_later - host_bytes < 32 << 20


def test_numbers_of_gpus_are_checked() -> None:
    with pytest.raises(ArgumentError, match="device_id=99: this process sees"):
        make(number, device_id=99).build()


def test_forking_comes_before_cuda() -> None:
    cupy.zeros(1)
    with pytest.raises(CudaForkError, match="start_py_workers"):
        make(number, parallel=True, py_start_method="fork").build()


def test_forked_workers_and_a_gpu_go_together() -> None:
    program = (
        "import numpy as np\n"
        "from dali_like import fn, pipeline_def\n"
        "@pipeline_def(batch_size=4, num_threads=1, device_id=0, py_num_workers=2, set_affinity=True)\n"
        "def pipeline():\n"
        "    return fn.external_source(lambda i: np.full(9, i.idx_in_epoch), batch=False, parallel=True).gpu()\n"
        "pipe = pipeline()\n"
        "for k in range(50):\n"
        "    assert pipe.run()[0].as_cpu().as_array()[:, 0].tolist() == list(range(4 * k, 4 * k + 4))\n"
    )

    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
