"""Example programs; start with `examples.demo`."""
