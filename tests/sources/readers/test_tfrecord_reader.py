"""``fn.readers.tfrecord``: defaults, checksums, broken input. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dali_like import Pipeline, fn, ops, tfrecord
from dali_like.common import extras
from dali_like.errors import ArgumentError, ArgumentTypeError, BrokenFileError, MissingFileError
from dali_like.sources.readers import tfrecord_reader
from tests.conftest import in_both_places, without_addresses

from . import writing
from .reading import pipeline_with, samples_of
from .test_index_cache import WITH_URLS
from .writing import example, floats, integers, strings, write_records

STRING = tfrecord.FixedLenFeature((), tfrecord.string, "")
INTEGERS = tfrecord.VarLenFeature(tfrecord.int64, 0)
WITH_CRC = pytest.mark.skipif("not __import__('importlib').util.find_spec('google_crc32c')", reason="needs google-crc32c")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.tfrecord", [example(i=integers(i), s=strings(b"%d" % i)) for i in range(4)])


def write(path: Path, examples: list[bytes]) -> Path:
    write_records(path, map(writing.tfrecord, examples), sizes=True)
    return path


def read(path: Any, feature: Any = INTEGERS, name: str = "i", count: int = 1, **options: Any) -> list[Any]:
    with pipeline_with(fn.readers.tfrecord, 1, path=path, features={name: feature}, **options) as pipe:
        return samples_of(pipe, count)


@pytest.mark.parametrize("indexed", [False, True])
def test_features(indexed: bool, path: Path) -> None:
    options = {"index_path": f"{path}.idx"} if indexed else {}

    assert read(path, count=5, **options) == [[0], [1], [2], [3], [0]]
    assert read(path, STRING, "s", 4, **options) == [b"0", b"1", b"2", b"3"]


@in_both_places
def test_operators_behind_it(path: Path, way: str) -> None:
    options: dict[str, Any] = {"py_num_workers": 0} if way == "serial" else {"py_start_method": way}
    pipe = Pipeline(2, 1, None, **options)
    with pipe:
        reader = ops.readers.TFRecord(path=[path], index_path=[f"{path}.idx"], features={"s": STRING, "i": INTEGERS})
        inputs = reader(name="Reader", shard_id=1, num_shards=2)
        pipe.set_outputs(inputs["i"] + 1, inputs["s"])
    try:
        assert list(inputs) == ["s", "i"]
        assert pipe.epoch_size("Reader") == 4
        numbers, texts = pipe.run()
        assert [numbers.at(i).tolist() for i in range(2)] == [[3], [4]]
        assert [bytes(texts.at(i)) for i in range(2)] == [b"2", b"3"]
    finally:
        pipe.close()


def test_elements_that_lack_have_the_default(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(i=integers(1, 2), f=floats(0.5)), example(i=integers(), f=b""), example()])

    assert read(path, tfrecord.FixedLenFeature([2, 2], tfrecord.int64, -1), count=3) == [
        [[1, 2], [-1, -1]],
        [[-1, -1]] * 2,
        [],
    ]
    assert read(path, tfrecord.FixedLenFeature([2], tfrecord.float32, 9.0), "f", 3) == [[0.5, 9.0], [9.0, 9.0], []]
    assert read(path, tfrecord.FixedLenFeature([], tfrecord.float32, 7.0), "f", count=3) == [0.5, 7.0, 7.0]
    assert read(path, tfrecord.FixedLenFeature([], tfrecord.string, ""), "s") == [b""]


def test_integers(tmp_path: Path) -> None:
    numbers = [0, 1, 127, 128, -1, -(1 << 63), (1 << 63) - 1, *range(-5, 5)]
    path = write(tmp_path / "a", [example(i=integers(*numbers)), example(i=integers(*numbers, packed=False))])

    assert read(path, count=2) == [numbers, numbers]


def test_serialized_pipelines(path: Path) -> None:
    features = {"i": tfrecord.FixedLenFeature([1], tfrecord.int64, np.int64(-1)), "f": tfrecord.VarLenFeature([2], 2, 0.5)}
    with pipeline_with(fn.readers.tfrecord, 2, path=path, features={**features, "s": STRING}) as pipe:
        text = pipe.serialize()
    loaded = Pipeline.deserialize(text, py_num_workers=0)
    try:
        numbers, fractions, texts = loaded.run()
        assert [numbers.at(i).tolist() for i in range(2)] == [[0], [1]]
        assert fractions.at(0).shape == (0, 2)
        assert bytes(texts.at(1)) == b"1"
    finally:
        loaded.close()


@WITH_URLS
def test_urls(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    assert read(f"file://{path}", count=2) == [[0], [1]]
    assert read(f"file://{path}", count=2, index_path=f"file://{path}.idx") == [[0], [1]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: tfrecord.FixedLenFeature([2], tfrecord.string, ""), ArgumentError, "Tensors of strings are not supported"),
        (lambda: tfrecord.VarLenFeature(tfrecord.string, ""), ArgumentError, "use FixedLenFeature.*tfrecord.string"),
        (lambda: tfrecord.FixedLenFeature([1], tfrecord.int64, 0.5), ArgumentError, "Invalid type for default value 0.5"),
        (lambda: tfrecord.FixedLenFeature([-1], tfrecord.int64, 0), ArgumentError, "must not be negative"),
        (lambda: tfrecord.FixedLenFeature(1, tfrecord.int64, 0), ArgumentTypeError, "must be a list of integers, not 1"),
        (lambda: tfrecord.FixedLenFeature([], 7, 0), ArgumentError, "must be tfrecord.int64, .float32 or .string, not 7"),
        (lambda: tfrecord.FixedLenFeature([], "int64", 0), ArgumentTypeError, "must be tfrecord.int64.* not 'int64'"),
        (lambda: tfrecord.VarLenFeature(tfrecord.int64), ArgumentTypeError, r"takes \(dtype, default_value\) or"),
        (lambda: tfrecord.VarLenFeature([0], tfrecord.int64, 0), ArgumentError, "partial_shape must be positive"),
        (lambda: fn.readers.tfrecord(path="a", features={}), ArgumentError, "at least one feature"),
        (lambda: fn.readers.tfrecord(path="a", features=["i"]), ArgumentTypeError, "must be a dict of features"),
        (lambda: fn.readers.tfrecord(path="a", features={"i": 3}), ArgumentTypeError, "the feature 'i': Expected .*Feature"),
        (lambda: fn.readers.tfrecord(path="a"), ArgumentTypeError, "needs the argument features"),
    ],
    ids=without_addresses,
)
def test_wrong_arguments(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("feature", "content", "message"),
    [
        (
            tfrecord.FixedLenFeature([2], tfrecord.int64, 0),
            example(i=integers(1, 2, 3)),
            "has 3 elements in 'i': Output tensor",
        ),
        (tfrecord.VarLenFeature([2], tfrecord.int64, 0), example(i=integers(1, 2, 3)), "size not matching partial shape"),
        (INTEGERS, example(i=floats(1)), "has a feature 'i' of type float32, not int64"),
        (STRING, example(i=integers(1)), "has a feature 'i' of type int64, not string"),
        (INTEGERS, example(i=integers(1))[:-1], "is not a tf.train.Example: the field at byte 2 ends at byte"),
        (INTEGERS, b"\x0a\xff", "is not a tf.train.Example: the number at byte 1 does not end"),
        (INTEGERS, b"\x0f", "unknown wire type 7"),
        (INTEGERS, example(i=writing.message(3, writing.message(1, b"\x80"))), "does not end"),
    ],
)
def test_broken_examples(feature: Any, content: bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(), content])
    with pytest.raises(BrokenFileError, match=message) as caught:
        read(path, feature, count=2)
    assert caught.value.file == str(path)
    assert caught.value.offset in (18, 30)
    assert "idx_in_epoch 1" in "".join(caught.value.__notes__)


def damage(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@WITH_CRC
@pytest.mark.parametrize("place", [20, -1])
def test_wrong_checksums(place: int, tmp_path: Path) -> None:
    path = write(tmp_path / "a", [example(i=integers(7))])
    damage(path, place)
    with pytest.raises(
        BrokenFileError, match=r"the record from byte 0 to .* has a wrong checksum: its data is damaged"
    ) as caught:
        read(path)
    assert (caught.value.file, caught.value.offset) == (str(path), 12)


@WITH_CRC
def test_records_with_wrong_checksums_can_be_skipped(path: Path) -> None:
    damage(path, -1)
    assert read(path, count=4, on_error="skip") == [[0], [1], [2], [0]]


@WITH_CRC
def test_lengths_with_wrong_checksums(path: Path) -> None:
    damage(path, 9)
    with pytest.raises(BrokenFileError, match="is not TFRecord: the checksum of its length is wrong"):
        read(path)


def test_without_google_crc32c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a", [example(i=integers(7))])
    damage(path, -1)
    monkeypatch.setattr(tfrecord_reader, "installed", lambda module: None)
    # Private: forgets whether the package is installed
    tfrecord_reader._crc32c.cache_clear()
    try:
        assert read(path) == [[7]]
    finally:
        # Private: forgets whether the package is installed
        tfrecord_reader._crc32c.cache_clear()
    assert extras.installed("no_such_module") is None


@pytest.mark.parametrize("indexed", [False, True])
def test_truncated_files(indexed: bool, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BrokenFileError, match="truncated") as caught:
        read(path, count=4, index_path=f"{path}.idx" if indexed else None)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.tfrecord.idx has no records. Write the index again, or leave index_path out"),
        ("0 30\n30\n", "a.tfrecord.idx:2 is not a line of an index: expected the numbers position size, not '30'"),
        ("0 -3\n", "is not a line of an index"),
        ("0 29\n", "which does not fit. The index may be of another file"),
        ("0 3\n", "ends within its length"),
        ("0 1000\n", "the file ends at byte"),
    ],
)
def test_broken_indexes(text: str, message: str, path: Path) -> None:
    Path(f"{path}.idx").write_text(text)
    with pytest.raises(BrokenFileError, match=message):
        read(path, index_path=f"{path}.idx")


def test_missing_files(path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"missing.idx does not exist"):
        read(path, index_path=str(path.with_name("missing.idx")))
    name = os.fsdecode(os.fsencode(path) + b"\xff")
    path.rename(name)
    with pipeline_with(fn.readers.tfrecord, 1, path=name, features={"i": INTEGERS}) as pipe:
        assert samples_of(pipe, 1) == [[0]]
    Path(name).unlink()
    with pytest.raises(MissingFileError, match=r"a.tfrecord\\xff does not exist"):
        read(name)


def test_a_file_without_records(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(ArgumentError, match=r"fn.readers.tfrecord: No files found"):
        read(path)
