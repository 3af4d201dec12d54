"""Going on where a pipeline was: `Pipeline.state_dict` and `load_state_dict`, and DALI's `Pipeline.checkpoint`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dali_like.errors import PipelineStateError
from dali_like.graph.pipeline_arguments import Arguments, HasArguments

if TYPE_CHECKING:
    from dali_like.graph.computation import TensorList
    from dali_like.graph.executor import Executor
    from dali_like.pipeline.checkpoints import Checkpoint
    from dali_like.pipeline.runtime import Runtime


class Resumable(HasArguments):
    """The methods that say how far a pipeline has come, and bring one there. It is the same state, as words and as text."""

    _call: AbstractContextManager[None]
    _runtime: Runtime | None
    _entropy: int
    _scheduled: deque[tuple[TensorList, ...]]

    def checkpoint(self, filename: str | os.PathLike[str] | None = None) -> bytes:
        """`state_dict` as text, for ``Pipeline(checkpoint=...)``: DALI's way to go on.

        Args:
            filename: a file to write it to, as well.

        Returns:
            JSON, which is safe to load from anybody, if sources that know their state check what they are handed.

        Raises:
            PipelineStateError: the pipeline was made without ``enable_checkpointing=True``.
        """
        checkpoint = self._take_checkpoint().dumps()
        if filename is not None:
            with open(filename, "wb") as file:
                file.write(checkpoint)
        return checkpoint

    def state_dict(self) -> dict[str, Any]:
        """How far the pipeline has come, as what JSON consists of. Another one of the same definition goes on from there.

        Batches that have been delivered count; so do none that have been computed ahead, or scheduled. The number of
        workers, how they are started and the prefetch depths may be others. With shards, so may the number of ranks, if
        the product of that and the ``batch_size`` stays the same; the state of any rank is good for all.

        Sources, or the iterators of iterables, may have ``state_dict`` and ``load_state_dict``: what they say of themselves
        is part of it. In workers that goes for iterables that have both methods themselves, and are not in every worker; the
        batch that comes next may be waited for then. Other iterables are walked through up to the same place again.

        Raises:
            PipelineStateError: the pipeline was made without ``enable_checkpointing=True``.
            CheckpointError: JSON cannot hold the state of a source.
            WorkerDiedError: or whatever else `run` raises, where a batch is waited for.
        """
        return self._take_checkpoint().words()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` has returned, in place of ``Pipeline(checkpoint=...)``.

        At any time; but workers that run already are started anew if the state has another seed than the pipeline, so give
        pipelines a ``seed``.

        Raises:
            CheckpointError: it is no state, or one of another pipeline; or an iterator would have to go back.
            ArgumentError, CudaForkError, PicklingError: see `start_py_workers`.
        """
        from dali_like.pipeline.checkpoints import Checkpoint  # noqa: PLC0415

        checkpoint = Checkpoint.of(state_dict)
        with self._call:
            self._check_open()
            runtime, executor = self._runtime, self._executor
            if runtime is not None and runtime.can_go_to(checkpoint):
                runtime.go_to(checkpoint)
            elif runtime is not None:
                self._runtime = None
                runtime.close()
            self._adopt(replace(self._arguments, checkpoint=checkpoint))
            self._forget_schedule()
            if self._runtime is None and runtime is not None:
                self._start()
                if executor is not None:
                    self._build()

    def _take_checkpoint(self) -> Checkpoint:
        if not self.enable_checkpointing:
            raise PipelineStateError("a pipeline has states and checkpoints if it is made with enable_checkpointing=True")
        with self._call:
            return self._start().checkpoint(len(self._scheduled))

    @property
    def _executor(self) -> Executor | None:
        raise NotImplementedError

    def _adopt(self, arguments: Arguments) -> None:
        """Be a pipeline with these arguments."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raise, unless the pipeline can be used."""
        raise NotImplementedError

    def _forget_schedule(self) -> None:
        """Drop what has been scheduled."""
        raise NotImplementedError

    def _start(self) -> Runtime:
        """Start the workers, unless that has been done."""
        raise NotImplementedError

    def _build(self) -> Executor:
        """Prepare to run, unless that has been done."""
        raise NotImplementedError
