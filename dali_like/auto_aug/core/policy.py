"""Policies of AutoAugment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dali_like.auto_aug.core._augmentation import Augmentation
from dali_like.common.notices import warn
from dali_like.errors import ArgumentError, ArgumentTypeError

CONVERT_CONDITIONALS = True

#: An augmentation, the probability to apply it, and its magnitude bin; None if it has no magnitude.
Step: TypeAlias = "tuple[Augmentation, float, int | None]"


class Policy:
    """A policy of AutoAugment (https://arxiv.org/abs/1805.09501). Follows ``nvidia.dali.auto_aug.core.Policy`` 1.53.

    Args:
        name: for messages.
        num_magnitude_bins: the number of bins that magnitude ranges are divided into.
        sub_policies: sequences of tuples: an augmentation, the probability to apply it, and its magnitude bin, or None
            if it has no magnitude. Each sample takes one sequence, at random, and applies its augmentations in order.

    The arguments are attributes, too. If two augmentations have the same name, all names in ``sub_policies`` get a number
    in front.

    Raises:
        ArgumentError: a probability, a magnitude bin or the number of bins is wrong.
        ArgumentTypeError: the sub-policies have another structure.
    """

    def __init__(self, name: str, num_magnitude_bins: int, sub_policies: Sequence[Sequence[Step]]) -> None:
        check_bins(num_magnitude_bins)
        if not isinstance(sub_policies, (list, tuple)):
            raise ArgumentTypeError(f"sub_policies must be a list or tuple, not {type(sub_policies).__name__}")
        for sub_policy in sub_policies:
            if not isinstance(sub_policy, (list, tuple)):
                raise ArgumentTypeError(f"each sub-policy must be a list or tuple, not {sub_policy!r}")
            for step in sub_policy:
                _check_step(step, name, num_magnitude_bins)
        self.name = name
        self.num_magnitude_bins = num_magnitude_bins
        found = list(dict.fromkeys(augmentation for steps in sub_policies for augmentation, _, _ in steps))
        renamed = {augmentation: augmentation for augmentation in found}
        if len({augmentation.name for augmentation in found}) < len(found):
            digits = len(str(len(found) - 1))
            renamed = {each: each.augmentation(name=f"{i:0{digits}}__{each.name}") for i, each in enumerate(found)}
        self.sub_policies: tuple[tuple[Step, ...], ...] = tuple(
            tuple((renamed[augmentation], p, bin) for augmentation, p, bin in steps) for steps in sub_policies
        )

    @property
    def augmentations(self) -> Mapping[str, Augmentation]:
        """All augmentations by name, in the order of the names."""
        found = {augmentation.name: augmentation for steps in self.sub_policies for augmentation, _, _ in steps}
        return dict(sorted(found.items()))

    def __repr__(self) -> str:
        steps = [[(augmentation.name, p, bin) for augmentation, p, bin in steps] for steps in self.sub_policies]
        return (
            f"Policy(name={self.name!r}, num_magnitude_bins={self.num_magnitude_bins}, sub_policies={steps}, "
            f"augmentations={self.augmentations})"
        )


def check_bins(num_magnitude_bins: Any) -> None:
    """Raise ArgumentError for a wrong number of magnitude bins."""
    if not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 1:
        raise ArgumentError(f"num_magnitude_bins={num_magnitude_bins!r} must be a positive integer")


def _check_step(step: Any, policy: str, num_magnitude_bins: int) -> None:
    if not isinstance(step, (list, tuple)) or len(step) != 3:
        raise ArgumentTypeError(
            f"policy `{policy}`: {step!r} must be a triple of an augmentation, a probability and a magnitude bin"
        )
    augmentation, probability, magnitude_bin = step
    if not isinstance(augmentation, Augmentation):
        raise ArgumentTypeError(
            f"policy `{policy}`: {augmentation!r} is not an augmentation; decorate it with @augmentation"
        )
    place = f"policy `{policy}`, augmentation `{augmentation.name}`"
    if not isinstance(probability, (float, int)) or not 0 <= probability <= 1:
        raise ArgumentError(f"{place}: the probability {probability!r} must be a number from 0 to 1")
    if probability == 0:
        warn(f"{place}: the probability is 0, so the augmentation is never applied", UserWarning)
    if magnitude_bin is None:
        if augmentation.mag_range is not None:
            raise ArgumentError(f"{place}: the magnitude bin is None; pass 0 to {num_magnitude_bins - 1}")
        return
    if augmentation.mag_range is None:
        warn(
            f"{place}: it has no magnitudes, so the bin {magnitude_bin!r} is ignored: pass None",
            UserWarning,
        )
    if not isinstance(magnitude_bin, int) or not 0 <= magnitude_bin < num_magnitude_bins:
        raise ArgumentError(f"{place}: the magnitude bin {magnitude_bin!r} must be from 0 to {num_magnitude_bins - 1}")
