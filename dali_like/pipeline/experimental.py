"""`pipeline_def` under its name in ``nvidia.dali.pipeline.experimental``, where ``debug=True`` is allowed."""

from __future__ import annotations

from dali_like.pipeline.definition import pipeline_def

__all__ = ["pipeline_def"]
