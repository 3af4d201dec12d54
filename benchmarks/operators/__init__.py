"""Every operator beside that of NVIDIA DALI: ``python -m benchmarks.operators``."""
