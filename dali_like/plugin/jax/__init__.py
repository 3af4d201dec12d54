"""Iterators over pipelines that deliver arrays of JAX, as ``nvidia.dali.plugin.jax`` 1.53 has them.

Programs written for that move over by changing the import. With workers, take ``py_start_method="spawn"``: JAX, once it is
imported, warns of every fork.

>>> from dali_like.plugin.jax import data_iterator  # in place of nvidia.dali.plugin.jax
"""

from __future__ import annotations

from dali_like.common.extras import optional

optional("jax", "dali_like.plugin.jax", "jax")

from dali_like.plugin.jax.iterator import DALIGenericIterator, data_iterator  # noqa: E402

__all__ = ["DALIGenericIterator", "data_iterator"]
