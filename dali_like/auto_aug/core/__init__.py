"""Parts of automatic augmentations: augmentations, magnitude bins, choices and policies."""

from dali_like.auto_aug.core._augmentation import Augmentation as _Augmentation
from dali_like.auto_aug.core._augmentation import augmentation
from dali_like.auto_aug.core._magnitudes import signed_bin
from dali_like.auto_aug.core._select import select
from dali_like.auto_aug.core.policy import Policy

__all__ = ["Policy", "_Augmentation", "augmentation", "select", "signed_bin"]
