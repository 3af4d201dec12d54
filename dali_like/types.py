"""Data types, image types, and what a callback is told about its sample.

Names and values follow ``nvidia.dali.types`` 1.53, so that a program changes only its import.
"""

from __future__ import annotations

import enum
import importlib
import operator
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError

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
    "NCHW",
    "NFCHW",
    "NFHWC",
    "NHWC",
    "NO_TYPE",
    "OBJECT",
    "RGB",
    "SAME",
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


if TYPE_CHECKING:
    from dali_like.graph.constants import Constant, ScalarConstant
else:

    def __getattr__(name: str) -> Any:
        """What is made of the types here, and has the same place in DALI."""
        if name in ("Constant", "ScalarConstant"):
            return getattr(importlib.import_module("dali_like.graph.constants"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


class CallContext(NamedTuple):
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
current_call: ContextVar[CallContext] = ContextVar("dali_like_call", default=CallContext())  # noqa: B039  # a NamedTuple is immutable


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
        if not isinstance(shape, tuple):  # what can be gone through only once becomes what can be gone through again
            shape = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        empty = current_call.get().empty
        place = None if empty is None else empty(self, output, shape, dtype)
        return np.empty(*plain_form(shape, dtype)) if place is None else place


def plain_form(shape: Iterable[Any], dtype: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The extents and the dtype of an array in whatever form a callback gives them, as NumPy has them.

    Raises:
        ArgumentError: the shape has a negative extent.
    """
    extents = tuple(map(operator.index, shape))
    if min(extents, default=0) < 0:
        raise ArgumentError(f"no array has the shape {extents}")
    return extents, np.dtype(_NUMPY_TYPES[dtype] if isinstance(dtype, DALIDataType) else dtype)


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


class _Constants(enum.IntEnum):
    """Named as DALI names its own, and all true, as there: the first one, too, in ``dtype or types.FLOAT``."""

    __str__ = enum.Enum.__str__

    def __bool__(self) -> bool:
        return True


class DALIDataType(_Constants):
    """The element types of tensors. ``OBJECT`` stands for any Python object; such outputs come as lists.

    ``NO_TYPE`` is none; as an argument, it counts as not given.
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
    OBJECT = 24


class DALIImageType(_Constants):
    """The colour formats of decoded images. ``ANY_DATA`` keeps the channels that the file has."""

    RGB = 0
    BGR = 1
    GRAY = 2
    YCbCr = 3
    ANY_DATA = 4


class DALIInterpType(_Constants):
    """How values between pixels are made."""

    INTERP_NN = 0
    INTERP_LINEAR = 1
    INTERP_CUBIC = 2
    INTERP_LANCZOS3 = 3
    INTERP_TRIANGULAR = 4
    INTERP_GAUSSIAN = 5


class PipelineAPIType(enum.Enum):
    """The ways to run a pipeline: by `run`, or by `schedule_run` and `outputs`. ``ITERATOR`` is that of DALI's plugins."""

    BASIC = 0
    ITERATOR = 1
    SCHEDULED = 2


#: As a pipeline's ``device_id``: none.
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

#: Older names of layouts; SAME is that of the input.
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
    """The type of NumPy's scalars of a `DALIDataType`, which stands for their dtype, too.

    >>> to_numpy_type(FLOAT)
    <class 'numpy.float32'>
    """
    return numpy_dtype(dtype).type


def numpy_dtype(dtype: DALIDataType | int) -> np.dtype[Any]:
    """The NumPy dtype of a `DALIDataType`."""
    return _NUMPY_TYPES[DALIDataType(dtype)]


def to_dali_type(dtype: Any) -> DALIDataType:
    """The `DALIDataType` of what names a data type: one of our own, a dtype of NumPy or PyTorch, its name, a scalar type.

    Raises:
        ArgumentError: `dtype` is not a data type, or one that tensors cannot have.

    >>> to_dali_type("uint8") is UINT8
    True
    """
    if isinstance(dtype, DALIDataType) and dtype is not NO_TYPE:
        return dtype
    try:
        # NumPy takes None for float64, and does not know PyTorch's.
        name = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
        return _DALI_TYPES[np.dtype("O" if name is None else name).newbyteorder("=")]
    except (TypeError, KeyError):
        names = ", ".join(member.name for member in _DALI_TYPES.values())
        kind = ArgumentClashError if isinstance(dtype, int) else ArgumentTypeError
        raise kind(f"{dtype!r} is not a data type of tensors; those are {names}") from None
