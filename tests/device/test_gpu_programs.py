"""Random programs: batches are taken, read by kernels, held and dropped, while a simulated GPU advances at random.

In every order of events, each kernel reads its own batch. docs/gpu.md has the rules: kernels run on the default stream, or
on the stream that is current when the last reference to a batch is dropped.
"""

from __future__ import annotations

import ctypes
import functools
import random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dali_like import fn, pipeline_def
from dali_like.testing.simulated_device import DEFAULT_STREAM, SimulatedDevice
from dali_like.types import SampleInfo

BATCH = 3
ACTIONS = 120


def dense(info: SampleInfo) -> NDArray[Any]:
    return np.full(64, info.idx_in_epoch, np.int32)


def ragged(info: SampleInfo) -> NDArray[Any]:
    return np.full(info.idx_in_epoch % 5 + 1, info.idx_in_epoch, np.int32)


class Program:
    """A user of a pipeline, and the data read by the user's kernels."""

    def __init__(self, pipe: Any, device: SimulatedDevice, seed: int) -> None:
        self.pipe, self.device, self.random = pipe, device, random.Random(seed)
        #: The number of each batch, the batch on the GPU, and the batch on the CPU if there is one.
        self.held: list[tuple[Any, ...]] = []
        self.num_taken = 0
        self.read: list[tuple[list[int], list[int]]] = []

    def act(self) -> None:
        actions = {self.take: 4, self.drop: 3, self.read_on_gpu: 4, self.read_on_host: 3, self.go_on: 4, self.look: 1}
        self.random.choices([*actions], [*actions.values()])[0]()

    def take(self) -> None:
        self.held.append((self.num_taken, *self.pipe.run()))
        self.num_taken += 1

    def drop(self) -> None:
        if self.held:
            self.held.pop(self.random.randrange(len(self.held)))

    def read_on_gpu(self) -> None:
        """Queue a kernel that reads a batch on the GPU."""
        if self.held:
            number, on_gpu, *_ = self.random.choice(self.held)
            self._launch(number, [tensor.data_ptr() for tensor in on_gpu])

    def read_on_host(self) -> None:
        """Queue a user's copy from page-locked memory."""
        if self.held:
            number, _, *on_cpu = self.random.choice(self.held)
            places = [(tensor.data_ptr(), tensor.__array__().nbytes) for batch in on_cpu for tensor in batch]
            if places and all(
                # Private: asks the simulated device about its own memory
                self.device._is_locked(*place)
                for place in places
            ):  # otherwise CUDA would read the bytes at once
                self._launch(number, [address for address, _ in places])

    def go_on(self) -> None:
        """Run some of the GPU's queued work."""
        stream = self.random.choice([self.device.stream, self.device.current_stream, DEFAULT_STREAM])
        waiting = self.device.num_waiting(stream)
        if waiting:
            self.device.run(stream, self.random.randint(1, min(waiting, 4)))

    def look(self) -> None:
        """Read a batch on the CPU."""
        if self.held:
            number, *batches = self.random.choice(self.held)
            for batch in batches:
                for i, tensor in enumerate(batch.as_cpu()):
                    assert (np.asarray(tensor) == number * BATCH + i).all()

    def _launch(self, number: int, addresses: list[int]) -> None:
        expected = list(range(number * BATCH, (number + 1) * BATCH))

        def kernel(addresses: list[int]) -> None:
            self.read.append(([ctypes.c_int32.from_address(address).value for address in addresses], expected))

        stream = self.random.choice([DEFAULT_STREAM, self.device.current_stream])
        self.device.launch(functools.partial(kernel, addresses), stream)


@pytest.mark.parametrize("on_both", [False, True], ids=["on the GPU", "on both"])
@pytest.mark.parametrize("source", [dense, ragged])
@pytest.mark.parametrize("seed", range(8))
def test_kernels_read_the_batches_they_were_given(
    source: Any, seed: int, on_both: bool, gpus: list[SimulatedDevice]
) -> None:
    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=0, prefetch_queue_depth=seed % 3 + 1)
    def pipeline() -> Any:
        node = fn.external_source(source, batch=False)
        return (node.gpu(), node) if on_both else node.gpu()

    pipe = pipeline()
    pipe.build()
    (device,) = gpus
    device.current_stream = device.make_stream()
    program = Program(pipe, device, seed)
    for _ in range(ACTIONS):
        program.act()
    for stream in (DEFAULT_STREAM, device.current_stream, device.stream):
        device.run(stream)
    program.held.clear()
    pipe.close()

    assert program.read
    assert [read for read, expected in program.read if read != expected] == []
