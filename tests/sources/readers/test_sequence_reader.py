"""``fn.readers.sequence``: broken frames and wrong arguments. Comparisons with DALI are in tests/parity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dali_like import fn
from dali_like.errors import ArgumentError, BrokenFileError

from .reading import pipeline_with, read_all

cv2 = pytest.importorskip("cv2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    for i in range(4):
        cv2.imwrite(str(tmp_path / "a" / f"{i}.png"), np.full((3, 4, 3), i, np.uint8))
    return tmp_path


def test_frames_are_decoded_into_the_batch(root: Path) -> None:
    with pipeline_with(fn.readers.sequence, 2, file_root=root, sequence_length=2) as pipe:
        pipe.run()
        batch = pipe.run()[0]
        assert batch.is_dense_tensor()
        assert batch.layout() == "FHWC"
        assert batch.as_array()[:, :, 0, 0, 0].tolist() == [[2, 3], [0, 1]]


def test_broken_frames(root: Path) -> None:
    (root / "a" / "1.png").write_bytes(b"no image")
    with pytest.raises(BrokenFileError, match=r"a/1.png, frame 1 of a sequence: not a JPEG") as caught:
        read_all(1, 1, reader=fn.readers.sequence, file_root=root, sequence_length=2)
    assert caught.value.file == str(root / "a" / "1.png")

    cv2.imwrite(str(root / "a" / "1.png"), np.zeros((5, 4, 3), np.uint8))
    with pytest.raises(BrokenFileError, match=r"a/1.png, frame 1 of a sequence: .*\(5, 4, 3\)"):
        read_all(1, 1, reader=fn.readers.sequence, file_root=root, sequence_length=2)


@pytest.mark.parametrize("name", ["sequence_length", "step", "stride"])
def test_wrong_arguments(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"fn.readers.sequence: {name} must be positive, not 0"):
        fn.readers.sequence(file_root="a", **{"sequence_length": 1, name: 0})
