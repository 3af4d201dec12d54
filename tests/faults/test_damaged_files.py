"""Files and indexes with changed bytes: an error of the library that names the file, or samples; never another exception.

`make test` changes each file some times, ``PARITY=full`` a thousand times.
"""

from __future__ import annotations

import json
import os
import random
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like.data import ComposedDataset
from dali_like.errors import DaliLikeError
from dali_like.monitor.trace import chrome
from dali_like.sources.readers.coco_reader import CocoReader
from dali_like.sources.readers.mxnet_reader import MXNetReader
from dali_like.sources.readers.numpy_reader import NumpyReader
from dali_like.sources.readers.webdataset_reader import WebdatasetReader
from tests.faults.test_truncated_files import FORMATS, Format, archive, lines, read_with, records, tfrecords
from tests.sources.readers.coco_writing import DATASET, write_coco
from tests.sources.readers.writing import recordio, wds_index

TIMES = 1000 if os.environ.get("PARITY") == "full" else 8
#: Values that programs do not expect in JSON.
ODD: list[Any] = [None, True, -1, 1 << 70, float("inf"), float("nan"), "", "\0", "\ud800", [], [[]], {}, "x" * 99]


def changed_bytes(whole: bytes, rng: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.choice([1, 1, 3])):
        data[rng.randrange(len(data))] = rng.choice([0, 0xFF, ord("9"), ord("-"), rng.randrange(256)])
    return bytes(data)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Go through all containers and keys in a value of JSON."""
    for key in range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ():
        yield value, key
        yield from places_in(value[key])


def changed_json(text: bytes, rng: random.Random) -> bytes:
    """Replace or remove a value."""
    value = json.loads(text)
    container, key = rng.choice(list(places_in(value)))
    if rng.random() < 0.2:
        del container[key]
    else:
        container[key] = rng.choice(ODD)
    return json.dumps(value).encode()


def assert_named(read: Callable[[], Any], name: str, change: str) -> None:
    """Assert that a file is read, or refused by an error that names it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read()
        except Exception as error:
            if not isinstance(error, DaliLikeError) or name not in str(error):
                raise AssertionError(f"{change}: {error!r}") from error


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS.keys())
def test_a_file_with_changed_bytes_raises_nothing_but_an_error_with_its_name(format: Format, tmp_path: Path) -> None:
    path = tmp_path / format.name
    format.write(path)
    whole = path.read_bytes()
    # pyarrow ends the process for some changed footers.
    end = len(whole) - int.from_bytes(whole[-8:-4], "little") - 8 if path.suffix == ".parquet" else len(whole)
    for seed in range(TIMES):
        path.write_bytes(changed_bytes(whole[:end], random.Random(seed)) + whole[end:])
        assert_named(lambda: format.read(path), str(path), f"seed {seed}")


def read_coco(given: dict[str, str], **options: Any) -> None:
    read_with(CocoReader(**given, **options))


@pytest.mark.parametrize(
    "options", [{"pixelwise_masks": True}, {"polygon_masks": True, "ratio": True, "ltrb": True}], ids=str
)
@pytest.mark.parametrize("change", [changed_bytes, changed_json])
def test_annotations_with_changed_values_raise_nothing_but_an_error_with_their_name(
    change: Callable[[bytes, random.Random], bytes], options: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("pycocotools")
    given = write_coco(tmp_path)
    for seed in range(10 * TIMES):
        changed = change(json.dumps(DATASET).encode(), random.Random(seed))
        Path(given["annotations_file"]).write_bytes(changed)
        # A changed name of an image is that of a missing file, which the error names.
        assert_named(lambda: read_coco(given, **options), str(tmp_path), f"seed {seed}: {changed!r}")


def test_preprocessed_annotations_with_changed_bytes_raise_nothing_but_an_error_with_their_name(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    given = write_coco(tmp_path)
    options = {"pixelwise_masks": True, "image_ids": True}
    read_coco(given, **options, save_preprocessed_annotations=True, save_preprocessed_annotations_dir=str(tmp_path))
    stored = {"file_root": str(tmp_path), "preprocessed_annotations": str(tmp_path)}
    sizes = {tmp_path / "heights.dat", tmp_path / "widths.dat"}  # a changed size may be right, and need much memory
    for path in sorted(set(tmp_path.glob("*.dat")) - sizes):
        whole = path.read_bytes()
        for seed in range(max(TIMES // 4, 4)):
            path.write_bytes(changed_bytes(whole, random.Random(seed)))
            assert_named(lambda: read_coco(stored, **options), str(tmp_path), f"{path.name}, seed {seed}")
        path.write_bytes(whole)


@pytest.mark.parametrize("shape", ["(-1,)", f"({2**62},)", f"({2**70},)", "(" + "1," * 70 + ")", "(True, 2)", "('a',)", "7"])
def test_impossible_shapes_of_numpy_files_are_refused(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(12))
    assert_named(lambda: read_with(NumpyReader(files=str(path))), str(path), shape)


def test_an_index_with_changed_bytes_raises_nothing_but_an_error_with_a_name(tmp_path: Path) -> None:
    tar, rec, tfr = (tmp_path / name for name in ("a.tar", "a.rec", "a.tfrecord"))
    tar.write_bytes(archive())
    rec.write_bytes(b"".join(recordio(number, b"abc") for number in range(3)))
    tfr.write_bytes(b"".join(records()))
    size, length = len(recordio(0, b"abc")), len(records()[0])
    readers: dict[Path, tuple[str, Callable[[], Any]]] = {
        tar.with_suffix(".idx"): (
            wds_index([[("txt", 512 + number * 1536, 600, f"{number}.txt")] for number in range(3)]),
            lambda: read_with(WebdatasetReader(paths=str(tar), ext="txt", index_paths=str(tar.with_suffix(".idx")))),
        ),
        Path(f"{rec}.idx"): (
            "".join(f"{number}\t{number * size}\n" for number in range(3)),
            lambda: read_with(MXNetReader(path=str(rec), index_path=f"{rec}.idx")),
        ),
        Path(f"{tfr}.idx"): (
            "".join(f"{number * length} {length}\n" for number in range(4)),
            lambda: tfrecords(tfr, index=True),
        ),
    }
    for path, (text, read) in readers.items():
        for seed in range(5 * TIMES):
            rng = random.Random(seed)
            changed = changed_bytes(text.encode(), rng)
            if rng.random() < 0.3:
                changed = changed.replace(b"600", b"9" * 17).replace(b"%d" % length, b"9" * 17)
            path.write_bytes(changed)
            assert_named(read, str(tmp_path), f"{path.name}, seed {seed}: {changed!r}")


def poisoned(seed: int, good: bytes) -> bytes:
    """The content of an index that anyone may have written."""
    rng = random.Random(seed)
    contents = [b"", b"5", b"[[[]]]", b'[[["txt",512,1e999,"a"]]]', b'[[["txt","a","b","c"]]]', b"[" * 100_000]
    contents += [
        struct.pack("<3q", 0, -8, 1 << 62),
        np.arange(5).tobytes() * 2,
        b'[[["txt",%d,%d,"a"]]]' % (1 << 70, -(1 << 70)),
    ]
    return rng.choice([*contents, changed_bytes(good, rng)])


@pytest.mark.parametrize("kind", ["jsonl", "webdataset", "tfrecord"])
def test_a_poisoned_index_beside_a_file_is_built_again(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.file"
    path.write_bytes({"jsonl": lines(), "webdataset": archive(), "tfrecord": b"".join(records())}[kind])
    read: dict[str, Callable[[], Any]] = {
        "jsonl": lambda: list(ComposedDataset.from_jsonl(path)),
        "webdataset": lambda: read_with(WebdatasetReader(paths=str(path), ext="txt")),
        "tfrecord": lambda: tfrecords(path),
    }
    expected = read[kind]()
    stored = tmp_path / ".a.file.index"
    head, _, good = stored.read_bytes().partition(b"\n")
    for seed in range(5 * TIMES):
        index = poisoned(seed, good)
        stored.write_bytes(head.rpartition(b" ")[0] + b" %d\n" % zlib.crc32(index) + index)
        assert_named(read[kind], str(path), f"seed {seed}: {index!r:.200}")
    for index in (b"5", b"[" * 100_000, struct.pack("<2q", -8, 1 << 62)):
        stored.write_bytes(head.rpartition(b" ")[0] + b" %d\n" % zlib.crc32(index) + index)
        assert read[kind]() == expected


@pytest.mark.parametrize("content", ["[" * 100_000, '{"otherData": ' + "[" * 100_000, "5", '{"otherData": {"made_by": []}}'])
def test_a_file_that_is_not_a_trace_is_an_error_with_its_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    with pytest.raises(DaliLikeError, match=r"trace.json is not a trace of dali_like"):
        chrome.load(path)


def test_a_record_of_json_that_is_nested_deeply_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n" + b"[" * 100_000 + b"\n")
    assert_named(lambda: list(ComposedDataset.from_jsonl(tmp_path / "a.jsonl")), "a.jsonl: ", "nested")
    with pytest.raises(DaliLikeError, match="nested too deeply"):
        list(ComposedDataset.from_jsonl(tmp_path / "a.jsonl"))
