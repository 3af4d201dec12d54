"""Outputs of iterators for JAX; tests/parity/test_jax.py runs these tests."""
