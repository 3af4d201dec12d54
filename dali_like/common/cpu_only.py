"""The switch that lets programs written for a GPU run without one: ``DALI_LIKE_DEVICE=cpu`` in the environment.

Pipelines then deliver all outputs in host memory, and loaders do not page-lock. Child processes inherit the switch.
"""

from __future__ import annotations

import os

from dali_like.errors import ArgumentError

__all__ = ["is_cpu_only", "use_cpu"]

_VARIABLE = "DALI_LIKE_DEVICE"
#: The remedy without a GPU, for messages.
ADVICE = "To run this program on the CPU, set DALI_LIKE_DEVICE=cpu in the environment, or call dali_like.use_cpu()"


def use_cpu() -> None:
    """Run on the CPU: pipelines built from now on deliver all outputs in host memory, as if no program asked for a GPU.

    Operators with ``device="gpu"`` or "mixed", ``.gpu()`` and ``device_id`` are accepted, and iterators yield arrays and
    tensors on the CPU. ``DataLoader(pin_memory=True)`` does not page-lock. Setting ``DALI_LIKE_DEVICE=cpu`` in the
    environment before the program starts is the same. Call it before the first pipeline is built.
    """
    os.environ[_VARIABLE] = "cpu"


def is_cpu_only() -> bool:
    """Whether `use_cpu` applies.

    Raises:
        ArgumentError: the variable in the environment has another value than "cpu" or "gpu".
    """
    value = os.environ.get(_VARIABLE, "").lower()
    if value not in ("", "cpu", "gpu"):
        raise ArgumentError(f"{_VARIABLE}={value!r} is not a device: set it to cpu, or unset it")
    return value == "cpu"
