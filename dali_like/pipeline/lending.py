"""A pipeline as a server sees it: its epochs, its length and its states. Runs in the server's process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dali_like.errors import DefinitionError
from dali_like.serving.batch_server import Served
from dali_like.tensors.gpu_tensor_lists import TensorListGPU

if TYPE_CHECKING:
    from dali_like.pipeline.pipeline import Pipeline


def served(pipe: Pipeline) -> Served:
    """Return a pipeline for a server."""

    def length() -> int | None:
        try:
            return len(pipe)
        except DefinitionError:
            return None

    def state() -> Mapping[str, Any] | None:
        return pipe.state_dict() if pipe.enable_checkpointing else None

    return Served(type(pipe).__name__, lambda: _epoch(pipe), state, length, {})


def _epoch(pipe: Pipeline) -> Iterator[tuple[Any, ...]]:
    """Begin an epoch. Readers have no end of an epoch, so the length of the pipeline ends it."""
    pipe.build()
    batches = map(_on_cpu, iter(pipe))
    return itertools.islice(batches, len(pipe)) if pipe._is_endless else batches


def _on_cpu(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    for index, output in enumerate(batch):
        if isinstance(output, TensorListGPU):
            raise DefinitionError(
                f"output {index} is on a GPU, and other processes can only get outputs on the CPU; leave out .gpu() and "
                'device="gpu", and copy the batches in the consumers'
            )
    return batch
