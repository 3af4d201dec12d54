"""Compiled loops for operators of dali_like, which finds this package by its name. There is nothing else to import."""

from pathlib import Path

__all__ = ["LIBRARY", "__version__"]

__version__ = "0.1.0"
#: The path of the library.
LIBRARY = str(Path(__file__).with_name("libdali_like_kernels.so"))
