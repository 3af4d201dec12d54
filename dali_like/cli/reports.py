"""What subcommands that take a while print meanwhile, and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Self

_CELLS = 30
_CLEAR = "\r\x1b[K"


class StatusLine:
    """A bar on the terminal, for as long as a context lasts; nothing where stderr is no terminal."""

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
        """How much is done, from 0 to 1, and at which rate of samples."""
        if self._is_seen:
            filled = round(min(done, 1.0) * _CELLS)
            bar = "█" * filled + "░" * (_CELLS - filled)
            speed = f"{rate:,.0f} samples/s" if rate else ""
            print(f"{_CLEAR}{bar} {self._what}  {speed}", end="", file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns are as wide as they have to be, and stand on the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "   ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def rate_text(samples_per_s: float) -> str:
    """A rate with as many digits as it deserves."""
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"


def size_text(nbytes: int) -> str:
    """A number of bytes."""
    return f"{nbytes / (1 << 20):,.0f} MiB" if nbytes else "?"
