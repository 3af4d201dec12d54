"""Operators that decode, as in ``nvidia.dali.fn.decoders``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dali_like import types
from dali_like.errors import ArgumentError, DefinitionError, DeviceError
from dali_like.fn._image import decode_image, decoded_shape
from dali_like.graph.nodes import DataNode, OperatorNode
from dali_like.graph.operators import SampleShape

__all__ = ["image"]


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class _ImageDecoder:
    output_type: types.DALIImageType
    adjust_orientation: bool
    name: str = "fn.decoders.image"
    layout: str = "HWC"

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {"output_type": int(self.output_type), "adjust_orientation": self.adjust_orientation}

    def infer(self, samples: Sequence[NDArray[Any]]) -> SampleShape | None:
        shape = decoded_shape(samples[0], self.output_type, self.adjust_orientation)
        return None if shape is None else SampleShape(shape, np.dtype(np.uint8))

    def compute(self, samples: Sequence[NDArray[Any]], out: NDArray[Any] | None) -> NDArray[Any]:
        return decode_image(samples[0], self.output_type, self.adjust_orientation, out)


def image(
    data: DataNode,
    *,
    device: Literal["cpu"] = "cpu",
    output_type: types.DALIImageType = types.RGB,
    adjust_orientation: bool = False,
) -> DataNode:
    """Decode images: JPEG, PNG, WebP, BMP and TIFF, told apart by their first bytes.

    Args:
        data: encoded files, each a one-dimensional uint8 array.
        device: where to decode: "cpu".
        output_type: colour format of the result: RGB, BGR, GRAY (one channel), YCbCr, or ANY_DATA, which keeps the channels
            of the file.
        adjust_orientation: turn the image upright as its EXIF orientation says. DALI's ``decoders.image`` disregards it, so
            that is the default; its ``experimental.decoders.image`` has this argument.

    Returns:
        Images of shape (height, width, channels), uint8, layout "HWC".

    Raises:
        ArgumentError, DefinitionError, DeviceError: an argument is wrong.

    In `Pipeline.run` a file that cannot be decoded raises a `dali_like.errors.DecodeError` that names the sample.
    """
    if not isinstance(data, DataNode):
        raise DefinitionError(f"fn.decoders.image works on a DataNode, not on a {type(data).__qualname__}")
    if device != "cpu":
        raise DeviceError(f"fn.decoders.image: device={device!r} is not there in this version, which decodes on the CPU")
    try:
        output_type = types.DALIImageType(output_type)
    except ValueError:
        names = ", ".join(kind.name for kind in types.DALIImageType)
        raise ArgumentError(f"fn.decoders.image: output_type={output_type!r} is none of {names}") from None
    operator = _ImageDecoder(output_type, bool(adjust_orientation))
    return DataNode(operator.name, "cpu", OperatorNode(operator, (data,)))
