"""The columns of a batch: for each place in a sample, the values of all samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dali_like.common.nesting import parts_of
from dali_like.errors import ArgumentTypeError

#: The number of channels of a picture.
CHANNELS = (1, 3, 4)


class BatchColumn(NamedTuple):
    """The values of one place of the samples.

    Attributes:
        name: ``image``, ``0``, ``boxes.left``: the place in a sample; "" if a sample is one value.
        values: of the samples: arrays, texts, or other objects.
        layout: a letter for each dimension of a value, such as "HWC"; "" if it is unknown.
    """

    name: str
    values: Sequence[Any]
    layout: str = ""


def columns_of(batch: Any) -> list[BatchColumn]:
    """Return the columns of a batch of a pipeline or loader, or of a list of samples.

    Raises:
        ArgumentTypeError: it holds other objects, or is a single number or text.
    """
    if (column := _whole(batch, "")) is not None:
        return [column]
    return list(_columns(batch, ""))


def _columns(batch: Any, name: str) -> Iterator[BatchColumn]:
    if (column := _whole(batch, name)) is not None:
        yield column
        return
    if (parts := parts_of(batch)) is None:
        raise ArgumentTypeError(
            f"{name or 'the batch'} is of type {type(batch).__qualname__}; arrays, tensors, TensorLists, lists of samples, "
            "and nested tuples and dicts of them can be shown"
        )
    if isinstance(batch, list) and batch and _are_samples(batch):
        yield from _transposed(batch, name)
        return
    for key, part in parts:
        yield from _columns(part, f"{name}.{key}" if name else str(key))


def _whole(batch: Any, name: str) -> BatchColumn | None:
    """Return a value that holds all samples of a place as a column; None for a container of such values."""
    if callable(getattr(batch, "as_cpu", None)):  # a TensorList, on the CPU or the GPU
        on_cpu = batch.as_cpu()
        layout = on_cpu.layout() if callable(getattr(on_cpu, "layout", None)) else ""
        return BatchColumn(name, [np.asarray(on_cpu.at(number)) for number in range(len(on_cpu))], layout or "")
    if hasattr(batch, "offsets") and callable(getattr(batch, "values", None)):  # a jagged tensor of PyTorch
        return BatchColumn(name, [array_of(part) for part in batch.unbind()])
    array = array_of(batch)
    if array is not None and array.ndim:
        return BatchColumn(name, [np.asarray(value) for value in array])
    if isinstance(batch, list | tuple) and batch and all(isinstance(part, str | bytes) for part in batch):
        return BatchColumn(name, list(batch))
    return None


def _are_samples(parts: list[Any]) -> bool:
    """Return whether the parts of a list are samples; otherwise they are columns, as of PyTorch's collation."""
    arrays = [array_of(part) for part in parts]
    if not all(array is not None for array in arrays):
        return all(parts_of(part) is not None for part in parts) and len({_structure(part) for part in parts}) == 1
    shapes = [array.shape for array in arrays if array is not None]
    if not all(shapes) or len({len(shape) for shape in shapes}) > 1:
        return all(not shape for shape in shapes)
    are_pictures = len(shapes[0]) == 2 or (
        len(shapes[0]) == 3 and all({shape[0], shape[2]} & {*CHANNELS} for shape in shapes)
    )
    return are_pictures or len({shape[0] for shape in shapes}) > 1


def _structure(value: Any) -> tuple[Any, ...]:
    """Return the type and the names of a sample's parts."""
    return type(value), *(str(key) for key, _ in parts_of(value) or ())


def _transposed(samples: list[Any], name: str) -> Iterator[BatchColumn]:
    """Yield the columns of a list of samples of one structure."""
    parts = parts_of(samples[0])
    if parts is None or array_of(samples[0]) is not None:
        arrays = [array_of(sample) for sample in samples]
        yield BatchColumn(name, [sample if array is None else array for sample, array in zip(samples, arrays, strict=True)])
        return
    for number, (key, _) in enumerate(parts):
        values = [(parts_of(sample) or [])[number][1] for sample in samples]
        yield from _transposed(values, f"{name}.{key}" if name else str(key))


def array_of(value: Any) -> np.ndarray[Any, Any] | None:
    """Return an array, a tensor or a number as an array on the CPU; None for other objects."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.kind == "O" else value
    if callable(getattr(value, "detach", None)):  # a tensor of PyTorch
        tensor = value.detach().cpu()
        return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
    if isinstance(value, int | float | np.generic):
        return np.asarray(value)
    if hasattr(value, "__array__") and not isinstance(value, list | tuple):
        array = np.asarray(value)
        return None if array.dtype.kind == "O" else array
    return None
