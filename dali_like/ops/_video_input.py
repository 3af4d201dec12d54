"""`Video`, as in ``nvidia.dali.ops.experimental.inputs``."""

from __future__ import annotations

from typing import Any

from dali_like.fn._video_input import video
from dali_like.graph.language.nodes import DataNode

__all__ = ["Video"]


class Video:
    """Splits videos that the user feeds into sequences of frames. See ``fn.experimental.inputs.video``.

    Args:
        arguments: of ``fn.experimental.inputs.video``.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments

    def __call__(self, **arguments: Any) -> DataNode:
        """Add the node."""
        return video(**{**self._arguments, **arguments})
