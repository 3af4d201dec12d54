"""Remove harmless irregularities from JPEG files.

libjpeg reports only the first irregularity of a file, and goes on. To know whether there is a serious one behind a harmless
one, a decoder removes the harmless one from a copy, and decodes that. Cameras and editors write such files: with an end of
the spectrum of 0 (Samsung's front cameras), with an unknown version of JFIF or transform of Adobe, with restart markers that
are not numbered in order, or with other bytes between scans.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["without_irregularity"]

#: Messages of libjpeg for what `_tidy` removes.
_UNTIDY = re.compile(
    "Invalid SOS parameters for sequential JPEG|unknown JFIF revision number|Unknown Adobe color transform code|"
    "found marker 0x[0-9a-f]+ instead of RST"
)
#: Its message for bytes behind the data of a scan.
_EXTRANEOUS = re.compile("([0-9]+) extraneous bytes before marker 0x([0-9a-f]+)")
#: Places where these bytes may be: the message does not say which scan it is about.
_MOST_PLACES = 16

_APP0, _APP14, _SCAN = 0xE0, 0xEE, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_RESTARTS = range(0xD0, 0xD8)
_BARE = frozenset({0x01, 0xD8, *_RESTARTS})  # markers without a length


def without_irregularity(encoded: NDArray[np.uint8], message: str) -> Iterator[NDArray[np.uint8]]:
    """Return changed copies of a JPEG, of which one has the same pixels, without a harmless irregularity.

    Args:
        encoded: the bytes of the file, 1-D uint8.
        message: what libjpeg says of the file. There are no copies if this is not harmless.
    """
    if _UNTIDY.search(message):
        tidy = _tidy(encoded)
        return iter([] if np.array_equal(tidy, encoded) else [tidy])
    if match := _EXTRANEOUS.search(message):
        return itertools.islice(_without_bytes_before(encoded, int(match[2], 16), int(match[1])), _MOST_PLACES)
    return iter([])


def _tidy(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Replace values that libjpeg takes for others, and number the restart markers."""
    tidy = encoded.copy()
    components = restarts = adobe = 0
    is_progressive = False
    for marker, position in _markers(encoded):
        payload = position + 4
        if marker == _APP0 and encoded[payload : payload + 5].tobytes() == b"JFIF\0":
            tidy[payload + 5 : payload + 6] = 1
        elif marker == _APP14 and encoded[payload : payload + 5].tobytes() == b"Adobe":
            adobe = payload + 11
        elif marker in _FRAMES:
            is_progressive = marker in _PROGRESSIVE
            components = int(encoded[payload + 5])
        elif marker == _SCAN:
            restarts = 0
            spectrum = payload + 1 + 2 * int(encoded[payload])
            if not is_progressive:
                tidy[spectrum : spectrum + 3] = np.array([0, 63, 0])[: len(tidy) - spectrum]
        elif marker in _RESTARTS:
            tidy[position + 1] = _RESTARTS[restarts % len(_RESTARTS)]
            restarts += 1
    if 0 < adobe < len(tidy):
        known = {3: (0, 1), 4: (0, 2)}.get(components)  # RGB or YCbCr, CMYK or YCCK
        if known is not None and tidy[adobe] not in known:
            tidy[adobe] = known[1]
    return tidy


def _without_bytes_before(encoded: NDArray[np.uint8], marker: int, count: int) -> Iterator[NDArray[np.uint8]]:
    """Yield copies that lack bytes before a marker, one copy for each place of this marker."""
    end = 0  # of the segment before
    for each, position in _markers(encoded):
        if each == marker and position - count >= end:
            yield np.concatenate([encoded[: position - count], encoded[position:]])
        if each not in _RESTARTS:
            end = position + 2 + _length(encoded, position)


def _markers(encoded: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Yield the markers behind the first one, and their positions, up to the first segment that is incomplete."""
    first = np.flatnonzero(encoded[:-1] == 0xFF)
    second = encoded[first + 1]
    found = first[(second != 0) & (second != 0xFF)]
    position = 2
    while (index := int(np.searchsorted(found, position))) < len(found):
        position = int(found[index])
        marker = int(encoded[position + 1])
        if position + 4 > len(encoded):
            return
        size = 0 if marker in _BARE else _length(encoded, position)
        if position + 2 + size > len(encoded):
            return
        yield marker, position
        position += 2 + size


def _length(encoded: NDArray[np.uint8], position: int) -> int:
    """Return the length of the segment at a position, without its marker."""
    return int(encoded[position + 2]) << 8 | int(encoded[position + 3])
