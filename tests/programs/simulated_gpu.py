"""The simulated device in place of a GPU, for the steps of `benchmarks.gpu`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.gpu.access import Gpu
from dali_like.testing.simulated_device import SimulatedDevice


class SimulatedGate:
    """Shut until it is opened: the simulated device does nothing before a call waits for it."""

    is_shut = True

    def __init__(self, gpu: SimulatedGpu) -> None:
        self._gpu = gpu

    def open(self) -> None:
        self.is_shut = False
        self._gpu.synchronize()


class SimulatedGpu(Gpu):
    """See `Gpu`. Pipelines must be built inside of `dali_like.device.opening.substitute(gpu.make)`.

    Attributes:
        devices: the devices that have been opened.
        delays_s: the kernels that have been queued.
    """

    torch_device = "cpu"
    jax_platform = "cpu"
    most_copy_us = 10e6
    least_loader_ratio = 0.0
    prelude = """
from dali_like.device.opening import substitute
from dali_like.testing.simulated_device import SimulatedDevice
devices = []
def make(device_id):
    devices.append(SimulatedDevice(device_id))
    return devices[-1]
substituted = substitute(make)
substituted.__enter__()
def break_gpu():
    devices[0].fail(when_carried_out=True)
"""

    def __init__(self) -> None:
        self.devices: list[SimulatedDevice] = []
        self.delays_s: list[float] = []

    def make(self, device_id: int) -> SimulatedDevice:
        self.devices.append(SimulatedDevice(device_id, capacity_bytes=1 << 31))
        return self.devices[-1]

    @property
    def cupy(self) -> Any:
        return SimpleNamespace(zeros=np.zeros)

    def gate(self, handle: int = 0) -> SimulatedGate:
        return SimulatedGate(self)

    def delay(self, seconds: float, handle: int = 0) -> None:
        self.delays_s.append(seconds)

    def synchronize(self) -> None:
        for device in self.devices:
            device.run()
