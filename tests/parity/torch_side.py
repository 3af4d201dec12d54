"""The real ``torch.utils.data`` and ``dali_like.data`` side by side: the same program with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.data

from dali_like import data

#: PyTorch's module, and ours.
BOTH = (torch.utils.data, data)


def generator(seed: int) -> Any:
    """A generator of PyTorch."""
    return torch.Generator().manual_seed(seed)


def outcomes(make: Callable[[Any], Any]) -> list[Any]:
    """The result of a program with each of the two modules: a value or an exception."""
    return [_outcome(make, module) for module in BOTH]


def _outcome(make: Callable[[Any], Any], module: Any) -> Any:
    try:
        return make(module)
    except Exception as error:
        return error


def assert_same_error(make: Callable[[Any], Any], *, text: bool = True) -> None:
    """Ours is an instance of the class of PyTorch's, too, and its text begins like that of PyTorch's."""
    theirs, ours = outcomes(make)

    assert isinstance(theirs, Exception)
    assert isinstance(ours, type(theirs))
    assert not text or str(ours).startswith(str(theirs))
