"""The cases: each operator of ``fn`` with a counterpart in DALI, with arguments that programs give it.

The name of a case is that of the operator, and perhaps a variant behind a blank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["CASES", "LEFT_OUT", "REASONS", "Case"]


class Case(NamedTuple):
    """An operator behind sources.

    Attributes:
        apply: given the library and a node for each input, returns the node of the result, or several.
        inputs: kinds of samples, of `dali_like` or `nvidia.dali` alike; see `benchmarks.operators.inputs.KINDS`.
        can_be_ragged: whether samples of different shapes make sense.
    """

    apply: Callable[..., Any]
    inputs: Sequence[str] = ("image",)
    can_be_ragged: bool = True


def _five_additions(lib: Any, x: Any) -> Any:
    for _ in range(5):
        x = x + 1.5
    return x


def _multi_paste(lib: Any, image: Any) -> Any:
    return lib.fn.multi_paste(image, in_ids=[0, 1], output_size=[400, 500])


_ANCHORS = [number for i in range(32) for number in (i / 64, i / 64, i / 64 + 0.3, i / 64 + 0.4)]
_VOLUME_MATRIX = [1, 0.1, 0, 1, 0, 1, 0.1, -1, 0, 0, 0.9, 2]

CASES: Mapping[str, Case] = {
    "no operator": Case(lambda lib, x: x),
    # Expressions
    "x + 1.5": Case(lambda lib, x: x + 1.5),
    "x + x": Case(lambda lib, x: x + x),
    "five additions": Case(_five_additions),
    "(x - 127.5) / 127.5": Case(lambda lib, x: (x - 127.5) / 127.5),
    "math.sqrt": Case(lambda lib, x: lib.math.sqrt(x), ("float image",)),
    "math.clamp": Case(lambda lib, x: lib.math.clamp(x, 10, 200)),
    "x[1:-1]": Case(lambda lib, x: x[1:-1]),
    # Arrays
    "cast": Case(lambda lib, x: lib.fn.cast(x, dtype=lib.types.FLOAT)),
    "cast to UINT8": Case(lambda lib, x: lib.fn.cast(x, dtype=lib.types.UINT8), ("float image",)),
    "cast_like": Case(lambda lib, x, y: lib.fn.cast_like(x, y), ("image", "numbers")),
    "copy": Case(lambda lib, x: lib.fn.copy(x)),
    "shapes": Case(lambda lib, x: x.shape()),
    "stack": Case(lambda lib, x: lib.fn.stack(x, x)),
    "cat": Case(lambda lib, x: lib.fn.cat(x, x, axis=0)),
    "one_hot": Case(lambda lib, x: lib.fn.one_hot(x, num_classes=10), ("ids",)),
    "one_hot of labels": Case(lambda lib, x: lib.fn.one_hot(x, num_classes=10), ("label",), can_be_ragged=False),
    "lookup_table": Case(lambda lib, x: lib.fn.lookup_table(x, keys=[*range(256)], values=[i / 255 for i in range(256)])),
    "constant": Case(lambda lib, x: (lib.fn.copy(lib.fn.constant(fdata=[1.5, 2.5, 3.5])), x), ("label",), False),
    "reshape": Case(lambda lib, x: lib.fn.reshape(x, shape=[-1])),
    "reinterpret": Case(lambda lib, x: lib.fn.reinterpret(x, dtype=lib.types.INT32), ("float image",)),
    "squeeze": Case(lambda lib, x: lib.fn.squeeze(x, axes=[2]), ("gray",)),
    "expand_dims": Case(lambda lib, x: lib.fn.expand_dims(x, axes=[0])),
    "transpose": Case(lambda lib, x: lib.fn.transpose(x, perm=[2, 0, 1])),
    "zeros": Case(lambda lib, x: (lib.fn.zeros(shape=[28, 28]), x), ("label",), False),
    "ones": Case(lambda lib, x: (lib.fn.ones(shape=[28, 28]), x), ("label",), False),
    "full": Case(lambda lib, x: lib.fn.full(x, shape=[28, 1]), ("label",), False),
    "zeros_like": Case(lambda lib, x: lib.fn.zeros_like(x)),
    "ones_like": Case(lambda lib, x: lib.fn.ones_like(x)),
    "full_like": Case(lambda lib, x: lib.fn.full_like(x, 7)),
    "get_property": Case(lambda lib, x: lib.fn.get_property(x, key="layout")),
    **{
        f"reductions.{name}": Case(lambda lib, x, name=name: getattr(lib.fn.reductions, name)(x))
        for name in ("sum", "mean", "mean_square", "rms", "min", "max")
    },
    "reductions.mean of axes": Case(lambda lib, x: lib.fn.reductions.mean(x, axes=[0, 1])),
    "reductions.variance": Case(lambda lib, x: lib.fn.reductions.variance(x, lib.fn.reductions.mean(x)), ("float image",)),
    "reductions.std_dev": Case(lambda lib, x: lib.fn.reductions.std_dev(x, lib.fn.reductions.mean(x)), ("float image",)),
    # Random numbers
    "random.uniform": Case(lambda lib, x: (lib.fn.random.uniform(range=[0, 1]), x), ("label",), False),
    "random.uniform arrays": Case(lambda lib, x: lib.fn.random.uniform(x, range=[0, 1])),
    "random.normal": Case(lambda lib, x: (lib.fn.random.normal(), x), ("label",), False),
    "random.normal arrays": Case(lambda lib, x: lib.fn.random.normal(x)),
    "random.coin_flip": Case(lambda lib, x: (lib.fn.random.coin_flip(), x), ("label",), False),
    "random.beta": Case(lambda lib, x: (lib.fn.random.beta(alpha=2.0, beta=3.0), x), ("label",), False),
    "random.choice": Case(lambda lib, x: lib.fn.random.choice(x, shape=[8]), ("ids",)),
    "random_crop_generator": Case(
        lambda lib, x: lib.fn.random_crop_generator(lib.fn.cast(x.shape(), dtype=lib.types.INT64))
    ),
    # Decoding
    "decoders.image": Case(lambda lib, x: lib.fn.decoders.image(x), ("jpeg",)),
    "decoders.image PNG": Case(lambda lib, x: lib.fn.decoders.image(x), ("png",)),
    "decoders.image_crop": Case(lambda lib, x: lib.fn.decoders.image_crop(x, crop=[60, 60]), ("jpeg",)),
    "decoders.image_slice": Case(
        lambda lib, x: lib.fn.decoders.image_slice(x, rel_start=[0.2, 0.2], rel_end=[0.8, 0.7]), ("jpeg",)
    ),
    "decoders.image_random_crop": Case(lambda lib, x: lib.fn.decoders.image_random_crop(x), ("jpeg",)),
    "decoders.image_random_crop PNG": Case(lambda lib, x: lib.fn.decoders.image_random_crop(x), ("png",)),
    "peek_image_shape": Case(lambda lib, x: lib.fn.peek_image_shape(x), ("jpeg",)),
    "decoders.numpy": Case(lambda lib, x: lib.fn.decoders.numpy(x), ("npy",)),
    "decoders.audio": Case(lambda lib, x: lib.fn.decoders.audio(x)[0], ("wav",)),
    "experimental.decoders.image": Case(lambda lib, x: lib.fn.experimental.decoders.image(x), ("jpeg",)),
    "experimental.decoders.image_crop": Case(
        lambda lib, x: lib.fn.experimental.decoders.image_crop(x, crop=[60, 60]), ("jpeg",)
    ),
    "experimental.decoders.image_slice": Case(
        lambda lib, x: lib.fn.experimental.decoders.image_slice(x, rel_start=[0.2, 0.2], rel_end=[0.8, 0.7]), ("jpeg",)
    ),
    "experimental.decoders.image_random_crop": Case(
        lambda lib, x: lib.fn.experimental.decoders.image_random_crop(x), ("jpeg",)
    ),
    "experimental.peek_image_shape": Case(lambda lib, x: lib.fn.experimental.peek_image_shape(x), ("jpeg",)),
    # Geometry
    "resize": Case(lambda lib, x: lib.fn.resize(x, resize_x=24, resize_y=24)),
    "resize larger": Case(lambda lib, x: lib.fn.resize(x, resize_x=600, resize_y=400)),
    "resize cubic": Case(lambda lib, x: lib.fn.resize(x, resize_shorter=100, interp_type=lib.types.INTERP_CUBIC)),
    "resize nearest": Case(lambda lib, x: lib.fn.resize(x, resize_shorter=100, interp_type=lib.types.INTERP_NN)),
    "resize without antialiasing": Case(lambda lib, x: lib.fn.resize(x, resize_shorter=100, antialias=False)),
    "resize of volumes": Case(lambda lib, x: lib.fn.resize(x, size=[20, 40, 40]), ("volume",)),
    "resize_crop_mirror": Case(lambda lib, x: lib.fn.resize_crop_mirror(x, resize_shorter=40, crop=[32, 32], mirror=1)),
    "fast_resize_crop_mirror": Case(
        lambda lib, x: lib.fn.fast_resize_crop_mirror(x, resize_shorter=40, crop=[32, 32], mirror=1)
    ),
    "random_resized_crop": Case(lambda lib, x: lib.fn.random_resized_crop(x, size=[32, 32])),
    "random_resized_crop to 224": Case(lambda lib, x: lib.fn.random_resized_crop(x, size=[224, 224])),
    "crop": Case(lambda lib, x: lib.fn.crop(x, crop=[16, 16])),
    "slice": Case(lambda lib, x: lib.fn.slice(x, rel_start=[0.2, 0.2], rel_end=[0.8, 0.7], axis_names="HW")),
    "slice padded": Case(
        lambda lib, x: lib.fn.slice(x, start=[-2, -2], end=[18, 18], axes=[0, 1], out_of_bounds_policy="pad")
    ),
    "flip": Case(lambda lib, x: lib.fn.flip(x)),
    "flip vertically": Case(lambda lib, x: lib.fn.flip(x, horizontal=0, vertical=1)),
    "pad": Case(lambda lib, x: lib.fn.pad(x, axis_names="HW", align=[64, 64])),
    "pad of tokens": Case(lambda lib, x: lib.fn.pad(x, fill_value=0), ("ids",)),
    "paste": Case(lambda lib, x: lib.fn.paste(x, ratio=1.5, fill_value=[1, 2, 3])),
    "multi_paste": Case(_multi_paste, can_be_ragged=False),
    "rotate": Case(lambda lib, x: lib.fn.rotate(x, angle=25.0)),
    "rotate of volumes": Case(lambda lib, x: lib.fn.rotate(x, angle=25.0, axis=[1, 0, 0]), ("volume",)),
    "warp_affine": Case(lambda lib, x: lib.fn.warp_affine(x, matrix=[1, 0.2, -3, 0.1, 1, -2])),
    "warp_affine of volumes": Case(lambda lib, x: lib.fn.warp_affine(x, matrix=_VOLUME_MATRIX), ("volume",)),
    "experimental.warp_perspective": Case(
        lambda lib, x: lib.fn.experimental.warp_perspective(x, matrix=[1, 0.3, -2, 0.1, 1.2, -1.5, 0.001, 0.002, 1])
    ),
    "sphere": Case(lambda lib, x: lib.fn.sphere(x)),
    "water": Case(lambda lib, x: lib.fn.water(x)),
    "water linear": Case(lambda lib, x: lib.fn.water(x, interp_type=lib.types.INTERP_LINEAR)),
    # Colors and filters
    "crop_mirror_normalize": Case(
        lambda lib, x: lib.fn.crop_mirror_normalize(x, mean=[127.0, 120, 110], std=[50.0, 51, 52], mirror=1)
    ),
    "crop_mirror_normalize with a crop": Case(
        lambda lib, x: lib.fn.crop_mirror_normalize(
            x, crop=[18, 18], mean=[127.0, 120, 110], std=[50.0, 51, 52], mirror=lib.fn.random.coin_flip()
        )
    ),
    "crop_mirror_normalize to HWC": Case(
        lambda lib, x: lib.fn.crop_mirror_normalize(x, mean=[127.0], std=[50.0], output_layout="HWC")
    ),
    "normalize": Case(lambda lib, x: lib.fn.normalize(x), ("float image",)),
    "normalize of axes": Case(lambda lib, x: lib.fn.normalize(x, axes=[0, 1])),
    "brightness_contrast": Case(lambda lib, x: lib.fn.brightness_contrast(x, brightness=1.2, contrast=1.4)),
    "brightness": Case(lambda lib, x: lib.fn.brightness(x, brightness=1.2)),
    "contrast": Case(lambda lib, x: lib.fn.contrast(x, contrast=1.4)),
    "hsv": Case(lambda lib, x: lib.fn.hsv(x, hue=120.0, saturation=1.4)),
    "hue": Case(lambda lib, x: lib.fn.hue(x, hue=120.0)),
    "saturation": Case(lambda lib, x: lib.fn.saturation(x, saturation=0.2)),
    "color_twist": Case(lambda lib, x: lib.fn.color_twist(x, hue=100.0, saturation=1.5, contrast=1.3)),
    "color_space_conversion to gray": Case(
        lambda lib, x: lib.fn.color_space_conversion(x, image_type=lib.types.RGB, output_type=lib.types.GRAY)
    ),
    "color_space_conversion to YCbCr": Case(
        lambda lib, x: lib.fn.color_space_conversion(x, image_type=lib.types.RGB, output_type=lib.types.YCbCr)
    ),
    "color_space_conversion to BGR": Case(
        lambda lib, x: lib.fn.color_space_conversion(x, image_type=lib.types.RGB, output_type=lib.types.BGR)
    ),
    "experimental.equalize": Case(lambda lib, x: lib.fn.experimental.equalize(x)),
    "experimental.debayer": Case(lambda lib, x: lib.fn.experimental.debayer(x, blue_position=[0, 0]), ("gray",), False),
    "experimental.filter": Case(lambda lib, x, kernel: lib.fn.experimental.filter(x, kernel), ("image", "kernel")),
    "laplacian": Case(lambda lib, x: lib.fn.laplacian(x, window_size=3)),
    "gaussian_blur": Case(lambda lib, x: lib.fn.gaussian_blur(x, sigma=1.5)),
    "jpeg_compression_distortion": Case(lambda lib, x: lib.fn.jpeg_compression_distortion(x, quality=50)),
    "grid_mask": Case(lambda lib, x: lib.fn.grid_mask(x, tile=20, ratio=0.5)),
    "grid_mask rotated": Case(lambda lib, x: lib.fn.grid_mask(x, tile=20, ratio=0.5, angle=0.5)),
    "erase": Case(
        lambda lib, x: lib.fn.erase(x, anchor=[0.2, 0.3], shape=[0.3, 0.2], normalized=True, axis_names="HW", fill_value=9)
    ),
    "noise.gaussian": Case(lambda lib, x: lib.fn.noise.gaussian(x, stddev=10.0)),
    "noise.salt_and_pepper": Case(lambda lib, x: lib.fn.noise.salt_and_pepper(x, prob=0.1)),
    "noise.shot": Case(lambda lib, x: lib.fn.noise.shot(x, factor=10.0)),
    # Sequences and batches
    "element_extract": Case(lambda lib, x: lib.fn.element_extract(x, element_map=[1]), ("video",)),
    "sequence_rearrange": Case(lambda lib, x: lib.fn.sequence_rearrange(x, new_order=[3, 1, 0, 2]), ("video",)),
    "per_frame": Case(lambda lib, x: lib.fn.per_frame(x), ("numbers",)),
    "batch_permutation": Case(lambda lib, x: (lib.fn.batch_permutation(), x), ("label",), False),
    "permute_batch": Case(lambda lib, x: lib.fn.permute_batch(x, indices=[*range(15, -1, -1)])),
    # Boxes, points and masks
    "bb_flip": Case(lambda lib, x: lib.fn.bb_flip(x, ltrb=True), ("boxes",)),
    "bbox_paste": Case(lambda lib, x: lib.fn.bbox_paste(x, ratio=2.0, ltrb=True), ("boxes",)),
    "bbox_rotate": Case(
        lambda lib, x: lib.fn.bbox_rotate(x, angle=30.0, input_shape=[100, 100], bbox_layout="xyXY"), ("boxes",)
    ),
    "box_encoder": Case(lambda lib, x, y: lib.fn.box_encoder(x, y, anchors=_ANCHORS), ("boxes", "labels of boxes")),
    "random_bbox_crop": Case(
        lambda lib, x, y: lib.fn.random_bbox_crop(
            x, y, aspect_ratio=[0.5, 2.0], thresholds=[0.0, 0.3, 0.5], scaling=[0.3, 1.0], bbox_layout="xyXY"
        ),
        ("boxes", "labels of boxes"),
    ),
    "roi_random_crop": Case(
        lambda lib, x: lib.fn.roi_random_crop(x, crop_shape=[9, 9, 3], roi_start=[5, 5, 0], roi_end=[15, 15, 3])
    ),
    "segmentation.random_mask_pixel": Case(lambda lib, x: lib.fn.segmentation.random_mask_pixel(x, foreground=1), ("mask",)),
    "segmentation.random_object_bbox": Case(
        lambda lib, x: lib.fn.segmentation.random_object_bbox(x, foreground_prob=1.0), ("mask",)
    ),
    "segmentation.select_masks": Case(
        lambda lib, ids, polygons, vertices: lib.fn.segmentation.select_masks(ids, polygons, vertices),
        ("mask ids", "polygons", "vertices"),
    ),
    "coord_transform": Case(
        lambda lib, x: lib.fn.coord_transform(x, M=[0, 1, 0, 1, 0, 0, 0, 0, 1], T=[1, 2, 3]), ("points",)
    ),
    "coord_flip": Case(lambda lib, x: lib.fn.coord_flip(x, flip_y=1), ("points",)),
    "transforms.translation": Case(lambda lib, x: lib.fn.transforms.translation(x, offset=[10, 20]), ("matrix",), False),
    "transforms.scale": Case(lambda lib, x: lib.fn.transforms.scale(x, scale=[2, 3]), ("matrix",), False),
    "transforms.rotation": Case(lambda lib, x: lib.fn.transforms.rotation(x, angle=45.0), ("matrix",), False),
    "transforms.shear": Case(lambda lib, x: lib.fn.transforms.shear(x, shear=[0.5, 0]), ("matrix",), False),
    "transforms.crop": Case(
        lambda lib, x: lib.fn.transforms.crop(x, from_start=[1, 2], from_end=[4, 5]), ("matrix",), False
    ),
    "transforms.combine": Case(lambda lib, x: lib.fn.transforms.combine(x, x), ("matrix",), False),
    # Audio
    "audio_resample": Case(lambda lib, x: lib.fn.audio_resample(x, in_rate=16_000.0, out_rate=11_025.0), ("audio",)),
    "audio_resample to a higher rate": Case(
        lambda lib, x: lib.fn.audio_resample(x, in_rate=16_000.0, out_rate=22_050.0), ("audio",)
    ),
    "preemphasis_filter": Case(lambda lib, x: lib.fn.preemphasis_filter(x), ("audio",)),
    "nonsilent_region": Case(lambda lib, x: lib.fn.nonsilent_region(x, window_length=256), ("audio",)),
    "spectrogram": Case(lambda lib, x: lib.fn.spectrogram(x, nfft=512, window_length=400, window_step=160), ("audio",)),
    "power_spectrum": Case(lambda lib, x: lib.fn.power_spectrum(x), ("audio",)),  # DALI writes beyond a shorter nfft=
    "mel_filter_bank": Case(lambda lib, x: lib.fn.mel_filter_bank(x, sample_rate=16_000.0, nfilter=64), ("spectrum",)),
    "mfcc": Case(lambda lib, x: lib.fn.mfcc(x, n_mfcc=20), ("mel",)),
    "to_decibels": Case(lambda lib, x: lib.fn.to_decibels(x), ("mel",)),
}

#: Functions without a case, and why.
LEFT_OUT: Mapping[str, str] = {
    "experimental.audio_resample": "another name of audio_resample",
    "experimental.resize": "another name of resize",
    "dump_image": "writes files",
    "io.file.read": "reads files: their system decides",
    "experimental.inflate": "DALI has it on a GPU only",
    "experimental.remap": "DALI has it on a GPU only",
    "experimental.dilate": "DALI has it on a GPU only",
    "experimental.erode": "DALI has it on a GPU only",
    "experimental.median_blur": "DALI has it on a GPU only",
    "jitter": "DALI has it on a GPU only",
    "clahe": "DALI has it from 2.4 on",
    "ssd_random_crop": "the older form of random_bbox_crop",
    "experimental.tensor_resize": "in DALI 1.53 and 2.4, constant sizes scale the first sample of a batch only",
    "experimental.decoders.video": "FFmpeg decides; see benchmarks.training for decoding",
    "python_function": "calls the user's code, in both libraries under the interpreter's lock",
    "torch_python_function": "likewise",
    "dl_tensor_python_function": "likewise",
    "experimental.numba_function": "the user's code, compiled by Numba in both libraries",
}

_WINDOWS = ("image_crop", "image_slice", "image_random_crop")
#: The letters of reasons for cases that are slower than DALI's; see `benchmarks.operators.report`.
REASONS: Mapping[str, str] = {
    **{f"{module}decoders.{name}": "d" for module in ("", "experimental.") for name in _WINDOWS},
    **dict.fromkeys(("random.uniform", "random.normal", "random.coin_flip", "random.beta", "random.choice"), "e"),
    **dict.fromkeys(("random_crop_generator", "random_resized_crop", "random_resized_crop to 224"), "e"),
    **dict.fromkeys(("peek_image_shape", "experimental.peek_image_shape", "decoders.numpy", "decoders.audio"), "f"),
    **dict.fromkeys(("bbox_rotate", "box_encoder", "random_bbox_crop", "roi_random_crop"), "g"),
    **{f"segmentation.{name}": "g" for name in ("random_mask_pixel", "random_object_bbox", "select_masks")},
    **dict.fromkeys(("pad", "pad of tokens", "paste", "multi_paste", "permute_batch"), "h"),
    **dict.fromkeys(("experimental.warp_perspective", "experimental.filter", "laplacian", "noise.salt_and_pepper"), "h"),
    **dict.fromkeys(("audio_resample", "audio_resample to a higher rate"), "h"),
    **{f"{module}decoders.image": "h" for module in ("", "experimental.")},
    **{f"decoders.{name}": "h" for name in ("image PNG", "image_random_crop PNG")},
}
