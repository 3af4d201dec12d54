"""Run operators over single samples, in threads or in workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dali_like import Pipeline, fn
from dali_like.graph.language.nodes import DataNode
from dali_like.tensors import TensorListCPU

#: Places for operators: threads of this process, or a worker, after the source.
WAYS = ("threads", "workers")


def run(
    define: Callable[..., Any],
    *inputs: Sequence[Any],
    layouts: Sequence[str] = (),
    way: str = "threads",
    iterations: int = 1,
    reset_before: Sequence[int] = (),
    batch_size: int | None = None,
    **options: Any,
) -> list[list[list[np.ndarray]]]:
    """Return the samples of each output of each iteration of a pipeline of operators.

    Args:
        define: returns the pipeline's outputs, given a node for each input.
        inputs: the samples of each input, repeated.
        layouts: layouts of the inputs.
        way: place where the operators run.
        reset_before: the iterations that begin an epoch.
    """
    return [
        [[np.array(output.at(i)) for i in range(len(output))] for output in outputs]
        for outputs in batches(
            define,
            *inputs,
            layouts=layouts,
            way=way,
            iterations=iterations,
            reset_before=reset_before,
            batch_size=batch_size,
            **options,
        )
    ]


def batches(
    define: Callable[..., Any],
    *inputs: Sequence[Any],
    layouts: Sequence[str] = (),
    way: str = "threads",
    iterations: int = 1,
    reset_before: Sequence[int] = (),
    batch_size: int | None = None,
    **options: Any,
) -> list[tuple[TensorListCPU, ...]]:
    """Return the batches; arguments as in `run`."""
    pipe = pipeline(define, *inputs, layouts=layouts, way=way, batch_size=batch_size, **options)
    try:
        results = []
        for i in range(iterations):
            if i in reset_before:
                pipe.reset()
            results.append(pipe.run())
        return results
    finally:
        pipe.close()


def pipeline(
    define: Callable[..., Any],
    *inputs: Sequence[Any],
    layouts: Sequence[str] = (),
    way: str = "threads",
    batch_size: int | None = None,
    **options: Any,
) -> Pipeline:
    """Return a pipeline of operators over samples; see `run`."""
    size = len(inputs[0]) if inputs else 1
    options = {"seed": 1, "num_threads": 2 if way == "threads" else 1, "py_num_workers": 1, **options}
    pipe = Pipeline(batch_size=size if batch_size is None else batch_size, **options)
    with pipe:
        outputs = define(*_nodes(inputs, layouts, size, parallel=way == "workers"))
        pipe.set_outputs(*(outputs if isinstance(outputs, (list, tuple)) else [outputs]))
    return pipe


def _nodes(inputs: Sequence[Sequence[Any]], layouts: Sequence[str], size: int, *, parallel: bool) -> list[DataNode]:
    if not inputs:
        return []

    def source(info: Any) -> Any:
        return tuple(np.asarray(samples[info.idx_in_epoch % size]) for samples in inputs)

    given = [*layouts, *[""] * (len(inputs) - len(layouts))]
    return fn.external_source(source, num_outputs=len(inputs), layout=given, batch=False, parallel=parallel)
