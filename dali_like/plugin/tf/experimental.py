"""Datasets whose pipelines have other datasets as inputs, as in ``nvidia.dali.plugin.tf.experimental``."""

from __future__ import annotations

from dali_like.plugin.tf.tf_dataset import DALIDatasetWithInputs, Input

__all__ = ["DALIDatasetWithInputs", "Input"]
