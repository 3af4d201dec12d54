"""Format numbers for reports."""

from __future__ import annotations

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


def _short(number: float) -> str:
    """Format two digits, or all digits before the decimal point."""
    return f"{number:.1f}" if 0 < number < 9.95 else f"{number:,.0f}"
