"""Format numbers for reports."""

from __future__ import annotations

from collections.abc import Sequence

#: Cells of a histogram, the lowest first.
_BARS = " ▁▂▃▄▅▆▇█"
_PREFIXES = ("", "k", "M", "G", "T")


def seconds_text(seconds: float) -> str:
    """Format a duration in a fitting unit.

    >>> [seconds_text(seconds) for seconds in (0.0, 0.0000015, 0.0234, 12.3, 300.0)]
    ['0 s', '1.5 us', '23 ms', '12 s', '300 s']
    """
    if seconds <= 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{_short(seconds * factor)} {unit}"
    raise AssertionError


def bytes_text(nbytes: float) -> str:
    """Format a number of bytes in a fitting unit.

    >>> [bytes_text(nbytes) for nbytes in (0, 999, 1_500_000, 2**34)]
    ['0 B', '999 B', '1.5 MB', '17 GB']
    """
    for prefix in _PREFIXES:
        if nbytes < 1000 or prefix == _PREFIXES[-1]:
            return f"{_short(nbytes)} {prefix}B"
        nbytes /= 1000
    raise AssertionError


def sparkline(counts: Sequence[int], most_cells: int) -> str:
    """Draw a histogram in one line: neighboring bins share a cell if there are more bins than cells.

    >>> sparkline([1, 0, 4, 8], 4), sparkline([1, 1, 4, 8], 2), sparkline([], 2)
    ('▁ ▄█', '▂█', '')
    """
    width = -(-len(counts) // most_cells)
    cells = [sum(counts[i : i + width]) for i in range(0, len(counts), width or 1)]
    highest = max(cells, default=0)
    return "".join(_BARS[-(-cell * (len(_BARS) - 1) // highest)] if cell else " " for cell in cells)


def _short(number: float) -> str:
    """Format two digits, or all digits before the decimal point."""
    return f"{number:.1f}" if 0 < number < 9.95 else f"{number:,.0f}"
