"""Options of a data loader: PyTorch's arguments with its checks, this library's own arguments, and a snapshot of all.

The arguments of a loader are its attributes, and most of them may change between epochs. `LoaderOptions` is a snapshot of
them, read in the main process when an iterator begins.
"""

from __future__ import annotations

import inspect
import multiprocessing
import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any, NamedTuple

from dali_like.common.articles import kind_of
from dali_like.common.cpu_only import is_cpu_only
from dali_like.common.notices import warn
from dali_like.common.user_objects import method_of
from dali_like.data.datasets import IterableDataset
from dali_like.engine.memory.limits import available_cpus
from dali_like.engine.pool.backend_traits import BACKENDS, BackendTraits, backend_named
from dali_like.engine.pool.settings import AUTO, first_workers
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, IteratorArgumentError
from dali_like.sources.composed import is_composed

if TYPE_CHECKING:
    from dali_like.data.array_backends import ArrayBackend

#: Default number of batches that each worker computes ahead.
PREFETCH_FACTOR = 2


class LoaderOptions(NamedTuple):
    """The options of a loader at the moment when an iterator begins; see `dali_like.data.DataLoader` for their meaning.

    Attributes:
        batched: whether the loader makes batches; False with ``batch_size=None``.
        batch_size: the argument; None with ``batch_sampler=``.
        samples_per_batch: the current batch size of the loader's own batch sampler; None with ``batch_sampler=``.
        index_sampler: yields lists of indices if `batched`, single indices otherwise.
        auto: by name, the arguments given as "auto", and the numbers that replaced them.
        own: the arguments that PyTorch's loader does not have, by name.
        announced_length: the last result of ``len(loader)`` for an iterable dataset; None if it was never called.
    """

    dataset: Any
    is_iterable: bool
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], Any] | None
    batched: bool
    batch_size: int | None
    samples_per_batch: int | None
    drop_last: bool
    index_sampler: Iterable[Any]
    generator: Any
    num_workers: int
    prefetch_factor: int | None
    auto: Mapping[str, int]
    multiprocessing_context: BaseContext | None
    persistent_workers: bool
    timeout_s: float
    in_order: bool
    pin_memory: bool | str
    announced_length: int | None
    own: Mapping[str, Any]
    array_backend: ArrayBackend

    @classmethod
    def of(cls, loader: Any) -> LoaderOptions:
        """Read the attributes of a loader, which is this library's or a subclass of PyTorch's."""
        return cls.from_attributes(loader, read_attributes(loader))

    @classmethod
    def from_attributes(cls, loader: Any, attributes: tuple[Any, ...]) -> LoaderOptions:
        """Make the options from a result of `read_attributes`."""
        read = dict(zip(_ATTRIBUTES, attributes, strict=True))
        dataset, collate_fn = read["dataset"], read["collate_fn"]
        if loader._dali_like_value("origins"):
            from dali_like.data.loader_origins import traceable  # few programs ask for origins

            dataset, collate_fn = traceable(loader)
        return cls(
            dataset=dataset,
            is_iterable=int(read["_dataset_kind"]) == 1,
            collate_fn=collate_fn,
            worker_init_fn=read["worker_init_fn"],
            batched=read["_auto_collation"],
            batch_size=read["batch_size"],
            samples_per_batch=samples_per_batch(loader),
            drop_last=read["drop_last"],
            index_sampler=read["_index_sampler"],
            generator=read["generator"],
            num_workers=read["num_workers"],
            prefetch_factor=read["prefetch_factor"],
            auto=read["_dali_like_auto"],
            multiprocessing_context=read["multiprocessing_context"],
            persistent_workers=read["persistent_workers"],
            timeout_s=read["timeout"],
            in_order=read["in_order"],
            pin_memory=read["pin_memory"],
            announced_length=read["_IterableDataset_len_called"],
            own={name: loader._dali_like_value(name) for name in loader._dali_like_own_arguments},
            array_backend=loader._dali_like_array_backend,
        )

    @property
    def num_ahead(self) -> int:
        """Number of batches that all workers together compute ahead."""
        return self.num_workers * (self.prefetch_factor or 0)

    @property
    def stacks_samples(self) -> bool:
        """Whether batches are made by the default collation of a map-style dataset's samples."""
        return self.batched and not self.is_iterable and self.array_backend.is_default(self.collate_fn)

    @property
    def gathers(self) -> bool:
        """Whether batches are gathered from the arrays of the dataset; see `dali_like.data.columns`."""
        from dali_like.data.columns import is_columnar  # it imports the datasets

        return self.stacks_samples and is_columnar(self.dataset, self.array_backend)

    @property
    def start_method(self) -> str:
        """The name of the workers' backend."""
        return self.backend.name

    @property
    def backend(self) -> BackendTraits:
        """The properties of the workers' backend."""
        context = self.multiprocessing_context
        return _backend_of(multiprocessing.get_start_method() if context is None else context.get_start_method())

    @property
    def keeps_workers(self) -> bool:
        """Whether workers outlive the iterator that they were started for."""
        return self.num_workers > 0 and (self.persistent_workers or self.own["prefetch_epochs"])

    @property
    def can_reuse_workers(self) -> bool:
        """Whether a later iterator can use the workers, or at least the forkserver that started them."""
        return self.keeps_workers or self.backend.can_rest

    @property
    def seeds_by_task(self) -> bool:
        """Whether random numbers depend on the samples, and not on the worker that computes them."""
        return bool(self.own["worker_seeding"] == "tasks")

    @property
    def awaits(self) -> bool:
        """Whether the dataset, or a dataset inside it such as that of a subset, returns coroutines."""
        dataset = self.dataset
        while self.own["concurrency"] is None and dataset is not None and not is_composed(dataset):
            if inspect.iscoroutinefunction(method_of(dataset, "__getitem__")):
                return True
            if inspect.iscoroutinefunction(method_of(dataset, "__getitems__")):
                return True
            dataset = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
        return self.own["concurrency"] is not None

    @property
    def num_reads(self) -> int:
        """The number of samples that a worker reads at a time. In logical shards, walks read by themselves."""
        if is_composed(self.dataset):
            return self.dataset.num_reads if self.dataset.shards is None else 1
        return int(self.own["concurrency"] or self.own["read_threads"] or 1)

    @property
    def binds_batches(self) -> bool:
        """Whether each batch must come from one particular worker."""
        return self.is_iterable or self.is_sharded or not self.seeds_by_task

    @property
    def is_sharded(self) -> bool:
        """Whether the dataset is a composed one that runs in logical shards."""
        return is_composed(self.dataset) and self.dataset.shards is not None

    @property
    def reads_ahead(self) -> bool:
        """Whether elements of logical shards are chosen by their costs; see `dali_like.data.shard_balance`."""
        return self.is_sharded and self.index_sampler.balance is not None  # type: ignore[attr-defined]

    @property
    def pins_memory(self) -> bool:
        """Whether batches go to page-locked memory: only on request, and only with a GPU that may be used."""
        return (
            bool(self.pin_memory) and not self.goes_to_device and not is_cpu_only() and self.array_backend.has_accelerator()
        )

    @property
    def goes_to_device(self) -> bool:
        """Whether the program names a device for the batches, which may be the CPU."""
        return self.own["device"] is not None


#: The attributes of a loader for its options, besides those that only this library's loaders have.
_ATTRIBUTES = (
    *("dataset", "_dataset_kind", "collate_fn", "worker_init_fn", "_auto_collation", "batch_size", "drop_last"),
    *("_index_sampler", "generator", "num_workers", "prefetch_factor", "_dali_like_auto", "multiprocessing_context"),
    *("persistent_workers", "timeout", "in_order", "pin_memory", "_IterableDataset_len_called"),
)

#: Reads all of them in one call.
_read = operator.attrgetter(*_ATTRIBUTES)

#: The values of those that PyTorch's iterators do not read: constructors of subclasses may leave them out.
_DEFAULTS = {
    "worker_init_fn": None,
    "batch_size": None,
    "prefetch_factor": None,
    "multiprocessing_context": None,
    "in_order": True,
}


def read_attributes(loader: Any) -> tuple[Any, ...]:
    """Return the values of all attributes of a loader that its options are made of, and that programs can set."""
    try:
        values: tuple[Any, ...] = _read(loader)
    except AttributeError:
        values = tuple(
            getattr(loader, name, _DEFAULTS[name]) if name in _DEFAULTS else getattr(loader, name) for name in _ATTRIBUTES
        )
    return values


def samples_per_batch(loader: Any) -> int | None:
    """Return the current batch size of a loader's own batch sampler; None with ``batch_sampler=``."""
    batch_size: int | None = getattr(loader, "batch_size", None)
    # Programs replace the batch sampler by one of their own, which may have no such attribute.
    return None if batch_size is None else getattr(loader.batch_sampler, "batch_size", batch_size)


#: Arguments for composed datasets, which `dali_like.data.position_sampler.PositionSampler` checks.
RANK_NAMES = (
    "shard_id",
    "num_shards",
    "shard_rest",
    "balance",
    "costs",
    "balance_window",
    "weights_file",
    "mesh",
    "mesh_dims",
)


class OwnContext(BaseContext):
    """The context for a backend that `multiprocessing` does not have, such as ``multiprocessing_context="thread"``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get_start_method(self, allow_none: bool = False) -> str:  # the signature of multiprocessing
        return self._name


def own_context(context: Any) -> OwnContext | None:
    """Return the context for the name of a backend that `multiprocessing` does not have; None for other arguments."""
    if not isinstance(context, str) or context in multiprocessing.get_all_start_methods():
        return None
    backend = backend_named(context)
    return OwnContext(backend.name) if backend is not None and backend.serves_loaders else None


def _backend_of(method: str) -> BackendTraits:
    """Return the backend for a start method. Contexts that a program defines itself count as spawn."""
    backend = backend_named(method)
    return backend if backend is not None and backend.serves_loaders else BACKENDS["spawn"]


def kind_of_workers(context: BaseContext | None) -> str:
    """Return the kind of the workers that a context starts, for messages."""
    is_thread = context is not None and _backend_of(context.get_start_method()).are_threads
    return "threads" if is_thread else "processes"


def resolve_auto(num_workers: Any, prefetch_factor: Any) -> tuple[Any, Any, dict[str, int]]:
    """Replace "auto" by first numbers.

    Returns:
        `num_workers`, `prefetch_factor`, and the numbers that replaced "auto", by name.

    Raises:
        ArgumentTypeError: an argument is a text other than "auto".
    """
    auto = {}
    for name, value in (("num_workers", num_workers), ("prefetch_factor", prefetch_factor)):
        if isinstance(value, str) and value != AUTO:
            raise ArgumentTypeError(f'{name} option should be a non-negative number or "auto", but got {name}={value!r}')
    if isinstance(num_workers, str) and num_workers == AUTO:
        num_workers = auto["num_workers"] = first_workers(available_cpus())
    if isinstance(prefetch_factor, str) and prefetch_factor == AUTO:
        prefetch_factor = PREFETCH_FACTOR
        if num_workers != 0:
            auto["prefetch_factor"] = prefetch_factor
    return num_workers, prefetch_factor, auto


# Checks of PyTorch's arguments, with PyTorch's texts


def check_workers(*, num_workers: Any, timeout: Any, prefetch_factor: Any, persistent_workers: Any) -> None:
    """Check the arguments that concern workers.

    Raises:
        ArgumentError: a number is negative, or an argument needs workers.
        ArgumentTypeError: an argument is not an integer.
    """
    if _is_negative("num_workers", num_workers):
        raise ArgumentError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if _is_negative("timeout", timeout):
        raise ArgumentError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ArgumentError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and _is_negative("prefetch_factor", prefetch_factor):
        raise ArgumentError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ArgumentError("persistent_workers option needs num_workers > 0")


def context_of(context: Any, num_workers: int) -> BaseContext:
    """Return the multiprocessing context for an argument: a start method, or a context.

    Raises:
        ArgumentError: the start method is unknown, or there are no workers.
        ArgumentTypeError: it is neither.
    """
    if not num_workers > 0:
        raise ArgumentError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
            f"num_workers={num_workers}"
        )
    if (own := own_context(context)) is not None:
        return own
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            others = [each.name for each in BACKENDS.values() if each.serves_loaders and each.name not in methods]
            error = ArgumentError(
                f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                f"multiprocessing_context={context!r}"
            )
            error.add_note(f"Those of this library alone are {', '.join(map(repr, others))}")  # the message is PyTorch's
            raise error
        return multiprocessing.get_context(context)
    if not isinstance(context, BaseContext):
        raise ArgumentTypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but "
            f"got multiprocessing_context={context}"
        )
    return context


def check_no_order(*, shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    """Check that nothing sets the order of an iterable dataset.

    Raises:
        ArgumentError: an argument does.
    """
    unexpected = "DataLoader with IterableDataset: expected unspecified {0} option, but got {0}={1}"
    if shuffle not in (False, None):
        raise ArgumentError(unexpected.format("shuffle", shuffle))
    if sampler is not None:
        raise ArgumentError(unexpected.format("sampler", sampler))
    if batch_sampler is not None:
        raise ArgumentError(unexpected.format("batch_sampler", batch_sampler))


def check_composed(
    dataset: Any, given: Mapping[str, Any], *, shuffle: Any, sampler: Any, batch_sampler: Any, in_order: Any
) -> bool:
    """Return whether a dataset is a composed one, after a check of the arguments that depend on that.

    Raises:
        ArgumentError: an argument sets the order of a composed dataset.
        ArgumentClashError: an argument is for composed datasets, and this is another one.
    """
    if not is_composed(dataset):
        for name in RANK_NAMES if given["peers"] is None else RANK_NAMES[: RANK_NAMES.index("mesh")]:
            if given[name] is not None:
                raise ArgumentClashError(
                    f"{name} is for composed datasets. For {kind_of(dataset)}, pass "
                    "batch_sampler=ShardedBatchSampler(...), or use ComposedDataset.source(dataset)"
                )
        return False
    if shuffle:
        raise ArgumentError("a composed dataset has its own order: pass dataset.shuffle() instead of shuffle=True")
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is not None:
            raise ArgumentError(
                f"a composed dataset has its own order: leave {name}= out, and describe the order by its methods"
            )
    if not in_order:
        raise ArgumentError("the positions of a composed dataset are delivered in order: leave in_order=False out")
    return True


def check_window(reorder_window: int | None, *, in_order: Any, is_composed: bool) -> None:
    """Check that nothing else sets the order in which batches are yielded.

    Raises:
        ArgumentClashError: `in_order` does, or the dataset is a composed one.
    """
    if reorder_window is None:
        return
    if is_composed:
        raise ArgumentClashError("the positions of a composed dataset are delivered in order: leave reorder_window out")
    if not in_order:
        raise ArgumentClashError("in_order=False has no window: leave it out, or leave reorder_window out")


def check_place(own: Mapping[str, Any], elsewhere: Mapping[str, str], *, in_order: Any) -> None:
    """Check the arguments that say where batches go.

    Args:
        own: the arguments.
        elsewhere: see `dali_like.data.loader_arguments.LoaderArguments`.

    Raises:
        ArgumentClashError: another class has an argument, or another argument is missing or excludes it.
    """
    for name, owner in elsewhere.items():
        if own[name] is not None:
            raise ArgumentClashError(f"{name} is an argument of {owner}: this loader's batches stay in host memory")
    if not own["static_buffers"]:
        return
    if own["device"] is None:
        raise ArgumentClashError("static_buffers=True needs a device: pass device=, or leave static_buffers out")
    if own["reorder_window"] is not None or not in_order:
        raise ArgumentClashError(
            "static_buffers=True delivers addresses in a fixed order: leave in_order=False and reorder_window out"
        )


def check_reads(own: Mapping[str, Any], dataset: Any) -> None:
    """Check the arguments for reads at the same time.

    Raises:
        ArgumentClashError: two of them exclude each other, or the dataset has none of these reads.
    """
    given = [name for name in ("concurrency", "read_threads") if own[name] is not None]
    if is_composed(dataset):
        if given:
            raise ArgumentClashError(
                f"{given[0]} of a composed dataset belongs to the stage that reads: dataset.map(function, {given[0]}=...)"
            )
        if own["max_read_bytes"] is not None and (dataset.num_reads == 1 or dataset.shards is not None):
            raise ArgumentClashError(
                "max_read_bytes limits reads with random access, such as dataset.map(function, read_threads=8): leave it out"
            )
        if dataset.num_reads > 1 and own["worker_seeding"] == "torch":
            raise _unseeded("several reads at a time")
        return
    if not given:
        if own["max_read_bytes"] is not None:
            raise ArgumentClashError("max_read_bytes limits several reads at a time: pass concurrency= or read_threads=")
        return
    if len(given) == 2:
        raise ArgumentClashError(
            "concurrency is for a dataset whose __getitem__ is a coroutine function, and read_threads for one whose "
            "__getitem__ blocks: pass one of them"
        )
    if is_iterable(dataset):
        raise ArgumentClashError(
            f"{given[0]} is for datasets with __getitem__, and this one is iterable. Use "
            f"ComposedDataset.from_iterables([...]).map(function, {given[0]}=...)"
        )
    if own[given[0]] > 1 and own["worker_seeding"] == "torch":
        raise _unseeded(given[0])


def check_origins(own: Mapping[str, Any], dataset: Any) -> None:
    """Check that samples have origins, if the program asks for them.

    Raises:
        ArgumentClashError: they do not.
    """
    if own["origins"] and not is_composed(dataset) and is_iterable(dataset):
        raise ArgumentClashError(
            "origins=True is for datasets with indices, and this one is iterable: let it yield its indices, or use "
            "ComposedDataset.from_iterables([...])"
        )


def _unseeded(reads: str) -> ArgumentClashError:
    return ArgumentClashError(
        f'worker_seeding="torch" seeds the global random generators for one sample after another: leave out {reads}, '
        'or use worker_seeding="tasks"'
    )


def default_prefetch(own: Mapping[str, Any], dataset: Any, batch_size: Any) -> int:
    """Return the default number of batches that each worker computes ahead: two samples for each of its reads."""
    reads = dataset.num_reads if is_composed(dataset) else own["concurrency"] or own["read_threads"] or 1
    if not (isinstance(reads, int) and isinstance(batch_size, int)):
        return PREFETCH_FACTOR  # another check refuses it, or the size is not known
    return max(PREFETCH_FACTOR, -(-2 * reads // max(batch_size, 1)))


def check_batches(*, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: Any) -> None:
    """Check the arguments that say which samples make a batch.

    Raises:
        ArgumentError: two of them exclude each other.
    """
    if sampler is not None and shuffle:
        raise ArgumentError("sampler option is mutually exclusive with shuffle")
    if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
        raise ArgumentError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
    if batch_sampler is None and batch_size is None and drop_last:
        raise ArgumentError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")


def check_before_iteration(loader: Any) -> None:
    """Check a loader where an iterator begins, as PyTorch does: its attributes may have changed.

    Raises:
        IteratorArgumentError: `timeout` is set without workers, or a number of workers or batches is not positive.
        ArgumentTypeError: one of these numbers is not an integer, or the dataset is not a dataset.
        ArgumentClashError: worker threads do not support another argument.
    """
    _check_dataset(loader.dataset)
    loader.check_worker_number_rationality()
    if loader.pin_memory and loader._dali_like_value("device") is None:
        _warn_about_pinning(loader)
    if loader.num_workers == 0:
        if loader.timeout != 0:
            raise IteratorArgumentError(
                "_SingleProcessDataLoaderIter requires timeout == 0: loading in the main process cannot be interrupted. "
                f"Set num_workers > 0, or timeout=0 instead of {loader.timeout}"
            )
        return
    context = loader.multiprocessing_context
    if context is not None and _backend_of(context.get_start_method()).are_threads:
        _check_threads(loader)
    for name in ("num_workers", "prefetch_factor"):
        if _index(name, getattr(loader, name)) <= 0:
            raise IteratorArgumentError(f"{name} must be greater than 0 for MultiProcessingDataLoaderIter")


def why_empty(options: LoaderOptions) -> str:
    """Return why a loader has no batches, and what to do, for a warning."""
    if is_composed(options.dataset):
        return (
            "the stream has no elements for this rank, or too few for a batch. Check the stages of the dataset, batch_size, "
            "drop_last and shard_rest"
        )
    dropped = f"do not fill a batch of {options.samples_per_batch}, and drop_last=True drops them. "
    dropped += "Lower batch_size, or pass drop_last=False"
    if options.is_iterable:
        if options.drop_last:
            return f"the dataset yields no items, or too few: they {dropped}"
        return "the dataset yields no items. Check what its __iter__ reads; an iterator that has ended cannot restart"
    if not _length_of(options.dataset, 1):
        return "the dataset has no samples. Check what it reads"
    count = _length_of(getattr(options.index_sampler, "sampler", None), 0)
    if count and options.drop_last:
        return f"the {count} samples {dropped}"
    return "the sampler yields no indices. Check what it selects"


def _length_of(value: Any, default: int) -> int:
    """Return a length, or else the default."""
    try:
        return len(value)
    except (TypeError, NotImplementedError):
        return default


def is_iterable(dataset: Any) -> bool:
    """Return whether a dataset is an iterable one, of this library or of PyTorch."""
    return isinstance(dataset, (IterableDataset, *_torch_iterable_dataset()))


def _check_dataset(dataset: Any) -> None:
    """Refuse objects that are not datasets. PyTorch's errors only name a missing method."""
    has_items = method_of(dataset, "__getitem__") or method_of(dataset, "__getitems__")
    if is_iterable(dataset) or (has_items and not isinstance(dataset, type)):
        return
    what = kind_of(dataset)
    if isinstance(dataset, type):
        what, advice = f"the class {dataset.__name__}", f"Pass an instance, {dataset.__name__}(...)"
    elif isinstance(dataset, Iterable):
        advice = "Pass list(dataset), or derive its class from dali_like.data.IterableDataset"
    elif callable(dataset):
        advice = "If it returns the dataset, call it"
    else:
        advice = "Define __getitem__ in its class"
    raise ArgumentTypeError(
        f"dataset is {what}, without __getitem__. A dataset has __getitem__ and __len__, or is an IterableDataset. {advice}"
    )


def _warn_about_pinning(loader: Any) -> None:
    if loader.pin_memory_device:
        warn(
            "pin_memory_device is deprecated, the current accelerator will be used as the device,"
            f"ignore pin_memory_device='{loader.pin_memory_device}'.",
            UserWarning,
        )
    if not (is_cpu_only() or loader._dali_like_array_backend.has_accelerator()):
        warn(
            "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
            UserWarning,
        )


def _check_threads(loader: Any) -> None:
    if loader.worker_seeding == "torch":
        raise ArgumentClashError(
            'worker_seeding="torch" seeds the global random generators of each worker, and worker threads share those '
            'of the program. With multiprocessing_context="thread" use worker_seeding="tasks"'
        )
    if loader.num_workers > 1 and isinstance(loader.dataset, _torch_iterable_dataset()):
        raise ArgumentClashError(
            "torch.utils.data.get_worker_info() knows no worker threads: each thread would iterate over all of this "
            'dataset. With multiprocessing_context="thread" use num_workers=1, or a dali_like.data.IterableDataset that '
            "calls dali_like.get_worker_info()"
        )


def _is_negative(name: str, value: Any) -> bool:
    try:
        return bool(value < 0)
    except TypeError as error:
        raise ArgumentTypeError(f"{name} option should be a non-negative number, but got {name}={value!r}") from error


def _index(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ArgumentTypeError(f"{name} option should be an integer, but got {name}={value!r}") from error


def _torch_iterable_dataset() -> tuple[type, ...]:
    """Return PyTorch's class if it is imported. A program with such a dataset has imported it."""
    found = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
    return () if found is None else (found,)
