"""File objects that decompress: gzip, bzip2, xz and Zstandard, with one or more streams in a file.

The end of the data is the end of a stream, so a truncated file raises an exception. So does anything else behind a stream,
which `bz2.BZ2File` and `lzma.LZMAFile` ignore: it may be a damaged stream. Zeros are padding.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol, cast

from dali_like.common.extras import installed, optional

__all__ = ["decompressed", "is_compressed", "load_decompressor"]

_ENDINGS = (".gz", ".tgz", ".bz2", ".xz", ".zst")
#: Bytes that are read at a time, and that are decompressed ahead of a reader.
_READ_BYTES = 1 << 16
#: Compressed bytes that zstandard decompresses at a time: at most 128 MiB, because a block of 128 KiB takes 4 bytes or more.
_ZSTANDARD_BYTES = 1 << 12


def is_compressed(path: str) -> bool:
    """Return whether a file is compressed, by the end of its name."""
    return path.endswith(_ENDINGS)


def load_decompressor(path: str) -> None:
    """Import the module that decompresses a file.

    Raises:
        MissingExtraError: it is not installed.
    """
    if path.endswith(".zst"):
        _new_zstd()


def decompressed(path: str, file: BinaryIO) -> BinaryIO:
    """Return a file object with the decompressed contents of an open file.

    Its methods raise `EOFError` if the file is truncated, and exceptions of the decompressor if it is damaged.
    """
    if path.endswith((".gz", ".tgz")):
        if not file.read(1):
            raise EOFError("it is empty")
        file.seek(0)
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    new: Callable[[], Any] = bz2.BZ2Decompressor
    if path.endswith(".xz"):
        new = lzma.LZMADecompressor
    elif path.endswith(".zst"):
        new = _new_zstd()
    return cast(BinaryIO, io.BufferedReader(_Streams(file, new), _READ_BYTES))


class _StreamDecompressor(Protocol):
    """Decompressor of one stream, as `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Streams(io.RawIOBase):
    """The contents of the streams of a file, one after the other."""

    def __init__(self, file: BinaryIO, new: Callable[[], _StreamDecompressor]) -> None:
        self._file = file
        self._new = new
        self._stream: _StreamDecompressor | None = None
        #: Bytes of the file that follow those given to the stream, and decompressed bytes that wait for a reader.
        self._stored = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            if (self._stream is None or self._stream.eof) and not self._begin_stream():
                return 0
            assert self._stream is not None
            stored = b""
            if self._stream.needs_input:
                stored, self._stored = self._stored or self._file.read(_READ_BYTES), b""
                if not stored:
                    raise EOFError("it ends within a stream of compressed data")
            self._ready = memoryview(self._stream.decompress(stored, len(buffer)))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _begin_stream(self) -> bool:
        """Go on to the next stream, and return whether there is one."""
        is_first = self._stream is None
        stored = self._file.read(_READ_BYTES) if self._stream is None else self._stream.unused_data.lstrip(b"\0")
        while not stored and not is_first and (more := self._file.read(_READ_BYTES)):
            stored = more.lstrip(b"\0")
        if not stored:
            if is_first:
                raise EOFError("it is empty")
            return False
        self._stream, self._stored = self._new(), stored
        return True


class _ZstandardFrame:
    """A `_StreamDecompressor` of the module zstandard."""

    def __init__(self, zstandard: Any) -> None:
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._left = b""

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._left and not self.eof

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data) + self._left

    def decompress(self, data: bytes, max_length: int) -> bytes:
        del max_length  # the module has no limit but that of its input
        data = self._left + data
        self._left = data[_ZSTANDARD_BYTES:]
        return bytes(self._frame.decompress(data[:_ZSTANDARD_BYTES]))


def _new_zstd() -> Callable[[], _StreamDecompressor]:
    """Return a function that returns a decompressor of a frame.

    Raises:
        MissingExtraError: no module for it is installed.
    """
    if zstd := installed("compression.zstd"):  # from Python 3.14 on
        new: Callable[[], _StreamDecompressor] = zstd.ZstdDecompressor
        return new
    zstandard = optional("zstandard", "reading files that end in .zst", "zstd")
    return lambda: _ZstandardFrame(zstandard)
