"""Parts that are read in order: compressed files, and iterables."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, cast

from dali_like.common.json_text import json_value
from dali_like.errors import BrokenFileError, DaliLikeError
from dali_like.sources.composed.block_file import open_in_blocks
from dali_like.sources.composed.decompression import decompressed, load_decompressor
from dali_like.sources.composed.span_files import broken_line
from dali_like.sources.composed.tar_files import tar_samples
from dali_like.sources.readers.stored_files import StoredFiles, shown
from dali_like.sources.readers.webdataset_index import members

__all__ = ["CompressedLines", "CompressedTar", "IterablePart", "Line", "parse_line"]

#: Bytes that a forward file can go back. A header of tar has 512.
_MOST_AGAIN = 1024
#: Bytes of a file that are passed over at a time.
_PASSED_BYTES = 1 << 20


class Line(NamedTuple):
    """A line of a compressed file.

    Attributes:
        path: of the file.
        number: of the record: of the line, from 0 on, without empty lines.
        offset: of its first byte in the decompressed file.
        text: the line.
        line: its number in the decompressed file, from 1 on.
    """

    path: str
    number: int
    offset: int
    text: bytes
    line: int


def parse_line(line: Line) -> Any:
    """Return the value of a line of JSON.

    Raises:
        BrokenFileError: it is not JSON.
    """
    try:
        return json_value(line.text)
    except ValueError as error:
        raise broken_line(line.path, line.number, line.offset, line.line, error) from error


@dataclass(frozen=True)
class _Compressed:
    files: StoredFiles
    path: str
    most_bytes: int

    def __post_init__(self) -> None:
        load_decompressor(self.path)  # in time: not with the first record

    @contextlib.contextmanager
    def _decompressed(self) -> Iterator[BinaryIO]:
        """Yield the open file once, and close it. Errors of decompressors become errors of readers."""
        try:
            with open_in_blocks(self.files, self.path) as stored, decompressed(self.path, stored) as file:
                yield file
        except DaliLikeError:
            raise
        except Exception as error:  # each decompressor has exceptions of its own
            raise BrokenFileError(
                f"{shown(self.path)} cannot be decompressed: {error or type(error).__name__}. It is damaged or truncated",
                self.path,
            ) from error

    def _too_large(self, what: str) -> BrokenFileError:
        return BrokenFileError(
            f"{shown(self.path)}: {what} is larger than max_record_bytes={self.most_bytes} after decompression. If it is no "
            "attack, pass a larger max_record_bytes",
            self.path,
        )

    def __str__(self) -> str:
        return shown(self.path)


class CompressedLines(_Compressed):
    """The lines of a compressed file that are not empty. A part of a source."""

    def open(self, record: int) -> Iterator[Line]:
        """Return an iterator over the lines from number `record` on."""
        number = offset = 0
        for line, text in enumerate(self._lines(), 1):
            if len(text) > self.most_bytes:
                raise self._too_large(f"record {number} at byte {offset}")
            if text.strip():
                if number >= record:
                    yield Line(self.path, number, offset, text, line)
                number += 1
            offset += len(text)

    def _lines(self) -> Iterator[bytes]:
        with self._decompressed() as file:
            while line := file.readline(self.most_bytes + 1):
                yield line


class CompressedTar(_Compressed):
    """The samples of a compressed tar archive; see `dali_like.sources.composed.tar_files`. A part of a source."""

    def open(self, record: int) -> Iterator[dict[str, Any]]:
        """Return an iterator over the samples from number `record` on."""
        return itertools.islice(tar_samples(self._members()), record, None)

    def _members(self) -> Iterator[tuple[str, str, bytes]]:
        with self._decompressed() as file:
            forward = cast(BinaryIO, _ForwardFile(file, self.most_bytes, lambda: self._too_large("a header")))
            last_name, sample_bytes = None, 0
            for name, ext, member in members(self.path, forward):
                sample_bytes = member.size + (sample_bytes if name == last_name else 0)
                last_name = name
                if sample_bytes > self.most_bytes:
                    raise self._too_large(f"the sample of {shown(member.name)}")
                forward.seek(member.offset_data)
                data = forward.read(member.size)
                if len(data) < member.size:
                    raise BrokenFileError(
                        f"{shown(self.path)}: {shown(member.name)} is truncated at byte {member.offset_data + len(data)} of "
                        "the decompressed archive",
                        self.path,
                    )
                yield name, ext, data


@dataclass(frozen=True)
class IterablePart:
    """An iterable without an index, or a generator function: records before the first wanted one are skipped.

    A part of a source.
    """

    iterable: Iterable[Any] | Callable[[], Iterator[Any]]
    number: int

    def open(self, record: int) -> Iterator[Any]:
        """Return an iterator over the records from number `record` on."""
        iterator = self.iterable() if inspect.isgeneratorfunction(self.iterable) else iter(self.iterable)  # type: ignore[arg-type]
        for _ in itertools.islice(iterator, record):
            pass
        return iterator

    def __str__(self) -> str:
        return f"iterable {self.number}"


class _ForwardFile:
    """A file that is read in order: decompressors can hardly go back, or not at all. The last bytes can be read again.

    Args:
        file: the file.
        most_bytes: largest number of bytes that are read at a time.
        too_large: returns the exception to raise for more.
    """

    def __init__(self, file: BinaryIO, most_bytes: int, too_large: Callable[[], Exception]) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._too_large = too_large
        self._position = 0
        #: The last bytes that have been read from the file.
        self._recent = b""
        self._end = 0

    def read(self, size: int) -> bytes:
        if size > max(self._most_bytes, _PASSED_BYTES):
            raise self._too_large()
        again = self._recent[len(self._recent) - (self._end - self._position) :] if self._position < self._end else b""
        data = again[:size]
        if len(data) < size:
            more = self._file.read(size - len(data))
            self._end += len(more)
            self._recent = (self._recent + more)[-_MOST_AGAIN:] if len(more) < _MOST_AGAIN else more[-_MOST_AGAIN:]
            data += more
        self._position += len(data)
        return data

    def seek(self, position: int) -> None:
        while self._end < position and self._read_on(position):
            pass
        self._position = min(position, self._end)
        if self._end - self._position > len(self._recent):
            raise OSError(f"cannot go back to byte {position} of {self._end}")

    def _read_on(self, position: int) -> bool:
        """Read some of the bytes before a position, and return whether there were any."""
        self._position = self._end
        return bool(self.read(min(position - self._end, _PASSED_BYTES)))

    def tell(self) -> int:
        return self._position
