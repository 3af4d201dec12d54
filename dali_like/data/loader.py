"""The data loader whose batches are NumPy arrays."""

from __future__ import annotations

from dali_like.data.loading import Loading
from dali_like.data.options import LoaderOptions, T_co

__all__ = ["DataLoader"]


class DataLoader(Loading, LoaderOptions[T_co]):
    __doc__ = LoaderOptions.__doc__
