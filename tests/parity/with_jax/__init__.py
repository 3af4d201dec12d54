"""What iterators deliver to JAX; tests/parity/test_jax.py runs these tests."""
