"""Iterators over pipelines that yield tensors of PaddlePaddle, as in ``nvidia.dali.plugin.paddle`` 1.53.

>>> from dali_like.plugin.paddle import DALIGenericIterator  # instead of nvidia.dali.plugin.paddle

The tensors are ``paddle.framework.core.DenseTensor``, formerly ``LoDTensor``: `feed` of an executor takes them, and
``paddle.to_tensor`` makes a ``paddle.Tensor`` of them. PaddlePaddle is imported when an iterator is made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dali_like.common.checks import is_int
from dali_like.common.extras import optional
from dali_like.common.suggestions import suggest_arguments
from dali_like.errors import IteratorArgumentError, RaggedError
from dali_like.pipeline.pipeline import Pipeline
from dali_like.plugin._outputs import exportable
from dali_like.plugin.base_iterator import BaseIterator
from dali_like.plugin.classification import ClassificationIterator
from dali_like.plugin.epoch_progress import LastBatchPolicy
from dali_like.tensors import TensorCPU, TensorListCPU
from dali_like.types import DALIDataType

__all__ = [
    "DALIClassificationIterator",
    "DALIGenericIterator",
    "LastBatchPolicy",
    "feed_ndarray",
    "lod_tensor_clip",
    "recursive_length",
    "to_paddle_type",
]

_TYPES = {
    DALIDataType.BOOL: "BOOL",
    DALIDataType.FLOAT: "FP32",
    DALIDataType.FLOAT64: "FP64",
    DALIDataType.FLOAT16: "FP16",
    DALIDataType.UINT8: "UINT8",
    DALIDataType.INT8: "INT8",
    DALIDataType.INT16: "INT16",
    DALIDataType.INT32: "INT32",
    DALIDataType.INT64: "INT64",
}


def __getattr__(name: str) -> Any:
    """Return `dtype_map`, from DALI's dtypes to PaddlePaddle's, which needs PaddlePaddle."""
    if name == "dtype_map":
        kinds = _core().VarDesc.VarType
        return {dtype: getattr(kinds, kind) for dtype, kind in _TYPES.items()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def _core() -> Any:
    return optional("paddle", "dali_like.plugin.paddle", "paddle").framework.core


def to_paddle_type(tensor: Any) -> Any:
    """Return the type of a tensor or batch, as ``paddle.framework.core.VarDesc.VarType``.

    Raises:
        IteratorArgumentError: PaddlePaddle has no such type.
    """
    if tensor.dtype not in _TYPES:
        raise IteratorArgumentError(f"PaddlePaddle has no tensors of {tensor.dtype.name}: use fn.cast in the pipeline")
    return getattr(_core().VarDesc.VarType, _TYPES[tensor.dtype])


def feed_ndarray(dali_tensor: Any, ptr: int, cuda_stream: Any = None) -> int:
    """Copy the elements of a tensor, or of the samples of a batch one after the other, to an address.

    Args:
        dali_tensor: the source.
        ptr: the address of a PaddlePaddle tensor with room for them, on the same device.
        cuda_stream: a stream for an asynchronous copy; without effect on the CPU.

    Returns:
        `ptr`.

    Raises:
        ArgumentError: the address is null.
    """
    target = ctypes.c_void_p(ptr)
    if isinstance(dali_tensor, (TensorCPU, TensorListCPU)):
        dali_tensor.copy_to_external(target)
    else:
        dali_tensor.copy_to_external(target, cuda_stream, non_blocking=cuda_stream is not None)
    return ptr


def recursive_length(tensor: Any, lod_level: int) -> list[list[int]]:
    """Return the lengths of nested sequences, level by level.

    Args:
        tensor: a batch, whose first level is the number of samples; or a tensor, an array, or a shape.
        lod_level: the number of levels.
    """
    lengths: list[list[int]] = [[] for _ in range(lod_level)]
    if is_batch := hasattr(tensor, "at"):
        shapes = tensor.shape()
        lengths[0].append(len(tensor))
    else:
        shape = getattr(tensor, "shape", tensor)
        shapes = [shape() if callable(shape) else shape]
    for shape in shapes:
        parents = 1
        for level, extent in zip(lengths[is_batch:], shape, strict=False):
            level.extend([extent] * parents)
            parents *= extent
    return lengths


def lod_tensor_clip(lod_tensor: Any, size: int) -> Any:
    """Return a copy of the first samples of a tensor, in host memory, with the lengths of their sequences.

    Args:
        lod_tensor: a ``paddle.framework.core.DenseTensor``.
        size: the number of samples.
    """
    levels, count = [], size
    for offsets in lod_tensor.lod():
        levels.append(np.diff(offsets[: count + 1]).tolist())
        count = offsets[count]
    core = _core()
    clipped = core.DenseTensor()
    clipped.set(np.array(lod_tensor)[:count], core.CPUPlace())
    clipped.set_recursive_sequence_lengths(levels)
    return clipped


class _Output:
    """An output, and how many of its samples count. A slice returns the first ones."""

    def __init__(self, batch: Any, count: int) -> None:
        self.batch = batch
        self.count = count

    def __getitem__(self, samples: slice) -> _Output:
        return _Output(self.batch, samples.stop)


class DALIGenericIterator(BaseIterator[Any, list[dict[str, Any]]]):
    """Yields batches as a list with one dict per pipeline, from the names of outputs to tensors of PaddlePaddle.

    The tensors are on the device of the outputs, and views of the batch, which is not overwritten while they are alive.
    All samples of an output must have one shape within a batch, unless the output has a level of detail. Outputs of Python
    objects are lists.

    See `BaseIterator` for the other arguments and errors. Follows ``nvidia.dali.plugin.paddle.DALIGenericIterator`` 1.53.

    Args:
        output_map: a name for each output of the pipelines, or a pair of a name and a level of detail (LoD). With the level
            n, the first n dimensions of the samples may differ. The samples are then concatenated, with these dimensions
            as one, and `lod()` of the tensor has n levels.

    Raises:
        IteratorArgumentError: a level of detail is not an integer from 0 on. In ``next``: samples have fewer dimensions than
            the level of detail, or a type that PaddlePaddle lacks.
        RaggedError: in ``next``: samples differ in more dimensions than the level of detail. The batch is lost.
        MissingExtraError: PaddlePaddle is not installed.
    """

    @suggest_arguments
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str | tuple[str, int]],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: bool | str | None = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: Any = False,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
        *,
        progress: bool | str = False,
    ) -> None:
        self._core = _core()
        names, self._levels = _names_and_levels(output_map)
        super().__init__(
            pipelines,
            names,
            size,
            reader_name,
            auto_reset,
            fill_last_batch,
            dynamic_shape,
            last_batch_padded,
            last_batch_policy,
            prepare_first_batch,
            progress=progress,
        )

    def _convert(self, name: str, output: TensorListCPU) -> _Output:
        return _Output(output, len(output))

    def _combine(self, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {name: self._tensor_of(name, value) if isinstance(value, _Output) else value for name, value in batch.items()}
            for batch in batches
        ]

    def _tensor_of(self, name: str, output: _Output) -> Any:
        batch, count, level = output.batch, output.count, self._levels[name]
        to_paddle_type(batch)
        if count < len(batch):
            batch = type(batch)([batch[i] for i in range(count)])
        shapes = batch.shape()
        if len({shape[level:] for shape in shapes}) > 1:
            raise RaggedError(
                f"the samples of output {name!r} have different shapes, such as {min(shapes)} and {max(shapes)}, and cannot "
                f"form one tensor. Give them one shape in the pipeline, or the output a level of detail: ({name!r}, "
                f"{len(shapes[0])}) if all dimensions differ"
            )
        if level == 0:
            return self._view_of(batch.as_tensor())
        if shapes and len(shapes[0]) < level:
            raise IteratorArgumentError(
                f"output_map: the samples of output {name!r} have {len(shapes[0])} dimensions, fewer than its level of "
                f"detail {level}"
            )
        lengths = recursive_length(batch, level + 1)[1:]
        tensor = self._view_of(batch.as_reshaped_tensor([sum(lengths[-1]), *shapes[0][level:]]))
        tensor.set_recursive_sequence_lengths(lengths)
        return tensor

    def _view_of(self, tensor: Any) -> Any:
        return self._core.from_dlpack(exportable(tensor).__dlpack__())


class DALIClassificationIterator(ClassificationIterator, DALIGenericIterator):
    """A `DALIGenericIterator` for pipelines of two outputs, with the names "data" and "label".

    See `BaseIterator` for arguments and errors; there is no `output_map`. Follows
    ``nvidia.dali.plugin.paddle.DALIClassificationIterator`` 1.53.
    """


def _names_and_levels(output_map: Any) -> tuple[Any, Mapping[str, int]]:
    """Return the names of the outputs, and their levels of detail."""
    if isinstance(output_map, str):
        return output_map, {}  # an error of the base class
    pairs = [(each, 0) if isinstance(each, str) else tuple(each) for each in output_map]
    for pair in pairs:
        if len(pair) != 2 or not is_int(pair[1]) or pair[1] < 0:
            raise IteratorArgumentError(
                f"output_map must have names, or pairs of a name and a level of detail from 0 on, not {pair!r}"
            )
    return [name for name, _ in pairs], dict(pairs)
