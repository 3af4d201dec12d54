"""The names of the operators' classes by device, as in ``nvidia.dali.ops``."""

from __future__ import annotations


def cpu_ops() -> set[str]:
    """Return the names of the classes of all operators on the CPU, such as "decoders__Image"."""
    return _names("cpu")


def gpu_ops() -> set[str]:
    """Return the names of the classes of all operators on the GPU."""
    return _names("gpu")


def mixed_ops() -> set[str]:
    """Return the names of the classes of all operators with ``device="mixed"``."""
    return _names("mixed")


def _names(device: str) -> set[str]:
    from dali_like.compat.op_schemas import operator_names  # imports all operators

    return set(operator_names(device))
