"""Helpers for tests, this library's and its users': a simulated GPU in plain memory.

No other package imports from here.
"""
