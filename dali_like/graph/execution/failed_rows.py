"""Replace the samples of a batch whose operators have failed in threads, as `on_error` of their source says.

Runs in the main process. Workers need none of this: there, operators behind a source are part of its callback. In threads,
the other samples of the batch are at hand, but not those of later batches. So "skip" takes the next sample of the batch
whose operators succeed, or if all fail, the one before. The row of each output of the source changes with it, so images
keep their labels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.interrupts import interruptible
from dali_like.engine.worker.coroutines import EventLoop
from dali_like.engine.worker.replacing import replace
from dali_like.engine.worker.source import Source, as_array, check_array, split_outputs
from dali_like.graph.execution.placement import Fusion
from dali_like.graph.execution.program import Key
from dali_like.graph.language.nodes import SourceNode
from dali_like.types import SampleInfo

#: Computes the row of a stage from a sample of its source: given the row, the inputs, and the info for random numbers.
Compute = Callable[[int, Mapping[Key, Any], SampleInfo], None]


class FailedRows:
    """The failed rows of one stage, whose operators depend on one source only.

    Args:
        node: the source.
        fusion: the operators that run behind it in workers, if any.
        batch_size: samples in a full batch.
        data: the batch: for each output of the source, and of operators in workers behind it, its samples. Changed rows
            are those of copies that replace the original.
        errors: of the failed rows.
        info_of: returns the SampleInfo of a row.
        compute: computes a row of the stage.
    """

    def __init__(
        self,
        node: SourceNode,
        fusion: Fusion | None,
        batch_size: int,
        data: dict[Key, Any],
        errors: Mapping[int, Exception],
        info_of: Callable[[int], SampleInfo],
        compute: Compute,
    ) -> None:
        self._node = node
        self._fusion = fusion
        self._batch_size = batch_size
        self._data = data
        self._keys: Sequence[Key] = [(node, i) for i in range(len(node.layouts))] if fusion is None else list(fusion.outputs)
        self._errors = errors
        self._info_of = info_of
        self._compute = compute

    def replace(self, size: int) -> int:
        """Replace the failed rows of a batch of `size` samples; return their number.

        Raises:
            Exception: the error of a row without replacement, or one of a user's function.
        """
        from dali_like.device.device_array import lies_on_gpu  # rarely needed

        external, cell = self._node.external, [0, 0, 0]
        on_error = external.options["on_error"]
        for row, error in sorted(self._errors.items()):
            if any(lies_on_gpu(self._data[key]) for key in self._keys):
                raise error
            info = self._info_of(row)
            others = [other for other in (*range(row + 1, size), *range(row - 1, -1, -1)) if other not in self._errors]
            replace(
                functools.partial(self._call, on_error, row, info, error) if callable(on_error) else on_error,
                error,
                f"{external.name}: the sample of {info._fields[0]} {info[0]}",
                cell,
                function=f"on_error of {external.name}",
                others=(
                    (f"that of {info._fields[0]} {self._info_of(other)[0]}", functools.partial(self._take, row, other))
                    for other in others
                ),
            )
        return cell[1]

    def _take(self, row: int, other: int) -> None:
        self._use(row, {key: _row(self._data[key], other) for key in self._keys}, self._info_of(other))

    def _call(self, on_error: Callable[..., Any], row: int, info: SampleInfo, error: Exception) -> None:
        """Use the sample that the user's function returns."""
        loop = EventLoop()
        try:
            with interruptible():
                sample = loop.finish(on_error(info, error))
        finally:
            loop.close()
        external = self._node.external
        source = external.source(self._batch_size, (0, 0))
        source = source._replace(name=f"on_error of {external.name}", batch=False, verb="returned")
        values = [self._checked(source, i, value) for i, value in enumerate(split_outputs(sample, source))]
        if self._fusion is not None:
            values = [*self._fusion.program.run(values, info)]
        self._use(row, dict(zip(self._keys, values, strict=True)), info)

    def _checked(self, source: Source, output: int, value: Any) -> Any:
        array = as_array(value, source, output)
        if not source.is_object(output):
            declared = self._node.external.declared[output]
            check_array(array.dtype, array.ndim, declared.dtype, declared.ndim, source, output)
        return array

    def _use(self, row: int, values: Mapping[Key, Any], info: SampleInfo) -> None:
        self._compute(row, values, info)
        self._data |= {key: _with_row(self._data[key], row, value) for key, value in values.items()}


def _row(samples: Any, i: int) -> Any:
    return samples[i, ...] if isinstance(samples, np.ndarray) else samples[i]


def _with_row(samples: Any, i: int, value: Any) -> Any:
    """Return a copy of samples with another one at `i`."""
    if isinstance(samples, np.ndarray) and samples.shape[1:] == value.shape and samples.dtype == value.dtype:
        changed = samples.copy()
        changed[i] = value
        return changed
    rows = [_row(samples, row) for row in range(len(samples))]
    rows[i] = value
    return rows
