"""Warnings that point at the user's line, however deep in this package they are given."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn(message: str, category: type[Warning]) -> None:
    """Warn of the innermost line outside of this package that has led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
