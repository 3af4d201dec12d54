"""Features of ``fn.readers.tfrecord``, as in ``nvidia.dali.tfrecord``."""

from __future__ import annotations

from dali_like.sources.readers.tfrecord_features import Feature, FixedLenFeature, VarLenFeature, float32, int64, string

__all__ = ["Feature", "FixedLenFeature", "VarLenFeature", "float32", "int64", "string"]
