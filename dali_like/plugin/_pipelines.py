"""The pipelines of an iterator, advanced in step from the main process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from dali_like.errors import ArgumentTypeError, IteratorArgumentError, OutputMapError
from dali_like.pipeline.checkpoints import Checkpoint
from dali_like.pipeline.definition import uncalled_text
from dali_like.pipeline.pipeline import Pipeline
from dali_like.tensors import TensorListCPU


class Pipelines:
    """Pipelines of the same batch size. Each step takes one batch of each.

    If a pipeline raises, the batches that others have returned for the step are kept for the next attempt.

    Args:
        given: a pipeline, or a list of pipelines.
        names: a name for each output.

    Attributes:
        are_checkpointed: whether all pipelines have ``enable_checkpointing``.

    Raises:
        ArgumentTypeError: an element is not a pipeline.
        IteratorArgumentError: no pipeline is given, or their batch sizes or their ``enable_checkpointing`` differ.
    """

    def __init__(self, given: Any, names: Sequence[str]) -> None:
        pipelines = list(given) if isinstance(given, (list, tuple)) else [given]
        if given is None or not pipelines:
            raise IteratorArgumentError("pipelines must be a pipeline, or a list of at least one")
        for pipe in pipelines:
            if not isinstance(pipe, Pipeline):
                raise ArgumentTypeError(uncalled_text(pipe) or f"pipelines must be Pipeline objects, not {pipe!r}")
        sizes = {pipe.max_batch_size for pipe in pipelines}
        if len(sizes) > 1:
            raise IteratorArgumentError(f"pipelines must have the same batch size; these have {sorted(sizes)}")
        self._pipelines = pipelines
        self._names = names
        self.are_checkpointed = _checked_checkpointing(self._pipelines)
        self._gathered: list[Sequence[Any]] = []  # outputs for the next step
        self._initial_checkpoints: list[Checkpoint] | None = None  # from before a prepared first step

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(self._pipelines)

    def __len__(self) -> int:
        return len(self._pipelines)

    @property
    def batch_size(self) -> int:
        """Number of samples in a full batch of one pipeline."""
        return self._pipelines[0].max_batch_size or 0

    @property
    def step_size(self) -> int:
        """Number of samples in the full batches of all pipelines."""
        return len(self._pipelines) * self.batch_size

    @property
    def are_endless(self) -> bool:
        """Whether all sources of all pipelines are readers, which go on behind an epoch."""
        return all(pipe._is_endless for pipe in self._pipelines)

    def build(self) -> None:
        """Build the pipelines. All workers are forked before any pipeline uses CUDA or threads."""
        for pipe in self._pipelines:
            pipe.start_py_workers()
        for pipe in self._pipelines:
            pipe.build()

    def prepare(self) -> None:
        """Gather the first step, if the epoch has one. `checkpoints` still returns the state before it."""
        if self.are_checkpointed:
            self._initial_checkpoints = self._current_checkpoints()
        with contextlib.suppress(StopIteration):  # `take` raises it again
            self._gather()

    def take(self) -> list[Sequence[TensorListCPU]]:
        """Return the next batch of each pipeline.

        Raises:
            StopIteration: a pipeline has ended its epoch.
            OutputMapError: a pipeline has more or fewer outputs than there are names.
            Exception: any error of `Pipeline.run`.
        """
        self._gather()
        outputs, self._gathered = self._gathered, []
        self._initial_checkpoints = None
        return outputs

    def drop(self) -> None:
        """Skip a step, unless the epoch ends here."""
        with contextlib.suppress(StopIteration):
            self._gather()
        self._gathered.clear()

    def reset(self) -> None:
        """Begin the next epoch of each pipeline."""
        self._forget_step()
        for pipe in self._pipelines:
            pipe.reset()

    def checkpoints(self) -> list[Checkpoint]:
        """Return the position of each pipeline, after the last step that `take` has returned."""
        return self._current_checkpoints() if self._initial_checkpoints is None else self._initial_checkpoints

    def load(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Resume each pipeline from its checkpoint."""
        self._forget_step()
        for pipe, checkpoint in zip(self._pipelines, checkpoints, strict=True):
            pipe.load_state_dict(checkpoint.to_dict())

    @property
    def restored(self) -> list[Checkpoint | None]:
        """The checkpoint that each pipeline resumes from; None: the beginning."""
        return [pipe._restored for pipe in self._pipelines]

    def _gather(self) -> None:
        """Run the pipelines that have no batch yet for this step."""
        for pipe in self._pipelines[len(self._gathered) :]:
            outputs = pipe.run()
            if len(outputs) != len(self._names):
                raise OutputMapError(
                    f"output_map must have {len(outputs)} names, one per output of a pipeline, not {self._names!r}"
                )
            self._gathered.append(outputs)

    def _forget_step(self) -> None:
        self._gathered.clear()
        self._initial_checkpoints = None

    def _current_checkpoints(self) -> list[Checkpoint]:
        return [pipe._take_checkpoint() for pipe in self._pipelines]


def _checked_checkpointing(pipelines: list[Pipeline]) -> bool:
    enabled = {bool(pipe.enable_checkpointing) for pipe in pipelines}
    if len(enabled) > 1:
        raise IteratorArgumentError(
            "pipelines must have the same enable_checkpointing; pass enable_checkpointing=True to all of them, or to none"
        )
    return enabled == {True}
