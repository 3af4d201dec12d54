"""Optional dependencies: imported where they are used, and named where they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from dali_like.errors import MissingExtraError


def installed(module: str) -> Any:
    """A module, or None if it is not installed: for what can be done without, though not as fast."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def optional(module: str, purpose: str, extra: str) -> Any:
    """Import a module that an extra installs.

    Args:
        module: its name.
        purpose: what needs it, as the beginning of a sentence.
        extra: the extra.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs {module}: pip install 'dali_like[{extra}]'") from error
