"""States of iterables in workers, which are sent with each batch: what the state was before it.

A state travels as one more output, whose first sample is the state as JSON; the others are empty. So it comes when the
batch comes, through the same memory, and nobody has to ask a worker that is elsewhere by then.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import Source, as_columns
from dali_like.errors import CheckpointError
from dali_like.types import UINT8, numpy_dtype

_NOTHING = np.empty(0, np.uint8)


def sending_states(
    source: Source, declared: Sequence[OutputSchema], capacity: int
) -> tuple[Source, tuple[OutputSchema, ...]]:
    """A source of batches, which walks through an iterable, as one that sends with each what the state was before.

    Args:
        declared: what is known of its outputs.
        capacity: the largest batch.
    """
    source.stream.sender = StateSender(source._replace(callback=_never_called), capacity)
    objects = (*source.objects, False) if source.objects else ()
    layout = OutputSchema(DTYPE_CODES[numpy_dtype(UINT8)], 1)
    return source._replace(num_outputs=source.output_count + 1, objects=objects), (*declared, layout)


@dataclass(frozen=True)
class StateSender:
    """Adds the state to batches.

    Attributes:
        source: what the batches are of, without the state.
        capacity: the largest batch.
    """

    source: Source
    capacity: int

    def text_of(self, state: Any) -> NDArray[np.uint8]:
        """A state as it travels.

        Raises:
            CheckpointError: JSON cannot hold it.
        """
        try:
            return np.frombuffer(json.dumps(state).encode(), np.uint8)
        except (TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.source.name}: state_dict() must return what JSON can hold: {error}") from None

    def with_state(self, batch: Any, text: NDArray[np.uint8]) -> tuple[Any, ...]:
        """A batch with one more output."""
        columns = as_columns(batch, self.source, self.capacity)
        count = len(columns[0])
        return (*columns, [text, *[_NOTHING] * (count - 1)][:count])


def _never_called(info: Any) -> Any:
    raise NotImplementedError
