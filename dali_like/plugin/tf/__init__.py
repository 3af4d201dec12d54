"""Batches of pipelines as a ``tf.data.Dataset``.

>>> from dali_like.plugin.tf import DALIDataset  # instead of nvidia.dali.plugin.tf

Sources of a pipeline may be of any kind, also with workers. TensorFlow is imported when a dataset is made.
"""

from __future__ import annotations

from dali_like.plugin.tf import experimental
from dali_like.plugin.tf.tf_dataset import DALIDataset

__all__ = ["DALIDataset", "experimental"]
