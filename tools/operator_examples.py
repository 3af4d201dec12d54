"""Examples of operators that have no picture: a call, and its result as a pipeline computes it."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

import dali_like
from dali_like import fn, types

#: Calls by operator. Their names come from `_names`.
CALLS: Mapping[str, str] = {
    "batch_permutation": "fn.batch_permutation(seed=1)",
    "bb_flip": "fn.bb_flip(np.float32([[0.1, 0.2, 0.3, 0.4]]))",
    "bbox_paste": "fn.bbox_paste(np.float32([[0.0, 0.0, 1.0, 0.5]]), ratio=2.0)",
    "bbox_rotate": "fn.bbox_rotate(np.float32([[0.1, 0.2, 0.3, 0.4]]), angle=90.0, input_shape=[100, 100])",
    "box_encoder": "fn.box_encoder(np.float32([[0, 0, 0.5, 0.5]]), np.int32([7]), anchors=[0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1])",
    "cast": "fn.cast(np.float32([1.5, -3, 300]), dtype=types.UINT8)",
    "cast_like": "fn.cast_like(np.float32([1.5, -3, 300]), np.uint8([0]))",
    "cat": "fn.cat(np.int32([1, 2]), np.int32([3]), axis=0)",
    "constant": "fn.constant(idata=[1, 2, 3, 4], shape=[2, 2])",
    "coord_flip": "fn.coord_flip(np.float32([[0.1, 0.2], [0.3, 0.4]]))",
    "coord_transform": "fn.coord_transform(np.float32([[1, 2], [3, 4]]), MT=[2, 0, 10, 0, 2, 20])",
    "copy": "fn.copy(np.int32([1, 2]))",
    "decoders.audio": "fn.decoders.audio(wav, dtype=types.INT16)",
    "decoders.numpy": "fn.decoders.numpy(npy)",
    "dl_tensor_python_function": "fn.dl_tensor_python_function(np.int32([1, 2]), function=lambda capsule: capsule)",
    "element_extract": "fn.element_extract(np.int32([[1, 2], [3, 4], [5, 6]]), element_map=[0, 2])",
    "expand_dims": "fn.expand_dims(np.int32([1, 2]), axes=[0])",
    "experimental.debayer": "fn.experimental.debayer(np.full((4, 4), 9, np.uint8), blue_position=[0, 0]).shape()",
    "experimental.inflate": "fn.experimental.inflate(lz4, shape=[2, 3])",
    "experimental.peek_image_shape": "fn.experimental.peek_image_shape(jpeg)",
    "experimental.remap": (
        "fn.experimental.remap(\n"
        "    np.uint8([[[1], [2]]]),\n"
        "    np.float32([[1, 0]]),\n"
        "    np.float32([[0, 0]]),\n"
        "    interp=types.INTERP_NN,\n"
        '    pixel_origin="center",\n'
        ")"
    ),
    "full": "fn.full(np.float32([1, 2]), shape=[2, 2])",
    "full_like": "fn.full_like(np.int32([[0, 0]]), 7)",
    "get_property": 'fn.get_property(fn.reshape(np.uint8([[1]]), layout="HW"), key="layout")',
    "lookup_table": "fn.lookup_table(np.uint8([3, 1, 9]), keys=[1, 3], values=[10, 30], default_value=-1.0)",
    "one_hot": "fn.one_hot(np.int32([1, 0]), num_classes=3)",
    "ones": "fn.ones(shape=[2, 2])",
    "ones_like": "fn.ones_like(np.uint8([[0, 0]]))",
    "peek_image_shape": "fn.peek_image_shape(jpeg)",
    "per_frame": "fn.per_frame(np.float32([10, 20, 30]))",
    "permute_batch": "fn.permute_batch(np.int32([1, 2]), indices=[0])",
    "python_function": "fn.python_function(np.int32([1, 2]), function=lambda data: data * 2)",
    "random.beta": "fn.random.beta(shape=[3], alpha=2.0, beta=5.0, seed=1)",
    "random.choice": "fn.random.choice(np.int32([10, 20, 30]), shape=[4], seed=1)",
    "random.coin_flip": "fn.random.coin_flip(shape=[4], seed=1)",
    "random.normal": "fn.random.normal(shape=[3], mean=10.0, seed=1)",
    "random.uniform": "fn.random.uniform(shape=[3], range=[0, 1], seed=1)",
    "random_bbox_crop": (
        "fn.random_bbox_crop(np.float32([[0.4, 0.4, 0.6, 0.6]]), aspect_ratio=[0.5, 2.0], scaling=[0.3, 1.0], seed=4)"
    ),
    "random_crop_generator": "fn.random_crop_generator(np.int64([100, 200, 3]), seed=1)",
    "reductions.max": "fn.reductions.max(np.int32([[1, 2], [3, 4]]), axes=[0])",
    "reductions.mean": "fn.reductions.mean(np.int32([[1, 2], [3, 4]]), axes=[0])",
    "reductions.mean_square": "fn.reductions.mean_square(np.float32([[1, 2], [3, 4]]), axes=[0])",
    "reductions.min": "fn.reductions.min(np.int32([[1, 2], [3, 4]]), axes=[0])",
    "reductions.rms": "fn.reductions.rms(np.float32([3, 4]))",
    "reductions.std_dev": "fn.reductions.std_dev(np.float32([1, 3]), np.float32(2))",
    "reductions.sum": "fn.reductions.sum(np.int32([[1, 2], [3, 4]]), axes=[1])",
    "reductions.variance": "fn.reductions.variance(np.float32([1, 3]), np.float32(2))",
    "reinterpret": "fn.reinterpret(np.uint8([1, 0, 2, 0]), dtype=types.UINT16)",
    "reshape": "fn.reshape(np.int32([1, 2, 3, 4]), shape=[2, -1])",
    "roi_random_crop": "fn.roi_random_crop(crop_shape=[9], roi_start=[20], roi_end=[25], in_shape=[50], seed=1)",
    "segmentation.random_mask_pixel": "fn.segmentation.random_mask_pixel(np.int32([[0, 0], [0, 1]]), foreground=1, seed=1)",
    "segmentation.random_object_bbox": "fn.segmentation.random_object_bbox(np.int32([[0, 0, 0], [0, 1, 1]]), seed=1)",
    "segmentation.select_masks": (
        "fn.segmentation.select_masks(np.int32([1]), np.int32([[0, 0, 1], [1, 1, 2]]), np.float32([[0, 0], [5, 6]]))"
    ),
    "sequence_rearrange": "fn.sequence_rearrange(np.int32([[1, 2], [3, 4]]), new_order=[1, 0, 1])",
    "shapes": "fn.shapes(np.zeros((4, 5), np.uint8))",
    "squeeze": "fn.squeeze(np.int32([[[1, 2]]]), axes=[0])",
    "stack": "fn.stack(np.int32([1, 2]), np.int32([3, 4]), axis=1)",
    "transforms.combine": "fn.transforms.combine(fn.transforms.scale(scale=[2, 2]), fn.transforms.shear(shear=[1, 0]))",
    "transforms.crop": "fn.transforms.crop(from_start=[10, 20], from_end=[20, 40])",
    "transforms.rotation": "fn.transforms.rotation(angle=45.0, center=[1, 1])",
    "transforms.scale": "fn.transforms.scale(scale=[2, 3], center=[1, 1])",
    "transforms.shear": "fn.transforms.shear(shear=[0.5, 0])",
    "transforms.translation": "fn.transforms.translation(offset=[10, 20])",
    "transpose": "fn.transpose(np.int32([[1, 2, 3], [4, 5, 6]]), perm=[1, 0])",
    "zeros": "fn.zeros(shape=[2, 2])",
    "zeros_like": "fn.zeros_like(np.uint8([[1, 2]]))",
}

#: Names in calls that need a word of explanation.
MEANINGS: Mapping[str, str] = {
    "jpeg": "a JPEG file of 130 x 195 pixels",
    "wav": "a WAV file of four samples at 8,000 Hz",
    "npy": "the file of `np.save` for [1, 2, 3]",
    "lz4": "the LZ4 block of the bytes 0 to 5",
}


def pipeline_of(path: str) -> dali_like.Pipeline:
    """Return a pipeline of the example of an operator."""
    pipe = dali_like.Pipeline(batch_size=1, num_threads=1, device_id=None)
    with pipe:
        outputs = eval(CALLS[path], {"fn": fn, "np": np, "types": types, "__name__": __name__, **_names()})  # written above
        pipe.set_outputs(*(outputs if isinstance(outputs, (list, tuple)) else [outputs]))
    return pipe


def result_of(path: str) -> str:
    """Compute the example of an operator, and return its outputs as text."""
    with pipeline_of(path) as pipe:
        arrays = [np.asarray(batch.at(0)) for batch in pipe.run()]
    return ", ".join(np.array2string(array, separator=", ", precision=3, suppress_small=True) for array in arrays)


@functools.cache
def _names() -> Mapping[str, Any]:
    import lz4.block  # of one example
    import simplejpeg  # likewise
    import soundfile  # likewise

    wav, npy = io.BytesIO(), io.BytesIO()
    soundfile.write(wav, np.array([0, 100, -100, 0], np.int16), 8000, format="WAV")
    np.save(npy, np.array([1, 2, 3]))
    files = {
        "jpeg": simplejpeg.encode_jpeg(np.zeros((130, 195, 3), np.uint8)),
        "wav": wav.getvalue(),
        "npy": npy.getvalue(),
        "lz4": lz4.block.compress(bytes(range(6)), store_size=False),
    }
    return {name: np.frombuffer(data, np.uint8) for name, data in files.items()}
