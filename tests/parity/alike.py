"""Operators of the real DALI and of dali_like, applied to the same samples: one pipeline each, with many outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import nvidia.dali
import nvidia.dali.math
import pytest

import dali_like
from dali_like.errors import DaliLikeError

DALI: Any = nvidia.dali
OURS: Any = dali_like

#: Of tensors, but for FLOAT16, which DALI's expressions do not have on the CPU.
DTYPES = [np.dtype(name) for name in ("?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")]

#: Given a library and a node of each input: the outputs, by names for messages.
Define = Callable[..., Mapping[str, Any]]


class Output(NamedTuple):
    """The results of a pipeline."""

    layout: str
    samples: list[np.ndarray]


def outputs(
    library: Any, define: Define, inputs: Sequence[Sequence[Any]], layouts: Sequence[str | None]
) -> dict[str, Output]:
    """One library's way to make samples.

    Args:
        inputs: the samples of each.
        layouts: of each.
    """
    with warnings.catch_warnings(record=library is DALI):  # it calls operators deprecated that it has no others for
        return _outputs(library, define, inputs, layouts)


def _outputs(
    library: Any, define: Define, inputs: Sequence[Sequence[Any]], layouts: Sequence[str | None]
) -> dict[str, Output]:
    pipe = library.Pipeline(batch_size=len(inputs[0]), num_threads=1, device_id=None, prefetch_queue_depth=1)
    given = [*layouts, *[None] * (len(inputs) - len(layouts))]
    with pipe:
        nodes = [
            library.fn.external_source(source=_always([np.asarray(sample) for sample in samples]), layout=layout)
            for samples, layout in zip(inputs, given, strict=True)
        ]
        defined = define(library, *nodes)
        pipe.set_outputs(*defined.values())
    pipe.build()
    try:
        batches = pipe.run()
        return {
            name: Output(batch.layout(), [np.array(batch.at(i)) for i in range(len(batch))])
            for name, batch in zip(defined, batches, strict=True)
        }
    finally:
        if library is OURS:
            pipe.close()


def _always(samples: list[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    return lambda: samples


def assert_same(
    define: Define, *inputs: Sequence[Any], layouts: Sequence[str | None] = (), ulps: Mapping[str, int] | int = 0
) -> None:
    """Both libraries make the same: types, shapes, layouts, and values.

    Args:
        ulps: how many floating-point numbers there may be between two results; by the first word of the output's name, or
            for all outputs.
    """
    theirs, ours = (outputs(library, define, inputs, layouts) for library in (DALI, OURS))
    wrong = {}
    for name in theirs:
        allowed = ulps if isinstance(ulps, int) else ulps.get(name.split()[0], 0)
        if found := _difference(theirs[name], ours[name], allowed):
            wrong[name] = found
    assert not wrong, wrong


def _difference(theirs: Output, ours: Output, ulps: int) -> str:
    if theirs.layout != ours.layout:
        return f"layouts {theirs.layout!r} and {ours.layout!r}"
    for one, other in zip(theirs.samples, ours.samples, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype}{one.shape} and {other.dtype}{other.shape}"
        if not np.array_equal(one, other, equal_nan=one.dtype.kind == "f") and distance(one, other) > ulps:
            return f"{one} and {other}, {distance(one, other)} ulps" if one.size < 20 else f"{distance(one, other)} ulps"
    return ""


def distance(one: np.ndarray, other: np.ndarray) -> float:
    """How many floating-point numbers there are between two arrays at most; infinite for other types and for NaN."""
    if one.dtype.kind != "f":
        return np.inf
    nan = np.isnan(one)
    if (nan != np.isnan(other)).any():
        return np.inf
    return float(np.max(np.abs(_ranks(one)[~nan] - _ranks(other)[~nan]), initial=0))


def _ranks(numbers: np.ndarray) -> np.ndarray:
    """The numbers of floating-point numbers in their order."""
    bits = numbers.view(f"i{numbers.dtype.itemsize}").astype(np.longdouble)  # which is exact
    least = np.longdouble(-(2.0 ** (8 * numbers.dtype.itemsize - 1)))
    return np.where(bits < 0, least - bits, bits)


def assert_both_refuse(
    define: Callable[..., Any], *inputs: Sequence[Any], layouts: Sequence[str | None] = (), match: str
) -> None:
    """Neither library does it, and ours says why, by an error that `except` clauses for DALI's catch."""
    errors = []
    for library in (DALI, OURS):
        with pytest.raises(Exception, match=None if library is DALI else match) as caught:
            outputs(library, lambda library, *nodes: {"it": define(library, *nodes)}, inputs, layouts)
        errors.append(caught.value)
    theirs, ours = errors
    assert isinstance(ours, (DaliLikeError, TypeError))
    assert isinstance(ours, type(theirs)), f"{type(theirs)}: {theirs}; {type(ours).__mro__}: {ours}"
