"""AutoAugment (https://arxiv.org/abs/1805.09501): for each sample a random sub-policy of one or two augmentations.

Follows ``nvidia.dali.auto_aug.auto_augment`` 1.53.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dali_like import fn, types
from dali_like.auto_aug import augmentations as a
from dali_like.auto_aug.core._augmentation import Augmentation, forbid_unused
from dali_like.auto_aug.core._magnitudes import independent_seeds, random_index, signed_bin
from dali_like.auto_aug.core._select import select
from dali_like.auto_aug.core._suites import Shift, translations, warp_options
from dali_like.auto_aug.core.policy import Policy
from dali_like.errors import ArgumentClashError, ArgumentError
from dali_like.graph.language.nodes import DataNode

CONVERT_CONDITIONALS = True

_BINS = 11

# Policies of the paper. A line is a sub-policy: augmentations, each with its probability and its magnitude bin, if any.

_IMAGE_NET = """
    equalize 0.8, shear_y 0.8 4
    color 0.4 9, equalize 0.6
    color 0.4 1, rotate 0.6 8
    solarize 0.8 3, equalize 0.4
    solarize 0.4 2, solarize 0.6 2
    color 0.2 0, equalize 0.8
    equalize 0.4, solarize_add 0.8 3
    shear_x 0.2 9, rotate 0.6 8
    color 0.6 1, equalize 1
    invert 0.4, rotate 0.6 0
    equalize 1, shear_y 0.6 3
    color 0.4 7, equalize 0.6
    posterize 0.4 6, auto_contrast 0.4
    solarize 0.6 8, color 0.6 9
    solarize 0.2 4, rotate 0.8 9
    rotate 1 7, translate_y 0.8 9
    solarize 0.8 4
    shear_y 0.8 0, color 0.6 4
    color 1 0, rotate 0.6 2
    equalize 0.8
    equalize 1, auto_contrast 0.6
    shear_y 0.4 7, solarize_add 0.6 7
    posterize 0.8 2, solarize 0.6 10
    solarize 0.6 8, equalize 0.6
    color 0.8 6, rotate 0.4 5
"""
_REDUCED_IMAGE_NET = """
    posterize 0.4 8, rotate 0.6 9
    solarize 0.6 5, auto_contrast 0.6
    equalize 0.8, equalize 0.6
    posterize 0.6 7, posterize 0.6 6
    equalize 0.4, solarize 0.2 4
    equalize 0.4, rotate 0.8 8
    solarize 0.6 3, equalize 0.6
    posterize 0.8 5, equalize 1
    rotate 0.2 3, solarize 0.6 8
    equalize 0.6, posterize 0.4 6
    rotate 0.8 8, color 0.4 0
    rotate 0.4 9, equalize 0.6
    equalize 0.8
    invert 0.6, equalize 1
    color 0.6 4, contrast 1 8
    rotate 0.8 8, color 1 2
    color 0.8 8, solarize 0.8 7
    sharpness 0.4 7, invert 0.6
    shear_x 0.6 5, equalize 1
    color 0.4 0, equalize 0.6
    equalize 0.4, solarize 0.2 4
    solarize 0.6 5, auto_contrast 0.6
    invert 0.6, equalize 1
    color 0.6 4, contrast 1 8
    equalize 0.8, equalize 0.6
"""
_SVHN = """
    shear_x 0.9 4, invert 0.2
    shear_y 0.9 8, invert 0.7
    equalize 0.6, solarize 0.6 6
    invert 0.9, equalize 0.6
    equalize 0.6, rotate 0.9 3
    shear_x 0.9 4, auto_contrast 0.8
    shear_y 0.9 8, invert 0.4
    shear_y 0.9 5, solarize 0.2 6
    invert 0.9, auto_contrast 0.8
    equalize 0.6, rotate 0.9 3
    shear_x 0.9 4, solarize 0.3 3
    shear_y 0.8 8, invert 0.7
    equalize 0.9, translate_y 0.6 6
    invert 0.9, equalize 0.6
    contrast 0.3 3, rotate 0.8 4
    invert 0.8
    shear_y 0.7 6, solarize 0.4 8
    invert 0.6, rotate 0.8 4
    shear_y 0.3 7, translate_x 0.9 3
    shear_x 0.1 6, invert 0.6
    solarize 0.7 2, translate_y 0.6 7
    shear_y 0.8 4, invert 0.8
    shear_x 0.7 9, translate_y 0.8 3
    shear_y 0.8 5, auto_contrast 0.7
    shear_x 0.7 2, invert 0.1
"""
_REDUCED_CIFAR10 = """
    invert 0.1, contrast 0.2 6
    rotate 0.7 2, translate_x 0.3 9
    sharpness 0.8 1, sharpness 0.9 3
    shear_y 0.5 8, translate_y 0.7 9
    auto_contrast 0.5, equalize 0.9
    shear_y 0.2 7, posterize 0.3 7
    color 0.4 3, brightness 0.6 7
    sharpness 0.3 9, brightness 0.7 9
    equalize 0.6, equalize 0.5
    contrast 0.6 7, sharpness 0.6 5
    color 0.7 7, translate_x 0.5 8
    equalize 0.3, auto_contrast 0.4
    translate_y 0.4 3, sharpness 0.2 6
    brightness 0.9 6, color 0.2 8
    solarize 0.5 2
    equalize 0.2, auto_contrast 0.6
    equalize 0.2, equalize 0.6
    color 0.9 9, equalize 0.6
    auto_contrast 0.8, solarize 0.2 8
    brightness 0.1 3, color 0.7 0
    solarize 0.4 5, auto_contrast 0.9
    translate_y 0.9 9, translate_y 0.7 9
    auto_contrast 0.9, solarize 0.8 3
    equalize 0.8, invert 0.1
    translate_y 0.7 9, auto_contrast 0.9
"""


def auto_augment(
    data: DataNode,
    policy_name: str = "image_net",
    shape: DataNode | Sequence[int] | None = None,
    fill_value: float | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: Shift | None = None,
    max_translate_rel: Shift | None = None,
    seed: int | None = None,
) -> Any:
    """Apply a policy of the paper to each sample.

    Args:
        data: images (HWC) or videos (FHWC), UINT8.
        policy_name: "image_net", "reduced_image_net", "svhn" or "reduced_cifar10".
        shape: height and width of the images, for each sample or for all; translations are then relative to it.
        fill_value: of pixels outside of the image, for translation, shear and rotation; None repeats the border.
        interp_type: of translation, shear and rotation: INTERP_LINEAR (the default) or INTERP_NN.
        max_translate_abs: maximum translation in pixels, or a pair for height and width; without `shape` only.
            Default: 250.
        max_translate_rel: maximum translation as a fraction of `shape`, or a pair for height and width. Default: 1.
        seed: of the random numbers.

    Raises:
        ArgumentError: the policy is unknown, or maximum translations do not fit to `shape`.
        ArgumentClashError: arguments of translations are given, but the policy has no translations.
    """
    policies: dict[str, Callable[..., Policy]] = {
        "image_net": get_image_net_policy,
        "reduced_image_net": get_reduced_image_net_policy,
        "svhn": get_svhn_policy,
        "reduced_cifar10": get_reduced_cifar10_policy,
    }
    if policy_name not in policies:
        raise ArgumentError(f"policy_name={policy_name!r} is unknown; pass one of {', '.join(map(repr, policies))}")
    given = {"shape": shape, "max_translate_abs": max_translate_abs, "max_translate_rel": max_translate_rel}
    given = {name: value for name, value in given.items() if value is not None}
    options = warp_options(shape, fill_value, interp_type)
    if policy_name == "reduced_image_net":
        if given:
            raise ArgumentClashError(f"the policy 'reduced_image_net' has no translations: omit {', '.join(given)}")
        return apply_auto_augment(get_reduced_image_net_policy(), data, seed, **options)
    policy = policies[policy_name](shape is not None, max_translate_abs, max_translate_rel)
    return apply_auto_augment(policy, data, seed, **options)


def auto_augment_image_net(
    data: DataNode,
    shape: DataNode | Sequence[int] | None = None,
    fill_value: float | None = 128,
    interp_type: types.DALIInterpType | None = None,
    max_translate_abs: Shift | None = None,
    max_translate_rel: Shift | None = None,
    seed: int | None = None,
) -> Any:
    """Apply the policy "image_net" to each sample; see `auto_augment`."""
    return auto_augment(data, "image_net", shape, fill_value, interp_type, max_translate_abs, max_translate_rel, seed)


def apply_auto_augment(policy: Policy, data: DataNode, seed: int | None = None, **kwargs: Any) -> Any:
    """Apply a policy to each sample.

    Args:
        policy: of augmentations.
        data: the samples.
        seed: of the random numbers.
        kwargs: arguments of the augmentations; each gets the arguments that it has.

    Raises:
        ArgumentError: the policy is empty.
        ArgumentTypeError: no augmentation has an argument, or one is missing.
    """
    num_stages = max((len(steps) for steps in policy.sub_policies), default=0)
    if not num_stages:
        raise ArgumentError(f"apply_auto_augment: {policy!r} has no augmentations")
    forbid_unused(policy.augmentations.values(), kwargs, "apply_auto_augment")
    seeds = independent_seeds(seed, 3)
    options: dict[str, Any] = {} if seed is None else {"seed": seeds[2]}
    sub_policy = random_index(len(policy.sub_policies), seeds[0])
    sign = random_index(2, seeds[1], [num_stages])
    chance = fn.random.uniform(range=[0, 1], dtype=types.FLOAT, shape=[num_stages], **options)
    for stage in range(num_stages):
        steps = [steps[stage] if stage < len(steps) else (a.identity, 0.0, None) for steps in policy.sub_policies]
        # The identity comes last: for samples to which no augmentation is applied.
        ops = [*dict.fromkeys(augmentation for augmentation, p, _ in steps if p), a.identity]
        index = [ops.index(augmentation) if p else len(ops) - 1 for augmentation, p, _ in steps]
        applied = chance[stage] < _by_sub_policy([p for _, p, _ in steps], np.float32)[sub_policy]
        magnitude_bin = _by_sub_policy([step[2] or 0 for step in steps], np.int32)[sub_policy]
        data = select(
            ops,
            applied * _by_sub_policy(index, np.int32)[sub_policy] + (applied ^ True) * (len(ops) - 1),
            data=data,
            magnitude_bin=signed_bin(magnitude_bin, sign[stage]),
            num_magnitude_bins=policy.num_magnitude_bins,
            **kwargs,
        )
    return data


def _by_sub_policy(values: Sequence[float], dtype: type[np.generic]) -> types.Constant:
    return types.Constant(np.array(values, dtype))


def get_image_net_policy(
    use_shape: bool = False, max_translate_abs: Shift | None = None, max_translate_rel: Shift | None = None
) -> Policy:
    """Return the policy for ImageNet.

    Args:
        use_shape: whether translations are relative to the shape of the image.
        max_translate_abs: maximum translation in pixels, without `use_shape`; or a pair for height and width. Default: 250.
        max_translate_rel: maximum translation as a fraction, with `use_shape`. Default: 1.
    """
    x, y = translations(use_shape, max_translate_abs, max_translate_rel, default_abs=250)
    return _policy("ImageNetPolicy", _IMAGE_NET, x, y)


def get_reduced_cifar10_policy(
    use_shape: bool = False, max_translate_abs: Shift | None = None, max_translate_rel: Shift | None = None
) -> Policy:
    """Return the policy for a part of CIFAR-10; see `get_image_net_policy`."""
    x, y = translations(use_shape, max_translate_abs, max_translate_rel, default_abs=250)
    return _policy("ReducedCifar10Policy", _REDUCED_CIFAR10, x, y)


def get_svhn_policy(
    use_shape: bool = False, max_translate_abs: Shift | None = None, max_translate_rel: Shift | None = None
) -> Policy:
    """Return the policy for SVHN; see `get_image_net_policy`."""
    x, y = translations(use_shape, max_translate_abs, max_translate_rel, default_abs=250)
    return _policy("SvhnPolicy", _SVHN, x, y)


def get_reduced_image_net_policy() -> Policy:
    """Return the policy for a part of ImageNet. It has no translations."""
    return _policy("ReducedImageNetPolicy", _REDUCED_IMAGE_NET)


def _policy(name: str, text: str, *translations: Augmentation) -> Policy:
    suite = [
        *translations,
        a.shear_x.augmentation((0, 0.3), True),
        a.shear_y.augmentation((0, 0.3), True),
        a.rotate.augmentation((0, 30), True),
        a.brightness.augmentation((0.1, 1.9), False, None),
        a.contrast.augmentation((0.1, 1.9), False, None),
        a.color.augmentation((0.1, 1.9), False, None),
        a.sharpness.augmentation((0.1, 1.9), False, a.sharpness_kernel_shifted),
        a.posterize.augmentation((0, 4), False, a.poster_mask_uint8),
        a.solarize.augmentation((0, 256), False),
        a.solarize_add.augmentation((0, 110), False),
        a.invert,
        a.equalize,
        a.auto_contrast,
    ]
    by_name = {each.name: each for each in suite}
    sub_policies = []
    for line in text.strip().splitlines():
        steps = [step.split() for step in line.split(",")]
        sub_policies.append(
            [(by_name[word], float(p), int(magnitude[0]) if magnitude else None) for word, p, *magnitude in steps]
        )
    return Policy(name, _BINS, sub_policies)
