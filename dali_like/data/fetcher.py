"""Fetchers: compute samples and batches of a dataset, in workers, or in the main process of a loader without workers.

With the default collation, workers write the samples of map-style and composed datasets into rows of the batch's slot. With
a user's collation, and for iterable datasets, a worker makes the whole batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import operator
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dali_like.common.articles import kind_of
from dali_like.common.foreign_errors import add_note, repr_of
from dali_like.common.user_objects import method_of, next_items
from dali_like.data.array_backends import ArrayBackend, mixed_seed
from dali_like.data.iterable_walk import DatasetWalk, walk_from
from dali_like.data.lookups import looks_up
from dali_like.data.messages import BatchAnswer, ItemsRequest, SamplesAnswer, SamplesRequest, unpack_request
from dali_like.data.sample_schema import Node, SampleSchema, nesting_of, schema_of
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.worker.coroutines import EventLoop, ReadGroup, ReadThreads
from dali_like.engine.worker.info import WorkerInfo, is_worker_thread, set_worker_info
from dali_like.engine.worker.meters import Stopwatch
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.engine.worker.replacing import note_replacement, replace
from dali_like.engine.worker.requests import Request
from dali_like.errors import SampleTypeError
from dali_like.feed.shards import PositionsAnswer, PositionsPart, PositionsRequest, unpacked
from dali_like.sources.composed import is_composed

if TYPE_CHECKING:
    from dali_like.data.options import LoaderOptions
    from dali_like.sources.composed.costs import Cost
    from dali_like.sources.composed.row_pieces import RowPieces
    from dali_like.sources.composed.stage import WeightChanges
    from dali_like.sources.composed.stream import Elements

#: How often the global generators are seeded per batch. Random numbers of samples depend on it, so it must not change.
SEEDS_PER_BATCH = 8

#: Limit of simultaneous walks through an iterable dataset: nested loops over one loader.
_MOST_WALKS = 16

#: Limit of failed attempts within one step of an iterable dataset.
_MOST_FAILURES = 1000

#: Limit of other elements of a composed dataset with random access that may replace a failed one.
_MOST_OTHERS = 100

#: Types of keys and samples that run no code of the program where they are used or converted.
_INTEGERS = frozenset({int, np.int64})
_PLAIN = frozenset({bool, int, float, str, bytes})

#: Limit of indices in a message.
_MOST_INDICES = 256


class LocalRequest:
    """Stands in for a `Request` in the main process of a loader without workers."""

    watch: Stopwatch | None = None
    group: ReadGroup | None = None
    _threads: ReadThreads | None = None

    def __init__(self) -> None:
        self.cell = [0, 0]

    @functools.cached_property
    def _loop(self) -> EventLoop:
        return EventLoop()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the user's, and await a coroutine that it returns."""
        return self._loop.finish(function(*args))

    def read(self, fetcher: Fetcher, request: SamplesRequest) -> None:
        """Carry out the reads of a batch."""
        indices, read = fetcher.reads_of(request, 0, 0, self.watch)
        if fetcher.reads_in_threads:
            self._threads = self._threads or ReadThreads(fetcher.num_reads)
            read = self._threads.in_thread(read)
        self.group = ReadGroup(indices, read, lambda _: fetcher.on_error == "raise")
        self._loop.read_all(self.group, fetcher.num_reads, self._note_lowest)

    def _note_lowest(self, index: int) -> None:
        self.cell[0] = index

    def close(self) -> None:
        """End the threads."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()


@dataclass(eq=False, repr=False)
class Fetcher:
    """Computes batches of a dataset; see `dali_like.engine.worker.requests.RequestHandler`.

    Attributes:
        dataset: map-style or iterable.
        collate_fn: makes a batch from a list of samples; without batches, it is called with each sample.
        array_backend: of the loader.
        batched: whether the loader makes batches.
        seed_every: number of samples between two seeds of the global generators.
        on_error: reaction to an exception of the dataset; see `DataLoader`.
        worker_init_fn: called in each worker with its number.
        as_batches: whether workers collate batches. Becomes true if the samples do not fit any schema, or need no rows.
        has_workers: whether the loader has workers.
        is_columnar: whether to gather batches from the arrays of the dataset; see `dali_like.data.columns`.
        collates_by_default: whether `collate_fn` is the default collation.
        num_reads: number of samples that are read at a time.
        reads_in_threads: whether each read has a thread.
        awaits: whether the dataset returns coroutines.
        num_whole: how many of the next batches a worker makes as a whole in any case.
        cost: measures elements that are chosen by their costs; see `dali_like.data.shard_balance`. None: none are.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    array_backend: ArrayBackend
    batched: bool
    seed_every: int | None
    on_error: str | Callable[[Any, Exception], Any]
    worker_init_fn: Callable[[int], Any] | None
    as_batches: bool
    has_workers: bool
    is_columnar: bool
    collates_by_default: bool
    num_reads: int = 1
    reads_in_threads: bool = False
    awaits: bool = False
    num_whole: int = 0
    cost: Cost | None = None
    _schema: tuple[bytes, SampleSchema | None] = (b"", None)
    _nesting: Node | None = None
    _seeders: tuple[Callable[[int], Any], ...] = ()
    _may_draw: bool = True
    _walks: OrderedDict[int, DatasetWalk] = field(default_factory=OrderedDict)
    _elements: Elements | None = None
    #: Of the latest batch of rows in columns that are in no rows of a slot.
    _schema_of_rows: SampleSchema | None = None
    #: Of the changes of weights that the dataset has.
    _version: int = 0

    @classmethod
    def of(cls, options: LoaderOptions) -> Fetcher:
        """Return the fetcher of a loader, for this process or for workers."""
        from dali_like.data.columns import is_columnar  # most workers need no datasets of ours

        array_backend = options.array_backend
        collates_by_default = array_backend.is_default(options.collate_fn)
        stacks = collates_by_default and options.batched and not options.is_iterable  # `LoaderOptions.stacks_samples`
        gathers = stacks and is_columnar(options.dataset, array_backend)
        awaits = options.awaits
        by_sample = (
            stacks
            and options.batch_size is not None
            and options.batch_size > 1  # one sample is made by one worker in any case
            and options.seeds_by_task
            and (gathers or getitems_of(options.dataset, awaits=awaits) is None)
        )
        return cls(
            dataset=options.dataset,
            collate_fn=options.collate_fn,
            array_backend=array_backend,
            batched=options.batched,
            seed_every=seed_every(options.batch_size) if options.batch_size is not None else None,
            on_error=options.own["on_error"],
            worker_init_fn=array_backend.shard(options.dataset, options.num_workers, options.worker_init_fn),
            as_batches=not by_sample,
            has_workers=options.num_workers > 0,
            is_columnar=gathers,
            collates_by_default=collates_by_default,
            num_reads=options.num_reads,
            reads_in_threads=options.own["read_threads"] is not None or is_composed(options.dataset),
            awaits=awaits,
            cost=options.index_sampler.balance.cost if options.reads_ahead else None,  # type: ignore[attr-defined]
        )

    @property
    def reducers(self) -> Reducers:
        return self.array_backend.reducers

    @property
    def once(self) -> bool:
        """Whether a worker cannot iterate over the dataset again: it is its own iterator."""
        return isinstance(self.dataset, Iterator)

    @property
    def name(self) -> str:
        """Name of the dataset for messages."""
        return f"dataset {type(self.dataset).__qualname__}"

    @property
    def getitems(self) -> Callable[[Any], Any] | None:
        """The dataset's ``__getitems__``, unless a failed sample would have to be replaced."""
        return getitems_of(self.dataset, awaits=self.awaits) if self.on_error == "raise" else None

    @functools.cached_property
    def only_gets_samples(self) -> bool:
        """Whether a batch is the collation of samples that ``__getitem__`` returns one after the other."""
        is_simple = not (self.awaits or self.is_columnar) and self.num_reads == 1 and self.on_error == "raise"
        return is_simple and (not self.batched or self.getitems is None)

    @functools.cached_property
    def needs_sequences(self) -> bool:
        """Whether the keys of a batch must be a sequence, without workers: the sampler may yield other iterables."""
        return self.batched and (self.only_gets_samples or not self.passes_keys)

    @property
    def passes_keys(self) -> bool:
        """Whether ``__getitems__`` gets the keys of each batch as the sampler yields them."""
        return not self.is_columnar and self.getitems is not None

    # In the main process

    def learn(self, message: Any) -> SampleSchema | None:
        if self.as_batches or isinstance(message, BatchAnswer) or not message.others:
            return None
        schema = schema_of(message.others[0], self.array_backend)
        self.as_batches = schema is None or not schema.layouts  # texts alone bring no rows
        if not self.as_batches and not is_composed(self.dataset):
            _remember(self.dataset, type(self.array_backend), schema)
        return None if self.as_batches else schema

    def recall(self) -> SampleSchema | None:
        if self.as_batches or is_composed(self.dataset):
            return None
        reference, backend, schema = last_schemas.get(id(self.dataset), (lambda: None, None, None))
        return schema if reference() is self.dataset and backend is type(self.array_backend) else None

    def recalls_whole(self) -> bool:
        return last_whole.get(id(self.dataset), _no_dataset)() is self.dataset

    def note_whole(self, is_whole: bool) -> None:
        number = id(self.dataset)
        if not is_whole:
            last_whole.pop(number, None)
        elif number not in last_whole:
            with contextlib.suppress(TypeError):  # a list, or an object with slots
                last_whole[number] = weakref.ref(self.dataset, lambda _: last_whole.pop(number, None))

    def make_whole(self, count: int) -> None:
        self.num_whole = count

    def takes_whole(self, size: int, capacity: int) -> bool:
        """Return whether a worker makes the next batch as a whole, given its size and that of the largest in rows."""
        if self.num_whole:
            self.num_whole -= 1
            return True
        return self.as_batches or not 0 < size <= capacity

    def describe(self, key: BatchKey, sample: int) -> str:
        return self.describe_request(unpack_request(key.request), sample)

    def describe_request(self, batch_request: Any, sample: int) -> str:
        """Describe a sample of a request for messages."""
        if isinstance(batch_request, ItemsRequest):
            return f"batch {batch_request.number} of worker {batch_request.worker}"
        if isinstance(batch_request, PositionsRequest):
            return self.describe_position(batch_request, sample)
        return self.describe_keys(batch_request, sample)

    def describe_keys(self, batch_request: SamplesRequest, sample: int) -> str:
        """Describe a sample of a map-style dataset for messages."""
        if not self.batched:
            return f"index {repr_of(batch_request.keys)}"
        if batch_request.as_batch and (self.passes_keys or sample >= len(batch_request.keys)):
            return _described(batch_request)
        return f"index {repr_of(batch_request.keys[sample])} (sample {sample} of batch {batch_request.number})"

    def describe_position(self, wanted: PositionsRequest, index: int) -> str:
        """Describe an element of a composed dataset for messages."""
        if index >= len(wanted.positions):
            return f"batch {wanted.number} (positions {', '.join(map(str, wanted.positions[:_MOST_INDICES]))})"
        return f"position {wanted.positions[index]} of epoch {wanted.epoch} (batch {wanted.number})"

    def describe_batch(self, key: BatchKey) -> str:
        """Describe a batch for messages about all of it."""
        batch_request = unpack_request(key.request)
        if isinstance(batch_request, SamplesRequest) and self.batched:
            return _described(batch_request)
        return self.describe(key, key.stop if isinstance(batch_request, PositionsRequest) else 0)

    # In a worker

    def for_thread(self) -> Fetcher:
        return dataclasses.replace(
            self, _schema=(b"", None), _nesting=None, _seeders=(), _may_draw=True, _walks=OrderedDict(), _elements=None
        )

    def begin(self, worker: int, num_workers: int, start_message: bytes) -> None:
        """See `dali_like.engine.worker.requests.RequestHandler`; the start message is the base seed."""
        seed = int(start_message) + worker
        info = WorkerInfo(worker, num_workers, seed, self.dataset)
        shares_generators = is_worker_thread()  # with the program, which seeds them itself
        if shares_generators:
            set_worker_info(info)
        else:
            self.array_backend.enter_worker(info)
        if self.worker_init_fn is not None:
            try:
                self.worker_init_fn(worker)
            except Exception as error:  # a user's function may raise any error
                add_note(error, f"raised by worker_init_fn, in worker {worker}")
                raise
        self._seeders = () if shares_generators else self.array_backend.seeders(seed)
        # Samples that are only looked up draw nothing, so the seeds for them would be lost.
        self._may_draw = callable(self.on_error) or not looks_up(self.dataset, self.array_backend.tensor_types)

    def make(self, request: Request) -> SamplesAnswer | BatchAnswer | PositionsAnswer | None:
        batch_request = unpack_request(request.text)
        request.cell[0] = request.start
        if isinstance(batch_request, ItemsRequest):
            return self._answer_items(batch_request, request)
        if isinstance(batch_request, PositionsRequest):
            schema = self._schema_of(request.schema) if batch_request.fills_rows else None
            return self._answer_part(batch_request, request.number, request, schema)
        if batch_request.changes is not None:
            self.follow(batch_request.changes)
        if batch_request.as_batch:
            return BatchAnswer(self.fetch(batch_request, request))
        return self._fill(batch_request, request)

    def reads(self, request: Request) -> tuple[range, Callable[[int], Any]] | None:
        batch_request = unpack_request(request.text)
        if not isinstance(batch_request, SamplesRequest):
            return None
        if batch_request.changes is not None:
            self.follow(batch_request.changes)
        return self.reads_of(batch_request, request.start, request.stop, request.watch)

    def reads_of(
        self, wanted: SamplesRequest, start: int, stop: int, watch: Stopwatch | None
    ) -> tuple[range, Callable[[int], Any]]:
        """Return the reads of some samples of a batch; of all of them if the request is for a batch as a whole."""
        get: Callable[[Any], Any] = functools.partial(operator.getitem, self.dataset)
        keys = wanted.keys
        if not self.batched:
            start, stop, keys = 0, 1, [keys]
        elif wanted.as_batch and self.getitems is not None:
            get, start, stop, keys = self.getitems, 0, 1, [keys]
        elif wanted.as_batch:
            start, stop = 0, len(keys)
        if not self.reads_in_threads:
            get = functools.partial(self._await, get)
            get = get if watch is None else watch.timed_coroutine(get)
        elif watch is not None:
            get = watch.timed(get)
        return range(start, stop), lambda i: get(keys[i])

    async def _await(self, get: Callable[[Any], Any], key: Any) -> Any:
        value = get(key)
        if not inspect.isawaitable(value):
            raise SampleTypeError(
                f"concurrency= is for coroutine functions, and __getitem__ of {self.name} returned "
                f"{kind_of(value)}. Define it by `async def`, or pass read_threads={self.num_reads} if it blocks"
            )
        return await value

    def put_back(self, request: Request, message: SamplesAnswer | BatchAnswer | PositionsAnswer) -> None:
        """See `dali_like.engine.worker.requests.RequestHandler`. Only a walk of an iterable cannot repeat a step."""
        batch_request = unpack_request(request.text)
        if isinstance(batch_request, ItemsRequest) and isinstance(message, BatchAnswer):
            self._walks[batch_request.iterator].unplaced[batch_request.number] = message

    def _fill(self, batch_request: SamplesRequest, request: Request) -> SamplesAnswer | None:
        """Compute samples, and write them into their rows as long as they fit the schema."""
        schema = self._schema_of(request.schema)
        if self.is_columnar and schema is not None and self._gather(batch_request.keys, request, schema) is not None:
            return None
        texts: list[list[Any]] = [[] for _ in range(0 if schema is None else schema.num_texts)]
        others: list[Any] = []
        together = request.stop - request.start if schema is None else schema.together
        for begin in range(request.start, request.stop, together or 1):
            end = min(begin + together, request.stop)
            samples = self._make_some(batch_request, begin, end, request)
            if schema is not None and not others:
                rows = [rows[begin:end] for rows in request.rows]
                samples = samples[schema.put(samples, rows, texts) :]
            others += samples
            del samples  # the next samples reuse the memory, which is in the CPU cache
        return SamplesAnswer(texts, others) if others or texts else None

    def _make_some(self, batch_request: SamplesRequest, begin: int, end: int, request: Request | LocalRequest) -> list[Any]:
        """Return the samples of a range of a batch, with the generators seeded where they are due."""
        seed, number, keys, *_ = batch_request
        if request.group is not None:
            return [self._take_read(keys, i, request) for i in range(begin, end)]
        if self.is_columnar and self.getitems is not None:
            return list(_measured(self.getitems, request)(keys[begin:end]))
        samples: list[Any] = []
        append = samples.append
        cell = request.cell
        dataset = self._dataset_for(request)
        every = self.seed_every or len(keys)
        draws = seed is not None and self._draws(keys)
        while begin < end:
            stop = end
            if draws:
                stop = min(begin - begin % every + every, end)
                if begin % every == 0:
                    self._seed(seed, number, begin)
            # These loops are the overhead per sample.
            if self.on_error == "raise":
                for i in range(begin, stop):
                    cell[0] = i
                    append(dataset[keys[i]])
            else:
                for i in range(begin, stop):
                    cell[0] = i
                    append(self._get(dataset, keys, i, request))
            begin = stop
        return samples

    def _schema_of(self, packed: bytes) -> SampleSchema | None:
        if packed != self._schema[0]:
            self._schema = packed, pickle.loads(packed) if packed else None
        return self._schema[1]

    # In a worker or the main process

    def collate(self, samples: Any, seed: Callable[[], None] | None = None) -> Any:
        """Collate samples. In place of the default collation, a schema does it if they fit one: that is faster.

        Args:
            seed: called before functions of the program that may draw random numbers.
        """
        if samples.__class__ is list and samples and self.collates_by_default:
            is_new = self._nesting is None
            if is_new:
                self._nesting = nesting_of(samples[0], self.array_backend)
            while self._nesting is not None:
                try:
                    return self._nesting.collate(samples, False, self.has_workers)
                except Exception:  # the samples do not fit, or the default collation fails, too, with its own message
                    self._nesting = None if is_new else nesting_of(samples[0], self.array_backend)
                    is_new = True
        if seed is not None:
            seed()
        return self.collate_fn(samples)

    @functools.cached_property
    def _converts_by_default(self) -> bool:
        return self.array_backend.is_default_conversion(self.collate_fn)

    @functools.cached_property
    def _functions_of_columns(self) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
        from dali_like.data.columns import columns_of, first_sample  # most workers need no datasets of ours

        return columns_of, first_sample

    def _gather(self, keys: Any, request: Request | LocalRequest, schema: SampleSchema | None = None) -> Any:
        """Return the batch of a dataset that is columnar. With a schema, the part of the request goes to its rows instead.

        Returns:
            None: the dataset must be asked for each sample.
        """
        columns_of, first_sample = self._functions_of_columns
        rows = None
        if schema is not None:
            assert isinstance(request, Request)
            keys, rows = keys[request.start : request.stop], [row[request.start : request.stop] for row in request.rows]
        begin_ns = 0 if request.watch is None else monotonic_ns()
        try:
            columns = columns_of(self.dataset, keys, self.array_backend)
            if schema is None and self._nesting is None:
                self._nesting = nesting_of(first_sample(columns), self.array_backend)
            root = self._nesting if schema is None else schema.root
            batch = None if root is None else root.gather(columns, rows)
            if rows is not None and root is not None:
                batch = rows  # a single leaf returns nothing
        except Exception:  # the arrays do not fit, or the dataset fails, too, with its own message
            return None
        if batch is not None and request.watch is not None:
            request.watch.note_together(begin_ns, keys)
        return batch

    def fetch_here(self, wanted: SamplesRequest, local: LocalRequest) -> Any:
        """Return a batch as `fetch` does, after its reads, in the main process."""
        if self.num_reads > 1:
            local.read(self, wanted)
        return self.fetch(wanted, local)

    def fetch(self, batch_request: SamplesRequest, request: Request | LocalRequest) -> Any:
        """Return a batch of a map-style dataset, or one sample without batches."""
        seed, number, keys, *_ = batch_request
        if not self.batched:
            return self.collate_fn(self._fetch_one(batch_request, request))
        if self.is_columnar and (batch := self._gather(keys, request)) is not None:
            return batch
        if (getitems := self.getitems) is not None:
            if request.group is not None:
                return self.collate(request.group.take(0))
            self._seed(seed, number, 0)
            if self.awaits:
                getitems = functools.partial(request.call, getitems)
            return self.collate(_measured(getitems, request)(keys))
        if not isinstance(keys, (list, tuple, range)):
            keys = list(keys)
            batch_request = batch_request._replace(keys=keys)
        samples = self._make_some(batch_request, 0, len(keys), request)
        request.cell[0] = len(keys)
        if seed is None or self._draws(keys):
            return self.collate(samples)
        every = self.seed_every or len(keys)
        return self.collate(samples, lambda: self._seed(seed, number, (len(keys) - 1) // every * every))

    def _draws(self, keys: Sequence[Any]) -> bool:
        """Return whether the samples of some keys may draw random numbers."""
        return self._may_draw or not _INTEGERS.issuperset(map(type, keys))

    def _answer_items(self, wanted: ItemsRequest, request: Request) -> BatchAnswer:
        walk = self._walk_of(wanted)
        if wanted.number in walk.unplaced:
            unplaced: BatchAnswer = walk.unplaced.pop(wanted.number)
            return unplaced
        batch = self.step(walk, wanted, request)
        report = walk.report if wanted.wants_state else walk.report_if_due
        return BatchAnswer(batch, report(self.dataset))

    def step(self, walk: DatasetWalk, wanted: ItemsRequest, request: Request | LocalRequest) -> Any:
        """Return the batch of one step of a walk through an iterable dataset.

        Raises:
            StopIteration: the walk has ended.
        """
        items = walk.step(wanted.number, lambda: self.take_items(walk, wanted, request))
        return self.batch_of_items(walk, wanted, items)

    def batch_of_items(self, walk: DatasetWalk, wanted: ItemsRequest, samples: list[Any]) -> Any:
        """Return the batch of the items of the last step of a walk.

        Raises:
            StopIteration: the walk has ended.
        """
        if walk.end is not None and (not samples or (wanted.drop_last and len(samples) < (wanted.size or 1))):
            raise StopIteration
        return self.collate(samples) if self.batched else self.collate_fn(samples[0])

    def take_positions(
        self, wanted: PositionsRequest, part: PositionsPart, request: Request | LocalRequest, schema: SampleSchema | None
    ) -> PositionsAnswer:
        """Return elements of a composed dataset, and the states of their logical shards behind them.

        Args:
            schema: of elements that go to rows of the request; None: none of them.
        """
        from dali_like.feed.shards import Conduct, take_part  # few loaders need it

        if wanted.changes is not None:
            self.follow(wanted.changes)
        if self._elements is None:
            self._elements = self.dataset.elements()
        texts: list[list[Any]] = [[] for _ in range(0 if schema is None else schema.num_texts)]

        def replacement(position: int, error: Exception, others: Iterable[tuple[str, Callable[[], Any]]]) -> Any:
            return self._replace(f"position {position}", position, error, request, others)

        put_rows = None
        if self.dataset.is_columnar and self.on_error == "raise":
            put_rows = functools.partial(self._put_rows, schema, request, texts)
        conduct = Conduct(
            request.cell,
            lambda position: self._seed(wanted.seed, wanted.number, position),
            self.seed_every,
            lambda function: _measured(function, request),
            None if self.on_error == "raise" else replacement,
            None if schema is None else lambda places, some: _put_at(schema, places, some, request.rows, texts),  # type: ignore[union-attr]
            None if schema is None else schema.together,
            put_rows,
            None if self.cost is None else self._cost_of,
        )
        return take_part(self._elements, self.dataset.shards, wanted, part, conduct)._replace(texts=texts)

    def _cost_of(self, element: Any) -> float:
        """Return the cost of an element, which `dali_like.sources.composed.traced` may have traced."""
        from dali_like.sources.composed.traced import Traced  # few programs need it

        assert self.cost is not None
        return self.cost.number(element.value if type(element) is Traced else element)

    def _put_rows(
        self, schema: SampleSchema | None, request: Request | LocalRequest, texts: list[list[Any]], rows: RowPieces
    ) -> bool:
        """Write rows in columns to the rows of a request. Return False if they do not fit."""
        if schema is None:
            return False
        from dali_like.data.columns import put_rows  # most workers need no datasets of ours

        assert isinstance(request, Request)
        return put_rows(schema.root, rows, request.rows, texts)

    def finish_elements(self, elements: Sequence[Any]) -> Any:
        """Return the batch of some elements, or of rows in columns; without batches, the only element."""
        if type(elements) is not list:
            rows = cast("RowPieces", elements)
            if self.batched and self.collates_by_default and (batch := self._batch_of_rows(rows)) is not None:
                return batch
            elements = [row for _, row in rows.in_order()]
        return self.collate(elements) if self.batched else self.collate_fn(elements[0])

    def _batch_of_rows(self, rows: RowPieces) -> Any:
        """Return the batch of rows in columns, all of them numbers; None if they do not fit a schema."""
        from dali_like.data.columns import batch_of  # most workers need no datasets of ours

        batch, schema = None, self._schema_of_rows
        if schema is not None:
            batch = batch_of(rows, schema)
        if batch is None and (schema := schema_of(rows[0], self.array_backend)) is not None and not schema.num_texts:
            batch, self._schema_of_rows = batch_of(rows, schema), schema
        return batch

    def follow(self, changes: WeightChanges) -> None:
        """Let a composed dataset have changed weights. The stream up to them is the same, so they are not taken back."""
        if changes.version > self._version:
            self._version = changes.version
            self.dataset = self.dataset.with_changes(changes.items)
            self._elements = None

    def _answer_part(
        self, wanted: PositionsRequest, number: int, request: Request | LocalRequest, schema: SampleSchema | None
    ) -> PositionsAnswer:
        part = unpacked(wanted.parts[number])
        answer = self.take_positions(wanted, part, request, schema)
        request.cell[0] = len(wanted.positions)
        if wanted.fills_rows or len(wanted.parts) > 1 or not answer.found:
            return answer
        return answer._replace(others=[], collated=(self.finish_elements(answer.others),))

    def answer_locally(self, wanted: PositionsRequest, local: LocalRequest) -> PositionsAnswer:
        """Answer a request for positions in the main process."""
        return self._answer_part(wanted, 0, local, None)

    def open_walk(self, shared_seed: int | None, reported: dict[str, Any] | None = None) -> DatasetWalk:
        """Begin a walk through an iterable dataset, or resume one from a reported state."""

        def begin() -> Iterator[Any]:
            return self.array_backend.walk(self.dataset, shared_seed)

        return DatasetWalk(begin()) if reported is None else walk_from(reported, begin, self.dataset)

    def _walk_of(self, wanted: ItemsRequest) -> DatasetWalk:
        walk = self._walks.get(wanted.iterator)
        if walk is None or (walk.position > wanted.number and wanted.number not in walk.unplaced):
            self._seed(wanted.seed, wanted.worker)
            reported = None if wanted.state is None else pickle.loads(wanted.state)
            if reported is not None and reported["position"] > wanted.number:
                reported = None
            walk = self._walks[wanted.iterator] = self.open_walk(wanted.shared_seed, reported)
        self._walks.move_to_end(wanted.iterator)
        if len(self._walks) > _MOST_WALKS:
            self._walks.popitem(last=False)
        return walk

    def take_items(self, walk: DatasetWalk, wanted: ItemsRequest, request: Request | LocalRequest) -> list[Any]:
        """Return the items of the next step of a walk; fewer at its end."""
        number, count = walk.position, 1 if wanted.size is None else wanted.size
        if wanted.seed is not None:
            self._seed(wanted.seed, number, wanted.worker)
        walk.position += 1
        samples: list[Any] = []
        if self.on_error == "raise" and request.watch is None and walk.end is None:
            samples.extend(next_items(walk.items, count))
            if len(samples) < count:
                walk.end = number
            return samples
        failures = 0
        take = _measured(next, request)
        while len(samples) < count and walk.end is None:
            try:
                samples.append(take(walk.items))
            except StopIteration:
                walk.end = number
            except Exception as error:
                failures += 1
                if self.on_error == "raise" or failures > _MOST_FAILURES:
                    raise
                if callable(self.on_error):
                    samples.append(self._replace("an item of the dataset", number, error, request))
                else:
                    note_replacement(request.cell, "an item of the dataset", "the next one", error)
        return samples

    def _get(self, dataset: Any, keys: Sequence[Any], i: int, request: Request | LocalRequest) -> Any:
        try:
            return dataset[keys[i]]
        except StopIteration:
            raise
        except Exception as error:
            if self.on_error == "raise":
                raise
            return self._replace_sample(keys, i, error, request)

    def _take_read(self, keys: Sequence[Any], i: int, request: Request | LocalRequest) -> Any:
        """Return a sample that has been read."""
        request.cell[0] = i
        assert request.group is not None
        try:
            return request.group.take(i)
        except StopIteration:
            raise
        except Exception as error:
            if self.on_error == "raise":
                raise
            return self._replace_sample(keys, i, error, request)

    def _fetch_one(self, batch_request: SamplesRequest, request: Request | LocalRequest) -> Any:
        """Return the only sample of a request of a loader without batches."""
        seed, number, key, *_ = batch_request
        if request.group is not None:
            return self._take_read([key], 0, request)
        if draws := self._draws([key]):
            self._seed(seed, number, 0)
        sample = self._get(self._dataset_for(request), [key], 0, request)
        if not draws and not (self._converts_by_default and type(sample) in _PLAIN):
            self._seed(seed, number, 0)
        return sample

    def _replace_sample(self, keys: Sequence[Any], i: int, error: Exception, request: Request | LocalRequest) -> Any:
        if is_composed(self.dataset):  # its elements depend on their positions, and never on the batch
            numbers: Iterable[Any] = range(keys[i] + 1, keys[i] + 1 + _MOST_OTHERS)
        else:
            numbers = itertools.chain(keys[i + 1 :], keys[:i])
        get = functools.partial(operator.getitem, self.dataset)
        if self.awaits:
            get = functools.partial(request.call, get)
        others = ((f"sample {repr_of(key)}", functools.partial(get, key)) for key in numbers)
        return self._replace(f"sample {repr_of(keys[i])}", keys[i], error, request, others)

    def _dataset_for(self, request: Request | LocalRequest) -> Any:
        """Return the dataset as one that returns samples, and measures their time if the request has a stopwatch."""
        dataset = _AwaitedDataset(self.dataset, request.call) if self.awaits else self.dataset
        return dataset if request.watch is None else _MeasuredDataset(dataset, request.watch)

    def _replace(
        self,
        what: str,
        key: Any,
        error: Exception,
        request: Request | LocalRequest,
        others: Iterable[tuple[str, Callable[[], Any]]] = (),
    ) -> Any:
        """Return the replacement of a failed sample: the result of `on_error`, or another sample."""
        return replace(
            functools.partial(self.on_error, key, error) if callable(self.on_error) else self.on_error,
            error,
            what,
            request.cell,
            function="on_error",
            others=others,
        )

    def _seed(self, seed: int | None, *position: int) -> None:
        if seed is not None:
            mixed = mixed_seed(seed, *position)
            for seeder in self._seeders:
                seeder(mixed)


#: The last schema of the samples of each dataset, by its id: the next workers need not learn it from a batch again.
last_schemas: dict[int, tuple[Callable[[], Any], type[ArrayBackend] | None, SampleSchema | None]] = {}

#: The datasets whose batches one worker each computed in the end, by id; see `dali_like.engine.pool.sharing`.
last_whole: dict[int, Callable[[], Any]] = {}


def _no_dataset() -> None:
    return None


def _remember(dataset: Any, backend: type[ArrayBackend], schema: SampleSchema | None) -> None:
    """Remember the schema of a dataset's samples, as long as the dataset exists."""
    number = id(dataset)
    with contextlib.suppress(TypeError):  # a list, or an object with slots
        last_schemas[number] = weakref.ref(dataset, lambda _: last_schemas.pop(number, None)), backend, schema


def _put_at(
    schema: SampleSchema, places: list[int], elements: list[Any], rows: Sequence[NDArray[Any]], texts: list[list[Any]]
) -> int:
    """Write elements into the rows at ascending places, up to the first that does not fit. Return how many were written."""
    step = places[1] - places[0] if len(places) > 1 else 1
    if places == list(range(places[0], places[-1] + 1, step)):
        return schema.put(elements, [row[places[0] : places[-1] + 1 : step] for row in rows], texts)
    for i, (place, element) in enumerate(zip(places, elements, strict=True)):
        if not schema.put([element], [row[place : place + 1] for row in rows], texts):
            return i
    return len(elements)


def _described(batch_request: SamplesRequest) -> str:
    """Describe a batch with the indices of its samples: errors of a collation count samples within the batch."""
    if not isinstance(batch_request.keys, Collection):  # a dataset with __getitems__ may support other keys
        return f"batch {batch_request.number}"
    indices = ", ".join(map(repr_of, itertools.islice(batch_request.keys, _MOST_INDICES)))
    return f"batch {batch_request.number} (indices {indices}{', ...' if len(batch_request.keys) > _MOST_INDICES else ''})"


def getitems_of(dataset: Any, *, awaits: bool) -> Callable[[Any], Any] | None:
    """Return the ``__getitems__`` of a dataset; if that returns coroutines, only a coroutine function."""
    getitems: Callable[[Any], Any] | None = method_of(dataset, "__getitems__")
    return None if awaits and not inspect.iscoroutinefunction(getitems) else getitems


class _AwaitedDataset:
    """A map-style dataset whose coroutines are awaited one after the other."""

    def __init__(self, dataset: Any, call: Callable[..., Any]) -> None:
        self._dataset = dataset
        self._call = call

    def __getitem__(self, key: Any) -> Any:
        return self._call(operator.getitem, self._dataset, key)


class _MeasuredDataset:
    """A map-style dataset that measures the time of each sample."""

    def __init__(self, dataset: Any, watch: Stopwatch) -> None:
        self._dataset = dataset
        self._get = watch.timed(lambda key: dataset[key])

    def __getitem__(self, key: Any) -> Any:
        return self._get(key)


def _measured(function: Callable[[Any], Any], request: Request | LocalRequest) -> Callable[[Any], Any]:
    """Return the function, with a time measurement if the request has a stopwatch."""
    return function if request.watch is None else request.watch.timed(function)


def as_sequence(keys: Any) -> Sequence[Any]:
    """Return the keys of a batch as a sequence: a batch sampler may yield any iterable."""
    return keys if isinstance(keys, (list, tuple, range)) else list(keys)


def seed_every(batch_size: int) -> int:
    """Return the number of samples between two seeds of the global generators."""
    return -(-batch_size // SEEDS_PER_BATCH)
