"""Batches in flight: which batches there are, and how they are kept on their way.

- A *plan* says which batches there are: size, positions, the worker that owns them, the end of the epoch, and the
  state from which another process resumes. It is pure, and knows no pool.
- A *feed* keeps some batches of a plan in flight over a pool: it begins, takes, cancels and puts back. It knows no object of
  the user. `Feed` is that of a pipeline's source; a loader's iterator is its own.
- A *pool* computes batches; see `dali_like.engine.pool.base`.

Pipelines, loaders with and without workers, and composed datasets differ in their plans. This layer imports ``sources``,
``engine`` and ``common``.
"""
