"""Cut JPEG files to their upper rows, so that rows below a window need not be decoded.

JPEG data are one stream of bits, one row of blocks after the other. Rows above a window cannot be skipped, but rows below it
can: changing the height in the header yields a file of the upper rows, with extra bytes at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dali_like.images.header import jpeg_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["upper_rows"]

#: Rows below the last one that its pixels depend on: subsampled colors are interpolated between rows.
_CONTEXT_ROWS = 2


def upper_rows(encoded: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """Return a JPEG file with the same pixels in its upper rows. It may have further rows, which may differ.

    Args:
        encoded: the bytes of an image file, 1-D uint8.
        rows: number of rows needed.

    Returns:
        A changed copy; `encoded` itself if nothing can be saved, or if it is not a JPEG with all colors in one scan and no
        markers within it.
    """
    blocks = jpeg_blocks(encoded.data)
    if blocks is None:
        return encoded
    needed = -(-(rows + _CONTEXT_ROWS) // blocks.height) * blocks.height
    if needed >= blocks.image_height:
        return encoded
    lower = encoded.copy()
    lower[blocks.position : blocks.position + 2] = needed >> 8, needed & 0xFF
    return lower
