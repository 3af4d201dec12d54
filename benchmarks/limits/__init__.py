"""Compare dali_like with hardware limits: ``python -m benchmarks.limits``.

Each row measures one of our figures and, in the same process and directly next to it, its limit: the same work without
handing over batches, a wake-up through a pipe, the start of two interpreters, or one copy of the memory. The verdict
compares the two. What the cores allow is computed from CPU times: the cores, divided by those of the main process and of the
workers for a batch.
"""
