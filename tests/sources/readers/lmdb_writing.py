"""Write LMDB databases of Caffe and Caffe2 for tests of readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import lmdb
import numpy as np

from .writing import varint

FLOAT, INT32, BYTE, STRING, INT64 = 1, 2, 3, 4, 10


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer: a number, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def datum(
    data: bytes | None = None, label: int | None = None, *, encoded: int | None = None, shape: Sequence[int] = ()
) -> bytes:
    """A Datum of Caffe; `shape` is height, width, channels."""
    values = {1: shape[2], 2: shape[0], 3: shape[1]} if shape else {}
    given: dict[int, int | bytes | None] = {**values, 4: data, 5: label, 7: encoded}
    return b"".join(field(number, value) for number, value in given.items() if value is not None)


def tensor(
    data_type: int | None = None,
    *,
    dims: Iterable[int] = (),
    floats: Iterable[float] = (),
    integers: Iterable[int] = (),
    image: bytes | None = None,
    strings: Iterable[bytes] = (),
    packed: bool = True,
) -> bytes:
    """A TensorProto of Caffe2, as a field of TensorProtos."""
    number = 10 if data_type == INT64 else 4
    text = b"".join(field(1, dim) for dim in dims)
    if data_type is not None:
        text += field(2, data_type)
    if floats := list(floats):
        text += field(3, np.float32(floats).tobytes())
    if integers := list(integers):
        text += field(number, b"".join(map(varint, integers))) if packed else b"".join(field(number, i) for i in integers)
    if image is not None:
        text += field(5, image)
    return field(1, text + b"".join(field(6, string) for string in strings))


def write_database(folder: Path, *records: bytes, keys: Sequence[bytes] = ()) -> str:
    """Write a database with these records. Returns its path.

    The keys end with NUL, because DALI reads each as a string of C.
    """
    with lmdb.open(str(folder)) as environment, environment.begin(write=True) as transaction:
        for i, record in enumerate(records):
            transaction.put((keys[i] if keys else b"%08d" % i) + b"\0", record)
    return str(folder)
