"""JPEG files of the upper rows of JPEG files: what lies below the window of an image need not be decoded.

The data of a JPEG are one stream of bits, one row of blocks after the other, so that nothing above a window can be left out.
What is below it can: a file whose header says that the image is lower is a file of its upper rows, with bytes left over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dali_like.images.header import jpeg_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["upper_rows"]

#: Rows below the last one that its pixels depend on: colors are interpolated between rows of half as many.
_CONTEXT_ROWS = 2


def upper_rows(encoded: NDArray[np.uint8], rows: int) -> NDArray[np.uint8]:
    """A JPEG file whose upper rows have the same pixels; it may have lower ones, which may differ.

    Args:
        encoded: the bytes of an image file, 1-D uint8.
        rows: how many rows there must be.

    Returns:
        A changed copy; `encoded` itself where there is nothing to be saved, or it is not a JPEG that has all of its colors
        in one scan and no markers within it.
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
