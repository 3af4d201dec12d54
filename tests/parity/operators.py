"""Running the same operator with both libraries, on the same samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.parity.conftest import OURS, Library


class Result(NamedTuple):
    """One output: its layout, and the samples."""

    layout: str
    samples: list[np.ndarray]


def outputs(
    library: Library, define: Callable[..., Any], inputs: Sequence[Sequence[Any]], layouts: Sequence[str | None] = ()
) -> list[Result]:
    """The results of one batch of a pipeline.

    Args:
        define: given the library and a node for each input, the outputs.
        inputs: the samples of each.
        layouts: of the inputs.
    """
    given = [*layouts, *[None] * (len(inputs) - len(layouts))]

    def program() -> Any:
        nodes = [
            library.fn.external_source(source=_repeated(samples), batch=True, **({"layout": layout} if layout else {}))
            for samples, layout in zip(inputs, given, strict=True)
        ]
        results = define(library, *nodes)
        return tuple(results) if isinstance(results, (list, tuple)) else results

    with library.pipeline(program, batch_size=len(inputs[0]) if inputs else 1, prefetch_queue_depth=1) as pipe:
        return [
            Result(batch.layout(), [np.array(batch.at(i)) for i in range(len(batch))]) for batch in map(_on_cpu, pipe.run())
        ]


def _repeated(samples: Sequence[Any]) -> Callable[[], list[np.ndarray]]:
    return lambda: [np.ascontiguousarray(sample) for sample in samples]


def _on_cpu(batch: Any) -> Any:
    return batch


class Difference(NamedTuple):
    """How far two libraries are apart."""

    largest: float
    mean: float


def compare(
    dali: Library,
    define: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    layouts: Sequence[str | None] = (),
    *,
    bound: float = 0,
    mean: float | None = None,
) -> None:
    """Assert that both deliver the same: layouts, dtypes and shapes exactly, elements within a bound.

    Args:
        bound: how far elements may be apart.
        mean: how far they may be on average. Default: a tenth of the bound.
    """
    ours, theirs = (outputs(library, define, inputs, layouts) for library in (OURS, dali))
    assert [result.layout for result in ours] == [result.layout for result in theirs]
    for one, other in zip(ours, theirs, strict=True):
        for i, (sample, same) in enumerate(zip(one.samples, other.samples, strict=True)):
            assert (sample.dtype, sample.shape) == (same.dtype, same.shape), f"sample {i}"
            apart = difference(sample, same)
            assert apart.largest <= bound, f"sample {i}: {apart}"
            assert apart.mean <= (bound / 10 if mean is None else mean), f"sample {i}: {apart}"


def difference(one: np.ndarray, other: np.ndarray) -> Difference:
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return Difference(float(apart.max(initial=0)), float(apart.mean()) if apart.size else 0.0)


def error_of(library: Library, define: Callable[..., Any], inputs: Sequence[Sequence[Any]]) -> Exception | None:
    """The exception of a pipeline, when it is made or when it runs."""
    try:
        outputs(library, define, inputs)
    except Exception as error:
        return error
    return None
