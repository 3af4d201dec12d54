"""``fn.io.file.read`` and ``fn.readers.sequence`` beside the real DALI."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import nvidia.dali
import pytest

import dali_like

BOTH = [nvidia.dali, dali_like]


def samples(dali: ModuleType, define: Any, batch_size: int, num_batches: int = 1) -> tuple[Any, str]:
    """The samples of the next batches of the first output, and its layout."""
    pipe = dali.Pipeline(batch_size, 1, None, **({"py_num_workers": 0} if dali is dali_like else {}))
    try:
        with pipe:
            pipe.set_outputs(define(dali))
        pipe.build()
        found, layout = [], ""
        for _ in range(num_batches):
            (batch,) = pipe.run()
            arrays = [np.array(batch.at(i)) for i in range(batch_size)]
            found += [(array.dtype.name, array.shape, array.tolist()) for array in arrays]
            layout = batch.layout()
        return found, layout
    finally:
        if dali is dali_like:
            pipe.close()


def reading(*paths: str, dtype: str = "u1", ndim: int = 1) -> Any:
    """Define a pipeline that reads files."""
    arrays = [np.frombuffer(path.encode(), dtype).reshape([1] * (ndim - 1) + [-1]) for path in paths]
    return lambda dali: dali.fn.io.file.read(dali.fn.external_source(lambda: arrays))


def test_reading(tmp_path: Path) -> None:
    for name in ("a", "b c", "\xe9"):
        (tmp_path / name).write_bytes(name.encode() * 3)
    define = reading(*(f"{tmp_path}/{name}" for name in ("a", "b c", "\xe9")))
    theirs, ours = (samples(dali, define, 3) for dali in BOTH)

    assert theirs == ours


@pytest.mark.parametrize("options", [{"dtype": "u2"}, {"ndim": 2}, {}], ids=str)
def test_errors_of_reading(options: dict[str, Any], tmp_path: Path) -> None:
    for dali in BOTH:
        with pytest.raises(RuntimeError):
            samples(dali, reading(f"{tmp_path}/missing!"[-8:], **options), 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams of gray and color frames."""
    root = tmp_path_factory.mktemp("streams")
    for stream, length in (("b", 5), ("a", 3), ("c", 1), ("a/deeper", 1)):
        (root / stream).mkdir(exist_ok=True)
        for i in range(length):
            frame = np.random.default_rng([length, i]).integers(0, 256, (4, 5, 3), np.uint8)
            cv2.imwrite(str(root / stream / f"{i:03}.png"), frame if stream != "c" else frame[:, :, 0])
    (root / "no stream.png").write_bytes(b"")
    return root


@pytest.mark.filterwarnings("ignore:WARNING. .fn.readers.sequence:Warning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"sequence_length": 3},
        {"sequence_length": 2, "step": 2},
        {"sequence_length": 2, "stride": 2},
        {"sequence_length": 2, "stride": 2, "step": 3},
        {"sequence_length": 1},
        {"sequence_length": 2, "image_type": "GRAY"},
        {"sequence_length": 2, "image_type": "BGR"},
        {"sequence_length": 2, "image_type": "YCbCr"},
        {"sequence_length": 2, "num_shards": 2, "shard_id": 1},
    ],
    ids=str,
)
def test_sequences(options: dict[str, Any], root: Path) -> None:
    def define(dali: ModuleType) -> Any:
        given = {name: getattr(dali.types, value) if name == "image_type" else value for name, value in options.items()}
        return dali.fn.readers.sequence(file_root=str(root), **given)

    (theirs, their_layout), (ours, our_layout) = (samples(dali, define, 1, 10) for dali in BOTH)

    assert their_layout == our_layout
    bound = 1 if options.get("image_type") in ("GRAY", "YCbCr") else 0
    for (their_type, their_shape, their_pixels), (our_type, our_shape, our_pixels) in zip(theirs, ours, strict=True):
        assert (their_type, their_shape) == (our_type, our_shape)
        assert np.abs(np.array(their_pixels) - np.array(our_pixels)).max() <= bound


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("options", [{"sequence_length": 9}, {"sequence_length": 0}, {}], ids=str)
def test_errors_of_sequences(options: dict[str, Any], root: Path) -> None:
    for dali in BOTH:
        with pytest.raises((RuntimeError, TypeError)):
            samples(dali, lambda dali: dali.fn.readers.sequence(file_root=str(root), **options), 1)
