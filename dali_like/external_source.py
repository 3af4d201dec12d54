"""`external_source`, as in ``nvidia.dali.external_source``; see `dali_like.fn`."""

from dali_like.fn import external_source

__all__ = ["external_source"]
