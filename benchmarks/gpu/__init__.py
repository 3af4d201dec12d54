"""Tests and benchmarks that need a GPU: ``python -m benchmarks.gpu``; see its ``__main__``."""
