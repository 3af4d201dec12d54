"""The GPU libraries have all names that this library uses, and their stand-ins in other tests have no more.

Needs no GPU; each library only has to be importable.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import warnings
from typing import Any

import pytest

from tests import nvimgcodec_stand_in
from tests.cupy_stand_in import CupyStandIn, DriverStandIn

#: ``NVIMGCODEC_DEVICE_CPU_ONLY``, which some versions of the module lack.
CPU_ONLY = -99999
#: Functions of NVML in use, with their number of arguments.
NVML = {
    "nvmlInit": 0,
    "nvmlShutdown": 0,
    "nvmlDeviceGetCount": 0,
    "nvmlDeviceGetHandleByIndex": 1,
    "nvmlDeviceGetHandleByUUID": 1,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": 1,
    "nvmlDeviceGetUUID": 1,
    "nvmlDeviceGetCpuAffinity": 2,
    "nvmlDeviceGetComputeRunningProcesses": 1,
}


def imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy looks for CUDA's headers
        return pytest.importorskip(name, reason=f"{name} is not installed")


def documented_arguments(function: Any) -> list[str]:
    """Return the argument names from the first line of a compiled function's docstring, without their types."""
    text = re.match(r"[^(]*\((.*?)\)", str(function.__doc__), re.DOTALL)
    assert text is not None
    names = [re.split(r"[=:]", part)[0].split() for part in text[1].split(",")]
    return [name[-1] for name in names if name and name[-1] != "self"]


@pytest.mark.parametrize("name", sorted(set(vars(CupyStandIn().cuda)) - {"runtime", "driver", "compiler", "memory"}))
def test_cupy_has_the_classes_and_functions_that_are_used(name: str) -> None:
    assert callable(getattr(imported("cupy").cuda, name))


def test_arguments_of_cupys_classes() -> None:
    cupy = imported("cupy")

    assert {"non_blocking", "null"} <= set(inspect.signature(cupy.cuda.Stream).parameters)
    assert documented_arguments(cupy.cuda.UnownedMemory) == ["ptr", "size", "owner", "device_id"]
    assert documented_arguments(cupy.cuda.MemoryPointer) == ["mem", "offset"]
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
    assert cupy.cuda.runtime.CUDARuntimeError(2).status == 2
    assert issubclass(cupy.cuda.driver.CUDADriverError, RuntimeError)
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)
    assert all(callable(getattr(cupy, name)) for name in ("copyto", "from_dlpack", "ndarray"))
    assert callable(cupy.cuda.get_allocator().__self__.free_all_blocks)
    assert {"out", "dtype"} <= set(documented_arguments(cupy.add))


@pytest.mark.parametrize("name", sorted(name for name in vars(DriverStandIn) if name.startswith("cu")))
def test_the_driver_has_the_functions_that_are_used(name: str) -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("CUDA's driver is not installed")

    assert callable(getattr(driver, name))


def test_nvml_has_the_functions_that_are_used() -> None:
    nvml = imported("pynvml")

    assert {name: len(inspect.signature(getattr(nvml, name)).parameters) for name in NVML} == NVML
    assert issubclass(nvml.NVMLError, Exception)


def test_the_codec_has_the_arguments_that_are_used() -> None:
    codec = imported("nvidia.nvimgcodec")

    assert set(nvimgcodec_stand_in.ColorSpec.__members__) <= set(codec.ColorSpec.__members__)
    for kind, arguments in {
        "Decoder": ["device_id", "options"],
        "DecodeParams": ["apply_exif_orientation", "color_spec"],
    }.items():
        assert all(name in str(getattr(codec, kind).__init__.__doc__) for name in arguments)
    assert all(name in str(codec.Decoder.decode.__doc__) for name in ("params", "cuda_stream"))


def test_the_codec_takes_them() -> None:
    """Without a GPU, decoding returns None for every file; with one, for bytes that are not an image."""
    codec = imported("nvidia.nvimgcodec")
    decoder = codec.Decoder(device_id=CPU_ONLY, options=":fancy_upsampling=1")

    params = codec.DecodeParams(apply_exif_orientation=False, color_spec=codec.ColorSpec.GRAY)

    assert decoder.decode([b"no image", b""], params=params, cuda_stream=0) == [None, None]
