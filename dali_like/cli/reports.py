"""Progress bar and tables of subcommands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Self

_CELLS = 30
_CLEAR = "\r\x1b[K"


class StatusLine:
    """Context manager that shows a progress bar, if stderr is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_seen = sys.stderr.isatty()

    def __enter__(self) -> Self:
        self.show(0.0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_seen:
            print(_CLEAR, end="", file=sys.stderr, flush=True)

    def show(self, done: float, rate: float = 0.0) -> None:
        """Show the progress, from 0 to 1, and a rate in samples/s."""
        if self._is_seen:
            filled = round(min(done, 1.0) * _CELLS)
            bar = "█" * filled + "░" * (_CELLS - filled)
            speed = f"{rate:,.0f} samples/s" if rate else ""
            print(f"{_CLEAR}{bar} {self._what}  {speed}", end="", file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table with right-aligned columns."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "   ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def rate_text(samples_per_s: float) -> str:
    """Format a rate with three digits or more."""
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"


def size_text(nbytes: int) -> str:
    """Format a number of bytes."""
    return f"{nbytes / (1 << 20):,.0f} MiB" if nbytes else "?"
