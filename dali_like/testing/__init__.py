"""Helpers for tests of this library and of its users: a simulated GPU in host memory.

No other package imports from here.
"""
