"""Arguments that the schemes share: maximum translations, and names of augmentations to leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from dali_like import types
from dali_like.auto_aug import augmentations as a
from dali_like.auto_aug.core._augmentation import Augmentation
from dali_like.errors import ArgumentClashError, ArgumentError, ArgumentTypeError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True

#: The maximum shift of both axes, or of height and width.
Shift: TypeAlias = "float | tuple[float, float]"


def translations(
    use_shape: bool,
    max_translate_abs: Shift | None,
    max_translate_rel: Shift | None,
    *,
    default_abs: float,
    default_rel: float = 1.0,
) -> list[Augmentation]:
    """Return the translations along x and y with their ranges.

    Raises:
        ArgumentTypeError: `use_shape` is not a Boolean.
        ArgumentClashError: the maximum is absolute although shapes are used, or the other way round.
    """
    if not isinstance(use_shape, bool):
        raise ArgumentTypeError(f"use_shape={use_shape!r} must be True or False; pass the shape itself to the scheme")
    wrong, right = ("abs", "rel") if use_shape else ("rel", "abs")
    if (max_translate_abs if use_shape else max_translate_rel) is not None:
        raise ArgumentClashError(
            f"max_translate_{wrong} cannot be used {'with' if use_shape else 'without'} the shapes of images: pass "
            f"max_translate_{right}"
        )
    given, default = (max_translate_rel, default_rel) if use_shape else (max_translate_abs, default_abs)
    limit = default if given is None else given
    height, width = limit if isinstance(limit, (tuple, list)) else (limit, limit)
    x, y = (a.translate_x, a.translate_y) if use_shape else (a.translate_x_no_shape, a.translate_y_no_shape)
    return [x.augmentation((0, width), True), y.augmentation((0, height), True)]


def warp_options(shape: Any, fill_value: float | None, interp_type: types.DALIInterpType | None) -> dict[str, Any]:
    """Return the named arguments of the augmentations that warp images.

    Raises:
        ArgumentTypeError: `shape` has no height and width.
    """
    if shape is not None and not isinstance(shape, DataNode) and (np.ndim(shape) != 1 or len(shape) < 2):
        raise ArgumentTypeError(f"shape={shape!r} must begin with height and width: pass the .shape() of the images")
    options = {"fill_value": fill_value, "interp_type": interp_type}
    return options if shape is None else options | {"shape": shape}


def without(suite: Sequence[Augmentation], excluded: Sequence[str] | None, name: str) -> list[Augmentation]:
    """Return the augmentations of a suite whose names are not excluded.

    Raises:
        ArgumentError: no augmentation has an excluded name.
    """
    names = [each.name for each in suite]
    for each in excluded or ():
        if each not in names:
            raise ArgumentError(f"excluded={each!r}: {name} has no such augmentation; it has {', '.join(names)}")
    return [each for each in suite if each.name not in (excluded or ())]
