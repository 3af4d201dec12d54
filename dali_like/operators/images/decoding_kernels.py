"""Kernels of operators that decode the files of a batch in one step. Those for images need the compiled loops.

See `dali_like.graph.language.batch_calls`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.engine.memory.ring import SampleList
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.graph.language.operator_interface import Array
from dali_like.images.decode import decoded_shape
from dali_like.images.header import SAMPLES_OF_SCANS, SCANS, file_facts
from dali_like.images.jpeg_windows import COLOR_FORMATS
from dali_like.operators.geometry.geometry import crop_window
from dali_like.operators.images._image_parts import image_slice_part
from dali_like.sources.readers.npy_header import parse_npy_header
from dali_like.types import ANY_DATA, GRAY, RGB, DALIImageType

_BYTE, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
#: Larger images are decoded one by one, after a look at the memory that is available.
_MOST_BYTES = 1 << 26
#: Longer headers of ``numpy.save`` are rare.
_NPY_HEADER_BYTES = 256


def _files_of(data: Samples) -> Sequence[Array] | None:
    """Return the bytes of each file; None if the samples are something else."""
    if data.dtype != np.uint8 or data.shapes.shape[1] != 1:
        return None
    return arrays_in(data.data)


def arrays_in(data: Any) -> Sequence[Array]:
    """Return each sample of a batch as an array."""
    if isinstance(data, SampleList):
        return data.arrays()
    arrays: Sequence[Array] = data
    return arrays


def peek_image_shape(
    call: BatchCall,
    data: Samples,
    *,
    image_type: DALIImageType = ANY_DATA,
    dtype: np.dtype[Any] = _INT64,
    adjust_orientation: bool = False,
) -> Any:
    """Serve ``fn.peek_image_shape`` for files with valid headers."""
    files = _files_of(data)
    if files is None:
        return None
    shapes = [decoded_shape(file, image_type, adjust_orientation) for file in files]
    if None in shapes:
        return None
    out = call.place((3,), dtype)
    out.data.reshape(call.count, 3)[:] = shapes
    return out.data


peek_shape_upright = functools.partial(peek_image_shape, image_type=RGB, adjust_orientation=True)


def decode_numpy(call: BatchCall, data: Samples, *, dtype: np.dtype[Any] | None = None) -> Any:
    """Serve ``fn.decoders.numpy`` for complete files with short headers."""
    files = _files_of(data)
    if files is None:
        return None
    try:
        headers = [parse_npy_header(file[:_NPY_HEADER_BYTES].tobytes()) for file in files]
    except ValueError:
        return None
    first = headers[0]
    if any(
        header.dtype != first.dtype or len(header.shape) != len(first.shape) or file.size < header.offset + header.nbytes
        for header, file in zip(headers, files, strict=True)
    ):
        return None
    shapes = np.array([header.shape for header in headers], np.int64).reshape(call.count, -1)
    made = call.lay_out(shapes, first.dtype.newbyteorder("=") if dtype is None else dtype)
    targets = made.reshape(-1, 1) if isinstance(made, np.ndarray) and made.ndim == 1 else arrays_in(made)

    def work(begin: int, stop: int) -> None:
        for i in range(begin, stop):
            header = headers[i]
            elements = files[i][header.offset : header.offset + header.nbytes].view(header.dtype)
            order: Any = "F" if header.fortran_order else "C"
            np.copyto(targets[i].reshape(header.shape), elements.reshape(header.shape, order=order), casting="unsafe")

    call.share(work)
    return made


#: Given the height and width of each image, returns top, left, height and width of each window.
_WindowsOf: TypeAlias = Callable[[Sequence[tuple[int, int]]], Sequence[Sequence[int]]]


def _sides_of(
    files: Sequence[Array], output_type: DALIImageType, limit_bytes: int, is_upright: bool
) -> tuple[list[tuple[int, int]], list[DALIImageType]] | None:
    """Return height and width of each image, and the color format of its pixels; None if the kernel does not serve one."""
    sides, kinds = [], []
    for file in files:
        facts = file_facts(file.data)
        if facts is None or facts.format != "jpeg" or facts.header is None or facts.ink != "none":
            return None
        _, height, width, channels, orientation = facts.header
        if (is_upright and orientation != 1) or height * width * 3 > min(limit_bytes, _MOST_BYTES):
            return None
        sides.append((height, width))
        kinds.append(output_type if output_type != ANY_DATA else GRAY if channels == 1 else RGB)
    return (sides, kinds) if COLOR_FORMATS.keys() >= set(kinds) else None


def _decoded(
    call: BatchCall,
    data: Samples,
    windows_of: _WindowsOf,
    output_type: DALIImageType,
    dtype: np.dtype[Any] | None,
    is_fast: bool,
    is_upright: bool,
) -> Any:
    """Decode windows of JPEGs; None if a file is of another kind, damaged or large."""
    files, compiled, limit_bytes = _files_of(data), kernels(), call.image_limit_bytes
    if files is None or compiled.decode_windows is None or dtype not in (None, _BYTE):
        return None
    found = _sides_of(files, output_type, limit_bytes, is_upright)
    if found is None:
        return None
    sides, kinds = found
    try:
        windows = np.array(windows_of(sides), np.int64)
    except DaliLikeError:
        return None
    if (windows < [0, 0, 1, 1]).any() or (windows[:, :2] + windows[:, 2:] > sides).any():
        return None
    shapes = np.array([(0, 0, 1 if kind == GRAY else 3) for kind in kinds], np.int64)
    shapes[:, :2] = windows[:, 2:]
    out, jobs = call.place(shapes, _BYTE), np.empty((call.count, 13), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2] = [*map(address_of, files)], [file.size for file in files], out.addresses
    jobs[:, 3:7], jobs[:, 7], jobs[:, 8] = windows, 1, [COLOR_FORMATS[kind] for kind in kinds]
    jobs[:, 9:] = is_fast, limit_bytes // 3, SCANS, SAMPLES_OF_SCANS // 3
    first, row_bytes = address_of(jobs), jobs.strides[0]
    failed = call.share(lambda begin, stop: compiled.decode_windows(stop - begin, first + row_bytes * begin))
    return None if failed else out.data


def image(
    call: BatchCall,
    data: Samples,
    *,
    output_type: DALIImageType = RGB,
    dtype: np.dtype[Any] | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
    min_size: Any = None,
) -> Any:
    """Serve ``fn.decoders.image`` for JPEGs at full size."""
    if min_size is not None:
        return None

    def whole(sides: Sequence[tuple[int, int]]) -> Sequence[Sequence[int]]:
        return [(0, 0, *each) for each in sides]

    return _decoded(call, data, whole, output_type, dtype, use_fast_idct, adjust_orientation)


def image_of_any_depth(
    call: BatchCall,
    data: Samples,
    *,
    output_type: DALIImageType = RGB,
    dtype: np.dtype[Any] = _BYTE,
    adjust_orientation: bool = True,
    use_fast_idct: bool = False,
) -> Any:
    """Serve ``fn.experimental.decoders.image`` for JPEGs."""
    form: Any = {"output_type": output_type, "dtype": dtype, "use_fast_idct": use_fast_idct}
    return image(call, data, adjust_orientation=adjust_orientation, **form)


def image_crop(
    call: BatchCall,
    data: Samples,
    *,
    crop: Any = None,
    crop_w: Any = 0.0,
    crop_h: Any = 0.0,
    crop_d: Any = 0.0,
    crop_pos_x: Any = 0.5,
    crop_pos_y: Any = 0.5,
    crop_pos_z: Any = 0.5,
    rounding: Any = "round",
    output_type: DALIImageType = RGB,
    dtype: np.dtype[Any] | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
) -> Any:
    """Serve ``fn.decoders.image_crop`` for JPEGs."""

    def window_of(i: int, sides: tuple[int, int]) -> Sequence[int]:
        own, w, h, x, y = (
            value[i] if isinstance(value, list) else value for value in (crop, crop_w, crop_h, crop_pos_x, crop_pos_y)
        )
        window = crop_window("HW", sides, own, {"W": w, "H": h}, {"W": x, "H": y}, rounding)
        (top, down), (left, across) = window["H"], window["W"]
        return top, left, down, across

    def windows_of(sides: Sequence[tuple[int, int]]) -> Sequence[Sequence[int]]:
        return [window_of(i, each) for i, each in enumerate(sides)]

    return _decoded(call, data, windows_of, output_type, dtype, use_fast_idct, adjust_orientation)


image_crop_of_any_depth = functools.partial(image_crop, dtype=_BYTE, adjust_orientation=True)


def image_slice(
    call: BatchCall,
    data: Samples,
    anchor: Samples | None = None,
    shape_input: Samples | None = None,
    /,
    *,
    axes: Any = None,
    axis_names: Any = None,
    start: Any = None,
    rel_start: Any = None,
    end: Any = None,
    rel_end: Any = None,
    shape: Any = None,
    rel_shape: Any = None,
    normalized_anchor: bool = True,
    normalized_shape: bool = True,
    output_type: DALIImageType = RGB,
    dtype: np.dtype[Any] | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
) -> Any:
    """Serve ``fn.decoders.image_slice`` with constant arguments for JPEGs."""
    named = {"start": start, "rel_start": rel_start, "end": end, "rel_end": rel_end, "shape": shape, "rel_shape": rel_shape}
    if anchor is not None or any(isinstance(value, list) for value in (axes, *named.values())):
        return None
    normalized = normalized_anchor, normalized_shape

    def windows_of(sides: Sequence[tuple[int, int]]) -> Sequence[Sequence[int]]:
        parts = [image_slice_part((*each, 3), None, None, normalized, axes, axis_names, named) for each in sides]
        return [(*part.start, *part.shape) for part in parts]

    return _decoded(call, data, windows_of, output_type, dtype, use_fast_idct, adjust_orientation)


image_slice_of_any_depth = functools.partial(image_slice, dtype=_BYTE, adjust_orientation=True)


def image_random_crop(
    call: BatchCall,
    data: Samples,
    *,
    random_area: Any = (0.08, 1.0),
    random_aspect_ratio: Any = (3 / 4, 4 / 3),
    num_attempts: int = 10,
    output_type: DALIImageType = RGB,
    dtype: np.dtype[Any] | None = None,
    use_fast_idct: bool = False,
    adjust_orientation: bool = False,
    min_size: Any = None,
) -> Any:
    """Serve ``fn.decoders.image_random_crop`` for JPEGs at full size."""
    compiled = kernels()
    if min_size is not None or not compiled.draws_agree:
        return None
    limits = np.array([random_area[0], random_area[-1], random_aspect_ratio[0], random_aspect_ratio[-1]], np.float64)

    def windows_of(sides: Sequence[tuple[int, int]]) -> Sequence[Sequence[int]]:
        draws, extents, windows = call.draws(), np.array(sides, np.int64), np.empty((call.count, 4), np.int64)
        key, positions, *places = map(address_of, (draws.key, draws.positions, extents, limits))
        compiled.windows(call.count, key, draws.epoch, positions, *places, num_attempts, address_of(windows))
        drawn: list[list[int]] = windows.tolist()
        return drawn

    return _decoded(call, data, windows_of, output_type, dtype, use_fast_idct, adjust_orientation)


def image_random_crop_of_any_depth(
    call: BatchCall,
    data: Samples,
    *,
    random_area: Any = (0.08, 1.0),
    random_aspect_ratio: Any = (3 / 4, 4 / 3),
    num_attempts: int = 10,
    output_type: DALIImageType = RGB,
    dtype: np.dtype[Any] = _BYTE,
    use_fast_idct: bool = False,
    adjust_orientation: bool = True,
) -> Any:
    """Serve ``fn.experimental.decoders.image_random_crop`` for JPEGs."""
    return image_random_crop(
        call,
        data,
        random_area=random_area,
        random_aspect_ratio=random_aspect_ratio,
        num_attempts=num_attempts,
        output_type=output_type,
        dtype=dtype,
        use_fast_idct=use_fast_idct,
        adjust_orientation=adjust_orientation,
    )
