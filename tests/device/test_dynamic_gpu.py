"""Dynamic mode with results on a GPU: operators run on the CPU, and results are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dali_like.experimental.dynamic as ndd
from dali_like.errors import DeviceError
from dali_like.tensors import TensorListCPU
from dali_like.testing.simulated_device import SimulatedDevice
from tests.internals import as_gpu, gpu_data_of

Gpus = list[SimulatedDevice]
IMAGE = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
CPU, GPU, SECOND = ndd.Device("cpu"), ndd.Device("gpu", 0), ndd.Device("gpu", 1)


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    with ndd.EvalContext(num_threads=1):
        yield


def image() -> Any:
    return ndd.as_tensor(IMAGE, layout="HWC")


def test_tensors_move(gpus: Gpus) -> None:
    moved = image().gpu()
    assert (moved.device, moved.layout, moved.shape) == (GPU, "HWC", (2, 4, 3))
    assert np.array_equal(np.asarray(gpu_data_of(moved).as_cpu()), IMAGE)
    assert moved.gpu() is moved
    assert moved.cpu().device == CPU
    assert [copied for copied, _ in gpus[0].copies] == [IMAGE.nbytes]


def test_batches_move(gpus: Gpus) -> None:
    batch = ndd.batch([IMAGE, IMAGE + 1], device="gpu")
    assert batch.device == GPU
    assert np.array_equal(np.asarray(gpu_data_of(batch).as_cpu().as_tensor()), [IMAGE, IMAGE + 1])
    assert batch.as_tensor().device == GPU
    assert batch.cpu().device == CPU


@pytest.mark.parametrize(
    ("call", "device"),
    [
        (lambda: ndd.flip(image()), CPU),
        (lambda: ndd.flip(image().gpu()), GPU),
        (lambda: ndd.flip(image(), device="gpu"), GPU),
        (lambda: ndd.flip(image().gpu(), device="cpu"), CPU),
        (lambda: ndd.flip(image(), device="gpu:1"), SECOND),
        (lambda: ndd.flip(image().gpu(1)), SECOND),
        (lambda: image().gpu() + 1, GPU),
        (lambda: 1 + image().to_device(SECOND), SECOND),
        (lambda: image() + 1, CPU),
        (lambda: ndd.flip(ndd.batch([IMAGE] * 2).gpu()), GPU),
        (lambda: ndd.batch([IMAGE] * 2).gpu() * 2, GPU),
        (ndd.random.coin_flip, CPU),
        (lambda: ndd.random.coin_flip(device="gpu"), GPU),
    ],
)
def test_results_are_where_they_are_wanted(call: Callable[[], Any], device: ndd.Device, gpus: Gpus) -> None:
    assert call().device == device


def test_the_current_device_is_for_results_without_inputs(gpus: Gpus) -> None:
    with SECOND:
        assert ndd.random.coin_flip().device == SECOND
        assert ndd.flip(image()).device == CPU
        with CPU:
            assert ndd.random.coin_flip().device == CPU
    with ndd.EvalContext(num_threads=1, device_id=1):
        assert ndd.random.coin_flip().device == SECOND
        with CPU:
            assert ndd.random.coin_flip().device == CPU


def test_values_are_those_of_the_cpu(gpus: Gpus) -> None:
    on_gpu = ndd.resize(image().gpu(), size=(3, 3)) + 1
    assert np.array_equal(np.asarray(gpu_data_of(on_gpu).as_cpu()), np.asarray(ndd.resize(image(), size=(3, 3)) + 1))


def test_lists_of_pipelines_on_a_gpu(gpus: Gpus) -> None:
    on_gpu = as_gpu(TensorListCPU([IMAGE, IMAGE], "HWC"))
    on_cpu = ndd.flip(ndd.batch([IMAGE] * 2, layout="HWC"))
    assert np.array_equal(np.asarray(ndd.flip(ndd.as_batch(on_gpu))), np.asarray(on_cpu))


def test_devices_that_cannot_be() -> None:
    with pytest.raises(DeviceError, match="for decoders"):
        ndd.flip(image(), device="mixed")
    with pytest.raises(DeviceError, match="GPU"):
        image().gpu()
