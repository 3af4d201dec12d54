"""The data loader whose batches are NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from enum import IntEnum
from multiprocessing.context import BaseContext
from typing import Any, TypeVar, cast

from dali_like.data.base_loader import BaseDataLoader
from dali_like.data.batch_sizes import batch_sizes_of
from dali_like.data.datasets import Samples
from dali_like.data.generators import as_generator
from dali_like.data.options import (
    RANK_NAMES,
    check_batches,
    check_composed,
    check_no_order,
    check_workers,
    context_of,
    default_prefetch,
    is_iterable,
    resolve_auto,
)
from dali_like.data.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler
from dali_like.errors import ArgumentError
from dali_like.sources.collate import default_collate, default_convert

__all__ = ["DataLoader", "DatasetKind"]

T_co = TypeVar("T_co", covariant=True)


class DatasetKind(IntEnum):
    """The kind of a dataset, with PyTorch's numbers."""

    MAP = 0
    ITERABLE = 1


#: Attributes that cannot be set on an existing loader. All others may change, and count from the next iterator on.
_LOCKED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class DataLoader(BaseDataLoader[T_co]):
    """Loads batches of a dataset through worker processes or threads, with the interface of PyTorch's ``DataLoader``.

    Arguments are attributes, too. On an existing loader, these cannot be set: dataset, batch_size, sampler, batch_sampler,
    drop_last, persistent_workers, and this library's own arguments. All others may change, and count from the next iterator
    on.

    Args:
        dataset: the source of samples. An `IterableDataset`, of this library or of PyTorch, is iterated; other datasets are
            indexed.
        batch_size: samples per batch. None: no batches, the loader yields single samples. For a `ComposedDataset`, also
            pairs of a position and the size from there on: ``[(0, 64), (1_000_000, 128)]``. Positions count the elements of
            all ranks together, over all epochs. The attribute is the largest size. See `set_batch_size`.
        shuffle: whether to load the samples in a random order, which is different in each epoch.
        sampler: an iterable of the indices to load, instead of `shuffle`.
        batch_sampler: an iterable of lists of indices, one list per batch, instead of `batch_size`, `shuffle`, `sampler` and
            `drop_last`.
        num_workers: number of workers. 0: the main process loads, while the program waits. "auto": a few workers, and more
            if the times of samples and of the loop show that they help; `statistics` has the current number. See
            docs/performance.md.
        collate_fn: makes a batch of a list of samples; default `default_collate`. Without batches it is called with each
            sample; default `default_convert`.
        pin_memory: whether to put batches into page-locked memory, for faster copies to a GPU. "copy": by copying them; see
            `dali_like.plugin.pytorch.torch_loader.DataLoader`.
        drop_last: whether to drop a last batch that is smaller.
        timeout: seconds that a batch may take in the workers. 0: no limit.
        worker_init_fn: called in each worker with its number, before the worker loads samples. Seeds that it sets are
            overwritten for each sample, unless `worker_seeding` is "torch".
        multiprocessing_context: a start method's name, or a context of `multiprocessing`. "thread": workers are threads of
            this process and share the dataset, for datasets that release the GIL. "thread_copies": each has a copy of it.
            Threads do not seed the global random generators.
        generator: used by `shuffle`: a `numpy.random.Generator`, a seed for one, or a ``torch.Generator``.
        prefetch_factor: number of batches that each worker computes ahead; default 2. Requires workers. "auto": as many as
            the workers and the slower samples need.
        persistent_workers: whether to keep the workers at the end of an epoch. Requires workers.
        pin_memory_device: deprecated, without effect.
        in_order: whether to yield the batches of workers in order. False: yield each as soon as it is ready.
        worker_seeding: the source of random numbers in workers. "tasks": they depend on the samples only. They are the same
            with any number of workers, after the death of a worker, and after resuming. "torch": they depend on the worker
            and its earlier samples, and equal PyTorch's bit for bit. The generators of the workers start again after the
            death of a worker, and after resuming within an epoch.
        on_error: reaction to an exception of the dataset. "raise": the iterator raises it. "skip": another sample replaces
            the failed one; in a `ComposedDataset`, the next one, in logical shards the next one of the shard. So batches
            stay full, and the other positions stay as they are. A callable: its result replaces the failed sample.
        worker_restarts: how often per minute to replace each dead worker, and the process that starts them. 0: never;
            None: always.
        prefetch_epochs: whether workers begin the next epoch before the program does. The sampler is iterated earlier then,
            and later changes to it have no effect on that epoch.
        max_held_bytes: limit of the memory for all batches, including batches held by the program. None: half the memory.
        worker_threads: threads of OpenCV, OpenMP, BLAS and PyTorch in each worker. None: do not change them.
        import_main: whether spawned workers import the program's main module, as PyTorch's do: once, in the process from
            which they are forked. None: if it has ``if __name__ == "__main__":`` at its top level; objects of other main
            modules travel by value. See docs/how-to/fork-or-spawn.md.
        share_batches: whether several workers compute a batch together: its first samples come sooner, and one slow sample
            delays only its own task. False: one worker computes all samples of a batch, as in PyTorch. That is better where
            neighbors are cheap to read together, such as samples of one chunk or of one file: each worker then reads other
            chunks. "auto": True, or False where measurements show such neighbors. Batches and random numbers are the same.
        reorder_window: with workers, a batch that is ready may overtake up to this number of batches minus one, so that a
            slow batch does not stop the loop. None: no batch does, or with ``in_order=False`` any. A resumed loader
            continues with the batches that are missing.
        shard_id, num_shards: for a `ComposedDataset`: number of this rank, and number of ranks. None: see
            `dali_like.sources.ranks.detect_shard`.
        shard_rest: for a `ComposedDataset` on several ranks: how to treat elements at the end of an epoch that do not fill a
            batch on each rank. "drop" (default, for a known length): leave them out. "pad": fill up with elements that are
            repeated. "uneven": some ranks have fewer batches. "count": as "drop", for streams of unknown length; the
            elements are counted first. "pad" counts them as well. See docs/composed-resume.md.
        balance: "cost": for a `ComposedDataset`, let the costs of the ranks in each step be nearly equal. With random
            access, the elements of a step are dealt to the ranks, and states are the same. In logical shards, a rank reads
            steps ahead, and chooses among its own elements. Each rank has as many elements as without it. `report` shows how
            equal the costs are. See docs/costs-and-curricula.md.
        costs: with `balance`, the costs of the elements of the source, by index: an array, or the name of a column. None:
            the bytes of the records, from the index of files. With several sources, a mapping from their names to these. In
            logical shards: a function that returns the cost of an element.
        balance_window: with `balance`, in logical shards: the number of steps that a rank reads ahead. None: 32.
        weights_file: for a `ComposedDataset` with a mixture whose weights can change: a JSON file that an operator edits,
            such as ``{"web": 2, "code": 1}``. The loop looks at it, and calls `set_weights`; of several ranks, the first one
            reads it. See docs/costs-and-curricula.md.
        concurrency: number of samples that each worker reads at a time, of this batch and the next ones, if ``__getitem__``
            is a coroutine function (``async def``), or of batches if ``__getitems__`` is one. None: one. More than one: the
            global random generators are not seeded. The default of `prefetch_factor` then keeps two samples for each read
            in flight. See docs/remote-data.md.
        read_threads: the same for a blocking ``__getitem__`` or ``__getitems__``, which runs in so many threads of each
            worker.
        max_read_bytes: limit of the samples that each worker has read and not yet put into a batch: beyond it, only the
            oldest task of the worker begins reads. Counts arrays, tensors, bytes and texts. None: no limit.
        mesh: for a `ComposedDataset`, instead of `shard_id` and `num_shards`: the ``DeviceMesh`` of PyTorch, or the ``Mesh``
            of JAX, that this process is part of. Peers in tensor, context and pipeline parallelism have the same batches.
            See `dali_like.sources.meshes.shard_in_mesh`.
        mesh_dims: the data-parallel dimensions of the mesh. None: by their names, such as "dp", "data" and "dp_shard".
        peers: "serve": the peers in `mesh` on one host, which have the same batches, share one loader. The lowest rank
            loads, and the others map its batches, without a copy. Each of them can save and load states. If the loading rank
            dies, the others get a `PeerError` with its rank. For any dataset; see docs/train-on-a-mesh.md.
        device: of `dali_like.plugin.pytorch.DataLoader`: deliver batches there: a ``torch.device``, its name, the number of
            a GPU, or "auto", the current GPU or else the CPU. Tensors are copied from page-locked memory on a stream of
            their own, whatever `pin_memory` is; other objects stay on the CPU. See docs/batches-on-the-gpu.md.
        prefetch_to_device: with `device`, and for JAX: how many batches that are ready are copied before the program takes
            them.
        static_buffers: with `device`: whether batches lie at the same addresses in turns, ``prefetch_to_device + 1`` of
            them, for CUDA graphs. All batches then need the same shapes, and a batch must be dropped before its turn comes
            again.
        origins: whether each batch has a further column: where its samples come from. It is the last one of a list or tuple,
            the field "origins" of a dict, and the second of a pair otherwise. For a map-style dataset, the indices as an
            array of int64, of shape (batch,); for a `ComposedDataset`, or for other keys than integers, a list of
            `dali_like.sources.origins.Origin`, and of tuples of them for packs. It stays in host memory. A sample that
            `on_error` has replaced has the index of the failed one. See docs/how-to/where-samples-come-from.md.
        sharding: of `dali_like.plugin.jax.DataLoader`: the ``jax.sharding.Sharding`` of batches, which are global arrays.

    Raises:
        ArgumentError: an argument has a wrong value, or conflicts with another one.
        ArgumentTypeError: an argument has a wrong type.

    Source: https://pytorch.org/docs/stable/data.html

    >>> loader = DataLoader(range(10), batch_size=4)
    >>> len(loader), list(loader.batch_sampler)
    (3, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
    """

    _dali_like_is_library = True
    _dali_like_is_complete = False

    def _dali_like_construct(
        self,
        own: Mapping[str, Any],
        *,
        dataset: Samples[T_co],
        batch_size: Any,
        shuffle: bool | None,
        sampler: Iterable[Any] | None,
        batch_sampler: Iterable[Any] | None,
        num_workers: int | str,
        collate_fn: Callable[[Any], Any] | None,
        drop_last: bool,
        generator: Any,
        prefetch_factor: int | str | None,
        persistent_workers: bool,
        **attributes: Any,
    ) -> None:
        batch_size, sizes = batch_sizes_of(batch_size, dataset)
        # The checks follow PyTorch's order, which decides about the message if several arguments are wrong.
        workers, factor, self._dali_like_auto = resolve_auto(num_workers, prefetch_factor)
        timeout, in_order = attributes["timeout"], attributes["in_order"]
        check_workers(num_workers=workers, timeout=timeout, prefetch_factor=factor, persistent_workers=persistent_workers)
        self.dataset: Any = dataset
        self.num_workers: int = workers
        if workers > 0 and factor is None:
            factor = default_prefetch(own, dataset, batch_size if batch_sampler is None else None)
        self.prefetch_factor: int | None = factor
        for name in ("pin_memory", "pin_memory_device", "timeout", "worker_init_fn", "multiprocessing_context", "in_order"):
            setattr(self, name, attributes[name])

        self._dataset_kind = DatasetKind.ITERABLE if is_iterable(dataset) else DatasetKind.MAP
        if self._dataset_kind is DatasetKind.ITERABLE:
            check_no_order(shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler)
        is_composed = check_composed(
            dataset, own, shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler, in_order=in_order
        )
        check_batches(
            batch_size=batch_size, shuffle=shuffle, sampler=sampler, batch_sampler=batch_sampler, drop_last=drop_last
        )
        self.generator = as_generator(generator)
        self.sampler = self._dali_like_make_sampler(shuffle) if sampler is None else sampler
        self.batch_size: int | None = batch_size if batch_sampler is None else None
        self.drop_last = drop_last if batch_sampler is None else False
        if is_composed:
            from dali_like.data.position_sampler import PositionSampler  # few programs need it

            rank = {name: own[name] for name in RANK_NAMES}
            positions = PositionSampler(cast(Any, dataset), self.batch_size, drop_last, **rank, sizes=sizes)
            self.sampler, batch_sampler = positions, None if self.batch_size is None else positions
        elif self.batch_size is not None:
            batch_sampler = BatchSampler(self.sampler, self.batch_size, drop_last)
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._dali_like_set_own(own, dataset, in_order=in_order, is_composed=is_composed)
        self._dali_like_is_complete = True
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self.check_worker_number_rationality()

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """The context that starts workers; None for the default. A start method's name can be assigned."""
        return self._dali_like_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: str | BaseContext | None) -> None:
        self._dali_like_context = None if context is None else context_of(context, self.num_workers)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._dali_like_is_complete:
            if name in _LOCKED:
                raise ArgumentError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
            self._dali_like_check_set(name)
        super().__setattr__(name, value)

    def __len__(self) -> int:
        """Return the number of batches of an epoch. For an iterable dataset, it follows from the length of the dataset.

        Raises:
            TypeError: the sampler, or the iterable dataset, has no length.
        """
        if self._dataset_kind is DatasetKind.MAP:
            return len(cast(Sized, self._index_sampler))
        # An iterator warns if it yields more samples than this, as PyTorch's does.
        length = self._IterableDataset_len_called = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    @property
    def _auto_collation(self) -> bool:
        """Whether the loader makes batches."""
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable[Any]:
        """Yields lists of indices if the loader makes batches, single indices otherwise."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _dali_like_make_sampler(self, shuffle: bool | None) -> Sampler[Any]:
        if self._dataset_kind is DatasetKind.ITERABLE:
            return _InfiniteConstantSampler()
        return RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)


class _InfiniteConstantSampler(Sampler[None]):
    """The sampler of an iterable dataset, which has no indices. It has PyTorch's name."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None
