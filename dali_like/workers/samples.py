"""What a callback may return, and how it becomes arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dali_like.errors import DtypeMismatchError, NdimMismatchError, OutputCountError, SampleDtypeError, SampleTypeError
from dali_like.types import SampleInfo
from dali_like.workers.protocol import DTYPE_CODES, DTYPES, MAX_NDIM, UNKNOWN


@dataclass(frozen=True)
class Source:
    """Where the samples of one external source come from, as the engine sees it.

    Attributes:
        name: how messages call the source.
        callback: makes one sample.
        num_outputs: how many arrays make a sample; None where the callback returns the array itself.
        on_error: what happens when the callback raises, or returns what cannot be delivered: "raise"; "skip", the sample of
            the next index that succeeds stands in; or a callable that is given the SampleInfo and the exception and returns
            what stands in.
        worker_setup: called in each worker before its first sample, and where there are no workers, once.
        worker_teardown: called in each worker when it is told to end, and where there are no workers, when the pipeline is
            closed.
        seeds: what `SampleInfo.rng` depends on besides the sample: the pipeline's seed, and the number of the source.
    """

    name: str
    callback: Callable[[SampleInfo], Any]
    num_outputs: int | None = None
    on_error: str | Callable[[SampleInfo, Exception], Any] = "raise"
    worker_setup: Callable[[], Any] | None = None
    worker_teardown: Callable[[], Any] | None = None
    seeds: tuple[int, int] = (0, 0)

    @property
    def output_count(self) -> int:
        """The number of outputs: 1 where `num_outputs` is None."""
        return 1 if self.num_outputs is None else self.num_outputs


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
        raise kind(
            f"{source.name} returned {_describe(sample)}; with num_outputs={source.num_outputs} a sample is a tuple or "
            f"list of {source.num_outputs} arrays"
        )
    if len(sample) != source.num_outputs:
        raise OutputCountError(
            f"{source.name} returned {len(sample)} outputs; num_outputs={source.num_outputs} says {source.num_outputs}"
        )
    return sample


def as_array(value: Any, source: Source, output: int) -> NDArray[Any]:
    """One output of a sample as an array on the CPU, of native byte order and of one of `DTYPES`.

    Accepted are NumPy arrays and scalars, Python numbers, and whatever offers the array interface, ``__array__`` or DLPack
    on the CPU, tensors of PyTorch and JAX among them. The array may be a view of the value.

    Raises:
        SampleTypeError: anything else.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, (np.generic, bool, int, float)):
        array = np.asarray(value)
    else:
        array = _import_array(value, source, output)
    if array.dtype not in DTYPE_CODES:
        native = array.dtype.newbyteorder("=")
        if native not in DTYPE_CODES:
            raise SampleDtypeError(
                f"{source.name} returned {_describe(value)} in output {output}: tensors cannot have that dtype"
            )
        array = array.astype(native)
    if array.ndim > MAX_NDIM:
        _refuse(value, source, output, f"an array of {array.ndim} dimensions; at most {MAX_NDIM} are supported")
    return array


def check_array(array: NDArray[Any], dtype: int, ndim: int, source: Source, output: int) -> None:
    """Compare an array with what was declared for the output, or seen before; UNKNOWN stands for anything.

    Raises:
        DtypeMismatchError, NdimMismatchError: it differs.
    """
    if dtype not in (UNKNOWN, DTYPE_CODES[array.dtype]):
        raise DtypeMismatchError(dtype_text(source, output, DTYPES[dtype], array.dtype))
    if ndim not in (UNKNOWN, array.ndim):
        raise NdimMismatchError(ndim_text(source, output, ndim, array.ndim))


def dtype_text(source: Source, output: int, expected: np.dtype[Any], got: np.dtype[Any]) -> str:
    """The message for a dtype that differs."""
    return f"{source.name} returned data of type {got} in output {output}; declared or seen before: {expected}"


def ndim_text(source: Source, output: int, expected: int, got: int) -> str:
    """The message for a number of dimensions that differs."""
    return f"{source.name} returned data with {got} dimensions in output {output}; declared or seen before: {expected}"


def _import_array(value: Any, source: Source, output: int) -> NDArray[Any]:
    if value is None:
        _refuse(value, source, output, "None; does every way through the callback end in a return?")
    _refuse_unawaited(value, source)
    if isinstance(value, (list, tuple)):
        _refuse(
            value,
            source,
            output,
            "a list or tuple; wrap it in np.array(), or say num_outputs= if it is several outputs",
        )
    if isinstance(value, (str, bytes, bytearray, dict)):
        _refuse(value, source, output, "not an array; bytes become one with np.frombuffer(data, np.uint8)")
    if hasattr(value, "__cuda_array_interface__") or getattr(value, "is_cuda", False):
        _refuse(value, source, output, "an array on a GPU; callbacks return CPU arrays, and .gpu() moves the batch")
    if not any(hasattr(value, name) for name in ("__array_interface__", "__array__", "__dlpack__")):
        _refuse(value, source, output, "not an array")
    try:
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        return np.from_dlpack(value)
    except Exception as error:
        raise SampleTypeError(
            f"{source.name} returned {_describe(value)} in output {output}, which NumPy cannot read: {error}"
        ) from error


def _refuse_unawaited(value: Any, source: Source) -> None:
    if inspect.iscoroutine(value):
        value.close()
        raise SampleTypeError(f"{source.name} returned a coroutine; callbacks are plain functions, not `async def`")


def _refuse(value: Any, source: Source, output: int, why: str) -> NoReturn:
    raise SampleTypeError(f"{source.name} returned {_describe(value)} in output {output}: {why}")


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
