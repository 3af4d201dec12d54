"""Marks for DALI's capture of loops. Here each call computes its result before it returns, so nothing is captured."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["invariant"]

T = TypeVar("T")


def invariant(value: T) -> T:
    """Return `value`: arguments are read in each iteration, so that none has to be marked as constant."""
    return value
