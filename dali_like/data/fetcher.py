"""Making batches of a dataset: what workers do for a loader, and the loader itself where it has none.

Of a map-style dataset with the default collation, workers make samples, as many as a task has, and write them into the
batch's slot. Everything else is made batch by batch: what the user's collation returns, what an iterable dataset gives.
"""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dali_like.data.array_backends import ArrayBackend, mixed_seed
from dali_like.data.iterable_walk import DatasetWalk, walk_from
from dali_like.data.messages import Keys, MadeSamples, Step, Whole
from dali_like.data.sample_schema import SampleSchema, batch_of, schema_of
from dali_like.engine.memory.batch_key import BatchKey
from dali_like.engine.worker.exceptions import add_note
from dali_like.engine.worker.info import WorkerInfo, is_worker_thread, set_worker_info
from dali_like.engine.worker.meters import Stopwatch
from dali_like.engine.worker.out_of_band import Reducers
from dali_like.engine.worker.replacing import note_replacement
from dali_like.engine.worker.requests import Request

#: The global generators are seeded so often in a batch. A fixed number: what is random in a sample depends on it.
SEEDS_PER_BATCH = 8

#: A worker keeps this many walks through an iterable dataset: nested loops over one loader have one each.
_MOST_WALKS = 16

#: With ``on_error``, a step through an iterable dataset replaces at most this many failed items.
_MOST_FAILURES = 1000

#: Messages name no more indices than this.
_MOST_INDICES = 256


class LocalRequest:
    """In the place of a `Request`, where a batch is made for the calling process itself: what is used of one then."""

    def __init__(self) -> None:
        self.cell = [0, 0]
        self.watch: Stopwatch | None = None


@dataclass
class Fetcher:
    """Makes batches of a dataset; see `dali_like.engine.worker.requests.RequestHandler`.

    Attributes:
        dataset: map-style, or iterable.
        collate_fn: makes a batch of samples; where no batches are made, is given the sample.
        array_backend: of the loader.
        batched: whether batches are made.
        seed_every: so many samples are made between two seeds of the global generators.
        on_error: what happens when the dataset raises; see `DataLoader`.
        worker_init_fn: called in each worker with its number.
        whole: whether batches are made as wholes. Becomes so when samples turn out to have no form.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    array_backend: ArrayBackend
    batched: bool
    seed_every: int | None
    on_error: str | Callable[[Any, Exception], Any]
    worker_init_fn: Callable[[int], Any] | None
    whole: bool
    _schema: tuple[bytes, SampleSchema | None] = (b"", None)
    _last_form: SampleSchema | None = None
    _seeders: tuple[Callable[[int], Any], ...] = ()
    _walks: OrderedDict[int, DatasetWalk] = field(default_factory=OrderedDict)

    @property
    def reducers(self) -> Reducers:
        """See `dali_like.engine.worker.requests.RequestHandler`."""
        return self.array_backend.reducers

    @property
    def once(self) -> bool:
        """Whether a worker cannot begin its walk anew: the dataset is its own iterator."""
        return isinstance(self.dataset, Iterator)

    @property
    def name(self) -> str:
        """Of the dataset, for messages."""
        return f"dataset {type(self.dataset).__qualname__}"

    @property
    def getitems(self) -> Callable[[Any], Any] | None:
        """What gives all samples of a batch at once, if the dataset has it and none of them may have to be replaced."""
        return (getattr(self.dataset, "__getitems__", None) or None) if self.on_error == "raise" else None

    # In the main process

    def learn(self, message: Any) -> SampleSchema | None:
        """See `dali_like.engine.worker.requests.RequestHandler`."""
        if isinstance(message, Whole) or not message.others:
            return None
        schema = schema_of(message.others[0], self.array_backend)
        self.whole = schema is None
        return schema

    def describe(self, key: BatchKey, sample: int) -> str:
        """See `dali_like.engine.worker.requests.RequestHandler`."""
        asked = pickle.loads(key.request)
        if isinstance(asked, Step):
            return f"batch {asked.number} of worker {asked.worker}"
        return self.describe_keys(asked, sample)

    def describe_keys(self, asked: Keys, sample: int) -> str:
        """Which sample of a map-style dataset it is, for messages."""
        if not self.batched:
            return f"index {asked.keys!r}"
        if asked.whole and (self.getitems is not None or sample >= len(asked.keys)):
            return _described(asked)
        return f"index {asked.keys[sample]!r} (sample {sample} of batch {asked.number})"

    def describe_batch(self, key: BatchKey) -> str:
        """Which batch it is, where none of its samples is to blame, for messages."""
        asked = pickle.loads(key.request)
        return _described(asked) if isinstance(asked, Keys) and self.batched else self.describe(key, 0)

    # In a worker

    def for_thread(self) -> Fetcher:
        """See `dali_like.engine.worker.requests.RequestHandler`."""
        return dataclasses.replace(self, _schema=(b"", None), _last_form=None, _seeders=(), _walks=OrderedDict())

    def begin(self, worker: int, num_workers: int, notice: bytes) -> None:
        """See `dali_like.engine.worker.requests.RequestHandler`; the notice is the base seed."""
        seed = int(notice) + worker
        info = WorkerInfo(worker, num_workers, seed, self.dataset)
        shares_generators = is_worker_thread()  # with all of the program, whose affair they are then
        if shares_generators:
            set_worker_info(info)
        else:
            self.array_backend.enter_worker(info)
        if self.worker_init_fn is not None:
            try:
                self.worker_init_fn(worker)
            except Exception as error:  # whatever the user's function does
                add_note(error, f"raised by worker_init_fn, in worker {worker}")
                raise
        self._seeders = () if shares_generators else self.array_backend.seeders(seed)

    def make(self, request: Request) -> MadeSamples | Whole | None:
        """See `dali_like.engine.worker.requests.RequestHandler`."""
        asked = pickle.loads(request.text)
        request.cell[0] = request.start
        if isinstance(asked, Step):
            return self.step(asked, request)
        if asked.whole:
            return Whole(self.fetch(asked, request))
        return self._fill(asked, request)

    def put_back(self, request: Request, message: MadeSamples | Whole) -> None:
        """See `dali_like.engine.worker.requests.RequestHandler`. Only walks cannot do a step again."""
        asked = pickle.loads(request.text)
        if isinstance(asked, Step) and isinstance(message, Whole):
            self._walks[asked.walk].unplaced[asked.number] = message

    def _fill(self, asked: Keys, request: Request) -> MadeSamples | None:
        """Make samples and write them into their rows, for as long as they are of the expected form."""
        schema = self._form_of(request.schema)
        texts: list[list[Any]] = [[] for _ in range(0 if schema is None else schema.num_texts)]
        others: list[Any] = []
        together = request.stop - request.start if schema is None else schema.together
        for begin in range(request.start, request.stop, together or 1):
            end = min(begin + together, request.stop)
            samples = self._make_some(asked, begin, end, request)
            if schema is not None and not others:
                rows = [rows[begin - request.start : end - request.start] for rows in request.rows]
                samples = samples[schema.put(samples, rows, texts) :]
            others += samples
            del samples  # so that the next ones get the same memory, which is in the cache
        return MadeSamples(texts, others) if others or texts else None

    def _make_some(self, asked: Keys, begin: int, end: int, request: Request) -> list[Any]:
        seed, number, keys, _ = asked
        samples = []
        cell = request.cell
        dataset = self.dataset if request.watch is None else _MeasuredDataset(self.dataset, request.watch)
        for start, stop in self._spans(begin, end):
            if seed is not None and start % self.seed_every == 0:  # type: ignore[operator]
                self._seed(seed, number, start)
            # These loops are what a sample costs besides the dataset.
            if self.on_error == "raise":
                for i in range(start, stop):
                    cell[0] = i
                    samples.append(dataset[keys[i]])
            else:
                for i in range(start, stop):
                    cell[0] = i
                    samples.append(self._get(dataset, keys, i, request))
        return samples

    def _spans(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Some samples of a batch, divided where the generators are seeded."""
        assert self.seed_every is not None
        while begin < end:
            stop = min(begin - begin % self.seed_every + self.seed_every, end)
            yield begin, stop
            begin = stop

    def _form_of(self, packed: bytes) -> SampleSchema | None:
        if packed != self._schema[0]:
            self._schema = packed, pickle.loads(packed) if packed else None
        return self._schema[1]

    # Wherever batches are made

    def collate(self, samples: Any) -> Any:
        """The batch of samples that are all there. The default collation makes it like those in rows, where it can."""
        if samples.__class__ is not list or not samples or not self.array_backend.is_default(self.collate_fn):
            return self.collate_fn(samples)
        batch = None if self._last_form is None else batch_of(samples, self._last_form)
        if batch is None:
            self._last_form = schema_of(samples[0], self.array_backend)
            batch = None if self._last_form is None else batch_of(samples, self._last_form)
        return self.collate_fn(samples) if batch is None else batch

    def fetch(self, asked: Keys, request: Request | LocalRequest) -> Any:
        """Make a batch of a map-style dataset, or one sample."""
        seed, number, keys, _ = asked
        dataset = self.dataset if request.watch is None else _MeasuredDataset(self.dataset, request.watch)
        if not self.batched:
            self._seed(seed, number, 0)
            return self.collate_fn(self._get(dataset, [keys], 0, request))
        if self.getitems is not None:
            self._seed(seed, number, 0)
            return self.collate(_measured(self.getitems, request)(keys))
        samples = []
        keys = as_sequence(keys)
        for i in range(len(keys)):
            if i == 0 or (self.seed_every is not None and i % self.seed_every == 0):
                self._seed(seed, number, i)
            request.cell[0] = i
            samples.append(self._get(dataset, keys, i, request))
        request.cell[0] = len(keys)
        return self.collate(samples)

    def step(self, asked: Step, request: Request | LocalRequest) -> Whole:
        """Return the batch of one step of a walk through an iterable dataset, with the state behind it.

        Raises:
            StopIteration: the walk has ended.
        """
        walk = self._walk_of(asked)
        if asked.number in walk.unplaced:
            unplaced: Whole = walk.unplaced.pop(asked.number)
            return unplaced
        samples = walk.step(asked.number, lambda: self._take(walk, asked, request))
        if walk.end is not None and (not samples or (asked.drop_last and len(samples) < (asked.size or 1))):
            raise StopIteration
        reported = walk.report(asked.worker, self.dataset)
        return Whole(self.collate(samples) if self.batched else self.collate_fn(samples[0]), reported)

    def open_walk(self, number: int, shared_seed: int | None, reported: dict[str, Any] | None = None) -> DatasetWalk:
        """Begin a walk through an iterable dataset, or resume one from a reported state."""

        def begin() -> Iterator[Any]:
            return self.array_backend.walk(self.dataset, shared_seed)

        walk = DatasetWalk(begin()) if reported is None else walk_from(reported, begin, self.dataset)
        self._walks[number] = walk
        return walk

    def told(self, number: int) -> dict[str, Any] | None:
        """Return the state of a walk of this process; see `DatasetWalk.report`."""
        return self._walks[number].report(0, self.dataset)

    def _walk_of(self, asked: Step) -> DatasetWalk:
        walk = self._walks.get(asked.walk)
        if walk is None or (walk.position > asked.number and asked.number not in walk.unplaced):
            self._seed(asked.seed, asked.worker)
            told = asked.told if asked.told is not None and asked.told["steps"] <= asked.number else None
            walk = self.open_walk(asked.walk, asked.shared_seed, told)
        self._walks.move_to_end(asked.walk)
        if len(self._walks) > _MOST_WALKS:
            self._walks.popitem(last=False)
        return walk

    def _take(self, walk: DatasetWalk, asked: Step, request: Request | LocalRequest) -> list[Any]:
        number = walk.position
        self._seed(asked.seed, number, asked.worker)
        walk.position += 1
        samples: list[Any] = []
        failures = 0
        take = _measured(next, request)
        while len(samples) < (1 if asked.size is None else asked.size) and walk.end is None:
            try:
                samples.append(take(walk.items))
            except StopIteration:
                walk.end = number
            except Exception as error:
                failures += 1
                if self.on_error == "raise" or failures > _MOST_FAILURES:
                    raise
                by = "the next one"
                if callable(self.on_error):
                    samples.append(self._replacement(number, error))
                    by = "what on_error returned"
                note_replacement(request.cell, "an item of the dataset", by, error)
        return samples

    def _get(self, dataset: Any, keys: Sequence[Any], i: int, request: Request | LocalRequest) -> Any:
        try:
            return dataset[keys[i]]
        except StopIteration:
            raise
        except Exception as error:
            if self.on_error == "raise":
                raise
            if callable(self.on_error):
                sample = self._replacement(keys[i], error)
                note_replacement(request.cell, f"sample {keys[i]!r}", "what on_error returned", error)
                return sample
            return self._get_another(keys, i, error, request)

    def _get_another(self, keys: Sequence[Any], i: int, error: Exception, request: Request | LocalRequest) -> Any:
        """The next sample of the batch that can be had.

        Raises:
            Exception: there is none.
        """
        for key in itertools.chain(keys[i + 1 :], keys[:i]):
            try:
                sample = self.dataset[key]
            except Exception:  # that one too: on to the next
                continue
            note_replacement(request.cell, f"sample {keys[i]!r}", f"sample {key!r}", error)
            return sample
        raise error

    def _replacement(self, key: Any, error: Exception) -> Any:
        assert callable(self.on_error)
        try:
            return self.on_error(key, error)
        except StopIteration as stop:
            raise RuntimeError("on_error raised StopIteration; only the dataset ends the epoch") from stop

    def _seed(self, seed: int | None, *position: int) -> None:
        if seed is not None:
            mixed = mixed_seed(seed, *position)
            for seeder in self._seeders:
                seeder(mixed)


def _described(asked: Keys) -> str:
    """A batch, with the indices of its samples: what collations say of samples counts them within the batch."""
    if not isinstance(asked.keys, Collection):  # as a dataset with __getitems__ may be given them
        return f"batch {asked.number}"
    indices = ", ".join(map(repr, itertools.islice(asked.keys, _MOST_INDICES)))
    return f"batch {asked.number} (indices {indices}{', ...' if len(asked.keys) > _MOST_INDICES else ''})"


class _MeasuredDataset:
    """A map-style dataset whose samples are measured."""

    def __init__(self, dataset: Any, watch: Stopwatch) -> None:
        self._dataset = dataset
        self._get = watch.timed(lambda key: dataset[key])

    def __getitem__(self, key: Any) -> Any:
        return self._get(key)


def _measured(function: Callable[[Any], Any], request: Request | LocalRequest) -> Callable[[Any], Any]:
    """A function; or one that is measured, if the request says so."""
    return function if request.watch is None else request.watch.timed(function)


def as_sequence(keys: Any) -> Sequence[Any]:
    """The keys of a batch as a sequence, in whatever container a batch sampler has them."""
    return keys if isinstance(keys, (list, tuple)) else list(keys)


def seed_every(batch_size: int) -> int:
    """How many samples are made between two seeds of the global generators."""
    return -(-batch_size // SEEDS_PER_BATCH)
