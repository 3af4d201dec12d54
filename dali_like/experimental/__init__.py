"""Interfaces that may still change, as in ``nvidia.dali.experimental``: dynamic mode.

May import pipelines and all layers below them.
"""

from __future__ import annotations

from dali_like.common.lazy_names import importer

__getattr__, __dir__ = importer(__name__, {"dali_like.experimental.dynamic": ()})
