"""How near dali_like comes to what the hardware allows: ``python -m benchmarks.limits``.

Each row measures a figure of ours and, in the same process and right beside it, its limit: the same work with no hand-over,
a wake-up through a pipe, two interpreters that start, one copy of the memory. The verdict is about the two together.
"""
