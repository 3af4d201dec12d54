"""Kernels of operators that scale images; see `dali_like.graph.language.batch_calls`.

Only nearest neighbors are served. Other filters are products of matrices, whose bits depend on the BLAS library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dali_like.common.kernel_library import address_of, kernels
from dali_like.errors import DaliLikeError
from dali_like.graph.language.batch_calls import BatchCall, Samples
from dali_like.operators.geometry.resizing import GivenSize, regions_of, scaled_axes
from dali_like.types import INTERP_LINEAR, INTERP_NN

#: Positions are computed in single precision, which has all integers below this.
_MOST_PIXELS = 1 << 23


def resize(
    call: BatchCall,
    image: Samples,
    *,
    size: Any = None,
    resize_x: Any = 0.0,
    resize_y: Any = 0.0,
    resize_z: Any = 0.0,
    resize_shorter: Any = 0.0,
    resize_longer: Any = 0.0,
    mode: Any = "default",
    max_size: Any = None,
    subpixel_scale: bool = True,
    roi_start: Any = None,
    roi_end: Any = None,
    roi_relative: bool = False,
    interp_type: Any = INTERP_LINEAR,
    min_filter: Any = None,
    mag_filter: Any = None,
    antialias: bool = True,
    dtype: Any = None,
    save_attrs: bool = False,
) -> Any:
    """Serve ``fn.resize`` by nearest neighbors, with constant arguments."""
    filters = [interp_type if kind is None else kind for kind in (min_filter, mag_filter)]
    given = (size, resize_x, resize_y, resize_z, resize_shorter, resize_longer, roi_start, roi_end, *filters)
    if any(isinstance(value, list) for value in given) or filters != [INTERP_NN, INTERP_NN] or save_attrs:
        return None
    if call.layout != "HWC" or dtype not in (None, image.dtype) or not _are_images(image):
        return None
    wanted = GivenSize(size, (resize_z, resize_y, resize_x), resize_shorter, resize_longer, mode, max_size)
    channels = image.shapes[0, 2].item()
    try:
        axes = [
            scaled_axes(extents, wanted, regions_of(extents, roi_start, roi_end, relative=roi_relative), subpixel_scale)
            for extents in map(tuple, image.shapes[:, :2].tolist())
        ]
    except DaliLikeError:
        return None
    shapes = np.array([(down.size, across.size, channels) for down, across in axes], np.int64)
    regions = np.array([(down[1], down[2], across[1], across[2]) for down, across in axes], np.float32)
    if not (np.abs(regions) < _MOST_PIXELS).all():
        return None
    out = call.place(shapes, image.dtype)
    jobs = np.empty((call.count, 6), np.int64)
    jobs[:, 0], jobs[:, 1], jobs[:, 2:4], jobs[:, 4:] = image.addresses, out.addresses, image.shapes[:, :2], shapes[:, :2]
    first, places, pixel, compiled = address_of(jobs), address_of(regions), channels * image.dtype.itemsize, kernels()
    failed = call.share(lambda begin, stop: compiled.nearest(stop - begin, pixel, first + 48 * begin, places + 16 * begin))
    return None if failed else out.data


def _are_images(image: Samples) -> bool:
    """Whether the samples have the same number of channels, and extents of a usual size."""
    are_usual = ((image.shapes > 0) & (image.shapes < _MOST_PIXELS)).all()
    return bool(are_usual and (image.shapes[:, 2] == image.shapes[0, 2]).all())
