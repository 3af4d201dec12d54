"""The operator that pastes parts of several samples into one, as in ``nvidia.dali.fn``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from dali_like.errors import ArgumentClashError, ArgumentError, SampleError
from dali_like.graph.language.operator_interface import Array, OperatorCall
from dali_like.operators.machinery.conversion import convert
from dali_like.operators.machinery.description import operator
from dali_like.operators.parameters import FloatArray, Ints, PerFrame, PerSample, at_least

_TYPES = [np.dtype(name) for name in ("uint8", "int16", "int32", "float32")]
_PAIRS = ("in_anchors", "shapes", "out_anchors")


def _check(given: Mapping[str, Any]) -> None:
    if "dtype" in given and given["dtype"] not in _TYPES:
        raise ArgumentError(f"dtype must be UINT8, INT16, INT32 or FLOAT, not {given['dtype']}")
    for name in _PAIRS:
        if name in given and f"{name}_rel" in given:
            raise ArgumentClashError(f"{name} and {name}_rel exclude each other")


def _layout(layout: str, _: Mapping[str, Any]) -> str:
    if layout not in ("", "HWC", "FHWC"):
        raise ArgumentError(f"the input has the layout {layout!r}; allowed are HWC, FHWC")
    return layout or "HWC FHWC"


@operator(per_sample=False, output_layout=_layout, check=_check)
def multi_paste(
    call: OperatorCall,
    *images: Sequence[Array],
    in_ids: PerSample[Ints] | None = None,
    in_anchors: PerFrame[FloatArray] | None = None,
    in_anchors_rel: PerFrame[FloatArray] | None = None,
    shapes: PerFrame[FloatArray] | None = None,
    shapes_rel: PerFrame[FloatArray] | None = None,
    out_anchors: PerFrame[FloatArray] | None = None,
    out_anchors_rel: PerFrame[FloatArray] | None = None,
    output_size: PerSample[Annotated[Ints, at_least(0)]] | None = None,
    dtype: np.dtype[Any] | None = None,
) -> list[Array]:
    """Paste regions of several images of a batch into each image of the result, for example for mosaics.

    Each argument for regions is an array of shape (regions, 2), with a number for height and width. Later regions cover
    earlier ones; the rest is 0. The operator needs the whole batch, and so runs in the main process.

    Args:
        images: uint8, int16, int32 or float32, with the layout HWC or FHWC. One input with `in_ids`; otherwise, sample i of
            each input is pasted into sample i of the result.
        in_ids: numbers of the samples of the batch that are pasted, for each region.
        in_anchors: start of the regions in the input, in pixels. Default: 0.
        in_anchors_rel: the same, as fractions of the input.
        shapes: sizes of the regions, in pixels. Default: to the end of the input.
        shapes_rel: the same, as fractions of the input.
        out_anchors: place of the regions in the result, in pixels. Default: 0.
        out_anchors_rel: the same, as fractions of the result.
        output_size: height and width of the result. Default: those of the inputs, if they all have the same.
        dtype: UINT8, INT16, INT32 or FLOAT. Default: that of the input.
    """
    _check_batch(images, in_ids)
    regions = {
        "in_anchors": in_anchors,
        "in_anchors_rel": in_anchors_rel,
        "shapes": shapes,
        "shapes_rel": shapes_rel,
        "out_anchors": out_anchors,
        "out_anchors_rel": out_anchors_rel,
    }
    given = {name: values for name, values in regions.items() if values is not None}
    results = []
    for i in range(call.count):
        if in_ids is None:
            sources = [batch[i] for batch in images]
        else:
            sources = [_sample(images[0], number) for number in _of(in_ids, i)]
        size = _size(images, None if output_size is None else _of(output_size, i))
        own = {name: (_of(values, i), name in call.framed) for name, values in given.items()}
        results.append(_pasted(sources, images[0][i], size, own, dtype or images[0][i].dtype))
    return results


def _of(values: Any, i: int) -> Any:
    """Return the value of an argument for a sample."""
    return values[i] if isinstance(values, list) else values


def _sample(batch: Sequence[Array], number: int) -> Array:
    if not 0 <= number < len(batch):
        raise SampleError(f"in_ids has {number}, but samples of the batch are numbered from 0 to {len(batch) - 1}")
    return batch[number]


def _check_batch(images: Sequence[Sequence[Array]], in_ids: Any) -> None:
    if in_ids is not None and len(images) > 1:
        raise ArgumentError(f"with in_ids, fn.multi_paste takes one input, not {len(images)}")
    everything = [image for batch in images for image in batch]
    if wrong := [image for image in everything if image.ndim not in (3, 4)]:
        raise SampleError(f"images must have the layout HWC or FHWC, not the shape {wrong[0].shape}")
    if len({(image.dtype, image.ndim) for image in everything}) > 1:
        raise SampleError("all inputs must have the same dtype and number of dimensions")
    if everything and everything[0].dtype not in _TYPES:
        raise SampleError(f"images must be of dtype uint8, int16, int32 or float32, not {everything[0].dtype}")


def _size(images: Sequence[Sequence[Array]], output_size: Ints | None) -> tuple[int, int]:
    """Return height and width of a result."""
    if output_size is not None:
        if len(output_size) < 2:
            raise SampleError(f"output_size must have height and width, not {list(output_size)}")
        return output_size[0], output_size[1]
    sizes = {image.shape[-3:-1] for batch in images for image in batch}
    if len(sizes) > 1:
        raise SampleError(f"inputs have different sizes, {sorted(sizes)[:2]}: pass output_size")
    return sizes.pop()


def _pasted(
    sources: Sequence[Array],
    like: Array,
    size: tuple[int, int],
    given: Mapping[str, tuple[Array, bool]],
    dtype: np.dtype[Any],
) -> Array:
    """Return one image, or sequence of them.

    Args:
        sources: the image of each region.
        like: image whose channels and frames the result has without a source.
        given: values of the arguments for regions, and whether there are values for each frame.
    """
    first = sources[0] if sources else like
    if any(source.shape[-1] != first.shape[-1] or source.shape[:-3] != first.shape[:-3] for source in sources):
        raise SampleError(
            f"images for one result must have the same channels and frames: {[each.shape for each in sources]}"
        )
    out = np.zeros((*first.shape[:-3], *size, first.shape[-1]), dtype)
    frames = out if out.ndim == 4 else out[None]
    for number, frame in enumerate(frames):
        values = {name: value[number % len(value)] if framed else value for name, (value, framed) in given.items()}
        for name, value in values.items():
            if value.shape != (len(sources), 2):
                raise SampleError(f"{name} must have the shape ({len(sources)}, 2), for its regions, not {value.shape}")
        for region, source in enumerate(sources):
            image = source[number] if out.ndim == 4 else source
            _paste(image, frame, {name: value[region].tolist() for name, value in values.items()})
    return out


def _paste(image: Array, canvas: Array, given: Mapping[str, Sequence[float]]) -> None:
    begin = _pixels("in_anchors", given, image.shape, math.floor) or (0, 0)
    shape = _pixels("shapes", given, image.shape, math.ceil)
    if shape is None:
        shape = (image.shape[0] - begin[0], image.shape[1] - begin[1])
    place = _pixels("out_anchors", given, canvas.shape, math.floor) or (0, 0)
    for name, start, whole in (("input", begin, image.shape), ("result", place, canvas.shape)):
        if any(
            first < 0 or extent < 0 or first + extent > most
            for first, extent, most in zip(start, shape, whole, strict=False)
        ):
            raise SampleError(f"the region at {start} of size {shape} is not inside the {name} of size {whole[:2]}")
    part = image[begin[0] : begin[0] + shape[0], begin[1] : begin[1] + shape[1]]
    target = canvas[place[0] : place[0] + shape[0], place[1] : place[1] + shape[1]]
    convert(part, canvas.dtype, target)


def _pixels(name: str, given: Mapping[str, Sequence[float]], whole: Sequence[int], rounded: Any) -> tuple[int, int] | None:
    """Return height and width of an argument, in pixels; None if it is not given."""
    if name in given:
        return int(given[name][0]), int(given[name][1])
    if (parts := given.get(f"{name}_rel")) is None:
        return None
    if not all(0 <= part <= 1 for part in parts):
        raise SampleError(f"{name}_rel must be from 0 to 1, not {list(parts)}")
    height, width = (
        rounded(float(np.float32(part) * np.float32(extent))) for part, extent in zip(parts, whole, strict=False)
    )
    return height, width
