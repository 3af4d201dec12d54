"""The classes of batches and tensors, and the other names that programs use of ``nvidia.dali.backend``.

Operators have schemas here, too. Functions that tune DALI's memory pools have no effect: there are no such pools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dali_like import types
from dali_like.common.lazy_names import importer
from dali_like.compat.plugin_manager import load_directory as LoadDirectory  # noqa: N812  # DALI's names
from dali_like.compat.plugin_manager import load_library as LoadLibrary  # noqa: N812
from dali_like.tensors import TensorCPU, TensorListCPU

if TYPE_CHECKING:
    from dali_like.compat.op_schemas import OpSchema
    from dali_like.tensors import TensorGPU, TensorListGPU

__all__ = [
    "CheckDLPackCapsule",
    "GetCUDADeviceCount",
    "GetSchema",
    "LoadDefaultPlugins",
    "LoadDirectory",
    "LoadLibrary",
    "OpSchema",
    "PreallocateDeviceMemory",
    "PreallocatePinnedMemory",
    "RegisteredCPUOps",
    "RegisteredGPUOps",
    "RegisteredMixedOps",
    "ReleaseUnusedMemory",
    "RestrictPinnedMemUsage",
    "SetBufferGrowthFactor",
    "SetDeviceBufferGrowthFactor",
    "SetHostBufferGrowthFactor",
    "SetHostBufferShrinkThreshold",
    "TensorCPU",
    "TensorGPU",
    "TensorListCPU",
    "TensorListGPU",
    "TryGetSchema",
    "__cuda_version__",
    "check_cuda_runtime",
    "types",
]

__getattr__, __dir__ = importer(
    __name__,
    {"dali_like.tensors": ("TensorGPU", "TensorListGPU"), "dali_like.compat.op_schemas": ("OpSchema",)},
)


#: CUDA's version that DALI's packages for Python are built with: without a GPU, no other one is known.
__cuda_version__ = 12986


def CheckDLPackCapsule(ptr: object) -> tuple[bool, bool]:  # noqa: N802  # DALI's names, here and below
    """Return whether an object is a DLPack capsule, and whether its data are on a GPU.

    Raises:
        SampleError: the capsule has been read, or is of another kind.
    """
    from dali_like.common.dlpack import device_of_capsule  # only few programs ask

    device = device_of_capsule(ptr)
    return device is not None, device == "gpu"


def GetSchema(name: str) -> OpSchema:  # noqa: N802
    """Return the schema of an operator.

    Args:
        name: the class of the operator, such as "Resize" or "decoders__Image".

    Raises:
        KeyError: there is no such operator.
    """
    schema = TryGetSchema(name)
    if schema is None:
        raise KeyError(f"Schema for operator '{name}' not registered")
    return schema


def TryGetSchema(name: str) -> OpSchema | None:  # noqa: N802
    """Return the schema of an operator, or None; see `GetSchema`."""
    from dali_like.compat.op_schemas import schemas  # imports all operators

    return schemas().get(name)


def RegisteredCPUOps() -> list[str]:  # noqa: N802
    """Return the names of the classes of all operators on the CPU."""
    return _names("cpu")


def RegisteredMixedOps() -> list[str]:  # noqa: N802
    """Return the names of the classes of all operators with ``device="mixed"``."""
    return _names("mixed")


def RegisteredGPUOps() -> list[str]:  # noqa: N802
    """Return the names of the classes of all operators on the GPU."""
    return _names("gpu")


def _names(device: str) -> list[str]:
    from dali_like.compat.op_schemas import operator_names  # imports all operators

    return operator_names(device)


def GetCUDADeviceCount() -> int:  # noqa: N802
    """Return the number of GPUs that this process can use. Does not initialize CUDA."""
    from dali_like.device.accelerator import count_accelerators  # only few programs ask

    return count_accelerators()


def RestrictPinnedMemUsage() -> bool:  # noqa: N802
    """Return False: there is no such restriction."""
    return False


def _without_effect(*arguments: Any) -> None:
    """Do nothing: in DALI, this tunes memory pools or loads libraries that do not exist here."""


SetHostBufferShrinkThreshold = SetHostBufferGrowthFactor = SetDeviceBufferGrowthFactor = _without_effect
SetBufferGrowthFactor = PreallocateDeviceMemory = PreallocatePinnedMemory = _without_effect
ReleaseUnusedMemory = LoadDefaultPlugins = check_cuda_runtime = _without_effect
