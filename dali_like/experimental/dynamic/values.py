"""Tensors and batches of dynamic mode, with arithmetic and indices.

A value is on the CPU, or a copy of it is on a GPU. Operators work on the CPU.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, BatchSizeError
from dali_like.experimental.dynamic.data_types import DType
from dali_like.experimental.dynamic.data_types import dtype as to_dtype
from dali_like.experimental.dynamic.evaluation import EvalContext
from dali_like.experimental.dynamic.placing import Device
from dali_like.experimental.dynamic.placing import device as to_device
from dali_like.graph.execution.batch_runs import BatchId, run_program
from dali_like.graph.execution.buffers import BatchMemory, PreviousSamples
from dali_like.graph.execution.program import Program, operator_program, repeated
from dali_like.graph.language.arithmetic import elementwise
from dali_like.graph.language.constants import Constant
from dali_like.graph.language.operator_interface import OperatorCall, choose_layout
from dali_like.graph.language.subscripts import Ref, subscription
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.tensors.tensor_arguments import checked_layout
from dali_like.types import SampleInfo, numpy_dtype, to_dali_type

_CPU = Device("cpu")
_FIRST = SampleInfo(0, 0, 0, 0)
_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})
_MOST_INT32, _MOST_FLOAT32 = (1 << 31) - 1, 3.4e38


def _binary(operation: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: operate(operation, self, other)


def _reflected(operation: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: operate(operation, other, self)


class _Operand:
    """Python's operators, as `dali_like.graph.language.arithmetic` describes them."""

    __slots__ = ()
    __array_ufunc__ = None  # with a NumPy array on the left, these methods compute

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("fdiv"), _reflected("fdiv")
    __floordiv__, __rfloordiv__ = _binary("div"), _reflected("div")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __pow__, __rpow__ = _binary("pow"), _reflected("pow")
    __lshift__, __rlshift__ = _binary("shl"), _reflected("shl")
    __rshift__, __rrshift__ = _binary("shr"), _reflected("shr")
    __and__, __rand__ = _binary("bitand"), _reflected("bitand")
    __or__, __ror__ = _binary("bitor"), _reflected("bitor")
    __xor__, __rxor__ = _binary("bitxor"), _reflected("bitxor")
    __lt__, __le__ = _binary("lt"), _binary("leq")
    __gt__, __ge__ = _binary("gt"), _binary("geq")
    __eq__, __ne__ = _binary("eq"), _binary("neq")
    __hash__ = object.__hash__

    def __neg__(self) -> Any:
        return operate("minus", self)

    def __invert__(self) -> Any:
        return operate("bitnot", self)

    def __abs__(self) -> Any:
        return operate("abs", self)

    def __pos__(self) -> Any:
        return self


class Tensor(_Operand):
    """One sample: data, dtype, layout and device. NumPy and DLPack view it without a copy.

    Use `tensor` or `as_tensor` to make one.

    Args:
        data: an array, tensor, number or list of numbers.
        dtype: to convert to. Default: Python's numbers become int32 and float32, other data keeps its own.
        device: where the tensor is wanted. Default: where the data is.
        layout: a letter for each dimension. Default: that of the data.
        copy: whether to copy data that could be viewed.

    Raises:
        ArgumentTypeError: the data is not numeric.
        ArgumentError: the layout has another number of dimensions.
    """

    __slots__ = ("__weakref__", "_array", "_layout", "_remote")

    _array: NDArray[Any]
    _layout: str
    _remote: Any

    def __init__(
        self, data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, *, copy: bool = False
    ) -> None:
        array, own_layout = laid_out(data)
        if dtype is not None:
            array = array.astype(_numpy_type(dtype), copy=False)
        to_dali_type(array.dtype)
        is_same = isinstance(data, Tensor) and array is data._array
        self._array = np.array(array) if copy else array
        self._layout = checked_layout(own_layout if layout is None else layout, array.ndim)
        self._remote = data._remote if is_same and isinstance(data, Tensor) else None
        if device is not None:
            self._remote = _on_device(TensorCPU(self._array, self._layout), to_device(device))

    @classmethod
    def of(cls, array: NDArray[Any], layout: str) -> Tensor:
        """Return a tensor of an array, unchecked."""
        made = cls.__new__(cls)
        made._array, made._layout, made._remote = array, layout, None
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return to_dtype(self._array.dtype)

    @property
    def layout(self) -> str | None:
        """The layout, or None."""
        return self._layout or None

    @property
    def device(self) -> Device:
        """The device."""
        return _CPU if self._remote is None else Device("gpu", self._remote.device_id())

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self._array.nbytes

    @property
    def itemsize(self) -> int:
        """The number of bytes of an element."""
        return self._array.itemsize

    def item(self) -> Any:
        """Return the only element as a Python number.

        Raises:
            ArgumentError: there are several elements, or none.
        """
        if self._array.size != 1:
            raise ArgumentError(f"Tensor has {self._array.size} elements, expected 1")
        return self._array.item()

    def cpu(self) -> Tensor:
        """Return the tensor on the CPU."""
        return self if self._remote is None else Tensor.of(self._array, self._layout)

    def gpu(self, index: int | None = None) -> Tensor:
        """Return the tensor on a GPU.

        Raises:
            DeviceError: there is no GPU.
        """
        return self.to_device(Device("gpu", index))

    def to_device(self, device: Any, force_copy: bool = False) -> Tensor:
        """Return the tensor on a device: itself if it is there already, unless `force_copy`."""
        wanted = to_device(device)
        if self.device == wanted and not force_copy:
            return self
        return Tensor(self.cpu(), device=wanted, copy=force_copy)

    def evaluate(self) -> Tensor:
        """Return the tensor itself: it is always computed."""
        return self

    def torch(self, copy: bool = False) -> Any:
        """Return a torch tensor that shares the memory, unless `copy`."""
        import torch  # type: ignore[import-not-found, unused-ignore]  # not a dependency

        made = torch.from_dlpack(self)
        return made.clone() if copy else made

    def __getitem__(self, subscripts: Any) -> Tensor:
        subscripts = subscripts if type(subscripts) is tuple else (subscripts,)
        return apply_to_one(_subscription(self._layout, tuple(map(_plain_part, subscripts))), (self._array,))[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._array, dtype) if copy else np.asarray(self._array, dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._array.__array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        return (self._array if self._remote is None else self._remote).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        device: tuple[Any, Any] = (self._array if self._remote is None else self._remote).__dlpack_device__()
        return device

    def __index__(self) -> int:
        return operator.index(self._array.item() if self._array.size == 1 else self._array)

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self._array, None, None, self._layout)

    def __str__(self) -> str:
        return f"Tensor(\n{TensorCPU(self._array, self._layout)})"

    __repr__ = __str__


class _BatchSamples:
    """The tensors of a batch, made on access."""

    def __init__(self, batch: Batch, indices: Sequence[int]) -> None:
        self._batch = batch
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, selection: Any) -> Any:
        return self.select(selection)

    def __iter__(self) -> Iterator[Tensor]:
        return (self._batch.sample(i) for i in self._indices)

    def select(self, selection: Any) -> Any:
        """Return one tensor for a number, and a part of the list for a slice or a list of numbers."""
        if isinstance(selection, slice):
            return _BatchSamples(self._batch, self._indices[selection])
        if isinstance(selection, list):
            return _BatchSamples(self._batch, [self._indices[i] for i in selection])
        return self._batch.sample(self._indices[selection])

    def tolist(self) -> list[Tensor]:
        """Return the tensors."""
        return list(self)

    def as_batch(self, copy: bool = False) -> Batch:
        """Return a batch of the tensors."""
        return batch(self.tolist()) if copy else as_batch(self.tolist())


class Batch(_Operand):
    """Samples with one dtype, number of dimensions and layout. Their shapes may differ.

    Use `batch` or `as_batch` to make one. An index in brackets applies to every
    sample: ``batch[0]`` is the first row of each. ``batch.tensors[0]`` is the first sample. `slice` takes indices that
    differ from sample to sample.

    Args:
        tensors: a list of arrays or tensors; an array whose first dimension counts the samples; or a list of a pipeline.
        dtype: to convert to.
        device: where the batch is wanted.
        layout: of each sample.
        copy: whether to copy data that could be viewed.

    Raises:
        ArgumentTypeError: the samples differ in dtype, number of dimensions or layout.
        ArgumentError: an empty list lacks `dtype`.
    """

    __slots__ = ("__weakref__", "_list", "_remote")

    _list: TensorListCPU
    _remote: Any

    def __init__(
        self, tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None, *, copy: bool = False
    ) -> None:
        made = _list_of(tensors, dtype, layout)
        if copy:
            dense = made.is_dense_tensor() and len(made)
            samples: Any = np.array(made.as_array()) if dense else [np.array(made.at(i)) for i in range(len(made))]
            made = TensorListCPU.of_arrays(samples, made.layout())
        self._list = made
        self._remote = tensors._remote if isinstance(tensors, Batch) and made is tensors._list else None
        if device is not None:
            self._remote = _on_device(made, to_device(device))

    @classmethod
    def of(cls, samples: Sequence[NDArray[Any]] | NDArray[Any], layout: str) -> Batch:
        """Return a batch of arrays, unchecked."""
        made = cls.__new__(cls)
        made._list, made._remote = TensorListCPU.of_arrays(samples, layout), None
        return made

    @staticmethod
    def broadcast(sample: Any, batch_size: int, device: Any = None, dtype: Any = None) -> Batch:
        """Return a batch that repeats one sample, in the same memory.

        Raises:
            ArgumentError: `sample` is a batch.
        """
        if isinstance(sample, Batch):
            raise ArgumentError("Cannot broadcast a Batch")
        one = Tensor(sample, dtype=dtype)
        made = Batch.of([one._array] * batch_size, one._layout)
        return made if device is None else made.to_device(device)

    @property
    def batch_size(self) -> int:
        """The number of samples."""
        return len(self._list)

    @property
    def shape(self) -> list[tuple[int, ...]]:
        """The shape of each sample."""
        return self._list.shape()

    @property
    def ndim(self) -> int:
        """The number of dimensions of each sample."""
        return self._list.ndim()

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return to_dtype(self._list.dtype)

    @property
    def layout(self) -> str | None:
        """The layout of each sample, or None."""
        return self._list.layout() or None

    @property
    def device(self) -> Device:
        """The device."""
        return _CPU if self._remote is None else Device("gpu", self._remote.device_id())

    @property
    def tensors(self) -> _BatchSamples:
        """The samples as tensors."""
        return _BatchSamples(self, range(self.batch_size))

    @property
    def slice(self) -> _BatchSlice:
        """Takes indices that may be batches, with one value for each sample: ``batch.slice[start:stop]``."""
        return _BatchSlice(self)

    def sample(self, i: int) -> Tensor:
        """Return one sample as a tensor that shares the memory."""
        return Tensor.of(self._list.at(i), self._list.layout())

    def select(self, sample_range: Any) -> Any:
        """Return a tensor for a number, and a batch for a slice or a list of numbers."""
        if sample_range is Ellipsis:
            return self
        chosen = self.tensors.select(sample_range)
        return chosen if isinstance(chosen, Tensor) else chosen.as_batch()

    def cpu(self) -> Batch:
        """Return the batch on the CPU."""
        return self if self._remote is None else Batch(self._list)

    def gpu(self, index: int | None = None) -> Batch:
        """Return the batch on a GPU.

        Raises:
            DeviceError: there is no GPU.
        """
        return self.to_device(Device("gpu", index))

    def to_device(self, device: Any, force_copy: bool = False) -> Batch:
        """Return the batch on a device: itself if it is there already, unless `force_copy`."""
        wanted = to_device(device)
        if self.device == wanted and not force_copy:
            return self
        return Batch(self.cpu(), device=wanted, copy=force_copy)

    def evaluate(self) -> Batch:
        """Return the batch itself: it is always computed."""
        return self

    def as_tensor(self) -> Tensor:
        """Return a dense batch as one tensor.

        Raises:
            RaggedError: the samples have different shapes.
        """
        made = Tensor(self._list.as_tensor())
        made._remote = None if self._remote is None else self._remote.as_tensor()
        return made

    def torch(self, copy: bool | None = None, pad: bool = False) -> Any:
        """Return a batch as one torch tensor.

        Args:
            copy: whether to copy; None: only samples that are not in one memory; False: never.
            pad: see `as_tensor`.

        Raises:
            ArgumentClashError: the samples are not in one memory, with `copy=False`.
            RaggedError: the samples have different shapes, without `pad`.
        """
        if copy is False and not self._list.is_dense_tensor():
            raise ArgumentClashError("This batch cannot be converted to a tensor without a copy: leave copy=False out")
        return as_tensor(self, pad=pad).torch(bool(copy))

    def __getitem__(self, subscripts: Any) -> Batch:
        parts = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        bounds = [
            bound for part in parts for bound in ((part.start, part.stop, part.step) if isinstance(part, slice) else (part,))
        ]
        if any(isinstance(bound, (Batch, TensorListCPU)) for bound in bounds):
            raise ArgumentError("Cannot use a batch as an index in brackets: use batch.slice[...] for one index per sample")
        return self.slice[subscripts]

    def __len__(self) -> int:
        return self.batch_size

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.tensors)

    def __bool__(self) -> NoReturn:
        raise ArgumentTypeError("the truth value of a Batch is ambiguous: test its tensors, or use & and |")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._list.__array__(dtype, copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.as_tensor().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return self.as_tensor().__dlpack_device__()

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (self._list,)

    def __str__(self) -> str:
        return f"Batch(\n{self._list})"

    __repr__ = __str__


class _BatchSlice:
    """Indices of a batch; see `Batch.slice`."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __getitem__(self, subscripts: Any) -> Batch:
        subscripts = subscripts if type(subscripts) is tuple else (subscripts,)
        bounds: list[Batch] = []
        parts = tuple([_plain_part(part, bounds) for part in subscripts])
        program = _subscription(self._batch._list.layout(), parts)
        return apply_to_batch(program, (self._batch, *bounds), self._batch.batch_size)[0]


class _SliceKey(NamedTuple):
    """A slice as a key of the programs that are kept; slices have no hash before Python 3.12."""

    start: Any
    stop: Any
    step: Any


def _plain_part(part: Any, bounds: list[Batch] | None = None) -> Any:
    """Return an index without tensors. Batches are added to `bounds`, and a `Ref` stands for each."""
    if isinstance(part, slice):
        return _SliceKey(*[_plain_part(bound, bounds) for bound in (part.start, part.stop, part.step)])
    if isinstance(part, Batch) and bounds is not None:
        bounds.append(part)
        return Ref(len(bounds) - 1)
    if isinstance(part, Tensor):
        return operator.index(part)
    return _Flag(part) if isinstance(part, bool) else part


class _Flag(NamedTuple):
    """A Boolean, which is not an index: True and 1 are equal keys."""

    value: bool


@functools.lru_cache(1024)
def _subscription(layout: str, parts: tuple[Any, ...]) -> Program:
    subscripts = [
        slice(*part) if isinstance(part, _SliceKey) else part.value if isinstance(part, _Flag) else part for part in parts
    ]
    taken = sum(isinstance(bound, Ref) for part in parts for bound in (part if isinstance(part, _SliceKey) else (part,)))
    return operator_program(subscription(layout, subscripts), (layout, *[""] * taken), {})


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    made = to_dtype(dtype)
    if made.type_id is None:
        raise ArgumentError(f"there are no tensors of the type {made}: use float32 or float16")
    return numpy_dtype(made.type_id)


def _on_device(storage: Any, device: Device | None) -> Any:
    return storage._as_gpu(device.device_id) if device is not None and device.device_type != "cpu" else None


def device_of(values: Sequence[Any]) -> Device | None:
    """Return the GPU of the first tensor or batch that is on one; None if none is."""
    on_gpu = (value.device for value in values if isinstance(value, (Tensor, Batch)) and value._remote is not None)
    return next(on_gpu, None)


def laid_out(data: Any) -> tuple[NDArray[Any], str]:
    """Return data as an array on the CPU, and its layout.

    Raises:
        ArgumentTypeError: the data is not numeric.
    """
    if isinstance(data, np.ndarray):
        return data, ""
    if isinstance(data, Tensor):
        return data._array, data._layout
    if isinstance(data, (bool, int, float, list, tuple)):
        array = _array_of_few(data)
        return _array_of(data) if array is None else array, ""
    if hasattr(data, "as_cpu"):
        data = data.as_cpu()
    elif type(data).__module__ == "torch":
        data = data.detach().cpu()
    if not (hasattr(data, "__array__") or hasattr(data, "__array_interface__") or isinstance(data, np.generic)):
        if hasattr(data, "__dlpack__"):
            return np.from_dlpack(data), ""
        raise ArgumentTypeError(f"a tensor is made of numbers, lists of numbers or arrays, not of {type(data)}")
    layout = data.layout() if isinstance(data, TensorCPU) else ""
    return np.asarray(data), layout


def _array_of_few(data: Any) -> NDArray[Any] | None:
    """Return what `_array_of` does for one number or a list of numbers, in a fifth of the time; None for other data."""
    numbers = data if isinstance(data, (list, tuple)) else (data,)
    kinds = set(map(type, numbers))
    if kinds == {int} and min(numbers) >= -_MOST_INT32 and max(numbers) <= _MOST_INT32:
        return np.array(data, np.int32)
    if kinds == {float} and max(map(abs, numbers)) < _MOST_FLOAT32:
        return np.array(data, np.float32)
    return None


def _array_of(data: Any) -> NDArray[Any]:
    array = np.asarray(data)
    if array.ndim < 2:
        return Constant(data).array
    short = {"i": np.dtype(np.int32), "f": np.dtype(np.float32)}
    is_plain = not any(isinstance(part, np.ndarray) or hasattr(part, "dtype") for part in data)
    return array.astype(short.get(array.dtype.kind, array.dtype)) if is_plain else array


def _is_plain_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def _list_of(tensors: Any, dtype: Any, layout: str | None) -> TensorListCPU:
    if isinstance(tensors, Batch):
        tensors = tensors._list
    if isinstance(tensors, _BatchSamples):
        tensors = tensors.tolist()
    if hasattr(tensors, "as_cpu"):
        tensors = tensors.as_cpu()
    if isinstance(tensors, (list, tuple)) and tensors and all(map(_is_plain_number, tensors)):
        tensors = _array_of(tensors)
    if isinstance(tensors, (list, tuple)):
        if not tensors and dtype is None:
            raise ArgumentError("an empty batch needs dtype=")
        pairs = [laid_out(sample) for sample in tensors]
        if len({(array.dtype, array.ndim) for array, _ in pairs}) > 1 and dtype is None:
            TensorListCPU([array for array, _ in pairs])  # raises
        samples: Any = [array for array, _ in pairs]
        layouts = list(dict.fromkeys(own for _, own in pairs))
        if len(layouts) > 1 and layout is None:
            raise ArgumentTypeError(f"the samples of a batch cannot have different layouts; these have {layouts}")
        layout = layouts[0] if layout is None and layouts else layout
    elif isinstance(tensors, TensorListCPU):
        if dtype is None and layout is None:
            return tensors
        layout = tensors.layout() if layout is None else layout
        samples = [tensors.at(i) for i in range(len(tensors))]
    else:
        samples, own = laid_out(tensors)
        layout = own[1:] if layout is None else layout
        if not samples.ndim:
            raise ArgumentError("Cannot create a batch from a scalar: pass a list, or use Batch.broadcast")
    if dtype is not None:
        wanted = _numpy_type(dtype)
        is_dense = isinstance(samples, np.ndarray)
        samples = samples.astype(wanted, copy=False) if is_dense else [one.astype(wanted, copy=False) for one in samples]
        if not len(samples):
            samples = np.empty((0, 0), wanted)
    made = TensorListCPU.of_arrays(samples, "")
    if layout:
        made.set_layout(layout)
    return made


def tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """Make a tensor that copies the data; see `Tensor`, and for `pad`, `as_tensor`."""
    return Tensor(_padded(data) if pad else data, dtype, device, layout, copy=True)


def as_tensor(data: Any, dtype: Any = None, device: Any = None, layout: str | None = None, pad: bool = False) -> Tensor:
    """Make a tensor that shares the memory of the data if possible; see `Tensor`.

    Args:
        data, dtype, device, layout: see `Tensor`. A batch becomes a tensor with one dimension more.
        pad: whether the samples of a batch are first padded with zeros to a common shape.
    """
    if pad:
        data = _padded(data)
    if isinstance(data, Tensor) and dtype is None and device is None and layout is None:
        return data
    return Tensor(data.as_tensor() if isinstance(data, Batch) else data, dtype, device, layout)


def _padded(data: Any) -> Any:
    """Return a batch whose samples have the largest extents of all. Other data stays as it is."""
    if not isinstance(data, Batch) or len(set(data.shape)) < 2:
        return data
    from dali_like.experimental import dynamic  # it imports this module

    operators: Any = dynamic
    return operators.pad(data)


def batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """Make a batch that copies the samples; see `Batch`."""
    return Batch(tensors, dtype, device, layout, copy=True)


def as_batch(tensors: Any, dtype: Any = None, device: Any = None, layout: str | None = None) -> Batch:
    """Make a batch that shares the memory of the samples if possible; see `Batch`."""
    if isinstance(tensors, Batch) and dtype is None and device is None and layout is None:
        return tensors
    return Batch(tensors, dtype, device, layout)


def common_batch_size(name: str, values: Sequence[Any]) -> int | None:
    """Return the number of samples of the batches among some values; None without batches.

    Raises:
        BatchSizeError: they differ.
    """
    sizes = {value.batch_size for value in values if isinstance(value, Batch)}
    if len(sizes) > 1:
        raise BatchSizeError(f"{name}: Inconsistent batch size: the batches have {sorted(sizes)} samples")
    return sizes.pop() if sizes else None


def operate(operation: str, *operands: Any) -> Any:
    """Compute an elementwise operation; see `dali_like.graph.language.arithmetic`.

    Args:
        operation: a name in `dali_like.graph.language.arithmetic.OPERATIONS`.
        operands: tensors, batches, arrays, numbers and lists of numbers.

    Returns:
        A batch if an operand is one, otherwise a tensor.
    """
    values, layouts, size = as_operands(f"math.{operation}", operands)
    program = _elementwise(operation, tuple(layouts))
    made: Any = apply_to_one(program, values) if size is None else apply_to_batch(program, values, size)
    device = device_of(operands)
    return made[0] if device is None else made[0].to_device(device)


@functools.lru_cache(1024)
def _elementwise(operation: str, layouts: tuple[str, ...]) -> Program:
    return operator_program(elementwise(operation, layouts), layouts, {})


@functools.lru_cache(256, typed=True)
def _array_of_number(number: float) -> NDArray[Any]:
    """Return a number as an array; it must not be changed."""
    return laid_out(number)[0]


#: An input or argument of an operator: one array, or a batch.
Operand: TypeAlias = "NDArray[Any] | Batch"


def as_operands(name: str, values: Sequence[Any]) -> tuple[list[Operand], list[str], int | None]:
    """Return inputs of an operator as arrays and batches, their layouts, and the size of the batches; None without any.

    Raises:
        BatchSizeError: the sizes of batches differ.
        ArgumentTypeError: a value is not numeric.
    """
    operands: list[Operand] = []
    layouts, size = [], None
    for value in values:
        kind = type(value)
        if kind is Tensor:
            operands.append(value._array)
            layouts.append(value._layout)
        elif kind is np.ndarray:
            operands.append(value)
            layouts.append("")
        elif kind is int or kind is float:
            operands.append(_array_of_number(value))
            layouts.append("")
        elif isinstance(value, (Batch, TensorListCPU)):
            batch = as_batch(value)
            operands.append(batch)
            layouts.append(batch._list.layout())
            if size not in (None, len(batch._list)):
                common_batch_size(name, [value for value in values if isinstance(value, (Batch, TensorListCPU))])
            size = len(batch._list)
        else:
            array, layout = laid_out(value)
            operands.append(array)
            layouts.append(layout)
    return operands, layouts, size


def apply_to_one(program: Program, arrays: Sequence[Any], info: SampleInfo = _FIRST) -> list[Tensor]:
    """Return the outputs of a program of one operator for one sample."""
    if not program.per_sample:
        batches = apply_to_batch(program, [Batch.of([array], "") for array in arrays], 1, info)
        return [batch.sample(0) for batch in batches]
    place = EvalContext.current().place
    outputs = program.apply(arrays, info, lambda export, shape, dtype: place(shape, dtype))
    words = program.steps[0].operator.layouts
    return [Tensor.of(array, _layout_of(each, array.ndim)) for array, each in zip(outputs, words, strict=True)]


def plain_call(program: Program) -> Callable[[Sequence[NDArray[Any]]], Any] | None:
    """Return a function that applies a program of one operator to one sample, in fewer steps than `apply_to_one`.

    None: the operator has several outputs or arguments that differ from sample to sample, needs random numbers, or a batch.
    """
    step = program.steps[0]
    operator, words = step.operator, step.layouts
    if step.arguments or step.framed or operator.seed is not None or not operator.per_sample or len(operator.layouts) > 1:
        return None
    compute, current, limit_bytes = operator.compute, EvalContext.current, step.image_limit_bytes
    (made_words,) = operator.layouts

    def call(arrays: Sequence[NDArray[Any]]) -> Tensor:
        layouts = [layout and choose_layout(layout, array.ndim) for layout, array in zip(words, arrays)]  # noqa: B905
        place = current().place
        (array,) = compute(OperatorCall(_FIRST, layouts, None, place, None, 1, limit_bytes), arrays, _NO_ARGUMENTS)
        return Tensor.of(array, made_words and choose_layout(made_words, array.ndim))

    return call


def apply_to_batch(program: Program, operands: Sequence[Operand], size: int, info: SampleInfo = _FIRST) -> list[Batch]:
    """Return the outputs of a program of one operator for a batch.

    Args:
        operands: its inputs; arrays are the same for all samples.
        size: the number of samples.
        info: of the first sample.
    """
    batch_id = BatchId(info.epoch_idx, info.iteration, info.idx_in_epoch, 1, info.idx_in_batch)
    context = EvalContext.current()
    results = [BatchMemory(context.buffers, size, PreviousSamples()) for _ in program.exports]
    columns = [_column(operand, size, program.stacks) for operand in operands]
    if size:
        run_program(program, columns, size, batch_id, results, for_each=context.for_each)
    operator = program.steps[0].operator
    made = []
    for result, words in zip(results, operator.layouts, strict=True):
        samples = result.finish(operator.name)
        ndim = samples.ndim - 1 if isinstance(samples, np.ndarray) else samples[0].ndim if samples else 0
        made.append(Batch.of(samples, _layout_of(words, ndim)))
    return made


def _column(operand: Operand, size: int, stacks: bool) -> Any:
    """Return the samples of an operand: one array if they are alike, and a stack of them is of use."""
    if isinstance(operand, Batch):
        samples = operand._list
        return samples.as_array() if samples._dense is not None else [samples.at(i) for i in range(size)]
    return repeated(operand, size) if stacks else [operand] * size


def _layout_of(words: str, ndim: int) -> str:
    return words and choose_layout(words, ndim)
