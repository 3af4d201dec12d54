"""External sources: the options of ``fn.external_source``, and the checked source as the graph knows it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from dali_like.engine.memory.batch_key import Sizes
from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch, Source, SourceType
from dali_like.engine.worker.streams import StatefulCallable
from dali_like.errors import ArgumentError
from dali_like.sources.caching.cache_options import DeferredCache
from dali_like.sources.caching.cached_callback import KeyOf, PositionKey, batch_key, cached_callback, sample_key
from dali_like.sources.kinds import Kind, grouped, padded
from dali_like.sources.readers.reader_stream import ReaderStream
from dali_like.sources.sharding import ALONE, Division, Rest, Shard
from dali_like.types import DALIDataType, numpy_dtype

if TYPE_CHECKING:
    from dali_like.sources.caching.element_cache import SampleCache
    from dali_like.sources.composed.dataset import ComposedDataset
    from dali_like.sources.composed.positions import Steps
    from dali_like.sources.video_splitter import VideoSplitter


class SourceOptions(TypedDict, total=False):
    """The keyword arguments of ``fn.external_source``, described there. This is the only list of them."""

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
    share_batches: bool | str
    shard: str | None
    shard_id: int | None
    num_shards: int | None
    shard_rest: str | None
    mesh: Any
    mesh_dims: str | int | Sequence[str | int] | None
    cache: int | str | Mapping[str, Any] | None


#: The defaults that are not None.
_DEFAULTS: SourceOptions = {
    "device": "cpu",
    "batch": True,
    "repeat_last": False,
    "preserve": False,
    "on_error": "raise",
    "sharded": False,
    "share_batches": "auto",
}


def default_options() -> SourceOptions:
    """Return all options with their defaults."""
    defaults: Any = {**dict.fromkeys(SourceOptions.__annotations__), **_DEFAULTS}
    return defaults  # type: ignore[no-any-return]


class ExternalSource(NamedTuple):
    """An external source as the graph knows it. Built with keywords by `dali_like.sources.source_checks`.

    Attributes:
        name: its name in messages.
        key: the name given by the user, if any.
        kind: the kind of the user's source; None for an input that the user feeds.
        num_outputs: the number of outputs, as given.
        declared: the declared schema of each output.
        layouts: the layout of each output; an empty string if none was given.
        objects: for each output, whether it holds Python objects; empty if none does.
        batch: whether the source returns batches rather than samples.
        parallel: whether worker processes call the source.
        sharded: whether each worker iterates its own iterable.
        length: samples or batches after which the epoch ends, of all shards together; None: where the source ends it.
        last_batch: the treatment of an incomplete batch.
        shard: the part of the epoch that this process delivers; None: all of it.
        rest: the treatment of samples that do not divide evenly among the shards.
        options: all options as given, with their defaults.
        splitter: makes the batches of an input out of what the user feeds; None: the user feeds batches.
        cache: of the samples, or batches, that a callable returns; None without one.
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
    options: SourceOptions
    splitter: VideoSplitter | None = None
    cache: DeferredCache | None = None

    @property
    def persists(self) -> bool:
        """Whether an epoch continues where the one before has ended."""
        return self.kind is None or self.kind.persists

    @property
    def reader(self) -> ReaderStream | None:
        """The reader, if the source is one."""
        return None if self.kind is None else self.kind.reader

    def with_source_info(self, output: int) -> ExternalSource:
        """Return the source of a reader with another output: the origin of each sample of `output`, as text in UTF-8."""
        assert self.reader is not None
        self.reader.infos[len(self.declared)] = output
        text = OutputSchema(DTYPE_CODES[numpy_dtype(DALIDataType.UINT8)], 1)
        return self._replace(
            num_outputs=len(self.declared) + 1, declared=(*self.declared, text), layouts=(*self.layouts, "")
        )

    def with_all_infos(self) -> ExternalSource:
        """Return the source with the origins of all outputs, if it is a reader; see `with_source_info`."""
        external = self
        for output in range(len(self.declared) if self.reader is not None else 0):
            external = external.with_source_info(output)
        return external

    def in_process(self) -> ExternalSource:
        """Return the source, called in the main process instead of in workers."""
        return self._replace(parallel=False, sharded=False)

    @property
    def composed(self) -> ComposedDataset | None:
        """The composed dataset, if the source is one."""
        return None if self.kind is None else self.kind.composed

    @property
    def in_shards(self) -> bool:
        """Whether the source is a composed dataset in logical shards."""
        return self.composed is not None and self.composed.shards is not None

    @property
    def drops_small_batches(self) -> bool:
        """Whether batches of a composed dataset in logical shards that are not full are dropped."""
        return self.options["last_batch_policy"] is not None and self.last_batch is LastBatch.DROP

    def steps(self, batch_size: int) -> Steps | None:
        """Return the steps through a composed dataset with random access; None for other sources."""
        if self.composed is None or self.composed.shards is not None:
            return None
        from dali_like.sources.composed.positions import Steps  # few pipelines have composed datasets

        alone = Rest.DROP if self.last_batch is LastBatch.DROP else Rest.UNEVEN
        return Steps(self.length, batch_size, self.shard or ALONE, alone if self.shard is None else self.rest)

    @property
    def kind_name(self) -> str:
        """The first part of the name of a source without a name, as in DALI."""
        return "ExternalSource" if self.reader is None else self.reader.class_name

    @property
    def is_async(self) -> bool:
        """Whether the callback is a coroutine function. The answer of a reader may prepare it."""
        if self.reader is not None:
            return self.reader.is_async
        return self.kind is not None and self.kind.is_async

    def meta(self, batch_size: int) -> dict[str, int] | None:
        """Return the result of `Pipeline.reader_meta`; None if the length of an epoch is unknown."""
        if self.reader is not None:
            return self.reader.meta
        if self.length is None:
            return None
        shard = self.shard or ALONE
        padded = self.rest is Rest.PAD and self.shard is not None
        size = self.length * batch_size if self.batch else self.length
        return {
            "epoch_size": size,
            "epoch_size_padded": -(-size // shard.count) * shard.count if padded else size,
            "number_of_shards": shard.count,
            "shard_id": shard.id,
            "pad_last_batch": int(padded),
            "stick_to_shard": 1,
        }

    @property
    def may_be_on_gpu(self) -> bool:
        """Whether the source may return arrays on the GPU."""
        return self.options["device"] == "gpu" and not self.parallel

    @property
    def prefetch_queue_depth(self) -> int:
        """Batches computed ahead on top of the pipeline's own depth."""
        return (self.options["prefetch_queue_depth"] or 1) if self.parallel else 0

    @property
    def expected_length(self) -> int | None:
        """Samples or batches in an epoch, of all shards together, as far as the source knows; None if unknown."""
        return self.kind.length if self.length is None and self.kind is not None else self.length

    def is_object(self, output: int) -> bool:
        """Return whether an output holds Python objects."""
        return bool(self.objects) and self.objects[output]

    def sizes(self, batch_size: int) -> Sizes | None:
        """Return the number and sizes of the batches after which the epoch ends; None: the source ends it."""
        if self.length is None:
            return None
        if (steps := self.steps(batch_size)) is not None:
            return steps.sizes()
        if (division := self._division(batch_size)) is not None:
            num_batches, last = division.sizes()
            return Sizes(num_batches, batch_size if self.batch else last)
        if self.batch:
            return Sizes(self.length, batch_size)
        full, rest = divmod(self.length, batch_size)
        return Sizes(full, batch_size) if self.last_batch is LastBatch.DROP or not rest else Sizes(full + 1, rest)

    def expected_sizes(self, batch_size: int) -> Sizes | None:
        """Return the number and sizes of the batches of an epoch, as far as the source knows its length."""
        return self._replace(length=self.expected_length).sizes(batch_size)

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        """Return the source as the engine calls it.

        Args:
            batch_size: samples in a batch.
            seeds: the seed of the pipeline and the number of the source, for `SampleInfo.rng`.
        """
        kind, options = self.kind, self.options
        assert kind is not None
        batch = self.batch
        division = self._division(batch_size)
        caches = () if kind.composed is None else kind.composed.cache_memories()
        if (cache := self._made_cache(batch_size)) is not None:
            key_of = batch_key if batch else sample_key
            kind = kind._replace(callback=cached_callback(kind.callback, cache, key_of, is_async=kind.is_async))
            caches = cache.memories()
        if division is not None and self.rest is Rest.PAD and kind.composed is None:
            kind = padded(kind, division)
        if kind.reader is not None:
            kind = kind._replace(callback=kind.reader.callback(batch_size, seeds), is_async=self.is_async)
        type_ = SourceType.STREAM if kind.in_order else SourceType.CALLABLE
        task_size = None if options["share_batches"] or batch else functools.partial(_whole_batch, batch_size)
        if self.in_shards:
            type_, task_size = SourceType.PARTS, functools.partial(_part_size, batch_size)
        elif self.parallel and kind.in_order and not batch:
            kind = grouped(kind, batch_size, self.num_outputs, drop_last=self.last_batch is LastBatch.DROP)
            batch = True
        return Source(
            self.name,
            kind.callback,
            self.num_outputs,
            batch=batch,
            type=type_,
            task_size=task_size,
            measures_sharing=options["share_batches"] == "auto"
            and type_ is SourceType.CALLABLE
            and not (batch or kind.is_async),
            stride=1 if batch or kind.composed is None or self.shard is None else self.shard.count,
            in_order=kind.in_order,
            concurrency=(options["concurrency"] or batch_size) if kind.is_async else None,
            last_batch=self.last_batch,
            objects=self.objects,
            on_error=options["on_error"],
            worker_setup=options["worker_setup"],
            worker_teardown=options["worker_teardown"],
            seeds=seeds,
            layouts=self.layouts,
            seen_layouts=None if self.parallel else list(self.layouts),
            declared=self.declared,
            caches=caches,
        )

    def caches(self) -> Sequence[SampleCache]:
        """Return the caches of the source itself, once they are made."""
        if self.cache is not None:
            return [] if self.cache.cache is None else [self.cache.cache]
        return [] if self.composed is None else self.composed.caches

    @property
    def cacheable_length(self) -> int | None:
        """The number of different samples, as far as it bounds the keys of `key_of`; None if unknown."""
        if self.reader is not None:
            return self.reader.size
        return None if self.batch else self.length

    def key_of(self, batch_size: int, seeds: tuple[int, int]) -> KeyOf:
        """Return the function that returns the key of a sample in caches, given its SampleInfo; see `source`."""
        if self.reader is not None:
            return self.reader.order(batch_size, seeds).key_of
        if self.composed is not None and self.composed.length is not None:
            return PositionKey(self.composed.length)
        return sample_key

    @property
    def is_cacheable(self) -> bool:
        """Whether a sample can be identified in each epoch, unless a stage of a composed dataset is random."""
        kind = self.kind
        if kind is None or kind.reader is not None:
            return kind is not None
        return not (kind.in_order or kind.ignores_info or isinstance(kind.callback, StatefulCallable))

    def check_cacheable(self, cache: str) -> None:
        """Check that a sample can be identified in each epoch.

        Args:
            cache: name of the cache in messages.

        Raises:
            ArgumentError: it cannot.
        """
        if self.kind is None:
            raise ArgumentError(f"{cache}: {self.name} is fed by the program, so its samples have no positions")
        if self.composed is not None:
            self.composed.check_cacheable()
        elif not self.is_cacheable:
            raise ArgumentError(
                f"{cache}: the samples of {self.name} depend on what came before, and not on a position alone. Pass a "
                "callable that takes a SampleInfo, with batch=False, a reader, or a ComposedDataset"
            )

    def _made_cache(self, batch_size: int) -> SampleCache | None:
        """Return the cache of the user's callable, if it has one."""
        if self.cache is None:
            return None
        return self.cache.make(self.length, self.outline(batch_size), tuple, self.name)

    def outline(self, batch_size: int) -> list[str]:
        """Return a description of the source, but for functions and files, for the fingerprint of a cache on disk."""
        import json  # few pipelines have caches

        if self.composed is not None:
            return self.composed.description
        arguments = [] if self.reader is None else [json.dumps(self.reader.arguments, default=repr, sort_keys=True)]
        return [self.name, *([f"batch_size={batch_size}"] if self.batch else []), *arguments]

    def _division(self, batch_size: int) -> Division | None:
        """Return the shard's part of an epoch of known length; None without shards."""
        if self.shard is None or self.length is None:
            return None
        return Division(self.length, 1 if self.batch else batch_size, self.shard, self.rest)


def _whole_batch(batch_size: int, num_workers: int) -> int:
    """Return the number of samples per task if one worker computes a batch."""
    return batch_size


def _part_size(capacity: int, num_workers: int) -> int:
    """Return the nominal size of the tasks of a batch in parts: it has room for a task of each worker."""
    return max(capacity // max(num_workers, 1), 1)
