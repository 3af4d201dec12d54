"""What a source is to the engine; what it may return, and how that becomes arrays."""

from __future__ import annotations

import enum
import inspect
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from dali_like.common.dlpack import array_of_capsule, is_capsule
from dali_like.engine.memory.descriptors import Descriptor
from dali_like.engine.memory.protocol import DTYPE_CODES, DTYPES, MAX_NDIM, UNKNOWN
from dali_like.engine.worker.streams import Stream
from dali_like.errors import (
    BatchSizeError,
    DtypeMismatchError,
    LayoutMismatchError,
    NdimMismatchError,
    OutputCountError,
    SampleDtypeError,
    SampleTypeError,
)

#: ``kDLCUDA``, see ``__dlpack_device__`` in the array API standard.
_DLPACK_CUDA = 2
#: Of which whatever is an array has one.
_INTERFACES = ("__array_interface__", "__array__", "__dlpack__")
_FORGOTTEN = "does every way through the callback end in a return?"


class LastBatch(enum.Enum):
    """What becomes of the samples of a batch that StopIteration ends before it is full."""

    DROP = "drop"  #: they are dropped
    PARTIAL = "partial"  #: they are a batch
    FILL = "fill"  #: they are a batch, and the last of them is repeated until it is full


class Source(NamedTuple):
    """Where the data of one external source comes from, as the engine sees it.

    Attributes:
        name: how messages call the source.
        callback: makes one sample, given a SampleInfo; or one batch, given a BatchInfo.
        num_outputs: how many arrays make a sample; None where the callback returns the array itself.
        batch: whether the callback makes batches.
        requests: whether it is told what to make: it is a `dali_like.engine.worker.requests.RequestHandler`.
        takes_state: whether requests bring a state; see `dali_like.engine.worker.streams`.
        task_size: how many samples make a task, given the number of workers; None:
            `dali_like.engine.memory.slot_layout.task_size`.
        in_order: whether it must be called in the order of the batches, and always in the same process: it walks through an
            iterable. See `dali_like.engine.worker.streams.Stream`.
        concurrency: how many samples may be in the making at once, where the callback is a coroutine function.
        last_batch: what becomes of an incomplete batch.
        objects: for each output, whether it is of Python objects, which travel pickled. Empty: none is.
        on_error: what happens when the callback raises, or returns what cannot be delivered: "raise"; "skip", the sample of
            the next index that succeeds stands in; or a callable that is given the SampleInfo and the exception and returns
            what stands in.
        worker_setup: called in each worker before its first sample, and where there are no workers, once.
        worker_teardown: called in each worker when it is told to end, and where there are no workers, when the pipeline is
            closed.
        seeds: what `SampleInfo.rng` depends on besides the sample: the pipeline's seed, and the number of the source.
        verb: how messages call what it does.
        takes_gpu: whether it may return arrays on a GPU; see `dali_like.graph.gpu_sources`.
        layouts: of each output, as declared, or empty.
        seen_layouts: likewise; where nothing was declared, as tensors say that have been seen. None: they are not asked.
    """

    name: str
    callback: Callable[[Any], Any]
    num_outputs: int | None = None
    batch: bool = False
    requests: bool = False
    takes_state: bool = False
    task_size: Callable[[int], int] | None = None
    in_order: bool = False
    concurrency: int | None = None
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

    @property
    def output_count(self) -> int:
        """The number of outputs: 1 where `num_outputs` is None."""
        return 1 if self.num_outputs is None else self.num_outputs

    @property
    def counts(self) -> bool:
        """Whether it shows only when a batch is made how many samples it has."""
        return self.batch or self.last_batch is not LastBatch.DROP

    @property
    def makes_again(self) -> bool:
        """Whether it can be asked again for what it has made, by the same process."""
        return not ((isinstance(self.callback, Stream) or self.requests) and self.callback.once)  # type: ignore[attr-defined]

    def for_thread(self) -> Source:
        """The source for one of several threads: it shares the user's objects, and not what the engine notes."""
        if isinstance(self.callback, Stream) or self.requests:
            return self._replace(callback=self.callback.for_thread())  # type: ignore[attr-defined]
        return self

    def is_object(self, output: int) -> bool:
        """Whether an output is of Python objects."""
        return bool(self.objects) and self.objects[output]


class PickledSource(NamedTuple):
    """What a source consists of, its functions and all that they hold, pickled.

    Attributes:
        data: ``pickle.loads(data, buffers=buffers)`` gives the source, on_error, worker_setup and worker_teardown.
        buffers: the memory of the arrays that are not in `data`. They are the arrays' own, and change with them.
        modules: the names of the modules that `data` refers to.
        descriptors: what workers are to inherit; see `dali_like.engine.backends.inherited`.
    """

    data: bytes
    buffers: tuple[pickle.PickleBuffer, ...] = ()
    modules: tuple[str, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()


#: Pickles what a source consists of, given by how messages call it; and how they call the source. See
#: `dali_like.sources.callback_pickler`.
SourcePickler = Callable[[dict[str, Any], str], PickledSource]


def kind_of_samples(samples: Any) -> tuple[np.dtype[Any], int]:
    """The dtype of samples, and how many dimensions each has: of several arrays, or of one of all of them, on a GPU too."""
    if isinstance(samples, Sequence):
        return samples[0].dtype, len(samples[0].shape)
    return samples.dtype, len(samples.shape) - 1


def split_outputs(sample: Any, source: Source) -> tuple[Any, ...] | list[Any]:
    """The outputs of a sample, checked for their number.

    Raises:
        OutputCountError: too few or too many, or one array.
        SampleTypeError: something else that is no tuple or list.
    """
    if source.num_outputs is None:
        return (sample,)
    if not isinstance(sample, (tuple, list)):
        _refuse_unawaited(sample, source)
        # An array could be meant as its rows.
        kind = OutputCountError if isinstance(sample, np.ndarray) else SampleTypeError
        what, parts = ("batch", "batches, one for each output") if source.batch else ("sample", "arrays")
        raise kind(
            f"{source.name} {source.verb} {_describe(sample)}; with num_outputs={source.num_outputs} a {what} is a tuple or "
            f"list of {source.num_outputs} {parts}{f'; {_FORGOTTEN}' if sample is None else ''}"
        )
    if len(sample) != source.num_outputs:
        raise OutputCountError(
            f"{source.name} {source.verb} {len(sample)} outputs; num_outputs={source.num_outputs} says {source.num_outputs}"
        )
    return sample


def as_columns(batch: Any, source: Source, capacity: int) -> list[NDArray[Any] | Sequence[Any]]:
    """The outputs of a batch, each as one array whose first dimension counts the samples, or as a sequence of samples.

    Raises:
        OutputCountError: too few or too many outputs.
        SampleTypeError: an output is not a batch.
        BatchSizeError: there are more than `capacity` samples, or outputs of different sizes.
    """
    columns = [_as_column(value, source, output) for output, value in enumerate(split_outputs(batch, source))]
    sizes = [len(column) for column in columns]
    if max(sizes) > capacity:
        hint = " (an array is a batch, whose first dimension counts the samples)" if isinstance(batch, np.ndarray) else ""
        raise BatchSizeError(
            f"{source.name} {source.verb} an unexpected batch size. Expected batch_size <= {capacity}, actual: "
            f"{max(sizes)}{hint}"
        )
    if len(set(sizes)) > 1:
        raise BatchSizeError(f"Batch size clash! The outputs of {source.name} are batches of {sizes} samples")
    return columns


def _as_column(value: Any, source: Source, output: int) -> NDArray[Any] | Sequence[Any]:
    if isinstance(value, (list, tuple)) or (source.takes_gpu and is_on_gpu(value)):
        return value  # type: ignore[no-any-return]
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
    array = as_array(value, source, output, max_ndim=MAX_NDIM + 1)
    if not array.ndim:
        raise SampleTypeError(
            f"{source.name} {source.verb} {_describe(value)} in output {output}; a batch is a list or tuple of arrays, an "
            "array whose first dimension counts the samples, or a TensorList. For one sample a call, say batch=False"
        )
    return array


def as_array(value: Any, source: Source, output: int, max_ndim: int = MAX_NDIM) -> NDArray[Any]:
    """One output of a sample, or of a batch, as an array on the CPU, of native byte order and of one of `DTYPES`.

    Accepted are NumPy arrays and scalars, Python numbers, and whatever offers the array interface, ``__array__`` or DLPack
    on the CPU, tensors of PyTorch and JAX among them. The array may be a view of the value.

    Raises:
        SampleTypeError: anything else.
    """
    if source.is_object(output):
        return _pickled(value, source, output)
    if isinstance(value, np.ndarray):
        if value.__class__ is not np.ndarray and np.ma.is_masked(value):
            _refuse(value, source, output, "a masked array, whose mask does not travel; return array.filled(...)")
        array = value
    elif isinstance(value, (np.generic, bool, int, float)):
        array = np.asarray(value)
    else:
        array = _import_array(value, source, output)
    if array.dtype not in DTYPE_CODES:
        native = array.dtype.newbyteorder("=")
        if native not in DTYPE_CODES:
            raise SampleDtypeError(
                f"{source.name} {source.verb} {_describe(value)} in output {output}: tensors cannot have that dtype, but "
                f"{', '.join(map(str, DTYPES))}; convert it, or say dtype=types.OBJECT, which allows any object"
            )
        array = array.astype(native)
    if array.ndim > max_ndim:
        _refuse(value, source, output, f"an array of {array.ndim} dimensions; at most {max_ndim} are supported")
    return array


class Pickled(NamedTuple):
    """An object that has been pickled already."""

    data: NDArray[np.uint8]


def _pickled(value: Any, source: Source, output: int) -> NDArray[np.uint8]:
    if isinstance(value, Pickled):
        return value.data
    try:
        try:
            data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception:  # whatever a user's class does; one that cannot be found by name can go by value
            data = cloudpickle.dumps(value)
    except Exception as error:
        raise SampleTypeError(
            f"{source.name} {source.verb} {_describe(value)} in output {output}, which cannot be pickled: {error}"
        ) from error
    return np.frombuffer(data, np.uint8)


def load_objects(samples: Iterable[NDArray[Any]], name: str, output: int) -> list[Any]:
    """The Python objects of one output of a batch.

    Raises:
        SampleTypeError: one cannot be unpickled in this process.
    """
    objects = []
    for sample in samples:
        try:
            objects.append(pickle.loads(sample.data))
        except Exception as error:  # whatever a user's class does
            raise SampleTypeError(f"an object in output {output} of {name} cannot be unpickled here: {error!r}") from error
    return objects


def check_array(array_dtype: np.dtype[Any], array_ndim: int, dtype: int, ndim: int, source: Source, output: int) -> None:
    """Compare what a sample is with what was declared for the output, or seen before; UNKNOWN stands for anything.

    Raises:
        DtypeMismatchError, NdimMismatchError: it differs.
    """
    if dtype not in (UNKNOWN, DTYPE_CODES[array_dtype]):
        raise DtypeMismatchError(dtype_text(source, output, DTYPES[dtype], array_dtype))
    if ndim not in (UNKNOWN, array_ndim):
        raise NdimMismatchError(ndim_text(source, output, ndim, array_ndim))


def dtype_text(source: Source, output: int, expected: np.dtype[Any], got: np.dtype[Any], where: str = "") -> str:
    """The message for a dtype that differs; `where` says where the expected one was seen."""
    return (
        f"{source.name} {source.verb} data of type {got} in output {output}; declared or seen before: {expected}{where}. "
        f"All samples have one dtype: convert this one, array.astype(np.{expected}), or the others"
    )


def ndim_text(source: Source, output: int, expected: int, got: int, where: str = "") -> str:
    """The message for a number of dimensions that differs; `where` says where the expected one was seen."""
    return (
        f"{source.name} {source.verb} data with {got} dimensions in output {output}; declared or seen before: {expected}"
        f"{where}. All samples have as many, and as many as a layout has letters: reshape the array, as by "
        "array[..., np.newaxis], or change ndim or layout"
    )


def _import_array(value: Any, source: Source, output: int) -> NDArray[Any]:
    if value is None:
        _refuse(value, source, output, _FORGOTTEN)
    _refuse_unawaited(value, source)
    heed_layout(value, source, output)
    if isinstance(value, (list, tuple)):
        several = ", or say num_outputs= if it is several outputs" if source.num_outputs is None else ""
        _refuse(value, source, output, f"wrap it in np.array(){several}")
    if isinstance(value, (str, bytes, bytearray, dict)):
        _refuse(
            value,
            source,
            output,
            "not an array; bytes become one with np.frombuffer(data, np.uint8), and dtype=types.OBJECT allows any object",
        )
    if hasattr(value, "__cuda_array_interface__") or getattr(value, "is_cuda", False):
        _refuse(value, source, output, "an array on a GPU; callbacks return CPU arrays, and .gpu() moves the batch")
    if not is_capsule(value) and not any(hasattr(value, name) for name in _INTERFACES):
        _refuse(value, source, output, "not an array; dtype=types.OBJECT allows any object")
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
    """Note the layout of what may be a `dali_like.tensors.TensorCPU`, or a list of such.

    Raises:
        LayoutMismatchError: another one has been seen before.
    """
    if source.seen_layouts is None or source.layouts[output] or not callable(layout_of := getattr(value, "layout", None)):
        return
    layout, known = layout_of(), source.seen_layouts[output]
    if known not in ("", layout) and layout:
        raise LayoutMismatchError(f'{source.name}: Expected data with layout: "{known}" and got: "{layout}"')
    source.seen_layouts[output] = layout or known


def is_on_gpu(value: Any) -> bool:
    """Whether it is an array on a GPU."""
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


def _refuse(value: Any, source: Source, output: int, why: str) -> NoReturn:
    raise SampleTypeError(f"{source.name} {source.verb} {_describe(value)} in output {output}: {why}")


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
