"""Indexes of WebDataset archives: the samples, and their components, which are files in a tar archive."""

from __future__ import annotations

import itertools
import json
import tarfile
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from dali_like.common.json_text import json_value
from dali_like.common.notices import warn
from dali_like.errors import BrokenFileError
from dali_like.sources.readers.stored_files import shown

_BLOCK_BYTES = 512
#: The zeros at the end of an archive take up to two records of 20 blocks.
_END_BYTES = 40 * _BLOCK_BYTES
_VERSIONS = ("v1.1", "v1.2")
_REMEDY = "Write the index again with wds2idx, or leave index_paths out"
#: First bytes of compressed files, and the program that decompresses them.
_COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ\x00": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}


class Component(NamedTuple):
    """A file of a sample.

    Attributes:
        ext: its name, behind the first dot.
        offset: its first byte in the archive.
        size: in bytes.
        name: of the file; empty if the index does not have it.
    """

    ext: str
    offset: int
    size: int
    name: str = ""


def split_name(name: str) -> tuple[str, str]:
    """Return the name of the sample and the extension, for the name of a file. As in DALI, a name without dot is both.

    >>> split_name("train/7.left.png")
    ('train/7', 'left.png')
    """
    dot = name.find(".", name.rfind("/") + 1)
    return (name, name) if dot < 0 else (name[:dot], name[dot + 1 :])


def scan_archive(path: str, file: BinaryIO) -> list[list[Component]]:
    """Return the samples of a tar archive: consecutive files with the same name before the first dot.

    Files whose name begins with a dot, folders and links are left out. Reads the headers only.

    Args:
        path: of the archive, for messages.
        file: the archive.

    Raises:
        BrokenFileError: this is not a tar archive, or it is compressed, damaged or truncated.
    """
    samples: list[list[Component]] = []
    last_name = None
    for name, ext, member in members(path, file):
        if name != last_name:
            samples.append([])
            last_name = name
        samples[-1].append(Component(ext, member.offset_data, member.size, member.name))
    return samples


def members(path: str, file: BinaryIO, *, is_whole: bool = True) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Go through the files of a tar archive that belong to samples; see `scan_archive`.

    Args:
        path: of the archive, for messages.
        file: the archive.
        is_whole: whether it is a whole archive. It should then end with blocks of zeros, and a warning says if it does not.

    Yields:
        The name of the sample, the extension, and the header.
    """
    for member in _headers(path, file, is_whole):
        if not member.isreg():
            continue
        if member.issparse():
            raise BrokenFileError(
                f"{shown(path)}: {shown(member.name)} at byte {member.offset} is a sparse file: write the archive "
                "without --sparse",
                path,
                member.offset,
            )
        name, ext = split_name(member.name)
        if name and not name.endswith("/"):
            yield name, ext, member


def _headers(path: str, file: BinaryIO, is_whole: bool) -> Iterator[tarfile.TarInfo]:
    start = file.read(_BLOCK_BYTES)
    for magic, program in _COMPRESSED.items():
        if start.startswith(magic):
            raise BrokenFileError(
                f"{shown(path)} is compressed. Samples need plain tar archives: {program} {shown(path)}", path, 0
            )
    file.seek(0)
    archive = None
    try:
        archive = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
        while (member := archive.next()) is not None:
            yield member
            archive.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
    except (tarfile.TarError, ValueError) as error:
        offset = 0 if archive is None else archive.offset
        raise BrokenFileError(
            f"{shown(path)} is not a tar archive, or is damaged or truncated: {error} at byte {offset}", path, offset
        ) from error
    # The module takes a damaged header for the end of the archive.
    file.seek(archive.offset)
    end = file.read(_END_BYTES)
    if any(end[:_BLOCK_BYTES]):
        raise BrokenFileError(
            f"{shown(path)} is damaged: there is no header of a file at byte {archive.offset}", path, archive.offset
        )
    if not end and is_whole:
        warn(
            f"{shown(path)} may be truncated: at byte {archive.offset} it ends without the zeros that end a tar archive. "
            "Its samples up to there are read. Compare the archive with its origin",
            UserWarning,
        )
    elif any(end):
        warn(
            f"{shown(path)} has an end at byte {archive.offset}, and more data behind it, which is left out. If archives "
            "were appended with cat, pass them as separate files, or join them with tar --concatenate",
            UserWarning,
        )


def to_bytes(samples: Iterable[list[Component]]) -> bytes:
    """Return samples as bytes, to be stored."""
    return json.dumps(list(samples), separators=(",", ":")).encode()


def from_bytes(stored: bytes, size: int) -> list[list[Component]]:
    """Return the samples that `to_bytes` has stored.

    Args:
        stored: the bytes.
        size: of the archive.

    Raises:
        TypeError, ValueError: these are other bytes, or of another archive.
    """
    samples = [[Component(*component) for component in sample] for sample in json_value(stored)]
    for each in itertools.chain.from_iterable(samples):
        if (
            type(each.offset) is not int
            or type(each.size) is not int
            or not 0 <= each.offset <= each.offset + each.size <= size
        ):
            raise ValueError(
                f"a component of {each.size} bytes at byte {each.offset} is not in the {size} bytes of the archive"
            )
        if not isinstance(each.ext, str) or not isinstance(each.name, str):
            raise TypeError("names must be texts")
    return samples


def parse_index(path: str, lines: list[str]) -> list[list[Component]]:
    """Return the samples in an index of DALI's ``wds2idx``, of version 1.1 or 1.2.

    The first line has the version and the number of samples. Each other line has the components of a sample: extension,
    position, size and, in version 1.2, the name.

    Raises:
        BrokenFileError: the index is malformed.
    """
    head = lines[0].split() if lines else []
    if not head:
        raise _malformed(path, 0, "no version signature found")
    if head[0] not in _VERSIONS:
        raise _malformed(
            path, 0, f"Unsupported version of the index file ({shown(head[0])}): expected {' or '.join(_VERSIONS)}"
        )
    count = _integer(head[1]) if len(head) > 1 else None
    if not count:
        raise _malformed(path, 0, "sample count must be positive")
    words = 3 if head[0] == "v1.1" else 4
    samples = []
    for number in range(1, count + 1):
        parts = lines[number].split() if number < len(lines) else []
        if not parts:
            raise _malformed(path, number, "no extensions provided for the sample")
        samples.append([_component(path, number, parts[i : i + words], words) for i in range(0, len(parts), words)])
    return samples


def _component(path: str, number: int, parts: list[str], words: int) -> Component:
    offset, size = map(_integer, parts[1:3]) if len(parts) == words else (None, None)
    if offset is None or size is None:
        fields = "<ext> <offset> <size>" + " <filename>" * (words == 4)
        raise _malformed(
            path, number, f"Could not find all necessary component parameters; a record should look like: {fields}"
        )
    if offset % _BLOCK_BYTES:
        raise _malformed(path, number, f"tar offset is not a multiple of tar block size ({_BLOCK_BYTES})")
    return Component(parts[0], offset, size, *parts[3:])


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _malformed(path: str, line: int, problem: str) -> BrokenFileError:
    return BrokenFileError(f'Malformed index file at "{shown(path)}" line {line} - {problem}. {_REMEDY}', path)
