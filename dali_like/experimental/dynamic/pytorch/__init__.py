"""Dynamic mode in graphs of ``torchdata.nodes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dali_like.common.lazy_names import importer

if TYPE_CHECKING:
    from dali_like.experimental.dynamic.pytorch import nodes

__all__ = ["nodes"]

__getattr__, __dir__ = importer(__name__, {"dali_like.experimental.dynamic.pytorch.nodes": ()})
