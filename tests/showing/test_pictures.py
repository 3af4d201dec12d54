"""``dali_like.show``: the roles of the columns of a batch, and their drawings."""

from __future__ import annotations

import base64
import io
import re
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from dali_like import Pipeline, fn, show
from dali_like.data import DataLoader
from dali_like.errors import ArgumentError, ArgumentTypeError
from dali_like.showing.drawing import picture_of, with_mask
from dali_like.showing.terminal import in_terminal
from dali_like.tensors import TensorListCPU
from dali_like.types import DALIDataType

MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def picture(seed: int = 0, height: int = 12, width: int = 20) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


class Pair(NamedTuple):
    image: Any
    label: Any


# Columns and their roles


@pytest.mark.parametrize(
    ("batch", "roles"),
    [
        (np.zeros((4, 28, 28), np.uint8), {"": "image"}),
        ((np.zeros((2, 8, 9, 3)), np.arange(2)), {"0": "image", "1": "label"}),
        ([np.zeros((2, 3, 8, 9), np.float32), np.arange(2)], {"0": "image", "1": "label"}),
        ([np.zeros((3, 8, 9)), np.zeros((3, 10, 7))], {"": "image"}),
        ([(np.zeros((8, 9, 3)), 1), (np.zeros((5, 6, 3)), 2)], {"0": "image", "1": "label"}),
        ([{"a": np.zeros((8, 9)), "text": "b"}] * 2, {"a": "image", "text": "text"}),
        (Pair(np.zeros((2, 8, 9, 3)), np.arange(2)), {"image": "image", "label": "label"}),
        (
            {"target": {"boxes": np.zeros((2, 5, 4)), "weight": np.zeros(2)}},
            {"target.boxes": "boxes", "target.weight": "value"},
        ),
        ((np.zeros((2, 6, 8, 9, 3)),), {"0": "clip"}),
        ({"x": np.zeros((2, 8000)), "y": np.zeros((2, 20), np.int64)}, {"x": "audio", "y": "tokens"}),
        ({"audio": np.zeros((2, 1, 300))}, {"audio": "audio"}),
        ({"image": np.zeros((2, 8, 9, 3)), "other": np.zeros((2, 8, 9), np.int32)}, {"image": "image", "other": "mask"}),
        (["a", "b"], {"": "text"}),
        ([3, 4, 5], {"": "label"}),
        ((np.zeros((2, 3)),), {"0": "value"}),
        (
            (np.zeros((2, 8, 9, 3)), np.zeros((2, 3, 4)), np.zeros((2, 3), np.int64)),
            {"0": "image", "1": "boxes", "2": "label"},
        ),
    ],
)
def test_columns_have_roles_by_names_shapes_and_dtypes(batch: Any, roles: dict[str, str]) -> None:
    assert show(batch).roles == roles


def test_outputs_of_pipelines_and_loaders_are_shown() -> None:
    pipe = Pipeline(3, num_threads=1)
    pipe.set_outputs(
        fn.external_source(lambda info: picture(info.idx_in_epoch).transpose(2, 0, 1), batch=False, layout="CHW"),
        fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False),
    )
    with pipe:
        outputs = pipe.run()
        assert show(outputs).roles == {"0": "image", "1": "label"}
    (batch,) = DataLoader([(picture(number), number) for number in range(4)], batch_size=4)

    assert show(batch).roles == {"0": "image", "1": "label"}


def test_the_layout_of_a_tensor_list_counts_more_than_its_shape() -> None:
    columns_first = np.zeros((2, 3, 8, 3), np.uint8)

    square = show(TensorListCPU(columns_first, "CHW"), size=8)
    plain = show(TensorListCPU(columns_first, "HWC"), size=8)

    assert square.image.size != plain.image.size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"roles": {"1": "label"}}, "roles: the batch has no column '1'; it has ''"),
        ({"roles": {"": "picture"}}, "roles: '' is to be 'picture'; it may be one of 'image'"),
        ({"box_format": "xyxy"}, "box_format must be one of 'ltrb'"),
        ({"samples": 0}, "samples must be"),
    ],
)
def test_wrong_arguments_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        show(np.zeros((2, 8, 8)), **options)


@pytest.mark.parametrize("batch", [3, "text", object(), [object()]])
def test_other_objects_cannot_be_shown(batch: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="can be shown"):
        show(batch)


# Pictures


@pytest.mark.parametrize(
    "stored",
    [
        lambda pixels: pixels,
        lambda pixels: pixels.transpose(2, 0, 1),
        lambda pixels: pixels / 255,
        lambda pixels: pixels.astype(np.float32),
        lambda pixels: (pixels / 127.5 - 1).astype(np.float32),
        lambda pixels: ((pixels / 255 - MEAN) / DEVIATION).astype(np.float32),
        lambda pixels: ((pixels / 255 - MEAN) / DEVIATION).astype(np.float32).transpose(2, 0, 1),
        lambda pixels: pixels.astype(np.uint16) * 257,
        lambda pixels: np.concatenate([pixels, pixels[..., :1]], axis=2),
    ],
    ids=["HWC", "CHW", "to 1", "to 255", "from -1 to 1", "normalized", "normalized CHW", "uint16", "RGBA"],
)
def test_pictures_of_all_layouts_and_dtypes_are_the_same(stored: Any) -> None:
    pixels = picture()
    pixels[0, :3] = [[0, 0, 0], [255, 255, 255], [255, 0, 255]]  # the whole range

    assert np.abs(picture_of(stored(pixels)).astype(int) - pixels).max() <= 1


def test_given_mean_and_deviation_restore_pictures() -> None:
    pixels = picture()
    normalized = (pixels / 255 - [0.1, 0.2, 0.3]) / [2.0, 3.0, 4.0]

    restored = picture_of(normalized, normalization=([0.1, 0.2, 0.3], [2.0, 3.0, 4.0]))

    assert np.abs(restored.astype(int) - pixels).max() <= 1


def test_pictures_with_nan_are_drawn() -> None:
    assert picture_of(np.full((3, 3), np.nan)).max() == 0


@pytest.mark.parametrize(
    "mask", [np.eye(4, dtype=np.int64), np.eye(4, dtype=bool), np.eye(4)[np.newaxis], np.eye(4)[..., np.newaxis]]
)
def test_masks_color_the_pixels_of_classes_only(mask: Any) -> None:
    gray = np.full((4, 4, 3), 100, np.uint8)

    colored = with_mask(gray, mask)

    assert ((colored != gray).any(axis=2) == np.eye(4, dtype=bool)).all()


def test_masks_of_several_objects_have_several_colors() -> None:
    masks = np.zeros((2, 4, 4), bool)
    masks[0, 0, 0] = masks[1, 3, 3] = True

    colored = with_mask(np.zeros((4, 4, 3), np.uint8), masks)

    assert len({tuple(pixel) for pixel in colored.reshape(-1, 3).tolist()}) == 3


@pytest.mark.parametrize(
    ("box_format", "box"),
    [("ltrb", [4, 2, 12, 6]), ("ltwh", [4, 2, 8, 4]), ("cxcywh", [8, 4, 8, 4]), ("ltrb", [0.25, 0.25, 0.75, 0.75])],
)
def test_boxes_of_all_formats_have_one_place(box_format: str, box: list[float]) -> None:
    batch = {"image": np.zeros((1, 8, 16, 3), np.uint8), "boxes": np.array([[box]], np.float32)}

    image = np.asarray(show(batch, box_format=box_format, size=160).image)

    inside = image[3:83, 3:163].max(axis=2) > 0  # the picture, behind the margin of its tile
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (20, 60, 40, 120)


def test_names_of_classes_and_texts_change_the_picture() -> None:
    batch = (np.zeros((2, 8, 8), np.uint8), np.array([0, 1]))

    pictures = [show(batch, **options) for options in ({}, {"classes": ["cat", "dog"]}, {"classes": {1: "dog"}})]

    assert len({each.image.tobytes() for each in pictures}) == 3


def test_tokens_of_packs_have_colors() -> None:
    batch = {"tokens": np.arange(12).reshape(1, 12), "segments": np.array([[1] * 5 + [2] * 5 + [0] * 2])}

    plain = np.asarray(show(batch, roles={"segments": "skip"}).image)
    packed = np.asarray(show(batch, decode=lambda token: f"w{token}").image)

    assert not (np.ptp(plain.astype(int), axis=2) > 30).any()
    assert len({tuple(pixel) for pixel in packed.reshape(-1, 3).tolist() if max(pixel) - min(pixel) > 30}) >= 2


def test_a_sound_shows_its_frequency() -> None:
    times = np.arange(16_000) / 16_000
    low, high = np.sin(2 * np.pi * 500 * times), np.sin(2 * np.pi * 7000 * times)

    tiles = np.asarray(show({"audio": np.stack([low, high])}, columns=1, size=160).image).astype(int)

    half = tiles.shape[0] // 2
    brightest = [int(tiles[begin + 85 : begin + 160, 40:280].sum(axis=(1, 2)).argmax()) for begin in (0, half)]
    assert brightest[0] > brightest[1]  # low frequencies are at the bottom


@pytest.mark.parametrize(
    "batch",
    [
        {"image": np.zeros((1, 1, 1, 3), np.uint8), "boxes": np.zeros((1, 0, 4))},
        {"audio": np.zeros((1, 0))},
        {"audio": np.zeros((1, 3))},
        {"video": np.zeros((1, 1, 2, 2, 3))},
        {"tokens": np.zeros((1, 0), np.int64)},
        {"text": ["", "\n"]},
        {"mask": np.ones((1, 4, 4), np.int64)},
        {"image": np.zeros((2, 5000, 1), np.uint8)},
        [],
    ],
    ids=str,
)
def test_degenerate_samples_are_drawn(batch: Any) -> None:
    assert show(batch).image.size >= (1, 1)


def test_the_number_of_samples_and_columns_is_that_asked_for() -> None:
    batch = np.zeros((30, 10, 10), np.uint8)

    sizes = [show(batch, samples=count, columns=3, size=10).image.size for count in (3, 6)]

    assert sizes[1] == (sizes[0][0], 2 * sizes[0][1])


# Files, terminals and notebooks


def test_a_picture_is_saved(tmp_path: Any) -> None:
    show(np.zeros((2, 8, 8), np.uint8)).save(tmp_path / "batch.png")

    with Image.open(tmp_path / "batch.png") as image:
        assert image.size[0] > 160


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_picture_is_printed_in_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show(np.zeros((2, 8, 8), np.uint8))
    assert capsys.readouterr().out == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    show(np.zeros((2, 8, 8), np.uint8))

    assert "\x1b[" in terminal.getvalue() or "\x1b_G" in terminal.getvalue()


def test_terminals_get_their_protocol() -> None:
    image = Image.fromarray(picture(height=4, width=3))

    assert in_terminal(image, {"KITTY_WINDOW_ID": "1"}).startswith("\x1b_Ga=T,f=100,m=0;")
    iterm = in_terminal(image, {"TERM_PROGRAM": "iTerm.app"})
    data = re.fullmatch("\x1b]1337;File=inline=1;size=(\\d+):(.*)\a\n", iterm)
    assert data is not None
    assert int(data[1]) == len(base64.b64decode(data[2]))
    blocks = in_terminal(image, {})
    assert (blocks.count("▀"), blocks.count("\n")) == (6, 2)
    red, green, blue = image.getpixel((0, 0))  # type: ignore[misc]
    assert blocks.startswith(f"\x1b[38;2;{red};{green};{blue};48;2;")


def test_notebooks_show_batches_reports_loaders_and_pipelines() -> None:
    pictures = TensorListCPU(np.zeros((2, 8, 8), np.uint8), "HW")
    assert re.match('<img src="data:image/png;base64,.*"><pre .*num_samples=2', pictures._repr_html_(), re.DOTALL)
    numbers = TensorListCPU(np.zeros((2, 3)))
    assert re.match("<pre .*num_samples=2", numbers._repr_html_(), re.DOTALL)
    assert "<img" not in TensorListCPU(np.zeros((0, 8, 8), np.uint8))._repr_html_()
    assert show(pictures)._repr_png_().startswith(b"\x89PNG")

    pipe = Pipeline(3, num_threads=1)
    pipe.set_outputs(fn.external_source(lambda info: np.int32(0), batch=False, dtype=DALIDataType.INT32))
    with pipe:
        pipe.run()
        assert "1 batches of 3" in pipe._repr_html_()
        assert "&lt;Pipeline" in pipe._repr_html_()
    loader = DataLoader(range(4), batch_size=2)
    list(loader)
    assert "2 batches of 2" in loader._repr_html_()
    assert loader.report()._repr_html_().startswith("<pre")
