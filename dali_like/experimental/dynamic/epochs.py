"""Readers of dynamic mode. Each runs a small pipeline: the one way of readers into the engine."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, ClassVar

from dali_like.errors import ArgumentClashError, ArgumentTypeError, CheckpointError, PipelineStateError
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.values import Batch
from dali_like.operators.machinery.description import Description
from dali_like.operators.machinery.reader_functions import apply_reader
from dali_like.pipeline.pipeline import Pipeline

_NAME = "reader"


class ReaderState:
    """The position of a reader; ``str(state)`` is its text, which `EpochReader.set_state` takes, too."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ReaderState({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return str(other) == self._text if isinstance(other, (ReaderState, str)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


class EpochReader:
    """A reader with epochs.

    Args:
        batch_size: samples in a batch. Default: `next_epoch` chooses.
        name: of the reader, in messages.
        device: where the data is wanted.
        max_batch_size: DALI's name of `batch_size`.
        enable_checkpointing: without effect: each reader has `get_state`.
        arguments: of the function in ``fn.readers``.

    Attributes:
        num_done: batches, or samples, of the latest epoch that have been returned.
        is_in_epoch: whether an iterator of `next_epoch` has not come to its end.
    """

    description: ClassVar[Description]

    def __init__(
        self,
        batch_size: int | None = None,
        name: str | None = None,
        device: Any = "cpu",
        *,
        max_batch_size: int | None = None,
        enable_checkpointing: bool = False,
        **arguments: Any,
    ) -> None:
        self._batch_size = batch_size if max_batch_size is None else max_batch_size
        self._arguments = {**arguments, "name": name or _NAME, "device": getattr(device, "device_type", device)}
        self._pipeline: Pipeline | None = None
        self._state: bytes | None = None
        self.is_in_epoch = False
        self.num_done = 0

    def next_epoch(
        self, batch_size: int | None = None, ctx: EvalContext | None = None, capture: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the next epoch of the shard: tuples of batches, or of tensors without a batch size.

        The last batch continues with the samples of the next epoch, as in DALI. From a state within an epoch, there are as
        many batches as in an epoch; see `rest_of_epoch`.

        Args:
            batch_size: samples in a batch; the same in all epochs.
            ctx: without effect.
            capture: without effect: operators compute when they are called. The reader itself works ahead.

        Raises:
            ArgumentClashError: another batch size was used before, or `capture` is given without one.
            PipelineStateError: the iterator of the previous epoch was not finished.
        """
        size = self._batch_size if batch_size is None else batch_size
        if capture and size is None:
            raise ArgumentClashError("capture=True requires a batch_size")
        return self._epoch(size, 0)

    def rest_of_epoch(self, num_done: int) -> Iterator[tuple[Any, ...]]:
        """Return an iterator as `next_epoch` does, without the first batches.

        Args:
            num_done: how many the reader that has saved the state had returned.
        """
        return self._epoch(self._batch_size, num_done)

    def _epoch(self, size: int | None, num_done: int) -> Iterator[tuple[Any, ...]]:
        pipeline = self._built(size or 1)
        if self.is_in_epoch:
            raise PipelineStateError(
                "the previous epoch of this reader is not finished: iterate to its end, or make another reader"
            )
        meta = pipeline.reader_meta(self._arguments["name"])
        shard = -(-meta["epoch_size"] // meta["number_of_shards"])
        self.is_in_epoch, self.num_done = True, num_done
        return self._batches(pipeline, -(-shard // (size or 1)), as_batches=size is not None)

    def _batches(self, pipeline: Pipeline, count: int, *, as_batches: bool) -> Iterator[tuple[Any, ...]]:
        while self.num_done < count:
            batches = tuple([Batch(output) for output in pipeline.run()])
            self.num_done += 1
            yield batches if as_batches else tuple([batch.sample(0) for batch in batches])
        self.is_in_epoch = False

    def __call__(self, batch_size: int | None = None) -> Any:
        """Return the next batch, or the next sample without a batch size: a tuple if there are several outputs."""
        size = self._batch_size if batch_size is None else batch_size
        outputs = [Batch(output) for output in self._built(size or 1).run()]
        made = outputs if size is not None else [batch.sample(0) for batch in outputs]
        return made[0] if len(made) == 1 else tuple(made)

    def checkpoint(self) -> bytes:
        """Return the position of the reader, for `restore`."""
        return self._built(self._batch_size or 1).checkpoint()

    def restore(self, checkpoint: bytes) -> None:
        """Continue from a checkpoint of a reader with the same arguments.

        Raises:
            PipelineStateError: the reader has already delivered samples.
        """
        if self._pipeline is not None:
            raise PipelineStateError("restore() comes before the first epoch: make a new reader")
        self._state = checkpoint

    def get_state(self, *, cuda_stream: Any = None) -> ReaderState:
        """Return the position of the reader, for `set_state` and `Checkpoint`.

        Args:
            cuda_stream: without effect.
        """
        return ReaderState(base64.b64encode(self.checkpoint()).decode())

    def set_state(self, state: ReaderState | str | bytes) -> None:
        """Continue from a result of `get_state`, or its text, of a reader with the same arguments.

        Raises:
            ArgumentTypeError, CheckpointError: `state` is something else.
            PipelineStateError: the reader has already delivered samples.
        """
        if not isinstance(state, (ReaderState, str, bytes)):
            raise ArgumentTypeError(f"state must be a ReaderState, str or bytes, got {type(state).__name__}")
        try:
            text = base64.b64decode(state if isinstance(state, bytes) else str(state), validate=True)
        except binascii.Error as error:
            raise CheckpointError("this is not the state of a reader") from error
        self.restore(text)

    def reader_meta(self) -> dict[str, int]:
        """Return the sizes of the dataset and its shards; see `Pipeline.reader_meta`."""
        return self.get_metadata()

    def get_metadata(self, batch_size: int | None = None) -> dict[str, int]:
        """Return the sizes of the dataset and its shards; see `Pipeline.reader_meta`.

        Args:
            batch_size: as in `next_epoch`.
        """
        return self._built(batch_size or self._batch_size or 1).reader_meta(self._arguments["name"])

    def close(self) -> None:
        """Free the memory of the reader."""
        if self._pipeline is not None:
            self._pipeline.close()

    def _built(self, batch_size: int) -> Pipeline:
        if self._pipeline is None:
            pipeline = Pipeline(
                batch_size, EvalContext.current().num_threads, None, enable_checkpointing=True, checkpoint=self._state
            )
            with pipeline:
                nodes = apply_reader(self.description, (), self._arguments)
            outputs = nodes.values() if isinstance(nodes, dict) else nodes if isinstance(nodes, list) else [nodes]
            pipeline.set_outputs(*outputs)
            try:
                pipeline.build()
            except BaseException:
                pipeline.close()
                raise
            self._pipeline = pipeline
        elif self._pipeline.max_batch_size != batch_size:
            raise ArgumentClashError(
                f"`batch_size` {batch_size} is different than the one of the previous call, "
                f"{self._pipeline.max_batch_size}: make another reader"
            )
        return self._pipeline


def reader_class(description: Description) -> type[EpochReader]:
    """Make the class of a reader."""
    name = description.class_path.rpartition(".")[2]
    return type(name, (EpochReader,), {"description": description, "__doc__": description.doc})
