"""The `Source` contract, and the conversion of returned values to arrays.

The main process makes sources and hands copies to the workers. Values are converted in the process or thread that called
the user's function; the arrays may be views of the user's memory until a task copies them into its slot.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dali_like.common.dlpack import array_of_capsule, is_capsule
from dali_like.common.foreign_errors import repr_of
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import DTYPE_CODES, DTYPES, MAX_NDIM, UNKNOWN
from dali_like.engine.memory.slot_layout import OutputSchema
from dali_like.engine.worker.out_of_band import OutOfBandPickle, Pickled, block_of, pickle_parts
from dali_like.errors import (
    BatchSizeError,
    CorruptionError,
    DtypeMismatchError,
    LayoutMismatchError,
    NdimMismatchError,
    OutputCountError,
    SampleDtypeError,
    SampleTypeError,
)
from dali_like.types import to_dali_type

if TYPE_CHECKING:
    import pickle

    from dali_like.engine.memory.sample_cache import CacheMemory
    from dali_like.engine.worker.requests import RequestHandler
    from dali_like.engine.worker.staging import StackOperators
    from dali_like.engine.worker.streams import Stream

#: ``kDLCUDA``, see ``__dlpack_device__`` in the array API standard.
_DLPACK_CUDA = 2
#: Every kind of array has at least one of these attributes.
_INTERFACES = ("__array_interface__", "__array__", "__dlpack__")


#: Where a dtype or a number of dimensions was seen, for messages.
_FIRST, IN_BATCH = "in the first batch", "in sample 0 of the batch"


class SourceType(enum.Enum):
    """The types of sources. They differ in their callbacks, and in the way to compute a task."""

    #: The callback is a function of a SampleInfo, or of a BatchInfo. Any worker may call it, for any sample, repeatedly.
    CALLABLE = "callable"
    #: The callback is a `dali_like.engine.worker.streams.Stream`, called in the same way. One worker calls it, in order.
    STREAM = "stream"
    #: The callback is a `dali_like.engine.worker.requests.RequestHandler`, which computes whole tasks.
    REQUEST = "request"
    #: The callback is a `dali_like.engine.worker.parts.PartCallback`. The request names the samples of each task.
    PARTS = "parts"


class LastBatch(enum.Enum):
    """Treatment of the samples in a batch that StopIteration ends before it is full."""

    DROP = "drop"  #: they are dropped
    PARTIAL = "partial"  #: they are delivered as a smaller batch
    FILL = "fill"  #: the last sample is repeated until the batch is full


class Source(NamedTuple):
    """The user's callable, iterable or generator with its options, as the engine sees it.

    Attributes:
        name: the source's name in messages.
        callback: see `SourceType`.
        num_outputs: arrays in a sample; None if the callback returns the array itself.
        batch: whether the callback makes batches rather than samples.
        type: which type of source it is.
        takes_state: whether requests bring a reported state; see `dali_like.engine.worker.streams`.
        task_size: the number of samples in a task, as a function of the number of workers; None:
            `dali_like.engine.memory.slot_layout.task_size`.
        measures_sharing: whether one worker computes whole batches if measurements show that neighbors are cheap to read
            together; see `dali_like.engine.pool.sharing`.
        stride: the difference between the ``idx_in_epoch`` of one sample of a batch and the next.
        in_order: whether one worker must compute all batches, in their order. True for streams in workers.
        concurrency: how many samples a worker reads at once, if the callback is a coroutine function, or `reads_in_threads`;
            else None.
        reads_in_threads: whether reads block, so that each one has a thread.
        max_read_bytes: a worker begins no read of a further task while it holds so many bytes of results; None: no limit.
        last_batch: treatment of an incomplete batch.
        objects: for each output, whether it holds Python objects, which travel pickled. Empty: no output does.
        on_error: the reaction if the callback raises, or returns a value that cannot be delivered. "raise": raise the
            exception. "skip": take the sample of the next index that succeeds. A callable: it gets the SampleInfo and the
            exception, and returns the replacement.
        worker_setup: called in each worker before its first sample; without workers, once.
        worker_teardown: called in each worker before it exits; without workers, when the pipeline is closed.
        seeds: seeds of `SampleInfo.rng` besides the sample: the pipeline's seed, and the number of the source.
        verb: the verb in messages about values of the source: "'images' returned ...".
        takes_gpu: whether it may return arrays on a GPU; see `dali_like.graph.execution.gpu_sources`.
        layouts: the declared layout of each output; empty without layouts.
        seen_layouts: the same, filled in from the tensors that the source returned. None: tensors are not asked.
        declared: the declared schema of each output, for messages; empty: nothing is declared.
        operators: the names of the operators that are part of the callback, for statistics and traces.
        stacks: whether these operators can compute several samples at once. The callback is then one of
            `dali_like.engine.worker.staging.StackOperators`.
        caches: the sample caches that it reads and fills. Workers get those of a task with the header of its slot.
    """

    name: str
    callback: Any
    num_outputs: int | None = None
    batch: bool = False
    type: SourceType = SourceType.CALLABLE
    takes_state: bool = False
    task_size: Callable[[int], int] | None = None
    measures_sharing: bool = False
    stride: int = 1
    in_order: bool = False
    concurrency: int | None = None
    reads_in_threads: bool = False
    max_read_bytes: int | None = None
    last_batch: LastBatch = LastBatch.DROP
    objects: tuple[bool, ...] = ()
    on_error: str | Callable[[Any, Exception], Any] = "raise"
    worker_setup: Callable[[], Any] | None = None
    worker_teardown: Callable[[], Any] | None = None
    seeds: tuple[int, int] = (0, 0)
    verb: str = "returned"
    takes_gpu: bool = False
    layouts: tuple[str, ...] = ()
    seen_layouts: list[str] | None = None
    declared: tuple[OutputSchema, ...] = ()
    operators: tuple[str, ...] = ()
    stacks: bool = False
    caches: tuple[CacheMemory, ...] = ()

    def reads_ahead(self, *, in_threads: bool) -> bool:
        """Return whether a worker takes further tasks while it reads.

        Args:
            in_threads: whether workers are threads. Reads of one that is given up go on, and must not write to a batch that
                another worker computes again: those of request sources do not write.
        """
        return self.concurrency is not None and not self.batch and (self.type is SourceType.REQUEST or not in_threads)

    @property
    def stream(self) -> Stream:
        """The callback of a stream."""
        assert self.type is SourceType.STREAM
        stream: Stream = self.callback
        return stream

    @property
    def handler(self) -> RequestHandler:
        """The callback of a request source."""
        assert self.type is SourceType.REQUEST
        handler: RequestHandler = self.callback
        return handler

    @property
    def stack_operators(self) -> StackOperators:
        """The callback with operators that can compute several samples at once."""
        assert self.stacks
        operators: StackOperators = self.callback
        return operators

    @property
    def output_count(self) -> int:
        """The number of outputs."""
        return 1 if self.num_outputs is None else self.num_outputs

    @property
    def counts(self) -> bool:
        """Whether the number of samples in a batch is known only after the batch is computed."""
        return self.batch or self.last_batch is not LastBatch.DROP

    @property
    def ends_short(self) -> bool:
        """Whether a batch that is not full ends the epoch."""
        return not self.batch and self.type is not SourceType.PARTS

    @property
    def makes_again(self) -> bool:
        """Whether the same process can compute a sample again."""
        if self.type in (SourceType.CALLABLE, SourceType.PARTS):
            return True
        return not (self.stream.once if self.type is SourceType.STREAM else self.handler.once)

    def for_thread(self) -> Source:
        """Return a copy for one of several threads. It shares the user's objects, and has state of its own."""
        if self.type in (SourceType.CALLABLE, SourceType.PARTS):
            return self
        own: Any = self.stream.for_thread() if self.type is SourceType.STREAM else self.handler.for_thread()
        return self._replace(callback=own)

    def is_object(self, output: int) -> bool:
        """Whether an output holds Python objects."""
        return bool(self.objects) and self.objects[output]


class PickledSource(NamedTuple):
    """The pickled functions of a source, with all objects that they refer to.

    Attributes:
        data: ``pickle.loads(data, buffers=buffers)`` gives the source, on_error, worker_setup and worker_teardown, unless
            it refers to plain parts.
        buffers: the memory of arrays that `data` refers to. It belongs to the arrays, and changes with them.
        modules: the names of the modules that `data` refers to.
        descriptors: descriptors that workers inherit; see `dali_like.engine.backends.inherited`.
        main: the `dali_like.engine.backends.main_import.MainModule` to import first; None: none.
        plain: large containers of plain values, by `marshal`. The number of each is its persistent id in `data`.
    """

    data: bytes
    buffers: tuple[pickle.PickleBuffer, ...] = ()
    modules: tuple[str, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()
    main: Any = None
    plain: tuple[bytes, ...] = ()


#: Pickles the parts of a source, by their names in messages, given also the name of the source. See
#: `dali_like.sources.travel.callback_pickler`.
SourcePickler = Callable[[dict[str, Any], str], PickledSource]


def kind_of_samples(samples: Any) -> tuple[np.dtype[Any], int]:
    """Return the dtype of samples and their number of dimensions. They are a sequence of arrays, or one array."""
    if isinstance(samples, Sequence):
        return samples[0].dtype, len(samples[0].shape)
    return samples.dtype, len(samples.shape) - 1


def split_outputs(sample: Any, source: Source) -> tuple[Any, ...] | list[Any]:
    """Return the outputs of a sample, after a check of their number.

    Raises:
        OutputCountError: there are too few or too many, or the sample is one array.
        SampleTypeError: the sample is neither a tuple nor a list.
    """
    if sample is None and (source.num_outputs is not None or source.batch or not source.is_object(0)):
        raise SampleTypeError(f"{source.name} {source.verb} None: {_forgotten(source)}")
    if source.num_outputs is None:
        return (sample,)
    if not isinstance(sample, (tuple, list)):
        _refuse_unawaited(sample, source)
        # An array could be meant as its rows.
        kind = OutputCountError if isinstance(sample, np.ndarray) else SampleTypeError
        what, parts = ("batch", "batches, one for each output") if source.batch else ("sample", "arrays")
        raise kind(
            f"{source.name} {source.verb} {_describe(sample)}; with num_outputs={source.num_outputs} a {what} is a tuple or "
            f"list of {source.num_outputs} {parts}. Return that, or leave num_outputs={source.num_outputs} out"
        )
    if len(sample) != source.num_outputs:
        raise OutputCountError(
            f"{source.name} {source.verb} {len(sample)} outputs instead of {source.num_outputs}; return {source.num_outputs}"
            f"{f', or pass num_outputs={len(sample)}' if sample else ''}"
        )
    return sample


def as_columns(batch: Any, source: Source, capacity: int) -> list[NDArray[Any] | Sequence[Any]]:
    """Return the outputs of a batch: each is an array whose first dimension counts the samples, or a sequence of samples.

    Raises:
        OutputCountError: too few or too many outputs.
        SampleTypeError: an output is not a batch.
        BatchSizeError: there are more than `capacity` samples, or outputs of different sizes.
    """
    columns = [_as_column(value, source, output) for output, value in enumerate(split_outputs(batch, source))]
    sizes = [len(column) for column in columns]
    if max(sizes) > capacity:
        one = source.verb == "returned" and any(isinstance(column, np.ndarray) for column in columns)
        hint = ". The first dimension of an array counts the samples. For one sample a call, pass batch=False" if one else ""
        raise BatchSizeError(
            f"{source.name} {source.verb} an unexpected batch size. Expected batch_size <= {capacity}, actual: "
            f"{max(sizes)}{hint}"
        )
    if len(set(sizes)) > 1:
        raise BatchSizeError(f"Batch size clash! The outputs of {source.name} are batches of {sizes} samples")
    return columns


def _as_column(value: Any, source: Source, output: int) -> NDArray[Any] | Sequence[Any]:
    if isinstance(value, (list, tuple)) or (source.takes_gpu and is_on_gpu(value)):
        if isinstance(value, tuple) and source.num_outputs is None and all(isinstance(part, list) for part in value):
            _refuse_several(value, source, output)
        column: Sequence[Any] = value
        return column
    if source.is_object(output):
        if isinstance(value, np.ndarray) and value.ndim:
            return list(value)
        raise SampleTypeError(
            f"{source.name} {source.verb} {_describe(value)} in output {output}; a batch of objects is a list or "
            "tuple of them"
        )
    if callable(getattr(value, "is_dense_tensor", None)) and callable(getattr(value, "at", None)):  # a TensorList
        heed_layout(value, source, output)
        return [value.at(i) for i in range(len(value))]
    array = as_tensor(value, source, output, max_ndim=MAX_NDIM + 1)
    if not array.ndim:
        raise SampleTypeError(
            f"{source.name} {source.verb} {_describe(value)} in output {output}; a batch is a list or tuple of arrays, an "
            "array whose first dimension counts the samples, or a TensorList. For one sample a call, pass batch=False"
        )
    return array


def as_array(value: Any, source: Source, output: int, max_ndim: int = MAX_NDIM) -> NDArray[Any]:
    """Convert one output of a sample, or of a batch, to an array on the CPU. Objects become the bytes of their pickle.

    Raises:
        SampleTypeError: the value is not an array, or cannot be pickled.
    """
    if source.is_object(output):
        return block_of_object(value, source, output)
    return as_tensor(value, source, output, max_ndim)


def as_tensor(value: Any, source: Source, output: int, max_ndim: int = MAX_NDIM) -> NDArray[Any]:
    """Convert one output of a sample, or of a batch, to an array of native byte order, with one of `DTYPES`.

    NumPy arrays and scalars, Python numbers, and objects with the array interface, ``__array__`` or DLPack on the CPU are
    accepted, tensors of PyTorch and JAX among them. The array may be a view of the value.

    Raises:
        SampleTypeError: the value is something else.
    """
    if isinstance(value, np.ndarray):
        if value.__class__ is not np.ndarray and np.ma.is_masked(value):
            _refuse(value, source, output, "a masked array, which would lose its mask; return array.filled(...)")
        array = value
    elif isinstance(value, (np.generic, bool, int, float)):
        array = np.asarray(value)
    else:
        array = _import_array(value, source, output)
    if array.dtype not in DTYPE_CODES:
        native = _in_native_order(array.dtype)
        if native not in DTYPE_CODES:
            raise SampleDtypeError(
                f"{source.name} {source.verb} {_describe(value)} in output {output}: tensors cannot have that dtype, only "
                f"{', '.join(map(str, DTYPES))}; convert it, or pass dtype=types.OBJECT for any Python object"
            )
        array = array.astype(native)
    if array.ndim > max_ndim:
        _refuse(value, source, output, f"an array of {array.ndim} dimensions; at most {max_ndim} are supported")
    return array


def _in_native_order(dtype: np.dtype[Any]) -> np.dtype[Any]:
    try:
        return dtype.newbyteorder("=")
    except TypeError:  # it has no byte order, as StringDType
        return dtype


def parts_of_object(value: Any, source: Source, output: int) -> Sequence[Any]:
    """Pickle a Python object; see `dali_like.engine.worker.out_of_band.pickle_parts`.

    Raises:
        SampleTypeError: it cannot be pickled.
    """
    try:
        return pickle_parts(value)
    except Exception as error:  # a user's class may raise anything
        raise SampleTypeError(
            f"{source.name} {source.verb} {_describe(value)} in output {output}, which cannot be pickled: {error}"
        ) from error


def block_of_object(value: Any, source: Source, output: int) -> NDArray[np.uint8]:
    """Pickle a Python object into memory of its own.

    Raises:
        SampleTypeError: it cannot be pickled.
    """
    return value.block if isinstance(value, Pickled) else block_of(parts_of_object(value, source, output))


def load_objects(samples: Iterable[NDArray[Any]], name: str, output: int) -> list[Any]:
    """Load the Python objects of one output of a batch. Their large arrays are views of the samples.

    Raises:
        SampleTypeError: an object cannot be unpickled in this process.
    """
    objects = []
    for sample in samples:
        try:
            objects.append(OutOfBandPickle(sample).load())
        except CorruptionError:
            raise
        except Exception as error:  # a user's class may raise anything
            raise SampleTypeError(
                f"an object in output {output} of {name} cannot be unpickled here: {repr_of(error)}"
            ) from error
    return objects


def check_array(
    array_dtype: np.dtype[Any],
    array_ndim: int,
    dtype: int,
    ndim: int,
    source: Source,
    output: int,
    *,
    seen: str = _FIRST,
) -> None:
    """Compare the dtype and ndim of a sample with the expected ones, declared or seen before. UNKNOWN matches anything.

    Args:
        seen: where the expected ones were seen, if they are not declared.

    Raises:
        DtypeMismatchError, NdimMismatchError: they differ.
    """
    if dtype not in (UNKNOWN, DTYPE_CODES[array_dtype]):
        raise DtypeMismatchError(dtype_text(source, output, DTYPES[dtype], array_dtype, seen))
    if ndim not in (UNKNOWN, array_ndim):
        raise NdimMismatchError(ndim_text(source, output, ndim, array_ndim, seen))


def dtype_text(source: Source, output: int, expected: np.dtype[Any], got: np.dtype[Any], seen: str = _FIRST) -> str:
    """Return the message for an unexpected dtype; `seen` says where the expected one was seen, if it is not declared."""
    has = f"{source.name} {source.verb} data of type {got} in output {output}"
    if source.declared and source.declared[output].dtype == DTYPE_CODES[expected]:
        return (
            f"{has}, declared as {expected} by dtype=. Convert it, array.astype(np.{expected}), or declare "
            f"dtype=types.{to_dali_type(got).name}"
        )
    return (
        f"{has}, which was {expected} {seen}. All samples have one dtype: convert this one, array.astype(np.{expected}), or "
        "the others"
    )


def ndim_text(source: Source, output: int, expected: int, got: int, seen: str = _FIRST) -> str:
    """Return the message for an unexpected number of dimensions; `seen` as in `dtype_text`."""
    has = f"{source.name} {source.verb} data with {got} dimensions in output {output}"
    if source.declared and source.declared[output].ndim == expected:
        if layout := source.layouts[output]:
            return f'{has}, declared with {expected} by layout="{layout}". Return arrays of that layout, or change layout='
        return f"{has}, declared with {expected} by ndim=. Reshape the array, by array[..., np.newaxis], or pass ndim={got}"
    return (
        f"{has}, which had {expected} {seen}. All samples have the same number of dimensions: reshape the array, by "
        "array[..., np.newaxis], or the others"
    )


def _import_array(value: Any, source: Source, output: int) -> NDArray[Any]:
    if value is None:
        _refuse(value, source, output, "each output of each sample has to be an array")
    _refuse_unawaited(value, source)
    heed_layout(value, source, output)
    if isinstance(value, (list, tuple)):
        if source.num_outputs is None and not source.batch and value:
            _refuse_several(value, source, output)
        several = (
            ", or pass num_outputs= to fn.external_source if it is several outputs" if source.num_outputs is None else ""
        )
        _refuse(value, source, output, f"wrap it in np.array(){several}")
    if isinstance(value, (str, bytes, bytearray, dict)):
        _refuse(
            value,
            source,
            output,
            "not an array; bytes become one by np.frombuffer(data, np.uint8); pass dtype=types.OBJECT for any Python object",
        )
    if hasattr(value, "__cuda_array_interface__") or getattr(value, "is_cuda", False):
        _refuse(value, source, output, "an array on a GPU; callbacks return CPU arrays, and .gpu() moves the batch")
    if not is_capsule(value) and not any(hasattr(value, name) for name in _INTERFACES):
        _refuse(value, source, output, "not an array; pass dtype=types.OBJECT for any Python object")
    try:
        if is_capsule(value):
            return array_of_capsule(value)
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        return np.from_dlpack(value)
    except Exception as error:
        raise SampleTypeError(
            f"{source.name} {source.verb} {_describe(value)} in output {output}, which NumPy cannot read: {error}"
        ) from error


def heed_layout(value: Any, source: Source, output: int) -> None:
    """Record the layout of a `dali_like.tensors.TensorCPU` or TensorListCPU; other values have none.

    Raises:
        LayoutMismatchError: the output had another layout before.
    """
    if source.seen_layouts is None or source.layouts[output] or not callable(layout_of := getattr(value, "layout", None)):
        return
    layout, known = layout_of(), source.seen_layouts[output]
    if known not in ("", layout) and layout:
        raise LayoutMismatchError(
            f'{source.name}: Expected data with layout: "{known}" and got: "{layout}" in output {output}. The first tensors '
            f'had layout "{known}": give all the same one, or pass layout='
        )
    source.seen_layouts[output] = layout or known


def is_on_gpu(value: Any) -> bool:
    """Whether a value is an array on a GPU."""
    if hasattr(value, "__cuda_array_interface__") or getattr(value, "is_cuda", False):
        return True
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == _DLPACK_CUDA


def _refuse_unawaited(value: Any, source: Source) -> None:
    if inspect.iscoroutine(value):
        value.close()
        raise SampleTypeError(
            f"{source.name} {source.verb} a coroutine, which is awaited only if the callback itself is an `async def`"
        )


def _refuse_several(value: Any, source: Source, output: int) -> NoReturn:
    """Refuse a tuple or list that is probably several outputs."""
    one = "one batch, make its samples arrays" if source.batch else "one array, wrap it in np.array()"
    raise SampleTypeError(
        f"{source.name} {source.verb} {_describe(value)} of {len(value)} in output {output}. If it is {one}; if its "
        f"parts are the outputs, pass num_outputs={len(value)} to fn.external_source"
    )


def _forgotten(source: Source) -> str:
    """Return the reason for None instead of a value."""
    if source.verb != "returned" or source.type is not SourceType.CALLABLE:
        return "it has to be an array"
    what = "the batch" if source.batch else "the sample"
    return f"some path through the callback ends without a return. Return {what} on every path"


def _refuse(value: Any, source: Source, output: int, why: str) -> NoReturn:
    raise SampleTypeError(f"{source.name} {source.verb} {_describe(value)} in output {output}: {why}")


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    from dali_like.common.articles import full_kind_of  # spawned workers import little before their first sample

    return full_kind_of(value)
