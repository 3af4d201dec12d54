"""RandAugment (https://arxiv.org/abs/1909.13719): several random augmentations for each sample, with one magnitude.

Follows ``nvidia.dali.auto_aug.rand_augment`` 1.53.
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
from dali_like.common.notices import warn
from dali_like.errors import ArgumentError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True


def rand_augment(
    data: DataNode,
    n: int,
    m: int,
    num_magnitude_bins: int = 31,
    shape: DataNode | Sequence[int] | None = None,
    fill_value: float | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: Shift | None = None,
    max_translate_rel: Shift | None = None,
    seed: int | None = None,
    monotonic_mag: bool = True,
    excluded: Sequence[str] | None = None,
) -> Any:
    """Apply `n` random augmentations to each sample, with the magnitude bin `m`.

    Args:
        data: images (HWC) or videos (FHWC), UINT8.
        n: number of augmentations of each sample.
        m: magnitude bin, from 0 to ``num_magnitude_bins - 1``.
        num_magnitude_bins: number of bins that the ranges of magnitudes are divided into.
        shape: height and width of the images, for each sample or for all; translations are then relative to it.
        fill_value: of pixels outside of the image, for translation, shear and rotation; None repeats the border.
        interp_type: of translation, shear and rotation: INTERP_LINEAR (the default) or INTERP_NN.
        max_translate_abs: maximum translation in pixels, or a pair for height and width; without `shape` only.
            Default: 100.
        max_translate_rel: maximum translation as a fraction of `shape`, or a pair for height and width. Default: 100/224.
        seed: of the random numbers.
        monotonic_mag: whether each augmentation changes more with a higher bin. If False, colors, posterize and
            solarize have the ranges of AutoAugment.
        excluded: names of augmentations to leave out.

    Raises:
        ArgumentError: a wrong `n`, `m` or number of bins, an unknown name in `excluded`, or maximum translations that do
            not fit to `shape`.
    """
    get_suite = get_rand_augment_suite if monotonic_mag else get_rand_augment_non_monotonic_suite
    suite = without(get_suite(shape is not None, max_translate_abs, max_translate_rel), excluded, "RandAugment")
    options = warp_options(shape, fill_value, interp_type)
    return apply_rand_augment(suite, data, n, m, num_magnitude_bins, seed, **options)


def apply_rand_augment(
    augmentations: Sequence[Augmentation],
    data: DataNode,
    n: int,
    m: int,
    num_magnitude_bins: int = 31,
    seed: int | None = None,
    **kwargs: Any,
) -> Any:
    """Apply `n` of several augmentations to each sample, at random, with the magnitude bin `m`.

    Args:
        augmentations: to choose from, with equal probabilities.
        data: the samples.
        n: number of augmentations of each sample.
        m: magnitude bin, from 0 to ``num_magnitude_bins - 1``.
        num_magnitude_bins: number of bins that the ranges of magnitudes are divided into.
        seed: of the random numbers.
        kwargs: arguments of the augmentations; each gets the arguments that it has.

    Raises:
        ArgumentError: `n`, `m` or the number of bins is wrong, or there are no augmentations.
        ArgumentTypeError: no augmentation has an argument, or one is missing.
    """
    if not isinstance(n, int) or n < 0:
        raise ArgumentError(f"n={n!r} must be a number of augmentations, 0 or more")
    check_bins(num_magnitude_bins)
    if not isinstance(m, int) or not 0 <= m < num_magnitude_bins:
        raise ArgumentError(f"m={m!r} must be a magnitude bin, from 0 to {num_magnitude_bins - 1}")
    if n == 0:
        warn("apply_rand_augment: n=0 applies no augmentation", UserWarning)
        return data
    if not augmentations:
        raise ArgumentError("apply_rand_augment: the list of augmentations is empty: pass at least one, or n=0")
    forbid_unused(augmentations, kwargs, "apply_rand_augment")
    seeds = independent_seeds(seed, 2)
    selected = random_index(len(augmentations), seeds[0], [n])
    magnitude_bins = signed_bin(m, seed=seeds[1], shape=[n])
    for i in range(n):
        data = select(
            augmentations,
            selected[i],
            data=data,
            magnitude_bin=magnitude_bins[i],
            num_magnitude_bins=num_magnitude_bins,
            **kwargs,
        )
    return data


def get_rand_augment_suite(
    use_shape: bool = False, max_translate_abs: Shift | None = None, max_translate_rel: Shift | None = None
) -> list[Augmentation]:
    """Return the augmentations of RandAugment, which change more with a higher magnitude bin.

    Args:
        use_shape: whether translations are relative to the shape of the image.
        max_translate_abs: maximum translation in pixels, without `use_shape`; or a pair for height and width. Default: 100.
        max_translate_rel: maximum translation as a fraction, with `use_shape`. Default: 100/224.
    """
    return [
        *_geometry(use_shape, max_translate_abs, max_translate_rel),
        a.brightness.augmentation((0, 0.9), True, a.shift_enhance_range),
        a.contrast.augmentation((0, 0.9), True, a.shift_enhance_range),
        a.color.augmentation((0, 0.9), True, a.shift_enhance_range),
        a.sharpness.augmentation((0, 0.9), True, a.sharpness_kernel),
        a.posterize.augmentation((8, 4), False, a.poster_mask_uint8),
        a.solarize.augmentation((256, 0)),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


def get_rand_augment_non_monotonic_suite(
    use_shape: bool = False, max_translate_abs: Shift | None = None, max_translate_rel: Shift | None = None
) -> list[Augmentation]:
    """Return the augmentations of RandAugment with AutoAugment's ranges for colors; see `get_rand_augment_suite`."""
    return [
        *_geometry(use_shape, max_translate_abs, max_translate_rel),
        a.brightness.augmentation((0.1, 1.9), False, None),
        a.contrast.augmentation((0.1, 1.9), False, None),
        a.color.augmentation((0.1, 1.9), False, None),
        a.sharpness.augmentation((0.1, 1.9), False, a.sharpness_kernel_shifted),
        a.posterize.augmentation((0, 4), False, a.poster_mask_uint8),
        a.solarize.augmentation((0, 256), False, None),
        a.equalize,
        a.auto_contrast,
        a.identity,
    ]


def _geometry(use_shape: bool, max_translate_abs: Shift | None, max_translate_rel: Shift | None) -> list[Augmentation]:
    return [
        *translations(use_shape, max_translate_abs, max_translate_rel, default_abs=100, default_rel=100 / 224),
        a.shear_x.augmentation((0, 0.3), True),
        a.shear_y.augmentation((0, 0.3), True),
        a.rotate.augmentation((0, 30), True),
    ]
