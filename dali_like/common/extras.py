"""Optional dependencies: imported on use; a missing one raises an error that names the packages to install."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dali_like.errors import MissingExtraError

#: The packages of each extra, as in pyproject.toml. Messages name these packages, not the extra: this package need not be
#: installed, and an index may have another one of its name.
REQUIREMENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "images": ("simplejpeg>=1.8", "opencv-python-headless>=4.9.0.80"),
        "pytorch": ("torch>=2.6",),
        "torchdata": ("torch>=2.6", "torchdata>=0.11"),
        "jax": ("jax>=0.5",),
        "orbax": ("jax>=0.5", "orbax-checkpoint>=0.11"),
        "tensorflow": ("tensorflow>=2.16",),
        "paddle": ("paddlepaddle>=3.0",),
        "cuda12": (
            "cupy-cuda12x>=13.3",
            "cuda-toolkit[cudart,nvrtc]==12.*",
            "nvidia-ml-py>=12.560.30",
            "nvidia-nvimgcodec-cu12[all]>=0.6.0.32",
        ),
        "cuda13": (
            "cupy-cuda13x>=13.6",
            "cuda-toolkit[cudart,nvrtc]==13.*",
            "nvidia-ml-py>=13.580.65",
            "nvidia-nvimgcodec-cu13[all]>=0.6.0.32",
        ),
        "audio": ("soundfile>=0.13", "soxr>=0.3.4"),
        "ray": ("ray>=2.40",),
        "remote": ("fsspec[http]>=2024.12", "tenacity>=9", "diskcache>=5.6"),
        "tfrecord": ("google-crc32c>=1.5",),
        "coco": ("pycocotools>=2.0.7",),
        "fits": ("astropy>=6",),
        "progress": ("tqdm>=4.66",),
        "plot": ("matplotlib>=3.9",),
        "nvtx": ("nvtx>=0.2.10",),
        "top": ("rich>=13",),
        "video": ("av>=17.0.1",),
        "hdf5": ("h5py>=3.11",),
        "zarr": ("zarr>=3",),
        "testing": ("hypothesis>=6.60",),
        "parquet": ("pyarrow>=17",),
        "array-record": ("array-record>=0.8.1",),
        "lance": ("pylance>=0.20",),
        "conditionals": ("diastatic-malt>=2.15.3",),
        "zstd": ("zstandard>=0.22",),
        "formats": ("imagecodecs>=2024.6.1",),
        "lz4": ("lz4>=4.3",),
        "numba": ("numba>=0.60",),
        "segmentation": ("scipy>=1.11.1",),
        "pictures": ("pillow>=10.1",),
        "kernels": ("dali-like-kernels>=0.1",),
    }
)

#: The extras for GPUs, one for each version of CUDA.
GPU_EXTRAS = ("cuda13", "cuda12")


#: Modules that `installed` has not found: looking for one takes 70 us.
_absent: set[str] = set()


def _loaded(module: str) -> Any:
    """Return a module that is imported already, in a tenth of the time of an import, or None.

    A module that another thread is importing does not count.
    """
    found = sys.modules.get(module)
    return None if getattr(getattr(found, "__spec__", None), "_initializing", False) else found


def installed(module: str) -> Any:
    """Return a module; None if it is not installed, for features that have a slower substitute."""
    if (found := _loaded(module)) is not None:
        return found
    if module in _absent:
        return None
    try:
        return importlib.import_module(module)
    except ImportError:
        if module not in sys.modules:  # otherwise, it is hidden for a while
            _absent.add(module)
        return None


def optional(module: str, purpose: str, *extras: str) -> Any:
    """Import a module that an extra installs.

    Args:
        module: its name.
        purpose: the feature that needs it, as the beginning of a sentence.
        extras: the extra; if there are several, the user chooses one.

    Raises:
        MissingExtraError: it is not installed.
    """
    if (found := _loaded(module)) is not None:
        return found
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(module, purpose, *extras) from error


def missing(module: str, purpose: str, *extras: str) -> MissingExtraError:
    """Return the exception to raise for a module that is not installed."""
    return MissingExtraError(f"{purpose} needs {module}: {' or '.join(map(install_command, extras))}")


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f"pip install {' '.join(map(repr, REQUIREMENTS[extra]))}"
