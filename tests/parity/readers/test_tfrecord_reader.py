"""``fn.readers.tfrecord`` beside the real DALI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import nvidia.dali
import nvidia.dali.tfrecord
import pytest

import dali_like
import dali_like.tfrecord
from tests.parity.readers.epochs import delivered
from tests.sources.readers.writing import example, floats, integers, message, strings, tfrecord, write_records

pytestmark = pytest.mark.peers

Features = Callable[[Any], dict[str, Any]]

MANY = [*range(-300, 300), 1 << 62, -(1 << 63), (1 << 63) - 1]
FULL = [
    example(i=integers(1, -2, 300), f=floats(0.5, 1.5, 2.5), s=strings(b"abc"), other=floats(1)),
    example(i=integers(7, 8, 9, packed=False), f=floats(2.5, -1, 0, packed=False), s=strings(b"x", b"yy")),
    example(i=integers(1) + integers(2, 3), f=floats(1) + floats(2, 3), s=strings(b"\xff\x00" * 500)),
    example(i=integers(1)) + example(i=integers(4, 5, 6), f=floats(1, 2, 3), s=strings(b"")),
    example(s=strings(b"later"), i=floats(1) + integers(4, 5, 6), f=floats(0, 0, 0)) + message(15, b"unknown"),
]
CASES: dict[str, tuple[Features, list[bytes]]] = {
    "var": (lambda t: {"i": t.VarLenFeature(t.int64, 0), "f": t.VarLenFeature(t.float32, 0.0)}, FULL),
    "many": (
        lambda t: {"i": t.VarLenFeature(t.int64, 0)},
        [example(i=integers(*MANY)), example(i=integers(*MANY, packed=False))],
    ),
    "empty": (lambda t: {"i": t.VarLenFeature(t.int64, 0)}, [example(i=integers()), example(i=b"")]),
    "rows": (lambda t: {"i": t.VarLenFeature([3], t.int64, 0), "f": t.VarLenFeature([1, 3], t.float32, 0.0)}, FULL),
    "fixed": (lambda t: {"f": t.FixedLenFeature([3, 1], t.float32, 0.0), "i": t.FixedLenFeature([3], t.int64, -1)}, FULL),
    "scalars": (lambda t: {"i": t.FixedLenFeature([], t.int64, 0)}, [example(i=integers(5)), example(i=integers(-1))]),
    "string": (lambda t: {"s": t.FixedLenFeature((), t.string, "")}, FULL),
    "string of one": (lambda t: {"s": t.FixedLenFeature([1], t.string, "")}, FULL),
}
WRONG: dict[str, tuple[Features, list[bytes]]] = {
    "too many": (lambda t: {"i": t.FixedLenFeature([2], t.int64, -1)}, FULL),
    "no rows": (lambda t: {"i": t.VarLenFeature([2], t.int64, -1)}, FULL),
    "strings": (lambda t: {"s": t.FixedLenFeature([2], t.string, "")}, FULL),
    "strings of any number": (lambda t: {"s": t.VarLenFeature(t.string, "")}, FULL),
    "no protocol buffer": (lambda t: {"i": t.VarLenFeature(t.int64, -1)}, [b"\xff\xff"]),
    "truncated": (lambda t: {"i": t.VarLenFeature(t.int64, -1)}, [FULL[0][:-1]]),
    "type of default": (lambda t: {"i": t.VarLenFeature(t.int64, "a")}, FULL),
    "type of default float": (lambda t: {"i": t.FixedLenFeature([], t.float32, 1)}, FULL),
    "type of default string": (lambda t: {"i": t.FixedLenFeature([], t.string, 1)}, FULL),
    "no features": (lambda t: {}, FULL),
}
WRONG_TYPES: dict[str, Features] = {
    "number": lambda t: {"i": 3},
    "shape": lambda t: {"i": t.FixedLenFeature(1, t.int64, 1)},
    "name of type": lambda t: {"i": t.FixedLenFeature([1], "int64", 1)},
    "no default": lambda t: {"i": t.VarLenFeature(t.int64)},
}


def read(dali: ModuleType, path: Path, features: Features, /, **options: Any) -> Any:
    defaults = {"path": str(path), "index_path": f"{path}.idx"}
    return delivered(dali, "tfrecord", **{**defaults, "features": features(dali.tfrecord), **options})


def write(path: Path, examples: list[bytes]) -> Path:
    write_records(path, map(tfrecord, examples), sizes=True)
    return path


@pytest.mark.parametrize("case", CASES)
def test_features(case: str, tmp_path: Path) -> None:
    features, examples = CASES[case]
    path = write(tmp_path / "a.tfrecord", examples)
    expected = read(nvidia.dali, path, features)

    assert read(dali_like, path, features) == expected
    assert read(dali_like, path, features, index_path=None) == expected


@pytest.mark.parametrize("case", WRONG)
def test_errors(case: str, tmp_path: Path) -> None:
    features, examples = WRONG[case]
    path = write(tmp_path / "a.tfrecord", examples)
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, path, features)


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_wrong_types(case: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", FULL)
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(TypeError):
            read(dali, path, WRONG_TYPES[case])


@pytest.mark.parametrize("text", ["", "0\n", "a b\n", "12 60\n"])
def test_wrong_indexes(text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", FULL)
    Path(f"{path}.idx").write_text(text)
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, path, CASES["var"][0])


@pytest.mark.parametrize(
    "options", [{"index_path": "missing"}, {"use_o_direct": True}, {"path": ["a", "b"]}, {"path": "missing"}], ids=str
)
def test_wrong_arguments(options: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", FULL)
    for dali in (nvidia.dali, dali_like):
        with pytest.raises(RuntimeError):
            read(dali, path, CASES["var"][0], **options)


@pytest.mark.parametrize("options", [{"num_shards": 3, "shard_id": 1}, {"num_shards": 2, "pad_last_batch": True}], ids=str)
def test_files_and_shards(options: dict[str, Any], tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{k}.tfrecord", [example(i=integers(10 * k + i)) for i in range(k)]) for k in (3, 1, 4)]
    options |= {"path": [*map(str, paths)], "index_path": [f"{path}.idx" for path in paths]}
    options |= {"num_batches": 7, "batch_size": 3}
    features = CASES["empty"][0]

    assert read(dali_like, paths[0], features, **options) == read(nvidia.dali, paths[0], features, **options)


def test_classes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", FULL)
    seen = []
    for dali in (nvidia.dali, dali_like):
        pipe = dali.Pipeline(2, 1, None)
        with pipe:
            t = dali.tfrecord
            reader = dali.ops.readers.TFRecord(
                path=[str(path)], index_path=[f"{path}.idx"], features={"f": t.VarLenFeature(t.float32, 0.0)}
            )
            inputs = reader(name="Reader")
            assert list(inputs) == ["f"]
            pipe.set_outputs(inputs["f"])
        pipe.build()
        (batch,) = pipe.run()
        seen.append([np.array(batch.at(i)).tolist() for i in range(2)])
        if dali is dali_like:
            pipe.close()

    assert seen[0] == seen[1]
