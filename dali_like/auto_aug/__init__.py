"""Automatic augmentation: AutoAugment, RandAugment and TrivialAugment, with the names of ``nvidia.dali.auto_aug``.

`core` has the parts: augmentations with magnitudes, policies, and the choice of an augmentation for each sample. The
modules `auto_augment`, `rand_augment` and `trivial_augment` have one scheme each, and `augmentations` has the operations.
Each sample takes one branch in the worker: the augmentations that it does not take cost nothing.

The modules define ``CONVERT_CONDITIONALS``, so augmentations of users may contain ``if`` on data nodes
(see `dali_like.pipeline.autograph`). The library's own augmentations do not need ``enable_conditionals``.
"""
