"""The pipelines of an iterator, which advance together: each step takes one batch of each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from dali_like.errors import ArgumentTypeError, IteratorArgumentError, OutputMapError
from dali_like.pipeline.checkpoints import Checkpoint
from dali_like.pipeline.pipeline import Pipeline
from dali_like.tensors import TensorListCPU


class Pipelines:
    """One or more pipelines that have the same batch size. What some have given for a step is kept when another one raises.

    Args:
        given: a pipeline, or a list of them.
        names: a name for each output.

    Attributes:
        are_checkpointed: whether they can say where they are.

    Raises:
        ArgumentTypeError, IteratorArgumentError: these are no pipelines, or none that go together.
    """

    def __init__(self, given: Any, names: Sequence[str]) -> None:
        self._pipelines = _checked_pipelines(given)
        self._names = names
        self.are_checkpointed = _checked_checkpointing(self._pipelines)
        self._gathered: list[Sequence[Any]] = []  # for the next step
        self._initial_checkpoints: list[Checkpoint] | None = None  # before the first step, which has been gathered

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(self._pipelines)

    def __len__(self) -> int:
        return len(self._pipelines)

    @property
    def batch_size(self) -> int:
        """Samples in a full batch of one of them."""
        return self._pipelines[0].max_batch_size or 0

    @property
    def step_size(self) -> int:
        """Samples in full batches of all."""
        return len(self._pipelines) * self.batch_size

    def build(self) -> None:
        """Build them. All workers are forked before any of the pipelines uses CUDA or threads."""
        for pipe in self._pipelines:
            pipe.start_py_workers()
        for pipe in self._pipelines:
            pipe.build()

    def prepare(self) -> None:
        """Have the first step ready, if there is one. `checkpoints` are still those from before it."""
        if self.are_checkpointed:
            self._initial_checkpoints = self._current_checkpoints()
        with contextlib.suppress(StopIteration):  # which will be raised again when somebody asks for the batch
            self._gather()

    def take(self) -> list[Sequence[TensorListCPU]]:
        """The next batch of each.

        Raises:
            StopIteration: one of them has ended its epoch.
            OutputMapError: one has not as many outputs as there are names.
            Exception: what `Pipeline.run` raises.
        """
        self._gather()
        outputs, self._gathered = self._gathered, []
        self._initial_checkpoints = None
        return outputs

    def drop(self) -> None:
        """Leave a step out, unless the epoch ends here anyway."""
        with contextlib.suppress(StopIteration):
            self._gather()
        self._gathered.clear()

    def reset(self) -> None:
        """Let the next step be the first of an epoch."""
        self._forget_step()
        for pipe in self._pipelines:
            pipe.reset()

    def checkpoints(self) -> list[Checkpoint]:
        """Where they are, as far as steps have been taken."""
        return self._current_checkpoints() if self._initial_checkpoints is None else self._initial_checkpoints

    def load(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Go on from where they were."""
        self._forget_step()
        for pipe, checkpoint in zip(self._pipelines, checkpoints, strict=True):
            pipe.load_state_dict(checkpoint.to_dict())

    @property
    def restored(self) -> list[Checkpoint | None]:
        """What each goes on from."""
        return [pipe._restored for pipe in self._pipelines]

    def _gather(self) -> None:
        """Have a batch of each."""
        for pipe in self._pipelines[len(self._gathered) :]:
            outputs = pipe.run()
            if len(outputs) != len(self._names):
                raise OutputMapError(f"output_map must name {len(outputs)} outputs of a pipeline, not {self._names!r}")
            self._gathered.append(outputs)

    def _forget_step(self) -> None:
        self._gathered.clear()
        self._initial_checkpoints = None

    def _current_checkpoints(self) -> list[Checkpoint]:
        return [pipe._take_checkpoint() for pipe in self._pipelines]


def _checked_pipelines(given: Any) -> list[Pipeline]:
    pipelines = list(given) if isinstance(given, (list, tuple)) else [given]
    if given is None or not pipelines:
        raise IteratorArgumentError("pipelines must be a pipeline, or a list of at least one")
    for pipe in pipelines:
        if not isinstance(pipe, Pipeline):
            raise ArgumentTypeError(
                f"pipelines must be pipelines, not {pipe!r}; call a function under pipeline_def to have one"
            )
    sizes = {pipe.max_batch_size for pipe in pipelines}
    if len(sizes) > 1:
        raise IteratorArgumentError(f"pipelines must have the same batch size; these have {sorted(sizes)}")
    return pipelines


def _checked_checkpointing(pipelines: list[Pipeline]) -> bool:
    enabled = {bool(pipe.enable_checkpointing) for pipe in pipelines}
    if len(enabled) > 1:
        raise IteratorArgumentError(
            "pipelines must have the same enable_checkpointing; some of these have it, some have not"
        )
    return enabled == {True}
