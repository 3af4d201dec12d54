"""Operators that move pixels: flip, crop, slice, pad, paste, resize, rotate and warp, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import numpy as np

from dali_like.graph.operators import Array, Call
from dali_like.operators.description import IMAGES, VOLUMES, operator
from dali_like.operators.parameters import PerSample


@operator(layouts=f"{IMAGES} {VOLUMES}")
def flip(
    call: Call,
    image: Array,
    *,
    horizontal: PerSample[int] = 1,
    vertical: PerSample[int] = 0,
    depthwise: PerSample[int] = 0,
) -> Array:
    """Mirror images and volumes.

    Args:
        image: any dtype.
        horizontal: exchange left and right.
        vertical: exchange top and bottom.
        depthwise: exchange front and back.
    """
    wanted = {"W": horizontal, "H": vertical, "D": depthwise}
    steps = tuple(slice(None, None, -1) if wanted.get(letter) else slice(None) for letter in call.layout)
    out = call.empty(image.shape, image.dtype)
    np.copyto(out, image[steps])
    return out
