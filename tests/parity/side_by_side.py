"""Operators of the real DALI and of dali_like on the same samples: one pipeline each, with many outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import dali_like

#: Given a library and a node of each input: the outputs, by names for messages.
Define = Callable[..., Mapping[str, Any]]


class Output(NamedTuple):
    """The state of one output."""

    layout: str
    samples: list[np.ndarray]


def run_one(
    library: Any, define: Define, inputs: Sequence[Sequence[Any]], layouts: Sequence[str], batch_size: int = 1
) -> dict[str, Output]:
    """The outputs that one library makes of samples; without inputs, those of one batch."""
    pipe = library.Pipeline(batch_size=len(inputs[0]) if inputs else batch_size, num_threads=1, device_id=None, seed=1)
    given = [*layouts, *[""] * (len(inputs) - len(layouts))]
    with pipe:
        nodes = [
            library.fn.external_source(_always([np.array(sample, order="C") for sample in samples]), layout=layout)
            for samples, layout in zip(inputs, given, strict=True)
        ]
        defined = define(library, *nodes)
        pipe.set_outputs(*defined.values())
    pipe.build()
    batches = pipe.run()
    results = {
        name: Output(batch.layout(), [np.array(batch.at(i)) for i in range(len(batch))])
        for name, batch in zip(defined, batches, strict=True)
    }
    if library is dali_like:
        pipe.close()
    return results


def _always(samples: list[np.ndarray]) -> Callable[[], list[np.ndarray]]:
    return lambda: samples


def assert_alike(
    define: Define,
    *inputs: Sequence[Any],
    layouts: Sequence[str] = (),
    bounds: Mapping[str, float] | float = 0.0,
    batch_size: int = 1,
) -> None:
    """Both libraries make arrays of the same dtypes, shapes and layouts, with the same elements.

    Args:
        inputs: the samples of each input.
        layouts: of each input.
        bounds: by how much elements may differ, by the first word of the output's name, or for all.
        batch_size: without inputs.
    """
    theirs = run_one(pytest.importorskip("nvidia.dali"), define, inputs, layouts, batch_size)
    ours = run_one(dali_like, define, inputs, layouts, batch_size)
    wrong = {}
    for name, expected in theirs.items():
        bound = bounds.get(name.split()[0], 0) if isinstance(bounds, Mapping) else bounds
        if difference := _difference(expected, ours[name], bound):
            wrong[name] = difference
    assert not wrong, wrong


def _difference(theirs: Output, ours: Output, bound: float) -> str:
    if theirs.layout != ours.layout:
        return f"layouts {theirs.layout!r} and {ours.layout!r}"
    for one, other in zip(theirs.samples, ours.samples, strict=True):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{one.dtype}{one.shape} and {other.dtype}{other.shape}"
        if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            continue
        distance = np.abs(one.astype(np.float64) - other.astype(np.float64))
        if not distance.max() <= bound:
            return f"{np.count_nonzero(distance)} of {one.size} elements differ, by {distance.max():g} at most"
    return ""
