"""Optional dependencies: imported where they are used, and named where they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from dali_like.errors import MissingExtraError

#: Those for GPUs, one for each version of CUDA.
GPU_EXTRAS = ("cuda13", "cuda12")


def installed(module: str) -> Any:
    """A module, or None if it is not installed: for what can be done without, though not as fast."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def optional(module: str, purpose: str, *extras: str) -> Any:
    """Import a module that an extra installs.

    Args:
        module: its name.
        purpose: what needs it, as the beginning of a sentence.
        extras: the extra; or several, of which one is to be chosen.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(module, purpose, *extras) from error


def missing(module: str, purpose: str, *extras: str) -> MissingExtraError:
    """What to raise where a module is not installed."""
    commands = " or ".join(f"'dali_like[{extra}]'" for extra in extras)
    return MissingExtraError(f"{purpose} needs {module}: pip install {commands}")
