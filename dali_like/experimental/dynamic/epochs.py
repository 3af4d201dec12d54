"""Readers of dynamic mode. Each runs a small pipeline: the one way of readers into the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dali_like.errors import ArgumentClashError, PipelineStateError
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.values import Batch
from dali_like.operators.machinery.description import Description
from dali_like.operators.machinery.reader_functions import apply_reader
from dali_like.pipeline.pipeline import Pipeline

_NAME = "reader"


class EpochReader:
    """A reader with epochs.

    Args:
        batch_size: samples in a batch. Default: `next_epoch` chooses.
        name: of the reader, in messages.
        device: where the data is wanted.
        arguments: of the function in ``fn.readers``.
    """

    description: ClassVar[Description]

    def __init__(
        self, batch_size: int | None = None, name: str | None = None, device: Any = "cpu", **arguments: Any
    ) -> None:
        self._batch_size = batch_size
        self._arguments = {**arguments, "name": name or _NAME, "device": getattr(device, "device_type", device)}
        self._pipeline: Pipeline | None = None
        self._unfinished = False
        self._state: bytes | None = None

    def next_epoch(self, batch_size: int | None = None, ctx: EvalContext | None = None) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the next epoch of the shard: tuples of batches, or of tensors without a batch size.

        The last batch continues with the samples of the next epoch, as in DALI.

        Args:
            batch_size: samples in a batch; the same in all epochs.
            ctx: without effect.

        Raises:
            ArgumentClashError: another batch size was used before.
            PipelineStateError: the iterator of the previous epoch was not finished.
        """
        size = self._batch_size if batch_size is None else batch_size
        pipeline = self._built(size or 1)
        if self._unfinished:
            raise PipelineStateError(
                "the previous epoch of this reader is not finished: iterate to its end, or make another reader"
            )
        meta = pipeline.reader_meta(self._arguments["name"])
        shard = -(-meta["epoch_size"] // meta["number_of_shards"])
        self._unfinished = True
        return self._batches(pipeline, -(-shard // (size or 1)), as_batches=size is not None)

    def _batches(self, pipeline: Pipeline, count: int, *, as_batches: bool) -> Iterator[tuple[Any, ...]]:
        for _ in range(count):
            batches = tuple([Batch(output) for output in pipeline.run()])
            yield batches if as_batches else tuple([batch.sample(0) for batch in batches])
        self._unfinished = False

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

    def reader_meta(self) -> dict[str, int]:
        """Return the sizes of the dataset and its shards; see `Pipeline.reader_meta`."""
        return self._built(self._batch_size or 1).reader_meta(self._arguments["name"])

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
