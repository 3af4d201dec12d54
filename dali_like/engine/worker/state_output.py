"""Adds the state of an iterable to the batches of a worker, as one more output; see `dali_like.engine.worker.streams`.

The first sample of that output is the state before the batch, as JSON text. The other samples are empty. So the state takes
the way of the batch, and `dali_like.graph.source_states` removes it in the main process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import Source, as_columns
from dali_like.engine.worker.streams import Stream
from dali_like.errors import CheckpointError
from dali_like.types import UINT8, BatchInfo, SampleInfo, numpy_dtype

_EMPTY = np.empty(0, np.uint8)


def add_state_output(
    source: Source, declared: Sequence[OutputSchema], capacity: int
) -> tuple[Source, tuple[OutputSchema, ...]]:
    """Let a source of batches, whose callback is a stream, return its state as its last output.

    Args:
        declared: the schemas of its outputs.
        capacity: the largest batch.
    """
    assert isinstance(source.callback, Stream)
    source.callback.reporter = StateOutput(source._replace(callback=_never_called), capacity)
    objects = (*source.objects, False) if source.objects else ()
    schema = OutputSchema(DTYPE_CODES[numpy_dtype(UINT8)], 1)
    return source._replace(num_outputs=source.output_count + 1, objects=objects), (*declared, schema)


@dataclass(frozen=True)
class StateOutput:
    """Reports states with batches; see `dali_like.engine.worker.streams.Reporter`.

    Attributes:
        source: the source without that output.
        capacity: the largest batch.
    """

    source: Source
    capacity: int

    def report(self, info: SampleInfo | BatchInfo, saved: dict[str, Any]) -> NDArray[np.uint8]:
        return np.frombuffer(state_text(self.source.name, saved), np.uint8)

    def attach(self, batch: Any, report: NDArray[np.uint8]) -> tuple[Any, ...]:
        columns = as_columns(batch, self.source, self.capacity)
        count = len(columns[0])
        return (*columns, [report, *[_EMPTY] * (count - 1)][:count])


def state_text(name: str, saved: Any) -> bytes:
    """The JSON text of a saved state.

    Raises:
        CheckpointError: JSON cannot hold it.
    """
    import json  # noqa: PLC0415  # few sources are stateful

    try:
        return json.dumps(saved).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{name}: state_dict() must return what JSON can hold: {error}") from None


def _never_called(info: Any) -> Any:
    raise AssertionError("only the fields of this source are used")
