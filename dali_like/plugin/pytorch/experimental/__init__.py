"""Interfaces that may still change, as in ``nvidia.dali.plugin.pytorch.experimental``."""

from __future__ import annotations

from dali_like.common.lazy_names import importer

__getattr__, __dir__ = importer(__name__, {"dali_like.plugin.pytorch.experimental.proxy": ()})
