"""Test suites of other projects, with this library's loader in the place of PyTorch's: ``make suites SOURCES=folder``."""
