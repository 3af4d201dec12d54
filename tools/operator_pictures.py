"""Draw pictures of a photograph before and after each operator, for the documentation.

``python -m tools.operator_pictures [folder]`` draws them. It needs scikit-image, for its sample photograph, and OpenCV.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dali_like import types
from dali_like.common.extras import optional
from dali_like.fn._external_source import external_source
from dali_like.graph.operator_interface import Array
from dali_like.operators.description import description_of
from dali_like.operators.functions import make_function
from dali_like.pipeline.pipeline import Pipeline

#: Arguments that show the effect of each operator, by its name.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "brightness": {"brightness": 1.6},
    "brightness_contrast": {"brightness": 1.2, "contrast": 1.8},
    "color_space_conversion": {"image_type": types.RGB, "output_type": types.BGR},
    "color_twist": {"hue": 100.0, "saturation": 1.5, "contrast": 1.3},
    "contrast": {"contrast": 2.0},
    "crop": {"crop": [80, 95], "crop_pos_x": 0.6, "crop_pos_y": 0.2},
    "crop_mirror_normalize": {"crop": [110, 130], "mirror": 1, "output_layout": "HWC", "dtype": types.UINT8},
    "decoders.image": {"output_type": types.GRAY},
    "decoders.image_crop": {"crop": [80, 95], "crop_pos_x": 0.6, "crop_pos_y": 0.2},
    "decoders.image_random_crop": {"seed": 4},
    "decoders.image_slice": {"rel_start": [0.4, 0.1], "rel_end": [0.9, 0.7]},
    "erase": {"anchor": [30, 60], "shape": [40, 50]},
    "flip": {},
    "gaussian_blur": {"sigma": 3.0},
    "hsv": {"hue": 120.0, "saturation": 1.4},
    "hue": {"hue": 200.0},
    "jpeg_compression_distortion": {"quality": 4},
    "multi_paste": {
        "in_ids": [0, 0, 0],
        "in_anchors": [[0, 0], [20, 60], [20, 60]],
        "shapes": [[130, 100], [65, 90], [65, 90]],
        "out_anchors": [[0, 0], [0, 105], [65, 105]],
    },
    "normalize": {"axis_names": "HW", "scale": 64.0, "shift": 128.0, "dtype": types.UINT8},
    "pad": {"axes": [0, 1], "align": [50, 250]},
    "paste": {"ratio": 1.5, "fill_value": [70, 130, 180], "paste_x": 0.2, "paste_y": 0.8},
    "random_resized_crop": {"size": [100, 100], "seed": 4},
    "resize": {"size": [130, 80]},
    "rotate": {"angle": 25.0, "fill_value": 255},
    "saturation": {"saturation": 0.2},
    "slice": {"rel_start": [0.4, 0.1], "rel_end": [0.9, 0.7]},
    "warp_affine": {"matrix": [1.0, 0.4, -26.0, 0.1, 1.0, -7.0], "fill_value": 255},
}
_HEIGHT = 130
_GAP = 12


def name_of(path: str) -> str:
    """Return the file name of an operator's picture."""
    return f"{path.replace('.', '_')}.jpg"


def draw(path: str) -> Array:
    """Return the photograph next to the operator's result."""
    cv2 = optional("cv2", "drawing pictures", "images")
    photograph: Array = optional("skimage.data", "drawing pictures", "images").chelsea()
    photograph = cv2.resize(photograph, None, fx=_HEIGHT / 300, fy=_HEIGHT / 300, interpolation=cv2.INTER_AREA)
    is_decoder = path.startswith("decoders.")
    given = cv2.imencode(".png", photograph[:, :, ::-1])[1].ravel() if is_decoder else photograph
    pipe = Pipeline(batch_size=1, seed=1)
    with pipe:
        node = external_source(lambda info: given, batch=False, layout="" if is_decoder else "HWC")
        pipe.set_outputs(make_function(description_of(path))(node, **EXAMPLES[path]))
    try:
        result = np.array(pipe.run()[0].at(0))
    finally:
        pipe.close()
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
        cv2.imwrite(str(folder / name_of(path)), draw(path)[:, :, ::-1], (cv2.IMWRITE_JPEG_QUALITY, 70))


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "operators" / "pictures"))
