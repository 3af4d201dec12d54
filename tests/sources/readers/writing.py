"""Write files for tests of readers: RecordIO, TFRecord and tar archives, and their indexes."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = struct.pack("<I", 0xCED7230A)


def recordio(label: float | Sequence[float], image: bytes) -> bytes:
    """A record of MXNet. Data that contains the magic number at a multiple of 4 is split there."""
    labels = label if isinstance(label, Sequence) else []
    header = struct.pack("<IfQQ", len(labels), 0.0 if labels else label, 7, 0)
    data = header + struct.pack(f"<{len(labels)}f", *labels) + image
    parts, begin = [], 0
    for place in range(0, len(data) - 3, 4):
        if data[place : place + 4] == MAGIC:
            parts.append(data[begin:place])
            begin = place + 4
    parts.append(data[begin:])
    kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    return b"".join(
        MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4)
        for kind, part in zip(kinds, parts, strict=True)
    )


def write_records(path: Path, records: Iterable[bytes], *, sizes: bool = False) -> list[int]:
    """Write records, and an index with the name `path`.idx. Returns the positions of the records.

    Args:
        path: of the file.
        records: its records.
        sizes: write the index of TFRecord, with position and size, instead of that of MXNet, with number and position.
    """
    records = list(records)
    begins = np.cumsum([0, *map(len, records)]).tolist()
    path.write_bytes(b"".join(records))
    rows = [
        (begin, len(record)) if sizes else (i, begin) for i, (begin, record) in enumerate(zip(begins, records, strict=False))
    ]
    Path(f"{path}.idx").write_text("".join(f"{first}\t{second}\n" for first, second in rows))
    return begins[:-1]


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def message(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that is a message, a string or a packed list."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def strings(*values: bytes) -> bytes:
    return message(1, b"".join(message(1, value) for value in values))


def floats(*values: float, packed: bool = True) -> bytes:
    encoded = [struct.pack("<f", value) for value in values]
    return message(2, message(1, b"".join(encoded)) if packed else b"".join(varint(1 << 3 | 5) + each for each in encoded))


def integers(*values: int, packed: bool = True) -> bytes:
    encoded = [varint(value) for value in values]
    return message(3, message(1, b"".join(encoded)) if packed else b"".join(varint(1 << 3) + each for each in encoded))


def example(**features: bytes) -> bytes:
    """A tf.train.Example."""
    entries = (message(1, message(1, name.encode()) + message(2, feature)) for name, feature in features.items())
    return message(1, b"".join(entries))


def tfrecord(data: bytes) -> bytes:
    """A record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + _masked_crc32c(length) + data + _masked_crc32c(data)


def _masked_crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_tar(path: Path, files: Iterable[tuple[str, bytes | None]], form: int = tarfile.USTAR_FORMAT) -> None:
    """Write a tar archive.

    Args:
        path: of the archive.
        files: names and contents. A name without content is a folder, or a link if it contains " -> ".
        form: a format of `tarfile`.
    """
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in files:
            about = tarfile.TarInfo(name)
            if content is None:
                about.name, arrow, about.linkname = name.partition(" -> ")
                about.type = tarfile.SYMTYPE if arrow else tarfile.DIRTYPE
            else:
                about.size = len(content)
            archive.addfile(about, io.BytesIO(content or b""))


def wds_index(samples: Sequence[Sequence[tuple[Any, ...]]], version: str = "v1.2") -> str:
    """The index of an archive."""
    lines = [" ".join(str(word) for component in sample for word in component) for sample in samples]
    return "\n".join([f"{version} {len(samples)}", *lines, ""])
