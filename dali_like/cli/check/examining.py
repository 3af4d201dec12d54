"""The properties of one sample. The worker that computes the sample finds them, and sends only them."""

from __future__ import annotations

import hashlib
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dali_like.common.nesting import leaves_of

#: Bytes of a sample's digest: of a billion different samples, two have the same one with a probability of 3 %.
_DIGEST_BYTES = 8
#: Errors are cut to this number of characters.
_MOST_TEXT = 200


class SampleItem(NamedTuple):
    """An array, number or text in a sample.

    Attributes:
        path: its place: ``image``, ``[0]``, ``boxes[2]``; "" if it is the whole sample.
        dtype: of an array, or the type of another object.
        shape: of an array; None for other objects.
        is_empty: whether it has no elements.
        is_finite: False if it has NaN or infinite elements.
    """

    path: str
    dtype: str
    shape: tuple[int, ...] | None
    is_empty: bool
    is_finite: bool


@dataclass(frozen=True, slots=True)
class Examined:
    """One sample.

    Attributes:
        index: in the dataset, or in the order of delivery.
        duration_s: of its computation; None: unknown.
        items: its arrays, numbers and texts.
        digest: of its content: of all but numbers, if there is anything else; None if it cannot be read.
        error: the exception, with its line; None if nothing was raised.
        file: the file that could not be read, if it names one.
    """

    index: int
    duration_s: float | None = None
    items: tuple[SampleItem, ...] = ()
    digest: int | None = None
    error: str | None = None
    file: str | None = None


class ExaminedSamples:
    """A map-style dataset of examined samples, for the workers of a loader.

    Args:
        compute: returns the sample of an index.
    """

    def __init__(self, compute: Callable[[int], Any], length: int) -> None:
        self._compute = compute
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Examined:
        begin_s = time.perf_counter()
        try:
            sample = self._compute(index)
        except Exception as error:  # the check reports any
            return failed(index, error)
        return examine(index, sample, time.perf_counter() - begin_s)


def examined(samples: Iterator[Any], index: int = 0, step: int = 1) -> Iterator[Examined]:
    """Examine the samples of an iterator, up to its end or its first exception."""
    while True:
        begin_s = time.perf_counter()
        try:
            sample = next(samples)
        except StopIteration:
            return
        except Exception as error:  # the check reports any; the iterator may not continue
            yield failed(index, error)
            return
        yield examine(index, sample, time.perf_counter() - begin_s)
        index += step


def examine(index: int, sample: Any, duration_s: float | None = None) -> Examined:
    """Examine a sample."""
    items: list[SampleItem] = []
    content, numbers = hashlib.blake2b(digest_size=_DIGEST_BYTES), hashlib.blake2b(digest_size=_DIGEST_BYTES)
    has_content, is_readable = False, True
    for path, value in leaves_of(sample):
        found, data, is_number = _read(path, value)
        items.append(found)
        if data is None:
            is_readable = False
            continue
        has_content = has_content or not is_number
        for hashed in (numbers,) if is_number else (content, numbers):
            hashed.update(f"{found.path}\0{found.dtype}\0{found.shape}\0".encode())
            hashed.update(data)
    digest = int.from_bytes((content if has_content else numbers).digest(), "little") if is_readable and items else None
    return Examined(index, duration_s, tuple(items), digest)


def failed(index: int, error: Exception) -> Examined:
    """Describe a sample that has raised."""
    frames = traceback.extract_tb(error.__traceback__)
    line = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = str(error).partition("\n")[0][:_MOST_TEXT]
    file = getattr(error, "filename", None) if isinstance(error, OSError) else None
    return Examined(index, error=f"{type(error).__name__}: {text}{line}", file=None if file is None else str(file))


def _read(path: str, value: Any) -> tuple[SampleItem, Any, bool]:
    """Return the properties of a part of a sample; its bytes, or None without any; and whether it is a number."""
    kind = type(value).__name__
    if isinstance(value, str | bytes | bytearray):
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return SampleItem(path, kind, None, not value, is_finite=True), data, False
    if value is None or isinstance(value, bool | int):
        return SampleItem(path, kind, None, is_empty=False, is_finite=True), repr(value).encode(), True
    array = _array_of(value)
    if array is None:
        return SampleItem(path, kind, None, is_empty=False, is_finite=True), None, False
    is_finite = array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
    dtype = kind if isinstance(value, float) else str(array.dtype)
    return (
        SampleItem(path, dtype, array.shape, not array.size, is_finite),
        np.ascontiguousarray(array).tobytes(),
        not array.ndim,
    )


def _array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """Return a value as an array; None if its elements are objects."""
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except Exception:  # an object that is not convertible has no bytes to compare
        return None
    return None if array.dtype.kind == "O" else array
