"""`pickle_by_value`, as in ``nvidia.dali.pickling``; see `dali_like.sources.callback_pickler`."""

from dali_like.sources.callback_pickler import pickle_by_value

__all__ = ["pickle_by_value"]
