"""Data types, image types, constants, and what a callback is told about its sample.

Names and values follow ``nvidia.dali.types`` 1.53, so that a program changes only its import.
"""

from __future__ import annotations

import builtins
import enum
import operator
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError, DeviceError
from dali_like.expressions import Expression, Operand

__all__ = [
    "ANY_DATA",
    "BGR",
    "BOOL",
    "CPU_ONLY_DEVICE_ID",
    "FLOAT",
    "FLOAT16",
    "FLOAT64",
    "GRAY",
    "INTERP_CUBIC",
    "INTERP_GAUSSIAN",
    "INTERP_LANCZOS3",
    "INTERP_LINEAR",
    "INTERP_NN",
    "INTERP_TRIANGULAR",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "OBJECT",
    "RGB",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "BatchInfo",
    "Constant",
    "DALIDataType",
    "DALIImageType",
    "DALIInterpType",
    "PipelineAPIType",
    "SampleInfo",
    "ScalarConstant",
    "to_dali_type",
    "to_numpy_type",
    "YCbCr",
]


def __dir__() -> list[str]:
    return __all__


class Call(NamedTuple):
    """Around the call of a source: what the methods of its SampleInfo need to know.

    Attributes:
        seeds: the seed of the pipeline and the number of the source.
        empty: given what `SampleInfo.empty` is given: memory in the batch, or None.
        timed: makes a callback that is measured of one that another one calls; None where nothing is measured.
    """

    seeds: tuple[int, int] = (0, 0)
    empty: Callable[[SampleInfo, int, Any, Any], NDArray[Any] | None] | None = None
    timed: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] | None = None


#: The call that is under way; another one in each thread, and in each task of an event loop.
current_call: ContextVar[Call] = ContextVar("dali_like_call", default=Call())  # noqa: B039  # a NamedTuple is immutable


class SampleInfo(NamedTuple):
    """Which sample a per-sample callback is to make.

    Everything counts from 0. ``idx_in_epoch`` runs over the samples of an epoch, ``idx_in_batch`` over those of a batch,
    ``iteration`` over the batches of an epoch, and ``epoch_idx`` over the calls of `Pipeline.reset`. With shards,
    ``idx_in_epoch`` runs over the samples of all ranks, of which this one has a part; ``iteration`` over its own batches.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int

    def rng(self) -> np.random.Generator:
        """A generator of random numbers for this sample.

        What it gives depends on the seed of the pipeline, the source, the epoch and the sample's index alone: not on the
        worker, their number, the start method, or on whether the sample is made for the second time. Each call begins anew.
        Outside of a callback it is that of a pipeline with seed 0.
        """
        seed, source = current_call.get().seeds
        return _generator(seed, (source, self.epoch_idx, self.idx_in_epoch))

    def empty(self, shape: int | Iterable[int], dtype: Any = np.uint8, output: int = 0) -> NDArray[Any]:
        """An uninitialised array to make the sample in: the very memory that the batch will have it in.

        A callback that decodes or reads into it, and returns it, saves the copy. It is that memory for the sample that is
        being made only, and the first time that it is asked for; with anything else, and outside of a callback, it is an
        array like any other. The array must not be kept: other samples will lie there.

        Args:
            shape: of the sample.
            dtype: of the sample: a NumPy dtype, or a `DALIDataType`.
            output: which output of the source it is for.

        Raises:
            ArgumentError: the shape has a negative extent.
        """
        empty = current_call.get().empty
        place = None if empty is None else empty(self, output, shape, dtype)
        return np.empty(*plain_form(shape, dtype)) if place is None else place


def plain_form(shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """A shape and a dtype in whatever form a callback gives them, as NumPy has them.

    Raises:
        ArgumentError: the shape has a negative extent.
    """
    extents = tuple(map(operator.index, shape)) if isinstance(shape, Iterable) else (operator.index(shape),)
    if min(extents, default=0) < 0:
        raise ArgumentError(f"no array has the shape {extents}")
    return extents, np.dtype(to_numpy_type(dtype) if isinstance(dtype, DALIDataType) else dtype)


class BatchInfo(NamedTuple):
    """Which batch a batch callback is to make: its number in the epoch, and the number of the epoch.

    Of a source with shards, batches are numbered through all ranks.
    """

    iteration: int
    epoch_idx: int

    def rng(self) -> np.random.Generator:
        """A generator of random numbers for this batch; see `SampleInfo.rng`."""
        seed, source = current_call.get().seeds
        return _generator(seed, (source, self.epoch_idx, self.iteration, 1))


def _generator(seed: int, key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


class DALIDataType(enum.IntEnum):
    """The element types of tensors. ``OBJECT`` stands for any Python object; such outputs come as lists."""

    UINT8 = 0
    UINT16 = 1
    UINT32 = 2
    UINT64 = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    FLOAT16 = 8
    FLOAT = 9
    FLOAT64 = 10
    BOOL = 11
    OBJECT = 24

    __str__ = enum.Enum.__str__


class DALIImageType(enum.IntEnum):
    """The colour formats of decoded images. ``ANY_DATA`` keeps the channels that the file has."""

    RGB = 0
    BGR = 1
    GRAY = 2
    YCbCr = 3
    ANY_DATA = 4

    __str__ = enum.Enum.__str__


class DALIInterpType(enum.IntEnum):
    """How values between pixels are made."""

    INTERP_NN = 0
    INTERP_LINEAR = 1
    INTERP_CUBIC = 2
    INTERP_LANCZOS3 = 3
    INTERP_TRIANGULAR = 4
    INTERP_GAUSSIAN = 5

    __str__ = enum.Enum.__str__


class PipelineAPIType(enum.Enum):
    """The ways to run a pipeline: by `run`, or by `schedule_run` and `outputs`. ``ITERATOR`` is that of DALI's plugins."""

    BASIC = 0
    ITERATOR = 1
    SCHEDULED = 2


#: As a pipeline's ``device_id``: none.
CPU_ONLY_DEVICE_ID = -99999

UINT8 = DALIDataType.UINT8
UINT16 = DALIDataType.UINT16
UINT32 = DALIDataType.UINT32
UINT64 = DALIDataType.UINT64
INT8 = DALIDataType.INT8
INT16 = DALIDataType.INT16
INT32 = DALIDataType.INT32
INT64 = DALIDataType.INT64
FLOAT16 = DALIDataType.FLOAT16
FLOAT = DALIDataType.FLOAT
FLOAT64 = DALIDataType.FLOAT64
BOOL = DALIDataType.BOOL
OBJECT = DALIDataType.OBJECT

RGB = DALIImageType.RGB
BGR = DALIImageType.BGR
GRAY = DALIImageType.GRAY
YCbCr = DALIImageType.YCbCr
ANY_DATA = DALIImageType.ANY_DATA

INTERP_NN = DALIInterpType.INTERP_NN
INTERP_LINEAR = DALIInterpType.INTERP_LINEAR
INTERP_CUBIC = DALIInterpType.INTERP_CUBIC
INTERP_LANCZOS3 = DALIInterpType.INTERP_LANCZOS3
INTERP_TRIANGULAR = DALIInterpType.INTERP_TRIANGULAR
INTERP_GAUSSIAN = DALIInterpType.INTERP_GAUSSIAN

_NUMPY_TYPES: dict[DALIDataType, np.dtype[Any]] = {
    UINT8: np.dtype(np.uint8),
    UINT16: np.dtype(np.uint16),
    UINT32: np.dtype(np.uint32),
    UINT64: np.dtype(np.uint64),
    INT8: np.dtype(np.int8),
    INT16: np.dtype(np.int16),
    INT32: np.dtype(np.int32),
    INT64: np.dtype(np.int64),
    FLOAT16: np.dtype(np.float16),
    FLOAT: np.dtype(np.float32),
    FLOAT64: np.dtype(np.float64),
    BOOL: np.dtype(np.bool_),
    OBJECT: np.dtype(np.object_),
}
_DALI_TYPES = {_NUMPY_TYPES[dali_type]: dali_type for dali_type in DALIDataType if dali_type is not OBJECT}


def to_numpy_type(dtype: DALIDataType | int) -> np.dtype[Any]:
    """The NumPy dtype of a `DALIDataType`.

    >>> to_numpy_type(FLOAT)
    dtype('float32')
    """
    return _NUMPY_TYPES[DALIDataType(dtype)]


def to_dali_type(dtype: Any) -> DALIDataType:
    """The `DALIDataType` of anything that names a data type: one of our own, a NumPy dtype, its name, a scalar type.

    Raises:
        ArgumentError: `dtype` is not a data type, or one that tensors cannot have.

    >>> to_dali_type("uint8") is UINT8
    True
    """
    if isinstance(dtype, DALIDataType):
        return dtype
    try:
        # NumPy takes None for float64.
        return _DALI_TYPES[np.dtype("O" if dtype is None else dtype).newbyteorder("=")]
    except (TypeError, KeyError):
        names = ", ".join(member.name for member in _DALI_TYPES.values())
        kind = ArgumentClashError if isinstance(dtype, int) else ArgumentTypeError
        raise kind(f"{dtype!r} is not a data type of tensors; those are {names}") from None


class Constant(Expression):
    """A value that is the same for every sample of every batch: an output of a pipeline, or an operand.

    Numbers, lists of numbers and arrays that are given as outputs or operands become constants by themselves; this class is
    for those who want another type, shape or layout. Python's operators make data nodes of it.

    Args:
        value: a number, a one-dimensional list or tuple of numbers, or an array.
        dtype: of the samples. Without it Python's numbers become INT32, FLOAT and BOOL, and NumPy's types of 64 bits those
            of 32, as in DALI; other arrays keep theirs.
        shape: of each sample. A number fills it; the elements of anything else are as many as it has.
        layout: a letter for each dimension.
        device: where the data is wanted: "cpu" (the default) or "gpu".

    Attributes:
        array: one sample.
        layout: its layout; empty where none was given.
        device: where it is wanted.

    Raises:
        ArgumentTypeError: the value is not of numbers.
        ArgumentError: it has numbers that the type cannot hold (which DALI changes silently), or does not go with the shape
            or the layout.
        DeviceError: `device` is something else.

    >>> Constant([1, 2, 3, 4], dtype=UINT8, shape=(2, 2), layout="HW").array
    array([[1, 2],
           [3, 4]], dtype=uint8)
    """

    def __init__(
        self, value: Any, dtype: Any = None, shape: Any = None, layout: str | None = None, device: str | None = None
    ) -> None:
        if device not in (None, "cpu", "gpu"):
            raise DeviceError(f'device={device!r}: a constant is on the "cpu" or on the "gpu"')
        array = _array_of_numbers(value)
        if dtype is not None:
            array = _convert(array, to_numpy_type(to_dali_type(dtype)))
        elif isinstance(value, _PLAIN):
            array = _convert(array, _SHORT_TYPES.get(array.dtype, array.dtype))
        if shape is not None:
            array = _reshape(array, shape)
        if layout and len(layout) != array.ndim:
            raise ArgumentError(f"The layout '{layout}' cannot describe {array.ndim}-dimensional data")
        self.array = np.array(array, order="C")
        self.layout = layout or ""
        self.device = device or "cpu"

    @property
    def dtype(self) -> DALIDataType:
        """The element type."""
        return to_dali_type(self.array.dtype)

    @property
    def shape(self) -> list[int]:
        """The extents of the dimensions of a sample."""
        return list(self.array.shape)

    def __eq__(self, other: Operand) -> Any:  # type: ignore[override]
        """Of two single numbers, whether value and type are the same; of anything else a node."""
        if isinstance(other, Constant) and not self.array.ndim and not other.array.ndim:
            return self.dtype is other.dtype and bool(self.array == other.array)
        return super().__eq__(other)

    def __ne__(self, other: Operand) -> Any:  # type: ignore[override]
        equal = self == other
        return not equal if isinstance(equal, bool) else super().__ne__(other)

    __hash__ = Expression.__hash__

    def __bool__(self) -> builtins.bool:
        return bool(self._number("biu", "truth value"))

    def __int__(self) -> int:
        return int(self._number("biu", "integer"))

    def __float__(self) -> float:
        return float(self._number("f", "floating-point number"))

    def _number(self, kinds: str, what: str) -> float:
        if self.array.ndim or self.array.dtype.kind not in kinds:
            raise ArgumentTypeError(
                f"{self!r} is no {what}; constants that are single numbers can be cast: .int32(), .float32()"
            )
        return self.array.item()  # type: ignore[no-any-return]

    def cast(self, dtype: Any) -> Constant:
        """The same value with another type."""
        return Constant(self.array, dtype, layout=self.layout)

    def bool(self) -> Constant:
        """The same as BOOL; `uint8` to `float64` likewise."""
        return self.cast(BOOL)

    def uint8(self) -> Constant:
        return self.cast(UINT8)

    def uint16(self) -> Constant:
        return self.cast(UINT16)

    def uint32(self) -> Constant:
        return self.cast(UINT32)

    def uint64(self) -> Constant:
        return self.cast(UINT64)

    def int8(self) -> Constant:
        return self.cast(INT8)

    def int16(self) -> Constant:
        return self.cast(INT16)

    def int32(self) -> Constant:
        return self.cast(INT32)

    def int64(self) -> Constant:
        return self.cast(INT64)

    def float16(self) -> Constant:
        return self.cast(FLOAT16)

    def float32(self) -> Constant:
        return self.cast(FLOAT)

    def float64(self) -> Constant:
        return self.cast(FLOAT64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.array!r}, layout={self.layout!r})"


class ScalarConstant(Constant):
    """A single number as an operand, of a type that may not be Python's.

    Args:
        value: the number.
        dtype: its type. Without it Python's numbers are INT32, FLOAT or BOOL, and NumPy's keep theirs.

    Raises:
        ArgumentTypeError: the value is no number.
        ArgumentError: the type cannot hold it.
    """

    def __init__(self, value: Any, dtype: Any = None) -> None:
        if not isinstance(value, _NUMBERS):
            raise ArgumentTypeError(f"Expected scalar value of type 'bool', 'int' or 'float', got {type(value)}.")
        own = value.dtype if isinstance(value, np.generic) else None
        super().__init__(value, own if dtype is None else dtype)

    @property
    def value(self) -> float:
        """The number, as Python's."""
        return self.array.item()  # type: ignore[no-any-return]


_NUMBERS = (bool, int, float, np.bool_, np.number)
#: What loses its 64-bit types, unless it is to keep them.
_PLAIN = (*_NUMBERS, list, tuple, np.ndarray)
_SHORT_TYPES = {
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.float64): np.dtype(np.float32),
}


def _array_of_numbers(value: Any) -> NDArray[Any]:
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    plain = all(isinstance(number, _NUMBERS) and not isinstance(number, enum.Enum) for number in numbers)
    if not plain and not hasattr(value, "__array__"):
        raise ArgumentTypeError(f"a constant is a number, a one-dimensional list of numbers or an array, not {value!r}")
    array = np.asarray(value)
    if plain and array.dtype == object:
        raise ArgumentError(f"{value!r} is too large for a constant")
    return array.astype(to_numpy_type(to_dali_type(array.dtype)), copy=False)


def _convert(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The array with another type. Numbers may be rounded, but neither wrapped round nor made infinite."""
    if dtype.kind != "b":
        limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        numbers = array[np.isfinite(array)] if dtype.kind == "f" else array
        if numbers.size and not (limits.min <= numbers.min() and numbers.max() <= limits.max):
            raise ArgumentError(f"{array!r} does not fit into {to_dali_type(dtype)}; say dtype=")
    return array.astype(dtype)


def _reshape(array: NDArray[Any], shape: Any) -> NDArray[Any]:
    try:
        return np.full(shape, array) if array.ndim == 0 else array.reshape(shape)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"a constant of {array.size} elements does not have the shape {shape!r}") from error
