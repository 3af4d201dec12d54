"""Data types, image types, and the descriptions of samples and batches that callbacks receive.

Names and values follow ``nvidia.dali.types`` 1.53, so existing code only changes an import.
"""

from __future__ import annotations

import enum
import importlib
import operator
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError

__all__ = [
    "ANY_DATA",
    "BGR",
    "BOOL",
    "CPU_ONLY_DEVICE_ID",
    "DATA_TYPE",
    "FEATURE",
    "FLOAT",
    "FLOAT16",
    "FLOAT64",
    "GRAY",
    "IMAGE_TYPE",
    "INTERP_CUBIC",
    "INTERP_GAUSSIAN",
    "INTERP_LANCZOS3",
    "INTERP_LINEAR",
    "INTERP_NN",
    "INTERP_TRIANGULAR",
    "INTERP_TYPE",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "NCHW",
    "NFCHW",
    "NFHWC",
    "NHWC",
    "NO_TYPE",
    "OBJECT",
    "PYTHON_OBJECT",
    "RGB",
    "SAME",
    "STRING",
    "TENSOR_LAYOUT",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "BatchInfo",
    "CUDAStream",
    "Constant",
    "DALIDataType",
    "DALIImageType",
    "DALIInterpType",
    "PipelineAPIType",
    "SampleInfo",
    "ScalarConstant",
    "TensorLayout",
    "to_dali_type",
    "to_numpy_type",
    "YCbCr",
]


_T = TypeVar("_T")

if TYPE_CHECKING:
    from dali_like.graph.language.constants import Constant, ScalarConstant
else:

    def __getattr__(name: str) -> Any:
        """Import a name that DALI has here, and that a layer above defines: a table of the package says where."""
        place = vars(sys.modules["dali_like"])["ADDED"].get((__name__, name))
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return __all__


class CallWatch(Protocol):
    """Measures parts of a call; see `dali_like.engine.worker.meters.Stopwatch`."""

    def timed_within(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a callback whose calls are measured."""

    def operator_times(self, count: int) -> list[int]:
        """Return the nanoseconds of each of `count` operators, to add to."""


class CallContext(NamedTuple):
    """Context of a call of a source, for the methods of its SampleInfo.

    Attributes:
        seeds: the seed of the pipeline and the number of the source.
        empty: returns memory in the batch for the arguments of `SampleInfo.empty`, or None.
        watch: measures a nested callback and the operators behind it; None if nothing is measured.
    """

    seeds: tuple[int, int] = (0, 0)
    empty: Callable[[SampleInfo, int, Any, Any], NDArray[Any] | None] | None = None
    watch: CallWatch | None = None


#: The current call; each thread and each task of an event loop has its own.
current_call: ContextVar[CallContext] = ContextVar("dali_like_call", default=CallContext())  # noqa: B039  # a NamedTuple is immutable


def _refuse_arithmetic(self: Any, other: Any) -> NoReturn:
    raise TypeError(f"unsupported operand types: {type(self).__name__!r} and {type(other).__name__!r}")


def _no_number(kind: type[_T]) -> type[_T]:
    """Refuse the arithmetic of tuples: an info that is taken for a number would silently make a wrong sample."""
    for name in ("__add__", "__radd__", "__mul__", "__rmul__"):
        setattr(kind, name, _refuse_arithmetic)
    kind.__array_ufunc__ = None  # type: ignore[attr-defined]  # so that NumPy refuses it, too
    return kind


@_no_number
class SampleInfo(NamedTuple):
    """The sample that a per-sample callback is to return.

    All numbers count from 0. ``idx_in_epoch`` counts the samples of an epoch, ``idx_in_batch`` the samples of a batch,
    ``iteration`` the batches of an epoch, and ``epoch_idx`` the calls of `Pipeline.reset`. With shards,
    ``idx_in_epoch`` counts the samples of all ranks, and ``iteration`` the batches of this one.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int

    def rng(self) -> np.random.Generator:
        """Return a random generator for this sample.

        Its numbers depend only on the seed of the pipeline, the source, the epoch and the sample's index. They do not
        depend on the worker, the number of workers, the start method, or on a repetition after a restart. Each call
        starts the sequence again. Outside of a callback, the seed is 0.
        """
        seed, source = current_call.get().seeds
        return (_generator_for or _import_generators())(seed, source, self.epoch_idx, self.idx_in_epoch)

    def empty(self, shape: int | Iterable[int], dtype: Any = np.uint8, output: int = 0) -> NDArray[Any]:
        """Return an uninitialized array for the sample, in the memory of the batch if possible.

        A callback that decodes or reads into this array and returns it saves a copy. Only the first call for the
        current sample and output returns memory of the batch; other calls return ordinary arrays. Do not keep the
        array: its memory will hold other samples.

        Args:
            shape: of the sample.
            dtype: of the sample: a NumPy dtype, or a `DALIDataType`.
            output: the output of the source that the array is for.

        Raises:
            ArgumentError: the shape has a negative extent.
        """
        if not isinstance(shape, tuple):  # an iterator could be read only once
            shape = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        empty = current_call.get().empty
        place = None if empty is None else empty(self, output, shape, dtype)
        return np.empty(*plain_form(shape, dtype)) if place is None else place


def plain_form(shape: Iterable[Any], dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype in NumPy's terms.

    Raises:
        ArgumentError: the shape has a negative extent.
    """
    extents = tuple(map(operator.index, shape))
    if min(extents, default=0) < 0:
        raise ArgumentError(f"shape {extents} has a negative extent")
    return extents, np.dtype(_NUMPY_TYPES[dtype] if isinstance(dtype, DALIDataType) else dtype)


@_no_number
class BatchInfo(NamedTuple):
    """The batch that a batch callback is to return: its number in the epoch, and the number of the epoch.

    With shards, batches are numbered across all ranks.
    """

    iteration: int
    epoch_idx: int

    def rng(self) -> np.random.Generator:
        """Return a random generator for this batch; see `SampleInfo.rng`."""
        seed, source = current_call.get().seeds
        return (_generator_for or _import_generators())(seed, source, self.epoch_idx, self.iteration, 1)


#: `dali_like.position_seeds.generator_for`, from the first use on.
_generator_for: Callable[..., np.random.Generator] | None = None


def _import_generators() -> Callable[..., np.random.Generator]:
    global _generator_for  # noqa: PLW0603  # set once
    from dali_like.position_seeds import generator_for  # slow to import

    _generator_for = generator_for
    return generator_for


class _Constants(enum.IntEnum):
    """Base class with DALI's names. All members are true, as in DALI: even the first one in ``dtype or types.FLOAT``."""

    __str__ = enum.Enum.__str__

    def __bool__(self) -> bool:
        return True


class DALIDataType(_Constants):
    """The element types of tensors.

    ``OBJECT`` stands for any Python object; such outputs are lists. ``NO_TYPE`` as an argument counts as not given. From
    ``STRING`` on, the other members describe arguments of operators, as in DALI; tensors do not have them.
    """

    NO_TYPE = -1
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
    STRING = 12
    _BOOL_VEC = 13
    _INT32_VEC = 14
    _STRING_VEC = 15
    _FLOAT_VEC = 16
    FEATURE = 17
    _FEATURE_VEC = 18
    _FEATURE_DICT = 19
    IMAGE_TYPE = 20
    DATA_TYPE = 21
    INTERP_TYPE = 22
    TENSOR_LAYOUT = 23
    OBJECT = 24
    PYTHON_OBJECT = OBJECT
    _TENSOR_LAYOUT_VEC = 25
    _DATA_TYPE_VEC = 26


class DALIImageType(_Constants):
    """The color formats of decoded images. ``ANY_DATA`` keeps the channels of the file."""

    RGB = 0
    BGR = 1
    GRAY = 2
    YCbCr = 3
    ANY_DATA = 4


class DALIInterpType(_Constants):
    """Interpolation methods."""

    INTERP_NN = 0
    INTERP_LINEAR = 1
    INTERP_CUBIC = 2
    INTERP_LANCZOS3 = 3
    INTERP_TRIANGULAR = 4
    INTERP_GAUSSIAN = 5


class TensorLayout(str):
    """A layout, such as "HWC". Everything that takes a layout also takes a string."""

    __slots__ = ()


class CUDAStream:
    """The handle of a CUDA stream.

    Args:
        ptr: the handle, as a number.
    """

    def __init__(self, ptr: int = 0) -> None:
        self._ptr = ptr

    @property
    def ptr(self) -> int:
        """The handle."""
        return self._ptr


class PipelineAPIType(enum.Enum):
    """The ways to run a pipeline: by `run`, or by `schedule_run` and `outputs`. DALI's plugins use ``ITERATOR``."""

    BASIC = 0
    ITERATOR = 1
    SCHEDULED = 2


#: Value of a pipeline's ``device_id`` that stands for no GPU.
CPU_ONLY_DEVICE_ID = -99999

NO_TYPE = DALIDataType.NO_TYPE
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
STRING = DALIDataType.STRING
FEATURE = DALIDataType.FEATURE
IMAGE_TYPE = DALIDataType.IMAGE_TYPE
DATA_TYPE = DALIDataType.DATA_TYPE
INTERP_TYPE = DALIDataType.INTERP_TYPE
TENSOR_LAYOUT = DALIDataType.TENSOR_LAYOUT
OBJECT = DALIDataType.OBJECT
PYTHON_OBJECT = DALIDataType.PYTHON_OBJECT

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

#: Older names of layouts; SAME keeps the layout of the input.
NCHW = "CHW"
NHWC = "HWC"
NFHWC = "FHWC"
NFCHW = "FCHW"
SAME = ""

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
_DALI_TYPES = {dtype: dali_type for dali_type, dtype in _NUMPY_TYPES.items() if dali_type is not OBJECT}


def to_numpy_type(dtype: DALIDataType | int) -> type[np.generic]:
    """Return the NumPy scalar type of a `DALIDataType`, which NumPy also accepts as a dtype.

    >>> to_numpy_type(FLOAT)
    <class 'numpy.float32'>
    """
    return numpy_dtype(dtype).type


def numpy_dtype(dtype: DALIDataType | int) -> np.dtype[Any]:
    """Return the NumPy dtype of a `DALIDataType`."""
    return _NUMPY_TYPES[DALIDataType(dtype)]


def to_dali_type(dtype: Any) -> DALIDataType:
    """Return the `DALIDataType` of a data type: one of ours, a NumPy or PyTorch dtype, its name, or a scalar type.

    Raises:
        ArgumentError: `dtype` is not a data type, or not one of tensors.

    >>> to_dali_type("uint8") is UINT8
    True
    """
    if isinstance(dtype, np.dtype) and (found := _DALI_TYPES.get(dtype)) is not None:
        return found
    if isinstance(dtype, DALIDataType) and dtype in _NUMPY_TYPES:
        return dtype
    try:
        # NumPy reads None as float64, and does not know PyTorch's dtypes.
        name = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
        return _DALI_TYPES[np.dtype("O" if name is None else name).newbyteorder("=")]
    except (TypeError, KeyError):
        names = ", ".join(member.name for member in _DALI_TYPES.values())
        kind = ArgumentClashError if isinstance(dtype, int) else ArgumentTypeError
        raise kind(f"{dtype!r} is not a data type of tensors; use one of {names}") from None
