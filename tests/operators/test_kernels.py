"""Compiled loops compute the bits of the functions that they replace, in threads and in workers."""

from __future__ import annotations

import inspect
import io
import operator
import os
import wave
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cv2")

from dali_like import Pipeline, fn, types
from dali_like.common import kernel_library
from dali_like.errors import DaliLikeError
from dali_like.graph.execution import batch_runs
from dali_like.operators.machinery.description import own_descriptions
from tests.compiled import kernels_from, library, sample_by_sample

PIXELS = ("uint8", "int16", "uint16", "float32", "int32")
NUMBERS = ("uint8", "int8", "uint16", "int32", "int64", "uint64", "float32", "float64", "float16", "bool")
EXAMPLES = 3000 if os.environ.get("PARITY") == "full" else 150


class Case(NamedTuple):
    """An operator with arguments.

    Attributes:
        apply: given a node for each input, returns that of the result, or several.
        layout: of the first input, with as many letters as dimensions; "*" for an input without a layout.
        dtypes: of the first input.
        inputs: number of inputs like the first one.
        channels: extent of the last dimension; None: any.
        makes: makes the samples of each input, given a random generator and an extent; None: arrays of the layout.
    """

    apply: Callable[..., Any]
    layout: str = "HWC"
    dtypes: Sequence[str] = PIXELS
    inputs: int = 1
    channels: int | None = None
    makes: Callable[[np.random.Generator, int], tuple[Any, ...]] | None = None


def image(apply: Callable[..., Any], dtypes: Sequence[str] = PIXELS, layout: str = "HWC", channels: int | None = 3) -> Case:
    return Case(apply, layout, dtypes, 1, channels)


def array(apply: Callable[..., Any], ndim: int = 2, dtypes: Sequence[str] = NUMBERS, inputs: int = 1) -> Case:
    return Case(apply, "*" * ndim, dtypes, inputs)


def sound(apply: Callable[..., Any], dtypes: Sequence[str] = ("float32",)) -> Case:
    return Case(apply, "*", dtypes)


def boxes_and_labels(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    begin = rng.random((extent, 2)) / 2
    boxes = np.concatenate([begin, begin + rng.random(begin.shape) * 0.5], axis=1).astype(np.float32)
    return boxes, rng.integers(0, 9, (extent, 1), np.int32)


def windows(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    return rng.integers(0, 255, (extent + 3, 9, 3), np.uint8), rng.random(2).astype(np.float32) / 2, np.float32([0.4, 0.5])


def with_mean(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    data = rng.normal(5, 30, (extent * 37 + 1, 3)).astype(np.float32)
    return data, data.mean(dtype=np.float64).astype(np.float32)


def sides_of_images(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    return (rng.integers(0, 9 * extent + 1, 3),)


def wav_file(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    """Return a WAV file with two channels; that of eight frames is cut off."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(2)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(rng.integers(-30_000, 30_000, 2 * (extent + 1), np.int16).tobytes())
    data = np.frombuffer(file.getvalue(), np.uint8)
    return (data[:-3] if extent == 7 else data,)


def npy_file(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    """Return an array written by NumPy, in either order; that of seven rows is cut off."""
    file = io.BytesIO()
    np.save(file, np.array(rng.normal(0, 9, (extent, 3)), np.float32, order=rng.choice(["C", "F"])))
    data = np.frombuffer(file.getvalue(), np.uint8)
    return (data[:-1] if extent == 7 else data,)


def image_file(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    """Return an image; that of eight rows is cut off."""
    import cv2  # behind the check at the top

    pixels = rng.integers(0, 256, (extent + 1, 5, 3), np.uint8)
    data = cv2.imencode(str(rng.choice([".jpg", ".png", ".bmp"])), pixels)[1].reshape(-1)
    return (data[:20] if extent == 7 else data,)


def photograph(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    """Return a JPEG, in gray or color; that of 34 rows is a PNG, and that of 36 is cut off."""
    import cv2  # behind the check at the top

    pixels = rng.integers(0, 256, (2 * extent + 30, 27, rng.choice([1, 3])), np.uint8)
    data = cv2.imencode(".png" if extent == 2 else ".jpg", pixels)[1].reshape(-1)
    return (data[:-20] if extent == 3 else data,)


def polygons(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    """Return ids of masks, polygons and vertices; now and then an id is missing or occurs twice."""
    vertices = rng.random((4 * extent + 3, 2)).astype(np.float32)
    begins = rng.integers(0, len(vertices), extent)
    ends = begins + rng.integers(0, len(vertices) - begins + 1)
    masks = rng.integers(-2, 6, extent)
    ids = rng.permutation(np.unique(masks))[: rng.integers(0, 5)]
    if rng.random() < 0.05:
        ids = np.append(ids, rng.integers(-2, 7))
    return ids.astype(np.int32), np.stack([masks, begins, ends], axis=1).astype(np.int32), vertices


def bbox_crop(**more: Any) -> Callable[..., Any]:
    given = {"aspect_ratio": [0.5, 2.0], "thresholds": [0.0, 0.3, 0.7], "scaling": [0.3, 1.0], "num_attempts": 3, **more}
    return lambda boxes, labels: fn.random_bbox_crop(boxes, labels, **given)


def rotated(angle: Any, **arguments: Any) -> Callable[..., Any]:
    def apply(boxes: Any, labels: Any) -> Any:
        return fn.bbox_rotate(boxes, labels, angle=angle(range=[0, 360]) if callable(angle) else angle, **arguments)

    return apply


def labeled(rng: np.random.Generator, extent: int) -> tuple[Any, ...]:
    return (rng.choice([0, 0, 1, 2, 3], (extent, extent + 2)).astype(np.int32),)


def objects(**arguments: Any) -> Callable[..., Any]:
    return lambda mask: fn.segmentation.random_object_bbox(mask, **arguments)


#: Types of pixels of operators that compute values between pixels with compiled loops, and one without.
SCALED = ("uint8", "float32", "int16")
PERSPECTIVE = [1, 0.3, -2, 0.1, 1.2, -1.5, 0.01, 0.02, 1]
ANCHORS = [number for i in range(9) for number in (i / 18, i / 18, i / 18 + 0.3, i / 18 + 0.4)]
CMN: dict[str, Any] = {"mean": [3.0, 120.0, 60.0], "std": [2.0, 50.0, 0.3]}


def reduction(name: str, **arguments: Any) -> Case:
    return array(lambda x: getattr(fn.reductions, name)(x, **arguments), 3, ("uint8", "float32", "int32", "int16"))


def decoding(module: str, name: str, apply: Callable[[Any, Any], Any]) -> Case:
    return Case(lambda x: apply(getattr(operator.attrgetter(module)(fn), name), x), makes=photograph)


#: Applications of the decoders of `fn.decoders` and `fn.experimental.decoders`.
DECODERS: dict[str, list[Callable[[Any, Any], Any]]] = {
    "image": [
        lambda decode, x: decode(x),
        lambda decode, x: decode(x, output_type=types.ANY_DATA, use_fast_idct=True),
        lambda decode, x: decode(x, output_type=types.YCbCr),
    ],
    "image_crop": [
        lambda decode, x: decode(x, crop=[9, 20], crop_pos_x=fn.random.uniform(range=[0, 1]), output_type=types.BGR),
        lambda decode, x: decode(x, crop=[33, 0], output_type=types.GRAY),
    ],
    "image_slice": [
        lambda decode, x: decode(x, rel_start=[0.2, 0.1], rel_end=[0.8, 0.7]),
        lambda decode, x: decode(x, start=[3], shape=[10], axes=[1]),
    ],
    "image_random_crop": [
        lambda decode, x: decode(x),
        lambda decode, x: decode(x, random_area=[0.9, 1.0], random_aspect_ratio=[3, 4], num_attempts=2),
    ],
}

CASES: dict[str, list[Case]] = {
    "flip": [
        image(lambda x: fn.flip(x, horizontal=1, vertical=1), NUMBERS),
        image(lambda x: fn.flip(x, horizontal=fn.random.coin_flip(), vertical=fn.random.coin_flip())),
        image(fn.flip, layout="FCHW", channels=None),
    ],
    "resize": [
        image(lambda x: fn.resize(x, resize_shorter=5, interp_type=types.INTERP_NN), NUMBERS),
        image(lambda x: fn.resize(x, size=[4, -9], interp_type=types.INTERP_NN), channels=None),
        image(
            lambda x: fn.resize(
                x,
                resize_x=3,
                resize_y=6,
                roi_start=[0.9, 0.1],
                roi_end=[-0.2, 0.7],
                roi_relative=True,
                min_filter=types.INTERP_NN,
                mag_filter=types.INTERP_NN,
            ),
            channels=None,
        ),
        image(lambda x: fn.resize(x, size=[4, 9]), SCALED),
        image(lambda x: fn.resize(x, size=[-5, 3], interp_type=types.INTERP_CUBIC), SCALED, channels=None),
        image(lambda x: fn.resize(x, resize_longer=5, antialias=False, dtype=types.FLOAT, subpixel_scale=False), SCALED),
        image(
            lambda x: fn.resize(x, resize_x=fn.random.uniform(range=[1, 9]), resize_y=1, mag_filter=types.INTERP_CUBIC),
            SCALED,
            channels=1,
        ),
        image(lambda x: fn.resize(x, size=[12, 15], roi_start=[0.2, 0.9], roi_end=[0.7, 0.1], roi_relative=True), SCALED),
    ],
    "resize_crop_mirror": [
        image(lambda x: fn.resize_crop_mirror(x, resize_shorter=9, crop=[6, 5], mirror=fn.random.coin_flip()), SCALED),
        image(
            lambda x: fn.resize_crop_mirror(
                x, size=[5, 0], crop=[0, 4], crop_pos_x=fn.random.uniform(range=[0, 1]), mirror=3, dtype=types.FLOAT
            ),
            SCALED,
            channels=None,
        ),
        image(lambda x: fn.resize_crop_mirror(x, resize_y=3, resize_x=7, interp_type=types.INTERP_NN, mirror=1)),
    ],
    "fast_resize_crop_mirror": [
        image(lambda x: fn.fast_resize_crop_mirror(x, resize_longer=4, crop=[3, 3], mirror=1), SCALED),
        image(lambda x: fn.fast_resize_crop_mirror(x, size=[2, 9], interp_type=types.INTERP_CUBIC), SCALED),
    ],
    "random_resized_crop": [
        image(lambda x: fn.random_resized_crop(x, size=[6, 5]), SCALED),
        image(lambda x: fn.random_resized_crop(x, size=3, random_area=[0.5, 0.9], dtype=types.FLOAT), SCALED, channels=None),
        image(lambda x: fn.random_resized_crop(x, size=[4, 1], interp_type=types.INTERP_TRIANGULAR), SCALED, channels=1),
    ],
    "sphere": [
        image(fn.sphere, SCALED),
        image(lambda x: fn.sphere(x, interp_type=types.INTERP_LINEAR, fill_value=9, mask=fn.random.coin_flip()), SCALED),
    ],
    "water": [
        image(lambda x: fn.water(x, ampl_x=3, freq_y=1.3, phase_x=0.4, fill_value=7.0), SCALED, channels=None),
        image(lambda x: fn.water(x, ampl_y=2, freq_x=0.9, interp_type=types.INTERP_LINEAR), SCALED),
    ],
    "experimental.warp_perspective": [
        image(lambda x: fn.experimental.warp_perspective(x, matrix=PERSPECTIVE, fill_value=[7, 8.5, 300]), ["uint8"]),
        image(
            lambda x: fn.experimental.warp_perspective(x, matrix=PERSPECTIVE, inverse_map=False, border_mode="replicate"),
            ["uint8"],
            channels=1,
        ),
        image(
            lambda x: fn.experimental.warp_perspective(
                x, matrix=PERSPECTIVE, size=[5, 9], pixel_origin="center", interp_type=types.INTERP_NN
            ),
            ["uint8", "float32"],
            channels=None,
        ),
    ],
    "bbox_rotate": [
        Case(rotated(angle=30.0, input_shape=[100, 80]), makes=boxes_and_labels),
        Case(rotated(angle=fn.random.uniform, input_shape=[60, 80], remove_threshold=0.7), makes=boxes_and_labels),
        Case(
            lambda boxes, _: fn.bbox_rotate(boxes, angle=200.0, input_shape=[40, 80], bbox_layout="xyWH", mode="halfway"),
            makes=boxes_and_labels,
        ),
    ],
    "segmentation.random_object_bbox": [
        Case(objects(), makes=labeled),
        Case(objects(ignore_class=True, k_largest=2, format="box", foreground_prob=0.7), makes=labeled),
        Case(objects(classes=[1, 3], threshold=[2, 1], output_class=True, format="start_end"), makes=labeled),
        Case(objects(background=2, output_class=True, threshold=3), makes=labeled),
        array(objects(k_largest=1), 3, ("int16", "bool", "uint32", "int64")),
    ],
    "crop": [
        image(lambda x: fn.crop(x, crop=[3, 2], crop_pos_x=fn.random.uniform(range=[0, 1]))),
        image(lambda x: fn.crop(x, crop=[5, 9], out_of_bounds_policy="pad", fill_values=[1, 2, 300])),
        image(lambda x: fn.crop(x, crop=[4, 0], out_of_bounds_policy="trim_to_shape", rounding="truncate"), layout="CHW"),
        image(lambda x: fn.crop(x, crop=[2, 3, 3], out_of_bounds_policy="pad"), layout="FHWC"),
    ],
    "slice": [
        image(lambda x: fn.slice(x, rel_start=[0.2, 0.3], rel_end=[0.9, 0.6], axis_names="HW")),
        image(lambda x: fn.slice(x, start=[-2, 1], shape=[5, 3], out_of_bounds_policy="pad", fill_values=[7])),
        array(lambda x: fn.slice(x, start=1, end=3, axes=[0], out_of_bounds_policy="trim_to_shape")),
        Case(fn.slice, makes=windows),
        Case(lambda x, a, s: fn.slice(x, a, s, axes=[0, 1], normalized_anchor=False), makes=windows),
    ],
    "pad": [
        array(lambda x: fn.pad(x, shape=[4, 5], fill_value=7)),
        array(lambda x: fn.pad(x, axes=[1], shape=[4], align=[3], fill_value=-2.5), 3),
    ],
    "paste": [
        image(lambda x: fn.paste(x, ratio=1.7, fill_value=[1, 2, 3], paste_x=fn.random.uniform(range=[0, 1]))),
        image(lambda x: fn.paste(x, ratio=fn.random.uniform(range=[1, 2]), fill_value=9, min_canvas_size=5)),
    ],
    "crop_mirror_normalize": [
        image(lambda x: fn.crop_mirror_normalize(x, **CMN, mirror=fn.random.coin_flip())),
        image(lambda x: fn.crop_mirror_normalize(x, **CMN, crop=[3, 2], crop_pos_x=fn.random.uniform(range=[0, 1]))),
        image(
            lambda x: fn.crop_mirror_normalize(x, **CMN, output_layout="HWC", mirror=fn.random.coin_flip(), scale=2, shift=1)
        ),
        image(
            lambda x: fn.crop_mirror_normalize(
                x, **CMN, crop=[6, 4], mirror=1, out_of_bounds_policy="pad", fill_values=[7.0], pad_output=True
            )
        ),
        image(
            lambda x: fn.crop_mirror_normalize(
                x,
                **CMN,
                crop=[6, 4],
                out_of_bounds_policy="trim_to_shape",
                dtype=types.FLOAT16,
                mirror=fn.random.coin_flip(),
            ),
            ["uint8"],
        ),
        image(lambda x: fn.crop_mirror_normalize(x, mean=1.0, std=3.0, dtype=types.INT8, output_layout="HWC"), ["uint8"]),
        image(lambda x: fn.crop_mirror_normalize(x, mean=1.0, std=3.0, mirror=1), layout="CHW", channels=None),
    ],
    "normalize": [
        array(fn.normalize, 3, ("uint8", "float32", "int16")),
        array(lambda x: fn.normalize(x, axes=[0, 1], ddof=1, epsilon=0.5, scale=3, shift=2), 3, ("uint8", "float32")),
        array(lambda x: fn.normalize(x, axes=[1]), 3, ("uint8", "float32")),
    ],
    "grid_mask": [
        image(lambda x: fn.grid_mask(x, tile=3, angle=fn.random.uniform(range=[-1, 1]), shift_x=1.0), NUMBERS),
        image(lambda x: fn.grid_mask(x, tile=2, ratio=0.4, shift_y=-0.5), layout="FCHW"),
    ],
    "erase": [
        image(lambda x: fn.erase(x, anchor=[1, 1], shape=[2, 3], axis_names="HW", fill_value=9.7), NUMBERS),
        image(lambda x: fn.erase(x, anchor=[0.2, 0.3], shape=[0.5, 0.9], normalized=True, centered_anchor=True)),
    ],
    "preemphasis_filter": [
        sound(fn.preemphasis_filter),
        sound(lambda x: fn.preemphasis_filter(x, border="reflect", preemph_coeff=fn.random.uniform(range=[0, 1]))),
        sound(lambda x: fn.preemphasis_filter(x, border="zero"), ("float32", "int16")),
    ],
    "nonsilent_region": [
        sound(
            lambda x: fn.nonsilent_region(x, window_length=3, reset_interval=6, cutoff_db=-3), ("float32", "int16", "uint8")
        ),
        sound(lambda x: fn.nonsilent_region(x, window_length=4, reset_interval=-1, reference_power=3.0)),
    ],
    "spectrogram": [
        sound(lambda x: fn.spectrogram(x, nfft=16, window_length=9, window_step=4)),
        sound(lambda x: fn.spectrogram(x, window_length=2, window_step=1, power=1, layout="tf", reflect_padding=False)),
        sound(lambda x: fn.spectrogram(x, window_length=1, window_step=1, center_windows=False)),
    ],
    "to_decibels": [
        array(fn.to_decibels, 2, ("float32",)),
        array(lambda x: fn.to_decibels(x, multiplier=20.0, reference=3.0, cutoff_db=-5), 1, ("float32",)),
    ],
    "transpose": [array(lambda x: fn.transpose(x, perm=[2, 0, 1]), 3), array(fn.transpose)],
    "stack": [array(lambda x: fn.stack(x, x, axis=1)), array(lambda x, y: fn.stack(x, y, axis=-1), inputs=2)],
    "cat": [array(lambda x, y: fn.cat(x, y, axis=0), inputs=2), array(lambda x: fn.cat(x, x, x, axis=-1), 3)],
    "one_hot": [
        array(lambda x: fn.one_hot(x, num_classes=5)),
        array(lambda x: fn.one_hot(x, num_classes=3, dtype=types.INT16, on_value=-7, off_value=300), 1),
    ],
    "lookup_table": [
        array(lambda x: fn.lookup_table(x, keys=[0, 3, 200, 60_000], values=[7.5, 1, -2, 9], default_value=-1.5)),
        array(lambda x: fn.lookup_table(x, keys=[2, 1], values=[3, 4], dtype=types.INT16), 1),
        array(lambda x: fn.lookup_table(x, keys=[*range(256)], values=[*range(256)], dtype=types.FLOAT64), 3),
        array(lambda x: fn.lookup_table(x, dtype=types.UINT8, default_value=3), 0),
    ],
    "shapes": [array(fn.shapes, 3), array(lambda x: fn.shapes(x, dtype=types.FLOAT))],
    "per_frame": [array(lambda x: (fn.per_frame(x), x)), image(lambda x: fn.per_frame(x, replace=True), channels=None)],
    "get_property": [
        image(lambda x: fn.get_property(x, key="layout"), channels=None),
        array(lambda x: (fn.get_property(x, key="layout"), x)),
        image(lambda x: fn.get_property(x, key="source_info"), channels=None),
    ],
    "expand_dims": [
        array(lambda x: fn.expand_dims(x, axes=[0, 2])),
        image(lambda x: (fn.expand_dims(x, axes=[3], new_axis_names="D"), x)),
    ],
    "squeeze": [image(lambda x: fn.squeeze(x, axes=[2]), channels=1), image(lambda x: fn.squeeze(x, axis_names="C") * 2)],
    "reshape": [
        array(lambda x: fn.reshape(x, shape=[-1])),
        array(lambda x: fn.reshape(x, shape=[2, -1, 1]) * 1.5),
        array(lambda x: (fn.reshape(x, layout="HWC"), x), 3),
    ],
    "reinterpret": [
        array(lambda x: fn.reinterpret(x, dtype=types.UINT8)),
        array(lambda x: fn.reinterpret(x, dtype=types.INT32, shape=[-1]), 3),
        array(lambda x: fn.reinterpret(x, dtype=types.BOOL)),
    ],
    "element_extract": [
        array(lambda x: fn.element_extract(x, element_map=[1]), 3),
        array(lambda x: (fn.element_extract(x, element_map=[0]), x), 1),
        array(lambda x: fn.element_extract(x, element_map=[1, 0]), 2),
    ],
    "reductions.sum": [
        reduction("sum"),
        reduction("sum", dtype=types.INT8),
        reduction("sum", dtype=types.FLOAT),
        reduction("sum", axes=[-1, 1]),
    ],
    "reductions.mean": [
        reduction("mean"),
        reduction("mean", keep_dims=True, dtype=types.UINT8),
        reduction("mean", axes=[0]),
    ],
    "reductions.mean_square": [reduction("mean_square"), reduction("mean_square", axes=[1, 2], keep_dims=True)],
    "reductions.rms": [reduction("rms", axes=[0, 1, 2]), reduction("rms", axes=[0, 1]), reduction("rms", axes=[0, 2])],
    "reductions.min": [reduction("min")],
    "reductions.max": [reduction("max", keep_dims=True)],
    "reductions.variance": [Case(lambda x, mean: fn.reductions.variance(x, mean, ddof=1), makes=with_mean)],
    "reductions.std_dev": [Case(fn.reductions.std_dev, makes=with_mean)],
    "random.uniform": [sound(lambda x: (fn.random.uniform(range=[-3, 9]), x))],
    "random.coin_flip": [sound(lambda x: (fn.random.coin_flip(probability=0.3, dtype=types.FLOAT), x))],
    "random.choice": [
        array(lambda x: fn.random.choice(x, shape=[4])),
        array(lambda x: (fn.random.choice(x), x), 1),
        array(lambda x: fn.random.choice(x, shape=[2, 0]), 3),
        array(lambda x: (fn.random.choice(x, x), x), 1, ("int32", "float64")),
        array(lambda x: fn.random.choice(x, shape=[3], p=[0.2, 0.8]), 1),
        array(lambda x: (fn.random.choice(fn.reductions.sum(fn.shapes(x)), shape=[3]), x), 2),
    ],
    "noise.salt_and_pepper": [
        image(lambda x: fn.noise.salt_and_pepper(x, prob=0.4), NUMBERS),
        image(
            lambda x: fn.noise.salt_and_pepper(x, prob=fn.random.uniform(range=[0, 1]), salt_vs_pepper=0.2, salt_val=300.7)
        ),
        image(lambda x: fn.noise.salt_and_pepper(x, per_channel=True, pepper_val=fn.random.uniform()), layout="CHW"),
        image(fn.noise.salt_and_pepper, layout="FHWC", channels=None),
        array(lambda x: fn.noise.salt_and_pepper(x, prob=0.9, salt_vs_pepper=1.0), 2),
    ],
    "decoders.audio": [
        Case(fn.decoders.audio, makes=wav_file),
        Case(lambda x: fn.decoders.audio(x, dtype=types.INT32), makes=wav_file),
        Case(lambda x: fn.decoders.audio(x, dtype=types.INT16, downmix=True)[0], makes=wav_file),
    ],
    "decoders.numpy": [
        Case(fn.decoders.numpy, makes=npy_file),
        Case(lambda x: fn.decoders.numpy(x, dtype=types.INT16), makes=npy_file),
    ],
    **{
        f"{module}decoders.{name}": [decoding(f"{module}decoders", name, apply) for apply in applications]
        for module in ("", "experimental.")
        for name, applications in DECODERS.items()
    },
    "peek_image_shape": [
        Case(fn.peek_image_shape, makes=image_file),
        Case(lambda x: fn.peek_image_shape(x, image_type=types.GRAY, dtype=types.FLOAT), makes=image_file),
    ],
    "experimental.peek_image_shape": [Case(fn.experimental.peek_image_shape, makes=image_file)],
    "roi_random_crop": [
        array(lambda x: fn.roi_random_crop(crop_shape=[4, 9], roi_start=[2, 1], roi_end=[9, 3])),
        array(lambda x: fn.roi_random_crop(x, crop_shape=[1, 1], roi_start=[0, 0], roi_end=[1, 1])),
    ],
    "random_crop_generator": [
        Case(fn.random_crop_generator, makes=sides_of_images),
        Case(
            lambda x: fn.random_crop_generator(x, random_area=[0.9, 1.0], random_aspect_ratio=[3, 4], num_attempts=2),
            makes=sides_of_images,
        ),
    ],
    "sequence_rearrange": [
        array(lambda x: fn.sequence_rearrange(x, new_order=[1, 0, 0]), 3),
        image(lambda x: fn.sequence_rearrange(x, new_order=[0]), layout="FHWC", channels=None),
    ],
    "segmentation.random_mask_pixel": [
        array(lambda x: fn.segmentation.random_mask_pixel(x, foreground=1, threshold=20.0), 2, ("uint8", "int32", "int16")),
        array(fn.segmentation.random_mask_pixel, 3, ("uint8", "int32")),
        array(
            lambda x: fn.segmentation.random_mask_pixel(x, foreground=fn.random.coin_flip(dtype=types.INT32), value=7),
            1,
            ("int32", "uint8"),
        ),
    ],
    "segmentation.select_masks": [
        Case(fn.segmentation.select_masks, makes=polygons),
        Case(lambda *inputs: fn.segmentation.select_masks(*inputs, reindex_masks=True), makes=polygons),
    ],
    "random_bbox_crop": [
        Case(bbox_crop(), makes=boxes_and_labels),
        Case(
            bbox_crop(threshold_type="overlap", all_boxes_above_threshold=False, output_bbox_indices=True),
            makes=boxes_and_labels,
        ),
        Case(bbox_crop(bbox_prune_threshold=0.3, total_num_attempts=9, allow_no_crop=False), makes=boxes_and_labels),
    ],
    "box_encoder": [
        Case(lambda boxes, labels: fn.box_encoder(boxes, labels, anchors=ANCHORS, criteria=0.3), makes=boxes_and_labels)
    ],
}


def values(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Any:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        return rng.normal(0, 40, shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(max(limits.min, -50), min(limits.max, 300), shape, dtype, endpoint=True)


def samples_of(case: Case, seed: int, extents: Sequence[Sequence[int]], dtype: str) -> list[list[Any]]:
    """Return the samples of each input."""
    rng = np.random.default_rng(seed)
    if case.makes is not None:
        return [[*column] for column in zip(*(case.makes(rng, sides[0]) for sides in extents), strict=True)]
    shapes = [[*sides[: len(case.layout)]] for sides in extents]
    for shape in shapes:
        if case.channels is not None:
            shape[case.layout.index("C")] = case.channels
    return [[values(rng, shape, dtype) for shape in shapes] for _ in range(case.inputs)]


def results(case: Case, batches: Sequence[Sequence[Any]], *, threads: int = 2, parallel: bool = False) -> Any:
    """Return the layout, the dtype and the samples of each output of two batches, or the error."""
    layout = None if "*" in case.layout or case.makes else case.layout
    pipe = Pipeline(
        batch_size=len(batches[0]),
        num_threads=threads,
        seed=3,
        py_num_workers=1,
        py_start_method="fork",
        prefetch_queue_depth=1,
    )
    with pipe:
        given_layouts = [layout or "", *[""] * (len(batches) - 1)]
        if parallel:
            nodes = fn.external_source(
                lambda info: tuple(batch[info.idx_in_batch] for batch in batches),
                num_outputs=len(batches),
                layout=given_layouts,
                batch=False,
                parallel=True,
            )
        else:
            nodes = [
                fn.external_source(_always(batch), layout=each) for batch, each in zip(batches, given_layouts, strict=True)
            ]
        made = case.apply(*nodes)
        pipe.set_outputs(*(made if isinstance(made, (list, tuple)) else [made]))
    with pipe:
        try:
            runs = [pipe.run() for _ in range(2)]
        except DaliLikeError as error:
            return str(error).splitlines()[0]
        return [[(out.layout(), out.dtype, [np.array(out.at(i)) for i in range(len(out))]) for out in run] for run in runs]


def _always(batch: Sequence[Any]) -> Callable[[], Any]:
    return lambda: [np.asarray(sample) for sample in batch]


def assert_same_bits(one: Any, other: Any) -> None:
    if isinstance(one, str) or isinstance(other, str):
        assert one == other
        return
    for first, second in zip(one, other, strict=True):
        for (layout, dtype, arrays), (other_layout, other_dtype, others) in zip(first, second, strict=True):
            assert (layout, dtype) == (other_layout, other_dtype)
            for made, expected in zip(arrays, others, strict=True):
                assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(made, expected)
                np.testing.assert_array_equal(np.signbit(made), np.signbit(expected)) if made.dtype.kind == "f" else None


ALL = [(name, number) for name, cases in CASES.items() for number in range(len(cases))]
extents = st.lists(st.tuples(*[st.integers(0, 7)] * 4), min_size=1, max_size=5)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    which=st.sampled_from(ALL),
    sides=extents,
    dtype=st.integers(0, 9),
    seed=st.integers(0, 99),
    is_alike=st.booleans(),
    threads=st.integers(1, 2),
)
def test_results_have_the_same_bits(
    which: tuple[str, int], sides: list[Any], dtype: int, seed: int, is_alike: bool, threads: int
) -> None:
    case = CASES[which[0]][which[1]]
    batches = samples_of(case, seed, [sides[0]] * len(sides) if is_alike else sides, case.dtypes[dtype % len(case.dtypes)])

    with sample_by_sample():
        expected = results(case, batches, threads=threads)
    with kernels_from(library()):
        assert_same_bits(results(case, batches, threads=threads), expected)


LARGE = [(160, 180, 3, 2), (150, 190, 3, 2), (160, 170, 3, 2)]


@pytest.mark.parametrize("which", ALL, ids=lambda which: f"{which[0]}-{which[1]}")
@pytest.mark.parametrize("is_alike", [True, False], ids=["alike", "ragged"])
def test_large_samples_have_the_same_bits(which: tuple[str, int], is_alike: bool) -> None:
    case = CASES[which[0]][which[1]]
    sides = [LARGE[0]] * 3 if is_alike else LARGE
    if case.layout == "*":
        sides = [(each[0] * each[1],) for each in sides]
    batches = samples_of(case, 0, sides, case.dtypes[0])

    with sample_by_sample():
        expected = results(case, batches)
    with kernels_from(library()):
        assert_same_bits(results(case, batches), expected)


@pytest.mark.parametrize("name", [path for path, each in own_descriptions().items() if each.kernel])
def test_a_kernel_has_the_arguments_and_defaults_of_its_operator(name: str) -> None:
    description = own_descriptions()[name]

    def defaults(function: Callable[..., Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}

    assert defaults(description.kernel_function) == defaults(description.function)


@pytest.mark.parametrize("index", [slice(1, -1), slice(None, 2), slice(-9, 99), slice(3, 1), slice(None, None, 2), 0, -1])
@pytest.mark.parametrize("ndim", [1, 3])
@pytest.mark.parametrize("is_output", [True, False], ids=["output", "intermediate"])
def test_parts_of_samples_of_different_shapes_are_those_of_numpy(index: Any, ndim: int, is_output: bool) -> None:
    case = array(lambda x: x[index] if is_output else x[index] * 2, ndim, ["int16"])
    batches = samples_of(case, 3, [(4, 3, 2, 0), (1, 5, 2, 0), (3, 0, 2, 0)], "int16")

    ((made,), _) = results(case, batches)

    for sample, source in zip(made[2], batches[0], strict=True):
        expected = source[index] if is_output else source[index].astype(sample.dtype) * 2
        np.testing.assert_array_equal(sample, expected, strict=True)


VIEWS = [path for path, each in own_descriptions().items() if each.kernel and not each.kernel_is_compiled]


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_samples_of_different_shapes_need_no_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name][0]
    batches = samples_of(case, 0, [(4, 6, 3, 2), (2, 5, 3, 2), (3, 2, 3, 2)], "uint8")
    with sample_by_sample():
        expected = results(case, batches)
    served, run = [], batch_runs.run_by_kernels

    def noting(*args: Any) -> bool:
        served.append(run(*args))
        return served[-1]

    monkeypatch.setattr(batch_runs, "run_by_kernels", noting)
    with kernels_from("0"):
        assert_same_bits(results(case, batches), expected)
    assert served
    assert all(served)


class Counting:
    """The library, with the names of the functions that are called."""

    def __init__(self, kernels: Any) -> None:
        self.kernels, self.calls = kernels, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        if not name.endswith("_agree"):
            self.calls[name] += 1
        return getattr(self.kernels, name)


@pytest.mark.parametrize("name", [path for path, each in own_descriptions().items() if each.kernel])
@pytest.mark.parametrize("is_alike", [True, False], ids=["alike", "ragged"])
def test_each_kernel_computes_a_whole_batch_in_few_calls(name: str, is_alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name][0]
    sides = [(7 - (0 if is_alike else i % 3), 8, 3, 2) for i in range(12)]
    batches = samples_of(case, 0, sides, case.dtypes[0])

    with kernels_from(library()):
        counting = Counting(kernel_library.kernels())
        monkeypatch.setattr(kernel_library, "Kernels", lambda path: counting)
        kernel_library.kernels.cache_clear()
        results(case, batches)

    if not own_descriptions()[name].kernel_is_compiled:
        return
    del counting.calls["interface"]
    # Two batches, and perhaps some ahead, of twelve samples: sample by sample, there would be 24 calls of a function.
    assert 1 <= max(counting.calls.values()) <= 8


def test_samples_in_workers_have_the_same_bits() -> None:
    for name in ("crop_mirror_normalize", "spectrogram", "random_bbox_crop"):
        case = CASES[name][0]
        batches = samples_of(case, 1, [(50, 60, 3, 2)] * 3 + [(51, 60, 3, 2)], case.dtypes[0])
        with sample_by_sample():
            expected = results(case, batches, parallel=True)
        with kernels_from(library()):
            assert_same_bits(results(case, batches, parallel=True), expected)


@pytest.mark.parametrize("scale", [1, 150], ids=["small", "large"])
def test_an_error_names_the_sample_as_without_kernels(scale: int) -> None:
    case = image(lambda x: fn.crop(x, crop=[3 * scale, 3 * scale]))
    batches = [[np.zeros((side * scale, 4 * scale, 3), np.uint8) for side in (4, 5, 2)]]

    with sample_by_sample():
        expected = results(case, batches)
    with kernels_from(library()):
        assert results(case, batches) == expected
    assert f"is not inside the input of shape ({2 * scale}, {4 * scale}, 3)" in expected


@pytest.mark.parametrize("is_alike", [True, False], ids=["alike", "ragged"])
def test_threads_share_the_samples_of_a_large_batch(is_alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["crop"][0]
    batches = samples_of(case, 0, [(300 + (0 if is_alike else i), 200, 3, 0) for i in range(12)], "uint8")

    with kernels_from(library()):
        counting = Counting(kernel_library.kernels())
        monkeypatch.setattr(kernel_library, "Kernels", lambda path: counting)
        kernel_library.kernels.cache_clear()
        results(case, batches)

    assert counting.calls["crop_windows"]
    assert counting.calls["cut"] == 6 * counting.calls["crop_windows"]  # two samples each time


def test_chains_of_kernels_and_arithmetic_have_the_same_bits() -> None:
    case = image(lambda x: fn.transpose(fn.flip(fn.crop(x, crop=[3, 0]) * 1.5 + 2), perm=[2, 0, 1]), ["uint8"])
    batches = samples_of(case, 2, [(4, 5, 3, 0), (5, 6, 3, 0), (3, 3, 3, 0)], "uint8")

    with sample_by_sample():
        expected = results(case, batches)
    with kernels_from(library()):
        assert_same_bits(results(case, batches), expected)


def test_a_library_with_other_functions_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    path, version = library(), kernel_library.INTERFACE
    monkeypatch.setattr(kernel_library, "INTERFACE", 99)

    with (
        kernels_from(path),
        pytest.warns(RuntimeWarning, match=rf"has version {version} of its functions, but this package needs 99"),
    ):
        assert kernel_library.kernels() is None


def test_a_path_without_a_library_is_an_error() -> None:
    with kernels_from("/nowhere/kernels.so"), pytest.raises(OSError, match="nowhere"):
        kernel_library.kernels()


def test_sums_and_random_numbers_are_those_of_numpy() -> None:
    with kernels_from(library()):
        kernels = kernel_library.kernels()

    assert kernels.sums_agree
    assert kernels.draws_agree
