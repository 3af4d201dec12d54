"""Draw pictures of a photograph or a sound before and after each operator, for the documentation.

``python -m tools.operator_pictures [folder]`` draws them. It needs scikit-image, for its sample photograph, and OpenCV.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dali_like import types
from dali_like.common.extras import optional
from dali_like.fn._external_source import external_source
from dali_like.graph.language.operator_interface import Array
from dali_like.operators.machinery.description import description_of
from dali_like.operators.machinery.functions import make_function
from dali_like.pipeline.pipeline import Pipeline
from examples.spoken_words import word

#: Arguments that show the effect of each operator, by its name.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "audio_resample": {"scale": 0.1},
    "brightness": {"brightness": 1.6},
    "brightness_contrast": {"brightness": 1.2, "contrast": 1.8},
    "clahe": {"tiles_x": 4, "tiles_y": 3, "clip_limit": 3.0},
    "color_space_conversion": {"image_type": types.RGB, "output_type": types.BGR},
    "color_twist": {"hue": 100.0, "saturation": 1.5, "contrast": 1.3},
    "contrast": {"contrast": 2.0},
    "crop": {"crop": [80, 95], "crop_pos_x": 0.6, "crop_pos_y": 0.2},
    "crop_mirror_normalize": {"crop": [110, 130], "mirror": 1, "output_layout": "HWC", "dtype": types.UINT8},
    "decoders.image": {"output_type": types.GRAY},
    "decoders.image_crop": {"crop": [80, 95], "crop_pos_x": 0.6, "crop_pos_y": 0.2},
    "decoders.image_random_crop": {"seed": 4},
    "decoders.image_slice": {"rel_start": [0.4, 0.1], "rel_end": [0.9, 0.7]},
    "experimental.dilate": {"mask_size": [7, 7]},
    "experimental.equalize": {},
    "experimental.erode": {"mask_size": [5, 5]},
    "experimental.filter": {"border": "clamp"},
    "experimental.median_blur": {"window_size": [9, 9]},
    "grid_mask": {"tile": 30, "angle": 0.5},
    "laplacian": {"smoothing_size": 1, "window_size": 3, "scale": 8.0},
    "noise.gaussian": {"stddev": 30.0},
    "noise.salt_and_pepper": {"prob": 0.1},
    "noise.shot": {"factor": 30.0},
    "erase": {"anchor": [30, 60], "shape": [40, 50]},
    "experimental.resize": {"size": [130, 80]},
    "experimental.tensor_resize": {"scales": [0.7, 1.2], "axes": [0, 1]},
    "fast_resize_crop_mirror": {"resize_shorter": 70, "crop": [60, 90], "mirror": 1},
    "experimental.decoders.image": {"output_type": types.GRAY, "dtype": types.UINT8},
    "experimental.decoders.image_crop": {"crop": [80, 95], "crop_pos_x": 0.6, "crop_pos_y": 0.2},
    "experimental.decoders.image_random_crop": {"seed": 5},
    "experimental.decoders.image_slice": {"rel_start": [0.1, 0.3], "rel_end": [0.6, 0.9]},
    "experimental.warp_perspective": {"matrix": [1.0, 0.3, -20.0, 0.1, 1.2, -15.0, 0.001, 0.002, 1.0], "fill_value": 255},
    "flip": {},
    "gaussian_blur": {"sigma": 3.0},
    "hsv": {"hue": 120.0, "saturation": 1.4},
    "hue": {"hue": 200.0},
    "jitter": {"nDegree": 8, "seed": 4},
    "jpeg_compression_distortion": {"quality": 4},
    "mel_filter_bank": {"sample_rate": 16000.0, "nfilter": 64},
    "mfcc": {"n_mfcc": 20, "normalize": True},
    "nonsilent_region": {"cutoff_db": -40.0, "window_length": 256},
    "multi_paste": {
        "in_ids": [0, 0, 0],
        "in_anchors": [[0, 0], [20, 60], [20, 60]],
        "shapes": [[130, 100], [65, 90], [65, 90]],
        "out_anchors": [[0, 0], [0, 105], [65, 105]],
    },
    "normalize": {"axis_names": "HW", "scale": 64.0, "shift": 128.0, "dtype": types.UINT8},
    "pad": {"axes": [0, 1], "align": [50, 250]},
    "paste": {"ratio": 1.5, "fill_value": [70, 130, 180], "paste_x": 0.2, "paste_y": 0.8},
    "power_spectrum": {"power": 1},
    "preemphasis_filter": {},
    "random_resized_crop": {"size": [100, 100], "seed": 4},
    "resize": {"size": [130, 80]},
    "resize_crop_mirror": {"resize_shorter": 70, "crop": [60, 90], "mirror": 1},
    "rotate": {"angle": 25.0, "fill_value": 255},
    "saturation": {"saturation": 0.2},
    "slice": {"rel_start": [0.4, 0.1], "rel_end": [0.9, 0.7]},
    "spectrogram": {"nfft": 512, "window_length": 400, "window_step": 80},
    "to_decibels": {"cutoff_db": -70.0},
    "sphere": {"interp_type": types.INTERP_LINEAR, "fill_value": 255},
    "warp_affine": {"matrix": [1.0, 0.4, -26.0, 0.1, 1.0, -7.0], "fill_value": 255},
    "water": {"interp_type": types.INTERP_LINEAR, "fill_value": 255},
}
#: Inputs behind the photograph.
_INPUTS: Mapping[str, Sequence[Any]] = {"experimental.filter": [np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)]}
#: Operators whose pictures show a sound, and the operators before them.
SOUNDS: Mapping[str, Sequence[str]] = {
    "audio_resample": (),
    "mel_filter_bank": ("spectrogram",),
    "mfcc": ("spectrogram", "mel_filter_bank", "to_decibels"),
    "nonsilent_region": (),
    "power_spectrum": (),
    "preemphasis_filter": (),
    "spectrogram": (),
    "to_decibels": ("spectrogram",),
}
_HEIGHT = 130
_SOUND_WIDTH = 195
_GAP = 12


def name_of(path: str) -> str:
    """Return the file name of an operator's picture."""
    return f"{path.replace('.', '_')}.jpg"


def draw(path: str) -> Array:
    """Return the photograph next to the operator's result."""
    cv2 = optional("cv2", "drawing pictures", "images")
    photograph: Array = optional("skimage.data", "drawing pictures", "images").chelsea()
    photograph = cv2.resize(photograph, None, fx=_HEIGHT / 300, fy=_HEIGHT / 300, interpolation=cv2.INTER_AREA)
    is_decoder = "decoders" in path.split(".")
    given = cv2.imencode(".png", photograph[:, :, ::-1])[1].ravel() if is_decoder else photograph
    pipe = Pipeline(batch_size=1, seed=1)
    with pipe:
        node = external_source(lambda info: given, batch=False, layout="" if is_decoder else "HWC")
        pipe.set_outputs(make_function(description_of(path))(node, *_INPUTS.get(path, ()), **EXAMPLES[path]))
    try:
        result = np.array(pipe.run()[0].at(0))
    finally:
        pipe.close()
    return _side_by_side(photograph, result)


def draw_sound(path: str) -> Array:
    """Return pictures of a spoken word before and after the operator."""
    sound = word("ai", np.random.default_rng(5))
    pipe = Pipeline(batch_size=1, seed=1)
    with pipe:
        node = external_source(lambda info: sound, batch=False)
        for earlier in SOUNDS[path]:
            node = make_function(description_of(earlier))(node, **EXAMPLES[earlier])
        results = make_function(description_of(path))(node, **EXAMPLES[path])
        pipe.set_outputs(node, *(results if isinstance(results, list) else [results]))
    try:
        before, *after = (np.array(output.at(0)) for output in pipe.run())
    finally:
        pipe.close()
    if path == "nonsilent_region":
        start, length = (int(number) for number in after)
        after = [before[start : start + length]]
    return _side_by_side(_sketch(before), _sketch(after[0]))


def _sketch(data: Array) -> Array:
    """Return a picture of a curve, or of an array whose first axis points upwards."""
    cv2 = optional("cv2", "drawing pictures", "images")
    if data.ndim == 1:
        picture = np.full((_HEIGHT, _SOUND_WIDTH), 255, np.uint8)
        heights = (_HEIGHT - 1) * (1 - (data - data.min()) / np.ptp(data))
        places = np.linspace(0, _SOUND_WIDTH - 1, len(data))
        cv2.polylines(picture, [np.column_stack([places, heights]).round().astype(np.int32)], False, 60)
    else:
        visible = data**0.25 if data.min() >= 0 else data  # powers span many magnitudes
        white, black = np.percentile(visible, (2, 98))
        shades = 255 * np.clip((black - visible) / (black - white), 0, 1)
        picture = cv2.resize(shades[::-1].astype(np.uint8), (_SOUND_WIDTH, _HEIGHT), interpolation=cv2.INTER_NEAREST)
    return np.repeat(picture[:, :, np.newaxis], 3, axis=2)


def _side_by_side(photograph: Array, result: Array) -> Array:
    height = max(photograph.shape[0], result.shape[0])
    canvas = np.full((height, photograph.shape[1] + _GAP + result.shape[1], 3), 255, np.uint8)
    canvas[: photograph.shape[0], : photograph.shape[1]] = photograph
    canvas[: result.shape[0], photograph.shape[1] + _GAP :] = result
    return canvas


def write(folder: Path) -> None:
    """Draw all pictures to a folder."""
    cv2 = optional("cv2", "drawing pictures", "images")
    folder.mkdir(parents=True, exist_ok=True)
    for path in EXAMPLES:
        picture = draw_sound(path) if path in SOUNDS else draw(path)
        cv2.imwrite(str(folder / name_of(path)), picture[:, :, ::-1], (cv2.IMWRITE_JPEG_QUALITY, 70))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "operators" / "pictures"))
