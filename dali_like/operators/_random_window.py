"""Random windows of an image, by their area and aspect ratio, as Inception was trained with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np

from dali_like.operators.parameters import ASCENDING, Floats, above, at_least, count

#: The least and the largest of something positive; one number for both.
Range: TypeAlias = Annotated[Floats, count(1, 2), above(0), ASCENDING]
Attempts: TypeAlias = Annotated[int, at_least(1)]


class Window(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def random_window(
    rng: np.random.Generator,
    height: int,
    width: int,
    areas: Sequence[float],
    ratios: Sequence[float],
    num_attempts: int,
) -> Window:
    """A window of random area and aspect ratio at a random place.

    Args:
        areas: the least and the largest area, in parts of the image; all are equally likely.
        ratios: the least and the largest width over height; their logarithms are equally likely.
        num_attempts: how often what does not fit is drawn again. Then it is the largest that fits of the nearest ratio.
    """
    least, most = math.log(ratios[0]), math.log(ratios[-1])
    for _ in range(num_attempts):
        area = height * width * rng.uniform(areas[0], areas[-1])
        ratio = math.exp(rng.uniform(least, most))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            break
    else:
        across, down = width, height
        if width > ratios[-1] * height:
            across = max(round(ratios[-1] * height), 1)
        elif width < ratios[0] * height:
            down = max(round(width / ratios[0]), 1)
        shrink = math.sqrt(min(areas[-1] * height * width / (across * down), 1))
        across, down = max(round(across * shrink), 1), max(round(down * shrink), 1)
    top, left = rng.integers(0, [height - down + 1, width - across + 1]).tolist()
    return Window(top, left, down, across)
