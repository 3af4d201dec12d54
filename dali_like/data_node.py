"""`DataNode`, where DALI has it."""

from __future__ import annotations

from dali_like.graph.nodes import DataNode

__all__ = ["DataNode"]
