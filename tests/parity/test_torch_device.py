"""A GPU with memory from PyTorch, with stand-ins for PyTorch's allocator and CUDA's driver."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dali_like.device.copier import PackedArrays, Uploader
from dali_like.errors import DeviceError, OutOfMemoryError
from dali_like.plugin.pytorch import DataLoader, torch_device
from dali_like.plugin.pytorch.torch_device import TorchBlock, TorchDevice, flat_tensor, number_of_gpu
from dali_like.testing.simulated_device import SimulatedStream
from tests.cupy_stand_in import DriverStandIn, driver_of

pytestmark = pytest.mark.peers

SIDE_STREAM = 3


class Cuda(SimpleNamespace):
    """PyTorch's allocator, and CUDA's driver: `driver`. `memory` has the blocks that are allocated, by address."""

    driver: DriverStandIn
    memory: dict[int, Any]
    streams: list[int]
    limit: int


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    """CUDA on a machine with two GPUs; PyTorch works on a side stream."""
    libcuda = DriverStandIn()
    libcuda.streams[SIDE_STREAM] = SimulatedStream(libcuda.lock)
    made = Cuda(driver=libcuda, memory={}, streams=[], limit=1 << 30)

    def allocate(nbytes: int, device: int, stream: int) -> int:
        if nbytes > made.limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        block = np.full(nbytes, 0xDD, np.uint8)
        address: int = block.__array_interface__["data"][0]
        made.memory[address] = block
        made.streams.append(stream)
        return address

    monkeypatch.setattr(torch_device, "driver", lambda: driver_of(libcuda))
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=SIDE_STREAM))
    monkeypatch.setattr(torch.cuda, "caching_allocator_alloc", allocate)
    monkeypatch.setattr(TorchBlock.__del__, "__defaults__", (made.memory.pop,))
    yield made
    gc.collect()
    assert not made.memory
    assert not libcuda.is_invalid


def upload(device: TorchDevice, arrays: list[Any]) -> tuple[Uploader, list[Any]]:
    uploader = Uploader(device, lambda nbytes: np.empty(nbytes, np.uint8))
    return uploader, uploader.send(arrays)


def test_memory_belongs_to_the_stream_of_the_copies_and_that_stream_does_not_wait_for_others(cuda: Cuda) -> None:
    device = TorchDevice(1)
    uploader, (array,) = upload(device, [np.arange(5, dtype=np.int32)])

    assert cuda.streams == [device.stream]
    assert device.stream not in cuda.driver.blocking_streams
    assert cuda.driver.contexts == {1}
    cuda.driver.streams[device.stream].run_to(None)
    assert cuda.memory[array.address][: array.nbytes].view(np.int32).tolist() == [0, 1, 2, 3, 4]
    del array
    uploader.close()


def test_pieces_of_several_dtypes_are_one_copy_each_at_its_alignment(cuda: Cuda) -> None:
    device = TorchDevice(0)
    parts = [np.float64([1.5]).view(np.uint8), np.uint8([1, 2, 3]), np.float64([2.5]).view(np.uint8)]
    _, (arrays,) = upload(device, [PackedArrays(parts)])
    device.record().wait()

    assert len(cuda.memory) == 1
    assert [array.address - arrays[0].address for array in arrays] == [0, 256, 512]
    begin = cuda.memory[arrays[0].address]
    assert [begin[i * 256 :][: part.nbytes].tolist() for i, part in enumerate(parts)] == [p.tolist() for p in parts]


def test_the_current_stream_waits_for_a_copy_and_memory_for_the_current_stream(cuda: Cuda) -> None:
    device = TorchDevice(0)
    uploader, (array,) = upload(device, [np.arange(5)])
    device.hold(array.ready, None)
    seen: list[int] = []
    block = cuda.memory[array.address]
    cuda.driver.streams[SIDE_STREAM].put(lambda: seen.append(int(block.view(np.int64)[3])))
    del array

    again = [uploader.send([np.full(5, number)])[0] for number in range(6)]
    cuda.driver.streams[device.stream].run_to(None)
    cuda.driver.streams[SIDE_STREAM].run_to(None)
    assert seen == [3]
    assert len(again) == 6


def test_memory_needed_and_free_is_named(cuda: Cuda) -> None:
    cuda.limit, cuda.driver.limit = 100, 1 << 20
    with pytest.raises(OutOfMemoryError, match=r"needs 2\.0 MiB of memory on GPU 0, which has 1\.0 MiB free of 2\.0 MiB"):
        TorchDevice(0).allocate(2 << 20)


def test_a_gpu_that_cannot_be_used_is_named(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"GPU 7 cannot be used: CUDA_ERROR_INVALID_DEVICE \(101\)"):
        TorchDevice(7)

    monkeypatch.delattr(torch.cuda, "init")

    def refuse() -> None:
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr(torch.cuda, "init", refuse, raising=False)
    with pytest.raises(DeviceError, match="GPU 0 cannot be used: No CUDA GPUs are available"):
        TorchDevice(0)


def test_a_copy_that_cannot_be_begun_is_an_error(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.driver, "cuMemcpyHtoDAsync_v2", lambda *_: 1)
    with pytest.raises(DeviceError, match="a copy could not be begun"):
        upload(TorchDevice(0), [np.arange(5)])


def test_the_current_gpu_is_the_default(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr("dali_like.device.opening.count_accelerators", lambda: 2)

    assert [number_of_gpu(device) for device in ("auto", "cuda", "cuda:0", 0, "cpu")] == [1, 1, 0, 0, None]


def test_a_pytorch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dali_like.device.opening.count_accelerators", lambda: 2)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError, match="needs a PyTorch with CUDA"):
        iter(DataLoader([1, 2], device="cuda:1"))


def test_a_tensor_keeps_the_owner_of_its_memory_and_needs_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch reads the CUDA Array Interface of an object, and keeps that object."""
    given: list[Any] = []
    monkeypatch.setattr(torch, "as_tensor", lambda value, device: given.append((value, device)))
    owner = object()
    device: Any = SimpleNamespace(dlpack_device=(2, 1))
    array: Any = SimpleNamespace(device=device, address=4096, shape=(7,), owner=owner)

    flat_tensor(array, torch.device("cuda", 1))

    ((value, place),) = given
    interface = value.__cuda_array_interface__
    assert (interface["data"], interface["shape"], interface["typestr"]) == ((4096, False), (7,), "|u1")
    assert value.owner is owner
    assert place == torch.device("cuda", 1)
