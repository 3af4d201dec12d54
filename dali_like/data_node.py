"""`DataNode`, as in ``nvidia.dali.data_node``."""

from __future__ import annotations

from dali_like.graph.nodes import DataNode

__all__ = ["DataNode"]
