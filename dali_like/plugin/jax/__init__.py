"""Iterators over pipelines and a `DataLoader` that deliver JAX arrays, and functions of JAX arrays as operators, in `fn`.

The interface is that of ``nvidia.dali.plugin.jax`` 1.53.

Existing programs only change the import. With workers, use ``py_start_method="spawn"``: once imported, JAX warns at every
fork.

>>> from dali_like.plugin.jax import data_iterator  # instead of nvidia.dali.plugin.jax
"""

from __future__ import annotations

from dali_like.common.extras import optional

optional("jax", "dali_like.plugin.jax", "jax")

from dali_like.plugin.jax import fn  # noqa: E402
from dali_like.plugin.jax.iterator import DALIGenericIterator, data_iterator  # noqa: E402
from dali_like.plugin.jax.jax_loader import DataLoader  # noqa: E402

__all__ = ["DALIGenericIterator", "DataLoader", "data_iterator", "fn"]
