"""External sources: the user's description of a source, checked, with one class for each kind.

The main process makes them when a pipeline is defined, in `dali_like.sources.kinds`. When the pipeline is built,
`ExternalSource.source` returns the `dali_like.engine.worker.source.Source` that the engine calls.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dali_like.engine.memory.batch_key import Sizes
from dali_like.engine.memory.protocol import DTYPE_CODES
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.source import LastBatch, Source, SourceType
from dali_like.engine.worker.streams import Grouped, Restart, StatefulCallable, Stream
from dali_like.errors import ArgumentError
from dali_like.sources.caching.cached_callback import KeyOf, PositionKey, batch_key, cached_callback, sample_key
from dali_like.sources.sharding import ALONE, Division, Padded, Rest, Shard
from dali_like.types import DALIDataType, numpy_dtype

if TYPE_CHECKING:
    from typing import Self

    from dali_like.engine.memory.sample_cache import CacheMemory
    from dali_like.sources.caching.cache_options import DeferredCache
    from dali_like.sources.caching.element_cache import SampleCache
    from dali_like.sources.composed.dataset import ComposedDataset
    from dali_like.sources.readers.reader_stream import ReaderStream
    from dali_like.sources.source_arguments import SourceOptions
    from dali_like.sources.video_splitter import VideoSplitter


class ExternalSource(abc.ABC):
    """The user's description of a source. It does not change: `replaced` returns another one.

    Args:
        name: its name in messages.
        key: the name given by the user, if any.
        num_outputs: the number of outputs, as given.
        declared: the declared schema of each output.
        layouts: the layout of each output; an empty string if none was given.
        objects: for each output, whether it holds Python objects; empty if none does.
        batch: whether the source returns batches rather than samples.
        parallel: whether worker processes call the source.
        sharded: whether each worker iterates its own iterable.
        last_batch: the treatment of an incomplete batch.
        shard: the part of the epoch that this process delivers; None: all of it.
        rest: the treatment of samples that do not divide evenly among the shards.
        options: all options, checked.

    Attributes:
        length: samples or batches after which the epoch ends, of all shards together; None: where the source ends it.
        cache: of the samples, or batches, that a callable returns; None without one.
        callback: the user's function or stream that workers get; None if it is known later, or never.
        is_fed: whether the user feeds the batches.
        in_order: see `dali_like.engine.worker.source.Source`.
        persists: whether an epoch continues where the one before has ended.
        ignores_info: whether the user's function takes no argument.
        known_length: samples or batches in an epoch, as far as the user's object says.
    """

    callback: Callable[[Any], Any] | None = None
    is_fed = False
    in_order = False
    persists = False
    ignores_info = False
    known_length: int | None = None

    def __init__(
        self,
        *,
        name: str,
        key: str | None,
        num_outputs: int | None,
        declared: tuple[OutputSchema, ...],
        layouts: tuple[str, ...],
        objects: tuple[bool, ...],
        batch: bool,
        parallel: bool,
        sharded: bool,
        last_batch: LastBatch,
        shard: Shard | None,
        rest: Rest,
        options: SourceOptions,
    ) -> None:
        self.name = name
        self.key = key
        self.num_outputs = num_outputs
        self.declared = declared
        self.layouts = layouts
        self.objects = objects
        self.batch = batch
        self.parallel = parallel
        self.sharded = sharded
        self.last_batch = last_batch
        self.shard = shard
        self.rest = rest
        self.options = options
        self.length: int | None = None
        self.cache: DeferredCache | None = None

    def replaced(self, **changes: Any) -> Self:
        """Return the same source with other attributes."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), **changes)
        return other

    @property
    def reader(self) -> ReaderStream | None:
        """The reader, if the source is one."""
        return None

    @property
    def composed(self) -> ComposedDataset | None:
        """The composed dataset, if the source is one."""
        return None

    @property
    def in_shards(self) -> bool:
        """Whether the source is a composed dataset in logical shards."""
        return self.composed is not None and self.composed.shards is not None

    @property
    def is_async(self) -> bool:
        """Whether the callback is a coroutine function. The answer of a reader may prepare it."""
        return False

    @property
    def kind_name(self) -> str:
        """The first part of the name of a source without a name, as in DALI."""
        return "ExternalSource"

    def with_all_infos(self) -> ExternalSource:
        """Return the source with the origins of all outputs, if it is a reader; see `Read.with_source_info`."""
        return self

    def in_process(self) -> ExternalSource:
        """Return the source, called in the main process instead of in workers."""
        return self.replaced(parallel=False, sharded=False)

    @property
    def drops_small_batches(self) -> bool:
        """Whether batches of a composed dataset in logical shards that are not full are dropped."""
        return self.options["last_batch_policy"] is not None and self.last_batch is LastBatch.DROP

    def meta(self, batch_size: int) -> dict[str, int] | None:
        """Return the result of `Pipeline.reader_meta`; None if the length of an epoch is unknown."""
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
        return self.known_length if self.length is None else self.length

    def is_object(self, output: int) -> bool:
        """Return whether an output holds Python objects."""
        return bool(self.objects) and self.objects[output]

    def sizes(self, batch_size: int) -> Sizes | None:
        """Return the number and sizes of the batches after which the epoch ends; None: the source ends it."""
        division = self.division(batch_size)
        if division is None or division.length is None:
            return None
        num_batches, last = division.sizes()
        return Sizes(num_batches, batch_size if self.batch else last)

    def expected_sizes(self, batch_size: int) -> Sizes | None:
        """Return the number and sizes of the batches of an epoch, as far as the source knows its length."""
        return self.replaced(length=self.expected_length).sizes(batch_size)

    @abc.abstractmethod
    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        """Return the source as the engine calls it, or for an input, as the engine checks its data.

        Args:
            batch_size: samples in a batch.
            seeds: the seed of the pipeline and the number of the source, for `SampleInfo.rng`.
        """

    def caches(self) -> Sequence[SampleCache]:
        """Return the caches of the source itself, once they are made."""
        return [] if self.cache is None or self.cache.cache is None else [self.cache.cache]

    @property
    def cacheable_length(self) -> int | None:
        """The number of different samples, as far as it bounds the keys of `key_of`; None if unknown."""
        return None if self.batch else self.length

    def key_of(self, batch_size: int, seeds: tuple[int, int]) -> KeyOf:
        """Return the function that returns the key of a sample in caches, given its SampleInfo; see `source`."""
        return sample_key

    @property
    def is_cacheable(self) -> bool:
        """Whether a sample can be identified in each epoch, unless a stage of a composed dataset is random."""
        return False

    def check_cacheable(self, cache: str) -> None:
        """Check that a sample can be identified in each epoch.

        Args:
            cache: name of the cache in messages.

        Raises:
            ArgumentError: it cannot.
        """
        if not self.is_cacheable:
            raise ArgumentError(
                f"{cache}: the samples of {self.name} depend on what came before, and not on a position alone. Pass a "
                "callable that takes a SampleInfo, with batch=False, a reader, or a ComposedDataset"
            )

    def outline(self, batch_size: int) -> list[str]:
        """Return a description of the source, but for functions and files, for the fingerprint of a cache on disk."""
        return [self.name, *([f"batch_size={batch_size}"] if self.batch else [])]

    def _source(self, callback: Callable[[Any], Any], seeds: tuple[int, int], **special: Any) -> Source:
        """Return the source as the engine calls it; `special` are the attributes of this kind."""
        options = self.options
        said: dict[str, Any] = {
            "batch": self.batch,
            "last_batch": self.last_batch,
            "objects": self.objects,
            "on_error": options["on_error"],
            "worker_setup": options["worker_setup"],
            "worker_teardown": options["worker_teardown"],
            "seeds": seeds,
            "layouts": self.layouts,
            "seen_layouts": None if self.parallel else list(self.layouts),
            "declared": self.declared,
        }
        return Source(self.name, callback, self.num_outputs, **{**said, **special})

    def _sharing(self, batch_size: int) -> dict[str, Any]:
        """Return how workers share a batch of samples: attributes of `Source`."""
        shares = self.options["share_batches"]
        return {
            "task_size": None if shares or self.batch else functools.partial(_whole_batch, batch_size),
            "measures_sharing": shares == "auto" and not (self.in_order or self.batch or self.is_async),
        }

    def division(self, batch_size: int) -> Division | None:
        """Return the part of an epoch that the source delivers; None if the source decides when its epoch ends."""
        if self.length is None:
            return None
        shard, rest = self._shard_and_rest
        return Division(self.length, 1 if self.batch else batch_size, shard, rest)

    @property
    def _shard_and_rest(self) -> tuple[Shard, Rest]:
        """The shard, and the treatment of the last items: without shards, the last batch decides."""
        if self.shard is not None:
            return self.shard, self.rest
        return ALONE, Rest.DROP if self.last_batch is LastBatch.DROP else Rest.UNEVEN

    def _padding(self, batch_size: int) -> Division | None:
        """Return the shard's part of an epoch if its first items are repeated at the end."""
        return None if self.shard is None or self.rest is not Rest.PAD else self.division(batch_size)


class Called(ExternalSource):
    """A callable: a function of a SampleInfo, of a BatchInfo, or of the number of the batch.

    Args:
        callback: the user's callable, with the adaptation to the argument of the engine.
        is_async: whether it is a coroutine function.
        ignores_info: whether it takes no argument.
        known_length: its length.
        said: see `ExternalSource`.
    """

    def __init__(
        self,
        callback: Callable[[Any], Any],
        *,
        is_async: bool,
        ignores_info: bool,
        known_length: int | None,
        **said: Any,
    ) -> None:
        super().__init__(**said)
        self.callback: Callable[[Any], Any] = callback
        self.ignores_info = ignores_info
        self.known_length = known_length
        self._is_async = is_async

    @property
    def is_async(self) -> bool:
        return self._is_async

    @property
    def is_cacheable(self) -> bool:
        return not (self.ignores_info or isinstance(self.callback, StatefulCallable))

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        callback = self.callback
        caches: tuple[CacheMemory, ...] = ()
        if self.cache is not None:
            cache = self.cache.make(self.length, self.outline(batch_size), tuple, self.name)
            key_of = batch_key if self.batch else sample_key
            callback, caches = cached_callback(callback, cache, key_of, is_async=self.is_async), cache.memories()
        if (padding := self._padding(batch_size)) is not None:
            callback = Padded(callback, padding)
        return self._source(
            callback,
            seeds,
            **self._sharing(batch_size),
            concurrency=(self.options["concurrency"] or batch_size) if self.is_async else None,
            caches=caches,
        )


class Iterated(ExternalSource):
    """An iterable or a generator function.

    Args:
        begin: begins an iteration.
        persists: whether an epoch continues where the one before has ended.
        owner: the object with the state of the iterable, if it has one.
        known_length: its length.
        said: see `ExternalSource`.
    """

    in_order = True

    def __init__(self, begin: Restart, *, persists: bool, owner: Any, known_length: int | None, **said: Any) -> None:
        super().__init__(**said)
        self.callback: Stream = Stream(begin, once=persists, owner=owner)
        self.persists = persists
        self.known_length = known_length

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        stream, special = self.callback, {}
        if (padding := self._padding(batch_size)) is not None:
            stream.length = padding.length
        if self.parallel and not self.batch:
            drops = self.last_batch is LastBatch.DROP
            walk = Grouped(stream.begin, batch_size, self.num_outputs, drop_last=drops)
            stream, special = Stream(walk, once=self.persists), {"batch": True}
        return self._source(stream, seeds, type=SourceType.STREAM, in_order=True, **{**self._sharing(batch_size), **special})


class Read(ExternalSource):
    """A reader of this library, or of the user. Its callback depends on the batch size."""

    persists = True

    def __init__(self, stream: ReaderStream, **said: Any) -> None:
        super().__init__(**said)
        self._stream = stream

    @property
    def reader(self) -> ReaderStream:
        return self._stream

    @property
    def is_async(self) -> bool:
        return self._stream.is_async

    @property
    def kind_name(self) -> str:
        return self._stream.class_name

    def with_source_info(self, output: int) -> Self:
        """Return the source with another output: the origin of each sample of `output`, as text in UTF-8."""
        self._stream.infos[len(self.declared)] = output
        text = OutputSchema(DTYPE_CODES[numpy_dtype(DALIDataType.UINT8)], 1)
        return self.replaced(
            num_outputs=len(self.declared) + 1, declared=(*self.declared, text), layouts=(*self.layouts, "")
        )

    def with_all_infos(self) -> ExternalSource:
        external = self
        for output in range(len(self.declared)):
            external = external.with_source_info(output)
        return external

    def meta(self, batch_size: int) -> dict[str, int] | None:
        return self._stream.meta

    @property
    def cacheable_length(self) -> int | None:
        return self._stream.size

    def key_of(self, batch_size: int, seeds: tuple[int, int]) -> KeyOf:
        return self._stream.order(batch_size, seeds).key_of

    @property
    def is_cacheable(self) -> bool:
        return True

    def outline(self, batch_size: int) -> list[str]:
        import json  # few pipelines have caches

        return [*super().outline(batch_size), json.dumps(self._stream.arguments, default=repr, sort_keys=True)]

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        return self._source(
            self._stream.callback(batch_size, seeds),
            seeds,
            **self._sharing(batch_size),
            concurrency=(self.options["concurrency"] or batch_size) if self.is_async else None,
        )


class Composed(ExternalSource):
    """A composed dataset.

    Args:
        dataset: the dataset.
        callback: computes an element, or with logical shards, parts of batches.
        said: see `ExternalSource`.
    """

    def __init__(self, dataset: ComposedDataset, callback: Callable[[Any], Any], **said: Any) -> None:
        super().__init__(**said)
        self._dataset = dataset
        self.callback: Callable[[Any], Any] = callback
        self.in_order = dataset.shards is not None
        self.known_length = None if self.in_order else dataset.length

    @property
    def composed(self) -> ComposedDataset:
        return self._dataset

    def division(self, batch_size: int) -> Division | None:
        if self.in_shards:
            return super().division(batch_size)
        return Division(self.length, batch_size, *self._shard_and_rest, is_striped=True)

    def caches(self) -> Sequence[SampleCache]:
        return self._dataset.caches

    def key_of(self, batch_size: int, seeds: tuple[int, int]) -> KeyOf:
        return sample_key if self._dataset.length is None else PositionKey(self._dataset.length)

    @property
    def is_cacheable(self) -> bool:
        return not self.in_order

    def check_cacheable(self, cache: str) -> None:
        self._dataset.check_cacheable()

    def outline(self, batch_size: int) -> list[str]:
        return self._dataset.description

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        special: dict[str, Any] = {
            "stride": 1 if self.shard is None else self.shard.count,
            **self._sharing(batch_size),
            "caches": self._dataset.cache_memories(),
        }
        if self.in_shards:
            special |= {"type": SourceType.PARTS, "in_order": True, "task_size": functools.partial(_part_size, batch_size)}
        elif self._dataset.num_reads > 1:
            special |= {"concurrency": self._dataset.num_reads, "reads_in_threads": True}
        return self._source(self.callback, seeds, **special)


class Fed(ExternalSource):
    """An input that the user feeds.

    Attributes:
        splitter: makes the batches out of what the user feeds; None: the user feeds batches.
    """

    is_fed = True
    persists = True
    splitter: VideoSplitter | None = None

    def check_cacheable(self, cache: str) -> None:
        raise ArgumentError(f"{cache}: {self.name} is fed by the program, so its samples have no positions")

    def source(self, batch_size: int, seeds: tuple[int, int]) -> Source:
        return self._source(_fed, seeds, batch=True, verb="was fed", seen_layouts=None)


def _fed(info: Any) -> Any:
    """Stand in the place of a callback. The engine only checks the data of an input, and computes nothing."""
    raise AssertionError("an input is fed, not called")


def _whole_batch(batch_size: int, num_workers: int) -> int:
    """Return the number of samples per task if one worker computes a batch."""
    return batch_size


def _part_size(capacity: int, num_workers: int) -> int:
    """Return the nominal size of the tasks of a batch in parts: it has room for a task of each worker."""
    return max(capacity // max(num_workers, 1), 1)
