"""Results of data loaders, compared to the last bit: containers, tensors, arrays, errors.

`theirs` is the result of the real PyTorch, `ours` is compared with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from numbers import Number
from typing import Any

import numpy as np
import torch


def assert_same(theirs: Any, ours: Any, where: str = "it") -> None:
    """Types, dtypes, shapes and bits are the same; contiguous or writeable memory is so here.

    Args:
        where: the compared part, for the message.
    """
    if isinstance(theirs, Exception):
        assert_same_error(theirs, ours, where)
        return
    assert type(ours) is type(theirs), f"{where} is a {type(ours)}, not a {type(theirs)}: {ours!r}"
    match theirs:
        case torch.Tensor():
            _assert_same_tensor(theirs, ours, where)
        case np.ndarray() | np.generic():
            _assert_same_array(theirs, ours, where)
        case str() | bytes() | Set():
            assert ours == theirs, where
        case Mapping():
            assert list(ours) == list(theirs), f"the keys of {where}"
            _assert_same_parts([(f"[{key!r}]", theirs[key], ours[key]) for key in theirs], where)
            _assert_same_attributes(theirs, ours, where)
        case Sequence():
            assert len(ours) == len(theirs), f"the length of {where}"
            _assert_same_parts([(f"[{i}]", theirs[i], ours[i]) for i in range(len(theirs))], where)
            _assert_same_attributes(theirs, ours, where)
        case _ if isinstance(theirs, Number) or not hasattr(theirs, "__dict__"):
            assert repr(ours) == repr(theirs), where  # nan is nan, and -0.0 is not 0.0
        case _:
            _assert_same_attributes(theirs, ours, where)


def assert_same_error(theirs: Exception, ours: Any, where: str = "it") -> None:
    """Ours is an instance of the class of theirs, and has its text.

    From workers, PyTorch raises a text with the original one at the end of a traceback; ours is the original one.
    """
    assert isinstance(ours, type(theirs)), f"{where} is {ours!r}, not {theirs!r}"
    their_text, our_text = str(theirs), str(ours)
    if our_text == their_text:
        return
    assert their_text.startswith("Caught "), f"{where} is {ours!r}, not {theirs!r}"
    if our_text:
        assert f"{type(theirs).__name__}: {our_text.splitlines()[0]}" in their_text, where
    else:
        assert their_text.rstrip().endswith(type(theirs).__name__), where


def _assert_same_parts(parts: list[tuple[str, Any, Any]], where: str) -> None:
    for key, theirs, ours in parts:
        assert_same(theirs, ours, where + key)


def _assert_same_attributes(theirs: Any, ours: Any, where: str) -> None:
    if isinstance(theirs, defaultdict):
        assert ours.default_factory is theirs.default_factory, where
    if hasattr(theirs, "__dict__"):
        assert_same(vars(theirs), vars(ours), f"vars({where})")


def _assert_same_tensor(theirs: torch.Tensor, ours: torch.Tensor, where: str) -> None:
    for name in ("dtype", "shape", "device", "layout", "requires_grad", "is_leaf"):
        assert getattr(ours, name) == getattr(theirs, name), f"the {name} of {where}"
    if theirs.is_meta:
        return
    if theirs.layout != torch.strided:
        assert_same(theirs.to_dense(), ours.to_dense(), where)
        return
    assert ours.is_contiguous() or not theirs.is_contiguous(), f"{where} is not contiguous"
    assert _bits(ours) == _bits(theirs), f"{where} is {ours!r}, not {theirs!r}"


def _bits(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
    return plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _assert_same_array(theirs: Any, ours: Any, where: str) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
    if theirs.dtype.hasobject:
        assert_same(theirs.tolist(), ours.tolist(), where)
        return
    assert ours.flags.c_contiguous or not theirs.flags.c_contiguous, f"{where} is not contiguous"
    assert ours.flags.writeable or not theirs.flags.writeable, f"{where} is read-only"
    assert ours.tobytes() == theirs.tobytes(), f"{where} is {ours!r}, not {theirs!r}"
