"""External sources: what users may say of one, and what of it the graph knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

from dali_like.engine.memory.batch_key import Sizes
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch, Source, SourceType
from dali_like.sources.kinds import Kind, grouped, padded
from dali_like.sources.sharding import Division, Rest, Shard


class SourceOptions(TypedDict, total=False):
    """The keyword arguments of ``fn.external_source``; see there."""

    cycle: bool | str | None
    name: str | None
    device: str
    layout: str | Sequence[str] | None
    dtype: Any
    ndim: int | Sequence[int] | None
    cuda_stream: Any
    use_copy_kernel: bool | None
    blocking: bool | None
    batch: bool | None
    repeat_last: bool
    parallel: bool | None
    no_copy: bool | None
    prefetch_queue_depth: int | None
    bytes_per_sample_hint: int | None
    batch_info: bool | None
    preserve: bool
    on_error: str | Callable[[Any, Exception], Any]
    worker_setup: Callable[[], Any] | None
    worker_teardown: Callable[[], Any] | None
    size: int | None
    last_batch_policy: str | LastBatch | None
    sharded: bool
    concurrency: int | None
    shard: str | None
    shard_id: int | None
    num_shards: int | None
    shard_rest: str | None


class SourceArguments(NamedTuple):
    """The keyword arguments of ``fn.external_source``, with their defaults."""

    cycle: bool | str | None = None
    name: str | None = None
    device: str = "cpu"
    layout: str | Sequence[str] | None = None
    dtype: Any = None
    ndim: int | Sequence[int] | None = None
    cuda_stream: Any = None
    use_copy_kernel: bool | None = None
    blocking: bool | None = None
    batch: bool | None = True
    repeat_last: bool = False
    parallel: bool | None = None
    no_copy: bool | None = None
    prefetch_queue_depth: int | None = None
    bytes_per_sample_hint: int | None = None
    batch_info: bool | None = None
    preserve: bool = False
    on_error: str | Callable[[Any, Exception], Any] = "raise"
    worker_setup: Callable[[], Any] | None = None
    worker_teardown: Callable[[], Any] | None = None
    size: int | None = None
    last_batch_policy: str | LastBatch | None = None
    sharded: bool = False
    concurrency: int | None = None
    shard: str | None = None
    shard_id: int | None = None
    num_shards: int | None = None
    shard_rest: str | None = None


class ExternalSource(NamedTuple):
    """An external source as the graph knows it.

    Attributes:
        name: how messages call it.
        key: the name that the user has given it, if any.
        kind: what the user's source is; None for an input that the user feeds.
        num_outputs: as the user has said it.
        declared: what the user has said about the outputs.
        layouts: the layout of each output; empty strings where none was given.
        objects: for each output, whether it is of Python objects.
        batch: whether the source makes batches, rather than samples.
        parallel: whether worker processes call the source.
        sharded: whether each of them walks through an iterable of its own.
        length: how many samples, or batches, an epoch has, of all shards together; None if that is not known.
        last_batch: what becomes of an incomplete batch.
        shard: which part of the epoch is this process's; None: all of it.
        rest: what becomes of what does not divide evenly among the shards.
        arguments: all else that the user has said.
    """

    name: str
    key: str | None
    kind: Kind | None
    num_outputs: int | None
    declared: tuple[OutputSchema, ...]
    layouts: tuple[str, ...]
    objects: tuple[bool, ...]
    batch: bool
    parallel: bool
    sharded: bool
    length: int | None
    last_batch: LastBatch
    shard: Shard | None
    rest: Rest
    arguments: SourceArguments

    @property
    def persists(self) -> bool:
        """Whether an epoch begins where the one before has left off."""
        return self.kind is None or self.kind.persists

    @property
    def may_be_on_gpu(self) -> bool:
        """Whether its arrays may be on the GPU already."""
        return self.arguments.device == "gpu" and not self.parallel

    @property
    def prefetch_queue_depth(self) -> int:
        """Batches computed ahead on top of the pipeline's own depth."""
        return (self.arguments.prefetch_queue_depth or 1) if self.parallel else 0

    def is_object(self, output: int) -> bool:
        """Whether an output is of Python objects."""
        return bool(self.objects) and self.objects[output]

    def sizes(self, batch_size: int) -> Sizes | None:
        """The batches of an epoch, if their number is known."""
        if self.length is None:
            return None
        if (division := self._division(batch_size)) is not None:
            num_batches, last = division.sizes()
            return Sizes(num_batches, batch_size if self.batch else last)
        if self.batch:
            return Sizes(self.length, batch_size)
        full, rest = divmod(self.length, batch_size)
        return Sizes(full, batch_size) if self.last_batch is LastBatch.DROP or not rest else Sizes(full + 1, rest)

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        """What the engine calls."""
        kind, arguments = self.kind, self.arguments
        assert kind is not None
        batch = self.batch
        division = self._division(batch_size)
        if division is not None and self.rest is Rest.PAD:
            kind = padded(kind, division)
        if self.parallel and kind.in_order and not batch:
            kind = grouped(kind, batch_size, self.num_outputs, drop_last=self.last_batch is LastBatch.DROP)
            batch = True
        return Source(
            self.name,
            kind.callback,
            self.num_outputs,
            batch=batch,
            type=SourceType.STREAM if kind.in_order else SourceType.CALLABLE,
            in_order=kind.in_order,
            concurrency=(arguments.concurrency or batch_size) if kind.is_async else None,
            last_batch=self.last_batch,
            objects=self.objects,
            on_error=arguments.on_error,
            worker_setup=arguments.worker_setup,
            worker_teardown=arguments.worker_teardown,
            seeds=seeds,
            takes_gpu=self.may_be_on_gpu,
            layouts=self.layouts,
            seen_layouts=None if self.parallel else list(self.layouts),
        )

    def _division(self, batch_size: int) -> Division | None:
        """What the shard has of an epoch whose length is known; None where there are no shards."""
        if self.shard is None or self.length is None:
            return None
        return Division(self.length, 1 if self.batch else batch_size, self.shard, self.rest)
