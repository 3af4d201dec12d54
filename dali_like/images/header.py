"""Read headers of image files: format, size, channels, orientation, and where the data should end.

One small reader for each format follows the specifications: ITU-T T.81 and Exif 2.32 (JPEG), ITU-T T.800 (JPEG 2000),
PNG 1.3, the WebP container specification, Microsoft's BITMAPINFOHEADER (BMP), Netpbm (PNM), TIFF 6.0 and BigTIFF. The
readers decode nothing and never raise, for any bytes. An inconsistent header counts as none; the decoder judges the data
behind it.

EXIF uses the same tag directory as TIFF, so one reader serves both.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "SAMPLES_OF_SCANS",
    "SCANS",
    "FileFacts",
    "ImageHeader",
    "JpegBlocks",
    "file_facts",
    "has_more_scans",
    "jpeg_blocks",
    "jpeg_is_complete",
    "most_scans",
]

#: Scans that any JPEG may have. Cameras and programs write about ten.
SCANS = 64
#: Samples that all scans of a JPEG together may go through, which takes some ten seconds.
SAMPLES_OF_SCANS = 1 << 35


class ImageHeader(NamedTuple):
    """Properties that an image file declares.

    Attributes:
        format: "jpeg", "jpeg 2000", "png", "webp", "bmp", "pnm" or "tiff".
        height: in pixels, as stored, before orientation.
        width: likewise.
        channels: 1 gray, 3 color, 4 color with alpha; or the number of bands of a TIFF. Palettes and CMYK count as color.
            Alpha of gray does not count.
        orientation: EXIF or TIFF orientation, 1 to 8; 1 (upright) if the file has no orientation.
    """

    format: str
    height: int
    width: int
    channels: int
    orientation: int


class PlainTiff(NamedTuple):
    """A TIFF whose samples are those of gray or RGB, or further bands.

    Attributes:
        compression: the number of the method.
        is_planar: whether each channel is stored by itself.
        has_bands: whether there are other channels than gray, RGB and alpha, as in images of satellites.
    """

    compression: int
    is_planar: bool
    has_bands: bool


class FileFacts(NamedTuple):
    """An `ImageHeader`, and further properties that decoders need.

    Attributes:
        format: as in `ImageHeader`.
        header: None if there is a problem with it.
        needs_bytes: a shorter file is truncated; 0: only the decoder can detect truncation.
        ink: for CMYK JPEGs: "plain" (0: without ink) or "inverted" (255: without ink, as Adobe stores it); otherwise "none".
        problem: description of the problem if `header` is None.
        patches: (position, bytes) to overwrite in a copy of the file before OpenCV reads it.
        bits: of a sample of a TIFF.
        plain_tiff: None for other files.
    """

    format: str
    header: ImageHeader | None = None
    needs_bytes: int = 0
    ink: Literal["none", "plain", "inverted"] = "none"
    problem: str = "incomplete or broken header"
    patches: tuple[tuple[int, bytes], ...] = ()
    bits: int = 8
    plain_tiff: PlainTiff | None = None


def file_facts(data: memoryview) -> FileFacts | None:
    """Return the facts about an image file; None if the first bytes are not those of a supported format."""
    start = bytes(data[:12])
    reader: Callable[[memoryview], FileFacts] | None = None
    if start.startswith(b"\xff\xd8\xff"):
        reader = _jpeg_facts
    elif start.startswith(b"\x89PNG\r\n\x1a\n"):
        reader = _png_facts
    elif start.startswith(b"RIFF") and start.endswith(b"WEBP"):
        reader = _webp_facts
    elif start.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        reader = _tiff_facts
    elif start.startswith(b"BM"):
        reader = _bmp_facts
    elif start.startswith((_JP2_SIGNATURE, _CODESTREAM)):
        reader = _jpeg_2000_facts
    elif start[:1] == b"P" and start[1:2] in b"123456" and start[2:3].isspace():
        reader = _pnm_facts
    return reader(data) if reader is not None else None


def jpeg_is_complete(data: memoryview) -> bool:
    """Return whether an end-of-image marker follows the first scan header; scan data never contain this pair of bytes."""
    for marker, position, _ in _jpeg_segments(data):
        if marker == _JPEG_SCAN:
            return bytes(data[position:]).find(b"\xff\xd9") >= 0
    return False


class JpegBlocks(NamedTuple):
    """Storage of the rows of a JPEG image.

    Attributes:
        position: position of the two bytes that declare the image height.
        image_height: the declared height.
        height: height of a row of blocks, whose pixel rows are stored together.
    """

    position: int
    image_height: int
    height: int


def jpeg_blocks(data: memoryview) -> JpegBlocks | None:
    """Return how a JPEG stores its rows; None unless its rows of blocks are sequential, in a single scan.

    Progressive JPEGs, JPEGs with a scan for each color, and JPEGs with restart markers return None.
    """
    blocks, components = None, 0
    for marker, position, payload in _jpeg_segments(data):
        if marker in _JPEG_SEQUENTIAL and len(payload) >= 6:
            image_height, components = int.from_bytes(payload[1:3], "big"), payload[5]
            samplings = payload[7 : 6 + 3 * components : 3]
            if components not in (1, 3) or len(samplings) != components:
                return None
            height = 8 if components == 1 else 8 * max(sampling & 0xF for sampling in samplings)
            blocks = JpegBlocks(position + 5, image_height, height)
        elif marker in _JPEG_FRAMES or marker == _JPEG_RESTART_INTERVAL:
            return None
        elif marker == _JPEG_SCAN:
            return blocks if len(payload) and payload[0] == components else None
    return None


def most_scans(height: int, width: int) -> int:
    """Return how many scans a JPEG of this size may have, so that a small file cannot take minutes."""
    return max(SCANS, SAMPLES_OF_SCANS // max(1, height * width * 3))


def has_more_scans(data: memoryview, most: int) -> bool:
    """Return whether a JPEG has more scans than `most`: each one goes through all pixels, however short it is."""
    if len(data) < most * _LEAST_SCAN_BYTES:
        return False
    encoded = bytes(data)
    if encoded.count(b"\xff\xda") <= most:  # thumbnails and data behind the image may have these bytes, too
        return False
    scans, position = 0, 2
    while scans <= most and (found := _JPEG_MARKER.search(encoded, position)):
        marker, position = encoded[found.end() - 1], found.end()
        if marker == _JPEG_END:
            return False
        scans += marker == _JPEG_SCAN
        if marker not in _JPEG_BARE_MARKERS:
            position += max(2, int.from_bytes(encoded[position : position + 2], "big"))
    return scans > most


_EXIF_NAME = b"Exif\0\0"
#: A marker between segments, or behind the data of a scan, which contain 0xFF only before 0 and restart markers.
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_JPEG_END = 0xD9
#: A scan has a marker and a header.
_LEAST_SCAN_BYTES = 10
_JPEG_SCAN = 0xDA
_JPEG_SEQUENTIAL = frozenset({0xC0, 0xC1})
_JPEG_RESTART_INTERVAL = 0xDD
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # SOFn, without DHT, JPG and DAC
_JPEG_BARE_MARKERS = frozenset({0x01, *range(0xD0, 0xD9)})  # TEM, RSTn and SOI have no length


def _jpeg_segments(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (marker, position, payload) of the segments up to and including the first scan header."""
    position, last = 2, len(data) - 4
    while position <= last and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
        elif marker == 0:
            return  # not a marker: decoders would not skip the bytes that follow, which may be another header
        elif marker in _JPEG_BARE_MARKERS:
            position += 2
        else:
            end = position + 2 + (data[position + 2] << 8 | data[position + 3])
            yield marker, position, data[position + 4 : end]
            if marker == _JPEG_SCAN:
                return
            position = end


def _jpeg_facts(data: memoryview) -> FileFacts:
    orientation, adobe = 1, False
    for marker, _, payload in _jpeg_segments(data):
        if marker == 0xE1 and orientation == 1 and bytes(payload[:6]) == _EXIF_NAME:
            orientation = _exif_orientation(payload)
        elif marker == 0xEE and bytes(payload[:5]) == b"Adobe" and len(payload) >= 12:
            adobe = True
        elif marker in _JPEG_FRAMES and len(payload) >= 6:
            _, height, width, components = struct.unpack_from(">BHHB", payload)
            header = ImageHeader("jpeg", height, width, 1 if components == 1 else 3, orientation)
            if components != 4:
                return FileFacts("jpeg", header)
            return FileFacts("jpeg", header, ink="inverted" if adobe else "plain")
    return FileFacts("jpeg")


_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 1, 6: 4}  # by color type


def _png_facts(data: memoryview) -> FileFacts:
    header = None
    orientation, position, ended = 1, 8, False
    while not ended and position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        payload = data[position + 8 : position + 8 + length]
        position += 12 + length
        if kind == b"IHDR" and len(payload) == 13 and header is None:  # decoders use the first one
            width, height, _, color = struct.unpack_from(">IIBB", payload)
            if color in _PNG_CHANNELS:
                header = ImageHeader("png", height, width, _PNG_CHANNELS[color], 1)
        elif kind == b"eXIf":
            orientation = _exif_orientation(payload)
        ended = kind == b"IEND"
    header = header and header._replace(orientation=orientation)
    return FileFacts("png", header, needs_bytes=position if ended else position + 12)


def _webp_facts(data: memoryview) -> FileFacts:
    size: tuple[int, int] | None = None
    alpha, orientation = False, 1
    needs_bytes = 8 + int.from_bytes(data[4:8], "little")
    position = 12
    while position + 8 <= min(len(data), needs_bytes):
        kind, length = struct.unpack_from("<4sI", data, position)
        payload = data[position + 8 : position + 8 + length]
        position += 8 + length + length % 2
        if kind == b"VP8X" and len(payload) >= 10:
            size = 1 + int.from_bytes(payload[7:10], "little"), 1 + int.from_bytes(payload[4:7], "little")
            alpha = bool(payload[0] & 0x10)
        elif kind == b"VP8 " and len(payload) >= 10:
            width, height = struct.unpack_from("<HH", payload, 6)
            size = size or (height & 0x3FFF, width & 0x3FFF)
        elif kind == b"VP8L" and len(payload) >= 5:
            bits = int.from_bytes(payload[1:5], "little")
            size = size or (1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF))
            alpha = bool(bits >> 28 & 1)
        elif kind == b"ALPH":
            alpha = True
        elif kind == b"EXIF":
            orientation = _exif_orientation(payload)
    header = ImageHeader("webp", *size, 4 if alpha else 3, orientation) if size is not None else None
    return FileFacts("webp", header, needs_bytes)


_JP2_SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
_CODESTREAM = b"\xff\x4f\xff\x51"  # start of codestream, and the marker of the image size
_TILE_PART = 0xFF90
_JPEG_2000_CHANNELS = {1: 1, 2: 1, 3: 3}  # by components; others: color with alpha


def _boxes(data: memoryview, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end) of the contents of the boxes of a JP2 file. The last end may lie behind the data."""
    while position + 8 <= min(end, len(data)):
        length, kind = struct.unpack_from(">I4s", data, position)
        start = position + 8
        if length == 1 and start + 8 <= len(data):
            (length,) = struct.unpack_from(">Q", data, start)
            start += 8
        position = position + length if length else end
        if position < start:
            return
        yield kind, start, position


def _jpeg_2000_facts(data: memoryview) -> FileFacts:
    start, needs_bytes, palette_channels = 0, 0, 0
    if bytes(data[:4]) != _CODESTREAM:
        start = len(data)
        for kind, begin, end in _boxes(data, 0, len(data)):
            if kind == b"jp2h":
                palettes = [inner for name, inner, _ in _boxes(data, begin, end) if name == b"pclr"]
                palette_channels = data[palettes[0] + 2] if palettes and palettes[0] + 2 < len(data) else 0
            needs_bytes = end
            if kind == b"jp2c":
                start = begin
                break
    try:
        right, bottom, left, top = struct.unpack_from(">4I", data, start + 8)
        (components,) = struct.unpack_from(">H", data, start + 40)
        channels = palette_channels or components
        header = ImageHeader("jpeg 2000", bottom - top, right - left, _JPEG_2000_CHANNELS.get(channels, 4), 1)
        needs_bytes = max(needs_bytes, _codestream_end(data, start))
    except struct.error:
        return FileFacts("jpeg 2000", needs_bytes=max(needs_bytes, start + 42))
    return FileFacts("jpeg 2000", header if components and header.height > 0 and header.width > 0 else None, needs_bytes)


def _codestream_end(data: memoryview, start: int) -> int:
    """Return the end of a JPEG 2000 codestream; it may lie behind the data.

    Raises:
        struct.error: the data end in the middle of a header.
    """
    position = start + 2
    while position + 2 <= len(data):
        marker, length = struct.unpack_from(">HH", data, position)
        if marker == _TILE_PART:
            (length,) = struct.unpack_from(">I", data, position + 6)
            if length == 0:  # up to the end
                return position + 14
            position += int(length)
            if bytes(data[position : position + 2]) == b"\xff\xd9":
                return position + 2
        else:
            position += 2 + int(length)
    return position + 2


_PNM_NUMBER = re.compile(rb"(?:\s|#[^\n\r]*[\n\r])+(\d{1,9})(?!\d)")
_PNM_BITMAPS = b"14"


def _pnm_facts(data: memoryview) -> FileFacts:
    kind = bytes(data[1:2])
    numbers, position = [], 2
    for _ in range(2 if kind in _PNM_BITMAPS else 3):
        match = _PNM_NUMBER.match(data, position)
        if match is None:
            return FileFacts("pnm")
        numbers.append(int(match[1]))
        position = match.end()
    width, height, *most = numbers
    channels = 3 if kind in b"36" else 1
    row = -(-width // 8) if kind == b"4" else width * channels * (2 if most and most[0] > 0xFF else 1)
    is_valid = width > 0 and height > 0 and (not most or 0 < most[0] <= 0xFFFF)
    header = ImageHeader("pnm", height, width, channels, 1) if is_valid else None
    return FileFacts("pnm", header, needs_bytes=position + 1 + row * height if kind in b"456" else position + 1)


_BMP_RGB, _BMP_BITFIELDS = 0, 3  # values of biCompression with rows of full length


def _bmp_facts(data: memoryview) -> FileFacts:
    try:
        pixels_at, info_size = struct.unpack_from("<II", data, 10)
        compression = colors = 0
        if info_size == 12:  # BITMAPCOREHEADER
            width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        else:
            width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
            (colors,) = struct.unpack_from("<I", data, 46)
    except struct.error:
        return FileFacts("bmp", needs_bytes=54)
    channels = 4 if bits == 32 and compression == _BMP_BITFIELDS else 3
    if bits <= 8:
        entry = 3 if info_size == 12 else 4
        start = 14 + info_size
        palette = bytes(data[start : start + entry * min(colors or 1 << bits, 1 << bits)])
        channels = 1 if palette[0::entry] == palette[1::entry] == palette[2::entry] else 3
    header = ImageHeader("bmp", abs(height), width, channels, 1)
    full_rows = (width * bits + 31) // 32 * 4 * abs(height) if compression in {_BMP_RGB, _BMP_BITFIELDS} else 0
    return FileFacts("bmp", header, needs_bytes=pixels_at + full_rows)


class _Field(NamedTuple):
    """Location of the values of a TIFF tag."""

    position: int
    length: int
    dtype: np.dtype[Any]

    def end(self) -> int:
        return self.position + self.length * self.dtype.itemsize

    def values(self, data: memoryview) -> list[int]:
        """Return the values, or none of them if some lie outside the data."""
        if self.end() > len(data):
            return []
        values: list[int] = np.frombuffer(data, self.dtype, self.length, self.position).tolist()
        return values


class _TiffLayout(NamedTuple):
    """Packing of the parts of a directory: struct codes without byte order."""

    first_directory: str
    entry_count: str
    entry: str
    value: str


_TIFF_LAYOUTS = {42: _TiffLayout("4xI", "H", "HHI", "I"), 43: _TiffLayout("8xQ", "Q", "HHQ", "Q")}  # TIFF, BigTIFF
_TIFF_TYPES = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}  # BYTE, SHORT, LONG and BigTIFF's LONG8
_WIDTH, _LENGTH, _BITS, _PHOTOMETRIC, _ORIENTATION, _SAMPLES, _EXTRA_SAMPLES = 256, 257, 258, 262, 274, 277, 338
_COMPRESSION, _PLANES, _SEPARATE_PLANES = 259, 284, 2
_SEGMENTS = ((273, 279), (324, 325))  # offsets and byte counts, of strips and of tiles
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _CMYK = 0, 1, 2, 5
_PLAIN_TIFFS = (_BLACK_IS_ZERO, _RGB)
_TIFF_COLORS = {
    _WHITE_IS_ZERO: 1,
    _BLACK_IS_ZERO: 1,
    _RGB: 3,
    3: 3,
    _CMYK: 3,
    6: 3,
    8: 3,
}  # channels by photometric interpretation
_UNASSOCIATED_ALPHA, _ASSOCIATED_ALPHA = 2, 1


class _Directory(NamedTuple):
    """First directory of a TIFF: its integer tags, and its end, which may lie beyond the data."""

    fields: dict[int, _Field]
    end: int


def _tiff_directory(data: memoryview) -> _Directory:
    fields: dict[int, _Field] = {}
    order = {b"II": "<", b"MM": ">"}.get(bytes(data[:2]))
    if order is None or len(data) < 16:
        return _Directory(fields, 16)
    layout = _TIFF_LAYOUTS.get(struct.unpack_from(f"{order}H", data, 2)[0])
    if layout is None:
        return _Directory(fields, 0)
    first_directory, entry_count, entry, value = (struct.Struct(order + codes) for codes in layout)
    (position,) = first_directory.unpack_from(data)
    start = position + entry_count.size
    if start > len(data):
        return _Directory(fields, start)
    (count,) = entry_count.unpack_from(data, position)
    end = start + count * (entry.size + value.size)
    for position in range(start, min(end, len(data)) - entry.size - value.size + 1, entry.size + value.size):
        tag, kind, length = entry.unpack_from(data, position)
        if kind in _TIFF_TYPES:
            dtype = np.dtype(order + _TIFF_TYPES[kind])
            at = position + entry.size
            if length * dtype.itemsize > value.size:
                (at,) = value.unpack_from(data, at)
            fields.setdefault(tag, _Field(at, length, dtype))
    return _Directory(fields, end)


def _exif_orientation(exif: memoryview) -> int:
    """Return the orientation in an EXIF block, with or without its leading name; 1 if there is no valid one."""
    if bytes(exif[:6]) == _EXIF_NAME:
        exif = exif[6:]
    field = _tiff_directory(exif).fields.get(_ORIENTATION)
    values = field.values(exif) if field is not None else []
    return values[0] if values and 1 <= values[0] <= 8 else 1


def _tiff_facts(data: memoryview) -> FileFacts:
    fields, needs_bytes = _tiff_directory(data)

    def first(tag: int, default: int) -> int:
        values = fields[tag].values(data) if tag in fields else []
        return values[0] if values else default

    for tag in (_BITS, *_SEGMENTS[0], *_SEGMENTS[1]):
        needs_bytes = max(needs_bytes, fields[tag].end() if tag in fields else 0)
    for starts, sizes in _SEGMENTS:
        if starts in fields and sizes in fields:
            segments = zip(fields[starts].values(data), fields[sizes].values(data), strict=False)
            needs_bytes = max(needs_bytes, *(start + size for start, size in segments), 0)

    height, width, samples = first(_LENGTH, 0), first(_WIDTH, 0), first(_SAMPLES, 1)
    photometric = first(_PHOTOMETRIC, -1)
    colors = _TIFF_COLORS.get(photometric, min(samples, 3))
    has_gray_alpha = samples == 2 and first(_EXTRA_SAMPLES, 0) in (_ASSOCIATED_ALPHA, _UNASSOCIATED_ALPHA)
    has_bands = samples > (4 if photometric == _RGB else 1) and not has_gray_alpha
    if photometric in _PLAIN_TIFFS and has_bands:
        channels = samples
    elif photometric == _WHITE_IS_ZERO and has_bands:
        return FileFacts("tiff", problem=f"{samples} channels of which 0 is white", needs_bytes=needs_bytes)
    else:
        channels = 4 if colors == 3 and samples > 3 and photometric != _CMYK else colors
    orientation = _exif_orientation(data)
    header = ImageHeader("tiff", height, width, channels, orientation) if height and width else None

    # OpenCV rotates every TIFF according to its tag and blends colors with unassociated alpha; DALI does neither.
    patches = []
    if orientation != 1:
        patches.append((fields[_ORIENTATION].position, np.array(1, fields[_ORIENTATION].dtype).tobytes()))
    if first(_EXTRA_SAMPLES, 0) == _UNASSOCIATED_ALPHA:
        kind = fields[_EXTRA_SAMPLES]
        patches.append((kind.position, np.array(_ASSOCIATED_ALPHA, kind.dtype).tobytes()))
    bits = first(_BITS, 1)
    plain = None
    if photometric in _PLAIN_TIFFS:
        plain = PlainTiff(first(_COMPRESSION, 1), first(_PLANES, 1) == _SEPARATE_PLANES and samples > 1, has_bands)
    return FileFacts("tiff", header, needs_bytes, patches=tuple(patches), bits=bits, plain_tiff=plain)
