"""Optional dependencies: imported on use; a missing one raises an error that names the extra to install."""

from __future__ import annotations

import importlib
from typing import Any

from dali_like.errors import MissingExtraError

#: The extras for GPUs, one for each version of CUDA.
GPU_EXTRAS = ("cuda13", "cuda12")


def installed(module: str) -> Any:
    """Return a module; None if it is not installed, for features that have a slower substitute."""
    try:
        return importlib.import_module(module)
    except ImportError:
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
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(module, purpose, *extras) from error


def missing(module: str, purpose: str, *extras: str) -> MissingExtraError:
    """Return the exception to raise for a module that is not installed."""
    commands = " or ".join(f"'dali_like[{extra}]'" for extra in extras)
    return MissingExtraError(f"{purpose} needs {module}: pip install {commands}")
