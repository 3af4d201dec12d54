"""``nvidia.dali.ops.experimental``. Written by tools.operator_stubs from the descriptions of the operators; do not edit."""

from collections.abc import Callable
from collections.abc import Sequence as _Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dali_like.graph.nodes import DataNode
from dali_like.types import Constant as _Fixed
from dali_like.types import DALIDataType, DALIImageType, DALIInterpType
from dali_like.ops.experimental import decoders as decoders
from dali_like.ops.experimental import inputs as inputs
from dali_like.ops.experimental import readers as readers

_Constant: TypeAlias = _Fixed | float | _Sequence[float] | NDArray[Any]
_Ints: TypeAlias = int | _Sequence[int] | NDArray[Any]
_Floats: TypeAlias = float | _Sequence[float] | NDArray[Any]
_Strings: TypeAlias = str | _Sequence[str]
_DataType: TypeAlias = DALIDataType | np.dtype[Any] | type | str

class PeekImageShape:
    """Return the shapes that encoded images have after decoding. Reads only their headers.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        image_type: color format, as `output_type` of the decoder.
        dtype: data type of the result: INT32, UINT32, INT64, UINT64, FLOAT or FLOAT64.
        adjust_orientation: whether the decoder turns images upright.

    Returns:
        (height, width, channels).
    """
    def __init__(
        self,
        *,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        adjust_orientation: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        data: DataNode | _Constant,
        /,
        *,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        adjust_orientation: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        data: _Sequence[DataNode],
        /,
        *,
        image_type: DALIImageType = ...,
        dtype: _DataType = ...,
        adjust_orientation: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class Inflate:
    """Decompress arrays that were compressed with LZ4, as a whole or in chunks. Requires the package lz4.

    Args:
        input: one-dimensional uint8 arrays of compressed data: LZ4 blocks, or frames, which DALI does not accept.
        shape: shape of the decompressed array, or of each chunk of it.
        dtype: data type of the decompressed array.
        chunk_sizes: sizes of the chunks, in bytes. Default: each chunk ends where the next one begins.
        chunk_offsets: positions of the chunks, in bytes. Default: each chunk begins where the one before ends.
        algorithm: the method of compression.
        layout: layout of the decompressed array, or of each chunk of it.
        sequence_axis_name: letter of the dimension that counts the chunks; used if there is a `layout`.

    Returns:
        The decompressed array. With `chunk_sizes` or `chunk_offsets` its first dimension counts the chunks.
    """
    def __init__(
        self,
        *,
        shape: _Ints | DataNode = ...,
        dtype: _DataType = ...,
        chunk_sizes: _Ints | DataNode | None = ...,
        chunk_offsets: _Ints | DataNode | None = ...,
        algorithm: Literal["LZ4"] = ...,
        layout: str = ...,
        sequence_axis_name: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        input: DataNode | _Constant,
        /,
        *,
        shape: _Ints | DataNode = ...,
        dtype: _DataType = ...,
        chunk_sizes: _Ints | DataNode | None = ...,
        chunk_offsets: _Ints | DataNode | None = ...,
        algorithm: Literal["LZ4"] = ...,
        layout: str = ...,
        sequence_axis_name: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> DataNode:
        ...
    
    @overload
    def __call__(
        self,
        input: _Sequence[DataNode],
        /,
        *,
        shape: _Ints | DataNode = ...,
        dtype: _DataType = ...,
        chunk_sizes: _Ints | DataNode | None = ...,
        chunk_offsets: _Ints | DataNode | None = ...,
        algorithm: Literal["LZ4"] = ...,
        layout: str = ...,
        sequence_axis_name: str = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
    ) -> list[DataNode]:
        ...
    

class NumbaFunction:
    """Call a function that Numba compiles at its first call. Requires the package numba.

    Workers and threads call it, unless it processes batches. It releases the GIL.

    Args:
        inputs: arrays of `in_types` with `ins_ndim` dimensions.
        run_fn: function that Numba can compile in nopython mode. It receives the outputs, then the inputs, and writes into
            the outputs. These are arrays; with `batch_processing`, lists with an array for each sample.
        out_types: data types of the outputs.
        in_types: data types of the inputs.
        outs_ndim: number of dimensions of each output.
        ins_ndim: number of dimensions of each input.
        setup_fn: function that defines the shapes of the outputs. It receives ``outs`` and ``ins``, and writes
            ``outs[output][sample][dimension]``; ``ins`` has the shapes of the inputs. Default: each output has the shape of
            the input with the same number.
        batch_processing: whether `run_fn` is called once per batch, in the main process.
    """
    def __init__(
        self,
        *,
        run_fn: Callable[..., Any] = ...,
        out_types: Any = ...,
        in_types: Any = ...,
        outs_ndim: Any = ...,
        ins_ndim: Any = ...,
        setup_fn: Callable[..., Any] | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        blocks: Any = ...,
        threads_per_block: Any = ...,
    ) -> None: ...
    @overload
    def __call__(
        self,
        *inputs: DataNode | _Fixed | float,
        run_fn: Callable[..., Any] = ...,
        out_types: Any = ...,
        in_types: Any = ...,
        outs_ndim: Any = ...,
        ins_ndim: Any = ...,
        setup_fn: Callable[..., Any] | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        blocks: Any = ...,
        threads_per_block: Any = ...,
    ) -> Any:
        ...
    
    @overload
    def __call__(
        self,
        *inputs: _Sequence[DataNode],
        run_fn: Callable[..., Any] = ...,
        out_types: Any = ...,
        in_types: Any = ...,
        outs_ndim: Any = ...,
        ins_ndim: Any = ...,
        setup_fn: Callable[..., Any] | None = ...,
        batch_processing: bool = ...,
        device: str | None = ...,
        name: str | None = ...,
        preserve: bool = ...,
        bytes_per_sample_hint: Any = ...,
        blocks: Any = ...,
        threads_per_block: Any = ...,
    ) -> list[Any]:
        ...
    
