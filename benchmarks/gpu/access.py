"""Access to the GPU for the steps. `tests/programs/simulated_gpu.py` has the same for the simulated device."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

Figures = dict[str, Any]

_TRAP = r"""
extern "C" __global__ void trap() { asm("trap;"); }
"""


class StepFailed(Exception):
    """A step has found a defect; the message is the reason of the verdict."""


class StepSkipped(Exception):
    """A step cannot run on this machine; the message is the reason of the verdict."""


def check(holds: bool, reason: str) -> None:
    """Raise StepFailed with this reason, unless the condition holds."""
    if not holds:
        raise StepFailed(reason)


class Gate(Protocol):
    """A kernel that blocks all later work on a stream until the gate opens."""

    @property
    def is_shut(self) -> bool:
        """Whether the stream still waits."""

    def open(self) -> None:
        """Let the stream continue, and wait for it."""


class Gpu:
    """GPU 0.

    Attributes:
        torch_device: its name in PyTorch.
        jax_platform: its platform in JAX.
        most_copy_us: maximum time of a call that begins a copy, in microseconds.
        least_loader_ratio: minimum rate of a loader with ``device=``, relative to bare copies.
        prelude: the beginning of programs that run in separate processes; defines ``break_gpu``.
    """

    torch_device = "cuda"
    jax_platform = "gpu"
    most_copy_us = 50.0
    least_loader_ratio = 0.95
    prelude = f"""
def break_gpu():
    import cupy
    cupy.RawKernel({_TRAP!r}, "trap")((1,), (1,), ())
"""

    @property
    def cupy(self) -> Any:
        """CuPy. Importing it does not initialize CUDA, so workers can still be forked."""
        return importlib.import_module("cupy")

    def gate(self, handle: int = 0) -> Gate:
        """Return a shut gate on a stream. The gate opens by itself after five seconds."""
        gates = importlib.import_module("tests.gpu.gates")
        stream = gates.stream_of(self.cupy, handle) if handle else None
        gate: Gate = gates.Gate(self.cupy, stream)
        return gate

    def delay(self, seconds: float, handle: int = 0) -> None:
        """Queue a kernel of this duration on a stream."""
        gates = importlib.import_module("tests.gpu.gates")
        stream = gates.stream_of(self.cupy, handle) if handle else None
        gates.Gate(self.cupy, stream, most_ns=int(seconds * 1e9))

    def synchronize(self) -> None:
        """Wait for all work of the GPU."""
        self.cupy.cuda.Device(0).synchronize()
