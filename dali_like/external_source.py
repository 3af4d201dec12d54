"""`external_source`, where DALI has it, too; see `dali_like.fn`."""

from dali_like.fn import external_source

__all__ = ["external_source"]
