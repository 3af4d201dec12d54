"""TrivialAugment (https://arxiv.org/abs/2103.10158): one augmentation for each sample, with a random magnitude.

Follows ``nvidia.dali.auto_aug.trivial_augment`` 1.53.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dali_like import types
from dali_like.auto_aug import augmentations as a
from dali_like.auto_aug.core._augmentation import Augmentation, forbid_unused
from dali_like.auto_aug.core._magnitudes import independent_seeds, random_index, signed_bin
from dali_like.auto_aug.core._select import select
from dali_like.auto_aug.core._suites import Shift, translations, warp_options, without
from dali_like.auto_aug.core.policy import check_bins
from dali_like.errors import ArgumentError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True


def trivial_augment_wide(
    data: DataNode,
    num_magnitude_bins: int = 31,
    shape: DataNode | Sequence[int] | None = None,
    fill_value: float | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: Shift | None = None,
    max_translate_rel: Shift | None = None,
    seed: int | None = None,
    excluded: Sequence[str] | None = None,
) -> Any:
    """Apply one augmentation of the wide suite to each sample, with a random magnitude.

    Args:
        data: images (HWC) or videos (FHWC), UINT8.
        num_magnitude_bins: number of bins that the ranges of magnitudes are divided into.
        shape: height and width of the images, for each sample or for all; translations are then relative to it.
        fill_value: of pixels outside of the image, for translation, shear and rotation; None repeats the border.
        interp_type: of translation, shear and rotation: INTERP_LINEAR (the default) or INTERP_NN.
        max_translate_abs: maximum translation in pixels, or a pair for height and width; without `shape` only.
            Default: 32.
        max_translate_rel: maximum translation as a fraction of `shape`, or a pair for height and width. Default: 1.
        seed: of the random numbers.
        excluded: names of augmentations to leave out.

    Raises:
        ArgumentError: a wrong number of bins, an unknown name in `excluded`, or maximum translations that do not fit to
            `shape`.
    """
    suite = get_trivial_augment_wide_suite(shape is not None, max_translate_abs, max_translate_rel)
    suite = without(suite, excluded, "TrivialAugmentWide")
    options = warp_options(shape, fill_value, interp_type)
    return apply_trivial_augment(suite, data, num_magnitude_bins, seed, **options)


def apply_trivial_augment(
    augmentations: Sequence[Augmentation],
    data: DataNode,
    num_magnitude_bins: int = 31,
    seed: int | None = None,
    **kwargs: Any,
) -> Any:
    """Apply one of several augmentations to each sample, with a random magnitude.

    Args:
        augmentations: to choose from, with equal probabilities.
        data: the samples.
        num_magnitude_bins: number of bins that the ranges of magnitudes are divided into.
        seed: of the random numbers.
        kwargs: arguments of the augmentations; each gets the arguments that it has.

    Raises:
        ArgumentError: there are no augmentations, or the number of bins is wrong.
        ArgumentTypeError: no augmentation has an argument, or one is missing.
    """
    check_bins(num_magnitude_bins)
    if not augmentations:
        raise ArgumentError("apply_trivial_augment: the list of augmentations is empty: pass at least one")
    forbid_unused(augmentations, kwargs, "apply_trivial_augment")
    seeds = independent_seeds(seed, 3)
    magnitude_bin = signed_bin(random_index(num_magnitude_bins, seeds[0]), seed=seeds[1])
    selected = random_index(len(augmentations), seeds[2])
    return select(
        augmentations,
        selected,
        data=data,
        magnitude_bin=magnitude_bin,
        num_magnitude_bins=num_magnitude_bins,
        **kwargs,
    )


def get_trivial_augment_wide_suite(
    use_shape: bool = False, max_translate_abs: Shift | None = None, max_translate_rel: Shift | None = None
) -> list[Augmentation]:
    """Return the augmentations of TrivialAugmentWide.

    Args:
        use_shape: whether translations are relative to the shape of the image.
        max_translate_abs: maximum translation in pixels, without `use_shape`; or a pair for height and width. Default: 32.
        max_translate_rel: maximum translation as a fraction, with `use_shape`. Default: 1.
    """
    return [
        *translations(use_shape, max_translate_abs, max_translate_rel, default_abs=32),
        a.shear_x.augmentation((0, 0.99), True),
        a.shear_y.augmentation((0, 0.99), True),
        a.rotate.augmentation((0, 135), True),
        a.brightness.augmentation((0.01, 0.99), True, a.shift_enhance_range),
        a.contrast.augmentation((0.01, 0.99), True, a.shift_enhance_range),
        a.color.augmentation((0.01, 0.99), True, a.shift_enhance_range),
        a.sharpness.augmentation((0.01, 0.99), True, a.sharpness_kernel),
        a.posterize.augmentation((8, 2), False, a.poster_mask_uint8),
        a.solarize.augmentation((256, 0)),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]
