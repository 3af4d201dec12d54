"""Tiles of a picture: one for each sample."""

from __future__ import annotations

import colorsys
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dali_like.common.extras import optional
from dali_like.showing.roles import picture_axes

optional("PIL", "The picture of a batch", "pictures")

from PIL import Image, ImageDraw, ImageFont  # noqa: E402

#: Mean and standard deviation of the usual normalization, for values from 0 to 1.
_IMAGENET = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
_TEXT_SIZE = 12
_LINE = 15
#: Frames of a clip that are drawn.
_MOST_FRAMES = 8
_SPECTRUM = 512
_PAPER, _INK = (255, 255, 255), (32, 32, 32)


def color_of(number: int) -> tuple[int, int, int]:
    """Return a color for a class; neighbors differ clearly."""
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.75, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def picture_of(
    value: np.ndarray[Any, Any], layout: str = "", normalization: tuple[Any, Any] | None = None
) -> np.ndarray[Any, Any]:
    """Return a picture as bytes of shape (height, width, 3).

    Args:
        value: of shape (height, width), (height, width, channels) or (channels, height, width); bool, integers, or
            floating-point numbers from 0 to 1, from 0 to 255, or normalized.
        normalization: mean and standard deviation of values from 0 to 1 before they were normalized. None: without negative
            values there was no normalization; otherwise ImageNet's, or that to -1 to 1, is assumed if the result fits.
    """
    axes = picture_axes(value.shape, layout)
    assert axes is not None
    height, width, channel = axes
    pixels = value[..., np.newaxis] if channel is None else value
    pixels = np.moveaxis(pixels, (height, width, -1 if channel is None else channel), (0, 1, 2))
    pixels = _as_bytes(pixels[..., :3] if pixels.shape[2] == 4 else pixels, normalization)
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _as_bytes(pixels: np.ndarray[Any, Any], normalization: tuple[Any, Any] | None) -> np.ndarray[Any, Any]:
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype == np.bool_:
        return pixels.astype(np.uint8) * 255
    if pixels.dtype == np.uint16:
        return (pixels >> 8).astype(np.uint8)
    values = np.nan_to_num(np.asarray(pixels, np.float64), posinf=0, neginf=0)
    result: np.ndarray[Any, Any] = np.clip(np.rint(_in_unit_range(values, normalization) * 255), 0, 255).astype(np.uint8)
    return result


def _in_unit_range(values: np.ndarray[Any, Any], normalization: tuple[Any, Any] | None) -> np.ndarray[Any, Any]:
    if normalization is not None:
        mean, deviation = (np.asarray(part, np.float64) for part in normalization)
        return np.asarray(values * deviation + mean)
    if not values.size or (values.min() >= 0 and values.max() <= 1):
        return values
    if values.min() >= 0 and values.max() <= 255:
        return np.asarray(values / 255)
    if values.min() >= -1 and values.max() <= 1:
        return np.asarray((values + 1) / 2)
    if values.shape[-1] == 3:
        restored = values * _IMAGENET[1] + _IMAGENET[0]
        if restored.min() > -0.02 and restored.max() < 1.02:
            return np.asarray(restored)
    span = values.max() - values.min()
    return np.asarray((values - values.min()) / (span or 1))


def scaled(pixels: np.ndarray[Any, Any], size: int) -> Image.Image:
    """Return a picture whose longer side has `size` pixels. Small ones are enlarged by whole factors, with sharp pixels."""
    image = Image.fromarray(pixels)
    longer = max(image.size) or 1
    if longer < size:
        factor = size // longer
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    return image.resize(
        (max(round(image.width * size / longer), 1), max(round(image.height * size / longer), 1)),
        Image.Resampling.BILINEAR,
    )


def with_mask(pixels: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a picture with a mask in color on it: of class numbers, or several of yes and no. Class 0 stays as it is."""
    mask = np.asarray(mask)
    if mask.ndim == 3 and 1 in (mask.shape[0], mask.shape[2]):
        mask = mask.squeeze(0 if mask.shape[0] == 1 else 2)
    if mask.ndim == 3:  # one mask for each object
        order = np.arange(1, len(mask) + 1)[:, np.newaxis, np.newaxis]
        mask = np.max((mask > 0) * order, axis=0)
    if mask.shape != pixels.shape[:2]:
        return pixels
    result = pixels.astype(np.float32)
    for number in np.unique(mask):
        if number != 0:
            result[mask == number] = result[mask == number] * 0.45 + np.array(color_of(int(number))) * 0.55
    return result.astype(np.uint8)


def draw_boxes(
    image: Image.Image, boxes: np.ndarray[Any, Any], size: tuple[int, int], names: Sequence[str], numbers: Sequence[int]
) -> None:
    """Draw boxes on a scaled picture.

    Args:
        boxes: rows of left, top, right and bottom: pixels of the unscaled picture, or from 0 to 1.
        size: width and height of the unscaled picture.
        names: the text of each box; shorter or empty: none.
        numbers: the class of each box, for its color; shorter or empty: that of its row.
    """
    draw = ImageDraw.Draw(image)
    is_relative = bool(boxes.size) and boxes.dtype.kind == "f" and float(np.nanmax(np.abs(boxes))) <= 1.0
    width, height = (1, 1) if is_relative else size
    scale = np.array([image.width / max(width, 1), image.height / max(height, 1)] * 2)
    for row, box in enumerate(np.asarray(boxes, np.float64)):
        if not np.isfinite(box).all():
            continue
        left, top, right, bottom = (box * scale).tolist()
        color = color_of(int(numbers[row]) if row < len(numbers) else row)
        corners = (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        draw.rectangle(corners, outline=color, width=2)
        if row < len(names) and names[row]:
            write(draw, (corners[0] + 3, corners[1] + 1), names[row], color)


def strip(frames: np.ndarray[Any, Any], layout: str, normalization: tuple[Any, Any] | None, size: int) -> Image.Image:
    """Return frames of a clip beside each other, evenly spread over it."""
    chosen = np.unique(np.linspace(0, max(len(frames) - 1, 0), _MOST_FRAMES).round().astype(int))[: len(frames)]
    images = [scaled(picture_of(frames[number], layout, normalization), size) for number in chosen]
    paper = new_paper(sum(image.width + 2 for image in images) or 1, max((image.height for image in images), default=1))
    left = 0
    for image in images:
        paper.paste(image, (left, 0))
        left += image.width + 2
    return paper


def sound(values: np.ndarray[Any, Any], size: int) -> Image.Image:
    """Return the wave of a sound above its spectrogram, both over time. Channels are averaged."""
    samples = np.asarray(values, np.float64)
    if samples.ndim == 2:
        samples = samples.mean(axis=0 if samples.shape[0] <= samples.shape[1] else 1)
    samples = np.nan_to_num(samples)
    width, height = size * 2, size // 2
    paper = new_paper(width, 2 * height)
    if not samples.size:
        return paper
    draw = ImageDraw.Draw(paper)
    peak = float(np.abs(samples).max()) or 1.0
    edges = np.linspace(0, samples.size, width + 1).astype(int)
    for column in range(width):
        part = samples[edges[column] : max(edges[column + 1], edges[column] + 1)] / peak
        top, bottom = ((1 - float(value)) * height / 2 for value in (part.max(), part.min()))
        draw.line((column, top, column, max(bottom, top + 1)), fill=(40, 90, 160))
    paper.paste(Image.fromarray(_spectrogram(samples)).resize((width, height)), (0, height))
    return paper


def _spectrogram(samples: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the decibels of a sound as bytes of shape (frequencies, times, 3), low frequencies at the bottom."""
    window = min(_SPECTRUM, samples.size)
    step = max((samples.size - window) // 400, window // 4, 1)
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[::step] * np.hanning(window)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    decibels = 10 * np.log10(np.maximum(power, max(float(power.max()), 1e-20) * 1e-8))
    level = (decibels - decibels.min()) / (np.ptp(decibels) or 1)
    shade = np.flipud(level.T)[..., np.newaxis]
    return np.asarray(255 * np.concatenate([shade, shade**2, 0.35 * np.sqrt(shade)], axis=2)).astype(np.uint8)


def tokens(ids: Sequence[Any], words: Sequence[str] | None, packs: Sequence[Any] | None, size: int) -> Image.Image:
    """Return tokens as lines of text; the tokens of one sequence of a pack have one color behind them.

    Args:
        words: the text of each token; None: its number.
        packs: the number of the sequence that each token belongs to; None: one sequence.
    """
    texts = [str(number) for number in ids] if words is None else [word or "·" for word in words]
    width = size * 2
    places, lines = _flowing(texts, width)
    paper = new_paper(width, max(lines, 1) * _LINE + 4)
    draw = ImageDraw.Draw(paper)
    for number, (text, (left, line)) in enumerate(zip(texts, places, strict=False)):
        top = line * _LINE + 2
        if packs is not None and number < len(packs) and int(packs[number]) > 0:
            shade = tuple(round(255 - (255 - part) * 0.4) for part in color_of(int(packs[number])))
            draw.rectangle((left - 1, top, left + _width(text), top + _LINE - 2), fill=shade)
        draw.text((left, top), text, fill=_INK, font=_font())
    return paper


def _flowing(texts: Sequence[str], width: int, most_lines: int = 14) -> tuple[list[tuple[int, int]], int]:
    """Return the place of each text, as (left, line), up to the last line that fits; and the number of lines."""
    places = []
    left = line = 0
    for text in texts:
        if left and left + _width(text) > width:
            left, line = 0, line + 1
        if line >= most_lines:
            break
        places.append((left + 2, line))
        left += _width(text) + 6
    return places, min(line + 1, most_lines)


def text(content: str, size: int) -> Image.Image:
    """Return a text in lines."""
    return tokens(content.split() or ["(empty)"], None, None, size)


def tile(parts: Sequence[Image.Image], caption: str, width: int) -> Image.Image:
    """Return the parts of a sample below each other, and its caption under them."""
    width = max([width, *(part.width for part in parts)])
    lines = _wrapped(caption, width)
    height = sum(part.height + 2 for part in parts) + len(lines) * _LINE + 4
    paper = new_paper(width, height)
    top = 0
    for part in parts:
        paper.paste(part, (0, top))
        top += part.height + 2
    draw = ImageDraw.Draw(paper)
    for line in lines:
        draw.text((2, top), line, fill=_INK, font=_font())
        top += _LINE
    return paper


def grid(tiles: Sequence[Image.Image], columns: int) -> Image.Image:
    """Return tiles in rows."""
    rows = [tiles[begin : begin + columns] for begin in range(0, len(tiles), columns)]
    width = max((image.width for image in tiles), default=1) + 6
    heights = [max(image.height for image in row) + 6 for row in rows]
    paper = new_paper(width * min(columns, len(tiles) or 1), sum(heights) or 1)
    top = 0
    for row, height in zip(rows, heights, strict=True):
        for number, image in enumerate(row):
            paper.paste(image, (number * width + 3, top + 3))
        top += height
    return paper


def new_paper(width: int, height: int) -> Image.Image:
    """Return an empty picture."""
    return Image.new("RGB", (max(width, 1), max(height, 1)), _PAPER)


def write(draw: ImageDraw.ImageDraw, place: tuple[float, float], content: str, color: tuple[int, int, int]) -> None:
    """Write a text on a colored ground."""
    left, top = place
    draw.rectangle((left - 2, top, left + _width(content) + 2, top + _LINE - 1), fill=color)
    draw.text(place, content, fill=_INK if sum(color) > 330 else _PAPER, font=_font())


def _wrapped(content: str, width: int, most_lines: int = 4) -> list[str]:
    lines: list[str] = []
    for word in content.split():
        if lines and _width(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [*lines[: most_lines - 1], f"{lines[most_lines - 1]} ..."] if len(lines) > most_lines else lines


@functools.cache
def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(_TEXT_SIZE)


def _width(content: str) -> int:
    return math.ceil(_font().getlength(content))
