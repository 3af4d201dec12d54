"""Tests that need a GPU; skipped without one. `make gpu` runs them together with the GPU benchmarks."""
