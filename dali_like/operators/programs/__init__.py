"""Operators that call the program's functions, or read its files."""

from __future__ import annotations

from dali_like.operators.programs import file_access, numba_functions, python_functions

__all__ = ["file_access", "numba_functions", "python_functions"]
