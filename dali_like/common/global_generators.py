"""The global random generators of this process: of Python, of NumPy, and of PyTorch if it is in use."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["generator_states", "kept_generators"]


def generator_states() -> tuple[Any, Any, Any]:
    """Return the states of the generators; None for PyTorch if it is not imported."""
    torch: Any = sys.modules.get("torch")
    return random.getstate(), np.random.get_state(), None if torch is None else torch.get_rng_state().numpy().copy()


@contextlib.contextmanager
def kept_generators() -> Iterator[None]:
    """Put the generators back to their states at the end of a context."""
    of_python, of_numpy, of_torch = generator_states()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if of_torch is not None:
            torch: Any = sys.modules["torch"]
            torch.set_rng_state(torch.from_numpy(of_torch))
