"""The pictures of docs/gallery.md come from the examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

for module in ("cv2", "simplejpeg", "skimage", "sklearn", "soundfile"):
    pytest.importorskip(module)

from tools import gallery  # noqa: E402  (needs these)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["detection_pipeline", "pretraining"])
def test_a_picture_shows_a_batch(name: str, tmp_path: Path) -> None:
    picture = gallery.PICTURES[name](tmp_path)

    assert picture.dtype == np.uint8
    assert picture.shape[1:] == (798, 3)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) >= 4


def test_the_page_has_each_picture() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text("utf-8")

    for name in gallery.PICTURES:
        assert f"](pictures/gallery/{name}.jpg)" in page
        assert (ROOT / "docs" / "pictures" / "gallery" / f"{name}.jpg").exists()
