"""Decoding, as in ``nvidia.dali.fn.decoders``."""

from __future__ import annotations

import numpy as np

from dali_like.fn._image import decode_image, decoded_shape
from dali_like.graph.operators import Array, Call
from dali_like.operators.description import operator
from dali_like.types import RGB, DALIImageType

#: What only matters to DALI's decoders on GPUs, and its cache.
_IGNORED = {
    "affine": True,
    "device_memory_padding": 16777216,
    "device_memory_padding_jpeg2k": 0,
    "host_memory_padding": 8388608,
    "host_memory_padding_jpeg2k": 0,
    "hw_decoder_load": 0.65,
    "hybrid_huffman_threshold": 1000000,
    "memory_stats": False,
    "preallocate_height_hint": 0,
    "preallocate_width_hint": 0,
    "split_stages": False,
    "use_chunk_allocator": False,
}


@operator(
    module="decoders",
    output_layout="HWC",
    ignored={
        **_IGNORED,
        "cache_batch_copy": True,
        "cache_debug": False,
        "cache_size": 0,
        "cache_threshold": 0,
        "cache_type": "",
        "jpeg_fancy_upsampling": False,
        "use_fast_idct": False,
    },
)
def image(
    call: Call,
    data: Array,
    *,
    output_type: DALIImageType = RGB,
    adjust_orientation: bool = False,
) -> Array:
    """Decode images: JPEG, PNG, WebP, BMP and TIFF, told apart by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        output_type: colour format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        adjust_orientation: turn the image upright as its EXIF orientation says. DALI's ``decoders.image`` disregards it, so
            that is the default; its ``experimental.decoders.image`` has this argument.

    Returns:
        Images of shape (height, width, channels), uint8, layout "HWC".

    In `Pipeline.run` a file that cannot be decoded raises a `dali_like.errors.DecodeError` that names the sample.
    """
    shape = decoded_shape(data, output_type, adjust_orientation)
    out = None if shape is None else call.empty(shape, np.uint8)
    return decode_image(data, output_type, adjust_orientation, out)
